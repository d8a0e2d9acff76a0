"""The files: complete, the same bytes in every process, in words for those who do not see, shown in notebooks."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest
from PIL import Image

from tests.plots.conftest import full_run
from worklog.errors import WorklogError
from worklog.plots import DIAGRAMS, Drawn, ablation, draw_all, gallery, ladder, save, write_gallery
from worklog.plots.figure import few_colours
from worklog.plots.gallery import Caption
from worklog.plots.style import DARK, LIGHT
from worklog.runs.run import Run, recordings

# The comparison of rulers comes with the package, or does not yet.
SHIPPED = ["peers"] if any(list(path.parent.glob("peers/*.json")) for path in recordings().values()) else []
NOT_YET = {"peers"} - {*SHIPPED}
ENDS = (".svg", ".png", "_dark.svg", "_dark.png")
SVG = "{http://www.w3.org/2000/svg}"
DRAW = """
import sys
from pathlib import Path
from worklog.plots import draw_all
from worklog.runs.run import Run
draw_all(Run.load(Path(sys.argv[1]), origin="recorded"), Path(sys.argv[2]))
for name in sys.modules:
    assert name.split(".")[0] not in ("cupy", "torch", "IPython"), name
    assert name not in ("matplotlib.pyplot", "worklog.bench.measure", "worklog.harness", "worklog.gate", "worklog.gpu.cuda"), name
