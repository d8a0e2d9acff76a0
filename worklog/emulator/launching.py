"""Launch a compiled kernel on the emulator."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import gt, index
from typing import Any, TypedDict, Unpack

import numpy as np

from worklog.emulator.core import STEP, native
from worklog.emulator.limits import MAX_THREADS, SMS, TOO_MANY_BLOCKS, WARP, occupancy
from worklog.emulator.memory import (
    FIRST_ADDRESS,
    MAP_SIZE,
    SPACING,
    AllocatedBuffer,
    GlobalMemory,
    Pointer,
    TensorMap,
    address_of,
    require_memory,
)
from worklog.emulator.program import LoadedProgram, Site, load_variables, program_of
from worklog.emulator.ptx import Array, Param, PtxKernel
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

BUDGET = 1_000_000
REGISTERS = 65536  # of a multiprocessor
MEETING = 8  # blocks that start at once, if they may see what the others do
NEIGHBOURS = 2  # of these that share a multiprocessor
MOST_BLOCKS = 100_000_000  # of a launch: many minutes even if the kernel does nothing
# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": the same for all
# GPUs.
MAX_GRID = (2**31 - 1, 65_535, 65_535)
MAX_BLOCK = (1024, 1024, 64)
MOST_PARAMETERS = 32_764  # bytes, since CUDA 12.1 on sm_70 and later
MAX_CLUSTER = 8  # blocks, without an attribute of the function that allows more
NO_RESOURCES = "too many resources requested for launch"  # cudaErrorLaunchOutOfResources
# Shared memory is allocated in units. Some is reserved per block for cooperative groups: here it
# follows the block's own arrays, and on a GPU it precedes them.
SMEM_UNIT = 128
RESERVED = 1024
RESERVED_OFFSETS = {
    "%reserved_smem_offset_begin": 0,
    "%reserved_smem_offset_end": 1024,
    "%reserved_smem_offset_0": 0,
    "%reserved_smem_offset_1": 512,
}
SIGNATURE = ["32", "32", "32", "32", "64", "64", "32", "64"]  # bits of the ladder's parameters
LADDER_NAMES = ("M", "N", "K", "alpha", "A", "B", "beta", "C")  # of these parameters
Executed = Sequence[Sequence[int]]  # the warps and the threads that ran each basic block


@dataclass(frozen=True)
class Result:
    """What a launch did.

    label: where the numbers come from
    blocks: number of blocks that ran
    findings: mistakes of the kernel, by line
    lines: counts by source line (0: unknown), empty without `count`
    printed: lines that printf printed, at most PRINTED
    executed: threads that reached each instruction of the PTX
    instructions: of all warps
    choices: of each instruction, 1 if its guard or selection held for some thread, plus 2 if it
        didn't for some
    trace: with `trace`, what each warp did, in the order of the emulator: a record
        (worklog.emulator.core.STEP) per access to shared or global memory, bulk copy, barrier and
        wait
    sites: of accesses, by pc
    read: whether a load read each byte of the variables that have an initial value, by name
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
    read: Mapping[str, Array] = field(default_factory=dict, repr=False, hash=False, compare=False)

    @property
    def ok(self) -> bool:
        """True if no finding is an error."""
        return not any(finding.is_error for finding in self.findings)

    @property
    def counts(self) -> Counts:
        """The counts of all lines together."""
        return total(self.lines)


class LaunchOptions(TypedDict, total=False):
    """The options of a launch."""

    shared_bytes: int  # dynamic shared memory, checked as one array (default: 0)
    races: bool  # detect races, missing waits and uninitialised shared memory (default: True)
    count: bool  # count traffic (default: True)
    only_blocks: Sequence[int] | None  # the blocks to run, each with its cluster (default: all)
    source: str  # the .cu text, for messages
    # Instructions that a warp may take (default: BUDGET). An instruction counts once for all lanes
    # that execute it together.
    budget: int
    trace: bool  # keep what each warp does, in the result (default: False)
    # The loaded module's (load_variables), which keep what this launch writes (default: those of a
    # module that is loaded for this launch).
    variables: Mapping[str, Array] | None
    # Per thread, which limit how many threads a block has and how many blocks run together
    # (default: 0, unknown).
    registers: int
    # By which results of approximations, such as rcp.approx, are above the nearest float32: -1, 0
    # or 1 (default: 0).
    ulps: int
    # Called again and again with the number of blocks that have ended, and of all.
    progress: Callable[[int, int], None]


