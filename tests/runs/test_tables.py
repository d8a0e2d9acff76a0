"""The renderer of tables, and a run, a measurement and a verdict as tables: the label stands with the numbers, and a
failure never shows a time.
"""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from tests.helpers import measured, small_run
from worklog.cli.figures import markdown
from worklog.problem import Shape
from worklog.runs import Bar, Estimate, Measurement, Stage, Table, Verdict, bound, duration, scaled
from worklog.runs.measurement import cells, details
from worklog.runs.table import of_baseline, small

LABEL = "live · NVIDIA H200 · clocks as found · 2026-11-21"
VERDICT = Verdict(
    (Stage("exact", True, 0, 0, "no element wrong"), Stage("precision", False, 900.0, 600.0, "rms <b>9</b>")), "tf32"
)
TABLE = Table("a <title>", ("name", "n"), [("[one]", Bar("<i>1</i>", 0.25)), ("two", "22")], notes=("a & b",))


class Html:
    """Tags and words of a document. Raises ParseError for a tag that isn't closed."""

    def __init__(self, document: str) -> None:
        elements = ElementTree.fromstring(f"<div>{document}</div>")
        self.tags, self.words = [element.tag for element in elements.iter()], [*elements.itertext()]


def test_a_table_keeps_every_character_as_text_as_html_and_as_markdown() -> None:
    assert TABLE.text() == "a <title>\n name          n\n [one]  <i>1</i>\n two          22\n  a & b"
    page = Html(TABLE.html())
    assert page.tags.count("tr") == 3 and "i" not in page.tags
    assert {"a <title>", "[one]", "<i>1</i>", "a & b"} <= {*page.words}
    assert TABLE.html().count('scope="col"') == TABLE.html().count('scope="row"') == 2
    assert "<thead>" not in Table("facts", (), [("a", "b")]).html()
    lines = Table("", ("a", "b"), [("x | y\nz", "1")]).markdown().splitlines()
    assert lines == ["| a | b |", "|---|--:|", "| x \\| y z | 1 |"]


@pytest.mark.parametrize(("share", "length"), [(0.25, "25.0"), (1.7, "100.0"), (-1.0, "0.0")])
def test_a_bar_stays_in_its_cell(share: float, length: str) -> None:
    assert f" {length}%,transparent" in Bar("words", share).html()
    assert Bar("<b>", None).html() == "&lt;b&gt;"


def test_numbers_in_cells() -> None:
    assert of_baseline(0.9731, 0.9723, 0.9739) == "97.31 % ±0.08" and of_baseline(0.627, 0.624, 0.63) == "62.7 % ±0.3"
    assert bound(-0.081) == "0.09" and scaled(198_000) == "198 k" and scaled(5.2459e6) == "5.246 M"
    times = {0.5: "0.5 µs", 8.4321: "8.432 µs", 999.9: "999.9 µs", 1000: "1 ms", 2649.7: "2.65 ms", 1.2e6: "1.2 s"}
    assert {us: duration(us) for us in times} == times
    narrow = {0.0: "0.00", 0.3: "0.30", 0.0051: "0.01", 0.0049: "0.005", 0.0019: "0.002", 0.00004: "0.00004"}
    assert {half: small(half) for half in narrow} == narrow


# --------------------------------------------------------------------------------------------------------- a run


def test_a_measured_row() -> None:
    assert {name: str(cell) for name, cell in cells(small_run().measurements[0], 40).items()} == {
        "kernel": "naive",
        "gate": "fp32 ok",
        "time": "100.0 µs",
        "±95 %": "1.00 %",
        "TFLOP/s": "2.68",
        "of cuBLAS": "50.0 % ±1.0",
        "of ceiling": "4.5 %",
        "SM MHz": "1980",
        "registers": "40",
    }


@pytest.mark.parametrize("status", ["failed", "skipped"])
def test_a_failed_or_skipped_row_shows_no_time_and_gives_its_reason(status: str) -> None:
    m = Measurement("naive", (8, 8, 8), status, reason="3 | 4 rows\n<b>wrong")  # type: ignore[arg-type]
    run = small_run(measurements=[m])
    assert [*cells(m).values()][1:8] == [status, "–", "", "", "", "", ""] and details(m)["rate"] == status
    said = f"naive: {status}: {m.reason}"
    assert run.footnotes([m]) == [said] and said in run.text() and said in Html(run._repr_html_()).words
    assert "<b>wrong" in repr(m) and "&lt;b&gt;wrong" in m._repr_html_()
    row = markdown(run, Shape.of(8)).splitlines()[4]
    assert len(re.findall(r"(?<!\\)\|", row)) == 5 and "4 rows <b>wrong" in row, "in the README"


def test_footnotes_say_once_what_was_not_right_and_of_which_kernels() -> None:
    wide = "not converged: ±0.5 % was not reached"
    m = replace(measured("naive", gate=False), degradations=(wide,))
    assert [*cells(m).values()][1:3] == ["off", "100.0 µs *"]
    ms = [replace(m, kernel=name, shape=(n,) * 3) for name, n in (("a", 256), ("b", 256), ("a", 512))]
    notes = ["* the interval is wider than requested", f"{wide} (a at 256, b at 256, a at 512)", "a note"]
    assert small_run(notes=["a note"]).footnotes(ms) == notes
    noted = Verdict((Stage("a", True, 0, 0, "", seconds=0.25, note="products are short"),), "fp32")
    run = small_run(measurements=[replace(measured("naive"), verdict=noted)])
    assert run.footnotes(run.measurements) == ["products are short (naive at 512)"]
    assert details(run.measurements[0])["gate"] == "0.25 s"


