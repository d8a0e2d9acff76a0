"""The rung `best`, for any shape: a kernel, a tile and a number of parts of K.

A table of the time of each tile decides. The table (best.json) has microseconds per tile, not a
winner per shape, because the winner changes with the number of blocks that the busiest
multiprocessor gets.

Error bounds say how far C can be from alpha A B + beta C for any data, for
`worklog.sgemm(A, B, max_error=...)`.

A bound E says: |error of C_ij| <= E (|alpha| (|A| |B|)_ij + |beta C_ij|), unless that number, or
a partial sum, leaves the range of normal FP32 numbers. It counts roundings. n roundings, each by
a factor of 1 + d with |d| <= u, are off by n u / (1 - n u) at most (Higham, "Accuracy and
Stability of Numerical Algorithms", 2nd ed., lemma 3.1). The bounds are nearly reached: by sums
in which each term is just below half of the last bit of the sum so far, or that a tensor core
truncates. A bound that assumed random roundings would be about sqrt(K) u, and equal numbers in
A break it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from worklog.emulator.limits import Chip
from worklog.errors import BadSetting, WorklogError
from worklog.kernel.kernel import ANY_CHIP, Kernel
from worklog.kernel.ladder import rungs
from worklog.problem import FLOAT_BYTES, Shape
from worklog.runs import Gpu

BULK = next(rung for rung in rungs.FP32 if rung.name == "bulk_copies")
# For each k of a tile, by half of the rate of an H200's units for doubles; not measured.
EXACT_US = 0.065
FILE = Path(__file__).with_name("best.json")
PARTS = (*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 64)
ADDED = 32  # parts whose loads are under way at once
# Of a launch: 16 and 128 products of 128 x 64 x 128 took this each on an H200; not recorded.
HOST_US = 3.5
LEAST_TILES = 6  # tiles of K per part: the first tiles of a part aren't overlapped with anything
MAX_WORKSPACE = 2**30  # bytes
LEAST_SPLIT_K = 700  # with less, errors of the rung split can be larger than errors of FP32 sums
UNIT_ROUNDOFF = 2.0**-24  # u: the largest relative error of an FP32 rounding
ENDING = 3  # roundings of alpha times the sum, of beta times C, and of their sum
# Rung 26: k per stage, and the most stages that a tensor core sums.
STAGE_K = 32
PROMOTED = 4
# The error of a tensor-core instruction of rung 26, in u: it truncates 16 products to 2^-25 of
# the largest term, 8 u, and the sum to 24 bits, 2 u (worklog.kernel.tensor_products states the
# rule, which is bit-equal to an H200).
TRUNCATED = 10
# The error of the two halves of a number, in u: each factor is off by 2^-22, 4 u, if its second
# half is subnormal; the product of the two second halves, which is left out, is also 2^-22; and
# u for what pass 1 counts as lost bits.
SPLIT = 13


@dataclass(frozen=True)
class Tile:
    """A tile of `best`, and its times."""

    template: Mapping[str, int]  # of the kernel
    resident: int  # blocks per multiprocessor
    alone_us: float  # for a tile of K while a multiprocessor has one block
    shared_us: float  # for a tile of K, per block, while the multiprocessor is full
    block_us: float  # of the blocks that a multiprocessor has at a time, for any K
    kernel: str = "best"  # or sliced or bulk_copies
    # Measured times behind these numbers; 0 if they are a guess. The H200's times weren't
    # counted: 15 stands for them in each tile.
    points: int = 0

    def takes(self, width: int, a_by_columns: bool) -> bool:
        """Whether it is a tile of the rung best that copies A in this order.

        A that is in column-major order is copied `width` floats at a time, by up to 32 lanes along
        a tile's rows; the passes of the block's threads must cover the tile.
        """
        if self.kernel != "best" or self.template["WIDTH"] != width:
            return False
        if not a_by_columns:
            return True
        rows = self.template["BM"]
        depth = self.template["BK"]
        warps = rows * self.template["BN"] // (self.template["WM"] * self.template["WN"])
        lanes = min(rows // width, 32)
        passes, left_over = divmod(32 * warps, lanes)
        return not left_over and rows % (lanes * width) == 0 and depth % passes == 0


@dataclass(frozen=True)
class TimeTable:
    """The times of all tiles, and of the rung split, on a GPU."""

    label: str  # where the table was measured
    gpu: str
    multiprocessors: int
    memory_gbs: float  # the peak of the GPU's memory
    launch_us: float  # a launch without work
    sum_us: float  # each round of loads of the launch that adds the parts
    sum_gbs: float  # the rate at which that launch adds them
    read_gbs: float  # of matrices that are read once, fitted to thin C
    # What a row of B in a tile costs for thin C beyond the row's bytes: narrow tiles are slower.
    row_bytes: float
    split_launch_us: float  # the rung split's launches without work
    split_tile_us: float  # a tile of 128 x 128 x 32 of the rung split
    split_gbs: float  # the rate of the rung split's first pass
    split_float_gbs: float  # the rate of stores that are float by float
    shapes: tuple[Shape, ...]  # that were measured
    tiles: tuple[Tile, ...]
    # With loads of 4 floats, for batches of attention: C may be narrow, and K short.
    batched: tuple[Tile, ...]
    batched_by_columns: tuple[Tile, ...]  # B in column-major order

    def stale(self, gpu: Gpu) -> str:
        """Return the note for a GPU for which the table may not hold; "" for others.

        The driver compiles nothing, so any driver will do.
        """
        if (gpu.compute_capability, gpu.multiprocessors) == ((9, 0), self.multiprocessors):
            return ""
        origin = (
            f"best chooses by a table for an {self.gpu} with {self.multiprocessors} multiprocessors"
        )
        return (
            f"{origin}, and this is an {gpu.name} with {gpu.multiprocessors}: the result is "
            "right, and may be slower"
        )

    def on(self, gpu: Gpu) -> TimeTable:
        """Return the table as it is expected to be on another GPU. Not measured.

        Rates that memory bounds scale with the peak of the GPU's memory.
        """
        ratio = gpu.memory_peak_gbs / self.memory_gbs
        rates = {
            name: ratio * getattr(self, name)
            for name in ("read_gbs", "split_gbs", "split_float_gbs")
        }
        return replace(self, multiprocessors=gpu.multiprocessors, **rates)

    def split_us(self, shape: Shape) -> float:
        """Return the expected microseconds of the rung split.

        They are the sum of its stages of 128 columns, the bytes of the first pass, which are
        stored float by float if rows can begin anywhere, and the bytes of the last pass.
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
        """Return the expected microseconds of a tile's launches.

        parts: parts of K
        """
        bm = tile.template["BM"]
        columns = math.ceil(shape.n / tile.template["BN"])  # of tiles
        blocks = math.ceil(shape.m / bm) * columns * parts * shape.batch
        compute_us = self._compute_us(tile, parts, shape, blocks)
        # Reads are slower with fewer blocks than half of the multiprocessors.
        slowdown = max(1.0, self.multiprocessors / (2 * blocks))
        read_bytes = shape.compulsory_bytes + self.row_bytes * shape.k * columns * shape.batch
        read_us = slowdown * read_bytes / self.read_gbs / 1e3
        us = self.launch_us + math.hypot(compute_us, read_us)
        if parts > 1:  # a further launch adds the parts
            us += math.ceil(parts / ADDED) * self.sum_us
        return us + rungs.added(shape, parts) / self.sum_gbs / 1e3

    def _compute_us(self, tile: Tile, parts: int, shape: Shape, blocks: int) -> float:
        """Return the microseconds that the busiest multiprocessor computes.

        blocks: number of blocks of the grid
        """
        steps = math.ceil(math.ceil(shape.k / tile.template["BK"]) / parts)  # tiles of K per block
        full_waves, last_wave = divmod(blocks, self.multiprocessors * tile.resident)
        us = full_waves * tile.block_us
        if last_wave:
            us = (full_waves + 1) * tile.block_us
        us += full_waves * steps * max(tile.alone_us, tile.resident * tile.shared_us)
        if not last_wave:
            return us
        last_blocks: float = math.ceil(last_wave / self.multiprocessors)  # per multiprocessor
        if full_waves:
            # Blocks that run together end together, and as many new blocks take their place. The
            # more blocks a multiprocessor has, the less this is so: in sweeps on an H200, the
            # last wave is packed for 2 blocks, and even for 4.
            packed = max(0.0, 2 - tile.resident / 2)
            last_blocks += packed * (min(last_wave, tile.resident) - last_blocks)
        return us + steps * max(tile.alone_us, last_blocks * tile.shared_us)


