"""The table of the rung `best` (worklog.kernel.best): measured on this GPU, or estimated without one.

`worklog sweep best` measures every tile at SHAPES, in one part and in several, and fits the table's microseconds to the
times; `worklog sweep best --from RUN` fits them to a run that was measured before. Without a GPU the command writes an
estimate: what a tile of K takes by its lower bound (worklog.analysis.prediction), and assumed times for what that
leaves out. Where a run doesn't hold `ragged` or `split`, their times are estimates, and the label says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.analysis.prediction import DRAM, bound
from worklog.errors import BadRunFile, WorklogError
from worklog.gpu import Gpu, Peaks
from worklog.harness import Harness
from worklog.kernel import Kernel, occupancy
from worklog.kernel.best import BULK, FILE, RAGGED, Table, Tile, kernel_of, split_work, table, work_of
from worklog.kernel.fp32 import ragged, ragged_at
from worklog.kernel.nvrtc import compile_cuda
from worklog.problem import Shape
from worklog.runner.measure import carry_out
from worklog.runner.tasks import Progress, tasks_of
from worklog.runs import Run, write_text
from worklog.runs import Table as Rows

SIZES = ("BM", "BN", "BK", "WM", "WN", "WIDTH", "STAGES", "MIN_BLOCKS", "ORDER")
# ORDER: of the 24 orders, the one whose main loop has the fewest register-bank conflicts, 1 to 19 % of its FFMAs,
# as `resources.bank_conflicts` counts them in the code of NVRTC 13.0.
TILES = (
    (128, 128, 16, 64, 64, 4, 2, 0x2031),
    (128, 64, 16, 64, 32, 4, 3, 0x2130),
    (64, 64, 16, 32, 32, 4, 4, 0x0123),
    (64, 64, 32, 32, 32, 4, 4, 0x1230),
    (32, 64, 16, 32, 16, 4, 6, 0x1203),
    (64, 16, 32, 32, 16, 4, 4, 0x1203),
    (32, 32, 64, 32, 16, 4, 4, 0x1203),
    (128, 64, 16, 64, 32, 1, 2, 0x2130),
    (64, 64, 16, 32, 32, 1, 4, 0x0123),
    (32, 64, 16, 32, 16, 1, 6, 0x1203),
    (64, 16, 32, 32, 16, 1, 8, 0x1203),
    (32, 32, 64, 32, 16, 1, 4, 0x1203),
)
TEMPLATES = tuple(dict(zip(SIZES, tile, strict=True)) for tile in TILES)
LEAST_POINTS = 7  # that a fit needs
Row = tuple[int, Shape, float]
COLUMNS = {"µs per tile of K, alone": "alone_us", "shared": "shared_us", "µs per block": "block_us"}
MANY = 6  # parts, beside one
# One block per multiprocessor of an H200 and many, short and long K, tall, flat and small. The first ones are measured
# in parts, too.
IN_PARTS = [Shape(*sizes) for sizes in ((256, 256, 512), (256, 256, 4096), (512, 512, 512), (512, 512, 4096))]
IN_PARTS += [Shape(*sizes) for sizes in ((1024, 1024, 4096), (64, 8192, 1024))]
SHAPES = (
    *IN_PARTS,
    *(Shape(side, side, k) for side, k in ((1024, 512), (2048, 512), (3072, 1024))),
    *(Shape(*sizes) for sizes in ((1408, 1536, 2048), (8192, 64, 1024), (128, 384, 128), (384, 2048, 128))),
)
COPIED = tuple(Shape(*sizes) for sizes in ((255, 511, 257), (1023, 1021, 1023), (2047, 2053, 1021)))  # by ragged
LATENCY_US, BLOCK_US, LAUNCH_US, SUM_US = 0.5, 1.0, 2.0, 2.5
ASSUMED = (
    f"assumed {LATENCY_US} µs for a tile of K that nothing hides, {BLOCK_US} per block, {LAUNCH_US} per launch, "
    f"{SUM_US} and the peak of the memory for adding the parts"
)


def kernels(gpu: Gpu) -> list[Kernel]:
    """What is measured beside bulk_copies and split: every tile, for K in one part and in many; and on compute
    capability 9.0 those of ragged, with one block per multiprocessor and with as many as it holds.
    """
    found = [(name_of(template, parts), kernel_of(template, parts)) for template in TEMPLATES for parts in (1, MANY)]
    for place, template in enumerate(RAGGED if gpu.compute_capability == (9, 0) else ()):
        for n in sorted({1, template["MIN_BLOCKS"]}):
            blocks = n * gpu.multiprocessors
            at = partial(ragged_at, blocks=blocks, tile=place)
            found.append((name_of(template, n), replace(ragged(blocks=blocks, tile=template), choose=at)))
    return [replace(kernel, name=name, number=None, idea="") for name, kernel in found]


def points(gpu: Gpu) -> list[tuple[str, Shape]]:
    """The names of what is measured, and where: small tiles at small shapes, tiles of ragged at shapes that fill one,
    and one of them also where it copies its factors.
    """
    found = [(name_of(one, 1), shape) for one in TEMPLATES for shape in SHAPES if _may_suit(one, shape)]
    found += [
        (name_of(one, MANY), shape)
        for one in TEMPLATES
        for shape in IN_PARTS[: 6 if one["WIDTH"] == 4 else 3]
        if _may_suit(one, shape)
    ]
    if gpu.compute_capability == (9, 0):
        found += [(BULK.name, shape) for shape in SHAPES if shape in BULK.domain]
        found += [("split", shape) for shape in SHAPES[::2]]
        for template in RAGGED:
            most = template["MIN_BLOCKS"]
            found += [
                (name_of(template, most), shape)
                for shape in (*SHAPES, *(COPIED if template == RAGGED[1] else ()))
                if shape.m >= template["BM"] and shape.n >= template["BN"] and _may_suit(template, shape)
            ]
            found += [(name_of(template, 1), shape) for shape in IN_PARTS[1:4] if most > 1]
    return found


def _may_suit(template: Mapping[str, int], shape: Shape) -> bool:
    """Whether a tile isn't too small for the shape."""
    small = template["BM"] * template["BN"] <= (1024 if "WIDTH" in template else 4096)
    return not small or shape.m * shape.n < 2**20


