"""Kernels as others write them.

The order of parameters, the launch and the host code are read from the source. What isn't clear
is an error that names the option.
"""

import re
from typing import Any

import numpy as np
import pytest

from tests.helpers import SIGNATURE
from worklog.errors import BadSetting
from worklog.kernel import Kernel
from worklog.kernel.emulated import build
from worklog.kernel.nvrtc import prepared, read_unit
from worklog.kernel.preprocessor import preprocessed
from worklog.problem import Domain, Shape
from worklog.runner.check import check

SMALL = Shape(24, 40, 16)
ROW = "int row = blockIdx.y * blockDim.y + threadIdx.y;"
COL = "int col = blockIdx.x * blockDim.x + threadIdx.x;"


def kernel(parameters: str, body: str = "", **words: Any) -> Kernel:
    return Kernel.from_source(f"__global__ void gemm({parameters}) {{ {body} }}", **words)


POINTERS = "const float* A, const float* B, float* C"
WIDE = "long m, long n, long k, float a, float* x, float* y, float b, float* z"
AFFIXES = "const float* __restrict__ input_a, const float* matB, float* output_c, size_t m, size_t n, size_t k"


@pytest.mark.parametrize(
    ("parameters", "order"),
    [
        (f"{POINTERS}, int M, int N, int K", "A,B,C,M,N,K"),
        (f"{POINTERS}, int n", "A,B,C,N"),
        (f"{POINTERS}, size_t width", "A,B,C,long N"),
        (SIGNATURE, "M,N,K,alpha,A,B,beta,C"),
        (WIDE, "long M,long N,long K,alpha,A,B,beta,C"),
        (f"{POINTERS}, int M, int N, int K, float alpha", "A,B,C,M,N,K,alpha"),
        ("float *C, float *A, float *B, int wA, int wB", "C,A,B,K,N"),
        (
            "float* d_A, float* d_B, float* d_C, int lda, int ldb, int ldc, int M",
            "A,B,C,K,N,N,M",
        ),
        (AFFIXES, "A,B,C,long M,long N,long K"),
        (
            f"{POINTERS}, int numARows, int numAColumns, int numBRows, int numBColumns",
            "A,B,C,M,K,K,N",
        ),
        (
            f"{POINTERS}, int A_rows, int cols_a, int colsB, float alpha, int num_rows_c",
            "A,B,C,M,K,N,alpha,M",
        ),
    ],
)
def test_the_order_of_the_parameters_is_read_from_their_names(parameters, order):
    assert ",".join(kernel(parameters).arguments) == order


@pytest.mark.parametrize(
    ("parameters", "words", "why"),
    [
        ("float* M, float* N, float* P, int Width", {}, r"\(M, N, P, Width\).*--args '\?,\?,\?,N'"),
        (f"{POINTERS}, int M, int N, int K, int depth", {}, "--args"),
        (
            "const double* A, const double* B, double* C, int N",
            {},
            r"takes const double\* A: the gate passes float",
        ),
        (f"{POINTERS}, int N", {"args": "A,B,C,X"}, "'X' is none of"),
        (f"{POINTERS}, int N", {"args": "A,B,C,M,N"}, "declares 4 parameters, and 5 are given"),
        (
            "const float* A, const float* B, float* C, int N, double alpha",
            {},
            "takes double alpha: the gate passes",
        ),
        ("const Matrix A, const Matrix B, Matrix C", {}, "takes Matrix A: the gate passes float"),
        ("float** A, float** B, float** C, int N", {}, r"takes float\*\* A: the gate passes float"),
        ("float A[64][64], float B[64][64], float C[64][64]", {}, r"takes float \(\*A\)\[64\]"),
        ("float* A, float* B, float* C, Matrix* seen, int N", {}, r"takes Matrix\* seen"),
        ("const real* A, const real* B, real* C, int N", {}, r"takes const double\* A"),
        (f"{POINTERS}, unsigned short N", {}, "takes unsigned short N: the gate passes float"),
        (f"{POINTERS}, int N, bool adds", {}, "takes bool adds: the gate passes float"),
        (f"{POINTERS}, float* D, int N", {}, "takes 4 pointers: the gate passes A, B and C"),
        ("const int& M, float* A, float* B, float* C", {}, "takes int& M"),
        (POINTERS, {}, "takes no size"),
        (f"int M, int N, int K, {POINTERS}, int stride", {}, r"--args 'M,N,K,A,B,C,\?'"),
    ],
)
def test_what_is_not_clear_or_cannot_be_passed_is_named(parameters, words, why):
    types = "typedef struct { int width; float* data; } Matrix;\nusing real = double;\n"
    with pytest.raises(BadSetting, match=why):
        Kernel.from_source(
            f"{types}__global__ void gemm({parameters}) {{}}", **words
        ).require_launch()


def test_a_launch_passes_the_values_in_the_declared_order():
    record = kernel("float* x, float* y, float* z, size_t n, int k, int m", args="C,A,B,N,K,M")
    bound = record.bind(Shape(3, 5, 7), 1.0, "a", "b", 0.0, "c")
    assert bound == ("c", "a", "b", 5, 7, 3) and [type(value) for value in bound[3:]] == [
        np.int64,
        np.int32,
        np.int32,
    ]
    assert record.domain == Domain(alpha=False, beta=False) and "alpha = 1 and beta = 0" in str(
        record.remarks
    )
    assert record.adapted == (
        "parameters (x, y, z, n, k, m): passed as (C, A, B, N, K, M); alpha = 1 and beta = 0, which it doesn't take",
    )
    assert kernel(f"{POINTERS}, int n", grid="N", block=1).describe()["arguments"] == [
        "A",
        "B",
        "C",
        "N",
    ]
    without = kernel(f"{POINTERS}, int n, void* workspace", grid="N", block=1)
    assert without.bind(Shape.of(4), 1.0, "a", "b", 0.0, "c") == ("a", "b", "c", 4, 0), (
        "no memory where none is needed"
    )
    square = kernel(f"{POINTERS}, int n", domain="M % 8 == 0").domain
    assert Shape.of(16) in square and Shape(16, 8, 16) not in square and Shape.of(12) not in square
    assert square.padded(Shape(3, 17, 5)) == Shape.of(24) and Domain.of(str(square)).square


