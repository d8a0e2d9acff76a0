"""The rungs on FP32's own units past the article's ladder, which charts and defaults show."""

from __future__ import annotations

from worklog.kernel import signature
from worklog.kernel.kernel import Kernel
from worklog.kernel.loaded import Pass

WHOLE_TILES = "M % BM == 0, N % BN == 0, K % BK == 0"  # a kernel without bounds checks
WARPS = dict(BM=128, BN=128, BK=16, WM=64, WN=64, MIN_BLOCKS=2)
WARP_TILES = "BM * BN / (WM * WN) * 32"  # threads per block
STAGES = dict(BM=128, BN=128, BK=8, WM=64, WN=64, STAGES=5, MIN_BLOCKS=1)
SPECIAL = dict(BM=128, BN=256, BK=8, WM=64, WN=64, STAGES=8, COPY_REGISTERS=104, MULTIPLY_REGISTERS=200)
SMEM_OF_SPECIAL = SPECIAL["STAGES"] * 8 * (128 + 4 + 256) * 4
FP32_ROWS = (
    ("lane_map", WARPS, WARP_TILES, "neighbouring lanes read different quads"),
    ("async_copies", STAGES, WARP_TILES, "tiles arrive without passing through registers"),
    ("barriers", STAGES, WARP_TILES, "warps wait for a stage, not for each other"),
    ("specialized", SPECIAL, f"{WARP_TILES} + 128", "four warps copy, eight multiply"),
    ("bulk_copies", SPECIAL, f"{WARP_TILES} + 128", "copying warps need fewer instructions"),
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


FP32 = (
    *(
        Kernel(
            name=name,
            file=f"{number}_{name}.cu",
            function=f"sgemm_{name}",
            grid="N / BN, M / BM",
            block=block,
            template=tile,
            rules=WHOLE_TILES,
            number=number,
            idea=idea,
            shared=SMEM_OF_SPECIAL if tile is SPECIAL else 0,
        )
        for number, (name, tile, block, idea) in enumerate(FP32_ROWS, start=13)
    ),
    equal_shares(),
)
