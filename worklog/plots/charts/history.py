"""One kernel's times in all saved runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.ticker import MaxNLocator

from worklog.errors import NothingToDraw
from worklog.plots import style
from worklog.plots.marks import Line, draw_lines, scale
from worklog.plots.page import Margins, Texts, on_axes
from worklog.plots.style import ACCENT, GREY, MUTED
from worklog.runs import Measurement, Run, same_card
from worklog.runs.sources import saved
from worklog.runs.text import format_signed

if TYPE_CHECKING:
    from worklog.plots.page import OnAxes


HEIGHT = 3.0  # inches


@dataclass
class Times:
    """A kernel's times, relative to the first time at their size, by size."""

    # The date, the change in percent, and its interval.
    points: dict[str, list[tuple[float, ...]]] = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)  # for the alt text
    labels: dict[str, None] = field(default_factory=dict)  # of the runs, once each

    @property
    def most_changed(self) -> str:
        """The size whose last time differs most from its first."""
        return max(self.points, key=lambda place: abs(self.points[place][-1][1]))


@style.chart
def history(kernel: str, runs: Sequence[Run] = (), *, ax: OnAxes | None = None) -> OnAxes:
    """Draw a kernel's time in each run, one line per size over the date.

    The times are relative to the first one at that size. Only those on the newest run's card are
    drawn. Returns a Chart, or `ax`. Raises NothingToDraw unless two runs have a time at one size.

    runs: default, those of this machine
    """
    times = _times(kernel, sorted(runs or saved(kernel), key=lambda run: run.created))
    most_changed = times.most_changed
    change = format_signed(times.points[most_changed][-1][1] / 100)
    texts = Texts(
        "history",
        finding=f"{kernel} at {most_changed}: {change} since the first run",
        subtitle=(
            "Change of the time since the first run at that size, each at its own clock; bands: "
            "95 % interval."
        ),
        footer=[*times.labels],
        alt=_alt(kernel, times),
    )
    accent = {"color": ACCENT}
    lines = [
        Line(place, points, ACCENT, name_look=accent)
        if place == most_changed
        else Line(place, points, GREY)
        for place, points in times.points.items()
    ]

    def draw(axes: Axes) -> None:
        axes.axhline(0, color=MUTED, linewidth=0.9, zorder=1)
        axes.grid(True, zorder=0)
        scale(axes.yaxis, MaxNLocator(7), "% of the first time", written="{x:+g}")
        dates: Any = AutoDateLocator(maxticks=6)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(dates)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(dates))  # type: ignore[no-untyped-call]
        draw_lines(axes, lines)

    return on_axes(ax, draw, texts, height=HEIGHT, margins=Margins(left=0.69))


def _times(kernel: str, runs: Sequence[Run]) -> Times:
    """Return the kernel's times at the sizes that two runs have, from runs in order.

    Raises NothingToDraw if there is no such size.
    """
    times = Times()
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
        times.points.setdefault(place, []).append((date, percent, low, high))
        text = f"{format_signed(percent / 100)} on {run.created[:10]}"
        times.texts.setdefault(place, []).append(text)
        times.labels[run.label.rpartition(" · ")[0]] = None
    times.points = {place: points for place, points in times.points.items() if len(points) > 1}
    if not times.points:
        raise NothingToDraw(
            f"no two runs of one GPU have {kernel} at one size: measure it twice with `worklog run`"
        )
    return times


def _alt(kernel: str, times: Times) -> list[str]:
    """Return the alt text: the changes at each size."""
    alt = [f"Line chart of {kernel}'s time over the runs"]
    alt += [f"{place}: {', '.join(times.texts[place])}" for place in times.points]
    return alt


def _on_newest_card(kernel: str, runs: Sequence[Run]) -> Iterator[tuple[Run, Measurement]]:
    """Yield the kernel's timed measurements on the newest one's card, with their runs."""
    timed = list[tuple[Run, Measurement]]()
    for run in runs:
        timed += [(run, m) for m in run.select(kernel) if m.time is not None]
    for run, m in timed:
        if same_card(m, timed[-1][1]):
            yield run, m
