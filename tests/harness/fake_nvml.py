"""NVML's functions over a file, so that a process and its guard see the same clocks.

The file is named by FAKE_NVML.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from worklog.runs import Gpu

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
    # What the next readings of the counter (mJ) and of the power (mW) return; the last one stays.
    # A text is NVML's error, such as that of a card without a counter.
    "energy": [0],
    "power": [0],
    "memories": [3201, 1593],
    "clocks": [1980, 1965, 1800, 1785, 1770, 1395, 345],
}
READINGS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nvmlDeviceGetHandleByPciBusId": lambda now: b"handle",
    "nvmlDeviceGetClockInfo": lambda now: now["runs_at"] or now["sm"] or 1980,
    "nvmlDeviceGetSupportedMemoryClocks": lambda now: now["memories"],
    "nvmlDeviceGetSupportedGraphicsClocks": lambda now: now["clocks"],
    "nvmlDeviceGetPersistenceMode": lambda now: now["persistence"],
}
SEQUENCES = {
    "nvmlDeviceGetTotalEnergyConsumption": "energy",
    "nvmlDeviceGetPowerUsage": "power",
}
# The name in `calls` and in `refuses`; what a call changes, from its arguments.
CALLS: dict[str, tuple[str, Callable[..., dict[str, Any]]]] = {
    "nvmlInit": ("init", lambda: {}),
    "nvmlShutdown": ("shutdown", lambda: {}),
    "nvmlDeviceGetCurrentClocksEventReasons": ("reasons", lambda handle: {}),
    "nvmlDeviceSetPersistenceMode": ("persistence", lambda handle, mode: {"persistence": mode}),
    "nvmlDeviceSetGpuLockedClocks": (
        "lock sm",
        lambda handle, low, high: {"sm": low if low == high else "range"},
    ),
    "nvmlDeviceSetMemoryLockedClocks": ("lock memory", lambda handle, low, high: {"memory": low}),
    "nvmlDeviceResetGpuLockedClocks": ("reset sm", lambda handle: {"sm": None}),
    "nvmlDeviceResetMemoryLockedClocks": ("reset memory", lambda handle: {"memory": None}),
}


class NVMLError(Exception):
    pass


def state() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path(os.environ["FAKE_NVML"]).read_text(encoding="utf-8"))
    return document


def write(**changes: Any) -> None:
    path = Path(os.environ["FAKE_NVML"])
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(
        json.dumps({**(state() if path.exists() else START), **changes}), encoding="utf-8"
    )
    temporary.replace(path)


def _call(function: str, *arguments: Any) -> Any:
    now = state()
    if function in READINGS:
        return READINGS[function](now)
    if function in SEQUENCES:
        return _next(SEQUENCES[function], now)
    name, changes = CALLS[function]
    if name in now["refuses"]:
        raise NVMLError("Insufficient Permissions")
    write(calls=[*now["calls"], name], **changes(*arguments))
    return now.get(name)


def _next(name: str, now: dict[str, Any]) -> Any:
    """Return the next reading of a sequence."""
    reading, *later = now[name]
    if later:
        write(**{name: later})
    if isinstance(reading, str):
        raise NVMLError(reading)
    return reading


def stepped(step: int, readings_each: int, readings: int, wraps_at: int = 2**64) -> list[int]:
    """Return readings of a counter that moves by a step after some readings."""
    return [reading // readings_each * step % wraps_at for reading in range(readings)]


def __getattr__(name: str) -> Any:
    if name in READINGS or name in CALLS or name in SEQUENCES:
        return partial(_call, name)
    raise AttributeError(name)


def sm_mhz() -> float:
    """Return the SM clock at which the GPU runs now."""
    return float(_call("nvmlDeviceGetClockInfo"))


@contextmanager
def pretended(file: Path | None = None) -> Iterator[None]:
    """There is a GPU, and this is its NVML. file: its state, made new (default: FAKE_NVML)."""
    names = (
        {} if file is None else {"FAKE_NVML": str(file), "PYTHONPATH": str(ROOT)}
    )  # for the guard, too
    with (
        mock.patch.dict(os.environ, names),
        mock.patch("worklog.gpu.device.bus_id", lambda: "0000:01:00.0"),
        mock.patch("worklog.gpu.clocks.bus_id", lambda: "0000:01:00.0"),
        mock.patch("worklog.gpu.clocks.gpu_reason", lambda: None),
    ):
        if file is not None:
            write(**START)
        real = importlib.import_module("pynvml")
        sys.modules["pynvml"] = sys.modules[__name__]
        try:
            yield
        finally:
            sys.modules["pynvml"] = real
