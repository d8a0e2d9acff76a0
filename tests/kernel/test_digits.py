"""Six products of INT8: any shape and a long K are right, and what it loses is said."""

from dataclasses import replace

import numpy as np
import pytest

from tests.helpers import integers
from worklog.kernel import Kernel, rung
from worklog.kernel.emulated import EmulatedDevice
from worklog.problem import Float32, Shape
from worklog.runner.check import check

BUDGET = 4 * 10**6  # instructions of a warp
SMALL = Shape(130, 129, 70)
SHAPES = (Shape(130, 257, 70), Shape(1, 1, 1), Shape(384, 129, 64))


def product(kernel: Kernel, a: Float32, b: Float32, c: Float32, beta: float = 0.0) -> Float32:
    """Return 2 A B + beta C on an emulated card of two multiprocessors."""
    device = EmulatedDevice(budget=BUDGET)
    on_device = [device.upload(matrix) for matrix in (a, b, c)]
    subject = replace(kernel, multiprocessors=2).load(device)
    shape = Shape(*c.shape, a.shape[1])
    subject.enqueue(shape, 2.0, on_device[0], on_device[1], beta, on_device[2])
    return device.download(on_device[2]).reshape(c.shape)


def edited(old: str, new: str) -> Kernel:
    """Return the kernel with other code in one place."""
    kernel = rung("digits")
    assert kernel.source.count(old) == 1
    return kernel.with_text(kernel.source.replace(old, new))


@pytest.mark.parametrize("beta", [0.0, -0.5])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_integers_are_exact_at_any_shape(shape, beta):
    a = integers(shape.m, shape.k)
    b = integers(shape.k, shape.n)
    c = integers(shape.m, shape.n)
    old = c if beta else np.full_like(c, np.nan)
    assert np.array_equal(product(rung("digits"), a, b, old, beta), 2 * (a @ b) + beta * c)


def test_a_long_k_is_summed_in_parts():
    """Here of 2 stages, and of 512 in the kernel, so that no sum overflows."""
    in_parts = edited("MOST_STAGES = 512", "MOST_STAGES = 2")
    a = integers(70, 600)
    b = integers(600, 33)
    c = integers(70, 33)
    assert np.array_equal(product(in_parts, a, b, c, -0.5), 2 * (a @ b) - 0.5 * c)


def test_it_passes_and_the_verdict_names_the_numbers_that_it_loses(few_shapes):
    verdict = check(rung("digits"), SMALL, on="emulated", seed=1, quick=True, budget=BUDGET).verdict
    assert verdict.accepted, verdict.reason
    [hard] = [stage for stage in verdict.stages if stage.name == "hard data"]
    assert "numbers of very different size in a row" in hard.detail


def test_it_fails_with_another_product_in_place_of_the_middle_digits(few_shapes):
    kernel = edited("multiply(low, a + NEXT + k, b + NEXT", "multiply(low, a + k, b + NEXT")
    verdict = check(kernel, SMALL, on="emulated", seed=1, quick=True, budget=BUDGET).verdict
    assert not verdict.accepted