def measured(gpu: Gpu, harness: Harness, progress: Progress, out: Path | None) -> Run:
    """The sweep that fitted() takes. Raises as worklog.measure."""
    own, wanted = kernels(gpu), points(gpu)
    rungs = sorted({name for name, _ in wanted} - {kernel.name for kernel in own})
    tasks, tiles = tasks_of([*own, *rungs], [*SHAPES, *COPIED])
    at = {*wanted}
    return carry_out(
        [task for task in tasks if (task.kernel, task.problem) in at],
        harness,
        user_kernels=tiles,
        progress=progress,
        out=out,
    )


def name_of(template: Mapping[str, int], parts: int) -> str:
    """In a sweep's run, of a tile for K in some parts; of ragged, for this number of blocks per multiprocessor."""
    own = f"WIDTH={template['WIDTH']} parts={parts}" if "WIDTH" in template else f"blocks={parts}"
    return f"BM={template['BM']} BN={template['BN']} BK={template['BK']} {own}"


def estimated(gpu: Gpu) -> Table:
    """The table from lower bounds, about a second per tile. Raises NvrtcMissing."""
    tiles = []
    for kernel in (*map(kernel_of, TEMPLATES), BULK):
        template, steps = kernel.template, (16, 80)
        limits = [bound(kernel, Shape(template["BM"], template["BN"], n * template["BK"]), gpu).limits for n in steps]
        short, long = (max(ms for name, ms in each.items() if name != DRAM) for each in limits)
        shared_us = 1e3 * (long - short) / (steps[1] - steps[0])
        tiles.append(Tile(template, _resident(kernel), max(LATENCY_US, shared_us), shared_us, BLOCK_US, kernel.name))
    tiles += _of_ragged(tiles)
    label = f"estimated for an {gpu.name}, not measured: lower bounds by counts on the emulator; {ASSUMED}"
    sizes = gpu.multiprocessors, LAUNCH_US, *(SUM_US, gpu.memory_peak_gbs) * 2
    per_sm = Peaks(gpu, gpu.sm_clock_mhz).get("fp16", gpu.fp32_peak_tflops) / gpu.multiprocessors
    split = 2 * LAUNCH_US, round(3 * 2 * 128 * 128 * 32 / per_sm / 1e6, 4), gpu.memory_peak_gbs
    return Table(label, gpu.name, gpu.driver, *sizes, *split, tuple(map(_rounded, tiles)))


def _of_ragged(tiles: Sequence[Tile]) -> list[Tile]:
    """The tiles of ragged, if a multiply-add takes as long as in the last one of these with the same warp tile."""
    found = []
    for template in RAGGED:
        like = next(one for one in reversed(tiles) if all(one.template[n] == template[n] for n in ("WM", "WN")))
        work, other = (math.prod(of[name] for name in ("BM", "BN", "BK")) for of in (template, like.template))
        shared_us = like.shared_us * work / other
        alone_us = max(LATENCY_US, shared_us)
        found.append(Tile(template, template["MIN_BLOCKS"], alone_us, shared_us, tiles[-1].block_us, "ragged"))
    return found


