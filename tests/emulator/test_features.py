"""CUDA features beyond the rungs: warps, atomics, local and dynamic memory, divergence, asynchronous copies."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.helpers import HEAD, compiled, kernel, run
from worklog.emulator import launch, load

SIMPLE = kernel("  if (threadIdx.x < n) out[threadIdx.x] = scale;", "float* out, int n, float scale")
COPY = kernel("  out[threadIdx.x] = in[threadIdx.x];", "const float* in, float* out")


def test_findings_outside_of_buffers() -> None:
    """A load there gives zero."""
    kernel = compiled(SIMPLE, "k")
    (nowhere,) = launch(kernel, (1,), 32, [0, 3, 1.0], source=SIMPLE).findings
    assert (nowhere.kind, nowhere.count) == ("global-out-of-bounds", 3) and "in no buffer" in nowhere.message
    (behind,) = launch(kernel, (1,), 32, [np.zeros(4, np.float32), 6, 1.0], source=SIMPLE).findings
    assert behind.threads == (4, 5)
    assert behind.at("k.cu") == (
        "k.cu:3: global-out-of-bounds: thread 4 of block (0, 0, 0) writes 4 bytes just past the end of argument 0 "
        "(16 bytes) (2 times)\n    if (threadIdx.x < n) out[threadIdx.x] = scale;"
    )
    out = np.ones(32, np.float32)
    run(COPY, [np.arange(1, 5, dtype=np.float32), out])
    assert out.tolist() == [1, 2, 3, 4] + [0] * 28


@pytest.mark.parametrize(
    "body",
    [
        "float x; for (int i = 0; i < n; ++i) x += i; *out = x;",
        "float x[9]; for (int i = 0; i < n; ++i) x[(i * 5 + n) % 9] += i; *out = x[n % 9];",
    ],
    ids=["a sum that starts from nothing", "an array that is never written"],
)
def test_unwritten_registers_and_local_arrays_are_nan(body: str) -> None:
    out = np.zeros(1, np.float32)
    run(kernel(body, "float* out, int n"), [out, 20], block=1)
    assert np.isnan(out).all()


def test_a_kernel_prints_what_c_would() -> None:
    body = """  if (threadIdx.x % 16 == 3)
    out[0] = printf("%d %5.2f|%-4s|%c %x %lld %% %p\\n", -7, x[threadIdx.x], "ab", 'q', 255, 1ll << 40, (void*)0);
  if (threadIdx.x == 0) printf("%*d %u\\n", 4, 5, 4294967295u);"""
    out, x = np.zeros(1, np.int32), np.arange(32, dtype=np.float32)
    result = run(kernel(body, "int* out, const float* x"), [out, x])
    rest = "|ab  |q ff 1099511627776 % 0x0"
    assert result.printed == (f"-7  3.00{rest}", f"-7 19.00{rest}", "   5 4294967295")
    assert result.ok and out[0] == 7


def test_most_lines_of_a_loop_are_counted_and_not_kept() -> None:
    result = run(kernel('  for (int i = 0; i < 10; i++) printf("%d\\n", i);', "float* out"), [np.zeros(1, np.float32)])
    assert result.printed == ("0",) * 20 + ("… and 300 more calls of printf",)


def test_only_the_kernel_that_is_asked_for_must_be_supported() -> None:
    other = 'extern "C" __global__ void other(long long* out) { *out = clock64(); }'
    source = kernel("  out[0] = 5;", "float* out", before=other)
    out = np.zeros(1, np.float32)
    assert launch(compiled(source, "k"), (1,), 1, [out]).ok and out[0] == 5


def test_a_vector_of_parameters() -> None:
    text = """.visible .entry k(.param .u64 out, .param .align 16 .b8 four[16]) {
.reg .b64 %a; .reg .b32 %x, %y, %z, %w;
ld.param.u64 %a, [out];
ld.param.v2.u32 {%x, %y}, [four];
ld.param.v2.u32 {%z, _}, [four+8];
ld.param.v4.u32 {_, _, _, %w}, [four];
st.global.v4.u32 [%a], {%x, %y, %z, %w};
ret;\n}\n"""
    out = np.zeros(4, np.uint32)
    launch(load(HEAD + text), (1,), 1, [out, sum((k + 5) << 32 * k for k in range(4))])
    assert out.tolist() == [5, 6, 7, 8]
