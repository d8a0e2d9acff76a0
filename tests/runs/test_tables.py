"""Runs, measurements and verdicts as tables and frames.

The label stands with the numbers, a failure shows no time.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas
import pytest
from pytest import approx

from tests.helpers import measured, product, small_run
from tests.helpers import typed as worklog
from worklog.cli import options
from worklog.cli.figures import markdown
from worklog.plots.selection import sample_times
from worklog.problem import Point, Shape
from worklog.runs import Measurement, Run, Stage, Verdict, Work, cells, recorded_run
from worklog.runs.statistics import Estimate
from worklog.runs.text import (
    Bar,
    Table,
    duration,
    format_bound,
    format_half_width,
    format_ratio,
    format_si,
    percent,
)

LABEL = "live · NVIDIA H200 · clocks as found · 2026-11-21"
VERDICT = Verdict(
    (
        Stage("exact", True, 0, 0, "no element wrong"),
        Stage("precision", False, 900.0, 600.0, "rms <b>9</b>"),
    ),
    "tf32",
)
TABLE = Table(
    "a <title>", ("name", "n"), [("[one]", Bar("<i>1</i>", 0.25)), ("two", "22")], notes=("a & b",)
)


class Html:
    """Tags and words of a document. Raises ParseError for a tag that isn't closed."""

    def __init__(self, document: str) -> None:
        elements = ElementTree.fromstring(f"<div>{document}</div>")
        self.tags = [element.tag for element in elements.iter()]
        self.words = [*elements.itertext()]


def test_a_table_keeps_every_character_as_text_as_html_and_as_markdown():
    assert (
        TABLE.text() == "a <title>\n name          n\n [one]  <i>1</i>\n two          22\n  a & b"
    )
    page = Html(TABLE.html())
    assert page.tags.count("tr") == 3 and "i" not in page.tags
    assert {"a <title>", "[one]", "<i>1</i>", "a & b"} <= {*page.words}
    assert TABLE.html().count('scope="col"') == TABLE.html().count('scope="row"') == 2
    assert "<thead>" not in Table("facts", (), [("a", "b")]).html()
    lines = Table("", ("a", "b"), [("x | y\nz", "1")]).markdown().splitlines()
    assert lines == ["| a | b |", "|---|--:|", "| x \\| y z | 1 |"]


def test_numbers_and_bars_in_cells():
    for share, length in ((0.25, "25.0"), (1.7, "100.0"), (-1.0, "0.0")):
        assert f" {length}%,transparent" in Bar("words", share).html()
    assert Bar("<b>", None).html() == "&lt;b&gt;"
    assert (
        format_ratio(0.9731, 0.9723, 0.9739) == "97.31 % ±0.08"
        and format_ratio(0.627, 0.624, 0.63) == "62.7 % ±0.3"
    )
    assert (
        format_bound(-0.081) == "0.09"
        and format_si(198_000) == "198 k"
        and format_si(5.2459e6) == "5.246 M"
    )
    times = {
        0.5: "0.5 µs",
        8.4321: "8.432 µs",
        999.9: "999.9 µs",
        1000: "1 ms",
        2649.7: "2.65 ms",
        1.2e6: "1.2 s",
    }
    assert {us: duration(us) for us in times} == times
    assert [percent(share) for share in (None, 0.0074, 0.65)] == ["", "0.74 %", "65.0 %"]
    narrow = {
        0.0: "0.00",
        0.3: "0.30",
        0.0051: "0.01",
        0.0049: "0.005",
        0.0019: "0.002",
        0.00004: "0.00004",
    }
    assert {half_width: format_half_width(half_width) for half_width in narrow} == narrow


def test_registers_are_shown_where_they_are_known():
    assert [cells(measured("naive"), count)["registers"] for count in (40, None)] == ["40", ""]


def test_a_time_without_a_baselines_has_a_dash_for_its_share_and_a_failure_nothing():
    timed, failed = (
        replace(measured("naive"), status=status, against={"cuBLAS": None})
        for status in ("measured", "failed")
    )
    assert [str(cells(m)["of cuBLAS"]) for m in (timed, failed)] == ["–", ""]


@pytest.mark.parametrize("status", ["failed", "skipped"])
def test_a_failed_or_skipped_row_shows_no_time_and_gives_its_reason(status):
    m = Measurement("naive", product(8), status, reason="3 | 4 rows\n<b>wrong")
    run = small_run(measurements=[m])
    assert [*cells(m).values()][1:8] == [status, "–", "", "", "", "", ""]
    remark = f"naive: {status}: {m.reason}"
    assert (
        run.footnotes([m]) == [remark]
        and remark in run.text()
        and remark in Html(run._repr_html_()).words
    )
    assert (
        "<b>wrong" in repr(m)
        and f"{status}  3 | 4 rows" in repr(m)
        and "&lt;b&gt;wrong" in m._repr_html_()
    )
    timed = measured("coalesced")
    run = small_run(measurements=[replace(m, point=timed.point), timed])
    row = markdown(run).splitlines()[4]
    assert len(re.findall(r"(?<!\\)\|", row)) == 5 and "4 rows <b>wrong" in row, "in the README"


