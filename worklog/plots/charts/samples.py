"""The samples of one measurement, their running median, and the SM clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots import style
from worklog.plots.marks import annotate
from worklog.plots.page import Chart, Texts, page
from worklog.plots.selection import measured, sample_times, shape_to_draw
from worklog.plots.style import (
    ACCENT,
    ALERT,
    FAINT,
    GREY,
    INK,
    MARGIN_IN,
    MUTED,
    SMALL_PT,
    WIDTH_IN,
)
from worklog.problem import Shape, Size
from worklog.runs import Measurement, Run
from worklog.runs.nvml import throttled
from worklog.runs.statistics import Estimate, median

# inches
TOP = 2.1
CLOCK = 0.45
BETWEEN = 0.32
ABOVE = 0.12
BELOW = 0.42
LEFT = 0.55
RIGHT = 1.0
# samples before an interval is drawn, and how many times it is drawn at most
LEAST = 6
MOST = 160


@dataclass(frozen=True)
class Running:
    """The running median: its estimate after each of some numbers of samples that count."""

    steps: list[int]  # numbers of samples
    medians: list[Estimate]
    noise: list[float]  # standard deviation over mean of the samples, in percent

    def half_percent(self, index: int) -> float:
        """Return the half-width of the median's interval at a step, in percent."""
        return 100 * self.medians[index].relative_half_width


@dataclass(frozen=True)
class Sampled:
    """The samples of a measurement."""

    m: Measurement
    shape: Shape
    times_us: Any  # an array
    counts: Any  # an array: which of the samples count
    running: Running
    precision: float  # the requested half-width in percent


@style.chart
def samples(run: Run, kernel: str, size: Size | None = None) -> Chart:
    """Draw every sample of a kernel at one size, the running median, and the SM clock.

    The median has its interval. The clock of each sample has the reason why it was slowed. Raises
    NothingToDraw if the run has no samples of the kernel, and BadSetting for a size that can't be.
    """
    shape = shape_to_draw(run, size)
    m = next((m for m in run.select(kernel, shape) if measured(m) and m.n), None)
    if m is None:
        raise NothingToDraw(
            f"the run has no samples of {kernel} at {shape}: `worklog run --size {shape}`"
        )
    sampled = _sampled(run, m, shape)
    texts = Texts(
        f"samples_{kernel}_{shape}",
        finding=_finding(sampled),
        subtitle=_subtitle(sampled),
        footer=[run.full_label],
        alt=_alt(sampled),
    )
    chart = page(texts, ABOVE + TOP + BETWEEN + CLOCK + BELOW)
    left = MARGIN_IN + LEFT
    bottom = chart.body_bottom + BELOW
    width = WIDTH_IN - MARGIN_IN - LEFT - RIGHT
    clock = chart.axes_at(left, bottom, width, CLOCK)
    top = chart.axes_at(left, bottom + CLOCK + BETWEEN, width, TOP)
    end = len(sampled.times_us) + 0.5
    for axes in (clock, top):
        axes.set_xlim(0.5, end)
    _draw_samples(top, sampled, end)
    _draw_clock(clock, m, end)
    return chart


def _sampled(run: Run, m: Measurement, shape: Shape) -> Sampled:
    """Return the samples of a measurement."""
    times_us, counts = map(np.array, sample_times(m))
    return Sampled(
        m,
        shape,
        times_us,
        counts,
        _running_median(m, times_us, counts),
        precision=100 * float(run.harness.get("precision", 0.005)),
    )


def _finding(sampled: Sampled) -> str:
    """Return how much the samples scatter, and how well the median is known."""
    running = sampled.running
    return (
        f"{sampled.m.kernel} at {sampled.shape}: single samples scatter by "
        f"{running.noise[-1]:.2g} %, the median of {sampled.m.n} is known to "
        f"±{running.half_percent(-1):.2g} %"
    )


def _subtitle(sampled: Sampled) -> str:
    """Return the explanation of both parts."""
    return (
        "Each sample in turn, µs, in grey those that do not count, and the running median in its "
        f"95 % interval; sampling stops at ±{sampled.precision:g}\u00a0%. Below: the SM clock."
    )


