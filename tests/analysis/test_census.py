"""What a kernel's code tells of its precision: counted, told, and never a verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from worklog.analysis import instruction_mix as module
from worklog.analysis.instruction_mix import APPROXIMATE, DOUBLE, FLUSHED, SHORTENED, TENSOR, TRUNCATED, Census, census
from worklog.kernel.ladder import LADDER
from worklog.kernel.nvrtc import Compiled, compile_cuda
from worklog.kernel.sass import disassembler
from worklog.peers.exploits import exploits

SIGNATURE = "int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C"
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
    return compile_cuda(source, "kernel", options=("-std=c++17", *options))


@pytest.mark.parametrize(
    ("body", "options", "kinds"),
    [
        ("C[0] = A[0] * B[0] + C[0];", (), set()),
        ("C[0] = A[0] / B[0] + M / N % K;", (), set()),
        ("C[0] = __uint_as_float(cut(A[0]));", (), {SHORTENED}),
        ("C[0] = A[0] * B[0] + C[0];", ("--ftz=true",), {FLUSHED}),
        ("C[0] = __expf(A[0]);", (), {APPROXIMATE}),
        ("C[0] = __fmaf_rz(A[0], B[0], C[0]);", (), {TRUNCATED}),
        ("C[0] = (int)A[0];", (), set()),
        ("C[0] = fma((double)A[0], (double)B[0], 1e-9);", (), {DOUBLE}),
    ],
)
def test_what_is_counted(body: str, options: tuple[str, ...], kinds: set[str]) -> None:
    found = census(compiled(body, *options))
    assert set(found.ptx) == kinds
    assert (found.sass is None) == (disassembler() is None)
    assert set(found.sass or {}) <= kinds


def test_tensor_cores_are_told_with_their_operands() -> None:
    found = census(compiled(MMA))
    assert found.ptx == {TENSOR: 1, SHORTENED: 1} and found.operands == ("tf32",)
    assert found.notes[0].startswith("tensor-core instructions on tf32: 1 in the PTX")
    if disassembler():
        assert found.sass == {TENSOR: 1}
        assert found.notes[0].endswith("1 in the machine code")


@pytest.mark.parametrize(
    ("counts", "claimed", "begins"),
    [
        ({TENSOR: 8}, "fp32", "fp32 is claimed, and the code uses tensor cores"),
        ({TENSOR: 8}, "fp32-emulated", None),
        ({TENSOR: 8}, "tf32", None),
        ({TRUNCATED: 2}, "fp32", "fp32 is claimed, and the code truncates"),
        ({TRUNCATED: 2}, "fp32-emulated", None),
        ({}, "fp32", None),
        ({}, "bf16", "bf16 is claimed, and the code has neither"),
        ({SHORTENED: 1}, "bf16", None),
        ({FLUSHED: 100, APPROXIMATE: 2}, "fp32", None),
    ],
)
def test_what_speaks_against_a_claim(counts: dict[str, int], claimed: str, begins: str | None) -> None:
    found = Census(counts).warnings(claimed)
    assert len(found) == (begins is not None)
    assert all(line.startswith(str(begins)) for line in found)


def test_machine_code_alone_is_enough_for_a_warning() -> None:
    """Inline PTX hides nothing, but a library's cubin has no PTX."""
    assert Census({}, {TENSOR: 4}).warnings("fp32")
    assert Census({}, {TENSOR: 4}).notes == ["tensor-core instructions: 4 in the machine code"]


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_the_ladder_is_plain_fp32(rung: object) -> None:
    program = rung.program  # type: ignore[arg-type]
    built = compile_cuda(program.source, program.entry, name=program.name, options=program.options)
    found = census(built)
    assert found.notes == [] and found.warnings("fp32") == []


def test_a_longer_format_is_told_too() -> None:
    by_name = {exploit.name: exploit.kernel for exploit in exploits()}

    def of(name: str) -> Census:
        program = by_name[name].program  # type: ignore[attr-defined]
        return census(compile_cuda(program.source, program.entry, name=program.name, options=program.options))

    assert set(of("declared_truncation").ptx) & {TRUNCATED, DOUBLE}
    assert set(of("in_double").ptx) == {DOUBLE} and of("in_double").warnings("fp32") == []
    assert of("split_k").ptx == {}


def test_without_a_disassembler_the_ptx_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    built = compiled(MMA)
    monkeypatch.setattr(module, "disassembler", lambda: None)
    assert census(built).sass is None
    assert census(replace(built, cubin=b"")).sass is None
