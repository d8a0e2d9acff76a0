"""The roofline: how many FLOP each rung makes of a byte that its blocks fetch, and which roof it stands under.

The intensity is counted from the tile that the run recorded, not measured: each block brings its rows of A and its
columns of B once from L2. Where a cache closer to the threads serves some of it, a rung can stand above a memory roof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.kernel.ladder import Rung
from worklog.plots.figure import Chart
from worklog.plots.labels import FAR, Box, Point, place, stroke
from worklog.plots.page import Page, page
from worklog.plots.selection import Size, cublas_tflops, dimensions, measured, rows, shape_to_draw
from worklog.plots.style import (
    ACCENT,
    BODY_PT,
    INK,
    MARGIN_IN,
    MUTED,
    PAPER,
    SMALL_PT,
    WIDTH_IN,
    block_size,
    styled,
)
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement, Run

BODY, LEFT, BELOW, RIGHT = 4.3, 0.62, 0.45, 0.2  # inches
MARKER = 0.05  # half of a marker, inches


@dataclass(frozen=True)
class Roofs:
    """Roofs in TFLOP/s (fp32) and TB/s, measured and on paper; None where the run does not know it."""

    fp32: float
    fp32_peak: float | None
    l2: float | None
    copy: float | None
    memory_peak: float | None

    @classmethod
    def of(cls, run: Run) -> Roofs:
        """From the run's calibration and device. Raises NothingToDraw without a measured FP32 ceiling."""
        fp32 = run.calibration.get("fp32_tflops")
        if not fp32:
            raise NothingToDraw("the run has no measured FP32 ceiling: measure again with `worklog run`")

        def terabytes(gigabytes: float | None) -> float | None:
            return gigabytes / 1e3 if gigabytes else None

        return cls(
            fp32,
            run.device.get("fp32_peak_tflops"),
            terabytes(run.calibration.get("l2_gbs")),
            terabytes(run.calibration.get("copy_gbs")),
            terabytes(run.device.get("memory_peak_gbs")),
        )

    @property
    def slopes(self) -> list[float]:
        """Every memory roof that is known, in TB/s."""
        return [slope for slope in (self.l2, self.copy, self.memory_peak) if slope]


@dataclass(frozen=True)
class Frame:
    """Log-log axes as a map from data to inches on the page."""

    x: tuple[float, float]
    y: tuple[float, float]
    box: Box

    def inches(self, x: float, y: float) -> Point:
        """Where a data point is on the page."""
        right = math.log(x / self.x[0]) / math.log(self.x[1] / self.x[0])
        up = math.log(y / self.y[0]) / math.log(self.y[1] / self.y[0])
        return self.box.x0 + right * (self.box.x1 - self.box.x0), self.box.y0 + up * (self.box.y1 - self.box.y0)


def intensity(run: Run, m: Measurement) -> float | None:
    """FLOP per byte that blocks fetch from L2, counted from the tile that the run recorded; None without a tile."""
    tile = run.kernels.get(m.kernel, {}).get("tile")
    if not tile or not {"BM", "BN"} <= tile.keys():
        return None
    recorded = Rung(m.kernel, "", tile, "1", "")
    return m.problem.flops / recorded.block_traffic_bytes(m.problem)


@styled()
def roofline(run: Run, size: Size | None = None) -> Chart:
    """Each rung at its counted intensity under measured (solid) and theoretical (dashed) roofs, log-log, at one size.

    Raises NothingToDraw where the run has no ceiling, or no measured rung with a tile; BadShape.
    """
    shape = shape_to_draw(run, size)
    roofs = Roofs.of(run)
    kernels = rows(run, shape)
    points = {m.kernel: (x, m.tflops or 0.0) for m in kernels if measured(m) and (x := intensity(run, m))}
    if not points:
        raise NothingToDraw(f"no rung with a tile was measured at size {shape}: `worklog run --size {shape}`")
    new = page(
        "roofline",
        _finding(kernels, points, roofs),
        _subtitle(shape),
        [run.full_label],
        _alt(run, shape, points, roofs),
        BODY,
    )
    box = Box(MARGIN_IN + LEFT, new.body_bottom + BELOW, WIDTH_IN - RIGHT, new.body_top - 0.08)
    cublas = cublas_tflops(kernels)
    frame = _frame(points, roofs, cublas, box)
    axes = _axes(new, frame)
    for (x0, y0), (x1, y1), style in _roof_lines(frame, roofs):
        axes.plot([x0, x1], [y0, y1], style, color=INK, linewidth=1.0, zorder=1.5)
    mark = [_right_of(points), frame.x[1]]
    axes.plot(mark, [cublas, cublas], color=MUTED, linewidth=2.5, solid_capstyle="butt", zorder=1)
    _draw_climb(axes, frame, list(points.values()))
    _draw_words(new, frame, roofs, cublas, points)
    return new.figure


