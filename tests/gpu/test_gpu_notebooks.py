"""The notebooks' cells on a GPU, without Jupyter: they run live from top to bottom, and the value of each cell can be
shown. To save time, each measurement takes few samples, and is made once for all notebooks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.notebooks.cells import run_cells
from worklog.bench import measure
from worklog.bench.tasks import Progress, Task
from worklog.harness import Harness
from worklog.runs.run import Measurement, Run

SOURCES = sorted((Path(__file__).resolve().parents[2] / "notebooks" / "source").glob("[0-9]*.py"))
Known = dict[Task, tuple[Measurement, Run]]
FEW: dict[str, Any] = {"least_samples": 4, "most_samples": 12, "budget_s": 0.1}


@pytest.fixture(scope="module")
def known() -> Known:
    return {}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_it_runs_live(
    source: Path, known: Known, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = source.read_text(encoding="utf-8")
    if re.search(r"^# %%\w", text, re.MULTILINE):
        pytest.skip("cell magic needs IPython")
    if re.search(r"\blab\b", text):
        pytest.importorskip("ipywidgets", reason="this notebook shows the panel")
    monkeypatch.setattr(measure, "carry_out", partial(quick, measure.carry_out, known))
    monkeypatch.delenv("WORKLOG_SOURCE", raising=False)
    monkeypatch.chdir(tmp_path)
    assert "live · " in run_cells(text, capsys)


def quick(
    carry_out: Callable[..., Run],
    known: Known,
    tasks: Sequence[Task],
    harness: Harness,
    *,
    progress: Progress,
    **how: Any,
) -> Run:
    """A run of few samples. What an earlier notebook has measured is not measured again."""
    few = [replace(task, changed=tuple(item for item in task.changed if item[0] not in FEW)) for task in tasks]
    if how.get("user_kernels"):
        return carry_out(few, harness.but(**FEW), progress=progress, **how)
    if missing := [task for task in few if task not in known]:
        run = carry_out(missing, harness.but(**FEW), progress=progress, **how)
        known.update({task: (m, run) for task, m in zip(missing, run.measurements, strict=True)})
    runs = [known[task][1] for task in few]
    described = {name: words for run in runs for name, words in run.kernels.items()}
    return replace(runs[0], measurements=[known[task][0] for task in few], kernels=described)
