"""The table of the rung `best` (worklog.kernel.best): measured on this GPU, or estimated without one.

`worklog sweep best` measures every tile at SHAPES, in one part and in several, and fits the table's microseconds to the
times; `worklog sweep best --from RUN` fits them to a run that was measured before. Without a GPU the command writes an
estimate: what a tile of K takes by its lower bound (worklog.analysis.prediction), and assumed times for what that
leaves out. Where a run doesn't hold `split`, its times are estimates, and the label says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.errors import BadRunFile, WorklogError
from worklog.gpu import Peaks
from worklog.harness import Harness
from worklog.kernel import Kernel, occupancy
from worklog.kernel.best import BULK, FILE, Table, Tile, kernel_of, split_work, table, work_of
from worklog.kernel.nvrtc import compile_cuda
from worklog.problem import Shape
from worklog.runner.job import Job, Progress
from worklog.runner.measure import carry_out
from worklog.runs import Gpu, Run, write_bytes
from worklog.runs import Table as Rows

SIZES = ("BM", "BN", "BK", "WM", "WN", "WIDTH", "STAGES", "MIN_BLOCKS", "ORDER")
# ORDER: of the 24 orders, the one whose main loop has the fewest register-bank conflicts, 2 to 8 % of its FFMAs
# (for 32 x 64 x 16 by single floats 20 %), as `resources.bank_conflicts` counts them in the code of NVRTC 13.0.
TILES = (
    (128, 128, 8, 64, 64, 4, 5, 2, 0x1320),
    (128, 64, 16, 64, 32, 4, 3, 3, 0x2013),
    (64, 128, 8, 32, 64, 4, 5, 3, 0x0231),
    (128, 32, 16, 32, 32, 4, 3, 4, 0x1023),
    (32, 128, 16, 32, 32, 4, 4, 3, 0x3201),
    (32, 64, 16, 32, 16, 4, 5, 6, 0x0132),
    (32, 32, 32, 32, 16, 4, 4, 6, 0x3201),
    (32, 32, 16, 32, 16, 4, 8, 6, 0x3201),
    (64, 16, 32, 32, 16, 4, 4, 4, 0x0132),
    (128, 128, 8, 64, 64, 1, 5, 2, 0x1320),
    (128, 64, 16, 64, 32, 1, 3, 3, 0x0213),
    (64, 128, 8, 32, 64, 1, 5, 3, 0x2013),
    (64, 64, 16, 32, 32, 1, 3, 4, 0x2310),
    (32, 128, 16, 32, 32, 1, 4, 3, 0x0123),
    (64, 32, 16, 32, 16, 1, 6, 5, 0x2310),
    (32, 64, 16, 32, 16, 1, 5, 6, 0x1032),
    (32, 32, 16, 32, 16, 1, 8, 6, 0x3201),
)
TEMPLATES = tuple(dict(zip(SIZES, tile, strict=True)) for tile in TILES)
LEAST_POINTS = 7  # that a fit needs
Row = tuple[int, Shape, float]
COLUMNS = {"µs per tile of K, alone": "alone_us", "shared": "shared_us", "µs per block": "block_us"}
SEVERAL, MANY = 6, 64  # parts, beside one
# One block per multiprocessor of an H200 and many, short and long K, tall, flat and small. Those of IN_PARTS are
# measured in SEVERAL parts, too, and DEEP in MANY. Tiles for single floats are measured at one row, column and k less.
IN_PARTS = [Shape(*sizes) for sizes in ((256, 256, 512), (256, 256, 4096), (512, 512, 512), (512, 512, 4096))]
IN_PARTS += [Shape(*sizes) for sizes in ((1024, 1024, 4096), (64, 8192, 1024))]
WHOLE = [*IN_PARTS, *(Shape(side, side, k) for side, k in ((1024, 512), (2048, 512), (3072, 1024)))]
WHOLE += [Shape(*sizes) for sizes in ((1408, 1536, 2048), (8192, 64, 1024), (128, 384, 128), (384, 2048, 128))]
DEEP = [Shape(*sizes) for sizes in ((64, 64, 16384), (128, 256, 32768))]
SHAPES = [Shape(one.m - less, one.n - less, one.k - less) for one in (*WHOLE, *DEEP) for less in (0, 1)]
LATENCY_US, BLOCK_US, LAUNCH_US, SUM_US = 0.5, 1.0, 2.0, 2.5
ASSUMED = (
    f"assumed {LATENCY_US} µs for a tile of K that nothing hides, {BLOCK_US} per block, {LAUNCH_US} per launch, "
    f"{SUM_US} and the peak of the memory for adding the parts"
)


def kernels() -> list[Kernel]:
    """What is measured beside bulk_copies and split: every tile, for K in one part and in more."""
    return [
        replace(kernel_of(template, parts), name=name_of(template, parts), number=None, idea="")
        for template in TEMPLATES
        for parts in (1, SEVERAL, MANY)
    ]


def points(gpu: Gpu) -> list[tuple[str, Shape]]:
    """The names of what is measured, and where: small tiles at small shapes, and tiles for single floats where rows
    begin anywhere.
    """
    found = []
    for template in TEMPLATES:
        less, small = int(template["WIDTH"] == 1), template["BM"] * template["BN"] <= 2048
        for parts, shapes in ((1, WHOLE), (SEVERAL, IN_PARTS[: 3 if less else None]), (MANY, DEEP)):
            at = (Shape(shape.m - less, shape.n - less, shape.k - less) for shape in shapes)
            found += [(name_of(template, parts), one) for one in at if not small or one.m * one.n < 2**20]
    if gpu.compute_capability == (9, 0):
        found += [(BULK.name, shape) for shape in WHOLE if shape in BULK.domain]
        found += [("split", shape) for shape in SHAPES]
    return found


def measured(gpu: Gpu, harness: Harness, progress: Progress, out: Path | None) -> Run:
    """The sweep that fitted() takes. Raises as worklog.measure."""
    tasks = [Job(name, shape) for name, shape in sorted(points(gpu), key=lambda point: point[1])]
    return carry_out(tasks, harness, user_kernels=kernels(), progress=progress, out=out)


def name_of(template: Mapping[str, int], parts: int) -> str:
    """In a sweep's run, of a tile for K in some parts."""
    of = template
    return f"BM={of['BM']} BN={of['BN']} BK={of['BK']} WIDTH={of['WIDTH']} STAGES={of['STAGES']} parts={parts}"


