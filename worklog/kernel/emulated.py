"""The emulator as a device of the gate, and the PTX that it runs: NVRTC's, or the package's.

Kernels run at launch. An error finding is raised when a GPU reports a fault: at the next
synchronisation.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator import memory
from worklog.emulator.core.native import SLICE
from worklog.emulator.coverage import Coverage
from worklog.emulator.launching import BUDGET, PreparedLaunch, Result, prepare
from worklog.emulator.limits import Chip
from worklog.emulator.memory import Pointer
from worklog.emulator.program import load_variables
from worklog.emulator.ptx import PtxKernel, UnsupportedInstruction
from worklog.emulator.reader import load
from worklog.emulator.reports import BadLaunch, Finding, TooLarge
from worklog.errors import CompileFailed, LaunchFailed, NvrtcMissing, WorklogError
from worklog.kernel.clang import (
    BOUNDS,
    NOTE,
    WIDTHS,
    ClangMissing,
    Outside,
    compile_with_clang,
    outside_in,
)
from worklog.kernel.device import Block, Program
from worklog.kernel.nvrtc import compile_cuda
from worklog.kernel.resources import Compiled
from worklog.kernel.signature import WIDE, is_computed
from worklog.kernel.tensor_map import BoundMap
from worklog.problem.formats import FLOAT32, Format

FOLDER = Path(__file__).with_name("ptx")
INDEX = "index.json"
ARCH = "sm_90"
CHIP = Chip(ARCH)
BY_CLANG = " by clang"
RESOURCES = ("registers", "stack_bytes", "spill_store_bytes", "spill_load_bytes", "shared_bytes")


def label(arch: str) -> str:
    """Return the label of results of PTX that is compiled here."""
    return f"emulated · {arch} PTX"


def _rank(label: str) -> tuple[bool, int]:
    """Return the rank of a label: clang's before the package's, and that before NVRTC's."""
    return label.endswith(BY_CLANG), len(label)


def build(program: Program, arch: str = ARCH) -> tuple[Compiled, str]:
    """Compile a program. Return the compiled code and the label of its results.

    Without NVRTC, the code is the shipped PTX of the same source, or else clang's. Both have no
    cubin and no log, and clang's has no resources.

    Raises CompileFailed, BadSetting, and NvrtcMissing without any of them; WorklogError if a file
    of the package is missing.
    """
    try:
        return compile_cuda(program, arch), label(arch)
    except NvrtcMissing as missing:
        try:
            shipped = _shipped(program, arch)
        except OSError as error:
            raise WorklogError(
                f"the shipped PTX is missing: {error}; install gemm-worklog again"
            ) from error
        if shipped is not None:
            return shipped
        try:
            return compile_with_clang(program, arch), label(arch) + BY_CLANG
        except CompileFailed as error:
            raise CompileFailed(f"{error}\n{NOTE}") from missing
        except ClangMissing as no_clang:
            raise NvrtcMissing(
                f"{missing} (without it only the ladder's own kernels run, from the {ARCH} PTX in "
                f"the package; {program.name} for {arch} is not among them; clang would compile "
                f"it: {no_clang})"
            ) from missing


def _shipped(program: Program, arch: str) -> tuple[Compiled, str] | None:
    """Return the shipped PTX of a program, and the label of its results; None without it.

    Raises OSError if a file of the package is missing.
    """
    index = json.loads((FOLDER / INDEX).read_text(encoding="utf-8"))
    for entry in index["programs"]:
        if entry["sha256"] == program.sha256 and arch == index["arch"]:
            ptx = (FOLDER / entry["ptx"]).read_text(encoding="utf-8")
            resources: dict[str, Any] = {name: entry[name] for name in RESOURCES}
            resources["shared_accesses"] = tuple(
                (access, int(count)) for access, count in entry["shared_accesses"].items()
            )
            compiled = Compiled(
                program, entry["symbol"], arch, ptx=ptx, cubin=b"", log="", **resources
            )
            return compiled, f"{label(arch)} from the package (NVRTC {index['nvrtc']})"
    return None


class EmulatedFault(LaunchFailed):
    """Error findings of a launch, which are in `findings`."""

    def __init__(self, message: str, findings: tuple[Finding, ...]) -> None:
        super().__init__(message)
        self.findings = findings
        self.kinds = {finding.kind for finding in findings}


