"""The gate launches the corners of the sizes that a verdict states, and each size of an axis."""

import re
from dataclasses import replace

import numpy as np
import pytest

from worklog.gate import Memory, sweeps
from worklog.kernel import Kernel, rung
from worklog.kernel.emulated import EmulatedDevice
from worklog.problem import Domain, Shape
from worklog.runner.check import Checked, check

pytestmark = pytest.mark.sweeps
STORE = "  float* c ="


def edited(old: str, new: str, above: str = "") -> Kernel:
    text = rung("naive").source
    assert old in text
    return rung("naive").with_text(above + text.replace(old, new, 1))


def checked(kernel: Kernel, seed: int = 1, **settings: bool) -> Checked:
    return check(kernel, on="emulated", seed=seed, **settings)


def test_the_corners_have_one_size_at_its_least():
    assert sweeps.corners(Domain(k=8), (100, 200, 304)) == [
        Shape(1, 200, 304),
        Shape(100, 1, 304),
        Shape(100, 200, 8),
    ]
    assert sweeps.corners(Domain(square=True), (64, 64, 64)) == []


def test_a_thread_that_computes_a_row_may_take_the_instructions_of_the_longest_one():
    source = """
    __global__ void rows(int M, int N, int K, float alpha, const float* A, const float* B,
                         float beta, float* C) {
      const int row = blockIdx.x * 64 + threadIdx.x;
      if (row >= M) return;
      for (int col = 0; col < N; ++col) {
        float sum = 0;
        for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
        float* c = &C[row * N + col];
        *c = beta == 0.0f ? alpha * sum : alpha * sum + beta * *c;
      }
    }
    """
    kernel = Kernel.from_source(source, file="rows.cu", grid="(M + 63) / 64", block="64")
    device = EmulatedDevice()
    budget = device.budget
    memory = Memory(device, np.random.default_rng(1))
    memory.shapes.add(Shape(1100, 1200, 1200))
    subject = kernel.load(device)
    stage = sweeps.check_corners(
        subject, memory, lambda shape: sweeps.corner_failure(subject, memory, shape)
    )
    assert stage.passed and device.budget == budget


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_is_wrong_for_a_row_of_many_columns_fails_at_a_corner(few_shapes, seed):
    kernel = edited(STORE, f"  acc += (float)(N / (M + 30) / 5);\n{STORE}")
    verdict = checked(kernel, seed, quick=True).verdict
    assert verdict.failed is not None and verdict.failed.name == sweeps.CORNERS, verdict
    assert "at 1 x 190 x 70" in verdict.failed.detail


OLD = "beta == 0.0f ? alpha * acc : alpha * acc + beta * *c"
IN_FAR_ROWS = {
    "with NaN in a row": (STORE, f"  if (row >= 100) acc = fmaxf(acc, -1e30f);\n{STORE}"),
    "with beta = 0 and a C of NaN": (OLD, "alpha * acc + (beta == 0 && row < 100 ? 0 : beta * *c)"),
    "behind an aligned address": (STORE, f"  if ((size_t)C & 15 && row >= 100) acc += 1;\n{STORE}"),
}


@pytest.mark.parametrize("words", IN_FAR_ROWS)
def test_what_small_shapes_show_is_launched_at_a_corner(few_shapes, words):
    verdict = checked(edited(*IN_FAR_ROWS[words]), quick=True).verdict
    assert verdict.failed is not None and verdict.failed.name == sweeps.CORNERS, verdict
    assert words in verdict.failed.detail


VECTOR = """
  if (M * K >= 4) {
    const int4 first = *(const int4*)A;
    if (first.x == 123456789 && first.y == first.z && first.w == first.x) acc += 1;
  }
"""


@pytest.mark.parametrize(
    "statement", ["  acc += 0.0f * A[(size_t)(row ? row - 1 : 0) * K];\n", VECTOR]
)
def test_what_is_so_at_small_shapes_is_no_failure_of_a_corner(few_shapes, statement):
    verdict = checked(edited(STORE, statement + STORE), quick=True).verdict
    assert verdict.accepted, verdict


