"""Published examples of NVBench, Tensara and FlashInfer, ported in at most ten changed lines.

`python -m tests.record.ported FOLDER` fetches and ports them in FOLDER, and checks solutions of the problems on the
emulator. On a GPU it also measures them, by their own tool where that is installed and by this package.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any

import click

from tests.record.examples import HERE, Example, examples, prepare, repositories
from worklog.errors import WorklogError
from worklog.gpu.device import gpu, gpu_reason, software, tool
from worklog.kernel.solution import Solution
from worklog.peers.harnesses import nvbench_summaries
from worklog.runner import declare, solved
from worklog.runner.check import check
from worklog.runner.declare import Benchmark
from worklog.runs import Measurement, documents, source_label
from worklog.runs.table import Table
from worklog.settings import Harness

LIMIT_S = 60.0  # of a child process
HARNESS = Harness().but(budget_s=1.5, precision=0.01)
NVBENCH_TIMEOUT_S = "4"  # of a measurement: its long ones would take 15
Theirs = tuple[float | None, float | None, str]  # NVBench's cold and batch mean in µs, and why it skips a point


@dataclass
class Row:
    """One point of an example. unit: of ours, low, high and theirs: µs, or TFLOP/s. hot: in a row, without a flush of
    L2. why: reasons for what is missing.
    """

    project: str
    example: str
    point: str
    lines: int
    unit: str = "µs"
    ours: float | None = None
    low: float | None = None
    high: float | None = None
    theirs: float | None = None
    hot: float | None = None
    hot_theirs: float | None = None
    why: list[str] = field(default_factory=list)


def checked_here(example: Example, folder: Path) -> str:
    """What of an example works without a GPU: the gate's verdict of our solution."""
    if not example.solution:
        return "needs a GPU"
    path = folder / "ours" / example.project / example.path
    verdict = check(Solution.of(HERE / example.solution), str(path), on="emulated", seed=0).verdict
    cases = sum(stage.name.startswith("case ") for stage in verdict.stages)
    return f"{'passes' if verdict.accepted else 'FAILS'} {cases} cases on the emulator"


def nvbench(chosen: Sequence[Example], folder: Path, lines: Mapping[str, int]) -> list[Row]:
    """Each example by NVBench and by `worklog bench`, in one run of ours."""
    rows, theirs, benchmarks, example_of = list[Row](), dict[tuple[str, str], Theirs](), list[Benchmark](), {}
    for example in chosen:
        pairs = list(zip(example.measured[::2], example.measured[1::2], strict=True))
        axes, names = ([word for option, word in pairs if option == which] for which in ("-a", "-b"))
        read, why = _attempt(partial(_by_nvbench, example, folder), {})
        theirs |= read
        path = folder / "ours" / example.project / example.path
        declared, refused = _attempt(partial(declare.declared, path, names, axes), [])
        benchmarks += declared
        example_of |= dict.fromkeys((benchmark.name for benchmark in declared), example)
        if why or refused:
            rows.append(Row(example.project, example.name, "all", lines[example.path], why=[*why, *refused]))
    run, why = (
        _attempt(lambda: declare.measure(benchmarks, harness=HARNESS).measurements, []) if benchmarks else ([], [])
    )
    if why:
        rows += [Row("NVBench", name, point, 0, theirs=times[0], why=why) for (name, point), times in theirs.items()]
    for m in run:
        row = _row(example_of[m.kernel], f"{m.kernel} {_point(m.axes)}".strip(), lines, m)
        row.theirs, row.hot_theirs, skipped = theirs.get((m.kernel, _point(m.axes)), (None, None, ""))
        row.why += [f"NVBench skips it: {line}" for line in skipped.splitlines()[:1]]
        rows.append(row)
    return rows


def _point(axes: Mapping[str, Any]) -> str:
    """The same text for the same values, whichever tool prints them."""
    whole = {name: int(v) if isinstance(v, float) and v.is_integer() else v for name, v in axes.items()}
    return ", ".join(f"{name}={value}" for name, value in sorted(whole.items()))


def _by_nvbench(example: Example, folder: Path) -> dict[tuple[str, str], Theirs]:
    """What its program reads, by benchmark and point. Raises RuntimeError."""
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "nvbench.json"
        path = folder / "theirs" / example.project / example.path
        words = *example.measured, "--timeout", NVBENCH_TIMEOUT_S, "--json", str(out)
        _run([str(path), "--devices", "0", *words])
        return states(json.loads(out.read_text(encoding="utf-8")))


def states(document: Mapping[str, Any]) -> dict[tuple[str, str], Theirs]:
    """From NVBench's JSON."""
    times = {}
    for benchmark in document["benchmarks"]:
        for state in benchmark["states"]:
            axes = {
                axis["name"]: float(axis["value"]) if axis["type"] in ("int64", "float64") else axis["value"]
                for axis in state.get("axis_values") or ()
            }
            name = benchmark["name"]
            read = nvbench_summaries({"benchmarks": [{"name": name, "states": [state]}]})[name]
            cold, hot = (read.get(f"nv/{kind}/time/gpu/mean") for kind in ("cold", "batch"))
            skipped = str(state.get("skip_reason") or "")
            times[name, _point(axes)] = cold and 1e6 * cold, hot and 1e6 * hot, skipped
    return times


