"""Six products of INT8 on a GPU: exact integers, the emulator's bits, and the gate's verdict."""

import numpy as np
import pytest

import worklog
from tests.helpers import integers
from worklog.gpu.device import gpu, gpu_reason
from worklog.kernel import rung
from worklog.problem import Shape, random_inputs
from worklog.runner.check import check

if gpu_reason() is None and gpu().compute_capability != (9, 0):
    pytest.skip("the kernel is for compute capability 9.0", allow_module_level=True)


@pytest.mark.parametrize("shape", [(1000, 2001, 1056), (4096, 3072, 512), (1, 1, 70_000)], ids=str)
def test_integers_are_exact_with_alpha_and_beta(shape):
    cupy = pytest.importorskip("cupy")
    m, n, k = shape
    sizes = ((m, k), (k, n), (m, n))
    a, b, c = (cupy.asarray(integers(*size, seed)) for seed, size in enumerate(sizes))
    expected = 2 * (a @ b) - 0.5 * c
    worklog.sgemm(a, b, c, alpha=2, beta=-0.5, mode=rung("digits"))
    assert bool((c == expected).all())


def test_the_emulator_computes_the_same_bits():
    """The sums are exact, so that no order changes them."""
    cupy = pytest.importorskip("cupy")
    a, b = random_inputs(Shape(130, 257, 300), np.random.default_rng(1))
    on_gpu = worklog.sgemm(cupy.asarray(a), cupy.asarray(b), mode=rung("digits"))
    assert np.array_equal(cupy.asnumpy(on_gpu), worklog.sgemm(a, b, mode=rung("digits")))


def test_the_gate_passes_it_and_names_what_it_loses():
    verdict = check(rung("digits"), Shape.of(1024), on="gpu", seed=1).verdict
    assert verdict.accepted, verdict.reason
    [hard] = [stage for stage in verdict.stages if stage.name == "hard data"]
    assert "numbers of very different size in a row" in hard.detail