@contextmanager
def naming(program: Program) -> Iterator[None]:
    """Add the file name to the error for an unsupported instruction.

    The error starts with its line.
    """
    try:
        yield
    except UnsupportedInstruction as error:
        text = str(error)
        place = text.replace("line ", ":", 1) if text.startswith("line ") else f": {text}"
        raise UnsupportedInstruction(f"{program.name}{place}") from error


@dataclass(frozen=True, eq=False)
class EmulatedKernel:
    """A compiled entry, loaded."""

    program: Program  # that it was compiled from
    kernel: PtxKernel
    compiled: Compiled
    # Its __device__ variables, by name, which keep their values between launches.
    variables: Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class EmulatedBuffer:
    """Memory of the emulator."""

    data: NDArray[Any]  # flat, of a format's dtype
    skew: int = 0  # bytes from the last 256-byte boundary to the data

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.data.size)


def _pointer(buffer: EmulatedBuffer, name: str) -> Pointer:
    """Return a buffer as an argument.

    name: for messages
    """
    return Pointer(buffer.data, buffer.data.nbytes, name, buffer.skew)


def with_maps(arguments: Sequence[Any]) -> list[Any]:
    """Return a launch's arguments with the emulator's tensor maps. Raises BadLaunch."""
    return [
        _tensor_map(argument) if isinstance(argument, BoundMap) else argument
        for argument in arguments
    ]


def _tensor_map(bound: BoundMap) -> memory.TensorMap:
    """Return a tensor map of a buffer, an array or a pointer as an argument.

    Raises BadLaunch, and UnsupportedInstruction for a map that only a GPU has.
    """
    layout = bound.layout
    if layout.swizzle > layout.row_bytes:
        raise UnsupportedInstruction(
            f"the emulator doesn't support a box of {bound.matrix} whose rows of "
            f"{layout.row_bytes} bytes are shorter than its swizzle of {layout.swizzle} bytes"
        )
    buffer = bound.buffer
    if isinstance(buffer, EmulatedBuffer):
        buffer = _pointer(buffer, bound.matrix)
    elif isinstance(buffer, np.ndarray):
        buffer = Pointer(buffer, buffer.nbytes, bound.matrix)
    return memory.tensor_map(
        buffer,
        layout.box,
        shape=layout.sizes,
        strides=layout.strides,
        steps=layout.steps,
        item=layout.format.itemsize,
        swizzle=layout.swizzle,
        nan=layout.has_nan,
    )


def _outside(program: Program, result: Result) -> Outside | None:
    """Return the first access out of bounds in a launch of code that checks them.

    It prints an index, and traps at a wide access. A copy of a user's own struct isn't checked: it
    is out of bounds if it leaves the thread's local memory.
    """
    by_index = outside_in(result.printed, program)
    if by_index is not None:
        return by_index
    for finding in result.findings:
        if finding.kind in ("trap", "local-out-of-bounds"):
            return Outside(program.name, finding.line, finding.text)
    return None


