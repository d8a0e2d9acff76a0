"""The clocks setting in a run and in worklog.time: the lock is held while measuring and given back, and the label says
at what.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner

import worklog
from tests.harness import fake_nvml
from tests.virtual.gpu import VirtualGpu
from tests.virtual.machine import Machine
from tests.virtual.session import CALIBRATION, VirtualSession, session_on
from worklog.cli.commands import main
from worklog.harness import Harness
from worklog.kernel import Kernel
from worklog.kernel.device import Runnable
from worklog.runner import timing, worker
from worklog.runner.job import BASELINE

SHORT = {"most_samples": 4, "least_samples": 2, "budget_s": 1.0, "precision": 0.2, "warmup": "count:1"}
QUICK = [word for name, value in SHORT.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(autouse=True)
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("runner.measure", "gpu.device", "runner.timing"):
        monkeypatch.setattr(f"worklog.{name}.require_gpu", lambda *_: None, raising=False)
    for name in ("runner.session", "gpu.device"):
        monkeypatch.setattr(f"worklog.{name}.gpu", lambda: fake_nvml.GPU)
    monkeypatch.setattr("worklog.runner.measure.run_child", in_this_process)
    monkeypatch.setattr("worklog.runner.measure.gpu_reason", lambda: None)
    with fake_nvml.pretended(tmp_path / "nvml.json"):
        yield


class LockableSession(VirtualSession):
    """Every kernel is the library's product, and its samples run at the clock that NVML states."""

    def __init__(self, brought: Mapping[str, Kernel]) -> None:
        super().__init__(Machine(), *brought.values())
        self.timeline.clock = lambda now: fake_nvml.sm_mhz()  # type: ignore[attr-defined]

    def load(self, name: str) -> Runnable:
        return self.baselines["fp32"]

    def describe(self, name: str) -> dict[str, Any]:
        return {}


def in_this_process(order: dict[str, Any], take: Callable[[Any], object], *_: Any, **__: Any) -> SimpleNamespace:
    """As worklog.runner.child.run_child, without the process."""
    kinds: list[str] = []

    def say(kind: str, **words: Any) -> None:
        kinds.append(kind)
        if kind != "progress":
            take(json.loads(json.dumps({"is": kind, **words})))

    worker.measure(order, say, LockableSession)  # type: ignore[arg-type]
    return SimpleNamespace(kind=kinds[-1])


def of_run(clocks: str) -> tuple[str, str]:
    """The label of a measurement that `worklog run` makes, and what it says was degraded."""
    words = ["run", BASELINE, "--size", "64", "--set", f"clocks={clocks}", *QUICK, "--json"]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    run = worklog.open_run(Path(json.loads(done.stdout)["path"]))
    (m,) = run.measurements
    return m.label, str([run.notes, m.degradations])


def of_time(clocks: str) -> tuple[str, str]:
    """The same of a call that worklog.time measures in this process."""
    virtual = VirtualGpu(clock=lambda now: fake_nvml.sm_mhz())
    with mock.patch.object(timing, "own_session", lambda: session_on(virtual, CALIBRATION)):
        timed = worklog.time(virtual.kernel(50.0), harness=Harness(clocks=clocks))
    return timed.label, str(timed.degradations)


@pytest.mark.parametrize(("clocks", "mhz"), [("locked:1395", 1395), ("locked", 1770), ("locked", None)])
@pytest.mark.parametrize("door", [of_run, of_time])
def test_the_clocks_are_locked_while_it_measures_and_the_label_states_at_what(
    door: Callable[[str], tuple[str, str]], clocks: str, mhz: int | None
) -> None:
    """Or why they can't be; without a number at a clock that lasts."""
    fake_nvml.write(refuses=[] if mhz else ["lock sm"])
    label, degraded = door(clocks)
    if mhz:
        assert f"clocks locked at {mhz} MHz" in label and "lock sm" in fake_nvml.state()["calls"]
    else:
        assert "clocks as found" in label and "locked at" not in label and "run as root" in degraded
    assert fake_nvml.state()["sm"] is fake_nvml.state()["memory"] is None, "they are given back"
