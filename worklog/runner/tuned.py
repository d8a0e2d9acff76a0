"""The table of the rung `best` (worklog.kernel.best): measured on this GPU, or estimated without one.

`worklog sweep best` measures every tile at SHAPES, in one part and in several, and fits the table's microseconds to the
times; `worklog sweep best --from RUN` fits them to a run that was measured before. Without a GPU the command writes an
estimate: what a tile of K takes by its lower bound (worklog.analysis.prediction), and assumed times for what that
leaves out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from worklog.analysis.prediction import DRAM, bound
from worklog.errors import BadRunFile, WorklogError
from worklog.gpu.device import Gpu
from worklog.gpu.peaks import Peaks
from worklog.harness import Harness
from worklog.kernel import Kernel
from worklog.kernel.best import BULK, FILE, Table, Tile, kernel_of, split_work, table
from worklog.kernel.nvrtc import compile_cuda
from worklog.kernel.resources import occupancy
from worklog.problem import Shape
from worklog.runner.measure import carry_out
from worklog.runner.tasks import Progress, tasks_of
from worklog.runs import Run, write_text
from worklog.runs import Table as Rows

SIZES = ("BM", "BN", "BK", "WM", "WN", "WIDTH", "MIN_BLOCKS", "ORDER")
# ORDER: of the 24 orders, the one whose main loop has the fewest register-bank conflicts, 1 to 19 % of its FFMAs,
# as `resources.bank_conflicts` counts them in the code of NVRTC 13.0.
TILES = (
    (128, 128, 16, 64, 64, 4, 2, 0x2031),
    (128, 64, 16, 64, 32, 4, 3, 0x2130),
    (64, 64, 16, 32, 32, 4, 4, 0x0123),
    (64, 64, 32, 32, 32, 4, 4, 0x1230),
    (32, 64, 16, 32, 16, 4, 6, 0x1203),
    (64, 16, 32, 32, 16, 4, 4, 0x1203),
    (128, 64, 16, 64, 32, 1, 2, 0x2130),
    (64, 64, 16, 32, 32, 1, 4, 0x0123),
    (32, 64, 16, 32, 16, 1, 6, 0x1203),
    (64, 16, 32, 32, 16, 1, 8, 0x1203),
)
TEMPLATES = tuple(dict(zip(SIZES, tile, strict=True)) for tile in TILES)
COLUMNS = {"µs per tile of K, alone": "alone_us", "shared": "shared_us", "µs per block": "block_us"}
MANY = 6  # parts, beside one
# One block per multiprocessor of an H200 and many, short and long K, tall, flat and small.
SHAPES = tuple(
    Shape(*sizes)
    for sizes in (
        *((side, side, k) for side in (256, 512, 1024, 2048) for k in (512, 4096)),
        (1408, 1536, 2048),
        (8192, 64, 1024),
        (64, 8192, 1024),
        (3072, 3072, 1024),
    )
)
LATENCY_US, BLOCK_US, LAUNCH_US, SUM_US = 0.5, 1.0, 2.0, 2.5
ASSUMED = (
    f"assumed {LATENCY_US} µs for a tile of K that nothing hides, {BLOCK_US} per block, {LAUNCH_US} per launch, "
    f"{SUM_US} and the peak of the memory for adding the parts"
)


def kernels(gpu: Gpu) -> list[str | Kernel]:
    """What is measured: every tile, for K in one part and in many, each named after both; and the rungs bulk_copies,
    at shapes of whole tiles, and split.
    """
    tiles = [
        replace(kernel_of(template, parts), name=name_of(template, parts), number=None, idea="")
        for template in TEMPLATES
        for parts in (1, MANY)
    ]
    return [*tiles, *([BULK.name, "split"] if gpu.compute_capability == (9, 0) else [])]


def measured(gpu: Gpu, harness: Harness, progress: Progress, out: Path | None) -> Run:
    """The sweep that fitted() takes. Raises as worklog.measure."""
    tasks, tiles = tasks_of(kernels(gpu), SHAPES)
    whole = [task for task in tasks if task.kernel != BULK.name or task.problem in BULK.domain]
    return carry_out(whole, harness, user_kernels=tiles, progress=progress, out=out)


def name_of(template: Mapping[str, int], parts: int) -> str:
    """Of a tile for K in some parts, in a sweep's run."""
    return " ".join(f"{name}={template[name]}" for name in ("BM", "BN", "BK", "WIDTH")) + f" parts={parts}"


def estimated(gpu: Gpu) -> Table:
    """The table from lower bounds, about a second per tile. Raises NvrtcMissing."""
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
    split = 2 * LAUNCH_US, round(3 * 2 * 128 * 128 * 32 / per_sm / 1e6, 4), gpu.memory_peak_gbs
    return Table(label, gpu.name, gpu.driver, *sizes, *split, tuple(map(_rounded, tiles)))