def test_footnotes_say_once_what_was_not_right_and_of_which_kernels():
    wide = "not converged: ±0.5 % was not reached"
    m = replace(measured("naive", gate=False), degradations=(wide,))
    assert [*cells(m).values()][1:3] == ["off", "100.0 µs *"]
    ms = [
        replace(m, kernel=name, point=product(n))
        for name, n in (("a", 256), ("b", 256), ("a", 512))
    ]
    notes = [
        "* the interval is wider than requested",
        f"{wide} (a at 256, b at 256, a at 512)",
        "a note",
    ]
    assert small_run(notes=["a note"]).footnotes(ms) == notes
    noted = Verdict((Stage("a", True, 0, 0, "", seconds=0.25, note="products are short"),), "fp32")
    run = small_run(measurements=[replace(measured("naive"), verdict=noted)])
    assert run.footnotes(run.measurements) == ["products are short (naive at 512)"]


def test_a_rate_above_the_fp32_ceiling_says_how_that_can_be():
    slow, fast = (
        replace(measured(name), time=Estimate(us, us, us))
        for name, us in (("naive", 100.0), ("split", 1.0))
    )
    run = small_run(measurements=[slow, fast])
    shares = [m.of_ceiling or 0.0 for m in run.measurements]
    assert shares[0] < 1 < shares[1]
    (remark,) = run.footnotes(run.measurements)
    assert remark.startswith("above the FP32 ceiling: on tensor cores") and remark.endswith(
        "(split at 512)"
    )


def test_a_run_in_a_terminal_and_in_a_notebook():
    shown = small_run().text()
    lines = shown.splitlines()
    assert lines[0].startswith(LABEL)
    assert [line for line in lines if " × " in line] == [
        f"{n} × {n} × {n}" for n in (512, 1024, 2048)
    ]
    (naive,) = [line for line in lines if "100.0 µs" in line]
    assert "50.0 % ±1.0" in naive and "4.5 %" in naive
    assert "70 µs" not in shown, "a biased measurement is not a row of the unbiased table"
    assert "TFLOP/s" in shown.partition("1024 × 1024 × 1024")[2].splitlines()[1], (
        "but not of the main ones"
    )
    page = Html(small_run()._repr_html_())
    assert page.words[0].startswith(LABEL)
    assert page.tags.count("table") == page.tags.count("caption") == 3
    assert all(LABEL in words for words in page.words if words.startswith("512 ×"))


def test_the_details_of_a_measurement():
    """The rates of what is no matrix product, and what they are shares of.

    Columns that no row fills are left out.
    """
    hot = [
        replace(side, hot_us=[us] * 9)
        for side, us in zip(measured("f").samples.sides, (80.0, 48.0), strict=True)
    ]
    work = replace(measured("f").work, bytes_read=2 * 10**8, bytes_written=10**8)
    m = replace(measured("f"), point=Point(axes=(("N", 8),)), work=work)
    run = small_run(measurements=[replace(m, samples=replace(m.samples, sides=hot))])
    assert {name: str(value) for name, value in cells(run.measurements[0]).items()} == {
        "N": "8", "time": "100.0 µs", "±95 %": "1.00 %", "rate": "2.68 TFLOP/s", "GB/s": "3000",
        "items/s": "5.243 G",
        "of copy": "75.0 %", "hot": "80.00 µs", "of cuBLAS": "50.0 % ±1.0", "SM MHz": "1980",
    }  # fmt: skip
    shares = (
        run.measurements[0].of_memory_peak,
        run.measurements[0].of_roof,
        run.measurements[0].hot_ratio,
    )
    values = [share if isinstance(share, float) else share.value for share in shares if share]
    assert [round(100 * value, 1) for value in values] == [62.3, 4.0, 60.0]
    for field_name in ("bytes_read", "bytes_written"):
        m = replace(m, work=Work(**{field_name: 8}))
        assert m.moved_bytes == 8 and "items/s" not in small_run(measurements=[m]).text()


def test_means_are_over_the_sizes_that_have_a_time():
    rows = [
        measured("naive", 512, us=100.0, ratio=0.5),
        measured("naive", 1024, us=100.0, ratio=0.125),
    ]
    skipped = Measurement("naive", product(2048), "skipped", reason="too slow")
    run = small_run(measurements=[*rows, skipped, measured("cuBLAS", 512)])
    assert [[*row.values()] for row in run.means()] == [
        ["naive", "2 of 3", "12.08", "7.59", "25.0 %"]
    ]
    assert "over the sizes" in run.text() and "over the sizes · live" in run._repr_html_()
    cases = [
        replace(measured("mine", us=us), point=Point.of_case("", str(us))) for us in (1e5, 2e5)
    ]
    over = small_run(measurements=cases).means()
    assert [[*row.values()] for row in over] == [
        ["mine", "2 of 2", "150 ms", "0.00201", "0.00190", "50.0 %"]
    ]


