"""What a result looks like by itself: bars that stay in their cells, a verdict with its margins, a measurement without
its samples.
"""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tests.plots.conftest import full_run
from worklog.bench.check import Checked
from worklog.bench.timing import Timing
from worklog.errors import NothingToDraw
from worklog.gate import Stage, Verdict
from worklog.plots import Certificate
from worklog.problem.gemm import Shape
from worklog.runs.ablation import effects
from worklog.runs.markup import bar, table
from worklog.runs.run import Measurement

HERE = "live · NVIDIA H200 · clocks as found · 2026-11-21"
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
    assert f"at 4096 · {run.label}</caption>" in document and repr(m).splitlines()[1] == run.label
    assert re.search(r"time +2\.648 ms ±\d+\.\d\d % \(95 %\)", repr(m)) and "% (95 %)" in document
    lying = next(m for m in run.measurements if m.changed == {"l2": "warm"})
    assert "l2 = warm" in repr(lying).splitlines()[0]


def test_a_refused_measurement_says_why() -> None:
    refused = Measurement("naive", (8, 8, 8), "refused", reason="<b>exact</b>")
    assert repr(refused).splitlines()[::2] == ["naive at 8", "  refused        <b>exact</b>"]
    assert "&lt;b&gt;exact" in refused._repr_html_()


def test_a_measurement_of_no_run_says_that_nobody_knows_where_it_is_from() -> None:
    alone = replace(full_run().measurements[0], label="")
    assert "of no run: nobody says where" in repr(alone) and "of no run: nobody says where" in alone._repr_html_()


def test_the_gates_word_alone_says_where_the_kernel_ran() -> None:
    checked = Checked(VERDICT, Shape(8, 8, 8), "emulated · sm_90 PTX", None, host=("mine.py", "f"), notes=("a <note>",))
    assert repr(checked.verdict).splitlines()[0] == "the gate: refused · emulated · sm_90 PTX"
    assert ">the gate: refused · emulated · sm_90 PTX</caption>" in checked.verdict._repr_html_()
    assert repr(checked).splitlines()[0] == "mine.py: f at 8 · emulated · sm_90 PTX"
    document = checked._repr_html_()
    Balanced(document)
    assert "mine.py: f at 8" in document and "emulated · sm_90 PTX" in document and "a &lt;note&gt;" in document
    assert checked.verdict == VERDICT and "label" not in checked.verdict.as_dict()


def test_a_timing_shows_its_interval_and_its_label() -> None:
    told = Timing("f", 50.0, 49.9, 50.1, 40, HERE, 1.5, 1.49, 1.51, sm_mhz=1980.0, degradations=("clocks: <lie>",))
    assert str(told).startswith("f: 50.00 µs ±0.20 % (95 %), wider than asked for") and repr(told) == str(told)
    document = told._repr_html_()
    Balanced(document)
    for shown in (str(told), document):
        assert HERE in shown and "1.500 ±0.010 x the other" in shown and "1980 MHz" in shown and "40 samples" in shown
    assert f">f · {HERE}</caption>" in document and "clocks: &lt;lie&gt;" in document


def test_an_effect_says_where_it_was_seen() -> None:
    run = full_run()
    assert {effect.label for effect in effects(run, "warptiled")} == {run.label}


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
