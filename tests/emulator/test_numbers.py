"""Numbers that the core's headers and Python both state agree."""

import re

import pytest

from worklog.emulator import launching, limits, memory, program, tensor
from worklog.emulator.core import build, compose, decode, findings

HEADERS = "\n".join(path.read_text(encoding="utf-8") for path in sorted(build.HERE.glob("*.h")))


def numbers() -> dict[str, int]:
    """By name, each value of the headers' enumerations, and each number that is defined."""
    text = re.sub(r"/\*.*?\*/", "", HEADERS, flags=re.DOTALL)
    out = dict[str, int]()
    for body in re.findall(r"enum \w*\s*\{(.*?)\}", text, re.DOTALL):
        number = -1
        for item in filter(None, map(str.strip, body.split(","))):
            name, _, value = (part.strip() for part in item.partition("="))
            number = eval(value, {}, out) if value else number + 1
            assert name not in out, f"{name} is in two enumerations"
            out[name] = number
    for name, value in re.findall(
        r"#define (\w+) (\(\(u?int64_t\)1 << \d+\)|\d+)\s*$", text, re.MULTILINE
    ):
        out[name] = eval(re.sub(r"\(u?int64_t\)", "", value))
    return out


C = numbers()
BITS = {
    "release": "RELEASES", "acquire": "ACQUIRES", "cta": "WITHIN_BLOCK", "cg": "UNCACHED",
    "cv": "UNCACHED",
}  # fmt: skip
PASSES = {"mov": "COPIES", "and.pred": "CONJUNCTION", "or.pred": "DISJUNCTION", "selp": "SELECTION"}
ASYNC_FLAGS = {
    "arrive_drop": "DROPS", "relaxed": "RELAXED", "noComplete": "NO_COMPLETE", "parity": "PARITY",
    "noinc": "COUNTED",
    "complete_tx": "COMPLETES", "mbarrier_init": "OF_INIT",
}  # fmt: skip
STATED = {
    "the types of tensor cores": (tensor.TYPES, [name.upper() for name in tensor.TYPES]),
    "their operations": (
        [tensor.MULTIPLY, tensor.MOVE_MATRICES, tensor.TURN, tensor.MOVE_FRAGMENT,
        tensor.MMA_ASYNC],
        ["MULTIPLY", "MOVE_MATRICES", "TURN", "MOVE_FRAGMENT", "GROUP_MULTIPLY"],
    ),
    "rounding flags": ([*tensor.FLAGS.values()], ["PLAIN", "PLAIN", "SATFINITE", "XOR_BITS"]),
    "spaces": ([*decode.SPACES.values()], ["GLOBAL", "SHARED", "LOCAL", "CONSTANT", "GENERIC"]),
    "accesses": (range(3), ["LOAD", "STORE", "ATOMIC"]),
    "passes": ([compose.PASSES[name] for name in PASSES], [*PASSES.values()]),
    "places": ([decode.WIDE, decode.GENERIC], ["WIDE_PLACE", "GENERIC_PLACE"]),
    "orders": ([decode.ORDER[name] for name in BITS], [*BITS.values()]),
    "async flags": ([decode.FLAGS[name] for name in ASYNC_FLAGS], [*ASYNC_FLAGS.values()]),
    "sizes": (
        [compose.SLOT, compose.LANES, memory.MAP_SIZE, findings.REGISTERS, launching.REGISTERS,
        limits.SMS],
        ["SLOT", "LANES", "MAP_SIZE", "REGISTERS", "REGISTERS", "SMS"],
    ),
    "addresses": ([program.FIRST_FUNCTION], ["FIRST_FUNCTION"]),
}  # fmt: skip


@pytest.mark.parametrize("what", STATED)
def test_python_and_the_core_state_the_same_numbers(what):
    stated, names = STATED[what]
    if what == "the types of tensor cores":
        stated = range(len(stated))
        assert [name for name in C if name in names] == names, "in the order of enum number"
    assert [*stated] == [C[name] for name in names]
