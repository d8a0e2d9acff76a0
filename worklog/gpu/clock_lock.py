"""Locks the clocks during a measurement, where the driver permits it, and always unlocks them.

Power and heat override a lock, so the samples' clocks are still watched. A lock outlives the process that set it, so a
guard process waits to undo it (worklog.gpu.clock_guard). NVML can't read the lock that another process has set; such a
lock is reported and left alone.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from worklog.errors import BadSetting, WorklogError
from worklog.gpu.clock_guard import DONE, MEMORY, PERSISTENCE, READY, SM, give_back
from worklog.gpu.device import Gpu, gpu, gpu_reason

SUSTAINABLE = 0.9  # of the highest SM clock: power goes up with its cube, and a heavy kernel must not reach the limit
STEP_MHZ, SETTLES_S = 15, 0.5  # between two supported clocks; time for a new clock to show
APPLICATION_CLOCKS = 0x2  # nvml.h, nvmlClocksEventReasonApplicationsClocksSetting

_HELD = (
    "held already, at {} MHz, by a lock or by application clocks; left as found and watched "
    "(nvidia-smi -rgc and -rac release them)"
)
_NONE_STATED = "clocks: this GPU states no supported clocks to lock to; they are watched instead"


class ClocksNotLocked(WorklogError):
    """The clocks cannot be locked here; the message says why, and what would help."""


@dataclass(frozen=True)
class LockedClocks:
    """What the clocks are locked to, MHz, and the GPU's peaks at them. remarks: what could not be locked."""

    sm_mhz: int
    memory_mhz: int
    fp32_peak_tflops: float
    memory_peak_gbs: float
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"clocks locked to {self.sm_mhz} MHz SM, {self.memory_mhz} MHz memory"


@contextmanager
def locked_clocks(
    sm_mhz: int | None = None,
    memory_mhz: int | None = None,
    *,
    on: Gpu | None = None,
    bus_id: str | None = None,
    nvml: Any = None,
) -> Iterator[LockedClocks]:
    """Hold the GPU's clocks while the context is open.

    sm_mhz, memory_mhz: supported clocks (default: nine tenths of the highest SM clock, the highest memory clock). on,
    bus_id: the GPU (default: CUDA's current one). nvml: a module with NVML's functions. Raises ClocksNotLocked without
    the permission (root), where another process holds the clocks, or at the end where they can't be unlocked, and
    BadSetting for a clock that the GPU doesn't support.
    """
    nvml = nvml or importlib.import_module("pynvml")
    bus_id = bus_id or _current_bus_id()
    on = on or gpu()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise ClocksNotLocked(f"clocks: cannot lock (NVML: {error}); they are watched instead") from error
    try:
        with _held(nvml, bus_id, on, sm_mhz, memory_mhz) as locked:
            yield locked
    finally:
        nvml.nvmlShutdown()


@contextmanager
def clocks_as_asked(asked: str) -> Iterator[tuple[str, list[str]]]:
    """The `clocks` setting that holds while the context is open, and remarks: "locked" or "locked:1395" becomes
    "locked:" and the clock in MHz, or "watched", with the reason, where the clocks can't be locked. A lock that another
    process has set is a remark in either case.
    """
    name, _, mhz = asked.partition(":")
    if name != "locked" or gpu_reason() is not None:
        yield asked, found_held() if asked == "watched" and gpu_reason() is None else []
        return
    with contextlib.ExitStack() as stack:
        try:
            locked = stack.enter_context(locked_clocks(int(float(mhz)) if mhz else None))
        except ClocksNotLocked as error:
            held, notes = "watched", [str(error)]
        else:
            held, notes = f"locked:{locked.sm_mhz}", [str(locked), *locked.remarks]
        yield held, notes


@contextmanager
def switchable_clocks() -> Iterator[Callable[[str], tuple[str, list[str]]]]:
    """A function that gives what clocks_as_asked gives, and holds it until it is called with another setting, or the
    context ends.
    """
    with contextlib.ExitStack() as stack:
        now: list[tuple[str, tuple[str, list[str]]]] = []

        def hold(asked: str) -> tuple[str, list[str]]:
            if not now or asked not in (now[0][0], now[0][1][0]):
                stack.close()
                now[:] = [(asked, stack.enter_context(clocks_as_asked(asked)))]
            return now[0][1]

        yield hold


def found_held(bus_id: str | None = None, nvml: Any = None) -> list[str]:
    """A remark about clocks that another process holds while they are only watched; none where they are free, or where
    NVML can't be read.
    """
    nvml = nvml or importlib.import_module("pynvml")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    try:
        handle = nvml.nvmlDeviceGetHandleByPciBusId((bus_id or _current_bus_id()).encode())
        return [f"clocks: {_HELD.format(now)}"] if (now := _held_at(nvml, handle)) is not None else []
    except nvml.NVMLError:
        return []
    finally:
        nvml.nvmlShutdown()


