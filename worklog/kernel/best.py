"""The rung `best`, for any shape: a kernel, a tile and a number of parts of K, by a table of what each tile takes.

The table (best.json) holds microseconds per tile, not a winner per shape, because the winner changes with the number of
blocks that the busiest multiprocessor gets.

Error bounds say how far C can be from alpha A B + beta C for any data, for `worklog.sgemm(A, B, max_error=...)`.

A bound E says: |error of C_ij| <= E (|alpha| (|A| |B|)_ij + |beta C_ij|), unless that number, or a partial sum, leaves
the range of normal FP32 numbers. It counts roundings. n of them, each by a factor of 1 + d with |d| <= u, are off by
n u / (1 - n u) at most (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., lemma 3.1). The bounds are
nearly reached: by sums in which each term is just below half of the last bit of the sum so far, or that a tensor core
truncates. A bound that took roundings as random numbers would be about sqrt(K) u, and equal numbers in A break it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from worklog.errors import BadSetting, WorklogError
from worklog.kernel import rungs
from worklog.kernel.kernel import Kernel
from worklog.problem import FLOAT_BYTES, Shape
from worklog.runs import Gpu

BULK = next(rung for rung in rungs.FP32 if rung.name == "bulk_copies")
EXACT_US = (
    0.065  # for a k of its tile, by half of the rate of an H200's units for doubles; not measured
)
FILE = Path(__file__).with_name("best.json")
PARTS = (*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 64)
ADDED = 32  # parts whose loads are under way at once
LEAST_TILES = 6  # of K per part: the first ones of a part are not overlapped with anything
MOST_WORKSPACE = 2**30  # bytes
LEAST_SPLIT_K = 700  # with less, errors of the rung split can be larger than those of FP32 sums
U = 2.0**-24  # the largest relative error of an FP32 rounding
ENDING = 3  # roundings of alpha times the sum, of beta times C, and of their sum
# of rung 26: k per stage, and the most stages that a tensor core sums
STAGE_K = 32
PROMOTED = 4
# Of one tensor-core instruction of rung 26, in u: it truncates 16 products to 2^-25 of the largest term, 8 u, and the
# sum to 24 bits, 2 u (worklog.kernel.tensor_products states the rule, which is bit-equal to an H200).
TRUNCATED = 10
# Of the two halves of a number, in u: each factor is off by 2^-22, 4 u, where its second half is subnormal; the product
# of the two second halves, which is left out, is 2^-22 too; and u for what pass 1 counts as lost bits.
SPLIT = 13


@dataclass(frozen=True)
class Tile:
    """template: of the kernel. resident: blocks per multiprocessor. alone_us: for a tile of K while a multiprocessor
    has one block; shared_us: per block while it is full. block_us: of blocks that it has at a time, whatever K is.
    kernel: best, sliced or bulk_copies. points: measured times that these follow, of which the H200's weren't counted
    and stand as 15 for each tile; 0: they are a guess.
    """

    template: Mapping[str, int]
    resident: int
    alone_us: float
    shared_us: float
    block_us: float
    kernel: str = "best"
    points: int = 0


@dataclass(frozen=True)
class Table:
    """label: where it was measured. gpu, multiprocessors, shapes: of the measurement; memory_gbs: the peak of the
    GPU's memory. launch_us: of a launch without work; sum_us, sum_gbs: of each round of loads of the launch that
    adds the parts, and the rate at which it does. read_gbs: of matrices that are read once, fitted to thin C;
    row_bytes: what a row of B in a tile costs there beside its own bytes, for which narrow tiles are slower.
    split_launch_us, split_tile_us: of the rung split, its launches without work, and a tile of 128 x 128 x 32;
    split_gbs: the rate of its first pass; split_float_gbs: of stores that are float by float.
    """

    label: str
    gpu: str
    multiprocessors: int
    memory_gbs: float
    launch_us: float
    sum_us: float
    sum_gbs: float
    read_gbs: float
    row_bytes: float
    split_launch_us: float
    split_tile_us: float
    split_gbs: float
    split_float_gbs: float
    shapes: tuple[Shape, ...]
    tiles: tuple[Tile, ...]

    def stale(self, gpu: Gpu) -> str:
        """What to say on a GPU for which it may not hold, "" on others. The driver compiles nothing: any will do."""
        if (gpu.compute_capability, gpu.multiprocessors) == ((9, 0), self.multiprocessors):
            return ""
        made = (
            f"best chooses by a table for an {self.gpu} with {self.multiprocessors} multiprocessors"
        )
        return f"{made}, and this is an {gpu.name} with {gpu.multiprocessors}: the result is right, and may be slower"

    def on(self, gpu: Gpu) -> Table:
        """As it is expected to be on another GPU: what memory bounds follows its peak. Not measured."""
        ratio = gpu.memory_peak_gbs / self.memory_gbs
        rates = {
            name: ratio * getattr(self, name)
            for name in ("read_gbs", "split_gbs", "split_float_gbs")
        }
        return replace(self, multiprocessors=gpu.multiprocessors, **rates)

    def split_us(self, shape: Shape) -> float:
        """Expected microseconds of the rung split: stages of 128 columns, bytes of the first pass, stored float by
        float where rows begin anywhere, and of the last pass.
        """
        bn, parts = rungs.split_tile(shape, self.multiprocessors)
        stages = rungs.split_tiles(shape, bn, parts, self.multiprocessors)[1] / 128
        us = self.split_launch_us + stages * self.split_tile_us
        us += 3 * FLOAT_BYTES * shape.k * (shape.m + shape.n) / self.split_gbs / 1e3
        if shape.n % 4:
            us += FLOAT_BYTES * parts * shape.m * shape.n / self.split_float_gbs / 1e3
        moved = rungs.added(shape, parts)
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
        us = (full + (left > 0)) * tile.block_us
        for held, steps_of_all in ((tile.resident, full * steps), (last, steps * (left > 0))):
            us += steps_of_all * max(tile.alone_us, held * tile.shared_us)
        few = max(1.0, self.multiprocessors / (2 * blocks))
        read = shape.compulsory_bytes + self.row_bytes * shape.k * math.ceil(shape.n / of["BN"])
        us = self.launch_us + math.hypot(us, few * read / self.read_gbs / 1e3)
        if parts > 1:  # a launch that adds them
            us += math.ceil(parts / ADDED) * self.sum_us
        return us + rungs.added(shape, parts) / self.sum_gbs / 1e3


@cache
def table() -> Table:
    """The table in the package. Raises WorklogError if it is missing or can't be read."""
    try:
        document: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
        shapes = (Shape(*sizes) for sizes in document["shapes"])
        tiles = (Tile(**tile) for tile in document["tiles"])
        return Table(**{**document, "shapes": tuple(shapes), "tiles": tuple(tiles)})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorklogError(
            f"the table {FILE} cannot be read ({error}); install gemm-worklog again"
        ) from error


