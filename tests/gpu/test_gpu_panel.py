"""The panel's own job on a GPU: it measures what is chosen."""

from __future__ import annotations

import pytest

from tests.lab.grid import small_grid
from tests.lab.waiting import until
from worklog.lab.panel_answer import PanelChoice
from worklog.lab.panel_page import Panel

MEASURED_S = 120.0


def test_what_is_chosen_is_measured_in_a_process_of_its_own() -> None:
    panel = Panel(PanelChoice([small_grid()], "naive", 1024, queue=False))
    panel._loop = None  # a browser's test in the same session leaves a loop that doesn't run
    assert not panel.measure_button.disabled
    panel.measure()
    until(lambda: "; finished measurements are in" in panel.status.value or "failed" in panel.status.value, MEASURED_S)
    assert panel.details.value.startswith("<small>live · "), panel.status.value
    answer = panel.choice.answer()
    assert answer.reading.measurement.changed == {"queue": False}
    assert answer.reading.time.value > answer.unbiased.time.value
    assert answer.reading.time.value == pytest.approx(answer.reading.measurement.us, rel=1e-3)
