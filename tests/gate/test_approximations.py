"""Results that PTX states up to an error: a GPU's may be a neighbour of the emulator's."""

import numpy as np
import pytest

from worklog.emulator import launch, load
from worklog.gate import Memory
from worklog.gate.approximations import approximate_lines, check_approximations
from worklog.gate.edges import mistake_in
from worklog.gate.exact import ExactProblem, family
from worklog.kernel import Kernel, Loaded, Program
from worklog.kernel.emulated import EmulatedDevice, build
from worklog.problem import Shape
from worklog.runs import Stage

GRID = "(N + 15) / 16 * ((M + 7) / 8)"
COMMON = """extern "C" __global__ void mine(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  const int across = (N + 15) / 16, tile = blockIdx.x;
  const int ty = %s;
  const int row = ty * 8 + threadIdx.y, col = (tile - ty * across) * 16 + threadIdx.x;
  if (row >= M || col >= N || row < 0 || col < 0) return;
  float acc = 0.0f;
  for (int k = 0; k < K; ++k) acc += A[row * K + k] * B[k * N + col];
  acc = alpha * %s;
  C[row * N + col] = beta == 0.0f ? acc : acc + beta * C[row * N + col];
}
"""


def stage_of(index: str, value: str = "acc", seed: int = 0) -> Stage:
    """Return the stage of a kernel whose tile's row and result are these expressions."""
    kernel = Kernel.from_source(COMMON % (index, value), grid=GRID, block="16, 8")
    device = EmulatedDevice()
    subject = kernel.load(device)
    assert isinstance(subject, Loaded)
    memory = Memory(device, np.random.default_rng(seed))
    problem = ExactProblem("E1", *family("E1", Shape(130, 190, 70), memory.rng))
    assert mistake_in(subject, memory, problem) is None, "the nearest float32 is right"
    stage = check_approximations(subject, memory, approximate_lines(subject, memory.device))
    assert device.ulps == 0
    return stage


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_index_that_depends_on_the_last_bit_of_an_approximation_fails(seed):
    stage = stage_of("(int)__fdividef((float)tile, (float)across)", seed=seed)
    assert not stage.passed
    assert "with div.approx.f32 of line 4 one ulp below the nearest float32" in stage.detail


@pytest.mark.parametrize(
    ("index", "value"),
    [
        ("(int)__fdividef(tile + 0.5f, (float)across)", "acc"),
        ("tile / across", "__fdividef(acc, 1.0f + (K < 0))"),
    ],
    ids=["a rounded index", "a result that is off by rounding"],
)
def test_a_kernel_that_is_right_with_each_neighbour_passes(index, value):
    stage = stage_of(index, value)
    assert stage.passed and "div.approx.f32 of line" in stage.detail, stage.detail


@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("name", ["rcp", "rsqrt", "sqrt", "sin", "cos", "ex2", "lg2", "tanh"])
def test_approximations_are_neighbours_and_stated_results_stay(name, ftz):
    text = f"""extern "C" __global__ void k(float* x) {{
  asm volatile("{name}.approx{ftz if name != "tanh" else ""}.f32 %0, %0;" : "+f"(x[threadIdx.x]));
}}"""
    compiled = build(Program("k.cu", text, "k"))[0]
    kernel = load(compiled.ptx, compiled.symbol)
    start = np.array([0.7, 5.3, 0.0, np.inf, np.nan, 1.0], np.float32)

    def result(ulps: int) -> np.ndarray:
        values = start.copy()
        launch(kernel, (1,), len(values), [values], ulps=ulps)
        return values

    below, nearest, above = (result(ulps) for ulps in (-1, 0, 1))
    assert np.array_equal(below[:2], np.nextafter(nearest[:2], np.float32(-np.inf)))
    assert np.array_equal(above[:2], np.nextafter(nearest[:2], np.float32(np.inf)))
    is_stated = ~np.isfinite(nearest) | np.isin(nearest, (0, 1))
    assert is_stated[2], "a result of 0 is stated"
    for values in (below, above):
        assert np.array_equal(values[is_stated], nearest[is_stated], equal_nan=True)
