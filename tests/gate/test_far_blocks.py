"""Elements with a large row, a large column and many terms are launched, a few blocks of them."""

from functools import partialmethod

import numpy as np
import pytest

from worklog.gate import Memory
from worklog.gate.far_blocks import check_far_blocks
from worklog.kernel import Kernel, Loaded, rung
from worklog.kernel.emulated import EmulatedDevice
from worklog.problem import Shape
from worklog.runs import Stage

LARGEST = (600, 500, 700)
TERM = "acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];"
TO_20_BITS = "{ const float t = __fmul_rn(acc, 17.0f); acc = __fsub_rn(t, __fsub_rn(t, acc)); }"


def with_term(statement: str) -> Kernel:
    text = rung("naive").source
    assert text.count(TERM) == 1
    return rung("naive").with_text(text.replace(TERM, statement))


def launched(kernel: Kernel, *, quick: bool = False) -> Stage | None:
    subject = kernel.load(EmulatedDevice())
    assert isinstance(subject, Loaded)
    memory = Memory(subject.device, np.random.default_rng(3))
    stage = check_far_blocks(subject, memory, LARGEST, quick=quick)
    assert not memory.shapes and subject.device.only_blocks is None
    return stage


def far_blocks(kernel: Kernel, *, quick: bool = False) -> Stage:
    stage = launched(kernel, quick=quick)
    assert stage is not None
    return stage


def test_a_block_that_takes_too_long_leaves_a_note_and_is_no_endless_loop(monkeypatch):
    few = partialmethod(EmulatedDevice.__init__, budget=99)
    monkeypatch.setattr(EmulatedDevice, "__init__", few)
    stage = far_blocks(rung("naive"))
    assert stage.passed and stage.note.startswith("not launched at 600x500x700: ")
    assert "does not end" not in stage.note


@pytest.mark.parametrize(
    "statement",
    [
        f"{TERM} if (row >= 400 && K > 200) {TO_20_BITS}",
        f"{TERM} if (col >= 400 && K > 200) {TO_20_BITS}",
        f"{TERM} if (K > 100 && K < 690) {TO_20_BITS}",
        TERM.replace(";", " * (1.0f - (float)((unsigned)row * col * k >> 27 & 1));"),
    ],
)
def test_what_is_wrong_or_short_in_far_rows_columns_or_terms_fails(statement):
    stage = far_blocks(with_term(statement))
    assert not stage.passed and "in the blocks at the corners of C" in stage.detail


@pytest.mark.parametrize("name", ["naive", "coalesced", "warptiled", "tf32", "tf32x3", "promoted"])
def test_right_kernels_pass(name):
    assert far_blocks(rung(name), quick=True).passed
    stage = far_blocks(rung(name))
    assert stage.passed and stage.detail.startswith("4 launches of the blocks"), stage.detail


def test_blocks_that_need_others_are_not_launched_alone():
    for name in ("split", "best", "ragged"):
        assert launched(rung(name)) is None
    atomic = rung("naive").source.replace(
        "*c = beta == 0.0f ? alpha * acc : alpha * acc + beta * *c;", "atomicAdd(c, alpha * acc);"
    )
    assert launched(rung("naive").with_text(atomic)) is None


def test_a_fault_in_a_far_block_is_raised():
    beyond = "acc += A[(size_t)row * K + k + (row > 590 ? 4096 : 0)] * B[(size_t)k * N + col];"
    subject = with_term(beyond).load(EmulatedDevice())
    memory = Memory(subject.device, np.random.default_rng(3))
    with pytest.raises(Exception, match="global-out-of-bounds"):
        check_far_blocks(subject, memory, LARGEST, quick=True)
    assert Shape(*LARGEST) not in memory.shapes