def _frame(points: dict[str, Point], roofs: Roofs, cublas: float, box: Box) -> Frame:
    xs, ys = zip(*points.values(), strict=True)
    ridges = [roofs.fp32 / slope for slope in roofs.slopes]
    top = max(roofs.fp32, roofs.fp32_peak or 0.0, cublas, *ys)
    # Room left of the first point and right of the last for words, and one decade of height at least.
    low, high = min(*xs, *ridges, 8.0) / 4, max(*xs, *ridges, 16.0) * 4.5
    return Frame((low, high), (min(*ys, cublas, top / 10) / 1.7, top * 1.9), box)


def _axes(new: Page, frame: Frame) -> Axes:
    box = frame.box
    axes = new.axes(box.x0, box.y0, box.x1 - box.x0, box.y1 - box.y0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*frame.x)
    axes.set_ylim(*frame.y)
    axes.minorticks_off()
    axes.set_xticks(*_ticks(frame.x, 2))
    axes.set_yticks(*_ticks(frame.y, 10, (1, 2, 5)))
    axes.grid(True, zorder=0)
    axes.set_xlabel("FLOP per byte that blocks fetch from L2, counted from the tile")
    axes.set_ylabel("TFLOP/s")
    return axes


def _ticks(limits: tuple[float, float], base: int, steps: tuple[int, ...] = (1,)) -> tuple[list[float], list[str]]:
    """Round values within the limits, and how they are written."""
    first, last = (math.floor(math.log(limit, base)) for limit in limits)
    values = [s * float(base) ** e for e in range(first, last + 1) for s in steps]
    kept = [value for value in values if limits[0] * 1.02 <= value <= limits[1] / 1.02]
    return kept, [f"{value:g}" for value in kept]


def _right_of(points: dict[str, Point]) -> float:
    """Where the mark of cuBLAS starts: right of every rung, since its own place is unknown."""
    return 2.2 * max(x for x, _ in points.values())


def _roof_lines(frame: Frame, roofs: Roofs) -> list[tuple[Point, Point, str]]:
    """Every roof from end to end, in data, and its line style: memory roofs end where they meet a ceiling."""
    peak = roofs.fp32_peak or roofs.fp32
    memory = ((roofs.l2, roofs.fp32, "-"), (roofs.copy, roofs.fp32, "-"), (roofs.memory_peak, peak, "--"))
    lines = [((frame.x[0], slope * frame.x[0]), (top / slope, top), style) for slope, top, style in memory if slope]
    steepest = max(roofs.slopes, default=math.inf)
    for ceiling, style in ((roofs.fp32, "-"), (roofs.fp32_peak, "--")):
        if ceiling:
            lines.append(((max(ceiling / steepest, frame.x[0]), ceiling), (frame.x[1], ceiling), style))
    return lines


def _draw_climb(axes: Axes, frame: Frame, points: list[Point]) -> None:
    """The rungs, and an arrow from each to the next where there is room for one."""
    arrow = {"arrowstyle": "-|>", "color": ACCENT, "linewidth": 0.8, "shrinkA": 4, "shrinkB": 4, "mutation_scale": 7}
    for start, end in pairwise(points):
        if math.dist(frame.inches(*start), frame.inches(*end)) > 4 * MARKER:
            axes.annotate("", end, start, arrowprops=arrow, zorder=2)
    xs, ys = zip(*points, strict=True)
    axes.plot(xs, ys, "o", color=ACCENT, markersize=6, markeredgecolor=PAPER, markeredgewidth=0.8, zorder=3)


