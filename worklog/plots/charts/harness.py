"""How well the harness measures: its error on kernels of known length, beside that of other harnesses, and the samples
of one measurement with the interval of their median.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from worklog.plots import style
from worklog.plots.charts.lines import FIRST, draw_lines
from worklog.plots.figure import Chart, annotate, leave_room, name_points, on_axes, page, scale
from worklog.plots.selection import Size, measured, sample_times, shape_to_draw
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
    NothingToDraw,
    Run,
    allowed_us,
    bound,
    median,
    open_comparison,
    throttled,
)

# inches
HEIGHT = 2.2
PEERS_HEIGHT = 3.3
# the first is in every comparison
OURS = "worklog"
CUPTI = "worklog, CUPTI"
TICKS = (-1, 0, 1, 2, 5, 10, 20, 50, 100)
LINEAR = 1.0  # microseconds: below, the peers' axis is linear, since an error may be 0


@style.chart
def calibration(run: Run, *, ax: Axes | None = None) -> Any:
    """The error left at each known length, the promised band, and in words tick, noise floor and flush. Returns a
    Chart, or `ax`.
    """
    known = run.calibration
    errors = known.error_us
    half = 50 * (known.aa_high - known.aa_low)
    footer = [
        f"tick of the events: {1e3 * known.tick_us:.0f} ns · slope {known.slope:.5f}",
        f"a kernel against itself, interleaved: {100 * known.aa_ratio:.2f} % ±{half:.2f}",
        f"a read takes {known.warm_cycles:.0f} cycles from L2, {known.cold_cycles:.0f} after the flush; "
        f"{100 * known.still_cached:.1f} % of the lines were still in L2",
        run.full_label,
    ]
    worst = max(map(abs, errors.values()))
    finding = f"Known lengths from {min(errors):g} to {max(errors):g} µs are read within {bound(worst)} µs"
    if broken := [
        f"{length:g}" for length, error in sorted(errors.items()) if abs(error) > allowed_us(length)
    ]:
        finding = f"The harness breaks its promise at {', '.join(broken)} µs"
    subtitle = (
        f"Reading minus true length, µs, with the event overhead of {known.offset_us:.2f} µs removed. "
        f"Band: what is promised, ±{TOLERANCE_US:g} µs or ±{100 * TOLERANCE:g} % of the length."
    )
    alt = ["Error in microseconds left on kernels of known length in microseconds"]
    alt += [f"{_signed(error)} at {length:g}" for length, error in errors.items()]

    def draw(axes: Axes) -> None:
        _length_axis(axes, errors, 0.7, 1.45)
        knots = np.geomspace(*axes.get_xlim(), 400).tolist()
        axes.fill_between(
            knots,
            [-allowed_us(x) for x in knots],
            [allowed_us(x) for x in knots],
            color=FAINT,
            lw=0,
        )
        for length, error in errors.items():
            colour = ACCENT if abs(error) <= allowed_us(length) else ALERT
            axes.plot([length] * 2, [0, error], color=colour, linewidth=1.6)
            axes.plot([length], [error], "o", color=colour, markersize=4)
            annotate(axes, _signed(error), (length, error), 0, 7 if error >= 0 else -7, va="center")
        reach = max(0.15, 1.6 * worst)
        axes.set_ylim(-reach, reach)

    words = "calibration", finding, subtitle, footer, alt
    return on_axes(ax, draw, *words, height=HEIGHT, left=MARGIN_IN + 0.5, right=0.2)


def _length_axis(axes: Axes, lengths: Collection[float], left: float, right: float) -> None:
    """A log axis of true lengths, with air of these factors at its ends, and a line at no error."""
    scale(
        axes.xaxis,
        sorted(lengths),
        "true length, µs",
        (left * min(lengths), right * max(lengths)),
        log=10,
    )
    axes.axhline(0, color=MUTED, linewidth=0.6)


def _signed(error: float, digits: int = 3) -> str:
    """With its sign; nothing is positive."""
    return f"{error:+z.{digits}f}".replace("-", "−")


@style.chart
def peers(comparison: Comparison | None = None, *, ax: Axes | None = None) -> Any:
    """Reading minus true length by true length, one line per harness, and the band of our own error. The three that are
    never far from the true length have colours, and ours always the same.

    comparison: by default the one that comes with the package. Returns a Chart, or `ax`. Raises NothingToDraw where
    nothing was read on a known length.
    """
    comparison = comparison or open_comparison()
    errors = comparison.errors()
    if not errors:
        raise NothingToDraw(
            "this comparison has no kernel of known length: make one with `worklog peers` on a GPU"
        )
    worst = {name: max((error for _, error in points), key=abs) for name, points in errors.items()}
    nearest = sorted(errors, key=lambda name: (abs(worst[name]), name))
    finding = "What each harness reads on kernels of known length"
    if OURS in errors:
        others = [name for name in nearest if not name.startswith(OURS)]
        off = {name: f"{bound(worst[name])}\u00a0µs" for name in nearest}
        finding = f"Worklog is at most {off[OURS]} off on kernels of known length"
        finding += f", with CUPTI {off[CUPTI]}" if CUPTI in off else ""
        finding += (
            f"; the best of the other harnesses, {others[0]}, {off[others[0]]}" if others else ""
        )
    band = abs(comparison.calibration.worst_us)
    subtitle = (
        "Reading minus true length, µs, on kernels that spin for a known time: the same kind of kernel that worklog "
        f"calibrates on. Both axes are logarithmic, the vertical one linear up to ±{LINEAR:g} µs. In colour: the three "
        f"that are nearest to the true length. Band: our own error that calibration leaves, ±{bound(band)} µs."
    )
    footer = [
        f"{comparison.label} · numbers at the names: error at the shortest and at the longest length, µs"
    ]
    if missing := [
        name for name in comparison.harnesses if name not in errors and name in comparison.reasons
    ]:
        footer.append(f"not read: {', '.join(missing)}")
    alt = [
        "Line chart of reading minus true length in microseconds on kernels of known length in microseconds"
    ]
    for name, points in errors.items():
        alt.append(
            f"{name}: " + ", ".join(f"{error:+.2f} at {length:g}" for length, error in points)
        )

    def draw(axes: Axes) -> None:
        first_three = sorted(nearest[:3], key=lambda name: name != OURS)
        colours = dict.fromkeys(errors, GREY) | dict(
            zip(first_three, (ACCENT, OTHER, ALERT), strict=False)
        )
        shown = {
            n: f"{n} {_signed(points[0][1], 2)} … {_signed(points[-1][1], 2)}"
            for n, points in errors.items()
        }
        leave_room(axes, shown.values())
        _length_axis(
            axes, {length for points in errors.values() for length, _ in points}, 0.85, 1.18
        )
        values = [error for points in errors.values() for _, error in points]
        low = min(-0.5, 1.3 * min(values))
        high = max(2.0, 1.3 * max(values))
        axes.set_yscale("symlog", linthresh=LINEAR, linscale=0.8)
        axes.set_ylim(low, high)
        marked = [tick for tick in TICKS if low <= tick <= high]
        axes.set_yticks(marked, [f"{tick:+g}" if tick else "0" for tick in marked])
        axes.minorticks_off()
        axes.axhspan(-band, band, color=FAINT, zorder=0)
        looks = {
            shown[name]: {"color": MUTED} for name, colour in colours.items() if colour == GREY
        }
        looks |= {shown[OURS]: FIRST} if OURS in errors else {}
        ends = draw_lines(axes, errors, colours)
        name_points(axes, {shown[name]: end for name, end in ends.items()}, looks)

    words = "peers", finding, subtitle, footer, alt
    return on_axes(ax, draw, *words, height=PEERS_HEIGHT, left=MARGIN_IN + 0.45)


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


@style.chart
def samples(run: Run, kernel: str, size: Size | None = None) -> Chart:
    """Every sample of a kernel at one size and the running median in its interval, and the SM clock of each sample with
    the reason why it was slowed. Raises NothingToDraw where the run has no samples of it, BadSetting.
    """
    shape = shape_to_draw(run, size)
    m = next((m for m in run.select(kernel, shape) if measured(m) and m.n), None)
    if m is None:
        raise NothingToDraw(
            f"the run has no samples of {kernel} at {shape}: `worklog run --size {shape}`"
        )
    us, counts = map(np.array, sample_times(m))
    placed = np.array(m.samples.sides[0].placement or [0] * len(us))[counts].tolist()
    # The median of the first n samples that count, by the harness's own estimate, with what differs between processes.
    valid = us[counts].tolist()
    process = (m.time and m.time.process) or 0.0
    steps = sorted(
        {round(n) for n in np.linspace(min(LEAST, len(valid)), len(valid), min(MOST, len(valid)))}
    )
    medians = [median(valid[:n], placed[:n]).between_processes(process) for n in steps]
    noise = [100 * float(np.std(valid[:n], ddof=n > 1) / np.mean(valid[:n])) for n in steps]
    half = [100 * middle.relative_half_width for middle in medians]
    precision = 100 * float(run.harness.get("precision", 0.005))
    last = medians[-1]
    finding = (
        f"{kernel} at {shape}: single samples scatter by {noise[-1]:.2g} %, the median of {m.n} is known "
        f"to ±{half[-1]:.2g} %"
    )
    subtitle = (
        "Each sample in turn, µs, in grey those that do not count, and the running median in its 95 % interval; "
        f"sampling stops at ±{precision:g}\u00a0%. Below: the SM clock."
    )
    alt = [
        f"Samples of {kernel} at {shape} in the order taken, {len(us)} of which {m.n} count, median "
        f"{last.value:.2f} µs, and the half-width of its 95 % interval, requested: ±{precision:g} %"
    ]
    for step, n in [*enumerate(steps)][:: max(1, len(steps) // 6)]:
        alt.append(f"±{half[step]:.2f} % after {n}, σ / mean {noise[step]:.2f} %")
    body = ABOVE + TOP + BETWEEN + CLOCK + BELOW
    new = page(f"samples_{kernel}_{shape}", finding, subtitle, [run.full_label], alt, body)
    bottom = new.body_bottom + BELOW
    wide = WIDTH_IN - MARGIN_IN - LEFT - RIGHT
    clock = new.axes_at(MARGIN_IN + LEFT, bottom, wide, CLOCK)
    top = new.axes_at(MARGIN_IN + LEFT, bottom + CLOCK + BETWEEN, wide, TOP)
    for axes in (clock, top):
        axes.set_xlim(0.5, len(us) + 0.5)
    places = np.arange(1, len(us) + 1)
    at = places[counts][[n - 1 for n in steps]]
    end = len(us) + 0.5
    low = [middle.low for middle in medians]
    high = [middle.high for middle in medians]
    top.fill_between(at, low, high, color=FAINT, linewidth=0)
    for colour, shown in ((ACCENT, counts), (GREY, ~counts)):
        size_pt = 3.0 if len(us) < 100 else 1.8
        top.plot(places[shown], us[shown], "o", color=colour, markersize=size_pt, markeredgewidth=0)
    top.plot(at, [middle.value for middle in medians], color=INK, linewidth=1.2)
    top.set_ylabel("µs")
    top.tick_params(labelbottom=False)
    annotate(
        top,
        f"{last.value:.4g} ±{half[-1]:.2g} %",
        (end, last.value),
        va="center",
        annotation_clip=False,
    )
    mhz = np.array(m.samples.sides[0].sm_mhz or [None], dtype=float)  # None is NaN
    clock.set(ylabel="MHz", xlabel="samples taken")
    if np.isnan(mhz).all():
        clock.set_yticks([])
        annotate(clock, "unknown", (end, 0.5), va="center", color=MUTED, annotation_clip=False)
        return new
    clock.plot(np.arange(1, len(mhz) + 1), mhz, color=ACCENT, linewidth=1.0)
    middle_mhz = float(np.nanmedian(mhz))
    reach = max(0.02 * middle_mhz, 1.1 * float(np.nanmax(np.abs(mhz - middle_mhz))))
    clock.set(ylim=(middle_mhz - reach, middle_mhz + reach), yticks=[round(middle_mhz)])
    slowed = throttled(m.samples.throttle_mask)
    words, colour = (f"slowed: {slowed}", ALERT) if slowed else ("not slowed", MUTED)
    clock.text(
        0.0, 1.05, words, transform=clock.transAxes, fontsize=SMALL_PT, color=colour, va="bottom"
    )
    return new
