"""From source text to something that can be launched, on whatever can run it.

`Program` is what to compile; `Device` is the small interface that a GPU (worklog.gpu.cuda) and the emulator share. The
gate knows nothing else, so the same checks run on both.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from worklog.errors import CompileFailed, WorklogError
from worklog.kernel.ladder import Domain, Rung
from worklog.problem.gemm import Shape

COMPILE_OPTIONS = ("-std=c++17",)
Block = int | tuple[int, int]  # threads of a block: along x, or along x and y


def kernels_dir() -> Path:
    """Where the .cu files are: in the package (installed from a wheel), else in the checkout beside it (editable
    install).
    """
    packaged = Path(__file__).parents[1] / "_kernels"
    folder = packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "kernels"
    if not folder.is_dir():
        raise WorklogError(
            f"the kernels are missing: neither {packaged} nor {folder} exists; install gemm-worklog again"
        )
    return folder


@dataclass(frozen=True)
class Program:
    """CUDA C++ to compile. name: file name for messages. entry: the kernel, a template instance or an extern "C"
    name.
    """

    name: str
    source: str
    entry: str
    options: tuple[str, ...] = COMPILE_OPTIONS

    @classmethod
    def of(cls, rung: Rung) -> Program:
        """The program of a rung, read from kernels/."""
        return cls(rung.file, (kernels_dir() / rung.file).read_text(encoding="utf-8"), rung.entry)

    @cached_property
    def sha256(self) -> str:
        """Of the source, entry and options together: what a number belongs to."""
        return hashlib.sha256("\0".join((self.source, self.entry, *self.options)).encode()).hexdigest()


@dataclass(frozen=True)
class Resources:
    """What the compiler spent: registers a thread, local memory bytes a thread (spills and stack), static shared
    memory bytes a block.
    """

    registers: int
    local_bytes: int
    shared_bytes: int


class Kernel(Protocol):
    """A compiled entry of one device."""

    @property
    def resources(self) -> Resources: ...  # noqa: D102


class Buffer(Protocol):
    """Device memory that holds float32 values in a row, `size` of them."""

    @property
    def size(self) -> int: ...  # noqa: D102


class Device(Protocol):
    """A machine that compiles and runs kernels. Work is enqueued in order; `synchronize` waits for it and raises
    LaunchFailed.
    """

    source: str  # "live" or "emulated": what a result from here is labelled with

    def compile(self, program: Program) -> Kernel:
        """Raises CompileFailed."""

    def upload(self, host: NDArray[np.float32]) -> Buffer:
        """A new buffer with a copy of the array's elements, row-major. Raises OutOfMemory."""

    def overwrite(self, buffer: Buffer, host: NDArray[np.float32]) -> None:
        """Copy the array over the buffer's elements; sizes must agree."""

    def fill(self, buffer: Buffer, value: float) -> None:
        """Set every element."""

    def download(self, buffer: Buffer) -> NDArray[np.float32]:
        """The elements as a flat array, after all enqueued work."""

    def view(self, buffer: Buffer, start: int, size: int) -> Buffer:
        """Elements start ... start + size of the buffer, without a copy. start must be a multiple of 4 (16 bytes)."""

    def launch(self, kernel: Kernel, grid: tuple[int, int], block: Block, arguments: Sequence[Any]) -> None:
        """Enqueue one launch. Arguments: NumPy scalars and buffers, in the signature's order. Raises LaunchFailed."""

    def synchronize(self) -> None:
        """Wait for everything enqueued. Raises LaunchFailed if any of it failed."""


class Subject(Protocol):
    """Something that computes a GEMM on a device: a rung, a user's kernel, or cuBLAS."""

    name: str
    domain: Domain

    def enqueue(self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer) -> None:
        """Enqueue C = alpha A B + beta C on the device's stream, without waiting."""


class RungSubject:
    """A rung, compiled for one device. program: other source for the same entry (default: the rung's file)."""

    def __init__(self, rung: Rung, device: Device, program: Program | None = None) -> None:
        self.rung = rung
        self.name = rung.name
        self.domain = rung.domain
        self.program = program or Program.of(rung)
        self.device = device
        self.kernel = device.compile(self.program)

    def enqueue(self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer) -> None:
        """Enqueue one launch. Raises OutsideDomain before anything is launched."""
        self.rung.check(shape)
        i32, f32 = np.int32, np.float32
        arguments = (i32(shape.m), i32(shape.n), i32(shape.k), f32(alpha), a, b, f32(beta), c)
        self.device.launch(self.kernel, self.rung.grid(shape), self.rung.block, arguments)


def compile_error(program: Program, log: str) -> CompileFailed:
    """The compiler's first complaint with the file, line and text of the source, then its whole log."""
    match = re.search(r"\((\d+)\)\s*:\s*(?:catastrophic )?error[^:]*:\s*(.+)", log)
    if match is None:
        return CompileFailed(f"{program.name}: {program.entry} does not compile; the compiler says:\n{log.strip()}")
    number = int(match.group(1))
    lines = program.source.splitlines()
    text = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return CompileFailed(f"{program.name}:{number}: {match.group(2).strip()}\n    {text}\n{log.strip()}")
