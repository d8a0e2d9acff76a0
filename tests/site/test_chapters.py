"""The pages of the notebooks: code, outputs, pictures, notes, and the places of widgets."""

import base64
import gzip
import io
import json
import re

import nbformat
import numpy as np
import pytest
from PIL import Image

from worklog.kernel import RUNGS
from worklog.lab.bets import recorded_step
from worklog.plots.style import DARK, LIGHT
from worklog.site import cells, chapters, glossary, pages, widgets
from worklog.site.pictures import Pictures, recoloured


def code_cell(source, *outputs):
    return nbformat.v4.new_code_cell(source, outputs=list(outputs))


def shown(html):
    """Return a page's text without what is folded or hidden in attributes."""
    without = re.sub(r"<details.*?</details>", "", html, flags=re.DOTALL)
    return re.sub(r"<[^>]*>", "", without)


def palette_png(*colours):
    """Return a PNG in base64 with a pixel of each colour of a palette."""
    picture = Image.new("P", (len(colours), 2))
    picture.putpalette([part for colour in colours for part in bytes.fromhex(colour[1:])])
    for place in range(len(colours)):
        picture.putpixel((place, 0), place)
        picture.putpixel((place, 1), place)
    buffer = io.BytesIO()
    picture.save(buffer, "png")
    return base64.b64encode(buffer.getvalue()).decode()


@pytest.mark.parametrize(
    ("source", "is_folded"),
    [
        ("%load_ext worklog\nimport worklog\n\nfrom worklog import lab", True),
        ("import worklog\nworklog.LADDER", False),
        ("\n".join(f"x = {n}" for n in range(cells.LONG)), False),
        ("\n".join(f"x = {n}" for n in range(cells.LONG + 1)), True),
        ("%%puzzle tiles\n" + "int x;\n" * 20, False),
        ('SOURCE = """\n__global__ void k() {}\n' + "\n" * 20 + '"""\nprint(1)\n' * 9, False),
    ],
)
def test_code_that_only_prepares_or_is_long_is_folded_and_cuda_never_is(source, is_folded):
    html = cells.code_html(code_cell(source))
    assert ("<details" in html) == is_folded


def test_the_code_of_a_magic_is_highlighted_as_cuda_and_other_code_as_python():
    comment = '<span class="c1">// for</span>'
    assert comment in cells.highlighted("%%rung mine\n// for")
    assert comment not in cells.highlighted("x = 7 // 2")
    assert '<span class="kn">import</span>' in cells.highlighted("import os")
    assert "&lt;16&gt;" in cells.highlighted("%%rung mine <16>\nint x;")


@pytest.mark.parametrize(
    ("source", "call"),
    [
        ('lab.bet("tf32", earlier="best")', ("bet", ("tf32",), {"earlier": "best"})),
        ('x = 1\nlab.panel("naive", 1024, l2="warm")', ("panel", ("naive", 1024), {"l2": "warm"})),
        ("lab.access(four)", None),
        ("plots.ladder(run)", None),
        ("%load_ext worklog", None),
        ("x = ", None),
        ("", None),
    ],
)
def test_a_cell_ends_with_a_call_of_lab_or_not(source, call):
    expected = call and cells.LabCall(*call)
    assert cells.lab_call(code_cell(source)) == expected


