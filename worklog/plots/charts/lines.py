"""Lines and points over an axis.

They are any benchmark's lines, as Triton's perf_report draws providers, the ladder's over the size,
rates against errors, and errors over K.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.ticker import Locator, LogLocator, MaxNLocator

from worklog.errors import NothingToDraw
from worklog.kernel import RUNGS
from worklog.plots import selection, style
from worklog.plots.figure import Chart, annotate, leave_room, name_points, on_axes, scale
from worklog.plots.selection import (
    ON_TENSOR_CORES,
    as_run,
    dimensions,
    in_order,
    measured,
    rate,
    rows,
)
from worklog.plots.style import ACCENT, BODY_PT, DEFLATES, GREY, INK, MUTED, OTHER, PAPER
from worklog.runs import CUBLAS, Measurement, Run

if TYPE_CHECKING:
    import pandas

    from worklog.plots.figure import OnAxes
    from worklog.problem import Size

# inches
HEIGHT = 3.3
TALL = 4.0
# x values with a tick of their own, and with dots
MOST_TICKS = 8
MOST_DOTS = 11
WIDE = 8.0  # largest over smallest: beyond that, an axis is logarithmic
MARKS = "osD^vPX*<>"
UNITS = {
    "tflops": "TFLOP/s",
    "gbs": "GB/s",
    "items": "G items/s",
    "us": "µs",
    "share": "% of cuBLAS",
}
# How the subtitle calls y, unless it is a rate.
QUANTITIES = {"us": "Median time", "share": "Share of cuBLAS, timed in the same loop"}
FIRST = {"color": ACCENT, "weight": "bold"}  # the look of the accented line's name
# By name: the points of a line, x and y and, if it is known, the interval of y.
Lines = Mapping[str, Sequence[tuple[float, ...]]]


def draw_lines(
    axes: Axes, series: Lines, colours: Mapping[str, str], dashed: Collection[str] = ()
) -> dict[str, tuple[float, float]]:
    """Draw lines in their bands, the accented line in front.

    Returns the last point of each line, for name_points.

    colours: by the line's name
    dashed: the names of dashed lines
    """
    has_dots = len(_column(series, 0)) <= MOST_DOTS
    for number, (name, points) in enumerate(series.items()):
        # Without clip paths, each of which is a layer: the PNG is drawn in a fifth of the time.
        options: dict[str, Any] = {
            "marker": MARKS[number % len(MARKS)],
            "markersize": 3.2 if has_dots else 0.0,
            "clip_on": False,
        }
        xs, ys, *band = zip(*points, strict=True)
        if len(band) == 2:
            axes.fill_between(
                xs,
                band[0],
                band[1],
                color=(colours[name], 0.25),
                linewidth=0,
                zorder=2,
                clip_on=False,
            )
        dash = "--" if name in dashed else "-"
        axes.plot(xs, ys, dash, color=colours[name], zorder=_layer(colours[name]), **options)
    return {name: (points[-1][0], points[-1][1]) for name, points in series.items()}


def _layer(colour: str) -> int:
    """Return a line's zorder: colours are in front of grey, the accent is in front."""
    if colour == ACCENT:
        return 5
    return 3 if colour == GREY else 4


def _column(series: Lines, index: int) -> set[float]:
    """Return the values at this index of all points: 0 is x, 1 is y, 3 is y's upper end."""
    values = set[float]()
    for points in series.values():
        values |= {point[index] for point in points}
    return values


def _x_axis(axes: Axes, series: Lines, label: str, wide: float = WIDE) -> None:
    """Prepare axes for these lines.

    wide: x is logarithmic if its largest value is at least this multiple of the smallest
    """
    xs = sorted(_column(series, 0))
    log = 2 if xs[0] > 0 and xs[-1] / xs[0] >= wide else 0
    locator: Locator | list[float] = xs
    if len(xs) > MOST_TICKS:
        locator = LogLocator(2) if log else MaxNLocator(6)
    scale(axes.xaxis, locator, label, log=log, written="{x:.6g}")
    axes.grid(True, zorder=0)


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
    return _lines(run, x, y, ax, "lines", HEIGHT)


