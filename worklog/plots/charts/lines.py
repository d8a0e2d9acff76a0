"""Lines over an axis: any benchmark's, as Triton's perf_report draws providers, or the ladder's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator

from worklog.errors import NothingToDraw
from worklog.plots import selection, style
from worklog.plots.marks import Line, draw_lines, scale, values_of, x_axis
from worklog.plots.marks.lines import FIRST, WIDE
from worklog.plots.page import Chart, Margins, Texts, on_axes
from worklog.plots.selection import in_order
from worklog.plots.style import ACCENT, GREY, INK, MUTED, OTHER
from worklog.problem import BATCH_AXIS
from worklog.runs import CUBLAS, Measurement, Run

if TYPE_CHECKING:
    from worklog.plots.page import OnAxes


# inches
HEIGHT = 3.3
TALL = 4.0
MARGINS = Margins(left=0.69, above=0.05)


UNITS = {
    "tflops": "TFLOP/s",
    "gbs": "GB/s",
    "items": "G items/s",
    "us": "µs",
    "share": "% of cuBLAS",
}
# How the subtitle calls y, unless it is a rate.
QUANTITIES = {"us": "Median time", "share": "Share of cuBLAS, timed in the same loop"}


# The look of a line's name by the line's colour.
NAME_LOOKS: Mapping[str, Mapping[str, Any]] = {
    ACCENT: FIRST,
    OTHER: {"color": OTHER},
    GREY: {"color": MUTED},
    INK: {"color": MUTED},
}
# x and y of each line's points, and the interval of y, by the line's name.
Series = Mapping[str, Sequence[tuple[float, ...]]]


@dataclass(frozen=True)
class LinesData:
    """The lines that are drawn, and what they are of."""

    series: Series
    baselines: Collection[str]  # the names of the baselines' lines
    axis: str  # the name of x
    quantity: str  # y, one of UNITS

    @property
    def unit(self) -> str:
        """The unit of y."""
        return UNITS[self.quantity]

    @property
    def ranking(self) -> list[str]:
        """The lines that reach the largest x.

        The best line that isn't a baseline is the first, then all rivals follow, the best first.
        """
        reach = max(points[-1][0] for points in self.series.values())
        ranking = [name for name, points in self.series.items() if points[-1][0] == reach]
        sign = 1 if self.quantity == "us" else -1
        ranking.sort(key=lambda name: self.series[name][-1][1] * sign)
        best = next((name for name in ranking if name not in self.baselines), ranking[0])
        return [best, *(name for name in ranking if name != best)]


@style.chart
def lines(run: Run, x: str = "", y: str = "", *, ax: OnAxes | None = None) -> OnAxes:
    """Draw a rate or the time against an axis, a line with its 95 % band per kernel.

    Baselines and values of other axes also have lines. Returns a Chart, or `ax`. Raises
    NothingToDraw.

    x: an axis with numbers, or M, N or K (default: N, else the first axis with two numbers)
    y: "tflops", "gbs", "items", "us" or "share" of cuBLAS (default: the first of these whose work
        is known everywhere)

    A baseline that isn't measured as a kernel of the run has a line at its time from the loop with
    the first kernel that alternated with it. Of matrix products, the square ones are drawn.
    Example: `worklog.plots.lines(run, y="gbs")`.
    """
    data, timed = _select(run, x, y)
    return _draw(run, data, timed, name="lines", height=HEIGHT, ax=ax)


@style.chart
def sizes(run: Run) -> Chart:
    """Draw percent of cuBLAS against N of square problems, with a logarithmic N.

    Each kernel has a line with its 95 % band. The two best at the largest size have colours. Raises
    NothingToDraw if fewer than two sizes were measured.
    """
    data, timed = _select(run, "N", "share")
    chart: Chart = _draw(run, data, timed, name="sizes", height=TALL, ax=None)
    return chart


def _select(run: Run, axis: str, quantity: str) -> tuple[LinesData, list[Measurement]]:
    """Return the lines that are drawn, and their measurements.

    axis, quantity: as x and y of lines()
    """
    timed = [
        m
        for m in run.select()
        if m.status == "measured" and m.us and (m.shape is None or m.problem.square)
    ]
    axis = axis or _default_x(timed)
    timed = [m for m in timed if axis in _numbers(m)]
    quantity = quantity or next(unit for unit in UNITS if all(_work(m, unit) for m in timed))
    if quantity not in UNITS:
        raise NothingToDraw(f"there is no y {quantity!r}: choose from {', '.join(UNITS)}")
    series, baselines = _points(timed, axis, quantity)
    if not any(len(points) > 1 for points in series.values()):
        raise NothingToDraw(
            f"no line has two points over {axis or 'an axis'}: "
            "measure two values of an axis with numbers"
        )
    return LinesData(series, baselines, axis, quantity), timed


def _draw(
    run: Run,
    data: LinesData,
    timed: Sequence[Measurement],
    *,
    name: str,
    height: float,
    ax: OnAxes | None,
) -> OnAxes:
    """Draw lines on `ax`, or on a page of their own.

    name: the stem of the chart's file
    height: of the axes, in inches
    """
    colours = _colours(data)
    lines = [
        Line(line, points, colours[line], line in data.baselines, NAME_LOOKS[colours[line]])
        for line, points in data.series.items()
    ]
    # Kernels that this run measured: if other runs did also, the footer names places.
    mixed = {m.kernel for m in timed if m.label == run.label}
    texts = Texts(
        name,
        finding=_finding(data),
        subtitle=_subtitle(data),
        footer=selection.labels(run, timed, lambda m: m.place if m.kernel in mixed else m.kernel),
        alt=_alt(data),
    )

    def draw(axes: Axes) -> None:
        x_axis(axes, lines, data.axis)
        _y_axis(axes, lines, data)
        draw_lines(axes, lines)

    return on_axes(ax, draw, texts, height=height, margins=MARGINS)


def _default_x(timed: Sequence[Measurement]) -> str:
    """Return N, else the first axis with two numbers; "" if there is none."""
    values = {"N": set[float]()}
    for m in timed:
        for name, number in _numbers(m).items():
            values.setdefault(name, set()).add(number)
    return next((name for name, numbers in values.items() if len(numbers) > 1), "")


def _finding(data: LinesData) -> str:
    """Return the best line's value at the largest x, compared with the next line's."""
    best, *rivals = data.ranking
    first_x, first, *_ = data.series[best][0]
    reach, value, low, high = data.series[best][-1]
    finding = f"{best}: {value:.4g} {data.unit} at {data.axis} = {reach:g}"
    if data.quantity == "share":
        return f"{finding}, {first:.4g} % at {first_x:g}"
    if not rivals:
        return finding
    _, second, second_low, second_high = data.series[rivals[0]][-1]
    if second_low <= high and low <= second_high:
        return f"{finding}, where {rivals[0]} can't be distinguished from it"
    if data.quantity == "us":
        return f"{finding}, {second / value:.3g} times as fast as {rivals[0]}"
    return f"{finding}, {value / second:.3g} times the rate of {rivals[0]}"


def _subtitle(data: LinesData) -> str:
    """Return the explanation of both axes and of the bands."""
    quantity = QUANTITIES.get(data.quantity, f"{data.unit}, from the median time")
    band = "bands: 95 % interval, mostly narrower than a line"
    return f"{quantity}, against {data.axis}; {band}."


def _alt(data: LinesData) -> list[str]:
    """Return the alt text: the points of each line."""
    alt = [f"Line chart of {data.unit} against {data.axis}"]
    for line, points in data.series.items():
        texts = [f"{point[1]:.4g} at {point[0]:g}" for point in points]
        alt.append(f"{line} {', '.join(texts)}")
    return alt


def _y_axis(axes: Axes, lines: Sequence[Line], data: LinesData) -> None:
    """Prepare the vertical axis: logarithmic if values differ much. A share's is linear."""
    ys = values_of(lines, 1)
    if data.quantity != "share" and max(ys) / min(ys) >= WIDE:
        scale(axes.yaxis, LogLocator(10, (1, 2, 5)), data.unit, log=10)
    else:
        highest = max(values_of(lines, 3))
        scale(axes.yaxis, MaxNLocator(7), data.unit, (0, 1.08 * highest))
    if data.quantity == "share":
        axes.axhline(100, color=MUTED, linewidth=0.9, zorder=1)


