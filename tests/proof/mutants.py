"""Wrong kernels, each made from a rung by one change.

Each has an access out of bounds, a misaligned access, a race, or a barrier that some threads skip,
at some shape of the rung's domain.
"""

from dataclasses import dataclass

from worklog.kernel import Kernel, rung
from worklog.proof.claims import BOUNDS, RACES
from worklog.proof.proof import BARRIERS as DIVERGENCE

BARRIERS = (
    "    __syncthreads();  // wait: the tile must be complete before any thread reads it\n",
    "    __syncthreads();  // wait: faster warps would overwrite the tile others still read\n",
)
NEXT_TILE = (
    "        __syncthreads();  // wait: the next tile must be complete, and this one no longer in "
    "use\n"
)

RACE = frozenset({RACES})
SKIPPED = frozenset({DIVERGENCE})


@dataclass(frozen=True)
class Mutant:
    """A change of a rung's text."""

    rung: str
    before: str
    after: str
    kinds: frozenset[str] = frozenset({BOUNDS})  # of the claims that are wrong

    @property
    def kernel(self) -> Kernel:
        """The changed kernel."""
        kernel = rung(self.rung)
        assert kernel.source.count(self.before) == 1, self
        return kernel.with_text(kernel.source.replace(self.before, self.after))


MUTANTS = {
    "a row past the end": Mutant("naive", "row >= M", "row > M"),
    "a column past the end": Mutant("naive", "col >= N", "col > N"),
    "a term too many": Mutant("naive", "k < K", "k <= K"),
    "the stride of another matrix": Mutant("naive", "row * K + k", "row * N + k"),
    "no guard of the columns": Mutant("naive", "row >= M || col >= N", "row >= M"),
    "guards of each other's axis": Mutant(
        "coalesced", "row >= M || col >= N", "row >= N || col >= M"
    ),
    "blocks that overlap": Mutant(
        "coalesced",
        "blockIdx.x * BN + threadIdx.x % BN",
        "blockIdx.x * (BN - 1) + threadIdx.x % BN",
        RACE,
    ),
    "threads on the same column": Mutant(
        "coalesced", "threadIdx.x % BN", "threadIdx.x % (BN / 2)", RACE
    ),
    "no barrier before the reads": Mutant("shared", BARRIERS[0], "", RACE),
    "no barrier after the reads": Mutant("shared", BARRIERS[1], "", RACE),
    "a tile too many": Mutant("shared", "k0 < K", "k0 <= K"),
    "a step too short": Mutant("shared", "k0 += BK", "k0 += BK - 1"),
    "an element past the shared tile": Mutant("shared", "k < BK", "k <= BK"),
    "a barrier for some threads": Mutant(
        "shared", BARRIERS[0], "    if (threadIdx.x < 512) __syncthreads();\n", SKIPPED
    ),
    "a return before the barrier": Mutant(
        "shared",
        "  float acc = 0.0f;\n",
        "  float acc = 0.0f;\n  if (threadIdx.x == 7) return;\n",
        SKIPPED,
    ),
    "a row past the shared tile": Mutant("tiles_1d", "As[row * TM + i]", "As[row * TM + i + 1]"),
    "exchanged indices of the copy": Mutant(
        "tiles_1d",
        "a_row = threadIdx.x / BK, a_col = threadIdx.x % BK",
        "a_row = threadIdx.x % BK, a_col = threadIdx.x / BK",
        RACE,
    ),
    "a copy pass too many": Mutant("tiles_2d", "r < BM", "r <= BM"),
    "no barrier after the tile": Mutant("tiles_2d", BARRIERS[1], "", RACE),
    "an odd column": Mutant(
        "vectorized", "threadIdx.x % (BK / 4) * 4;", "threadIdx.x % (BK / 4) * 4 + 1;"
    ),
    "a tile that is too narrow": Mutant("vectorized", "As[BK][BM]", "As[BK][BM - 4]"),
    "one buffer for two tiles": Mutant("warptiled", "buffer ^= 1;", "", RACE),
    "no barrier between the buffers": Mutant("warptiled", NEXT_TILE, "", RACE),
    "a tile ahead of the last one": Mutant(
        "warptiled", "if (k0 + BK < K) fetch", "if (k0 + BK <= K) fetch"
    ),
    "rows that overlap": Mutant("warptiled", "As[2][BK][BM + 4]", "As[2][BK][BM - 4]"),
    "lanes of the next warp": Mutant("warptiled", "lane / 2 % 4", "lane / 2 % 8"),
}