def test_a_run_in_a_terminal_and_in_a_notebook() -> None:
    shown, further = small_run().text(), small_run().text(with_details=True)
    lines = shown.splitlines()
    assert lines[0].startswith(LABEL)
    assert [line for line in lines if " × " in line] == [f"{n} × {n} × {n}" for n in (512, 1024, 2048)]
    (naive,) = [line for line in lines if "100.0 µs" in line]
    assert "50.0 % ±1.0" in naive and "4.5 %" in naive
    assert "70 µs" not in shown, "a biased measurement is not a row of the unbiased table"
    assert "of FP32 peak" not in shown and "of FP32 peak" in further
    assert "hot" not in further, "a column that no row fills is left out"
    assert "TFLOP/s" in shown.partition("1024 × 1024 × 1024")[2].splitlines()[1], "but not of the main ones"
    page = Html(small_run()._repr_html_())
    assert page.words[0].startswith(LABEL)
    assert page.tags.count("table") == page.tags.count("caption") == 2 * 3
    assert page.tags.count("details") == 3, "the second table of each size is folded away"
    assert all(LABEL in words for words in page.words if words.startswith("512 ×"))


def test_the_details_of_a_measurement() -> None:
    m = measured("naive")
    hot = [replace(side, hot_us=[us] * 9) for side, us in zip(m.samples.sides, (80.0, 48.0), strict=True)]
    work = replace(m.work, bytes_read=2 * 10**8, bytes_written=10**8)
    run = small_run(measurements=[replace(m, samples=replace(m.samples, sides=hot), work=work)])
    assert {name: value for name, value in details(run.measurements[0]).items() if value} == {
        "kernel": "naive",
        "rate": "2.68 TFLOP/s",
        "GB/s": "3000",
        "items/s": "5.243 G",
        "of copy": "75.0 %",
        "of memory peak": "62.3 %",
        "of FP32 peak": "4.01 %",
        "cycles": "198 k",
        "SM MHz": "1980",
        "hot": "80.00 µs",
        "hot of cuBLAS": "60.0 %",
        "samples": "2",
    }


def test_means_are_over_the_sizes_that_have_a_time() -> None:
    rows = [measured("naive", 512, us=100.0, ratio=0.5), measured("naive", 1024, us=100.0, ratio=0.125)]
    skipped = Measurement("naive", (2048, 2048, 2048), "skipped", reason="too slow")
    run = small_run(measurements=[*rows, skipped, measured("cuBLAS", 512)])
    assert [[*row.values()] for row in run.means()] == [["naive", "2 of 3", "12.08", "7.59", "25.0 %"]]
    assert "over the sizes" in run.text() and "over the sizes · live" in run._repr_html_()
    cases = [replace(measured("mine", us=us), shape=None, axes={"case": str(us)}) for us in (1e5, 2e5)]
    over = small_run(measurements=cases).means()
    assert [[*row.values()] for row in over] == [["mine", "2 of 2", "150 ms", "0.00201", "0.00190", "50.0 %"]]


def test_the_full_label_says_what_was_done_about_the_overhead_and_that_the_gate_was_off() -> None:
    run = small_run()
    assert run.full_label == f"{LABEL} · event overhead 3.45 µs removed"
    run.harness["timer"] = "host"
    assert run.full_label == f"{LABEL} · timer host, no overhead removed"
    unchecked = replace(measured("naive"), degradations=("gate: off, the result may be wrong",))
    assert small_run(measurements=[unchecked]).full_label.endswith(unchecked.degradations[0])


# ------------------------------------------------------------------------------------- a verdict and a measurement


def test_a_verdict_shows_every_stage_with_its_margin() -> None:
    page = Html(VERDICT._repr_html_())
    assert {"the gate: failed", "✗\u00a0failed", "✓\u00a0passed", "900 of 600", "rms <b>9</b>"} <= {*page.words}
    assert re.search(r"precision +✗.failed +900 of 600 +rms", repr(VERDICT))
    assert "#e0702455 100.0%" in VERDICT._repr_html_(), "more than its limit, in the colour of that"


def test_a_measurement_shows_its_facts_and_its_label_and_not_its_samples() -> None:
    m = small_run().measurements[0]
    for shown in (repr(m), "".join(Html(m._repr_html_()).words)):
        assert LABEL in shown and "100.0 µs ±1.00 %" in shown and "2 of 3 count, " in shown
    assert "l2 = warm" in repr(small_run().measurements[-1]).splitlines()[0]
    assert "not known" in repr(replace(m, context=None))


def test_the_parts_of_an_interval_are_shown_in_percent_of_the_time() -> None:
    m = measured("warptiled")
    assert " of placement" not in repr(m) and " of process" not in repr(m)
    sides = [replace(side, kernels=2) for side in m.samples.sides]
    m = replace(m, time=Estimate(100.0, 99.2, 100.8, 0.02, 0.8), samples=replace(m.samples, sides=sides))
    assert "±0.80 % (95 %): ±0.02 % of launches, ±0.80 % of placement" in repr(m)
    assert details(m)["parts of ±95 %"] == "0.02 % launches, 0.80 % placement"
    m = replace(m, time=Estimate(100.0, 99.2, 100.8, process=0.5))
    assert "±0.50 % of process (for 2 kernels per launch, recorded on an H100)" in repr(m)
