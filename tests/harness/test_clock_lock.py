"""Clocks are held while asked for and given back whatever happens to the process; a fake NVML, never a real lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from pytest import approx

from tests.harness import fake_nvml
from tests.harness.reading import timed
from tests.harness.virtual import REFERENCE_MHZ, VirtualGpu
from worklog.errors import BadSetting
from worklog.gpu import clock_lock
from worklog.gpu.clock_lock import ClocksNotLocked, LockedClocks, found_held, locked_clocks
from worklog.harness import Harness
from worklog.harness.sampling import off_the_lock

ROOT = Path(__file__).parents[2]
AS_FOUND = {"sm": None, "memory": None, "persistence": 0}

CHILD = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in a shell's background ignores it, by inheritance
sys.path.insert(0, {root!r})
from tests.harness import fake_nvml
from worklog.gpu.clock_lock import locked_clocks
with locked_clocks(on=fake_nvml.GPU, bus_id="0000:01:00.0", nvml=fake_nvml):
    print("locked", flush=True)
    {then}
"""


@pytest.fixture(autouse=True)
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FAKE_NVML", str(tmp_path / "nvml.json"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    fake_nvml.write(**fake_nvml.START)
    yield


def lock(sm_mhz: int | None = None, memory_mhz: int | None = None) -> AbstractContextManager[LockedClocks]:
    return locked_clocks(sm_mhz, memory_mhz, on=fake_nvml.GPU, bus_id="0000:01:00.0", nvml=fake_nvml)


def clocks() -> dict[str, Any]:
    return {name: fake_nvml.state()[name] for name in AS_FOUND}


def eventually(expected: dict[str, Any]) -> bool:
    """Wait for another process to have done its work; generous, since only whether it does counts."""
    for _ in range(300):
        if clocks() == expected:
            return True
        time.sleep(0.1)
    return False


def guards() -> list[int]:
    """The processes that this one has started."""
    return [int(word) for path in Path("/proc/self/task").glob("*/children") for word in path.read_text().split()]


def child(then: str) -> subprocess.Popen[str]:
    code = CHILD.format(root=str(ROOT), then=then)
    started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "locked\n"
    return started


def test_clocks_are_held_at_a_sustainable_supported_pair_and_given_back() -> None:
    with lock() as locked:
        assert (locked.sm_mhz, locked.memory_mhz) == (1770, 3201)
        assert clocks() == {"sm": 1770, "memory": 3201, "persistence": 1}
    assert clocks() == AS_FOUND


def test_the_peaks_are_those_at_the_locked_clock() -> None:
    with lock() as locked:
        assert locked.fp32_peak_tflops == approx(132 * 128 * 2 * 1770e6 / 1e12)
        assert locked.memory_peak_gbs == approx(fake_nvml.GPU.memory_peak_gbs)
    with lock(memory_mhz=1593) as locked:
        assert locked.memory_peak_gbs == approx(fake_nvml.GPU.memory_peak_gbs * 1593 / 3201)


def test_a_clock_can_be_asked_for_but_only_a_supported_one() -> None:
    with lock(sm_mhz=345) as locked:
        assert locked.sm_mhz == 345
    with pytest.raises(BadSetting, match=r"SM clock 1795 MHz .* nearest is 1800 MHz"), lock(sm_mhz=1795):
        pass
    assert clocks() == AS_FOUND


@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_gives_them_back(raised: type[BaseException]) -> None:
    with pytest.raises(raised), lock():
        raise raised
    assert clocks() == AS_FOUND


def test_without_permission_nothing_is_changed_and_the_remedy_is_said() -> None:
    fake_nvml.write(refuses=["lock sm", "lock memory", "persistence", "reset sm", "reset memory"])
    with pytest.raises(ClocksNotLocked, match=r"Insufficient Permissions.*run as root"), lock():
        pass
    assert clocks() == AS_FOUND


def test_a_memory_clock_that_cannot_be_locked_is_said() -> None:
    fake_nvml.write(refuses=["lock memory", "reset memory"])
    with lock() as locked:
        assert any("memory clock not locked" in remark for remark in locked.remarks)
    assert clocks() == AS_FOUND


