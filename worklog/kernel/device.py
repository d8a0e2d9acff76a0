"""The interface of a device, and a kernel that is loaded on a device.

A device is a GPU (worklog.gpu.cuda) or the emulator. It compiles, launches, copies in and out,
and reports resources. The gate uses only this interface, so the same stages run on both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from worklog.emulator.limits import Chip
from worklog.kernel.source import code_lines, split_list
from worklog.problem import FLOAT_BYTES, Domain, Shape
from worklog.problem.formats import FLOAT32, SINGLE, ClaimedResult, Format, Types

if TYPE_CHECKING:
    from worklog.kernel.kernel import Kernel

COMPILE_OPTIONS = ("-std=c++17",)
Block = int | tuple[int, ...]  # threads per block: along x, and along y and z


@dataclass(frozen=True)
class Program:
    """CUDA C++ to compile."""

    name: str  # file name for messages
    source: str
    entry: str  # the kernel: a template instance or an extern "C" name
    options: tuple[str, ...] = COMPILE_OPTIONS  # for NVRTC
    arguments: tuple[str, ...] = ()  # names of the arguments, for messages
    shared: int = 0  # bytes of dynamic shared memory per block in each launch
    headers: tuple[tuple[str, str], ...] = ()  # names in #include, and texts, in place of files

    @cached_property
    def whole(self) -> str:
        """The texts of the source and of its headers."""
        return "\n".join((self.source, *(text for _, text in self.headers)))

    @cached_property
    def cooperative(self) -> bool:
        """True if the blocks wait for the whole grid, so that all must run at once."""
        return "this_grid" in self.whole

    @cached_property
    def sha256(self) -> str:
        """The hash of source, headers, entry and options.

        Compiled code, which has the source's lines, belongs to this hash.
        """
        texts = (self.source, self.entry, *self.options, *chain.from_iterable(self.headers))
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()

    @cached_property
    def code_sha256(self) -> str:
        """The hash without comments and empty lines.

        A measurement belongs to this hash.
        """
        headers = tuple((name, code_lines(text)) for name, text in self.headers)
        return replace(self, source=code_lines(self.source), headers=headers).sha256

    def measured_as(self, about: Mapping[str, Any]) -> bool:
        """Return whether this is the code of a kernel in a run.

        about: the kernel's description in the run
        """
        timed_sha256 = about.get("sha256")
        return _codes().get(timed_sha256, timed_sha256) == self.code_sha256


@cache
def _codes() -> dict[Any, str]:
    """Return the code_sha256 of each rung by its sha256 on 2026-11-26.

    Runs until then have that sha256. Also by earlier hashes with the same PTX for what was timed:
    of wgmma and split from before they had headers, of best from before tiles of 16 and 48 rows and
    before batches.
    """
    return dict(json.loads(Path(__file__).with_name("codes.json").read_text(encoding="utf-8")))


class Buffer(Protocol):
    """`size` consecutive values of a format in device memory. The host has them in float32."""

    @property
    def size(self) -> int: ...  # noqa: D102


class Device(Protocol):
    """A machine that compiles and runs kernels. Work is enqueued in order."""

    source: str  # "live" or "emulated": the label of results from this device

    @property
    def chip(self) -> Chip:
        """The architecture of the code that the device runs, and its multiprocessors."""

    def compile(self, program: Program) -> Any:
        """Return the entry, loaded on this device. Raises CompileFailed.

        Its `compiled` is a worklog.kernel.Compiled.
        """

    def upload(self, host: NDArray[np.float32], format_: Format = FLOAT32) -> Buffer:
        """Return a new buffer with a copy of the array's elements, row-major.

        format_: to which the elements are rounded
        Raises OutOfMemory.
        """

    def overwrite(self, buffer: Buffer, host: NDArray[np.float32]) -> None:
        """Copy the array over the buffer's elements; the sizes must agree."""

    def fill(self, buffer: Buffer, value: float) -> None:
        """Set every element."""

    def download(self, buffer: Buffer) -> NDArray[np.float32]:
        """Return the elements as a flat array, after all enqueued work."""

    def view(self, buffer: Buffer, start: int, size: int) -> Buffer:
        """Return the elements start ... start + size of the buffer, without a copy.

        start: a multiple of 4 (16 bytes)
        """

    def as_format(self, buffer: Buffer, format_: Format, size: int) -> Buffer:
        """Return a buffer's first bytes as elements of another format.

        Nothing is copied.
        """

    def launch(
        self, kernel: Any, grid: tuple[int, ...], block: Block, arguments: Sequence[Any]
    ) -> None:
        """Enqueue one launch. Raises LaunchFailed.

        arguments: NumPy scalars and buffers, in the signature's order
        """

    def synchronize(self) -> None:
        """Wait for everything enqueued. Raises LaunchFailed if any of it failed."""


