"""Published examples of NVBench, Tensara and FlashInfer, ported in at most ten changed lines.

`python -m tests.record.ported FOLDER` clones them below FOLDER and writes the ported files there.
On a GPU, with `--out worklog/recordings/ported/h200.json`, it measures them by their own tool and
by this package; notebook 16 shows both.
"""

import difflib
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from glob import escape
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pandas as pd

from tests.record import recording
from worklog.benchmarks import declare
from worklog.errors import WorklogError
from worklog.gpu.device import gpu, gpu_reason, software
from worklog.kernel.solution import Solution
from worklog.problem import CASE
from worklog.runner import measure
from worklog.runs import Measurement, source_label
from worklog.runs.changes import nvbench_states
from worklog.runs.files import tool, write_text
from worklog.settings import Harness

DATA = Path(__file__).with_suffix(".toml")
MOST_LINES = 10
LIMIT_S = 60.0  # of a child process
HARNESS = Harness().but(budget_s=1.5, precision=0.01)
NVBENCH_TIMEOUT_S = "4"  # of a measurement: its long ones would take 15
FOREIGN = (
    WorklogError,
    RuntimeError,
    OSError,
    ValueError,
    KeyError,
    subprocess.SubprocessError,
)  # errors, then a reason
Clones = Mapping[str, Path]  # by the names in ported.toml
Row = dict[str, Any]


@dataclass(frozen=True)
class Example:
    """A published file and its port.

    lines: changed, added or deleted. measured: its points, as ported.toml says.
    """

    project: str
    theirs: Path
    ours: Path
    lines: int
    measured: Sequence[str] = ()

    def row(self, point: str, m: Measurement | None = None, unit: str = "µs") -> Row:
        """Return a point in the recording.

        unit: of ours, low, high and theirs
        hot: in a row, without a flush of L2
        why: reasons for what is missing
        """
        name = self.theirs.parent.name if self.theirs.stem == "def" else self.theirs.stem
        numbers = dict.fromkeys(("ours", "low", "high", "theirs", "hot", "hot_theirs"))
        if m is not None:
            numbers |= {
                "ours": m.us,
                "low": m.us_low,
                "high": m.us_high,
                "hot": m.hot.value if m.hot else None,
            }
        reasons = [f"{m.status}: {m.reason}"] if m and m.us is None else []
        about = {
            "project": self.project,
            "example": name,
            "point": point,
            "lines": self.lines,
            "unit": unit,
        }
        return {**about, **numbers, "why": reasons}


def prepare(folder: Path) -> tuple[list[Example], Clones]:
    """Clone what ported.toml names into FOLDER/clones, and port it into FOLDER/ours.

    Raises ValueError for a replacement of text that isn't there, and for more than MOST_LINES
    changed lines.
    """
    projects = tomllib.loads(DATA.read_text(encoding="utf-8"))
    examples = []
    clones = {
        name: recording.cloned(*at, folder / "clones")
        for name, at in projects.pop("repository").items()
    }
    for project, file in ((project, file) for project, files in projects.items() for file in files):
        theirs = clones[project] / file["path"]
        ours = folder / "ours" / project / file["path"]
        before = after = theirs.read_text(encoding="utf-8")
        for old, new in file["replace"].items():
            if old not in after:
                raise ValueError(f"{file['path']} has no {old!r}")
            after = after.replace(old, new)
        match = difflib.SequenceMatcher(
            None, before.splitlines(), after.splitlines(), autojunk=False
        )
        lines = sum(
            max(b - a, d - c) for kind, a, b, c, d in match.get_opcodes() if kind != "equal"
        )
        if lines > MOST_LINES:
            raise ValueError(f"{file['path']}: {lines} lines are changed, more than {MOST_LINES}")
        ours.parent.mkdir(parents=True, exist_ok=True)
        ours.write_text(after, encoding="utf-8")
        examples.append(Example(project, theirs, ours, lines, file.get("measured", ())))
    return examples, clones


