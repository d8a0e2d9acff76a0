"""The harness's error on kernels of known length, and what it promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from worklog.plots import style
from worklog.plots.marks import annotate
from worklog.plots.marks.errors import length_axis, signed
from worklog.plots.page import Margins, Texts, on_axes
from worklog.plots.style import ACCENT, ALERT, FAINT, MARGIN_IN
from worklog.runs import Calibration, Run
from worklog.runs.text import format_bound

if TYPE_CHECKING:
    from worklog.plots.page import OnAxes


HEIGHT = 2.2  # inches
MARGINS = Margins(left=MARGIN_IN + 0.5, right=0.2)
Errors = Mapping[float, float]  # by true length, in µs


@style.chart
def calibration(run: Run, *, ax: OnAxes | None = None) -> OnAxes:
    """Draw the error left at each known length, and the promised band.

    The texts have the tick, the noise floor and the flush. Returns a Chart, or `ax`.
    """
    errors = run.calibration.error_us
    texts = Texts(
        "calibration",
        finding=_finding(errors),
        subtitle=_subtitle(run.calibration),
        footer=_footer(run),
        alt=_alt(errors),
    )

    def draw(axes: Axes) -> None:
        length_axis(axes, errors, 0.7, 1.45)
        lengths = np.geomspace(*axes.get_xlim(), 400).tolist()
        allowed = [Calibration.allowed_us(length) for length in lengths]
        axes.fill_between(lengths, [-us for us in allowed], allowed, color=FAINT, lw=0)
        for length, error in errors.items():
            _draw_error(axes, length, error)
        reach = max(0.15, 1.6 * max(map(abs, errors.values())))
        axes.set_ylim(-reach, reach)

    return on_axes(ax, draw, texts, height=HEIGHT, margins=MARGINS)


def _finding(errors: Errors) -> str:
    """Return the largest error, or the lengths at which the error isn't allowed. In µs."""
    broken = [
        length
        for length, error in sorted(errors.items())
        if abs(error) > Calibration.allowed_us(length)
    ]
    if broken:
        lengths = ", ".join(f"{length:g}" for length in broken)
        return f"The harness breaks its promise at {lengths} µs"
    worst = format_bound(max(map(abs, errors.values())))
    return f"Known lengths from {min(errors):g} to {max(errors):g} µs are read within {worst} µs"


def _subtitle(calibrated: Calibration) -> str:
    """Return the explanation of the errors and of the band."""
    return (
        "Reading minus true length, µs, with the event overhead of "
        f"{calibrated.offset_us:.2f} µs removed. Band: what is promised, "
        f"±{Calibration.TOLERANCE_US:g} µs or "
        f"±{100 * Calibration.TOLERANCE:g} % of the length."
    )


def _footer(run: Run) -> list[str]:
    """Return the tick, the noise floor, the flush, and the source."""
    calibrated = run.calibration
    half_percent = 50 * (calibrated.aa_high - calibrated.aa_low)
    tick = f"tick of the events: {1e3 * calibrated.tick_us:.0f} ns · slope {calibrated.slope:.5f}"
    floor = f"{100 * calibrated.aa_ratio:.2f} % ±{half_percent:.2f}"
    flush = (
        f"a read takes {calibrated.warm_cycles:.0f} cycles from L2, "
        f"{calibrated.cold_cycles:.0f} after the flush; "
        f"{100 * calibrated.still_cached:.1f} % of the lines were still in L2"
    )
    return [tick, f"a kernel against itself, interleaved: {floor}", flush, run.full_label]


def _alt(errors: Errors) -> list[str]:
    """Return the alt text: the error at each length."""
    alt = ["Error in microseconds left on kernels of known length in microseconds"]
    alt += [f"{signed(error)} at {length:g}" for length, error in errors.items()]
    return alt


def _draw_error(axes: Axes, length: float, error: float) -> None:
    """Draw the error at one length, in µs, as a line from 0 with a dot."""
    colour = ACCENT if abs(error) <= Calibration.allowed_us(length) else ALERT
    axes.plot([length] * 2, [0, error], color=colour, linewidth=1.6)
    axes.plot([length], [error], "o", color=colour, markersize=4)
    lift = 7 if error >= 0 else -7
    annotate(axes, signed(error), (length, error), gap=0, lift=lift, va="center")
