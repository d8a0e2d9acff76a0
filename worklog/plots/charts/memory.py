"""Memory traffic: sectors and wavefronts as counted on the emulator, FLOP per byte by level, and
the roofline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator

from worklog.errors import NothingToDraw
from worklog.kernel import SECTOR, LadderCounts, MemoryCounts, moved_from_l2
from worklog.kernel import memory_counts as shipped
from worklog.plots import figure, style
from worklog.plots.figure import Chart, Point, annotate, name_rows, on_axes, right_of, scale
from worklog.plots.selection import (
    cublas_tflops,
    dimensions,
    intensity,
    measured,
    rate,
    rows,
    shape_to_draw,
)
from worklog.plots.style import ACCENT, ALERT, BODY_PT, FAINT, INK, MUTED, PAPER, WIDTH_IN
from worklog.problem import FLOAT_BYTES, Shape, Size
from worklog.runs import Measurement, Run

if TYPE_CHECKING:
    from worklog.plots.figure import OnAxes

# inches
ROW = 0.3
BAR = 0.2
ABOVE = 0.3
BELOW = 0.4
GAP = 0.25
RIGHT = 0.15
LABEL_ROOM = 1.0  # inches right of the longest bar
FLOAT4 = 16


@style.chart
def traffic(counted: LadderCounts | None = None) -> Chart:
    """Draw each rung's global sectors and shared-memory wavefronts per multiply-add.

    A multiply-add is an instruction of a warp. Sectors are dots on a log scale, with the sectors
    per load. Wavefronts are bars. Raises WorklogError if the counts that come with the package are
    missing.

    counted: the counts to draw (default: those that come with the package)
    """
    counted = counted or shipped()
    rungs = counted.rungs
    dot_texts = {name: _dot_text(rung) for name, rung in rungs.items()}
    bar_texts = {name: _bar_text(rung) for name, rung in rungs.items()}
    first = next(iter(rungs))
    last = [*rungs][-1]
    reduction = rungs[first].sectors_per_fma / rungs[last].sectors_per_fma
    subtitle = (
        f"C = A·B in FP32, {dimensions(counted.shape)}. A multiply-add is one instruction of a warp. A sector has 32 "
        "bytes: 4 hold 32 neighbouring floats, 16 hold 32 float4. Hatched: passes that bank conflicts add."
    )
    alt = [
        "Memory traffic by rung: global sectors per warp multiply-add and per load; shared wavefronts"
    ]
    alt += [f"{name} {dot_texts[name]}; {bar_texts[name]}" for name in rungs]
    height = ROW * len(rungs)
    chart = figure.page(
        "traffic",
        f"From {first} to {last}, the same work takes {reduction:.0f} times less global traffic",
        subtitle,
        [counted.label],
        alt,
        ABOVE + height + BELOW,
    )
    left = right_of(rungs)
    bottom = chart.body_bottom + BELOW
    width = (WIDTH_IN - left - GAP - RIGHT) / 2
    dots = chart.axes_at(left, bottom, width, height)
    bars = chart.axes_at(left + width + GAP, bottom, width, height)
    for axes, memory in ((dots, "global memory"), (bars, "shared memory")):
        annotate(
            axes,
            memory,
            (0, 1),
            1,
            4,
            xycoords="axes fraction",
            va="bottom",
            fontsize=BODY_PT,
            weight="bold",
        )
    data_share = 1 - LABEL_ROOM / width  # of an axis; the rest is kept for texts
    lowest = _sector_axis(dots, rungs, data_share)
    _wavefront_axis(bars, rungs, data_share)
    name_rows(bars, [""] * len(rungs), ROW)
    for row_y, (name, rung) in zip(name_rows(dots, list(rungs), ROW), rungs.items(), strict=True):
        _draw_dot(dots, rung, row_y, lowest)
        annotate(dots, dot_texts[name], (rung.sectors_per_fma, row_y), 6)
        _draw_bar(bars, rung, row_y)
        annotate(bars, bar_texts[name], (rung.wavefronts_per_fma, row_y), 6)
    return chart


def _dot_text(rung: MemoryCounts) -> str:
    """Return a rung's sectors per multiply-add and per load."""
    text = f"{rung.sectors_per_fma:.2g} · {rung.sectors_per_request:.1f} per load"
    return f"{text} (float4)" if rung.load_width == FLOAT4 else text


