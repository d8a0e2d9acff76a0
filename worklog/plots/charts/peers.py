"""The errors of several harnesses on kernels of known length."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots import style
from worklog.plots.marks import Line, draw_lines
from worklog.plots.marks.errors import length_axis, signed
from worklog.plots.marks.lines import FIRST, values_of
from worklog.plots.page import Margins, Texts, on_axes
from worklog.plots.style import ACCENT, ALERT, FAINT, GREY, MARGIN_IN, MUTED, OTHER, SMALL_PT
from worklog.runs.comparison import Comparison, open_comparison
from worklog.runs.text import format_bound

if TYPE_CHECKING:
    from worklog.plots.page import OnAxes


HEIGHT = 3.3  # inches
MARGINS = Margins(left=MARGIN_IN + 0.45)
# The first is in every comparison.
OURS = "worklog"
CUPTI = "worklog, CUPTI"
TICKS = (-1, 0, 1, 2, 5, 10, 20, 50, 100)
LINEAR = 1.0  # microseconds: below, the axis is linear, since an error may be 0


Errors = Mapping[str, Sequence[tuple[float, float]]]  # by harness: true lengths and errors, in µs


@style.chart
def peers(comparison: Comparison | None = None, *, ax: OnAxes | None = None) -> OnAxes:
    """Draw reading minus true length by true length, a line per harness.

    The band is our own error. The three harnesses that are never far from the true length have
    colours, and ours always the same. Returns a Chart, or `ax`. Raises NothingToDraw if there is no
    reading of a known length.

    comparison: default, the one that comes with the package
    """
    comparison = comparison or open_comparison()
    errors = comparison.errors()
    if not errors:
        raise NothingToDraw(
            "this comparison has no kernel of known length: make one with `worklog peers` on a GPU"
        )
    worst = {name: max((error for _, error in points), key=abs) for name, points in errors.items()}
    nearest = sorted(errors, key=lambda name: (abs(worst[name]), name))
    band_us = abs(comparison.calibration.worst_us)
    lines = _lines(errors, nearest)
    texts = Texts(
        "peers",
        finding=_finding(nearest, worst),
        subtitle=_subtitle(band_us),
        footer=_footer(comparison, errors),
        alt=_alt(errors),
    )

    def draw(axes: Axes) -> None:
        length_axis(axes, values_of(lines, 0), 0.85, 1.18)
        _error_axis(axes, values_of(lines, 1))
        axes.axhspan(-band_us, band_us, color=FAINT, zorder=0)
        draw_lines(axes, lines, SMALL_PT)

    return on_axes(ax, draw, texts, height=HEIGHT, margins=MARGINS)


def _lines(errors: Errors, nearest: Sequence[str]) -> list[Line]:
    """Return each harness's line. The nearest three have colours.

    nearest: the harnesses in the order of their largest errors
    """
    # Ours first, so that it always has the accent.
    first_three = sorted(nearest[:3], key=lambda name: name != OURS)
    colours = dict(zip(first_three, (ACCENT, OTHER, ALERT), strict=False))
    lines = []
    for name, points in errors.items():
        colour = colours.get(name, GREY)
        look: Mapping[str, str] = {"color": MUTED} if colour == GREY else {}
        if name == OURS:
            look = FIRST
        lines.append(Line(_name(name, points), points, colour, name_look=look))
    return lines


def _finding(nearest: Sequence[str], worst: Mapping[str, float]) -> str:
    """Return our largest error and that of the best other harness.

    nearest: the harnesses in the order of their largest errors
    worst: the largest error by harness, in µs
    """
    if OURS not in worst:
        return "What each harness reads on kernels of known length"
    finding = (
        f"Worklog is at most {format_bound(worst[OURS])}\u00a0µs off on kernels of known length"
    )
    if CUPTI in worst:
        finding += f", with CUPTI {format_bound(worst[CUPTI])}\u00a0µs"
    best = next((name for name in nearest if not name.startswith(OURS)), None)
    if best is not None:
        finding += f"; the best of the other harnesses, {best}, {format_bound(worst[best])}\u00a0µs"
    return finding


def _subtitle(band_us: float) -> str:
    """Return the explanation of both axes, the colours and the band."""
    return (
        "Reading minus true length, µs, on kernels that spin for a known time: the same kind of "
        "kernel that worklog calibrates on. Both axes are logarithmic, the vertical one linear up "
        f"to ±{LINEAR:g} µs. In colour: the three that are nearest to the true length. Band: our "
        f"own error that calibration leaves, ±{format_bound(band_us)} µs."
    )


def _footer(comparison: Comparison, errors: Errors) -> list[str]:
    """Return the source, and the harnesses without a reading."""
    numbers = "numbers at the names: error at the shortest and at the longest length, µs"
    footer = [f"{comparison.label} · {numbers}"]
    missing = [
        name for name in comparison.harnesses if name not in errors and name in comparison.reasons
    ]
    if missing:
        footer.append(f"not read: {', '.join(missing)}")
    return footer


def _alt(errors: Errors) -> list[str]:
    """Return the alt text: each harness's error at each length."""
    kind = "Line chart of reading minus true length in microseconds"
    alt = [f"{kind} on kernels of known length in microseconds"]
    for name, points in errors.items():
        texts = [f"{error:+.2f} at {length:g}" for length, error in points]
        alt.append(f"{name}: {', '.join(texts)}")
    return alt


def _name(name: str, points: Sequence[tuple[float, float]]) -> str:
    """Return a harness's name with its errors at the shortest and at the longest length."""
    return f"{name} {signed(points[0][1], 2)} … {signed(points[-1][1], 2)}"


def _error_axis(axes: Axes, errors: Collection[float]) -> None:
    """Prepare the vertical axis of errors: linear near 0, else logarithmic."""
    low = min(-0.5, 1.3 * min(errors))
    high = max(2.0, 1.3 * max(errors))
    axes.set_yscale("symlog", linthresh=LINEAR, linscale=0.8)
    axes.set_ylim(low, high)
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set_yticks(ticks, [f"{tick:+g}" if tick else "0" for tick in ticks])
    axes.minorticks_off()
