"""clang checks the bounds of arrays, and compiles for the emulator where NVRTC is missing."""

import re
from dataclasses import replace

import numpy as np
import pytest

from worklog.errors import CompileFailed, NvrtcMissing
from worklog.gate.bounds import check_array_bounds
from worklog.kernel import Kernel, Program, clang
from worklog.kernel.clang import compile_with_clang
from worklog.kernel.emulated import EmulatedDevice, build
from worklog.kernel.inspection import inspect, report
from worklog.kernel.ladder import rung
from worklog.kernel.nvrtc import compile_cuda
from worklog.kernel.trial import kernel_of
from worklog.problem import Shape
from worklog.runner.check import check

pytest.importorskip("ziglang", reason="clang comes with the extra [bounds]")
SHAPE = Shape(16, 24, 8)
BUDGET = 10**6
HEAD = "(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {"


def user_kernel(body: str, before: str = "__global__ void product", **options: object) -> Kernel:
    """Return a kernel whose body computes `sum`, in terms of row and col."""
    source = f"""{before}{HEAD}
  const int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x * 8 + threadIdx.x;
  float sum = 0;
{body}
  float* c = &C[row * N + col];
  if (row < M && col < N) *c = alpha * sum + (beta == 0 ? 0 : beta * *c);
}}
"""
    launch = {"grid": "(N + 7) / 8, (M + 7) / 8", "block": "8, 8", "file": "mine.cu", **options}
    return Kernel.from_source(source, **launch)  # type: ignore[arg-type]


def plain_sum(line: str) -> str:
    return f"  for (int k = 0; k < K; ++k) if (row < M && col < N) {line}"


