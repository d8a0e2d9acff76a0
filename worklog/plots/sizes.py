"""Performance over size: the rate of every rung, and its share of cuBLAS, against N."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator

from worklog.errors import NothingToDraw
from worklog.plots import figure
from worklog.plots.figure import ACCENT, BODY_PT, GREY, INK, MARGIN_IN, MUTED, WIDTH_IN, Chart
from worklog.plots.page import Page, name_points, page, ticks
from worklog.plots.selection import CUBLAS, in_order, interval, measured, rows
from worklog.runs import Measurement, Run

PANEL, LEFT, BELOW, BETWEEN, RIGHT = 2.75, 0.5, 0.4, 0.3, 0.5  # inches
MOST_TICKS = 8  # sizes with a tick of their own; more are marked at powers of two


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
    rungs = [name for name in over if name != CUBLAS]
    if not rungs:
        raise NothingToDraw("no kernel was measured at two sizes: `worklog run --size 512 --size 4096`")
    best = max(rungs, key=lambda name: (over[name][-1].problem.flops, over[name][-1].ratio or 0.0))
    subtitle = (
        "C = A·B in FP32 of N × N matrices. Lines: median TFLOP/s and share of cuBLAS, timed in the same loop; bands: "
        "95 % interval, mostly narrower than a line."
    )
    alt = ["Line chart of FP32 matrix multiplication against the size N, TFLOP/s above and share of cuBLAS below"]
    alt += [f"{name} " + ", ".join(f"{_share(m)} of cuBLAS at {m.problem}" for m in over[name]) for name in rungs]
    ours = {name: over[name] for name in rungs}
    new = page("sizes", _finding(ours, best), subtitle, [run.full_label], alt, BELOW + 2 * PANEL + BETWEEN)
    room = max(figure.text_width(name, BODY_PT) for name in over)
    above = _axes(new, over, BELOW + PANEL + BETWEEN, room)
    above.set_yscale("log")
    ticks(above.yaxis, LogLocator(10, (1, 2, 5), numticks=99))
    above.set_ylabel("TFLOP/s")
    below = _axes(new, ours, BELOW, room)
    below.set_ylabel("% of cuBLAS")
    below.set_xlabel("N")
    below.axhline(100, color=MUTED, linewidth=0.9, zorder=1)
    for name, line in over.items():
        _draw(above, line, name == best, [m.tflops or 0.0 for m in line], [interval(m) for m in line])
        if name != CUBLAS:
            bands = [(100 * (m.ratio_low or 0.0), 100 * (m.ratio_high or 0.0)) for m in line]
            _draw(below, line, name == best, [100 * (m.ratio or 0.0) for m in line], bands)
    below.set_ylim(bottom=0)
    ticks(below.yaxis, MaxNLocator(6))
    looks = {best: {"color": ACCENT, "weight": "bold"}, CUBLAS: {"color": MUTED}}
    last = {name: (float(line[-1].problem.m), line[-1]) for name, line in over.items()}
    name_points(above, {name: (x, m.tflops or 0.0) for name, (x, m) in last.items()}, looks)
    name_points(below, {name: (x, 100 * (m.ratio or 0.0)) for name, (x, m) in last.items() if name != CUBLAS}, looks)
    return new.figure


def _axes(new: Page, over: dict[str, list[Measurement]], bottom: float, room: float) -> Axes:
    """Axes with N across, and `room` inches for names right of them."""
    left = MARGIN_IN + LEFT
    axes = new.axes(left, new.body_bottom + bottom, WIDTH_IN - RIGHT - room - left, PANEL)
    sizes = sorted({m.problem.m for line in over.values() for m in line})
    axes.set_xscale("log", base=2)
    ticks(axes.xaxis, sizes if len(sizes) <= MOST_TICKS else LogLocator(2), "{x:.0f}")
    axes.grid(True, zorder=0)
    return axes


def _draw(axes: Axes, line: list[Measurement], best: bool, y: list[float], bands: list[tuple[float, float]]) -> None:
    colour = ACCENT if best else INK if line[0].kernel == CUBLAS else GREY
    x = [m.problem.m for m in line]
    low, high = zip(*bands, strict=True)
    # Without clip paths, of which each is a layer of its own: drawn as PNG in a fifth of the time.
    axes.fill_between(x, low, high, color=(colour, 0.25), linewidth=0, zorder=2, clip_on=False)
    dashes = "--" if line[0].kernel == CUBLAS else "-"
    dots = 3.0 if len(x) <= MOST_TICKS else 0.0
    axes.plot(x, y, dashes, marker="o", markersize=dots, color=colour, zorder=3 + best, clip_on=False)


def _share(m: Measurement) -> str:
    return f"{100 * (m.ratio or 0.0):.0f} %"


def _finding(over: dict[str, list[Measurement]], best: str) -> str:
    """The shares of the kernel that is best at the largest size, there and at its smallest; and which leads there."""
    first, last = over[best][0], over[best][-1]
    leads = max((line[0] for line in over.values() if line[0].problem == first.problem), key=lambda m: m.ratio or 0.0)
    there = "" if leads is first else f", where {leads.kernel} leads with {_share(leads)}"
    return f"{best}: {_share(last)} of cuBLAS at {last.problem}, {_share(first)} at {first.problem}{there}"
