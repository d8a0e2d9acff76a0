"""The notebooks' cells on a GPU, without Jupyter: they run live from top to bottom, and the value of each cell can be
shown. To save time, each measurement takes few samples, and is made once for all notebooks.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.notebooks.cells import run_cells
from worklog.harness import Harness
from worklog.kernel import Kernel
from worklog.runner import measure
from worklog.runner.session import Session, attempt
from worklog.runner.tasks import Task
from worklog.runs.measurement import Measurement
from worklog.runs.run import Run, new_path

SOURCES = sorted((Path(__file__).resolve().parents[2] / "notebooks" / "source").glob("[0-9]*.py"))
FEW: dict[str, Any] = {"least_samples": 4, "most_samples": 12, "budget_s": 0.1}


@pytest.fixture(scope="module")
def known() -> dict[Task, Measurement]:
    return {}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_it_runs_live(
    source: Path,
    session: Session,
    known: dict[Task, Measurement],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = source.read_text(encoding="utf-8")
    if re.search(r"^# %%\w", text, re.MULTILINE):
        pytest.skip("cell magic needs IPython")
    if re.search(r"\blab\b", text):
        pytest.importorskip("ipywidgets", reason="this notebook shows the panel")
    monkeypatch.setattr(measure, "carry_out", partial(quick, session, known, measure.carry_out))
    monkeypatch.delenv("WORKLOG_SOURCE", raising=False)
    (tmp_path / "examples").symlink_to(SOURCES[0].parents[1] / "examples")
    monkeypatch.chdir(tmp_path)
    assert "live · " in run_cells(text, capsys)


def quick(
    session: Session,
    known: dict[Task, Measurement],
    carry_out: Callable[..., Run],
    tasks: Sequence[Task],
    harness: Harness,
    *,
    user_kernels: Sequence[Kernel] = (),
    **how: Any,
) -> Run:
    """A run of few samples, measured in this process."""
    few = [replace(task, changed=tuple(item for item in task.changed if item[0] not in FEW)) for task in tasks]
    used = harness.but(**FEW)
    if user_kernels:
        return carry_out(few, used, user_kernels=user_kernels, **how)
    run = Run(**session.head(used, []), complete=True)
    for task in few:
        if task not in known:
            known[task] = attempt(session, task, used)
        run.kernels.setdefault(task.kernel, session.describe(task.kernel))
        run.add(known[task])
    run.save(new_path(run.device["name"], run.created, secrets.token_hex(2)))
    return run
