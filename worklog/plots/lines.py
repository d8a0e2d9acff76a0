"""Lines against an axis: any benchmark's, as Triton's perf_report draws providers, and the ladder's over the size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator

from worklog.errors import NothingToDraw
from worklog.plots import figure
from worklog.plots.figure import ACCENT, ALERT, BODY_PT, GREY, INK, MARGIN_IN, MUTED, OTHER, WIDTH_IN, Chart
from worklog.plots.page import Page, name_points, page, ticks
from worklog.plots.selection import CUBLAS, in_order, interval, labels, measured, rows
from worklog.runs import Measurement, Run

HEIGHT, BELOW, LEFT, RIGHT = 3.3, 0.42, 0.55, 0.5  # inches
PANEL, PANEL_LEFT, PANEL_BELOW, BETWEEN = 2.75, 0.5, 0.4, 0.3  # inches: of the two panels over the size
MOST_TICKS = 8  # values with a tick of their own; more are marked at powers of two
WIDE = 8.0  # largest over smallest: beyond that, an axis is logarithmic
MARKS = "osD^vPX*"
# What a rate is, its unit and what of the work it is over, per microsecond in that unit.
RATES: Mapping[str, tuple[str, Callable[[Measurement], float | None]]] = {
    "tflops": ("TFLOP/s", lambda m: m.flops and m.flops / 1e6),
    "gbs": ("GB/s", lambda m: m.moved_bytes / 1e3 if m.moved_bytes else None),
    "items": ("G items/s", lambda m: m.elements and m.elements / 1e3),
}
Point = tuple[float, float, float, float]  # x, and y with its interval


@figure.styled()
def lines(run: Run, x: str = "", by: str = "kernel", y: str = "") -> Chart:
    """A rate or the time against an axis, one line with its 95 % band per kernel and baseline, or per value of an axis.

    x: an axis with numbers, or M, N or K (default: N, else the first axis with two numbers). by: "kernel", or an axis;
    values of the other axes that differ are part of a line's name. y: "tflops", "gbs", "items" or "us" (default: the
    first of these whose work is known everywhere). A baseline that isn't measured as a kernel of the run has a line at
    its time beside the first kernel that alternated with it. Of matrix products, the square ones are drawn. Raises
    NothingToDraw. Example: `worklog.plots.lines(run, x="N", by="dtype", y="gbs")`.
    """
    found = [m for m in run.select() if m.status == "measured" and m.us and (m.shape is None or m.problem.square)]
    x = x or _first_axis(found)
    found = [m for m in found if _is_number(_axes(m).get(x))]
    y = y or next((rate for rate, (_, of) in RATES.items() if all(map(of, found))), "us")
    if y not in ("us", *RATES):
        raise NothingToDraw(f"there is no y {y!r}: choose from {', '.join(RATES)}, us")
    over, baselines = _points(run, found, x, by, y)
    if not any(len(points) > 1 for points in over.values()):
        raise NothingToDraw(f"no line has two points over {x or 'an axis'}: measure two values of an axis with numbers")
    ordered = _ordered(over, baselines, y)
    unit = "µs" if y == "us" else RATES[y][0]
    what = "Median time" if y == "us" else f"{unit}, from the median time"
    subtitle = f"{what}, against {x}; bands: 95 % interval, mostly narrower than a line."
    alt = [f"Line chart of {unit} against {x}"]
    alt += [f"{name} " + ", ".join(f"{p[1]:.4g} at {p[0]:g}" for p in points) for name, points in over.items()]
    new = page("lines", _finding(over, ordered, x, unit, y), subtitle, [run.full_label], alt, BELOW + HEIGHT)
    left, room = MARGIN_IN + LEFT, max(figure.text_width(name, BODY_PT) for name in over)
    axes = new.axes(left, new.body_bottom + BELOW, WIDTH_IN - RIGHT - room - left, HEIGHT)
    at = sorted({point[0] for points in over.values() for point in points})
    if at[0] > 0 and at[-1] / at[0] >= WIDE:
        axes.set_xscale("log", base=2)
    few = len(at) <= MOST_TICKS
    ticks(axes.xaxis, at if few else LogLocator(2) if axes.get_xscale() == "log" else MaxNLocator(6), "{x:.6g}")
    ys = [point[1] for points in over.values() for point in points]
    if max(ys) / min(ys) >= WIDE:
        axes.set_yscale("log")
        ticks(axes.yaxis, LogLocator(10, (1, 2, 5), numticks=99))
    else:
        axes.set_ylim(0, 1.08 * max(point[3] for points in over.values() for point in points))
        ticks(axes.yaxis, MaxNLocator(6))
    axes.set_ylabel(unit)
    axes.set_xlabel(x)
    axes.grid(True, zorder=0)
    colours = _colours(over, ordered, baselines)
    for number, (name, points) in enumerate(over.items()):
        mark = MARKS[number % len(MARKS)]
        _draw(axes, points, colours[name], marker=mark, markersize=3.2, zorder=3, dashed=name in baselines)
    looks = {name: {"color": MUTED} for name in over if name in baselines} | {
        ordered[0]: {"color": ACCENT, "weight": "bold"}
    }
    name_points(axes, {name: points[-1][:2] for name, points in over.items()}, looks)
    return new.figure


def _draw(axes: Axes, points: list[Point], colour: str, *, dashed: bool, **how: Any) -> None:
    """A line in its band. Without clip paths, each of which is a layer: the PNG is drawn in a fifth of the time."""
    xs, middle, low, high = zip(*points, strict=True)
    axes.fill_between(xs, low, high, color=(colour, 0.25), linewidth=0, zorder=2, clip_on=False)
    axes.plot(xs, middle, "--" if dashed else "-", color=colour, clip_on=False, **how)


def of_benchmarks(run: Run) -> dict[str, Callable[[], Chart]]:
    """A chart for each declared benchmark of the run, by name."""
    names = dict.fromkeys(m.kernel for m in run.select() if m.shape is None)
    return {
        f"lines_{''.join(c if c.isalnum() else '_' for c in name)}": lambda name=name: lines(  # type: ignore[misc]
            replace(run, measurements=run.select(name))
        )
        for name in names
    }


def _axes(m: Measurement) -> dict[str, Any]:
    return dict(zip("MNK", m.shape, strict=True)) if m.shape else m.axes


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _first_axis(found: list[Measurement]) -> str:
    """N, or the first axis that has two numbers; "" without one."""
    names = dict.fromkeys(["N", *(name for m in found for name in _axes(m))])
    values = {name: {_axes(m).get(name) for m in found if _is_number(_axes(m).get(name))} for name in names}
    return next((name for name, known in values.items() if len(known) > 1), "")


def _points(run: Run, found: list[Measurement], x: str, by: str, y: str) -> tuple[dict[str, list[Point]], set[str]]:
    """The points of each line by its name, in the order of x; and the names of the lines of baselines."""
    differing = {
        name
        for name in dict.fromkeys(name for m in found for name in _axes(m))
        if name not in (x, by) and len({_axes(m).get(name) for m in found}) > 1 and not all(m.shape for m in found)
    }
    kernels = {m.kernel for m in found}
    over, baselines = dict[str, list[Point]](), {m.baseline for m in found}
    for m in found:
        axes = _axes(m)
        if by != "kernel" and by not in axes:
            raise NothingToDraw(f"{m.kernel} has no axis {by}: choose from kernel, {', '.join(axes)}")
        others = "".join(f" {name}={axes[name]}" for name in axes if name in differing)
        several = len(kernels) > 1 and by != "kernel"
        name = (f"{m.kernel} " if several else "") + (m.kernel if by == "kernel" else f"{by}={axes[by]}")
        at, times = float(axes[x]), (m.us or 0.0, m.us_low or m.us or 0.0, m.us_high or m.us or 0.0)
        over.setdefault(name + others, []).append(_point(m, at, y, *times))
        for one in (m, *run.against(m)) if by == "kernel" else ():
            if one.baseline and one.baseline not in kernels and one.us and one.ratio:
                theirs = [
                    one.us * ratio for ratio in (one.ratio, one.ratio_low or one.ratio, one.ratio_high or one.ratio)
                ]
                line = over.setdefault(one.baseline + others, [])
                baselines.add(one.baseline + others)
                if all(point[0] != at for point in line):
                    line.append(_point(m, at, y, *theirs))
    return {name: sorted(over[name]) for name in in_order(over)}, baselines


def _point(m: Measurement, x: float, y: str, us: float, low: float, high: float) -> Point:
    if y == "us":
        return x, us, low, high
    work = RATES[y][1](m)
    if not work:
        raise NothingToDraw(f"{m.title} states no work for {RATES[y][0]}: choose another y, or state it")
    return x, work / us, work / high, work / low


def _ordered(over: Mapping[str, list[Point]], baselines: set[str], y: str) -> list[str]:
    """Names of the lines that reach the largest x: the best that isn't a baseline, then all others, best first."""
    last = max(points[-1][0] for points in over.values())
    there = [name for name, points in over.items() if points[-1][0] == last]
    there.sort(key=lambda name: over[name][-1][1] * (1 if y == "us" else -1))
    best = next((name for name in there if name not in baselines), there[0])
    return [best, *(name for name in there if name != best)]