@style.chart
def sizes(run: Run | pandas.DataFrame) -> Chart:
    """Draw percent of cuBLAS against N of square problems, with a logarithmic N.

    Each kernel has a line with its 95 % band. The two best at the largest size have colours. Raises
    NothingToDraw if fewer than two sizes were measured.

    run: a run, or its `frame()`
    """
    chart: Chart = _lines(as_run(run), "N", "share", None, "sizes", TALL)
    return chart


def _lines(
    run: Run, axis: str, quantity: str, ax: OnAxes | None, name: str, height: float
) -> OnAxes:
    """Draw lines() or sizes().

    axis, quantity: as x and y of lines()
    name: the stem of the chart's file
    height: in inches
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
            f"no line has two points over {axis or 'an axis'}: measure two values of an axis with numbers"
        )
    ranking = _ranking(series, baselines, quantity)
    colours = _colours(series, baselines, ranking)
    unit = UNITS[quantity]
    alt = [f"Line chart of {unit} against {axis}"]
    for line, points in series.items():
        texts = [f"{point[1]:.4g} at {point[0]:g}" for point in points]
        alt.append(f"{line} {', '.join(texts)}")
    # Kernels that this run measured: if other runs did also, the footer names places.
    mixed = {m.kernel for m in timed if m.label == run.label}

    def draw(axes: Axes) -> None:
        leave_room(axes, series, BODY_PT)
        _x_axis(axes, series, axis)
        _y_axis(axes, series, quantity)
        last_points = draw_lines(axes, series, colours, baselines)
        name_points(axes, last_points, _looks(colours))

    return on_axes(
        ax,
        draw,
        name,
        _finding(series, ranking, axis, quantity),
        f"{QUANTITIES.get(quantity, f'{unit}, from the median time')}, against {axis}; bands: 95 % interval, "
        "mostly narrower than a line.",
        selection.labels(run, timed, lambda m: m.place if m.kernel in mixed else m.kernel),
        alt,
        height=height,
        left=0.69,
        above=0.05,
    )


def _default_x(timed: Sequence[Measurement]) -> str:
    """Return N, else the first axis with two numbers; "" if there is none."""
    values = {"N": set[float]()}
    for m in timed:
        for name, number in _numbers(m).items():
            values.setdefault(name, set()).add(number)
    return next((name for name, numbers in values.items() if len(numbers) > 1), "")


def _ranking(series: Lines, baselines: Collection[str], quantity: str) -> list[str]:
    """Return the lines that reach the largest x.

    The best line that isn't a baseline is the first, then all others follow, the best first.
    """
    reach = max(points[-1][0] for points in series.values())
    ranking = [name for name, points in series.items() if points[-1][0] == reach]
    sign = 1 if quantity == "us" else -1
    ranking.sort(key=lambda name: series[name][-1][1] * sign)
    best = next((name for name in ranking if name not in baselines), ranking[0])
    return [best, *(name for name in ranking if name != best)]


def _finding(series: Lines, ranking: Sequence[str], axis: str, quantity: str) -> str:
    """Return the best line's value at the largest x, compared with the next line's."""
    best = ranking[0]
    first_x, first, *_ = series[best][0]
    reach, value, low, high = series[best][-1]
    finding = f"{best}: {value:.4g} {UNITS[quantity]} at {axis} = {reach:g}"
    if quantity == "share":
        return f"{finding}, {first:.4g} % at {first_x:g}"
    if len(ranking) == 1:
        return finding
    _, second, second_low, second_high = series[ranking[1]][-1]
    if second_low <= high and low <= second_high:
        return f"{finding}, where {ranking[1]} can't be distinguished from it"
    if quantity == "us":
        return f"{finding}, {second / value:.3g} times as fast as {ranking[1]}"
    return f"{finding}, {value / second:.3g} times the rate of {ranking[1]}"


def _y_axis(axes: Axes, series: Lines, quantity: str) -> None:
    """Prepare the vertical axis: logarithmic if values differ much. A share's is linear."""
    ys = _column(series, 1)
    if quantity != "share" and max(ys) / min(ys) >= WIDE:
        scale(axes.yaxis, LogLocator(10, (1, 2, 5)), UNITS[quantity], log=10)
    else:
        highest = max(_column(series, 3))
        scale(axes.yaxis, MaxNLocator(7), UNITS[quantity], (0, 1.08 * highest))
    if quantity == "share":
        axes.axhline(100, color=MUTED, linewidth=0.9, zorder=1)


