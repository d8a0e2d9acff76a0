"""Clocks are locked while needed and reset, whatever happens to the process.

A fake NVML, never a real lock. In a run and in worklog.time, the label names the clock.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from pytest import approx

import worklog
from tests.harness import fake_nvml
from tests.virtual.gpu import REFERENCE_MHZ, VirtualGpu
from tests.virtual.machine import Machine
from tests.virtual.session import (
    CALIBRATION,
    VirtualSession,
    launches_of_warm_up,
    session_on,
    timed,
)
from worklog.errors import BadSetting, ClocksNotLocked
from worklog.gpu.clocks import SETTLES_S, Clocks, locked_clocks
from worklog.harness import Harness
from worklog.harness.sampling import off_the_lock
from worklog.kernel import Kernel
from worklog.kernel.device import Runnable
from worklog.runner import timing, worker
from worklog.runner.job import product_job
from worklog.runner.messages import MeasureOrder, Message
from worklog.runs import CUBLAS, Run, read_line

AS_FOUND = {"sm": None, "memory": None, "persistence": 0}
LOCKS = {"lock sm", "lock memory", "persistence"}
REFUSED = [*LOCKS, "reset sm", "reset memory"]
WATCHED = "watched instead"
CHILD = """
import os, signal, time
# A job in a shell's background ignores it, by inheritance.
signal.signal(signal.SIGINT, signal.default_int_handler)
from tests.harness import fake_nvml
from worklog.gpu.clocks import locked_clocks
with fake_nvml.pretended(), locked_clocks():
    print("locked", flush=True)