def fitted(run: Run) -> Table:
    """The table that fits a sweep's times best. Raises BadRunFile where the run doesn't hold every tile."""
    gpu = Gpu.of(run.device)
    times = {(m.kernel, m.problem): m.us for m in run.measurements if m.us is not None and not m.changed}
    shapes = sorted({shape for _, shape in times})
    found = []
    known = {name_of(tile.template, 1): tile.resident for tile in table().tiles if tile.kernel == "best"}
    for template in TEMPLATES:
        rows = [(shape, us) for shape in shapes if (us := times.get((name_of(template, 1), shape))) is not None]
        if len(rows) < 4:
            raise BadRunFile(f"the run holds {name_of(template, 1)} at {len(rows)} shapes: measure: worklog sweep best")
        resident = known.get(name_of(template, 1)) or _resident(kernel_of(template))
        found.append(_fit(template, resident, rows, gpu.multiprocessors))
    if rows := [(shape, us) for shape in shapes if (us := times.get((BULK.name, shape))) is not None]:
        tile, launch_us = _fit(BULK.template, 1, rows, gpu.multiprocessors)
        found.append((replace(tile, kernel=BULK.name), launch_us))
    launch_us = float(np.median([launch for _, launch in found]))
    label = f"measured on an {gpu.name}, driver {gpu.driver}: {run.label}"
    tiles = tuple(tile for tile, _ in found)
    plain = replace(
        table(), label=label, gpu=gpu.name, driver=gpu.driver, multiprocessors=gpu.multiprocessors, launch_us=launch_us
    )
    plain = replace(plain, sum_us=0.0, sum_gbs=math.inf, tiles=tiles)
    moved, extra = [], []
    for tile in tiles:
        for shape in shapes if tile.kernel == "best" else ():
            if (us := times.get((name_of(tile.template, MANY), shape))) is not None:
                moved.append(4e-3 * (2 * MANY + 1) * shape.m * shape.n)  # thousands of bytes: µs at 1 GB/s
                extra.append(us - plain.us(tile, MANY, shape))
    if len(moved) < 2:
        raise BadRunFile(f"the run holds no tile with {MANY} parts: measure: worklog sweep best")
    slope, sum_us = np.polyfit(moved, extra, 1)
    rate = 1 / float(slope) if slope > 0 else gpu.memory_peak_gbs
    rows = [(shape, us) for shape in shapes if (us := times.get(("split", shape))) is not None]
    if len(rows) < 4:
        plain = replace(plain, label=f"{label}; of split estimated")
    else:
        work = np.array([split_work(shape, gpu.multiprocessors) for shape, _ in rows], float)
        times_us = np.array([us for _, us in rows])
        columns = np.array([np.ones(len(rows)), work[:, 0] * work[:, 1], work[:, 2] / 1e3]).T / times_us[:, None]
        launch, each, per_kb = (max(1e-9, float(value)) for value in np.linalg.lstsq(columns, np.ones(len(rows)))[0])
        plain = replace(
            plain, split_launch_us=round(launch, 4), split_tile_us=round(each, 5), split_gbs=round(1 / per_kb, 1)
        )
    sums: dict[str, Any] = {"sum_us": round(max(0.0, float(sum_us)), 4), "sum_gbs": round(rate, 1)}
    return replace(plain, launch_us=round(launch_us, 4), tiles=tuple(map(_rounded, tiles)), **sums)


def _fit(
    template: Mapping[str, int], resident: int, rows: Sequence[tuple[Shape, float]], sms: int
) -> tuple[Tile, float]:
    """One tile's times, and those of a launch. The model of Table.us is linear but for the ratio of a lone block's rate
    to a shared one's, which is searched.
    """
    best: tuple[float, Tile, float] | None = None
    for ratio in np.arange(1, resident + 1 / 32, 1 / 16):
        unit = Tile(template, resident, float(ratio), 1.0, 0.0)
        alone = replace(table(), multiprocessors=sms, launch_us=0.0)
        steps = [alone.us(unit, 1, shape) for shape, _ in rows]
        blocks = [
            math.ceil(math.ceil(shape.m / template["BM"]) * math.ceil(shape.n / template["BN"]) / sms)
            for shape, _ in rows
        ]
        times = np.array([us for _, us in rows])
        columns = np.array([steps, blocks, np.ones(len(rows))]).T / times[:, None]  # relative errors count
        solved, *_ = np.linalg.lstsq(columns, np.ones(len(rows)))
        shared_us, block_us, launch_us = (max(0.0, float(value)) for value in solved)
        off = float(np.square(columns @ np.array([shared_us, block_us, launch_us]) - 1).sum())
        if best is None or off < best[0]:
            best = off, Tile(template, resident, float(ratio) * shared_us, shared_us, block_us), launch_us
    assert best is not None
    return best[1:]


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
