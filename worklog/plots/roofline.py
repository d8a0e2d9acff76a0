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

from worklog.errors import NothingToDraw
from worklog.plots import figure
from worklog.plots.figure import ACCENT, BODY_PT, INK, MARGIN_IN, MUTED, PAPER, SMALL_PT, WIDTH_IN, Chart
from worklog.plots.page import Page, Point, beside, name_points, page, ticks
from worklog.plots.selection import Size, cublas_tflops, dimensions, intensity, measured, rate, rows, shape_to_draw
from worklog.runs import Run

BODY, LEFT, BELOW, ABOVE, RIGHT, GAP = 4.3, 0.62, 0.45, 0.08, 0.45, 0.09  # inches
NEXT = 0.2  # inches between two points, beyond which an arrow fits
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
    names = {f"{name} {rate(y)}": (x, y) for name, (x, y) in points.items()}
    mark = f"cuBLAS {rate(cublas)}, its tile is unknown"
    room = max(figure.text_width(mark, SMALL_PT), *(figure.text_width(name, BODY_PT) for name in names))
    axes = _axes(new, points, roofs, cublas, room)
    for (x0, y0), (x1, y1), dashes in _roof_lines(axes, roofs):
        axes.plot([x0, x1], [y0, y1], dashes, color=INK, linewidth=1.0, zorder=1.5)
    _name_roofs(axes, roofs)
    # The mark of cuBLAS is right of every rung, since its own place is unknown.
    ends = [2.2 * max(x for x, _ in points.values()), axes.get_xlim()[1]]
    axes.plot(ends, [cublas, cublas], color=MUTED, linewidth=2.5, solid_capstyle="butt", zorder=1)
    _draw_points(axes, list(points.values()))
    looks = {name: {"fontsize": BODY_PT} for name in names} | {mark: {"color": MUTED}}
    name_points(axes, names | {mark: (ends[1], cublas)}, looks)
    return new.figure


def _axes(new: Page, points: dict[str, Point], roofs: dict[str, float], cublas: float, room: float) -> Axes:
    """Log-log, with room left of the first point for words and right of the last, and at least a decade high; `room`
    inches right of it are for names."""
    left = MARGIN_IN + LEFT
    axes = new.axes(left, new.body_bottom + BELOW, WIDTH_IN - RIGHT - room - left, BODY - BELOW - ABOVE)
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


def _draw_points(axes: Axes, points: list[Point]) -> None:
    """The rungs with an arrow from each to the next where there is room."""
    inches = axes.transData - axes.figure.dpi_scale_trans
    arrow = {"arrowstyle": "-|>", "color": ACCENT, "linewidth": 0.8, "shrinkA": 4, "shrinkB": 4, "mutation_scale": 7}
    for start, end in pairwise(points):
        if math.dist(*inches.transform([start, end])) > NEXT:
            axes.annotate("", end, start, arrowprops=arrow, zorder=2)
    xs, ys = zip(*points, strict=True)
    axes.plot(xs, ys, "o", color=ACCENT, markersize=6, markeredgecolor=PAPER, markeredgewidth=0.8, zorder=3)


def _name_roofs(axes: Axes, roofs: dict[str, float]) -> None:
    """The ceiling's name above its left end, L2's above its line, and memory's below its line."""
    peak = f",\n{roofs['fp32_peak_tflops']:.1f} in theory (dashed)" if "fp32_peak_tflops" in roofs else ""
    top = roofs.get("fp32_peak_tflops", roofs["fp32_tflops"])
    left = min([top / roofs[name] for name in MEMORY if name in roofs], default=axes.get_xlim()[0])
    beside(
        axes, f"FP32: {roofs['fp32_tflops']:.1f} TFLOP/s measured{peak}", (left, top), 4, 4, va="bottom", color=MUTED
    )
    if "l2_gbs" in roofs:
        _name_line(axes, f"L2 reads:\n{roofs['l2_gbs']:.2f} TB/s measured", roofs["l2_gbs"], above=True)
    if "copy_gbs" in roofs:
        peak = f",\n{roofs['memory_peak_gbs']:.2f} in theory (dashed)" if "memory_peak_gbs" in roofs else ""
        words = f"memory, if no byte\ncame from L2 (copy):\n{roofs['copy_gbs']:.2f} TB/s measured{peak}"
        _name_line(axes, words, roofs["copy_gbs"], above=False)


def _name_line(axes: Axes, words: str, slope: float, *, above: bool) -> None:
    """Words left above a memory roof, or right below it, as near to the axes' lower left corner as they fit."""
    inches, corner = axes.transData - axes.figure.dpi_scale_trans, (axes.get_xlim()[0], axes.get_ylim()[0])
    lines = words.split("\n")
    size = max(figure.text_width(line, SMALL_PT) for line in lines), figure.line_height(SMALL_PT, len(lines))
    across, up = inches.inverted().transform(inches.transform(corner) + np.array(size) + GAP)
    x = max(across, corner[1] / slope) if above else max(corner[0], up / slope)
    beside(axes, words, (x, slope * x), *((-2, 2) if above else (4, -4)), va="bottom" if above else "top", color=MUTED)


def _finding(points: dict[str, Point], roofs: dict[str, float]) -> str:
    best = max(points, key=lambda name: points[name][1])
    share = 100 * points[best][1] / roofs["fp32_tflops"]
    if best == next(reversed(points)) and len(points) > 1:
        return f"From {next(iter(points))} to {best}, the climb ends at {share:.0f} % of the FP32 ceiling"
    return f"{best} stands highest, at {share:.0f} % of the FP32 ceiling"
