"""Lines and points over an axis: any benchmark's, as Triton's perf_report draws providers, the ladder's over the size,
and errors beside rates and over K.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator

from worklog.kernel import RUNGS
from worklog.plots import selection, style
from worklog.plots.figure import Chart, annotate, leave_room, name_points, on_axes, scale
from worklog.plots.selection import (
    ON_TENSOR_CORES,
    Size,
    as_run,
    dimensions,
    in_order,
    measured,
    rate,
    rows,
)
from worklog.plots.style import ACCENT, BODY_PT, DEFLATES, GREY, INK, MUTED, OTHER, PAPER
from worklog.runs import CUBLAS, Measurement, NothingToDraw, Run

if TYPE_CHECKING:
    import pandas

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
FIRST = {"color": ACCENT, "weight": "bold"}  # the look of the accented line's name
Lines = Mapping[
    str, Sequence[tuple[float, ...]]
]  # by name: x, y and, where it has one, the interval of y


def draw_lines(
    axes: Axes, over: Lines, colours: Mapping[str, str], dashed: Collection[str] = ()
) -> dict[str, tuple[float, float]]:
    """Lines in their bands, the accented one in front; return the last point of each, for name_points."""
    dots = len({point[0] for points in over.values() for point in points}) <= MOST_DOTS
    for number, (name, points) in enumerate(over.items()):
        # Without clip paths, each of which is a layer: the PNG is drawn in a fifth of the time.
        how: dict[str, Any] = {
            "marker": MARKS[number % len(MARKS)],
            "markersize": 3.2 * dots,
            "clip_on": False,
        }
        xs, middle, *band = zip(*points, strict=True)
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
        line = "--" if name in dashed else "-"
        front = 3 + (colours[name] != GREY) + (colours[name] == ACCENT)
        axes.plot(xs, middle, line, color=colours[name], zorder=front, **how)
    return {name: (points[-1][0], points[-1][1]) for name, points in over.items()}


def _x_axis(axes: Axes, over: Lines, x: str, wide: float = WIDE) -> None:
    """Prepare axes for these lines: a logarithmic x where its values differ much."""
    at = sorted({point[0] for points in over.values() for point in points})
    log = 2 if at[0] > 0 and at[-1] / at[0] >= wide else 0
    locator = at if len(at) <= MOST_TICKS else LogLocator(2) if log else MaxNLocator(6)
    scale(axes.xaxis, locator, x, log=log, written="{x:.6g}")
    axes.grid(True, zorder=0)


@style.chart
def lines(run: Run, x: str = "", y: str = "", *, ax: Axes | None = None) -> Any:
    """A rate or the time against an axis, one line with its 95 % band per kernel, baseline and value of other axes.
    Returns a Chart, or `ax`.

    x: an axis with numbers, or M, N or K (default: N, else the first axis with two numbers). y: "tflops", "gbs",
    "items", "us" or "share" of cuBLAS (default: the first of these whose work is known everywhere). A baseline that
    isn't measured as a kernel of the run has a line at its time beside the first kernel that alternated with it. Of
    matrix products, the square ones are drawn. Raises NothingToDraw. Example: `worklog.plots.lines(run, y="gbs")`.
    """
    return _lines(run, x, y, ax, "lines", HEIGHT)


@style.chart
def sizes(run: Run | pandas.DataFrame) -> Chart:
    """Percent of cuBLAS against N (log) of square problems, one line with its 95 % band per kernel. The two best at the
    largest size have colours. run: a run, or its `frame()`. Raises NothingToDraw where fewer than two sizes were
    measured.
    """
    chart: Chart = _lines(as_run(run), "N", "share", None, "sizes", TALL)
    return chart


def _lines(run: Run, x: str, y: str, ax: Axes | None, name: str, height: float) -> Any:
    timed = [
        m
        for m in run.select()
        if m.status == "measured" and m.us and (m.shape is None or m.problem.square)
    ]
    numbers = [{name: v for name, v in _axes(m).items() if type(v) in (int, float)} for m in timed]
    names = dict.fromkeys(["N", *(name for values in numbers for name in values)])
    x = x or next(
        (name for name in names if len({values.get(name) for values in numbers} - {None}) > 1), ""
    )
    timed = [m for m, values in zip(timed, numbers, strict=True) if x in values]
    y = y or next(unit for unit in UNITS if all(_work(m, unit) for m in timed))
    if y not in UNITS:
        raise NothingToDraw(f"there is no y {y!r}: choose from {', '.join(UNITS)}")
    over, baselines = _points(timed, x, y)
    if not any(len(points) > 1 for points in over.values()):
        raise NothingToDraw(
            f"no line has two points over {x or 'an axis'}: measure two values of an axis with numbers"
        )
    # The lines that reach the largest x: the best that isn't a baseline, then all others, best first.
    reach = max(points[-1][0] for points in over.values())
    ordered = [name for name, points in over.items() if points[-1][0] == reach]
    ordered.sort(key=lambda name: over[name][-1][1] * (1 if y == "us" else -1))
    best = next((name for name in ordered if name not in baselines), ordered[0])
    others = [name for name in ordered if name != best]
    unit = UNITS[y]
    start, first, *_ = over[best][0]
    _, value, low, high = over[best][-1]
    finding = f"{best}: {value:.4g} {unit} at {x} = {reach:g}"
    if y == "share":
        finding += f", {first:.4g} % at {start:g}"
    elif others:
        _, second, second_low, second_high = over[others[0]][-1]
        if second_low <= high and low <= second_high:
            finding += f", where {others[0]} can't be distinguished from it"
        elif y == "us":
            finding += f", {second / value:.3g} times as fast as {others[0]}"
        else:
            finding += f", {value / second:.3g} times the rate of {others[0]}"
    what = {"us": "Median time", "share": "Share of cuBLAS, timed in the same loop"}.get(
        y, f"{unit}, from the median time"
    )
    subtitle = f"{what}, against {x}; bands: 95 % interval, mostly narrower than a line."
    alt = [f"Line chart of {unit} against {x}"]
    alt += [
        f"{name} " + ", ".join(f"{p[1]:.4g} at {p[0]:g}" for p in points)
        for name, points in over.items()
    ]
    mixed = {m.kernel for m in timed if m.label == run.label}
    footer = selection.labels(run, timed, lambda m: m.place if m.kernel in mixed else m.kernel)

    def draw(axes: Axes) -> None:
        leave_room(axes, over, BODY_PT)
        _x_axis(axes, over, x)
        ys = [point[1] for points in over.values() for point in points]
        if y != "share" and max(ys) / min(ys) >= WIDE:
            scale(axes.yaxis, LogLocator(10, (1, 2, 5)), unit, log=10)
        else:
            most = max(point[3] for points in over.values() for point in points)
            scale(axes.yaxis, MaxNLocator(7), unit, (0, 1.08 * most))
        if y == "share":
            axes.axhline(100, color=MUTED, linewidth=0.9, zorder=1)
        # The best has the accent, the next one a colour, baselines are in ink, and all others grey.
        colours = {name: INK if name in baselines else GREY for name in over} | {best: ACCENT}
        colours |= dict.fromkeys([name for name in others if name not in baselines][:1], OTHER)
        looks: dict[str, dict[str, Any]] = {
            name: {"color": MUTED} for name in over if colours[name] in (GREY, INK)
        }
        looks |= {name: {"color": OTHER} for name in over if colours[name] == OTHER} | {best: FIRST}
        name_points(axes, draw_lines(axes, over, colours, baselines), looks)

    return on_axes(
        ax, draw, name, finding, subtitle, footer, alt, height=height, left=0.69, above=0.05
    )


def _plain(number: float) -> str:
    """Three digits, without an exponent, which a screen reader would spell."""
    return f"{float(f'{number:.3g}'):.15g}"


def _axes(m: Measurement) -> dict[str, Any]:
    return dict(zip("MNK", m.shape, strict=True)) if m.shape else m.axes


def _work(m: Measurement, unit: str) -> float:
    """What a microsecond divides to give this unit; 0 where the work isn't known."""
    work = {
        "tflops": (m.work.flops or 0) / 1e6,
        "gbs": m.moved_bytes / 1e3,
        "items": (m.work.elements or 0) / 1e3,
    }
    return work.get(unit, 1.0)


