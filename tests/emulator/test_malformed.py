"""Odd operands and broken PTX: an error of the package's own that names instruction and line, or a result."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.corpus import forms
from tests.emulator.helpers import HEAD
from worklog.emulator import BadLaunch, Pointer, PtxError, UnsupportedInstruction, launch, load, tensor_map
from worklog.emulator.forms import FORMS, Form
from worklog.errors import WorklogError

REGISTERS = ".reg .b16 %h<3>; .reg .b32 %r<3>; .reg .b64 %rd<3>; .reg .f32 %f<3>; .reg .f64 %d<3>; .reg .pred %p<3>;"
MEMORY = """
ld.global.u32 ld.global.v2.f32 ld.shared.v4.b32 ld.param.u32 ld.param.v2.u32 ld.u32 ld.global.u128 ld ld.const.f32
ld.local.u8 st.global.u32 st.shared.v2.u32 st.u32 st st.local.f32 atom.global.add.u32 atom.shared.cas.b32 atom red
red.add.u32 atom.global.add.v4.f32 cp.async.ca.shared.global cp.async.wait_group cp bar bar.sync bar.warp.sync
barrier.sync bra brx.idx ret call trap mov mov.b64 createpolicy fence prefetch.global.L2 isspacep.global
"""
OPERANDS = """
%h1 %r1 %r2 %rd1 %rd2 %f1 %d1 %p1 !%p1 -%r1 0 -1 32 18446744073709551616 0f7FC00000 0d3FF0000000000000 1.5 08 1e5 _ {}
{%r1,%r2} {%f1,%f2,%f1,%f2} {%r1,_} %r1|%p1 [%rd1] [%rd1+4] [%rd1+x] [%rd1+08] [%rd1+99999999999999999999] [s] [%r1]
[%f1] [%h1] [p] [p+4] [q] [-8] [] [%tid.x] s nowhere L %tid.x %tid WARP_SZ %r99 %rx {%r1,{%r2}} (%r1)
"""
STATEMENT = st.builds(
    lambda guard, opcode, operands: f"{guard}{opcode} {', '.join(operands)};",
    st.sampled_from(("", "", "@%p1 ", "@!%p2 ", "@%r1 ", "@%no ")),
    st.sampled_from((*sorted({opcode for opcode, _ in FORMS}), *MEMORY.split())),
    st.lists(st.sampled_from(OPERANDS.split()), max_size=5),
)


def ptx(statement: str) -> str:
    """A kernel k with the statement in line 7."""
    start = "ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mov.u64 %rd2, s;\n.loc 1 7 3\nL:\n"
    body = f"{REGISTERS} .shared .align 4 .b8 s[64];\n{start}{statement}\nret;\n"
    return f"{HEAD}.visible .entry k(.param .u64 p) {{\n{body}}}\n"


@settings(max_examples=400, deadline=None, derandomize=True)
@given(STATEMENT)
def test_every_statement_runs_or_is_refused_by_name_and_line(statement: str) -> None:
    try:
        launch(load(ptx(statement), "k"), (1,), 40, [np.zeros(8, np.float32)], budget=100)
    except (PtxError, UnsupportedInstruction) as error:
        opcode = statement.split(" ")[1 if statement[0] == "@" else 0]
        assert "line 7" in str(error) or opcode in str(error)
    except WorklogError:
        pass  # as an endless loop


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_broken_text_is_refused(data: st.DataObject) -> None:
    text = ptx("fma.rn.f32 %f1, %f2, 0f3F800000, %f1;\n@%p1 bra L;\nst.global.v2.f32 [%rd1+8], {%f1, %f2};")
    start = data.draw(st.integers(0, len(text)))
    insert = data.draw(st.text("{}[];,.:@%!|+-0x9\n/*_r", max_size=3))
    broken = text[:start] + insert + text[start + data.draw(st.integers(0, 12)) :]
    try:
        kernel = load(broken, "k")
        launch(kernel, (1,), 32, [np.zeros(8, np.float32)] * len(kernel.params), budget=100)
    except WorklogError as error:
        assert str(error)


PIECES = sorted({piece for form in forms.forms() for piece in re.findall(r"\w+|\W", form)})


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.sampled_from(forms.forms()), st.lists(st.tuples(st.integers(0, 60), st.sampled_from(["", *PIECES])), max_size=3)
)
def test_an_instruction_with_other_words_runs_or_is_refused(form: str, changes: list[tuple[int, str]]) -> None:
    pieces = re.findall(r"\w+|\W", form)
    for place, piece in changes:
        pieces[place % len(pieces)] = piece
    head = forms.HEAD + forms.entry(0, "".join(pieces))
    with suppress(WorklogError):
        launch(load(head.replace(forms.WIDE, "")), (1,), 32, [], budget=100)


BUFFER = np.zeros(8, np.float32)
ODD = [None, "x", 1.5, math.nan, 10**30, -1, [1], object(), 1j, True, np.float64(1e300), np.zeros(3, object)]
ODD += [BUFFER[::2], Pointer(BUFFER, 32), Pointer(None, 16), tensor_map(BUFFER, (8,)), BUFFER]
SIZES = [1, 2**40, 0, (1, 1, 1, 1), (), "x", 1.5, None, (1.5,), ("a",), (-1,), (2, 2, 2), [3]]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from(SIZES), st.sampled_from(SIZES), st.lists(st.sampled_from(ODD), max_size=3), st.integers(-9, 9))
def test_odd_arguments_run_or_are_refused(grid: Any, block: Any, arguments: list[Any], shared: int) -> None:
    parameters = ".param .u64 a, .param .f32 b, .param .u32 c"
    text = f"{HEAD}.visible .entry k({parameters}) {{ {REGISTERS} ld.param.f32 %f1, [b]; ret; }}\n"
    with suppress(WorklogError):
        launch(load(text), grid, block, arguments, shared_bytes=shared, budget=100)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("add.s32 %r1, %r2, 08;", "line 7: cannot read PTX at: 'add.s32 %r1, %r2, 08;'"),
        ("ld.global.u32 %r1, [%rd1+x];", "line 7: cannot read PTX at: 'ld.global.u32"),
        ("st.global.u32 [%f1], %r1;", r"line 7: st.global.u32 .*%f1 is .f32: no address"),
        ("st.shared.v2.u32 [%r1], %r1;", r"line 7: st.shared.v2.u32 \(st"),
        ("red.global.add.u32 [%rd1];", r"line 7: red.global.add.u32 \(red"),
        ("ld.param.u32 %r1, [p+8];", r"line 7: ld.param.u32 \(ld"),
        (".shared .align 0 .b8 t[2];", "must be a power of two"),
    ],
)
def test_what_is_wrong_is_named(statement: str, message: str) -> None:
    with pytest.raises((PtxError, UnsupportedInstruction), match=message):
        launch(load(ptx(statement), "k"), (1,), 32, [np.zeros(8, np.float32)])


def test_a_kernel_without_instructions() -> None:
    with pytest.raises(PtxError, match="k has no instructions"):
        launch(load(f"{HEAD}.visible .entry k() {{ }}\n", "k"), (1,), 32, [])


def test_an_argument_of_no_numbers_type() -> None:
    kernel = load(f"{HEAD}.visible .entry k(.param .f32 x) {{ ret; }}\n", "k")
    with pytest.raises(BadLaunch, match=r"argument 0 must be a number \(\.f32\), got str"):
        launch(kernel, (1,), 32, ["one"])


def test_an_exception_while_a_kernel_runs_names_the_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second instruction of three has an expression that fails when it runs."""
    monkeypatch.setitem(FORMS, ("brev.b32", 2), Form(("b32",), "{0}[99]", ("b32",)))
    statement = "add.s32 %r2, %r1, 1;\nbrev.b32 %r2, %r2;\nst.global.u32 [%rd1], %r2;"
    with pytest.raises(UnsupportedInstruction, match=r"^line 7: brev.b32 \(brev.b32 %r2, %r2\): .*\(IndexE"):
        launch(load(ptx(statement), "k"), (1,), 32, [np.zeros(8, np.float32)])