GEMM = f"__global__ void gemm({POINTERS}, int M, int N, int K)"
SQUARE = f"__global__ void gemm({POINTERS}, int N)"
# A: M x N, B: N x K, C: M x K, as some sites pose the problem.
INNER_IS_N = (
    "for (int i = 0; i < N; ++i) s += A[row * N + i] * B[i * K + col]; C[row * K + col] = s;"
)
LAUNCHED = f"""
#include <cuda_runtime.h>
#define TILE 16
{GEMM} {{ {ROW} {COL} float s = 0; if (row < M && col < K) {{ {INNER_IS_N} }} }}
"""


SOLVE = f"""{LAUNCHED} void solve({POINTERS}, int M, int N, int K) {{ dim3 t(TILE, TILE);
dim3 b((N + t.x - 1) / t.x, (M + t.y - 1) / t.y); gemm<<<b, t>>>(A, B, C, M, N, K); }}"""
CDIV = "template <class T> T cdiv(T a, int b) { return (a + b - 1) / b; }"
CEILING = f"{SQUARE} {{}} {CDIV}\nvoid f() {{ dim3 b(8, 4), g(cdiv(n, 8), (n + 3) / 4); gemm<<<g, b>>>(a, b, c, n); }}"
OF_FLOATS = f"""{SQUARE} {{}} void f() {{ dim3 t(16, 8), g(ceil(n / 16.0f), std::ceil((float)n / t.y));
auto mine = gemm; mine<<<g, t>>>(a, b, c, n); }}"""
OF_INTEGERS = f"{SQUARE} {{}} void f() {{ gemm<<<dim3(ceil(n / 16), n), 16>>>(a, b, c, n); }}"
CASTS = f"""{GEMM} {{}} {CDIV} void f() {{
gemm <<<dim3(cdiv(n, 8), cdiv(m, 4)), dim3(8, 4)>>> (a, b, c, (int)m, static_cast<int>(n), int(k)); }}"""
BY_16 = "(N + 15) / 16, (M + 15) / 16"
UNCLEAR = (
    f"{GEMM} {{}} void f() {{ gemm<<<M, 1>>>(A, B, C, M, N, K); gemm<<<M, 2>>>(A, B, C, M, N, K); }}",  # two launches
    f"{GEMM} {{}} void f() {{ gemm<<<blocks(n), 64>>>(a, b, c, m, n, k); }}",  # an unknown function
    f"{GEMM} {{}} void f() {{ gemm<<<dim3(n / 8, n / 8), 64>>>(a, b, c, n, n, n); }}",  # one variable for all sizes
    f"{GEMM} {{ {ROW} {COL} C[row * N + col] = 0; }}",  # none
)


@pytest.mark.parametrize(
    ("source", "grid", "block", "origin"),
    [
        (
            f"// grid: (N + 63) / 64, M / 8, block: 64, 4\n{SQUARE} {{}}",
            "(N + 63) / 64, M / 8",
            "64, 4",
            "a comment",
        ),
        (
            f"// grid: (N / 16, M / 8, 4), block: (16, 4, 2)\n{SQUARE} {{}}",
            "N / 16, M / 8, 4",
            "16, 4, 2",
            "a comment",
        ),
        (SOLVE, BY_16, "16, 16", "the host code"),
        (CEILING, "(N + 7) / 8, (N + 3) / 4", "8, 4", "the host code"),
        (OF_FLOATS, "(N + 15) / 16, (N + 7) / 8", "16, 8", "the host code"),
        (OF_INTEGERS, "N / 16, N", "16", "the host code"),
        (CASTS, "(N + 7) / 8, (M + 3) / 4", "8, 4", "the host code"),
        *((source, "", "", "") for source in UNCLEAR),
    ],
)
def test_the_launch_is_read_only_where_the_source_states_one(source, grid, block, origin):
    found = Kernel.from_source(source)
    assert (found.grid, found.block) == (grid, block)
    assert (f"launch: grid {grid}; block {block}; from {origin}" in found.adapted) == bool(grid)
    assert Kernel.from_source(source, block="128", grid="M").blocks(Shape.of(9)) == (9, 1), (
        "an option replaces it"
    )
    by_option = f"launch: grid M; block {block}; from --grid and {origin}"
    assert not grid or by_option in Kernel.from_source(source, grid="M").adapted


@pytest.mark.parametrize(
    ("source", "block", "mixed"),
    [
        (f"// grid: N, M, block: 64, 4\n{SQUARE} {{}}", "16,16", "64, 4"),
        (f"// Launch: grid N, M   block 64, 4\n{SQUARE} {{}}", "16,16", "64, 4"),
        (SOLVE, "128", "16, 16"),
        (SOLVE, "16,16", ""),  # the block that the grid was written for
    ],
)
def test_a_block_given_with_a_grid_of_another_block_asks_for_the_grid(source, block, mixed):
    said = f"which states this grid with block {mixed}: give --grid, too"
    read = Kernel.from_source(source, block=block).adapted[-1]
    assert (said in read) == bool(mixed) and ("give --grid" in read) == bool(mixed)
    assert "give" not in Kernel.from_source(source, grid="M").adapted[-1]


