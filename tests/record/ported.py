"""Published examples of NVBench, Tensara and FlashInfer, ported in at most ten changed lines.

`python -m tests.record.ported FOLDER` clones them below FOLDER and writes the ported files there. On a GPU, with `--out
worklog/recordings/ported/h200.json`, it measures them by their own tool and by this package; notebook 10 shows both.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from glob import escape
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pandas as pd

from tests.record import recording
from worklog.errors import WorklogError
from worklog.gpu.device import gpu, gpu_reason, software, tool
from worklog.kernel.solution import Solution
from worklog.peers.harnesses import nvbench_summaries
from worklog.runner import declare, measure
from worklog.runner.job import CASE
from worklog.runs import Measurement, documents, source_label
from worklog.settings import Harness

DATA = Path(__file__).with_suffix(".toml")
MOST_LINES = 10
LIMIT_S = 60.0  # of a child process
HARNESS = Harness().but(budget_s=1.5, precision=0.01)
NVBENCH_TIMEOUT_S = "4"  # of a measurement: its long ones would take 15
Clones = Mapping[str, Path]  # by the names in ported.toml


@dataclass(frozen=True)
class Example:
    """A published file and its port. lines: changed, added or deleted. measured: its points, as ported.toml says."""

    project: str
    theirs: Path
    ours: Path
    lines: int
    measured: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Of the file, or of its folder where all files have one name."""
        return self.theirs.parent.name if self.theirs.stem == "def" else self.theirs.stem

    def row(
        self, point: str, m: Measurement | None = None, unit: str = "µs", why: Sequence[str] = ()
    ) -> dict[str, Any]:
        """A point in the recording. unit: of ours, low, high and theirs. hot: in a row, without a flush of L2. why:
        reasons for what is missing.
        """
        numbers = dict.fromkeys(("ours", "low", "high", "theirs", "hot", "hot_theirs"))
        if m is not None:
            numbers |= {"ours": m.us, "low": m.us_low, "high": m.us_high, "hot": m.hot.value if m.hot else None}
        reasons = [f"{m.status}: {m.reason}"] if m and m.us is None else []
        about = {"project": self.project, "example": self.name, "point": point, "lines": self.lines, "unit": unit}
        return {**about, **numbers, "why": [*reasons, *why]}


def prepare(folder: Path) -> tuple[list[Example], Clones]:
    """Clone what ported.toml names into FOLDER/clones, and write the ported files into FOLDER/ours. Raises ValueError
    for a replacement of text that isn't there, and for more than MOST_LINES changed lines.
    """
    projects, examples = tomllib.loads(DATA.read_text(encoding="utf-8")), []
    clones = {name: recording.cloned(*at, folder / "clones") for name, at in projects.pop("repository").items()}
    for project, file in ((project, file) for project, files in projects.items() for file in files):
        theirs, ours = clones[project] / file["path"], folder / "ours" / project / file["path"]
        before = after = theirs.read_text(encoding="utf-8")
        for old, new in file["replace"].items():
            if old not in after:
                raise ValueError(f"{file['path']} has no {old!r}")
            after = after.replace(old, new)
        match = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
        lines = sum(max(b - a, d - c) for kind, a, b, c, d in match.get_opcodes() if kind != "equal")
        if lines > MOST_LINES:
            raise ValueError(f"{file['path']}: {lines} lines are changed, more than {MOST_LINES}")
        ours.parent.mkdir(parents=True, exist_ok=True)
        ours.write_text(after, encoding="utf-8")
        examples.append(Example(project, theirs, ours, lines, file.get("measured", ())))
    return examples, clones


