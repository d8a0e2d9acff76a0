"""Launch a compiled kernel on the emulator: the one function that puts kernel, arguments and checks together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator.approximations import is_approximate
from worklog.emulator.codegen import Context
from worklog.emulator.counts import Counts, tally, total
from worklog.emulator.errors import BadLaunch, PtxError
from worklog.emulator.findings import Finding, Place, Recorder
from worklog.emulator.flow import analyse
from worklog.emulator.globalmem import GlobalMemory, LocalMemory, Watch
from worklog.emulator.machine import Machine
from worklog.emulator.program import Program, make_program
from worklog.emulator.ptx import Kernel, Param
from worklog.emulator.reader import parse
from worklog.emulator.room import require_room
from worklog.emulator.shared import SharedMemory
from worklog.emulator.sites import Site, build_sites
from worklog.emulator.unroll import as_assembled
from worklog.kernel.cubin import Widths

Array = NDArray[Any]
LANES = 8192
BUDGET = 1_000_000
MAX_THREADS, MAX_SHARED = 1024, 232_448


@dataclass(frozen=True)
class Pointer:
    """A buffer argument. data: a contiguous array, written in place; None stands for `size` bytes of unknown values.

    skew: bytes between the buffer and the nearest 256-byte boundary below, as a view into a larger buffer has.
    """

    data: Array | None
    size: int
    name: str = ""
    skew: int = 0


@dataclass(frozen=True)
class Result:
    """What a launch did.

    findings: mistakes of the kernel, by line. lines: counts by source line (0: unknown), empty if they were not
    asked for.
    """

    kernel: str
    arch: str
    findings: tuple[Finding, ...]
    lines: Mapping[int, Counts] = field(hash=False)

    @property
    def ok(self) -> bool:
        """No finding is an error."""
        return not any(finding.is_error for finding in self.findings)

    @property
    def counts(self) -> Counts:
        """All lines together."""
        return total(self.lines)

    @property
    def label(self) -> str:
        """Where the numbers come from."""
        return f"emulated · {self.arch} PTX"


@lru_cache(maxsize=64)
def load(ptx: str, symbol: str | None = None, assembled: Widths | None = None) -> Kernel:
    """A kernel of a PTX module by its symbol, the only one if none is named. Raises PtxError.

    assembled: the machine code's shared accesses (worklog.kernel.nvrtc.Compiled.shared_accesses). With them, wavefronts are
    counted for what the assembler made of the PTX, and the kernel says whether that could be done.
    """
    kernels = parse(ptx)
    if symbol is None and len(kernels) == 1:
        symbol = next(iter(kernels))
    if symbol is None or symbol not in kernels:
        raise PtxError(f"there is no kernel {symbol} in the PTX; it has {', '.join(kernels) or 'none'}")
    return kernels[symbol] if assembled is None else as_assembled(kernels[symbol], assembled)


def launch(
    kernel: Kernel,
    grid: Sequence[int],
    block: Sequence[int] | int,
    arguments: Sequence[Any],
    *,
    shared_bytes: int = 0,
    races: bool = True,
    count: bool = True,
    exact: bool = True,
    values: bool = True,
    only_blocks: Sequence[int] | None = None,
    source: str | None = None,
    budget: int = BUDGET,
    lanes: int = LANES,
    watch: Watch | None = None,
) -> Result:
    """Run the kernel on grid x block threads; array arguments are changed in place.

    arguments: numbers, contiguous NumPy arrays or Pointers, in the signature's order. shared_bytes: dynamic shared
    memory. races: look for races, missing waits and unwritten shared memory. count: count traffic. exact:
    multiply-add with one rounding (False: two, a little faster). values: False runs addresses and control alone,
    and loads give zeros. only_blocks: numbers of the blocks to run. source: the .cu text, for messages. budget:
    instructions that a batch of blocks may take, one for all lanes that are in step. lanes: threads that run side by
    side, at least one block's. watch: called with each access to global memory, and with those to shared memory that
    have new addresses; needs count.

    Addresses out of bounds and their like are findings in the result; loads from there give zeros and stores do
    nothing. Raises BadLaunch, BudgetExceeded, TooLarge, UnsupportedInstruction.
    """
    place = Place(_three(grid, "grid"), _three((block,) if isinstance(block, int) else block, "block"))
    _check_block(kernel, place)
    program = _program(kernel, shared_bytes, exact)
    static, local = _sizes(kernel, shared_bytes)
    numbers = range(place.grid[0] * place.grid[1] * place.grid[2]) if only_blocks is None else only_blocks
    together = min(max(1, lanes // place.lanes), max(1, len(numbers)))
    _check_memory(program, together * place.lanes, together * static + together * place.lanes * local)

    recorder = Recorder(source)
    memory = GlobalMemory(recorder, place, count, values)
    memory.watch = watch
    params = _bind(kernel, arguments, memory)
    _place_variables(kernel, memory)
    sites: dict[int, Site] = program.context.sites
    grain = min((site.size for site in sites.values() if site.space in ("shared", "generic")), default=4)
    shared = SharedMemory(recorder, place, static, min(grain, 4), counting=count, values=values, races=races)
    shared.watch = watch
    private = LocalMemory(recorder, place, local)
    with program.lock:
        for site in sites.values():
            site.reset()
        machine = Machine(program, place, memory, shared, private, params, recorder, budget, shared_bytes)
        for start in range(0, len(numbers), together):
            machine.run(numbers[start : start + together])
        shared.settle()
        executed = [(e.warps, e.threads) for e in machine.executed]
        _note_approximations(program, executed, recorder)
        lines = tally(kernel, program.blocks, executed, sites.values()) if count else {}
    return Result(kernel.name, kernel.arch, recorder.findings(), lines)


def _note_approximations(program: Program, executed: Sequence[tuple[int, int]], recorder: Recorder) -> None:
    """Say which of the instructions that ran have a GPU's last bits only by luck."""
    for block, (_, threads) in zip(program.blocks, executed, strict=True):
        for instruction in program.context.kernel.instructions[block.start : block.stop] if threads else ():
            if is_approximate(instruction):
                message = f"{instruction.op} gives the nearest float32 here; a GPU's last bits may differ"
                recorder.add("approximation", instruction.line, message, (0, 0, 0), (), count=threads)


