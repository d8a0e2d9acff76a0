"""The rung `best`, for any shape: a tile and a number of parts of K per shape, by a table of what each tile takes. On
compute capability 9.0 the rung `bulk_copies` is among the tiles.

The table (best.json) holds microseconds per tile, not a winner per shape, because the winner changes with the number of
blocks that the busiest multiprocessor gets.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from worklog.errors import BadSetting, WorklogError
from worklog.kernel import accuracy
from worklog.kernel.kernel import Kernel
from worklog.kernel.rungs import FP32, added, numbered, split_at, split_tile, split_tiles
from worklog.kernel.signature import Launch
from worklog.problem import FLOAT_BYTES, Shape
from worklog.runs import Gpu

RUNG = numbered(30, "best", "any shape: the tile follows it, and few tiles share out K")
BULK = next(rung for rung in FP32 if rung.name == "bulk_copies")
EXACT = numbered(None, "exact", "")
VECTOR = numbered(None, "vector", "")
EXACT_US = 0.065  # for a k of its tile, by half of the rate of an H200's units for doubles; not measured
FILE = Path(__file__).with_name("best.json")
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
ADDED = 32  # parts whose loads are under way at once
LEAST_TILES = 6  # of K per part: the first ones of a part are not overlapped with anything
MOST_WORKSPACE = 2**30  # bytes
LEAST_SPLIT_K = 700  # with less, errors of the rung split are often larger than those of FP32 sums


@dataclass(frozen=True)
class Tile:
    """template: of the kernel. resident: blocks per multiprocessor. alone_us: for a tile of K while a multiprocessor
    has one block; shared_us: per block while it is full. block_us: of blocks that it has at a time, whatever K is.
    kernel: best, or bulk_copies.
    """

    template: Mapping[str, int]
    resident: int
    alone_us: float
    shared_us: float
    block_us: float
    kernel: str = "best"


@dataclass(frozen=True)
class Table:
    """label: where it was measured. gpu, driver, multiprocessors, shapes: of the measurement; memory_gbs: the peak of
    its GPU's memory. launch_us: of a launch without work;
    sum_us, sum_gbs: of each round of loads of the launch that adds the parts, and the rate at which it does.
    vector_gbs: of a matrix that is read once, 80 % of the memory's peak, which is not measured.
    split_launch_us, split_tile_us: of the rung split, its launches without work, and a tile of 128 x 128 x 32;
    split_gbs: the rate of its first pass; split_float_gbs: of stores that are float by float.
    """

    label: str
    gpu: str
    driver: str
    multiprocessors: int
    memory_gbs: float
    launch_us: float
    sum_us: float
    sum_gbs: float
    vector_gbs: float
    split_launch_us: float
    split_tile_us: float
    split_gbs: float
    split_float_gbs: float
    shapes: tuple[Shape, ...]
    tiles: tuple[Tile, ...]

    def stale(self, gpu: Gpu) -> str:
        """What to say on a GPU for which nothing can be derived from it; "" for others. Code is compiled for a compute
        capability, and takes as many cycles on each card that has it: the driver doesn't matter.
        """
        if (gpu.compute_capability, gpu.multiprocessors) == ((9, 0), self.multiprocessors):
            return ""
        made = f"best chooses by a table for an {self.gpu} with {self.multiprocessors} multiprocessors"
        return f"{made}, and this is an {gpu.name} with {gpu.multiprocessors}: the result is right, and may be slower"

    def on(self, gpu: Gpu) -> Table:
        """As it is expected to be on another GPU: what memory bounds follows its peak. Not measured."""
        ratio = gpu.memory_peak_gbs / self.memory_gbs
        pass_gbs, float_gbs = self.split_gbs * ratio, self.split_float_gbs * ratio
        rates = replace(self, vector_gbs=self.vector_gbs * ratio, split_gbs=pass_gbs, split_float_gbs=float_gbs)
        return replace(rates, multiprocessors=gpu.multiprocessors)

    def split_us(self, shape: Shape) -> float:
        """Expected microseconds of the rung split: stages of 128 columns, bytes of the first pass, stored float by
        float where rows begin anywhere, and of the last pass.
        """
        bn, parts = split_tile(shape, self.multiprocessors)
        stages = split_tiles(shape, bn, parts, self.multiprocessors)[1] / 128
        us = self.split_launch_us + stages * self.split_tile_us
        us += 3 * FLOAT_BYTES * shape.k * (shape.m + shape.n) / self.split_gbs / 1e3
        if shape.n % 4:
            us += FLOAT_BYTES * parts * shape.m * shape.n / self.split_float_gbs / 1e3
        moved = added(shape, parts)
        return us + (self.sum_us + moved / self.sum_gbs / 1e3 if moved else 0.0)

    def us(self, tile: Tile, parts: int, shape: Shape) -> float:
        """Expected microseconds of a tile's launches: what the busiest multiprocessor does. parts: of K."""
        of = tile.template
        blocks = math.ceil(shape.m / of["BM"]) * math.ceil(shape.n / of["BN"]) * parts
        steps = math.ceil(math.ceil(shape.k / of["BK"]) / parts)  # tiles of K per block
        full, left = divmod(blocks, self.multiprocessors * tile.resident)
        last: float = math.ceil(left / self.multiprocessors)
        if full:
            # Blocks that run together end together, and as many new ones take their place. The more blocks a
            # multiprocessor holds, the less this is so: in sweeps on an H200, the last wave is packed for 2 of them,
            # and even for 4.
            packed = max(0.0, 2 - tile.resident / 2)
            last += packed * (min(left, tile.resident) - last)
        us = self.launch_us + (full + (left > 0)) * tile.block_us
        for held, steps_of_all in ((tile.resident, full * steps), (last, steps * (left > 0))):
            us += steps_of_all * max(tile.alone_us, held * tile.shared_us)
        if parts > 1:  # a launch that adds them
            us += math.ceil(parts / ADDED) * self.sum_us
        return us + added(shape, parts) / self.sum_gbs / 1e3