LAUNCH = "gemm<<<dim3((N + 15) / 16, (M + 7) / 8), dim3(16, 8)>>>(A, B, C, M, N, K);"
OF_T = LAUNCH.replace("dim3(16, 8)", "t")
PASSES = "(A, B, C, M, N, K); }"
MEMBERS = "dim3 g, t(1, 1); t.x = 16; t.y = 8; g.x = (N + t.x - 1) / t.x; g = dim3(g.x, M / 8); gemm<<<g, t>>>"
BY_CONFIG = """cudaLaunchConfig_t c = {0}; c.gridDim = dim3(N / 16, M / 8); c.blockDim = dim3(16, 8);
cudaLaunchKernelEx(&c, gemm, A, B, C, M, N, K);"""
BY_FIELDS = (
    BY_CONFIG.replace("{0}; c", "{").replace("; c.b", ", .b").replace("16, 8);", "16, 8)};", 1)
)
ROUNDED = (
    "auto up = [](int a, int b) { return a / b + (a % b ? 1 : 0); }; gemm<<<up(N, 16), 1 << 4>>>"
)
OF_A_MACRO = """#define RUN(kernel, g, t, ...) kernel<<<g, t>>>(__VA_ARGS__)
void f() { RUN(gemm, dim3(N, M), 32, A, B, C, M, N, K); }"""
OF_A_HELPER = f"""template <int X> void launch(dim3 blocks, {POINTERS}, int m, int n, int k) {{
gemm<<<blocks, X>>>(A, B, C, m, n, k); }}
void f(int M, int N, int K) {{ launch<64>(dim3(N / 64, M), A, B, C, M, N, K); }}"""
POINTER = f"using Kernel = void (*)({POINTERS}, int, int, int);"
POINTED = f"{POINTER} void launch(Kernel kernel) {{ {LAUNCH.replace('gemm', 'kernel')} }} void f() {{ launch(gemm); }}"
FLOOR = """constexpr int ceil_div(int n, int size) { return n / size; }
enum { Y = 8 }; struct Tile { static constexpr int X = ceil_div(33, 2); };"""
OF_FUNCTIONS = "gemm<<<dim3(ceil_div(N, Tile::X), M / Y), dim3(Tile::X, Y)>>>(A, B, C, M, N, K);"


@pytest.mark.parametrize(
    ("code", "grid", "block"),
    [
        (OF_A_MACRO, "N, M", "32"),
        (f"void f() {{ {MEMBERS}{PASSES}", "(N + 15) / 16, M / 8", "16, 8"),
        (f"void f() {{ {BY_CONFIG} }}", "N / 16, M / 8", "16, 8"),
        (f"void f() {{ {BY_FIELDS} }}", "N / 16, M / 8", "16, 8"),
        (
            f"void f() {{ int x{{16}}; gemm<<<N / x + !!(N % x), x>>>{PASSES}",
            "(N + 15) / 16",
            "16",
        ),
        (f"void f() {{ {ROUNDED}{PASSES}", "(N + 15) / 16", "16"),
        (
            f"void f() {{ int t = 64; gemm<<<N, t>>>{PASSES} void g() {{ int t = 32; use(t); }}",
            "N",
            "64",
        ),
        (OF_A_HELPER, "N / 64, M", "64"),
        (POINTED, "(N + 15) / 16, (M + 7) / 8", "16, 8"),
        (f"{FLOOR} void f() {{ {OF_FUNCTIONS} }}", "N / 16, M / 8", "16, 8"),
        (f"struct S {{ void f() {{ {LAUNCH} }} }};", "(N + 15) / 16, (M + 7) / 8", "16, 8"),
    ],
)
def test_a_launch_is_read_with_the_values_that_names_have_there(code, grid, block):
    found = Kernel.from_source(f"{GEMM} {{}}\n{code}")
    assert (found.grid, found.block) == (grid, block) and found.adapted[-1].endswith(
        "from the host code"
    )


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (f"dim3 t(32, 8); if (N < 64) t = dim3(8, 8); {OF_T}", "line 2: .*its block depends"),
        (f"int t = 0; occupancy(&t); {OF_T}", 'line 2: .*"occupancy" is undefined'),
        (
            f"{LAUNCH} {LAUNCH.replace('16', '32')}",
            "launches differ: gemm with grid .* block 16, 8 or gemm with grid",
        ),
        ("/* grid: blocks(N), block: 32 */", r"in a comment isn't read: cannot read 'blocks\(N\)'"),
        (LAUNCH.replace("gemm", "table[0]"), 'line 2: .*"table" is undefined'),
        (f"}} {GEMM.replace('float*', 'double*')} {{", "has gemm with different parameters"),
    ],
)
def test_what_of_a_launch_is_not_understood_is_said(code, why):
    with pytest.raises(BadSetting, match=why):
        Kernel.from_source(f"{GEMM} {{}}\nvoid f() {{ {code} }}").require_launch()


def test_a_kernel_and_its_launch_from_one_macro_are_compiled_and_a_type_is_found_as_by_the_compiler():
    both = f"{GEMM} {{ C[0] = 1; }} void run() {{ {LAUNCH} }}".replace("\n", " ")
    made = Kernel.from_source(f"#define BOTH(gemm) {both}\nBOTH(mine)\n")
    assert (made.block, made.program.source.count("\n")) == ("16, 8", 2)
    assert "mine" in build(made.program)[0].symbol
    assert Kernel.from_source(
        f"template <class T> {GEMM.replace('float', 'T')} {{}} void f() {{ {LAUNCH} }}"
    ).block
    assert (
        Kernel.from_source(f"template <int T = 8> {GEMM} {{}} void f() {{ {LAUNCH} }}").entry
        == "gemm<8>"
    )