def nvbench(example: Example, _: Clones) -> list[Row]:
    """By NVBench and by `worklog bench`. measured: options that both take."""
    out = example.ours.with_suffix(".json")
    theirs = dict[tuple[str, str], tuple[Any, Any, str]]()
    rows = list[Row]()
    options = [
        "--devices",
        "0",
        *example.measured,
        "--timeout",
        NVBENCH_TIMEOUT_S,
        "--json",
        str(out),
    ]
    run([str(example.theirs), *options])
    for benchmark, state, read in nvbench_states(json.loads(out.read_text(encoding="utf-8"))):
        axes = {
            axis["name"]: float(axis["value"])
            if axis["type"] in ("int64", "float64")
            else axis["value"]
            for axis in state.get("axis_values") or ()
        }
        cold, hot = (read.get(f"nv/{kind}/time/gpu/mean") for kind in ("cold", "batch"))
        theirs[benchmark, point_of(axes)] = (
            cold and 1e6 * cold,
            hot and 1e6 * hot,
            str(state.get("skip_reason") or ""),
        )
    pairs = list(zip(example.measured[::2], example.measured[1::2], strict=True))
    axis_words, names = (
        [word for option, word in pairs if option == which] for which in ("-a", "-b")
    )
    for m in measure.measure_benchmarks(
        declare.declared(example.ours, names, axis_words), harness=HARNESS
    ).measurements:
        cold, hot, skipped = theirs.get((m.kernel, point_of(m.axes)), (None, None, ""))
        row = example.row(f"{m.kernel} {point_of(m.axes)}".strip(), m) | {
            "theirs": cold,
            "hot_theirs": hot,
        }
        row["why"] += [f"NVBench skips it: {line}" for line in skipped.splitlines()[:1]]
        rows.append(row)
    return rows


def point_of(axes: Mapping[str, Any]) -> str:
    """Return the same text for the same values, whichever tool prints them."""
    whole = {
        name: int(v) if isinstance(v, float) and v.is_integer() else v for name, v in axes.items()
    }
    return ", ".join(f"{name}={value}" for name, value in sorted(whole.items()))


def tensara(example: Example, clones: Clones) -> list[Row]:
    """Measure the published solution in PyTorch by Tensara's engine and by this project.

    The latter by `worklog run --problem`.

    measured: cases
    """
    published = example.theirs.with_name("torch.py")
    engine = clones["Tensara's engine"] / "engine"
    solution = Solution.of(f"{published}:solution", arrays="torch", problem=str(example.ours))
    cases = [escape(case) for case in example.measured]
    measured = measure.measure_solutions([solution], cases=cases, harness=HARNESS).measurements
    by_case = {str(m.axes[CASE]): m for m in measured}
    rows = [example.row(case, by_case.get(case)) for case in example.measured]
    for row in rows:
        read_by_child(
            row, "theirs", "tensaras_case", engine, example.theirs, published, row["point"]
        )
    return rows


def flashinfer(example: Example, clones: Clones) -> list[Row]:
    """Return what each call prints with bench_gpu_time and with worklog.time.

    measured: calls of the example's functions
    """
    rows = [example.row(call.partition("(")[0], unit="TFLOP/s") for call in example.measured]
    for row, call in zip(rows, example.measured, strict=True):
        for which, path in (("ours", example.ours), ("theirs", example.theirs)):
            read_by_child(row, which, "printed_by", clones[example.project], path, call)
    return rows


def read_by_child(row: Row, which: str, function: str, *words: object) -> None:
    """Add to a row what a function of this module reads, or why it reads nothing.

    The function runs in a separate process.
    """
    try:
        row[which] = float(
            run(["-m", "tests.record.ported", "--child", function, *map(str, words)])
        )
    except FOREIGN as error:
        row["why"].append(f"{which}: {error}")


