"""What a result looks like by itself: bars that stay in their cells, a verdict with its margins, a measurement without
its samples.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from tests.plots.conftest import full_run
from worklog.errors import NothingToDraw
from worklog.gate import Stage, Verdict
from worklog.markup import bar, table
from worklog.plots import Certificate
from worklog.runs import Measurement

VERDICT = Verdict(
    (Stage("exact", True, 0, 0, "no element wrong"), Stage("precision", False, 900.0, 600.0, "rms <b>9</b>")), "tf32"
)


class Balanced(HTMLParser):
    """Raises where a tag closes that is not the one last opened."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.feed(document)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize(("share", "length"), [(0.25, "25.0"), (0.0, "0.0"), (1.7, "100.0"), (-1.0, "0.0")])
def test_a_bar_stays_in_its_cell(share: float, length: str) -> None:
    assert f" {length}%,transparent" in bar("words", share)
    assert bar("<b>", None) == "&lt;b&gt;"


def test_a_table_names_its_rows_and_columns() -> None:
    document = table("of <what>", ("a", "b"), [("one", "<i>1</i>"), ("two", "2")])
    assert Balanced(document).seen.count("tr") == 3
    assert document.count('scope="row"') == document.count('scope="col"') == 2
    assert "of &lt;what&gt;" in document and "<thead>" not in table("x", (), [])


def test_a_verdict_shows_every_stage_with_its_margin() -> None:
    document = VERDICT._repr_html_()
    Balanced(document)
    assert "the gate: refused" in document and "✗\u00a0refused" in document and "✓\u00a0passed" in document
    assert "900 of 600" in document and " 100.0%,transparent" in document
    assert "rms &lt;b&gt;9&lt;/b&gt;" in document
    assert repr(VERDICT).splitlines()[0] == "the gate: refused"
    assert re.search(r"✗ precision +900 of 600 +rms", repr(VERDICT))
    assert str(VERDICT).startswith("refused at precision")


def test_a_measurement_shows_its_facts_and_not_its_samples() -> None:
    run = full_run()
    [m] = run.select("warptiled", run.shapes()[-1])
    document = m._repr_html_()
    Balanced(document)
    assert "2.648 ms" in document and "<details>" in document and "plausible" in document
    assert "9 of 9 count" in repr(m) and "[" not in repr(m) and len(repr(m).splitlines()) < 12
    lying = next(m for m in run.measurements if m.changed == {"l2": "warm"})
    assert "l2 = warm" in repr(lying).splitlines()[0]


def test_a_refused_measurement_says_why() -> None:
    refused = Measurement("naive", (8, 8, 8), "refused", reason="<b>exact</b>")
    assert repr(refused).splitlines() == ["naive at 8", "  refused        <b>exact</b>"]
    assert "&lt;b&gt;exact" in refused._repr_html_()


def test_a_certificate_shows_every_length_against_the_promise() -> None:
    run = full_run()
    certificate = Certificate(run)
    document = certificate._repr_html_()
    assert Balanced(document).seen.count("tr") == 1 + len(run.calibration["offset_by_length_us"])
    assert "1 µs" in document and "+0.040 µs" in document and " 40.0%,transparent" in document
    assert run.label in document and run.label in repr(certificate)
    run.calibration = {}
    with pytest.raises(NothingToDraw):
        Certificate(run)
