"""The rungs on FP32's own units past the article's ladder, which charts and defaults show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from worklog.kernel import signature
from worklog.kernel.kernel import Kernel
from worklog.kernel.loaded import Pass
from worklog.problem import Shape

WHOLE_TILES = "M % BM == 0, N % BN == 0, K % BK == 0"  # a kernel without bounds checks
WARPS = dict(BM=128, BN=128, BK=16, WM=64, WN=64, MIN_BLOCKS=2)
WARP_TILES = "BM * BN / (WM * WN) * 32"  # threads per block
STAGES = dict(BM=128, BN=128, BK=8, WM=64, WN=64, STAGES=5, MIN_BLOCKS=1)
SPECIAL = dict(BM=128, BN=256, BK=8, WM=64, WN=64, STAGES=8, COPY_REGISTERS=104, MULTIPLY_REGISTERS=200)
SMEM_OF_SPECIAL = SPECIAL["STAGES"] * 8 * (128 + 4 + 256) * 4
# The registers fill the multiprocessor. With these numbers, ptxas spills none, and at most 3 % of the main loop's
# multiply-adds have a register-bank conflict in the code of NVRTC 13.0.
RAGGED = {**SPECIAL, "GROUP": 8, "MIN_BLOCKS": 1}
TILES = "(M + BM - 1) / BM * ((N + BN - 1) / BN)"
SLICES = f"min(BM * BN / 1024, max(4, 512 / ({TILES})))"  # blocks that add the parts of a tile
RING = {"shared": SMEM_OF_SPECIAL}
FP32_ROWS = (
    ("lane_map", WARPS, WARP_TILES, "neighbouring lanes read different quads"),
    ("async_copies", STAGES, WARP_TILES, "tiles arrive without passing through registers"),
    ("barriers", STAGES, WARP_TILES, "warps wait for a stage, not for each other"),
    ("specialized", SPECIAL, f"{WARP_TILES} + 128", "four warps copy, eight multiply", RING),
    ("bulk_copies", SPECIAL, f"{WARP_TILES} + 128", "copying warps need fewer instructions", RING),
)


def numbered(first: int, rows: Iterable[Sequence[Any]], grid: str = "N / BN, M / BM") -> tuple[Kernel, ...]:
    """Rungs of one launch. first: number of the first. rows: name, tile in the order of the template's parameters,
    threads per block, what the rung adds, and other fields of the record.
    """
    return tuple(
        Kernel(
            name=name,
            file=f"{number:02}_{name}.cu",
            function=f"sgemm_{name}",
            grid=grid,
            block=block,
            template=tile,
            number=number,
            idea=idea,
            **{"rules": WHOLE_TILES if "BK" in tile else "any", **dict(*others)},
        )
        for number, (name, tile, block, idea, *others) in enumerate(rows, first)
    )


def equal_shares(blocks: int = 132) -> Kernel:
    """Rung 18: blocks that take equal shares of all steps along K, and a pass that adds the parts of tiles. blocks: as
    many as the GPU has multiprocessors (an H200: 132); any number is right.
    """
    return Kernel(
        name="equal_shares",
        file="18_equal_shares.cu",
        function="sgemm_equal_shares",
        grid=str(blocks),
        block=f"{WARP_TILES} + 128",
        template={**SPECIAL, "GROUP": 8},
        rules=WHOLE_TILES,
        number=18,
        idea="every multiprocessor gets an equal share of all steps along K",
        arguments=(*signature.LADDER, "workspace"),
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
    return Kernel(
        name="ragged",
        file="19_ragged.cu",
        function="sgemm_ragged",
        grid=str(blocks),
        block=f"{WARP_TILES} + 128",
        template=RAGGED,
        number=19,
        idea="any shape at no cost in the main loop",
        arguments=(*signature.LADDER, "workspace"),
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
    *numbered(13, FP32_ROWS),
    equal_shares(),
    replace(ragged(), choose=ragged_at),
)
