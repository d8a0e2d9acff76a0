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
from worklog.runs.measurement import Energy, cells, details
from worklog.runs.table import of_baseline, small
from worklog.runs.tables import footnotes, html, means, text

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


def test_numbers_in_cells() -> None:
    assert of_baseline(0.9731, 0.9723, 0.9739) == "97.31 % ±0.08" and of_baseline(0.627, 0.624, 0.63) == "62.7 % ±0.3"
    assert bound(-0.081) == "0.09" and scaled(198_000) == "198 k" and scaled(5.2459e6) == "5.246 M"
    times = {0.5: "0.5 µs", 8.4321: "8.432 µs", 999.9: "999.9 µs", 1000: "1 ms", 2649.7: "2.65 ms", 1.2e6: "1.2 s"}
    assert {us: duration(us) for us in times} == times
    narrow = {0.0: "0.00", 0.3: "0.30", 0.0051: "0.01", 0.0049: "0.005", 0.0019: "0.002", 0.00004: "0.00004"}
    assert {half: small(half) for half in narrow} == narrow


def test_a_measured_row() -> None:
    run = small_run()
    assert {name: str(cell) for name, cell in cells(run.measurements[0], 40).items()} == {
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


@pytest.mark.parametrize(
    ("m", "shown"),
    [
        (Measurement("naive", (8, 8, 8), "failed", reason="wrong"), "failed"),
        (Measurement("naive", (8, 8, 8), "skipped", reason="too slow"), "skipped"),
    ],
)
def test_a_failed_or_skipped_row_shows_no_time_and_gives_its_reason(m: Measurement, shown: str) -> None:
    run = small_run(measurements=[m])
    assert [*cells(m).values()][1:8] == [shown, "–", "", "", "", "", ""]
    assert footnotes(run, [m]) == [f"naive: {shown}: {m.reason}"]
    assert f"naive: {shown}: {m.reason}" in text(run) and m.reason in "".join(Html(html(run)).words)


def test_what_did_not_converge_and_what_was_not_checked_is_marked() -> None:
    m = replace(measured("naive", gate=False), converged=False)
    run = small_run(measurements=[m])
    assert [*cells(m).values()][1:3] == ["off", "100.0 µs *"]
    assert footnotes(run, [m])[0].startswith("* ")


def test_a_degradation_is_shown_once_with_every_kernel_it_concerns() -> None:
    cold = "clocks: throttle reasons unknown"
    ms = [replace(measured(name, n), degradations=(cold,)) for name, n in (("a", 256), ("b", 256), ("a", 512))]
    assert footnotes(small_run(notes=["a note"]), ms) == [f"{cold} (a at 256, b at 256, a at 512)", "a note"]


def test_the_terminals_tables() -> None:
    shown = text(small_run())
    lines = shown.splitlines()
    assert lines[0].startswith(LABEL)
    assert [line for line in lines if " × " in line] == [f"{n} × {n} × {n}" for n in (512, 1024, 2048)]
    (naive,) = [line for line in lines if "100.0 µs" in line]
    assert "50.0 % ±1.0" in naive and "4.5 %" in naive
    assert "70 µs" not in shown, "a biased measurement is not a row of the unbiased table"
    assert "of FP32 peak" not in shown and "of FP32 peak" in text(small_run(), with_details=True)
    assert "hot" not in text(small_run(), with_details=True), "a column that no row fills is left out"


def test_the_notebooks_tables() -> None:
    run = small_run()
    page = Html(html(run))
    assert page.words[0].startswith(LABEL)
    assert page.tags.count("table") == page.tags.count("caption") == 2 * 3
    assert page.tags.count("details") == 3, "the second table of each size is folded away"
    assert all(LABEL in words for words in page.words if words.startswith("512 ×"))
    assert (run._repr_html_(), str(run)) == (html(run), text(run))


def test_the_readmes_table_shows_the_small_sizes_beside_the_large_one() -> None:
    run = small_run(measurements=[measured(name, n) for n in (256, 512) for name in ("naive", "cuBLAS")][:-1])
    lines = markdown(run, Shape.of(512)).splitlines()
    assert LABEL in lines[0] and "512 × 512 × 512" in lines[0]
    assert lines[2] == "| rung | idea | TFLOP/s | % of cuBLAS | at 256 |"
    assert lines[4:] == ["| naive | one thread, one element | 2.68 | 50.0 ±1.0 | 50.0 |"]
    failed = Measurement("naive", (8, 8, 8), "failed", reason="exact: 3 | 4 rows\nwrong")
    row = markdown(small_run(measurements=[failed]), Shape.of(8)).splitlines()[4]
    assert len(re.findall(r"(?<!\\)\|", row)) == 5 and "4 rows wrong" in row


def test_the_details_of_a_measurement() -> None:
    hot = [
        replace(side, hot_us=[us] * 9) for side, us in zip(measured("naive").samples.sides, (80.0, 48.0), strict=True)
    ]
    m = measured("naive")
    m = replace(m, samples=replace(m.samples, sides=hot), energy=Energy(0.0123, 412.3))
    m = small_run(
        measurements=[replace(m, work=replace(m.work, bytes_read=2 * 10**8, bytes_written=10**8))]
    ).measurements[0]
    assert {name: value for name, value in details(m).items() if value} == {
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
        "mJ": "12.3",
        "W": "412",
        "samples": "2",
    }
    assert details(replace(m, status="skipped", time=None))["rate"] == "skipped"


def test_the_details_say_what_the_gate_took_and_a_footnote_what_it_noted() -> None:
    stages = (
        Stage("a", True, 0, 0, "", seconds=0.25),
        Stage("b", True, 0, 0, "", seconds=0.17, note="products are short"),
    )
    run = small_run(measurements=[replace(measured("naive"), verdict=Verdict(stages, "fp32"))])
    assert details(run.measurements[0])["gate"] == "0.42 s"
    assert footnotes(run, run.measurements)[0] == "products are short (naive at 512)"


def test_means_are_over_the_sizes_that_have_a_time() -> None:
    rows = [measured("naive", 512, us=100.0, ratio=0.5), measured("naive", 1024, us=100.0, ratio=0.125)]
    skipped = Measurement("naive", (2048, 2048, 2048), "skipped", reason="too slow")
    run = small_run(measurements=[*rows, skipped, measured("cuBLAS", 512)])
    assert [[*row.values()] for row in means(run)] == [["naive", "2 of 3", "12.08", "7.59", "25.0 %"]]
    assert "over the sizes" in text(run) and "over the sizes · live" in html(run)


@pytest.mark.parametrize("timer", ["graph", "host"])
def test_the_label_claims_no_overhead_removed_where_none_is(timer: str) -> None:
    run = small_run()
    assert run.full_label == f"{LABEL} · event overhead 3.45 µs removed"
    run.harness["timer"] = timer
    assert timer in run.full_label and "3.45" not in run.full_label


def test_the_label_says_that_the_gate_was_off() -> None:
    unchecked = replace(measured("naive"), degradations=("gate: off, the result may be wrong",))
    assert small_run(measurements=[unchecked]).full_label.endswith(unchecked.degradations[0])


def test_a_verdict_shows_every_stage_with_its_margin() -> None:
    page = Html(VERDICT._repr_html_())
    assert {"the gate: failed", "✗\u00a0failed", "✓\u00a0passed", "900 of 600", "rms <b>9</b>"} <= {*page.words}
    assert re.search(r"precision +✗.failed +900 of 600 +rms", repr(VERDICT))


def test_a_measurement_shows_its_facts_and_its_label_and_not_its_samples() -> None:
    m = small_run().measurements[0]
    page = Html(m._repr_html_())
    for fact in ("100.0 µs ±1.00 %", "2 of 3 count, "):
        assert any(fact in words for words in page.words)
    assert LABEL in repr(m).splitlines()[0] and any(LABEL in words for words in page.words)
    assert "l2 = warm" in repr(small_run().measurements[-1]).splitlines()[0]
    assert "not known" in repr(replace(m, context=None))
    failed = Measurement("naive", (8, 8, 8), "failed", reason="<b>exact</b>")
    assert "<b>exact</b>" in repr(failed) and "&lt;b&gt;exact" in failed._repr_html_()


def test_the_parts_of_an_interval_are_shown_in_percent_of_the_time() -> None:
    m = replace(measured("warptiled"), time=Estimate(100.0, 99.2, 100.8, 0.02, 0.8))
    assert "±0.02 % of launches, ±0.80 % of placement" in repr(m) and "of placement" in m._repr_html_()
    assert "0.02 % launches, 0.80 % placement" in details(m).values()
    assert "of placement" not in repr(measured("warptiled")), "of one placement"
    of_process = replace(m, time=Estimate(100.0, 99.2, 100.8, process=0.5))
    assert "±0.50 % of process (recorded on an H100)" in repr(of_process), "an older run"
    sides = [replace(side, kernels=2) for side in m.samples.sides]
    counted = replace(of_process, samples=replace(m.samples, sides=sides))
    assert "±0.50 % of process (for 2 kernels per launch, recorded on an H100)" in repr(counted)
