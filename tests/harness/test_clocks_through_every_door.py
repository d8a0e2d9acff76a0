"""The clocks setting through every command and function that takes it: the lock is held while measuring and given back,
and the label states what was held.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner

import worklog
from tests.harness import fake_nvml
from tests.helpers import SIGNATURE
from tests.virtual.gpu import VirtualGpu
from tests.virtual.machine import Machine
from tests.virtual.session import CALIBRATION, VirtualSession, session_on
from worklog.cli.commands import main
from worklog.harness import Harness
from worklog.kernel import Kernel
from worklog.kernel.device import Subject
from worklog.lab.panel_answer import PanelChoice
from worklog.plots import Drawn
from worklog.problem.gemm import Shape
from worklog.runner import job, timing
from worklog.runner import measure as bench
from worklog.runner.tasks import BASELINE, Task

SHORT = {"most_samples": 4, "least_samples": 2, "budget_s": 1.0, "precision": 0.2, "warmup": "count:1"}
QUICK = [word for name, value in SHORT.items() for word in ("--set", f"{name}={value}")]
SHAPE = Shape.of(64)


@pytest.fixture(autouse=True)
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("runner.measure", "gpu.device", "runner.timing"):
        monkeypatch.setattr(f"worklog.{name}.require_gpu", lambda *_: None, raising=False)
    for name in ("runner.session", "runner.check", "runner.sweep", "gpu.device"):
        monkeypatch.setattr(f"worklog.{name}.gpu", lambda: fake_nvml.GPU)
    for name, pretended in {
        "runner.measure.run_child": in_this_process,
        "runner.measure.gpu_reason": lambda: None,
        "runner.session.Session": lambda: SimpleNamespace(calibration=calibration()),
        "runner.tasks.article_tasks": lambda: [Task(BASELINE, SHAPE)],
        "plots.draw_all": lambda *_: Drawn(),
    }.items():
        monkeypatch.setattr(f"worklog.{name}", pretended)
    with fake_nvml.pretended(tmp_path / "nvml.json"):
        yield


class LockableSession(VirtualSession):
    """Every kernel is the library's product, and its samples run at the clock that NVML states."""

    def __init__(self, brought: Mapping[str, Kernel]) -> None:
        super().__init__(Machine(), *brought.values())
        self.timeline.clock = lambda now: fake_nvml.sm_mhz()  # type: ignore[attr-defined]

    def subject(self, name: str) -> Subject:
        return self.baselines["fp32"]

    def describe(self, name: str) -> dict[str, Any]:
        return {}


def calibration() -> Any:
    return replace(CALIBRATION, sm_mhz=fake_nvml.sm_mhz())


def in_this_process(order: dict[str, Any], take: Callable[[Any], object], *_: Any, **__: Any) -> SimpleNamespace:
    """As worklog.runner.child.run_child, without the process."""
    kinds: list[str] = []

    def say(kind: str, **words: Any) -> None:
        kinds.append(kind)
        if kind != "progress":
            take(json.loads(json.dumps({"is": kind, **words})))

    job.measure(order, say, LockableSession)  # type: ignore[arg-type]
    return SimpleNamespace(kind=kinds[-1])


Said = tuple[str, str]  # the label, and what was degraded
Door = Callable[[str], Said]


def of_run(run: worklog.Run) -> Said:
    assert {m.status for m in run.measurements} == {"measured"}, run.measurements
    return run.measurements[-1].label, str([run.notes, run.measurements[-1].degradations])


def of_command(*words: str) -> Door:
    """A command that writes a run file, or prints what it measured."""

    def ask(clocks: str) -> Said:
        quick = QUICK if words[0] != "doctor" else []
        command = [*words, "--set", f"clocks={clocks}", *quick, "--json"]
        done = CliRunner().invoke(main, command, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        document = json.loads(done.stdout)
        if "path" in document:
            return of_run(worklog.open_run(Path(document["path"])))
        return document["label"], str(document["remarks"])

    return ask


def ablate(clocks: str) -> Said:
    found = worklog.ablate(BASELINE, [64], harness=Harness(clocks=clocks, **SHORT))
    assert any(m.changed.get("clocks") == "ignored" for m in found.measurements)
    return of_run(replace(found, measurements=found.measurements[:1]))


def cell(clocks: str) -> Said:
    source = f'extern "C" __global__ void mine({SIGNATURE}) {{}}'
    found = worklog.try_kernel(source, shapes=[64], beside=[], harness=Harness(clocks=clocks, **SHORT)).run
    assert found is not None
    return of_run(found)


def panel(clocks: str) -> Said:
    (_, task) = PanelChoice([], "naive", SHAPE, clocks=clocks).tasks()
    return of_run(bench.carry_out([Task(task.kernel, task.shape, (*task.changed, *SHORT.items()))], Harness()))


def time(clocks: str) -> Said:
    virtual = VirtualGpu(clock=lambda now: fake_nvml.sm_mhz())
    with mock.patch.object(timing, "own_session", lambda: session_on(virtual, CALIBRATION)):
        found = worklog.time(virtual.kernel(50.0), harness=Harness(clocks=clocks))
    return found.label, str(found.degradations)


DOORS: dict[str, Door] = {
    "results": lambda clocks: of_run(worklog.results([BASELINE], [64], clocks=clocks, **SHORT)),
    "run": of_command("run", BASELINE, "--size", "64"),
    "ablate": ablate,
    "article": of_command("article", "--out", "drawn", "--readme", "none.md"),
    "sweep": of_command("sweep", "tiles_2d", "--axis", "BM=64", "--size", "128"),
    "calibrate": of_command("doctor", "--calibrate"),
    "cell": cell,
    "panel": panel,
    "time": time,
}


@pytest.mark.parametrize(
    ("door", "clocks", "mhz"),
    [
        *((door, "locked:1395", 1395) for door in DOORS),
        *((door, "locked", 1770) for door in ("run", "calibrate")),
        *((door, "locked", None) for door in ("run", "calibrate", "panel", "time")),
    ],
)
def test_the_clocks_are_locked_while_it_measures_and_the_label_states_at_what(
    door: str, clocks: str, mhz: int | None
) -> None:
    """Or why they can't be; without a number at a clock that lasts."""
    fake_nvml.write(refuses=[] if mhz else ["lock sm"])
    label, degraded = DOORS[door](clocks)
    if mhz:
        assert f"clocks locked at {mhz} MHz" in label and "lock sm" in fake_nvml.state()["calls"]
    else:
        assert "clocks as found" in label and "locked at" not in label and "run as root" in degraded
    assert fake_nvml.state()["sm"] is fake_nvml.state()["memory"] is None, "they are given back"