def _points(timed: list[Measurement], x: str, y: str) -> tuple[Lines, set[str]]:
    """The points of each line by its name, in the order of x; and the names of the lines of baselines."""
    kernels = {m.kernel for m in timed}
    differing = set[str]()
    if not all(m.shape for m in timed):
        others = {name for m in timed for name in _axes(m)} - {x}
        differing = {name for name in others if len({_axes(m).get(name) for m in timed}) > 1}
    over = dict[str, dict[float, tuple[float, ...]]]()
    baselines = set[str]()
    for m in timed:
        axes = _axes(m)
        us = m.us or 0.0
        where = "".join(f" {name}={value}" for name, value in axes.items() if name in differing)
        if y == "share":
            if m.kernel != CUBLAS and m.ratio:
                shares = tuple(
                    100 * share
                    for share in (m.ratio, m.ratio_low or m.ratio, m.ratio_high or m.ratio)
                )
                over.setdefault(m.kernel + where, {}).setdefault(float(axes[x]), shares)
            continue
        work = _work(m, y)
        if not work:
            raise NothingToDraw(
                f"{m.title} states no work for {UNITS[y]}: choose another y, or state it"
            )
        times: dict[str, tuple[float, ...]] = {
            m.kernel + where: (us, m.us_low or us, m.us_high or us)
        }
        baselines.add(m.baseline)
        for baseline, ratio in m.against.items():
            if ratio and baseline not in kernels:
                baselines.add(baseline + where)
                times.setdefault(
                    baseline + where, (us * ratio.value, us * ratio.low, us * ratio.high)
                )
        for name, (middle, *ends) in times.items():
            ys = [time if y == "us" else work / time for time in (middle, *ends)]
            over.setdefault(name, {}).setdefault(float(axes[x]), (ys[0], *sorted(ys[1:])))
    return {
        name: [(at, *ys) for at, ys in sorted(over[name].items())] for name in in_order(over)
    }, baselines


