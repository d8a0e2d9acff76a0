"""The notebooks' cells on a GPU, without Jupyter: they run live from top to bottom, and the value of each cell can be
shown. To save time, each measurement takes few samples.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.notebooks.cells import run_cells
from worklog.bench import measure
from worklog.bench.tasks import Task
from worklog.harness import Harness
from worklog.runs.run import Run

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
FEW: dict[str, Any] = {"least_samples": 4, "most_samples": 12, "budget_s": 0.1}


@pytest.mark.parametrize("source", sorted(FOLDER.glob("[0-9]*.py")), ids=lambda path: path.stem)
def test_it_runs_live(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = source.read_text(encoding="utf-8")
    if re.search(r"^# %%\w", text, re.MULTILINE):
        pytest.skip("cell magic needs IPython")
    if re.search(r"\blab\b", text):
        pytest.importorskip("ipywidgets", reason="this notebook shows the panel")
    carry_out = measure.carry_out

    def quick(tasks: Sequence[Task], harness: Harness, **how: Any) -> Run:
        few = [replace(t, changed=tuple(item for item in t.changed if item[0] not in FEW)) for t in tasks]
        return carry_out(few, harness.but(**FEW), **how)

    monkeypatch.setattr(measure, "carry_out", quick)
    monkeypatch.delenv("WORKLOG_SOURCE", raising=False)
    monkeypatch.chdir(tmp_path)
    assert "live · " in run_cells(text, capsys)