def _draw_words(new: Page, frame: Frame, roofs: Roofs, cublas: float, points: dict[str, Point]) -> None:
    """Rungs are named beside their points, roofs where their lines are; nothing on top of anything else."""
    ends = [frame.inches(*point) for point in points.values()]
    lines = [(frame.inches(*start), frame.inches(*end)) for start, end, _ in _roof_lines(frame, roofs)]
    lines.append((frame.inches(_right_of(points), cublas), frame.inches(frame.x[1], cublas)))
    strokes = np.concatenate([stroke(start, end) for start, end in [*lines, *pairwise(ends)]])
    markers = [Box(x - MARKER, y - MARKER, x + MARKER, y + MARKER) for x, y in ends]
    words = [(text, frame.inches(*at), SMALL_PT, MUTED) for text, at in _roof_words(frame, roofs, cublas, points)]
    words += [(_named(name, y), at, BODY_PT, INK) for (name, (_, y)), at in zip(points.items(), ends, strict=True)]
    sizes = [block_size(text, points_size) for text, _, points_size, _ in words]
    boxes = place([at for _, at, _, _ in words], sizes, frame.box.shrunk(0.06), markers, strokes)
    for (text, at, points_size, colour), label in zip(words, boxes, strict=True):
        if math.dist(label.nearest(at), at) > FAR:
            new.line(at, label.shrunk(-0.02).nearest(at), color=MUTED, linewidth=0.5, zorder=2)
        new.text(*label.centre, text, points_size, color=colour, ha="center", va="center", linespacing=1.15, zorder=5)


def _named(name: str, rate: float) -> str:
    return f"{name} {rate:.{1 if rate >= 10 else 2}f}"


def _roof_words(frame: Frame, roofs: Roofs, cublas: float, points: dict[str, Point]) -> list[tuple[str, Point]]:
    """What each roof is called, and a point of its line."""
    paper = f", {roofs.fp32_peak:.1f} on paper (dashed)" if roofs.fp32_peak else ""
    words = [(f"FP32: {roofs.fp32:.1f} TFLOP/s measured{paper}", (frame.x[1] / 3.2, roofs.fp32_peak or roofs.fp32))]
    words.append(
        (f"{_named('cuBLAS', cublas)}\n(its tile is unknown)", (math.sqrt(_right_of(points) * frame.x[1]), cublas))
    )
    if roofs.l2:
        x = 1.7 * frame.x[0]
        words.append((f"L2 reads:\n{roofs.l2:.2f} TB/s measured", (x, roofs.l2 * x)))
    if roofs.copy:
        x = 1.25 * frame.x[0]
        on_paper = f",\n{roofs.memory_peak:.2f} on paper (dashed)" if roofs.memory_peak else ""
        copied = f"memory, if no byte came from L2:\n{roofs.copy:.2f} TB/s copy measured"
        words.append((copied + on_paper, (x, roofs.copy * x)))
    return words


def _finding(kernels: list[Measurement], points: dict[str, Point], roofs: Roofs) -> str:
    best = max(points, key=lambda name: points[name][1])
    share = 100 * points[best][1] / roofs.fp32
    if best == next(reversed(points)) and len(points) > 1:
        return f"From {next(iter(points))} to {best}, the climb ends at {share:.0f} % of the FP32 ceiling"
    return f"{best} stands highest, at {share:.0f} % of the FP32 ceiling"


def _subtitle(shape: Shape) -> str:
    return (
        f"C = A·B in FP32, {dimensions(shape)}. FLOP per byte are counted from the tile: each block brings its rows "
        "of A and its columns of B once from L2. Solid roofs: measured; dashed: computed from the highest clocks."
    )


def _alt(run: Run, shape: Shape, points: dict[str, Point], roofs: Roofs) -> str:
    parts = [f"{name} {y:.2f} TFLOP/s at {x:.1f} FLOP per byte" for name, (x, y) in points.items()]
    memory = [f"{name} {slope:.2f} TB/s" for name, slope in (("L2", roofs.l2), ("memory copy", roofs.copy)) if slope]
    return (
        f"Roofline chart, log-log, of FP32 matrix multiplication at {dimensions(shape)}. Measured roofs: "
        f"{', '.join([f'FP32 {roofs.fp32:.1f} TFLOP/s', *memory])}. {'; '.join(parts)}. Source: {run.label}."
    )