@contextmanager
def _held(nvml: Any, bus_id: str, on: Gpu, sm_mhz: int | None, memory_mhz: int | None) -> Iterator[LockedClocks]:
    """Choose the clocks, start the guard, lock; unlock in any case. The guard gets what this process can't unlock, and
    reports on standard error what it can't unlock either.
    """
    try:
        handle = nvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode())
        if (now := _held_at(nvml, handle)) is not None:
            raise ClocksNotLocked(f"clocks: {_HELD.format(now)}")
        memory, sm = _choose(nvml, handle, sm_mhz, memory_mhz)
        persistence = nvml.nvmlDeviceGetPersistenceMode(handle)
    except nvml.NVMLError as error:
        raise ClocksNotLocked(f"clocks: cannot lock (NVML: {error}); they are watched instead") from error
    untouched = {SM, MEMORY, PERSISTENCE}
    with _guarded(nvml, bus_id, persistence) as guard:
        try:
            remarks = _lock(nvml, handle, sm, memory, untouched)
            _require_taken(nvml, handle, sm)
            at = replace(on, sm_clock_mhz=float(sm), memory_clock_mhz=float(memory))
            yield LockedClocks(sm, memory, at.fp32_peak_tflops, at.memory_peak_gbs, remarks)
        finally:
            refused = give_back(nvml, handle, persistence)
            failed = [f"{what}: {why}" for what, why in refused.items() if what not in untouched]
            if not failed:
                _dismiss(guard)
    if failed and guard.returncode != 0:
        raise ClocksNotLocked(f"clocks: not given back ({'; '.join(failed)}): run nvidia-smi -rgc and -rmc as root")


def _require_taken(nvml: Any, handle: Any, sm_mhz: int) -> None:
    """Raise ClocksNotLocked if the SM clock doesn't come down to the lock. An idle GPU may be below it; whether it runs
    at the lock under load, the samples show.
    """
    ends = time.monotonic() + SETTLES_S
    while (now := int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))) > sm_mhz + STEP_MHZ:
        if time.monotonic() > ends:
            raise ClocksNotLocked(
                f"clocks: locked to {sm_mhz} MHz, but the GPU runs at {now} MHz: the lock did not take; "
                "they are watched instead"
            )
        time.sleep(SETTLES_S / 20)


def _held_at(nvml: Any, handle: Any) -> int | None:
    """The SM clock in MHz where another process's setting holds it, else None."""
    held = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle) & APPLICATION_CLOCKS
    return int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)) if held else None


def _choose(nvml: Any, handle: Any, sm_mhz: int | None, memory_mhz: int | None) -> tuple[int, int]:
    """Memory and SM clock from the supported lists."""
    memories = nvml.nvmlDeviceGetSupportedMemoryClocks(handle)
    if not memories:
        raise ClocksNotLocked(_NONE_STATED)
    memory = _supported("memory", memories, memory_mhz or max(memories), memory_mhz)
    clocks = nvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory)
    if not clocks:
        raise ClocksNotLocked(_NONE_STATED)
    wanted = max((clock for clock in clocks if clock <= SUSTAINABLE * max(clocks)), default=min(clocks))
    return memory, _supported("SM", clocks, sm_mhz or wanted, sm_mhz)


def _supported(what: str, clocks: Sequence[int], chosen: int, asked: int | None) -> int:
    if asked is not None and asked not in clocks:
        nearest = min(clocks, key=lambda clock: abs(clock - asked))
        raise BadSetting(f"{what} clock {asked} MHz is not one that this GPU supports: the nearest is {nearest} MHz")
    return int(chosen)


def _lock(nvml: Any, handle: Any, sm: int, memory: int, untouched: set[str]) -> tuple[str, ...]:
    """Lock both clocks, and take what is changed out of `untouched`. A memory clock that can't be locked is a remark,
    since it is constant on many GPUs anyway.
    """

    def change(what: str, setter: Callable[..., object], *to: int) -> None:
        untouched.discard(what)  # before the call, since Ctrl-C may come right behind it
        try:
            setter(handle, *to)
        except nvml.NVMLError:
            untouched.add(what)
            raise

    try:
        change(PERSISTENCE, nvml.nvmlDeviceSetPersistenceMode, 1)  # else a lock is forgotten with the last client
        change(SM, nvml.nvmlDeviceSetGpuLockedClocks, sm, sm)
    except nvml.NVMLError as error:
        raise ClocksNotLocked(
            f"clocks: cannot lock (NVML: {error}); they are watched instead. To lock: run as root"
        ) from error
    try:
        change(MEMORY, nvml.nvmlDeviceSetMemoryLockedClocks, memory, memory)
    except nvml.NVMLError as error:
        return (f"clocks: memory clock not locked (NVML: {error})",)
    return ()


@contextmanager
def _guarded(nvml: Any, bus_id: str, persistence: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that unlocks the clocks unless it is dismissed before its input ends. It has ended when the context is
    closed, with 0 if nothing is still locked. Raises ClocksNotLocked if it can't start.
    """
    script = Path(__file__).with_name("clock_guard.py")
    command = [sys.executable, "-P", str(script), nvml.__name__, bus_id, str(persistence), str(os.getpid())]
    guard = subprocess.Popen(
        command,
        bufsize=0,  # or what a guard that was killed did not read would be written again by close(), and fail there
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert guard.stdin is not None and guard.stdout is not None
    try:
        if guard.stdout.readline() != READY:
            raise ClocksNotLocked(f"clocks: not locked, the guard that gives them back ended with {guard.wait()}")
        yield guard
    finally:
        guard.stdin.close()
        guard.stdout.close()
        guard.wait()


def _dismiss(guard: subprocess.Popen[bytes]) -> None:
    assert guard.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # a guard that was killed has nothing left to do either
        guard.stdin.write(DONE)


def _current_bus_id() -> str:
    import cupy

    return str(cupy.cuda.runtime.deviceGetPCIBusId(cupy.cuda.runtime.getDevice()))
