"""What the core's events of tensor-core instructions say."""

from __future__ import annotations

from typing import Any

from worklog.emulator.ptx import Instruction
from worklog.emulator.tensor import fragment

KINDS = ("part-of-warp", "crooked-matrix")  # as in core.h


def told(kind: str, i: Instruction, event: Any) -> tuple[str, str]:
    """The kind and text of a finding."""
    if kind == "part-of-warp":
        return "divergent-warp", f"does not execute {i.parts[0]}, which needs all 32 threads of its warp"
    what = f"gives a matrix at byte {int(event['value']):#x} with {int(event['other_block'])} bytes from line "
    return "misaligned", f"{what}to line: multiples of {fragment(i).align} and 16 are needed"
