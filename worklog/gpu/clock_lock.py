"""Locks the clocks during a measurement, where the driver permits it, and always unlocks them.

Power and heat override a lock, so the samples' clocks are still watched. A lock outlives the process that set it, so a
guard process sets it, and undoes it when the process that started it says so, is killed, or crashes. The guard is this
module as a script, in a session of its own, so that Ctrl-C and the end of a terminal don't reach it. It writes two
lines of JSON, {part: reason}: what it could not lock, and at the end what it could not give back.

NVML can't read the lock that another process has set; such a lock is reported and left alone.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from worklog.errors import BadSetting, WorklogError
from worklog.gpu.device import bus_id, gpu_reason, nvml_handle

SUSTAINABLE = 0.9  # of the highest SM clock: power goes up with its cube, and a heavy kernel must not reach the limit
STEP_MHZ, SETTLES_S = 15, 0.5  # between two supported clocks; time for a new clock to show
APPLICATION_CLOCKS = 0x2  # nvml.h, nvmlClocksEventReasonApplicationsClocksSetting
WATCHED = "they are watched instead"
LOOK_S = 0.5
SM, MEMORY, PERSISTENCE = "SM clock", "memory clock", "persistence mode"  # what is changed, and given back
Held = tuple[str, list[str]]  # the `clocks` setting that holds, and remarks


class ClocksNotLocked(WorklogError):
    """The clocks cannot be locked here; the message says why, and what would help."""


class Clocks(ExitStack):
    """Holds the clocks as a `clocks` setting says, until it ends or gets another setting."""

    asked = ""
    held: Held = "", []

    def hold(self, requested: str) -> Held:
        """The setting that holds from now on: "locked" or "locked:1395" becomes "locked:" and the clock in MHz, or
        "watched", with the reason, where the clocks can't be locked. A lock that another process has set is a remark in
        either case. Raises BadSetting for a clock that the GPU doesn't support, and ClocksNotLocked where the lock
        before can't be given back.
        """
        if requested in (self.asked, self.held[0]):
            return self.held
        self.asked, self.held = "", ("", [])  # what follows may fail
        self.close()
        name, _, mhz = requested.partition(":")
        held: Held = requested, []
        if gpu_reason() is None and name == "locked":
            try:
                held = self.enter_context(locked_clocks(int(float(mhz)) if mhz else None))
            except ClocksNotLocked as error:
                held = "watched", [str(error)]
        elif gpu_reason() is None and name == "watched":
            import pynvml

            with suppress(pynvml.NVMLError), nvml_handle() as handle:
                held = requested, _held_by_another(pynvml, handle)
        self.asked, self.held = requested, held
        return held


@contextmanager
def locked_clocks(sm_mhz: int | None = None) -> Iterator[Held]:
    """Hold the clocks of CUDA's current GPU while the context is open: the memory clock at its highest, the SM clock at
    `sm_mhz` (default: nine tenths of its highest).

    Raises ClocksNotLocked without the permission (root), where another process holds the clocks, or at the end where
    they can't be unlocked, and BadSetting for a clock that the GPU doesn't support.
    """
    import pynvml as nvml

    with ExitStack() as opened:
        try:
            handle = opened.enter_context(nvml_handle())
            if held := _held_by_another(nvml, handle):
                raise ClocksNotLocked(*held)
            memories = nvml.nvmlDeviceGetSupportedMemoryClocks(handle)
            clocks = nvml.nvmlDeviceGetSupportedGraphicsClocks(handle, max(memories)) if memories else []
            if not clocks:
                raise ClocksNotLocked(f"clocks: this GPU states no supported clocks to lock to; {WATCHED}")
            sustainable = [clock for clock in clocks if clock <= SUSTAINABLE * max(clocks)] or [min(clocks)]
            sm = max(sustainable) if sm_mhz is None else sm_mhz
            if sm not in clocks:
                nearest = min(clocks, key=lambda clock: abs(clock - sm))
                raise BadSetting(f"SM clock {sm} MHz is not one that this GPU supports: the nearest is {nearest} MHz")
            remarks = opened.enter_context(_guarded(nvml, handle, sm, max(memories)))
        except nvml.NVMLError as error:
            raise ClocksNotLocked(f"clocks: cannot lock (NVML: {error}); {WATCHED}") from error
        # An idle GPU may be below the lock; whether it runs at the lock under load, the samples show.
        ends = time.monotonic() + SETTLES_S
        while (now := int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))) > sm + STEP_MHZ:
            if time.monotonic() > ends:
                raise ClocksNotLocked(
                    f"clocks: locked to {sm} MHz, but the GPU runs at {now} MHz: the lock did not take; {WATCHED}"
                )
            time.sleep(SETTLES_S / 20)
        yield f"locked:{sm}", [f"clocks locked to {sm} MHz SM, {max(memories)} MHz memory", *remarks]


def _held_by_another(nvml: Any, handle: Any) -> list[str]:
    """The remark where another process's setting holds the SM clock."""
    if not nvml.nvmlDeviceGetCurrentClocksEventReasons(handle) & APPLICATION_CLOCKS:
        return []
    now = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
    return [
        f"clocks: held already, at {now} MHz, by a lock or by application clocks; left as found and watched "
        "(nvidia-smi -rgc and -rac release them)"
    ]


