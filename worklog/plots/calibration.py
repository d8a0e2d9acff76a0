"""The calibration: the error that the harness leaves on kernels of known length, as a chart and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots import style
from worklog.plots.figure import Chart
from worklog.plots.page import beside, page
from worklog.plots.style import ACCENT, ALERT, MARGIN_IN, MUTED, SMALL_PT, WIDTH_IN
from worklog.runs.run import Run
from worklog.runs.table import Bar, Table, bound

TOLERANCE_US, TOLERANCE = 0.1, 0.002  # the promise, whichever is larger; kept equal to the harness's by a test
PROMISE = f"±{TOLERANCE_US:g} µs or ±{100 * TOLERANCE:g} %"
HEIGHT, BELOW, ABOVE = 2.2, 0.42, 0.1


@style.styled()
def calibration(run: Run) -> Chart:
    """The error left at each known length, the promised band, and in words tick, noise floor and flush.

    Raises NothingToDraw for a run without a calibration by length.
    """
    found = Certificate(run)
    room = style.line_height(SMALL_PT, len(found.proofs)) + 0.1
    overhead = run.calibration["offset_us"]
    subtitle = (
        f"Reading minus true length, µs, with the event overhead of {overhead:.2f} µs removed. "
        f"Band: what is promised, {PROMISE} of the length."
    )
    read = ", ".join(f"{_signed(error)} at {length:g}" for length, error in found.errors.items())
    alt = (
        f"Error in microseconds left on kernels of known length in microseconds: {read}. {'; '.join(found.proofs)}. "
        f"Source: {run.label}."
    )
    new = page("calibration", found.finding, subtitle, [run.full_label], alt, ABOVE + HEIGHT + BELOW + room)
    left, bottom = MARGIN_IN + 0.5, new.body_bottom + room + BELOW
    _draw(new.axes(left, bottom, WIDTH_IN - left - 0.2, HEIGHT), found.errors)
    for index, line in enumerate(found.proofs):
        y = bottom - BELOW - style.line_height(SMALL_PT, index)
        new.text(left, y, line, SMALL_PT, va="top", color=MUTED)
    return new.figure


@dataclass(frozen=True, repr=False)
class Certificate:
    """A run's calibration that shows itself: the error left at each known length as a share of the promise, and what
    else was proved. Raises NothingToDraw for a run without a calibration by length.
    """

    run: Run

    def __post_init__(self) -> None:
        if not self.errors:
            raise NothingToDraw("the run has no calibration on known lengths: measure again")

    @property
    def errors(self) -> dict[float, float]:
        """Microseconds wrong at each known length."""
        return errors_left(self.run.calibration)

    @property
    def finding(self) -> str:
        """Whether the promise is kept."""
        broken = [f"{length:g}" for length, error in sorted(self.errors.items()) if abs(error) > promised(length)]
        if broken:
            return f"The harness breaks its promise at {', '.join(broken)} µs"
        worst = max(map(abs, self.errors.values()))
        return f"Known lengths from {min(self.errors):g} to {max(self.errors):g} µs are read within {bound(worst)} µs"

    @property
    def proofs(self) -> list[str]:
        """What else was proved, one line each."""
        found, lines = self.run.calibration, []
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

    def _table(self) -> Table:
        shares = {length: abs(error) / promised(length) for length, error in self.errors.items()}
        rows = [
            (f"{length:g} µs", Bar(f"{_signed(self.errors[length])} µs", share, beyond=share > 1))
            for length, share in shares.items()
        ]
        columns = ("true length", f"error left; full bar: the promise, {PROMISE}")
        return Table(f"{self.finding} · {self.run.full_label}", columns, rows, left=2, notes=self.proofs)

    def _repr_html_(self) -> str:
        return self._table().html()

    def __repr__(self) -> str:
        return self._table().text()


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
    axes.set_xticks(lengths, [f"{length:g}" for length in lengths])
    axes.minorticks_off()
    axes.set_xlabel("true length, µs")
    axes.axhline(0, color=MUTED, linewidth=0.6)


def _signed(error: float) -> str:
    """With its sign, and without one where it rounds to nothing."""
    rounded = round(error, 3)
    return f"{rounded:+.3f}".replace("-", "−") if rounded else "0.000"


def _draw(axes: Axes, errors: dict[float, float]) -> None:
    length_axes(axes, sorted(errors), 0.7, 1.45)
    knots = np.geomspace(*axes.get_xlim(), 400).tolist()
    axes.fill_between(knots, [-promised(x) for x in knots], [promised(x) for x in knots], color=style.FAINT, lw=0)
    for length, error in errors.items():
        colour = ACCENT if abs(error) <= promised(length) else ALERT
        axes.plot([length] * 2, [0, error], color=colour, linewidth=1.6)
        axes.plot([length], [error], "o", color=colour, markersize=4)
        beside(axes, _signed(error), (length, error), 0, 7 if error >= 0 else -7, va="center")
    worst = max(0.15, 1.6 * max(map(abs, errors.values())))
    axes.set_ylim(-worst, worst)
