"""The ladder: one record per rung. The file, the entry, the grid and the domain follow from the row."""

from __future__ import annotations

from worklog.errors import UnknownRung
from worklog.kernel.kernel import Kernel

WHOLE_TILES = "M % BM == 0, N % BN == 0, K % BK == 0"  # a kernel without bounds checks
SQUARE, DOUBLE = dict(BM=128, BN=128, BK=8, TM=8, TN=8), dict(BM=128, BN=128, BK=8, TM=8, TN=16, MIN_BLOCKS=2)
WIDE = dict(BM=128, BN=256, BK=8, TM=8, TN=16, MIN_BLOCKS=1)
WARPS = dict(BM=128, BN=128, BK=16, WM=64, WN=64, MIN_BLOCKS=2)
ELEMENTS, PATCHES, WARP_TILES = "BM * BN", "BM * BN / (TM * TN)", "BM * BN / (WM * WN) * 32"

# Name, tile in the order of the template's parameters, threads per block, and what the rung adds. The tiles of
# autotuned and warptiled are the fastest ones on an H200 at 4096. The other rungs have the usual textbook tiles or the
# tile of the rung before, so that the step shows the idea alone.
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

LADDER = tuple(
    Kernel(
        name=name,
        file=f"{number:02}_{name}.cu",
        function=f"sgemm_{name}",
        grid="(N + BN - 1) / BN, (M + BM - 1) / BM",
        block=block,
        template=tile,
        rules=WHOLE_TILES if "BK" in tile else "any",
        number=number,
        idea=idea,
    )
    for number, (name, tile, block, idea) in enumerate(ROWS, start=1)
)


def rung(name: str) -> Kernel:
    """The rung of that name. Raises UnknownRung with the names that exist."""
    for candidate in LADDER:
        if candidate.name == name:
            return candidate
    raise UnknownRung(f"there is no rung {name!r}: choose from {', '.join(r.name for r in LADDER)}")
