"""An emulator of compiled PTX: runs kernels without a GPU and checks them.

PTX goes in; findings, counts and the kernel's memory come out, and never a time. The README beside
this file has an example. worklog.kernel.emulated also compiles CUDA C++.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worklog.emulator.launching import Result, launch
    from worklog.emulator.memory import Pointer
    from worklog.emulator.ptx import PtxKernel
    from worklog.emulator.reader import load
    from worklog.emulator.reports import Counts, Finding

__all__ = ["Counts", "Finding", "Pointer", "PtxKernel", "Result", "launch", "load"]
_HOMES = {
    "Counts": "reports",
    "Finding": "reports",
    "PtxKernel": "ptx",
    "Pointer": "memory",
    "Result": "launching",
    "launch": "launching",
    "load": "reader",
}

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        # At the first use: most commands need only the limits of an SM.
        if name in _HOMES:
            return getattr(import_module(f"worklog.emulator.{_HOMES[name]}"), name)
        raise AttributeError(f"module 'worklog.emulator' has no attribute {name!r}")