def test_a_function_that_launches_for_any_type_is_read_for_floats_or_for_its_instantiation():
    of_any = POINTERS.replace("float", "T")
    source = (
        f"template <class T, int TILE> __global__ void gemm({of_any}, int M, int N, int K) {{}}\n"
        f"template <int TILE, class T> void run({of_any}, int M, int N, int K) {{\n"
        "  gemm<T, 32><<<dim3((N + 31) / 32, (M + 31) / 32), dim3(32, 32)>>>(A, B, C, M, N, K);\n}\n"
    )
    listed = "(const {0}*, const {0}*, {0}*, int, int, int);\n"
    instances = {
        of: f"template void run<8, {of}>{listed.format(of)}" for of in ("float", "double", "__half")
    }
    assert Kernel.from_source(source + instances["__half"]).entry == "gemm<__half, 32>"
    for given in (instances["double"], instances["__half"] + instances["float"], ""):
        found = Kernel.from_source(f"#include <cuda_fp16.h>\n{source}{given}")
        assert found.entry == "gemm<float, 32>" and build(found.program)[0].symbol


def test_a_function_that_takes_the_kernel_is_read_for_each_kernel_that_it_is_called_with():
    pointer = f"void (*kernel)({POINTERS}, int, int, int)"
    source = (
        f"{GEMM} {{}}\n{GEMM.replace('gemm', 'other')} {{}}\n"
        f"float timed({pointer}, dim3 g, dim3 t) {{ kernel<<<g, t>>>(A, B, C, M, N, K); return 0; }}\n"
        f"void f() {{ {{ {pointer} = gemm; timed(kernel, dim3(N / 16, M / 8), dim3(16, 8)); }}\n"
        "timed(&other, dim3(N / 64, M), 64); }\n"
    )
    for entry, grid, block in (("gemm", "N / 16, M / 8", "16, 8"), ("other", "N / 64, M", "64")):
        found = Kernel.from_source(source, entry=entry)
        assert (found.grid, found.block) == (grid, block), found.adapted


def test_what_names_a_type_of_the_host_is_for_the_host_and_so_are_its_headers(tmp_path):
    of_nvidia = "#ifdef __DRIVER_TYPES_H__\ninline void checked(cudaError_t e) { cudaGetErrorName(e); }\n#endif\n"
    (tmp_path / "helper_cuda.h").write_text(of_nvidia, encoding="utf-8")
    source = (
        "#include <cooperative_groups.h>\n#include <helper_cuda.h>\n"
        '#include "nvtx3/nvToolsExt.h"\ntemplate <class T> class Buffer { std::vector<T> values; };\n'
        "class Loss { Buffer<float>* wanted; };\nclass Timer { struct timeval begun; };\nstruct Pair { float x, y; };\n"
        f"{GEMM} {{ C[0] = Pair{{1, 2}}.y; }}\n"
        "void f(Loss loss) { nvtxRangePush(name); }\n"
    )
    made = Kernel.from_source(source, include=tmp_path)
    assert build(made.program)[0].symbol and "struct Pair" in made.program.source


def test_a_structure_that_a_kernel_takes_may_have_functions_for_the_host():
    members = """
  float* data; int n;
  explicit Matrix(int n) : n(n) { cudaMalloc(&data, n); }
  ~Matrix() { cudaFree(data); }
  __device__ float at(int i) const { return data[i]; }
"""
    owner = "struct Managed { void* operator new(size_t n) { void* p; cudaMallocManaged(&p, n); return p; } };\n"
    taken = "__global__ void copy(Matrix from, Matrix to) { to.data[0] = from.at(0); }"
    of_host = "class Solver { std_vector<float> x; void run() { cudaMalloc(&x, 4); } };"
    made = Kernel.from_source(f"{of_host}{owner}struct Matrix : Managed {{{members}}};\n{taken}")
    assert build(made.program)[0].symbol and made.program.source.count("\n") == 7
    assert "cuda" not in made.program.source and "~" not in made.program.source
    calling = "void wait() { cudaDeviceSynchronize(); } void run() { wait(); }"
    within = f"struct Matrix {{{members}{calling}}};\n{GEMM} {{ C[0] = ((Matrix*)A)->at(0); }}"
    assert build(Kernel.from_source(within).program)[0].symbol


def test_a_launch_that_rounds_down_and_the_arguments_of_a_template_are_read_too():
    source = (
        f"template <int T> __global__ void gemm({POINTERS}, int M, int N, int K) {{}}\n"
        "int main() { gemm<8><<<dim3(N / 8, M / 16), 64>>>(a, b, c, M, N, K); }"
    )
    found = Kernel.from_source(source)
    assert found.entry == "gemm<8>" and str(found.domain) == "M % 16 == 0, N % 8 == 0"
    assert (
        "M % 16 == 0, N % 8 == 0; other shapes" in found.warnings[0]
        and found.remarks[-1] == found.warnings[0]
    )
    for domain, meant in (("K % 4 == 0", "K % 4 == 0"), ("any", "any M, N, K")):
        stated = Kernel.from_source(source, domain=domain)
        assert str(stated.domain) == meant and stated.warnings == ()


