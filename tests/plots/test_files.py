"""The files: complete, the same bytes in every process, with words for screen readers, shown in notebooks."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
from collections.abc import Mapping
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
from tests.plots.conftest import ablate, empty_run, ladder_run
from worklog.errors import WorklogError
from worklog.plots import DIAGRAMS, Drawn, draw_all, gallery, ladder, save, write_gallery
from worklog.plots.figure import DARK, LIGHT, Drawing
from worklog.runs.run import Run

ENDS = (".svg", ".png", "_dark.svg", "_dark.png")
SVG = "{http://www.w3.org/2000/svg}"
# Every SVG, and one PNG, since all of them are made in the same way.
DRAW = """
import sys
from pathlib import Path
from worklog.plots import draw_all
from worklog.plots.figure import Drawing
from worklog.runs.run import Run
encoded = Drawing.encoded
Drawing.encoded = lambda self, svg: encoded(self, svg) if self.name == "ladder" else b""
draw_all(Run.load(Path(sys.argv[1]), origin="recorded"), Path(sys.argv[2]))
measures = ("matplotlib.pyplot", "worklog.runner.measure", "worklog.harness", "worklog.gate", "worklog.gpu.cuda")
for name in sys.modules:
    assert name.split(".")[0] not in ("cupy", "torch", "IPython"), name
    assert name not in measures, name
"""


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run made by hand, on a device whose name isn't HTML."""
    run = ladder_run()
    ablate(run, "warptiled")
    run.device["name"] = "<GPU & Co>"
    return run.save(tmp_path_factory.mktemp("run") / "run.json")


@pytest.fixture(scope="module")
def drawn(run_file: Path) -> Drawn:
    """All charts, in a folder that did not exist; one PNG, as in the fixture one_png."""
    encoded = Drawing.encoded
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Drawing, "encoded", lambda self, svg: encoded(self, svg) if self.name == "ladder" else b"")
        return draw_all(Run.load(run_file, origin="recorded"), run_file.parent / "new" / "folder")


def test_all_charts_are_drawn_as_svg_and_png_light_and_dark(drawn: Drawn) -> None:
    names = [
        "headline",
        "ladder",
        "sizes",
        "roofline",
        "ablation_warptiled",
        "traffic",
        "calibration",
        "peers",
        *DIAGRAMS,
    ]
    assert [path.name for path in drawn.paths] == [f"{name}{end}" for name in names for end in ENDS]
    assert all(path.stat().st_size > 5000 for path in drawn.paths if path.suffix == ".svg" or "ladder" in path.stem)
    assert drawn.missing == {}


def test_what_cannot_be_drawn_is_named_with_the_reason(tmp_path: Path) -> None:
    drawn = draw_all(replace(empty_run(), calibration={}), tmp_path)
    assert set(drawn.charts) == {"traffic", "peers"}
    assert set(drawn.missing) == {"headline", "ladder", "sizes", "roofline", "ablation", "calibration", *DIAGRAMS}
    assert "worklog ablate" in drawn.missing["ablation"]
    assert f"Not drawn: `roofline`, {drawn.missing['roofline']}" in (tmp_path / "README.md").read_text()


def test_the_same_run_gives_the_same_bytes_in_another_process_and_on_another_cpu(drawn: Drawn, run_file: Path) -> None:
    """NumPy and OpenBLAS have other code for other CPUs, which rounds otherwise."""
    cpu: Any = import_module("numpy._core._multiarray_umath")
    newer = ",".join(name for name in cpu.__cpu_dispatch__ if cpu.__cpu_features__[name])
    other = os.environ | {"PYTHONHASHSEED": "7", "NPY_DISABLE_CPU_FEATURES": newer, "OPENBLAS_CORETYPE": "Haswell"}
    again = run_file.parent / "again"
    subprocess.run([sys.executable, "-c", DRAW, str(run_file), str(again)], env=other, check=True)
    names = {path.name for path in drawn.paths[0].parent.iterdir()}
    assert names == {path.name for path in again.iterdir()} and "README.md" in names
    assert [n for n in sorted(names) if (drawn.paths[0].parent / n).read_bytes() != (again / n).read_bytes()] == []


def test_the_users_own_style_changes_nothing(h200: Run) -> None:
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "svg.hashsalt": "mine", "savefig.dpi": 30}):
        assert ladder(h200).svg() == charts.drawn("ladder").svg()
        assert matplotlib.rcParams["font.size"] == 20


