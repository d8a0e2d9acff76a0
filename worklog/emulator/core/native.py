"""Runs a kernel on the core: decodes its instructions, launches, and puts the core's events into words.

What the core does not have raises NotDecoded, and NumPy runs the kernel.
"""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from worklog.emulator import isa
from worklog.emulator.core.ops import OPS, code
from worklog.emulator.findings import ONE_STORE, BudgetExceeded, TooLarge
from worklog.emulator.flow import branch_target
from worklog.emulator.globalmem import GlobalMemory
from worklog.emulator.program import Program, Site
from worklog.emulator.ptx import DTYPES, Array, Imm, Instruction, Mem, Operand, Reg, Special, Sym, Vec, plain_name
from worklog.kernel.disk_cache import folder

HERE = Path(__file__).parent
SOURCES = ("core.c", "core.h", "ops.py")
FLAGS = ("-O3", "-std=c11", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-shared")
LANES, SLOT, NONE = 32, 128, -1
SLICE = 4_000_000  # instructions until the core returns, for Ctrl-C and progress
EVENTS = 4096
CACHES = {x for x in isa.MODIFIERS if x[:2] in ("L1", "L2")} - {"L2::cache_hint"} | {
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
}
ALU, ACCESS, BRANCH, EXIT, BARRIER, PACK, UNPACK, SHUFFLE, WARP = range(9)
ATOMICS = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
MEETINGS = {"any": 1, "all": 2, "uni": 3, "ballot": 4}
REDUCTIONS = {"add": 6, "min": 7, "max": 8, "and": 9, "or": 10, "xor": 11}
SHUFFLES = ("up", "down", "bfly", "idx")
SPACES = {"global": 0, "shared": 1, "local": 2, "const": 3}
SPECIALS = ("%tid.x", "%tid.y", "%tid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%laneid", "%warpid")
DONE, SLICE_OVER, BUDGET_OVER, DEADLOCK, NO_MEMORY, OTHER_ENGINE = range(6)
KINDS = (
    "out-of-bounds", "misaligned", "read-only", "outside-array", "uninitialised-shared", "shared-race", "global-race",
    "read-only-load", "barrier-after-exit", "divergent-barrier",
)  # fmt: skip

INSTRUCTION = np.dtype(
    [
        (name, "i4")
        for name in ["kind", "op", "guard", "negated", "d", "a", "b", "c", "site", "target", "block", "copies"]
    ]
)
GROUP = np.dtype([("leads", "i4"), ("width", "i4"), ("offset", "i8")])
COST = np.dtype([("relative", "u8", 32), ("start", "u8"), ("masks", "u4", 4), ("costs", "i8", 6)])
SITE = np.dtype([
    *((name, "i4") for name in ("op", "space", "size", "count")), ("values", "i4", 4),
    *((name, "i4") for name in ("width", "is_signed", "wide", "groups_count")),
    *((name, "i4") for name in ("read_only", "strong", "atomic", "is_float", "result", "unused")),
    *((name, "i8") for name in ("offset", "array_start", "array_size")), ("groups", GROUP, 4),
    ("costs", "i8", 6), ("last", COST), ("buffer", "i8"),
])  # fmt: skip
CELL = np.dtype([("stamps", "u4", 9), ("agreed", "u4")])
BUFFER = np.dtype([("base", "u8"), ("size", "u8"), ("data", "u8"), ("cells", "u8"), ("writable", "i4"), ("", "i4")])
EVENT = np.dtype([
    *((name, "i4") for name in ("kind", "pc", "other_pc", "thread", "other_thread", "warps_differ")),
    ("lanes", "u4"), ("", "u4"), *((name, "i8") for name in ("block", "other_block", "value", "count")),
])  # fmt: skip
POINTERS = ("code", "sites", "buffers", "image", "numbers", "executed", "events", "specials")
WIDE = ("blocks_count", "next", "code_count", "budget", "slice", "steps")
NARROW = (
    "shared_size", "local_size", "buffers_count", "grain", "counting", "checking", "values", "sites_count",
    "stuck_pc", "stuck_thread", "other_engine", "unused",
)  # fmt: skip


BLOCKS = (
    "with nothing that orders the blocks: use atomics, or a flag with __threadfence() before it is set and after it is "
    "seen"
)
READ_ONLY_LOAD = "with a load (const __restrict__ or __ldg) that needs memory that no thread writes during the launch"
BY_WARP = "a barrier counts warps, so this works while no warp is split; let all reach the same __syncthreads()"


class NotDecoded(Exception):
    """The core does not have something in a kernel."""


class Launch(ctypes.Structure):
    """As in core.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in POINTERS),
        *((name, ctypes.c_int64) for name in WIDE),
        *((name, ctypes.c_int32) for name in ("file_size", "special_count", "events_count", "events_room")),
        ("grid", ctypes.c_int32 * 3),
        ("block", ctypes.c_int32 * 3),
        *((name, ctypes.c_int32) for name in NARROW),
        ("stuck_block", ctypes.c_int64),
        ("running", ctypes.c_void_p),
    )


@cache
def library() -> Any:
    """The core for this CPU, compiled where that has not been done."""
    cpu = Path("/proc/cpuinfo")
    fast = cpu.exists() and {"avx2", "fma"} <= {*cpu.read_text().split()}
    flags = (*FLAGS, *(("-mavx2", "-mfma") if fast else ()))
    text = "".join((HERE / name).read_text(encoding="utf-8") for name in SOURCES) + " ".join(flags)
    target = folder() / f"core-{hashlib.sha256(text.encode()).hexdigest()[:16]}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        build = target.with_suffix(".build")
        build.mkdir(exist_ok=True)
        (build / "ops.inc").write_text(code(), encoding="utf-8")
        out = build / target.name
        command = ["cc", *flags, f"-I{build}", "-o", str(out), str(HERE / "core.c"), "-lm"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        out.replace(target)
    loaded = ctypes.CDLL(str(target))
    known = (ctypes.c_int32 * 6)()
    loaded.sizes(known)
    ours = [dtype.itemsize for dtype in (INSTRUCTION, SITE, BUFFER, EVENT)] + [ctypes.sizeof(Launch), CELL.itemsize]
    assert [*known] == ours, ([*known], ours)
    return loaded


class Decoded(NamedTuple):
    """A program for the core. image: of a register file. params: offset there; name, byte and dtype of the parameter,
    and bytes of the register that it is extended to.
    """

    code: Array
    sites: Array
    owners: tuple[Site, ...]
    image: Array
    specials: Array
    params: tuple[tuple[int, str, int, str, int], ...]


def width_of(type_: str) -> int:
    """Bytes of a register of a PTX type, 0 for a predicate."""
    return 0 if type_ == "pred" else np.dtype(DTYPES[type_]).itemsize


class Decoder:
    """Makes the records of a program. A register has a slot while it is live."""

    def __init__(self, program: Program) -> None:
        self.program, self.code = program, program.kernel.instructions
        self.constants: dict[tuple[bytes, str], int] = {}
        self.params: dict[tuple[str, int, str, int], int] = {}
        self.specials: dict[str, int] = {}
        self.end = 0
        self.values: list[tuple[int, Array]] = []

    def decoded(self) -> Decoded:
        """The whole program. Raises NotDecoded."""
        starts = {block.start: block.index for block in self.program.flow.blocks}
        records = np.zeros(len(self.code), INSTRUCTION)
        for name in ("guard", "d", "a", "b", "c", "site", "target", "block"):
            records[name] = NONE
        owners = tuple(self.program.sites.values())
        numbers = {site.pc: number for number, site in enumerate(owners)}
        sites = np.zeros(len(owners), SITE)
        # Constants come first, so the registers' offsets follow when all are known.
        self.registers = self._allocate()
        rows = [self._instruction(i, numbers, sites) for i in self.code]
        base = self.end
        for pc, row in enumerate(rows):
            for name, value in row.items():
                records[pc][name] = base + value.place if isinstance(value, Place) else value
            records[pc]["block"] = starts.get(pc, NONE)
        for site, result, values in self.site_values:
            sites[site]["result"] = base + result.place if isinstance(result, Place) else result
            sites[site]["values"][: len(values)] = [
                base + value.place if isinstance(value, Place) else value for value in values
            ]
        image = np.full(base + self.size, 0xFF, np.uint8)
        for offset, lanes in self.values:
            image[offset : offset + lanes.nbytes] = lanes.view(np.uint8)
        image[base : base + self.predicates] = 0
        specials = np.array([(SPECIALS.index(name), at) for name, at in self.specials.items()], np.int32).ravel()
        params = tuple((at, *key) for key, at in self.params.items())
        return Decoded(records, sites, owners, image, specials, params)

    # Registers.

    def _allocate(self) -> dict[str, Place]:
        """A place for each register, which others may have where it is not live."""
        spans: dict[str, list[int]] = {}
        types: dict[str, str] = {}

        def touch(name: str, pc: int) -> None:
            span = spans.setdefault(name, [pc, pc])
            span[0], span[1] = min(span[0], pc), max(span[1], pc)

        flow = self.program.flow
        for block in flow.blocks:
            for name in flow.live_in[block.index]:
                touch(name, block.start)
            for name in flow.live_out[block.index]:
                touch(name, block.stop)
        for i in self.code:
            for reg in (*isa.used(i), *isa.defined(i)):
                touch(reg.name, i.pc)
                types[reg.name] = reg.type
        predicates = [name for name in spans if types[name] == "pred"]
        places = {name: Place(4 * number) for number, name in enumerate(predicates)}
        self.predicates = self.size = -(-4 * len(predicates) // SLOT) * SLOT
        free: dict[int, list[int]] = {1: [], 2: []}
        active: list[tuple[int, int, int]] = []
        for name in sorted(spans.keys() - places.keys(), key=lambda name: spans[name][0]):
            start, stop = spans[name]
            slots = 2 if width_of(types[name]) == 8 else 1
            for ended in [entry for entry in active if entry[0] < start]:
                active.remove(ended)
                free[ended[1]].append(ended[2])
            if free[slots]:
                place = free[slots].pop()
            else:
                place, self.size = self.size, self.size + slots * SLOT
            active.append((stop, slots, place))
            places[name] = Place(place)
        self.site_values: list[tuple[int, Any, list[Any]]] = []
        return places

    def _constant(self, value: Any, dtype: str) -> int:
        lanes = np.full(LANES, value, dtype) if dtype != "?" else np.array([0xFFFFFFFF * bool(value)], np.uint32)
        key = (lanes[:1].tobytes(), lanes.dtype.str)
        if key not in self.constants:
            self.constants[key] = self._room(lanes.nbytes)
            self.values.append((self.constants[key], lanes))
        return self.constants[key]

    def _room(self, size: int) -> int:
        at, self.end = self.end, self.end + -(-size // SLOT) * SLOT
        return at

    def _param(self, name: str, offset: int, dtype: str, width: int) -> int:
        key = (name, offset, dtype, width)
        if key not in self.params:
            self.params[key] = self._room(LANES * width)
        return self.params[key]

    def _source(self, operand: Operand | None, type_: str) -> Any:
        width, dtype = width_of(type_), DTYPES[type_].replace("i", "u")
        if isinstance(operand, Reg):
            if width_of(operand.type) != width:
                raise NotDecoded(operand)
            return self.registers[operand.name]
        if isinstance(operand, Imm):
            if dtype[0] == "f":
                return self._constant(float(operand.value), dtype)
            bits = int(operand.value) if operand.kind == "int" else operand.bits
            return self._constant(np.array([bits % 2**64], np.uint64).astype(dtype)[0], dtype)
        if isinstance(operand, Special) and operand.name in SPECIALS and width == 4:
            if operand.name not in self.specials:
                self.specials[operand.name] = self._room(SLOT)
            return self.specials[operand.name]
        if isinstance(operand, Special) and operand.name.startswith(("%ntid", "%nctaid")) and width == 4:
            return self._param(operand.name, 0, "u4", 4)
        if isinstance(operand, Sym) and operand.name in self.program.addresses:
            return self._constant(self.program.addresses[operand.name], dtype)
        raise NotDecoded(operand)

    # Instructions.

    def _instruction(self, i: Instruction, numbers: Mapping[int, int], sites: Array) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if i.guard:
            out |= {"guard": self.registers[i.guard[0].name], "negated": i.guard[1]}
        name = i.parts[0]
        if name == "bra":
            return {**out, "kind": BRANCH, "target": branch_target(self.program.kernel, i)}
        if name in isa.EXITS:
            return {**out, "kind": EXIT}
        if isa.is_barrier(i):
            number = i.operands[0] if len(i.operands) == 1 else None
            if "sync" not in i.parts or not isinstance(number, Imm) or number.value:
                raise NotDecoded(i.text)
            return {**out, "kind": BARRIER}
        if name == "taken":
            return {**out, "kind": ALU, "op": 0}
        if name == "ld" and "param" in i.parts and i.pc not in numbers:
            target, address = i.operands
            if not isinstance(target, Reg) or not isinstance(address, Mem) or not isinstance(address.base, Sym):
                raise NotDecoded(i.text)
            dtype = DTYPES[i.parts[-1]]
            if width_of(target.type) < np.dtype(dtype).itemsize:
                raise NotDecoded(i.text)
            copy = OPS[f"mov.b{8 * width_of(target.type)}"].number
            place = self._param(address.base.name, address.offset, DTYPES[i.parts[-1]], width_of(target.type))
            return {**out, "kind": ALU, "op": copy, "d": self.registers[target.name], "a": place}
        if i.pc in numbers:
            address = self._access(i, numbers[i.pc], sites)
            return {**out, "kind": ACCESS, "site": numbers[i.pc], "a": address}
        if i.op in ("mov.b64", "mov.b32") and any(isinstance(x, Vec) for x in i.operands):
            return {**out, **self._packed(i)}
        if name == "shfl":
            return {**out, **self._shuffle(i)}
        if isa.is_meeting(i) or name == "activemask":
            return {**out, **self._meeting(i)}
        if i.op not in OPS or not isinstance(i.operands[0], Reg):
            raise NotDecoded(i.text)
        op = OPS[i.op]
        if width_of(i.operands[0].type) != width_of(op.result) or len(i.operands) != 1 + len(op.sources):
            raise NotDecoded(i.text)
        sources = [self._source(x, type_) for x, type_ in zip(i.operands[1:], op.sources, strict=True)]
        fields = dict(zip(("a", "b", "c", "site"), sources, strict=False))
        out |= {"kind": ALU, "op": op.number, "d": self.registers[i.operands[0].name], "copies": name == "mov"}
        return {**out, **fields}

    def _packed(self, i: Instruction) -> dict[str, Any]:
        """mov of two registers to one of twice the width, or back."""
        half = "b32" if i.parts[-1] == "b64" else "b16"
        packs = isinstance(i.operands[1], Vec)
        wide, parts = i.operands if packs else i.operands[::-1]
        if not isinstance(wide, Reg) or not isinstance(parts, Vec) or len(parts.items) != 2:
            raise NotDecoded(i.text)
        halves = [NONE if x is None else self._source(x, half) for x in parts.items]
        if width_of(wide.type) != 2 * width_of(half) or (packs and NONE in halves):
            raise NotDecoded(i.text)
        own = self.registers[wide.name]
        pairs = {"d": own, "a": halves[0]} if packs else {"d": halves[0], "a": own}
        return {"kind": PACK if packs else UNPACK, "op": width_of(wide.type), **pairs, "c": halves[1]}

    def _shuffle(self, i: Instruction) -> dict[str, Any]:
        """shfl.sync of a whole warp."""
        results, *sources, members = i.operands
        target, predicate = results.items if isinstance(results, Vec) else (results, None)
        if not isinstance(members, Imm) or members.bits & 0xFFFFFFFF != 0xFFFFFFFF or not isinstance(target, Reg):
            raise NotDecoded(i.text)
        if i.parts[1] != "sync" or width_of(target.type) != 4 or len(sources) != 3:
            raise NotDecoded(i.text)
        a, b, c = (self._source(x, "b32") for x in sources)
        valid = self.registers[predicate.name] if isinstance(predicate, Reg) else NONE
        mode = SHUFFLES.index(i.parts[2])
        return {"kind": SHUFFLE, "op": mode, "d": self.registers[target.name], "a": a, "b": b, "c": c, "target": valid}

    def _meeting(self, i: Instruction) -> dict[str, Any]:
        """Another instruction of a whole warp."""
        if i.op == "activemask.b32" and isinstance(i.operands[0], Reg):
            return {"kind": WARP, "op": 5, "d": self.registers[i.operands[0].name]}
        *given, members = i.operands
        if not isinstance(members, Imm) or members.bits & 0xFFFFFFFF != 0xFFFFFFFF:
            raise NotDecoded(i.text)
        if i.op == "bar.warp.sync":
            return {"kind": WARP, "op": 0}
        known = {"vote": MEETINGS, "redux": REDUCTIONS}.get(i.parts[0], {}).get(i.parts[2])
        if known is None or len(given) != 2 or not isinstance(given[0], Reg) or i.guard:
            raise NotDecoded(i.text)
        source = self._source(given[1], "pred" if i.parts[0] == "vote" else "b32")
        signed = 2 if i.parts[-1] == "s32" else 0
        return {"kind": WARP, "op": known, "d": self.registers[given[0].name], "a": source, "negated": signed}

    def _access(self, i: Instruction, number: int, sites: Array) -> Any:
        """Fill a site; the place of the address."""
        site, values = self.program.sites[i.pc], list[Place | int]()
        result: Place | int = NONE
        words = {*i.parts[1:-1]} - {"global", "shared", "const", "local", "v2", "v4", "nc", "shared::cta"}
        words -= {"volatile", "relaxed", "cta", "gpu", "sys", "weak", *CACHES}
        operation = [word for word in i.parts[1:-1] if word in ATOMICS]
        atomic = site.op == "atom" and len(operation) == 1 and site.count == 1 and i.parts[-1] in isa.ATOMIC_TYPES
        words -= {*operation} if atomic else set()
        if words or site.space not in SPACES or (site.op not in ("ld", "st") and not atomic):
            raise NotDecoded(i.text)
        operands = [*i.operands]
        if i.parts[0] == "atom":
            target = operands.pop(0)
            result = self.registers[target.name] if isinstance(target, Reg) else NONE
        if site.op == "ld":
            operands.reverse()
        address, *given = operands
        items = [x for operand in given for x in (operand.items if isinstance(operand, Vec) else (operand,))]
        if not isinstance(address, Mem) or len(items) != (1 + (operation == ["cas"]) if atomic else site.count):
            raise NotDecoded(i.text)
        widths = {width_of(x.type) for x in items if isinstance(x, Reg)}
        if len(widths) > 1 or 0 in widths:
            raise NotDecoded(i.text)
        width = widths.pop() if widths else max(site.size, 4)
        if atomic and width != site.size:
            raise NotDecoded(i.text)
        for item in items:
            if isinstance(item, Reg):
                values.append(self.registers[item.name])
            elif item is None and site.op == "ld":
                values.append(NONE)
            elif item is not None:
                values.append(self._source(item, f"{'f' if i.parts[-1][0] == 'f' else 'b'}{8 * width}"))
        record = sites[number]
        record["op"], record["space"] = ("ld", "st", "atom").index(site.op), SPACES[site.space]
        record["atomic"] = ATOMICS.index(operation[0]) if atomic else 0
        record["is_float"], record["strong"] = i.parts[-1][0] == "f", site.strong
        record["size"], record["count"], record["width"] = site.size, site.count, width
        record["is_signed"], record["offset"] = i.parts[-1][0] == "s", site.offset
        record["array_start"], record["array_size"] = site.start, site.array.size if site.array else NONE
        record["groups_count"], record["read_only"] = len(site.groups), "nc" in site.parts
        for k, group in enumerate(site.groups):
            record["groups"][k] = (group.leads, group.width, group.offset)
        record["values"] = NONE
        self.site_values.append((number, result, values))
        if isinstance(address.base, Reg):
            record["wide"] = width_of(address.base.type) == 8
            return self.registers[address.base.name]
        record["wide"] = 1
        start = self.program.addresses[address.base.name] if address.base else 0
        return self._constant(start, "u8")


class Place(NamedTuple):
    """Of a register: bytes after the constants."""

    place: int


@cache
def decoded(program: Program) -> Decoded | None:
    """The program for the core, or None."""
    try:
        beyond = program.flow.fences or program.flow.orders_more_than_barriers
        return None if beyond else Decoder(program).decoded()
    except (NotDecoded, KeyError, ValueError):
        return None


def run(
    program: Program,
    memory: GlobalMemory,
    params: Mapping[str, bytes],
    shared: int,
    local: int,
    numbers: Sequence[int],
    budget: int,
) -> list[list[int]] | None:
    """Run blocks of a decoded program; how often each basic block ran, in warps and threads. Findings go to the batch,
    costs to the program's sites. None, with everything as before, where the core lacks what they do.
    """
    batch, form = memory.batch, decoded(program)
    assert form is not None
    image, sites, code_ = form.image.copy(), form.sites.copy(), form.code
    sizes = {f"%{name}.{axis}": size for name, three in (("ntid", batch.block), ("nctaid", batch.grid))
             for axis, size in zip("xyz", three, strict=True)}  # fmt: skip
    for at, name, place, dtype, width in form.params:
        given = int(sizes[name]).to_bytes(4, "little") if name in sizes else params[name][place:]
        value = given[: np.dtype(dtype).itemsize]
        sign = 0xFF if dtype[0] == "i" and value[-1] > 127 else 0
        image[at : at + LANES * width] = np.frombuffer(value.ljust(width, bytes([sign])) * LANES, np.uint8)
    checks, grain = memory.checks, min([4, *(site.size for site in form.owners)])
    buffers, cells = np.zeros(len(memory.buffers), BUFFER), []
    for record, buffer in zip(buffers, memory.buffers, strict=True):
        record["base"], record["size"], record["writable"] = buffer.base, buffer.size, buffer.writable
        record["data"] = 0 if buffer.data is None else buffer.data.ctypes.data
        if checks is not None and buffer.base in checks.shadows:
            cells.append(np.zeros(-(-buffer.size // grain) + 1, CELL))
            record["cells"] = cells[-1].ctypes.data
    sites["buffer"] = NONE
    events, executed = np.zeros(EVENTS, EVENT), np.zeros((len(program.flow.blocks), 2), np.int64)
    which = np.asarray(numbers, np.int64)
    arrays = (code_, sites, buffers, image, which, executed, events, form.specials)
    launch = Launch(*(array.ctypes.data for array in arrays))
    launch.blocks_count, launch.code_count, launch.budget, launch.slice = len(which), len(code_), budget, SLICE
    launch.file_size, launch.special_count, launch.events_room = image.nbytes, len(form.specials) // 2, EVENTS
    launch.grid[:], launch.block[:] = batch.grid, batch.block
    launch.shared_size, launch.local_size, launch.buffers_count = shared, local, len(buffers)
    launch.grain, launch.sites_count = grain, len(sites)
    launch.counting, launch.checking, launch.values = batch.counting, batch.races and batch.values, batch.values
    core = library()
    shuffles = (form.code["kind"] >= SHUFFLE).any()
    before = [buffer.data.copy() if shuffles and buffer.data is not None else None for buffer in memory.buffers]
    try:
        while (status := core.launch_run(ctypes.byref(launch))) == SLICE_OVER:
            batch.progress(launch.steps, budget)
    finally:
        core.launch_free(ctypes.byref(launch))
    if status == OTHER_ENGINE:
        for buffer, data in zip(memory.buffers, before, strict=True):
            if data is not None and buffer.data is not None and buffer.writable:
                buffer.data[:] = data
        return None
    for site, record in zip(form.owners, sites, strict=True):
        site.costs += record["costs"]
    told = events[: launch.events_count]
    # A __syncthreads() that one pair needs orders the other pairs, too.
    races = told["kind"] == KINDS.index("shared-race")
    told["warps_differ"][races] = told["warps_differ"][races].any()
    for event in told:
        _tell(program, memory, event)
    if status == NO_MEMORY:
        raise TooLarge("no memory for the launch: run fewer blocks at a time")
    if status in (BUDGET_OVER, DEADLOCK):
        place = program.kernel.instructions[max(launch.stuck_pc, 0)]
        stuck = (
            f"thread {launch.stuck_thread} of block {batch.place(launch.stuck_block)} is still near line {place.line}"
        )
        raise BudgetExceeded(f"{'deadlock' if status == DEADLOCK else f'after {budget:,} instructions'}: {stuck}")
    return [[int(warps), int(threads)] for warps, threads in executed]


def _tell(program: Program, memory: GlobalMemory, event: Any) -> None:
    """A finding of an event."""
    batch, kind = memory.batch, str(KINDS[event["kind"]])
    code_, pc, other = program.kernel.instructions, int(event["pc"]), int(event["other_pc"])
    site = program.sites.get(pc)
    batch.blocks = (int(event["block"]),)
    lane, count, value = int(event["thread"]), int(event["count"]), int(event["value"])
    if kind in ("shared-race", "global-race", "read-only-load"):
        sites = program.sites[other], program.sites[pc]
        threads = [(batch.place(int(event["other_block"])), int(event["other_thread"])), batch.locate(lane)]
        apart, what = bool(event["warps_differ"]), sites[0].place
        if kind != "shared-race":
            buffer = memory.at(value)
            what = f"the same bytes of {plain_name(buffer.name if buffer else '')}"
        if kind == "read-only-load":
            fix = READ_ONLY_LOAD
        elif threads[0][0] != threads[1][0]:
            fix = BLOCKS
        elif other == pc:
            fix = ONE_STORE
        elif kind == "global-race" or apart:
            fix = "with no __syncthreads() between them"
        else:
            kind, fix = "missing-syncwarp", "with no __syncwarp() between them"
        batch.tell_race(kind, sites, threads, f"{what}, {fix}", count)
        return
    if kind == "divergent-barrier":
        parts = code_[pc].parts
        if event["warps_differ"]:
            kind, why = "barrier-by-warp", BY_WARP
        elif parts[0] == "bar" or "aligned" in parts:
            why = "all must reach the same __syncthreads()"
        else:
            return
        what = f"waits here, while {value} threads of its block wait at line {code_[other].line}: {why}"
        batch.tell(kind, code_[pc], lane, what, code_[other], count)
        return
    if kind == "barrier-after-exit":
        what = "exits the kernel before this barrier, which other threads of its block reach"
        batch.tell(kind, code_[pc], lane, what, count=count)
        return
    place = site or code_[pc]
    lanes = np.zeros(batch.block_lanes, bool)
    first_lane = lane // LANES * LANES
    lanes[first_lane : first_lane + LANES] = [int(event["lanes"]) >> k & 1 for k in range(LANES)]
    what = kind
    if site is not None:
        space, width = site.space, site.width
        if kind == "out-of-bounds" and space == "global":
            what = f"{site.verb} {width} bytes {memory.name(value)}"
        elif kind == "out-of-bounds":
            what = f"{site.verb} at byte {value} of the block's bytes of {space} memory"
        elif kind == "outside-array" and site.array is not None:
            name = plain_name(site.array.name)
            what = f"{site.verb} at byte {value} of {name}, which has {site.array.size} bytes"
        elif kind == "misaligned":
            what = f"{site.verb} {width} bytes at {space} byte {value}, which is not a multiple of {width}"
        elif kind == "read-only":
            what = f"{site.verb} {width} bytes {memory.name(value)}, which is read-only"
        elif kind == "uninitialised-shared":
            array = plain_name(site.array.name) if site.array else "shared memory"
            what = f"reads {array} before any thread writes there, and line {code_[other].line} uses the value"
        kind = f"{space}-out-of-bounds" if kind in ("out-of-bounds", "outside-array") else kind
    batch.tell(kind, place, lanes, what, None, count)
