"""Rows of bars: where names, bars, whiskers and texts are, and the example of a chart."""

from dataclasses import replace
from textwrap import dedent
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from pytest import approx

from tests.plots.conftest import make_run
from tests.plots.test_charts import collisions
from worklog.errors import NothingToDraw
from worklog.plots import charts
from worklog.plots.marks import RowBar, Rows
from worklog.plots.style import ACCENT, INK, PAPER


def axes_of(rows: Rows, longest: float = 10.0) -> Any:
    """Return axes 4 inches wide and as high as the rows."""
    figure = Figure(figsize=(4, rows.height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, longest)
    return axes


def test_rows_go_down_from_the_head_and_name_their_bars():
    rows = Rows(["one", "two"], pitch=0.5, thickness=0.2, head=0.3, middle=0.4)
    axes = axes_of(rows)
    rows.draw(axes, [RowBar(4.0, "4"), RowBar(2.0, "2", start=1.0)])
    assert rows.height == approx(1.3)
    assert rows.ys == approx([0.5, 1.0])
    assert axes.get_ylim() == approx((1.3, 0))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "two"]
    spans = [(bar.get_x(), bar.get_width(), bar.get_height()) for bar in axes.patches]
    assert spans == [approx((0, 4, 0.2)), approx((1, 2, 0.2))]
    assert [text.xy[0] for text in axes.texts] == [4, 3], "at the bars' ends"
    rows.draw_names(axes, hidden=True)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["", ""]


@pytest.mark.parametrize(
    ("bar", "line", "x", "colour"),
    [
        (RowBar(8.0, "text"), 9.9, 8.0, PAPER),  # inside
        (RowBar(8.0, "text", "#b8b8b8"), 9.9, 8.0, INK),  # inside a bar that isn't dark
        (RowBar(8.0, "text", interval=(7.0, 9.0)), 9.9, 7.0, PAPER),  # left of the whiskers
        (RowBar(8.0, "text"), 7.5, 7.5, PAPER),  # left of a line in the bar
        (RowBar(1.2, "text", interval=(0.8, 1.4)), 9.9, 1.4, INK),  # too long left of the whiskers
        (RowBar(0.5, "text"), 9.9, 0.5, INK),  # too long for the bar
        (RowBar(0.5, "text", interval=(0.4, 0.7)), 9.9, 0.7, INK),  # right of the whiskers
        (RowBar(0.5, "text"), 0.6, 0.6, INK),  # right of a line beside the bar
    ],
)
def test_a_bars_text_is_inside_if_it_fits_and_never_on_the_line(bar, line, x, colour):
    rows = Rows(["one"], pitch=0.5)
    axes = axes_of(rows)
    rows.draw_bar_off_line(axes, 0.25, bar, line)
    [text] = axes.texts
    assert (text.xy[0], text.get_color()) == (x, colour)


def test_whiskers_reach_from_end_to_end():
    rows = Rows(["one"], pitch=0.5)
    axes = axes_of(rows)
    rows.draw_bar(axes, 0.25, RowBar(5.0, interval=(4.0, 7.0)))
    [whiskers] = [path.vertices.tolist() for path in axes.collections[0].get_paths()]
    assert whiskers == [approx([4, 0.25]), approx([7, 0.25])]
    assert not axes.texts


def test_the_example_of_a_chart_can_be_drawn():
    _, source = charts.__doc__.split("rows of bars:\n")
    names: dict[str, Any] = {}
    exec(dedent(source), names)
    kernels = {"naive": {"registers": 32}, "warptiled": {"registers": 128}, "cuBLAS": {}}
    run = replace(make_run(), kernels=kernels)
    chart = names["registers"](run)
    assert chart.headline == "warptiled needs most registers, 128 per thread"
    assert [bar.get_width() for bar in chart.axes[0].patches] == [32, 128]
    assert {to_hex(bar.get_facecolor()) for bar in chart.axes[0].patches} == {ACCENT}
    assert run.full_label in chart.alt
    assert collisions(chart) == []
    with pytest.raises(NothingToDraw, match="worklog run"):
        names["registers"](replace(run, kernels={}))
