"""Calls of functions that were not inlined.

What is refused, mistakes, and NVIDIA's own functions. Right calls are in kernels/calls.
"""

import math

import numpy as np
import pytest

from tests.emulator.helpers import HEAD, kernel, run
from worklog.emulator import launch, load
from worklog.emulator.core import native
from worklog.emulator.ptx import UnsupportedInstruction
from worklog.emulator.reports import BudgetExceeded, TooLarge


def test_recursion_with_an_array_is_refused_by_the_functions_own_name():
    function = (
        "__device__ __noinline__ int f(int n) { volatile int v[9]; v[n] = n; return n ? "
        "f(n - 1) + v[n] : 0; }"
    )
    with pytest.raises(UnsupportedInstruction, match="local arrays in f, which calls itself"):
        run(kernel("  out[0] = f(3);", "int* out", function), [np.zeros(1, np.int32)])


@pytest.mark.parametrize("name", ["sin", "pow"])
def test_functions_of_nvidias_library_run(name):
    """Those of double call slow paths."""
    x = np.linspace(0.1, 1e7, 32)
    out = x.copy()
    call = {"sin": "sin(out[threadIdx.x])", "pow": "pow(out[threadIdx.x], 1.7)"}[name]
    assert run(kernel(f"  out[threadIdx.x] = {call};", "double* out"), [out]).ok
    expected = [math.sin(value) if name == "sin" else value**1.7 for value in x]
    assert np.allclose(out, expected, rtol=1e-14, atol=1e-15)


WRONG = {
    "stack-overflow": "  if (threadIdx.x == 0) out[2] = f(1 << 20, out);",
    "trap": "  out[0] = (reinterpret_cast<float (*)(float)>(out))(1);",
    "stack-overflow ": "  out[0] = int(h(threadIdx.x, out));",
    "missing-syncwarp": "  s[threadIdx.x] = 1;\n  out[threadIdx.x] = g(threadIdx.x ^ 1);",
}
DEEP = """__shared__ int s[32];
__device__ __noinline__ int f(int n, int* o) { return n ? (o[n & 1] = n) * f(n - 1, o) % 7 + f(n - 2, o) : 0; }
__device__ __noinline__ int g(int n) { return s[n]; }
__device__ __noinline__ double h(double x, int* o) {
  double a[32];
  for (int k = 0; k < 32; k++) a[k] = x * k;
  double sum = h(x + 1, o);
  for (int k = 0; k < 32; k++) sum += a[k] * sum;
  return sum;
}
__device__ __noinline__ void tree(int n) { if (n == 0) return; tree(n - 1); tree(n - 1); asm volatile(""); }"""


@pytest.mark.parametrize("kind", WRONG)
def test_mistakes_in_calls_are_found(kind):
    result = run(kernel(WRONG[kind], "int* out", DEEP), [np.zeros(32, np.int32)])
    assert [finding.kind for finding in result.findings] == [kind.strip()]


def test_a_recursion_whose_threads_hold_the_same_again_and_again_ends():
    """Only the frames tell its calls apart."""
    out = np.zeros(32, np.int32)
    assert run(kernel("  tree(18);\n  out[0] = 1;", "int* out", DEEP), [out], budget=10**9).ok
    assert out[0] == 1


def test_an_endless_loop_with_calls_in_it_is_one():
    """Each time, their frames hold the same."""
    with pytest.raises(BudgetExceeded, match="deadlock or endless loop"):
        run(kernel("  for (;;) tree(2);", "", DEEP), [], budget=10**8)


def test_a_threads_frames_take_bounded_memory(monkeypatch):
    monkeypatch.setattr(native, "MOST_FRAMES", 3 << 20)
    result = run(kernel(WRONG["stack-overflow "], "int* out", DEEP), [np.zeros(1, np.int32)])
    assert [finding.kind for finding in result.findings] == ["stack-overflow"]


def test_blocks_that_have_ended_hold_no_frames(monkeypatch):
    monkeypatch.setattr(native, "MOST_FRAMES", 1 << 18)
    assert run(kernel("  tree(9);", "", DEEP), [], grid=(100,)).ok


def test_frames_of_too_many_threads_are_refused(monkeypatch):
    monkeypatch.setattr(native, "MOST_FRAMES", 1 << 20)
    with pytest.raises(
        TooLarge, match=r"line 7: .* more than 1 MiB in the blocks that run together"
    ):
        run(kernel(WRONG["stack-overflow "], "int* out", DEEP), [np.zeros(1, np.int32)], block=1024)


def test_a_parameter_in_other_pieces_is_refused():
    text = """.func f(.param .b64 p) { .reg .b32 %r; ld.param.b32 %r, [p+4]; st.global.b32 [0], %r; ret; }
.visible .entry k() { .reg .b64 %d; mov.b64 %d, 1; { .param .b64 p0; st.param.b64 [p0], %d; call f, (p0); } ret; }"""
    with pytest.raises(UnsupportedInstruction, match="in other pieces"):
        launch(load(HEAD + text), (1,), 32, [])
