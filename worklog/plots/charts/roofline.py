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
from worklog.plots.figure import ACCENT, BODY_PT, INK, MUTED, PAPER, SMALL_PT
from worklog.plots.page import Sketch, beside, leave_room, name_points, on_axes, scale, widest
from worklog.plots.selection import Size, cublas_tflops, dimensions, intensity, measured, rate, rows, shape_to_draw
from worklog.runs import Run

HEIGHT, LEFT, GAP = 3.77, 0.76, 0.09  # inches
ARROW = {"arrowstyle": "-|>", "color": ACCENT, "linewidth": 0.8, "shrinkA": 4, "shrinkB": 4, "mutation_scale": 7}
NEXT = 0.2  # inches between two points, beyond which an arrow fits
# The roofs as a run names them, with their line: solid where measured, dashed where computed from the highest clocks.
CEILINGS = {"fp32_tflops": "-", "fp32_peak_tflops": "--"}
MEMORY = {"l2_gbs": "-", "copy_gbs": "-", "memory_peak_gbs": "--"}
WORDS = {"fp32_tflops": "FP32 {:.1f} TFLOP/s", "l2_gbs": "L2 {:.2f} TB/s", "copy_gbs": "memory copy {:.2f} TB/s"}


@on_axes
def roofline(run: Run, size: Size | None = None) -> Sketch:
    """Each rung at its counted intensity under measured (solid) and theoretical (dashed) roofs, log-log, at one size.
    Raises NothingToDraw where the run has no ceiling, or no measured rung with a tile; BadSetting.
    """
    shape = shape_to_draw(run, size)
    gpu, measured_here = run.gpu, run.calibration
    ceilings = {"fp32_tflops": measured_here.fp32_tflops, "fp32_peak_tflops": gpu.fp32_peak_tflops}
    memory = {"l2_gbs": measured_here.l2_gbs / 1e3, "copy_gbs": measured_here.copy_gbs / 1e3}  # TB/s
    memory["memory_peak_gbs"] = gpu.memory_peak_gbs / 1e3
    kernels = [m for m in rows(run, shape) if measured(m)]
    points = {m.kernel: (x, m.tflops or 0.0) for m in kernels if (x := intensity(run, m.kernel, shape))}
    if not points:
        raise NothingToDraw(f"no rung with a tile was measured at size {shape}: `worklog run --size {shape}`")
    best = max(points, key=lambda name: points[name][1])
    height = f"at {100 * points[best][1] / ceilings['fp32_tflops']:.0f} % of the FP32 ceiling"
    finding = f"{best} stands highest, {height}"
    if best == next(reversed(points)) and len(points) > 1:
        finding = f"From {next(iter(points))} to {best}, the climb ends {height}"
    subtitle = (
        f"C = A·B in FP32, {dimensions(shape)}. FLOP per byte are counted from the tile: each block brings its rows "
        "of A and its columns of B once from L2. Solid roofs: measured; dashed: computed from the highest clocks."
    )
    alt = [f"Roofline chart, log-log, of FP32 matrix multiplication at {dimensions(shape)}"]
    alt += [f"{name} {rate(y)} TFLOP/s at {x:.1f} FLOP per byte" for name, (x, y) in points.items()]
    alt += [f"measured roof: {WORDS[name].format(roof)}" for name, roof in (ceilings | memory).items() if name in WORDS]

    def draw(axes: Axes) -> None:
        cublas, names = cublas_tflops(kernels), {f"{name} {rate(y)}": (x, y) for name, (x, y) in points.items()}
        mark = f"cuBLAS {rate(cublas)}, its tile is unknown"
        leave_room(axes, names, BODY_PT, [mark])
        # Room left of the first point for words and right of the last one, and at least a decade high.
        xs, ys = zip(*points.values(), strict=True)
        ridges = [ceilings["fp32_tflops"] / slope for slope in memory.values()]
        top = max(cublas, *ys, *ceilings.values())
        across = min(*xs, *ridges, 8.0) / 4, max(*xs, *ridges, 16.0) * 4.5
        up = min(*ys, cublas, top / 10) / 1.7, top * 1.9
        per_byte = "FLOP per byte that blocks fetch from L2, counted from the tile"
        scale(axes.xaxis, LogLocator(2, numticks=99), per_byte, across, log=10)
        scale(axes.yaxis, LogLocator(10, (1, 2, 5), numticks=99), "TFLOP/s", up, log=10)
        axes.grid(True, zorder=0)
        _draw_roofs(axes, ceilings, memory)
        # The mark of cuBLAS is right of every rung, since its own place is unknown.
        ends = [2.2 * max(xs), across[1]]
        axes.plot(ends, [cublas, cublas], color=MUTED, linewidth=2.5, solid_capstyle="butt", zorder=1)
        inches = axes.transData - axes.figure.dpi_scale_trans
        for start, end in pairwise(points.values()):
            if math.dist(*inches.transform([start, end])) > NEXT:
                axes.annotate("", end, start, arrowprops=ARROW, zorder=2)
        axes.plot(xs, ys, "o", color=ACCENT, markersize=6, markeredgecolor=PAPER, markeredgewidth=0.8, zorder=3)
        looks = {name: {"fontsize": BODY_PT} for name in names} | {mark: {"color": MUTED}}
        name_points(axes, names | {mark: (ends[1], cublas)}, looks)

    return Sketch("roofline", finding, subtitle, [run.full_label], alt, draw, HEIGHT, LEFT, above=0.08, below=0.45)