def kernel_of(
    template: Mapping[str, int], parts: int = 1, a_by_columns: bool = False, b_by_columns: bool = False
) -> Kernel:
    """The kernel with this tile, for K in this many parts, and for A or B in column-major order."""
    if a_by_columns or b_by_columns:
        template = {**template, "A_BY_COLUMNS": int(a_by_columns), "B_BY_COLUMNS": int(b_by_columns)}
    grid, workspace = RUNG.grid.removesuffix("1") + str(parts), ""
    launches = [replace(RUNG.launch, function=f"sgemm_best<{', '.join(template)}>", grid=grid)]
    if parts > 1:
        grid, workspace = "min((M * N + 256 * WIDTH - 1) / (256 * WIDTH), 2112)", f"{FLOAT_BYTES * parts} * M * N"
        launches.append(Launch(f"sgemm_best_sum<{parts}, WIDTH>", grid, "256"))
    rules = ", ".join(f"{size} % WIDTH == 0" for size in _contiguous(a_by_columns))
    return replace(RUNG, template=template, launches=tuple(launches), rules=rules, workspace=workspace)


@cache
def table() -> Table:
    """The table in the package. Raises WorklogError if it is missing or can't be read."""
    try:
        document: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
        shapes, tiles = (Shape(*sizes) for sizes in document["shapes"]), (Tile(**tile) for tile in document["tiles"])
        return Table(**{**document, "shapes": tuple(shapes), "tiles": tuple(tiles)})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorklogError(f"the table {FILE} cannot be read ({error}); install gemm-worklog again") from error


class Candidate(NamedTuple):
    """Expected microseconds, the bound of its error (worklog.kernel.accuracy), and what makes the kernel."""

    us: float
    bound: float
    make: partial[Kernel]


@lru_cache(maxsize=4096)
def choose(shape: Shape, max_error: float = math.inf, **how: Any) -> Kernel:
    """The kernel that is expected to be the fastest at a shape, of those whose error is below max_error. how: as for
    candidates. Raises BadSetting, with the least error, if there is none.
    """
    every = candidates(shape, **how, exact=max_error < math.inf)
    kept = [candidate for candidate in every if candidate.bound <= max_error]
    if not kept:
        least = min(candidate.bound for candidate in every)
        raise BadSetting(f"sgemm: no kernel keeps max_error={max_error:g} at {shape}: give {least:.3g} or more")
    return min(kept, key=lambda candidate: candidate.us).make()


