"""A kernel's access pattern and its instruction mix, without running it on a GPU.

The access pattern is the owner of each element of C and the addresses of a warp's loads and stores. It is taken from
the compiled code as the emulator runs it, not from a second description of its indices.

The instruction mix counts what concerns precision, in the PTX and, where NVIDIA's disassembler is installed, in the
machine code. It is shown beside the gate's verdict and never changes it: the measured error decides, since the counts
include code that is never executed.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worklog.emulator import (
    FIRST_ADDRESS,
    SPACING,
    WARP,
    EmulatedDevice,
    Pointer,
    Site,
    launch,
    plain_name,
    sectors,
    wavefronts,
)
from worklog.kernel import Kernel
from worklog.kernel.nvrtc import Compiled
from worklog.kernel.resources import disassemble, disassembler, instructions
from worklog.problem import Shape

Lanes = NDArray[np.int64]
FLOAT = 4
LEAST_K = 64  # floats, so that rows of A lie in different sectors
MATRICES = ("A", "B", "C")


@dataclass(frozen=True)
class Request:
    """One memory instruction of warp 0 in block 0, as the assembler leaves it.

    line: of the .cu file; text: that line. memory: "A", "B" or "C" in global memory, else the shared array's name.
    width: bytes per lane. floats: (lanes, width / 4), the floats of that memory that each active lane accesses.
    sectors: of 32 bytes, in global memory. wavefronts: passes through shared memory; conflicts: those that bank
    conflicts add.
    """

    line: int
    text: str
    memory: str
    is_store: bool
    width: int
    floats: Lanes
    sectors: int = 0
    wavefronts: int = 0
    conflicts: int = 0

    @property
    def in_shared(self) -> bool:
        """Whether it accesses shared memory."""
        return self.memory not in MATRICES


@dataclass(frozen=True)
class AccessPattern:
    """owners: (BM, BN), the thread that stores each element of block 0's tile of C. requests: of warp 0, the first at
    each place of the program. shape: of the problem that was run. label: the source.
    """

    rung: Kernel
    shape: Shape
    owners: Lanes
    requests: tuple[Request, ...]
    label: str

    def first(self, memory: str, *, store: bool = False) -> Request | None:
        """The first load from (or store to) a matrix or a shared array, or None."""
        return next((r for r in self.requests if r.memory == memory and r.is_store == store), None)


def access_pattern(rung: Kernel) -> AccessPattern:
    """Run the first block of a problem of 2 x 2 blocks, without values: well below a second."""
    device, source = EmulatedDevice(), rung.source.splitlines()
    kernel = device.compile(rung.program).kernel
    bm, bn = rung.template["BM"], rung.template["BN"]
    shape = rung.domain.padded(Shape(2 * bm, 2 * bn, LEAST_K))
    owners = np.full(shape.m * shape.n, -1, np.int64)
    requests: dict[int, Request] = {}

    def record(site: Site, address: Lanes, active: NDArray[np.bool_], width: int) -> None:
        """One memory instruction of all lanes of the block (worklog.emulator.globalmem.Watch)."""
        in_global = site.space == "global"
        number, byte = divmod(address - FIRST_ADDRESS, SPACING) if in_global else (address, address)
        floats = byte[:, None] // FLOAT + np.arange(width // FLOAT)
        if in_global and site.writes:
            owners[floats[active]] = np.flatnonzero(active)[:, None]
        warp = active[:WARP]
        if site.pc in requests or not warp.any():
            return
        costs: dict[str, int] = {}
        if in_global:
            memory = MATRICES[int(number[:WARP][warp][0])]
            costs["sectors"] = sectors(byte[None, :WARP], warp[None])[1]
        else:
            memory = plain_name(site.array.name) if site.array else "shared"
            _, costs["wavefronts"], costs["conflicts"] = wavefronts(byte[None, :WARP], warp[None], width)
        text = source[site.line - 1].strip() if site.line else ""
        requests[site.pc] = Request(site.line, text, memory, site.writes, width, floats[:WARP][warp], **costs)

    a, b, c = (Pointer(None, FLOAT * size) for size in (shape.m * shape.k, shape.k * shape.n, shape.m * shape.n))
    arguments = [shape.m, shape.n, shape.k, 1.0, a, b, 0.0, c]
    grid = rung.blocks(shape)
    launch(kernel, grid, rung.threads, arguments, races=False, values=False, only_blocks=[0], watch=record)
    tile = owners.reshape(shape.m, shape.n)[:bm, :bn]
    return AccessPattern(rung, shape, tile, tuple(requests.values()), device.label)


OPERANDS = ("tf32", "f16", "bf16", "e4m3", "e5m2", "s8", "u8", "f64")
SHORT_CLASSES = ("tf32", "fp16", "bf16")
TENSOR, SHORTENED, FLUSHED = "tensor core", "to a shorter format", "flush subnormals"
APPROXIMATE, TRUNCATED, DOUBLE = "approximate", "truncate", "FP64"
WORDS = {
    TENSOR: "tensor-core instructions",
    SHORTENED: "conversions to a shorter format",
    FLUSHED: "instructions that flush subnormals to zero",
    APPROXIMATE: "approximate functions",
    TRUNCATED: "sums or products that truncate",
    DOUBLE: "FP64 sums or products",
}
_BODY = re.compile(r"\.(?P<kind>entry|func)\s+(?:\([^)]*\)\s*)?(?P<name>[\w$]+)\s*(?:\([^)]*\))?[^{;]*\{")
_MNEMONIC = re.compile(r"^\s*(?:@!?%\w+\s+)?([a-z]\w*(?:\.[\w:]+)+)\s", re.MULTILINE)
_TENSOR_PTX = re.compile(r"(?:mma|wmma\.mma|wgmma\.mma_async|tcgen05\.mma)\b")
_TENSOR_SASS = re.compile(r"[A-Z0-9]*MMA")
_ARITHMETIC = ("add", "sub", "mul", "fma", "mad")


@dataclass(frozen=True)
class InstructionMix:
    """ptx, sass: number of instructions by kind, as named above; sass is None without a disassembler. operands: the
    types of the tensor cores' operands, as PTX names them.
    """

    ptx: dict[str, int]
    sass: dict[str, int] | None = None
    operands: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """A line for each kind; empty for a kernel of plain FP32 instructions."""
        lines = []
        for kind, words in WORDS.items():
            views = (("PTX", self.ptx), ("machine code", self.sass or {}))
            counts = [f"{found[kind]} in the {where}" for where, found in views if found.get(kind)]
            if counts:
                of = f" on {', '.join(self.operands)}" if kind == TENSOR and self.operands else ""
                lines.append(f"{words}{of}: {', '.join(counts)}")
        return lines

    def warnings(self, claimed: str) -> list[str]:
        """Where the code contradicts the claimed precision class; never a verdict."""
        kinds = self.ptx.keys() | (self.sass or {}).keys()
        if claimed == "fp32" and TENSOR in kinds:
            return ["fp32 is claimed, and the code uses tensor cores: state fp32-emulated if it adds up split products"]
        if claimed == "fp32" and TRUNCATED in kinds:
            return ["fp32 is claimed, and the code truncates: state fp32-emulated if its sums truncate"]
        if claimed in SHORT_CLASSES and not kinds & {TENSOR, SHORTENED}:
            return [f"{claimed} is claimed, and the code has neither tensor-core instructions nor conversions to it"]
        return []


def instruction_mix(compiled: Compiled) -> InstructionMix:
    """Of one compiled kernel. Raises WorklogError where the disassembler fails."""
    mnemonics = _MNEMONIC.findall(_bodies(compiled.ptx, compiled.symbol))
    kinds = [(kind, name) for name in mnemonics for kind in _kinds(name)]
    tensor = [part for kind, name in kinds if kind == TENSOR for part in name.split(".") if part in OPERANDS]
    tool = disassembler() if compiled.cubin else None
    sass = None
    if tool is not None:
        names = instructions(disassemble(compiled.cubin, tool), compiled.symbol)
        sass = dict(Counter(kind for name in names for kind in _machine_kinds(name)))
    return InstructionMix(dict(Counter(kind for kind, _ in kinds)), sass, tuple(dict.fromkeys(tensor)))


def _bodies(ptx: str, symbol: str) -> str:
    """The kernel's own body and those of functions that were not inlined."""
    starts = list(_BODY.finditer(ptx))
    ends = [*(start.start() for start in starts[1:]), len(ptx)]
    return "\n".join(
        ptx[start.end() : end]
        for start, end in zip(starts, ends, strict=True)
        if start["kind"] == "func" or start["name"] == symbol
    )


