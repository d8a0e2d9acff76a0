"""The samples of one measurement in the order in which they were taken, and how the interval of their median closes.

It answers two questions about a number: what does its noise look like, and why did sampling stop where it did.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots.figure import Chart
from worklog.plots.page import beside, page
from worklog.plots.selection import Size, measured, shape_to_draw
from worklog.plots.style import ACCENT, ALERT, FAINT, GREY, INK, MARGIN_IN, MUTED, WIDTH_IN, styled
from worklog.runs.run import Run
from worklog.runs.statistics import median

TOP, LOW, BETWEEN, ABOVE, BELOW, LEFT, RIGHT = 1.9, 1.2, 0.32, 0.12, 0.42, 0.55, 1.0  # inches
LEAST, MOST = 6, 160  # samples before an interval is drawn, and how many times it is drawn at most
TICKS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)


@dataclass(frozen=True)
class Closing:
    """After the first n samples that count: their median, its 95 % interval, and their standard deviation over their
    mean."""

    n: int
    value: float
    low: float
    high: float
    noise: float

    @property
    def half_width(self) -> float:
        """Of the interval, relative."""
        return (self.high - self.low) / 2 / self.value


def closing(us: list[float]) -> list[Closing]:
    """How the interval closes as samples come in, from LEAST of them to all."""
    counts = sorted({round(n) for n in np.linspace(min(LEAST, len(us)), len(us), min(MOST, len(us)))})
    found = []
    for n in counts:
        known = median(us[:n])
        noise = float(np.std(us[:n], ddof=1) / np.mean(us[:n])) if n > 1 else 0.0
        found.append(Closing(n, known.value, known.low, known.high, noise))
    return found


@styled()
def samples(run: Run, kernel: str, size: Size | None = None) -> Chart:
    """Every sample of a kernel at one size, the running median in its interval, and under them the interval's
    half-width beside the samples' own noise. Raises NothingToDraw where the run has no samples of it, BadShape.
    """
    shape = shape_to_draw(run, size)
    m = next((m for m in run.select(kernel, shape) if measured(m) and m.samples.get("us")), None)
    if m is None:
        raise NothingToDraw(f"the run has no samples of {kernel} at {shape}: `worklog run --size {shape}`")
    overhead = run.calibration.get("offset_us", 0.0) if run.harness.get("offset", "removed") == "removed" else 0.0
    us = [value - overhead for value in m.samples["us"]]
    places = [index for index, counts in enumerate(m.samples["counts"], start=1) if counts]
    steps = closing([us[place - 1] for place in places])
    precision, last = 100 * float(run.harness.get("precision", 0.005)), steps[-1]
    finding = (
        f"{kernel} at {shape}: single samples scatter by {100 * last.noise:.2g} %, the median of {last.n} is known "
        f"to ±{100 * last.half_width:.2g} %"
    )
    subtitle = (
        "Above: each sample in turn, µs, in grey those that do not count; the running median in its 95 % interval. "
        f"Below: half of that interval's width, and the standard deviation over the mean; sampling stops at "
        f"±{precision:g} %."
    )
    parts = [
        f"±{100 * s.half_width:.2f} % after {s.n}, σ / mean {100 * s.noise:.2f} %"
        for s in steps[:: max(1, len(steps) // 6)]
    ]
    alt = (
        f"Samples of {kernel} at {shape} in the order taken, {len(us)} of which {m.n} count, median "
        f"{last.value:.2f} µs. Half-width of its 95 % interval: {'; '.join(parts)}. "
        f"Requested: ±{precision:g} %. Source: {run.label}."
    )
    height = ABOVE + TOP + BETWEEN + LOW + BELOW
    new = page(f"samples_{kernel}_{shape}", finding, subtitle, [run.full_label], alt, height)
    left, wide = MARGIN_IN + LEFT, WIDTH_IN - MARGIN_IN - LEFT - RIGHT
    low = new.axes(left, new.body_bottom + BELOW, wide, LOW)
    top = new.axes(left, new.body_bottom + BELOW + LOW + BETWEEN, wide, TOP)
    for axes in (top, low):
        axes.set_xlim(0.5, len(us) + 0.5)
    at = [places[step.n - 1] for step in steps]
    _cloud(top, us, set(places), steps, at)
    _narrowing(low, steps, at, precision)
    return new.figure


def _cloud(axes: Axes, us: list[float], counting: set[int], steps: list[Closing], at: list[int]) -> None:
    size = 3.0 if len(us) < 100 else 1.8
    axes.fill_between(at, [s.low for s in steps], [s.high for s in steps], color=FAINT, linewidth=0)
    for colour, counts in ((ACCENT, True), (GREY, False)):
        dots = [(n, value) for n, value in enumerate(us, start=1) if (n in counting) is counts]
        if dots:
            axes.plot(*zip(*dots, strict=True), "o", color=colour, markersize=size, markeredgewidth=0)
    axes.plot(at, [s.value for s in steps], color=INK, linewidth=1.2)
    axes.set_ylabel("µs")
    axes.tick_params(labelbottom=False)
    _name(axes, steps[-1].value, f"{steps[-1].value:.4g}", INK)


def _narrowing(axes: Axes, steps: list[Closing], at: list[int], precision: float) -> None:
    half, noise = [100 * s.half_width for s in steps], [100 * s.noise for s in steps]
    axes.axhline(precision, color=MUTED, linewidth=0.8, linestyle="--")
    axes.plot(at, noise, color=ALERT, linewidth=1.4)
    axes.plot(at, half, color=ACCENT, linewidth=1.4)
    values = [value for value in (*half, *noise, precision) if value > 0]
    axes.set_yscale("log")
    axes.set_ylim(min(values) / 1.6, max(values) * 1.6)
    ticks = [tick for tick in TICKS if min(values) / 1.5 < tick < max(values) * 1.5]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("samples taken")
    axes.set_ylabel("%")
    lower, upper = sorted([(noise[-1], "σ / mean", INK), (half[-1], "interval", ACCENT)])
    least = max(lower[0], min(values))
    for place, (value, words, colour) in ((least, lower), (max(upper[0], 2.2 * least), upper)):
        _name(axes, place, f"{words} {value:.2g}", colour)


def _name(axes: Axes, y: float, words: str, colour: str) -> None:
    """A line's name and its last value, right of the plot."""
    beside(axes, words, (axes.get_xlim()[1], y), va="center", color=colour, annotation_clip=False)
