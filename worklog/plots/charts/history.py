"""Kernels over runs: the changes from one side to another, and one kernel's times in all saved
runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.ticker import MaxNLocator

from worklog.errors import NothingToDraw
from worklog.plots import style
from worklog.plots.charts.lines import draw_lines
from worklog.plots.figure import leave_room, name_points, name_rows, on_axes, right_of, scale
from worklog.plots.style import ACCENT, ALERT, BODY_PT, FAINT, GREY, MUTED
from worklog.runs import Measurement, Run, same_card, signed
from worklog.runs.changes import FAILED, FASTER, SLOWER, Changes, saved

if TYPE_CHECKING:
    from worklog.plots.figure import OnAxes

# inches
PITCH = 0.24
HEIGHT = 3.0
COLOURS = {SLOWER: ALERT, FASTER: ACCENT}


@style.chart
def changes(comparison: Changes, *, ax: OnAxes | None = None) -> OnAxes:
    """Draw each kernel and size with its change in percent and the 95 % interval.

    The band is half of the threshold; no change in it counts. Returns a Chart, or `ax`. Raises
    NothingToDraw without a change.
    """
    rows = [
        row for row in comparison.rows if row.change.verdict != FAILED and row.old_us and row.new_us
    ]
    if not rows:
        reason = comparison.headline or "no kernel has a time on both sides"
        raise NothingToDraw(f"there is no change to draw: {reason}")
    rows.sort(key=lambda row: -row.change.share)
    names = [f"{row.kernel} {row.place}".strip() for row in rows]
    alt = ["Changes of the time with their 95 % intervals"]
    alt += [
        f"{name}: {row.change}, {row.change.verdict}" for name, row in zip(names, rows, strict=True)
    ]
    half_percent = 50 * comparison.threshold

    def draw(axes: Axes) -> None:
        for row_y, row in zip(name_rows(axes, names, PITCH), rows, strict=True):
            colour = COLOURS.get(row.change.verdict, GREY)
            ends = [100 * row.change.low, 100 * row.change.high]
            axes.plot(
                ends, [row_y, row_y], color=colour, linewidth=1.6, solid_capstyle="butt", zorder=2
            )
            axes.plot([100 * row.change.share], [row_y], "o", color=colour, markersize=4, zorder=3)
        axes.axvspan(-half_percent, half_percent, color=FAINT, linewidth=0, zorder=0)
        axes.axvline(0, color=MUTED, linewidth=0.9, zorder=1)
        scale(axes.xaxis, MaxNLocator(7), "% longer than before (right: slower)", written="{x:+g}")

    return on_axes(
        ax,
        draw,
        "changes",
        comparison.headline,
        "Change of the time, with its 95 % interval; in the band, within "
        f"±{half_percent:g} %, no change counts.",
        [f"old: {comparison.old}", f"new: {comparison.new}", *comparison.versions],
        alt,
        height=PITCH * len(rows),
        left=right_of(names),
    )


@style.chart
def history(kernel: str, runs: Sequence[Run] = (), *, ax: OnAxes | None = None) -> OnAxes:
    """Draw a kernel's time in each run, one line per size over the date.

    The times are relative to the first one at that size. Only those on the newest run's card are
    drawn. Returns a Chart, or `ax`. Raises NothingToDraw unless two runs have a time at one size.

    runs: default, those of this machine
    """
    runs = sorted(runs or saved(kernel), key=lambda run: run.created)
    series = dict[str, list[tuple[float, ...]]]()
    texts = dict[str, list[str]]()
    labels = dict[str, None]()
    first_us = dict[str, float]()
    for run, m in _on_newest_card(kernel, runs):
        if m.time is None:
            continue
        date = float(date2num(datetime.fromisoformat(run.created)))  # type: ignore[no-untyped-call]
        reference_us = first_us.setdefault(m.place, m.time.value)
        percent, low, high = (
            100 * (us / reference_us - 1) for us in (m.time.value, m.time.low, m.time.high)
        )
        place = m.place or kernel
        series.setdefault(place, []).append((date, percent, low, high))
        texts.setdefault(place, []).append(f"{signed(percent / 100)} on {run.created[:10]}")
        labels[run.label.rpartition(" · ")[0]] = None
    series = {place: points for place, points in series.items() if len(points) > 1}
    if not series:
        raise NothingToDraw(
            f"no two runs of one GPU have {kernel} at one size: measure it twice with `worklog run`"
        )
    most_changed = max(series, key=lambda place: abs(series[place][-1][1]))
    colours = dict.fromkeys(series, GREY) | {most_changed: ACCENT}

    def draw(axes: Axes) -> None:
        leave_room(axes, series, BODY_PT)
        axes.axhline(0, color=MUTED, linewidth=0.9, zorder=1)
        axes.grid(True, zorder=0)
        scale(axes.yaxis, MaxNLocator(7), "% of the first time", written="{x:+g}")
        last_points = draw_lines(axes, series, colours)
        dates: Any = AutoDateLocator(maxticks=6)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(dates)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(dates))  # type: ignore[no-untyped-call]
        name_points(axes, last_points, {most_changed: {"color": ACCENT}})

    change = signed(series[most_changed][-1][1] / 100)
    return on_axes(
        ax,
        draw,
        "history",
        f"{kernel} at {most_changed}: {change} since the first run",
        "Change of the time since the first run at that size, each at its own clock; bands: 95 % interval.",
        [*labels],
        [
            f"Line chart of {kernel}'s time over the runs",
            *(f"{place}: {', '.join(texts[place])}" for place in series),
        ],
        height=HEIGHT,
        left=0.69,
    )


def _on_newest_card(kernel: str, runs: Sequence[Run]) -> Iterator[tuple[Run, Measurement]]:
    """Yield the kernel's timed measurements on the newest one's card, with their runs."""
    timed = list[tuple[Run, Measurement]]()
    for run in runs:
        timed += [(run, m) for m in run.select(kernel) if m.time is not None]
    for run, m in timed:
        if same_card(m, timed[-1][1]):
            yield run, m
