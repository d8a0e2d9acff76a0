"""Calls of functions that were not inlined: what is refused, mistakes, and NVIDIA's own functions. Right ones are in
kernels/calls.
"""

import math

import numpy as np
import pytest

from tests.emulator.helpers import HEAD, kernel, run
from worklog.emulator import UnsupportedInstruction, launch, load


def test_recursion_with_an_array_is_refused_by_the_functions_own_name():
    function = "__device__ __noinline__ int f(int n) { volatile int v[9]; v[n] = n; return n ? f(n - 1) + v[n] : 0; }"
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
