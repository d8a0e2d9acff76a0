"""The calibration: the error that the harness leaves on kernels of known length, as a chart and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots import figure
from worklog.plots.figure import ACCENT, ALERT, MARGIN_IN, MUTED, SMALL_PT, WIDTH_IN, Chart
from worklog.plots.page import beside, page, ticks
from worklog.runs import Bar, Run, Table, bound
from worklog.settings import TOLERANCE, TOLERANCE_US

PROMISE = f"±{TOLERANCE_US:g} µs or ±{100 * TOLERANCE:g} %"
HEIGHT, BELOW, ABOVE = 2.2, 0.42, 0.1


@figure.styled()
def calibration(run: Run) -> Chart:
    """The error left at each known length, the promised band, and in words tick, noise floor and flush.

    Raises NothingToDraw for a run without a calibration by length.
    """
    errors, proofs = errors_left(run.calibration), _proofs(run.calibration)
    finding, room = _finding(errors), figure.line_height(SMALL_PT, len(proofs)) + 0.1
    subtitle = (
        f"Reading minus true length, µs, with the event overhead of {run.calibration['offset_us']:.2f} µs removed. "
        f"Band: what is promised, {PROMISE} of the length."
    )
    alt = ["Error in microseconds left on kernels of known length in microseconds"]
    alt += [f"{_signed(error)} at {length:g}" for length, error in errors.items()]
    height = ABOVE + HEIGHT + BELOW + room
    new = page("calibration", finding, subtitle, [run.full_label], alt + proofs, height)
    left, bottom = MARGIN_IN + 0.5, new.body_bottom + room + BELOW
    axes = new.axes(left, bottom, WIDTH_IN - left - 0.2, HEIGHT)
    new.lines(left, bottom - BELOW, proofs, color=MUTED)
    length_axes(axes, sorted(errors), 0.7, 1.45)
    knots = np.geomspace(*axes.get_xlim(), 400).tolist()
    axes.fill_between(knots, [-promised(x) for x in knots], [promised(x) for x in knots], color=figure.FAINT, lw=0)
    for length, error in errors.items():
        colour = ACCENT if abs(error) <= promised(length) else ALERT
        axes.plot([length] * 2, [0, error], color=colour, linewidth=1.6)
        axes.plot([length], [error], "o", color=colour, markersize=4)
        beside(axes, _signed(error), (length, error), 0, 7 if error >= 0 else -7, va="center")
    worst = max(0.15, 1.6 * max(map(abs, errors.values())))
    axes.set_ylim(-worst, worst)
    return new.figure


def certificate(run: Run) -> Table:
    """A run's calibration as a table: the error left at each known length as a share of the promise, and what else was
    proved. Raises NothingToDraw for a run without a calibration by length.
    """
    errors = errors_left(run.calibration)
    shares = {length: abs(error) / promised(length) for length, error in errors.items()}
    rows = [
        (f"{length:g} µs", Bar(f"{_signed(errors[length])} µs", share, beyond=share > 1))
        for length, share in shares.items()
    ]
    columns = ("true length", f"error left; full bar: the promise, {PROMISE}")
    return Table(f"{_finding(errors)} · {run.full_label}", columns, rows, left=2, notes=_proofs(run.calibration))


def errors_left(found: dict[str, Any]) -> dict[float, float]:
    """Microseconds wrong at each known length with the event overhead removed."""
    by_length = found.get("offset_by_length_us") or {}
    return {float(length): over - found["offset_us"] for length, over in by_length.items()}


def promised(length_us: float) -> float:
    """The error that is promised at a length, in microseconds."""
    return max(TOLERANCE_US, TOLERANCE * length_us)


def length_axes(axes: Axes, lengths: Sequence[float], left: float, right: float) -> None:
    """A log axis of true lengths, with air of these factors at its ends, and a line at no error."""
    axes.set_xscale("log")
    axes.set_xlim(left * min(lengths), right * max(lengths))
    ticks(axes.xaxis, lengths)
    axes.set_xlabel("true length, µs")
    axes.axhline(0, color=MUTED, linewidth=0.6)


def _finding(errors: dict[float, float]) -> str:
    """Whether the promise is kept. Raises NothingToDraw for no error at all."""
    if not errors:
        raise NothingToDraw("the run has no calibration on known lengths: measure again")
    broken = [f"{length:g}" for length, error in sorted(errors.items()) if abs(error) > promised(length)]
    if broken:
        return f"The harness breaks its promise at {', '.join(broken)} µs"
    worst = max(map(abs, errors.values()))
    return f"Known lengths from {min(errors):g} to {max(errors):g} µs are read within {bound(worst)} µs"


def _proofs(found: dict[str, Any]) -> list[str]:
    """What else was proved, one line each."""
    lines = []
    if "tick_us" in found:
        slope = f" · slope {found['slope']:.5f}" if "slope" in found else ""
        lines.append(f"tick of the events: {1e3 * found['tick_us']:.0f} ns{slope}")
    if "aa_ratio" in found:
        half = 50 * (found["aa_high"] - found["aa_low"])
        lines.append(f"a kernel against itself, interleaved: {100 * found['aa_ratio']:.2f} % ±{half:.2f}")
    if "cold_cycles" in found:
        lines.append(
            f"a read takes {found['warm_cycles']:.0f} cycles from L2, {found['cold_cycles']:.0f} after the flush; "
            f"{100 * found['still_cached']:.1f} % of the lines were still in L2"
        )
    return lines


def _signed(error: float) -> str:
    """With its sign, and without one where it rounds to nothing."""
    rounded = round(error, 3)
    return f"{rounded:+.3f}".replace("-", "−") if rounded else "0.000"
