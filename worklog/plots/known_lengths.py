"""Kernels of known length: the error that our harness leaves on them, as a chart and as a table, and the errors of
other harnesses beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots import figure
from worklog.plots.figure import ACCENT, ALERT, FAINT, GREY, MARGIN_IN, MUTED, OTHER, SMALL_PT, WIDTH_IN, Chart, styled
from worklog.plots.page import beside, name_points, page, ticks
from worklog.runs import Bar, Comparison, Points, Run, Table, bound, open_comparison
from worklog.settings import TOLERANCE, TOLERANCE_US, allowed_us

PROMISE = f"±{TOLERANCE_US:g} µs or ±{100 * TOLERANCE:g} %"
HEIGHT, BELOW, ABOVE = 2.2, 0.42, 0.1  # inches
PEERS_HEIGHT = 3.3
OURS = "worklog"
TICKS = (-1, 0, 1, 2, 5, 10, 20, 50, 100)
LINEAR = 1.0  # microseconds: below, the peers' axis is linear, since an error may be 0
MARKS = "osD^v<>PX*"
NEAREST = ACCENT, OTHER, ALERT  # colours of the three that are nearest to the true length; ours is always the first


@styled()
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
    axes.fill_between(knots, [-allowed_us(x) for x in knots], [allowed_us(x) for x in knots], color=figure.FAINT, lw=0)
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
    errors = errors_left(run.calibration)
    shares = {length: abs(error) / allowed_us(length) for length, error in errors.items()}
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
    broken = [f"{length:g}" for length, error in sorted(errors.items()) if abs(error) > allowed_us(length)]
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
    band = max(map(abs, errors_left(comparison.document["calibration"]).values()))
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
    new = page("peers", _peers_finding(errors), subtitle, footer, alt, ABOVE + PEERS_HEIGHT + BELOW)
    labels = {name: _label(name, points) for name, points in errors.items()}
    left, room = MARGIN_IN + 0.45, max(figure.text_width(label, SMALL_PT) for label in labels.values())
    axes = new.axes(left, new.body_bottom + BELOW, WIDTH_IN - left - room - 0.45, PEERS_HEIGHT)
    lengths, values = ({point[axis] for points in errors.values() for point in points} for axis in (0, 1))
    length_axes(axes, sorted(lengths), 0.85, 1.18)
    low, high = min(-0.5, 1.3 * min(values)), max(2.0, 1.3 * max(values))
    axes.set_yscale("symlog", linthresh=LINEAR, linscale=0.8)
    axes.set_ylim(low, high)
    shown = [tick for tick in TICKS if low <= tick <= high]
    axes.set_yticks(shown, [f"{tick:+g}" if tick else "0" for tick in shown])
    axes.minorticks_off()
    axes.axhspan(-band, band, color=FAINT, zorder=0)
    worst = _worst(errors)
    near = sorted(errors, key=lambda name: (abs(worst[name]), name))[: len(NEAREST)]
    colours = dict(zip(sorted(near, key=lambda name: name != OURS), NEAREST, strict=False))
    for number, (name, points) in enumerate(errors.items()):
        [line] = axes.plot(*zip(*points, strict=True), marker=MARKS[number % len(MARKS)], markersize=3.2)
        line.set(color=colours.get(name, GREY), linewidth=1.2 if name in colours else 0.8)
    looks: dict[str, dict[str, str]] = {labels[name]: {"color": MUTED} for name in errors if name not in colours}
    looks |= {labels[OURS]: {"color": ACCENT, "weight": "bold"}} if OURS in errors else {}
    name_points(axes, {labels[name]: points[-1] for name, points in errors.items()}, looks)
    return new.figure


def _worst(errors: dict[str, Points]) -> dict[str, float]:
    """Of each harness, its error that is furthest from 0."""
    return {name: max((error for _, error in points), key=abs) for name, points in errors.items()}


def _label(name: str, points: Points) -> str:
    first, last = (f"{round(error, 2) + 0.0:+.2f}".replace("-", "−") for _, error in (points[0], points[-1]))
    return f"{name} {first} … {last}"


def _peers_finding(errors: dict[str, Points]) -> str:
    worst = _worst(errors)
    others = [name for name in errors if not name.startswith(OURS)]
    if OURS not in errors:
        return "What each harness reads on kernels of known length"
    finding = f"Worklog is at most {bound(worst[OURS])} µs off on kernels of known length"
    if not others:
        return finding
    best = min(others, key=lambda name: abs(worst[name]))
    return f"{finding}; the best of the other harnesses, {best}, up to {worst[best]:+.2f} µs"
