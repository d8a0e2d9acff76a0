"""A kernel's instruction mix: what concerns precision, in the PTX and, where NVIDIA's disassembler is installed, in the
machine code.

It is shown beside the gate's verdict and never changes it: the measured error decides, since the counts include code
that is never executed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from worklog.kernel.resources import disassemble, disassembler, instructions

if TYPE_CHECKING:
    from worklog.kernel.nvrtc import Compiled

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
            return ["fp32 is claimed, and the code uses tensor cores, whose sums truncate: check a K as long as yours"]
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


def tensor_operands(passes: Iterable[Compiled]) -> tuple[str, ...]:
    """Types that the code of a kernel's launches gives to tensor cores."""
    mixes = [instruction_mix(replace(one, cubin=b"")) for one in passes]
    return tuple(dict.fromkeys(operand for mix in mixes for operand in mix.operands))


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