def _bar_text(rung: MemoryCounts) -> str:
    """Return a rung's wavefronts per multiply-add, and the share that bank conflicts add."""
    if not rung.wavefronts:
        return "no shared memory"
    text = f"{rung.wavefronts_per_fma:.2f}"
    if rung.conflict_share:
        text += f" · {100 * rung.conflict_share:.0f} % conflicts"
    return text


def _sector_axis(axes: Axes, rungs: Mapping[str, MemoryCounts], data_share: float) -> float:
    """Prepare the log axis of sectors; return its lower end."""
    sectors = [rung.sectors_per_fma for rung in rungs.values()]
    lowest = min(sectors) / 1.5
    highest = max(sectors) * 1.5
    limits = lowest, lowest * (highest / lowest) ** (1 / data_share)
    decades = [10.0**power for power in range(-3, 6)]
    ticks = [tick for tick in decades if lowest <= tick <= highest]
    scale(axes.xaxis, ticks, "sectors for each multiply-add, log scale", limits, log=10)
    return lowest


def _wavefront_axis(axes: Axes, rungs: Mapping[str, MemoryCounts], data_share: float) -> None:
    """Prepare the axis of wavefronts, which starts at 0."""
    highest = max(rung.wavefronts_per_fma for rung in rungs.values()) or 1.0
    ticks = [tick for tick in MaxNLocator(4).tick_values(0, highest) if tick <= 1.1 * highest]
    label = "passes (wavefronts) for each multiply-add"
    scale(axes.xaxis, ticks, label, (0, highest / data_share))


def _draw_dot(axes: Axes, rung: MemoryCounts, row_y: float, lowest: float) -> None:
    """Draw a dot and a line to it from the lower end: a bar has no length on a log scale."""
    axes.plot(
        [lowest, rung.sectors_per_fma], [row_y, row_y], color=FAINT, linewidth=1.0, zorder=0.5
    )
    axes.plot([rung.sectors_per_fma], [row_y], "o", color=ACCENT, markersize=5)


def _draw_bar(axes: Axes, rung: MemoryCounts, row_y: float) -> None:
    """Draw a bar, hatched at its end where bank conflicts add passes.

    The hatching shows in grey also.
    """
    passes = rung.wavefronts_per_fma
    added = passes * rung.conflict_share
    axes.barh(row_y, passes, BAR, color=ACCENT)
    axes.barh(
        row_y, added, BAR, passes - added, color=ALERT, edgecolor=PAPER, hatch="////", linewidth=0
    )


def levels_of(run: Run) -> dict[str, dict[str, float]]:
    """Return FLOP per byte by rung and level, in the ladder's order.

    A rung must be counted and have a tile in the run. The bytes of a level are:

    threads: what each thread requests for itself
    sectors: the 32-byte sectors that these requests need
    blocks: what blocks fetch if each fetches its rows of A and columns of B once
    compulsory: A, B and C, each once
    """
    counted = shipped()
    shape = counted.shape
    levels = {}
    for name, counts in counted.rungs.items():
        blocks = intensity(run, name, shape)
        if not blocks:
            continue
        requested_bytes = counts.load_bytes + FLOAT_BYTES * shape.m * shape.n
        sector_bytes = SECTOR * (counts.load_sectors + counts.store_sectors)
        levels[name] = {
            "threads": shape.flops / requested_bytes,
            "sectors": shape.flops / sector_bytes,
            "blocks": blocks,
            "compulsory": shape.flops / shape.compulsory_bytes,
        }
    return levels


# inches; the part of the width that has the roofs
HEIGHT = 3.77
LEFT = 0.76
BETWEEN = 0.42
ROOFS = 0.55
ARROW = {
    "arrowstyle": "-|>",
    "color": ACCENT,
    "linewidth": 0.8,
    "shrinkA": 4,
    "shrinkB": 4,
    "mutation_scale": 7,
}
MARKER: Any = {"markersize": 5, "markeredgewidth": 0.8, "zorder": 4}
NEXT = 0.2  # inches between two points, beyond which an arrow fits
LARGE = 0.6  # of the highest intensity: rungs above it are close to each other, and drawn again


class Rungs(NamedTuple):
    """The rungs' points in the roofline, and the origin of their bytes."""

    points: dict[str, Point]  # by kernel: FLOP per byte and TFLOP/s
    axis_label: str
    method: str  # how the bytes were counted, for the subtitle
    source: str = ""  # for the footer, if they were measured