def _colours(series: Lines, baselines: Collection[str], ranking: Sequence[str]) -> dict[str, str]:
    """Return each line's colour.

    The best line has the accent, the next line a colour, baselines are in ink, others are grey.
    """
    colours = {name: INK if name in baselines else GREY for name in series}
    colours[ranking[0]] = ACCENT
    second = next((name for name in ranking[1:] if name not in baselines), None)
    if second is not None:
        colours[second] = OTHER
    return colours


def _looks(colours: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the look of each line's name."""
    by_colour: dict[str, dict[str, Any]] = {
        ACCENT: FIRST,
        OTHER: {"color": OTHER},
        GREY: {"color": MUTED},
        INK: {"color": MUTED},
    }
    return {name: by_colour[colour] for name, colour in colours.items()}


def _plain(number: float) -> str:
    """Return three digits, without an exponent, which a screen reader would spell."""
    return f"{float(f'{number:.3g}'):.15g}"


def _axes(m: Measurement) -> dict[str, Any]:
    """Return the values of a measurement's axes by name: M, N and K of a matrix product."""
    return dict(zip("MNK", m.shape, strict=True)) if m.shape else m.axes


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


def _points(timed: list[Measurement], axis: str, quantity: str) -> tuple[Lines, set[str]]:
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

    There are none if all measurements are matrix products.
    """
    if all(m.shape for m in timed):
        return set()
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

    Baselines that are among the kernels are left out. Raises NothingToDraw if the work of this quantity isn't known.
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


ON_FP32_CORES = {rung.name for rung in RUNGS} - ON_TENSOR_CORES
INCHES: Any = {"height": 2.95, "left": 0.69, "above": 0.2, "below": 0.45}
SAME = 0.02  # of an error
UNIT = "u·D, with u = 2⁻²⁴ and D the 2-norm of an element's K products"


@style.chart
def accuracy(run: Run, size: Size | None = None, *, ax: OnAxes | None = None) -> OnAxes:
    """Draw TFLOP/s of each measured kernel against its largest error, at one size.

    The errors are on U(-1, 1). The limit of the class fp32 is a line. Kernels of the class fp32
    are drawn full, the others hollow. Rungs on tensor cores have another colour than those on FP32
    cores, and kernels that aren't rungs are grey. Returns a Chart, or `ax`. Raises NothingToDraw if
    fewer than two kernels have an error, or none has the class fp32, and BadSetting for a size that
    can't be.
    """
    shape = selection.shape_to_draw(run, size)
    kernels = dict[str, Measurement]()
    errors = dict[str, tuple[float, float]]()
    for m in rows(run, shape):
        error = selection.error_of(m)
        if measured(m) and error is not None:
            kernels[m.kernel] = m
            errors[m.kernel] = error
    precise = [m for m in kernels.values() if selection.class_of(m) == "fp32"]
    if len(errors) < 2 or not precise:
        raise NothingToDraw(
            f"fewer than two kernels have a measured error at size {shape}, or none has the class fp32: measure them "
            "with the gate"
        )
    limit = errors[precise[0].kernel][1]
    points = {name: (error, kernels[name].tflops or 0.0) for name, (error, _) in errors.items()}
    subtitle = (
        f"C = A·B in FP32, {dimensions(shape)}; both axes are logarithmic. The largest error is in {UNIT}. Full: the "
        "class fp32, which limits the rms, too; dashed: its limit of the largest error."
    )
    if ON_FP32_CORES & points.keys():
        subtitle += " Muted blue: FP32 cores."
    alt = [f"Scatter chart of TFLOP/s against the largest error at {dimensions(shape)}"]
    alt += [
        f"{name} {rate(tflops)} TFLOP/s with {_plain(error)} u·D"
        for name, (error, tflops) in points.items()
    ]
    alt.append(f"limit of the class fp32: {_plain(limit)} u·D")
    precise_names = {m.kernel for m in precise}

    def draw(axes: Axes) -> None:
        names = {name: f"{name} {rate(tflops)}" for name, (_, tflops) in points.items()}
        leave_room(axes, names.values(), BODY_PT)
        _error_axes(axes, points.values(), limit)
        looks = dict[str, dict[str, Any]]()
        for name, (error, tflops) in points.items():
            is_rung = name in ON_TENSOR_CORES | ON_FP32_CORES
            looks[names[name]] = {"fontsize": BODY_PT} if is_rung else {"color": MUTED}
            colour = _core_colour(name)
            face = colour if name in precise_names else PAPER
            axes.plot(
                error, tflops, "o", color=colour, markerfacecolor=face, markersize=6, zorder=3
            )
        name_points(axes, {names[name]: point for name, point in points.items()}, looks)

    return on_axes(
        ax,
        draw,
        "accuracy",
        _accuracy_finding(precise, errors),
        subtitle,
        selection.labels(run, kernels.values()),
        alt,
        **INCHES,
    )


def _core_colour(kernel: str) -> str:
    """Return a kernel's colour, by the cores that it runs on; muted if it isn't a rung."""
    if kernel in ON_TENSOR_CORES:
        return ACCENT
    return DEFLATES if kernel in ON_FP32_CORES else MUTED


def _accuracy_finding(
    precise: Sequence[Measurement], errors: Mapping[str, tuple[float, float]]
) -> str:
    """Return the fastest kernel of class fp32, compared with cuBLAS.

    errors: a kernel's largest error and its limit, by name
    """
    best = max(precise, key=lambda m: m.ratio or 0.0)
    if best.kernel == CUBLAS or CUBLAS not in errors:
        return f"{best.kernel} is the fastest kernel with FP32's error"
    ratio = errors[best.kernel][0] / errors[CUBLAS][0]
    error = f"{ratio:.1f} times its error"
    if abs(ratio - 1) < SAME:
        error = "the same error"
    elif ratio < 1:
        error = "less error"
    return f"{best.kernel} is {best.ratio or 0.0:.2f} times as fast as cuBLAS, with {error}"


def _error_axes(axes: Axes, points: Iterable[tuple[float, float]], limit: float) -> None:
    """Prepare axes for errors and rates, with a line at the limit of the class fp32."""
    errors, rates = zip(*points, strict=True)
    ticks = (1, 3) if max(errors) < 300 * min(errors) else (1,)
    error_limits = (min(errors) / 2, max(*errors, limit) * 1.5)
    rate_limits = (min(rates) / 1.4, 1.4 * max(rates))
    scale(axes.xaxis, LogLocator(10, ticks), "largest error, u·D", error_limits, log=10)
    scale(axes.yaxis, LogLocator(10, (1, 2, 5)), "TFLOP/s", rate_limits, log=10)
    axes.axvline(limit, color=MUTED, linestyle="--", linewidth=1.0, zorder=1)
    top = (limit, axes.get_ylim()[1])
    annotate(axes, "limit of class fp32", top, -4, 2, color=MUTED, va="bottom")


@style.chart
def curves(
    finding: str, series: Mapping[str, Mapping[int, float]], label: str, x: str, y: str, *, subtitle: str = "",
    limit: Mapping[int, float] = {},
) -> Chart:  # fmt: skip
    """Draw numbers by x: one line per name, the first one accented.

    finding: the title
    series: by name, the numbers by x
    label: the source
    x, y: labels of the axes
    limit: a dashed line, such as of errors; with one, the axes are logarithmic
    """
    alt = [f"Line chart of {y} against {x}"]
    for name, numbers in series.items():
        texts = [f"{number:.3g} at {value}" for value, number in numbers.items()]
        alt.append(f"{name}: {', '.join(texts)}")
    points = {name: sorted(numbers.items()) for name, numbers in series.items()}

    def draw(axes: Axes) -> None:
        leave_room(axes, points, BODY_PT)
        _x_axis(axes, points, x, WIDE if limit else math.inf)
        scale(axes.yaxis, LogLocator(10) if limit else MaxNLocator(6), y, log=10 if limit else 0)
        axes.plot([*limit], [*limit.values()], "--", color=MUTED, linewidth=1.0, zorder=1)
        first = next(iter(points))
        colours = dict.fromkeys(points, INK) | {first: ACCENT}
        name_points(axes, draw_lines(axes, points, colours), {first: FIRST})

    chart: Chart = on_axes(None, draw, "curves", finding, subtitle, [label], alt, **INCHES)
    return chart
