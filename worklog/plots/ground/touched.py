"""The lines, sectors and banks that a request of a warp touches, float by float."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.patches import Rectangle

from worklog.errors import NothingToDraw
from worklog.plots import style
from worklog.plots.marks import fill
from worklog.plots.page import Chart, Texts, page
from worklog.plots.style import ACCENT, BODY_PT, FAINT, INK, MARGIN_IN, MUTED, WIDTH_IN

PER_LINE = 32  # floats of a line, and banks of shared memory
PER_SECTOR = 8  # floats
SOURCE = "computed from these addresses; float 0 is at the start of a line"
# inches
PITCH = 0.082  # of a line
THICKNESS = 0.062
GAP = 0.3  # between two pictures
ABOVE = 0.1
TEXT = 0.52  # below a picture
INSIDE = 0.86  # of a column, that a float fills


@dataclass(frozen=True)
class Touched:
    """The floats that the lanes of a warp access at once, by their number from a line's start."""

    floats: tuple[int, ...]  # each once

    @property
    def lines(self) -> list[int]:
        """The lines that L1 looks up, by number."""
        return sorted({index // PER_LINE for index in self.floats})

    @property
    def sectors(self) -> list[int]:
        """The sectors that memory moves, by number."""
        return sorted({index // PER_SECTOR for index in self.floats})

    @property
    def wavefronts(self) -> int:
        """The wavefronts if the floats are in shared memory: the most in one bank."""
        banks = [index % PER_LINE for index in self.floats]
        return int(np.bincount(banks).max())

    @property
    def texts(self) -> list[str]:
        """The counts in words."""
        percent = 100 * len(self.floats) / (PER_SECTOR * len(self.sectors))
        return [
            _counted(len(self.lines), "line"),
            f"{_counted(len(self.sectors), 'sector')}, {percent:.3g} % used",
            f"if shared: {_counted(self.wavefronts, 'wavefront')}",
        ]


def touched_by(indices: Sequence[int]) -> Touched:
    """Return what a request touches. indices: the float of each lane."""
    return Touched(tuple(sorted({int(index) for index in indices})))


@style.chart
def touched(requests: Mapping[str, Sequence[int]]) -> Chart:
    """Draw the floats that requests touch: a row for each line, a column for each bank.

    The same picture has the cost in both memories. In global memory it is the rows (lines) and the
    sectors of 8 floats. In shared memory it is the largest number of floats in one column.

    requests: up to four, by name: the floats that the lanes access, counted from a line's start
    Raises NothingToDraw without a request, and for one without floats.
    """
    if not requests or not all(len(indices) for indices in requests.values()):
        raise NothingToDraw("there is no request with floats to draw")
    by_name = {name: touched_by(indices) for name, indices in requests.items()}
    width = (WIDTH_IN - 2 * MARGIN_IN + GAP) / len(by_name) - GAP
    heads = {name: style.wrap(name, BODY_PT, width, bold=True) for name in by_name}
    head = style.line_height(BODY_PT, max(map(len, heads.values()))) + 0.06
    rows = max(len(request.lines) for request in by_name.values())
    texts = Texts(
        "touched",
        finding=_finding(by_name),
        subtitle=(
            "Each row is a line of 128 bytes: 4 sectors of 8 floats. Blue: the floats that a lane "
            "accesses; grey: floats that move with them. Each column is a bank, if the same floats "
            "are in shared memory."
        ),
        footer=[SOURCE],
        alt=["The lines, sectors and banks of a request"]
        + [f"{name}: {', '.join(request.texts)}" for name, request in by_name.items()],
    )
    chart = page(texts, ABOVE + head + PITCH * rows + TEXT)
    left = MARGIN_IN
    for name, request in by_name.items():
        top = chart.body_top - ABOVE
        chart.write((left, top), heads[name], BODY_PT, color=INK, weight="bold")
        _draw(chart, request, left, top - head, width)
        left += width + GAP
    return chart


def _finding(by_name: Mapping[str, Touched]) -> str:
    """Return the range of sectors and of wavefronts."""
    sectors = [len(request.sectors) for request in by_name.values()]
    wavefronts = [request.wavefronts for request in by_name.values()]
    return (
        f"A request costs {_range(sectors, 'sector')} of global memory, or "
        f"{_range(wavefronts, 'wavefront')} of shared memory"
    )


def _range(counts: Sequence[int], noun: str) -> str:
    """Return the smallest and the largest count with the noun."""
    if min(counts) == max(counts):
        return _counted(counts[0], noun)
    return f"{min(counts)} to {_counted(max(counts), noun)}"


def _draw(chart: Chart, request: Touched, left: float, top: float, width: float) -> None:
    """Draw the lines of a request with the counts below them."""
    height = PITCH * len(request.lines)
    axes = chart.axes_at(left, top - height, width, height)
    axes.set(xlim=(0, PER_LINE), ylim=(height, 0))
    axes.set_axis_off()
    rows = {line: row for row, line in enumerate(request.lines)}
    for row in rows.values():
        outline = Rectangle(
            (0, PITCH * row), PER_LINE, THICKNESS, facecolor="none", edgecolor=FAINT, linewidth=0.6
        )
        axes.add_patch(outline)
    moved = list[int]()
    for sector in request.sectors:
        moved += range(PER_SECTOR * sector, PER_SECTOR * (sector + 1))
    fill(axes, [_cell(index, rows) for index in moved], FAINT)
    fill(axes, [_cell(index, rows) for index in request.floats], ACCENT)
    chart.write((left, top - height - 0.04), request.texts, color=MUTED)


def _cell(index: int, rows: Mapping[int, int]) -> Rectangle:
    """Return the cell of a float. rows: of each line that is drawn."""
    line, column = divmod(index, PER_LINE)
    return Rectangle((column + (1 - INSIDE) / 2, PITCH * rows[line]), INSIDE, THICKNESS)


def _counted(count: int, noun: str) -> str:
    """Return the count with the noun, in the plural unless it is 1."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