def test_the_full_label_says_what_was_done_about_the_overhead_and_that_the_gate_was_off():
    run = small_run()
    assert run.full_label == f"{LABEL} · event overhead 3.45 µs removed"
    run.harness["timer"] = "host"
    assert run.full_label == f"{LABEL} · timer host, no overhead removed"
    unchecked = replace(measured("naive"), degradations=("gate: off, the result may be wrong",))
    assert small_run(measurements=[unchecked]).full_label.endswith(unchecked.degradations[0])


def test_a_verdict_shows_every_stage_with_its_margin():
    page = Html(VERDICT._repr_html_())
    assert {"the gate: failed", "✗\u00a0failed", "✓\u00a0passed", "900 of 600", "rms <b>9</b>"} <= {
        *page.words
    }
    assert re.search(r"precision +✗.failed +900 of 600 +rms", repr(VERDICT))
    assert "#e0702455 100.0%" in VERDICT._repr_html_(), "more than its limit, in the colour of that"


def test_a_measurement_shows_its_facts_and_its_label_and_not_its_samples():
    m = small_run().measurements[0]
    for text in (repr(m), "".join(Html(m._repr_html_()).words)):
        assert LABEL in text and "100.0 µs ±1.00 %" in text and "2 of 3 count, " in text
    assert "l2 = warm" in repr(small_run().measurements[-1]).splitlines()[0]
    assert "not known" in repr(replace(m, context=None))


def points() -> Run:
    """Return a benchmark with two axes, one of which is called as a column of the frame."""
    m = replace(measured("relu"), point=Point(axes=(("N", 8), ("us", "half"))))
    m = replace(m, against={"gelu": m.first})
    hot = [replace(m.samples.sides[0], hot_us=[7.0, 8.0]), m.samples.sides[1]]
    m = replace(m, samples=replace(m.samples, sides=hot, overhead_us=3.45))
    return small_run(
        measurements=[
            m,
            Measurement("relu", Point(axes=(("N", 9), ("us", "half"))), "skipped", "no"),
        ]
    )


def test_a_frame_has_the_axes_as_columns():
    frame = points().frame()
    assert list(frame[["kernel", "N", "axis us", "us"]].iloc[0]) == ["relu", 8, "half", 100.0]
    assert frame.status.to_list() == ["measured", "skipped"] and frame.columns.is_unique


def test_samples_are_tidy_and_give_the_measurements_time_again():
    run = points()
    samples = run.samples()
    (m, _) = run.measurements
    assert samples.of.value_counts().to_dict() == {"kernel": 3, "baseline": 3, "hot kernel": 2}
    assert samples[samples.of == "kernel"].counts.to_list() == [True, True, False]
    assert (samples.us_read - samples.us).dropna().to_list() == approx([3.45] * 6, abs=1e-6)
    assert sample_times(m)[0] == approx([us - 3.45 for us in m.samples.sides[0].us]), (
        "as the charts have them"
    )
    assert set(samples.label) == {run.label} and set(samples["axis us"]) == {"half"}


def example(method: Callable[..., object]) -> Any:
    """Return the value of a docstring's example, of the recording."""
    text = re.sub(r"\s+", " ", method.__doc__ or "")
    return eval(re.findall(r"Example[^`]*`([^`]+)`", text)[0], {"run": recorded_run()})


def test_the_examples_in_the_docstrings_give_one_number_a_kernel_and_size():
    naive = recorded_run().select("naive", Shape.of(256))[0]
    assert example(Run.samples)["naive", 256] == approx(
        np.std(naive.samples.counted(), ddof=1), abs=1e-4
    )
    assert example(Run.frame).loc["naive", 256] == naive.us


def test_the_pivot_marks_the_fastest_the_slowest_and_what_cannot_be_told_apart():
    similar = [
        replace(measured(name, us=us), time=Estimate(us, us - 1, us + 1))
        for name, us in (("a", 50), ("b", 51.5))
    ]
    run = small_run(
        measurements=[
            *similar,
            measured("c", us=90),
            measured("d", us=70),
            measured("a", 1024, us=9),
        ]
    )
    table = run.pivot()
    assert table.columns == ["kernel", "512", "1024"] and "recorded" not in table.title
    cells = {row[0]: [str(cell) for cell in row[1:]] for row in table.rows}
    assert cells == {
        "a": ["★ 50.00 µs", "9.000 µs"],
        "b": ["≈ 51.50 µs", ""],
        "c": ["▼ 90.00 µs", ""],
        "d": ["70.00 µs", ""],
    }
    assert [row[1].share for row in table.rows] == approx([1, 50 / 51.5, 50 / 90, 50 / 70])
    assert run.label in table.title and "one clock" in table.text()
    assert "skipped" in small_run().pivot().text() and small_run(measurements=[]).pivot().rows == ()


