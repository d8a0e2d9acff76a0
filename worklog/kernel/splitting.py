"""The rung `split`, for any shape: FP32 through tensor cores. The tile's width and the parts of K follow the shape."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from worklog.kernel.kernel import Kernel
from worklog.kernel.loaded import Pass
from worklog.kernel.signature import LADDER
from worklog.problem import FLOAT_BYTES, Shape

BLOCKS = 132  # an H200's multiprocessors; any number is right
ROWS, LINE_BYTES = 128, 128  # of a tile; of a stage of a row of A or a column of B
STAGE_K = 32
# By columns of a tile: stages that fit shared memory, and the time per column over that of 192, by a trial on an
# H200 at 4096 and 8192 that isn't recorded.
SPLIT_TILES = {64: (8, 1.25), 128: (6, 1.02), 192: (5, 1.0)}
SPLIT_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 96)
SPLITTERS, NUMBERS = 512, 8  # threads per block of the splitting pass, and what each takes at a time
# Microseconds of a column's stage, of each tile or part of one beside its stages, and of the launch that adds parts;
# and bytes per microsecond of that. The first two are rounded from sweeps that aren't recorded, the others assumed.
STAGE_US, TILE_US, ADD_US, ADDED = 0.004, 2.0, 3.0, 5e6


def split(bn: int = 128, parts: int = 1, k: int = 4096) -> Kernel:
    """Rung 26 with tiles of 128 x bn: a pass that splits A and B, their product for each part of K, and where there are
    several, a pass that adds these. bn: of SPLIT_TILES. parts: up to 32, or a multiple of 32. k: about how many the
    splitting pass is made for; any number is right.
    """
    stages = SPLIT_TILES[bn][0]
    lines, depth = f"((M + 127) / 128 * {ROWS} + (N + BN - 1) / BN * BN)", f"(K + {STAGE_K - 1}) / {STAGE_K}"
    each = math.ceil(k / parts)
    threads = 16 if each <= 128 else 64  # per line; with fewer, most would have nothing to do
    held = 2 if each <= 2 * threads * NUMBERS else 8  # eights in a thread's registers; the others are read twice
    sums = f"({FLOAT_BYTES * parts} * M * N + 15) / 16 * 16 + " if parts > 1 else ""
    adding = Pass("add_parts<BM, BN, PARTS>", "min((M * N + 127) / 128, 2112)", "128")
    return Kernel(
        name="split",
        file="26_split.cu",
        function="sgemm_split",
        grid=str(BLOCKS),
        block="384",
        template=dict(BM=ROWS, BN=bn, STAGES=stages, GROUP=8, PARTS=parts),
        rules="any data",
        number=26,
        idea="a pass splits each factor once; the product's blocks stay on their multiprocessor",
        arguments=(*LADDER, "workspace"),
        shared=stages * ((ROWS + bn) * LINE_BYTES + 16),
        before=(
            Pass(
                f"split_lines<BM, BN, PARTS, {held}, {threads}>",
                f"{lines} / {SPLITTERS // threads}, PARTS",
                str(SPLITTERS),
            ),
        ),
        after=(adding,) if parts > 1 else (),
        workspace=f"{sums}{lines} * ({depth} * {LINE_BYTES} + 16 * {parts})",
    )


def rounds(shape: Shape, bn: int, parts: int, multiprocessors: int = BLOCKS) -> int:
    """Tiles of 128 x bn, or parts of one, that the busiest multiprocessor computes."""
    tiles = math.ceil(shape.m / ROWS) * math.ceil(shape.n / bn) * parts
    return math.ceil(tiles / multiprocessors)


def column_stages(shape: Shape, bn: int, parts: int, multiprocessors: int = BLOCKS) -> float:
    """Stages of a column that the busiest multiprocessor computes, each as long as one of a tile of 192."""
    each = math.ceil(math.ceil(shape.k / STAGE_K) / parts)
    return rounds(shape, bn, parts, multiprocessors) * bn * SPLIT_TILES[bn][1] * each


def added(shape: Shape, parts: int) -> int:
    """Bytes of the parts that are written and read once more, and of their sums; 0 for one part."""
    return FLOAT_BYTES * (2 * parts + 1) * shape.m * shape.n if parts > 1 else 0


@lru_cache(maxsize=4096)
def split_tile(shape: Shape, multiprocessors: int = BLOCKS) -> tuple[int, int]:
    """Columns of a tile and parts of K, for which the product and the adding are expected to take the least time."""

    def us(bn: int, parts: int) -> float:
        product = STAGE_US * column_stages(shape, bn, parts, multiprocessors)
        product += TILE_US * rounds(shape, bn, parts, multiprocessors)
        return product + (ADD_US + added(shape, parts) / ADDED if parts > 1 else 0.0)

    most = max(1, math.ceil(shape.k / STAGE_K) // 2)  # parts: two stages each
    # Parts of the widest tile need more registers than there are.
    tiles = ((bn, parts) for parts in SPLIT_PARTS for bn in SPLIT_TILES if parts <= (most if bn < 192 else 1))
    return min(tiles, key=lambda tile: us(*tile))


@lru_cache(maxsize=4096)
def split_at(shape: Shape, arch: str = "") -> Kernel:
    """Rung 26 with the tile and the parts that are expected to be the fastest, the same on any architecture."""
    return split(*split_tile(shape), shape.k)


SPLIT = replace(split(), choose=split_at)
