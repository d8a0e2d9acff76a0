"""Every chart of a run made by hand looks as it did when somebody last looked at it; what is compared can fail."""

from __future__ import annotations

import pytest
from PIL import Image

from tests.plots.pictures import FOLDER, MOST, WIDTH, apart, charts, picture
from worklog.plots import Chart

CHARTS = charts()


def reference(name: str) -> Image.Image:
    with Image.open(FOLDER / f"{name}.png") as image:
        return image.convert("L")


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_looks_as_it_did(name: str) -> None:
    found = apart(picture(CHARTS[name]()), reference(name))
    assert found <= MOST, (
        f"{name} looks different ({found:.2%} of its pixels): look at it, and if it is meant, draw the references anew "
        "with `python -m tests.plots.pictures`"
    )


def test_every_reference_is_of_a_chart() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.png")) == sorted(CHARTS)


def stretched(chart: Chart) -> None:
    left, right = chart.axes[0].get_xlim()
    chart.axes[0].set_xlim(left, right * 1.01)


def renamed(chart: Chart) -> None:
    chart.axes[0].set_xlabel("GFLOP/s")


def shortened(chart: Chart) -> None:
    chart.axes[0].patches[-2].set_width(0.97 * chart.axes[0].patches[-2].get_width())


def without_a_line(chart: Chart) -> None:
    chart.axes[0].lines[0].remove()


@pytest.mark.parametrize("change", [stretched, renamed, shortened, without_a_line])
def test_a_chart_that_was_touched_does_not_pass(change: object) -> None:
    assert callable(change)
    chart = CHARTS["ladder"]()
    change(chart)
    assert apart(picture(chart), reference("ladder")) > MOST


def test_other_sizes_are_all_that_can_be_apart() -> None:
    grey = Image.new("L", (WIDTH, 10), 128)
    assert apart(grey, grey) == 0
    assert apart(grey, Image.new("L", (WIDTH, 11), 128)) == 1
    assert apart(grey, Image.new("L", (WIDTH, 10), 0)) == 1
    assert apart(grey, Image.new("L", (WIDTH, 10), 140)) == 0, "what an edge may differ by"
