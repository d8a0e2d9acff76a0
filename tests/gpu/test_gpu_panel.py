"""The panel's own job on a GPU: it measures what is chosen, and a cancel ends it while kernels run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.grid import small_grid
from tests.lab.waiting import gone, until
from worklog.lab.panel_answer import PanelChoice

pytest.importorskip("ipywidgets", reason="the panel is made of ipywidgets")
from worklog.lab.panel_page import Panel

MEASURED_S = 120.0


@pytest.fixture
def panel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Panel:
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path))
    made = Panel(PanelChoice([small_grid()], "naive", 1024, queue=False))
    made._loop = None  # a browser's test in the same session leaves a loop that nobody turns
    return made


def test_what_is_chosen_is_measured_in_a_process_of_its_own(panel: Panel) -> None:
    assert not panel.measure_button.disabled
    panel.measure()
    until(lambda: "; finished measurements are in" in panel.status.value or "failed" in panel.status.value, MEASURED_S)
    assert panel.details.value.startswith("<small>live · "), panel.status.value
    answer = panel.choice.answer()
    assert answer.reading.measurement.changed == {"queue": False}
    assert answer.reading.time.value > answer.unbiased.time.value
    assert answer.reading.time.value == pytest.approx(answer.reading.measurement.us, rel=1e-3)


def test_a_cancel_ends_it_while_kernels_run_and_keeps_what_is_finished(panel: Panel) -> None:
    panel.measure()
    until(lambda: "queue=False" in panel.status.value, MEASURED_S)  # the honest one is finished, the other runs
    assert panel._stop is not None and panel._stop.pid is not None
    pid = panel._stop.pid
    panel.cancel()
    until(lambda: "cancelled" in panel.status.value, 10)
    assert gone(pid)
    assert [m.changed for m in panel.choice.runs[0].measurements] == [{}]
