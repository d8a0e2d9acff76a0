"""The ladder: one record per rung. The file, the entry, the grid and the domain follow from the row."""

from __future__ import annotations

from worklog.errors import UnknownRung
from worklog.kernel.kernel import Kernel

WHOLE_TILES = "M % BM == 0, N % BN == 0, K % BK == 0"  # a kernel without bounds checks


def _rung(number: int, name: str, template: dict[str, int], block: str, idea: str, rules: str = WHOLE_TILES) -> Kernel:
    """template: tile parameters in the order of the kernel's template. idea: what this rung adds, in half a
    sentence. Blocks of BM x BN elements cover C, blockIdx.x along N.
    """
    return Kernel(
        name=name,
        file=f"{number:02}_{name}.cu",
        function=f"sgemm_{name}",
        grid="(N + BN - 1) / BN, (M + BM - 1) / BM",
        block=block,
        template=template,
        rules=rules,
        number=number,
        idea=idea,
    )


# The tiles of autotuned and warptiled are the fastest ones on an H200 at 4096. The other rungs have the usual textbook
# tiles or the tile of the rung before, so that the step shows the idea alone.
LADDER: tuple[Kernel, ...] = (
    _rung(
        1,
        "naive",
        dict(BM=32, BN=32),
        block="BM * BN",
        idea="one thread, one element, neighbours in different rows",
        rules="any",
    ),
    _rung(
        2,
        "coalesced",
        dict(BM=32, BN=32),
        block="BM * BN",
        idea="neighbouring threads take neighbouring columns",
        rules="any",
    ),
    _rung(
        3,
        "shared",
        dict(BM=32, BN=32, BK=32),
        block="BM * BN",
        idea="the block shares tiles of A and B",
    ),
    _rung(
        4,
        "tiles_1d",
        dict(BM=64, BN=64, BK=8, TM=8),
        block="BM * BN / TM",
        idea="each thread computes a column of 8",
    ),
    _rung(
        5,
        "tiles_2d",
        dict(BM=128, BN=128, BK=8, TM=8, TN=8),
        block="BM * BN / (TM * TN)",
        idea="each thread computes an 8 x 8 tile",
    ),
    _rung(
        6,
        "vectorized",
        dict(BM=128, BN=128, BK=8, TM=8, TN=8),
        block="BM * BN / (TM * TN)",
        idea="16-byte loads, A stored transposed",
    ),
    _rung(
        7,
        "conflict_free",
        dict(BM=128, BN=128, BK=8, TM=8, TN=8),
        block="BM * BN / (TM * TN)",
        idea="shared memory without bank conflicts",
    ),
    _rung(
        8,
        "double_buffered",
        dict(BM=128, BN=128, BK=8, TM=8, TN=8),
        block="BM * BN / (TM * TN)",
        idea="the next tile is fetched during this one",
    ),
    _rung(
        9,
        "autotuned",
        dict(BM=128, BN=256, BK=8, TM=8, TN=16, MIN_BLOCKS=1),
        block="BM * BN / (TM * TN)",
        idea="the tile that was fastest on an H200",
    ),
    _rung(
        10,
        "pipelined",
        dict(BM=128, BN=128, BK=8, TM=8, TN=16, MIN_BLOCKS=2),
        block="BM * BN / (TM * TN)",
        idea="the next k is read during this one",
    ),
    _rung(
        11,
        "register_banks",
        dict(BM=128, BN=128, BK=8, TM=8, TN=16, MIN_BLOCKS=2),
        block="BM * BN / (TM * TN)",
        idea="multiply-adds in an order that reuses operands",
    ),
    _rung(
        12,
        "warptiled",
        dict(BM=128, BN=128, BK=16, WM=64, WN=64, MIN_BLOCKS=2),
        block="BM * BN / (WM * WN) * 32",
        idea="each warp computes a 64 x 64 tile",
    ),
)


def rung(name: str) -> Kernel:
    """The rung of that name. Raises UnknownRung with the names that exist."""
    for candidate in LADDER:
        if candidate.name == name:
            return candidate
    raise UnknownRung(f"there is no rung {name!r}: choose from {', '.join(r.name for r in LADDER)}")
