"""What the core's events of lanes that meet say."""

from __future__ import annotations

from worklog.emulator.ptx import Instruction

_MASK = "the instruction's member mask"
WORDS = {
    "not-a-member": ("member-mask", "executes the instruction, but is not in its own member mask"),
    "other-mask": ("member-mask", "is in a lane's member mask, but executes the instruction with another one"),
    "not-there": ("divergent-warp", f"is in {_MASK}, but does not execute the instruction"),
    "exited-in-mask": ("exited-in-mask", f"is in {_MASK}, but has exited or does not exist"),
    "undefined-shuffle": ("undefined-shuffle", "shuffles from a lane that is not in its member mask or does not "
                          "execute the shuffle, and line {} uses the value"),
}  # fmt: skip
KINDS = tuple(WORDS)  # as in core.h


def worded(kind: str, other: Instruction) -> tuple[str, str]:
    """The kind and text of a finding. other: the instruction that uses an undefined value."""
    kind, what = WORDS[kind]
    return kind, what.format(other.line)
