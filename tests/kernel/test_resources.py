"""What a kernel occupies, as NVIDIA's calculator (cuda_occupancy.h of CUDA 13.0) says.

And its instructions that concern precision: counted, shown, and never a verdict.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import SIGNATURE
from worklog.emulator.limits import LIMITS, occupancy
from worklog.errors import WorklogError
from worklog.kernel import Kernel
from worklog.kernel.device import Program
from worklog.kernel.ladder import LADDER
from worklog.kernel.nvrtc import compile_cuda
from worklog.kernel.resources import KINDS, Compiled, InstructionMix, shared_widths
from worklog.problem.formats import E4M3, Types

TENSOR, SHORTENED, FLUSHED, APPROXIMATE, TRUNCATED, DOUBLE, MASKS = KINDS
MMA = """float d[4] = {};
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, {%4, %4}, "
               "{%0, %1, %2, %3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(cut(A[0])));
  C[0] = d[0];"""
# The first three differ in nothing that concerns precision; the last two call a function that is
# not inlined.
BODIES = {
    "product": ("C[0] = A[0] * B[0] + C[0];", {}),
    "quotient": ("C[0] = A[0] / B[0] + M / N % K;", {}),
    "integer": ("C[0] = (int)A[0];", {}),
    "packed": (
        'unsigned y; asm("cvt.rn.bf16x2.f32 %0, %1, %1;" : "=r"(y) : "f"(A[0])); C[0] = y;',
        {SHORTENED: 1},
    ),
    # As cuda_fp16.h writes it: on one line, in braces.
    "braced": (
        'unsigned short y; asm("{  cvt.rn.f16.f32 %0, %1;}" : "=h"(y) : "f"(A[0])); C[0] = y;',
        {SHORTENED: 1},
    ),
    "eights": (
        'unsigned short y; asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %1;" : "=h"(y) : "f"(A[0])); C[0] = y;',
        {SHORTENED: 1},
    ),
    "power": ("C[0] = __expf(A[0]);", {APPROXIMATE: 1}),
    "truncated": ("C[0] = __fmaf_rz(A[0], B[0], C[0]);", {TRUNCATED: 1}),
    "longer": ("C[0] = fma((double)A[0], (double)B[0], 1e-9);", {DOUBLE: 1}),
    "masked": ("C[0] = __shfl_sync(__activemask(), A[0], 1);", {MASKS: 1}),
    "shortened": ("C[0] = __uint_as_float(cut(A[0]));", {SHORTENED: 1}),
    "tensor": (MMA, {TENSOR: 1, SHORTENED: 1}),
}
FUNCTION = """__device__ __noinline__ unsigned cut(float x) {
  unsigned y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}
"""


def compiled(names: list[str], *options: str) -> Compiled:
    """Return the first of these kernels, in one program with the others.

    The others must not count.
    """
    kernels = (
        f'extern "C" __global__ void {name}({SIGNATURE}) {{ {BODIES[name][0]} }}\n'
        for name in names
    )
    return compile_cuda(Program("kernel.cu", FUNCTION + "".join(kernels), names[0], options))


@pytest.mark.parametrize("names", [[*BODIES][:9], [*BODIES][9:]], ids=["plain", "calling"])
def test_each_kind_is_counted(names):
    built = compiled(names)
    for name in names:
        assert replace(built, symbol=name).mix.counts == BODIES[name][1], name


USES = {"by_address": "*c = (**last)++", "by_name": "*c = other[1]++", "neither": "*c = 64"}
ADDED = """#include <cassert>
__device__ float kept;
struct Plain { __device__ virtual void store(float* c) { *c = 1; } };
struct Kept : Plain { __device__ void store(float* c) override { *c = kept++; } };
"""


def test_what_the_compiler_adds_is_no_variable_of_the_kernel():
    body = 'assert(M > 0); Plain p; Kept k; (M > 1 ? &p : (Plain*)&k)->store(C); printf("%d", M);'
    built = compile_cuda(
        Kernel.from_source(
            f'{ADDED}extern "C" __global__ void mine({SIGNATURE}) {{ {body} }}'
        ).program
    )
    assert all(
        name in built.ptx for name in ("$str", "_ZTV5Plain", "__unnamed_1")
    ) and built.variables == ["kept"]


def test_a_variable_is_the_kernels_that_uses_it_if_only_by_its_address_in_another():
    uses = "\n".join(
        f'extern "C" __global__ void {name}(float* c) {{ {body}; }}' for name, body in USES.items()
    )
    variables = """__device__ float kept[64], other[64];
