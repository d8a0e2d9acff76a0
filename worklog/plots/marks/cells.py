"""A map of cells in rows and columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from worklog.plots.style import INK, SMALL_PT


@dataclass(frozen=True)
class Cell:
    """A cell of a map."""

    text: str
    fill: Any  # matplotlib's colour, or a colour with its opacity
    opacity: float = 1.0  # of the cell without its text
    text_colour: str = INK
    text_pt: float = SMALL_PT


@dataclass(frozen=True)
class Cells:
    """A map of cells, whose first row is at the top. Lengths are in the unit of the axes."""

    width: float  # of a column
    height: float  # of a row
    left: float = 0.0  # of the first column
    top: float = 0.0  # of the first row
    x_gap: float = 0.0  # between two columns
    y_gap: float = 0.0  # between two rows
    outline: str | None = None  # its colour
    text_va: str = "center"

    def draw_cell(self, axes: Axes, row: int, column: int, cell: Cell) -> None:
        """Draw one cell with its text."""
        left = self.left + self.width * column
        top = self.top + self.height * row
        rectangle = Rectangle(
            (left + self.x_gap / 2, top + self.y_gap / 2),
            self.width - self.x_gap,
            self.height - self.y_gap,
            facecolor=cell.fill,
            alpha=None if cell.opacity == 1.0 else cell.opacity,
            edgecolor=self.outline,
            linewidth=1.0 if self.outline else 0.0,
        )
        axes.add_patch(rectangle)
        axes.text(
            self.left + self.width * (column + 0.5),
            self.top + self.height * (row + 0.5),
            cell.text,
            ha="center",
            va=self.text_va,
            color=cell.text_colour,
            fontsize=cell.text_pt,
        )
