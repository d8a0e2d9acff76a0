"""The one renderer of tables, as text, HTML and Markdown."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from worklog.runs.tables import Bar, Table, bound, duration, of_baseline, scaled, small

TABLE = Table("a <title>", ("name", "n"), [("[one]", Bar("<i>1</i>", 0.25)), ("two", "22")], notes=("a & b",))


class Html(HTMLParser):
    """Parses a document, and raises where a tag closes that is not the one last opened."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(document)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_text_aligns_its_columns_and_keeps_every_character() -> None:
    assert TABLE.text() == "a <title>\n name          n\n [one]  <i>1</i>\n two          22\n  a & b"


def test_html_escapes_its_words_and_names_its_rows_and_columns() -> None:
    page = Html(TABLE.html())
    assert page.tags.count("tr") == 3 and "i" not in page.tags
    assert {"a <title>", "[one]", "<i>1</i>", "a & b"} <= {*page.words}
    assert TABLE.html().count('scope="col"') == TABLE.html().count('scope="row"') == 2
    assert "<thead>" not in Table("facts", (), [("a", "b")]).html()


def test_markdown_keeps_its_shape_whatever_the_cells_hold() -> None:
    lines = Table("", ("a", "b"), [("x | y\nz", "1")]).markdown().splitlines()
    assert lines == ["| a | b |", "|---|--:|", "| x \\| y z | 1 |"]


@pytest.mark.parametrize(("share", "length"), [(0.25, "25.0"), (0.0, "0.0"), (1.7, "100.0"), (-1.0, "0.0")])
def test_a_bar_stays_in_its_cell(share: float, length: str) -> None:
    assert f" {length}%,transparent" in Bar("words", share).html()
    assert Bar("<b>", None).html() == "&lt;b&gt;"


@pytest.mark.parametrize(
    ("microseconds", "words"),
    [(0.5, "0.5 µs"), (8.4321, "8.432 µs"), (999.9, "999.9 µs"), (1000, "1 ms"), (2649.7, "2.65 ms"), (1.2e6, "1.2 s")],
)
def test_durations_have_a_unit_that_suits(microseconds: float, words: str) -> None:
    assert duration(microseconds) == words


@pytest.mark.parametrize(
    ("half_width", "words"),
    [(0.0, "0.00"), (0.3, "0.30"), (0.0051, "0.01"), (0.0049, "0.005"), (0.0019, "0.002"), (0.00004, "0.00004")],
)
def test_a_narrow_interval_is_not_printed_as_zero(half_width: float, words: str) -> None:
    assert small(half_width) == words


def test_numbers_in_cells() -> None:
    assert of_baseline(0.9731, 0.9723, 0.9739) == "97.31 % ±0.08" and of_baseline(0.627, 0.624, 0.63) == "62.7 % ±0.3"
    assert bound(-0.081) == "0.09" and re.fullmatch(r"6000|5\.246 M|198 k", scaled(198_000))