def _alt(sampled: Sampled) -> list[str]:
    """Return the alt text: the median, and its interval at six steps."""
    running = sampled.running
    alt = [
        (
            f"Samples of {sampled.m.kernel} at {sampled.shape} in the order taken, "
            f"{len(sampled.times_us)} of which {sampled.m.n} count, median "
            f"{running.medians[-1].value:.2f} µs, and the half-width of its 95 % interval, "
            f"requested: ±{sampled.precision:g} %"
        )
    ]
    for index in range(0, len(running.steps), max(1, len(running.steps) // 6)):
        interval = f"±{running.half_percent(index):.2f} % after {running.steps[index]}"
        alt.append(f"{interval}, σ / mean {running.noise[index]:.2f} %")
    return alt


def _running_median(m: Measurement, times_us: Any, counts: Any) -> Running:
    """Return the median of the first n samples that count, by the harness's own estimate.

    It includes what differs between processes.

    times_us, counts: arrays of the samples, and of which of them count
    """
    placements = np.array(m.samples.sides[0].placement or [0] * len(times_us))[counts].tolist()
    valid_us = times_us[counts].tolist()
    process = 0.0
    if m.time is not None and m.time.process:
        process = m.time.process
    numbers = np.linspace(min(LEAST, len(valid_us)), len(valid_us), min(MOST, len(valid_us)))
    steps = sorted({round(number) for number in numbers})
    medians = []
    noise = []
    for n in steps:
        first_us = valid_us[:n]
        medians.append(median(first_us, placements[:n]).between_processes(process))
        noise.append(100 * float(np.std(first_us, ddof=1 if n > 1 else 0) / np.mean(first_us)))
    return Running(steps, medians, noise)


def _draw_samples(axes: Axes, sampled: Sampled, end: float) -> None:
    """Draw the samples as dots, and the running median in its interval.

    end: the x of the axes' right edge
    """
    places = np.arange(1, len(sampled.times_us) + 1)
    running = sampled.running
    steps = places[sampled.counts][[n - 1 for n in running.steps]]
    low = [estimate.low for estimate in running.medians]
    high = [estimate.high for estimate in running.medians]
    axes.fill_between(steps, low, high, color=FAINT, linewidth=0)
    for colour, is_drawn in ((ACCENT, sampled.counts), (GREY, ~sampled.counts)):
        axes.plot(
            places[is_drawn],
            sampled.times_us[is_drawn],
            "o",
            color=colour,
            markersize=3.0 if len(places) < 100 else 1.8,
            markeredgewidth=0,
        )
    values = [estimate.value for estimate in running.medians]
    axes.plot(steps, values, color=INK, linewidth=1.2)
    axes.set_ylabel("µs")
    axes.tick_params(labelbottom=False)
    text = f"{values[-1]:.4g} ±{running.half_percent(-1):.2g} %"
    annotate(axes, text, (end, values[-1]), va="center", annotation_clip=False)


def _draw_clock(axes: Axes, m: Measurement, end: float) -> None:
    """Draw the SM clock of each sample and the reason why it was slowed.

    A clock that isn't known is stated.

    end: the x of the axes' right edge
    """
    mhz = np.array(m.samples.sides[0].sm_mhz or [None], dtype=float)  # None is NaN
    axes.set(ylabel="MHz", xlabel="samples taken")
    if np.isnan(mhz).all():
        axes.set_yticks([])
        annotate(axes, "unknown", (end, 0.5), va="center", color=MUTED, annotation_clip=False)
        return
    axes.plot(np.arange(1, len(mhz) + 1), mhz, color=ACCENT, linewidth=1.0)
    middle = float(np.nanmedian(mhz))
    reach = max(0.02 * middle, 1.1 * float(np.nanmax(np.abs(mhz - middle))))
    axes.set(ylim=(middle - reach, middle + reach), yticks=[round(middle)])
    reason = throttled(m.samples.throttle_mask)
    text = f"slowed: {reason}" if reason else "not slowed"
    colour = ALERT if reason else MUTED
    axes.text(
        0.0, 1.05, text, transform=axes.transAxes, fontsize=SMALL_PT, color=colour, va="bottom"
    )
