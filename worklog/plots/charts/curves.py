"""Any numbers over x as lines."""

from __future__ import annotations

import math
from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator

from worklog.plots import style
from worklog.plots.marks import Line, draw_lines, scale, x_axis
from worklog.plots.marks.lines import FIRST, WIDE
from worklog.plots.page import Chart, Margins, Texts, on_axes
from worklog.plots.style import ACCENT, INK, MUTED

HEIGHT = 2.95  # inches
MARGINS = Margins(left=0.69, above=0.2, below=0.45)


@style.chart
def curves(
    finding: str,
    series: Mapping[str, Mapping[int, float]],
    label: str,
    *,
    x: str,
    y: str,
    subtitle: str = "",
    limit: Mapping[int, float] = {},
) -> Chart:
    """Draw numbers by x: one line per name, the first one accented.

    finding: the title
    series: by name, the numbers by x
    label: the source
    x, y: labels of the axes
    limit: a dashed line, such as of errors; with one, the axes are logarithmic
    """
    lines = list[Line]()
    for name, numbers in series.items():
        is_first = not lines
        colour = ACCENT if is_first else INK
        look = FIRST if is_first else {}
        lines.append(Line(name, sorted(numbers.items()), colour, name_look=look))

    def draw(axes: Axes) -> None:
        x_axis(axes, lines, x, WIDE if limit else math.inf)
        if limit:
            scale(axes.yaxis, LogLocator(10), y, log=10)
        else:
            scale(axes.yaxis, MaxNLocator(6), y)
        axes.plot([*limit], [*limit.values()], "--", color=MUTED, linewidth=1.0, zorder=1)
        draw_lines(axes, lines)

    texts = Texts("curves", finding, subtitle, [label], _alt(series, x, y))
    chart: Chart = on_axes(None, draw, texts, height=HEIGHT, margins=MARGINS)
    return chart


def _alt(series: Mapping[str, Mapping[int, float]], x: str, y: str) -> list[str]:
    """Return the alt text: the numbers of each line."""
    alt = [f"Line chart of {y} against {x}"]
    for name, numbers in series.items():
        texts = [f"{number:.3g} at {value}" for value, number in numbers.items()]
        alt.append(f"{name}: {', '.join(texts)}")
    return alt