TERM = "A[row * K + k] * B[k * N + col]"
LOCAL = "  float part[4] = {};\n" + plain_sum(f"part[k % 4] += {TERM};") + "\n"
MISTAKES = {
    "one too many": (LOCAL + "  for (int j = 0; j <= 4; ++j) sum += part[j];", 4, "float[4]"),
    "unrolled": (
        LOCAL + "#pragma unroll\n  for (int j = 1; j <= 4; ++j) sum += part[j];",
        4,
        "float[4]",
    ),
    "negative": (LOCAL + "  for (int j = 3; j >= -1; --j) sum += part[j];", -1, "float[4]"),
    "a row too far": (
        "  __shared__ float tile[8][8];\n  tile[threadIdx.y][threadIdx.x + 1] = row;\n"
        + plain_sum(f"sum += {TERM};"),
        8,
        "float[8]",
    ),
    "a tile too far": (
        "  __shared__ float tile[7][8];\n  tile[threadIdx.y][threadIdx.x] = row;\n"
        + plain_sum(f"sum += {TERM};"),
        7,
        "float[7][8]",
    ),
    "at the end of a struct": (
        "  struct { float x[4]; } part = {};\n"
        + plain_sum(f"part.x[k % 5] += {TERM};")
        + "\n  for (int j = 0; j < 4; ++j) sum += part.x[j];",
        4,
        "float[4]",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_an_index_out_of_the_bounds_of_an_array_is_reported_with_its_line(name):
    body, index, array = MISTAKES[name]
    outside = check_array_bounds(user_kernel(body), SHAPE, BUDGET).outside
    assert outside is not None
    assert (outside.file, outside.index, outside.array) == ("mine.cu", index, array)
    assert outside.text in body and re.search(r"(part|tile).*\[", outside.text)
    assert f"mine.cu:{outside.line}: index {index} is out of bounds of {array}\n" in str(outside)


def test_the_mistake_may_be_in_a_template_and_in_a_header(tmp_path):
    before = "template <int T> __global__ void product"
    body = LOCAL + "  for (int j = 0; j < T; ++j) sum += part[j];"
    wrong = user_kernel(body, before, entry="product<5>")
    assert str(check_array_bounds(wrong, SHAPE, BUDGET).outside).startswith("mine.cu:")
    right = user_kernel(body, before, entry="product<4>")
    assert check_array_bounds(right, SHAPE, BUDGET).outside is None
    (tmp_path / "sum.cuh").write_text(
        "__device__ float total(const float (&x)[4], int n) {\n  float sum = 0;\n"
        "  for (int j = 0; j < n; ++j) sum += x[j];\n  return sum;\n}\n"
    )
    called = user_kernel(
        LOCAL + "  sum = total(part, 5);",
        '#include "sum.cuh"\n__global__ void product',
        include=tmp_path,
    )
    outside = check_array_bounds(called, SHAPE, BUDGET).outside
    assert outside is not None and (outside.file, outside.line) == ("sum.cuh", 3)
    assert outside.text == "for (int j = 0; j < n; ++j) sum += x[j];"


def test_an_array_that_is_used_within_its_bounds_is_in_bounds():
    body = (
        LOCAL
        + "  const float *end = &part[4];\n"  # a pointer past the end may be taken
        + "  for (const float *p = part; p != end; ++p) sum += *p;"
    )
    bounds = check_array_bounds(user_kernel(body), SHAPE, BUDGET)
    assert (bounds.outside, bounds.unchecked) == (None, "")


def test_a_long_k_is_one_of_the_launches():
    body = "  float part[8] = {};\n" + plain_sum(f"part[k / 64] += {TERM};")
    body += "\n  for (int j = 0; j < 8; ++j) sum += part[j];"
    assert check_array_bounds(user_kernel(body), Shape(16, 24, 512), BUDGET).outside is None
    assert check_array_bounds(user_kernel(body), Shape(16, 24, 520), BUDGET).outside is not None


@pytest.mark.parametrize("name", ["naive", "tiles_2d", "warptiled", "async_copies", "tf32x3"])
def test_a_rung_is_in_bounds(name):
    bounds = check_array_bounds(rung(name), Shape(256, 256, 64), BUDGET)
    assert (bounds.outside, bounds.unchecked) == (None, "")


def test_the_flat_loop_of_a_rung_is_no_mistake():
    kernel = rung("ragged")
    assert "&Bs[0][0][i]" in kernel.source
    assert check_array_bounds(kernel, Shape(130, 190, 70), BUDGET).outside is None


def test_a_check_fails_at_the_index_which_nvrtc_removes(laptop, few_shapes):
    body, index, _ = MISTAKES["one too many"]
    checked = check(user_kernel(body), on="emulated", quick=True, seed=1)
    assert checked.verdict.failed is not None
    assert checked.verdict.failed.name == "array bounds"
    assert f"✗ array bounds: mine.cu:6: index {index} is out of bounds of float[4]" in repr(checked)


FILL = "const float4 four = {1, 2, 3, 4};\n  const double wide = K;\n"
EACH = "for (int j = 0; j < 8; ++j) sum += x[j];"
WIDE = {
    "a store": f"  float x[8] = {{}};\n  *(float4*)&x[6] = four;\n  {EACH}",
    "unrolled stores": (
        f"  float x[8] = {{}};\n  for (int i = 0; i < 8; i += 3) *(float4*)&x[i] = four;\n  {EACH}"
    ),
    "a store at an index": (
        "  float y[8] = {}, x[8] = {}, z[8] = {};\n  y[K & 7] = z[K & 3] = 1;\n"
        f"  *(float4*)&x[K + 5 & 7] = four;\n  {EACH}\n  sum += y[K & 3] + z[K & 7];"
    ),
    "a load": "  float x[8] = {};\n  x[K & 7] = 1;\n  sum = (*(float4*)&x[5]).w;",
    "a scalar": f"  float x[8] = {{}};\n  *(double*)&x[7 - K / (K + 1)] = wide;\n  {EACH}",
    "shared memory": (
        "  __shared__ float y[8], x[8];\n  y[K & 7] = 1;\n  x[K & 7] = 1;\n"
        "  *(float2*)&x[7 - K / (K + 1)] = {2, 3};\n  sum = x[K & 3] + y[K & 3];"
    ),
    "in a struct": (
        "  struct { float x[6]; } s = {};\n  *(float4*)&s.x[4] = four;\n"
        "  for (int j = 0; j < 6; ++j) sum += s.x[j];"
    ),
    "past a copy of a struct": (
        "  struct Four { float x[4]; } f = {};\n  float x[8] = {};\n"
        f"  *(Four*)&x[K + 6 & 7] = f;\n  {EACH}"
    ),
}


@pytest.mark.parametrize("name", WIDE)
def test_an_access_that_ends_outside_its_array_is_reported_with_its_line(name):
    bounds = check_array_bounds(user_kernel(f"  {FILL}{WIDE[name]}"), SHAPE, BUDGET)
    assert bounds.outside is not None and bounds.unchecked == ""
    assert (bounds.outside.file, bounds.outside.index) == ("mine.cu", None)
    assert re.search(r"\*\)&(s\.)?x", bounds.outside.text)


def test_vectors_that_end_where_their_array_ends_are_in_bounds():
    body = f"""  {FILL}  float x[8] = {{}};
  __shared__ float4 tile[2][16];
  for (int i = 0; i < 8; i += 4) *(float4*)&x[i] = four;
  *(double*)&x[K / (K + 1) + 6] = wide;
  tile[1][K % 16] = four;
  const float4 read = tile[1][K % 16], *last = (float4*)x + 1;
  sum += read.x + (*last).y;
  {EACH}"""
    bounds = check_array_bounds(user_kernel(body), SHAPE, BUDGET)
    assert (bounds.outside, bounds.unchecked) == (None, "")


FLAT = """  __shared__ float x[2][4][8];
  auto rows = (float(*)[4][8])x;
  for (int i = 0; i < {end}; ++i) {access} = 1;
  sum = x[1][3][K % 8];"""


def test_an_index_behind_zeros_may_walk_the_whole_array():
    for access in ("x[0][0][i]", "rows[0][0][i]"):
        right = user_kernel(FLAT.format(end=64, access=access))
        bounds = check_array_bounds(right, SHAPE, BUDGET)
        assert (bounds.outside, bounds.unchecked) == (None, "")
    wrong = user_kernel(FLAT.format(end="64 + M", access="x[0][0][i]"))
    outside = check_array_bounds(wrong, SHAPE, BUDGET).outside
    assert outside is not None and (outside.index, outside.array) == (64, "float[64]")


def test_a_row_that_an_index_leaves_is_too_short():
    body = "  __shared__ float x[2][4][8];\n  x[0][1][K + 4] = 1;\n  sum = x[0][1][K];"
    outside = check_array_bounds(user_kernel(body), SHAPE, BUDGET).outside
    assert outside is not None and outside.array == "float[8]"


COPIED_UNION = """  union Four {{ float4 v; float x[4]; }} from = {{}};
  Four to = from;
  to.x[{index}] = 1;
  sum = to.v.x;"""


def test_without_checked_vectors_the_indices_are_checked():
    bounds = check_array_bounds(user_kernel(COPIED_UNION.format(index="K % 4")), SHAPE, BUDGET)
    assert bounds.outside is None and bounds.unchecked.startswith("widths of accesses, clang says")
    wrong = check_array_bounds(user_kernel(COPIED_UNION.format(index="K + 4")), SHAPE, BUDGET)
    assert wrong.outside is not None and wrong.outside.array == "float[4]"


def test_a_trap_of_the_kernel_is_no_access():
    body = LOCAL + "  if (K > 0) __trap();"
    assert check_array_bounds(user_kernel(body), SHAPE, BUDGET).outside is None


def test_a_source_that_clang_cannot_compile_is_not_a_failure(laptop, few_shapes):
    before = "#include <cuda_fp16.h>\n__global__ void product"
    bounds = check_array_bounds(user_kernel(plain_sum(f"sum += {TERM};"), before), SHAPE, BUDGET)
    assert bounds.outside is None
    assert bounds.unchecked == "clang says mine.cu:1: 'cuda_fp16.h' file not found"


def test_without_the_extra_the_verdict_claims_nothing_of_local_arrays(
    laptop, few_shapes, monkeypatch
):
    def missing() -> None:
        raise clang.ClangMissing("pip install 'gemm-worklog[bounds]'")

    right = user_kernel(plain_sum(f"sum += {TERM};"))
    claim = "✓ no race, access out of bounds or uninitialized read in any launch on the emulator"
    assert f"{claim}\n" in repr(check(right, on="emulated", quick=True, seed=1))
    compile_with_clang.cache_clear()
    monkeypatch.setattr(clang, "executable", missing)
    checked = check(right, on="emulated", quick=True, seed=1)
    reason = "local arrays not checked: pip install 'gemm-worklog[bounds]'"
    assert f"{claim}; {reason}\n" in repr(checked) and checked.verdict.accepted
    assert checked.as_dict()["unchecked_arrays"] == "pip install 'gemm-worklog[bounds]'"


def test_without_nvrtc_clang_compiles_and_the_result_says_so(no_nvrtc, laptop, few_shapes):
    checked = check(user_kernel(plain_sum(f"sum += {TERM};")), on="emulated", quick=True, seed=1)
    assert checked.verdict.accepted and checked.label == "emulated · sm_90 PTX by clang"
    assert clang.NOTE in checked.notes and "registers and" not in repr(checked)
    document = checked.as_dict()
    assert document["registers"] is None and document["arch"] == "sm_90"


@pytest.mark.parametrize("name", ["shared", "register_banks"])
def test_without_nvrtc_a_missing_barrier_is_found_at_its_line(name, no_nvrtc, laptop, few_shapes):
    text = rung(name).source.replace("__syncthreads();", "", 1)
    assert check(rung(name).with_text(text + "\n"), on="emulated", seed=1, quick=True).findings
    [finding, *_] = check(rung(name).with_text(text), on="emulated", seed=1, quick=True).findings
    assert (
        finding.kind == "shared-race"
        and finding.text == text.splitlines()[finding.line - 1].strip()
    )


@pytest.mark.parametrize("function", ["and", "or", "count"])
def test_a_barrier_that_reduces_is_one_barrier_with_each_compiler(function):
    source = f"""__global__ void k(int *p) {{
  p[threadIdx.x] = __syncthreads_{function}(p[threadIdx.x]);
}}"""
    program = Program("mine.cu", source, "k")
    by_nvrtc, by_clang = (
        re.findall(r"\bbar\w*\.[\w.]+", compiler(program, "sm_90").ptx)
        for compiler in (compile_cuda, compile_with_clang)
    )
    assert by_clang == by_nvrtc and len(by_clang) == 1


@pytest.mark.parametrize(
    ("rounding", "integers"),
    [("rn", [2, 3, -2]), ("rz", [2, 2, -2]), ("rd", [2, 2, -3]), ("ru", [3, 3, -2])],
)
def test_conversions_round_as_their_names_say(rounding, integers, no_nvrtc):
    source = f"""extern "C" __global__ void k(const float* x, int* whole, float* back) {{
  whole[threadIdx.x] = __float2int_{rounding}(x[threadIdx.x]);
  whole[threadIdx.x] += (int)__uint2float_{rounding}(3u) - (int)__float2uint_{rounding}(3.0f);
  back[threadIdx.x] = __int2float_{rounding}(16777217);
}}"""
    device = EmulatedDevice()
    values = np.array([2.25, 2.75, -2.5], np.float32)
    x, whole, back = (device.upload(values) for _ in range(3))
    device.launch(device.compile(Program("round.cu", source, "k")), (1, 1), 3, [x, whole, back])
    assert "by clang" in device.label
    assert device.download(whole).view(np.int32).tolist() == integers
    nearest = 2.0**24 + (2 if rounding == "ru" else 0)
    assert device.download(back).tolist() == [nearest] * 3


def test_numbers_are_told_from_infinity_and_nan_as_c_does(no_nvrtc):
    source = """extern "C" __global__ void k(const float* x, int* kinds) {
  const float value = x[threadIdx.x];
  const double wide = value;
  kinds[threadIdx.x] = isnan(value) + 2 * isinf(wide) + 4 * isfinite(value) + 8 * signbit(wide);
}"""
    device = EmulatedDevice()
    values = np.array([np.nan, -np.inf, np.inf, -1.5, 0.0, 1e-45], np.float32)
    x, kinds = (device.upload(values) for _ in range(2))
    device.launch(device.compile(Program("kinds.cu", source, "k")), (1, 1), 6, [x, kinds])
    assert device.download(kinds).view(np.int32).tolist() == [1, 2 + 8, 2, 4 + 8, 4, 4]


def test_without_nvrtc_the_accumulators_are_in_registers(no_nvrtc):
    device = EmulatedDevice(count=True)
    program = replace(rung("warptiled").program, source=rung("warptiled").source + "\n")
    compiled = device.compile(program).compiled
    assert len(re.findall(r"\bfma\.rn", compiled.ptx)) > 1000 and compiled.resources == {}


def test_without_nvrtc_inspect_shows_counts_but_no_registers(no_nvrtc):
    inspected = inspect(user_kernel(plain_sum(f"sum += {TERM};")), SHAPE)
    text = report(inspected)
    assert (
        clang.NOTE in text and "unknown without NVRTC" in text and inspected.counts.all_instructions
    )
    assert inspected.as_dict()["resources"][0]["registers"] is None


def test_without_nvrtc_the_launch_is_read_from_host_code(no_nvrtc, tmp_path):
    kernel = user_kernel(plain_sum(f"sum += {TERM};"))
    host = """void run(int M, int N, int K, float *A, float *B, float *C) {
  dim3 grid((unsigned)ceil(N / 8.0), (M + 7) / 8), block(8, 8);
  product<<<grid, block>>>(M, N, K, 1.0f, A, B, 0.0f, C);
}
"""
    (tmp_path / "mine.cu").write_text(kernel.source + host)
    read = kernel_of(str(tmp_path / "mine.cu"), {})
    assert (read.grid, read.block) == ("(N + 7) / 8, (M + 7) / 8", "8, 8")


def test_a_compile_error_names_the_line_and_the_way(no_nvrtc, monkeypatch):
    program = Program("mine.cu", "__global__ void k(float *c) {\n  c[0] = x;\n}\n", "k")
    with pytest.raises(
        CompileFailed, match=r"mine\.cu:2: use of undeclared identifier 'x'\n +c\[0\]"
    ):
        build(program)
    with pytest.raises(CompileFailed, match="because NVRTC is missing"):
        build(program)
    with pytest.raises(CompileFailed, match="there is no kernel other"):
        compile_with_clang(replace(program, source="int x;", entry="other"), "sm_90")
    monkeypatch.setattr(clang, "find_spec", lambda _name: None)
    with pytest.raises(NvrtcMissing, match=r"\[bounds\]"):
        build(replace(program, source="// another\n" + program.source))
