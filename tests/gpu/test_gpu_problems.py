"""Problems on a GPU: each kind of solution is checked at every case, timed beside the baseline, and wrong ones fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from worklog.harness import Harness
from worklog.kernel.solution import Solution, find_problem
from worklog.runner.check import check
from worklog.runner.measure import measure_solutions

SOFTMAX = Path(__file__).parents[1] / "problem" / "softmax.cu"
PYTHON = """
import cupy
import torch

def in_place(input, output, rows, columns):
    powers = cupy.exp(input - input.max(axis=1, keepdims=True))
    output[...] = powers / powers.sum(axis=1, keepdims=True)

def returned(x):
    return torch.softmax(x, 1)

def late(input, output, rows, columns):
    output[...] = 0.5
"""
QUICK = Harness().but(least_samples=10, most_samples=40, budget_s=1.0)
CASES = ["4096 x 1000"]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(PYTHON)
    return tmp_path / "own.py"


def test_cuda_source_is_right_at_every_case() -> None:
    found = check(Solution.of(SOFTMAX, problem="softmax"))
    assert found.verdict.accepted, found
    samples, cases = find_problem("softmax").tests
    assert len(found.verdict.stages) == len(samples) + len(cases) + 1 and found.label.startswith("live")


def test_python_functions_and_source_are_timed_beside_the_baseline(python: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    chosen = [
        Solution.of(SOFTMAX, problem="softmax"),
        Solution.of(f"{python}:in_place", problem="softmax"),
        Solution.of(f"{python}:returned", arrays="torch", problem="softmax"),
        Solution.of(f"{python}:late", problem="softmax"),
    ]
    run = measure_solutions(chosen, cases=CASES, harness=QUICK, out=tmp_path / "run.json")
    by_name = {m.kernel: m for m in run.measurements}
    for name in ("softmax", "in_place", "returned"):
        assert by_name[name].us and by_name[name].ratio, by_name[name].reason
    assert by_name["late"].status == "failed"
    assert by_name["returned"].us < by_name["in_place"].us


def test_tensaras_rules_and_float16(python: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    harness = Harness().but(warmup="tensara:512:3:10", stopping="tensara:5:5:20", least_samples=5)
    chosen = [Solution.of(f"{python}:returned", arrays="torch", problem="softmax", dtype="float16")]
    run = measure_solutions(chosen, cases=CASES, harness=harness, out=tmp_path / "run.json")
    (found,) = run.measurements
    assert found.us and 5 <= found.n <= 20, found.reason
    assert found.verdict is not None and found.verdict.precision == "float16"
