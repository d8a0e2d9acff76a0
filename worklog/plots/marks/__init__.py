"""Marks, of which charts are made: rows of bars, lines, cells, names of points, texts, scales."""

from worklog.plots.marks.areas import areas, fill
from worklog.plots.marks.axis import scale, tick_locator
from worklog.plots.marks.cells import Cell, Cells
from worklog.plots.marks.lines import Line, draw_lines, values_of, x_axis
from worklog.plots.marks.names import leave_room, name_points
from worklog.plots.marks.rows import RowBar, Rows, reference_line
from worklog.plots.marks.text import ON_PAPER, Point, annotate, widest

__all__ = [
    "ON_PAPER",
    "Cell",
    "Cells",
    "Line",
    "Point",
    "RowBar",
    "Rows",
    "annotate",
    "areas",
    "draw_lines",
    "fill",
    "leave_room",
    "name_points",
    "reference_line",
    "scale",
    "tick_locator",
    "values_of",
    "widest",
    "x_axis",
]
