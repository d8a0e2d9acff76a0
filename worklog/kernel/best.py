"""The rung `best`, for any shape: a tile and a number of parts of K per shape, by a table of what each tile takes. On
compute capability 9.0 the rung `bulk_copies` and the tiles of `ragged` are among them.

The table (best.json) holds microseconds per tile, not a winner per shape, because the winner changes with the number of
blocks that the busiest multiprocessor gets. `worklog sweep best` measures it; until a GPU has, it is an estimate, and
its label says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from worklog.errors import WorklogError
from worklog.kernel.fp32 import FP32, RAGGED_TILES, ragged_at
from worklog.kernel.kernel import Kernel
from worklog.kernel.loaded import Pass
from worklog.kernel.signature import LADDER
from worklog.kernel.splitting import added, column_stages, split_tile
from worklog.problem import FLOAT_BYTES, Shape

BULK = next(one for one in FP32 if one.name == "bulk_copies")
RAGGED: list[Mapping[str, int]] = list(RAGGED_TILES)
FILE = Path(__file__).with_name("best.json")
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 96)
LEAST_TILES = 2  # of K per part: the first one of a part is not overlapped with anything
MOST_WORKSPACE = 2**30  # bytes
EQUAL = 1.01  # times the fastest
ROWS = "(M + BM - 1) / BM"


@dataclass(frozen=True)
class Tile:
    """template: of the kernel. resident: blocks per multiprocessor. alone_us: for a tile of K while a multiprocessor
    has one block; shared_us: per block while it has as many as it holds. block_us: of blocks that a multiprocessor has
    at a time, whatever K is. kernel: best, or the rung with this template.
    """

    template: Mapping[str, int]
    resident: int
    alone_us: float
    shared_us: float
    block_us: float
    kernel: str = "best"


@dataclass(frozen=True)
class Work:
    """Of one launch, on the busiest multiprocessor. rounds: blocks that it has at a time, and the tiles of K of each;
    waves: of blocks, one after the other. moved: bytes of parts that are written and read once more, and of their sums;
    None for whole tiles. copied: bytes read and written by the pass before.
    """

    rounds: tuple[tuple[int, int], ...]
    waves: int
    moved: int | None = None
    copied: int = 0

    def steps_us(self, alone_us: float, shared_us: float) -> float:
        """Microseconds of the tiles of K."""
        return sum(tiles * max(alone_us, blocks * shared_us) for blocks, tiles in self.rounds)


@dataclass(frozen=True)
class Table:
    """label: measured or estimated, and where. gpu, driver: of the measurement. launch_us: of a launch without work;
    sum_us, sum_gbs: of the launch that adds the parts, and the rate at which it does. copy_us, copy_gbs: of the launch
    before ragged. split_us: of the rung split, its launches without work, and a tile of 128 x 128 x 32; split_gbs: the
    rate of its first pass.
    """

    label: str
    gpu: str
    driver: str
    multiprocessors: int
    launch_us: float
    sum_us: float
    sum_gbs: float
    copy_us: float
    copy_gbs: float
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
        return self.split_us(shape) < min(us for us, _, _ in _candidates(shape, arch="sm_90"))

    def split_us(self, shape: Shape) -> float:
        """Expected microseconds of the rung split."""
        stages, lines, moved = split_work(shape, self.multiprocessors)
        found = self.split_launch_us + stages * self.split_tile_us + lines / self.split_gbs / 1e3
        return found + (self.sum_us + moved / self.sum_gbs / 1e3 if moved else 0.0)

    def us(self, tile: Tile, parts: int, shape: Shape, aligned: bool = True) -> float:
        """Expected microseconds of a launch. parts: of K; for ragged, its blocks. aligned: as for choose."""
        work = work_of(tile, parts, shape, self.multiprocessors, aligned)
        found = self.launch_us + work.steps_us(tile.alone_us, tile.shared_us) + work.waves * tile.block_us
        if work.moved is not None:
            found += self.sum_us + work.moved / self.sum_gbs / 1e3
        return found + (self.copy_us + work.copied / self.copy_gbs / 1e3 if work.copied else 0.0)


def work_of(tile: Tile, parts: int, shape: Shape, multiprocessors: int, aligned: bool = True) -> Work:
    """Of a launch with this tile. parts, aligned: as for Table.us."""
    of = tile.template
    tiles = math.ceil(shape.m / of["BM"]) * math.ceil(shape.n / of["BN"])
    steps = math.ceil(shape.k / of["BK"])
    if tile.kernel == "ragged":
        shares = min(parts, tiles * steps)
        rounds = ((math.ceil(shares / multiprocessors), math.ceil(tiles * steps / shares)),)
        sums = 2 * (shares if shares % tiles == 0 else min(2 * shares, shares + tiles)) * of["BM"] * of["BN"]
        copied = sum(
            rows * columns for rows, columns in ((shape.m, shape.k), (shape.k, shape.n)) if columns % 4 or not aligned
        )
        moved = FLOAT_BYTES * sums if tiles % shares else None
        return Work(rounds, math.ceil(tiles / shares), moved, 2 * FLOAT_BYTES * copied)
    busiest, each = math.ceil(tiles * parts / multiprocessors), math.ceil(steps / parts)
    full, left = divmod(busiest, tile.resident)
    moved = FLOAT_BYTES * (2 * parts + 1) * shape.m * shape.n if parts > 1 else None
    return Work(((tile.resident, full * each), (left, each * (left > 0))), full + (left > 0), moved)


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
    """Of the rung split: stages of tiles with 128 columns on the busiest multiprocessor, and bytes that the first pass
    and the last one move.
    """
    bn, parts = split_tile(shape, multiprocessors)
    stages = column_stages(shape, bn, parts, multiprocessors) / 128
    return stages, 3 * FLOAT_BYTES * shape.k * (shape.m + shape.n), added(shape, parts)


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
    A and B are in column-major order. arch: as "sm_90", where `bulk_copies` and `ragged` run.
    """
    candidates = _candidates(shape, aligned, most_workspace, a_by_columns, b_by_columns, arch)
    fastest = min(us for us, _, _ in candidates)
    # The table leaves out L2: of equals, the largest tile reads the least from it.
    equals = ((tile, parts) for us, tile, parts in candidates if us <= EQUAL * fastest)
    tile, parts = min(equals, key=lambda one: (-_outputs(one[0]), one[1]))
    if tile.kernel == "ragged":
        return ragged_at(shape, aligned=aligned, blocks=parts, tile=RAGGED.index(tile.template))
    return BULK if tile.kernel != "best" else kernel_of(tile.template, parts, a_by_columns, b_by_columns)