UNKNOWN_KERNELS = 2  # kernels per launch, assumed where they can't be counted and may be several


class Runnable:
    """A subject of the gate and the harness.

    A loaded kernel, a host function, a solution, or cuBLAS.
    """

    name: str
    domain: Domain = Domain()
    claimed: str = "fp32"  # the precision class that it must have at least
    types: Types = SINGLE  # the formats of A, B and C
    uses_streams: bool = False  # whether its code may launch on other streams than the device's
    remarks: tuple[str, ...] = ()  # that must be shown with its measurements
    # The memory for intermediate results, from the caller or allocated; None before.
    workspace: Buffer | None = None

    @property
    def claim(self) -> ClaimedResult:
        """The formats and the precision class."""
        return ClaimedResult(self.claimed, self.types)

    def enqueue(self, *arguments: Any) -> None:
        """Enqueue the work on the device's stream, without waiting.

        arguments: shape, alpha, a, b, beta, c for C = alpha A B + beta C; for a solution, the
            arguments of a case

        Raises LaunchFailed.
        """
        raise NotImplementedError

    def repeated(self, *arguments: Any) -> Callable[[], None]:
        """Return a function that enqueues the work, as often as it is called.

        arguments: as for `enqueue`
        """
        return partial(self.enqueue, *arguments)

    def collect(self, *arguments: Any) -> None:
        """Copy what a Python function returned into the outputs. Raises LaunchFailed."""

    def kernels(self, shape: Shape) -> int:
        """Return the number of kernels that a launch at this shape enqueues."""
        return UNKNOWN_KERNELS

    def operands(self, shape: Shape) -> tuple[str, ...] | None:
        """Return the types of the code's tensor-core operands; None: unknown."""
        return None

    def variables(self, shape: Shape) -> list[str]:
        """Return the known variables that keep their values between launches."""
        return []

    def state(self, shape: Shape) -> str:
        """Return what may make launches differ, as text; "" if nothing may."""
        return ", ".join(self.variables(shape))

    def rehearse(self, launches: Sequence[Callable[[], None]]) -> None:
        """Run launches on new buffers and wait, if a first launch may do more work."""

    def describe(self) -> dict[str, Any]:
        """Return the description for a run's `kernels`."""
        return {"domain": str(self.domain)}

    def workspace_elements(self, shape: Shape) -> int:
        """Return the workspace's elements (float32) for a launch at this shape."""
        return 0

    def use_workspace(self, buffer: Buffer | None) -> None:
        """Set the workspace from the next launch on; None allocates one."""
        self.workspace = buffer

    def is_relocatable(self, shape: Shape) -> bool:
        """Return whether relocate() moves the code and resets no variables."""
        return False

    def relocate(self) -> None:
        """Move the code to another place from the next launch on.

        Code that was loaded before stays in memory until settle().
        """

    def settle(self) -> None:
        """Unload the code that relocate() has left behind."""