def nvbench(example: Example, _: Clones) -> list[dict[str, Any]]:
    """By NVBench and by `worklog bench`. measured: options that both take."""
    pairs = list(zip(example.measured[::2], example.measured[1::2], strict=True))
    axes, names = ([word for option, word in pairs if option == which] for which in ("-a", "-b"))
    theirs, failed = attempt(partial(by_nvbench, example), {})
    rows = []
    for m in declare.measure(declare.declared(example.ours, names, axes), harness=HARNESS).measurements:
        cold, hot, skipped = theirs.get((m.kernel, point_of(m.axes)), (None, None, ""))
        why = [*failed, *(f"NVBench skips it: {line}" for line in skipped.splitlines()[:1])]
        point = f"{m.kernel} {point_of(m.axes)}".strip()
        rows.append(example.row(point, m, why=why) | {"theirs": cold, "hot_theirs": hot})
    return rows


def by_nvbench(example: Example) -> dict[tuple[str, str], tuple[float | None, float | None, str]]:
    """The cold and the batch mean in µs, and why it skips a point, by benchmark and point. Raises RuntimeError."""
    out, times = example.ours.with_suffix(".json"), {}
    options = ["--devices", "0", *example.measured, "--timeout", NVBENCH_TIMEOUT_S, "--json", str(out)]
    run([str(example.theirs), *options])
    for benchmark in json.loads(out.read_text(encoding="utf-8"))["benchmarks"]:
        name = benchmark["name"]
        for state in benchmark["states"]:
            axes = {
                axis["name"]: float(axis["value"]) if axis["type"] in ("int64", "float64") else axis["value"]
                for axis in state.get("axis_values") or ()
            }
            read = nvbench_summaries({"benchmarks": [{"name": name, "states": [state]}]})[name]
            cold, hot = (read.get(f"nv/{kind}/time/gpu/mean") for kind in ("cold", "batch"))
            times[name, point_of(axes)] = cold and 1e6 * cold, hot and 1e6 * hot, str(state.get("skip_reason") or "")
    return times


def point_of(axes: Mapping[str, Any]) -> str:
    """The same text for the same values, whichever tool prints them."""
    whole = {name: int(v) if isinstance(v, float) and v.is_integer() else v for name, v in axes.items()}
    return ", ".join(f"{name}={value}" for name, value in sorted(whole.items()))


def tensara(example: Example, clones: Clones) -> list[dict[str, Any]]:
    """The published solution in PyTorch by Tensara's engine and by `worklog run --problem`. measured: cases."""
    published = example.theirs.with_name("torch.py")
    solution = Solution.of(f"{published}:solution", arrays="torch", problem=str(example.ours))
    cases = [escape(case) for case in example.measured]
    measurements = measure.measure_solutions([solution], cases=cases, harness=HARNESS).measurements
    by_case = {str(m.axes[CASE]): m for m in measurements}
    rows = [example.row(case, by_case.get(case)) for case in example.measured]
    engine = str(clones["Tensara's engine"] / "engine")
    fill(rows, "theirs", "tensara", engine, str(example.theirs), str(published), example.measured)
    return rows


def flashinfer(example: Example, clones: Clones) -> list[dict[str, Any]]:
    """What each call prints with bench_gpu_time and with worklog.time. measured: calls of the example's functions."""
    rows = [example.row(call.partition("(")[0], unit="TFLOP/s") for call in example.measured]
    for which, path in (("ours", example.ours), ("theirs", example.theirs)):
        fill(rows, which, "calls", str(clones[example.project]), str(path), example.measured)
    return rows


def fill(rows: Sequence[dict[str, Any]], which: str, *words: Any) -> None:
    """Put what a child process reads into its rows. words: a function's name and its arguments."""
    command = ["-m", "tests.record.ported", "--child", json.dumps(words)]
    values, failed = attempt(lambda: json.loads(run(command)), [""] * len(rows))
    for row, value in zip(rows, values, strict=True):
        if isinstance(value, float):
            row[which] = value
        else:
            row["why"].append(f"{which}: {' '.join(failed) or value}")


def attempt(function: Callable[[], Any], otherwise: Any) -> tuple[Any, list[str]]:
    """What it returns; or, for an error in foreign code, something else and the reason."""
    try:
        return function(), []
    except (WorklogError, RuntimeError, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        return otherwise, [f"{type(error).__name__}: {str(error).strip()}"]


def run(words: Sequence[str]) -> str:
    """The last line that a Python process prints. Raises RuntimeError with its last words."""
    command, root = [sys.executable, *words], DATA.parents[2]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=root)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"it exited with {done.returncode}"])[-1])
    return (done.stdout.strip().splitlines() or [""])[-1]


