"""Parts of the site's pages, without a browser: tests/browser/test_site.py opens them."""

import base64
import gzip
import json
import math
import re
from html import unescape
from typing import Any

import pytest

from tests.lab.grid import UNBIASED_US, small_grid
from worklog.errors import NotRecorded
from worklog.lab.answers import Answers
from worklog.problem import Shape
from worklog.runs.text import duration
from worklog.site import api, chapters, front_page, panel_answers
from worklog.viewer.accesses import access


def data_of(file: bytes) -> dict[str, Any]:
    """Return what the page's data.js holds."""
    [text] = re.findall(r'^globalThis\.worklogData = "([\w+/=]+)";$', file.decode(), re.MULTILINE)
    return json.loads(gzip.decompress(base64.b64decode(text)))


def test_the_panel_of_the_site_has_the_reading_of_each_choice_beside_the_unbiased_one():
    grid = small_grid()
    few_settings = {"timer", "l2", "clocks", "warmup"}
    grid.measurements = [
        m for m in grid.measurements if m.kernel == "warptiled" and {*m.changed} <= few_settings
    ]
    data = data_of(panel_answers.answers(grid))
    source = Answers([grid])
    timed = [m for m in grid.measurements if m.status == "measured"]
    computed = math.prod(len(pitfall.values) for pitfall in panel_answers.COMPUTED)
    free = [
        len(panel_answers.QUEUE.values) if m.changed.get("timer") == "host" else 1 for m in timed
    ]
    assert 100 < len(data["answers"]) <= computed * sum(free)
    start = data["start"]
    assert (source.kernels[start["kernel"]], source.shapes[start["size"]]) == (
        "warptiled",
        Shape.of(1024),
    )
    for key, answer in data["answers"].items():
        parts = {name: data["parts"][place] for name, place in answer.items()}
        kernel, size, *_ = map(int, key.split("/"))
        us = UNBIASED_US[source.kernels[kernel], source.shapes[size].m]
        assert parts["unbiased"][0] == duration(us), key
        assert parts["reading"][0] and parts["samples"][0], key
        assert "missing" not in parts, key
    chosen = [start["values"][place] for place in data["timed"]]
    first_answer = data["answers"]["/".join(map(str, (start["kernel"], start["size"], *chosen)))]
    assert data["parts"][first_answer["reading"]][0] != data["parts"][first_answer["unbiased"]][0]
    assert data["table"].keys() >= {"kernels", "sizes", "naive"}


def test_a_grid_without_an_unbiased_reading_makes_no_panel():
    grid = small_grid()
    grid.measurements = [m for m in grid.measurements if m.changed]
    with pytest.raises(NotRecorded, match="no unbiased reading"):
        panel_answers.answers(grid)


def paragraphs(*texts: str) -> str:
    return "\n".join(f"<p>{text}</p>" for text in texts)


def test_a_belief_and_what_came_at_most_three_paragraphs_later_are_a_story():
    believed = f"{chapters.BELIEVED}: faster."
    outcome = f"{chapters.HAPPENED}: slower."
    page = paragraphs(
        "Title",
        believed,
        "a",
        "b",
        outcome,
        "c",
        believed,
        "d",
        "e",
        "f",
        outcome,
        f"{believed} {outcome}",
    )
    two_paragraphs = paragraphs(believed, outcome).replace("\n", "")
    one_paragraph = paragraphs(f"{believed} {outcome}")
    assert chapters.beliefs(page) == [two_paragraphs, one_paragraph]


def test_the_picture_of_a_load_has_its_sectors_of_eight_words_and_marks_those_that_lanes_read():
    load = next(
        kind
        for kind in access("naive").document["kinds"]
        if kind["text"] == "32 lanes read 32 floats of A"
    )
    picture = front_page._load("naive").html
    paths = dict.fromkeys(("used", "pale"), 0)
    for kind, path in re.findall(r'<path class="(\w+)" opacity="\S+" d="(.*?)"', picture):
        paths[kind] += path.count("M")
    assert picture.count("--place:") == load["counts"][0] == 32 and paths == {
        "used": 32,
        "pale": 7 * 32,
    }


def test_the_page_of_the_python_interface_has_each_name_with_signature_and_docstring():
    html = api.page_body()
    for module, names in {
        "worklog": ["measure", "results", "time", "Harness", "Kernel"],
        "worklog.plots": ["ladder"],
        "worklog.lab": ["panel"],
        "worklog.errors": ["BadSetting", "NoGpu", "BadRunFile"],
    }.items():
        for name in names:
            assert f'<h3 id="{module}.{name}">{name}</h3>' in html
    text = unescape(html)
    assert "worklog.open_run(\n    name: str | Path | None = None,\n    *,\n    kernels: " in text
    assert "on: Literal['gpu', 'emulated'] | None = None" in text
    assert "Check, then time, each kernel at each shape" in text
    assert "l2: 'flush' | 'rotate' | 'warm' = 'flush'," in text  # what may be given, no alias
    assert " at 0x" not in text  # a default's address: another one at each build
    assert "<factory>" not in text
    assert "but(**changes: Unpack[HarnessSettings]) -> Harness" in text
    assert html.count("<section>") == html.count("</section>") > 40


def test_a_docstring_becomes_paragraphs_parameters_and_code():
    html = api._text(
        "Draw x < y.\n\nA paragraph of\ntwo lines, with `code`.\n\n"
        "first: what it is,\n    on two lines\nlow, high: its ends\nRaises BadSetting.\n\n"
        "    class Doubled:\n        pass\n\n    Doubled()"
    )
    assert html == (
        "<p>Draw x &lt; y.</p><p>A paragraph of two lines, with <code>code</code>.</p>"
        "<dl><dt><code>first</code></dt><dd>what it is, on two lines</dd>"
        "<dt><code>low, high</code></dt><dd>its ends</dd></dl><p>Raises BadSetting.</p>"
        '<pre tabindex="0">class Doubled:\n    pass\n\nDoubled()</pre>'
    )