def _colours(over: Mapping[str, list[Point]], ordered: list[str], baselines: set[str]) -> dict[str, str]:
    """The best has the accent, the next two have colours, baselines are in ink, and all others grey."""
    others = [name for name in ordered[1:] if name not in baselines]
    colours = {name: INK if name in baselines else GREY for name in over}
    return colours | dict(zip(others, (OTHER, ALERT), strict=False)) | {ordered[0]: ACCENT}


def _finding(over: Mapping[str, list[Point]], ordered: list[str], x: str, unit: str, y: str) -> str:
    best, *others = ordered
    at, value, low, high = over[best][-1]
    finding = f"{best}: {value:.4g} {unit} at {x} = {at:g}"
    if not others:
        return finding
    _, second, its_low, its_high = over[others[0]][-1]
    if its_low <= high and low <= its_high:
        return f"{finding}, where {others[0]} can't be distinguished from it"
    if y == "us":
        return f"{finding}, {second / value:.3g} times as fast as {others[0]}"
    return f"{finding}, {value / second:.3g} times the rate of {others[0]}"


@figure.styled()
def sizes(run: Run) -> Chart:
    """TFLOP/s (log) above and % of cuBLAS below, against N (log) of square problems, one line with its 95 % band per
    kernel. Raises NothingToDraw where fewer than two sizes were measured.
    """
    found: dict[str, list[Measurement]] = {}
    for shape in (shape for shape in run.shapes() if shape.square):
        for m in filter(measured, rows(run, shape)):
            found.setdefault(m.kernel, []).append(m)
    over = {name: found[name] for name in in_order(found) if len(found[name]) > 1}
    ours = {name: line for name, line in over.items() if name != CUBLAS}
    if not ours:
        raise NothingToDraw("no kernel was measured at two sizes: `worklog run --size 512 --size 4096`")
    best = max(ours, key=lambda name: (over[name][-1].problem.flops, over[name][-1].ratio or 0.0))
    subtitle = (
        "C = A·B in FP32 of N × N matrices. Lines: median TFLOP/s and share of cuBLAS, timed in the same loop; bands: "
        "95 % interval, mostly narrower than a line."
    )
    alt = ["Line chart of FP32 matrix multiplication against the size N, TFLOP/s above and share of cuBLAS below"]
    alt += [
        f"{name} " + ", ".join(f"{_share(m)} of cuBLAS at {m.problem}" for m in line) for name, line in ours.items()
    ]
    stated = labels(run, (m for line in over.values() for m in line))
    new = page("sizes", _of_sizes(ours, best), subtitle, stated, alt, PANEL_BELOW + 2 * PANEL + BETWEEN)
    room = max(figure.text_width(name, BODY_PT) for name in over)
    above = _panel(new, over, PANEL_BELOW + PANEL + BETWEEN, room)
    above.set_yscale("log")
    ticks(above.yaxis, LogLocator(10, (1, 2, 5), numticks=99))
    above.set_ylabel("TFLOP/s")
    below = _panel(new, ours, PANEL_BELOW, room)
    below.set_ylabel("% of cuBLAS")
    below.set_xlabel("N")
    below.axhline(100, color=MUTED, linewidth=0.9, zorder=1)
    looks = {best: {"color": ACCENT, "weight": "bold"}, CUBLAS: {"color": MUTED}}
    rates = {name: [_rate_point(m) for m in line] for name, line in over.items()}
    shares = {name: [_share_point(m) for m in line] for name, line in ours.items()}
    for axes, lines in ((above, rates), (below, shares)):
        for name, points in lines.items():
            colour = ACCENT if name == best else INK if name == CUBLAS else GREY
            dots = 3.0 if len(points) <= MOST_TICKS else 0.0
            _draw(axes, points, colour, marker="o", markersize=dots, zorder=3 + (name == best), dashed=name == CUBLAS)
    below.set_ylim(bottom=0)
    ticks(below.yaxis, MaxNLocator(6))
    for axes, lines in ((above, rates), (below, shares)):
        name_points(axes, {name: points[-1][:2] for name, points in lines.items()}, looks)
    return new.figure