# ---------------------------------------------------------------------------------------------------- the child process


def child(function: str, *words: Any) -> None:
    """Print as JSON what a function reads at each of the points, its last argument: a number, or its error."""
    *given, points = words
    read, values = {"tensara": tensaras_case, "calls": printed_by}[function](*given), list[float | str]()
    for point in points:
        try:
            values.append(read(point))
        except Exception as error:  # of foreign code
            values.append(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
    print(json.dumps(values))


def tensaras_case(engine: str, problem: str, solution: str) -> Callable[[str], float]:
    """Microseconds of a case by Tensara's own function."""
    module("fastapi", HTTPException=Exception)  # which the engine only raises
    sys.path.insert(0, engine)
    import utils  # type: ignore[import-not-found]

    classes = [value for name, value in vars(loaded(problem)).items() if name != "Problem"]
    (posed,) = (value() for value in classes if hasattr(value, "reference_solution"))

    def microseconds(case: str) -> float:
        words = next(words for words in posed.generate_test_cases() if words["name"] == case)
        inputs = words["create_inputs"]()
        outputs = utils.normalize_outputs(posed.reference_solution(*inputs))
        given = (
            loaded(solution).solution,
            posed,
            1,
            words,
            inputs,
            [output.new_zeros(output.shape) for output in outputs],
        )
        read = utils.run_dynamic_benchmark(*given, language="python")
        if "runtime_ms" not in read:
            raise RuntimeError(str(read))
        return 1e3 * float(read["runtime_ms"])

    return microseconds


def printed_by(folder: str, example: str) -> Callable[[str], float]:
    """The TFLOP/s that a call in an example prints. folder: of the package flashinfer, of which some files import
    compiled code: what the examples take from these is defined here.
    """
    module("flashinfer", __path__=[str(Path(folder) / "flashinfer")])
    module(
        "flashinfer.utils",
        round_up=lambda x, y: -(-x // y) * y,
        get_compute_capability=lambda device: __import__("torch").cuda.get_device_capability(device),
        GPUArchitectureError=RuntimeError,
    )
    functions = vars(loaded(example))

    def printed(words: str) -> float:
        with redirect_stdout(StringIO()) as text:
            eval(words, functions)
        number = re.search(r"([\d.]+) TFLOPs/s", text.getvalue())
        if number is None:
            raise RuntimeError(f"{words} printed no TFLOP/s: {text.getvalue()!r:.200}")
        return float(number[1])

    return printed


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


# ---------------------------------------------------------------------------------------------------------- the command

MEASURES = {"NVBench": nvbench, "Tensara": tensara, "FlashInfer": flashinfer}


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The table as JSON; needs a GPU.")
def main(folder: Path, out: Path | None) -> None:
    """Port the published examples in FOLDER, cloning what isn't there; on a GPU, measure them."""
    examples, clones = prepare(folder.resolve())
    for example in examples:
        print(f"{example.project} {example.name}: {example.lines} lines changed")
    if why := gpu_reason():
        sys.exit(f"not measured: {why}")
    now, rows = datetime.now(UTC).isoformat(timespec="seconds"), list[dict[str, Any]]()
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
        print(f"{example.project} {example.name} …", file=sys.stderr, flush=True)
        new, failed = attempt(partial(MEASURES[example.project], example, clones), [])
        rows += new or [example.row("all", why=failed)]
        if out is not None:  # after each example, so that a crash loses one
            documents.write_text(out, document)
    print(document["label"], pd.DataFrame(rows).drop(columns="why").to_string(index=False), sep="\n")
    print(*(f"{row['example']} {row['point']}: {why}" for row in rows for why in row["why"]), sep="\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*json.loads(sys.argv[2]))
    else:
        main()
