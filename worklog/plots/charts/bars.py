"""Any numbers of 0 or more as bars, in columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from worklog.errors import NothingToDraw
from worklog.plots import style
from worklog.plots.marks import RowBar, Rows, widest
from worklog.plots.page import Chart, Texts, page
from worklog.plots.style import ACCENT, GREY, MUTED, SMALL_PT, WIDTH_IN

# inches
PITCH = 0.24
THICKNESS = 0.15
LINE = 0.16  # of a heading
GAP = 0.16  # between two columns
RIGHT = 0.1
Labels = Mapping[str, Mapping[str, str]]  # by heading and name


@style.chart
def bars(
    title: str,
    columns: Mapping[str, Mapping[str, float]],
    source: str,
    *,
    subtitle: str = "",
    written: str = "{:#.4g}",
    accented: Collection[str] | None = None,
) -> Chart:
    """Draw numbers of 0 or more by name, in columns, as bars.

    Each bar starts at 0 and is as long as its share of the longest bar in its column. A name
    without a number has a dash. Raises NothingToDraw without numbers.

    columns: numbers by name, by the column's heading
    source: the label of the numbers
    written: the format of a number
    accented: the names whose bars have the accent colour (default: all); the others are grey
    """
    names = dict[str, None]()
    for column in columns.values():
        names |= dict.fromkeys(column)
    if not names:
        raise NothingToDraw("there are no numbers to draw as bars")
    rows = Rows([*names], PITCH, THICKNESS)
    colours = {
        name: ACCENT if accented is None or name in accented else GREY for name in rows.names
    }
    labels = {heading: _labels(column, rows, written) for heading, column in columns.items()}
    label_width = max(widest(texts.values(), SMALL_PT) for texts in labels.values()) + 0.1
    width = (WIDTH_IN - rows.left - RIGHT + GAP) / len(columns) - GAP
    headings = {heading: style.wrap(heading, SMALL_PT, width) for heading in columns}
    head = LINE * (max(map(len, headings.values())) + 0.3)
    texts = Texts("bars", title, subtitle, [source], _alt(labels, rows))
    chart = page(texts, rows.height + head)
    left = rows.left
    for heading, column in columns.items():
        axes = chart.axes_at(left, chart.body_bottom, width, rows.height)
        longest = max(column.values(), default=0.0) or 1.0
        axes.set(xlim=(0, longest * width / (width - label_width)), xticks=[])
        axes.spines["bottom"].set_visible(False)
        top = chart.body_bottom + rows.height + LINE * (len(headings[heading]) + 0.2)
        chart.write((left, top), headings[heading], color=MUTED)
        bars_of_column = [
            RowBar(column.get(name, 0.0), labels[heading][name], colours[name])
            for name in rows.names
        ]
        rows.draw(axes, bars_of_column, hidden=axes is not chart.axes[0])
        left += width + GAP
    return chart


def _labels(column: Mapping[str, float], rows: Rows, written: str) -> dict[str, str]:
    """Return the text of each bar of a column by name, or a dash."""
    return {
        name: written.format(column[name]).rstrip(".") if name in column else "–"
        for name in rows.names
    }


def _alt(labels: Labels, rows: Rows) -> list[str]:
    """Return the alt text: each name with its numbers."""
    alt = ["Bar chart"]
    for name in rows.names:
        numbers = [f"{heading} {texts[name]}".strip() for heading, texts in labels.items()]
        alt.append(f"{name}: {', '.join(numbers)}")
    return alt
