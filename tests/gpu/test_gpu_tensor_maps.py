"""Kernels with tensor maps on a GPU: the driver makes the maps that the emulator has by itself."""

import pytest

from tests.kernel.test_kernels_with_tensor_maps import RIGHT, kernel
from worklog.problem import Shape
from worklog.runner.check import check

SHAPE = Shape(256, 512, 384)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_passes_the_gate(name):
    checked = check(kernel(name), on="gpu", seed=1)
    assert checked.verdict.accepted, checked.verdict.reason


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_is_timed(name, measured):
    found = measured(kernel(name), SHAPE)
    assert found.status == "measured" and found.us is not None and found.us > 0, found.reason


def test_a_kernel_with_exchanged_maps_fails():
    wrong = kernel("float_comment", ("tma_a = A", "tma_a = B"), ("tma_b = B", "tma_b = A"))
    assert not check(wrong, on="gpu", seed=1).verdict.accepted


def test_a_kernel_with_another_swizzle_fails():
    wrong = kernel("half_swizzled", ("swizzle 64B", "swizzle 0B"))
    assert not check(wrong, on="gpu", seed=1).verdict.accepted