def run(words: Sequence[str]) -> str:
    """Return the last line that a Python process prints.

    Raises RuntimeError with its last words.
    """
    command = [sys.executable, *words]
    root = DATA.parents[2]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=root
    )
    if done.returncode:
        raise RuntimeError(
            (done.stderr.strip().splitlines() or [f"it exited with {done.returncode}"])[-1]
        )
    return (done.stdout.strip().splitlines() or [""])[-1]


def tensaras_case(engine: str, problem: str, solution: str, case: str) -> float:
    """Microseconds of a case by Tensara's own function. In a child."""
    module("fastapi", HTTPException=Exception)  # which the engine only raises
    sys.path.insert(0, engine)
    import utils

    classes = [value for name, value in vars(loaded(problem)).items() if name != "Problem"]
    (posed,) = (value() for value in classes if hasattr(value, "reference_solution"))
    words = next(words for words in posed.generate_test_cases() if words["name"] == case)
    inputs = words["create_inputs"]()
    outputs = utils.normalize_outputs(posed.reference_solution(*inputs))
    given = [
        loaded(solution).solution,
        posed,
        1,
        words,
        inputs,
        [output.new_zeros(output.shape) for output in outputs],
    ]
    read = utils.run_dynamic_benchmark(*given, language="python")
    if "runtime_ms" not in read:
        raise RuntimeError(str(read))
    return 1e3 * float(read["runtime_ms"])


def printed_by(folder: str, example: str, call: str) -> float:
    """Return the TFLOP/s that a call in an example prints, in a child.

    folder: of the package flashinfer, of which some files import compiled code: what the examples
        take from these is defined here
    """
    module("flashinfer", __path__=[str(Path(folder) / "flashinfer")])
    module(
        "flashinfer.utils",
        round_up=lambda x, y: -(-x // y) * y,
        get_compute_capability=lambda device: __import__("torch").cuda.get_device_capability(
            device
        ),
        GPUArchitectureError=RuntimeError,
    )
    with redirect_stdout(StringIO()) as text:
        eval(call, vars(loaded(example)))
    number = re.search(r"([\d.]+) TFLOPs/s", text.getvalue())
    if number is None:
        raise RuntimeError(f"{call} printed no TFLOP/s: {text.getvalue()!r:.200}")
    return float(number[1])


def module(name: str, **values: Any) -> None:
    """Register a module of that name."""
    sys.modules[name] = ModuleType(name)
    vars(sys.modules[name]).update(values)


def loaded(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"published_{Path(path).stem}", path)
    assert spec is not None and spec.loader is not None
    new = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(new)
    return new


MEASURES = {"NVBench": nvbench, "Tensara": tensara, "FlashInfer": flashinfer}


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="The table as JSON; needs a GPU."
)
def main(folder: Path, out: Path | None) -> None:
    """Port the published examples in FOLDER, cloning what isn't there; on a GPU, measure them."""
    examples, clones = prepare(folder.resolve())
    for example in examples:
        print(f"{example.project} {example.ours}: {example.lines} lines changed")
    if why := gpu_reason():
        sys.exit(f"not measured: {why}")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    rows = list[Row]()
    document = {
        "kind": "ported",
        "schema": 1,
        "created": now,
        "label": source_label("live", gpu().name, HARNESS.clocks, now),
        "tool": tool(),
        "device": asdict(gpu()),
        "software": software(),
        "harness": HARNESS.as_dict(),
        "repositories": tomllib.loads(DATA.read_text(encoding="utf-8"))["repository"],
        "rows": rows,
    }
    for example in (example for example in examples if example.measured):
        try:
            rows += MEASURES[example.project](example, clones)
        except FOREIGN as error:
            rows.append(example.row("all") | {"why": [f"{type(error).__name__}: {error}"]})
        if out is not None:  # after each example, so that a crash loses one
            write_text(out, document)
    print(
        document["label"], pd.DataFrame(rows).drop(columns="why").to_string(index=False), sep="\n"
    )
    print(
        *(f"{row['example']} {row['point']}: {why}" for row in rows for why in row["why"]), sep="\n"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(globals()[sys.argv[2]](*sys.argv[3:]))
    else:
        main()
