"""Clocks are held while asked for and given back whatever happens to the process; a fake NVML, never a real lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest import approx

from tests.harness import fake_nvml
from tests.virtual.gpu import REFERENCE_MHZ, VirtualGpu
from tests.virtual.session import timed
from worklog.errors import BadSetting
from worklog.gpu import clock_lock
from worklog.gpu.clock_lock import ClocksNotLocked, clocks_as_requested, locked_clocks
from worklog.harness import Harness
from worklog.harness.sampling import off_the_lock

AS_FOUND = {"sm": None, "memory": None, "persistence": 0}
CHILD = """
import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in a shell's background ignores it, by inheritance
from tests.harness import fake_nvml
from worklog.gpu.clock_lock import locked_clocks
with fake_nvml.pretended(), locked_clocks():
    print("locked", flush=True)
"""


@pytest.fixture(autouse=True)
def nvml(tmp_path: Path) -> Iterator[None]:
    with fake_nvml.pretended(tmp_path / "nvml.json"):
        yield


def clocks() -> dict[str, Any]:
    return {name: fake_nvml.state()[name] for name in AS_FOUND}


def eventually(expected: dict[str, Any]) -> bool:
    """Wait for another process to have done its work; generous, since only whether it does counts."""
    for _ in range(600):
        if clocks() == expected:
            return True
        time.sleep(0.05)
    return False


def children(process: int | str) -> set[int]:
    """The processes that this one has started: its guard."""
    return {int(word) for path in Path(f"/proc/{process}/task").glob("*/children") for word in path.read_text().split()}


def child(then: str = "time.sleep(600)") -> subprocess.Popen[str]:
    """A process that holds the clocks, and then does something."""
    command = [sys.executable, "-c", f"{CHILD}    {then}\n"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert started.stdout is not None and started.stdout.readline() == "locked\n"
    return started


def held(asked: str) -> tuple[str, list[str]]:
    with clocks_as_requested(asked) as found:
        return found


def test_clocks_are_held_at_a_sustainable_supported_pair_and_given_back() -> None:
    with locked_clocks() as (name, remarks):
        assert (name, remarks) == ("locked:1770", ["clocks locked to 1770 MHz SM, 3201 MHz memory"])
        assert clocks() == {"sm": 1770, "memory": 3201, "persistence": 1}
    assert clocks() == AS_FOUND
    fake_nvml.write(persistence=1)
    with locked_clocks(345) as (name, _):
        assert (name, clocks()["sm"]) == ("locked:345", 345)
    assert clocks() == AS_FOUND | {"persistence": 1}, "as it was before"


REFUSED = ["lock sm", "lock memory", "persistence", "reset sm", "reset memory"]


@pytest.mark.parametrize(
    ("state", "holds", "words"),
    [
        ({"refuses": REFUSED}, "watched", "Insufficient Permissions"),
        ({"refuses": REFUSED}, "watched", "run as root"),
        ({"refuses": ["lock memory", "reset memory"]}, "locked:1770", "memory clock not locked"),
        ({"memories": []}, "watched", "no supported clocks"),
        ({"clocks": []}, "watched", "no supported clocks"),
    ],
)
def test_clocks_that_cannot_be_locked_stay_and_the_reason_is_said(
    state: dict[str, Any], holds: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    fake_nvml.write(**state)
    name, remarks = held("locked")
    assert name == holds and words in remarks[-1]
    assert clocks() == AS_FOUND
    assert capfd.readouterr().err == "", "what was never locked need not be given back"


@pytest.mark.parametrize("asked", ["watched", "locked", "ignored"])
def test_another_process_s_lock_is_reported_and_left_alone(asked: str) -> None:
    fake_nvml.write(reasons=0x2, sm=1500)
    name, remarks = held(asked)
    assert name == asked.replace("locked", "watched")
    assert [words.startswith("clocks: held already, at 1500 MHz") for words in remarks] == [True] * (asked != "ignored")
    assert clocks() == AS_FOUND | {"sm": 1500}
    assert not {"reset sm", "lock sm"} & set(fake_nvml.state()["calls"])


def test_clocks_that_cannot_be_given_back_are_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    """Named one by one: a memory clock that was never locked is not among them."""
    fake_nvml.write(refuses=["lock memory", "reset memory"])
    only_sm = r"not given back \(SM clock: Insufficient Permissions\): run nvidia-smi -rgc"
    with pytest.raises(ClocksNotLocked, match=only_sm), locked_clocks():
        fake_nvml.write(refuses=["lock memory", "reset memory", "reset sm"])
    assert "clocks not given back: SM clock" in capfd.readouterr().err


@pytest.mark.parametrize("raised", [ZeroDivisionError, KeyboardInterrupt])
def test_a_failed_measurement_keeps_its_error_and_the_guard_reports_the_clocks(
    raised: type[BaseException], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(raised), clocks_as_requested("locked"):
        fake_nvml.write(refuses=["reset sm"])
        raise raised
    assert "clocks not given back: SM clock" in capfd.readouterr().err
    assert clocks() == AS_FOUND | {"sm": 1770}, "the others are given back"


def test_a_lock_that_the_gpu_ignores_is_not_called_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_lock, "SETTLES_S", 0.01)
    fake_nvml.write(runs_at=1980)
    name, (reason,) = held("locked")
    assert name == "watched" and "runs at 1980 MHz" in reason
    assert clocks() == AS_FOUND


def test_a_clock_that_the_gpu_lacks_is_a_mistake() -> None:
    with pytest.raises(BadSetting, match=r"SM clock 1790 MHz .* nearest is 1785 MHz"):
        held("locked:1790")


@pytest.mark.parametrize("refuses", ["init", "reasons"])
def test_where_nvml_cannot_be_read_clocks_are_watched_and_only_a_wanted_lock_says_why(refuses: str) -> None:
    fake_nvml.write(refuses=[refuses], reasons=0x2)
    assert held("watched") == ("watched", [])
    name, (reason,) = held("locked")
    assert name == "watched" and "watched instead" in reason
    calls = fake_nvml.state()["calls"]
    assert calls.count("init") == calls.count("shutdown")


@pytest.mark.parametrize(("asked", "reason"), [("watched", None), ("ignored", None), ("locked", "no GPU")])
def test_clocks_are_only_locked_on_request(monkeypatch: pytest.MonkeyPatch, asked: str, reason: str | None) -> None:
    monkeypatch.setattr(clock_lock, "gpu_reason", lambda: reason)
    assert held(asked) == (asked, [])
    assert not {"lock sm", "lock memory", "persistence"} & set(fake_nvml.state()["calls"])


def test_the_clocks_are_locked_for_the_tasks_that_ask_for_it() -> None:
    """And locked only once while they stay the same, and given back for the next task that does not."""
    with clock_lock.switchable_clocks() as hold:
        found = [(hold(asked)[0], fake_nvml.state()["sm"]) for asked in ("watched", "locked", "locked:1770", "watched")]
    assert found == [("watched", None), ("locked:1770", 1770), ("locked:1770", 1770), ("watched", None)]
    assert fake_nvml.state()["calls"].count("lock sm") == 1


def test_a_killed_guard_does_not_disturb_the_end() -> None:
    before = children("self")
    with locked_clocks():
        (guard,) = children("self") - before
        os.kill(guard, signal.SIGKILL)
        os.waitid(os.P_PID, guard, os.WEXITED | os.WNOWAIT)
    assert clocks() == AS_FOUND


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_guard_outlives_what_is_sent_to_the_process_and_to_itself(number: signal.Signals) -> None:
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


def test_a_child_that_holds_the_pipe_of_the_guard_does_not_keep_the_lock() -> None:
    process = child("(pid := os.fork()) and (print(pid, flush=True), os._exit(3)); time.sleep(60)")
    assert process.stdout is not None
    grandchild = int(process.stdout.readline())
    process.wait()
    assert eventually(AS_FOUND)
    os.kill(grandchild, signal.SIGKILL)
    process.stdout.close()


@pytest.mark.parametrize(("at", "said"), [(2000, None), (1395, "ran at 2000 MHz")])
def test_samples_at_another_clock_than_the_lock_are_said(at: int, said: str | None) -> None:
    found = off_the_lock(f"locked:{at}", timed(VirtualGpu()).reading.sm_mhz)
    assert found == said or (said is not None and said in (found or ""))


def test_samples_under_a_lock_are_still_watched() -> None:
    warmup = 2 * timed(VirtualGpu()).reading.warmup_launches + 2
    gpu = VirtualGpu(slow_launches=range(warmup, warmup + 20), slow_mhz=REFERENCE_MHZ / 1.25)
    result = timed(gpu, Harness().but(clocks="locked"))
    assert result.time.value == approx(50.0, rel=1e-3)
    assert any(not sample.counts for sample in result.reading.subject)
