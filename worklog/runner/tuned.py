"""The table of the rung `best` (worklog.kernel.best), measured on this GPU.

`worklog sweep best` measures every tile of the table at SHAPES, in one part and in several, and fits the table's
microseconds to the times; `worklog sweep best --from RUN` fits them to a run that was measured before. To add a tile,
add its template and its blocks per multiprocessor (`worklog inspect`) to best.json, and measure. Of the 24 values of
ORDER, take the one whose main loop has the fewest register-bank conflicts (`resources.main_loop`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.errors import BadRunFile
from worklog.harness import Harness
from worklog.kernel import Kernel
from worklog.kernel.best import BULK, FILE, Table, Tile, kernel_of, split_work, table, work_of
from worklog.problem import Shape
from worklog.runner.job import Job, Progress
from worklog.runner.measure import carry_out
from worklog.runs import Gpu, Run, write_bytes
from worklog.runs import Table as Rows

TEMPLATES = tuple(tile.template for tile in table().tiles if tile.kernel == "best")
LEAST_POINTS = 7  # that a fit needs
LEAST_OF_SPLIT = 4
SEVERAL, MANY = 6, 64  # parts, beside one
# One block per multiprocessor of an H200 and many, short and long K, tall, flat and small. Those of IN_PARTS are
# measured in SEVERAL parts, too, and DEEP in MANY. Tiles for single floats are measured at one row, column and k less.
IN_PARTS = [Shape(*sizes) for sizes in ((256, 256, 512), (256, 256, 4096), (512, 512, 512), (512, 512, 4096))]
IN_PARTS += [Shape(*sizes) for sizes in ((1024, 1024, 4096), (64, 8192, 1024))]
WHOLE = [*IN_PARTS, *(Shape(side, side, k) for side, k in ((1024, 512), (2048, 512), (3072, 1024)))]
WHOLE += [Shape(*sizes) for sizes in ((1408, 1536, 2048), (8192, 64, 1024), (128, 384, 128), (384, 2048, 128))]
DEEP = [Shape(*sizes) for sizes in ((64, 64, 16384), (128, 256, 32768))]
SHAPES = [Shape(at.m - less, at.n - less, at.k - less) for at in (*WHOLE, *DEEP) for less in (0, 1)]
US = {"alone_us": "µs per tile of K, alone", "shared_us": "shared", "block_us": "µs per block"}  # of a Tile
Floats = NDArray[np.float64]
Row = tuple[int, Shape, float]  # parts, shape and microseconds


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
    listed = []
    for template in TEMPLATES:
        less, is_small = int(template["WIDTH"] == 1), template["BM"] * template["BN"] <= 2048
        for parts, shapes in ((1, WHOLE), (SEVERAL, IN_PARTS[:3] if less else IN_PARTS), (MANY, DEEP)):
            at = [Shape(shape.m - less, shape.n - less, shape.k - less) for shape in shapes]
            listed += [(name_of(template, parts), shape) for shape in at if not is_small or shape.m * shape.n < 2**20]
    if gpu.compute_capability == (9, 0):
        listed += [(BULK.name, shape) for shape in WHOLE if shape in BULK.domain]
        listed += [("split", shape) for shape in SHAPES]
    return listed


def measured(gpu: Gpu, harness: Harness, progress: Progress, out: Path | None) -> Run:
    """The sweep that fitted() takes. Raises as worklog.measure."""
    tasks = [Job(name, shape) for name, shape in sorted(points(gpu), key=lambda point: point[1])]
    return carry_out(tasks, harness, user_kernels=kernels(), progress=progress, out=out)


def name_of(template: Mapping[str, int], parts: int) -> str:
    """In a sweep's run, of a tile for K in some parts."""
    return " ".join(f"{name}={template[name]}" for name in ("BM", "BN", "BK", "WIDTH", "STAGES")) + f" parts={parts}"


