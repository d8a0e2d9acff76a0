"""The certificate: what the ruler reads wrong on kernels of known length once its offset is off; as a chart, and by
itself as a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots.figure import Chart
from worklog.plots.page import page
from worklog.plots.style import ACCENT, FAINT, LIE, MARGIN_IN, MUTED, SMALL_PT, WIDTH_IN, line_height, styled
from worklog.runs.run import Run
from worklog.runs.table import Bar, Table, bound

TOLERANCE_US, TOLERANCE = 0.1, 0.002  # the promise, whichever is larger; kept equal to the harness's by a test
PROMISE = f"±{TOLERANCE_US:g} µs or ±{100 * TOLERANCE:g} %"
HEIGHT, BELOW, ABOVE = 2.2, 0.42, 0.1


@styled()
def calibration(run: Run) -> Chart:
    """Error left at each known length, the band that is promised, and in words tick, noise floor and flush. Raises
    NothingToDraw for a run that states no calibration by length.
    """
    errors = _errors(run)
    proofs = _proofs(run.calibration)
    words = line_height(SMALL_PT, len(proofs)) + 0.1
    new = page(
        "calibration",
        _finding(errors),
        f"Reading minus true length, µs, after the offset of {run.calibration['offset_us']:.2f} µs is taken off. "
        f"Band: what is promised, {PROMISE} of the length.",
        [run.full_label],
        _alt(run, errors, proofs),
        ABOVE + HEIGHT + BELOW + words,
    )
    left = MARGIN_IN + 0.5
    bottom = new.body_bottom + words + BELOW
    axes = new.axes(left, bottom, WIDTH_IN - left - 0.2, HEIGHT)
    _draw(axes, errors)
    for index, line in enumerate(proofs):
        new.text(left, bottom - BELOW - line_height(SMALL_PT, index), line, SMALL_PT, va="top", color=MUTED)
    return new.figure


@dataclass(frozen=True, repr=False)
class Certificate:
    """A run's calibration that shows itself: each known length with the error left, as a share of the promise, and what
    else was proved. Raises NothingToDraw for a run that states no calibration by length.
    """

    run: Run

    def __post_init__(self) -> None:
        _errors(self.run)

    def _repr_html_(self) -> str:
        rows = [
            (f"{length:g} µs", Bar(_micro(error), abs(error) / promised(length), beyond=abs(error) > promised(length)))
            for length, error in _errors(self.run).items()
        ]
        proofs = "".join(f"<li>{escape(proof)}</li>" for proof in _proofs(self.run.calibration))
        caption = f"{_finding(_errors(self.run))} · {self.run.full_label}"
        columns = (
            "true length",
            f"error left; full bar: the promise, {PROMISE}",
        )
        return f"{Table(caption, columns, rows, left=2).html()}<ul>{proofs}</ul>"

    def __repr__(self) -> str:
        lines = [f"{length:>8g} µs  {_micro(error)}" for length, error in _errors(self.run).items()]
        proofs = [f"  {proof}" for proof in _proofs(self.run.calibration)]
        return "\n".join([_finding(_errors(self.run)), self.run.full_label, *lines, *proofs])


def _errors(run: Run) -> dict[float, float]:
    """Errors left by length; raises NothingToDraw where the run states none."""
    errors = errors_left(run.calibration)
    if not errors:
        raise NothingToDraw("the run says nothing of how its ruler reads known lengths: measure again")
    return errors


def _micro(error: float) -> str:
    return f"{_signed(error)} µs"


def _signed(error: float) -> str:
    """With its sign, and without one where it rounds to nothing."""
    rounded = round(error, 3)
    return f"{rounded:+.3f}".replace("-", "−") if rounded else "0.000"


def errors_left(found: dict[str, Any]) -> dict[float, float]:
    """Microseconds wrong at each known length, once the offset is off."""
    by_length = found.get("offset_by_length_us") or {}
    return {float(length): over - found["offset_us"] for length, over in by_length.items()}


def promised(length_us: float) -> float:
    """The error that is promised at a length, in microseconds."""
    return max(TOLERANCE_US, TOLERANCE * length_us)


def _draw(axes: Axes, errors: dict[float, float]) -> None:
    lengths = sorted(errors)
    first, last = 0.7 * lengths[0], 1.45 * lengths[-1]
    knots = np.geomspace(first, last, 400).tolist()
    axes.fill_between(knots, [-promised(x) for x in knots], [promised(x) for x in knots], color=FAINT, linewidth=0)
    axes.axhline(0, color=MUTED, linewidth=0.6)
    for length in lengths:
        kept = abs(errors[length]) <= promised(length)
        axes.plot([length] * 2, [0, errors[length]], color=ACCENT if kept else LIE, linewidth=1.6)
        axes.plot([length], [errors[length]], "o", color=ACCENT if kept else LIE, markersize=4)
        axes.annotate(
            _signed(errors[length]),
            (length, errors[length]),
            (0, 7 if errors[length] >= 0 else -7),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=SMALL_PT,
        )
    worst = max(0.15, 1.6 * max(map(abs, errors.values())))
    axes.set_xscale("log")
    axes.set_xlim(first, last)
    axes.set_ylim(-worst, worst)
    axes.set_xticks(lengths, [f"{length:g}" for length in lengths])
    axes.minorticks_off()
    axes.set_xlabel("true length, µs")


def _proofs(found: dict[str, Any]) -> list[str]:
    """What else the calibration proved, as far as the run states it."""
    lines = [f"tick of the events: {1000 * found['tick_us']:.0f} ns"]
    if "slope" in found:
        lines[0] += f" · slope {found['slope']:.5f}"
    if "aa_ratio" in found:
        half = 50 * (found["aa_high"] - found["aa_low"])
        lines.append(f"a kernel against itself, interleaved: {100 * found['aa_ratio']:.2f} % ±{half:.2f}")
    if "cold_cycles" in found:
        lines.append(
            f"a read takes {found['warm_cycles']:.0f} cycles from L2, {found['cold_cycles']:.0f} after the flush; "
            f"{100 * found['still_cached']:.1f} % of the lines were still there"
        )
    return lines


def _finding(errors: dict[float, float]) -> str:
    worst = max(errors, key=lambda length: abs(errors[length]))
    broken = [length for length, error in errors.items() if abs(error) > promised(length)]
    span = f"{min(errors):g} to {max(errors):g} µs"
    if broken:
        return f"The ruler breaks its promise at {', '.join(f'{length:g}' for length in sorted(broken))} µs"
    return f"Known lengths from {span} are read within {bound(errors[worst])} µs"


def _alt(run: Run, errors: dict[float, float], proofs: list[str]) -> str:
    read = ", ".join(f"{_signed(error)} at {length:g}" for length, error in errors.items())
    return (
        f"Error in microseconds left on kernels of known length in microseconds: {read}. {'; '.join(proofs)}. "
        f"Source: {run.label}."
    )
