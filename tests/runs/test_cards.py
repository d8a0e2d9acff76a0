"""Numbers of two cards are never combined.

Each of these is given from one card, or says why it isn't.
"""

from dataclasses import replace

import pytest

from tests.helpers import CALIBRATION, GPU, measured, small_run
from worklog import lab, plots
from worklog.errors import BadRunFile, BadSetting, NothingToDraw
from worklog.kernel.prediction import rung_bounds
from worklog.lab.answers import Answers
from worklog.lab.rung_pages import RungPage
from worklog.problem import Shape
from worklog.runs import Measurement, Ran, Run, same_card
from worklog.runs.changes import UNKNOWN, change, compare_revisions, process_median, revision_of
from worklog.runs.effects import effects
from worklog.runs.run_file import Card
from worklog.runs.statistics import LaunchSeries, Samples

H100 = replace(GPU, name="NVIDIA H100 80GB HBM3", uuid="GPU-2")
TILES = {name: {"tile": {"BM": 32, "BN": 32}} for name in ("naive", "coalesced")}
OTHER = Card(H100, replace(CALIBRATION, offset_us=1.0, fp32_tflops=50.0))


def on_two_cards(*on_the_other: Measurement, **changes: object) -> Run:
    """Return a small run, of which these ran on an H100."""
    run = small_run(cards={"host:1": OTHER}, **changes)
    for m in on_the_other:
        run.add(replace(m, ran=Ran("host:1", 1.79e9, 2.0)))
    return run


def test_cards_of_one_model_differ_if_both_are_known():
    first, second = small_run().measurements[:2]
    assert first.context is not None
    for uuids, is_same in (
        (("", ""), True),
        (("a", ""), True),
        (("a", "a"), True),
        (("a", "b"), False),
    ):
        cards = [replace(first.context, gpu=replace(GPU, uuid=uuid)) for uuid in uuids]
        one, other = (
            replace(m, context=card) for m, card in zip((first, second), cards, strict=True)
        )
        assert same_card(one, other) is is_same
    assert same_card(first, replace(second, context=None)), "outside of a run"


def test_a_difference_needs_one_card():
    run = on_two_cards(measured("shared"))
    with pytest.raises(
        BadSetting, match=r"naive at 512 and shared at 512 ran on two cards .*H200.*H100"
    ):
        run.difference(run.measurements[0], run.measurements[-1])


def test_a_run_has_a_part_for_each_card():
    run = on_two_cards(measured("shared"))
    first_part, other = run.by_card()
    assert [m.kernel for m in other.measurements] == ["shared"] and other.gpu == H100
    assert other.calibration == OTHER.calibration and "H100" in other.label
    assert first_part.gpu == GPU and len(first_part.measurements) == len(run.measurements) - 1
    assert first_part.by_card() == [first_part]
    first = on_two_cards(measured("shared"))
    first.measurements.reverse()
    assert first.by_card()[0].gpu == GPU, "the run's own card is the first one"


def test_tables_compare_and_average_on_one_card():
    run = on_two_cards(
        measured("shared", us=10.0), measured("fast", us=5.0), measured("naive", 4096, ratio=0.9)
    )
    pivot = run.pivot()
    marks = {str(row[0]): str(row[1])[:1] for row in pivot.rows}
    assert (marks["fast"], marks["cuBLAS"]) == ("★", "★")
    assert (marks["shared"], marks["naive"]) == ("▼", "▼")
    assert any("compared on one card: NVIDIA H200, NVIDIA H100" in note for note in pivot.notes)
    assert not any("one card" in note for note in small_run().pivot().notes)
    shares = run.shares()
    means = {str(row[0]): row for row in shares.rows}["geometric mean"]
    assert str(means[2]) == "" and "no mean of several cards: naive" in shares.notes
    assert run.means() == [], "one size on each card"
    larger_run = on_two_cards(measured("shared"), measured("shared", 1024), measured("naive", 4096))
    assert [(row["card"], row["kernel"]) for row in larger_run.means()] == [(H100.name, "shared")]


