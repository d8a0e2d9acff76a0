"""Accuracy of the harness: its error on kernels of known length, and its samples.

The error is compared with other harnesses. The samples of one measurement are drawn with the
interval of their median.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots import style
from worklog.plots.charts.lines import FIRST, draw_lines
from worklog.plots.figure import Chart, annotate, leave_room, name_points, on_axes, page, scale
from worklog.plots.selection import measured, sample_times, shape_to_draw
from worklog.plots.style import (
    ACCENT,
    ALERT,
    FAINT,
    GREY,
    INK,
    MARGIN_IN,
    MUTED,
    OTHER,
    SMALL_PT,
    WIDTH_IN,
)
from worklog.runs import (
    TOLERANCE,
    TOLERANCE_US,
    Comparison,
    Estimate,
    Measurement,
    Run,
    allowed_us,
    bound,
    median,
    open_comparison,
    throttled,
)

if TYPE_CHECKING:
    from worklog.plots.figure import OnAxes
    from worklog.problem import Size

# inches
HEIGHT = 2.2
PEERS_HEIGHT = 3.3
# The first is in every comparison.
OURS = "worklog"
CUPTI = "worklog, CUPTI"
TICKS = (-1, 0, 1, 2, 5, 10, 20, 50, 100)
LINEAR = 1.0  # microseconds: below, the peers' axis is linear, since an error may be 0


@style.chart
def calibration(run: Run, *, ax: OnAxes | None = None) -> OnAxes:
    """Draw the error left at each known length, and the promised band.

    The texts have the tick, the noise floor and the flush. Returns a Chart, or `ax`.
    """
    calibrated = run.calibration
    errors = calibrated.error_us
    half_percent = 50 * (calibrated.aa_high - calibrated.aa_low)
    footer = [
        f"tick of the events: {1e3 * calibrated.tick_us:.0f} ns · slope {calibrated.slope:.5f}",
        f"a kernel against itself, interleaved: {100 * calibrated.aa_ratio:.2f} % ±{half_percent:.2f}",
        f"a read takes {calibrated.warm_cycles:.0f} cycles from L2, {calibrated.cold_cycles:.0f} after the flush; "
        f"{100 * calibrated.still_cached:.1f} % of the lines were still in L2",
        run.full_label,
    ]
    worst = max(map(abs, errors.values()))
    subtitle = (
        f"Reading minus true length, µs, with the event overhead of {calibrated.offset_us:.2f} µs removed. "
        f"Band: what is promised, ±{TOLERANCE_US:g} µs or ±{100 * TOLERANCE:g} % of the length."
    )
    alt = ["Error in microseconds left on kernels of known length in microseconds"]
    alt += [f"{_signed(error)} at {length:g}" for length, error in errors.items()]

    def draw(axes: Axes) -> None:
        _length_axis(axes, errors, 0.7, 1.45)
        knots = np.geomspace(*axes.get_xlim(), 400).tolist()
        allowed = [allowed_us(length) for length in knots]
        axes.fill_between(knots, [-us for us in allowed], allowed, color=FAINT, lw=0)
        for length, error in errors.items():
            colour = ACCENT if abs(error) <= allowed_us(length) else ALERT
            axes.plot([length] * 2, [0, error], color=colour, linewidth=1.6)
            axes.plot([length], [error], "o", color=colour, markersize=4)
            lift = 7 if error >= 0 else -7
            annotate(axes, _signed(error), (length, error), 0, lift, va="center")
        reach = max(0.15, 1.6 * worst)
        axes.set_ylim(-reach, reach)

    return on_axes(
        ax,
        draw,
        "calibration",
        _calibration_finding(errors),
        subtitle,
        footer,
        alt,
        height=HEIGHT,
        left=MARGIN_IN + 0.5,
        right=0.2,
    )


def _calibration_finding(errors: Mapping[float, float]) -> str:
    """Return the largest error, or the lengths at which the error isn't allowed. In µs."""
    broken = [length for length, error in sorted(errors.items()) if abs(error) > allowed_us(length)]
    if broken:
        lengths = ", ".join(f"{length:g}" for length in broken)
        return f"The harness breaks its promise at {lengths} µs"
    worst = bound(max(map(abs, errors.values())))
    return f"Known lengths from {min(errors):g} to {max(errors):g} µs are read within {worst} µs"