class Roofs(NamedTuple):
    """The roofs of the roofline: measured rates, and a theoretical one."""

    fp32: float  # TFLOP/s
    fp32_peak: float  # TFLOP/s, in theory
    l2: float  # TB/s


@style.chart
def roofline(run: Run, size: Size | None = None, *, ax: OnAxes | None = None) -> OnAxes:
    """Draw each rung at its intensity under the roofs of FP32 and L2, at one size.

    Both axes are logarithmic. The roofs are the measured ones (solid) and FP32's theoretical one
    (dashed). On the right, the rungs with the largest tiles are enlarged. Bytes are those that
    Nsight Compute counted, if each rung's are recorded, else those of the tile. Measurements on
    another card than the run's aren't shown. Returns a Chart, or `ax`. Raises NothingToDraw if the
    run has no measured rung with a tile, and BadSetting for a size that can't be.
    """
    run = run.by_card()[0]
    shape = shape_to_draw(run, size)
    roofs = Roofs(
        run.calibration.fp32_tflops, run.gpu.fp32_peak_tflops, run.calibration.l2_gbs / 1e3
    )
    kernels = [m for m in rows(run, shape) if measured(m)]
    rungs = _rungs(run, shape, kernels)
    cublas = cublas_tflops(kernels)
    cublas_name = f"cuBLAS {rate(cublas)}"
    alt = [f"Roofline chart, log-log, of FP32 matrix multiplication at {dimensions(shape)}"]
    alt += [
        f"{name} {rate(tflops)} TFLOP/s at {flop_per_byte:.1f} FLOP per byte"
        for name, (flop_per_byte, tflops) in rungs.points.items()
    ]
    alt.append(f"cuBLAS {rate(cublas)} TFLOP/s")
    alt.append(f"measured roofs: FP32 {roofs.fp32:.1f} TFLOP/s, L2 {roofs.l2:.2f} TB/s")
    labelled = {f"{name} {rate(point[1])}": point for name, point in rungs.points.items()}
    highest = max(point[0] for point in labelled.values())
    large = {name: point for name, point in labelled.items() if point[0] > LARGE * highest}
    small = {name: point for name, point in labelled.items() if name not in large}
    looks: dict[str, dict[str, Any]] = {name: {"fontsize": BODY_PT} for name in labelled}
    looks[cublas_name] = {"color": MUTED}

    def draw(axes: Axes) -> None:
        place = axes.get_position()
        width = axes.bbox.width / axes.figure.dpi
        axes.set_position((place.x0, place.y0, ROOFS * place.width, place.height))
        _draw_roofs(axes, rungs, roofs, cublas)
        _draw_climb(axes, rungs.points)
        figure.name_points(axes, small, looks)
        # The rungs with the largest tiles again, as high as the whole.
        left = place.x0 + (ROOFS + BETWEEN / width) * place.width
        zoom = axes.figure.add_axes((left, place.y0, place.x1 - left, place.height))
        zoom_names = dict(large)
        if _draw_enlarged(zoom, large, cublas):
            zoom_names[cublas_name] = max(point[0] for point in large.values()), cublas
        _draw_climb(zoom, large)
        figure.name_points(zoom, zoom_names, looks)

    return on_axes(
        ax,
        draw,
        "roofline",
        _roofline_finding(rungs.points, roofs.fp32),
        f"C = A·B in FP32, {dimensions(shape)}. FLOP per byte are {rungs.method}. Solid roofs: measured; dashed: "
        "computed from the highest clocks. Right: the rungs with most FLOP per byte, enlarged.",
        [*filter(None, [run.full_label, rungs.source])],
        alt,
        height=HEIGHT,
        left=LEFT,
        above=0.12,
        below=0.45,
    )


def _rungs(run: Run, shape: Shape, kernels: Sequence[Measurement]) -> Rungs:
    """Return the rungs' points, from counted bytes if all are known, else from tiles.

    Raises NothingToDraw if no kernel has a tile.
    """
    points = dict[str, Point]()
    for m in kernels:
        by_tile = intensity(run, m.kernel, shape)
        if by_tile:
            points[m.kernel] = by_tile, m.tflops or 0.0
    if not points:
        raise NothingToDraw(
            f"no rung with a tile was measured at size {shape}: `worklog run --size {shape}`"
        )
    moved, label = moved_from_l2(shape)
    own_bytes = {
        counter.kernel: int(counter.values[counter.L2])
        for counter in run.counters
        if Shape(*counter.shape) == shape
    }
    if own_bytes:
        moved = moved | own_bytes
        own_label = f"bytes of {', '.join(own_bytes)}: this run's counters"
        label = f"{label}; {own_label}" if label else own_label
    if not points.keys() <= moved.keys():
        return Rungs(
            points,
            "FLOP per byte that blocks fetch from L2, from the tile",
            "counted from the tile: each block brings its rows of A and its columns of B once from L2",
        )
    return Rungs(
        {name: (shape.flops / moved[name], tflops) for name, (_, tflops) in points.items()},
        "FLOP per byte between L2 and L1, by counters",
        "by what Nsight Compute counted between L2 and L1",
        label,
    )


