"""The rung `best`, for any shape: a tile and a number of parts of K per shape, by a table of what each tile takes. On
compute capability 9.0 the rung `bulk_copies` is one of the tiles.

The table (best.json) holds microseconds per tile, not a winner per shape, because the winner changes with the number of
blocks that the busiest multiprocessor gets. `worklog sweep best` measures it; until a GPU has, it is an estimate, and
its label says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from worklog.errors import WorklogError
from worklog.kernel.fp32 import FP32
from worklog.kernel.kernel import Kernel
from worklog.kernel.loaded import Pass
from worklog.kernel.signature import LADDER
from worklog.kernel.splitting import SPLIT_TILES, columns
from worklog.problem import FLOAT_BYTES, Shape

BULK = next(one for one in FP32 if one.name == "bulk_copies")
FILE = Path(__file__).with_name("best.json")
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
LEAST_TILES = 2  # of K per part: the first one of a part is not overlapped with anything
MOST_WORKSPACE = 2**28  # bytes
EQUAL = 1.01  # times the fastest
ROWS = "(M + BM - 1) / BM"


@dataclass(frozen=True)
class Tile:
    """template: of the kernel. resident: blocks per multiprocessor. alone_us: for a tile of K while a multiprocessor
    has one block; shared_us: per block while it has as many as it holds. block_us: of each block, whatever K is.
    kernel: best, or the rung with this template.
    """

    template: Mapping[str, int]
    resident: int
    alone_us: float
    shared_us: float
    block_us: float
    kernel: str = "best"


@dataclass(frozen=True)
class Table:
    """label: measured or estimated, and where. gpu, driver: of the measurement. launch_us: of a launch without work;
    sum_us, sum_gbs: of the launch that adds the parts, and the rate at which it does. split_us: of the rung split, its
    launches without work, and a tile of 128 x 128 x 32; split_gbs: the rate of its first pass.
    """

    label: str
    gpu: str
    driver: str
    multiprocessors: int
    launch_us: float
    sum_us: float
    sum_gbs: float
    split_launch_us: float
    split_tile_us: float
    split_gbs: float
    tiles: tuple[Tile, ...]

    def stale(self, gpu: str, driver: str) -> str:
        """What to say where it was made for another GPU or driver; "" where it wasn't."""
        if (gpu, driver) == (self.gpu, self.driver):
            return ""
        return (
            f"best chooses by a table for an {self.gpu} with driver {self.driver}, and this is an {gpu} with driver "
            f"{driver}: the result is right, and may be slower; worklog sweep best measures the table anew"
        )

    def split_pays(self, shape: Shape) -> bool:
        """Whether the rung split is expected to be faster than best."""
        ours = (tile for tile in self.tiles if tile.kernel == "best" or shape in BULK.domain)
        return self.split_us(shape) < min(self.us(tile, 1, shape) for tile in ours)

    def split_us(self, shape: Shape) -> float:
        """Expected microseconds of the rung split."""
        waves, stages, lines = split_work(shape, self.multiprocessors)
        return self.split_launch_us + waves * stages * self.split_tile_us + lines / self.split_gbs / 1e3

    def us(self, tile: Tile, parts: int, shape: Shape) -> float:
        """Expected microseconds of a launch."""
        of = tile.template
        blocks = math.ceil(shape.m / of["BM"]) * math.ceil(shape.n / of["BN"]) * parts
        busiest = math.ceil(blocks / self.multiprocessors)
        full, left = divmod(busiest, tile.resident)
        steps = full * max(tile.alone_us, tile.resident * tile.shared_us)
        steps += max(tile.alone_us, left * tile.shared_us) if left else 0.0
        found = self.launch_us + steps * math.ceil(shape.k / of["BK"] / parts) + busiest * tile.block_us
        moved = FLOAT_BYTES * (2 * parts + 1) * shape.m * shape.n
        return found + (self.sum_us + moved / self.sum_gbs / 1e3 if parts > 1 else 0.0)


