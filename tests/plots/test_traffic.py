"""The chart of memory traffic says what was counted, for any number of rungs, with or without shared memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from worklog.analysis import traffic as module
from worklog.analysis.traffic import RungTraffic, Traffic
from worklog.analysis.traffic import traffic as counted
from worklog.errors import WorklogError
from worklog.plots import traffic
from worklog.problem.gemm import Shape


def test_it_shows_every_rung_and_its_label() -> None:
    chart = traffic()
    words = {text.get_text() for axes in chart.axes for text in axes.texts}
    names = [label.get_text() for label in chart.axes[0].get_yticklabels()]
    assert names == list(counted().rungs)
    assert "33 · 16.5 a load" in words and "no shared memory" in words and "0.34 · 40 % conflicts" in words
    assert "emulated · sm_90 PTX" in chart.alt and "emulated · sm_90 PTX" in {t.get_text() for t in chart.texts}
    assert chart.headline.startswith("From naive to warptiled, the same work takes ")


def test_words_stay_on_the_page() -> None:
    chart = traffic()
    chart.canvas.draw()
    page = chart.bbox
    for axes in chart.axes:
        for text in axes.texts:
            box = text.get_window_extent()
            assert page.x0 <= box.x0 and box.x1 <= page.x1, text.get_text()
    left, right = chart.axes
    assert max(t.get_window_extent().x1 for t in left.texts) < right.get_window_extent().x0


@pytest.mark.parametrize("names", [["one"], [f"rung_{n}" for n in range(20)]])
def test_any_number_of_rungs(names: list[str]) -> None:
    rung = RungTraffic("0", 100, 400, 12800, 10, 40, 0, 0, 3200)
    chart = traffic(Traffic("emulated · sm_90 PTX", Shape.of(64), dict.fromkeys(names, rung)))
    assert len(chart.axes[0].texts) == len(names)
    assert chart.svg() and chart.png()


def test_counts_of_a_rung() -> None:
    rung = RungTraffic("0", 100, 400, 12800, 10, 40, 64, 16, 3200)
    assert (rung.sectors_per_request, rung.load_width, rung.sectors_per_fma) == (4.0, 4.0, 4.4)
    assert (rung.wavefronts_per_fma, rung.conflict_share) == (0.64, 0.25)


@pytest.mark.parametrize("content", [None, "", "{}", '{"label": 1, "shape": [1], "rungs": {"a": {"b": 1}}}'])
def test_counts_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "traffic.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    monkeypatch.setattr(module, "FILE", file)
    with pytest.raises(WorklogError, match=r"traffic\.json cannot be read .*install gemm-worklog again"):
        counted.__wrapped__()
