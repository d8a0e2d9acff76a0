"""The instructions of a kernel that concern precision: counted, shown, and never a verdict."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.helpers import SIGNATURE
from worklog.analysis import mix as module
from worklog.analysis.mix import (
    APPROXIMATE,
    DOUBLE,
    FLUSHED,
    SHORTENED,
    TENSOR,
    TRUNCATED,
    InstructionMix,
    instruction_mix,
)
from worklog.kernel import Kernel
from worklog.kernel.device import Program
from worklog.kernel.ladder import LADDER
from worklog.kernel.nvrtc import Compiled, compile_cuda
from worklog.kernel.resources import disassembler

MMA = """
  float d[4] = {};
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, {%4, %4}, "
               "{%0, %1, %2, %3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(cut(A[0])));
  C[0] = d[0];
"""


def compiled(body: str, *options: str) -> Compiled:
    """A kernel, a function that is not inlined, and another kernel that must not count."""
    source = f"""
__device__ __noinline__ unsigned cut(float x) {{
  unsigned y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}}
extern "C" __global__ void kernel({SIGNATURE}) {{ {body} }}
extern "C" __global__ void other({SIGNATURE}) {{ C[0] = __fdividef(A[0], __fadd_rz(B[0], alpha)); }}
"""
    return compile_cuda(Program("kernel.cu", source, "kernel", ("-std=c++17", *options)))


@pytest.mark.parametrize(
    ("body", "options", "kinds"),
    [
        ("C[0] = A[0] * B[0] + C[0];", (), set()),
        ("C[0] = A[0] / B[0] + M / N % K;", (), set()),
        ("C[0] = __uint_as_float(cut(A[0]));", (), {SHORTENED}),
        ('unsigned y; asm("cvt.rn.bf16x2.f32 %0, %1, %1;" : "=r"(y) : "f"(A[0])); C[0] = y;', (), {SHORTENED}),
        ("C[0] = A[0] * B[0] + C[0];", ("--ftz=true",), {FLUSHED}),
        ("C[0] = __expf(A[0]);", (), {APPROXIMATE}),
        ("C[0] = __fmaf_rz(A[0], B[0], C[0]);", (), {TRUNCATED}),
        ("C[0] = (int)A[0];", (), set()),
        ("C[0] = fma((double)A[0], (double)B[0], 1e-9);", (), {DOUBLE}),
    ],
)
def test_each_kind_is_counted(body: str, options: tuple[str, ...], kinds: set[str]) -> None:
    found = instruction_mix(compiled(body, *options))
    assert set(found.ptx) == kinds
    assert (found.sass is None) == (disassembler() is None)
    assert set(found.sass or {}) <= kinds


def test_tensor_cores_are_shown_with_their_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    built = compiled(MMA)
    found = instruction_mix(built)
    assert found.ptx == {TENSOR: 1, SHORTENED: 1} and found.operands == ("tf32",)
    assert found.notes[0].startswith("tensor-core instructions on tf32: 1 in the PTX")
    assert found.sass == ({TENSOR: 1} if disassembler() else None)
    assert instruction_mix(replace(built, cubin=b"")).sass is None
    monkeypatch.setattr(module, "disassembler", lambda: None)
    assert instruction_mix(built).sass is None


@pytest.mark.parametrize(
    ("counts", "claimed", "warned"),
    [
        ({TENSOR: 8}, "fp32", "tensor cores"),
        ({TENSOR: 8}, "fp32-emulated", ""),
        ({TENSOR: 8}, "tf32", ""),
        ({TRUNCATED: 2}, "fp32", "truncates"),
        ({TRUNCATED: 2}, "fp32-emulated", ""),
        ({}, "fp32", ""),
        ({}, "bf16", "bf16 is claimed"),
        ({SHORTENED: 1}, "bf16", ""),
        ({FLUSHED: 100, APPROXIMATE: 2}, "fp32", ""),
    ],
)
def test_code_that_contradicts_a_claim_is_a_warning(counts: dict[str, int], claimed: str, warned: str) -> None:
    found = InstructionMix(counts).warnings(claimed)
    assert len(found) == bool(warned) and warned in "".join(found)
    assert InstructionMix({}, counts).warnings(claimed) == found, "a library's cubin has no PTX"


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_the_ladder_is_plain_fp32(rung: Kernel) -> None:
    built = compile_cuda(rung.program)
    found = instruction_mix(built)
    assert found.notes == [] and found.warnings("fp32") == []
    assert "fma.rn.f32" in built.ptx and not re.search(r"^\s*(atom|red|fma\.rn\.f16)\b", built.ptx, re.MULTILINE)