def _roofline_finding(points: dict[str, Point], fp32_tflops: float) -> str:
    """Return the rung with the highest rate, as a share of the FP32 ceiling."""
    best = max(points, key=lambda name: points[name][1])
    height = f"at {100 * points[best][1] / fp32_tflops:.0f} % of the FP32 ceiling"
    if best == next(reversed(points)) and len(points) > 1:
        return f"From {next(iter(points))} to {best}, the climb ends {height}"
    return f"{best} stands highest, {height}"


def _draw_roofs(axes: Axes, rungs: Rungs, roofs: Roofs, cublas: float) -> None:
    """Prepare the axes for all rungs, and draw the roofs and cuBLAS's rate in TFLOP/s."""
    fp32, fp32_peak, l2 = roofs
    xs, ys = zip(*rungs.points.values(), strict=True)
    top = max(cublas, *ys, fp32, fp32_peak)
    ridge = fp32 / l2
    left = min(*xs, ridge) / 3
    right = max(*xs, ridge) * 5
    scale(axes.xaxis, LogLocator(2), rungs.axis_label, (left, right), log=10)
    limits = min(*ys, cublas, top / 10) / 1.7, top * 1.6
    scale(axes.yaxis, LogLocator(10, (1, 2, 5)), "TFLOP/s", limits, log=10)
    axes.grid(True, zorder=0)
    line: Any = {"color": INK, "linewidth": 1.0, "zorder": 1.5}
    axes.plot([left, ridge, right], [l2 * left, fp32, fp32], "-", **line)
    axes.plot([fp32_peak / l2, right], [fp32_peak, fp32_peak], "--", **line)
    text = f"FP32: {fp32:.1f} measured,\n{fp32_peak:.1f} in theory (dashed)"
    annotate(axes, text, (right, top), -2, 4, va="bottom", color=MUTED)
    annotate(axes, f"L2 reads:\n{l2:.2f} TB/s", (left, top), 4, 4, va="bottom", color=MUTED)
    axes.plot([2.2 * max(xs), right], [cublas, cublas], color=MUTED, linewidth=1.6, zorder=1)
    annotate(axes, f"cuBLAS {rate(cublas)}", (right, cublas), -2, -3, va="top", color=MUTED)


def _draw_climb(axes: Axes, points: Mapping[str, Point]) -> None:
    """Draw the rungs, with an arrow from each rung to the next."""
    inches = axes.transData - axes.figure.dpi_scale_trans
    for start, end in pairwise(points.values()):
        if math.dist(*inches.transform([start, end])) > NEXT:
            axes.annotate("", end, start, arrowprops=ARROW, zorder=2)
    axes.plot(
        *zip(*points.values(), strict=True), "o", color=ACCENT, markeredgecolor=PAPER, **MARKER
    )


def _draw_enlarged(axes: Axes, large: Mapping[str, Point], cublas: float) -> bool:
    """Prepare the axes for the rungs with the largest tiles.

    Returns True if cuBLAS's rate is within the axes; then it is drawn as a line.
    """
    figure.leave_room(axes, large, BODY_PT)
    xs, ys = zip(*large.values(), strict=True)
    air = 0.1 * (max(ys) - min(ys)) or 0.1 * max(ys)
    low = min(ys) - air
    high = max(ys) + air
    limits = min(xs) / 1.3, max(xs) * 1.3
    scale(axes.xaxis, LogLocator(2, (1, 1.5)), "FLOP per byte", limits, log=10)
    scale(axes.yaxis, MaxNLocator(8), "", (low, high))
    axes.grid(True, zorder=0)
    has_cublas = bool(low < cublas < high)
    if has_cublas:
        axes.axhline(cublas, color=MUTED, linewidth=1.6, zorder=1)
    return has_cublas