INCHES: Any = {"height": 2.95, "left": 0.69, "above": 0.2, "below": 0.45}
SAME = 0.02  # of an error
UNIT = "u·D, with u = 2⁻²⁴ and D the 2-norm of an element's K products"


@style.chart
def accuracy(run: Run, size: Size | None = None, *, ax: Axes | None = None) -> Any:
    """TFLOP/s of each measured kernel against its largest error on U(-1, 1), and the limit of the class fp32, at one
    size. Returns a Chart, or `ax`.

    Kernels of the class fp32 are drawn full, the others hollow; rungs on tensor cores have another colour than those on
    FP32 cores, and what is no rung is grey. Raises NothingToDraw where fewer than two kernels have an error, or none
    has the class fp32; BadSetting.
    """
    shape = selection.shape_to_draw(run, size)
    kernels = {m.kernel: m for m in rows(run, shape) if measured(m) and selection.error_of(m)}
    errors = {name: error for name, m in kernels.items() if (error := selection.error_of(m))}
    precise = {
        name: m.ratio or 0.0 for name, m in kernels.items() if selection.class_of(m) == "fp32"
    }
    if len(errors) < 2 or not precise:
        raise NothingToDraw(
            f"fewer than two kernels have a measured error at size {shape}, or none has the class fp32: measure them "
            "with the gate"
        )
    best = max(precise, key=precise.__getitem__)
    limit = errors[next(iter(precise))][1]
    points = {name: (error, kernels[name].tflops or 0.0) for name, (error, _) in errors.items()}
    finding = f"{best} is the fastest kernel with FP32's error"
    if best != CUBLAS and CUBLAS in errors:
        times = errors[best][0] / errors[CUBLAS][0]
        than = "less error" if times < 1 else f"{times:.1f} times its error"
        than = "the same error" if abs(times - 1) < SAME else than
        finding = f"{best} is {precise[best]:.2f} times as fast as cuBLAS, with {than}"
    on_fp32_cores = {rung.name for rung in RUNGS} - ON_TENSOR_CORES
    subtitle = (
        f"C = A·B in FP32, {dimensions(shape)}; both axes are logarithmic. The largest error is in {UNIT}. Full: the "
        "class fp32, which limits the rms, too; dashed: its limit of the largest error."
    )
    if on_fp32_cores & points.keys():
        subtitle += " Muted blue: FP32 cores."
    alt = [f"Scatter chart of TFLOP/s against the largest error at {dimensions(shape)}"]
    alt += [f"{name} {rate(y)} TFLOP/s with {_plain(x)} u·D" for name, (x, y) in points.items()]
    alt += [f"limit of the class fp32: {_plain(limit)} u·D"]

    def draw(axes: Axes) -> None:
        names = {name: f"{name} {rate(y)}" for name, (_, y) in points.items()}
        leave_room(axes, names.values(), BODY_PT)
        xs, ys = zip(*points.values(), strict=True)
        at = LogLocator(10, (1, 3) if max(xs) < 300 * min(xs) else (1,))
        scale(axes.xaxis, at, "largest error, u·D", (min(xs) / 2, max(*xs, limit) * 1.5), log=10)
        scale(
            axes.yaxis, LogLocator(10, (1, 2, 5)), "TFLOP/s", (min(ys) / 1.4, 1.4 * max(ys)), log=10
        )
        axes.axvline(limit, color=MUTED, linestyle="--", linewidth=1.0, zorder=1)
        annotate(
            axes,
            "limit of class fp32",
            (limit, axes.get_ylim()[1]),
            -4,
            2,
            color=MUTED,
            va="bottom",
        )
        looks = dict[str, dict[str, Any]]()
        for name, (x, y) in points.items():
            colour = MUTED
            looks[names[name]] = {"color": MUTED}
            if name in ON_TENSOR_CORES | on_fp32_cores:
                colour = ACCENT if name in ON_TENSOR_CORES else DEFLATES
                looks[names[name]] = {"fontsize": BODY_PT}
            face = colour if name in precise else PAPER
            axes.plot(x, y, "o", color=colour, markerfacecolor=face, markersize=6, zorder=3)
        name_points(axes, {names[name]: point for name, point in points.items()}, looks)

    words = "accuracy", finding, subtitle, selection.labels(run, kernels.values()), alt
    return on_axes(ax, draw, *words, **INCHES)


