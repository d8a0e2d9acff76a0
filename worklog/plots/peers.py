"""Every harness against known lengths: how much too long or too short it reads kernels that spin for a known time."""

from __future__ import annotations

from worklog.errors import NothingToDraw
from worklog.plots.calibration import errors_left, length_axes
from worklog.plots.figure import (
    ACCENT,
    ALERT,
    FAINT,
    GREY,
    MARGIN_IN,
    MUTED,
    OTHER,
    SMALL_PT,
    WIDTH_IN,
    Chart,
    styled,
    text_width,
)
from worklog.plots.page import name_points, page
from worklog.runs import bound
from worklog.runs.comparison import Comparison, Points, open_comparison

OURS = "worklog"
HEIGHT, BELOW, ABOVE = 3.3, 0.42, 0.1
TICKS = (-1, 0, 1, 2, 5, 10, 20, 50, 100)
LINEAR = 1.0  # microseconds: below, the axis is linear, since an error may be 0
MARKS = "osD^v<>PX*"
NEAREST = ACCENT, OTHER, ALERT  # colours of the three that are nearest to the true length; ours is always the first


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
    new = page("peers", _finding(errors), subtitle, footer, alt, ABOVE + HEIGHT + BELOW)
    labels = {name: _label(name, points) for name, points in errors.items()}
    left, room = MARGIN_IN + 0.45, max(text_width(label, SMALL_PT) for label in labels.values())
    axes = new.axes(left, new.body_bottom + BELOW, WIDTH_IN - left - room - 0.45, HEIGHT)
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


def _finding(errors: dict[str, Points]) -> str:
    worst = _worst(errors)
    others = [name for name in errors if not name.startswith(OURS)]
    if OURS not in errors:
        return "What each harness reads on kernels of known length"
    finding = f"Worklog is at most {bound(worst[OURS])} µs off on kernels of known length"
    if not others:
        return finding
    best = min(others, key=lambda name: abs(worst[name]))
    return f"{finding}; the best of the other harnesses, {best}, up to {worst[best]:+.2f} µs"