def _draw_roofs(axes: Axes, ceilings: dict[str, float], memory: dict[str, float]) -> None:
    """Memory roofs up to the ceiling of their kind, and the ceilings from the first ridge on, with their names."""
    (first, last), fp32 = axes.get_xlim(), ceilings["fp32_tflops"]
    tops = {dashes: ceilings.get(name, fp32) for name, dashes in CEILINGS.items()}
    steepest = max(memory.values(), default=math.inf)
    for name, slope in memory.items():
        top = tops[MEMORY[name]]
        axes.plot([first, top / slope], [slope * first, top], MEMORY[name], color=INK, linewidth=1.0, zorder=1.5)
    for name, top in ceilings.items():
        start = max(top / steepest, first)
        axes.plot([start, last], [top, top], CEILINGS[name], color=INK, linewidth=1.0, zorder=1.5)
    top = tops["--"]
    peak = f",\n{top:.1f} in theory (dashed)" if "fp32_peak_tflops" in ceilings else ""
    words = f"FP32: {fp32:.1f} TFLOP/s measured{peak}"
    beside(axes, words, (top / steepest if memory else first, top), 4, 4, va="bottom", color=MUTED)
    if "l2_gbs" in memory:
        _name_roof(axes, f"L2 reads:\n{memory['l2_gbs']:.2f} TB/s measured", memory["l2_gbs"], above=True)
    if "copy_gbs" in memory:
        peak = f",\n{memory['memory_peak_gbs']:.2f} in theory (dashed)" if "memory_peak_gbs" in memory else ""
        words = f"memory, if no byte\ncame from L2 (copy):\n{memory['copy_gbs']:.2f} TB/s measured{peak}"
        _name_roof(axes, words, memory["copy_gbs"], above=False)


def _name_roof(axes: Axes, words: str, slope: float, *, above: bool) -> None:
    """Words left above a memory roof, or right below it, as near to the axes' lower left corner as they fit."""
    lines, corner = words.split("\n"), (axes.get_xlim()[0], axes.get_ylim()[0])
    inches = axes.transData - axes.figure.dpi_scale_trans
    size = widest(lines, SMALL_PT), figure.line_height(SMALL_PT, len(lines))
    across, up = inches.inverted().transform(inches.transform(corner) + np.array(size) + GAP)
    x = max(across, corner[1] / slope) if above else max(corner[0], up / slope)
    beside(axes, words, (x, slope * x), *((-2, 2) if above else (4, -4)), va="bottom" if above else "top", color=MUTED)