def _colours(data: LinesData) -> dict[str, str]:
    """Return each line's colour.

    The best line has the accent, the next line a colour, baselines are in ink, rivals are grey.
    """
    best, *rivals = data.ranking
    colours = {name: INK if name in data.baselines else GREY for name in data.series}
    colours[best] = ACCENT
    second = next((name for name in rivals if name not in data.baselines), None)
    if second is not None:
        colours[second] = OTHER
    return colours


def _axes(m: Measurement) -> dict[str, Any]:
    """Return the values of a measurement's axes by name: M, N, K and batch of a matrix product."""
    return {**dict(m.point.axes), BATCH_AXIS: m.problem.batch} if m.shape else m.axes


def _numbers(m: Measurement) -> dict[str, float]:
    """Return the values of those axes that have numbers."""
    return {name: value for name, value in _axes(m).items() if type(value) in (int, float)}


def _work(m: Measurement, unit: str) -> float:
    """Return the work that, divided by the time in µs, has this unit; 0 if it isn't known."""
    work = {
        "tflops": (m.work.flops or 0) / 1e6,
        "gbs": m.moved_bytes / 1e3,
        "items": (m.work.elements or 0) / 1e3,
    }
    return work.get(unit, 1.0)


def _points(timed: list[Measurement], axis: str, quantity: str) -> tuple[Series, set[str]]:
    """Return each line's points by its name, and the names of the lines of baselines.

    The points are in the order of the axis.
    """
    kernels = {m.kernel for m in timed}
    differing = _differing_axes(timed, axis)
    by_line = dict[str, dict[float, tuple[float, ...]]]()
    baselines = set[str]()
    for m in timed:
        axes = _axes(m)
        suffix = "".join(f" {name}={value}" for name, value in axes.items() if name in differing)
        if quantity == "share":
            values = _share(m)
        else:
            values = _values(m, quantity, kernels)
            baselines.add(m.baseline)
            baselines |= {baseline + suffix for baseline in values if baseline != m.kernel}
        for name, interval in values.items():
            by_line.setdefault(name + suffix, {}).setdefault(float(axes[axis]), interval)
    series = {
        name: [(value, *interval) for value, interval in sorted(by_line[name].items())]
        for name in in_order(by_line)
    }
    return series, baselines


