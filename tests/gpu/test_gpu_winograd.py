"""Winograd's form on a GPU: its error beside float64, exact integers, and the emulator's bits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import worklog
from tests.helpers import integers
from worklog.gate.precision import BY_NORM, NORM_FACTOR, UNIT_ROUNDOFF, rms_limit
from worklog.gpu.device import gpu, gpu_reason
from worklog.kernel.emulated import EmulatedDevice
from worklog.kernel.ladder.rungs import WINOGRAD_LEVELS, winograd
from worklog.problem import Shape, random_inputs
from worklog.runner.check import check

if gpu_reason() is None and gpu().compute_capability != (9, 0):
    pytest.skip("the kernel is for compute capability 9.0", allow_module_level=True)

SMALL = Shape(512, 1024, 64)
BUDGET = 4 * 10**6


def rms_in_units(c: Any, a: Any, b: Any, torch: Any) -> float:
    """Return the rms error in u·D."""
    a = a.double()
    b = b.double()
    gauge = torch.sqrt(torch.square(a) @ torch.square(b))
    return float(torch.sqrt(torch.mean(torch.square((c - a @ b) / gauge)))) / UNIT_ROUNDOFF


@pytest.mark.parametrize("levels", WINOGRAD_LEVELS)
@pytest.mark.parametrize("size", [1024, 2048, 4096])
def test_the_error_is_that_of_the_class_beside_float64(size, levels):
    torch = pytest.importorskip("torch")
    a, b = (
        torch.from_numpy(host).cuda()
        for host in random_inputs(Shape.of(size), np.random.default_rng(1))
    )
    c = worklog.sgemm(a, b, mode=winograd(levels))
    assert rms_in_units(c, a, b, torch) <= NORM_FACTOR * rms_limit(size)


@pytest.mark.parametrize("levels", WINOGRAD_LEVELS)
@pytest.mark.parametrize("shape", [(1024, 2048, 1056), (4096, 3072, 512)], ids=str)
def test_integers_are_exact_with_alpha_and_beta(shape, levels):
    cupy = pytest.importorskip("cupy")
    m, n, k = shape
    sizes = ((m, k), (k, n), (m, n))
    a, b, c = (cupy.asarray(integers(*size, seed)) for seed, size in enumerate(sizes))
    expected = 2 * (a @ b) - 0.5 * c
    worklog.sgemm(a, b, c, alpha=2, beta=-0.5, mode=winograd(levels))
    assert bool((c == expected).all())


@pytest.mark.parametrize("levels", WINOGRAD_LEVELS)
def test_the_emulator_computes_the_same_bits(levels):
    """Whatever the number of blocks, the sums have one order."""
    cupy = pytest.importorskip("cupy")
    a, b = random_inputs(SMALL, np.random.default_rng(2))
    on_gpu = cupy.asnumpy(worklog.sgemm(cupy.asarray(a), cupy.asarray(b), mode=winograd(levels)))
    device = EmulatedDevice(budget=BUDGET)
    c = device.upload(np.zeros((SMALL.m, SMALL.n), np.float32))
    subject = replace(winograd(levels), multiprocessors=3).load(device)
    subject.enqueue(SMALL, 1.0, device.upload(a), device.upload(b), 0.0, c)
    assert np.array_equal(device.download(c).reshape(on_gpu.shape), on_gpu)


@pytest.mark.parametrize("levels", WINOGRAD_LEVELS)
def test_the_gate_accepts_it(levels):
    verdict = check(winograd(levels), Shape.of(2048), on="gpu", seed=1).verdict
    assert verdict.accepted, verdict.reason
    assert verdict.precision == BY_NORM
