"""The interface of a device, a GPU (worklog.gpu.cuda) or the emulator: compile, launch, copy in and out, resources; and
a kernel that is loaded on one.

The gate uses only this interface, so the same stages run on both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from worklog.kernel.source import code_lines, parts
from worklog.problem import FLOAT_BYTES, Domain, Shape

COMPILE_OPTIONS = ("-std=c++17",)
Block = int | tuple[int, ...]  # threads per block: along x, and along y and z


@dataclass(frozen=True)
class Program:
    """CUDA C++ to compile. name: file name for messages. entry: the kernel, a template instance or an extern "C"
    name. options: for NVRTC. arguments: names of what its parameters take, for messages. shared: bytes of
    dynamic shared memory per block in each launch. headers: names in #include, and texts, in place of files.
    """

    name: str
    source: str
    entry: str
    options: tuple[str, ...] = COMPILE_OPTIONS
    arguments: tuple[str, ...] = ()
    shared: int = 0
    headers: tuple[tuple[str, str], ...] = ()

    @cached_property
    def whole(self) -> str:
        """The texts of the source and of its headers."""
        return "\n".join((self.source, *(text for _, text in self.headers)))

    @cached_property
    def cooperative(self) -> bool:
        """Whether its blocks wait for the whole grid, so that all of them must run at once."""
        return "this_grid" in self.whole

    @cached_property
    def sha256(self) -> str:
        """Of source, headers, entry and options. Compiled code, which has the source's lines, belongs to this hash."""
        parts = (
            self.source,
            self.entry,
            *self.options,
            *(word for header in self.headers for word in header),
        )
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @cached_property
    def code_sha256(self) -> str:
        """The same without comments and empty lines. A measurement belongs to this hash."""
        headers = tuple((name, code_lines(text)) for name, text in self.headers)
        return replace(self, source=code_lines(self.source), headers=headers).sha256

    def measured_as(self, about: Mapping[str, Any]) -> bool:
        """Whether this is the code of a kernel in a run. about: its description there."""
        timed = about.get("sha256")
        return _codes().get(timed, timed) == self.code_sha256


@cache
def _codes() -> dict[Any, str]:
    """code_sha256 of each rung by its sha256 on 2026-11-26, which the runs until then have; and of wgmma and split by
    that from before they had headers, and of best from before tiles of 16 and 48 rows: the same PTX for what was timed.
    """
    return dict(json.loads(Path(__file__).with_name("codes.json").read_text(encoding="utf-8")))


class Buffer(Protocol):
    """`size` consecutive float32 values in device memory."""

    @property
    def size(self) -> int: ...  # noqa: D102


class Device(Protocol):
    """A machine that compiles and runs kernels. Work is enqueued in order."""

    source: str  # "live" or "emulated": the label of results from this device

    @property
    def arch(self) -> str:
        """What it runs code for, as "sm_90"."""

    def compile(self, program: Program) -> Any:
        """The entry, loaded on this device; its `compiled` is a worklog.kernel.Compiled. Raises CompileFailed."""

    def upload(self, host: NDArray[np.float32]) -> Buffer:
        """A new buffer with a copy of the array's elements, row-major. Raises OutOfMemory."""

    def overwrite(self, buffer: Buffer, host: NDArray[np.float32]) -> None:
        """Copy the array over the buffer's elements; the sizes must agree."""

    def fill(self, buffer: Buffer, value: float) -> None:
        """Set every element."""

    def download(self, buffer: Buffer) -> NDArray[np.float32]:
        """The elements as a flat array, after all enqueued work."""

    def view(self, buffer: Buffer, start: int, size: int) -> Buffer:
        """Elements start ... start + size of the buffer, without a copy. start must be a multiple of 4 (16 bytes)."""

    def launch(
        self, kernel: Any, grid: tuple[int, ...], block: Block, arguments: Sequence[Any]
    ) -> None:
        """Enqueue one launch. Arguments: NumPy scalars and buffers, in the signature's order. Raises LaunchFailed."""

    def synchronize(self) -> None:
        """Wait for everything enqueued. Raises LaunchFailed if any of it failed."""


UNKNOWN_KERNELS = 2  # kernels per launch, assumed where they can't be counted and may be several


class Runnable:
    """What the gate checks and the harness times: a loaded kernel, a host function, a solution, or cuBLAS.

    claimed: the precision class that it must have at least. is_host: whether it launches its work itself, maybe on
    streams of its own. remarks: what must be shown with its measurements. workspace: the memory for intermediate
    results that its caller gave, or its own; None: none yet.
    """

    name: str
    domain: Domain = Domain()
    claimed: str = "fp32"
    is_host: bool = False
    remarks: tuple[str, ...] = ()
    workspace: Buffer | None = None

    def enqueue(self, *arguments: Any) -> None:
        """Enqueue the work on the device's stream, without waiting: C = alpha A B + beta C for (shape, alpha, a, b,
        beta, c); a solution takes the arguments of a case. Raises LaunchFailed.
        """
        raise NotImplementedError

    def collect(self, *arguments: Any) -> None:
        """Copy what a Python function returned into the outputs. Raises LaunchFailed."""

    def kernels(self, shape: Shape) -> int:
        """How many kernels a launch at this shape enqueues."""
        return UNKNOWN_KERNELS

    def operands(self, shape: Shape) -> tuple[str, ...] | None:
        """Types that its code at this shape gives to tensor cores; None: not known."""
        return None

    def variables(self, shape: Shape) -> list[str]:
        """What its code can keep from one launch to the next, as far as it is known."""
        return []

    def describe(self) -> dict[str, Any]:
        """For a run's `kernels`."""
        return {"domain": str(self.domain)}

    def workspace_elements(self, shape: Shape) -> int:
        """Elements (float32) of the workspace that a launch at this shape needs."""
        return 0

    def use_workspace(self, buffer: Buffer | None) -> None:
        """Take this memory from the next launch on; None: memory of its own."""
        self.workspace = buffer

    def relocate(self) -> None:
        """Let its code lie elsewhere from the next launch on. What was loaded before stays in memory until settle()."""

    def settle(self) -> None:
        """Unload what relocate() has left behind."""