@dataclass(frozen=True)
class PreparedLaunch:
    """A launch that can be repeated on the same memory, as a loop over a kernel call does."""

    batch: Batch
    program: LoadedProgram
    memory: GlobalMemory
    core: native.PreparedRun
    numbers: Array  # of the blocks to run
    is_ordered: bool  # blocks start by their numbers, whatever the schedule
    barrier: Array  # of a cooperative grid; the driver sets it to 0 before each launch

    def run(self, schedule: int = 0) -> Result:
        """Run the launch once. Raises BudgetExceeded, TooLarge, UnsupportedInstruction.

        schedule: as for launch()
        """
        self.batch.found.clear()
        self.memory.printed = ""
        self.memory.silent = 0
        self.barrier[:] = 0
        numbers = self.numbers
        if schedule and not self.is_ordered:
            numbers = _shuffled(self.batch, numbers, schedule)
        executed, costs, reached, choices, steps = self.core.run(numbers, schedule)
        program = self.program
        _add_notes(self.batch, program, executed)
        return Result(
            kernel=program.kernel.name,
            label=_label(program.kernel, schedule),
            blocks=len(numbers),
            findings=self.batch.findings(),
            lines=_tally(program, executed, costs) if self.batch.counting else {},
            printed=self.memory.lines(),
            executed=reached,
            instructions=_instructions(program, executed),
            choices=choices,
            trace=steps,
            sites=program.sites,
            read={
                buffer.name: buffer.read.copy()
                for buffer in self.memory.buffers
                if buffer.read is not None
            },
        )


def launch(
    kernel: PtxKernel,
    grid: Sequence[int],
    block: Sequence[int] | int,
    arguments: Sequence[Any],
    *,
    schedule: int = 0,
    **options: Unpack[LaunchOptions],
) -> Result:
    """Run the kernel on grid x block threads. Array arguments are changed in place.

    arguments: numbers, contiguous NumPy arrays, Pointers or tensor maps, in the signature's order
    schedule: a seed of the order in which blocks start, and in which warps and blocks take turns,
        as a GPU may take any order. 0: by their numbers. Blocks also start by their numbers if a
        block may wait for a block that started earlier. The label names the schedule.
    options: as LaunchOptions describes them

    Addresses out of bounds and similar mistakes are findings in the result: loads there yield zeros
    and stores are dropped. Raises BadLaunch, BudgetExceeded, TooLarge, UnsupportedInstruction.
    """
    return prepare(kernel, grid, block, arguments, **options).run(schedule)


