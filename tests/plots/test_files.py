"""The files: complete, the same bytes in every process, with words for screen readers, shown in notebooks."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
from dataclasses import replace
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.colors import to_rgb
from PIL import Image, ImageColor

from tests.plots import test_charts as charts
from tests.plots.conftest import ablate, benchmark, ladder_run, of
from worklog.errors import WorklogError
from worklog.plots import DIAGRAMS, Drawn, draw_all, ladder, save, write_gallery
from worklog.plots.figure import Drawing
from worklog.plots.registry import FIGURES
from worklog.plots.style import DARK, LIGHT
from worklog.runs import recordings
from worklog.runs.comparison import open_comparison
from worklog.runs.run import Run

NAMES = *FIGURES, "ablation_warptiled"
# These come with the package, from other sources than this run.
SOURCES = dict.fromkeys(NAMES, "<GPU & Co>") | {"traffic": charts.EMULATED}
SOURCES |= {
    "headline": Run.load([*recordings("grid").values()][-1], "recorded").label,
    "peers": open_comparison().label,
}
ENDS = (".svg", ".png", "_dark.svg", "_dark.png")
SVG = "{http://www.w3.org/2000/svg}"
# Every SVG, and one PNG, since all of them are made in the same way.
DRAW = """
import sys
from pathlib import Path
from worklog.plots import draw_all
from worklog.plots.figure import Drawing
from worklog.runs import Run
encoded = Drawing.encoded
Drawing.encoded = lambda self, svg: encoded(self, svg) if self.name == "ladder" else b""
draw_all(Run.load(Path(sys.argv[1]), origin="recorded"), Path(sys.argv[2]))
measures = {"worklog.runner.measure", "worklog.harness", "worklog.gate", "matplotlib.pyplot", "cupy", "torch"}
assert not measures & {*sys.modules}
"""


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run made by hand, on a device whose name isn't HTML."""
    run = ladder_run()
    ablate(run, "warptiled")
    return replace(run, gpu=replace(run.gpu, name="<GPU & Co>")).save(tmp_path_factory.mktemp("run") / "run.jsonl")


@pytest.fixture(scope="module")
def drawn(run_file: Path) -> Drawn:
    """All charts, in a folder that did not exist; one PNG, as in the fixture one_png."""
    encoded = Drawing.encoded
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Drawing, "encoded", lambda self, svg: encoded(self, svg) if self.name == "ladder" else b"")
        return draw_all(Run.load(run_file, origin="recorded"), run_file.parent / "new" / "folder")


def test_all_charts_are_drawn_light_and_dark_with_a_role_a_title_and_a_description(drawn: Drawn) -> None:
    assert {path.name for path in drawn.paths} == {f"{name}{end}" for name in NAMES for end in ENDS}
    assert drawn.missing == {} and drawn.paths[4].stem == "ladder" and drawn.paths[5].stat().st_size > 3000
    for path in (path for path in drawn.paths if path.suffix == ".svg"):
        svg, name = path.read_text(encoding="utf-8"), path.stem.removesuffix("_dark")
        assert not any(trace in svg for trace in ("dc:date", "Matplotlib v", "Software"))
        root = ElementTree.fromstring(svg)
        title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
        assert title is not None and description is not None and root.get("role") == "img"
        assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
        assert len(title.text or "") > 20 and SOURCES[name] in (description.text or "")
        has_words = root.find(f".//{SVG}text") is not None
        assert has_words is (name in (*DIAGRAMS, "headline")), "a chart's text is outlines"


def test_what_cannot_be_drawn_is_named_with_the_reason_and_a_benchmark_has_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Drawing, "encoded", lambda self, svg: b"")
    drawn = draw_all(of(), tmp_path)
    assert set(drawn.charts) == {"headline", "traffic", "peers", "calibration"}
    assert set(drawn.missing) == FIGURES.keys() - drawn.charts.keys() | {"ablation"}
    assert "worklog ablate" in drawn.missing["ablation"]
    assert f"Not drawn: `roofline`, {drawn.missing['roofline']}" in (tmp_path / "README.md").read_text()
    assert {"lines_fast", "lines_slow"} <= set(draw_all(benchmark(), tmp_path).charts)


