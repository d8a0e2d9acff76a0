"""The panel's own job on a GPU: it measures what is chosen."""

from __future__ import annotations

import re

import pytest

from tests.lab.grid import small_grid
from tests.lab.waiting import until
from worklog.lab.panel_answer import PanelChoice
from worklog.lab.panel_page import Panel

MEASURED_S = 120.0


def test_what_is_chosen_is_measured_in_a_process_of_its_own() -> None:
    panel = Panel(PanelChoice([small_grid()], "naive", 1024, queue=False))
    assert panel.table["live"]
    panel.measure()
    until(lambda: re.search("; finished measurements are in|failed", panel.progress["words"]), MEASURED_S)
    assert panel.answer["label"].startswith("live · "), panel.progress["words"]
    answer = panel.choice.answer()
    assert answer.reading.measurement.changed == {"queue": False}
    assert answer.reading.time.value > answer.unbiased.time.value
    assert answer.reading.time.value == pytest.approx(answer.reading.measurement.us, rel=1e-3)
