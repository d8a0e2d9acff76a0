"""The rung `split`, for any shape: FP32 through tensor cores, in tiles whose width follows the shape."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from worklog.kernel.kernel import Kernel
from worklog.kernel.loaded import Pass
from worklog.kernel.signature import LADDER
from worklog.problem import Shape

BLOCKS = 132  # an H200's multiprocessors; any number is right
ROWS, LINE_BYTES = 128, 128  # of a tile; of a stage of 32 k of a row of A or a column of B
# By columns of a tile: stages that fit shared memory, and the time per column over that of 192, by a trial on an
# H200 at 4096 and 8192 that isn't recorded.
SPLIT_TILES = {64: (8, 1.25), 128: (6, 1.02), 192: (5, 1.0)}
HELD_K = 512  # that each eight of numbers per thread of the splitting pass covers


def split(bn: int = 128, held: int = 8) -> Kernel:
    """Rung 26 with tiles of 128 x bn: a pass that splits A and B, and their product. bn: of SPLIT_TILES. held: eights
    of numbers that a thread of the pass keeps in registers; what is beyond 512 k for each is read twice.
    """
    stages = SPLIT_TILES[bn][0]
    lines, depth = f"((M + 127) / 128 * {ROWS} + (N + BN - 1) / BN * BN)", "(K + 31) / 32"
    return Kernel(
        name="split",
        file="26_split.cu",
        function="sgemm_split",
        grid=str(BLOCKS),
        block="384",
        template=dict(BM=ROWS, BN=bn, STAGES=stages, GROUP=8),
        rules="any data",
        number=26,
        idea="a pass splits each factor once; the product's blocks stay on their multiprocessor",
        arguments=(*LADDER, "workspace"),
        shared=stages * ((ROWS + bn) * LINE_BYTES + 16),
        before=(Pass(f"split_lines<BM, BN, {held}>", f"{lines} / 8", "512"),),
        workspace=f"{lines} * ({depth} * {LINE_BYTES} + 16)",
    )


def columns(shape: Shape, bn: int, multiprocessors: int = BLOCKS) -> float:
    """Columns that the busiest multiprocessor computes in tiles of bn, each as long as one of a tile of 192."""
    tiles = math.ceil(shape.m / ROWS) * math.ceil(shape.n / bn)
    return math.ceil(tiles / multiprocessors) * bn * SPLIT_TILES[bn][1]


@lru_cache(maxsize=4096)
def split_at(shape: Shape, arch: str = "") -> Kernel:
    """Rung 26 with the tile that leaves the busiest multiprocessor the least to do, the same on any architecture."""
    return split(min(SPLIT_TILES, key=lambda bn: columns(shape, bn)), held=2 if shape.k <= 2 * HELD_K else 8)


SPLIT = replace(split(), choose=split_at)
