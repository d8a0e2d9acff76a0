"""Calls of functions that were not inlined: parameters, recursion, pointers, and NVIDIA's own functions."""

import math

import numpy as np
import pytest

from tests.emulator.helpers import HEAD, kernel, run
from worklog.emulator import UnsupportedInstruction, launch, load

FIBONACCI = "__device__ __noinline__ int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); }"
STRUCT = """struct P { float x; double y; short z; float4 v; };
__device__ __noinline__ P f(P a, int k) { return {a.v.y + k, a.y * k, (short)(a.z - k), {a.x, a.v.w, a.v.z, a.v.x}}; }
__device__ __noinline__ void put(float* o, P a) { *o = a.x + (float)a.y + a.z + a.v.x + 2 * a.v.y; }"""
POINTERS = """typedef float F(float);
__device__ __noinline__ float twice(float x) { return 2 * x; }
__device__ __noinline__ float square(float x) { return x * x; }
__device__ F* const table[2] = {twice, square};"""


def test_lanes_of_a_warp_recurse_to_different_depths():
    out = np.zeros(32, np.int32)
    assert run(kernel("  out[threadIdx.x] = f(threadIdx.x % 12);", "int* out", FIBONACCI), [out]).ok
    expected = [0, 1]
    while len(expected) < 12:
        expected.append(expected[-1] + expected[-2])
    assert out.tolist() == [expected[k % 12] for k in range(32)]


def test_recursion_with_an_array_is_refused_by_the_functions_own_name():
    function = "__device__ __noinline__ int f(int n) { volatile int v[9]; v[n] = n; return n ? f(n - 1) + v[n] : 0; }"
    with pytest.raises(UnsupportedInstruction, match="local arrays in f, which calls itself"):
        run(kernel("  out[0] = f(3);", "int* out", function), [np.zeros(1, np.int32)])


def test_structs_are_passed_by_value():
    out = np.zeros(32, np.float32)
    body = "  P a = {1.5f, 2.5, 7, {1, 2, 3, 4}};\n  put(out + threadIdx.x, f(a, threadIdx.x));"
    assert run(kernel(body, "float* out", STRUCT), [out]).ok
    assert out.tolist() == [2 + k + 2.5 * k + 7 - k + 1.5 + 2 * 4 for k in range(32)]


def test_small_integers_are_passed_as_words():
    out = np.zeros(32, np.int32)
    function = """__device__ __noinline__ int f(bool b, signed char c, unsigned char u, short s, unsigned short w) {
  return (b ? 1 : 0) + 2 * c + 1000 * u + 3 * s + 5 * w; }"""
    body = "  int k = 70000 * threadIdx.x - 9;\n  out[threadIdx.x] = f(k & 4, k, k, k, k);"
    assert run(kernel(body, "int* out", function), [out]).ok
    k = 70000 * np.arange(32) - 9
    c, u, s, w = (k.astype(kind).astype(np.int32) for kind in (np.int8, np.uint8, np.int16, np.uint16))
    assert out.tolist() == ((k & 4 != 0) + 2 * c + 1000 * u + 3 * s + 5 * w).tolist()


def test_each_lane_calls_through_its_own_pointer():
    out = np.zeros(32, np.float32)
    source = kernel("  out[threadIdx.x] = table[threadIdx.x % 2](threadIdx.x);", "float* out", POINTERS)
    assert run(source, [out]).ok
    assert out.tolist() == [k * k if k % 2 else 2 * k for k in range(32)]


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
    "missing-syncwarp": "  s[threadIdx.x] = 1;\n  out[threadIdx.x] = g(threadIdx.x ^ 1);",
}
DEEP = """__shared__ int s[32];
__device__ __noinline__ int f(int n, int* o) { return n ? (o[n & 1] = n) * f(n - 1, o) % 7 + f(n - 2, o) : 0; }
__device__ __noinline__ int g(int n) { return s[n]; }"""


@pytest.mark.parametrize("kind", WRONG)
def test_mistakes_in_calls_are_found(kind):
    result = run(kernel(WRONG[kind], "int* out", DEEP), [np.zeros(32, np.int32)])
    assert [finding.kind for finding in result.findings] == [kind]


def test_a_parameter_in_other_pieces_is_refused():
    text = """.func f(.param .b64 p) { .reg .b32 %r; ld.param.b32 %r, [p+4]; st.global.b32 [0], %r; ret; }
.visible .entry k() { .reg .b64 %d; mov.b64 %d, 1; { .param .b64 p0; st.param.b64 [p0], %d; call f, (p0); } ret; }"""
    with pytest.raises(UnsupportedInstruction, match="in other pieces"):
        launch(load(HEAD + text), (1,), 32, [])