@cache
def table() -> TimeTable:
    """Load the package's table. Raises WorklogError if it is missing or can't be read."""
    try:
        document: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
        shapes = (Shape(*sizes) for sizes in document["shapes"])
        tiles = {
            name: tuple(Tile(**tile) for tile in document[name])
            for name in ("tiles", "batched", "batched_by_columns")
        }
        return TimeTable(**{**document, "shapes": tuple(shapes), **tiles})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorklogError(
            f"the table {FILE} cannot be read ({error}); install gemm-worklog again"
        ) from error


# Expected microseconds, the error bound, and what makes the kernel.
_Candidate = tuple[float, float, partial[Kernel]]


@lru_cache(maxsize=4096)
def choose(shape: Shape, **options: Any) -> Kernel:
    """Return the kernel that is expected to be the fastest at a shape.

    options: as for candidates()

    Raises BadSetting if no kernel keeps max_error, with the smallest error that a kernel keeps.
    """
    timed = candidates(shape, **options)
    if not timed:
        smallest = exact_bound(shape.k)
        raise BadSetting(
            f"sgemm: no kernel keeps max_error={options['max_error']:g} at {shape}: give "
            f"{smallest:.3g} or more"
        )
    _, make_kernel = min(timed, key=lambda candidate: candidate[0])
    return make_kernel()