FAULTS = {
    "table": ("acc * factor[M / 10 % 16]", "M"),
    "saturated": ("acc * (1.0f + __saturatef(1.0f - fabsf((float)(N - 117))))", "N"),
    "remainder": ("acc * (1.0f + (float)(K == 53) * 0.25f)", "K"),
    "column of blocks": (
        "acc * (1.0f + (float)(blockIdx.x & 1) * (float)(K % 7 == 3))",
        "K",
    ),
}
TABLE = "__constant__ float factor[16] = {1,1,1,1,1,1,1,2,1,1,1,1,1,1,1,1};\n"


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("table", 1),
        ("table", 2),
        ("table", 3),
        ("saturated", 1),
        ("remainder", 1),
        ("column of blocks", 1),
    ],
)
def test_a_fault_at_few_values_of_one_size_fails_with_its_size(few_shapes, name, seed):
    product, axis = FAULTS[name]
    kernel = edited(STORE, f"  acc = {product};\n{STORE}", above=TABLE)
    verdict = checked(kernel, seed, sweep=True).verdict
    assert verdict.failed is not None and verdict.failed.name == sweeps.EACH_SIZE, verdict
    sizes = dict(zip("MNK", verdict.failed.detail.split()[1:6:2], strict=True))
    expected = {"M": range(70, 80), "N": (117,), "K": (53, *range(3, 70, 7))}[axis]
    assert int(sizes[axis]) in expected


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_order_of_tiles_that_is_wrong_in_some_grids_fails_at_a_pair(seed):
    """A swizzle leaves tiles out beside several rows of tiles: one axis alone doesn't show it."""
    in_some_grids = "(float)((M + 15) / 16 - 3u < 6) * (float)((N + 15) / 16 - 3u < 9)"
    device = EmulatedDevice()
    subject = edited(STORE, f"  acc *= 1.0f + {in_some_grids};\n{STORE}").load(device)
    memory = Memory(device, np.random.default_rng(seed))
    memory.shapes = {Shape(130, 190, 70)}
    stage = sweeps.check_each_size(subject, memory)
    assert not stage.passed
    m, n = map(int, stage.detail.split()[1:4:2])
    assert m > 32 and n > 32


@pytest.mark.parametrize("name", ["naive", "vectorized"])
def test_a_right_kernel_passes_and_the_verdict_states_which_sizes_ran(few_shapes, name):
    swept = checked(rung(name), sweep=True).verdict
    quick = checked(rung(name), quick=True).verdict
    assert swept.accepted and quick.accepted
    assert "(every M, N and K ran, not every combination);" in swept.result
    assert swept.largest == quick.largest and quick.ran < swept.ran
    assert sweeps.EACH_SIZE not in {stage.name for stage in quick.stages}
    if name == "naive":
        counts = r"\(\d+ of 130 M, \d+ of 190 N, \d+ of \d+ K ran\);"
        assert re.search(counts, quick.result), quick.result


def test_squares_are_swept_along_their_diagonal(few_shapes):
    square = replace(rung("naive"), rules="M = N = K")
    verdict = checked(square, sweep=True).verdict
    assert verdict.accepted and "(every size ran)" in verdict.result, verdict.result
    [swept] = [stage for stage in verdict.stages if stage.name == sweeps.EACH_SIZE]
    assert "pairs" not in swept.detail  # M and N are equal, so there are none


def test_a_sweep_ends_by_instructions_and_states_what_is_left_out(few_shapes, monkeypatch):
    monkeypatch.setattr(sweeps, "EFFORT", 2e6)
    first, second = (checked(rung("naive"), sweep=True).verdict for _ in range(2))
    assert first.ran == second.ran and min(first.ran) > 10
    (swept,) = (stage for stage in first.stages if stage.name == sweeps.EACH_SIZE)
    assert "sizes were left out" in swept.detail
    assert " of 190 N" in first.result


def test_a_limit_of_instructions_leaves_half_of_the_rest(monkeypatch):
    device = EmulatedDevice()
    subject = rung("naive").load(device)
    memory = Memory(device, np.random.default_rng(1))
    memory.shapes = {Shape(40, 40, 40)}
    device.most_instructions = 300_000
    assert sweeps.check_each_size(subject, memory).passed
    assert device.instructions < 300_000
