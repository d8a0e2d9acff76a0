"""The accuracy contract of worklog.sgemm.

No kernel misses its bound, and max_error takes one that keeps it.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

import worklog
from tests.products import KINDS, Product, drawn, largest_error
from worklog.emulator.limits import Chip
from worklog.errors import BadSetting
from worklog.kernel import Kernel
from worklog.kernel.emulated import EmulatedDevice
from worklog.kernel.ladder.best import (
    LEAST_SPLIT_K,
    UNIT_ROUNDOFF,
    choose,
    exact_bound,
    fp32_bound,
    split_bound,
)
from worklog.kernel.ladder.rungs import split
from worklog.problem import Shape

LIMITS = (6.1e-8, 1e-6, 1e-5, 1e-3)
TILES = ((64, 1), (128, 3))
SPLIT_CASES = 48


def sizes(seed: int) -> Shape:
    rng = np.random.default_rng([seed, 1])
    return Shape(*(int(math.exp(rng.uniform(0, math.log(most)))) for most in (48, 48, 400)))


def result(kernel: Kernel, product: Product) -> np.ndarray:
    """C by a kernel on the emulator."""
    device = EmulatedDevice(races=False)
    a, b, c = map(device.upload, (product.a, product.b, product.c))
    (m, k) = product.a.shape
    n = product.b.shape[1]
    kernel.load(device).enqueue(Shape(m, n, k), product.alpha, a, b, product.beta, c)
    return device.download(c).reshape(m, n)


def test_no_drawn_product_misses_max_error() -> None:
    for seed in range(200):
        product = drawn(seed, sizes(seed))
        max_error = LIMITS[seed // len(KINDS) % len(LIMITS)]
        orders = ("CF"[seed // 5 % 2], "CF"[seed // 7 % 2], "CF"[seed // 11 % 2])
        stored = zip((product.a, product.b, product.c.copy()), orders, strict=True)
        a, b, c = (np.asarray(matrix, order=order) for matrix, order in stored)
        worklog.sgemm(a, b, c, alpha=product.alpha, beta=product.beta, max_error=max_error)
        assert largest_error(product, c) <= max_error, (seed, product.kind, max_error)


def test_a_chain_is_rounded_per_term_per_further_part_and_for_alpha_beta_and_their_sum() -> None:
    assert fp32_bound(100, 4) == pytest.approx((100 + 3 + 3) * UNIT_ROUNDOFF, rel=1e-4)
    assert exact_bound(2**29 - 3) == 2 * UNIT_ROUNDOFF
    assert (fp32_bound(2**23 - 3), fp32_bound(2**24 - 3)) == (1.0, math.inf)
    assert split_bound(Shape(128, 128, 3 * 32 * 1000), 3) == fp32_bound(1000 + 5, 3), (
        "K so long that its stages count"
    )
    of_stages = [split_bound(Shape(128, 128, 32 * stages), 1) / UNIT_ROUNDOFF for stages in (1, 4)]
    assert of_stages == pytest.approx(
        [(13 + 20.04) * 1.00195 + 3, (13 + 200.04 + 1) * 1.00195 + 3], rel=1e-4
    )


def test_split_keeps_its_bound() -> None:
    for seed in range(SPLIT_CASES):
        shape = sizes(seed)
        (bn, parts) = TILES[seed // len(KINDS) % len(TILES)]
        product = drawn(seed, shape)
        error = largest_error(product, result(split(bn, parts, 128), product))
        assert error <= split_bound(shape, parts), (seed, product.kind)


@pytest.mark.parametrize(("kind", "least"), [("equal", 20), ("large and small", 100)])
def test_some_products_come_near_the_bound_of_split(kind, least) -> None:
    """A max_error of 1e-6 is 17 u, and the bound 216 u."""
    shape = Shape(8, 8, 128)
    product = drawn(KINDS.index(kind), shape)
    assert (
        least * UNIT_ROUNDOFF
        < largest_error(product, result(split(64, 1, 128), product))
        <= split_bound(shape, 1)
    )


@pytest.mark.parametrize(("kind", "k"), [("signs", 64), ("positive", 128), ("scaled numbers", 512)])
def test_below_k_of_700_split_can_be_off_further_than_best(kind, k):
    shape = Shape(32, 32, k)
    product = drawn(KINDS.index(kind), shape)
    by_split, by_best = (
        largest_error(product, result(kernel, product))
        for kernel in (split(64, 1, k), choose(shape))
    )
    assert by_split > by_best and k < LEAST_SPLIT_K


def test_the_fastest_of_those_that_keep_it_is_taken_and_otherwise_the_least_is_named() -> None:
    wide = Shape(4096, 4096, 4096)
    deep = Shape(4096, 4096, 256)
    on_hopper = partial(choose, chip=Chip("sm_90"), split=True)
    names = {limit: on_hopper(wide, max_error=limit).name for limit in (1e-7, 1.5e-5, 1e-3)}
    assert names == {1e-7: "exact", 1.5e-5: "split", 1e-3: "split"}
    assert on_hopper(wide, max_error=1e-5).name in ("exact", "sliced"), "sliced has shorter chains"
    assert on_hopper(deep, max_error=1.4e-5).name == "split"
    assert choose(deep, max_error=1.6e-5, chip=Chip("sm_80"), split=True).name == "best"
    few = Shape(128, 128, 16384)  # more parts of K have shorter chains
    parts = [choose(few, max_error=limit).blocks(few)[2] for limit in (1e-3, 3e-5)]
    assert 1 < parts[0] <= parts[1]
    with pytest.raises(
        BadSetting, match=r"no kernel keeps max_error=1e-08 at 4096: give 5\.96e-08 or more"
    ):
        on_hopper(wide, max_error=1e-8)
