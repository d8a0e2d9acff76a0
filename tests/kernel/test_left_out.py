"""Lines that #if or the architecture leaves out of a kernel, and #line, which moves no line."""

import pytest

from worklog.emulator import load
from worklog.kernel import Kernel
from worklog.kernel.emulated import build
from worklog.kernel.left_out import in_words, left_out_lines

SOURCE = """#ifdef MAIN
int main() { return 3; }
#endif
#define TWICE 0
__device__ float term(float a, float b) {
#if __CUDA_ARCH__ >= 1000
  a *= 2;
  b *= 3;
#else
  a *= -1;
#endif
  return a * b;
}
__device__ float unused(float a) {
#if 0
  a *= 2;
#endif
  return a;
}
#line 500 "other.cu"
extern "C" __global__ void k(int M, int N, int K, const float* A, const float* B, float* C) {
  float acc = term(A[threadIdx.x], B[threadIdx.x]);
#if TWICE  // never
  // A comment.
  acc *= 2;
#  ifdef TWICE
  acc *= 3;
#  endif
#elif defined(TWICE) && \\
    TWICE == 0
  acc += 1;
#endif
  C[threadIdx.x] = acc;
}
"""
KERNEL = Kernel.from_source(SOURCE, grid="N", block="32")


def compiled_lines(arch: str = "sm_90") -> set[int]:
    compiled = build(KERNEL.program, arch)[0]
    return {instruction.line for instruction in load(compiled.ptx, compiled.symbol).instructions}


def test_a_line_directive_moves_no_line():
    assert compiled_lines() <= {0, 10, 12, *range(20, 35)} and 33 in compiled_lines()


@pytest.mark.parametrize(
    ("arch", "words"),
    [
        ("sm_90", "not compiled for sm_90: lines 7 to 8, line 25, line 27"),
        ("sm_100", "not compiled for sm_100: line 10, line 25, line 27"),
    ],
)
def test_lines_that_the_compiler_does_not_get_are_named_in_functions_that_it_compiles(arch, words):
    assert in_words(arch, left_out_lines(KERNEL, arch, {12, 22, 31, 33})) == words


def test_a_group_with_an_instruction_was_compiled_and_a_kernel_without_groups_has_no_clause():
    """A header that isn't read may define what a condition asks for."""
    parts = left_out_lines(KERNEL, "sm_90", compiled_lines() | {7, 25, 27})
    assert in_words("sm_90", parts) == ""