def kernel_of(
    template: Mapping[str, int], parts: int = 1, a_by_columns: bool = False, b_by_columns: bool = False
) -> Kernel:
    """The kernel with this tile, for K in this many parts, and for A or B in column-major order."""
    order = {"A_BY_COLUMNS": int(a_by_columns), "B_BY_COLUMNS": int(b_by_columns)}
    contiguous = _contiguous(a_by_columns, b_by_columns)
    adding = Pass(f"sgemm_best_sum<{parts}, WIDTH>", "min((M * N + 256 * WIDTH - 1) / (256 * WIDTH), 2112)", "256")
    return Kernel(
        name="best",
        file="30_best.cu",
        function="sgemm_best",
        grid=f"(N + BN - 1) / BN * (({ROWS} + 65534) / 65535), min({ROWS}, 65535), {parts}",
        block="BM * BN / (WM * WN) * 32",
        template={**template, **(order if a_by_columns or b_by_columns else {})},
        rules=", ".join(f"{size} % WIDTH == 0" for size in contiguous),
        number=30,
        idea="any shape: the tile follows it, and few tiles share out K",
        arguments=(*LADDER, "workspace"),
        after=(adding,) if parts > 1 else (),
        workspace=f"{FLOAT_BYTES * parts} * M * N" if parts > 1 else "",
    )


def split_work(shape: Shape, multiprocessors: int) -> tuple[float, int, int]:
    """Of the rung split: tiles of C, 128 columns each, on the busiest multiprocessor, stages of K, and bytes that the
    first pass moves.
    """
    waves = min(columns(shape, bn, multiprocessors) for bn in SPLIT_TILES) / 128
    return waves, math.ceil(shape.k / 32), 3 * FLOAT_BYTES * shape.k * (shape.m + shape.n)


@cache
def table() -> Table:
    """The table in the package. Raises WorklogError if it is missing or can't be read."""
    try:
        return read(json.loads(FILE.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorklogError(f"the table {FILE} cannot be read ({error}); install gemm-worklog again") from error


def read(document: Mapping[str, Any]) -> Table:
    """A table from JSON. Raises KeyError or TypeError."""
    return Table(**{**document, "tiles": tuple(Tile(**tile) for tile in document["tiles"])})


@lru_cache(maxsize=4096)
def choose(
    shape: Shape,
    aligned: bool = True,
    most_workspace: int = MOST_WORKSPACE,
    a_by_columns: bool = False,
    b_by_columns: bool = False,
    arch: str = "",
) -> Kernel:
    """The kernel that the table expects to be the fastest at a shape. aligned: whether A, B and C are at multiples of
    16 bytes. most_workspace: bytes that it may need; 0 for a kernel of one launch. a_by_columns, b_by_columns: whether
    A and B are in column-major order. arch: as "sm_90", where `bulk_copies` runs.
    """
    sizes = {"M": shape.m, "N": shape.n, "K": shape.k}
    wide = aligned and all(sizes[size] % 4 == 0 for size in _contiguous(a_by_columns, b_by_columns))
    whole = arch == "sm_90" and aligned and not (a_by_columns or b_by_columns) and shape in BULK.domain
    bytes_per_part = FLOAT_BYTES * shape.m * shape.n
    candidates = [
        (table().us(tile, parts, shape), index, parts)
        for index, tile in enumerate(table().tiles)
        for parts in PARTS
        if (whole and parts == 1 if tile.kernel != "best" else tile.template["WIDTH"] == (4 if wide else 1))
        and (parts == 1 or parts * LEAST_TILES * tile.template["BK"] <= shape.k)
        and (parts == 1 or parts * bytes_per_part <= most_workspace)
    ]
    fastest = min(us for us, _, _ in candidates)
    # The table leaves out L2: of equals, the largest tile reads the least from it.
    equals = [(index, parts) for us, index, parts in candidates if us <= EQUAL * fastest]
    index, parts = min(equals, key=lambda one: (-_outputs(table().tiles[one[0]]), one[1]))
    tile = table().tiles[index]
    return BULK if tile.kernel != "best" else kernel_of(tile.template, parts, a_by_columns, b_by_columns)


def _outputs(tile: Tile) -> int:
    return tile.template["BM"] * tile.template["BN"]


def _contiguous(a_by_columns: bool, b_by_columns: bool) -> list[str]:
    """The sizes along which neighbours in A, in B and in C are neighbours in memory."""
    return sorted({"M" if a_by_columns else "K", "K" if b_by_columns else "N", "N"})


# The record itself is the kernel for what is misaligned; it takes any shape in one launch.
ANY = dict(BM=64, BN=64, BK=16, WM=32, WN=32, WIDTH=1, MIN_BLOCKS=4, ORDER=0x0123)
BEST = replace(kernel_of(ANY), choose=choose)