"""


@pytest.fixture(autouse=True)
def nvml(tmp_path):
    with fake_nvml.pretended(tmp_path / "nvml.json"):
        yield


def clocks() -> dict[str, Any]:
    return {name: fake_nvml.state()[name] for name in AS_FOUND}


def eventually(expected: dict[str, Any]) -> bool:
    """Wait for another process to have done its work.

    Generous, since only whether it does counts.
    """
    for _ in range(600):
        if clocks() == expected:
            return True
        time.sleep(0.05)
    return False


def children(process: int | str) -> set[int]:
    """Return the processes that this one has started: its guard."""
    return {
        int(word)
        for path in Path(f"/proc/{process}/task").glob("*/children")
        for word in path.read_text().split()
    }


def child(then: str = "time.sleep(600)") -> subprocess.Popen[str]:
    """Start a process that locks the clocks, and then does something."""
    command = [sys.executable, "-c", f"{CHILD}    {then}\n"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert started.stdout is not None and started.stdout.readline() == "locked\n"
    return started


def test_clocks_are_held_at_a_sustainable_supported_pair_and_given_back():
    with locked_clocks() as (name, remarks):
        assert (name, remarks) == ("locked:1770", ["clocks locked to 1770 MHz SM, 3201 MHz memory"])
        assert clocks() == {"sm": 1770, "memory": 3201, "persistence": 1}
    assert clocks() == AS_FOUND
    fake_nvml.write(persistence=1)
    with locked_clocks(345) as (name, _):
        assert (name, clocks()["sm"]) == ("locked:345", 345)
    assert clocks() == AS_FOUND | {"persistence": 1}, "as it was before"


@pytest.mark.parametrize(
    ("asked", "state", "holds", "words"),
    [
        (
            "locked",
            {"refuses": REFUSED},
            "watched",
            ("Insufficient Permissions", "run as root", WATCHED),
        ),
        (
            "locked",
            {"refuses": ["lock memory", "reset memory"]},
            "locked:1770",
            ("memory clock not locked",),
        ),
        ("locked", {"clocks": []}, "watched", ("no supported clocks",)),
        ("locked", {"reasons": 0x2, "sm": 1500}, "watched", ("clocks: held already, at 1500 MHz",)),
        (
            "watched",
            {"reasons": 0x2, "sm": 1500},
            "watched",
            ("clocks: held already, at 1500 MHz",),
        ),
        ("ignored", {"reasons": 0x2, "sm": 1500}, "ignored", ()),
        (
            "locked",
            {"runs_at": 1980},
            "watched",
            ("the GPU runs at 1980 MHz: the lock did not take", WATCHED),
        ),
        *(("locked", {"refuses": [call]}, "watched", (WATCHED,)) for call in ("init", "reasons")),
        *(
            ("watched", {"refuses": [call], "reasons": 0x2}, "watched", ())
            for call in ("init", "reasons")
        ),
        ("watched", {}, "watched", ()),
    ],
)
def test_clocks_that_are_not_locked_stay_and_the_reason_is_said(
    asked, state, holds, words, monkeypatch, capfd
):
    monkeypatch.setattr("worklog.gpu.clocks.SETTLES_S", 0.01)
    fake_nvml.write(**state)
    with Clocks() as held:
        name, remarks = held.hold(asked)
        assert name == holds and len(remarks) == bool(words) + (holds == "locked:1770")
        assert all(word in remarks[-1] for word in words)
    assert clocks() == AS_FOUND | {"sm": state.get("sm")}
    assert capfd.readouterr().err == "", "what was never locked need not be given back"
    calls = fake_nvml.state()["calls"]
    assert calls[-1:] in ([], ["shutdown"])
    assert asked == "locked" or not LOCKS & set(calls)
    assert "sm" not in state or not {"reset sm", "lock sm"} & set(calls), (
        "another process's lock is left alone"
    )


def test_without_a_gpu_nothing_is_locked(monkeypatch):
    monkeypatch.setattr("worklog.gpu.clocks.gpu_reason", lambda: "no GPU")
    with Clocks() as held:
        assert held.hold("locked") == ("locked", []) and fake_nvml.state()["calls"] == []


@pytest.mark.parametrize("raised", [None, ZeroDivisionError, KeyboardInterrupt])
def test_clocks_that_cannot_be_given_back_are_an_error_that_hides_no_other(raised, capfd):
    """Named one by one: a memory clock that was never locked is not among them."""
    fake_nvml.write(refuses=["lock memory", "reset memory"])
    only_sm = r"not given back \(SM clock: Insufficient Permissions\): run nvidia-smi -rgc"
    with (
        pytest.raises(raised or ClocksNotLocked, match=None if raised else only_sm),
        Clocks() as held,
    ):
        held.hold("locked")
        fake_nvml.write(refuses=["lock memory", "reset memory", "reset sm"])
        if raised:
            raise raised
    assert "clocks not given back: SM clock" in capfd.readouterr().err
    assert clocks() == AS_FOUND | {"sm": 1770}, "the others are given back"


def test_the_clocks_are_locked_for_the_tasks_that_ask_for_it():
    """Locked only once while they stay the same, and reset for the next task without."""
    with Clocks() as held:
        hold = held.hold
        found = [
            (hold(asked)[0], fake_nvml.state()["sm"])
            for asked in ("watched", "locked", "locked:1770", "watched")
        ]
        assert found == [
            ("watched", None),
            ("locked:1770", 1770),
            ("locked:1770", 1770),
            ("watched", None),
        ]
        assert fake_nvml.state()["calls"].count("lock sm") == 1
        hold("locked")
        with pytest.raises(BadSetting, match=r"SM clock 1790 MHz .* nearest is 1785 MHz"):
            hold("locked:1790")
        assert (hold("locked")[0], fake_nvml.state()["sm"]) == ("locked:1770", 1770), "locked again"


def test_what_a_killed_guard_held_is_given_back():
    before = children("self")
    with locked_clocks():
        (guard,) = children("self") - before
        os.kill(guard, signal.SIGKILL)
        os.waitid(os.P_PID, guard, os.WEXITED | os.WNOWAIT)
    assert clocks() == AS_FOUND


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_guard_outlives_what_is_sent_to_the_process_and_to_itself(number):
    process = child()
    assert clocks()["sm"] == 1770
    (guard,) = children(process.pid)
    assert os.getsid(guard) != os.getsid(process.pid)
    for to_the_guard in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guard, to_the_guard)
    os.killpg(process.pid, number)
    process.communicate()
    assert process.returncode != 0
    assert clocks() == AS_FOUND if number == signal.SIGINT else eventually(AS_FOUND)


def test_a_child_that_holds_the_pipe_of_the_guard_does_not_keep_the_lock():
    process = child("(pid := os.fork()) and (print(pid, flush=True), None) or time.sleep(60)")
    grandchild = int(process.stdout.readline())
    process.wait()
    assert eventually(AS_FOUND)
    os.kill(grandchild, signal.SIGKILL)
    process.stdout.close()


def test_samples_under_a_lock_are_still_watched():
    first = launches_of_warm_up()
    gpu = VirtualGpu(slow_launches=range(first, first + 20), slow_mhz=REFERENCE_MHZ / 1.25)
    reading = timed(gpu, Harness().but(clocks="locked")).reading
    assert not all(reading.samples.counts)
    assert off_the_lock("locked:2000", reading.samples.sm_mhz) is None
    assert "ran at 2000 MHz" in str(off_the_lock("locked:1395", reading.samples.sm_mhz))


SHORT = Harness().but(
    most_samples=4, least_samples=2, budget_s=1.0, precision=0.2, warmup="count:1"
)


class LockableSession(VirtualSession):
    """Every kernel is the library's product, and its samples run at the clock that NVML states."""

    def __init__(self, brought: Mapping[str, Kernel]) -> None:
        super().__init__(Machine(), *brought.values())
        self.timeline.clock = lambda now: fake_nvml.sm_mhz()

    def load(self, name: str) -> Runnable:
        return self.baselines["fp32"]

    def describe(self, name: str) -> dict[str, Any]:
        return {}