def fitted(run: Run) -> Table:
    """The table that fits a sweep's times best. Raises BadRunFile where the run holds no sweep, or part of one."""
    gpu, before, times = run.gpu, table(), dict[str, dict[Shape, float]]()
    for m in run.measurements:
        if m.us is not None and not m.changed:
            times.setdefault(m.kernel, {})[m.problem] = m.us
    held = list[tuple[Tile, list[Row]]]()
    for tile in before.tiles:
        names = {1: tile.kernel}
        if tile.kernel == "best":
            names = {parts: name_of(tile.template, parts) for parts in (1, SEVERAL, MANY)}
        rows = [(parts, shape, us) for parts, name in names.items() for shape, us in times.get(name, {}).items()]
        held.append((tile, rows))
        if tile.kernel == "best" and (len({parts for parts, _, _ in rows}) < 2 or len(rows) < LEAST_POINTS):
            holds = f"{name_of(tile.template, 1)} at {len(rows)} points"
            raise BadRunFile(f"the run holds {holds}, with several parts or without: measure: worklog sweep best")
    sms = gpu.multiprocessors
    # At first each tile has its own times of a launch and of adding the parts. Their medians are the table's.
    common = np.median([_fit(tile, rows, sms)[1] for tile, rows in held if tile.kernel == "best"], axis=0)
    tiles = tuple(_fit(tile, rows, sms, common)[0] for tile, rows in held if len(rows) >= LEAST_POINTS)
    numbers = {"launch_us": common[0], "sum_us": common[1], "sum_gbs": _rate(common[2], gpu)}
    label = f"measured on an {gpu.name}, driver {gpu.driver}: {run.label}"
    if len(of_split := times.get("split", {})) < LEAST_OF_SPLIT:
        label += "; of split as in the table before"
    else:
        taken = np.array([*of_split.values()])
        stages, lines, stored, moved = np.array([split_work(shape, sms) for shape in of_split], float).T
        columns = np.array([np.ones(len(taken)), stages, lines / 1e3, stored / 1e3]).T
        adding = np.where(moved > 0, numbers["sum_us"] + moved / numbers["sum_gbs"] / 1e3, 0.0)
        launch, stage, per_kb, per_kb_of_floats = _least_squares(columns, taken - adding, taken)
        numbers |= {"split_launch_us": launch, "split_tile_us": stage}
        numbers |= {"split_gbs": _rate(per_kb, gpu), "split_float_gbs": _rate(per_kb_of_floats, gpu)}
    rounded = {name: round(float(number), 5) for name, number in numbers.items()}
    of: dict[str, Any] = {"gpu": gpu.name, "driver": gpu.driver, "multiprocessors": sms, "tiles": tiles, **rounded}
    return replace(before, label=label, **of)


def _rate(per_kb: float, gpu: Gpu) -> float:
    """GB/s from microseconds per 1000 bytes; where these are hidden, the memory's peak."""
    return 1 / float(per_kb) if per_kb > 0 else gpu.memory_peak_gbs


def _fit(tile: Tile, rows: Sequence[Row], sms: int, common: Floats | None = None) -> tuple[Tile, Floats]:
    """One tile's times; and microseconds of a launch, of one that adds parts, and per 1000 bytes of these, unless they
    are given. The model of Table.us is linear but for the ratio of a lone block's rate to a shared one's, which is
    searched.
    """
    work = [work_of(tile, parts, shape, sms) for parts, shape, _ in rows]
    times = np.array([us for _, _, us in rows])
    shared = np.array([[1, launch.sums, launch.moved / 1e3] for launch in work])
    least, best = np.inf, (tile, np.empty(0))
    for ratio in map(float, np.arange(1, tile.resident + 1 / 32, 1 / 16)):
        own = np.array([[launch.steps_us(ratio, 1.0), launch.waves] for launch in work])
        columns, left = (np.hstack([own, shared]), times) if common is None else (own, times - shared @ common)
        solved = _least_squares(columns, left, times)
        off = float(np.square((columns @ solved - left) / times).sum())
        if off < least:
            alone_us, shared_us, block_us = (round(float(us), 4) for us in (ratio * solved[0], *solved[:2]))
            fit = replace(tile, alone_us=alone_us, shared_us=shared_us, block_us=block_us)
            least, best = off, (fit, solved[2:])
    return best


def _least_squares(columns: Floats, times: Floats, weights: Floats) -> Floats:
    """The numbers, none below 0, whose relative errors are the smallest; 0 for columns that would be below."""
    kept = [n for n in range(columns.shape[1]) if columns[:, n].any()]
    numbers = np.zeros(columns.shape[1])
    while kept:
        solved, *_ = np.linalg.lstsq(columns[:, kept] / weights[:, None], times / weights)
        if solved.min() >= 0:
            numbers[kept] = solved
            break
        kept.pop(int(solved.argmin()))
    return numbers


def shown(of: Table) -> Rows:
    """One row per tile."""
    rows: list[dict[str, str]] = []
    for tile in of.tiles:
        name = " x ".join(str(tile.template[size]) for size in ("BM", "BN", "BK"))
        name += "" if tile.kernel == "best" else f" ({tile.kernel})"
        known = {"tile": name, "floats per access": str(tile.template.get("WIDTH", 4)), "blocks/SM": str(tile.resident)}
        rows.append(known | {title: f"{getattr(tile, field):.4g}" for field, title in US.items()})
    parts = f"{of.sum_us:.4g} µs and {of.sum_gbs:.0f} GB/s for adding the parts"
    return Rows.of(f"{of.label}; {of.launch_us:.4g} µs per launch, {parts}", rows)


def write(new: Table) -> Path:
    """Replace the package's table; its file. Raises BadRunFile where that can't be written."""
    content = json.dumps(asdict(new), indent=1, ensure_ascii=False) + "\n"
    write_bytes(FILE, content.encode(), "install the package where you may write")
    return FILE