def tensara(chosen: Sequence[Example], folder: Path, lines: Mapping[str, int]) -> list[Row]:
    """Each problem's published solution in PyTorch by Tensara's engine and by `worklog run --problem`."""
    rows, cases = [], []
    for one in chosen:
        ours, theirs = (folder / which / one.project / one.path for which in ("ours", "theirs"))
        published = theirs.with_name("torch.py")
        solution = Solution.of(f"{published}:solution", arrays="torch")
        measured = partial(solved.measure, [solution], str(ours), cases=[escape(case) for case in one.measured])
        run, why = _attempt(partial(measured, harness=HARNESS), None)
        by_case = {str(m.axes[solved.CASE]): m for m in (run.measurements if run else ())}
        for case in one.measured:
            blank = Measurement(case, None, "measured")
            rows.append(_row(one, case, lines, by_case.get(case, blank)))
            rows[-1].why += why
            cases.append([str(theirs), str(published), case])
    _fill(rows, "theirs", "tensara", str(folder / "theirs" / "Tensara's engine" / "engine"), cases)
    return rows


def flashinfer(chosen: Sequence[Example], folder: Path, lines: Mapping[str, int]) -> list[Row]:
    """What each call of an example prints with bench_gpu_time and with worklog.time."""
    rows = []
    for one in chosen:
        new = [Row(one.project, one.name, w.partition("(")[0], lines[one.path], "TFLOP/s") for w in one.measured]
        for which in ("ours", "theirs"):
            path, package = folder / which / one.project / one.path, folder / "theirs" / one.project
            _fill(new, which, "calls", str(package), str(path), one.measured)
        rows += new
    return rows


def _fill(rows: Sequence[Row], which: str, *words: Any) -> None:
    """Put what the child process reads into its rows."""
    command = ["-m", "tests.record.ported_child", words[0], json.dumps(words[1:])]
    found, why = _attempt(lambda: json.loads(_run(command)), [""] * len(rows))
    for row, value in zip(rows, found, strict=True):
        if isinstance(value, float):
            setattr(row, which, value)
        else:
            row.why.append(f"{which}: {' '.join(why) or value}")


def _row(example: Example, point: str, lines: Mapping[str, int], m: Measurement) -> Row:
    why = [f"{m.status}: {m.reason}"] if m.us is None else []
    read = dict(ours=m.us, low=m.us_low, high=m.us_high, hot=m.hot.value if m.hot else None)
    return Row(example.project, example.name, point, lines[example.path], **read, why=why)


def _attempt(function: Callable[[], Any], otherwise: Any) -> tuple[Any, list[str]]:
    """What it returns; or, for an error in foreign code, something else and the reason."""
    try:
        return function(), []
    except (WorklogError, RuntimeError, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        return otherwise, [f"{type(error).__name__}: {str(error).strip()}"]


def _run(words: Sequence[str]) -> str:
    """The last line that a Python process prints. Raises RuntimeError with its last words."""
    command, root = [sys.executable, *words], HERE.parents[2]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=root)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"it exited with {done.returncode}"])[-1])
    return (done.stdout.strip().splitlines() or [""])[-1]


# ---------------------------------------------------------------------------------------------------------- the record

MEASURES = {"NVBench": nvbench, "Tensara": tensara, "FlashInfer": flashinfer}


def table(document: Mapping[str, Any]) -> Table:
    """Their numbers beside ours."""
    rows, notes = [], []
    for row in (Row(**words) for words in document["rows"]):
        numbers = [row.theirs, row.ours, row.ours and row.theirs and row.ours / row.theirs, row.hot_theirs, row.hot]
        digits = (".5g", ".5g", ".3f", ".5g", ".5g")
        shown = ("–" if value is None else f"{value:{form}}" for value, form in zip(numbers, digits, strict=True))
        rows.append([row.project, row.example, row.point, str(row.lines), row.unit, *shown])
        notes += [f"{row.example} {row.point}: {why}" for why in row.why]
    columns = ("project", "example", "point", "lines", "in", "theirs", "ours", "ratio", "hot, theirs", "hot, ours")
    return Table(document["label"], columns, rows, notes=notes, left=3)


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The table as JSON; needs a GPU.")
def main(folder: Path, out: Path | None) -> None:
    """Port the published examples in FOLDER, fetching what isn't there; on a GPU, measure them."""
    folder, every = folder.resolve(), examples()
    lines = prepare(folder, every)
    if why := gpu_reason():
        listing = [(e.project, e.name, str(lines[e.path]), checked_here(e, folder)) for e in every]
        print(Table(f"not measured: {why}", ("project", "example", "lines changed", "here"), listing, left=4))
        return
    now = datetime.now(UTC).isoformat(timespec="seconds")
    document = {
        "kind": "ported",
        "schema": 1,
        "created": now,
        "label": source_label("live", gpu().name, HARNESS.clocks, now),
        "tool": tool(),
        "device": asdict(gpu()),
        "software": software(),
        "harness": HARNESS.as_dict(),
        "repositories": repositories(),
        "rows": [],
    }
    for project, measured in MEASURES.items():
        print(f"{project} …", file=sys.stderr, flush=True)
        chosen = [example for example in every if example.project == project and example.measured]
        rows, failed = _attempt(partial(measured, chosen, folder, lines), []) if chosen else ([], [])
        rows += [Row(project, "all", "", 0, why=failed)] if failed else []
        document["rows"] += map(asdict, rows)
        if out is not None:  # after each project, so that a crash loses one
            documents.write_text(out, document)
    print(table(document))


if __name__ == "__main__":
    main()
