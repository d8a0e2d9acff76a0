"""Declared benchmarks, problems and short kernels on a GPU.

From a file, in a child process, by torch and CuPy, beside baselines and rungs.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest
from pytest import approx

import worklog
from tests.helpers import PLAIN
from worklog import open_run, try_kernel
from worklog.benchmarks.declare import at, declared
from worklog.cli.run import kernel_named
from worklog.gpu.device import gpu
from worklog.harness import Harness
from worklog.kernel.ladder import rung
from worklog.kernel.solution import Solution, find_problem
from worklog.lab import trials
from worklog.runner.check import check
from worklog.runner.measure import measure_benchmarks, measure_solutions

# Looked for and not imported: that would take each test process without a GPU 2 seconds, too.
NEEDS_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")
QUICK = Harness().but(budget_s=0.5, least_samples=10, most_samples=100, precision=0.02)
FILE = """
import cupy
import torch
import worklog

@worklog.bench(
    "N[pow2]=22:24",
    "dtype[str]=float16,float32",
    skip=lambda p: p["N"] == 2**23 and "the middle",
)
def copied(state):
    x = torch.rand(state.N, device="cuda").to(getattr(torch, state.dtype))
    y = torch.empty_like(x)
    state.elements(state.N)
    state.reads(x.nbytes)
    state.writes(y.nbytes)
    return lambda: y.copy_(x)

@worklog.bench("N[pow2]=22:24", "dtype[str]=float16,float32")
def by_cupy(state):
    x = cupy.ones(state.N, state.dtype)
    y = cupy.empty_like(x)
    state.run(cupy.copyto, y, x)

@worklog.bench("bytes[pow2]=28,40")
def too_large(state):
    x = torch.empty(state.bytes, dtype=torch.uint8, device="cuda")
    return x.zero_
"""


@NEEDS_TORCH
def test_a_file_of_benchmarks(tmp_path):
    path = tmp_path / "many.py"
    path.write_text(FILE)
    copied, by_cupy, too_large = declared(path)
    run = measure_benchmarks([copied, too_large], harness=QUICK, out=tmp_path / "run.json")
    expected = ["measured"] * 2 + ["skipped"] * 2 + ["measured"] * 3 + ["skipped"]
    assert [m.status for m in run.measurements] == expected, [m.reason for m in run.measurements]
    large = run.measurements[5]
    assert large.axes == {"N": 2**24, "dtype": "float32"} and large.moved_bytes == 8 * 2**24
    assert large.of_copy == approx(0.9, abs=0.35) and large.hot is not None
    assert "memory is full" in str(run.measurements[-1].reason)
    against = measure_benchmarks(
        at(["N=16777216", "dtype=float32"], [copied]),
        by_cupy,
        harness=QUICK,
        out=tmp_path / "two.json",
    )
    (found,) = against.measurements
    assert found.baseline == "by_cupy" and found.ratio == approx(1.0, abs=0.3), found.reason


OF_NVBENCH = """
import cupy
import worklog.benchmarks.nvbench as bench

@bench.register()
@bench.axis.string("how", ["stream", "external", "sync", "timer"])
@bench.axis.int64_power_of_two("N", [24])
def square(state: bench.State):
    how, x = state.get_string("how"), cupy.ones(state.get_int64("N"), cupy.float32)
    y = cupy.empty_like(x)
    state.add_global_memory_reads(x.nbytes)
    state.add_global_memory_writes(y.nbytes)
    assert state.get_device() == cupy.cuda.runtime.getDevice()
    if how == "stream":
        state.set_stream(cupy.cuda.get_current_stream())

    def launcher(launch, timer=None):
        with cupy.cuda.Stream.from_external(launch.get_stream()) as stream:
            if timer:
                cupy.copyto(y, x)
                timer.start()
            cupy.square(x, out=y)
            if timer:
                timer.stop()
            if how == "sync":
                stream.synchronize()

    state.exec(launcher, sync=how == "sync", timer=how == "timer")
