"""What a kernel keeps between launches: counters that run over, and results of other inputs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gate.kernels import summed
from tests.gate.numpy_device import NumpyDevice, NumpySubject, Problem
from worklog.emulator.symbols import variable_name
from worklog.errors import LaunchFailed
from worklog.gate import Memory, kept_state
from worklog.gate.guarded_buffer import Buffers
from worklog.gate.kept_state import check_replay, check_state
from worklog.kernel import Kernel, Loaded
from worklog.kernel.emulated import EmulatedDevice
from worklog.problem import Domain, Float32, Shape, random_inputs
from worklog.runs import Stage, Verdict

SHAPE = Shape(40, 24, 20)
SOURCE = Path(__file__).with_name("kept_state.cu")


def loaded(*define: str) -> Loaded:
    """Return the kernel of the file on the emulator."""
    kernel = Kernel.from_file(
        SOURCE, grid="(N + 15) / 16, (M + 15) / 16", block="16, 16", define=define
    )
    subject = kernel.load(EmulatedDevice())
    assert isinstance(subject, Loaded)
    return subject


def memory_of(subject: Any, seed: int = 0) -> Memory:
    return Memory(subject.device, np.random.default_rng(seed))


def buffers_of(subject: Any, shape: Shape, seed: int = 0) -> Buffers:
    """Return buffers of a shape, as the checker has them of the checked one."""
    a, b = random_inputs(shape, np.random.default_rng(seed))
    return Buffers(memory_of(subject, seed), a, b)


# ----------------------------------------------------------------------------------------- counters


@pytest.fixture
def _no_crowd(monkeypatch):
    """Return the first launch is small, so that the test is."""
    monkeypatch.setattr(kept_state, "SIDES", ())


@pytest.mark.usefixtures("_no_crowd")
def test_a_counter_that_runs_over_in_launch_4097_fails():
    subject = loaded("COUNTED", "LIMIT=4096")
    stage = check_state(subject, memory_of(subject))
    assert not stage.passed and "in launch 4097, 4096 after the last at 130x190x70" in stage.detail


def test_a_part_of_an_old_launch_is_not_right_in_a_new_one(monkeypatch):
    """The tiles of the large shape have flags that look new, and parts of other inputs."""
    monkeypatch.setattr(kept_state, "KEPT_LAUNCHES", (256, 256))
    file = Path(__file__).with_name("launches_in_a_byte.cu")
    grid = "(N + 15) / 16, (M + 15) / 16, 2"
    subject = Kernel.from_file(file, grid=grid, block="16, 16").load(EmulatedDevice())
    assert isinstance(subject, Loaded)
    with pytest.raises(LaunchFailed, match="global-race"):
        check_state(subject, memory_of(subject))


@pytest.mark.usefixtures("_no_crowd")
@pytest.mark.parametrize(
    ("limit", "most", "launches"), [(65, 2**23, 65), (64, 2**23, 0), (17, 2**10, 17)]
)
def test_the_verdict_says_how_many_launches_kept_variables_are_tested_in(
    monkeypatch, limit, most, launches
):
    """Launches that would take long are fewer."""
    monkeypatch.setattr(kept_state, "KEPT_LAUNCHES", (64, 16))
    monkeypatch.setattr(kept_state, "MOST_INSTRUCTIONS", most)
    subject = loaded("COUNTED", f"LIMIT={limit}")
    stage = check_state(subject, memory_of(subject))
    assert stage.passed is bool(launches)
    if launches:
        keeps = "keeps kept::launches between launches"
        assert Verdict((stage,), "fp32").result == (
            f"passed as fp32; {keeps}, tested in {launches} launches"
        )


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("plain", "plain"),
        ("_ZN3lab5countE", "lab::count"),
        ("_ZZ1kPfE8launches", "k::launches"),
        ("_ZZ1fILi3EEiiPFfiEE5inner", "f<3>::inner"),
        ("_ZN27_INTERNAL_00000000_4_k_cu_k29_GLOBAL__N__00000000_4_k_cu_k6hiddenE", "hidden"),
    ],
)
def test_a_variable_is_named_as_in_the_source(symbol, name):
    assert variable_name(symbol) == name


# ------------------------------------------------------------------------------------------ results


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("seen", [Shape(33, 47, 33), SHAPE])
def test_a_kernel_that_keeps_c_by_samples_fails_on_every_seed(seen, seed):
    subject = loaded("REPLAYED")
    stage = check_replay(subject, buffers_of(subject, seen, seed))
    assert not stage.passed and "C is the result of the launch before, kept and" in stage.detail


def replaying(key_of: Callable[[Problem], Any], from_size: int = 0) -> NumpySubject:
    """Return a kernel that returns its last result if a key of the inputs is as before."""
    kept: dict[Any, Float32] = {}

    def function(p: Problem) -> None:
        key = (p.m, p.n, p.k, key_of(p))
        result = kept.get(key) if p.m >= from_size else None
        if result is None:
            result = summed(p.a, p.b)
        kept.clear()
        kept[key] = result
        p.c[:] = result

    return NumpySubject(NumpyDevice(), function, Domain(alpha=False, beta=False))


def whole(p: Problem) -> bytes:
    """Return all elements."""
    return p.a.tobytes() + p.b.tobytes()


@pytest.mark.parametrize(
    ("key_of", "from_size", "change"),
    [
        (lambda p: 0, 0, "one element of A changed"),
        (lambda p: p.a.tobytes(), 0, "one element of B changed"),
        (lambda p: p.b.tobytes(), 0, "one element of A changed"),
        (lambda p: (float(p.a.sum()), float(p.b.sum())), 0, "two rows of A exchanged"),
        (lambda p: (p.a.sum(axis=1).tobytes(), p.b.tobytes()), 0, "two columns of A exchanged"),
        (lambda p: (np.abs(p.a).tobytes(), p.b[::2].tobytes()), 0, "one element of"),
        (lambda p: p.b.tobytes(), 40, "at 40x24x20, with one element of A changed"),
        (whole, 0, ""),
    ],
    ids=["shape", "A", "B", "sums", "sums of rows", "halves", "large ones", "right"],
)
def test_a_result_that_is_kept_for_other_inputs_fails_and_is_right_for_the_same(
    key_of, from_size, change
):
    subject = replaying(key_of, from_size)
    stage: Stage = check_replay(subject, buffers_of(subject, SHAPE))
    assert stage.passed is (change == "") and change in stage.detail, stage.detail


def test_a_write_outside_of_c_in_a_repeated_launch_fails():
    def spilling(p: Problem) -> None:
        p.c[:] = summed(p.a, p.b)
        p.c_buffer.beyond(0, 1)[-1] = 0

    subject = NumpySubject(NumpyDevice(), spilling)
    assert "it wrote outside C" in check_replay(subject, buffers_of(subject, SHAPE)).detail


LARGE = Shape(160, 150, 140)  # of more multiply-adds than are spent on the emulator


def test_a_large_checked_shape_is_launched_where_that_takes_no_emulator():
    subject = replaying(whole)
    subject.device.source = "live"
    stage = check_replay(subject, buffers_of(subject, LARGE))
    assert stage.passed and stage.detail.startswith("26 launches at 33x47x33 and 160x150x140")
    subject = loaded("COUNTED", "LIMIT=9999")
    stage = check_replay(subject, buffers_of(subject, LARGE))
    assert stage.passed and stage.detail.startswith("15 launches at 33x47x33,")


@pytest.mark.parametrize(
    ("key_of", "change"),
    [
        (lambda p: (p.a[0, 0], p.b[0, 0]), "one element of A"),
        (lambda p: p.a.sum() + p.b.sum(), "two rows of A"),
    ],
    ids=["samples", "sums"],
)
def test_a_result_that_is_kept_from_a_size_on_fails(key_of, change):
    subject = replaying(key_of, from_size=LARGE.m)
    subject.device.source = "live"
    stage = check_replay(subject, buffers_of(subject, LARGE))
    assert not stage.passed and f"at 160x150x140, with {change}" in stage.detail


TABLE = """
typedef float (*Step)(float, float, float);
__device__ __noinline__ float added(float a, float b, float sum) { return sum + a * b; }
__device__ __noinline__ float fused(float a, float b, float sum) { return fmaf(a, b, sum); }
__device__ Step steps[2] = {added, fused};
__global__ void by_table(int M, int N, int K, const float* A, const float* B, float* C) {
  const int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
  if (row >= M || col >= N) return;
  float acc = 0.0f;
  for (int k = 0; k < K; ++k) acc = steps[k % 2](A[row * K + k], B[k * N + col], acc);
  C[row * N + col] = acc;
}
"""
WRITTEN = "  steps[row % 2] = fused;\n  float acc"


@pytest.mark.parametrize(
    ("source", "names"), [(TABLE, []), (TABLE.replace("  float acc", WRITTEN, 1), ["steps"])]
)
def test_a_table_of_functions_is_kept_only_where_a_store_reaches_it(source, names):
    kernel = Kernel.from_source(source, grid="(N + 15) / 16, (M + 15) / 16", block="16, 16")
    subject = kernel.load(EmulatedDevice())
    assert isinstance(subject, Loaded) and subject.variables(SHAPE) == names