"""


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    """All charts of the run made by hand, on a device whose name is no HTML, in a folder that was not there."""
    run = full_run()
    run.device["name"] = "<GPU & Co>"
    return draw_all(run, tmp_path_factory.mktemp("drawn") / "new" / "folder")


def test_all_charts_are_drawn_as_svg_and_png_light_and_dark(drawn: Drawn) -> None:
    names = ["ladder", "roofline", "ablation_naive", "ablation_warptiled", "traffic", "calibration", *SHIPPED]
    names += DIAGRAMS
    assert [path.name for path in drawn.paths] == [f"{name}{end}" for name in names for end in ENDS]
    assert all(path.stat().st_size > 5000 for path in drawn.paths)
    assert drawn.missing.keys() == NOT_YET


def test_what_cannot_be_drawn_is_named_with_the_reason(h200: Run, tmp_path: Path) -> None:
    h200.measurements = [m for m in h200.measurements if not m.changed]
    h200.calibration = {}
    drawn = draw_all(h200, tmp_path)
    machine = {"diagram_2_memory_hierarchy", "diagram_5_conversion"}
    assert set(drawn.captions) == {"ladder", "traffic", *SHIPPED, *DIAGRAMS} - machine
    assert set(drawn.missing) == {"roofline", "ablation", "calibration"} | machine | NOT_YET
    assert "worklog ablate" in drawn.missing["ablation"]
    assert "Not drawn: `roofline`, the run has no measured FP32 ceiling" in gallery(drawn)


def test_an_empty_run_draws_nothing_of_its_own_and_says_so(h200: Run, tmp_path: Path) -> None:
    h200.measurements = []
    drawn = draw_all(h200, tmp_path)
    own = {"calibration", *SHIPPED}
    assert set(drawn.captions) == {"traffic", *own}, "that one was counted, not measured"
    assert set(drawn.missing) == {"ladder", "roofline", "ablation", *DIAGRAMS} | NOT_YET


def test_the_same_run_gives_the_same_bytes_in_another_process(drawn: Drawn, tmp_path: Path) -> None:
    run = full_run()
    run.device["name"] = "<GPU & Co>"
    run_file = run.save(tmp_path / "run.json")
    other = os.environ | {"PYTHONHASHSEED": "7", "MPLBACKEND": "svg"}
    subprocess.run([sys.executable, "-c", DRAW, str(run_file), str(tmp_path / "drawn")], env=other, check=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "drawn").iterdir()} == {
        path.name: path.read_bytes() for path in drawn.paths
    }


def test_the_users_own_style_changes_nothing(h200: Run) -> None:
    expected = ladder(h200).svg()
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "svg.hashsalt": "mine", "savefig.dpi": 30}):
        assert ladder(h200).svg() == expected
        assert matplotlib.rcParams["font.size"] == 20


def test_another_run_gives_other_bytes(h200: Run, tall: Callable[[int], Run]) -> None:
    assert ladder(h200).svg() != ladder(tall(7)).svg()
    assert ladder(h200).png() != ladder(tall(7)).png()


def test_an_svg_has_a_role_a_title_and_a_description(drawn: Drawn) -> None:
    for path in drawn.paths[::2]:
        root = ElementTree.parse(path).getroot()
        title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
        assert title is not None
        assert description is not None
        assert root.get("role") == "img"
        assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
        # Traffic and peers come with the package, from other sources than this run.
        name = path.stem.removesuffix("_dark")
        source = {"traffic": "emulated · sm_90 PTX", "peers": "recorded · NVIDIA H200"}.get(name, "<GPU & Co>")
        assert source in (description.text or "")
        assert len(title.text or "") > 20
        assert not root.findall(f".//{SVG}text"), "text must be outlines, or it looks different elsewhere"


def test_every_colour_is_one_of_the_styles(drawn: Drawn) -> None:
    for path in drawn.paths[::2]:
        palette = DARK if path.stem.endswith("_dark") else LIGHT
        assert set(re.findall(r"#[0-9a-f]{6}\b", path.read_text())) <= set(palette.values()), path.name


def test_no_file_tells_when_or_by_what_it_was_drawn(drawn: Drawn) -> None:
    for path in drawn.paths:
        content = path.read_bytes()
        assert b"dc:date" not in content
        assert b"Matplotlib v" not in content
        assert b"Software" not in content


def test_a_png_has_its_words_inside(h200: Run, tmp_path: Path) -> None:
    chart = ladder(h200)
    with Image.open(save(chart, tmp_path / "chart")[1]) as image:
        assert image.width == 1400
        assert image.info["Title"] == chart.headline
        assert image.info["Description"] == chart.alt


def test_a_chart_shows_itself_in_a_notebook(h200: Run) -> None:
    formatters = pytest.importorskip("IPython.core.formatters")
    chart = ablation(h200)
    data, metadata = formatters.DisplayFormatter().format(chart)
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert data["text/plain"] == chart.alt
    assert metadata["image/png"]["alt"] == chart.alt


def test_a_folder_that_cannot_be_written_is_one_clear_line(h200: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(WorklogError, match=r"cannot write the figure .*--out"):
        save(ladder(h200), tmp_path / "file" / "ladder")


def test_few_colours_keep_surfaces_exactly() -> None:
    image = Image.new("RGB", (300, 10), "#EE9B5C")
    for x in range(300):
        image.putpixel((x, 0), (x % 256, (7 * x) % 256, 255))
    few = few_colours(image, 16).convert("RGB")
    assert few.getpixel((5, 5)) == (0xEE, 0x9B, 0x5C)
    assert len(few.getcolors() or []) <= 16


def test_the_gallery_shows_every_figure_with_its_finding_and_its_words(drawn: Drawn) -> None:
    page = gallery(drawn)
    assert list(drawn.captions) == [path.stem for path in drawn.paths[::4]]
    for name, caption in drawn.captions.items():
        assert f'src="{name}.png"' in page and f'srcset="{name}_dark.png"' in page
        assert f'href="{name}.svg"' in page and f'href="{name}_dark.svg"' in page
        assert f"### {escape(caption.headline, False)}\n" in page
        assert escape(caption.alt) in page
    assert "<GPU" not in page
    assert page.index("diagram_1") < page.index("diagram_7") < page.index('"ladder.png"')


def test_the_gallery_is_written_into_the_folder_and_anew_but_over_nobody_elses_page(h200: Run, tmp_path: Path) -> None:
    drawn = Drawn(captions={"ladder": Caption("The finding", "The words")})
    page = tmp_path / "README.md"
    assert write_gallery(drawn, tmp_path) == page
    assert write_gallery(Drawn(captions={"ladder": Caption("Another", "Words")}), tmp_path) == page
    assert "### Another" in page.read_text()
    page.write_text("# My project")
    assert write_gallery(drawn, tmp_path) is None
    assert page.read_text() == "# My project"


def test_a_gallery_of_nothing_is_not_written(tmp_path: Path) -> None:
    assert write_gallery(Drawn(), tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_a_gallery_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(WorklogError, match=r"cannot write the gallery .*--out"):
        write_gallery(Drawn(captions={"a": Caption("b", "c")}), tmp_path / "nowhere")