class EmulatedDevice:
    """The emulator as a worklog.kernel.device.Device.

    Each repeated launch of a program on a grid uses another schedule of blocks and warps (see
    worklog.emulator.launch), so that a result that depends on the schedule differs.

    chip: the architecture to compile for, and the multiprocessors that launches are made for
    races, count, budget: as for worklog.emulator.launch
    has_bounds: whether clang compiles, with checks of the bounds of arrays
    """

    source = "emulated"

    def __init__(
        self,
        chip: Chip = CHIP,
        *,
        races: bool = True,
        count: bool = False,
        budget: int = BUDGET,
        has_bounds: bool = False,
    ) -> None:
        self.chip = chip
        self.label = label(
            chip.arch
        )  # of all results; names the package's PTX if a kernel is from there
        self.races = races
        self.count = count
        self.budget = budget
        self.has_bounds = has_bounds
        self.outside: Outside | None = None  # the first access out of the bounds of an array
        self.unchecked_widths = ""  # why the widths of accesses weren't checked
        self.last: Result | None = None  # of the latest launch
        self.findings: list[Finding] = []  # of all launches
        self.printed: tuple[str, ...] = ()  # by the first launch that prints
        # Of each kernel that takes named arguments, by the hash of its program and its block.
        self.coverage: dict[tuple[str, tuple[int, ...]], Coverage] = {}
        # Called during a launch, as for worklog.emulator.launch.
        self.progress: Callable[[int, int], None] = lambda _finished, _blocks: None
        self.instructions = 0  # of warps, in all launches
        self.most_instructions = math.inf  # a launch that exceeds them raises TooLarge
        self._slices = 0  # of the running launch
        self.only_blocks: Sequence[int] | None = None  # as for worklog.emulator.launch
        self.ulps = 0  # as for worklog.emulator.launch
        # By program, so that a kernel that is loaded again goes on with other schedules.
        self._launches: Counter[tuple[Program, tuple[int, ...]]] = Counter()
        self._faults: list[tuple[EmulatedKernel, Finding]] = []

    def compile(self, program: Program) -> EmulatedKernel:
        """Compile for the architecture, or load shipped PTX.

        Like loading a CUDA module, each call sets the kernel's __device__ variables to their
        initial values. Launches keep what they write there.

        Raises CompileFailed, NvrtcMissing, UnsupportedInstruction; ClangMissing with has_bounds.
        """
        if self.has_bounds:
            out = self._with_bounds(program)
        else:
            out, origin = build(program, self.chip.arch)
            self.label = max(self.label, origin, key=_rank)
        with naming(program):
            kernel = load(out.ptx, out.symbol, out.shared_accesses, program.entry)
        return EmulatedKernel(program, kernel, out, load_variables(kernel))

    def _with_bounds(self, program: Program) -> Compiled:
        """Return a program with checks of its accesses to arrays.

        Vectors with a check can't be compiled in a few programs, as in a union that is copied.
        Then only indices are checked, and `unchecked_widths` has the reason.
        """
        try:
            return compile_with_clang(program, self.chip.arch, (*BOUNDS, *WIDTHS))
        except CompileFailed as error:
            self.unchecked_widths = str(error).partition("\n")[0]
        return compile_with_clang(program, self.chip.arch, BOUNDS)

    def upload(self, host: NDArray[np.float32], format_: Format = FLOAT32) -> EmulatedBuffer:
        """Return a new buffer with a copy of the array's elements, row-major.

        Raises TooLarge.
        """
        try:
            return EmulatedBuffer(np.array(host, dtype=format_.dtype, order="C").reshape(-1))
        except MemoryError as error:
            raise TooLarge(
                f"no memory for a buffer of {host.size * 4 / 2**20:.0f} MiB: use a smaller size"
            ) from error

    def reserve(self, size: int, format_: Format) -> EmulatedBuffer:
        """Return a new buffer of zeros, whose memory is taken where it is written.

        Raises TooLarge.
        """
        nbytes = format_.nbytes(size)
        try:
            data = np.zeros(nbytes, np.uint8)
        except (MemoryError, ValueError) as error:
            raise TooLarge(f"no addresses for a buffer of {nbytes / 2**30:.0f} GiB") from error
        return EmulatedBuffer(data.view(format_.dtype))

    def overwrite(self, buffer: Any, host: NDArray[np.float32]) -> None:
        """Replace the buffer's elements; the sizes must agree."""
        buffer.data[:] = host.reshape(-1)

    def fill(self, buffer: Any, value: float) -> None:
        """Set every element."""
        buffer.data[:] = value

    def download(self, buffer: Any) -> NDArray[np.float32]:
        """Return a copy of the elements.

        Raises EmulatedFault if a launch has error findings.
        """
        self.synchronize()
        elements: NDArray[np.float32] = buffer.data.astype(np.float32)
        return elements

    def view(self, buffer: Any, start: int, size: int) -> EmulatedBuffer:
        """Return a part of a buffer, without a copy.

        A kernel may access only this part.
        """
        if not 0 <= start <= start + size <= buffer.size:
            raise BadLaunch(
                f"elements {start} to {start + size} cannot be a view of a buffer of {buffer.size}"
            )
        skew = buffer.skew + buffer.data.itemsize * start
        return EmulatedBuffer(buffer.data[start : start + size], skew % 256)

    def as_format(self, buffer: Any, format_: Format, size: int) -> EmulatedBuffer:
        """Return a buffer's first bytes as elements of another format, without a copy."""
        data = buffer.data.view(np.uint8)[: format_.nbytes(size)]
        return EmulatedBuffer(data.view(format_.dtype), buffer.skew)

    def launch(
        self, kernel: Any, grid: tuple[int, ...], block: Block, arguments: Sequence[Any]
    ) -> None:
        """Run a kernel to the end.

        Raises LaunchFailed and UnsupportedInstruction; `synchronize` raises error findings.
        """
        self.prepare(kernel, grid, block, arguments)()

    def prepare(
        self, kernel: Any, grid: tuple[int, ...], block: Block, arguments: Sequence[Any]
    ) -> Callable[[], None]:
        """Return a function that launches a kernel, as often as it is called.

        A repetition takes a tenth of the time of a launch that binds its arguments anew.

        Raises LaunchFailed and UnsupportedInstruction.
        """
        return partial(self._run, kernel, grid, block, self.plan(kernel, grid, block, arguments))

    def plan(
        self, kernel: Any, grid: tuple[int, ...], block: Block, arguments: Sequence[Any]
    ) -> PreparedLaunch:
        """Return a launch without running it.

        Raises LaunchFailed and UnsupportedInstruction.
        """
        names = kernel.program.arguments or ("",) * len(arguments)
        values = list[Any]()
        for name, argument in zip(names, with_maps(arguments), strict=True):
            if isinstance(argument, EmulatedBuffer):
                values.append(_pointer(argument, name))
            else:
                values.append(argument)
        with naming(kernel.program):
            return prepare(
                kernel.kernel,
                grid,
                block,
                values,
                shared_bytes=kernel.program.shared,
                races=self.races,
                count=self.count,
                source=kernel.program.source,
                budget=self.budget,
                variables=kernel.variables,
                only_blocks=self.only_blocks,
                ulps=self.ulps,
                registers=kernel.compiled.registers,
                progress=self._watch,
            )

    def _run(
        self,
        kernel: EmulatedKernel,
        grid: tuple[int, ...],
        block: Block,
        prepared: PreparedLaunch,
    ) -> None:
        """Run a launch, and keep what it did."""
        self._slices = 0
        self._require_instructions()
        with naming(kernel.program):
            self.last = prepared.run(self._launches[kernel.program, grid])
        self.instructions += self.last.instructions
        self._launches[kernel.program, grid] += 1
        self.findings += self.last.findings
        self.printed = self.printed or self.last.printed
        if self.has_bounds:
            self.outside = self.outside or _outside(kernel.program, self.last)
        faults = [(kernel, finding) for finding in self.last.findings if finding.is_error]
        self._faults += faults
        if kernel.program.arguments and not faults:
            self._cover(kernel, block, self.last)

    def _cover(self, kernel: EmulatedKernel, block: Block, result: Result) -> None:
        """Add a launch to the coverage of its kernel and block."""
        sizes = (block,) if isinstance(block, int) else block
        key = kernel.program.sha256, sizes
        if key not in self.coverage:
            names = []
            for name in kernel.program.arguments:
                names.append("" if is_computed(name) else name.removeprefix(WIDE))
            self.coverage[key] = Coverage(kernel.kernel, tuple(names), sizes)
        self.coverage[key].add(result)

    def _watch(self, finished: int, blocks: int) -> None:
        """Report progress, and count a slice of instructions.

        finished: number of finished blocks
        """
        self.progress(finished, blocks)
        self._slices += 1
        self._require_instructions()

    def _require_instructions(self) -> None:
        """Raise TooLarge if the launches have executed more instructions than they may."""
        instructions = self.instructions + self._slices * SLICE
        if instructions > self.most_instructions:
            self.instructions = instructions
            raise TooLarge(
                f"the launches take more than {self.most_instructions:,.0f} instructions: use a "
                "smaller size"
            )

    def synchronize(self) -> None:
        """Raise EmulatedFault for the error findings since the last call.

        Launches have finished already.
        """
        faults, self._faults = self._faults, []
        if not faults:
            return
        kernel, first = faults[0]
        count = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        place = f"{kernel.program.name}:{first.line}"
        message = f"{place}: {first.kind}: {first.message}{count}\n    {first.text}"
        raise EmulatedFault(message, tuple(finding for _, finding in faults))