def candidates(
    shape: Shape,
    aligned: bool = True,
    a_by_columns: bool = False,
    b_by_columns: bool = False,
    arch: str = "",
    split: bool = False,
    exact: bool = False,
    gpu: Gpu | None = None,
) -> list[Candidate]:
    """What may be launched. aligned: whether A, B and C are at multiples of 16 bytes. a_by_columns, b_by_columns:
    whether A and B are in column-major order. arch: as "sm_90", where `bulk_copies` and `split` run. split, exact:
    whether the rung split, and sums in double precision, are among them. gpu: default, the table's.
    """
    sizes = {"M": shape.m, "N": shape.n, "K": shape.k}
    orders = {"A_BY_COLUMNS": int(a_by_columns), "B_BY_COLUMNS": int(b_by_columns)}
    wide = aligned and all(sizes[size] % 4 == 0 for size in _contiguous(a_by_columns))
    on_hopper = arch == "sm_90" and not (a_by_columns or b_by_columns)
    of, made = table() if gpu is None else table().on(gpu), list[Candidate]()
    for tile in of.tiles:
        if tile.kernel != "best":
            if on_hopper and aligned and shape in BULK.domain:
                made.append(Candidate(of.us(tile, 1, shape), accuracy.fp32_bound(shape.k), partial(replace, BULK)))
        elif tile.template["WIDTH"] == (4 if wide else 1):
            bk = tile.template["BK"]
            most = min(shape.k // (LEAST_TILES * bk), MOST_WORKSPACE // (4 * shape.m * shape.n))
            for parts in PARTS:
                if parts == 1 or parts <= most:
                    terms = min(shape.k, math.ceil(math.ceil(shape.k / bk) / parts) * bk)
                    bound = accuracy.fp32_bound(terms, parts)
                    make = partial(kernel_of, tile.template, parts, a_by_columns, b_by_columns)
                    made.append(Candidate(of.us(tile, parts, shape), bound, make))
    if min(shape.m, shape.n) == 1:
        kernel, terms = vector(shape, aligned, b_by_columns if shape.m == 1 else not a_by_columns)
        few = max(1.0, of.multiprocessors / kernel.blocks(shape)[0])  # blocks
        us = of.launch_us + few * shape.compulsory_bytes / of.vector_gbs / 1e3
        made.append(Candidate(us, accuracy.fp32_bound(terms), partial(replace, kernel)))
    if split and on_hopper:
        bound = accuracy.split_bound(shape, split_tile(shape)[1])
        made.append(Candidate(of.split_us(shape), bound, partial(split_at, shape)))
    if exact:
        waves = math.ceil(math.ceil(shape.m / 64) * math.ceil(shape.n / 64) / of.multiprocessors)
        us = of.launch_us + waves * shape.k * EXACT_US
        made.append(Candidate(us, accuracy.exact_bound(shape.k), partial(replace, EXACT, template=orders)))
    return made


def vector(shape: Shape, aligned: bool, along: bool, least: int = 4096) -> tuple[Kernel, int]:
    """The kernel for C of one row or column, and the length of its chains. along: whether neighbours in memory are
    neighbours along K. least: elements of C from which on a block has several more; then each multiprocessor has one.
    """
    size = shape.m * shape.n
    width = 4 if aligned and (shape.k if along else size) % 4 == 0 else 1
    lanes, rows = (8, 8) if size >= least else (2, 1)
    grid, threads, chain = f"(M * N + {lanes * width - 1}) / {lanes * width}", 1024, 1024 // lanes
    if along:
        grid, threads, chain = f"(M * N + {rows - 1}) / {rows}", 256, 256 // rows * width
    launch = Launch(f"{'along<ROWS' if along else 'across<LANES'}, WIDTH>", grid, str(threads))
    template = {"LANES": lanes, "ROWS": rows, "WIDTH": width}
    return replace(VECTOR, launches=(launch,), template=template), math.ceil(shape.k / chain) + 5 + threads // 32


def _contiguous(a_by_columns: bool) -> list[str]:
    """The sizes along which the kernel copies several neighbours in memory at once."""
    return ["M", "N"] if a_by_columns else ["N"]


# The record itself is the kernel for what is misaligned; it takes any shape in one launch.
BEST = replace(kernel_of(RUNG.template), choose=choose, rules="A, B, C % 16 bytes")
