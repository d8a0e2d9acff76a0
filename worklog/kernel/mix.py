"""A kernel's instruction mix: the instructions in its PTX that concern precision.

It is shown beside the gate's verdict and never changes it: the measured error decides, since the counts include code
that is never executed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from worklog.kernel.resources import Compiled

OPERANDS = ("tf32", "f16", "bf16", "e4m3", "e5m2", "s8", "u8", "f64")
SHORT_CLASSES = ("tf32", "fp16", "bf16")
TENSOR, SHORTENED, TRUNCATED = (
    "tensor-core instructions",
    "conversions to a shorter format",
    "sums or products that truncate",
)
_ARITHMETIC = r"(?:add|sub|mul|fma|mad)\b"
# Patterns of the instructions of each kind, such as mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32, fma.rz.ftz.f32.
KINDS = {
    TENSOR: r"(?:mma|wmma\.mma|wgmma\.mma_async|tcgen05\.mma)\b",
    SHORTENED: r"cvt\..*\b(?:tf32|b?f16(?:x2)?)\b.*\.f32$",
    "instructions that flush subnormals to zero": r".*\.ftz\b",
    "approximate functions": r".*\.(?:approx|full)\b",
    TRUNCATED: rf"{_ARITHMETIC}.*\.rz\b",
    "FP64 sums or products": rf"{_ARITHMETIC}.*\.f64$",
}
_BODY = re.compile(r"\.(?P<kind>entry|func)\s+(?:\([^)]*\)\s*)?(?P<name>[\w$]+)\s*(?:\([^)]*\))?[^{;]*\{")
_MNEMONIC = re.compile(r"^\s*(?:@!?%\w+\s+)?([a-z]\w*(?:\.[\w:]+)+)\s", re.MULTILINE)


@dataclass(frozen=True)
class InstructionMix:
    """counts: by kind, of those of KINDS that occur. operands: types of the tensor cores' operands, as in PTX."""

    counts: dict[str, int]
    operands: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """A line for each kind; empty for a kernel of plain FP32 instructions."""
        on = {TENSOR: f" on {', '.join(self.operands)}"} if self.operands else {}
        return [f"{kind}{on.get(kind, '')}: {self.counts[kind]} in the PTX" for kind in KINDS if kind in self.counts]

    def warnings(self, claimed: str) -> list[str]:
        """Where the code contradicts the claimed precision class; never a verdict."""
        if claimed == "fp32" and TENSOR in self.counts:
            return ["fp32 is claimed, and the code uses tensor cores, whose sums truncate: check a K as long as yours"]
        if claimed == "fp32" and TRUNCATED in self.counts:
            return ["fp32 is claimed, and the code truncates: state fp32-emulated if its sums truncate"]
        if claimed in SHORT_CLASSES and not self.counts.keys() & {TENSOR, SHORTENED}:
            return [f"{claimed} is claimed, and the code has neither tensor-core instructions nor conversions to it"]
        return []


def instruction_mix(compiled: Compiled) -> InstructionMix:
    """Of one compiled kernel, with the functions that were not inlined."""
    starts = list(_BODY.finditer(compiled.ptx))
    ends = [*(start.start() for start in starts[1:]), len(compiled.ptx)]
    names: list[str] = []
    for start, end in zip(starts, ends, strict=True):
        if start["kind"] == "func" or start["name"] == compiled.symbol:
            names += _MNEMONIC.findall(compiled.ptx[start.end() : end])
    counts = Counter(kind for name in names for kind, pattern in KINDS.items() if re.match(pattern, name))
    tensor = [name for name in names if re.match(KINDS[TENSOR], name)]
    operands = dict.fromkeys(part for name in tensor for part in name.split(".") if part in OPERANDS)
    return InstructionMix(dict(counts), tuple(operands))


def tensor_operands(passes: Iterable[Compiled]) -> tuple[str, ...]:
    """Types that the code of a kernel's launches gives to tensor cores."""
    return tuple(dict.fromkeys(operand for compiled in passes for operand in instruction_mix(compiled).operands))
