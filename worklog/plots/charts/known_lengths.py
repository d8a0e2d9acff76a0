"""Kernels of known length: the error that our harness leaves on them, and the errors of other harnesses beside it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots.charts.lines import FIRST, draw_lines
from worklog.plots.figure import ACCENT, ALERT, FAINT, GREY, MARGIN_IN, MUTED, OTHER, styled
from worklog.plots.page import beside, leave_room, name_points, on_axes, scale
from worklog.runs import KnownLengths, Run, bound
from worklog.runs.comparison import Comparison, open_comparison
from worklog.settings import TOLERANCE, TOLERANCE_US, allowed_us

HEIGHT, PEERS_HEIGHT = 2.2, 3.3  # inches
OURS = "worklog"  # is in every comparison
TICKS = (-1, 0, 1, 2, 5, 10, 20, 50, 100)
LINEAR = 1.0  # microseconds: below, the peers' axis is linear, since an error may be 0


@styled()
def calibration(run: Run, *, ax: Axes | None = None) -> Any:
    """The error left at each known length, the promised band, and in words tick, noise floor and flush. Returns a
    Chart, or `ax`.
    """
    known = run.calibration
    errors = known.lengths.error_us
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
    if broken := [f"{length:g}" for length, error in sorted(errors.items()) if abs(error) > allowed_us(length)]:
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
        axes.fill_between(knots, [-allowed_us(x) for x in knots], [allowed_us(x) for x in knots], color=FAINT, lw=0)
        for length, error in errors.items():
            colour = ACCENT if abs(error) <= allowed_us(length) else ALERT
            axes.plot([length] * 2, [0, error], color=colour, linewidth=1.6)
            axes.plot([length], [error], "o", color=colour, markersize=4)
            beside(axes, _signed(error), (length, error), 0, 7 if error >= 0 else -7, va="center")
        reach = max(0.15, 1.6 * worst)
        axes.set_ylim(-reach, reach)

    return on_axes(ax, draw, "calibration", finding, subtitle, footer, alt, HEIGHT, MARGIN_IN + 0.5, right=0.2)


def _length_axis(axes: Axes, lengths: Collection[float], left: float, right: float) -> None:
    """A log axis of true lengths, with air of these factors at its ends, and a line at no error."""
    scale(axes.xaxis, sorted(lengths), "true length, µs", (left * min(lengths), right * max(lengths)), log=10)
    axes.axhline(0, color=MUTED, linewidth=0.6)


def _signed(error: float, digits: int = 3) -> str:
    """With its sign; nothing is positive."""
    return f"{round(error, digits) + 0.0:+.{digits}f}".replace("-", "−")


@styled()
def peers(comparison: Comparison | None = None, *, ax: Axes | None = None) -> Any:
    """Reading minus true length by true length, one line per harness, and the band of our own error. The three that are
    never far from the true length have colours, and ours always the same.

    comparison: by default the one that comes with the package. Returns a Chart, or `ax`. Raises NothingToDraw where
    nothing was read on a known length.
    """
    comparison = comparison or open_comparison()
    errors = comparison.errors()
    if not errors:
        raise NothingToDraw("this comparison has no kernel of known length: make one with `worklog peers` on a GPU")
    worst = {name: max((error for _, error in points), key=abs) for name, points in errors.items()}
    nearest = sorted(errors, key=lambda name: (abs(worst[name]), name))
    finding = f"Worklog is at most {bound(worst[OURS])} µs off on kernels of known length"
    if best := next((name for name in nearest if not name.startswith(OURS)), None):
        finding += f"; the best of the other harnesses, {best}, up to {worst[best]:+.2f} µs"
    by_length = comparison.calibration["offset_by_length_us"]
    band = abs(KnownLengths({float(length): us for length, us in by_length.items()}).worst_us)
    subtitle = (
        "Reading minus true length, µs, on kernels that spin for a known time: the same kind of kernel that worklog "
        f"calibrates on. Both axes are logarithmic, the vertical one linear up to ±{LINEAR:g} µs. In colour: the three "
        f"that are nearest to the true length. Band: our own error that calibration leaves, ±{bound(band)} µs."
    )
    footer = [f"{comparison.label} · numbers at the names: error at the shortest and at the longest length, µs"]
    if missing := [name for name in comparison.harnesses if name not in errors and name in comparison.reasons]:
        footer.append(f"not read: {', '.join(missing)}")
    alt = ["Line chart of reading minus true length in microseconds on kernels of known length in microseconds"]
    for name, points in errors.items():
        alt.append(f"{name}: " + ", ".join(f"{error:+.2f} at {length:g}" for length, error in points))

    def draw(axes: Axes) -> None:
        first_three = sorted(nearest[:3], key=lambda name: name != OURS)
        colours = dict.fromkeys(errors, GREY) | dict(zip(first_three, (ACCENT, OTHER, ALERT), strict=False))
        shown = {n: f"{n} {_signed(points[0][1], 2)} … {_signed(points[-1][1], 2)}" for n, points in errors.items()}
        leave_room(axes, shown.values())
        _length_axis(axes, {length for points in errors.values() for length, _ in points}, 0.85, 1.18)
        values = [error for points in errors.values() for _, error in points]
        low, high = min(-0.5, 1.3 * min(values)), max(2.0, 1.3 * max(values))
        axes.set_yscale("symlog", linthresh=LINEAR, linscale=0.8)
        axes.set_ylim(low, high)
        marked = [tick for tick in TICKS if low <= tick <= high]
        axes.set_yticks(marked, [f"{tick:+g}" if tick else "0" for tick in marked])
        axes.minorticks_off()
        axes.axhspan(-band, band, color=FAINT, zorder=0)
        looks = {shown[name]: {"color": MUTED} for name, colour in colours.items() if colour == GREY}
        ends = draw_lines(axes, errors, colours)
        name_points(axes, {shown[name]: end for name, end in ends.items()}, looks | {shown[OURS]: FIRST})

    return on_axes(ax, draw, "peers", finding, subtitle, footer, alt, PEERS_HEIGHT, MARGIN_IN + 0.45)
