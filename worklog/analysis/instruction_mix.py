"""A kernel's instruction mix, as far as it concerns precision: tensor cores, conversions to shorter formats, subnormals
flushed to zero, approximate functions, sums that truncate, FP64.

Counted in the PTX, and in the machine code where NVIDIA's disassembler is installed. It is shown beside the gate's
verdict and never changes it: the measured error decides, since the counts include code that is never executed.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from worklog.kernel.nvrtc import Compiled
from worklog.kernel.sass import disassemble, disassembler, instructions

SHORT_TYPES = ("tf32", "f16", "bf16", "e4m3", "e5m2", "s8", "u8")
SHORT_CLASSES = ("tf32", "fp16", "bf16")
TENSOR, SHORTENED, FLUSHED, APPROXIMATE, TRUNCATED, DOUBLE = (
    "tensor core",
    "to a shorter format",
    "flush subnormals",
    "approximate",
    "truncate",
    "FP64",
)
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
    short formats of the tensor cores' operands, as PTX names them.
    """

    ptx: dict[str, int]
    sass: dict[str, int] | None = None
    operands: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """A line for each kind; empty for a kernel of plain FP32 instructions."""
        lines = []
        for kind, words in WORDS.items():
            counts = [f"{found[kind]} in the {where}" for where, found in self._views if found.get(kind)]
            if counts:
                of = f" on {', '.join(self.operands)}" if kind == TENSOR and self.operands else ""
                lines.append(f"{words}{of}: {', '.join(counts)}")
        return lines

    def warnings(self, claimed: str) -> list[str]:
        """Where the code contradicts the claimed precision class; never a verdict."""
        short = self._any(TENSOR) or self._any(SHORTENED)
        if claimed == "fp32" and self._any(TENSOR):
            return ["fp32 is claimed, and the code uses tensor cores: state fp32-emulated if it adds up split products"]
        if claimed == "fp32" and self._any(TRUNCATED):
            return ["fp32 is claimed, and the code truncates: state fp32-emulated if its sums truncate"]
        if claimed in SHORT_CLASSES and not short:
            return [f"{claimed} is claimed, and the code has neither tensor-core instructions nor conversions to it"]
        return []

    @property
    def _views(self) -> list[tuple[str, dict[str, int]]]:
        return [("PTX", self.ptx)] + ([] if self.sass is None else [("machine code", self.sass)])

    def _any(self, kind: str) -> bool:
        return any(found.get(kind) for _, found in self._views)


def instruction_mix(compiled: Compiled) -> InstructionMix:
    """Of one compiled kernel. Raises WorklogError where the disassembler fails."""
    mnemonics = _MNEMONIC.findall(_bodies(compiled.ptx, compiled.symbol))
    kinds = [(kind, name) for name in mnemonics for kind in _kinds(name)]
    tensor = [part for kind, name in kinds if kind == TENSOR for part in name.split(".") if part in SHORT_TYPES]
    tool = disassembler() if compiled.cubin else None
    sass = None
    if tool is not None:
        names = instructions(disassemble(compiled.cubin, tool), compiled.symbol)
        sass = dict(Counter(kind for name in names for kind in _machine_kinds(name)))
    return InstructionMix(dict(Counter(kind for kind, _ in kinds)), sass, tuple(dict.fromkeys(tensor)))


def _bodies(ptx: str, symbol: str) -> str:
    """The kernel's own body and those of functions that were not inlined."""
    found = []
    starts = list(_BODY.finditer(ptx))
    for number, start in enumerate(starts):
        end = starts[number + 1].start() if number + 1 < len(starts) else len(ptx)
        if start["kind"] == "func" or start["name"] == symbol:
            found.append(ptx[start.end() : end])
    return "\n".join(found)


def _kinds(mnemonic: str) -> list[str]:
    """The kinds of one PTX instruction: mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32, fma.rz.ftz.f32, …"""
    operation, *parts = mnemonic.split(".")
    if _TENSOR_PTX.match(mnemonic):
        return [TENSOR]
    kinds = []
    if operation == "cvt" and len(parts) >= 2 and parts[-1] == "f32" and {"tf32", "f16", "bf16"} & set(parts[:-1]):
        kinds.append(SHORTENED)
    if operation == "cvt" and parts[-1] == "f32" and any(part in ("f16x2", "bf16x2") for part in parts):
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
