"""What became of kernels over runs: the changes from one side to another, and one kernel's times in all saved runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.ticker import MaxNLocator

from worklog.plots import style
from worklog.plots.charts.lines import draw_lines
from worklog.plots.figure import leave_room, name_points, name_rows, on_axes, right_of, scale
from worklog.plots.style import ACCENT, ALERT, BODY_PT, FAINT, GREY, MUTED
from worklog.runs import NothingToDraw, Run, same_card, signed
from worklog.runs.changes import FAILED, FASTER, SLOWER, Changes, saved

# inches
PITCH = 0.24
HEIGHT = 3.0
COLOURS = {SLOWER: ALERT, FASTER: ACCENT}


@style.chart
def changes(made: Changes, *, ax: Axes | None = None) -> Any:
    """Each kernel and size with its change in percent and the 95 % interval; the band is half of the threshold, below
    which no change counts. Returns a Chart, or `ax`. Raises NothingToDraw without a change.
    """
    rows = [row for row in made.rows if row.change.verdict != FAILED and row.old_us and row.new_us]
    if not rows:
        raise NothingToDraw(
            f"there is no change to draw: {made.headline or 'no kernel has a time on both sides'}"
        )
    rows.sort(key=lambda row: -row.change.share)
    names = [f"{row.kernel} {row.place}".strip() for row in rows]
    alt = ["Changes of the time with their 95 % intervals"]
    alt += [
        f"{name}: {row.change}, {row.change.verdict}" for name, row in zip(names, rows, strict=True)
    ]
    half = 50 * made.threshold
    subtitle = f"Change of the time, with its 95 % interval; in the band, within ±{half:g} %, no change counts."

    def draw(axes: Axes) -> None:
        for y, row in zip(name_rows(axes, names, PITCH), rows, strict=True):
            middle, low, high = (
                100 * share for share in (row.change.share, row.change.low, row.change.high)
            )
            colour = COLOURS.get(row.change.verdict, GREY)
            axes.plot(
                [low, high], [y, y], color=colour, linewidth=1.6, solid_capstyle="butt", zorder=2
            )
            axes.plot([middle], [y], "o", color=colour, markersize=4, zorder=3)
        axes.axvspan(-half, half, color=FAINT, linewidth=0, zorder=0)
        axes.axvline(0, color=MUTED, linewidth=0.9, zorder=1)
        scale(axes.xaxis, MaxNLocator(7), "% longer than before (right: slower)", written="{x:+g}")

    words = (
        "changes",
        made.headline,
        subtitle,
        [f"old: {made.old}", f"new: {made.new}", *made.versions],
        alt,
    )
    return on_axes(ax, draw, *words, height=PITCH * len(rows), left=right_of(names))


@style.chart
def history(kernel: str, runs: Sequence[Run] = (), *, ax: Axes | None = None) -> Any:
    """A kernel's time in each run on the newest run's card, one line per size over the date, relative to its
    first. runs: default, those of this machine. Returns a Chart, or `ax`. Raises NothingToDraw unless two runs have a
    time at one size.
    """
    runs = sorted(runs or saved(kernel), key=lambda run: run.created)
    over = dict[str, list[tuple[float, ...]]]()
    said = dict[str, list[str]]()
    labels = dict[str, None]()
    first = dict[str, float]()
    timed = [m for run in runs for m in run.select(kernel) if m.time is not None]
    newest = timed[-1] if timed else None
    for run in runs:
        when = float(date2num(datetime.fromisoformat(run.created)))  # type: ignore[no-untyped-call]
        for m in run.select(kernel):
            if m.time is not None and newest is not None and same_card(m, newest):
                of = first.setdefault(m.place, m.time.value)
                change, low, high = (
                    100 * (us / of - 1) for us in (m.time.value, m.time.low, m.time.high)
                )
                over.setdefault(m.place or kernel, []).append((when, change, low, high))
                said.setdefault(m.place or kernel, []).append(
                    f"{signed(change / 100)} on {run.created[:10]}"
                )
                labels[run.label.rpartition(" · ")[0]] = None
    over = {place: points for place, points in over.items() if len(points) > 1}
    if not over:
        raise NothingToDraw(
            f"no two runs of one GPU have {kernel} at one size: measure it twice with `worklog run`"
        )
    most = max(over, key=lambda place: abs(over[place][-1][1]))
    finding = f"{kernel} at {most}: {signed(over[most][-1][1] / 100)} since the first run"
    subtitle = "Change of the time since the first run at that size, each at its own clock; bands: 95 % interval."
    alt = [
        f"Line chart of {kernel}'s time over the runs",
        *(f"{place}: {', '.join(said[place])}" for place in over),
    ]
    colours = dict.fromkeys(over, GREY) | {most: ACCENT}

    def draw(axes: Axes) -> None:
        leave_room(axes, over, BODY_PT)
        axes.axhline(0, color=MUTED, linewidth=0.9, zorder=1)
        axes.grid(True, zorder=0)
        scale(axes.yaxis, MaxNLocator(7), "% of the first time", written="{x:+g}")
        last = draw_lines(axes, over, colours)
        dates: Any = AutoDateLocator(maxticks=6)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(dates)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(dates))  # type: ignore[no-untyped-call]
        name_points(axes, last, {most: {"color": ACCENT}})

    return on_axes(ax, draw, "history", finding, subtitle, [*labels], alt, height=HEIGHT, left=0.69)
