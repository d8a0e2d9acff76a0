"""Kernels of known length: the error that our harness leaves on them, as a chart and as a table, and the errors of
other harnesses beside it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots import figure
from worklog.plots.figure import ACCENT, ALERT, FAINT, GREY, MARGIN_IN, MUTED, OTHER, SMALL_PT, WIDTH_IN, Chart, styled
from worklog.plots.lines import FIRST, draw_lines
from worklog.plots.page import beside, name_points, page, scale, widest
from worklog.runs import Bar, Comparison, Run, Table, bound, open_comparison
from worklog.settings import TOLERANCE, TOLERANCE_US, allowed_us

PROMISE = f"±{TOLERANCE_US:g} µs or ±{100 * TOLERANCE:g} %"
HEIGHT, PEERS_HEIGHT, BELOW, ABOVE = 2.2, 3.3, 0.42, 0.1  # inches
OURS = "worklog"
TICKS = (-1, 0, 1, 2, 5, 10, 20, 50, 100)
LINEAR = 1.0  # microseconds: below, the peers' axis is linear, since an error may be 0


@styled()
def calibration(run: Run) -> Chart:
    """The error left at each known length, the promised band, and in words tick, noise floor and flush.

    Raises NothingToDraw for a run without a calibration by length.
    """
    finding, errors, proofs = _found(run)
    room = figure.line_height(SMALL_PT, len(proofs)) + 0.1
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
    _length_axis(axes, errors, 0.7, 1.45)
    knots = np.geomspace(*axes.get_xlim(), 400).tolist()
    axes.fill_between(knots, [-allowed_us(x) for x in knots], [allowed_us(x) for x in knots], color=FAINT, lw=0)
    for length, error in errors.items():
        colour = ACCENT if abs(error) <= allowed_us(length) else ALERT
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
    finding, errors, proofs = _found(run)
    shares = {length: abs(error) / allowed_us(length) for length, error in errors.items()}
    rows = [
        (f"{length:g} µs", Bar(f"{_signed(errors[length])} µs", share, beyond=share > 1))
        for length, share in shares.items()
    ]
    columns = ("true length", f"error left; full bar: the promise, {PROMISE}")
    return Table(f"{finding} · {run.full_label}", columns, rows, left=2, notes=proofs)


def _left(calibration: dict[str, Any]) -> dict[float, float]:
    """Microseconds wrong at each known length with the event overhead removed."""
    by_length = calibration.get("offset_by_length_us") or {}
    return {float(length): over - calibration["offset_us"] for length, over in by_length.items()}


def _found(run: Run) -> tuple[str, dict[float, float], list[str]]:
    """Whether the promise is kept, the error at each length, and what else was proved, one line each. Raises
    NothingToDraw for no error at all."""
    known, errors, proofs = run.calibration, _left(run.calibration), []
    if not errors:
        raise NothingToDraw("the run has no calibration on known lengths: measure again")
    if "tick_us" in known:
        slope = f" · slope {known['slope']:.5f}" if "slope" in known else ""
        proofs.append(f"tick of the events: {1e3 * known['tick_us']:.0f} ns{slope}")
    if "aa_ratio" in known:
        half = 50 * (known["aa_high"] - known["aa_low"])
        proofs.append(f"a kernel against itself, interleaved: {100 * known['aa_ratio']:.2f} % ±{half:.2f}")
    if "cold_cycles" in known:
        proofs.append(
            f"a read takes {known['warm_cycles']:.0f} cycles from L2, {known['cold_cycles']:.0f} after the flush; "
            f"{100 * known['still_cached']:.1f} % of the lines were still in L2"
        )
    broken = [f"{length:g}" for length, error in sorted(errors.items()) if abs(error) > allowed_us(length)]
    if broken:
        return f"The harness breaks its promise at {', '.join(broken)} µs", errors, proofs
    worst = bound(max(map(abs, errors.values())))
    return f"Known lengths from {min(errors):g} to {max(errors):g} µs are read within {worst} µs", errors, proofs


def _length_axis(axes: Axes, lengths: Collection[float], left: float, right: float) -> None:
    """A log axis of true lengths, with air of these factors at its ends, and a line at no error."""
    scale(axes.xaxis, sorted(lengths), "true length, µs", (left * min(lengths), right * max(lengths)), log=10)
    axes.axhline(0, color=MUTED, linewidth=0.6)


def _signed(error: float, digits: int = 3) -> str:
    """With its sign; nothing is positive."""
    return f"{round(error, digits) + 0.0:+.{digits}f}".replace("-", "−")


@styled()
def peers(comparison: Comparison | None = None) -> Chart:
    """Reading minus true length by true length, one line per harness, and the band of our own error. The three that are
    never far from the true length have colours.

    comparison: by default the one that comes with the package. Raises NothingToDraw where nothing was read on a known
    length.
    """
    comparison = comparison or open_comparison()
    errors = comparison.errors()
    if not errors:
        raise NothingToDraw("this comparison has no kernel of known length: make one with `worklog peers` on a GPU")
    worst = {name: max((error for _, error in points), key=abs) for name, points in errors.items()}
    nearest = sorted(errors, key=lambda name: (abs(worst[name]), name))
    finding = "What each harness reads on kernels of known length"
    if OURS in errors:
        finding = f"Worklog is at most {bound(worst[OURS])} µs off on kernels of known length"
        best = next((name for name in nearest if not name.startswith(OURS)), None)
        finding += f"; the best of the other harnesses, {best}, up to {worst[best]:+.2f} µs" if best else ""
    band = max(map(abs, _left(comparison.document["calibration"]).values()))
    subtitle = (
        "Reading minus true length, µs, on kernels that spin for a known time: the same kind of kernel that worklog "
        f"calibrates on. Both axes are logarithmic, the vertical one linear up to ±{LINEAR:g} µs. In colour: the three "
        f"that are nearest to the true length. Band: our own error that calibration leaves, ±{bound(band)} µs."
    )
    footer = [f"{comparison.label} · numbers at the names: error at the shortest and at the longest length, µs"]
    missing = [name for name in comparison.harnesses if name not in errors and name in comparison.reasons]
    footer += [f"not read: {', '.join(missing)}"] if missing else []
    alt = ["Line chart of reading minus true length in microseconds on kernels of known length in microseconds"] + [
        f"{name}: " + ", ".join(f"{error:+.2f} at {length:g}" for length, error in points)
        for name, points in errors.items()
    ]
    new = page("peers", finding, subtitle, footer, alt, ABOVE + PEERS_HEIGHT + BELOW)
    colours = dict.fromkeys(errors, GREY)
    # Ours, if it is one of them, has always the same colour.
    colours |= dict(zip(sorted(nearest[:3], key=lambda name: name != OURS), (ACCENT, OTHER, ALERT), strict=False))
    shown = {
        name: f"{name} {_signed(points[0][1], 2)} … {_signed(points[-1][1], 2)}" for name, points in errors.items()
    }
    axes = new.before_names(widest(shown.values(), SMALL_PT), 0.45, BELOW, PEERS_HEIGHT)
    lengths, values = ({point[axis] for points in errors.values() for point in points} for axis in (0, 1))
    _length_axis(axes, lengths, 0.85, 1.18)
    low, high = min(-0.5, 1.3 * min(values)), max(2.0, 1.3 * max(values))
    axes.set_yscale("symlog", linthresh=LINEAR, linscale=0.8)
    axes.set_ylim(low, high)
    marked = [tick for tick in TICKS if low <= tick <= high]
    axes.set_yticks(marked, [f"{tick:+g}" if tick else "0" for tick in marked])
    axes.minorticks_off()
    axes.axhspan(-band, band, color=FAINT, zorder=0)
    looks = {shown[name]: {"color": MUTED} for name, colour in colours.items() if colour == GREY}
    looks |= {shown[OURS]: FIRST} if OURS in errors else {}
    ends = draw_lines(axes, errors, colours)
    name_points(axes, {shown[name]: end for name, end in ends.items()}, looks)
    return new.figure