def _differing_axes(timed: Sequence[Measurement], axis: str) -> set[str]:
    """Return the other axes that differ, which lines are named after.

    Of matrix products, it can only be the batch: the lines are of squares.
    """
    if all(m.shape for m in timed):
        batches = {m.problem.batch for m in timed}
        return {BATCH_AXIS} - {axis} if len(batches) > 1 else set()
    names = set[str]()
    for m in timed:
        names |= _axes(m).keys()
    return {name for name in names - {axis} if len({_axes(m).get(name) for m in timed}) > 1}


def _share(m: Measurement) -> dict[str, tuple[float, ...]]:
    """Return the share of cuBLAS in percent and its interval; {} for cuBLAS itself."""
    if m.kernel == CUBLAS or not m.ratio:
        return {}
    ratios = m.ratio, m.ratio_low or m.ratio, m.ratio_high or m.ratio
    return {m.kernel: tuple(100 * ratio for ratio in ratios)}


def _values(
    m: Measurement, quantity: str, kernels: Collection[str]
) -> dict[str, tuple[float, ...]]:
    """Return the quantity with its interval, of a kernel and of its baselines.

    Baselines that are among the kernels are left out. Raises NothingToDraw if the work of this
    quantity isn't known.
    """
    work = _work(m, quantity)
    if not work:
        raise NothingToDraw(
            f"{m.title} states no work for {UNITS[quantity]}: choose another y, or state it"
        )
    us = m.us or 0.0
    times_us: dict[str, tuple[float, ...]] = {m.kernel: (us, m.us_low or us, m.us_high or us)}
    for baseline, ratio in m.against.items():
        if ratio and baseline not in kernels:
            times_us[baseline] = us * ratio.value, us * ratio.low, us * ratio.high
    if quantity == "us":
        return {name: (middle, *sorted(ends)) for name, (middle, *ends) in times_us.items()}
    return {
        name: (work / middle, *sorted(work / end for end in ends))
        for name, (middle, *ends) in times_us.items()
    }
