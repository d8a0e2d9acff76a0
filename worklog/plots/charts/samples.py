"""The samples of one measurement in the order in which they were taken, and how the interval of their median closes.

It answers two questions about a number: what does its noise look like, and why did sampling stop where it did.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.gpu import THROTTLING, reason_names
from worklog.plots.figure import ACCENT, ALERT, FAINT, GREY, INK, MARGIN_IN, MUTED, SMALL_PT, WIDTH_IN, Chart, styled
from worklog.plots.page import a_few, beside, page, scale
from worklog.plots.selection import Size, measured, sample_times, shape_to_draw
from worklog.runs import Estimate, Run, median

TOP, CLOCK, LOW, BETWEEN, ABOVE, BELOW, LEFT, RIGHT = 1.9, 0.45, 1.2, 0.32, 0.12, 0.42, 0.55, 1.0  # inches
LEAST, MOST = 6, 160  # samples before an interval is drawn, and how many times it is drawn at most


class Closing(NamedTuple):
    """After the first n samples that count: their median, and their standard deviation over their mean."""

    n: int
    median: Estimate
    noise: float


def closing(us: list[float], placements: list[int], process_us: float = 0.0) -> list[Closing]:
    """How the interval closes as samples come in, from LEAST of them to all, by the harness's own estimate. placements:
    of each sample. process_us: the half-width of what differs between processes.
    """
    steps = []
    for n in sorted({round(n) for n in np.linspace(min(LEAST, len(us)), len(us), min(MOST, len(us)))}):
        noise = float(np.std(us[:n], ddof=1) / np.mean(us[:n])) if n > 1 else 0.0
        steps.append(Closing(n, median(us[:n], placements[:n]).between_processes(process_us), noise))
    return steps


@styled()
def samples(run: Run, kernel: str, size: Size | None = None) -> Chart:
    """Every sample of a kernel at one size and the running median in its interval, the SM clock of each sample with
    the reason why it was slowed, and the interval's half-width beside the samples' own noise. Raises NothingToDraw
    where the run has no samples of it, BadSetting.
    """
    shape = shape_to_draw(run, size)
    m = next((m for m in run.select(kernel, shape) if measured(m) and m.n), None)
    if m is None:
        raise NothingToDraw(f"the run has no samples of {kernel} at {shape}: `worklog run --size {shape}`")
    us, counts = map(np.array, sample_times(run, m))
    places = np.arange(1, len(us) + 1)
    placed = np.array(m.samples.sides[0].placement or [0] * len(us))
    steps = closing(us[counts].tolist(), placed[counts].tolist(), (m.time and m.time.process) or 0.0)
    last, half, noise = steps[-1], [100 * s.median.relative_half_width for s in steps], [100 * s.noise for s in steps]
    precision = 100 * float(run.harness.get("precision", 0.005))
    finding = (
        f"{kernel} at {shape}: single samples scatter by {noise[-1]:.2g} %, the median of {last.n} is known "
        f"to ±{half[-1]:.2g} %"
    )
    subtitle = (
        "Above: each sample in turn, µs, in grey those that do not count, and the running median in its 95 % interval; "
        "the SM clock. Below: half of that interval's width, and the standard deviation over the mean; sampling stops "
        f"at ±{precision:g}\u00a0%."
    )
    alt = [
        f"Samples of {kernel} at {shape} in the order taken, {len(us)} of which {m.n} count, median "
        f"{last.median.value:.2f} µs, and the half-width of its 95 % interval, requested: ±{precision:g} %"
    ]
    for n in range(0, len(steps), max(1, len(steps) // 6)):
        alt.append(f"±{half[n]:.2f} % after {steps[n].n}, σ / mean {noise[n]:.2f} %")
    height = ABOVE + TOP + CLOCK + 2 * BETWEEN + LOW + BELOW
    new = page(f"samples_{kernel}_{shape}", finding, subtitle, [run.full_label], alt, height)
    bottom, panels = new.body_bottom + BELOW, list[Axes]()
    for high in (LOW, CLOCK, TOP):
        panels.append(new.axes(MARGIN_IN + LEFT, bottom, WIDTH_IN - MARGIN_IN - LEFT - RIGHT, high))
        panels[-1].set_xlim(0.5, len(us) + 0.5)
        bottom += high + BETWEEN
    narrowing, clock, top = panels

    def name(axes: Axes, y: float, words: str, colour: str) -> None:
        """Words right of the plot."""
        beside(axes, words, (len(us) + 0.5, y), va="center", color=colour, annotation_clip=False)

    at = places[counts][[step.n - 1 for step in steps]]
    top.fill_between(at, [s.median.low for s in steps], [s.median.high for s in steps], color=FAINT, linewidth=0)
    for colour, shown in ((ACCENT, counts), (GREY, ~counts)):
        size_pt = 3.0 if len(us) < 100 else 1.8
        top.plot(places[shown], us[shown], "o", color=colour, markersize=size_pt, markeredgewidth=0)
    top.plot(at, [s.median.value for s in steps], color=INK, linewidth=1.2)
    top.set_ylabel("µs")
    top.tick_params(labelbottom=False)
    name(top, last.median.value, f"{last.median.value:.4g}", INK)

    mhz = np.array(m.samples.sides[0].sm_mhz or [None], dtype=float)  # None is NaN
    clock.tick_params(labelbottom=False)
    clock.set_ylabel("MHz")
    if np.isnan(mhz).all():
        clock.set_yticks([])
        name(clock, 0.5, "unknown", MUTED)
    else:
        clock.plot(np.arange(1, len(mhz) + 1), mhz, color=ACCENT, linewidth=1.0)
        middle = float(np.nanmedian(mhz))
        reach = max(0.02 * middle, 1.1 * float(np.nanmax(np.abs(mhz - middle))))
        clock.set(ylim=(middle - reach, middle + reach), yticks=[round(middle)])
        slowed = m.samples.throttle_mask & THROTTLING
        words, colour = (f"slowed: {reason_names(slowed)}", ALERT) if slowed else ("not slowed", MUTED)
        clock.text(0.0, 1.05, words, transform=clock.transAxes, fontsize=SMALL_PT, color=colour, va="bottom")

    narrowing.axhline(precision, color=MUTED, linewidth=0.8, linestyle="--")
    narrowing.plot(at, noise, color=ALERT, linewidth=1.4)
    narrowing.plot(at, half, color=ACCENT, linewidth=1.4)
    values = [value for value in (*half, *noise, precision) if value > 0]
    limits = min(values) / 1.6, max(values) * 1.6
    narrowing.set_xlabel("samples taken")
    scale(narrowing.yaxis, a_few(*limits), "%", limits, log=10)
    lower, upper = sorted([(noise[-1], "σ / mean", INK), (half[-1], "interval", ACCENT)])
    least = max(lower[0], min(values))
    for place, (value, words, colour) in ((least, lower), (max(upper[0], 2.2 * least), upper)):
        name(narrowing, place, f"{words} {value:.2g}", colour)
    return new.figure