def is_batch_faster(shape: Shape, **options: Any) -> bool:
    """Return whether one launch of a batch is expected to be faster.

    Than a launch of each product.

    options: as for candidates()
    """
    at_once = candidates(shape, **options)
    singles = candidates(shape.single, **options)
    if not (at_once and singles):
        return False
    us, make_kernel = min(at_once, key=itemgetter(0))
    # For single products, the table has the times of B in row-major order, which are shorter.
    if options.get("b_by_columns"):
        chip: Chip = options.get("chip", ANY_CHIP)
        if math.prod(make_kernel().blocks(shape)) >= chip.multiprocessors:
            return True  # parts of K have nothing to gain
    single_us = min(us for us, _ in singles)
    return us < shape.batch * max(single_us, HOST_US)


def candidates(
    shape: Shape,
    *,
    aligned: bool = True,
    a_by_columns: bool = False,
    b_by_columns: bool = False,
    chip: Chip = ANY_CHIP,
    split: bool = False,
    max_error: float = math.inf,
    gpu: Gpu | None = None,
) -> list[tuple[float, partial[Kernel]]]:
    """Return the kernels that may be launched: microseconds, and what makes the kernel.

    shape: of a batch, for a launch of all products, whose matrices follow each other in memory
    aligned: whether A, B and C are at multiples of 16 bytes
    a_by_columns, b_by_columns: whether A and B are in column-major order
    chip: that the kernels are launched on; `bulk_copies` and `split` run on "sm_90"
    split: whether the rung split is a candidate
    max_error: only kernels that keep this error; also a kernel that sums in double precision
    gpu: whose memory the times are scaled to (default: the table's)
    """
    by_rows = not (a_by_columns and shape.m > 1) and not (b_by_columns and shape.n > 1)
    on_hopper = chip.arch == "sm_90" and by_rows
    width = _load_width(shape, aligned, a_by_columns)
    times = table() if gpu is None else table().on(gpu)
    times = replace(times, multiprocessors=chip.multiprocessors)
    orders = {"a_by_columns": a_by_columns, "b_by_columns": b_by_columns}
    bounded = list[_Candidate]()
    if shape.batch > 1:
        batched = times.batched_by_columns if b_by_columns else times.batched
        for tile in batched if width == 4 else times.tiles:
            if tile.takes(width, a_by_columns):
                bounded.append(_of_parts(times, tile, 1, shape, **orders))
        return _keeping(max_error, bounded)
    for tile in times.tiles:
        if tile.kernel == BULK.name:
            if on_hopper and aligned and shape in BULK.domain:
                us = times.us(tile, 1, shape)
                bounded.append((us, fp32_bound(shape.k), partial(replace, BULK)))
        elif tile.kernel == rungs.SLICED.name:
            # Sectors of 8 floats, or rows of B.
            is_wide = tile.template["BN"] >= min(8, shape.n)
            if by_rows and is_wide and tile.template["WIDTH"] == width:
                bounded.append(_sliced(times, tile, shape))
        elif tile.takes(width, a_by_columns):
            for parts in _possible_parts(tile, shape):
                bounded.append(_of_parts(times, tile, parts, shape, **orders))
    if split and on_hopper:
        _, parts = rungs.split_tile(shape, chip.multiprocessors)
        error = split_bound(shape, parts)
        bounded.append((times.split_us(shape), error, partial(rungs.split_at, shape, chip)))
    if max_error < math.inf:
        bounded.append(_exact(times, shape, a_by_columns, b_by_columns))
    return _keeping(max_error, bounded)


