"""The roofline: each rung's FLOP per byte and rate, under the roofs of FP32 and L2."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator

from worklog.errors import NothingToDraw
from worklog.kernel.ladder import memory_counts as shipped
from worklog.kernel.ladder import moved_from_l2
from worklog.plots import style
from worklog.plots.marks import Point, annotate, leave_room, name_points, scale
from worklog.plots.page import Margins, Texts, on_axes
from worklog.plots.selection import (
    cublas_tflops,
    dimensions,
    intensity,
    measured,
    rate,
    rows,
    shape_to_draw,
)
from worklog.plots.style import ACCENT, BODY_PT, INK, MUTED, PAPER
from worklog.problem import FLOAT_BYTES, Shape, Size
from worklog.runs import Measurement, Run

if TYPE_CHECKING:
    from worklog.plots.page import OnAxes


SECTOR = 32  # bytes
HEIGHT = 3.77  # inches
MARGINS = Margins(left=0.76, above=0.12, below=0.45)
BETWEEN = 0.42  # inches between the two axes
ROOFS = 0.55  # the part of the width that has the roofs


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


@dataclass(frozen=True)
class Rungs:
    """The rungs' points in the roofline, and the origin of their bytes."""

    points: dict[str, Point]  # by kernel: FLOP per byte and TFLOP/s
    axis_label: str
    method: str  # how the bytes were counted, for the subtitle
    source: str = ""  # for the footer, if they were measured

    @property
    def by_label(self) -> dict[str, Point]:
        """The points by the names with the rates."""
        return {f"{name} {rate(point[1])}": point for name, point in self.points.items()}

    @property
    def large(self) -> dict[str, Point]:
        """The named points of the rungs with the largest tiles."""
        highest = max(point[0] for point in self.points.values())
        return {name: point for name, point in self.by_label.items() if point[0] > LARGE * highest}


@dataclass(frozen=True)
class Roofs:
    """The roofs of the roofline: measured rates, and a theoretical one."""

    fp32: float  # TFLOP/s
    fp32_peak: float  # TFLOP/s, in theory
    l2: float  # TB/s
    cublas: float  # TFLOP/s


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
    kernels = [m for m in rows(run, shape) if measured(m)]
    rungs = _rungs(run, shape, kernels)
    roofs = Roofs(
        fp32=run.calibration.fp32_tflops,
        fp32_peak=run.gpu.fp32_peak_tflops,
        l2=run.calibration.l2_gbs / 1e3,
        cublas=cublas_tflops(kernels),
    )
    texts = Texts(
        "roofline",
        finding=_finding(rungs.points, roofs.fp32),
        subtitle=_subtitle(shape, rungs),
        footer=[run.full_label, rungs.source] if rungs.source else [run.full_label],
        alt=_alt(shape, rungs, roofs),
    )

    def draw(axes: Axes) -> None:
        place = axes.get_position()
        width = axes.bbox.width / axes.figure.dpi
        axes.set_position((place.x0, place.y0, ROOFS * place.width, place.height))
        _draw_whole(axes, rungs, roofs)
        # The rungs with the largest tiles again, as high as the whole.
        left = place.x0 + (ROOFS + BETWEEN / width) * place.width
        zoom = axes.figure.add_axes((left, place.y0, place.x1 - left, place.height))
        _draw_enlarged(zoom, rungs, roofs.cublas)

    return on_axes(ax, draw, texts, height=HEIGHT, margins=MARGINS)


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
            "counted from the tile: each block brings its rows of A and its columns of B once "
            "from L2",
        )
    return Rungs(
        {name: (shape.flops / moved[name], tflops) for name, (_, tflops) in points.items()},
        "FLOP per byte between L2 and L1, by counters",
        "by what Nsight Compute counted between L2 and L1",
        label,
    )


def _finding(points: dict[str, Point], fp32_tflops: float) -> str:
    """Return the rung with the highest rate, as a share of the FP32 ceiling."""
    best = max(points, key=lambda name: points[name][1])
    height = f"at {100 * points[best][1] / fp32_tflops:.0f} % of the FP32 ceiling"
    if best == next(reversed(points)) and len(points) > 1:
        return f"From {next(iter(points))} to {best}, the climb ends {height}"
    return f"{best} stands highest, {height}"


