"""Launch a compiled kernel on the emulator."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import gt, index
from typing import Any

import numpy as np

from worklog.emulator.core import STEP, native
from worklog.emulator.memory import (
    FIRST_ADDRESS,
    MAP_SIZE,
    SPACING,
    Buffer,
    GlobalMemory,
    Pointer,
    TensorMap,
    require_memory,
)
from worklog.emulator.program import Program, Site, load_variables, program_of
from worklog.emulator.ptx import Array, Kernel, Param
from worklog.emulator.reports import (
    INVALID,
    Access,
    BadLaunch,
    Batch,
    Counts,
    Finding,
    TooLarge,
    total,
)
from worklog.runs.limits import MAX_THREADS, TOO_MANY_BLOCKS, WARP, occupancy

BUDGET = 1_000_000
REGISTERS = 65536  # of a multiprocessor
SMS = 132  # of an H200: where blocks may wait for each other, as many run together as fit there
MOST_BLOCKS = 100_000_000  # of a launch: many minutes even if the kernel does nothing
# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": the same for all GPUs.
MAX_GRID = (2**31 - 1, 65_535, 65_535)
MAX_BLOCK = (1024, 1024, 64)
MOST_PARAMETERS = 32_764  # bytes, since CUDA 12.1 on sm_70 and later
MAX_CLUSTER = 8  # blocks, without an attribute of the function that allows more
NO_RESOURCES = "too many resources requested for launch"  # cudaErrorLaunchOutOfResources
# Shared memory is allocated in units; some is reserved per block for cooperative groups. Here that follows the block's
# own arrays, where a GPU has it before them.
SMEM_UNIT = 128
RESERVED = 1024
RESERVED_OFFSETS = {
    f"%reserved_smem_offset_{name}": offset
    for name, offset in (("begin", 0), ("end", 1024), ("0", 0), ("1", 512))
}
SIGNATURE = ["32", "32", "32", "32", "64", "64", "32", "64"]  # bits of the ladder's parameters


@dataclass(frozen=True)
class Result:
    """label: where the numbers come from. blocks: number of blocks run. findings: mistakes of the kernel, by line.
    lines: counts by source line (0: unknown), empty without `count`. printed: by printf, at most PRINTED lines.
    executed: threads that reached each instruction of the PTX. instructions: of all warps.
    choices: of each, 1 if its guard or selection held for
    some thread, plus 2 if it did not for some. trace: with `trace`, what each warp did, in the order of the emulator: a
    record (worklog.emulator.core.STEP) per access to shared or global memory, bulk copy, barrier and wait.
    sites: of accesses, by pc.
    """

    kernel: str
    label: str
    blocks: int
    findings: tuple[Finding, ...]
    lines: Mapping[int, Counts] = field(hash=False)
    printed: tuple[str, ...] = ()
    executed: tuple[int, ...] = field(default=(), repr=False)
    instructions: int = field(default=0, repr=False)
    choices: Array = field(
        default_factory=lambda: np.zeros(0, np.uint8), repr=False, hash=False, compare=False
    )
    trace: Array = field(
        default_factory=lambda: np.zeros(0, STEP), repr=False, hash=False, compare=False
    )
    sites: Mapping[int, Site] = field(default_factory=dict, repr=False, hash=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return not any(finding.is_error for finding in self.findings)

    @property
    def counts(self) -> Counts:
        """All lines together."""
        return total(self.lines)


def launch(
    kernel: Kernel,
    grid: Sequence[int],
    block: Sequence[int] | int,
    arguments: Sequence[Any],
    *,
    shared_bytes: int = 0,
    races: bool = True,
    count: bool = True,
    only_blocks: Sequence[int] | None = None,
    source: str = "",
    budget: int = BUDGET,
    trace: bool = False,
    variables: Mapping[str, Array] | None = None,
    registers: int = 0,
    progress: Callable[[int, int], None] = lambda done, blocks: None,
    schedule: int = 0,
) -> Result:
    """Run the kernel on grid x block threads; array arguments are changed in place.

    arguments: numbers, contiguous NumPy arrays, Pointers or tensor maps, in the signature's order. shared_bytes:
    dynamic shared memory, checked as one array. races: detect races, missing waits and uninitialised shared memory.
    count: count traffic. only_blocks: numbers of the blocks to run, each with its cluster. source: the .cu text, for
    messages. budget: instructions that a warp may take; an instruction counts once for all lanes that execute it
    together. trace: keep what each warp does, in the result. variables: the loaded module's (load_variables), which
    keep what this launch writes; None: of a module loaded for this launch. registers: per thread, which limit how many
    threads a block has and how many blocks run together; 0 if they aren't known. progress: called again and again with
    the number of blocks that have ended, and of all. schedule: a seed of the order in which blocks start, and warps and
    blocks take turns, as a GPU may take any; 0: by their numbers, in which blocks also start where one may wait for one
    that started earlier. The label names it.

    Addresses out of bounds and similar mistakes are findings in the result; loads there give zeros and stores are
    dropped. Raises BadLaunch, BudgetExceeded, TooLarge, UnsupportedInstruction.
    """
    sizes = _three(grid, "grid"), _three((block,) if isinstance(block, int) else block, "block")
    batch = Batch(
        *sizes, source, count, races, trace, progress, cluster=kernel.cluster or (1, 1, 1)
    )
    limit = min(kernel.max_threads or MAX_THREADS, MAX_THREADS)
    if batch.threads > limit:
        raise BadLaunch(
            f"{INVALID}: {batch.threads} threads per block are more than {kernel.name} allows: "
            f"its __launch_bounds__ or the GPU allow {limit}"
        )
    for what, size, most in (("grid", batch.grid, MAX_GRID), ("block", batch.block, MAX_BLOCK)):
        if any(map(gt, size, most)):
            raise BadLaunch(f"{INVALID}: the {what} {size} exceeds what a GPU allows, {most}")
    if any(size % blocks for size, blocks in zip(batch.grid, batch.cluster, strict=True)):
        raise BadLaunch(
            f"{INVALID}: the grid {batch.grid} is no multiple of the cluster, {batch.cluster} blocks"
        )
    if math.prod(batch.cluster) > MAX_CLUSTER:
        raise BadLaunch(
            f"{INVALID}: a cluster of {batch.cluster} blocks: a GPU allows {MAX_CLUSTER}"
        )
    if shared_bytes < 0:
        raise BadLaunch(f"{INVALID}: {shared_bytes} bytes of dynamic shared memory")
    if not occupancy("sm_90", batch.threads, registers, 0).blocks:
        raise BadLaunch(
            f"{NO_RESOURCES}: {batch.threads} threads x {registers} registers are more than the {REGISTERS:,} that "
            f"an SM has: use fewer threads per block, or __launch_bounds__({batch.threads})"
        )
    program = program_of(kernel, shared_bytes)
    flow = program.flow
    shared = program.shared
    cooperative = "%envreg1" in program.flow.specials
    numbers = _numbers(batch, only_blocks)
    blocks = math.prod(batch.cluster)
    together = 1  # blocks whose state is kept, since they may wait for each other
    if flow.may_wait or cooperative or blocks > 1:
        together = max(
            1, min(SMS * occupancy("sm_90", batch.threads, registers, shared).blocks, len(numbers))
        )
    if cooperative and len(numbers) > together:
        raise BadLaunch(TOO_MANY_BLOCKS.format(len(numbers), together))
    if len(numbers) > MOST_BLOCKS:
        raise TooLarge(f"{len(numbers):,} blocks are too many for the emulator: use a smaller size")
    label = f"emulated · {kernel.arch} PTX"
    if schedule:
        label += f" · schedule {schedule}"
        if len(numbers) <= together or not flow.may_wait:
            clusters = np.reshape(numbers, (-1, blocks))
            numbers = np.random.default_rng(schedule).permutation(clusters).ravel().tolist()
    # Of a resident block: registers, local and shared memory, and the last accesses of its cells. Of any: its number.
    live = max((len(names) for names in flow.live_out), default=0)
    per_thread = 8 * (live + 64) + 2 * program.local
    needed = together * (20 * shared + batch.block_lanes * per_thread) + 32 * len(numbers)
    require_memory(needed, kernel.name, "run fewer blocks, or a smaller size")

    bytes_of_params = sum(param.size for param in kernel.params)
    if bytes_of_params > MOST_PARAMETERS:
        raise BadLaunch(
            f"{INVALID}: the parameters of {kernel.name} have {bytes_of_params:,} bytes, and a GPU allows "
            f"{MOST_PARAMETERS:,}: pass a pointer to a large struct"
        )
    memory = GlobalMemory(batch)
    params = _bind(kernel, arguments, memory)
    specials = _specials(batch, kernel, shared, shared_bytes, memory)
    reserved = RESERVED if flow.specials & {*RESERVED_OFFSETS} else 0
    if reserved:
        shared = -(-shared // SMEM_UNIT) * SMEM_UNIT + reserved
    _place_variables(
        program, memory, load_variables(kernel) if variables is None else variables, params
    )
    if races:  # races are looked for in the buffers that the kernel may write
        places = {
            **program.addresses,
            **{name: int.from_bytes(value, "little") for name, value in params.items()},
        }
        bases = {
            buffer.base for buffer in memory.buffers if buffer.writable and buffer.data is not None
        }
        memory.checked = (
            bases if flow.written is None else bases & {places[name] for name in flow.written}
        )
    executed, costs, reached, choices, steps = native.run(
        program, memory, specials, shared, numbers, budget, reserved, together, schedule
    )
    for number, instruction, kind, message in flow.notes:
        if threads := executed[number][1]:
            line = instruction.line
            text = batch.text(instruction.line)
            batch.add(Finding(kind, line, text, message, (0, 0, 0), (), count=threads))
    lines = _tally(program, executed, costs) if count else {}
    instructions = sum(
        warps * (basic.stop - basic.start)
        for basic, (warps, _) in zip(flow.blocks, executed, strict=True)
    )
    found = batch.findings()
    printed = memory.lines()
    sites = program.sites
    return Result(
        kernel.name,
        label,
        len(numbers),
        found,
        lines,
        printed,
        reached,
        instructions,
        choices,
        steps,
        sites,
    )


def _tally(
    program: Program, executed: Iterable[Sequence[int]], costs: Iterable[tuple[Site, Sequence[int]]]
) -> dict[int, Counts]:
    """Counts by source line. executed: (warps, threads) of each block. costs: of access sites, the fields of Access."""
    lines: dict[int, dict[str, Any]] = defaultdict(
        lambda: {"instructions": Counter(), "thread_fma": 0}
    )
    for block, (warps, threads) in zip(program.flow.blocks, executed, strict=True):
        for instruction in program.kernel.instructions[block.start : block.stop] if warps else ():
            line = lines[instruction.line]
            line["instructions"][instruction.row.counted] += warps
            line["thread_fma"] += threads if instruction.row.counted == "fma" else 0
    for site, numbers in costs:
        if name := site.counted:
            line = lines[site.line]
            line[name] = line.get(name, Access()) + Access(*numbers)
    for line in lines.values():
        line["instructions"] = dict(sorted(line["instructions"].items()))
    return {number: Counts(**line) for number, line in sorted(lines.items())}


def _numbers(batch: Batch, only: Sequence[int] | None) -> Sequence[int]:
    """The numbers of the blocks to run; those of a cluster follow each other."""
    if math.prod(batch.cluster) == 1:
        return range(math.prod(batch.grid)) if only is None else only
    (x, y, z) = batch.grid
    (across, down, deep) = batch.cluster
    placed = np.arange(x * y * z).reshape(z // deep, deep, y // down, down, x // across, across)
    clusters = placed.transpose(0, 2, 4, 1, 3, 5).reshape(-1, across * down * deep)
    chosen = clusters if only is None else clusters[np.isin(clusters, only).any(1)]
    return [*map(int, chosen.ravel())]


def _three(size: Sequence[int], what: str) -> tuple[int, int, int]:
    try:
        x, y, z = (*map(index, size), 1, 1)[: max(3, len(size))]
    except (TypeError, ValueError):
        x = y = z = 0
    if min(x, y, z) < 1 or not len(size):
        raise BadLaunch(f"the {what} {size!r} must be one to three positive integers")
    return x, y, z


def _place_variables(
    program: Program,
    memory: GlobalMemory,
    variables: Mapping[str, Array],
    params: Mapping[str, bytes],
) -> None:
    """Make __device__ and __constant__ variables, and parameters, accessible by their address."""
    addresses = program.addresses
    for variable in program.kernel.variables:
        if variable.name in variables:
            base = addresses[variable.name]
            writable = variable.space == "global"
            memory.buffers.append(
                Buffer(variable.name, base, variable.size, variables[variable.name], writable)
            )
    for param in program.kernel.params:
        data = np.frombuffer(params[param.name], np.uint8)
        memory.buffers.append(
            Buffer(param.name, addresses[param.name], param.size, data, writable=False)
        )


def _specials(
    batch: Batch, kernel: Kernel, shared: int, dynamic: int, memory: GlobalMemory
) -> dict[str, int]:
    """The special registers that are the same for all threads. The %envreg are the driver's: two of them say where the
    barrier of a cooperative grid is. shared: bytes of the block's arrays.
    """
    total = -(-shared // SMEM_UNIT) * SMEM_UNIT
    workspace = FIRST_ADDRESS + len(memory.buffers) * SPACING
    memory.buffers.append(Buffer("the grid's barrier", workspace, 8, np.zeros(8, np.uint8)))
    out = {
        "%nwarpid": batch.block_lanes // WARP,
        "%nsmid": SMS,
        "%cluster_nctarank": math.prod(batch.cluster),
    }
    for axis, threads, blocks, size in zip(
        "xyz", batch.block, batch.grid, batch.cluster, strict=True
    ):
        out |= {f"%ntid.{axis}": threads, f"%nctaid.{axis}": blocks}
        out |= {f"%cluster_nctaid.{axis}": size, f"%nclusterid.{axis}": blocks // size}
    return out | {
        "%is_explicit_cluster": bool(kernel.cluster),
        "%dynamic_smem_size": dynamic,
        "%total_smem_size": total,
        "%aggr_smem_size": total + RESERVED,
        "%reserved_smem_offset_cap": RESERVED,
        **{name: total + offset for name, offset in RESERVED_OFFSETS.items()},
        "%envreg1": workspace >> 32,
        "%envreg2": workspace & 0xFFFFFFFF,
    }


def _bind(kernel: Kernel, arguments: Sequence[Any], memory: GlobalMemory) -> dict[str, bytes]:
    """The bytes of each parameter. Buffers lie at multiples of 256 (as from cudaMalloc) plus their skew."""
    if len(arguments) != len(kernel.params):
        raise BadLaunch(f"{kernel.name} takes {len(kernel.params)} arguments, got {len(arguments)}")
    ladder = [param.type[1:] for param in kernel.params] == SIGNATURE
    out = {}
    bases = dict[tuple[int, int, int], int]()
    for number, (param, value) in enumerate(zip(kernel.params, arguments, strict=True)):
        tensor = value if isinstance(value, TensorMap) else None
        pointer = (
            Pointer(value, value.nbytes)
            if isinstance(value, np.ndarray)
            else tensor.pointer
            if tensor
            else value
        )
        if not isinstance(pointer, Pointer):
            out[param.name] = _scalar(param, number, value)
            continue
        if tensor is not None and (param.type, param.size) != ("b8", MAP_SIZE):
            what = f"not a tensor map of {MAP_SIZE} bytes"
            raise BadLaunch(f"argument {number} of {kernel.name} is .{param.type}, {what}")
        if tensor is None and param.type not in ("u64", "b64"):
            raise BadLaunch(
                f"argument {number} of {kernel.name} must be a number (.{param.type}), not a buffer"
            )
        data = pointer.data
        if data is not None:
            if not data.flags.c_contiguous or not data.flags.writeable or data.dtype.hasobject:
                raise BadLaunch(
                    f"argument {number}: the array must be contiguous and writable, and hold numbers"
                )
            data = data.reshape(-1).view(np.uint8)
        own = (
            ("M", "N", "K", "alpha", "A", "B", "beta", "C")[number]
            if ladder
            else f"argument {number}"
        )
        base = FIRST_ADDRESS + len(memory.buffers) * SPACING + pointer.skew
        place = (data.ctypes.data if data is not None else number, pointer.size, pointer.skew)
        if place not in bases:  # an array that is also in a tensor map has one address
            memory.buffers.append(
                Buffer(pointer.name or own, bases.setdefault(place, base), pointer.size, data)
            )
        out[param.name] = (
            tensor.encoded(bases[place]) if tensor else np.uint64(bases[place]).tobytes()
        )
    return out


def _scalar(param: Param, number: int, value: Any) -> bytes:
    real = isinstance(value, int | float | np.number | np.bool)
    if not real or isinstance(value, np.complexfloating):
        raise BadLaunch(
            f"argument {number} must be a number (.{param.type}), got {type(value).__name__}"
        )
    if param.type[0] == "f":
        with np.errstate(over="ignore"):
            return bytes(np.float64(value).astype(f"f{param.size}").tobytes())
    if param.type == "b8" and isinstance(value, np.floating) and value.nbytes == param.size:
        return bytes(value.tobytes())  # a structure with the bits of a number, such as __half
    if not isinstance(value, int | np.integer | np.bool):
        raise BadLaunch(
            f"argument {number} must be an integer (.{param.type}), got {type(value).__name__}"
        )
    bits = 8 * param.size
    if not -(1 << bits - 1) <= int(value) < 1 << bits:
        raise BadLaunch(f"argument {number}: {value} does not fit in {bits} bits")
    return (int(value) & ((1 << bits) - 1)).to_bytes(param.size, "little")