# A worklog.kernel.Kernel of one launch, the compiled kernel, grid and block.
ReadyLaunch = tuple[Any, Any, tuple[int, ...], Block]


class Loaded(Runnable):
    """A kernel on a device: its launches in order, and the workspace that they share.

    The workspace is allocated unless the caller lends one. Raises CompileFailed.
    """

    def __init__(self, kernel: Kernel, device: Device) -> None:
        self.name = kernel.name
        self.domain = kernel.domain
        self.kernel = kernel.on_chip(device.chip)
        self.device = device
        self.claimed = kernel.claimed
        self.types = kernel.types
        self.remarks = kernel.remarks
        self._compiled: dict[str, Any] = {}
        self._launches: dict[Shape, tuple[list[ReadyLaunch], int]] = {}
        self._former: list[object] = []
        self.operands_in_use: Mapping[str, Any] = {}
        self._neutral: dict[Shape, Mapping[str, Any]] = {}  # operands of the last shape
        # The launches, unless they depend on the shape.
        own_launches = () if kernel.follows_shape else self.kernel.passes
        self.passes = [(launch, self._load(launch)) for launch in own_launches]

    def is_ready(self, shape: Shape) -> bool:
        """Return whether a launch at this shape compiles nothing."""
        return shape in self._launches

    def workspace_elements(self, shape: Shape) -> int:  # noqa: D102
        return self.launches_at(shape)[1]

    def kernels(self, shape: Shape) -> int:
        """Return the number of launches."""
        return len(self.launches_at(shape)[0])

    def operands(self, shape: Shape) -> tuple[str, ...]:  # noqa: D102
        launches, _ = self.launches_at(shape)
        operands = dict[str, None]()
        for _, loaded, _, _ in launches:
            operands |= dict.fromkeys(loaded.compiled.mix.operands)
        return tuple(operands)

    def variables(self, shape: Shape) -> list[str]:  # noqa: D102
        from worklog.emulator.symbols import variable_name  # here: a GPU doesn't need the emulator

        launches, _ = self.launches_at(shape)
        names = dict[str, None]()
        for _, loaded, _, _ in launches:
            names |= dict.fromkeys(map(variable_name, loaded.compiled.variables))
        return [*names]

    def is_relocatable(self, shape: Shape) -> bool:  # noqa: D102
        return not self.variables(shape)

    def relocate(self) -> None:
        """Load the code again at the next launch.

        The former code stays loaded, since the new code would be loaded into its place if that
        were free.
        """
        self._former.append((self._compiled, self._launches))
        self._compiled = {}
        self._launches = {}

    def settle(self) -> None:  # noqa: D102
        self._former.clear()

    def enqueue(
        self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer
    ) -> None:
        """Enqueue the launches.

        Raises BadSetting, and before the first launch LaunchFailed for a grid without blocks.
        """
        launches, elements = self.launches_at(shape)
        if elements and (self.workspace is None or self.workspace.size < elements):
            self.use_workspace(self.device.upload(np.zeros(elements, np.float32)))
        # The arguments are the same for each launch.
        operands = self._operands_at(shape)
        arguments = launches[0][0].bind(shape, alpha, a, b, beta, c, self.workspace, operands)
        for _, loaded, grid, threads in launches:
            self.device.launch(loaded, grid, threads, arguments)

    def use_operands(self, operands: Mapping[str, Any]) -> None:
        """Set operands beyond a product's from the next launch on; {} for neutral ones."""
        self.operands_in_use = operands

    def _operands_at(self, shape: Shape) -> Mapping[str, Any]:
        """Return the operands beyond a product's for a launch."""
        if not self.kernel.operands:
            return {}
        if shape not in self._neutral:
            self._neutral = {shape: self._neutral_at(shape)}
        return {**self._neutral[shape], **self.operands_in_use}

    def _neutral_at(self, shape: Shape) -> Mapping[str, Any]:
        """Return operands that change nothing, as arguments."""
        arguments = dict[str, Any]()
        for operand in self.kernel.operands:
            values = operand.neutral(shape)
            arguments[operand.name] = values[0]
            if operand.format is not None:
                arguments[operand.name] = self.device.upload(values, operand.format)
        return arguments

    def repeated(self, *arguments: Any) -> Callable[[], None]:  # noqa: D102
        prepare = getattr(self.device, "prepare", None)  # the emulator's
        if prepare is None:
            return super().repeated(*arguments)
        shape, *values = arguments
        launches, _ = self.launches_at(shape)
        bound = launches[0][0].bind(shape, *values, self.workspace, self._operands_at(shape))
        calls = [prepare(loaded, grid, threads, bound) for _, loaded, grid, threads in launches]

        def enqueue_all() -> None:
            for call in calls:
                call()

        return enqueue_all

    def describe(self) -> dict[str, Any]:
        """Return the description of the kernel, its resources and its launches.

        It has the launches if there are several, and the launches at each shape if they depend on
        the shape.
        """
        description: dict[str, Any] = self.kernel.describe()
        if self.passes:
            _, loaded = self.passes[self.kernel.main]
            description |= loaded.compiled.resources
        if len(self.passes) > 1:
            description["passes"] = [
                {
                    "entry": launch.entry,
                    "grid": split_list(launch.grid),
                    "block": launch.threads,
                    **loaded.compiled.resources,
                }
                for launch, loaded in self.passes
            ]
        if not self.passes:
            choices = {}
            for shape, (launches, _) in self._launches.items():
                choices[str(shape)] = [
                    {"entry": launch.entry, "grid": list(grid)} for launch, _, grid, _ in launches
                ]
            description["choices"] = choices
        return description

    def _load(self, launch: Any) -> Any:
        """Compile a launch's program, unless it is loaded."""
        key = launch.program.sha256
        if key not in self._compiled:
            self._compiled[key] = self.device.compile(launch.program)
        return self._compiled[key]

    @property
    def programs(self) -> set[str]:
        """The hashes of the compiled programs."""
        return {*self._compiled}

    def grids(self, key: str, *sizes: Any) -> Any:
        """Return the blocks along x and y of a program at shapes of the domain.

        key: the hash of the program
        sizes: an array each of M, N and K

        0 at shapes at which the program isn't launched. Raises BadSetting.
        """
        for launch, _ in self.passes:
            if launch.program.sha256 == key:
                return np.array([sizes[0] * 0 + blocks for blocks in launch.blocks_at(*sizes)[:2]])
        shapes, columns = np.unique(np.stack(sizes), axis=1, return_inverse=True)
        grids = np.zeros((2, shapes.shape[1]), np.int64)
        chosen = [self.kernel.at(Shape(*shape), self.device.chip) for shape in shapes.T.tolist()]
        columns_by_kernel = dict[str, list[int]]()
        for column, kernel in enumerate(chosen):
            name = f"{kernel.launches}{kernel.template}"
            columns_by_kernel.setdefault(name, []).append(column)
        for alike in columns_by_kernel.values():
            for launch in chosen[alike[0]].passes:
                if launch.program.sha256 == key:
                    grids[:, alike] = np.broadcast_arrays(
                        *launch.blocks_at(*shapes[:, alike])[:2], shapes[0, alike]
                    )[:2]
        return grids[:, columns.reshape(-1)]

    def launches_at(self, shape: Shape) -> tuple[list[ReadyLaunch], int]:
        """Return the launches, and the workspace's elements.

        They are computed once, so that a timed launch parses nothing.
        """
        if shape not in self._launches:
            self.kernel.check(shape)
            kernel = self.kernel.at(shape, self.device.chip)
            launches = [
                (launch, self._load(launch), launch.blocks(shape), launch.threads)
                for launch in kernel.passes
            ]
            self._launches[shape] = launches, -(-kernel.workspace_bytes(shape) // FLOAT_BYTES)
        return self._launches[shape]
