"""NVML's functions over a file, so that a process and its guard see the same clocks. The file is named by FAKE_NVML."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from worklog.gpu.device import Gpu

ROOT = Path(__file__).parents[2]
GPU = Gpu("Virtual", (9, 0), 132, 60 * 2**20, 141 * 2**30, 1980.0, 3201.0, 6144, "580")
NVML_CLOCK_SM = 1
START = {
    "sm": None,
    "memory": None,
    "persistence": 0,
    "reasons": 0,
    "runs_at": None,  # the SM clock, whatever it is locked to
    "refuses": [],
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
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps({**(state() if path.exists() else START), **changes}), encoding="utf-8")
    temporary.replace(path)


def _call(name: str, **changes: Any) -> dict[str, Any]:
    now = state()
    if name in now["refuses"]:
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


@contextmanager
def pretended(file: Path | None = None) -> Iterator[None]:
    """There is a GPU, and this is its NVML. file: its state, made new (default: FAKE_NVML)."""
    names = {} if file is None else {"FAKE_NVML": str(file), "PYTHONPATH": str(ROOT)}  # for the guard, too
    with (
        mock.patch.dict(os.environ, names),
        mock.patch("worklog.gpu.device.bus_id", lambda: "0000:01:00.0"),
        mock.patch("worklog.gpu.clock_lock.bus_id", lambda: "0000:01:00.0"),
        mock.patch("worklog.gpu.clock_lock.gpu_reason", lambda: None),
    ):
        if file is not None:
            write(**START)
        real = importlib.import_module("pynvml")
        sys.modules["pynvml"] = sys.modules[__name__]
        try:
            yield
        finally:
            sys.modules["pynvml"] = real
