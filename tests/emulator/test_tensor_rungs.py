"""The rungs through tensor cores on the emulator.

Exact on integers, as precise as they state, and FP32's range.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from tests.emulator import helpers
from tests.emulator.helpers import integers
from worklog.gate.precision import RANK, PrecisionReference, classify
from worklog.kernel.device import Runnable
from worklog.kernel.emulated import EmulatedDevice
from worklog.kernel.ladder import rung
from worklog.kernel.ladder.rungs import split
from worklog.kernel.tensor_products import tensor_product
from worklog.problem import Float32, Shape

# By rung: K, and the rms error in u·D on U(-1, 1), within a tenth.
RMS = {"tf32": (64, 4340), "tf32x3": (64, 7.4), "fp16x3": (256, 15.3), "promoted": (256, 7.5)}
MODEL: dict[str, dict[str, Any]] = {
    "tf32": {"type_": "tf32", "products": 1, "promote": None},
    "tf32x3": {"type_": "tf32", "promote": None},
    "fp16x3": {"promote": None},
    "promoted": {"promote": 128},
}


@lru_cache
def loaded(record: str) -> tuple[EmulatedDevice, Runnable]:
    name, _, tile = record.strip(">").partition("<")
    few = split(*map(int, tile.split(",") if tile else [])).with_launch(grid="2")  # blocks
    device = EmulatedDevice()  # which has the findings
    return device, (few if name == "split" else rung(name)).load(device)


def product(
    name: str, a: Float32, b: Float32, alpha: float = 1.0, c: Float32 | None = None
) -> Float32:
    """C of one launch without findings.

    c: what it holds before, times 0.5; None: NaN, with beta = 0.
    """
    return helpers.product(*loaded(name), a, b, alpha, 0.0 if c is None else 0.5, c)


@pytest.mark.parametrize("name", MODEL)
def test_the_error_is_that_of_the_class_that_the_rung_claims(name):
    rng = np.random.default_rng(0)
    (k, expected) = RMS[name]
    a, b = (rng.uniform(-1, 1, size).astype(np.float32) for size in ((128, k), (k, 128)))
    c = integers(rng, 128, 128)
    with_c = product(name, a, b, 0.5, c)  # alpha = beta = 0.5
    np.testing.assert_array_equal(
        with_c, np.float32(0.5) * (tensor_product(a, b, **MODEL[name]) + c)
    )
    half = with_c.astype(np.float64) - 0.5 * c
    rms, largest = PrecisionReference(a, b, rng).errors((2 * half).astype(np.float32))
    assert rms == pytest.approx(expected, rel=0.1)
    assert RANK[classify(rms, largest, k)] <= RANK[rung(name).claimed]


# More tiles than blocks, and edges in each dimension; and 5 stages in 4 parts: two, two, the ragged
# one and none.
@pytest.mark.parametrize(
    ("name", "m", "n", "k", "beta"),
    [
        ("split<192>", 33, 388, 40, 0.5),
        ("split<64,4,150>", 33, 70, 150, 0.5),
        ("split<64,4,150>", 33, 70, 150, 0.0),
    ],
)
def test_split_takes_any_shape_and_parts_of_k_of_any_length(name, m, n, k, beta):
    rng = np.random.default_rng(0)
    a, b, c = (integers(rng, *size) for size in ((m, k), (k, n), (m, n)))
    np.testing.assert_array_equal(
        product(name, a, b, 1.5, c if beta else None), 1.5 * (a @ b) + beta * c
    )


def test_the_tile_of_split_follows_the_shape():
    """Few tiles are narrow, so that more multiprocessors have one; many are wide.

    Where K is long, the multiprocessors share it out.
    """
    shapes = [*map(Shape.of, (256, 1024, 4096, 8192)), Shape(64, 40, 13512), Shape(157, 479, 1667)]
    shapes += [
        Shape(768, 1536, 2048),
        Shape(2048, 2304, 2048),
    ]  # two parts of 192 columns don't fit the registers
    chosen = [
        tuple(rung("split").at(shape).template[name] for name in ("BN", "PARTS"))
        for shape in shapes
    ]
    assert chosen == [(64, 1), (64, 1), (128, 1), (192, 1), (64, 96), (64, 8), (128, 1), (192, 1)]
    splitting = [
        split(k=k).launches[0].function.removeprefix("split_lines<BM, BN, PARTS, ")
        for k in (128, 1024, 1025)
    ]
    assert splitting == ["2, 16>", "2, 64>", "8, 64>"], (
        "a thread takes 8 at a time, and few of them twice"
    )
    assert all(split(bn).program.shared <= 227 * 1024 for bn in (64, 128, 192))
