"""The notebooks' cells on a GPU, without Jupyter.

They run live from top to bottom, and the value of each cell can be shown. To save time, each
measurement takes few samples and is made once for all notebooks, and a kernel that passed the
gate at one size is not checked at others.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.notebooks.cells import run_cells
from worklog.problem import Shape
from worklog.runner import execute, launches
from worklog.runner.execute import order_of
from worklog.runner.job import Job
from worklog.runner.messages import MeasureOrder
from worklog.runner.session import Session
from worklog.runner.worker import measure_job
from worklog.runs import Measurement, Run, Verdict
from worklog.runs.sources import new_path

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
# A long one and a short one in turn: at first each of six workers gets two in a row.
ORDER = "10 17 09 03 06 13 14 00 08 02 05 12 04 01 07 11 15 16"
SOURCES = sorted(
    (NOTEBOOKS / "source").glob("[0-9]*.py"), key=lambda path: ORDER.find(path.stem[:2])
)
SMALL = Shape.of(512)
FEW: dict[str, Any] = {
    "least_samples": 16,
    "most_samples": 24,
    "budget_s": 0.1,
}  # on a GPU that others use


class CheckedOnce(Session):
    """Checks kernels at a small size only, with matrices of their own."""

    def __init__(self, *known: Any) -> None:
        super().__init__(*known)
        self.checked = Session(*known)

    def verdict(self, name: str, shape: Shape, gate: bool | str = True) -> Verdict:
        """Return the verdict at the small size."""
        return self.checked.verdict(name, self.checked.load(name).domain.padded(SMALL), gate)


@pytest.fixture(scope="module")
def quick_session(session):
    return CheckedOnce({}, session.calibration)


@pytest.fixture(scope="module")
def known():
    return {}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_it_runs_live(source, quick_session, known, tmp_path, monkeypatch, capsys):
    text = source.read_text(encoding="utf-8")
    if re.search(r"^# %%\w", text, re.MULTILINE):
        pytest.skip("cell magic needs IPython")
    if re.search(r"\blab\b", text):
        pytest.importorskip("ipywidgets", reason="this notebook shows the panel")
    monkeypatch.setattr(
        execute, "carry_out", partial(quick, quick_session, known, execute.carry_out)
    )
    monkeypatch.setattr(launches, "POOL_BYTES", 2**30)  # the others need memory too
    monkeypatch.delenv("WORKLOG_SOURCE", raising=False)
    (tmp_path / "examples").symlink_to(NOTEBOOKS / "examples")
    monkeypatch.syspath_prepend(NOTEBOOKS)
    monkeypatch.chdir(tmp_path)
    labels = ("live · ",) if "worklog.results(" in text else ("emulated · ", "recorded · ")
    shown = run_cells(text, capsys)
    assert any(label in shown for label in labels)


def quick(
    session: Session,
    known: dict[Job, Measurement],
    carry_out: Callable[..., Run],
    order: MeasureOrder,
    **how: Any,
) -> Run:
    """Return a run of few samples, measured in this process but for Python functions."""
    user_kernels = [*order.user_kernels.values()]
    few = []
    for task in order.jobs or ():
        changed = tuple(item for item in task.changed if item[0] not in FEW)
        few.append(replace(task, changed=changed))
    used = order.harness.but(**FEW)
    are_products = all(task.point.is_product for task in few)
    if any(kernel.host for kernel in user_kernels) or not are_products:
        return carry_out(order_of(few, used, user_kernels), **how)
    if user_kernels:
        session, known = (
            CheckedOnce({one.name: one for one in user_kernels}, session.calibration),
            dict(known),
        )
    run = Run(**session.head(used, []), complete=True)
    for task in few:
        if task not in known:
            known[task] = measure_job(session, task, used)
            assert user_kernels or known[task].status != "failed", known[task]
        run.kernels.setdefault(task.kernel, session.describe(task.kernel))
        run.add(known[task])
    run.save(how.get("out") or new_path(run.created))
    return run