def _length_axis(axes: Axes, lengths: Collection[float], left: float, right: float) -> None:
    """Prepare a log axis of true lengths, with a line at no error.

    left, right: the axis's ends, as factors of the shortest and the longest length
    """
    scale(
        axes.xaxis,
        sorted(lengths),
        "true length, µs",
        (left * min(lengths), right * max(lengths)),
        log=10,
    )
    axes.axhline(0, color=MUTED, linewidth=0.6)


def _signed(error: float, digits: int = 3) -> str:
    """Return the error with its sign; 0 is positive."""
    return f"{error:+z.{digits}f}".replace("-", "−")


Errors = Mapping[str, Sequence[tuple[float, float]]]  # by harness: true lengths and errors, in µs


@style.chart
def peers(comparison: Comparison | None = None, *, ax: OnAxes | None = None) -> OnAxes:
    """Draw reading minus true length by true length, a line per harness.

    The band is our own error. The three harnesses that are never far from the true length have
    colours, and ours always the same. Returns a Chart, or `ax`. Raises NothingToDraw if there is no
    reading of a known length.

    comparison: default, the one that comes with the package
    """
    comparison = comparison or open_comparison()
    errors = comparison.errors()
    if not errors:
        raise NothingToDraw(
            "this comparison has no kernel of known length: make one with `worklog peers` on a GPU"
        )
    worst = {name: max((error for _, error in points), key=abs) for name, points in errors.items()}
    nearest = sorted(errors, key=lambda name: (abs(worst[name]), name))
    band_us = abs(comparison.calibration.worst_us)
    subtitle = (
        "Reading minus true length, µs, on kernels that spin for a known time: the same kind of kernel that worklog "
        f"calibrates on. Both axes are logarithmic, the vertical one linear up to ±{LINEAR:g} µs. In colour: the three "
        f"that are nearest to the true length. Band: our own error that calibration leaves, ±{bound(band_us)} µs."
    )
    footer = [
        f"{comparison.label} · numbers at the names: error at the shortest and at the longest length, µs"
    ]
    missing = [
        name for name in comparison.harnesses if name not in errors and name in comparison.reasons
    ]
    if missing:
        footer.append(f"not read: {', '.join(missing)}")
    alt = [
        "Line chart of reading minus true length in microseconds on kernels of known length in microseconds"
    ]
    for name, points in errors.items():
        texts = [f"{error:+.2f} at {length:g}" for length, error in points]
        alt.append(f"{name}: {', '.join(texts)}")

    def draw(axes: Axes) -> None:
        # Ours first, so that it always has the accent.
        first_three = sorted(nearest[:3], key=lambda name: name != OURS)
        colours = dict.fromkeys(errors, GREY) | dict(
            zip(first_three, (ACCENT, OTHER, ALERT), strict=False)
        )
        labels = {name: _end_errors(name, points) for name, points in errors.items()}
        leave_room(axes, labels.values())
        lengths = set[float]()
        for points in errors.values():
            lengths |= {length for length, _ in points}
        _length_axis(axes, lengths, 0.85, 1.18)
        _error_axis(axes, errors)
        axes.axhspan(-band_us, band_us, color=FAINT, zorder=0)
        looks = {
            labels[name]: {"color": MUTED} for name, colour in colours.items() if colour == GREY
        }
        if OURS in errors:
            looks[labels[OURS]] = FIRST
        ends = draw_lines(axes, errors, colours)
        name_points(axes, {labels[name]: end for name, end in ends.items()}, looks)

    return on_axes(
        ax,
        draw,
        "peers",
        _peers_finding(nearest, worst),
        subtitle,
        footer,
        alt,
        height=PEERS_HEIGHT,
        left=MARGIN_IN + 0.45,
    )


def _peers_finding(nearest: Sequence[str], worst: Mapping[str, float]) -> str:
    """Return our largest error and that of the best other harness.

    nearest: the harnesses in the order of their largest errors
    worst: the largest error by harness, in µs
    """
    if OURS not in worst:
        return "What each harness reads on kernels of known length"
    finding = f"Worklog is at most {bound(worst[OURS])}\u00a0µs off on kernels of known length"
    if CUPTI in worst:
        finding += f", with CUPTI {bound(worst[CUPTI])}\u00a0µs"
    best = next((name for name in nearest if not name.startswith(OURS)), None)
    if best is not None:
        finding += f"; the best of the other harnesses, {best}, {bound(worst[best])}\u00a0µs"
    return finding


