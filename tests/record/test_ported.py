"""Published examples are ported in few lines, and their own number stands beside ours."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pytest import approx

from tests.helpers import GPU, small_run
from tests.record import ported
from tests.record.examples import HERE, Example, changed_lines, examples, needed, prepare, repositories
from worklog.runner import declare
from worklog.runner.measure import carry_out
from worklog.runs import Estimate, Measurement

PUBLISHED = """
import cuda.bench as bench
from tests.exploits.arrays import xp

@bench.register()
@bench.axis.int64_power_of_two("N", [5, 6])
def product(state):
    n = state.get_int64("N")
    if n == 32:
        state.skip("small")
    a, b, c = xp.empty(n, n), xp.empty(n, n), xp.empty(n, n)
    state.exec(lambda launch: xp.gemm(1.0, a, b, 0.0, c))
"""
DATA = """
[repository]
NVBench = ["a/b", "1"]
[[NVBench]]
path = "one.py"
replace = { "import cuda.bench as" = "import worklog.runner.nvbench as" }
measured = ["-b", "product", "-a", "N[pow2]=[5,6]"]
"""
PRINTS = """
import flashinfer.triton
from flashinfer.utils import round_up

def shows(n):
    print(f"GEMM | {n}: {round_up(n, 8) / 10:.3f} TFLOPs/s")
"""


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With NVBench's published example, as it was fetched."""
    written(tmp_path / "theirs" / "NVBench" / "one.py", PUBLISHED)
    return tmp_path


@pytest.fixture
def chosen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Example]:
    monkeypatch.setattr("tests.record.examples.DATA", written(folder / "examples.toml", DATA))
    return examples()


def test_every_example_names_a_commit_and_what_is_measured() -> None:
    every = examples()
    assert {one.project for one in every} == {"NVBench", "Tensara", "FlashInfer"}
    assert all(re.fullmatch(r"[0-9a-f]{40}", commit) for _, commit in repositories().values())
    assert all((HERE / one.solution).is_file() for one in every if one.solution)
    paths = [path for _, path in needed(every)]
    assert len(paths) == len(set(paths)) and "problems/softmax/torch.py" in paths


def test_a_replacement_without_its_text_and_an_eleventh_line_are_errors(folder: Path, chosen: list[Example]) -> None:
    assert prepare(folder, chosen) == {"one.py": 1}
    assert "import worklog.runner.nvbench as bench" in (folder / "ours/NVBench/one.py").read_text()
    with pytest.raises(ValueError, match=r"one\.py has no 'absent'"):
        prepare(folder, [Example("NVBench", "one.py", {"absent": ""})])
    with pytest.raises(ValueError, match="12 lines are changed, more than 10"):
        prepare(folder, [Example("NVBench", "one.py", {"\n": " \n"})])
    assert changed_lines("a\nb\nc\n", "a\nx\ny\nc\n") == 2 and changed_lines("a\nb\nc", "a\nc") == 1


def test_without_a_gpu_it_is_ported(folder: Path, chosen: list[Example], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ported, "gpu_reason", lambda: "this test has none")
    done = CliRunner().invoke(ported.main, [str(folder)], catch_exceptions=False)
    assert "needs a GPU" in done.stdout and "not measured: this test has none" in done.stdout


