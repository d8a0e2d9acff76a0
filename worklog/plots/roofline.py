"""The roofline: each rung's rate over the FLOP that it makes of each byte its blocks fetch, under the roofs of the GPU.

The intensity is counted from the tile in the run, not measured: each block brings its rows of A and its columns of B
once from L2. Where a cache closer to the threads serves some of them, a rung can be above a memory roof.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator
from matplotlib.transforms import Bbox

from worklog.errors import NothingToDraw
from worklog.plots import figure
from worklog.plots.figure import ACCENT, BODY_PT, INK, MARGIN_IN, MUTED, PAPER, SMALL_PT, WIDTH_IN, Chart
from worklog.plots.page import FAR, Page, Point, nearest, page, place, stroke, ticks
from worklog.plots.selection import Size, cublas_tflops, dimensions, intensity, measured, rate, rows, shape_to_draw
from worklog.runs.run import Run

BODY, LEFT, BELOW, ABOVE, RIGHT = 4.3, 0.62, 0.45, 0.08, 0.2  # inches
MARKER = 0.05  # half of a marker, inches
# The roofs as a run names them, with their line: solid where measured, dashed where computed from the highest clocks.
CEILINGS = {"fp32_tflops": "-", "fp32_peak_tflops": "--"}
MEMORY = {"l2_gbs": "-", "copy_gbs": "-", "memory_peak_gbs": "--"}
Line = tuple[Point, Point, str]


@figure.styled()
def roofline(run: Run, size: Size | None = None) -> Chart:
    """Each rung at its counted intensity under measured (solid) and theoretical (dashed) roofs, log-log, at one size.

    Raises NothingToDraw where the run has no ceiling, or no measured rung with a tile; BadShape.
    """
    shape = shape_to_draw(run, size)
    known = run.calibration | run.device
    if not known.get("fp32_tflops"):
        raise NothingToDraw("the run has no measured FP32 ceiling: measure again with `worklog run`")
    # TFLOP/s and TB/s
    roofs = {name: known[name] / (1e3 if name in MEMORY else 1.0) for name in (*CEILINGS, *MEMORY) if known.get(name)}
    kernels = [m for m in rows(run, shape) if measured(m)]
    points = {m.kernel: (x, m.tflops or 0.0) for m in kernels if (x := intensity(run, m.kernel, shape))}
    if not points:
        raise NothingToDraw(f"no rung with a tile was measured at size {shape}: `worklog run --size {shape}`")
    subtitle = (
        f"C = A·B in FP32, {dimensions(shape)}. FLOP per byte are counted from the tile: each block brings its rows "
        "of A and its columns of B once from L2. Solid roofs: measured; dashed: computed from the highest clocks."
    )
    alt = [f"Roofline chart, log-log, of FP32 matrix multiplication at {dimensions(shape)}"]
    alt += [f"{name} {rate(y)} TFLOP/s at {x:.1f} FLOP per byte" for name, (x, y) in points.items()]
    words = {"fp32_tflops": "FP32 {:.1f} TFLOP/s", "l2_gbs": "L2 {:.2f} TB/s", "copy_gbs": "memory copy {:.2f} TB/s"}
    alt += [f"measured roof: {word.format(roofs[name])}" for name, word in words.items() if name in roofs]
    new = page("roofline", _finding(points, roofs), subtitle, [run.full_label], alt, BODY)
    cublas = cublas_tflops(kernels)
    axes = _axes(new, points, roofs, cublas)
    lines = _roof_lines(axes, roofs)
    for (x0, y0), (x1, y1), dashes in lines:
        axes.plot([x0, x1], [y0, y1], dashes, color=INK, linewidth=1.0, zorder=1.5)
    # The mark of cuBLAS is right of every rung, since its own place is unknown.
    mark = [2.2 * max(x for x, _ in points.values()), axes.get_xlim()[1]]
    axes.plot(mark, [cublas, cublas], color=MUTED, linewidth=2.5, solid_capstyle="butt", zorder=1)
    lines.append(((mark[0], cublas), (mark[1], cublas), "-"))
    roof_words = _roof_words(axes, roofs)
    roof_words[f"cuBLAS {rate(cublas)}\n(its tile is unknown)"] = math.sqrt(mark[0] * mark[1]), cublas
    _draw_points(new, axes, lines, points, roof_words)
    return new.figure


def _axes(new: Page, points: dict[str, Point], roofs: dict[str, float], cublas: float) -> Axes:
    """Log-log, with room left of the first point and right of the last for words, and at least a decade high."""
    left = MARGIN_IN + LEFT
    axes = new.axes(left, new.body_bottom + BELOW, WIDTH_IN - RIGHT - left, BODY - BELOW - ABOVE)
    xs, ys = zip(*points.values(), strict=True)
    ridges = [roofs["fp32_tflops"] / roofs[name] for name in MEMORY if name in roofs]
    top = max(cublas, *ys, *(roofs[name] for name in CEILINGS if name in roofs))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(min(*xs, *ridges, 8.0) / 4, max(*xs, *ridges, 16.0) * 4.5)
    axes.set_ylim(min(*ys, cublas, top / 10) / 1.7, top * 1.9)
    ticks(axes.xaxis, LogLocator(2, numticks=99))
    ticks(axes.yaxis, LogLocator(10, (1, 2, 5), numticks=99))
    axes.grid(True, zorder=0)
    axes.set_xlabel("FLOP per byte that blocks fetch from L2, counted from the tile")
    axes.set_ylabel("TFLOP/s")
    return axes


def _roof_lines(axes: Axes, roofs: dict[str, float]) -> list[Line]:
    """Every roof from end to end, in data, and its line style: memory roofs end where they meet a ceiling."""
    first, last = axes.get_xlim()
    tops = {dashes: roofs.get(name, roofs["fp32_tflops"]) for name, dashes in CEILINGS.items()}
    memory = [(roofs[name], tops[dashes], dashes) for name, dashes in MEMORY.items() if name in roofs]
    lines = [((first, slope * first), (top / slope, top), dashes) for slope, top, dashes in memory]
    steepest = max((slope for slope, _, _ in memory), default=math.inf)
    ceilings = [(roofs[name], dashes) for name, dashes in CEILINGS.items() if name in roofs]
    return lines + [((max(top / steepest, first), top), (last, top), dashes) for top, dashes in ceilings]


def _draw_points(
    new: Page, axes: Axes, lines: list[Line], points: dict[str, Point], roof_words: dict[str, Point]
) -> None:
    """The rungs with an arrow from each to the next where there is room, named beside their points, and the roofs at
    their lines; nothing on top of anything else."""
    inches = axes.transData - axes.figure.dpi_scale_trans
    ends = [tuple(inches.transform(point)) for point in points.values()]
    arrow = {"arrowstyle": "-|>", "color": ACCENT, "linewidth": 0.8, "shrinkA": 4, "shrinkB": 4, "mutation_scale": 7}
    for (start, end), places in zip(pairwise(points.values()), pairwise(ends), strict=True):
        if math.dist(*places) > 4 * MARKER:
            axes.annotate("", end, start, arrowprops=arrow, zorder=2)
    xs, ys = zip(*points.values(), strict=True)
    axes.plot(xs, ys, "o", color=ACCENT, markersize=6, markeredgecolor=PAPER, markeredgewidth=0.8, zorder=3)
    drawn = [tuple(inches.transform([start, end])) for start, end, _ in lines]
    strokes = np.concatenate([stroke(*segment) for segment in [*drawn, *pairwise(ends)]])
    markers = [Bbox([end, end]).padded(MARKER) for end in ends]
    words = [(text, tuple(inches.transform(at)), SMALL_PT, MUTED) for text, at in roof_words.items()]
    words += [(f"{name} {rate(points[name][1])}", at, BODY_PT, INK) for name, at in zip(points, ends, strict=True)]
    sizes = [figure.block_size(text, size) for text, _, size, _ in words]
    bounds = Bbox(axes.bbox.get_points() / axes.figure.dpi).padded(-0.06)
    boxes = place([at for _, at, _, _ in words], sizes, bounds, markers, strokes)
    for (text, at, size, colour), box in zip(words, boxes, strict=True):
        away = math.dist(nearest(box, at), at)
        if away > FAR or any(math.dist(nearest(box, end), end) < away for end in ends):  # or it seems another's name
            new.line(at, nearest(box.padded(0.02), at), color=MUTED, linewidth=0.5, zorder=2)
        centre = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
        new.text(*centre, text, size, color=colour, ha="center", va="center", linespacing=1.15, zorder=5)


def _roof_words(axes: Axes, roofs: dict[str, float]) -> dict[str, Point]:
    """What each roof is called, and a point of its line."""
    first, last = axes.get_xlim()
    fp32, l2, copy = roofs["fp32_tflops"], roofs.get("l2_gbs"), roofs.get("copy_gbs")
    fp32_peak, memory_peak = roofs.get("fp32_peak_tflops"), roofs.get("memory_peak_gbs")
    peak = f", {fp32_peak:.1f} in theory (dashed)" if fp32_peak else ""
    words = {f"FP32: {fp32:.1f} TFLOP/s measured{peak}": (last / 3.2, fp32_peak or fp32)}
    if l2:
        words[f"L2 reads:\n{l2:.2f} TB/s measured"] = 1.7 * first, l2 * 1.7 * first
    if copy:
        peak = f",\n{memory_peak:.2f} in theory (dashed)" if memory_peak else ""
        words[f"memory, if no byte came from L2:\n{copy:.2f} TB/s copy measured{peak}"] = (
            1.25 * first,
            copy * 1.25 * first,
        )
    return words


def _finding(points: dict[str, Point], roofs: dict[str, float]) -> str:
    best = max(points, key=lambda name: points[name][1])
    share = 100 * points[best][1] / roofs["fp32_tflops"]
    if best == next(reversed(points)) and len(points) > 1:
        return f"From {next(iter(points))} to {best}, the climb ends at {share:.0f} % of the FP32 ceiling"
    return f"{best} stands highest, at {share:.0f} % of the FP32 ceiling"
