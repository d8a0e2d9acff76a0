"""The charts look as they did when somebody last looked at them.

`python -m tests.plots.test_pictures` draws the references anew, after somebody has looked at what changed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.plots.test_charts import CHARTS, drawn
from worklog.plots import Chart
from worklog.plots.figure import rendered

FOLDER = Path(__file__).with_name("reference")
NAMES = ("ladder", "roofline", "ablation", "peers")
WIDTH = 420  # pixels: letters are four to six high, enough to see that one has moved
FAR = 56  # grey levels that an edge may differ by, where a font's library rounds otherwise
MOST = 0.0002  # share of pixels that may be further apart: less than a letter


def picture(chart: Chart) -> Image.Image:
    """Small and grey, drawn large first, so that how one library smooths an edge hardly matters."""
    grey = rendered(chart.svg()).convert("L")
    return grey.resize((WIDTH, round(grey.height * WIDTH / grey.width)), Image.Resampling.BOX)


def apart(chart: Chart, name: str) -> float:
    """The share of pixels that differ from the reference; 1 where the sizes do."""
    one = picture(chart)
    with Image.open(FOLDER / f"{name}.png") as other:
        if one.size != other.size:
            return 1.0
        levels = [np.asarray(image.convert("L"), dtype=np.int16) for image in (one, other)]
        return float(np.mean(np.abs(levels[0] - levels[1]) > FAR))


@pytest.mark.parametrize("name", NAMES)
def test_a_chart_looks_as_it_did(name: str) -> None:
    found = apart(drawn(name), name)
    assert found <= MOST, f"{found:.2%} of {name} differs: look at it, then `python -m tests.plots.test_pictures`"


def test_a_changed_chart_does_not_pass() -> None:
    chart = CHARTS["ladder"][0]()
    chart.axes[0].set_xlabel("GFLOP/s")
    assert apart(chart, "ladder") > MOST


if __name__ == "__main__":
    for name in NAMES:
        picture(drawn(name)).quantize(32).save(FOLDER / f"{name}.png", optimize=True)