@style.chart
def curves(
    finding: str, over: Mapping[str, Mapping[int, float]], label: str, x: str, y: str, *, subtitle: str = "",
    limit: Mapping[int, float] = {},
) -> Chart:  # fmt: skip
    """Numbers by x: one line per name, the first one accented. finding: the title. label: the source. x, y: what the
    axes are. limit: a dashed line, such as of errors; with one, the axes are logarithmic.
    """
    alt = [f"Line chart of {y} against {x}"]
    alt += [
        f"{name}: " + ", ".join(f"{y:.3g} at {at}" for at, y in line.items())
        for name, line in over.items()
    ]
    lines = {name: sorted(line.items()) for name, line in over.items()}

    def draw(axes: Axes) -> None:
        leave_room(axes, lines, BODY_PT)
        _x_axis(axes, lines, x, WIDE if limit else math.inf)
        scale(axes.yaxis, LogLocator(10) if limit else MaxNLocator(6), y, log=10 if limit else 0)
        axes.plot([*limit], [*limit.values()], "--", color=MUTED, linewidth=1.0, zorder=1)
        first = next(iter(lines))
        name_points(
            axes,
            draw_lines(axes, lines, dict.fromkeys(lines, INK) | {first: ACCENT}),
            {first: FIRST},
        )

    chart: Chart = on_axes(None, draw, "curves", finding, subtitle, [label], alt, **INCHES)
    return chart