def _panel(new: Page, over: dict[str, list[Measurement]], bottom: float, room: float) -> Axes:
    """Axes with N across, and `room` inches for names right of them."""
    left = MARGIN_IN + PANEL_LEFT
    axes = new.axes(left, new.body_bottom + bottom, WIDTH_IN - RIGHT - room - left, PANEL)
    at = sorted({m.problem.m for line in over.values() for m in line})
    axes.set_xscale("log", base=2)
    ticks(axes.xaxis, at if len(at) <= MOST_TICKS else LogLocator(2), "{x:.0f}")
    axes.grid(True, zorder=0)
    return axes


def _share(m: Measurement) -> str:
    return f"{100 * (m.ratio or 0.0):.0f} %"


def _rate_point(m: Measurement) -> Point:
    """N, and TFLOP/s with their interval."""
    return m.problem.m, m.tflops or 0.0, *interval(m)


def _share_point(m: Measurement) -> Point:
    """N, and the share of cuBLAS with its interval, percent."""
    return m.problem.m, 100 * (m.ratio or 0.0), 100 * (m.ratio_low or 0.0), 100 * (m.ratio_high or 0.0)


def _of_sizes(over: dict[str, list[Measurement]], best: str) -> str:
    """The shares of the kernel that is best at the largest size, there and at its smallest; and which leads there."""
    first, last = over[best][0], over[best][-1]
    leads = max((line[0] for line in over.values() if line[0].problem == first.problem), key=lambda m: m.ratio or 0.0)
    there = "" if leads is first else f", where {leads.kernel} leads with {_share(leads)}"
    return f"{best}: {_share(last)} of cuBLAS at {last.problem}, {_share(first)} at {first.problem}{there}"