Part = tuple[
    Any, Any, tuple[int, ...], Block
]  # a worklog.kernel.Kernel of one launch, compiled; grid and block


class Loaded(Runnable):
    """A kernel on a device: its launches in order, and the workspace that they share, allocated unless its caller lends
    one. Raises CompileFailed.
    """

    def __init__(self, kernel: Any, device: Device) -> None:
        self.name = kernel.name
        self.domain = kernel.domain
        self.kernel = kernel
        self.device = device
        self.claimed = kernel.claimed
        self.remarks = kernel.remarks
        self._compiled: dict[str, Any] = {}
        self._launches: dict[Shape, tuple[list[Part], int]] = {}
        self._former: list[object] = []
        self.passes = [] if kernel.choose else [(part, self._load(part)) for part in kernel.passes]

    def is_ready(self, shape: Shape) -> bool:
        """Whether a launch at this shape compiles nothing."""
        return shape in self._launches

    def workspace_elements(self, shape: Shape) -> int:  # noqa: D102
        return self.launches_at(shape)[1]

    def kernels(self, shape: Shape) -> int:
        """Its launches."""
        return len(self.launches_at(shape)[0])

    def operands(self, shape: Shape) -> tuple[str, ...]:  # noqa: D102
        launches, _ = self.launches_at(shape)
        return tuple(
            dict.fromkeys(
                operand for _, code, _, _ in launches for operand in code.compiled.mix.operands
            )
        )

    def variables(self, shape: Shape) -> list[str]:  # noqa: D102
        launches, _ = self.launches_at(shape)
        return [
            *dict.fromkeys(
                name for _, compiled, _, _ in launches for name in compiled.compiled.variables
            )
        ]

    def relocate(self) -> None:
        """Load the code again at the next launch. Its former place would be taken again if it were free."""
        self._former.append((self._compiled, self._launches))
        self._compiled = {}
        self._launches = {}

    def settle(self) -> None:  # noqa: D102
        self._former.clear()

    def enqueue(
        self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer
    ) -> None:
        """Enqueue the launches. Raises BadSetting, and before the first one LaunchFailed for a grid without blocks."""
        launches, needed = self.launches_at(shape)
        if needed and (self.workspace is None or self.workspace.size < needed):
            self.use_workspace(self.device.upload(np.zeros(needed, np.float32)))
        arguments = launches[0][0].bind(
            shape, alpha, a, b, beta, c, self.workspace
        )  # the same for each launch
        for _, compiled, grid, threads in launches:
            self.device.launch(compiled, grid, threads, arguments)

    def describe(self) -> dict[str, Any]:
        """The kernel, its resources, its launches where there are several, and at each shape where it chooses."""
        described: dict[str, Any] = self.kernel.describe()
        described |= self.passes[self.kernel.main][1].compiled.resources if self.passes else {}
        passes = [
            {
                "entry": part.entry,
                "grid": parts(part.grid),
                "block": part.threads,
                **compiled.compiled.resources,
            }
            for part, compiled in self.passes
        ]
        choices = {
            str(shape): [{"entry": part.entry, "grid": list(grid)} for part, _, grid, _ in launches]
            for shape, (launches, _) in self._launches.items()
        }
        described |= {"passes": passes} if len(passes) > 1 else {}
        return described | ({"choices": choices} if self.kernel.choose is not None else {})

    def _load(self, part: Any) -> Any:
        key = part.program.sha256
        if key not in self._compiled:
            self._compiled[key] = self.device.compile(part.program)
        return self._compiled[key]

    @property
    def programs(self) -> set[str]:
        """The hashes of what it has compiled."""
        return {*self._compiled}

    def grids(self, key: str, *sizes: Any) -> Any:
        """Blocks along x and y at shapes of the domain, of the program with this hash; 0 where it isn't launched.
        sizes: of M, N and K, an array each. Raises BadSetting.
        """
        if self.kernel.choose is None:
            part = next(part for part, _ in self.passes if part.program.sha256 == key)
            return np.array([sizes[0] * 0 + blocks for blocks in part.blocks_at(*sizes)[:2]])
        shapes, which = np.unique(np.stack(sizes), axis=1, return_inverse=True)
        grids = np.zeros((2, shapes.shape[1]), np.int64)
        places = dict[str, list[int]]()
        chosen = [self.kernel.at(Shape(*shape), self.device.arch) for shape in shapes.T.tolist()]
        for number, kernel in enumerate(chosen):
            places.setdefault(f"{kernel.launches}{kernel.template}", []).append(number)
        for alike in places.values():
            for part in chosen[alike[0]].passes:
                if part.program.sha256 == key:
                    grids[:, alike] = np.broadcast_arrays(
                        *part.blocks_at(*shapes[:, alike])[:2], shapes[0, alike]
                    )[:2]
        return grids[:, which.reshape(-1)]

    def launches_at(self, shape: Shape) -> tuple[list[Part], int]:
        """The launches and the workspace's elements, computed once, so that a timed launch parses nothing."""
        if shape not in self._launches:
            self.kernel.check(shape)
            kernel = self.kernel.at(shape, self.device.arch)
            launches = [
                (part, self._load(part), part.blocks(shape), part.threads) for part in kernel.passes
            ]
            self._launches[shape] = launches, -(-kernel.workspace_bytes(shape) // FLOAT_BYTES)
        return self._launches[shape]