def fitted(run: Run) -> Table:
    """The table that fits a sweep's times best. Raises BadRunFile where the run holds no sweep, or part of one."""
    gpu = Gpu.of(run.device)
    times = {(m.kernel, m.problem): m.us for m in run.measurements if m.us is not None and not m.changed}
    shapes = sorted({shape for _, shape in times})
    sms = gpu.multiprocessors

    def rows(tile: Tile) -> list[Row]:
        """What was measured of a tile: parts, shape and microseconds."""
        names = {1: BULK.name} if tile.kernel == BULK.name else {n: name_of(tile.template, n) for n in (1, MANY)}
        if tile.kernel == "ragged":
            names = {sms * n: name_of(tile.template, n) for n in (1, tile.resident)}
        return [
            (n, shape, times[name, shape]) for n, name in names.items() for shape in shapes if (name, shape) in times
        ]

    held = {name_of(tile.template, 1): tile.resident for tile in table().tiles if tile.kernel == "best"}
    ours = [Tile(one, held.get(name_of(one, 1)) or _resident(kernel_of(one)), 0, 0, 0) for one in TEMPLATES]
    ours = [tile for tile in ours if rows(tile)] or ours  # an older sweep has fewer tiles
    for tile in ours:
        if len({parts for parts, _, _ in rows(tile)}) < 2 or len(rows(tile)) < LEAST_POINTS:
            found = f"{name_of(tile.template, 1)} at {len(rows(tile))} points"
            raise BadRunFile(f"the run holds {found}, with {MANY} parts or without: measure: worklog sweep best")
    # At first each tile has its own times of a launch and of adding the parts. Their medians are the table's.
    launch_us, sum_us, per_kb = np.median([_fit(tile, rows(tile), sms)[1] for tile in ours], axis=0)
    label = f"measured on an {gpu.name}, driver {gpu.driver}: {run.label}"
    words: dict[str, Any] = {"gpu": gpu.name, "driver": gpu.driver, "multiprocessors": sms}
    words |= {
        "launch_us": launch_us,
        "sum_us": sum_us,
        "sum_gbs": _rate(per_kb, gpu),
        "copy_us": 0,
        "copy_gbs": math.inf,
    }
    common = np.array([launch_us, sum_us, per_kb])
    tiles = [_fit(tile, rows(tile), sms, common)[0] for tile in ours]
    bulk = Tile(BULK.template, 1, 0, 0, 0, BULK.name)
    tiles += [_fit(bulk, rows(bulk), sms, common)[0]] if len(rows(bulk)) >= LEAST_POINTS else []
    of_ragged = [Tile(one, one["MIN_BLOCKS"], 0, 0, 0, "ragged") for one in RAGGED]
    own = {n: [row for row in rows(tile) if row[1] not in COPIED] for n, tile in enumerate(of_ragged)}
    if min(map(len, own.values())) >= LEAST_POINTS:
        tiles += (of_ragged := [_fit(tile, own[n], sms, common)[0] for n, tile in enumerate(of_ragged)])
        plain = replace(table(), **words)
        copies = [(tile, row) for tile in of_ragged for row in rows(tile) if row[1] in COPIED]
        if len(copies) < 2:
            words |= {"copy_us": table().copy_us, "copy_gbs": table().copy_gbs}
            label += "; of ragged's copies as in the table before"
        else:
            columns = np.array([[1, work_of(tile, n, shape, sms).copied / 1e3] for tile, (n, shape, _) in copies])
            left = np.array([us - plain.us(tile, n, shape) for tile, (n, shape, us) in copies])
            copy_us, per_kb = _least_squares(columns, left, np.array([us for _, (_, _, us) in copies]))
            words |= {"copy_us": copy_us, "copy_gbs": _rate(per_kb, gpu)}
    elif len(tiles) > len(ours):
        tiles += _of_ragged(tiles)
        words |= {"copy_us": launch_us, "copy_gbs": gpu.memory_peak_gbs}
        label += "; of ragged estimated"
    of_split = [(shape, us) for shape in shapes if (us := times.get(("split", shape))) is not None]
    if len(of_split) < 4:
        label += "; of split estimated"
    else:
        work = np.array([split_work(shape, sms) for shape, _ in of_split], float)
        columns = np.array([np.ones(len(of_split)), work[:, 0], work[:, 1] / 1e3]).T
        taken, moved = np.array([us for _, us in of_split]), work[:, 2]
        adding = np.where(moved > 0, words["sum_us"] + moved / words["sum_gbs"] / 1e3, 0.0)
        launch, each, per_kb = _least_squares(columns, taken - adding, taken)
        words |= {"split_launch_us": launch, "split_tile_us": each, "split_gbs": _rate(per_kb, gpu)}
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
    shared = np.array([[1, one.moved is not None, (one.moved or 0) / 1e3] for one in work])
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
        write_text(FILE, json.dumps(asdict(found), indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise WorklogError(f"cannot write {FILE}: {error.strerror}; install the package where you may write") from error
    return FILE