@pytest.mark.parametrize(
    ("comment", "domain", "unread"),
    [
        ("// Domain:  M % 8 == 0, K % 4 == 0.", "M % 8 == 0, K % 4 == 0", ""),
        ("// Domain:  M % 8 == 0 && K % 4 == 0", "M % 8 == 0, K % 4 == 0", ""),
        ("/* domain: M = N = K */", "M = N = K", ""),
        ("// Domain: M == N, N == K, K % 8 == 0", "M = N = K, K % 8 == 0", ""),
        ("// Domain: M == N", "any M, N, K", "cannot read the domain 'M == N': give rules such as"),
        ("// Domain: any\n// domain: any M, N, K", "any M, N, K", ""),
        ("// Domain: M % BM == 0", "any M, N, K", "cannot read the domain 'M % BM == 0'"),
        ("// domain: the real numbers", "any M, N, K", "cannot read the domain 'the real numbers'"),
        ("// Domain: M % 8 == 0\n// Domain: N % 8 == 0", "any M, N, K", "comments state "),
    ],
)
def test_a_domain_is_read_from_a_comment_and_one_that_is_not_read_is_named(comment, domain, unread):
    source = f"{comment}\n{GEMM} {{}}"
    found = Kernel.from_source(source)
    assert str(found.domain) == domain
    assert (f"domain: {domain}; from a comment" in found.adapted) == (not domain.startswith("any"))
    said = [
        words for words in found.adapted if words.startswith("the domain in a comment isn't read")
    ]
    assert len(said) == bool(unread) and unread in "".join(said)
    stated = Kernel.from_source(source, domain="K % 2 == 0")
    assert (str(stated.domain), len(stated.adapted)) == ("K % 2 == 0", 1), "an option replaces it"


STATED = f"""// Domain:  N % TILE == 0. Any data.
// Tile:    TILE=8
// Launch:  grid N / TILE,
//          M   block TILE   shared TILE * 4
// Claims:  tf32
template <int TILE> {GEMM} {{}}
"""


def test_a_file_states_its_tile_launch_and_precision_class_as_a_rung_does():
    found = Kernel.from_source(STATED)
    assert (found.entry, found.grid, found.threads, found.claimed) == (
        "gemm<8>",
        "N / TILE, M",
        8,
        "tf32",
    )
    assert (found.blocks(Shape(3, 16, 5)), str(found.domain), found.program.shared) == (
        (2, 3),
        "N % 8 == 0",
        32,
    )
    assert found.adapted[-1] == "launch: grid N / TILE, M; block TILE; from a comment"
    given = Kernel.from_source(
        STATED.replace("=8", "=4"), claimed="fp32", grid="N", block=16, shared=64
    )
    assert (given.entry, given.grid, given.threads, given.claimed) == ("gemm<4>", "N", 16, "fp32")
    assert (str(given.domain), given.program.shared) == ("N % 4 == 0", 64)
    assert Kernel.from_source(STATED, entry="gemm<2>").grid == "", (
        "the header's launch is for its own tile"
    )
    prose = (
        STATED.replace("grid N", "grid of N")
        .replace("tf32", "nothing")
        .replace("<int TILE>", "<int T>")
    )
    loose = Kernel.from_source(prose)
    assert (loose.entry, loose.grid, loose.claimed) == ("gemm", "", "fp32"), (
        "words that can't be read are comments"
    )


def test_no_directive_is_left_whether_known_or_not():
    left = preprocessed(
        "#pragma unroll 4\n#unknown words\n#define N 2\nint a = N; // two\n", ()
    ).text
    assert "".join(left.split()) == "inta=2;"


def test_only_the_kernel_and_what_it_needs_is_compiled_and_lines_keep_their_numbers():
    source = """#include <vector>
#include <cuda_fp16.h>
using namespace std;
namespace mine {
__device__ float twice(float x) { return 2 * x; }  // "}" int main() {
}
template <class T> void fill(std::vector<T>& x) { for (auto& v : x) { v = 1; } }
struct Pair { float x, y; };
struct Unneeded { unknown z; };
extern "C" {
__global__ void gemm(const float* A) { if (A) { mine::twice(Pair{}.x); } }
__global__ void other(const float* A) { unknown z; }
void solve(const float* A) { gemm<<<1, 1>>>(A); }
}
int main() { return 0; }
"""
    kept = prepared("mine.cu", source, "gemm", include=(), define=()).source.splitlines()
    lines = [n for n, line in enumerate(kept, 1) if line.strip(" ;")]
    assert lines == [2, 4, 5, 6, 8, 10, 11, 14]
    assert kept[10] == source.splitlines()[10]
    assert [*map(len, kept)] == [*map(len, source.splitlines())]
    assert read_unit(source, (), ()).kernels == ["gemm", "other"]


UNNEEDED = {
    "alias": "using Time = std::chrono::duration<float>; struct Timed { Time best; };",
    "classes": "struct Owner { std::atomic<int> n; }; class Shared { Owner* at; Shared() : at(0) {} };",
    "registration": 'REGISTER_KERNEL(1, "naive", launch)',
    "benchmark": 'NVBENCH_BENCH(f).add_int64_axis("N", {1, 2});\nBENCHMARK(f)->Range(8, 9);',
    "test": "TEST(Product, Ones) { EXPECT_EQ(1, 2); }",
    "assertion": 'static_assert(false, "for the host");',
    "instances": "template __global__ void gone<8>(float*);",
    "table": 'static std::map<int, int> table = {{1, 2}}; const std::string names[] = {"a"};',
    "shadowed": 'std::vector<float> A; const std::string K = "k"; int N = 3;',
    "macro": "#define BOTH(n) namespace { const bool r_##n = add(n); } void f_##n(Vector v) {}\nBOTH(1)",
    "operator": "struct V { Unknown x; }; __device__ V operator+(V a, V b) { return a; }",
    "other kernel": "__device__ int f() { return unknown; } __global__ void other(int* x) { *x = f(); }",
}


