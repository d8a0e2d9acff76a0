"""The pictures that the charts of a run made by hand are compared with, small and grey, and how alike two are.

`python -m tests.plots.pictures` draws them anew, after somebody has looked at what changed; a recording changes nothing
here.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tests.lab.grid import small_grid
from tests.plots.conftest import full_run
from tests.plots.test_ruler_charts import document
from worklog.analysis.traffic import RungTraffic, Traffic
from worklog.lab.panel_answer import PanelChoice
from worklog.lab.panel_picture import picture as panel_picture
from worklog.plots import DIAGRAMS, ablation, calibration, ladder, peers, roofline, traffic
from worklog.plots.figure import Drawing
from worklog.problem.gemm import Shape
from worklog.runs.comparison import Comparison

FOLDER = Path(__file__).with_name("reference")
WIDTH = 420  # pixels: letters are four to six high, enough to see that one has moved
FAR = 56  # grey levels that an edge may differ by, where a font's library rounds otherwise
MOST = 0.0002  # share of pixels that may be further apart: less than a letter

COUNTED = Traffic(
    "emulated · sm_90 PTX",
    Shape.of(64),
    {
        "naive": RungTraffic("0", 4096, 67584, 524288, 32, 1024, 0, 0, 65536),
        "shared": RungTraffic("0", 128, 512, 16384, 32, 128, 3200, 800, 65536),
        "vectorized": RungTraffic("0", 32, 512, 16384, 32, 128, 640, 0, 65536),
    },
)


def charts() -> dict[str, Callable[[], Drawing]]:
    """Every chart by name, from values that no recording touches."""
    run = full_run()
    biased = PanelChoice([small_grid()], "warptiled", 1024, l2="warm", queue=False, timer="host")
    found: dict[str, Callable[[], Drawing]] = {
        "ladder": lambda: ladder(run),
        "roofline": lambda: roofline(run),
        "ablation": lambda: ablation(run, "warptiled"),
        "calibration": lambda: calibration(run),
        "peers": lambda: peers(Comparison(document())),
        "traffic": lambda: traffic(COUNTED),
        "panel": lambda: panel_picture(biased.answer()),
    }
    return found | {name: (lambda draw=draw: draw(run)) for name, draw in DIAGRAMS.items()}


def picture(chart: Drawing, *, dark: bool = False) -> Image.Image:
    """Small and grey, drawn large first, so that how one library smooths an edge hardly matters."""
    with Image.open(io.BytesIO(chart.png(dark=dark))) as drawn:
        grey = drawn.convert("L")
        return grey.resize((WIDTH, round(grey.height * WIDTH / grey.width)), Image.Resampling.BOX)


def apart(one: Image.Image, other: Image.Image) -> float:
    """The share of pixels that differ; 1 where the sizes do."""
    if one.size != other.size:
        return 1.0
    levels: list[NDArray[np.int16]] = [np.asarray(image.convert("L"), dtype=np.int16) for image in (one, other)]
    return float(np.mean(np.abs(levels[0] - levels[1]) > FAR))


def main() -> None:
    """Draw all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in charts().items():
        picture(draw()).quantize(32).save(FOLDER / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
