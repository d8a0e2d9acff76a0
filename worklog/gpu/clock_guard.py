"""The process that unlocks the clocks if the one that locked them was killed, crashed, or lost its terminal.

It runs as a script in a session of its own, so that Ctrl-C doesn't reach it, and loads only NVML. It waits for "done"
on its standard input. If the input or the parent ends before that, the clocks are still locked.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

DONE = b"done\n"
READY = b"ready\n"
LOOK_S = 0.5
SM, MEMORY, PERSISTENCE = "SM clock", "memory clock", "persistence mode"  # what is changed, and given back


def give_back(nvml: Any, handle: Any, persistence: int) -> dict[str, str]:
    """Reset both clocks and the persistence mode, each even if another fails; returns what failed, and why. NVML's
    errors aren't raised.
    """
    parts: dict[str, Callable[[], object]] = {
        SM: lambda: nvml.nvmlDeviceResetGpuLockedClocks(handle),
        MEMORY: lambda: nvml.nvmlDeviceResetMemoryLockedClocks(handle),
        PERSISTENCE: lambda: nvml.nvmlDeviceSetPersistenceMode(handle, persistence),
    }
    failed = {}
    for what, reset in parts.items():
        try:
            reset()
        except nvml.NVMLError as error:
            failed[what] = str(error)
    return failed


def parent_is_done(parent: int) -> bool:
    """Wait for the parent; whether it has unlocked the clocks itself."""
    said = b""
    while os.getppid() == parent and not said.endswith(DONE):
        if not select.select([0], [], [], LOOK_S)[0]:
            continue
        if not (chunk := os.read(0, 64)):
            break
        said += chunk
    return said.endswith(DONE)


def main(module: str, bus_id: str, persistence: str, parent: str) -> int:
    """Watch over one GPU's clocks; 1 if they could not be given back."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nvml: Any = importlib.import_module(module)
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode())
    os.write(1, READY)
    if parent_is_done(int(parent)):
        return 0
    failed = give_back(nvml, handle, int(persistence))
    said = "".join(f"worklog: clocks not given back: {what}: {why}\n" for what, why in failed.items())
    with contextlib.suppress(OSError):  # the terminal may be gone with the parent
        os.write(2, said.encode())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
