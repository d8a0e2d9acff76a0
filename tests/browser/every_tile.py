"""Every rung and tile on the emulator's core in Chromium, at three shapes: `make browser`."""

import pytest

from tests.browser.test_core import RUNGS, folder, page, require_equal  # noqa: F401
from worklog.kernel.ladder import rung
from worklog.problem import Shape

TILES = {
    "shared": [{"BM": 16, "BN": 16, "BK": 16}],
    "tiles_1d": [{"BM": 32, "BN": 32, "TM": 4}],
    "tiles_2d": [{"BM": 64, "BN": 64, "TM": 4, "TN": 4}],
    "conflict_free": [{"BM": 64, "BN": 128}],
    "double_buffered": [{"BM": 64, "BN": 64}],
    "autotuned": [{"BM": 64}, {"BN": 64}],
    "pipelined": [{"BM": 64}, {"BK": 16}],
    "register_banks": [{"BN": 64}],
    "warptiled": [{"BK": 16}],
}
EDGES = Shape(33, 65, 7)
KERNELS = [*RUNGS, *(rung(name).with_tile(**tile) for name in TILES for tile in TILES[name])]


def shapes(kernel):
    """Return a tile, tiles along M and K, and tiles along N and K, or edges."""
    domain = kernel.domain
    m = max(domain.m, kernel.template["BM"])
    n = max(domain.n, kernel.template["BN"])
    k = max(domain.k, kernel.template.get("BK", 8))
    last = EDGES if EDGES in domain else Shape(m, 2 * n, 5 * k)
    return Shape(m, n, k), Shape(2 * m, n, 3 * k), last


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_tile_does_the_same_as_on_the_native_core(page, kernel, place):  # noqa: F811
    launches = require_equal(page, kernel, shapes(kernel)[place])
    assert [launch["status"] for launch in launches] == ["DONE"] * len(launches)
