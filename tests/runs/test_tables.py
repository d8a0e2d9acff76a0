"""A run as text, HTML and Markdown: the label stands with the numbers, and a refusal never shows a time."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tests.helpers import measured, small_run
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement
from worklog.runs.tables import (
    COLUMNS,
    DETAILS,
    MEANS,
    cells,
    details,
    duration,
    footnotes,
    html,
    label_line,
    markdown,
    means,
    small,
    text,
)

LABEL = "live · NVIDIA H200 · clocks as found · 2026-11-21"


@pytest.mark.parametrize(
    ("microseconds", "words"),
    [
        (0.5, "0.5 µs"),
        (8.4321, "8.432 µs"),
        (999.9, "999.9 µs"),
        (1000.0, "1 ms"),
        (2649.7, "2.65 ms"),
        (1.2e6, "1.2 s"),
    ],
)
def test_durations_have_a_unit_that_suits(microseconds: float, words: str) -> None:
    assert duration(microseconds) == words


def test_a_measured_row() -> None:
    run = small_run()
    row = dict(zip(COLUMNS, cells(run, run.measurements[0]), strict=True))
    assert row == {
        "kernel": "naive",
        "gate": "fp32 ok",
        "time": "100.0 µs",
        "±95 %": "1.00 %",
        "TFLOP/s": "2.68",
        "of cuBLAS": "50.0 % ±1.0",
        "of ceiling": "45.0 %",
        "SM MHz": "1980",
        "registers": "40",
    }


def test_a_refused_or_skipped_row_has_a_reason_and_no_number() -> None:
    run = small_run()
    for m in run.measurements[2:4]:
        row = cells(run, m)
        assert row[1] == m.status
        assert row[2] == m.reason
        assert row[3:8] == ("",) * 5


def test_a_refused_row_shows_no_time_even_if_it_has_one() -> None:
    run = small_run()
    row = cells(run, replace(run.measurements[0], status="refused", reason="wrong"))
    assert row[:3] == ("naive", "refused", "wrong") and row[3:8] == ("",) * 5


def test_without_the_gate_the_row_says_so() -> None:
    run = small_run(measurements=[measured("naive", gate=False)])
    assert cells(run, run.measurements[0])[1] == "not asked"


def test_what_did_not_converge_is_marked() -> None:
    m = replace(measured("naive"), converged=False)
    run = small_run(measurements=[m])
    assert cells(run, m)[2] == "100.0 µs *"
    assert footnotes(run, [m])[0] == "* the interval is wider than asked for"


def test_a_degradation_is_told_once_with_everyone_it_befell() -> None:
    cold = "clocks: throttle reasons unknown"
    ms = [replace(measured(name, n), degradations=(cold,)) for name, n in (("a", 256), ("b", 256), ("a", 512))]
    run = small_run(notes=["a note"])
    assert footnotes(run, ms) == [f"{cold} (a at 256, b at 256, a at 512)", "a note"]


@pytest.mark.parametrize("timer", ["graph", "cupti", "host"])
def test_the_label_line_claims_no_offset_where_none_is_taken_off(timer: str) -> None:
    run = small_run()
    run.harness["timer"] = timer
    assert label_line(run) == f"{LABEL} · timer {timer}, nothing taken off"


def test_the_label_line_tells_the_offset_and_a_gate_that_is_off() -> None:
    assert label_line(small_run()) == f"{LABEL} · event offset 3.45 µs removed"
    ungated = replace(measured("naive"), degradations=("gate: off, the result may be wrong",))
    run = small_run(measurements=[ungated], calibration={})
    assert label_line(run) == f"{LABEL} · gate: off, the result may be wrong"


def test_the_terminals_table() -> None:
    shown = text(small_run())
    lines = shown.splitlines()
    assert lines[0].startswith(LABEL)
    assert [line.strip() for line in lines if " × " in line] == [f"{n} × {n} × {n}" for n in (512, 1024, 2048)]
    (naive,) = [line for line in lines if "100.0 µs" in line]
    assert "50.0 % ±1.0" in naive and "45.0 %" in naive
    assert "70 µs" not in shown, "a lie is no row of the honest table"
    assert "naive: refused: refused at precision: class wrong" in shown
    assert "naive: skipped: too slow: one launch takes 9.0 s" in shown


def test_markup_in_a_reason_stays_text() -> None:
    reason = "exact: [bold red]C[0][1][/] is wrong [/nonsense]"
    run = small_run(measurements=[Measurement("[x]", (8, 8, 8), "refused", reason=reason)])
    assert f"[x]: refused: {reason}" in text(run)


class Reader(HTMLParser):
    """Checks that what opens is closed, and keeps the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(document: str) -> Reader:
    reader = Reader()
    reader.feed(document)
    reader.close()
    assert reader.open == []
    return reader


def test_the_notebooks_table() -> None:
    run = small_run()
    reader = read(html(run))
    assert reader.words[0].startswith(LABEL)
    assert reader.seen.count("table") == reader.seen.count("caption") == 2 * 3
    assert reader.seen.count("tr") == 2 * (3 + 4)
    assert reader.seen.count("details") == 3, "the second table of each size is folded away"
    assert all(LABEL in words for words in reader.words if words.startswith("512 ×"))
    assert run._repr_html_() == html(run)
    assert str(run) == text(run)