@lru_cache(maxsize=4096)
def _candidates(
    shape: Shape,
    aligned: bool = True,
    most_workspace: int = MOST_WORKSPACE,
    a_by_columns: bool = False,
    b_by_columns: bool = False,
    arch: str = "",
) -> Sequence[tuple[float, Tile, int]]:
    """Expected microseconds, tile and parts (of ragged: blocks) of what may be launched at a shape, as choose takes
    it.
    """
    sizes = {"M": shape.m, "N": shape.n, "K": shape.k}
    wide = aligned and all(sizes[size] % 4 == 0 for size in _contiguous(a_by_columns, b_by_columns))
    rungs = arch == "sm_90" and not (a_by_columns or b_by_columns)
    found: list[tuple[float, Tile, int]] = []
    for tile in table().tiles:
        if tile.kernel == "best":
            fits = tile.template["WIDTH"] == (4 if wide else 1)
            parts = [n for n in PARTS if n == 1 or n * LEAST_TILES * tile.template["BK"] <= shape.k]
            needed = [FLOAT_BYTES * n * shape.m * shape.n * (n > 1) for n in parts]
        elif tile.kernel == "ragged":
            fits, parts = rungs, shares_of(tile, shape, table().multiprocessors)
            copies = work_of(tile, 1, shape, 1, aligned).copied // 2
            tiles = math.ceil(shape.m / tile.template["BM"]) * math.ceil(shape.n / tile.template["BN"])
            needed = [2 * FLOAT_BYTES * n * _outputs(tile) * (tiles % n > 0) + copies for n in parts]
        else:
            fits, parts, needed = rungs and aligned and shape in BULK.domain, [1], [0]
        if fits:
            found += [
                (table().us(tile, n, shape, aligned), tile, n)
                for n, size in zip(parts, needed, strict=True)
                if size <= most_workspace
            ]
    return found


def shares_of(tile: Tile, shape: Shape, multiprocessors: int) -> list[int]:
    """Numbers of blocks for ragged: as many as the GPU holds, those that give each tile some whole parts, and the one
    that gives each block the same number of whole tiles, if there is one.
    """
    of, most = tile.template, multiprocessors * tile.resident
    tiles = math.ceil(shape.m / of["BM"]) * math.ceil(shape.n / of["BN"])
    found = {most, *(tiles * n for n in PARTS if tiles * n < most and n * LEAST_TILES * of["BK"] <= shape.k)}
    waves = math.ceil(tiles / most)
    return sorted(found | ({tiles // waves} if tiles % waves == 0 else set()))


def _outputs(tile: Tile) -> int:
    return tile.template["BM"] * tile.template["BN"]


def _contiguous(a_by_columns: bool, b_by_columns: bool) -> list[str]:
    """The sizes along which the kernel copies several neighbours in memory at once."""
    return ["M", "N"] if a_by_columns else ["N"]


# The record itself is the kernel for what is misaligned; it takes any shape in one launch.
ANY = dict(BM=64, BN=64, BK=16, WM=32, WN=32, WIDTH=1, STAGES=3, MIN_BLOCKS=4, ORDER=0x0123)
BEST = replace(kernel_of(ANY), choose=choose)
