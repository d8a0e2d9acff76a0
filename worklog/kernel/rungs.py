"""The rungs: the article's ladder, FP32's own units past it, and FP32 through tensor cores.

Those from 18 on take several launches; `ragged` and `split` follow the shape. The last rung, `best`, is in
worklog.kernel.best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from worklog.kernel import signature
from worklog.kernel.kernel import Kernel
from worklog.kernel.loaded import Pass
from worklog.problem import FLOAT_BYTES, Shape

SQUARE, DOUBLE = dict(BM=128, BN=128, BK=8, TM=8, TN=8), dict(BM=128, BN=128, BK=8, TM=8, TN=16, MIN_BLOCKS=2)
WIDE = dict(BM=128, BN=256, BK=8, TM=8, TN=16, MIN_BLOCKS=1)
WARPS = dict(BM=128, BN=128, BK=16, WM=64, WN=64, MIN_BLOCKS=2)
WHOLE_TILES = "M % BM == 0, N % BN == 0, K % BK == 0"  # a kernel without bounds checks
# Threads per block.
ELEMENTS, PATCHES, WARP_TILES = "BM * BN", "BM * BN / (TM * TN)", "BM * BN / (WM * WN) * 32"
COPYING = f"{WARP_TILES} + 128"  # with four warps that copy


def numbered(
    number: int, name: str, tile: Mapping[str, int], block: str, idea: str, grid: str = "N / BN, M / BM", **others: Any
) -> Kernel:
    """A rung. tile: in the order of the template's parameters. block: threads per block. idea: what it adds. others:
    other fields of the record; with a workspace, the kernel takes it as its last argument.
    """
    others.setdefault("rules", WHOLE_TILES if "BK" in tile else "any")
    if "workspace" in others:
        others["arguments"] = (*signature.LADDER, "workspace")
    file, function = f"{number:02}_{name}.cu", f"sgemm_{name}"
    return Kernel(name, file, function, grid, block, tile, number=number, idea=idea, **others)


# autotuned has the fastest of the recorded sweep's 20 tiles on an H200 at 4096. Most others have the usual textbook one
# or that of the rung before. Where the tile changes, too, as in pipelined, the step doesn't show the idea alone.
ROWS = (
    ("naive", dict(BM=32, BN=32), ELEMENTS, "one thread, one element, neighbours in different rows"),
    ("coalesced", dict(BM=32, BN=32), ELEMENTS, "neighbouring threads take neighbouring columns"),
    ("shared", dict(BM=32, BN=32, BK=32), ELEMENTS, "the block shares tiles of A and B"),
    ("tiles_1d", dict(BM=64, BN=64, BK=8, TM=8), "BM * BN / TM", "each thread computes a column of 8"),
    ("tiles_2d", SQUARE, PATCHES, "each thread computes an 8 x 8 tile"),
    ("vectorized", SQUARE, PATCHES, "16-byte loads, A stored transposed"),
    ("conflict_free", SQUARE, PATCHES, "shared memory without bank conflicts"),
    ("double_buffered", SQUARE, PATCHES, "the next tile is fetched during this one"),
    ("autotuned", WIDE, PATCHES, "the tile that was fastest on an H200"),
    ("pipelined", DOUBLE, PATCHES, "the next k is read during this one"),
    ("register_banks", DOUBLE, PATCHES, "multiply-adds in an order that reuses operands"),
    ("warptiled", WARPS, WARP_TILES, "each warp computes a 64 x 64 tile"),
)

COVERING = "(N + BN - 1) / BN, (M + BM - 1) / BM"
LADDER = tuple(numbered(number, *row, COVERING) for number, row in enumerate(ROWS, 1))

STAGES = dict(BM=128, BN=128, BK=8, WM=64, WN=64, STAGES=5, MIN_BLOCKS=1)
SPECIAL = dict(BM=128, BN=256, BK=8, WM=64, WN=64, STAGES=8, COPY_REGISTERS=104, MULTIPLY_REGISTERS=200)
SMEM_OF_SPECIAL = SPECIAL["STAGES"] * 8 * (128 + 4 + 256) * 4
# The registers fill the multiprocessor. With these numbers, ptxas spills none, and at most 3 % of the main loop's
# multiply-adds have a register-bank conflict in the code of NVRTC 13.0.
RAGGED = {**SPECIAL, "GROUP": 8, "MIN_BLOCKS": 1}
TILES = "(M + BM - 1) / BM * ((N + BN - 1) / BN)"
SLICES = f"min(BM * BN / 1024, max(4, 512 / ({TILES})))"  # blocks that add the parts of a tile


def equal_shares(blocks: int = 132) -> Kernel:
    """Rung 18: blocks that take equal shares of all steps along K, and a pass that adds the parts of tiles. blocks: as
    many as the GPU has multiprocessors (an H200: 132); any number is right.
    """
    return numbered(
        18,
        "equal_shares",
        {**SPECIAL, "GROUP": 8},
        COPYING,
        "every multiprocessor gets an equal share of all steps along K",
        str(blocks),
        shared=SMEM_OF_SPECIAL,
        after=(Pass(f"add_parts<BM, BN, BK, {blocks}, GROUP>", "M / BM * (N / BN)", "256"),),
        workspace=f"{2 * blocks} * BM * BN * 4",
    )


def ragged(a_copied: bool = False, b_copied: bool = False, blocks: int = 132, whole: bool = False) -> Kernel:
    """Rung 19: rung 18 for any shape. a_copied, b_copied: whether a pass before copies A, and B, so that rows begin at
    multiples of 16 bytes; needed where they don't. whole: for shapes whose number of tiles is a multiple of `blocks`,
    so that no tile has parts.
    """
    sizes = [("M", "K")] * a_copied + [("K", "N")] * b_copied
    copied = " + ".join(f"({rows} + 7) / 8 * (({columns} + 255) / 256)" for rows, columns in sizes)
    workspace = [f"{rows} * (({columns} + 3) / 4 * 4)" for rows, columns in sizes]
    workspace += [] if whole else [f"{2 * blocks} * BM * BN"]
    adding = Pass("add_parts<BM, BN, BK, GROUP>", f"min({TILES}, {blocks - 1}), {SLICES}", "256")
    return numbered(
        19,
        "ragged",
        RAGGED,
        COPYING,
        "any shape: the copying warps handle the edges",
        str(blocks),
        rules="any",
        shared=SMEM_OF_SPECIAL,
        before=(Pass("copy_rows", copied, "256"),) if sizes else (),
        after=() if whole or blocks == 1 else (adding,),
        workspace=f"4 * (4 + {' + '.join(workspace)})" if workspace else "",
    )


@lru_cache(maxsize=4096)
def ragged_at(shape: Shape, arch: str = "", aligned: bool = True) -> Kernel:
    """Rung 19 for a shape, the same on any architecture. aligned: whether A and B are at multiples of 16 bytes."""
    blocks = 132
    whole = math.ceil(shape.m / RAGGED["BM"]) * math.ceil(shape.n / RAGGED["BN"]) % blocks == 0
    return ragged(not aligned or shape.k % 4 != 0, not aligned or shape.n % 4 != 0, blocks, whole)


FP32 = (
    numbered(13, "lane_map", WARPS, WARP_TILES, "neighbouring lanes read different quads"),
    numbered(14, "async_copies", STAGES, WARP_TILES, "tiles arrive without passing through registers"),
    numbered(15, "barriers", STAGES, WARP_TILES, "warps wait for a stage, not for each other"),
    numbered(16, "specialized", SPECIAL, COPYING, "four warps copy, eight multiply", shared=SMEM_OF_SPECIAL),
    numbered(17, "bulk_copies", SPECIAL, COPYING, "copying warps need fewer instructions", shared=SMEM_OF_SPECIAL),
    equal_shares(),
    replace(ragged(), choose=ragged_at),
)

BLOCKS = 132  # an H200's multiprocessors; any number is right
LINES, LINE_BYTES = 128, 128  # of a tile; of a stage of a row of A or a column of B
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
    lines, depth = f"((M + 127) / 128 * {LINES} + (N + BN - 1) / BN * BN)", f"(K + {STAGE_K - 1}) / {STAGE_K}"
    each = math.ceil(k / parts)
    threads = 16 if each <= 128 else 64  # per line; with fewer, most would have nothing to do
    held = 2 if each <= 2 * threads * NUMBERS else 8  # eights in a thread's registers; the others are read twice
    sums = f"({FLOAT_BYTES * parts} * M * N + 15) / 16 * 16 + " if parts > 1 else ""
    adding = Pass("add_parts<BM, BN, PARTS>", "min((M * N + 127) / 128, 2112)", "128")
    return numbered(
        26,
        "split",
        dict(BM=LINES, BN=bn, STAGES=stages, GROUP=8, PARTS=parts),
        "384",
        "a pass splits each factor once; the product's blocks stay on their multiprocessor",
        str(BLOCKS),
        rules="any data",
        shared=stages * ((LINES + bn) * LINE_BYTES + 16),
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
    tiles = math.ceil(shape.m / LINES) * math.ceil(shape.n / bn) * parts
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


MMA = dict(BM=128, BN=128, BK=16, WM=64, WN=32)
STAGED = dict(BM=128, BN=128, BK=32, STAGES=4, RAW=2)
SMEM_OF_WGMMA = 193_648  # the kernel's struct Shared
# The second ladder: FP32 through tensor cores. It follows the article's, which charts and defaults show.
TENSOR = (
    numbered(21, "tf32", MMA, WARP_TILES, "tensor cores multiply factors of 11 bits", claimed="tf32"),
    numbered(22, "tf32x3", MMA, WARP_TILES, "three products of two parts of each factor", claimed="fp32-emulated"),
    numbered(23, "fp16x3", MMA, WARP_TILES, "the parts are halves, scaled by powers of two", claimed="fp32-emulated"),
    numbered(24, "promoted", MMA, WARP_TILES, "FP32 registers sum what tensor cores sum over 128 k"),
    numbered(
        25,
        "wgmma",
        STAGED,
        "640",
        "warp groups that split and warp groups that multiply",
        shared=SMEM_OF_WGMMA,
        rules=f"{WHOLE_TILES}, any data",
    ),
    replace(split(), choose=split_at),
)