def _keeping(max_error: float, bounded: list[_Candidate]) -> list[tuple[float, partial[Kernel]]]:
    """Return the candidates that keep an error."""
    return [(us, make_kernel) for us, error, make_kernel in bounded if error <= max_error]


def _load_width(shape: Shape, aligned: bool, a_by_columns: bool) -> int:
    """Return the floats that a load can move: 4 if each row begins at a multiple of 16 bytes."""
    if not aligned or shape.n % 4:
        return 1
    return 1 if a_by_columns and shape.m % 4 else 4


def _possible_parts(tile: Tile, shape: Shape) -> list[int]:
    """Return the numbers of parts that K can have with this tile."""
    by_k = shape.k // (LEAST_TILES * tile.template["BK"])
    by_workspace = MAX_WORKSPACE // (FLOAT_BYTES * shape.m * shape.n)
    largest = max(1, min(by_k, by_workspace))
    return [parts for parts in PARTS if parts <= largest]


def _sliced(times: TimeTable, tile: Tile, shape: Shape) -> _Candidate:
    """Return a tile of the rung sliced as a candidate."""
    template = tile.template
    steps = math.ceil(shape.k / template["BK"])
    warps = template["BK"] * template["BN"] // template["TN"] // 32
    error = fp32_bound(steps + 5 + warps)  # 5 steps add the lanes of a warp
    return times.us(tile, 1, shape), error, partial(rungs.sliced, template)


def _of_parts(
    times: TimeTable,
    tile: Tile,
    parts: int,
    shape: Shape,
    *,
    a_by_columns: bool,
    b_by_columns: bool,
) -> _Candidate:
    """Return a tile of the rung best with K in these parts as a candidate."""
    bk = tile.template["BK"]
    steps = math.ceil(shape.k / bk)
    error = fp32_bound(min(shape.k, math.ceil(steps / parts) * bk), parts)
    make_kernel = partial(
        rungs.any_shape, tile.template, parts, a_by_columns, b_by_columns, shape.batch > 1
    )
    return times.us(tile, parts, shape), error, make_kernel


def _exact(times: TimeTable, shape: Shape, a_by_columns: bool, b_by_columns: bool) -> _Candidate:
    """Return the kernel with sums in double precision as a candidate."""
    template = dict(A_BY_COLUMNS=int(a_by_columns), B_BY_COLUMNS=int(b_by_columns))
    kernel = replace(rungs.EXACT, template=template)
    waves = math.ceil(math.prod(kernel.blocks(shape)) / times.multiprocessors)
    us = times.launch_us + waves * shape.k * EXACT_US
    return us, exact_bound(shape.k), partial(replace, kernel)


def _bound(roundings: float) -> float:
    """Return the error bound of this many roundings one after the other."""
    error = roundings * UNIT_ROUNDOFF
    return error / (1 - error) if error < 1 else math.inf


def fp32_bound(terms: int, parts: int = 1) -> float:
    """Return the error bound of chains of fused multiply-adds and of their sum.

    terms: length of a chain
    parts: number of chains, which are added in turn

    Each product takes part in at most `terms` + `parts` - 1 roundings (Higham, section 3.1).
    """
    return _bound(terms + parts - 1 + ENDING)


def split_bound(shape: Shape, parts: int) -> float:
    """Return the error bound of rung 26 with K in these parts.

    2 instructions per stage multiply the first halves, 4 the small products before them. Each
    instruction is off by TRUNCATED of the sum of magnitudes so far; the first stage's small
    products by 2^-10 of that. FP32 registers add the sums of 4 stages. An element that pass 2
    sums again has a chain per lane of a warp, and 5 steps that add these; the larger bound
    counts. The magnitudes of the halves' products exceed |A| |B| by 2^-9 at most.
    """
    stages = math.ceil(math.ceil(shape.k / STAGE_K) / parts)
    summed = min(stages, PROMOTED)
    instructions = 6 * summed - 4 + 4 * 2**-10
    promotions = (stages + 5) // PROMOTED
    by_halves = (SPLIT + TRUNCATED * instructions + promotions - 1) * (1 + 2**-9)
    return _bound(max(by_halves, stages + 5) + parts - 1 + ENDING)


def exact_bound(k: int) -> float:
    """Return the error bound of sums in double precision.

    K fused multiply-adds and three more roundings of 2^-53, and a rounding to FP32.
    """
    return UNIT_ROUNDOFF + (k + ENDING) * 2.0**-53