__device__ float* first = kept;
__device__ float** last = &first;"""
    source = f"{variables}\n{uses}"
    built = compile_cuda(Program("source", source, "by_address"))
    of = {name: replace(built, symbol=name).variables for name in USES}
    assert of == {"by_address": ["kept", "first"], "by_name": ["other"], "neither": []}


def test_flushing_and_tensor_cores_are_shown():
    assert set(compiled(["product"], "--ftz=true").mix.counts) == {FLUSHED}
    found = compiled(["tensor"]).mix
    assert (
        found.operands == ("tf32",)
        and found.notes[0] == "tensor-core instructions on tf32: 1 in the PTX"
    )


@pytest.mark.parametrize(
    ("counts", "claimed", "warned"),
    [
        ({TENSOR: 8}, "fp32", "tensor cores"),
        ({TENSOR: 8}, "tf32", ""),
        ({TRUNCATED: 2}, "fp32", "truncates"),
        ({TRUNCATED: 2}, "fp32-emulated", ""),
        ({}, "bf16", "bf16 is claimed"),
        ({SHORTENED: 1}, "bf16", ""),
        ({FLUSHED: 100, APPROXIMATE: 2}, "fp32", ""),
    ],
)
def test_code_that_contradicts_a_claim_is_a_warning(counts, claimed, warned):
    found = InstructionMix(counts).warnings(claimed)
    assert len(found) == bool(warned) and warned in "".join(found)


@pytest.mark.parametrize("claimed", ["fp32", "bf16"])
def test_products_of_8_bit_floats_are_below_every_class(claimed):
    assert InstructionMix({TENSOR: 1}, ("e4m3", "e5m2")).warnings(claimed) == [
        f"{claimed} is claimed, and the code multiplies 8-bit floats (e4m3, e5m2), which are less "
        "precise than every precision class"
    ]


def test_no_claim_is_named_of_8_bit_matrices_whose_user_claims_nothing():
    types = Types(E4M3, E4M3)
    for mix in (InstructionMix({}), InstructionMix({TENSOR: 1}, ("e4m3", "e4m3"))):
        assert mix.warnings(types.default_precision, types) == []
    assert InstructionMix({}).warnings("bf16", types)


def test_the_ladder_is_plain_fp32():
    for rung in LADDER:
        built = compile_cuda(rung.program)
        found = built.mix
        assert found.notes == [] and found.warnings("fp32") == [], rung.name
        assert "fma.rn.f32" in built.ptx and not re.search(
            r"^\s*(atom|red|fma\.rn\.f16)\b", built.ptx, re.MULTILINE
        )


def test_it_is_what_nvidias_calculator_says():
    rows = np.genfromtxt(
        Path(__file__).with_name("occupancy.csv"), delimiter=",", names=True, dtype=None
    )
    assert len(rows) == 700 and set(LIMITS) == {*map(str, rows["arch"])}
    found = [
        occupancy(str(arch), *map(int, words)).blocks
        for arch, *words in rows[["arch", "threads", "registers", "shared_bytes"]]
    ]
    assert found == rows["blocks"].tolist()


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "expected"),
    [
        (1024, 32, 0, (2, 64, 1.0, ("warps", "registers"))),
        (128, 255, 20_480, (2, 8, 0.125, ("registers",))),
        (256, 32, 49_152, (4, 32, 0.5, ("shared memory",))),
        (1024, 128, 0, (0, 0, 0.0, ("registers",))),
        (2048, 16, 0, (0, 0, 0.0, ("warps",))),
        (64, 16, 240_000, (0, 0, 0.0, ("shared memory",))),
        (64, 0, 0, (32, 64, 1.0, ("warps", "blocks"))),
    ],
)
def test_what_limits_an_h200(threads, registers, shared, expected):
    found = occupancy("sm_90", threads, registers, shared)
    assert (found.blocks, found.warps, found.share, found.limited_by) == expected


def test_an_unknown_architecture_and_a_block_without_threads_are_errors():
    with pytest.raises(WorklogError, match="sm_70 are unknown: choose from sm_75"):
        occupancy("sm_70", 128, 32, 0)
    with pytest.raises(WorklogError, match="a block of 0 threads"):
        occupancy("sm_90", 0, 32, 0)


def test_a_shared_load_that_is_never_executed_is_not_counted(monkeypatch):
    guards = 0x7, 0xF  # none, and @!PT
    code = np.array([[0x984 | guard << 12, 4 << 9] for guard in guards], "<u8")
    monkeypatch.setattr("worklog.kernel.resources.section", lambda cubin, name: code.tobytes())
    assert shared_widths(b"", "kernel") == (("LDS.32", 1),)