def _kinds(mnemonic: str) -> list[str]:
    """The kinds of one PTX instruction: mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32, fma.rz.ftz.f32, …"""
    operation, *parts = mnemonic.split(".")
    if _TENSOR_PTX.match(mnemonic):
        return [TENSOR]
    kinds = []
    if operation == "cvt" and parts[-1] == "f32" and {"tf32", "f16", "bf16", "f16x2", "bf16x2"} & set(parts[:-1]):
        kinds.append(SHORTENED)
    if "ftz" in parts:
        kinds.append(FLUSHED)
    if {"approx", "full"} & set(parts):
        kinds.append(APPROXIMATE)
    if operation in _ARITHMETIC and "rz" in parts:
        kinds.append(TRUNCATED)
    if operation in _ARITHMETIC and parts[-1] == "f64":
        kinds.append(DOUBLE)
    return kinds


def _machine_kinds(name: str) -> list[str]:
    """The kinds of one SASS instruction: HMMA.1688.F32.TF32, F2FP.BF16.F32.PACK_AB, DFMA. Flushing, truncation and
    approximations are counted in the PTX only, since every division in machine code consists of them.
    """
    operation, *parts = name.split(".")
    if _TENSOR_SASS.fullmatch(operation):
        return [TENSOR]
    if operation in ("F2F", "F2FP") and any(part.startswith(("F16", "BF16", "TF32")) for part in parts):
        return [SHORTENED]
    return [DOUBLE] if operation in ("DADD", "DMUL", "DFMA") else []
