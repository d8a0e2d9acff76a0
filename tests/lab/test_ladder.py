"""A rung of the ladder: what changed, what it costs, and what is said where there is nothing."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.helpers import measured, product, small_run
from tests.plots.conftest import full_run, ladder_run, measurement
from worklog import lab
from worklog.errors import BadRunFile, BadSetting
from worklog.kernel.ladder import LADDER, memory_counts, rung
from worklog.lab.listings import diff, source
from worklog.lab.rung_pages import RungPage
from worklog.problem import Shape
from worklog.runs import Measurement, Run
from worklog.runs.statistics import Estimate


def recorded(**changed: Measurement) -> Run:
    """Return the ladder by hand at 4096 and 1024, with the compiler's facts about two rungs.

    changed: instead of a rung's
    """
    run = ladder_run()
    run.measurements = [changed.get(m.kernel, m) for m in run.measurements] + ladder_run(
        1024
    ).measurements
    for name, registers in (("tiles_1d", 39), ("tiles_2d", 94)):
        program = rung(name).program
        run.kernels[name] |= {
            "registers": registers,
            "shared_bytes": 8192,
            "sha256": program.code_sha256,
        }
    return run


def climbed(name: str = "tiles_2d", size: int = 4096, run: Run | None = None) -> RungPage:
    return RungPage(run or recorded(), name, Shape.of(size))


def facts(climb: RungPage) -> dict[str, tuple[str, ...]]:
    return {str(row[0]): tuple(map(str, row[1:])) for table in climb.tables for row in table.rows}


def test_the_ladder_begins_with_the_last_rung_at_the_articles_size():
    last = lab.ladder(run=recorded()).rung_page()
    assert (last.kernel, last.shape) == (LADDER[-1].name, Shape.of(4096))
    lane_map = climbed("lane_map")
    assert [record.name for record in lane_map.rungs] == [
        "lane_map",
        "warptiled",
    ] and "not in this" in lane_map.sentences[0]
    for kernel, size, error in (("wraptiled", 512, BadSetting), ("naive", 0, BadSetting)):
        with pytest.raises(error):
            lab.ladder(kernel, size, run=full_run())


def test_another_rung_and_another_size_can_be_chosen():
    view = lab.ladder("tiles_2d", run=recorded())
    assert view.table["sizes"] == ["1024", "4096"]
    view.chosen = {"rung": view.table["rungs"].index("vectorized"), "size": 0}
    chosen = climbed("vectorized", 1024)
    assert (view.rung_page().kernel, view.rung_page().shape) == ("vectorized", Shape.of(1024))
    assert view.page == chosen._repr_html_() and repr(view) == repr(chosen)
    bundle, _ = view._repr_mimebundle_()
    assert bundle["text/plain"] == repr(chosen) and bundle["text/html"] == view.page


def test_a_rung_is_compared_with_the_one_before_in_tables_labelled_with_their_sources():
    headline, idea, changed, gain = climbed().sentences
    assert (
        headline.startswith("tiles_2d at 4096: 5.610 ms → 24.50 TFLOP/s → 47.5 % ")
        and idea == rung("tiles_2d").idea
    )
    assert changed.endswith("lines against tiles_1d") and gain == "1.34 times as fast as tiles_1d"
    timed, counted = climbed().tables
    assert recorded().label in timed.title and memory_counts().label in counted.title
    cells = facts(climbed())
    counts = memory_counts().rungs["tiles_2d"]
    for name, cell in {
        "time": ("5.610 ms", "7.510 ms"),
        "registers per thread": ("94", "39"),
        "resident on an SM": ("2 × 256 threads, 25 %", "3 × 512 threads, 75 %"),
        "resident blocks limited by": ("registers", "registers"),
    }.items():
        assert cells[name] == cell
    assert cells["sectors per global load"][0] == f"{counts.sectors_per_request:.1f}"
    assert cells["of which bank conflicts"][0] == f"{100 * counts.conflict_share:.0f} %"
    first = climbed("naive")
    assert "first rung" in first.sentences[-1] and not any(
        "−" in sentence for sentence in first.sentences
    )
    assert all(len(values) == 1 for values in facts(first).values())


def test_a_rung_that_failed_the_gate_or_was_timed_with_other_code_is_marked():
    run = recorded(
        tiles_2d=Measurement("tiles_2d", product(4096), "failed", reason="exact: 3 rows differ")
    )
    run.kernels["tiles_2d"]["sha256"] = "another"
    failed = lab.ladder("tiles_2d", run=run).rung_page()
    assert facts(failed)["time"][0] == "–"
    text = repr(failed)
    assert "exact: 3 rows differ" in text and "tiles_2d was timed with different code" in text


@pytest.mark.parametrize(
    ("us", "gain"),
    [(3890.0, "1.44 times as fast"), (5600.0, "within the noise"), (11220.0, "2 times as slow")],
)
def test_a_gain_is_larger_than_the_noise(us, gain):
    [measurement] = ladder_run().select("vectorized")
    run = recorded(vectorized=replace(measurement, time=Estimate(us, us * 0.996, us * 1.004)))
    assert gain in climbed("vectorized", run=run).sentences[-1]


def test_a_rung_or_a_setting_has_a_row_per_step_or_size():
    steps = lab.steps("autotuned", "pipelined", sizes=[1024, 2048])
    assert [(str(row[0]), str(row[1])) for row in steps.rows] == [("pipelined", "autotuned")]
    effect = lab.setting_effect("warptiled", [256, 4096], timer="host")
    assert [str(row[1]) for row in effect.rows] == ["256", "4096"] and "–" not in effect.text()


def test_an_effect_needs_a_setting():
    with pytest.raises(BadSetting, match="name it, as in l2='warm'"):
        lab.setting_effect("naive", [256])


@pytest.mark.parametrize("lost", [{}, {"l2": "warm"}])
def test_an_effect_without_one_of_its_two_times_has_no_difference(lost, monkeypatch):
    def pairs(kernel, sizes, setting):
        measurements = [
            measured(kernel, n, us=100.0, **changed) for n in sizes for changed in ({}, setting)
        ]
        place = len(lost)
        measurements[place] = replace(
            measurements[place], status="skipped", time=None, reason="too slow"
        )
        run = small_run(measurements=measurements)
        return [(run, *run.measurements[:2]), (run, *run.measurements[2:])]

    monkeypatch.setattr(lab.ladder_tables, "pairs", pairs)
    first, second = lab.setting_effect("naive", [256, 512], l2="warm").rows
    ends = [str(cell) for cell in (first[2], first[3])]
    assert ends.count("–") == 1 and ends.index("–") == len(lost) and str(first[4]) == "–"
    assert "–" not in map(str, second)


@pytest.mark.parametrize("lost", ["coalesced", "warptiled"])
def test_a_step_of_the_ladder_without_a_time_at_one_end_has_no_speedup(lost, monkeypatch):
    run = ladder_run()
    run.measurements.append(measurement("conflict_free", 4096, 3700.0, 0.72))
    monkeypatch.setattr(lab.ladder_tables, "results", lambda **_: run)
    first = lab.ladder_summary()
    names = [m.kernel for m in run.measurements if m.us and m.kernel != "cuBLAS"]
    timed_steps = {f"{before} to {after}" for before, after in pairwise(r.name for r in LADDER)
                   if before in names and after in names}  # fmt: skip
    assert timed_steps and {note.partition(":")[0] for note in first.notes[1:]} == timed_steps
    run.measurements = [m for m in run.measurements if m.kernel != lost]
    assert lab.ladder_summary().notes[1:] == [note for note in first.notes[1:] if lost not in note]


def test_a_body_has_no_comments_and_a_diff_leads_from_one_source_to_the_other():
    changed = diff("naive", "coalesced")
    assert [line[0] for line in repr(changed).splitlines()] == ["-", "-", "-", "+", "+", "+"]
    assert "+3 −3 lines against naive" in climbed("coalesced").sentences
    assert {line[0] for line in diff(None, "naive").lines} == {"+"}, "against an empty file"
    with pytest.raises(BadSetting, match="nave"):
        diff("nave", "coalesced")
    for record in LADDER:
        signature, *body = source(record.name).lines
        text = "\n".join(body)
        assert re.fullmatch(
            rf"sgemm_{record.name}<BM, BN.*>\(M, N, K, alpha, A, B, beta, C\)", signature
        )
        assert (
            "//" not in text
            and "__global__" not in text
            and "acc" in text
            and "static_assert" not in text
        )
        assert text.count("{") == text.count("}")
    assert repr(diff("coalesced", "shared", hunks=[1])).startswith(
        "  sgemm_shared<BM, BN, BK>(M, N,"
    )
    for earlier_name, later_name in pairwise(record.name for record in LADDER):
        earlier, later = (list(source(name).lines) for name in (earlier_name, later_name))
        lines = diff(earlier_name, later_name, around=2).lines
        removed, added = ([line[1:] for line in lines if line.startswith(mark)] for mark in "-+")
        assert set(earlier) - set(later) <= set(removed) and set(later) - set(earlier) <= set(added)
        assert len(earlier) - len(removed) == len(later) - len(added)
        assert len(diff(earlier_name, later_name).lines) <= 70, "short enough to read"


def test_a_rung_without_a_time_says_which_sizes_there_are_and_html_shows_the_diff():
    missing = lab.ladder("tiles_2d", 512, run=recorded()).rung_page()
    climb = lab.ladder("vectorized", run=recorded()).rung_page()
    assert "not in this recorded run, which holds it at 4096, 1024" in missing.sentences[0]
    assert len(missing.sentences) == 3, "no gain"
    assert (facts(missing)["time"], facts(missing)["registers per thread"]) == (
        ("–", "–"),
        ("94", "39"),
    )
    assert repr(climb).startswith("vectorized at 4096: 3.890 ms") and memory_counts().label in repr(
        climb
    )
    html = climb._repr_html_()
    assert all(sentence in html for sentence in climb.sentences) and html.count("<table") == 2
    assert (
        html.count("<ins") > 5 and html.count("<del") > 5 and ">  ...<" in html and "//" not in html
    )
    assert 'tabindex="0"' in html and 'aria-label="06_vectorized.cu against 05_tiles_2d.cu"' in html


def test_by_default_the_newest_run_that_holds_the_rung_answers_else_a_recording(
    monkeypatch, tmp_path
):
    mine = replace(full_run(), origin="live")
    mine.measurements = [m for m in mine.measurements if m.kernel == "naive" and not m.changed]
    mine.save(tmp_path / "runs" / "mine.jsonl")
    origins = [
        lab.ladder(name).rung_page().run.origin for name in ("naive", "warptiled", "lane_map")
    ]
    assert (
        origins == ["live", "recorded", "recorded"]
        and "→" in lab.ladder("lane_map").rung_page().sentences[0]
    )
    monkeypatch.setenv("WORKLOG_SOURCE", "live")
    with pytest.raises(BadRunFile, match="holds no such run"):
        lab.ladder("warptiled")