@contextmanager
def _guarded(nvml: Any, handle: Any, sm: int, memory: int) -> Iterator[list[str]]:
    """A guard that holds the clocks while the context is open, and remarks. A memory clock that can't be locked is one,
    since it is constant on many GPUs anyway. Raises ClocksNotLocked.
    """
    persistence = nvml.nvmlDeviceGetPersistenceMode(handle)
    given = (nvml.__name__, bus_id(), str(sm), str(memory), str(os.getpid()))
    guard = subprocess.Popen(
        [sys.executable, "-P", "-m", "worklog.gpu.clock_lock", *given],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)},
    )
    assert guard.stdin is not None and guard.stdout is not None
    refused: dict[str, str] = {}
    try:
        if not (said := guard.stdout.readline()):
            raise ClocksNotLocked(f"clocks: not locked, the process that holds them ended with {guard.wait()}")
        refused = json.loads(said)
        if (why := refused.get(SM) or refused.get(PERSISTENCE)) is not None:
            raise ClocksNotLocked(f"clocks: cannot lock (NVML: {why}); {WATCHED}. To lock: run as root")
        yield [f"clocks: memory clock not locked (NVML: {why})" for why in refused.values()]
    finally:
        with suppress(BrokenPipeError):  # it was killed
            guard.stdin.write(b"\n")  # closing isn't enough where a child of this process has the pipe too
        guard.stdin.close()
        failed = json.loads(guard.stdout.read() or "{}")
        guard.stdout.close()
        if guard.wait() < 0:
            failed = give_back(nvml, handle, persistence, refused)
    if failed:
        parts = "; ".join(f"{what}: {why}" for what, why in failed.items())
        raise ClocksNotLocked(f"clocks: not given back ({parts}): run nvidia-smi -rgc and -rmc as root")


def refused_by(nvml: Any, calls: dict[str, Callable[[], object]]) -> dict[str, str]:
    """Make all calls, each even if another fails; returns which NVML refuses, and why. Its errors aren't raised."""
    failed = {}
    for name, call in calls.items():
        try:
            call()
        except nvml.NVMLError as error:
            failed[name] = str(error)
    return failed


def give_back(nvml: Any, handle: Any, persistence: int, untouched: Collection[str]) -> dict[str, str]:
    """Reset both clocks and the persistence mode, but for what is untouched; returns what failed, and why."""
    resets = {
        SM: lambda: nvml.nvmlDeviceResetGpuLockedClocks(handle),
        MEMORY: lambda: nvml.nvmlDeviceResetMemoryLockedClocks(handle),
        PERSISTENCE: lambda: nvml.nvmlDeviceSetPersistenceMode(handle, persistence),
    }
    return refused_by(nvml, {name: reset for name, reset in resets.items() if name not in untouched})


def guard(module: str, bus: str, sm: str, memory: str, parent: str) -> int:
    """Hold one GPU's clocks, in MHz; 1 if they could not be given back."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nvml: Any = importlib.import_module(module)
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByPciBusId(bus.encode())
    persistence = nvml.nvmlDeviceGetPersistenceMode(handle)
    locks = {
        PERSISTENCE: lambda: nvml.nvmlDeviceSetPersistenceMode(handle, 1),  # else a lock ends with the last client
        SM: lambda: nvml.nvmlDeviceSetGpuLockedClocks(handle, int(sm), int(sm)),
        MEMORY: lambda: nvml.nvmlDeviceSetMemoryLockedClocks(handle, int(memory), int(memory)),
    }
    unlocked = refused_by(nvml, locks)
    with suppress(OSError):  # the parent may have ended
        os.write(1, f"{json.dumps(unlocked)}\n".encode())
    while os.getppid() == int(parent) and not select.select([0], [], [], LOOK_S)[0]:
        pass
    failed = give_back(nvml, handle, persistence, unlocked)
    said = "".join(f"worklog: clocks not given back: {what}: {why}\n" for what, why in failed.items())
    for output, text in ((2, said), (1, json.dumps(failed))):
        with suppress(OSError):
            os.write(output, text.encode())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(guard(*sys.argv[1:]))