@pytest.mark.parametrize("code", UNNEEDED.values(), ids=UNNEEDED.keys())
@pytest.mark.parametrize("is_first", [True, False])
def test_what_a_kernel_does_not_need_stops_no_compilation(code, is_first):
    kernel = f"{GEMM} {{ C[0] = A[0]; }}"
    source = "\n".join([code, kernel] if is_first else [kernel, code])
    assert build(Kernel.from_source(source, entry="gemm").program)[0].symbol == "_Z4gemmPKfS0_Pfiii"


def test_what_a_kernel_needs_is_compiled_wherever_it_is_defined(tmp_path):
    (tmp_path / "body.inc").write_text("float included = 0;\nincluded += only_here(A[0]);\n")
    source = """#define CEIL(a, b) lab::divide_up(a, b)
#define MADE(T) __device__ T made_##T(T x) { return x * scale; } void host_##T(Vector<T> v) {}
constexpr float scale = 2;
MADE(float)
namespace lab { namespace inner {
enum { ROW, COL };
template <class T> struct Traits;
template <> struct Traits<float> { using type = float; };
struct Vec { float x; Vec() = default; __device__ Vec(float a) : x(a) {} };
__device__ Vec operator+(Vec a, Vec b) { return Vec(a.x + b.x); }
}
__constant__ float table[2];
__device__ int divide_up(int a, int b);
template <int N> __device__ float down(float x) { return down<N - 1>(x); }
template <> __device__ float down<0>(float x) { return x; }
}
__device__ int lab::divide_up(int a, int b) { return (a + b - 1) / b; }
__device__ float only_here(float x) { return x; }
using namespace lab::inner;
using lab::down;
namespace li = lab::inner;
template <class T> using Ty = typename Traits<T>::type;
typedef struct { int a; } Plain, *Pointer;
extern __shared__ float pool[];
"""
    body = """
#include "body.inc"
Plain p; Pointer q = &p; q->a = CEIL(N, 2); li::Vec v = Vec(A[0]) + Vec(1); Ty<float> t = made_float(v.x);
pool[0] = lab::table[ROW] + down<2>(t); C[0] = pool[0] + included + q->a;
"""
    (tmp_path / "mine.cu").write_text(f"{source}{GEMM} {{ {body} }}")
    assert build(Kernel.from_file(tmp_path / "mine.cu").program)[0].symbol


def test_a_kernel_with_other_conventions_passes_the_gate_and_a_mistake_in_it_fails(few_shapes):
    host = "dim3 t(16, 8); gemm<<<dim3((K + 15) / 16, (M + 7) / 8), t>>>(A, B, C, M, N, K);"
    source = f'{LAUNCHED} extern "C" void solve({POINTERS}, int M, int N, int K) {{ {host} }}'
    right = check(Kernel.from_source(source, file="mine.cu"), SMALL, on="emulated")
    assert right.verdict.accepted and right.shape == SMALL
    assert "launches with alpha = 1, beta = 0, no element wrong" in right.verdict.stages[0].detail
    assert (
        "· parameters (A, B, C, M, N, K): passed as (A, B, C, M, K, N); alpha = 1 and beta = 0"
        in str(right)
    )
    wrong = check(
        Kernel.from_source(source.replace("i < N", "i < N - 1"), file="mine.cu"),
        SMALL,
        on="emulated",
    )
    assert not wrong.verdict.accepted and wrong.as_dict()["adapted"]


def test_a_kernel_whose_blocks_and_threads_have_three_dimensions_passes_the_gate(few_shapes):
    body = f"""{ROW} {COL} if (row >= M || col >= N || (row + col) % 2 != blockIdx.z || threadIdx.z) return;
    float s = 0; for (int i = 0; i < K; ++i) s += A[row * K + i] * B[i * N + col]; C[row * N + col] = s;"""
    host = "void f() { dim3 g((N + 7) / 8, (M + 3) / 4, 2), t(8, 4, 2); gemm<<<g, t>>>(A, B, C, M, N, K); }"
    right = check(Kernel.from_source(f"{GEMM} {{ {body} }} {host}"), SMALL, on="emulated")
    assert right.verdict.accepted, str(right)


def test_a_kernel_for_squares_and_one_in_column_major_order_pass_the_gate(few_shapes):
    element = f"{ROW} {COL} if (row >= M || col >= N) return; float s = 0; for (int i = 0; i < K; ++i) s += "
    body = element + "A[row * M + i] * B[i * M + col]; C[row * M + col] = s;"
    body = re.sub(r"\b[MNK]\b", "n", body)
    launch = {"grid": "(N + 7) / 8, (M + 7) / 8", "block": "8, 8"}
    square = check(
        kernel(f"{POINTERS}, size_t n", body, name="square", **launch), Shape.of(24), on="emulated"
    )
    assert square.verdict.accepted, str(square)
    columns = element + "A[row + i * M] * B[i + col * K]; C[col * M + row] = alpha * s;"
    parameters = f"int M, int N, int K, float alpha, {POINTERS}"
    launch |= {
        "grid": "(M + 7) / 8, (N + 7) / 8",
        "args": "N,M,K,alpha,B,A,C",
    }  # column-major: the transposed product
    major = kernel(parameters, columns, **launch)
    assert check(major, SMALL, on="emulated").verdict.accepted
    ignored = check(
        kernel(parameters, columns.replace("alpha * s", "s"), **launch), SMALL, on="emulated"
    )
    assert "alpha is ignored" in str(ignored)