def test_shares_end_with_the_geometric_mean_and_the_lowest_and_name_what_has_no_time():
    run = small_run(measurements=[*small_run().measurements, measured("cuBLAS", 1024, ratio=0.25)])
    cells = {row[0]: [str(cell) for cell in row[1:]] for row in run.shares().rows}
    assert cells == {
        "512": ["100.0 µs", "50.0 % ±1.0", "50.00 µs", "100.0 % ±1.0"],
        "1024": ["failed", "", "100.0 µs", "25.0 % ±1.0"],
        "2048": ["skipped", "", "", ""],
        "geometric mean": ["", "50.0 % at 1 of 3", "", "50.0 % at 2 of 3"],
        "lowest": ["", "50.0 % at 1 of 3", "", "25.0 % at 2 of 3"],
    }
    assert "naive: failed: failed at precision" in run.shares().text()
    kinds = {Shape.of(1024): "large", Shape.of(3): "absent"}
    assert [row[:2] for row in run.shares(kinds).rows][:2] == [["1024", "large"], ["3", "absent"]]
    assert small_run(measurements=[]).shares().rows == ()


def test_a_table_with_a_note_on_stars_has_the_star_at_the_time():
    wide = replace(measured("naive"), degradations=("not converged: ±0.5 % was not reached",))
    run = small_run(measurements=[wide, measured("shared")])
    table = run.shares()
    assert any(note.startswith("* ") for note in table.notes)
    times = [str(cell) for row in table.rows for cell in row if "µs" in str(cell)]
    assert [time.endswith(" *") for time in times] == [True, False]


def test_show_prints_a_run_and_writes_it(tmp_path, monkeypatch):
    path = points().save(tmp_path / "run.jsonl")
    csv = tmp_path / "a.csv"
    tables = tmp_path / "a.md"
    parquet = tmp_path / "a.parquet"
    shown_text = worklog("show", path, "--csv", csv, "--markdown", tables)
    assert (
        shown_text.exit_code == 0
        and "100.0 µs" in shown_text.stdout
        and "relu" in shown_text.stdout
    )
    assert pandas.read_csv(csv).kernel.to_list() == ["relu", "relu"]
    written = tables.read_text()
    assert written.startswith(points().full_label) and "| N | us | time |" in written
    assert "N=9 us=half: skipped" in written
    assert "fastest" in worklog("show", path, "--pivot").stdout
    second_output = worklog("show", path, "--csv", csv)
    assert (
        second_output.exit_code == 2
        and "exists already: give --csv another name" in second_output.stderr
    )
    csv.unlink()
    worklog("show", path, "--samples", "--csv", csv)
    assert len(pandas.read_csv(csv)) == 8
    with monkeypatch.context() as patch:
        patch.setattr(options, "find_spec", lambda name: None)
        parquet_output = worklog("show", path, "--csv", tmp_path / "b.csv", "--parquet", parquet)
    assert parquet_output.exit_code == 2 and "[parquet]" in parquet_output.stderr
    assert not (tmp_path / "b.csv").exists(), "before anything is measured or written"
    pytest.importorskip("pyarrow", reason="pyarrow isn't installed: pip install pyarrow")
    worklog("show", path, "--parquet", parquet)
    assert len(pandas.read_parquet(parquet)) == len(points().frame())


@pytest.mark.parametrize(
    ("command", "column"), [(("ablate", "naive"), "factor"), (("peers",), "wall_s")]
)
def test_every_command_that_prints_measurements_writes_them(tmp_path, monkeypatch, command, column):
    monkeypatch.setenv("WORKLOG_SOURCE", "recorded")
    result = worklog(*command, "--csv", tmp_path / "a.csv", "--markdown", tmp_path / "a.md")
    assert result.exit_code == 0 and {column, "label"} <= {
        *pandas.read_csv(tmp_path / "a.csv").columns
    }
    head, _, columns, rule, *rows = (tmp_path / "a.md").read_text().splitlines()
    assert (
        "recorded · NVIDIA H200" in head
        and f" {column} " in columns
        and rule.startswith("|---")
        and len(rows) > 10
    )


def test_many_notes_below_a_table_are_folded_but_all_there():
    short, long = (
        replace(TABLE, notes=[f"note {number}" for number in range(count)]).html()
        for count in (5, 6)
    )
    assert (
        "<details>" not in short
        and "<summary>6 notes</summary><p><small>note 0" in long
        and "note 5" in long
    )
