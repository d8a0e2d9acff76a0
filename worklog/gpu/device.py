"""The machine: its GPU as the driver describes it, its clocks over time, and its software.

CuPy and NVML are imported inside the functions, so that a laptop without either can still read
recordings.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from worklog.errors import NoGpu, install_command

if TYPE_CHECKING:
    from worklog.runs import Gpu


@cache
def gpu_reason() -> str | None:
    """Return why no CUDA GPU can be used here; None if a GPU can be used."""
    if importlib.util.find_spec("cupy") is None:
        return (
            f"CuPy is not installed (with an NVIDIA GPU here: {install_command('cuda13')}, or "
            "[cuda12])"
        )
    import cupy

    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no usable NVIDIA driver ({error})"
    return None if count else "the NVIDIA driver finds no GPU"


def require_gpu(
    advice: str = "without one, open a recording: worklog.open_run() or `worklog article`",
) -> None:
    """Raise NoGpu, with the reason and a way out (advice), if there is no CUDA GPU."""
    reason = gpu_reason()
    if reason:
        raise NoGpu(f"no GPU to measure on: {reason}; {advice}")


def environment() -> dict[str, str]:
    """Return the environment of a child process.

    It is this process's environment, with its import path, and the GPU that it has chosen.

    Raises NoGpu.
    """
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "CUDA_VISIBLE_DEVICES": visible_to_a_child(),
    }


def visible_to_a_child() -> str:
    """Return CUDA_VISIBLE_DEVICES for a child: only the GPU that is current here.

    Raises NoGpu if CUDA can't name it.
    """
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = None if names is None else [name.strip() for name in names.split(",")]
    if visible is not None and len(visible) == 1:
        return visible[0]
    number = 0  # if nothing was chosen yet
    cupy = sys.modules.get("cupy")
    if cupy is not None and gpu_reason() is None:
        try:
            number = int(cupy.cuda.runtime.getDevice())
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise NoGpu(
                f"this process has lost its CUDA context ({error}) and can't tell which GPU is "
                "current: restart it, or "
                "set CUDA_VISIBLE_DEVICES to one GPU"
            ) from error
    if visible is None:
        return str(number)
    return visible[number] if number < len(visible) else ""


def visible_cards() -> list[str]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves, as it names them.

    There are none without a usable GPU.
    """
    if gpu_reason() is not None:
        return []
    import cupy

    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return names.split(",") if names else [*map(str, range(cupy.cuda.runtime.getDeviceCount()))]


def gpu() -> Gpu:
    """Return the current CUDA device. Call only if gpu_reason() is None."""
    import cupy

    return _current(cupy.cuda.runtime.getDevice())


def gpu_here() -> Gpu | None:
    """Return the current CUDA device; None without a GPU."""
    return gpu() if gpu_reason() is None else None


@cache
def _current(number: int) -> Gpu:
    """Return the CUDA device of this number, which must be current.

    The number is for the cache: another device may be current at the next call.
    """
    import cupy
    import pynvml

    from worklog.runs import Gpu  # here: whether there is a GPU is known without NumPy

    properties = cupy.cuda.runtime.getDeviceProperties(number)
    sm_clock = properties["clockRate"] / 1e3
    memory_clock = properties["memoryClockRate"] / 1e3
    driver = "unknown"
    uuid = ""
    with suppress(pynvml.NVMLError), nvml_handle() as handle:
        sm_clock = float(pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM))
        memory_clock = float(pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM))
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        uuid = str(pynvml.nvmlDeviceGetUUID(handle))
    name = properties["name"].decode()
    capability = (properties["major"], properties["minor"])
    return Gpu(
        name,
        capability,
        properties["multiProcessorCount"],
        properties["l2CacheSize"],
        properties["totalGlobalMem"],
        sm_clock,
        memory_clock,
        properties["memoryBusWidth"],
        driver,
        uuid,
    )


def bus_id() -> str:
    """Return the PCI bus id of CUDA's current GPU.

    NVML needs it: CUDA_VISIBLE_DEVICES renumbers CUDA's devices, not NVML's.
    """
    import cupy

    return str(cupy.cuda.runtime.deviceGetPCIBusId(cupy.cuda.runtime.getDevice()))


@contextmanager
def nvml_handle() -> Iterator[Any]:
    """Yield NVML's handle of CUDA's current GPU. Raises NVMLError."""
    import pynvml

    pynvml.nvmlInit()
    try:
        yield pynvml.nvmlDeviceGetHandleByPciBusId(bus_id().encode())
    finally:
        pynvml.nvmlShutdown()


class ClockWatch:
    """NVML's view of the GPU while something is measured.

    reason: why NVML can't be read; None if it can
    reasons: returns the mask of event reasons right now; 0 if NVML can't be read
    """

    def __init__(self) -> None:
        import pynvml

        self.reason: str | None = None
        try:
            pynvml.nvmlInit()  # and no shutdown: the handle stays valid
            with nvml_handle() as handle:
                self.reasons = partial(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
            self.reasons()
        except pynvml.NVMLError as error:
            self.reason = f"NVML: {error}"
            self.reasons = partial(int)


OTHER_HARNESSES = ("triton", "cuda-bench", "cupti-python", "nvidia-cuda-cupti", "cuda-bindings")
PACKAGES = (
    "numpy",
    "matplotlib",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "torch",
    "nvidia-cuda-nvrtc",
    *OTHER_HARNESSES,
)


def software() -> dict[str, str]:
    """Return the versions of the packages and drivers that a result may depend on."""
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    if gpu_reason() is None:
        import cupy

        for name in ("runtime", "driver"):
            number = getattr(cupy.cuda.runtime, f"{name}GetVersion")()
            versions[f"cuda_{name}"] = f"{number // 1000}.{number % 1000 // 10}"
    return versions
