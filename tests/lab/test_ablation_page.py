"""The ablation's page: every lie's effect on one rung at one size, as the run has it, or what it lacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.plots.conftest import full_run, ladder_run
from tests.plots.test_charts import collisions, said
from worklog import lab
from worklog.errors import BadShape, NothingToDraw
from worklog.lab.lies import Lies, cells, headline, html, picture, said_html, text
from worklog.lab.readings import NotRecorded
from worklog.plots import ablation
from worklog.problem.gemm import Shape
from worklog.runs.ablation import effects


def biased(kernel: str | None = "warptiled", size: int | None = 512) -> Lies:
    return Lies([full_run()], kernel, size)


def page(kernel: str = "warptiled", size: int = 512) -> Any:
    return lab.ablation(kernel, size, run=full_run())


def test_at_first_the_last_rung_at_the_middle_size() -> None:
    first = biased(None, None)
    assert (first.kernel, str(first.shape)) == ("warptiled", "1024")
    assert first.kernels == ["naive", "warptiled"] and len(first.shapes) == 5


def test_every_effect_at_the_size_is_a_row() -> None:
    told = biased().told()
    expected = [e for e in effects(full_run(), "warptiled") if Shape(*e.shape) == Shape.of(512)]
    assert list(told.effects) == expected
    assert html(told).count("<tr>") == 1 + len(expected)
    assert text(told).count(" becomes ") == len(expected) and told.run.label in text(told)


def test_a_row_says_what_the_lie_did_to_which_number() -> None:
    rows = {cells(e)[1]: cells(e) for e in biased().told().effects}
    assert rows["l2 = warm"][0] == "3 L2 stays warm" and rows["l2 = warm"][5] == "+31.0 %"
    assert rows["clocks = ignored"][5] == "not visible"
    assert rows["baseline = tf32"][2] == "% of cuBLAS"
    unbiased, lying = (float(value) for value in rows["baseline = tf32"][3:5])
    assert lying / unbiased == pytest.approx(0.16, rel=0.01)
    assert rows["statistic = mean"][6] == "none, the same samples"


def test_the_headline_counts_what_can_be_seen_and_only_it_is_announced() -> None:
    told = biased().told()
    seen = [e for e in told.effects if cells(e)[5] != "not visible"]
    assert headline(told) == f"warptiled at 512: {len(seen)} of {len(told.effects)} readings show that they lie"
    assert headline(told) in said_html(told) and headline(told) not in html(told)


def test_a_rate_that_cannot_be_is_still_a_number_that_one_can_read() -> None:
    [host] = [e for e in biased("naive", 4096).told().effects if e.setting == "timer"]
    assert cells(replace(host, lying=31612.4))[4] == "31612"


def test_what_is_not_recorded_is_said_with_what_there_is() -> None:
    with pytest.raises(NotRecorded, match=r"tiles_2d at 512 is not in these runs, which hold naive at 256, .*4096"):
        biased("tiles_2d").told()
    with pytest.raises(NotRecorded, match="warptiled at 100"):
        biased(size=100).told()
    with pytest.raises(NothingToDraw, match="worklog ablate"):
        Lies([ladder_run()])
    with pytest.raises(BadShape):
        biased(size=-1)


def test_the_first_run_with_an_ablation_answers() -> None:
    mine = full_run()
    mine.origin = "live"
    mine.measurements = [m for m in mine.measurements if m.kernel == "naive"]
    chosen = Lies([ladder_run(), mine, full_run()], "naive", 512)
    assert chosen.told().run is mine
    chosen.choose("warptiled")
    assert chosen.told().run.origin == "recorded"


@pytest.mark.parametrize("size", [256, 512, 1024, 2048, 4096])
def test_the_waterfall_is_at_the_size_asked_for_and_nothing_overlaps(size: int) -> None:
    chart = picture(biased(size=size).told())
    assert collisions(chart) == []
    assert f"TFLOP/s at {size}, log scale" in said(chart)
    assert chart.headline.replace("\u00a0", " ").endswith(f" at {size}")


def test_a_chart_at_a_size_without_an_ablation_is_refused() -> None:
    with pytest.raises(NothingToDraw, match="no ablation of naive at 100, only at 256"):
        ablation(full_run(), "naive", 100)


def test_the_widgets_move_the_page_and_two_share_nothing() -> None:
    one, other = page(), page()
    assert "warptiled at 512" in one.table.value and "<img" in one.picture.value
    one.rung.value = "naive"
    one.size.index = 4
    assert "naive at 4096" in one.table.value
    assert "warptiled at 512" in other.table.value
    shown = one._repr_mimebundle_()["text/plain"]
    assert shown.startswith("naive at 4096, each lie alone.\n")
    assert shown.count("\n") > 5 and " ".join(shown.splitlines()) == one.told(), "a line each, the same words"


def test_a_missing_combination_is_said_on_the_page_and_nothing_old_stays() -> None:
    shown = page("tiles_2d")
    assert "is not in these runs" in shown.words.value and shown.picture.value == shown.table.value == ""
    shown.rung.value = "naive"
    assert "naive at 512" in shown.table.value and "<img" in shown.picture.value


def test_the_static_twin_is_the_pages_picture() -> None:
    assert lab.ablation_static("naive", 1024, run=full_run()).svg() == picture(biased("naive", 1024).told()).svg()
