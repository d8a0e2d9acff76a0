"""Memory traffic: sectors and wavefronts as counted on the emulator, FLOP per byte by level, and the roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator

from worklog.kernel import SECTOR, LadderCounts, moved_from_l2
from worklog.kernel import memory_counts as shipped
from worklog.plots import figure, style
from worklog.plots.figure import Chart, Point, annotate, name_rows, on_axes, right_of, scale
from worklog.plots.selection import (
    Size,
    cublas_tflops,
    dimensions,
    intensity,
    measured,
    rate,
    rows,
    shape_to_draw,
)
from worklog.plots.style import ACCENT, ALERT, BODY_PT, FAINT, INK, MUTED, PAPER, WIDTH_IN
from worklog.problem import FLOAT_BYTES, Shape
from worklog.runs import NothingToDraw, Run

# inches
ROW = 0.3
BAR = 0.2
ABOVE = 0.3
BELOW = 0.4
GAP = 0.25
RIGHT = 0.15
LABEL_ROOM = 1.0  # inches beside the longest bar
FLOAT4 = 16


@style.chart
def traffic(counted: LadderCounts | None = None) -> Chart:
    """By rung: global sectors per multiply-add of a warp (dots, log scale, with the sectors per load), and
    shared-memory wavefronts per multiply-add (bars).

    counted: the counts to draw (default: those that come with the package). Raises WorklogError if those are missing.
    """
    counted = counted or shipped()
    rungs = counted.rungs
    at_dots = dict[str, str]()
    at_bars = dict[str, str]()
    for name, rung in rungs.items():
        float4 = " (float4)" if rung.load_width == FLOAT4 else ""
        at_dots[name] = (
            f"{rung.sectors_per_fma:.2g} · {rung.sectors_per_request:.1f} per load{float4}"
        )
        conflicts = f" · {100 * rung.conflict_share:.0f} % conflicts" if rung.conflict_share else ""
        at_bars[name] = (
            f"{rung.wavefronts_per_fma:.2f}{conflicts}" if rung.wavefronts else "no shared memory"
        )
    (first, *_) = rungs
    last = [*rungs][-1]
    height = ROW * len(rungs)
    times = rungs[first].sectors_per_fma / rungs[last].sectors_per_fma
    finding = f"From {first} to {last}, the same work takes {times:.0f} times less global traffic"
    subtitle = (
        f"C = A·B in FP32, {dimensions(counted.shape)}. A multiply-add is one instruction of a warp. A sector has 32 "
        "bytes: 4 hold 32 neighbouring floats, 16 hold 32 float4. Hatched: passes that bank conflicts add."
    )
    alt = [
        "Memory traffic by rung: global sectors per warp multiply-add and per load; shared wavefronts"
    ]
    alt += [f"{name} {at_dots[name]}; {at_bars[name]}" for name in rungs]
    new = figure.page("traffic", finding, subtitle, [counted.label], alt, ABOVE + height + BELOW)
    left = right_of(rungs)
    bottom = new.body_bottom + BELOW
    wide = (WIDTH_IN - left - GAP - RIGHT) / 2
    room = 1 - LABEL_ROOM / wide  # the share of an axis that isn't kept for words
    dots, bars = (new.axes_at(x, bottom, wide, height) for x in (left, left + wide + GAP))
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
    values = [rung.sectors_per_fma for rung in rungs.values()]
    least = min(values) / 1.5
    most = max(values) * 1.5
    limits = least, least * (most / least) ** (1 / room)
    decades = [tick for power in range(-3, 6) if least <= (tick := 10.0**power) <= most]
    scale(dots.xaxis, decades, "sectors for each multiply-add, log scale", limits, log=10)
    most = max(rung.wavefronts_per_fma for rung in rungs.values()) or 1.0
    ticks = [tick for tick in MaxNLocator(4).tick_values(0, most) if tick <= 1.1 * most]
    scale(bars.xaxis, ticks, "passes (wavefronts) for each multiply-add", (0, most / room))
    name_rows(bars, [""] * len(rungs), ROW)
    for y, (name, rung) in zip(name_rows(dots, list(rungs), ROW), rungs.items(), strict=True):
        # A dot and a line to it from the least value, since a bar has no length on a log scale.
        sectors = rung.sectors_per_fma
        passes = rung.wavefronts_per_fma
        dots.plot([least, sectors], [y, y], color=FAINT, linewidth=1.0, zorder=0.5)
        dots.plot([sectors], [y], "o", color=ACCENT, markersize=5)
        annotate(dots, at_dots[name], (sectors, y), 6)
        # The part that bank conflicts added is at the bar's end, hatched, so that it shows in grey too.
        added = passes * rung.conflict_share
        bars.barh(y, passes, BAR, color=ACCENT)
        bars.barh(
            y, added, BAR, passes - added, color=ALERT, edgecolor=PAPER, hatch="////", linewidth=0
        )
        annotate(bars, at_bars[name], (passes, y), 6)
    return new


def levels_of(run: Run) -> dict[str, dict[str, float]]:
    """FLOP per byte by rung, in the ladder's order, of those that are counted and whose tile is in the run: of what
    each `threads` requests for itself; of the 32-byte `sectors` that this takes; of what `blocks` fetch if each brings
    its rows of A and columns of B once; and `compulsory`, of A, B and C passing once.
    """
    shape = shipped().shape
    rungs = {}
    for name, counts in shipped().rungs.items():
        if blocks := intensity(run, name, shape):
            requested = counts.load_bytes + FLOAT_BYTES * shape.m * shape.n
            moved = SECTOR * (counts.load_sectors + counts.store_sectors)
            rungs[name] = {
                "threads": shape.flops / requested,
                "sectors": shape.flops / moved,
                "blocks": blocks,
            }
            rungs[name]["compulsory"] = shape.flops / shape.compulsory_bytes
    return rungs


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


@style.chart
def roofline(run: Run, size: Size | None = None, *, ax: Axes | None = None) -> Any:
    """Draw each rung at its intensity under the roofs of FP32 and L2, log-log, at one size.

    The roofs are the measured ones (solid) and FP32's theoretical one (dashed). On the right, the rungs with the
    largest tiles are enlarged. Bytes are those that Nsight Compute counted, if each rung's are recorded, else those of
    the tile. Measurements on another card than the run's aren't shown. Returns a Chart, or `ax`. Raises NothingToDraw
    where the run has no measured rung with a tile; BadSetting.
    """
    run = run.by_card()[0]
    shape = shape_to_draw(run, size)
    # TB/s
    fp32 = run.calibration.fp32_tflops
    fp32_peak = run.gpu.fp32_peak_tflops
    l2 = run.calibration.l2_gbs / 1e3
    kernels = [m for m in rows(run, shape) if measured(m)]
    points = {
        m.kernel: (x, m.tflops or 0.0) for m in kernels if (x := intensity(run, m.kernel, shape))
    }
    if not points:
        raise NothingToDraw(
            f"no rung with a tile was measured at size {shape}: `worklog run --size {shape}`"
        )
    per_byte = "FLOP per byte that blocks fetch from L2, from the tile"
    source = ""
    how_counted = (
        "counted from the tile: each block brings its rows of A and its columns of B once from L2"
    )
    moved, label = moved_from_l2(shape)
    if own := {c.kernel: int(c.values[c.L2]) for c in run.counters if Shape(*c.shape) == shape}:
        moved, label = (
            moved | own,
            f"{label}; " * bool(label) + f"bytes of {', '.join(own)}: this run's counters",
        )
    if points.keys() <= moved.keys():
        points = {name: (shape.flops / moved[name], y) for name, (_, y) in points.items()}
        per_byte = "FLOP per byte between L2 and L1, by counters"
        source = label
        how_counted = "by what Nsight Compute counted between L2 and L1"
    best = max(points, key=lambda name: points[name][1])
    height = f"at {100 * points[best][1] / fp32:.0f} % of the FP32 ceiling"
    finding = f"{best} stands highest, {height}"
    if best == next(reversed(points)) and len(points) > 1:
        finding = f"From {next(iter(points))} to {best}, the climb ends {height}"
    subtitle = (
        f"C = A·B in FP32, {dimensions(shape)}. FLOP per byte are {how_counted}. Solid roofs: measured; dashed: "
        "computed from the highest clocks. Right: the rungs with most FLOP per byte, enlarged."
    )
    cublas = cublas_tflops(kernels)
    alt = [f"Roofline chart, log-log, of FP32 matrix multiplication at {dimensions(shape)}"]
    alt += [f"{name} {rate(y)} TFLOP/s at {x:.1f} FLOP per byte" for name, (x, y) in points.items()]
    alt += [
        f"cuBLAS {rate(cublas)} TFLOP/s",
        f"measured roofs: FP32 {fp32:.1f} TFLOP/s, L2 {l2:.2f} TB/s",
    ]
    named = {f"{name} {rate(y)}": (x, y) for name, (x, y) in points.items()}
    widest_tile = max(x for x, _ in points.values())
    large = {name: point for name, point in named.items() if point[0] > LARGE * widest_tile}
    others = {name: point for name, point in named.items() if name not in large}
    mark = f"cuBLAS {rate(cublas)}"

    def climb(axes: Axes, shown: Mapping[str, Point], names: Mapping[str, Point]) -> None:
        """The rungs, with an arrow to each next one, and names."""
        inches = axes.transData - axes.figure.dpi_scale_trans
        for start, end in pairwise(shown.values()):
            if math.dist(*inches.transform([start, end])) > NEXT:
                axes.annotate("", end, start, arrowprops=ARROW, zorder=2)
        axes.plot(
            *zip(*shown.values(), strict=True), "o", color=ACCENT, markeredgecolor=PAPER, **MARKER
        )
        figure.name_points(
            axes, names, {name: {"fontsize": BODY_PT} for name in named} | {mark: {"color": MUTED}}
        )

    def draw(axes: Axes) -> None:
        place = axes.get_position()
        wide = axes.bbox.width / axes.figure.dpi
        axes.set_position((place.x0, place.y0, ROOFS * place.width, place.height))
        xs, ys = zip(*points.values(), strict=True)
        top = max(cublas, *ys, fp32, fp32_peak)
        ridge = fp32 / l2
        limits = min(*xs, ridge) / 3, max(*xs, ridge) * 5
        scale(axes.xaxis, LogLocator(2), per_byte, limits, log=10)
        up = min(*ys, cublas, top / 10) / 1.7, top * 1.6
        scale(axes.yaxis, LogLocator(10, (1, 2, 5)), "TFLOP/s", up, log=10)
        axes.grid(True, zorder=0)
        how: Any = {"color": INK, "linewidth": 1.0, "zorder": 1.5}
        axes.plot([limits[0], ridge, limits[1]], [l2 * limits[0], fp32, fp32], "-", **how)
        axes.plot([fp32_peak / l2, limits[1]], [fp32_peak, fp32_peak], "--", **how)
        words = f"FP32: {fp32:.1f} measured,\n{fp32_peak:.1f} in theory (dashed)"
        annotate(axes, words, (limits[1], top), -2, 4, va="bottom", color=MUTED)
        annotate(
            axes, f"L2 reads:\n{l2:.2f} TB/s", (limits[0], top), 4, 4, va="bottom", color=MUTED
        )
        axes.plot(
            [2.2 * max(xs), limits[1]], [cublas, cublas], color=MUTED, linewidth=1.6, zorder=1
        )
        annotate(axes, mark, (limits[1], cublas), -2, -3, va="top", color=MUTED)
        climb(axes, points, others)
        # The rungs with the largest tiles again, as high as the whole.
        left = place.x0 + (ROOFS + BETWEEN / wide) * place.width
        zoom = axes.figure.add_axes((left, place.y0, place.x1 - left, place.height))
        figure.leave_room(zoom, large, BODY_PT)
        xs, ys = zip(*large.values(), strict=True)
        air = 0.1 * (max(ys) - min(ys)) or 0.1 * max(ys)
        low = min(ys) - air
        high = max(ys) + air
        scale(
            zoom.xaxis,
            LogLocator(2, (1, 1.5)),
            "FLOP per byte",
            (min(xs) / 1.3, max(xs) * 1.3),
            log=10,
        )
        scale(zoom.yaxis, MaxNLocator(8), "", (low, high))
        zoom.grid(True, zorder=0)
        beyond = {}
        if low < cublas < high:
            zoom.axhline(cublas, color=MUTED, linewidth=1.6, zorder=1)
            beyond[mark] = max(xs), cublas
        climb(zoom, large, large | beyond)

    words = "roofline", finding, subtitle, [*filter(None, [run.full_label, source])], alt
    return on_axes(ax, draw, *words, height=HEIGHT, left=LEFT, above=0.12, below=0.45)