def test_nvbenchs_cold_and_hot_times_stand_beside_ours(
    folder: Path, chosen: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way to a child process on the virtual GPU, with a program that answers as NVBench does."""
    monkeypatch.setenv("WORKLOG_HOME", str(folder / "home"))
    number = {"name": "value", "type": "float64"}

    def summary(tag: str, value: str) -> dict[str, Any]:
        return {"tag": tag, "data": [number | {"value": value}]}

    def state(n: str, **words: Any) -> dict[str, Any]:
        return {"axis_values": [{"name": "N", "type": "int64", "value": n}], **words}

    times = [summary("nv/cold/time/gpu/mean", "0.000130"), summary("nv/batch/time/gpu/mean", "0.000110")]
    states = [state("32", is_skipped=True, skip_reason="small", summaries=None), state("64", summaries=times)]
    asked: list[Sequence[str]] = []

    def runs(words: Sequence[str]) -> str:
        asked.append(words)
        document = {"benchmarks": [{"name": "product", "states": states}]}
        Path(words[-1]).write_text(json.dumps(document))
        return ""

    lines = prepare(folder, chosen)
    monkeypatch.setattr(ported, "_run", runs)
    monkeypatch.setattr(declare, "carry_out", partial(carry_out, command=(sys.executable, "-m", "tests.virtual.job")))
    skipped, row = ported.nvbench(chosen, folder, lines)
    assert asked[0][1:7] == ["--devices", "0", "-b", "product", "-a", "N[pow2]=[5,6]"]
    assert skipped.why == ["skipped: small", "NVBench skips it: small"] and skipped.ours is None
    assert (row.point, row.lines, row.theirs, row.hot_theirs) == ("product N=64", 1, approx(130), approx(110))
    assert row.ours == approx(2 * 64**3 / 4096, rel=0.02) and row.low is not None and row.low <= row.ours
    shown = ported.table({"label": "here", "rows": [vars(skipped), vars(row)]}).text(200)
    assert "one product N=32: skipped: small" in shown and f"{row.ours / 130:.3f}" in shown


ENGINE = """
from fastapi import HTTPException

class Output:
    shape = (3,)
    def new_zeros(self, shape):
        return [0] * shape[0]

def normalize_outputs(found):
    return (Output(),)

def run_dynamic_benchmark(solution, problem, test_id, case, inputs, outputs, language):
    assert (language, outputs, inputs) == ("python", [[0, 0, 0]], (4,))
    return {"runtime_ms": solution(*inputs)} if case["name"] == "n = 1" else {"status": "WRONG_ANSWER"}
"""
PROBLEM = """
class Doubled:
    def reference_solution(self, n):
        return 2 * n
    def generate_test_cases(self):
        return [{"name": f"n = {n}", "create_inputs": lambda: (4,)} for n in (1, 2)]
"""


def test_tensaras_engine_times_its_cases_beside_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(folder / "theirs/Tensara's engine/engine/utils.py", ENGINE)
    path = "problems/doubled/def.py"
    for which in ("theirs", "ours"):
        written(folder / which / "Tensara" / path, PROBLEM)
    written(folder / "theirs/Tensara/problems/doubled/torch.py", "def solution(n):\n    return n / 8\n")
    given: list[Any] = []

    def measured(solutions: Sequence[Any], problem: str, *, cases: Sequence[str], **how: Any) -> Any:
        given.append((solutions[0].host.arrays, Path(problem).parts[-5:], cases))
        found = [Measurement("solution", axes={"case": "n = 1"}, time=Estimate(490.0, 489.0, 491.0))]
        return small_run(measurements=found)

    monkeypatch.setattr(ported.solved, "measure", measured)
    example = Example("Tensara", path, measured=("n = 1", "n = 2"))
    right, wrong = ported.tensara([example], folder, {path: 6})
    assert given == [("torch", ("ours", "Tensara", "problems", "doubled", "def.py"), ["n = 1", "n = 2"])]
    assert (right.example, right.point, right.theirs, right.ours) == ("doubled", "n = 1", 500.0, 490.0)
    assert wrong.why[-1] == "theirs: RuntimeError: {'status': 'WRONG_ANSWER'}" and wrong.theirs is None


@pytest.mark.parametrize("missing", [False, True])
def test_what_a_flashinfer_example_prints_is_read_from_both(missing: bool, folder: Path) -> None:
    for which, text in (("theirs", PRINTS), ("ours", "import no_such_module" if missing else PRINTS)):
        written(folder / which / "FlashInfer" / "bench.py", text)
    written(folder / "theirs/FlashInfer/flashinfer/triton/__init__.py", "")
    example = Example("FlashInfer", "bench.py", measured=("shows(61)", "shows(1)"))
    first, second = ported.flashinfer([example], folder, {"bench.py": 9})
    assert (first.theirs, second.theirs, first.unit) == (6.4, 0.8, "TFLOP/s")
    if missing:
        assert first.ours is None and "No module named 'no_such_module'" in first.why[0]
    else:
        assert (first.ours, second.ours, first.why) == (6.4, 0.8, [])


def test_the_record_is_written_after_each_project(
    folder: Path, chosen: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, seen = folder / "ported.json", list[int]()

    def measured(*_: Any) -> list[ported.Row]:
        seen.append(len(json.loads(out.read_text())["rows"]) if out.exists() else -1)
        return [ported.Row("NVBench", "one", f"N={n}", 1, "µs", 10.0, theirs=12.5) for n in (1, 2)]

    card = replace(GPU, name="a virtual GPU")
    replaced = dict(gpu_reason=lambda: None, gpu=lambda: card, software=dict, MEASURES={"NVBench": measured})
    for name, value in replaced.items():
        monkeypatch.setattr(ported, name, value)
    done = CliRunner().invoke(ported.main, [str(folder), "--out", str(out)], catch_exceptions=False)
    assert seen == [-1] and json.loads(out.read_text())["label"].startswith("live · a virtual GPU")
    assert "0.800" in done.stdout