def _three(size: Sequence[int], what: str) -> tuple[int, int, int]:
    values = [int(n) for n in size]
    if not 1 <= len(values) <= 3 or min(values) < 1:
        raise BadLaunch(f"the {what} {tuple(values)} must be one to three positive numbers")
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z


def _check_block(kernel: Kernel, place: Place) -> None:
    limit = min(kernel.max_threads or MAX_THREADS, MAX_THREADS)
    if place.threads > limit:
        raise BadLaunch(
            f"{place.threads} threads a block are more than {kernel.name} takes: "
            f"its __launch_bounds__ or the GPU allow {limit}"
        )


@lru_cache(maxsize=64)
def _program(kernel: Kernel, shared_bytes: int, exact: bool) -> Program:
    """Generated code is kept between launches; the addresses in it depend only on what is an argument here."""
    flow = analyse(kernel)
    sites = build_sites(kernel, flow)
    addresses = _addresses(kernel)
    for site in sites.values():
        if site.array is not None:
            site.memo["array"] = addresses[site.array.name]
    return make_program(Context(kernel, flow, {}, addresses, sites, exact))


def _place_variables(kernel: Kernel, memory: GlobalMemory) -> None:
    """Give __device__ and __constant__ variables their memory, in the order that `_addresses` counted on."""
    for variable in kernel.variables:
        if variable.space in ("global", "const"):
            data = np.frombuffer(bytearray(variable.data.ljust(-(-variable.size // 8) * 8, b"\0")), np.uint8)
            memory.add(variable.name, data, variable.size, writable=variable.space == "global")


def _addresses(kernel: Kernel) -> dict[str, int]:
    """Variables' addresses: shared and local ones from 0 in their spaces, global ones behind the arguments' buffers."""
    memory = GlobalMemory(Recorder(None), Place((1, 1, 1), (1, 1, 1)), False, False)
    for param in kernel.params:
        if param.type in ("u64", "b64"):
            memory.add("", None, 1)
    out, ends = {}, {"shared": 0, "local": 0}
    # Dynamic shared memory comes behind all static arrays.
    for variable in sorted(kernel.variables, key=lambda v: v.extern):
        if variable.space in ends:
            start = -(-ends[variable.space] // variable.align) * variable.align
            out[variable.name] = start
            ends[variable.space] = start + variable.size if not variable.extern else ends[variable.space]
    for variable in kernel.variables:
        if variable.space in ("global", "const"):
            out[variable.name] = memory.add(variable.name, None, 1)
    return out


def _sizes(kernel: Kernel, dynamic: int) -> tuple[int, int]:
    """Bytes of shared memory a block, and of local memory a thread."""
    addresses = _addresses(kernel)
    ends = {"shared": 0, "local": 0}
    for variable in kernel.variables:
        if variable.space in ends:
            size = dynamic if variable.extern else variable.size
            ends[variable.space] = max(ends[variable.space], addresses[variable.name] + size)
    if ends["shared"] > MAX_SHARED:
        raise BadLaunch(f"{ends['shared']} bytes of shared memory a block are more than any GPU has ({MAX_SHARED})")
    return max(ends["shared"], dynamic), ends["local"]


def _check_memory(program: Program, lanes: int, further: int) -> None:
    """Refuse before allocating: registers that live across blocks, values inside one, and memories of the batch."""
    live = max((len(names) for names in program.context.flow.live_out), default=0)
    need = lanes * (2 * live + 64) * 8 + 3 * further
    require_room(need, program.context.kernel.name, "run fewer lanes at a time")


def _bind(kernel: Kernel, arguments: Sequence[Any], memory: GlobalMemory) -> dict[str, bytes]:
    if len(arguments) != len(kernel.params):
        raise BadLaunch(f"{kernel.name} takes {len(kernel.params)} arguments, got {len(arguments)}")
    out = {}
    for number, (param, value) in enumerate(zip(kernel.params, arguments, strict=True)):
        if param.type in ("u64", "b64"):
            out[param.name] = _bind_64(kernel, number, value, memory)
        elif isinstance(value, np.ndarray | Pointer):
            raise BadLaunch(f"argument {number} of {kernel.name} is a number (.{param.type}), not a buffer")
        else:
            out[param.name] = _scalar(param, number, value)
    return out


def _bind_64(kernel: Kernel, number: int, value: Any, memory: GlobalMemory) -> bytes:
    """A pointer, or a 64-bit number; both take a place among the buffers, so that variables' addresses stay fixed."""
    if isinstance(value, np.ndarray):
        value = Pointer(value, value.nbytes)
    if not isinstance(value, Pointer):
        memory.add("", None, 0)
        return _scalar(kernel.params[number], number, value)
    data = value.data
    if data is not None:
        if not data.flags.c_contiguous or not data.flags.writeable:
            raise BadLaunch(f"argument {number}: the array must be contiguous and writable")
        data = data.reshape(-1).view(np.uint8)
    return np.uint64(
        memory.add(value.name or parameter_name(kernel, number), data, value.size, skew=value.skew)
    ).tobytes()


def _scalar(param: Param, number: int, value: Any) -> bytes:
    kind = {"u": "u", "b": "u", "s": "i", "f": "f"}[param.type[0]]
    if kind == "f":
        return bytes(np.array(value, f"f{param.size}").tobytes())
    if not isinstance(value, int | np.integer):
        raise BadLaunch(f"argument {number} is a whole number (.{param.type}), got {type(value).__name__}")
    bits = 8 * param.size
    if not -(1 << bits - 1) <= int(value) < 1 << bits:
        raise BadLaunch(f"argument {number}: {value} does not fit {bits} bits")
    return (int(value) & ((1 << bits) - 1)).to_bytes(param.size, "little")


def parameter_name(kernel: Kernel, number: int) -> str:
    """What to call an argument: A, B or C where the kernel has the ladder's signature, else its number."""
    types = [parameter.type[1:] for parameter in kernel.params]
    if types == ["32", "32", "32", "32", "64", "64", "32", "64"]:
        return ("M", "N", "K", "alpha", "A", "B", "beta", "C")[number]
    return f"argument {number}"
