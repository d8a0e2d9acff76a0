"""Rungs with a mistake: what a reader of the live viewer can break.

A mistake is an edit of the rung's source. Each one has a finding at a line: of the emulator, or a
line whose accesses waste sectors or wavefronts that the rung doesn't waste.
"""

from __future__ import annotations

from dataclasses import dataclass

from worklog.errors import WorklogError
from worklog.kernel import Kernel, rung

# Kinds of findings that aren't the emulator's: accesses that fetch more sectors than they need, and
# accesses that need more wavefronts because of bank conflicts.
UNUSED_SECTORS = "unused-sectors"
BANK_CONFLICTS = "bank-conflicts"

TILE_BARRIER = (
    "    __syncthreads();  // wait: the tile must be complete before any thread reads it\n"
)
REUSE_BARRIER = (
    "    __syncthreads();  // wait: faster warps would overwrite the tile others still read\n"
)
FIRST_BARRIER = (
    "  __syncthreads();  // wait: the first tile must be complete before any thread reads it\n"
)
NEXT_BARRIER = (
    "    __syncthreads();  // wait: the next tile must be complete, and this one no longer in use\n"
)
TILE_WAIT = "  wait();\n  __syncthreads();  // wait: the first"
GUARD = "  if (row >= M || col >= N) return;\n"
ADDING = "acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];"
STORING = "*c = beta == 0.0f ? alpha * acc : alpha * acc + beta * *c;"
MULTIPLYING = "acc += As[row][k] * Bs[k][col];"
STORING_A = "As[buffer][a_col + 0][a_row + r] = a.x;"


@dataclass(frozen=True)
class RungMistake:
    """An edit of a rung's source, and the finding that it leads to."""

    rung: str
    name: str  # in addresses
    about: str  # in the menu
    old: str  # the text that is replaced, which the source has once
    new: str
    kind: str  # of the finding
    line: str  # the finding's line in the edited source, without indent
    at_edges: bool = False  # whether only a size with edges shows it

    @property
    def kernel(self) -> Kernel:
        """The rung with the mistake.

        Raises WorklogError unless its source has the text exactly once.
        """
        right = rung(self.rung)
        count = right.source.count(self.old)
        if count != 1:
            raise WorklogError(
                f"mistake {self.name} of {self.rung}: {right.file} has {self.old!r} {count} times: "
                "adapt worklog/site/mistakes.py to the rung"
            )
        return right.with_text(right.source.replace(self.old, self.new))


