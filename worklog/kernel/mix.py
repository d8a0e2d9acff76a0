"""A kernel's instruction mix: what concerns precision, in the PTX and, where NVIDIA's disassembler is installed, in the
machine code.

It is shown beside the gate's verdict and never changes it: the measured error decides, since the counts include code
that is never executed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from worklog.kernel.resources import Compiled, disassemble, disassembler, instructions

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
# Patterns of the instructions of each kind, such as mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32, fma.rz.ftz.f32.
_ARITHMETIC = r"(?:add|sub|mul|fma|mad)\b"
PTX = {
    TENSOR: r"(?:mma|wmma\.mma|wgmma\.mma_async|tcgen05\.mma)\b",
    SHORTENED: r"cvt\..*\b(?:tf32|b?f16(?:x2)?)\b.*\.f32$",
    FLUSHED: r".*\.ftz\b",
    APPROXIMATE: r".*\.(?:approx|full)\b",
    TRUNCATED: rf"{_ARITHMETIC}.*\.rz\b",
    DOUBLE: rf"{_ARITHMETIC}.*\.f64$",
}
# The same in machine code: HMMA.1688.F32.TF32, F2FP.BF16.F32.PACK_AB, DFMA. Flushing, truncation and approximations are
# counted in the PTX only, since every division in machine code consists of them.
SASS = {
    TENSOR: r"[A-Z0-9]*MMA\b",
    SHORTENED: r"F2FP?\..*\b(?:B?F16|TF32)",
    DOUBLE: r"D(?:ADD|MUL|FMA)\b",
}
_BODY = re.compile(r"\.(?P<kind>entry|func)\s+(?:\([^)]*\)\s*)?(?P<name>[\w$]+)\s*(?:\([^)]*\))?[^{;]*\{")
_MNEMONIC = re.compile(r"^\s*(?:@!?%\w+\s+)?([a-z]\w*(?:\.[\w:]+)+)\s", re.MULTILINE)


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
        views = (("PTX", self.ptx), ("machine code", self.sass or {}))
        for kind, words in WORDS.items():
            counts = [f"{view[kind]} in the {where}" for where, view in views if kind in view]
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
    """Of one compiled kernel, with the functions that were not inlined. Raises WorklogError where the disassembler
    fails.
    """
    starts = list(_BODY.finditer(compiled.ptx))
    ends = [*(start.start() for start in starts[1:]), len(compiled.ptx)]
    mnemonics: list[str] = []
    for start, end in zip(starts, ends, strict=True):
        if start["kind"] == "func" or start["name"] == compiled.symbol:
            mnemonics += _MNEMONIC.findall(compiled.ptx[start.end() : end])
    tensor = [name for name in mnemonics if re.match(PTX[TENSOR], name)]
    operands = dict.fromkeys(part for name in tensor for part in name.split(".") if part in OPERANDS)
    tool = disassembler() if compiled.cubin else None
    sass = None
    if tool is not None:
        sass = _counted(instructions(disassemble(compiled.cubin, tool), compiled.symbol), SASS)
    return InstructionMix(_counted(mnemonics, PTX), sass, tuple(operands))


def _counted(names: Iterable[str], kinds: Mapping[str, str]) -> dict[str, int]:
    """Number of instructions of each kind that occurs."""
    return dict(Counter(kind for name in names for kind, pattern in kinds.items() if re.match(pattern, name)))


def tensor_operands(passes: Iterable[Compiled]) -> tuple[str, ...]:
    """Types that the code of a kernel's launches gives to tensor cores."""
    mixes = [instruction_mix(replace(compiled, cubin=b"")) for compiled in passes]
    return tuple(dict.fromkeys(operand for mix in mixes for operand in mix.operands))
