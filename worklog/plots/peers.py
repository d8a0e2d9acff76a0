"""Every harness against known lengths: how much too long or too short it reads kernels that spin for a known time."""

from __future__ import annotations

from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots.calibration import errors_left, length_axes
from worklog.plots.figure import (
    ACCENT,
    BASELINE,
    FAINT,
    INK,
    MARGIN_IN,
    MUTED,
    SMALL_PT,
    WIDTH_IN,
    Chart,
    styled,
    text_width,
)
from worklog.plots.page import page
from worklog.runs.comparison import Comparison, Points, open_comparison
from worklog.runs.tables import bound

OURS = "worklog"
HEIGHT, BELOW, ABOVE = 3.3, 0.42, 0.1
TICKS = (-1, 0, 1, 2, 5, 10, 20, 50, 100)
LINEAR = 1.0  # microseconds: below, the axis is linear, since an error may be 0
LANE = 0.15  # inches between two labels
MARKS = "osD^v<>PX*"


@styled()
def peers(comparison: Comparison | None = None) -> Chart:
    """Reading minus true length by true length, one line per harness, and the band of our own error.

    comparison: by default the one that comes with the package. Raises NothingToDraw where nothing was read on a known
    length.
    """
    comparison = comparison or open_comparison()
    errors = comparison.errors()
    if not errors:
        raise NothingToDraw("this comparison has no kernel of known length: make one with `worklog peers` on a GPU")
    band = max(map(abs, errors_left(comparison.document["calibration"]).values()))
    subtitle = (
        "Reading minus true length, µs, on kernels that spin for a known time; both axes are logarithmic, the vertical "
        f"one linear up to ±{LINEAR:g} µs. Band: our own error that calibration leaves, ±{bound(band)} µs."
    )
    footer = [f"{comparison.label} · numbers at the names: error at the shortest and at the longest length, µs"]
    missing = [name for name in comparison.harnesses if name not in errors and name in comparison.reasons]
    footer += [f"not read: {', '.join(missing)}"] if missing else []
    alt = ["Line chart of reading minus true length in microseconds on kernels of known length in microseconds"] + [
        f"{name}: " + ", ".join(f"{error:+.2f} at {length:g}" for length, error in points)
        for name, points in errors.items()
    ]
    new = page("peers", _finding(errors), subtitle, footer, alt, ABOVE + HEIGHT + BELOW)
    left, names = MARGIN_IN + 0.45, max(text_width(_label(*one), SMALL_PT) for one in errors.items())
    axes = new.axes(left, new.body_bottom + BELOW, WIDTH_IN - left - names - 0.45, HEIGHT)
    lengths, values = ({point[axis] for points in errors.values() for point in points} for axis in (0, 1))
    length_axes(axes, sorted(lengths), 0.85, 1.18)
    low, high = min(-0.5, 1.3 * min(values)), max(2.0, 1.3 * max(values))
    axes.set_yscale("symlog", linthresh=LINEAR, linscale=0.8)
    axes.set_ylim(low, high)
    shown = [tick for tick in TICKS if low <= tick <= high]
    axes.set_yticks(shown, [f"{tick:+g}" if tick else "0" for tick in shown])
    axes.minorticks_off()
    axes.axhspan(-band, band, color=FAINT, zorder=0)
    for number, (name, points) in enumerate(errors.items()):
        colour = ACCENT if name == OURS else MUTED
        axes.plot(*zip(*points, strict=True), color=colour, marker=MARKS[number % len(MARKS)], markersize=3.2)
    _name_lines(axes, errors)
    return new.figure


def _name_lines(axes: Axes, errors: dict[str, Points]) -> None:
    """Each line's name at its right end, moved where two would meet, with a thin line to where it belongs."""
    inches = axes.transData - axes.figure.dpi_scale_trans
    ends = {name: inches.transform(points[-1]) for name, points in errors.items()}
    names = sorted(errors, key=lambda name: (ends[name][1], name))
    right, top = axes.bbox.x1 / axes.figure.dpi, axes.bbox.y1 / axes.figure.dpi
    for name, lane in zip(names, _apart([float(ends[name][1]) for name in names], top), strict=True):
        x, y = ends[name]
        axes.annotate(
            _label(name, errors[name]),
            errors[name][-1],
            (72 * (right + 0.3 - x), 72 * (lane - y)),
            textcoords="offset points",
            va="center",
            fontsize=SMALL_PT,
            color=ACCENT if name == OURS else INK,
            weight="bold" if name == OURS else "normal",
            arrowprops={"arrowstyle": "-", "color": BASELINE, "linewidth": 0.6, "shrinkA": 1, "relpos": (0, 0.5)},
        )


def _apart(heights: list[float], top: float) -> list[float]:
    """Ascending heights at least a lane apart: pushed up, then down again from the top."""
    for index in range(1, len(heights)):
        heights[index] = max(heights[index], heights[index - 1] + LANE)
    for index in reversed(range(len(heights))):
        above = heights[index + 1] - LANE if index + 1 < len(heights) else top
        heights[index] = min(heights[index], above)
    return heights


def _label(name: str, points: Points) -> str:
    first, last = (f"{round(error, 2) + 0.0:+.2f}".replace("-", "−") for _, error in (points[0], points[-1]))
    return f"{name} {first} … {last}"


def _finding(errors: dict[str, Points]) -> str:
    worst = {name: max((error for _, error in points), key=abs) for name, points in errors.items()}
    others = [name for name in errors if not name.startswith(OURS)]
    if OURS not in errors:
        return "What each harness reads on kernels of known length"
    finding = f"Worklog is at most {bound(worst[OURS])} µs off on kernels of known length"
    if not others:
        return finding
    best = min(others, key=lambda name: abs(worst[name]))
    return f"{finding}; the best of the other harnesses, {best}, up to {worst[best]:+.2f} µs"