def test_html_in_a_reason_stays_text() -> None:
    reason = "<script>alert(1)</script> & more"
    reader = read(html(small_run(measurements=[Measurement("<b>x", (8, 8, 8), "refused", reason=reason)])))
    assert reason in reader.words and "<b>x" in reader.words
    assert "script" not in reader.seen and "b" not in reader.seen


@pytest.mark.parametrize(("ratio", "share"), [(0.5, "50.0%"), (1.0, "100.0%"), (1.3, "100.0%")])
def test_the_bar_never_leaves_its_cell(ratio: float, share: str) -> None:
    assert f" {share},transparent" in html(small_run(measurements=[measured("naive", ratio=ratio)]))


def test_the_readmes_table() -> None:
    lines = markdown(small_run(), Shape.of(512)).splitlines()
    assert lines[0] == f"C = A·B in FP32 at 512 × 512 × 512. {LABEL} · event offset 3.45 µs removed."
    assert lines[1] == ""
    columns = {line.count("|") for line in lines[2:]}
    assert columns == {8}, "every row has the header's cells"
    assert len(lines) == 2 + 2 + 2
    assert lines[4] == "| naive | one thread, one element | 100.0 µs | 2.68 | 50.0 % ±1.0 | 45.0 % | 40 |"
    assert re.match(r"\| cuBLAS \| the baseline", lines[5])


def test_a_refusal_in_the_readme_keeps_the_tables_shape() -> None:
    reason = "refused at exact: 3 | 4 rows\nwrong"
    run = small_run(measurements=[Measurement("naive", (8, 8, 8), "refused", reason=reason)])
    lines = markdown(run, Shape.of(8)).splitlines()
    assert len(lines) == 5
    assert len(re.findall(r"(?<!\\)\|", lines[4])) == 8


def test_a_notebook_gets_the_text_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """There, Rich would display the table at once, and nothing would be left to print."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert text(small_run()).startswith(LABEL)


def test_the_details_of_a_measurement() -> None:
    m = replace(measured("naive"), gbs=31.46, of_copy=0.0074, of_memory_peak=0.65)
    assert dict(zip(DETAILS, details(m), strict=True)) == {
        "kernel": "naive",
        "rate": "2.68 TFLOP/s",
        "GB/s": "31.46",
        "of copy": "0.74 %",
        "of memory peak": "65.0 %",
        "of FP32 peak": "40.0 %",
        "cycles": "198 k",
        "SM MHz": "1980",
        "samples": "2",
        "gate": "",
    }
    assert details(replace(m, tflops=0.4971))[1] == "497.1 GFLOP/s"
    assert details(replace(m, us=4.0, sm_mhz=1500.0))[6] == "6000"
    assert details(replace(m, us=2649.7))[6] == "5.246 M"


def test_details_of_what_has_no_time_or_less_than_all_stay_empty() -> None:
    assert details(small_run().measurements[2]) == ("naive", "refused", *[""] * 8)
    assert details(replace(measured("naive"), sm_mhz=None))[2:8] == ("", "", "", "40.0 %", "", "")


def test_the_details_tell_what_the_gate_cost_and_a_footnote_what_it_noted() -> None:
    stages = [{"seconds": 0.25, "note": ""}, {"seconds": 0.17, "note": "products are short"}]
    noted = replace(measured("naive"), verdict={"accepted": True, "precision": "fp32", "stages": stages})
    assert details(noted)[-1] == "0.42 s"
    assert details(replace(noted, status="refused"))[-1] == "0.42 s", "a refusal costs as much"
    assert footnotes(small_run(), [noted])[0] == f"products are short (naive at {noted.problem})"


def test_the_terminal_shows_details_where_they_are_asked_for() -> None:
    assert "of memory peak" not in text(small_run())
    shown = text(small_run(), with_details=True)
    assert "512 × 512 × 512, details" in shown and re.search(r"naive +2\.68 TFLOP/s", shown)


def test_several_sizes_have_means_and_say_over_how_many() -> None:
    assert means(small_run()) == [], "naive has one time"
    rows = [measured("naive", 512, us=100.0, ratio=0.5), measured("naive", 1024, us=100.0, ratio=0.125)]
    skipped = Measurement("naive", (2048, 2048, 2048), "skipped", reason="too slow")
    run = small_run(measurements=[*rows, skipped, measured("cuBLAS", 512)])
    assert means(run) == [("naive", "2 of 3", "12.08", "7.59", "25.0 %")]
    shown = text(run)
    assert all(column in shown for column in MEANS)
    assert "over the sizes" in shown and "over the sizes · live" in html(run)


@pytest.mark.parametrize(
    ("half_width", "says"),
    [(0.0, "0.00"), (0.3, "0.30"), (0.0051, "0.01"), (0.0049, "0.005"), (0.0019, "0.002"), (0.00004, "0.00004")],
)
def test_an_interval_that_there_is_is_not_printed_as_none(half_width: float, says: str) -> None:
    assert small(half_width) == says