def test_another_process_s_lock_is_reported_and_left_alone() -> None:
    fake_nvml.write(reasons=0x2, sm=1500)
    with pytest.raises(ClocksNotLocked, match="held already, at 1500 MHz"), lock():
        pass
    assert clocks() == {"sm": 1500, "memory": None, "persistence": 0}
    assert "reset sm" not in fake_nvml.state()["calls"]


def test_persistence_mode_that_was_on_stays_on() -> None:
    fake_nvml.write(persistence=1)
    with lock():
        pass
    assert clocks() == AS_FOUND | {"persistence": 1}


def test_clocks_that_cannot_be_given_back_are_an_error() -> None:
    with pytest.raises(ClocksNotLocked, match=r"not given back .*nvidia-smi -rgc"), lock():
        fake_nvml.write(refuses=["reset sm"])


def test_a_memory_clock_without_a_lock_hides_no_other_that_stays_locked(capfd: pytest.CaptureFixture[str]) -> None:
    fake_nvml.write(refuses=["lock memory", "reset memory"])
    only_sm = r"not given back \(SM clock: Insufficient Permissions\): run nvidia-smi -rgc"
    with pytest.raises(ClocksNotLocked, match=only_sm), lock():
        fake_nvml.write(refuses=["lock memory", "reset memory", "reset sm"])
    assert "clocks not given back: SM clock" in capfd.readouterr().err


def test_what_the_process_cannot_give_back_the_guard_does() -> None:
    with lock():
        fake_nvml.write(refuses=["reset sm"], refuses_only=os.getpid())
    assert clocks() == AS_FOUND


def test_a_failed_measurement_keeps_its_error_and_the_guard_reports_the_clocks(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ZeroDivisionError), lock():
        fake_nvml.write(refuses=["reset sm"])
        raise ZeroDivisionError
    assert "clocks not given back: SM clock" in capfd.readouterr().err


def test_a_lock_that_fails_reports_nothing_about_giving_back(capfd: pytest.CaptureFixture[str]) -> None:
    fake_nvml.write(refuses=["lock sm", "reset sm", "reset memory"])
    with pytest.raises(ClocksNotLocked, match="run as root"), lock():
        pass
    assert clocks() == AS_FOUND
    assert capfd.readouterr().err == ""


def test_a_killed_guard_does_not_disturb_the_end() -> None:
    before = set(guards())
    with lock():
        (guard,) = set(guards()) - before
        os.kill(guard, signal.SIGKILL)
        os.waitid(os.P_PID, guard, os.WEXITED | os.WNOWAIT)
    assert clocks() == AS_FOUND


def test_without_nvml_clocks_are_watched() -> None:
    fake_nvml.write(refuses=["init"])
    with pytest.raises(ClocksNotLocked, match="watched instead"), lock():
        pass


def test_a_killed_process_has_its_clocks_given_back() -> None:
    killed = child("time.sleep(600)")
    assert clocks()["sm"] == 1770
    killed.kill()
    killed.communicate()
    assert eventually(AS_FOUND)


def test_the_guard_outlives_what_is_sent_to_the_process_and_to_itself() -> None:
    process = child("time.sleep(600)")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8").split()
    (guard,) = map(int, children)
    assert os.getsid(guard) != os.getsid(process.pid)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guard, number)
    process.kill()
    process.communicate()
    assert eventually(AS_FOUND)


@pytest.mark.parametrize("lacks", ["memories", "clocks"])
def test_a_gpu_without_supported_clocks_is_watched(lacks: str) -> None:
    fake_nvml.write(**{lacks: []})
    with pytest.raises(ClocksNotLocked, match="no supported clocks"), lock():
        pass


def test_ctrl_c_gives_them_back() -> None:
    interrupted = child("time.sleep(600)")
    os.killpg(interrupted.pid, signal.SIGINT)
    interrupted.communicate()
    assert interrupted.returncode != 0
    assert clocks() == AS_FOUND


def test_a_process_that_exits_at_once_has_its_clocks_given_back() -> None:
    assert child("os._exit(3)").communicate() is not None
    assert eventually(AS_FOUND)


# ------------------------------------------------------------------------------------------------ as a harness setting


def asked_of(monkeypatch: pytest.MonkeyPatch, asked: str, reason: str | None = None) -> tuple[str, list[str]]:
    monkeypatch.setattr(clock_lock, "gpu_reason", lambda: reason)
    monkeypatch.setattr(clock_lock, "locked_clocks", lock)
    monkeypatch.setattr(clock_lock, "found_held", lambda: found_held("0000:01:00.0", fake_nvml))
    with clock_lock.clocks_as_asked(asked) as held:
        return held