def test_the_same_run_gives_the_same_bytes_in_another_process_and_on_another_cpu(drawn: Drawn, run_file: Path) -> None:
    """NumPy and OpenBLAS have other code for other CPUs, which rounds otherwise."""
    cpu: Any = import_module("numpy._core._multiarray_umath")
    newer = ",".join(name for name in cpu.__cpu_dispatch__ if cpu.__cpu_features__[name])
    other = os.environ | {"PYTHONHASHSEED": "7", "NPY_DISABLE_CPU_FEATURES": newer, "OPENBLAS_CORETYPE": "Haswell"}
    again = run_file.parent / "again"
    subprocess.run([sys.executable, "-c", DRAW, str(run_file), str(again)], env=other, check=True)
    first, second = ({path.name: path.read_bytes() for path in f.iterdir()} for f in (drawn.paths[0].parent, again))
    assert first.keys() == second.keys() > {"README.md"}
    assert [name for name, content in first.items() if content != second[name]] == []


def test_neither_the_users_style_nor_the_palette_changes_what_is_the_users(h200: Run) -> None:
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "svg.hashsalt": "mine", "savefig.dpi": 30}):
        chart = ladder(h200)
        assert chart.svg() == charts.drawn("ladder").svg()
        assert matplotlib.rcParams["font.size"] == 20
    chart.axes[0].axvline(20, color="#123456", linewidth=20)
    assert "#123456" in chart.svg(dark=True)


def test_a_png_and_a_chart_in_a_notebook_have_its_words_and_its_colours_by_theme(drawn: Drawn) -> None:
    chart = drawn.charts["ladder"]
    for name, palette in (("ladder.png", LIGHT), ("ladder_dark.png", DARK)):
        with Image.open(drawn.paths[0].with_name(name)) as image:
            assert image.width == 1400
            assert (image.info["Title"], image.info["Description"]) == (chart.headline, chart.alt)
            assert image.convert("RGB").getpixel((2, 2)) == ImageColor.getrgb(palette["paper"])
    formatters = pytest.importorskip("IPython.core.formatters")
    chart = charts.drawn("ablation")
    data, metadata = formatters.DisplayFormatter().format(chart)
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert data["text/plain"] == metadata["image/png"]["alt"] == chart.alt
    assert f'src="data:image/png;base64,{data["image/png"]}"' in data["text/html"], "shown where a page drops styles"
    [dark] = re.findall(r"--dark:url\(data:image/svg\+xml;base64,(.*?)\)", data["text/html"])
    assert base64.b64decode(dark).decode() == chart.svg(dark=True) and data["text/html"].count("<img ") == 1


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(WorklogError, match=r"cannot write .*--out"):
        save(charts.drawn("ladder"), tmp_path / "file" / "ladder")


def test_the_gallery_shows_every_figure_and_replaces_no_other_page(drawn: Drawn, tmp_path: Path) -> None:
    assert drawn.gallery is not None
    page = drawn.gallery.read_text(encoding="utf-8")
    for name, chart in drawn.charts.items():
        for link in (f'src="{name}.png"', f'srcset="{name}_dark.png"', f'href="{name}.svg"', f'href="{name}_dark.svg"'):
            assert link in page
        assert f"### {escape(chart.headline, False)}\n" in page and escape(chart.alt) in page
    assert "<GPU" not in page
    assert page.index("diagram_1") < page.index("diagram_7") < page.index('"ladder.png"')
    own, ladder = tmp_path / "README.md", {"ladder": charts.drawn("ladder")}
    assert write_gallery({}, {}, tmp_path) is None and not own.exists()
    own.write_text(page)
    assert write_gallery(ladder, {}, tmp_path) == own and "diagram_1" not in own.read_text()
    own.write_text("# My project")
    assert write_gallery(ladder, {}, tmp_path) is None and own.read_text() == "# My project"


def contrast(a: str, b: str) -> float:
    """WCAG's contrast ratio of two sRGB colours."""
    lights = []
    for colour in (a, b):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_marks_have_enough_contrast_and_each_role_a_colour_of_its_own(palette: dict[str, str]) -> None:
    """As WCAG 2.2 requires: 4.5 for text (1.4.3), 3 for marks (1.4.11)."""
    grounds = dict.fromkeys(("ink", "muted", "accent", "alert", "other"), ("paper", "pale", "tint"))
    grounds |= {"ink": (*grounds["ink"], "baseline", "faint", "inflates", "deflates"), "paper": ("accent", "muted")}
    for text, backgrounds in grounds.items():
        assert [on for on in backgrounds if contrast(palette[text], palette[on]) < 4.5] == [], text
    assert contrast(palette["line"], palette["paper"]) > 3
    assert all(contrast(palette[mark], palette["faint"]) > 2.75 for mark in ("accent", "alert"))
    assert palette.keys() == LIGHT.keys() and len(set(palette.values())) == len(palette)
