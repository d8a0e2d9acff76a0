"""Every rung on the emulator: exact on integers, and without findings."""

import numpy as np
import pytest

from tests.emulator.helpers import gemm, integers, product, rung_kernel, smallest
from worklog.emulator.limits import LIMITS
from worklog.kernel.emulated import EmulatedDevice
from worklog.kernel.ladder import LADDER
from worklog.kernel.ladder.rungs import FP32, equal_shares, ragged
from worklog.problem import Shape

NAMES = [r.name for r in LADDER]
ALONE = [r for r in FP32 if "workspace" not in r.arguments]
OTHERS = [arch for arch in LIMITS if arch != "sm_90"]


# Rung, architecture, shape (None: the smallest), alpha and beta.
GEMMS: list[tuple[str, str, tuple[int, int, int] | None, float, float]] = [
    *((name, "sm_90", None, 1.0, 0.0) for name in NAMES),
    *((name, arch, None, 1.5, 0.5) for name, arch in zip(NAMES[1:], OTHERS, strict=False)),
    *(
        (name, "sm_90", shape, 2.0, -1.0)
        for name in NAMES[:2]
        for shape in ((33, 65, 7), (1, 1, 1), (31, 40, 130))
    ),
]


@pytest.mark.parametrize(("name", "arch", "shape", "alpha", "beta"), GEMMS, ids=str)
def test_a_rung_is_exact_and_clean(name, arch, shape, alpha, beta):
    """With beta 0, C holds NaN and must not be read."""
    record, kernel, _ = rung_kernel(name, arch)
    given = {"alpha": alpha, "beta": beta, "count": shape is not None}
    c, right, result = gemm(record, kernel, shape or smallest(record, 3), **given)
    np.testing.assert_array_equal(c, right)
    assert result.findings == () and result.label == f"emulated · {arch} PTX"


@pytest.mark.parametrize(
    "record", (*ALONE, equal_shares(3), ragged(blocks=3)), ids=lambda record: record.name
)
def test_a_rung_past_the_ladder_is_exact_and_clean(record):
    """With fewer tiles along K than stages, and with so many that mbarriers pass several phases."""
    device = EmulatedDevice()
    tile = record.template
    subject = record.load(device)
    for tiles in (1, 11):
        rng = np.random.default_rng(tiles)
        k = tiles * tile.get("BK", 8)
        a = integers(rng, tile["BM"], k)
        b = integers(rng, k, tile["BN"])
        np.testing.assert_array_equal(product(device, subject, a, b, 2.0), 2 * (a @ b))


@pytest.mark.parametrize(
    ("shape", "blocks", "alpha", "beta"),
    [
        ((1, 1, 1), 7, 2.0, 0.0),
        ((129, 257, 9), 3, 0.5, -1.0),
        ((131, 260, 61), 5, 1.0, 0.0),  # only A is copied
        ((67, 4, 44), 4, -1.0, 2.0),  # nothing is copied: a quad of zeros behind K
        ((3, 521, 40), 1, 1.0, 1.0),  # only B is copied; no tile has parts
        ((300, 5, 131), 7, 2.0, 0.0),
        ((127, 255, 7), 3, 0.0, 2.0),  # the factors are NaN and not read
    ],
    ids=str,
)
def test_ragged_takes_any_shape(shape, blocks, alpha, beta):
    """What it reads beyond a row's end, and what the workspace held, reaches no result."""
    m, n, k = shape
    device = EmulatedDevice()
    rng = np.random.default_rng(0)
    subject = ragged(k % 4 != 0, n % 4 != 0, blocks).load(device)
    subject.use_workspace(
        device.upload(np.full(subject.workspace_elements(Shape(*shape)), np.nan, np.float32))
    )
    a = integers(rng, m, k)
    b = integers(rng, k, n)
    c = integers(rng, m, n)
    given = [
        x if factor else np.full_like(x, np.nan)
        for x, factor in ((a, alpha), (b, alpha), (c, beta))
    ]
    found = product(device, subject, *given[:2], alpha, beta, given[2])
    np.testing.assert_array_equal(found, alpha * (a @ b) + beta * c)
    assert device.findings == []