def test_locked_clocks_are_noted_with_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked_of(monkeypatch, "locked") == ("locked:1770", ["clocks locked to 1770 MHz SM, 3201 MHz memory"])
    assert asked_of(monkeypatch, "locked:345")[0] == "locked:345"
    assert clocks() == AS_FOUND


def test_a_lock_that_the_gpu_ignores_is_not_called_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_lock, "SETTLES_S", 0.01)
    fake_nvml.write(runs_at=1980)
    held, notes = asked_of(monkeypatch, "locked")
    assert held == "watched" and "runs at 1980 MHz" in notes[0]
    assert clocks() == AS_FOUND


def test_a_clock_that_the_gpu_lacks_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadSetting, match="nearest is 1785 MHz"):
        asked_of(monkeypatch, "locked:1790")


def test_the_clocks_are_locked_for_the_tasks_that_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And locked only once while they stay the same, and given back for the next task that does not."""
    monkeypatch.setattr(clock_lock, "gpu_reason", lambda: None)
    monkeypatch.setattr(clock_lock, "locked_clocks", lock)
    monkeypatch.setattr(clock_lock, "found_held", list)
    with clock_lock.switchable_clocks() as hold:
        held = [(hold(asked)[0], fake_nvml.state()["sm"]) for asked in ("watched", "locked", "locked:1770", "watched")]
    assert held == [("watched", None), ("locked:1770", 1770), ("locked:1770", 1770), ("watched", None)]
    assert fake_nvml.state()["calls"].count("lock sm") == 1


@pytest.mark.parametrize(("at", "said"), [(2000, None), (1395, "ran at 2000 MHz")])
def test_samples_at_another_clock_than_the_lock_are_said(at: int, said: str | None) -> None:
    found = off_the_lock(f"locked:{at}", timed(VirtualGpu()).reading.sm_mhz)
    assert found == said or (said is not None and said in (found or ""))


@pytest.mark.parametrize(("asked", "reason"), [("watched", None), ("ignored", None), ("locked", "no GPU")])
def test_clocks_are_only_locked_on_request(monkeypatch: pytest.MonkeyPatch, asked: str, reason: str | None) -> None:
    assert asked_of(monkeypatch, asked, reason) == (asked, [])
    assert not {"lock sm", "lock memory", "persistence"} & set(fake_nvml.state()["calls"])


def test_another_process_s_lock_is_reported_where_clocks_are_only_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml.write(reasons=0x2, sm=1500)
    held, notes = asked_of(monkeypatch, "watched")
    assert held == "watched"
    assert notes[0].startswith("clocks: held already, at 1500 MHz")
    assert asked_of(monkeypatch, "ignored") == ("ignored", [])
    assert fake_nvml.state()["sm"] == 1500


@pytest.mark.parametrize("refuses", ["init", "reasons"])
def test_clocks_are_watched_without_a_remark_where_nvml_cannot_read_them(
    monkeypatch: pytest.MonkeyPatch, refuses: str
) -> None:
    fake_nvml.write(refuses=[refuses], reasons=0x2)
    assert asked_of(monkeypatch, "watched") == ("watched", [])
    calls = fake_nvml.state()["calls"]
    assert calls.count("init") == calls.count("shutdown")


def test_an_error_of_the_measurement_itself_is_not_taken_for_a_failed_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_lock, "gpu_reason", lambda: None)
    monkeypatch.setattr(clock_lock, "locked_clocks", lock)
    with pytest.raises(ZeroDivisionError), clock_lock.clocks_as_asked("locked"):
        raise ZeroDivisionError
    assert clocks() == AS_FOUND


def test_samples_under_a_lock_are_still_watched() -> None:
    warmup = 2 * timed(VirtualGpu()).reading.warmup_launches + 2
    gpu = VirtualGpu(slow_launches=range(warmup, warmup + 20), slow_mhz=REFERENCE_MHZ / 1.25)
    result = timed(gpu, Harness().but(clocks="locked"))
    assert result.time.value == approx(50.0, rel=1e-3)
    assert any(not sample.counts for sample in result.reading.subject)
