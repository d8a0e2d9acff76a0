"""The roofline: each rung's rate over the FLOP that it makes of each byte its blocks fetch, under the roofs of the GPU.

The intensity is counted from the tile in the run, not measured: each block brings its rows of A and its columns of B
once from L2. Where a cache closer to the threads serves some of them, a rung can be above a memory roof.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from worklog.errors import NothingToDraw
from worklog.plots.figure import ACCENT, BODY_PT, INK, MUTED, PAPER, SMALL_PT, line_height, styled
from worklog.plots.page import beside, leave_room, name_points, on_axes, scale, widest
from worklog.plots.selection import Size, cublas_tflops, dimensions, intensity, measured, rate, rows, shape_to_draw
from worklog.runs import Run

HEIGHT, LEFT, GAP = 3.77, 0.76, 0.09  # inches
ARROW = {"arrowstyle": "-|>", "color": ACCENT, "linewidth": 0.8, "shrinkA": 4, "shrinkB": 4, "mutation_scale": 7}
NEXT = 0.2  # inches between two points, beyond which an arrow fits


@styled()
def roofline(run: Run, size: Size | None = None, *, ax: Axes | None = None) -> Any:
    """Each rung at its counted intensity under measured (solid) and theoretical (dashed) roofs, log-log, at one size.
    Returns a Chart, or `ax`. Raises NothingToDraw where the run has no measured rung with a tile; BadSetting.
    """
    shape = shape_to_draw(run, size)
    fp32, fp32_peak = run.calibration.fp32_tflops, run.gpu.fp32_peak_tflops
    memory = run.calibration.l2_gbs, run.calibration.copy_gbs, run.gpu.memory_peak_gbs
    l2, copy, copy_peak = (gbs / 1e3 for gbs in memory)  # TB/s
    kernels = [m for m in rows(run, shape) if measured(m)]
    points = {m.kernel: (x, m.tflops or 0.0) for m in kernels if (x := intensity(run, m.kernel, shape))}
    if not points:
        raise NothingToDraw(f"no rung with a tile was measured at size {shape}: `worklog run --size {shape}`")
    best = max(points, key=lambda name: points[name][1])
    height = f"at {100 * points[best][1] / fp32:.0f} % of the FP32 ceiling"
    finding = f"{best} stands highest, {height}"
    if best == next(reversed(points)) and len(points) > 1:
        finding = f"From {next(iter(points))} to {best}, the climb ends {height}"
    subtitle = (
        f"C = A·B in FP32, {dimensions(shape)}. FLOP per byte are counted from the tile: each block brings its rows "
        "of A and its columns of B once from L2. Solid roofs: measured; dashed: computed from the highest clocks."
    )
    alt = [f"Roofline chart, log-log, of FP32 matrix multiplication at {dimensions(shape)}"]
    alt += [f"{name} {rate(y)} TFLOP/s at {x:.1f} FLOP per byte" for name, (x, y) in points.items()]
    roofs = f"FP32 {fp32:.1f} TFLOP/s", f"L2 {l2:.2f} TB/s", f"memory copy {copy:.2f} TB/s"
    alt += [f"measured roof: {roof}" for roof in roofs]

    def draw(axes: Axes) -> None:
        cublas, names = cublas_tflops(kernels), {f"{name} {rate(y)}": (x, y) for name, (x, y) in points.items()}
        mark = f"cuBLAS {rate(cublas)}, its tile is unknown"
        leave_room(axes, names, BODY_PT, [mark])
        # Room left of the first point for words and right of the last one, and at least a decade high.
        xs, ys = zip(*points.values(), strict=True)
        ridges = [fp32 / slope for slope in (l2, copy, copy_peak)]
        top = max(cublas, *ys, fp32, fp32_peak)
        first, last = min(*xs, *ridges, 8.0) / 4, max(*xs, *ridges, 16.0) * 4.5
        up = min(*ys, cublas, top / 10) / 1.7, top * 1.9
        per_byte = "FLOP per byte that blocks fetch from L2, counted from the tile"
        scale(axes.xaxis, LogLocator(2, numticks=99), per_byte, (first, last), log=10)
        scale(axes.yaxis, LogLocator(10, (1, 2, 5), numticks=99), "TFLOP/s", up, log=10)
        axes.grid(True, zorder=0)
        # Memory roofs up to the ceiling of their kind, and the ceilings from the first ridge on.
        for slope, ceiling, dashes in ((l2, fp32, "-"), (copy, fp32, "-"), (copy_peak, fp32_peak, "--")):
            ends = [slope * first, ceiling]
            axes.plot([first, ceiling / slope], ends, dashes, color=INK, linewidth=1.0, zorder=1.5)
        for ceiling, dashes in ((fp32, "-"), (fp32_peak, "--")):
            ridge = max(ceiling / max(l2, copy, copy_peak), first)
            axes.plot([ridge, last], [ceiling, ceiling], dashes, color=INK, linewidth=1.0, zorder=1.5)
        words = f"FP32: {fp32:.1f} TFLOP/s measured,\n{fp32_peak:.1f} in theory (dashed)"
        beside(axes, words, (fp32_peak / max(l2, copy, copy_peak), fp32_peak), 4, 4, va="bottom", color=MUTED)
        _name_roof(axes, f"L2 reads:\n{l2:.2f} TB/s measured", l2, above=True)
        words = f"memory, if no byte\ncame from L2 (copy):\n{copy:.2f} TB/s measured"
        _name_roof(axes, f"{words},\n{copy_peak:.2f} in theory (dashed)", copy, above=False)
        # The mark of cuBLAS is right of every rung, since its own place is unknown.
        axes.plot([2.2 * max(xs), last], [cublas, cublas], color=MUTED, linewidth=2.5, solid_capstyle="butt", zorder=1)
        inches = axes.transData - axes.figure.dpi_scale_trans
        for start, end in pairwise(points.values()):
            if math.dist(*inches.transform([start, end])) > NEXT:
                axes.annotate("", end, start, arrowprops=ARROW, zorder=2)
        axes.plot(xs, ys, "o", color=ACCENT, markersize=6, markeredgecolor=PAPER, markeredgewidth=0.8, zorder=3)
        looks = {name: {"fontsize": BODY_PT} for name in names} | {mark: {"color": MUTED}}
        name_points(axes, names | {mark: (last, cublas)}, looks)

    footer = [run.full_label]
    return on_axes(ax, draw, "roofline", finding, subtitle, footer, alt, HEIGHT, LEFT, above=0.08, below=0.45)


def _name_roof(axes: Axes, words: str, slope: float, *, above: bool) -> None:
    """Words left above a memory roof, or right below it, as near to the axes' lower left corner as they fit."""
    lines, corner = words.split("\n"), (axes.get_xlim()[0], axes.get_ylim()[0])
    inches = axes.transData - axes.figure.dpi_scale_trans
    size = widest(lines, SMALL_PT), line_height(SMALL_PT, len(lines))
    across, up = inches.inverted().transform(inches.transform(corner) + np.array(size) + GAP)
    x = max(across, corner[1] / slope) if above else max(corner[0], up / slope)
    beside(axes, words, (x, slope * x), *((-2, 2) if above else (4, -4)), va="bottom" if above else "top", color=MUTED)