def _subtitle(shape: Shape, rungs: Rungs) -> str:
    """Return the explanation of the roofs and of both axes."""
    return (
        f"C = A·B in FP32, {dimensions(shape)}. FLOP per byte are {rungs.method}. Solid roofs: "
        "measured; dashed: computed from the highest clocks. Right: the rungs with most FLOP per "
        "byte, enlarged."
    )


def _alt(shape: Shape, rungs: Rungs, roofs: Roofs) -> list[str]:
    """Return the alt text: each rung, cuBLAS and the measured roofs."""
    alt = [f"Roofline chart, log-log, of FP32 matrix multiplication at {dimensions(shape)}"]
    for name, (flop_per_byte, tflops) in rungs.points.items():
        alt.append(f"{name} {rate(tflops)} TFLOP/s at {flop_per_byte:.1f} FLOP per byte")
    alt.append(f"cuBLAS {rate(roofs.cublas)} TFLOP/s")
    alt.append(f"measured roofs: FP32 {roofs.fp32:.1f} TFLOP/s, L2 {roofs.l2:.2f} TB/s")
    return alt


def _draw_whole(axes: Axes, rungs: Rungs, roofs: Roofs) -> None:
    """Draw all rungs under the roofs; name those that aren't enlarged."""
    _draw_roofs(axes, rungs, roofs)
    _draw_climb(axes, rungs.points)
    small = {name: point for name, point in rungs.by_label.items() if name not in rungs.large}
    name_points(axes, small, _looks(small))


def _looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the look of the rungs' names."""
    return {name: {"fontsize": BODY_PT} for name in names}


def _draw_roofs(axes: Axes, rungs: Rungs, roofs: Roofs) -> None:
    """Prepare the axes for all rungs, and draw the roofs and cuBLAS's rate."""
    fp32 = roofs.fp32
    fp32_peak = roofs.fp32_peak
    l2 = roofs.l2
    cublas = roofs.cublas
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
    annotate(axes, text, (right, top), gap=-2, lift=4, va="bottom", color=MUTED)
    annotate(
        axes, f"L2 reads:\n{l2:.2f} TB/s", (left, top), gap=4, lift=4, va="bottom", color=MUTED
    )
    axes.plot([2.2 * max(xs), right], [cublas, cublas], color=MUTED, linewidth=1.6, zorder=1)
    annotate(
        axes, f"cuBLAS {rate(cublas)}", (right, cublas), gap=-2, lift=-3, va="top", color=MUTED
    )


def _draw_climb(axes: Axes, points: Mapping[str, Point]) -> None:
    """Draw the rungs, with an arrow from each rung to the next."""
    inches = axes.transData - axes.figure.dpi_scale_trans
    for start, end in pairwise(points.values()):
        if math.dist(*inches.transform([start, end])) > NEXT:
            axes.annotate("", end, start, arrowprops=ARROW, zorder=2)
    axes.plot(
        *zip(*points.values(), strict=True), "o", color=ACCENT, markeredgecolor=PAPER, **MARKER
    )


def _draw_enlarged(axes: Axes, rungs: Rungs, cublas: float) -> None:
    """Draw the rungs with the largest tiles.

    cublas: in TFLOP/s; drawn as a line if it is within the axes
    """
    large = rungs.large
    leave_room(axes, large, BODY_PT)
    xs, ys = zip(*large.values(), strict=True)
    air = 0.1 * (max(ys) - min(ys)) or 0.1 * max(ys)
    low = min(ys) - air
    high = max(ys) + air
    limits = min(xs) / 1.3, max(xs) * 1.3
    scale(axes.xaxis, LogLocator(2, (1, 1.5)), "FLOP per byte", limits, log=10)
    scale(axes.yaxis, MaxNLocator(8), "", (low, high))
    axes.grid(True, zorder=0)
    names = dict(large)
    looks = _looks(large)
    if low < cublas < high:
        axes.axhline(cublas, color=MUTED, linewidth=1.6, zorder=1)
        name = f"cuBLAS {rate(cublas)}"
        names[name] = max(xs), cublas
        looks[name] = {"color": MUTED}
    _draw_climb(axes, large)
    name_points(axes, names, looks)


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
