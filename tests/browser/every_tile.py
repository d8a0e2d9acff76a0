"""Every rung and tile on the emulator's core in Chromium, at three shapes: `make browser`."""

import math

import pytest

from tests.browser.test_core import RUNGS, folder, page, require_equal  # noqa: F401
from tests.browser.test_live import require_same_document
from worklog.kernel.ladder import FP32, LADDER, TENSOR, rung
from worklog.problem import Shape
from worklog.site import live

EDGES = Shape(33, 65, 7)
TILED = [rung(name).with_tile(**tile) for name in live.TILES for tile in live.TILES[name]]
KERNELS = [*RUNGS, *TILED]
# Without those whose blocks share out K, which need other shapes.
TRACED = [*LADDER, *FP32[:-2], *TENSOR[:-1], *TILED]


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


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("kernel", TRACED, ids=lambda kernel: kernel.name)
def test_the_page_reads_the_trace_of_a_tile_as_python_does(page, kernel, place):  # noqa: F811
    shape = shapes(kernel)[place]
    last = math.prod(kernel.blocks(shape)) - 1
    require_same_document(page, kernel, shape, block=last)