"""


def test_benchmarks_in_nvbenchs_interface(tmp_path):
    path = tmp_path / "square.py"
    path.write_text(OF_NVBENCH)
    found = measure_benchmarks(
        declared(path), harness=QUICK, out=tmp_path / "run.json"
    ).measurements
    assert [m.status for m in found] == ["measured"] * 4, [m.reason for m in found]
    us = {str(m.axes["how"]): m.us for m in found}
    assert us["external"] == approx(us["stream"], rel=0.1) and us["timer"] == approx(
        us["stream"], rel=0.5
    )
    assert us["sync"] == approx(us["stream"], rel=0.8)


@NEEDS_TORCH
def test_pytorch_is_a_baseline_beside_cublas(tmp_path):
    run = worklog.measure(
        ["warptiled"],
        1024,
        harness=QUICK,
        against=[kernel_named("torch", {}), "naive"],
        out=tmp_path / "run.json",
    )
    (m,) = run.select()
    assert set(m.against) == {"cuBLAS", "torch", "naive"} and m.baseline == "cuBLAS"
    naive = m.against["naive"]
    torch = m.against["torch"]
    assert naive is not None and naive.value > 5, m.degradations
    assert torch is not None and torch.value == approx(m.ratio, rel=0.5), m.degradations


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
CASES = ["4096 x 1000"]


@pytest.fixture
def python(tmp_path):
    (tmp_path / "own.py").write_text(PYTHON)
    return tmp_path / "own.py"


def test_cuda_source_is_right_at_every_case():
    found = check(Solution.of(SOFTMAX, problem="softmax"))
    assert found.verdict.accepted, found
    samples, cases = find_problem("softmax").tests
    assert len(found.verdict.stages) == len(samples) + len(cases) + 1 and found.label.startswith(
        "live"
    )


@NEEDS_TORCH
def test_python_functions_and_source_are_timed_beside_the_baseline(python, tmp_path):
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


@NEEDS_TORCH
def test_tensaras_rules_and_float16(python, tmp_path):
    harness = Harness().but(warmup="tensara:512:3:10", stopping="tensara:5:5:20", least_samples=5)
    chosen = [Solution.of(f"{python}:returned", arrays="torch", problem="softmax", dtype="float16")]
    run = measure_solutions(chosen, cases=CASES, harness=harness, out=tmp_path / "run.json")
    (found,) = run.measurements
    assert found.us and 5 <= found.n <= 20, found.reason
    assert found.verdict is not None and found.verdict.precision == "float16"


BESIDE = ["naive", "shared"]


@pytest.fixture
def nothing_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(trials, "_ladders", {})
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("nothing_measured")
def test_a_kernel_is_timed_between_its_neighbours_and_the_ladder_once_for_a_size(monkeypatch):
    monkeypatch.setattr(trials, "LADDER", tuple(map(rung, BESIDE)))
    first = try_kernel(PLAIN, "one", shapes=[512])
    assert first.passed and first.checked.label == f"live · {gpu().name}"
    assert first.run is not None and [m.kernel for m in first.run.measurements] == [
        "one",
        *BESIDE,
        "cuBLAS",
    ]
    rate = {m.kernel: m.tflops or 0.0 for m in first.shown.measurements}
    assert list(rate) == ["naive", "shared", "one", "cuBLAS"]
    assert rate["naive"] < rate["one"] < rate["cuBLAS"]
    assert first.ladder().headline.startswith("one reaches ")
    assert open_run().kernels["one"]["user"] == "kernel"
    second = try_kernel(PLAIN, "two", shapes=[512])
    assert second.run is not None and [m.kernel for m in second.run.measurements] == [
        "two",
        "cuBLAS",
    ]
    assert [m.kernel for m in second.shown.measurements] == [*BESIDE, "two", "cuBLAS"]
