"""NVML's functions over a file, so that a process and its guard see the same clocks. The file is named by FAKE_NVML."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from worklog.gpu import clock_lock
from worklog.gpu.device import Gpu

GPU = Gpu("Virtual", (9, 0), 132, 60 * 2**20, 141 * 2**30, 1980.0, 3201.0, 6144, "580")
NVML_CLOCK_SM = 1
START = {
    "sm": None,
    "memory": None,
    "persistence": 0,
    "reasons": 0,
    "runs_at": None,  # the SM clock, whatever it is locked to
    "refuses": [],
    "refuses_only": None,  # the one process that is refused, else every
    "calls": [],
    "memories": [3201, 1593],
    "clocks": [1980, 1965, 1800, 1785, 1770, 1395, 345],
}


class NVMLError(Exception):
    pass


def state() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path(os.environ["FAKE_NVML"]).read_text(encoding="utf-8"))
    return document


def write(**changes: Any) -> None:
    path = Path(os.environ["FAKE_NVML"])
    now = state() if path.exists() else START
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps({**now, **changes}), encoding="utf-8")
    temporary.replace(path)


def _call(name: str, **changes: Any) -> dict[str, Any]:
    now = state()
    if name in now["refuses"] and now["refuses_only"] in (None, os.getpid()):
        raise NVMLError("Insufficient Permissions")
    write(calls=[*now["calls"], name], **changes)
    return now


def nvmlInit() -> None:  # noqa: N802
    _call("init")


def nvmlShutdown() -> None:  # noqa: N802
    _call("shutdown")


def nvmlDeviceGetHandleByPciBusId(bus_id: bytes) -> bytes:  # noqa: N802
    assert bus_id == b"0000:01:00.0"
    return bus_id


def nvmlDeviceGetCurrentClocksEventReasons(handle: bytes) -> int:  # noqa: N802
    return int(_call("reasons")["reasons"])


def nvmlDeviceGetClockInfo(handle: bytes, kind: int) -> int:  # noqa: N802
    return int(state()["runs_at"] or state()["sm"] or 1980)


def nvmlDeviceGetSupportedMemoryClocks(handle: bytes) -> list[int]:  # noqa: N802
    return list(_call("memories")["memories"])


def nvmlDeviceGetSupportedGraphicsClocks(handle: bytes, memory: int) -> list[int]:  # noqa: N802
    return list(state()["clocks"])


def nvmlDeviceGetPersistenceMode(handle: bytes) -> int:  # noqa: N802
    return int(state()["persistence"])


def nvmlDeviceSetPersistenceMode(handle: bytes, mode: int) -> None:  # noqa: N802
    _call("persistence", persistence=mode)


def nvmlDeviceSetGpuLockedClocks(handle: bytes, low: int, high: int) -> None:  # noqa: N802
    assert low == high
    _call("lock sm", sm=low)


def nvmlDeviceSetMemoryLockedClocks(handle: bytes, low: int, high: int) -> None:  # noqa: N802
    _call("lock memory", memory=low)


def nvmlDeviceResetGpuLockedClocks(handle: bytes) -> None:  # noqa: N802
    _call("reset sm", sm=None)


def nvmlDeviceResetMemoryLockedClocks(handle: bytes) -> None:  # noqa: N802
    _call("reset memory", memory=None)


def sm_mhz() -> float:
    """The SM clock now."""
    return float(nvmlDeviceGetClockInfo(b"", NVML_CLOCK_SM))


@contextmanager
def pretended() -> Iterator[None]:
    """There is a GPU, and this is its NVML."""
    this = {"bus_id": "0000:01:00.0", "nvml": sys.modules[__name__]}
    with (
        mock.patch.object(clock_lock, "gpu_reason", lambda: None),
        mock.patch.object(clock_lock, "locked_clocks", partial(clock_lock.locked_clocks, on=GPU, **this)),
        mock.patch.object(clock_lock, "found_held", partial(clock_lock.found_held, **this)),
    ):
        yield
