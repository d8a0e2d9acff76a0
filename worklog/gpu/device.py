"""The machine: its GPU and theoretical peaks, its clocks while something is measured, and its software.

CuPy and NVML are imported inside the functions, so that a laptop without either can still read recordings.
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
    """Why no CUDA GPU can be used here, or None when one can."""
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is not installed (with an NVIDIA GPU here: {install_command('cuda13')}, or [cuda12])"
    import cupy

    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no usable NVIDIA driver ({error})"
    return None if count else "the NVIDIA driver finds no GPU"


def require_gpu(
    advice: str = "without one, open a recording: worklog.open_run() or `worklog article`",
) -> None:
    """Raise NoGpu, with the reason and a way out (advice), where there is no CUDA GPU."""
    if reason := gpu_reason():
        raise NoGpu(f"no GPU to measure on: {reason}; {advice}")


def environment() -> dict[str, str]:
    """For a child: this process's, with its import path, and the one GPU that it has chosen. Raises NoGpu."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "CUDA_VISIBLE_DEVICES": visible_to_a_child(),
    }


def visible_to_a_child() -> str:
    """CUDA_VISIBLE_DEVICES for a child: only the GPU that is current here. Raises NoGpu where CUDA can't name it."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = None if named is None else [name.strip() for name in named.split(",")]
    if visible is not None and len(visible) == 1:
        return visible[0]
    # 0 if nothing was chosen yet
    number = 0
    cupy = sys.modules.get("cupy")
    if cupy is not None and gpu_reason() is None:
        try:
            number = int(cupy.cuda.runtime.getDevice())
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise NoGpu(
                f"this process has lost its CUDA context ({error}) and cannot say which GPU is current: restart it, or "
                "set CUDA_VISIBLE_DEVICES to one GPU"
            ) from error
    if visible is None:
        return str(number)
    return visible[number] if number < len(visible) else ""


def visible_cards() -> list[str]:
    """Numbers of the GPUs that CUDA_VISIBLE_DEVICES leaves, as it names them; none without a usable GPU."""
    if gpu_reason() is not None:
        return []
    import cupy

    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return names.split(",") if names else [*map(str, range(cupy.cuda.runtime.getDeviceCount()))]


def gpu() -> Gpu:
    """The current CUDA device. Call only where gpu_reason() is None."""
    import cupy

    return _current(cupy.cuda.runtime.getDevice())


def gpu_here() -> Gpu | None:
    """Return the current CUDA device; None without a GPU."""
    return gpu() if gpu_reason() is None else None


@cache
def _current(number: int) -> Gpu:
    """The current CUDA device, which has this number: another one may be current at the next call."""
    import cupy
    import pynvml

    from worklog.runs import Gpu  # here: whether there is a GPU is known without NumPy

    of = cupy.cuda.runtime.getDeviceProperties(number)
    sm_clock = of["clockRate"] / 1e3
    memory_clock = of["memoryClockRate"] / 1e3
    driver = "unknown"
    uuid = ""
    with suppress(pynvml.NVMLError), nvml_handle() as handle:
        sm_clock = float(pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM))
        memory_clock = float(pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM))
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        uuid = str(pynvml.nvmlDeviceGetUUID(handle))
    name = of["name"].decode()
    capability = (of["major"], of["minor"])
    sizes = of["multiProcessorCount"], of["l2CacheSize"], of["totalGlobalMem"]
    return Gpu(name, capability, *sizes, sm_clock, memory_clock, of["memoryBusWidth"], driver, uuid)


def bus_id() -> str:
    """PCI bus id of CUDA's current GPU. NVML needs it: CUDA_VISIBLE_DEVICES renumbers CUDA's devices, not NVML's."""
    import cupy

    return str(cupy.cuda.runtime.deviceGetPCIBusId(cupy.cuda.runtime.getDevice()))


@contextmanager
def nvml_handle() -> Iterator[Any]:
    """NVML's handle of CUDA's current GPU, while the context is open. Raises NVMLError."""
    import pynvml

    pynvml.nvmlInit()
    try:
        yield pynvml.nvmlDeviceGetHandleByPciBusId(bus_id().encode())
    finally:
        pynvml.nvmlShutdown()


class ClockWatch:
    """NVML's view of the GPU while something is measured. reason: why NVML cannot be read, None where it can. reasons:
    gives the mask of event reasons right now, 0 where NVML cannot be read.
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
    """Versions of the installed packages and drivers that a result may depend on."""
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
