"""The roofline: how many FLOP each rung makes of a byte that its blocks fetch, and which roof it stands under.

The intensity is counted from the tile that the run recorded, not measured: each block brings its rows of A and its columns of B
once from L2. Where a cache closer to the threads serves some of it, a rung can stand above a memory roof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.gemm import Shape
from worklog.ladder import Rung
from worklog.plots.figure import Chart
from worklog.plots.labels import Box, Point, place, stroke
from worklog.plots.page import Page, page
from worklog.plots.selection import Size, cublas_tflops, dimensions, measured, rows, shape_to_draw
from worklog.plots.style import (
    ACCENT,
    BODY_PT,
    INK,
    MARGIN_IN,
    MUTED,
    SMALL_PT,
    WIDTH_IN,
    line_height,
    styled,
    text_width,
)
from worklog.runs import Measurement, Run
from worklog.tables import label_line

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
    """FLOP per byte that blocks fetch from L2 (and write once), counted from the tile that the run recorded; None without a tile."""
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
        raise NothingToDraw(
            f"the run has no measured rung with a recorded tile at size {shape}: `worklog run --size {shape}`"
        )
    new = page(
        "roofline",
        _finding(kernels, points, roofs),
        _subtitle(shape),
        [label_line(run)],
        _alt(run, shape, points, roofs),
        BODY,
    )
    box = Box(MARGIN_IN + LEFT, new.body_bottom + BELOW, WIDTH_IN - RIGHT, new.body_top - 0.08)
    cublas = cublas_tflops(kernels)
    frame = _frame(points, roofs, cublas, box)
    axes = _axes(new, frame)
    _draw_roofs(axes, frame, roofs)
    axes.plot([_ridge(frame, roofs), frame.x[1]], [cublas, cublas], ":", color=MUTED, linewidth=1.1, zorder=1)
    _draw_climb(axes, frame, list(points.values()))
    _draw_words(new, frame, roofs, cublas, points)
    return new.figure


def _frame(points: dict[str, Point], roofs: Roofs, cublas: float, box: Box) -> Frame:
    xs, ys = zip(*points.values(), strict=True)
    ridges = [roofs.fp32 / slope for slope in roofs.slopes]
    top = max(roofs.fp32, roofs.fp32_peak or 0.0, cublas, *ys)
    # Room left of the first point and right of the last for words, and one decade of height at least.
    low, high = min(*xs, *ridges, 8.0) / 4, max(*xs, *ridges, 16.0) * 4
    return Frame((low, high), (min(*ys, cublas, top / 10) / 2.2, top * 1.9), box)


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


def _ridge(frame: Frame, roofs: Roofs) -> float:
    """Where the steepest memory roof meets the measured FP32 ceiling."""
    return roofs.fp32 / max(roofs.slopes) if roofs.slopes else frame.x[0]


def _draw_roofs(axes: Axes, frame: Frame, roofs: Roofs) -> None:
    for slope, ceiling, how in (
        (roofs.l2, roofs.fp32, "-"),
        (roofs.copy, roofs.fp32, "-"),
        (roofs.memory_peak, roofs.fp32_peak or roofs.fp32, "--"),
    ):
        if slope:
            axes.plot(
                [frame.x[0], ceiling / slope], [slope * frame.x[0], ceiling], how, color=INK, linewidth=1.0, zorder=1.5
            )
    axes.plot([_ridge(frame, roofs), frame.x[1]], [roofs.fp32, roofs.fp32], "-", color=INK, linewidth=1.0, zorder=1.5)
    if roofs.fp32_peak:
        start = roofs.fp32_peak / max(roofs.slopes) if roofs.slopes else frame.x[0]
        axes.plot([start, frame.x[1]], [roofs.fp32_peak] * 2, "--", color=INK, linewidth=1.0, zorder=1.5)


def _draw_climb(axes: Axes, frame: Frame, points: list[Point]) -> None:
    """The rungs, and an arrow from each to the next where there is room for one."""
    for start, end in zip(points, points[1:], strict=False):
        if math.dist(frame.inches(*start), frame.inches(*end)) > 4 * MARKER:
            axes.annotate(
                "",
                end,
                start,
                arrowprops={
                    "arrowstyle": "-|>",
                    "color": ACCENT,
                    "linewidth": 0.8,
                    "shrinkA": 4,
                    "shrinkB": 4,
                    "mutation_scale": 7,
                },
                zorder=2,
            )
    xs, ys = zip(*points, strict=True)
    axes.plot(xs, ys, "o", color=ACCENT, markersize=6, markeredgecolor="white", markeredgewidth=0.8, zorder=3)


def _draw_words(new: Page, frame: Frame, roofs: Roofs, cublas: float, points: dict[str, Point]) -> None:
    """Roofs are named where their lines are, rungs beside their points; nothing on top of anything else."""
    ends = [frame.inches(*point) for point in points.values()]
    markers = [Box(x - MARKER, y - MARKER, x + MARKER, y + MARKER) for x, y in ends]
    strokes = np.concatenate(_strokes(frame, roofs, cublas, ends))
    named = [(words, frame.inches(*at), SMALL_PT, MUTED) for words, at in _roof_words(frame, roofs, cublas)]
    named += [
        (f"{name} {y:.{1 if y >= 10 else 2}f}", frame.inches(x, y), BODY_PT, INK) for name, (x, y) in points.items()
    ]
    # 1.05: a label's inked height with its descenders, in font sizes.
    sizes = [
        (max(text_width(line, pt) for line in words.split("\n")), line_height(pt, words.count("\n") + 1))
        for words, _, pt, _ in named
    ]
    boxes = place([at for _, at, _, _ in named], sizes, frame.box, markers, strokes)
    for (words, at, points_size, colour), label in zip(named, boxes, strict=True):
        near = label.nearest(at)
        if math.dist(near, at) > 0.17:
            _leader(new, at, near)
        middle = ((label.x0 + label.x1) / 2, (label.y0 + label.y1) / 2)
        new.text(*middle, words, points_size, color=colour, ha="center", va="center", linespacing=1.15, zorder=5)


def _leader(new: Page, start: Point, end: Point) -> None:
    from matplotlib.lines import Line2D

    figure = new.figure
    figure.add_artist(
        Line2D(
            [start[0], end[0]],
            [start[1], end[1]],
            color=MUTED,
            linewidth=0.5,
            transform=figure.dpi_scale_trans,
            zorder=2,
        )
    )


def _strokes(
    frame: Frame, roofs: Roofs, cublas: float, ends: list[Point]
) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """All lines of the chart, for words to keep off."""
    ceilings = [height for height in (roofs.fp32, roofs.fp32_peak, cublas) if height]
    lines = [stroke(frame.inches(_ridge(frame, roofs), h), frame.inches(frame.x[1], h)) for h in ceilings]
    lines += [
        stroke(frame.inches(frame.x[0], s * frame.x[0]), frame.inches(roofs.fp32 / s, roofs.fp32)) for s in roofs.slopes
    ]
    return lines + [stroke(a, b) for a, b in zip(ends, ends[1:], strict=False)]


def _roof_words(frame: Frame, roofs: Roofs, cublas: float) -> list[tuple[str, Point]]:
    """What each roof is called, and a point of its line."""
    paper = f", {roofs.fp32_peak:.1f} on paper (dashed)" if roofs.fp32_peak else ""
    words = [(f"FP32: {roofs.fp32:.1f} TFLOP/s measured{paper}", (frame.x[1] / 3.2, roofs.fp32_peak or roofs.fp32))]
    words.append((f"cuBLAS {cublas:.1f}\n(its tile is unknown)", (frame.x[1] / 1.4, cublas)))
    if roofs.l2:
        x = 1.7 * frame.x[0]
        words.append((f"L2 reads:\n{roofs.l2:.2f} TB/s measured", (x, roofs.l2 * x)))
    if roofs.copy:
        x = 1.25 * frame.x[0]
        on_paper = f",\n{roofs.memory_peak:.2f} on paper (dashed)" if roofs.memory_peak else ""
        words.append(
            (f"memory, if no byte came from L2:\n{roofs.copy:.2f} TB/s copy measured{on_paper}", (x, roofs.copy * x))
        )
    return words


def _finding(kernels: list[Measurement], points: dict[str, Point], roofs: Roofs) -> str:
    best = max(points, key=lambda name: points[name][1])
    share = 100 * points[best][1] / roofs.fp32
    if len(points) == 1:
        return f"{best} stands at {share:.0f} % of the measured FP32 ceiling"
    first = next(iter(points))
    return f"From {first} to {best}, the climb ends at {share:.0f} % of the measured FP32 ceiling"


def _subtitle(shape: Shape) -> str:
    return (
        f"C = A·B in FP32, {dimensions(shape)}. Each rung's TFLOP/s over its FLOP per byte, counted from the tile: each block brings "
        "its rows of A and its columns of B once from L2. Roofs: solid are measured, dashed are computed from the data sheet's clocks."
    )


def _alt(run: Run, shape: Shape, points: dict[str, Point], roofs: Roofs) -> str:
    parts = [f"{name} {y:.2f} TFLOP/s at {x:.1f} FLOP per byte" for name, (x, y) in points.items()]
    memory = [f"L2 {roofs.l2:.2f} TB/s"] * bool(roofs.l2) + [f"memory copy {roofs.copy:.2f} TB/s"] * bool(roofs.copy)
    return (
        f"Roofline chart, log-log, of FP32 matrix multiplication at {dimensions(shape)}. Measured roofs: "
        f"{', '.join([f'FP32 {roofs.fp32:.1f} TFLOP/s', *memory])}. {'; '.join(parts)}. Source: {run.label}."
    )