# Code that the compiler doesn't see, and names that a pattern would miss.
OLD = f"#if 0\n__global__ void gemm(float* C, float* A, float* B, int N) {{}}\n#endif\n{GEMM} {{}}"
DEBUG = f"""{SQUARE} {{}} void f() {{
#ifdef DEBUG
gemm<<<1, 8>>>(A, B, C, n);
#else
gemm<<<n, 64>>>(A, B, C, n);
#endif
}}"""
LAB = f"namespace lab {{ namespace own {{ {GEMM} {{}} }} }}"
SPACED = f"{LAB} void f() {{ lab::own::gemm<<<m, 64>>>(a, b, c, m, n, k); }}"
ATTRIBUTES = f'extern "C" __global__ __cluster_dims__(2, 1, 1) __maxnreg__(128) {GEMM.removeprefix("__global__ ")} {{}}'
BEHIND = f"static void __global__ gemm({POINTERS}, size_t n) {{}}"
STATIC = f"""template <typename T> struct Traits {{ using type = T; }};
template <int T, typename U = float> {SQUARE.replace("const float* A", "const typename Traits<U>::type* A")} {{}}
struct Run {{ static void f() {{ gemm<T, float><<<n, T>>>(A, B, C, n); }} static constexpr int T = 8; }};"""
RESTRICTED = f"typedef const float* __restrict__ in; {SQUARE.replace('const float*', 'in')} {{}}"
IN_LAB = "lab::gemm", "A,B,C,M,N,K", ("M", "64")
SPECIAL = f"""template <int T> {SQUARE} {{}} template <> {SQUARE.replace("gemm", "gemm<4>")} {{}}
void f() {{ gemm<8><<<n, 64>>>(A, B, C, n); }}"""
BY_POINTER = f"""{SQUARE} {{}} void f() {{ dim3 b(32, 8); void* args[] = {{&A, &B, &C, &n}};
cudaLaunchKernel((void*)gemm, dim3(n / 32, n / 8), b, args, 0, 0); }}"""


@pytest.mark.parametrize(
    ("source", "entry", "arguments", "launch"),
    [
        (OLD, "gemm", "A,B,C,M,N,K", ("", "")),
        (DEBUG, "gemm", "A,B,C,N", ("N", "64")),
        (SPACED, "lab::own::gemm", "A,B,C,M,N,K", ("M", "64")),
        (ATTRIBUTES, "gemm", "A,B,C,M,N,K", ("", "")),
        (BEHIND, "gemm", "A,B,C,long N", ("", "")),
        (BEHIND.replace("__global__", "__attribute__((global))"), "gemm", "A,B,C,long N", ("", "")),
        (
            SPACED.replace("namespace own", "inline namespace own"),
            *IN_LAB,
        ),
        (
            SPACED.replace("own::gemm", "gemm").replace("namespace own", "inline namespace own"),
            *IN_LAB,
        ),
        (SPECIAL, "gemm<8>", "A,B,C,N", ("N", "64")),
        (
            f"#if __has_include(<cublas.h>)\n{SPACED}\n#endif\n{BEHIND}",
            "gemm",
            "A,B,C,long N",
            ("", ""),
        ),
        (RESTRICTED, "gemm", "A,B,C,N", ("", "")),
        (STATIC, "gemm<8, float>", "A,B,C,N", ("N", "8")),
        (
            "typedef float real;\n" + SQUARE.replace("float", "real") + " {}",
            "gemm",
            "A,B,C,N",
            ("", ""),
        ),
    ],
)
def test_a_source_is_read_as_the_compiler_reads_it(source, entry, arguments, launch):
    found = Kernel.from_source(source)
    assert (found.entry, ",".join(found.arguments), (found.grid, found.block)) == (
        entry,
        arguments,
        launch,
    )


def test_a_macro_of_the_command_line_decides_which_code_is_read():
    assert Kernel.from_source(DEBUG, define=["DEBUG"]).block == "8"
    versions = OLD.replace("#if 0", "#if VERSION == 1").replace("#endif\n", "#else\n") + "\n#endif"
    assert Kernel.from_source(versions, define=["VERSION=1"]).arguments == ("C", "A", "B", "N")
    assert Kernel.from_source(versions, define=["VERSION=2"]).arguments[0] == "A"


def test_kernels_in_headers_beside_a_file_are_read_with_its_launches(tmp_path):
    (tmp_path / "types.h").write_text(
        "#include <vector>\n#define TILE 16\ntypedef double element;\n"
    )
    (tmp_path / "own.cuh").write_text(
        f'#include "types.h"\n{GEMM} {{}}\n__global__ void short_one(element* A) {{}}'
    )
    (file := tmp_path / "runner.cu").write_text(
        '#include "own.cuh"\nvoid f() { gemm<<<m, TILE>>>(A, B, C, m, n, k); }\nstatic int count() { return 1; }'
    )
    found = Kernel.from_file(file, entry="gemm")
    assert (found.arguments, found.grid, found.block) == (("A", "B", "C", "M", "N", "K"), "M", "16")
    assert "count" not in found.source and "vector" not in dict(found.program.headers)["types.h"]
    with pytest.raises(BadSetting, match="has 2 kernels \\(gemm, short_one\\)"):
        Kernel.from_file(file)
    with pytest.raises(BadSetting, match=r"short_one takes double\* A"):
        Kernel.from_file(file, entry="short_one").require_launch()
    (tmp_path / "own.cuh").write_text(
        f"{GEMM} {{}}\nvoid f() {{ gemm<<<m, many()>>>(A, B, C, m, n, k); }}"
    )
    with pytest.raises(
        BadSetting, match=r'an included file: .*"many" is undefined; line 2: .*"TILE" is undefined'
    ):
        Kernel.from_file(file).require_launch()