def estimated(gpu: Gpu) -> Table:
    """The table from lower bounds, about a second per tile. Raises NvrtcMissing."""
    from worklog.analysis.prediction import DRAM, bound  # here: to measure needs no emulator

    tiles = []
    for kernel in (*map(kernel_of, TEMPLATES), BULK):
        template, steps = kernel.template, (16, 80)
        limits = [bound(kernel, Shape(template["BM"], template["BN"], n * template["BK"]), gpu).limits for n in steps]
        short, long = (max(ms for name, ms in each.items() if name != DRAM) for each in limits)
        shared_us = 1e3 * (long - short) / (steps[1] - steps[0])
        tiles.append(Tile(template, _resident(kernel), max(LATENCY_US, shared_us), shared_us, BLOCK_US, kernel.name))
    label = f"estimated for an {gpu.name}, not measured: lower bounds by counts on the emulator; {ASSUMED}"
    sizes = gpu.multiprocessors, LAUNCH_US, SUM_US, gpu.memory_peak_gbs
    per_sm = Peaks(gpu, gpu.sm_clock_mhz).get("fp16", gpu.fp32_peak_tflops) / gpu.multiprocessors
    split = 2 * LAUNCH_US, round(3 * 2 * 128 * 128 * 32 / per_sm / 1e6, 4), *(gpu.memory_peak_gbs,) * 2
    return Table(label, gpu.name, gpu.driver, *sizes, *split, tuple(map(_rounded, tiles)))


def fitted(run: Run) -> Table:
    """The table that fits a sweep's times best. Raises BadRunFile where the run holds no sweep, or part of one."""
    gpu = run.gpu
    times = {(m.kernel, m.problem): m.us for m in run.measurements if m.us is not None and not m.changed}
    shapes = sorted({shape for _, shape in times})
    sms = gpu.multiprocessors

    def rows(tile: Tile) -> list[Row]:
        """What was measured of a tile: parts, shape and microseconds."""
        counts = (1, SEVERAL, MANY) if tile.kernel == "best" else (1,)
        names = {n: name_of(tile.template, n) if tile.kernel == "best" else tile.kernel for n in counts}
        return [
            (n, shape, times[name, shape]) for n, name in names.items() for shape in shapes if (name, shape) in times
        ]

    held = {name_of(tile.template, 1): tile.resident for tile in table().tiles if tile.kernel == "best"}
    ours = [Tile(one, held.get(name_of(one, 1)) or _resident(kernel_of(one)), 0, 0, 0) for one in TEMPLATES]
    for tile in ours:
        if len({parts for parts, _, _ in rows(tile)}) < 2 or len(rows(tile)) < LEAST_POINTS:
            found = f"{name_of(tile.template, 1)} at {len(rows(tile))} points"
            raise BadRunFile(f"the run holds {found}, with several parts or without: measure: worklog sweep best")
    # At first each tile has its own times of a launch and of adding the parts. Their medians are the table's.
    launch_us, sum_us, per_kb = common = np.median([_fit(tile, rows(tile), sms)[1] for tile in ours], axis=0)
    label = f"measured on an {gpu.name}, driver {gpu.driver}: {run.label}"
    words: dict[str, Any] = {"gpu": gpu.name, "driver": gpu.driver, "multiprocessors": sms}
    words |= {"launch_us": launch_us, "sum_us": sum_us, "sum_gbs": _rate(per_kb, gpu)}
    tiles = [_fit(tile, rows(tile), sms, common)[0] for tile in ours]
    bulk = Tile(BULK.template, 1, 0, 0, 0, BULK.name)
    tiles += [_fit(bulk, rows(bulk), sms, common)[0]] if len(rows(bulk)) >= LEAST_POINTS else []
    of_split = [(shape, us) for shape in shapes if (us := times.get(("split", shape))) is not None]
    if len(of_split) < 4:
        label += "; of split estimated"
    else:
        work = np.array([split_work(shape, sms) for shape, _ in of_split], float)
        columns = np.array([np.ones(len(of_split)), work[:, 0], work[:, 1] / 1e3, work[:, 2] / 1e3]).T
        taken, moved = np.array([us for _, us in of_split]), work[:, 3]
        adding = np.where(moved > 0, words["sum_us"] + moved / words["sum_gbs"] / 1e3, 0.0)
        launch, each, *per_kb = _least_squares(columns, taken - adding, taken)
        words |= {"split_launch_us": launch, "split_tile_us": each}
        words |= {name: _rate(of, gpu) for name, of in zip(("split_gbs", "split_float_gbs"), per_kb, strict=True)}
    words = {name: round(float(value), 5) if isinstance(value, float) else value for name, value in words.items()}
    return replace(table(), label=label, tiles=tuple(map(_rounded, tiles)), **words)


