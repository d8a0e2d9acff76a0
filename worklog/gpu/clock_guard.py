"""The process that locks the clocks, and unlocks them when the process that started it says so, is killed, or crashes.

It runs as a script in a session of its own, so that Ctrl-C and the end of a terminal don't reach it, and loads only
NVML. It writes two lines of JSON, {part: reason}: what it could not lock, and at the end what it could not give back.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
from collections.abc import Callable, Collection
from typing import Any

LOOK_S = 0.5
SM, MEMORY, PERSISTENCE = "SM clock", "memory clock", "persistence mode"  # what is changed, and given back


def refused(nvml: Any, calls: dict[str, Callable[[], object]]) -> dict[str, str]:
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
    return refused(nvml, {name: reset for name, reset in resets.items() if name not in untouched})


def main(module: str, bus_id: str, sm: str, memory: str, parent: str) -> int:
    """Hold one GPU's clocks, in MHz; 1 if they could not be given back."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nvml: Any = importlib.import_module(module)
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode())
    persistence = nvml.nvmlDeviceGetPersistenceMode(handle)
    locks = {
        PERSISTENCE: lambda: nvml.nvmlDeviceSetPersistenceMode(handle, 1),  # else a lock ends with the last client
        SM: lambda: nvml.nvmlDeviceSetGpuLockedClocks(handle, int(sm), int(sm)),
        MEMORY: lambda: nvml.nvmlDeviceSetMemoryLockedClocks(handle, int(memory), int(memory)),
    }
    unlocked = refused(nvml, locks)
    with contextlib.suppress(OSError):  # the parent may have ended
        os.write(1, f"{json.dumps(unlocked)}\n".encode())
    while os.getppid() == int(parent) and not select.select([0], [], [], LOOK_S)[0]:
        pass
    failed = give_back(nvml, handle, persistence, unlocked)
    said = "".join(f"worklog: clocks not given back: {what}: {why}\n" for what, why in failed.items())
    for output, text in ((2, said), (1, json.dumps(failed))):
        with contextlib.suppress(OSError):
            os.write(output, text.encode())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