def test_a_picture_is_two_files_in_the_palettes_of_a_light_and_of_a_dark_page():
    ends = [np.array([*bytes.fromhex(LIGHT[role][1:])]) for role in ("paper", "ink")]
    between = "#" + bytes((sum(ends) // 2).tolist()).hex()
    pictures = Pictures("04")
    html = pictures.add(palette_png(LIGHT["paper"], LIGHT["accent"], between), "a <b>", width=30)
    assert [*pictures.files] == ["04-1.png", "04-1_dark.png"]
    assert 'width="30" height="20"' in html and 'alt="a &lt;b&gt;"' in html
    assert 'media="screen and (prefers-color-scheme: dark)" srcset="04-1_dark.png"' in html
    for name, palette in zip(pictures.files, (LIGHT, DARK), strict=True):
        with Image.open(io.BytesIO(pictures.files[name])) as picture:
            pixels = np.array(picture.convert("RGB")).astype(int)
        paper, accent, ink = (
            np.array([*bytes.fromhex(palette[role][1:])]) for role in ("paper", "accent", "ink")
        )
        assert (pixels[0, 0] == paper).all(), "the background is the page's"
        assert (pixels[0, 1] == accent).all()
        assert np.abs(pixels[0, 2] - (paper + ink) / 2).max() < 6, "an edge is the same mix"


def test_only_the_first_picture_of_a_page_loads_before_a_reader_comes_near():
    pictures = Pictures("04")
    first, second = (pictures.add(palette_png(LIGHT["paper"]), "alt", width=1) for _ in range(2))
    assert "lazy" not in first and 'fetchpriority="high"' in first
    assert 'loading="lazy"' in second and "fetchpriority" not in second


def test_a_picture_in_true_colour_gets_a_palette():
    buffer = io.BytesIO()
    Image.new("RGB", (4, 2), LIGHT["paper"]).save(buffer, "png")
    pictures = Pictures("04")
    pictures.add(base64.b64encode(buffer.getvalue()).decode(), "alt", width=4)
    with Image.open(io.BytesIO(pictures.files["04-1_dark.png"])) as picture:
        assert picture.convert("RGB").getpixel((0, 0)) == (*bytes.fromhex(DARK["paper"][1:]),)


def test_every_role_has_its_counterpart_in_the_dark():
    light, dark = (
        np.array([[*bytes.fromhex(colour[1:])] for colour in palette.values()], float)
        for palette in (LIGHT, DARK)
    )
    assert (recoloured(light, LIGHT) == light).all()
    assert (recoloured(light, DARK) == dark).all()


def test_an_output_is_a_picture_else_html_else_text():
    png = palette_png(LIGHT["paper"], LIGHT["ink"])
    data = {"image/png": png, "text/html": "<b>no</b>", "text/plain": "alt"}
    pictures = Pictures("x")
    outputs = [
        nbformat.v4.new_output("execute_result", data),
        nbformat.v4.new_output("execute_result", {"text/html": "<table><th> </th></table>"}),
        nbformat.v4.new_output("stream", text="a < b"),
        nbformat.v4.new_output("stream", text=" \n"),
    ]
    picture, table, text, nothing = (cells.outputs_html([one], pictures) for one in outputs)
    assert 'alt="alt"' in picture and "no" not in picture and len(pictures.files) == 2
    assert "<td></td>" in table and "<th" not in table
    assert text == '<pre class="output" tabindex="0">a &lt; b</pre>'
    assert nothing == ""


def cell_html(*sources):
    """Return the cells of a chapter with text as their output, by the function for a cell."""
    bets = []
    html = []
    for source in sources:
        output = nbformat.v4.new_output("stream", text="output")
        html.append(chapters._code_cell(code_cell(source, output), Pictures("x"), bets, True))
    return html


def test_a_bet_hides_what_was_measured_and_folds_the_next_step_to_its_rung():
    bet, other, step, again = cell_html(
        'lab.bet("coalesced")',
        'lab.step("shared")',
        'lab.step("coalesced")',
        'lab.step("coalesced")',
    )
    measured = recorded_step("coalesced").measured
    [packed] = re.findall(r'data-step="([^"]+)"', bet)
    values = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert values["measured"] == measured and values["later"] == "coalesced"
    assert f"{measured:.3g}" not in bet
    assert 'data-answer="coalesced"' in step and "output" not in shown(step)
    assert "output" in shown(other) and "output" in shown(again)


def test_a_bet_of_the_site_measures_nothing_where_there_is_a_gpu(monkeypatch):
    monkeypatch.setattr("worklog.runner.sources.live_wanted", lambda: True)
    monkeypatch.setattr("worklog.runner.execute.carry_out", pytest.fail)
    for rung in RUNGS[1:]:
        cell_html(f'lab.bet("{rung.name}")')


def test_a_cell_of_a_viewer_or_the_panel_has_its_place_with_the_choices():
    viewer, own_kernel, panel = cell_html(
        'lab.access("naive")', "lab.access(four)", 'lab.panel("vectorized", 1024, queue=False)'
    )
    assert 'data-widget="access" data-rung="naive"' in viewer
    assert "data-widget" not in own_kernel
    assert 'data-kernel="vectorized" data-size="1024"' in panel
    assert 'data-biased="{&quot;queue&quot;: &quot;off&quot;}"' in panel
    assert widgets.viewed([viewer, viewer, panel]) == ["naive"]


def test_the_files_of_widgets_have_one_function_each_and_the_accesses_of_each_rung():
    still = ["widget-access.js", "widget-panel.js", "widget-bet.js"]
    assert [*widgets.script_files(is_live=False)] == still
    files = widgets.script_files(is_live=True)
    assert {*files} == {*still, "widget-live.js"}
    for name in ("access", "panel", "bet", "live"):
        script = files[f"widget-{name}.js"].decode()
        assert script.startswith(f"worklogWidgets.{name} = (() => {{")
        assert "export default" not in script and script.count("function show(") == 1
    name, content = widgets.access_file("naive")
    assert name == "accesses-naive.js"
    [packed] = re.findall(rb'^worklogAccesses\["naive"\] = "([\w+/=]+)";$', content, re.MULTILINE)
    assert [*json.loads(gzip.decompress(base64.b64decode(packed)))] == ["naive"]


def test_the_first_use_of_a_term_has_a_note_before_its_paragraph():
    html = glossary.with_terms("<p>Two warps.</p><p>A warp.</p>")
    assert html.count('class="note"') == html.count('class="term"') == 1
    assert re.match(r'<p class="note" role="note"><b>warp</b> 32 threads', html)
    assert html.endswith("<p>A warp.</p>")


def test_the_header_marks_the_page_and_a_chapter_as_part_of_the_story():
    assert pages.header("api.html").count("aria-current") == 1
    assert 'href="api.html" aria-current="page"' in pages.header("api.html")
    assert 'href="index.html#story" aria-current="page"' in pages.header("04_x.html")
    assert "aria-current" not in pages.header("index.html")


def test_the_headings_of_a_long_page_are_links_in_its_margin():
    body = '<h2 id="a">A <em>b</em></h2><h3 id="c">C</h3>'
    html = pages.reading_page("04_x.html", "T", "About", body)
    assert '<a href="#a">A b</a>' in html and 'href="#c"' not in html
    assert 'href="#c"' in pages.reading_page("x.html", "T", "About", body, levels="23")
    assert "On this page" not in pages.reading_page("x.html", "T", "About", "<p>x</p>")


def test_a_line_ends_neither_before_a_unit_nor_in_an_option():
    html = cells.text_html(
        "5 % in 2 ms at 8 x 16 and M x K, by 3 kernels: `worklog run --batch 8 % 3`\n"
    )
    assert "5\u00a0% in 2\u00a0ms at 8\u00a0x\u00a016 and M\u00a0x\u00a0K, by 3 kernels" in html
    assert '<span class="option">--batch</span> 8 % 3' in html, "a command is copied as it is"
    listing = "```python\nx = 5 % y\n```\n"
    assert "\u00a0" not in cells.text_html(listing)


def test_text_cells_have_no_links_to_headings_and_cuda_in_their_listings():
    html = cells.text_html("## A title\n\n```python\n%%puzzle a\n// for\n```\n")
    assert "anchor-link" not in html and '<h2 id="A-title">' in html
    assert '<span class="c1">// for</span>' in html