def _rate(per_kb: float, gpu: Gpu) -> float:
    """GB/s from microseconds per 1000 bytes; where these are hidden, the memory's peak."""
    return 1 / per_kb if per_kb > 0 else gpu.memory_peak_gbs


def _fit(
    tile: Tile, rows: Sequence[Row], sms: int, common: NDArray[np.float64] | None = None
) -> tuple[Tile, NDArray[np.float64]]:
    """One tile's times; and microseconds of a launch, of one that adds parts, and per 1000 bytes of these, unless they
    are given. The model of Table.us is linear but for the ratio of a lone block's rate to a shared one's, which is
    searched.
    """
    work = [work_of(tile, parts, shape, sms) for parts, shape, _ in rows]
    times = np.array([us for _, _, us in rows])
    shared = np.array([[1, one.sums, one.moved / 1e3] for one in work])
    best: tuple[float, Tile, NDArray[np.float64]] | None = None
    for ratio in np.arange(1, tile.resident + 1 / 32, 1 / 16):
        own = np.array([[one.steps_us(float(ratio), 1.0), one.waves] for one in work])
        columns, left = (np.hstack([own, shared]), times) if common is None else (own, times - shared @ common)
        solved = _least_squares(columns, left, times)
        off = float(np.square((columns @ solved - left) / times).sum())
        if best is None or off < best[0]:
            alone_us, shared_us, block_us = map(float, (ratio * solved[0], *solved[:2]))
            best = off, replace(tile, alone_us=alone_us, shared_us=shared_us, block_us=block_us), solved[2:]
    assert best is not None
    return best[1:]


def _least_squares(
    columns: NDArray[np.float64], times: NDArray[np.float64], weights: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """The numbers, none below 0, whose relative errors are the smallest; 0 for columns that would be below."""
    by = times if weights is None else weights
    kept = [n for n in range(columns.shape[1]) if columns[:, n].any()]
    found = np.zeros(columns.shape[1])
    while kept:
        solved, *_ = np.linalg.lstsq(columns[:, kept] / by[:, None], times / by)
        if solved.min() >= 0:
            found[kept] = solved
            break
        kept.pop(int(solved.argmin()))
    return found


def _resident(kernel: Kernel) -> int:
    """Blocks per multiprocessor."""
    out = compile_cuda(kernel.program)
    return occupancy("sm_90", kernel.thread_count, out.registers, out.shared_bytes).blocks


def _rounded(tile: Tile) -> Tile:
    return replace(tile, **{name: round(getattr(tile, name), 4) for name in ("alone_us", "shared_us", "block_us")})


def shown(found: Table) -> Rows:
    """One row per tile."""
    rows: list[dict[str, str]] = []
    for tile in found.tiles:
        of = tile.template
        name = f"{of['BM']} x {of['BN']} x {of['BK']}" + f" ({tile.kernel})" * (tile.kernel != "best")
        width = str(of.get("WIDTH", 4))
        us = {column: f"{getattr(tile, field):.4g}" for column, field in COLUMNS.items()}
        rows.append({"tile": name, "floats per access": width, "blocks/SM": str(tile.resident), **us})
    return Rows.of(
        f"{found.label}; {found.launch_us:.4g} µs per launch, {found.sum_us:.4g} µs and {found.sum_gbs:.0f} GB/s for "
        "adding the parts",
        rows,
    )


def write(found: Table) -> Path:
    """Replace the package's table; its file. Raises WorklogError where that can't be written."""
    try:
        write_bytes(FILE, (json.dumps(asdict(found), indent=1, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise WorklogError(f"cannot write {FILE}: {error.strerror}; install the package where you may write") from error
    return FILE