def _end_errors(name: str, points: Sequence[tuple[float, float]]) -> str:
    """Return a harness's name with its errors at the shortest and at the longest length."""
    return f"{name} {_signed(points[0][1], 2)} … {_signed(points[-1][1], 2)}"


def _error_axis(axes: Axes, errors: Errors) -> None:
    """Prepare the vertical axis of errors: linear near 0, else logarithmic."""
    values = list[float]()
    for points in errors.values():
        values += [error for _, error in points]
    low = min(-0.5, 1.3 * min(values))
    high = max(2.0, 1.3 * max(values))
    axes.set_yscale("symlog", linthresh=LINEAR, linscale=0.8)
    axes.set_ylim(low, high)
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set_yticks(ticks, [f"{tick:+g}" if tick else "0" for tick in ticks])
    axes.minorticks_off()


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


class Running(NamedTuple):
    """The running median: its estimate after each of some numbers of samples that count."""

    steps: list[int]  # numbers of samples
    medians: list[Estimate]
    noise: list[float]  # standard deviation over mean of the samples, in percent

    def half_percent(self, index: int) -> float:
        """Return the half-width of the median's interval at a step, in percent."""
        return 100 * self.medians[index].relative_half_width


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
    times_us, counts = map(np.array, sample_times(m))
    running = _running_median(m, times_us, counts)
    last = running.medians[-1]
    last_half = running.half_percent(-1)
    precision = 100 * float(run.harness.get("precision", 0.005))
    finding = (
        f"{kernel} at {shape}: single samples scatter by {running.noise[-1]:.2g} %, the median of {m.n} is known "
        f"to ±{last_half:.2g} %"
    )
    subtitle = (
        "Each sample in turn, µs, in grey those that do not count, and the running median in its 95 % interval; "
        f"sampling stops at ±{precision:g}\u00a0%. Below: the SM clock."
    )
    alt = [
        f"Samples of {kernel} at {shape} in the order taken, {len(times_us)} of which {m.n} count, median "
        f"{last.value:.2f} µs, and the half-width of its 95 % interval, requested: ±{precision:g} %"
    ]
    for index in range(0, len(running.steps), max(1, len(running.steps) // 6)):
        half_percent = running.half_percent(index)
        alt.append(
            f"±{half_percent:.2f} % after {running.steps[index]}, σ / mean {running.noise[index]:.2f} %"
        )
    body = ABOVE + TOP + BETWEEN + CLOCK + BELOW
    chart = page(f"samples_{kernel}_{shape}", finding, subtitle, [run.full_label], alt, body)
    bottom = chart.body_bottom + BELOW
    width = WIDTH_IN - MARGIN_IN - LEFT - RIGHT
    clock = chart.axes_at(MARGIN_IN + LEFT, bottom, width, CLOCK)
    top = chart.axes_at(MARGIN_IN + LEFT, bottom + CLOCK + BETWEEN, width, TOP)
    end = len(times_us) + 0.5
    for axes in (clock, top):
        axes.set_xlim(0.5, end)
    _draw_samples(top, times_us, counts, running)
    annotate(
        top,
        f"{last.value:.4g} ±{last_half:.2g} %",
        (end, last.value),
        va="center",
        annotation_clip=False,
    )
    _draw_clock(clock, m, end)
    return chart


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


def _draw_samples(axes: Axes, times_us: Any, counts: Any, running: Running) -> None:
    """Draw the samples as dots, and the running median in its interval.

    times_us, counts: arrays of the samples, and of which of them count
    """
    places = np.arange(1, len(times_us) + 1)
    steps = places[counts][[n - 1 for n in running.steps]]
    low = [estimate.low for estimate in running.medians]
    high = [estimate.high for estimate in running.medians]
    axes.fill_between(steps, low, high, color=FAINT, linewidth=0)
    dot_pt = 3.0 if len(times_us) < 100 else 1.8
    for colour, is_drawn in ((ACCENT, counts), (GREY, ~counts)):
        axes.plot(
            places[is_drawn],
            times_us[is_drawn],
            "o",
            color=colour,
            markersize=dot_pt,
            markeredgewidth=0,
        )
    values = [estimate.value for estimate in running.medians]
    axes.plot(steps, values, color=INK, linewidth=1.2)
    axes.set_ylabel("µs")
    axes.tick_params(labelbottom=False)


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