MISTAKES = (
    RungMistake(
        "naive",
        "no-guard",
        "no guard at the edges",
        GUARD,
        "",
        kind="global-out-of-bounds",
        line=ADDING,
        at_edges=True,
    ),
    RungMistake(
        "naive",
        "late-guard",
        "the guard is off by one: > for >=",
        "row >= M || col >= N",
        "row > M || col > N",
        kind="global-out-of-bounds",
        line=STORING,
        at_edges=True,
    ),
    RungMistake(
        "naive",
        "wrong-stride",
        "wrong stride: rows of A are K floats apart, not N",
        "A[(size_t)row * K + k]",
        "A[(size_t)row * N + k]",
        kind="global-out-of-bounds",
        line="acc += A[(size_t)row * N + k] * B[(size_t)k * N + col];",
    ),
    RungMistake(
        "coalesced",
        "uncoalesced",
        "uncoalesced: row and col are swapped",
        "threadIdx.x / BN;\n  const int col = blockIdx.x * BN + threadIdx.x % BN;",
        "threadIdx.x % BN;\n  const int col = blockIdx.x * BN + threadIdx.x / BN;",
        kind=UNUSED_SECTORS,
        line=ADDING,
    ),
    RungMistake(
        "coalesced",
        "no-column-guard",
        "no guard at the right edge",
        " || col >= N",
        "",
        kind="global-race",
        line=STORING,
        at_edges=True,
    ),
    RungMistake(
        "coalesced",
        "one-address",
        "all threads of a row store one element",
        "&C[(size_t)row * N + col]",
        "&C[(size_t)row * N]",
        kind="global-race",
        line=STORING,
    ),
    RungMistake(
        "coalesced",
        "one-step-more",
        "one step too many along K",
        "k < K",
        "k <= K",
        kind="global-out-of-bounds",
        line=ADDING,
    ),
    RungMistake(
        "shared",
        "no-first-barrier",
        "no barrier before the tile is read",
        TILE_BARRIER,
        "",
        kind="shared-race",
        line=MULTIPLYING,
    ),
    RungMistake(
        "shared",
        "no-second-barrier",
        "no barrier before the tile is overwritten",
        REUSE_BARRIER,
        "",
        kind="shared-race",
        line="Bs[row][col] = B[(size_t)(k0 + row) * N + col];",
    ),
    RungMistake(
        "shared",
        "half-a-barrier",
        "half of the warps skip the first barrier",
        "    __syncthreads();  // wait: the tile",
        "    if (row < BM / 2) __syncthreads();  // wait: the tile",
        kind="shared-race",
        line=MULTIPLYING,
    ),
    RungMistake(
        "shared",
        "divergent-barrier",
        "one lane of each warp skips the first barrier",
        "    __syncthreads();  // wait: the tile",
        "    if (col > 0) __syncthreads();  // wait: the tile",
        kind="divergent-barrier",
        line="if (col > 0) __syncthreads();  // wait: the tile must be complete before any thread "
        "reads it",
    ),
    RungMistake(
        "shared",
        "transposed-store",
        "B is stored transposed: a column of Bs is one bank",
        "    Bs[row][col] =",
        "    Bs[col][row] =",
        kind=BANK_CONFLICTS,
        line="Bs[col][row] = B[(size_t)(k0 + row) * N + col];",
    ),
    RungMistake(
        "shared",
        "last-row-missing",
        "the last row of Bs isn't copied",
        "    Bs[row][col] =",
        "    if (row < BK - 1) Bs[row][col] =",
        kind="uninitialised-shared",
        line=MULTIPLYING,
    ),
    RungMistake(
        "shared",
        "short-array",
        "Bs is one row too short",
        "float Bs[BK][BN]",
        "float Bs[BK - 1][BN]",
        kind="shared-out-of-bounds",
        line="Bs[row][col] = B[(size_t)(k0 + row) * N + col];",
    ),
    RungMistake(
        "tiles_1d",
        "no-second-barrier",
        "no barrier before the tile is overwritten",
        REUSE_BARRIER,
        "",
        kind="shared-race",
        line="As[a_row][a_col] = A[(size_t)a_row * K + k0 + a_col];",
    ),
    RungMistake(
        "tiles_1d",
        "wrong-width",
        "the copy of B counts rows of BK floats",
        "b_row = threadIdx.x / BN",
        "b_row = threadIdx.x / BK",
        kind="shared-out-of-bounds",
        line="Bs[b_row][b_col] = B[(size_t)(k0 + b_row) * N + b_col];",
    ),
    RungMistake(
        "tiles_2d",
        "short-copy",
        "the copy of A stops one pass early",
        "r < BM;",
        "r < BM - A_ROWS;",
        kind="uninitialised-shared",
        line="for (int i = 0; i < TM; ++i) a[i] = As[row * TM + i][k];",
    ),
    RungMistake(
        "vectorized",
        "misaligned",
        "a float4 at every second float",
        "threadIdx.x % (BK / 4) * 4",
        "threadIdx.x % (BK / 4) * 2",
        kind="misaligned",
        line="const float4 a = *(const float4*)&A[(size_t)(a_row + r) * K + k0 + a_col];",
    ),
    RungMistake(
        "vectorized",
        "no-first-barrier",
        "no barrier before the tile is read",
        TILE_BARRIER,
        "",
        kind="shared-race",
        line="for (int j = 0; j < TN; j += 4) *(float4*)&b[j] = "
        "*(const float4*)&Bs[k][col * TN + j];",
    ),
    RungMistake(
        "conflict_free",
        "no-padding",
        "no padding of As",
        "As[BK][BM + 4]",
        "As[BK][BM]",
        kind=BANK_CONFLICTS,
        line="As[a_col + 0][a_row + r] = a.x;",
    ),
    RungMistake(
        "conflict_free",
        "one-float-of-padding",
        "one float of padding, so that rows aren't aligned",
        "As[BK][BM + 4]",
        "As[BK][BM + 1]",
        kind="misaligned",
        line="for (int i = 0; i < TM; i += 4) *(float4*)&a[i] = "
        "*(const float4*)&As[k][row + i * ROWS];",
    ),
    RungMistake(
        "double_buffered",
        "no-padding",
        "no padding of As",
        "As[2][BK][BM + 4]",
        "As[2][BK][BM]",
        kind=BANK_CONFLICTS,
        line=STORING_A,
    ),
    RungMistake(
        "double_buffered",
        "no-barrier",
        "no barrier at the end of a tile",
        NEXT_BARRIER,
        "",
        kind="shared-race",
        line=STORING_A,
    ),
    RungMistake(
        "double_buffered",
        "no-first-barrier",
        "no barrier before the first tile is read",
        FIRST_BARRIER,
        "",
        kind="shared-race",
        line="for (int i = 0; i < TM; i += 4) *(float4*)&a[i] = *(const float4*)&a_k[i * ROWS];",
    ),
    RungMistake(
        "double_buffered",
        "one-buffer",
        "the next tile overwrites this one",
        "store(buffer ^ 1)",
        "store(buffer)",
        kind="shared-race",
        line=STORING_A,
    ),
    RungMistake(
        "warptiled",
        "no-barrier",
        "no barrier before the next tile is read",
        f"    {NEXT_BARRIER}",
        "",
        kind="shared-race",
        line=STORING_A,
    ),
    RungMistake(
        "async_copies",
        "no-wait",
        "no wait for the first tile's copies",
        TILE_WAIT,
        TILE_WAIT.removeprefix("  wait();\n"),
        kind="missing-wait",
        line="for (int i = 0; i < TM; i += 4) *(float4*)&a[k % 2][i] = "
        "*(const float4*)&a_k[i * ROWS];",
    ),
    RungMistake(
        "async_copies",
        "late-wait",
        "the wait leaves one group too many under way",
        '"n"(STAGES - 2)',
        '"n"(STAGES - 1)',
        kind="missing-wait",
        line="for (int i = 0; i < TM; i += 4) *(float4*)&a[k % 2][i] = "
        "*(const float4*)&a_k[i * ROWS];",
    ),
    RungMistake(
        "async_copies",
        "no-barrier",
        "no barrier before the next tile is read",
        f"    {NEXT_BARRIER}",
        "",
        kind="missing-wait",
        line="for (int j = 0; j < TN; j += 4) *(float4*)&b[k % 2][j] = "
        "*(const float4*)&b_k[j * COLS];",
    ),
)