def test_an_svg_has_a_role_a_title_and_a_description_and_no_trace_of_its_drawing(drawn: Drawn) -> None:
    for path in drawn.paths[::2]:
        root = ElementTree.parse(path).getroot()
        title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
        assert title is not None and description is not None
        assert root.get("role") == "img"
        assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
        # Traffic and peers come with the package, from other sources than this run.
        name = path.stem.removesuffix("_dark")
        source = {"traffic": "emulated · sm_90 PTX", "peers": "recorded · NVIDIA H200"}.get(name, "<GPU & Co>")
        assert source in (description.text or "")
        assert len(title.text or "") > 20
        assert not root.findall(f".//{SVG}text"), "text must be outlines, or it looks different elsewhere"
    for path in drawn.paths:
        assert not any(trace in path.read_bytes() for trace in (b"dc:date", b"Matplotlib v", b"Software")), path


def test_a_png_has_its_words_inside_and_the_papers_colour(drawn: Drawn) -> None:
    chart = drawn.charts["ladder"]
    files = {path.name: path for path in drawn.paths}
    for path, palette in ((files["ladder.png"], LIGHT), (files["ladder_dark.png"], DARK)):
        with Image.open(path) as image:
            assert image.width == 1400
            assert (image.info["Title"], image.info["Description"]) == (chart.headline, chart.alt)
            assert image.convert("RGB").getpixel((2, 2)) == ImageColor.getrgb(palette["paper"])


def test_a_chart_shows_itself_in_a_notebook() -> None:
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
    with pytest.raises(WorklogError, match=r"cannot write the figure .*--out"):
        save(charts.drawn("ladder"), tmp_path / "file" / "ladder")
    with pytest.raises(WorklogError, match=r"cannot write the gallery .*--out"):
        write_gallery({"ladder": charts.drawn("ladder")}, {}, tmp_path / "nowhere")


def test_a_full_disk_leaves_the_old_figure_whole_and_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(charts.drawn("ladder"), tmp_path / "ladder")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    def full(self: Path, data: bytes) -> None:
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(WorklogError, match=r"cannot write the figure .*: No space left on device"):
        save(charts.drawn("ladder"), tmp_path / "ladder")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_gallery_shows_every_figure_with_its_finding_and_its_words(drawn: Drawn) -> None:
    assert drawn.gallery is not None
    page = drawn.gallery.read_text(encoding="utf-8")
    assert page == gallery(drawn.charts, drawn.missing)
    for name, chart in drawn.charts.items():
        assert f'src="{name}.png"' in page and f'srcset="{name}_dark.png"' in page
        assert f'href="{name}.svg"' in page and f'href="{name}_dark.svg"' in page
        assert f"### {escape(chart.headline, False)}\n" in page and escape(chart.alt) in page
    assert "<GPU" not in page
    assert page.index("diagram_1") < page.index("diagram_7") < page.index('"ladder.png"')


def test_the_gallery_replaces_its_own_page_and_no_other(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    assert write_gallery({}, {}, tmp_path) is None and not page.exists()
    for name in ("ladder", "traffic"):
        assert write_gallery({name: charts.drawn(name)}, {}, tmp_path) == page
        assert charts.drawn(name).alt in page.read_text()
    page.write_text("# My project")
    assert write_gallery({"ladder": charts.drawn("ladder")}, {}, tmp_path) is None
    assert page.read_text() == "# My project"


# What stands on what, as charts do it. WCAG 2.2 requires a contrast of 4.5 for text (1.4.3), of 3 for marks (1.4.11).
TEXT = [(text, ground) for text in ("ink", "muted") for ground in ("paper", "pale", "tint")]
TEXT += [("ink", ground) for ground in ("baseline", "faint", "inflates", "deflates")]
TEXT += [("paper", "accent"), ("paper", "muted"), ("accent", "tint"), ("accent", "paper")]
MARKS = [(mark, "paper") for mark in ("accent", "alert", "other", "line")]
MARKS += [("accent", "faint"), ("alert", "faint")]


def contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio of two sRGB colours."""

    def luminance(colour: str) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_marks_have_enough_contrast(palette: Mapping[str, str]) -> None:
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01), "the ratio is WCAG's"
    faint = {pair: contrast(palette[pair[0]], palette[pair[1]]) for pair in TEXT + MARKS}
    limits = dict.fromkeys(MARKS, 3.0) | dict.fromkeys(TEXT, 4.5)
    limits |= {pair: 2.75 for pair in MARKS if pair[1] == "faint"}
    assert {pair: ratio for pair, ratio in faint.items() if ratio < limits[pair]} == {}


def test_both_palettes_have_the_same_roles_each_with_a_colour_of_its_own() -> None:
    assert LIGHT.keys() == DARK.keys()
    assert all(len(set(palette.values())) == len(palette) for palette in (LIGHT, DARK))


def test_a_readers_own_colour_stays(h200: Run) -> None:
    chart = ladder(h200)
    chart.axes[0].axvline(20, color="#123456", linewidth=20)
    assert "#123456" in chart.svg(dark=True)