def test_a_kernel_that_two_cards_measured_has_a_row_for_each():
    run = on_two_cards(measured("naive", us=300.0, ratio=0.2))
    h200 = "naive on NVIDIA H200"
    h100 = f"naive on {H100.name}"
    times = {str(row[0]): str(row[1]).split()[-2] for row in run.pivot().rows}
    assert times[h200] != times[h100] == "300.0" and "naive" not in times
    assert {h200, h100} <= {*run.shares().columns}
    changes = compare_revisions([revision_of(run)], [revision_of(run)])
    assert {row.kernel: row.new_us for row in changes.rows}[h100] == pytest.approx(300.0)
    assert "cuBLAS" in times, "one card measured it"
    cards = [Card(replace(GPU, uuid=uuid), CALIBRATION) for uuid in ("a", "b")]
    alike = small_run(measurements=[], cards={"host:0": cards[0], "host:1": cards[1]})
    for place in alike.cards:
        alike.add(replace(measured("naive"), ran=Ran(place, 1.79e9, 2.0)))
    assert alike.rows_of(alike.measurements) == ["naive on host:0", "naive on host:1"]


def test_a_file_holds_one_run(tmp_path):
    first = small_run().save(tmp_path / "first.jsonl").read_text()
    second = small_run(gpu=H100).save(tmp_path / "second.jsonl").read_text()
    heads = first.splitlines(), second.splitlines()
    for text in (first + second, "\n".join([*heads[0][:2], heads[1][1], *heads[0][2:]])):
        joined = tmp_path / "both.jsonl"
        joined.write_text(text)
        with pytest.raises(BadRunFile, match=r"both.jsonl:\d+ begins another run"):
            Run.load(joined)


def test_a_clock_is_compared_with_its_own_cards():
    slow = replace(measured("a"), samples=Samples([LaunchSeries("a", [100.0], [1410.0])], [1]))
    alike = on_two_cards(slow, slow)
    assert alike.clock_off(alike.measurements[-1]) is None
    assert small_run(measurements=[measured("b"), measured("b"), slow]).clock_off(slow) is not None


def test_an_effect_is_of_one_card():
    unbiased = measured("naive")
    host = measured("naive", timer="host")
    warm = measured("naive", us=10.0, l2="warm")
    run = on_two_cards(warm, measurements=[unbiased, host])
    assert {"timer"} == {e.setting for e in effects(run, "naive")} & {"timer", "l2"}
    on_the_other = on_two_cards(unbiased, warm, measurements=[])
    [mean] = [e for e in effects(on_the_other, "naive") if e.setting == "statistic"]
    read_us = 100.5 - OTHER.calibration.offset_us
    assert mean.factor == pytest.approx(100 / read_us), "the mean, without this card's overhead"


def test_changes_between_models_of_a_gpu_have_no_verdict():
    live = small_run().measurements[0]
    elsewhere = on_two_cards(measured("naive", us=50.0)).measurements[-1]
    old, new = (process_median(m, {}) for m in (live, elsewhere))
    judged_change = change([old], [new])
    assert judged_change.verdict == UNKNOWN and "several models of GPU" in judged_change.reason
    changes = compare_revisions(
        [revision_of(small_run())], [revision_of(on_two_cards(measured("shared")))]
    )
    assert any("GPU (NVIDIA H200 → NVIDIA H200, NVIDIA H100" in line for line in changes.differ)


def test_charts_and_pages_take_one_card():
    run = on_two_cards(measured("coalesced", us=50.0), measurements=[measured("naive")])
    assert "coalesced" not in {
        name for name, b in rung_bounds(run, Shape.of(512)).items() if b.measured_ms
    }
    assert "naive was timed on another card: live · NVIDIA H200" in str(
        RungPage(run, "coalesced", Shape.of(512))
    )
    earlier = small_run(measurements=[measured("coalesced", us=60.0)])
    with pytest.raises(NothingToDraw, match="no two runs of one GPU"):
        plots.history("coalesced", [earlier, run])
    drawn = plots.roofline(on_two_cards(measured("coalesced", us=1.0), kernels=TILES))
    assert "naive" in drawn.alt and "coalesced" not in drawn.alt
    answers = Answers(
        [on_two_cards(measured("naive", us=10.0, l2="warm"), measurements=[measured("naive")])]
    ).sources
    assert [part.run.gpu.name for part in answers] == [GPU.name, H100.name]


def test_an_effect_in_a_notebook_is_of_one_recording(monkeypatch):
    """At 256 and 512, shared with a warm L2 was recorded on an H100; without it on an H200, too."""
    monkeypatch.setenv("WORKLOG_SOURCE", "recorded")
    table = lab.setting_effect("shared", [256, 512], l2="warm")
    assert table.title.count("NVIDIA") == 1 and "H100" in table.title
    assert [str(row[4]) for row in table.rows] == ["−22.8 %", "−9.2 %"]