@lru_cache(maxsize=4096)
def choose(shape: Shape, **how: Any) -> Kernel:
    """The kernel that is expected to be the fastest at a shape. how: as for candidates. Raises BadSetting, with the
    least error that one keeps, if there is none.
    """
    listed = candidates(shape, **how)
    if not listed:
        least = exact_bound(shape.k)
        raise BadSetting(
            f"sgemm: no kernel keeps max_error={how['max_error']:g} at {shape}: give {least:.3g} or more"
        )
    return min(listed, key=lambda candidate: candidate[0])[1]()


def candidates(
    shape: Shape,
    aligned: bool = True,
    a_by_columns: bool = False,
    b_by_columns: bool = False,
    arch: str = "",
    split: bool = False,
    max_error: float = math.inf,
    gpu: Gpu | None = None,
) -> list[tuple[float, partial[Kernel]]]:
    """Expected microseconds, and what makes the kernel, of each that may be launched. aligned: whether A, B and C are
    at multiples of 16 bytes. a_by_columns, b_by_columns: whether A and B are in column-major order. arch: as "sm_90",
    where `bulk_copies` and `split` run. split: whether it is among them. max_error: of those that keep it, and with
    sums in double precision, too. gpu: default, the table's.
    """
    wide = aligned and shape.n % 4 == 0 and (shape.m % 4 == 0 or not a_by_columns)
    by_rows = not (a_by_columns and shape.m > 1) and not (b_by_columns and shape.n > 1)
    on_hopper = arch == "sm_90" and by_rows
    of = table() if gpu is None else table().on(gpu)
    made = list[tuple[float, float, partial[Kernel]]]()
    for tile in of.tiles:
        template = tile.template
        bk = tile.template["BK"]
        steps = math.ceil(shape.k / bk)
        if tile.kernel == BULK.name:
            if on_hopper and aligned and shape in BULK.domain:
                made.append((of.us(tile, 1, shape), fp32_bound(shape.k), partial(replace, BULK)))
        elif template["WIDTH"] != (4 if wide else 1):
            continue
        elif tile.kernel == rungs.SLICED.name:
            if by_rows and template["BN"] >= min(8, shape.n):  # sectors of 8 floats, or rows of B
                error = fp32_bound(
                    steps + 5 + bk * template["BN"] // template["TN"] // 32
                )  # lanes, warps
                made.append((of.us(tile, 1, shape), error, partial(rungs.sliced, template)))
        else:
            most = min(shape.k // (LEAST_TILES * bk), MOST_WORKSPACE // (4 * shape.m * shape.n))
            for parts in (parts for parts in PARTS if parts <= max(1, most)):
                error = fp32_bound(min(shape.k, math.ceil(steps / parts) * bk), parts)
                make = partial(rungs.any_shape, template, parts, a_by_columns, b_by_columns)
                made.append((of.us(tile, parts, shape), error, make))
    if split and on_hopper:
        error = split_bound(shape, rungs.split_tile(shape)[1])
        made.append((of.split_us(shape), error, partial(rungs.split_at, shape)))
    if max_error < math.inf:
        kernel = replace(
            rungs.EXACT,
            template=dict(A_BY_COLUMNS=int(a_by_columns), B_BY_COLUMNS=int(b_by_columns)),
        )
        us = (
            of.launch_us
            + math.ceil(math.prod(kernel.blocks(shape)) / of.multiprocessors) * shape.k * EXACT_US
        )
        made.append((us, exact_bound(shape.k), partial(replace, kernel)))
    return [(us, make) for us, error, make in made if error <= max_error]


def _bound(roundings: float) -> float:
    """Of this many roundings one after the other."""
    return roundings * U / (1 - roundings * U) if roundings * U < 1 else math.inf


def fp32_bound(terms: int, parts: int = 1) -> float:
    """Of a chain of `terms` fused multiply-adds, and of the sum of `parts` of them in turn: each product takes part in
    at most `terms` + `parts` - 1 roundings (Higham, section 3.1).
    """
    return _bound(terms + parts - 1 + ENDING)


def split_bound(shape: Shape, parts: int) -> float:
    """Of rung 26 with K in these parts. 2 instructions per stage multiply the first halves, 4 the small products before
    them. Each is off by TRUNCATED of the sum of magnitudes so far; the first stage's small products by 2^-10 of that.
    FP32 registers add what 4 stages sum. An element that pass 2 sums again has a chain per lane of a warp, and 5 steps
    that add these; the larger bound counts. The magnitudes of the halves' products exceed |A| |B| by 2^-9 at most.
    """
    stages = math.ceil(math.ceil(shape.k / STAGE_K) / parts)
    summed = min(stages, PROMOTED)
    instructions = 6 * summed - 4 + 4 * 2**-10
    promotions = (stages + 5) // PROMOTED
    by_halves = (SPLIT + TRUNCATED * instructions + promotions - 1) * (1 + 2**-9)
    return _bound(max(by_halves, stages + 5) + parts - 1 + ENDING)


def exact_bound(k: int) -> float:
    """Of sums in double precision: K fused multiply-adds and three more roundings of 2^-53, and one to FP32."""
    return U + (k + ENDING) * 2.0**-53