def prepare(
    kernel: PtxKernel,
    grid: Sequence[int],
    block: Sequence[int] | int,
    arguments: Sequence[Any],
    **options: Unpack[LaunchOptions],
) -> PreparedLaunch:
    """Return a launch that is ready to run, once or several times.

    arguments: as for launch()

    Raises BadLaunch, TooLarge, UnsupportedInstruction.
    """
    shared_bytes = options.get("shared_bytes", 0)
    registers = options.get("registers", 0)
    variables = options.get("variables")
    batch = Batch(
        grid=_three(grid, "grid"),
        block=_three((block,) if isinstance(block, int) else block, "block"),
        source=options.get("source", ""),
        counting=options.get("count", True),
        races=options.get("races", True),
        traced=options.get("trace", False),
        cluster=kernel.cluster or (1, 1, 1),
    )
    if "progress" in options:
        batch.progress = options["progress"]
    _require_valid(batch, kernel, shared_bytes, registers)
    program = program_of(kernel, shared_bytes)
    numbers = _numbers(batch, options.get("only_blocks"))
    residency = _residency(batch, program, len(numbers), registers)
    _require_host_memory(batch, program, residency.together, len(numbers))
    _require_few_parameters(kernel)
    memory = GlobalMemory(batch)
    params = _bind(kernel, arguments, memory)
    barrier = _grid_barrier(memory)
    specials = _specials(batch, kernel, program.shared, shared_bytes, barrier.base)
    _place_variables(
        program, memory, load_variables(kernel) if variables is None else variables, params
    )
    if batch.races:
        memory.checked = _checked(program, memory, params)
    shared = program.shared
    reserved = 0
    if program.flow.specials & RESERVED_OFFSETS.keys():
        reserved = RESERVED
        shared = -(-shared // SMEM_UNIT) * SMEM_UNIT + reserved
    planned = native.CoreLaunch(
        specials=specials,
        shared=shared,
        blocks=len(numbers),
        budget=options.get("budget", BUDGET),
        reserved=reserved,
        together=residency.together,
        meeting=residency.meeting,
        neighbours=residency.neighbours,
        ulps=options.get("ulps", 0),
    )
    assert barrier.data is not None
    is_whole = isinstance(numbers, range)  # which takes long to convert
    return PreparedLaunch(
        batch=batch,
        program=program,
        memory=memory,
        core=native.PreparedRun(program, memory, planned),
        numbers=np.arange(len(numbers)) if is_whole else np.array(numbers, np.int64),
        is_ordered=len(numbers) > residency.together and program.flow.may_wait,
        barrier=barrier.data,
    )


def _label(kernel: PtxKernel, schedule: int) -> str:
    """Return the label of a launch."""
    label = f"emulated · {kernel.arch} PTX"
    return f"{label} · schedule {schedule}" if schedule else label


def _shuffled(batch: Batch, numbers: Array, seed: int) -> Array:
    """Return the numbers of the blocks in a random order of the clusters."""
    blocks = math.prod(batch.cluster)
    if len(numbers) == blocks:
        return numbers
    order: Array = np.random.default_rng(seed).permutation(numbers.reshape(-1, blocks)).ravel()
    return order


def _instructions(program: LoadedProgram, executed: Sequence[Sequence[int]]) -> int:
    """Return the instructions of all warps.

    executed: of each basic block, the warps, and their threads
    """
    instructions = 0
    for basic_block, (warps, _) in zip(program.flow.blocks, executed, strict=True):
        instructions += warps * (basic_block.stop - basic_block.start)
    return instructions


def _require_valid(batch: Batch, kernel: PtxKernel, shared_bytes: int, registers: int) -> None:
    """Raise BadLaunch for a configuration that no GPU accepts."""
    limit = min(kernel.max_threads or MAX_THREADS, MAX_THREADS)
    if batch.threads > limit:
        raise BadLaunch(
            f"{INVALID}: {batch.threads} threads per block are more than {kernel.name} allows: "
            f"its __launch_bounds__ or the GPU allow {limit}"
        )
    for name, size, maximum in (("grid", batch.grid, MAX_GRID), ("block", batch.block, MAX_BLOCK)):
        if any(map(gt, size, maximum)):
            raise BadLaunch(f"{INVALID}: the {name} {size} exceeds what a GPU allows, {maximum}")
    if any(size % blocks for size, blocks in zip(batch.grid, batch.cluster, strict=True)):
        raise BadLaunch(
            f"{INVALID}: the grid {batch.grid} is no multiple of the cluster, {batch.cluster} "
            "blocks"
        )
    if math.prod(batch.cluster) > MAX_CLUSTER:
        raise BadLaunch(
            f"{INVALID}: a cluster of {batch.cluster} blocks: a GPU allows {MAX_CLUSTER}"
        )
    if shared_bytes < 0:
        raise BadLaunch(f"{INVALID}: {shared_bytes} bytes of dynamic shared memory")
    if not occupancy("sm_90", batch.threads, registers, 0).blocks:
        raise BadLaunch(
            f"{NO_RESOURCES}: {batch.threads} threads x {registers} registers are more than the "
            f"{REGISTERS:,} that "
            f"an SM has: use fewer threads per block, or __launch_bounds__({batch.threads})"
        )


@dataclass(frozen=True)
class Residency:
    """How many blocks run together, since they may wait for each other or see what others do.

    Their state is kept.
    """

    together: int  # at most
    meeting: int  # that start at once, if there is a schedule
    neighbours: int  # that share a multiprocessor then


def _residency(batch: Batch, program: LoadedProgram, blocks: int, registers: int) -> Residency:
    """Return how many blocks run together.

    Raises BadLaunch if the blocks of a cooperative launch don't fit, TooLarge for more blocks than
    can be run.
    """
    flow = program.flow
    is_cooperative = "%envreg1" in flow.specials
    on_one = max(1, occupancy("sm_90", batch.threads, registers, program.shared).blocks)
    together = 1
    # If blocks may wait for each other, as many run together as fit the emulated card.
    if flow.may_wait or is_cooperative or math.prod(batch.cluster) > 1:
        together = max(1, min(SMS * on_one, blocks))
    elif flow.may_meet:
        together = max(1, min(MEETING, blocks))
    if is_cooperative and blocks > together:
        raise BadLaunch(TOO_MANY_BLOCKS.format(blocks, together))
    if blocks > MOST_BLOCKS:
        raise TooLarge(f"{blocks:,} blocks are too many for the emulator: use a smaller size")
    meeting = min(MEETING, together) if flow.may_meet else 1
    return Residency(together, meeting, min(NEIGHBOURS, on_one))


def _require_host_memory(batch: Batch, program: LoadedProgram, together: int, blocks: int) -> None:
    """Raise TooLarge if the host has too little free memory for the blocks."""
    # A resident block has registers, local and shared memory, and the last accesses of its cells.
    # Any block has a number.
    thread_bytes = 8 * (program.most_live + 64) + 2 * program.local
    block_bytes = 20 * program.shared + batch.block_lanes * thread_bytes
    needed = together * block_bytes + 32 * blocks
    require_memory(needed, program.kernel.name, "run fewer blocks, or a smaller size")


def _require_few_parameters(kernel: PtxKernel) -> None:
    """Raise BadLaunch if the kernel's parameters have more bytes than a GPU allows."""
    param_bytes = sum(param.size for param in kernel.params)
    if param_bytes > MOST_PARAMETERS:
        raise BadLaunch(
            f"{INVALID}: the parameters of {kernel.name} have {param_bytes:,} bytes, and a GPU "
            "allows "
            f"{MOST_PARAMETERS:,}: pass a pointer to a large struct"
        )


def _checked(program: LoadedProgram, memory: GlobalMemory, params: Mapping[str, bytes]) -> set[int]:
    """Return the bases of the buffers that the kernel may write: races are detected in these."""
    bases = set[int]()
    for buffer in memory.buffers:
        if buffer.writable and buffer.data is not None:
            bases.add(buffer.base)
    if program.flow.written is None:
        return bases
    addresses = dict(program.addresses)
    for name, value in params.items():
        addresses[name] = int.from_bytes(value, "little")
    return bases & {addresses[name] for name in program.flow.written}


def _add_notes(batch: Batch, program: LoadedProgram, executed: Executed) -> None:
    """Add findings for instructions that ran and whose results may differ on a GPU."""
    for number, instruction, kind, message in program.flow.notes:
        threads = executed[number][1]
        if threads:
            text = batch.text(instruction.line)
            batch.add(Finding(kind, instruction.line, text, message, (0, 0, 0), (), count=threads))


def _tally(
    program: LoadedProgram, executed: Executed, costs: Iterable[tuple[Site, Sequence[int]]]
) -> dict[int, Counts]:
    """Return the counts by source line.

    costs: of access sites, the fields of Access
    """
    lines: dict[int, dict[str, Any]] = defaultdict(
        lambda: {"instructions": Counter(), "thread_fma": 0}
    )
    for block, (warps, threads) in zip(program.flow.blocks, executed, strict=True):
        if not warps:
            continue
        for instruction in program.kernel.instructions[block.start : block.stop]:
            line = lines[instruction.line]
            line["instructions"][instruction.opcode.counted] += warps
            if instruction.opcode.counted == "fma":
                line["thread_fma"] += threads
    for site, numbers in costs:
        name = site.counted
        if name:
            line = lines[site.line]
            line[name] = line.get(name, Access()) + Access(*numbers)
    for line in lines.values():
        line["instructions"] = dict(sorted(line["instructions"].items()))
    return {number: Counts(**line) for number, line in sorted(lines.items())}


def _numbers(batch: Batch, only_blocks: Sequence[int] | None) -> Sequence[int]:
    """Return the numbers of the blocks to run. The numbers of a cluster follow each other."""
    if math.prod(batch.cluster) == 1:
        return range(math.prod(batch.grid)) if only_blocks is None else only_blocks
    columns, rows, layers = batch.grid
    across, down, deep = batch.cluster
    numbers = np.arange(columns * rows * layers)
    by_cluster = numbers.reshape(
        layers // deep, deep, rows // down, down, columns // across, across
    )
    clusters = by_cluster.transpose(0, 2, 4, 1, 3, 5).reshape(-1, across * down * deep)
    if only_blocks is not None:
        clusters = clusters[np.isin(clusters, only_blocks).any(1)]
    return [*map(int, clusters.ravel())]


def _three(size: Sequence[int], name: str) -> tuple[int, int, int]:
    """Return a size with three dimensions. Raises BadLaunch."""
    numbers: tuple[int, ...]
    try:
        numbers = tuple(map(index, size))
    except (TypeError, ValueError):
        numbers = ()
    if not 1 <= len(numbers) <= 3 or min(numbers) < 1:
        raise BadLaunch(f"the {name} {size!r} must be one to three positive integers")
    width, height, depth = (*numbers, 1, 1)[:3]
    return width, height, depth


def _place_variables(
    program: LoadedProgram,
    memory: GlobalMemory,
    variables: Mapping[str, Array],
    params: Mapping[str, bytes],
) -> None:
    """Make __device__ and __constant__ variables, and parameters, accessible by their address."""
    addresses = program.addresses
    for variable in program.kernel.variables:
        if variable.name in variables:
            is_read = np.zeros(variable.size, np.uint8) if variable.data else None
            memory.buffers.append(
                AllocatedBuffer(
                    variable.name,
                    addresses[variable.name],
                    variable.size,
                    variables[variable.name],
                    writable=variable.space == "global",
                    read=is_read,
                )
            )
    for param in program.kernel.params:
        data = np.frombuffer(params[param.name], np.uint8)
        memory.buffers.append(
            AllocatedBuffer(param.name, addresses[param.name], param.size, data, writable=False)
        )


def _grid_barrier(memory: GlobalMemory) -> AllocatedBuffer:
    """Allocate the barrier of a cooperative grid, and return it."""
    base = FIRST_ADDRESS + len(memory.buffers) * SPACING
    barrier = AllocatedBuffer("the grid's barrier", base, 8, np.zeros(8, np.uint8))
    memory.buffers.append(barrier)
    return barrier


def _specials(
    batch: Batch, kernel: PtxKernel, shared: int, dynamic: int, workspace: int
) -> dict[str, int]:
    """Return the special registers that are the same for all threads.

    shared: bytes of the block's arrays
    dynamic: bytes of dynamic shared memory
    workspace: the address of the grid's barrier, which the driver states in two of its %envreg
    """
    allocated = -(-shared // SMEM_UNIT) * SMEM_UNIT
    specials = {
        "%nwarpid": batch.block_lanes // WARP,
        "%nsmid": SMS,
        "%cluster_nctarank": math.prod(batch.cluster),
    }
    for axis, threads, blocks, cluster_blocks in zip(
        "xyz", batch.block, batch.grid, batch.cluster, strict=True
    ):
        specials[f"%ntid.{axis}"] = threads
        specials[f"%nctaid.{axis}"] = blocks
        specials[f"%cluster_nctaid.{axis}"] = cluster_blocks
        specials[f"%nclusterid.{axis}"] = blocks // cluster_blocks
    specials |= {
        "%is_explicit_cluster": bool(kernel.cluster),
        "%dynamic_smem_size": dynamic,
        "%total_smem_size": allocated,
        "%aggr_smem_size": allocated + RESERVED,
        "%reserved_smem_offset_cap": RESERVED,
        "%envreg1": workspace >> 32,
        "%envreg2": workspace & 0xFFFFFFFF,
    }
    for name, offset in RESERVED_OFFSETS.items():
        specials[name] = allocated + offset
    return specials


def _bind(kernel: PtxKernel, arguments: Sequence[Any], memory: GlobalMemory) -> dict[str, bytes]:
    """Return the bytes of each parameter, and add the buffers that arguments point to.

    Buffers lie at multiples of 256 (as from cudaMalloc) plus their skew.
    """
    if len(arguments) != len(kernel.params):
        raise BadLaunch(f"{kernel.name} takes {len(kernel.params)} arguments, got {len(arguments)}")
    is_ladder = [param.type[1:] for param in kernel.params] == SIGNATURE
    params = {}
    bases = dict[tuple[int, int, int], int]()
    for number, (param, value) in enumerate(zip(kernel.params, arguments, strict=True)):
        pointer = _pointer(value)
        if pointer is None:
            params[param.name] = _scalar(param, number, value)
            continue
        _require_pointer(kernel, param, number, is_map=isinstance(value, TensorMap))
        data = _bytes_of(pointer, number)
        # An array that is also in a tensor map has one address.
        identity = (address_of(data) if data is not None else number, pointer.size, pointer.skew)
        if identity not in bases:
            bases[identity] = FIRST_ADDRESS + len(memory.buffers) * SPACING + pointer.skew
            name = LADDER_NAMES[number] if is_ladder else f"argument {number}"
            memory.buffers.append(
                AllocatedBuffer(pointer.name or name, bases[identity], pointer.size, data)
            )
        base = bases[identity]
        if isinstance(value, TensorMap):
            encoded = value.encoded(base)
            is_pointer = param.type != "b8"
            params[param.name] = _map_in_memory(memory, encoded) if is_pointer else encoded
        else:
            params[param.name] = base.to_bytes(8, "little")
    return params


def _map_in_memory(memory: GlobalMemory, encoded: bytes) -> bytes:
    """Return the address of a new buffer with a tensor map, as a parameter's bytes."""
    base = FIRST_ADDRESS + len(memory.buffers) * SPACING
    data = np.frombuffer(encoded, np.uint8)
    memory.buffers.append(AllocatedBuffer("a tensor map", base, MAP_SIZE, data, writable=False))
    return base.to_bytes(8, "little")


def _pointer(value: Any) -> Pointer | None:
    """Return the buffer of an argument; None for a number."""
    if isinstance(value, np.ndarray):
        return Pointer(value, value.nbytes)
    if isinstance(value, TensorMap):
        return value.pointer
    return value if isinstance(value, Pointer) else None


def _require_pointer(kernel: PtxKernel, param: Param, number: int, is_map: bool) -> None:
    """Raise BadLaunch if a parameter doesn't take its argument.

    A pointer takes a buffer, or a tensor map in memory. A parameter of its size takes a map itself.
    """
    is_pointer = param.type in ("u64", "b64")
    if is_map and not is_pointer and (param.type, param.size) != ("b8", MAP_SIZE):
        raise BadLaunch(
            f"argument {number} of {kernel.name} is .{param.type}, not a tensor map of {MAP_SIZE} "
            "bytes or its address"
        )
    if not is_map and not is_pointer:
        raise BadLaunch(
            f"argument {number} of {kernel.name} must be a number (.{param.type}), not a buffer"
        )


def _bytes_of(pointer: Pointer, number: int) -> Array | None:
    """Return the bytes of an argument's array; None if its values are unknown. Raises BadLaunch."""
    data = pointer.data
    if data is None:
        return None
    if not data.flags.c_contiguous or not data.flags.writeable or data.dtype.hasobject:
        raise BadLaunch(
            f"argument {number}: the array must be contiguous and writable, and hold numbers"
        )
    return data.reshape(-1).view(np.uint8)


def _scalar(param: Param, number: int, value: Any) -> bytes:
    """Return the bytes of a number as an argument. Raises BadLaunch."""
    if isinstance(value, np.float32) and param.type == "f32":  # the most frequent one
        return value.tobytes()
    is_real = isinstance(value, int | float | np.number | np.bool)
    if not is_real or isinstance(value, np.complexfloating):
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