def test_launches_through_the_runtime_and_their_shared_memory_are_read():
    assert Kernel.from_source(BY_POINTER).block == "32, 8"
    bytes_ = f"#define TILE 16\n{SQUARE} {{}} void f() {{ gemm<<<n, 64, 2 * TILE * sizeof(float)>>>(A, B, C, n); }}"
    found = Kernel.from_source(bytes_)
    assert found.launch.shared == 128 and "128 bytes of dynamic shared memory" in found.adapted[-1]
    assert "give --shared" in Kernel.from_source(bytes_.replace("2 * TILE", "depth")).adapted[-1]
    assert Kernel.from_source(bytes_, shared=64).launch.shared == 64, "an option replaces it"
    array = bytes_.replace("2 * TILE * sizeof(float)", "sizeof(float[2][TILE])")
    assert Kernel.from_source(array).launch.shared == 128
    tile = "extern __shared__ float tile[]; C[0] = tile[0];"
    unread = bytes_.replace("2 * TILE * sizeof(float)", "n * sizeof(float)").replace(
        "{}", f"{{ {tile} }}", 1
    )
    with pytest.raises(
        BadSetting, match=r"give its bytes .* but for the bytes of its dynamic shared memory: give"
    ):
        check(Kernel.from_source(unread), Shape.of(8), on="emulated")


LONG = " + ".join(["1"] * 3000)


@pytest.mark.parametrize(
    "source",
    [
        f"#define T {LONG}\n{SQUARE} {{ C[0] = {LONG}; }} void f() {{ gemm<<<T, 32>>>(a, b, c, n); }}",
        f"{SQUARE} {{ {ROW} if (row ) < N) C[row @ < N] = 1; }}",
        f"{SQUARE} {{ }} void f() {{ gemm<<<n, 32>>(a, b",
        f"{SQUARE} {{ }} void f(int n) {{ {'if (n) g(n); else ' * 1000} g(1); gemm<<<n, 32>>>(a, b, c, n); }}",
        f"{SQUARE} {{ }} void f() {{ dim3 n = n; gemm<<<n, n>>>(a, b, c, n); }}",
        f"{SQUARE} {{ float2 a; a.x = C[0]; float2 b; b = a; C[0] = b.y; }}",
    ],
)
def test_code_of_any_length_and_with_mistakes_is_read_as_far_as_possible(source):
    assert Kernel.from_source(source).arguments == ("A", "B", "C", "N")


def test_a_third_size_of_one_and_the_forms_of_host_code_are_taken():
    given = kernel(
        f"{POINTERS}, int n", grid="CEIL_DIV(N, 16), CEIL_DIV(N, 8), 1", block="dim3(16, 8, 1)"
    )
    assert given.threads == (16, 8) and given.blocks(Shape.of(20)) == (2, 3, 1)
    assert kernel(f"{POINTERS}, int n", grid="N", block="16x8").threads == (16, 8)
    with pytest.raises(BadSetting, match="cannot read 'N; N'"):
        kernel(f"{POINTERS}, int n", grid="N; N", block=8)


def test_the_compilers_types_are_compared_and_where_it_names_none_the_sources(few_shapes):
    source = (
        f"template <class T> __global__ void gemm({POINTERS.replace('float', 'T')}, int N) {{}}"
    )
    double = Kernel.from_source(source, entry="gemm<double>", grid=1, block=1)
    with pytest.raises(
        BadSetting, match=r"gemm<double> takes double const\* for A: the gate passes float"
    ):
        check(double, Shape.of(8), on="emulated")
    for real in ("typedef double real;", "using real = double;", "#define real double"):
        pointers = POINTERS.replace("float", "real")
        unnamed = f'{real}\nextern "C" __global__ void gemm({pointers}, int N) {{}}'
        with pytest.raises(
            BadSetting, match=r"gemm takes const double\* \w: the gate passes float"
        ):
            Kernel.from_source(unnamed, grid=1, block=1)
    plain = Kernel.from_source(f'extern "C" {SQUARE} {{}}', grid=1, block=1)
    assert " parameters as the source" not in str(check(plain, Shape.of(8), on="emulated"))


def test_a_template_without_arguments_names_the_instances_that_the_host_code_launches():
    template = "template <int BLOCK_SIZE, int N = 1> __global__ void gemm(int M) {}\n"
    host = "constexpr int WIDE = 32; void f() { gemm<16><<<1, 2>>>(1); gemm<WIDE><<<1, 2>>>(1); }"
    for source, said in (
        (
            template,
            "gemm is a template of BLOCK_SIZE, N: give a value of each, as in --entry 'gemm<32, 32>'",
        ),
        (
            template + host,
            "gemm is a template of BLOCK_SIZE, N: name an instance with --entry 'gemm<16, 1>' "
            "(the host code launches gemm<16, 1> and gemm<32, 1>)",
        ),
        (
            "template <typename T, int SIDE> __global__ void gemm(int M) {}\n",
            "gemm is a template of T, SIDE: give a value of each, as in --entry 'gemm<float, 32>'",
        ),
    ):
        made = Kernel.from_source(source)
        for require in (made.require_instance, made.require_launch):
            with pytest.raises(BadSetting, match=re.escape(said)):
                require()
    Kernel.from_source(template, entry="gemm<16>").require_instance()


def test_the_only_instance_that_the_host_code_launches_is_the_kernel():
    template = "template <int SIDE, int N = 1> __global__ void gemm(int M) {}\n"
    made = Kernel.from_source(template + "void f() { gemm<16><<<1, 2>>>(1); }")
    assert made.entry == "gemm<16, 1>"


@pytest.mark.parametrize(
    ("instances", "entry"),
    [(["16"], "gemm<16>"), (["16", "32"], "gemm"), (["8 * 2"], "gemm<8 * 2>")],
)
def test_the_only_explicit_instantiation_is_the_kernel(instances, entry):
    template = f"template <int T> {GEMM} {{ C[0] = T; }}"
    stated = [f"template {GEMM.replace('gemm', f'gemm<{text}>')};" for text in instances]
    assert Kernel.from_source("\n".join([template, *stated])).entry == entry