def of_run(clocks: str) -> tuple[str, str]:
    """Return the label of a measurement in a run, and its degradations."""
    jobs = [product_job(CUBLAS, 64)]
    order = MeasureOrder(jobs=jobs, harness=SHORT.but(clocks=clocks), user_kernels={})
    messages: list[Message] = []
    worker.answer(order, SimpleNamespace(send=messages.append), LockableSession)
    started, _, measured, _ = messages
    run = Run.begin(started.head, Path("run.jsonl"))
    run.add(read_line(measured.line))
    (m,) = run.measurements
    return m.label, str([run.notes, m.degradations])


def of_time(clocks: str) -> tuple[str, str]:
    """Return the same of a call that worklog.time measures in this process."""
    virtual = VirtualGpu(clock=lambda now: fake_nvml.sm_mhz())
    with mock.patch.object(timing, "own_session", lambda: session_on(virtual, CALIBRATION)):
        timed = worklog.time(virtual.kernel(50.0), harness=Harness(clocks=clocks))
    return timed.label, str(timed.degradations)


@pytest.mark.parametrize(
    ("clocks", "mhz"), [("locked:1395", 1395), ("locked", 1770), ("locked", None)]
)
@pytest.mark.parametrize("door", [of_run, of_time])
def test_the_clocks_are_locked_while_it_measures_and_the_label_states_at_what(
    door, clocks, mhz, monkeypatch, tmp_path
):
    """Or why they can't be; without a number at a clock that lasts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(timing, "require_gpu", lambda: None)
    fake_nvml.write(refuses=[] if mhz else ["lock sm"])
    label, degraded = door(clocks)
    if mhz:
        assert f"clocks locked at {mhz} MHz" in label and "lock sm" in fake_nvml.state()["calls"]
    else:
        assert "clocks as found" in label and "locked at" not in label and "run as root" in degraded
    assert fake_nvml.state()["sm"] is fake_nvml.state()["memory"] is None, "they are given back"


def test_it_sleeps_while_the_clocks_settle_and_only_so_long(monkeypatch):
    fake_nvml.write(runs_at=1980)
    now = [0.0]
    slept = list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    def monotonic() -> float:
        now[0] += 1e-4  # a query of the clock
        return now[0]

    monkeypatch.setattr(
        "worklog.gpu.clocks.time", SimpleNamespace(sleep=sleep, monotonic=monotonic)
    )
    with pytest.raises(ClocksNotLocked, match="the lock did not take"), locked_clocks(345):
        pass
    assert 10 <= len(slept) <= 40 and sum(slept) == approx(SETTLES_S, rel=0.1)
