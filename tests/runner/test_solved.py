"""Solutions of a problem timed at each case beside its baseline, on a GPU whose truth is known."""

from pathlib import Path

import pytest
from pytest import approx

import worklog
from tests.exploits.arrays import xp
from tests.helpers import GPU
from tests.runner.conftest import JOB
from tests.virtual.machine import Machine
from tests.virtual.session import QUICK, VirtualSession
from worklog.errors import BadSetting
from worklog.kernel.solution import Solution
from worklog.problem import Point
from worklog.runner import check
from worklog.runner.job import Job
from worklog.runner.measure import measure_solutions
from worklog.runner.prepare import LAST
from worklog.runner.worker import measure_job
from worklog.runs import Measurement, Work, line, read_line
from worklog.runs.text import duration

FILE = """
import numpy as np
import worklog
from tests.exploits.arrays import xp

class Product(worklog.Problem):
    parameters = [
        *({"name": name, "type": "T", "pointer": True, "const": name != "c"} for name in "abc"),
        {"name": "n", "type": "int", "pointer": False},
    ]

    def reference_solution(self, a, b):
        return a @ b

    def baseline(self, a, b):
        c = xp.empty(*a.shape)
        for _ in range(2):
            xp.gemm(1.0, a, b, 0.0, c)
        return c

    def inputs(self, n):
        return lambda rng: tuple(rng.integers(-9, 9, (2, n, n)).astype(np.float32))

    def generate_sample(self):
        return self.case("n=3", self.inputs(3), n=3)

    def generate_test_cases(self):
        return [self.case(f"n={n}", self.inputs(n), n=n) for n in (64, 96)]

    def get_flops(self, case):
        return 2 * case["n"] ** 3

    def get_extra_params(self, case):
        return [case["n"]]

class Wrong(Product):
    def baseline(self, a, b):
        c = Product.baseline(self, a, b)
        xp.gemm(2.0, a, b, 0.0, c)
        return c

class Hosted(Product):
    def baseline(self, a, b):
        return np.zeros((2, 2))

def right(a, b, c, n):
    xp.gemm(1.0, a, b, 0.0, c)

def returns(a, b):
    c = xp.empty(*a.shape)
    xp.gemm(1.0, a, b, 0.0, c)
    return c

def wrong(a, b, c, n):
    xp.gemm(2.0, a, b, 0.0, c)

def lazy(a, b, c, n, calls=[]):
    calls.append(n)
    # Right while it is checked.
    xp.gemm(1.0, a, b, 0.0, c if len(calls) <= 4 else xp.empty(*a.shape))
"""


def at(
    file: Path, function: str, case: str, problem: str = "Product", gate: bool = True
) -> Measurement:
    xp.machine = Machine()
    kernel = Solution.of(f"{file}:{function}", problem=f"{file}:{problem}")
    job = Job(function, Point.of_case(problem, case), against=("baseline",))
    session = VirtualSession(xp.machine, kernel)
    found = measure_job(session, job, QUICK.but(gate=gate))
    assert session.device.emptied == 1
    return found


@pytest.mark.parametrize("function", ["right", "returns"])
def test_a_case_is_checked_then_timed_beside_the_baseline(file, function):
    found = at(file, function, "n=64")
    true_us = 2 * 64**3 / Machine().flops_per_us
    assert found.us == approx(true_us, rel=0.01), found.reason
    assert (found.baseline, found.ratio) == (
        "baseline",
        approx(1.8, rel=0.02),
    )  # half of it on a warm L2
    assert found.axes == {"case": "n=64"} and found.shape is None and found.work.flops == 2 * 64**3
    assert found.work == Work(2 * 64**3, 2 * 64**2, 8 * 64**2, 4 * 64**2)
    assert found.verdict is not None and found.verdict.precision == "float32"
    names = [stage.name for stage in found.verdict.stages]
    assert names == [
        "case n=64",
        "bit-equal when repeated",
        "timed output",
        "idle after the launch",
    ]
    said = "; ".join(found.degradations)
    assert LAST in found.degradations and "gate: off" not in said and "baseline" not in said
    assert read_line(line("measurement", found)) == found


@pytest.mark.parametrize(
    ("function", "reason"),
    [("wrong", "failed at case n=64: seed "), ("lazy", "failed at timed output: seed ")],
)
def test_a_wrong_solution_has_no_time_unless_the_gate_is_off(file, function, reason):
    found = at(file, function, "n=64")
    assert found.status == "failed" and reason in str(found.reason) and found.us is None
    unchecked = at(file, function, "n=64", gate=False)
    assert (
        unchecked.us is not None
        and "gate: off, the result is not checked" in unchecked.degradations
    )
    assert "has no function none" in str(at(file, "none", "n=64").reason)


def test_a_baseline_that_is_not_on_the_gpu_is_left_out_and_stated(file):
    found = at(file, "right", "n=64", "Hosted")
    assert found.us is not None and found.against == {"baseline": None}
    assert "no baseline: it doesn't return arrays of the GPU" in found.degradations
    wrong = at(file, "right", "n=64", "Wrong")
    assert (
        "baseline: verify_result fails its result" in wrong.degradations and wrong.ratio is not None
    )


def test_a_check_on_a_gpu_takes_samples_and_test_cases(file, monkeypatch):
    xp.machine = Machine()
    device = VirtualSession(xp.machine).device
    for name, value in {"gpu": GPU, "require_gpu": None, "device_of": device}.items():
        monkeypatch.setattr(check, name, lambda *_, value=value: value)
    solution = Solution.of(f"{file}:right", problem=f"{file}:Product")
    stages = check.check(solution, on="gpu").verdict.stages
    assert [stage.name for stage in stages][:3] == ["case n=3", "case n=64", "case n=96"]


def test_cases_become_one_run_with_means_over_them(file, tmp_path):
    with pytest.raises(BadSetting, match="Product has no case 'n=65' \\(did you mean n="):
        measure_solutions([Solution.of(f"{file}:right", problem=f"{file}:Product")], cases=["n=65"])
    solutions = [
        Solution.of(f"{file}:{name}", problem=f"{file}:Product") for name in ("right", "wrong")
    ]
    out = tmp_path / "run.json"
    measure_solutions(solutions, harness=QUICK, out=out, command=JOB)
    run = worklog.open_run(out)
    assert [(m.kernel, m.axes["case"], m.status) for m in run.measurements] == [
        ("right", "n=64", "measured"),
        ("right", "n=96", "measured"),
        ("wrong", "n=64", "failed"),
        ("wrong", "n=96", "failed"),
    ]
    assert (
        run.kernels["right"]["problem"].endswith("own.py:Product")
        and run.kernels["right"]["dtype"] == "float32"
    )
    shown = str(run)
    assert "over the cases" in shown and "mean time" in shown
    (mean,) = run.means()
    assert mean["cases"] == "2 of 2" and mean["mean time"] == duration(
        sum(m.us or 0.0 for m in run.measurements) / 2
    )
