"""Host code is run as far as its launches.

What a file's main and launchers state, whatever is around it.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worklog.errors import BadSetting
from worklog.kernel import Kernel
from worklog.kernel.host.calls import unused_functions
from worklog.kernel.host.fit import BASE, fitted, guards, sizes_to_try
from worklog.kernel.unit import read

KERNEL = """
__global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M || column >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + column];
  C[row * N + column] = sum;
}
"""
TILED = "template <int T> " + KERNEL.strip() + "\n"
BY_16 = ("(N + 15) / 16, (M + 15) / 16", "16, 16")
MAIN = """
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { fprintf(stderr, "%d", e); exit(1); } } while (0)
int main(int argc, char** argv) {
  int M = 1024, N = 512, K = 256;
  if (argc > 3) { M = atoi(argv[1]); N = atoi(argv[2]); K = std::stoi(argv[3]); }
  std::vector<float> a(M * K), b(K * N);
  for (auto& x : a) x = rand() / (float)RAND_MAX;
  float *dA, *dB, *dC;
  CHECK(cudaMalloc(&dA, M * K * sizeof(float)));
  CHECK(cudaMemcpy(dA, a.data(), M * K * sizeof(float), cudaMemcpyHostToDevice));
  cudaEvent_t start;
  cudaEventCreate(&start);
  dim3 block(16, 16);
  dim3 grid;
  grid.x = (N + block.x - 1) / block.x;
  grid.y = (M + block.y - 1) / block.y;
  for (int run = 0; run < 10; ++run) {
    cudaEventRecord(start);
    gemm<<<grid, block>>>(dA, dB, dC, M, N, K);
    CHECK(cudaGetLastError());
  }
  printf("done\\n");
}
"""
SAMPLE = """
int run(int argc, char** argv, int tile, const dim3& a, const dim3& b) {
  float *dA, *dB, *dC;
  dim3 threads(tile, tile), grid(b.x / threads.x, a.y / threads.y);
  if (tile == 16) gemm<16><<<grid, threads>>>(dC, dA, dB, a.x, b.x);
  else gemm<32><<<grid, threads>>>(dC, dA, dB, a.x, b.x);
  return 0;
}
int main(int argc, char** argv) {
  int tile = 32;
  dim3 a(5 * tile, 6 * tile, 1), b(7 * tile, 5 * tile, 1);
  if (checkCmdLineFlag(argc, (const char**)argv, "wA")) a.x = getCmdLineArgumentInt(argc, argv, "wA");
  exit(run(argc, argv, tile, a, b));
}
"""
WITHOUT_M = (
    "template <int T> __global__ void gemm(float* C, float* A, float* B, int wA, int wB) "
    "{ C[0] = T; }"
)


def launch(source: str, **words: str) -> tuple[str, str]:
    """Return grid and block that a source states."""
    found = Kernel.from_source(source, **words)
    return found.grid, found.block


def test_of_a_main_only_what_leads_to_the_launch_is_run():
    assert launch(KERNEL + MAIN) == BY_16


@pytest.mark.parametrize(
    "host",
    [
        # a launcher whose memory, messages and return value don't matter
        """float* f(Matrix& a, int M, int N, int K) { Timer t("x"); a.load();
        gemm<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(a.x, a.y, a.z, M, N, K); return t.end(); }""",
        # in a lambda
        """void f(int M, int N, int K) { auto run = [&]() {
        gemm<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(A, B, C, M, N, K); }; time(run); }""",
        # with members of a structure
        """void f(const Sizes& s) { dim3 t(16, 16), g((s.n + 15) / 16, (s.m + 15) / 16);
        gemm<<<g, t>>>(A, B, C, s.m, s.n, s.k); }""",
        # for each of some sizes
        """int main() { int sizes[] = {256, 512}; for (int n : sizes) { int m = n, M = n, N = m, K = 64;
        gemm<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(A, B, C, M, N, K); } }""",
        # a macro for each size
        """#define M 1024
        #define N 512
        #define K 64
        int main() { gemm<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(A, B, C, M, N, K); }""",
        # a tile that nobody passes, and one of the command line
        """void f(int M, int N, int K, int tile = 16) { dim3 t(tile, tile);
        gemm<<<dim3((N + tile - 1) / tile, (M + tile - 1) / tile), t>>>(A, B, C, M, N, K); }""",
        """int main(int argc, char** argv) { int M = 3, N = 4, K = 5, tile = argc > 1 ? atoi(argv[1]) : 16;
        gemm<<<dim3((N + tile - 1) / tile, (M + tile - 1) / tile), dim3(tile, tile)>>>(A, B, C, M, N, K); }""",
        # sizes that a loop finds
        """void f(int M, int N, int K) { int x = 0, y = 0; while (x * 16 < N) ++x; while (y * 16 < M) y += 1;
        gemm<<<dim3(x, y), dim3(16, 16)>>>(A, B, C, M, N, K); }""",
        # one of several kernels, by a number of the command line
        """void f(int which, int M, int N, int K) { switch (which) { case 1: other(M); break; case 2:
        gemm<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(A, B, C, M, N, K); break; } }""",
        # a factor by its address, and pointers that nothing else points to
        """void f(int M, int N, int K, const float* scale, float* __restrict__ a) {
        if (*scale == 7.0f) return;
        gemm<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(a, B, C, M, N, K); }""",
        # a constant of a class that is named like a size
        """struct Tile { static constexpr int M = 16; static constexpr int N = 16; };
        void f(int M, int N, int K) { dim3 t(Tile::N, Tile::M);
        gemm<<<dim3((N + Tile::N - 1) / Tile::N, (M + Tile::M - 1) / Tile::M), t>>>(A, B, C, M, N, K); }""",
        # through the runtime
        """void f(int M, int N, int K) { void* all[] = {&A, &B, &C, &M, &N, &K}; dim3 t(16, 16);
        cudaLaunchKernel((const void*)gemm, dim3((N + 15) / 16, (M + 15) / 16), t, all, 0, 0); }""",
    ],
)
def test_a_launch_is_found_whatever_is_around_it(host):
    assert launch(f"{KERNEL.replace(' M,', ' m,').replace('M)', 'm)')}\n{host}") == BY_16


def test_a_guard_of_the_host_is_the_domain():
    host = """void f(int M, int N, int K) {
      if (M % 64 != 0 || N % 32) { fprintf(stderr, "no"); return; }
      gemm<<<dim3(N / 32, M / 64), 256>>>(A, B, C, M, N, K); }"""
    found = Kernel.from_source(KERNEL + host)
    assert (found.grid, str(found.domain)) == ("N / 32, M / 64", "M % 64 == 0, N % 32 == 0")
    assert "the host code launches it at no other size" in str(found.adapted)


# Each leaves before LAUNCH if a size is no multiple of 16.
GUARDED = "void f(int M, int N, int K) {{ {} LAUNCH }}"
ANY_REST = "M % 16 || N % 16 || K % 16"
GUARDS = [
    f"assert(!({ANY_REST}));",
    f'assert(("whole tiles", !({ANY_REST})));',
    "assert(M % 16 == 0); assert(N % 16 == 0); assert(K % 16 == 0);",
    f"bool fits = !({ANY_REST}); if (!fits) return;",
    "const int rest = M % 16 + N % 16 + K % 16; if (rest != 0) { std::cerr << rest << 1; exit(1); }",
    """bool fits = true; if (M % 16) fits = false; if (N % 16) fits = false; if (K % 16) fits = false;
    if (!fits) return;""",
    f"switch ({ANY_REST}) {{ case 1: return; default: break; }}",
    f'if ({ANY_REST}) throw std::invalid_argument("sizes");',
    "if (M % 16) return; else if (N % 16) { return; } else if (K % 16) return;",
    f'if (!({ANY_REST})) {{ printf("fits"); }} else {{ fprintf(stderr, "%d", M); return; }}',
    f"do {{ int rest = {ANY_REST}; if (rest) {{ abort(); }} }} while (0);",
    "int sizes[] = {M, N, K}; for (int i = 0; i < 3; ++i) if (sizes[i] % 16) { puts(0); return; }",
    "auto bad = [](int size) { return size % 16 != 0; }; if (bad(M) || bad(N) || bad(K)) return;",
    f"switch ({ANY_REST}) {{ case 2: case 1: puts(0); case 3: return; case 0: break; }}",
]
HELPERS = [
    (
        "void fail() { exit(EXIT_FAILURE); } void require(bool ok) { if (!ok) fail(); }",
        f"require(!({ANY_REST}));",
    ),
    ("bool fits(int m) { return m % 16 == 0; }", "if (!fits(M) || !fits(N) || !fits(K)) return;"),
    ("void require(bool ok) { if (!ok) exit(1); }", f"require(!({ANY_REST}));"),
    (
        "void whole(int n, int t) { if (n % t) { perror(0); throw std::runtime_error(0); } }",
        "whole(M, 16); whole(N, 16); whole(K, 16);",
    ),
    (
        "#define REQUIRE(x) do { if (!(x)) { printf(#x); exit(1); } } while (0)",
        "REQUIRE(M % 16 == 0); REQUIRE(N % 16 == 0); REQUIRE(K % 16 == 0);",
    ),
]
CALLED = "void f(int M, int N, int K) { LAUNCH }\n"
CALLERS = [
    CALLED + f"void g(int M, int N, int K) {{ if (!({ANY_REST})) f(M, N, K); }}",
    CALLED + f"void g(int M, int N, int K) {{ if ({ANY_REST}) slow(); else {{ f(M, N, K); }} }}",
    f"""int main() {{ for (int n = 8; n < 64; n += 8) {{
      int M = n, N = 2 * n, K = 3 * n; if ({ANY_REST}) continue; LAUNCH }} }}""",
    f"void f(int M, int N, int K) {{ if ({ANY_REST}) goto done; LAUNCH done: ; }}",
    CALLED + "int main() { int n = 64; if (n % 16) return 1; f(n, n, n); }",
]


@pytest.mark.parametrize(
    "host",
    [
        *(GUARDED.format(guard) for guard in GUARDS),
        *(f"{helper}\n{GUARDED.format(guard)}" for helper, guard in HELPERS),
        *CALLERS,
    ],
)
def test_a_guard_is_the_domain_however_it_is_written(host):
    launched = "gemm<<<dim3(N / 16, M / 16), dim3(16, 16)>>>(A, B, C, M, N, K);"
    found = Kernel.from_source(f"{KERNEL}\n{host.replace('LAUNCH', launched)}")
    assert str(found.domain) == "M % 16 == 0, N % 16 == 0, K % 16 == 0"
    assert (found.grid, found.block) == ("N / 16, M / 16", "16, 16")


@pytest.mark.parametrize(
    "guard",
    [
        "float* p = 0; if (cudaMalloc(&p, M) != cudaSuccess) return;",
        "int devices = 0; cudaGetDeviceCount(&devices); if (devices == 0) return;",
        "if (A == nullptr) { exit(1); }",
        'if (getenv("SLOW")) return;',
        "int n = rand(); if (n % 16) return;",
        "bool ok = M % 16 == 0; ok = load(M); if (!ok) return;",
        'if (getenv("STRICT")) { if (M % 16) return; }',
        "if (M % 16) goto launch; puts(0); launch: ;",
    ],
)
def test_what_sizes_do_not_decide_is_no_guard(guard):
    launched = "gemm<<<dim3(N / 16, M / 16), dim3(16, 16)>>>(A, B, C, M, N, K);"
    host = f"void f(const float* A, int M, int N, int K) {{ {guard} {launched} }}"
    found = Kernel.from_source(KERNEL + host)
    assert (found.grid, found.block) == ("N / 16, M / 16", "16, 16")
    assert "at no other size" not in str(found.adapted)


@pytest.mark.parametrize(
    "callers",
    [
        """void g(int M, int N, int K) { if (K % 16 == 0) f(M, N, K); }
        void h(int M, int N, int K) { f(M % 16 ? M + 16 : M, N, K); }""",
        """void g(int M, int N, int K) { if (K % 16 == 0) f(M, N, K); }
        void (*table[])(int, int, int) = {f};""",
    ],
)
def test_a_guard_of_one_caller_is_no_rule_if_there_are_others(callers):
    launched = "gemm<<<dim3(N / 16, M / 16), dim3(16, 16)>>>(A, B, C, M, N, K);"
    host = f"void f(int M, int N, int K) {{ {launched} }} {callers}"
    assert "at no other size" not in str(Kernel.from_source(KERNEL + host).adapted)


def test_a_check_of_the_runtime_beside_a_tile_is_left_out():
    host = """
    #define CHECK(call) do { int error = (call); if (error) exit(1); } while (0)
    void f(int M, int N, int K) {
      int t = 32; if (K > 0) { t = 16; CHECK(cudaSetDevice(0)); }
      gemm<<<dim3((N + t - 1) / t, (M + t - 1) / t), dim3(t, t)>>>(A, B, C, M, N, K); }"""
    assert launch(KERNEL + host) == BY_16


def test_an_assert_that_is_switched_off_is_no_guard():
    launched = "gemm<<<dim3(N / 16, M / 16), dim3(16, 16)>>>(A, B, C, M, N, K);"
    host = f"void f(int M, int N, int K) {{ assert(K % 16 == 0); {launched} }}"
    assert "K % 16" in str(Kernel.from_source(KERNEL + host).domain)
    assert "K" not in Kernel.from_source(f"#define NDEBUG\n{KERNEL}{host}").rules


def test_a_guard_that_is_not_read_has_its_line():
    launched = "gemm<<<dim3(N / 16, M / 16), dim3(16, 16)>>>(A, B, C, M, N, K);"
    host = f"""void f(int M, int N, int K) {{
      if (load(M) % 16) return;
      {launched} }}"""
    found = Kernel.from_source(f"{KERNEL}{host}")
    assert found.grid == "N / 16, M / 16"
    line = KERNEL.count("\n") + 2
    assert f"line {line}: a guard of the host code isn't read" in str(found.adapted)


@pytest.mark.parametrize(
    ("grid", "reason"), [("M / 16 + 1, N / 16 + 1", "differ"), ("load(M)", "a launch isn't read")]
)
def test_a_domain_of_one_launch_is_not_that_of_all(grid, reason):
    host = f"""void f(int M, int N, int K) {{
      if (M % 16 == 0 && N % 16 == 0) {{
        gemm<<<dim3(N / 16, M / 16), dim3(16, 16)>>>(A, B, C, M, N, K); return; }}
      gemm<<<dim3({grid}), dim3(16, 16)>>>(A, B, C, M, N, K); }}"""
    adapted = "; ".join(Kernel.from_source(KERNEL + host).adapted)
    assert reason in adapted and "at no other size" not in adapted


@pytest.mark.parametrize(("platform", "tile"), [("__linux__", 16), ("_WIN32", 8)])
def test_host_code_is_that_of_linux(platform, tile):
    host = f"""void f(int M, int N, int K) {{
      const int T =
    #ifdef {platform}
      16;
    #else
      8;
    #endif
      gemm<<<dim3(N / T, M / T), dim3(T, T)>>>(A, B, C, M, N, K); }}"""
    assert launch(KERNEL + host) == (f"N / {tile}, M / {tile}", f"{tile}, {tile}")


@pytest.mark.parametrize(
    ("shared", "before", "is_said"),
    [
        ("48 * 1024", "", False),
        ("48 * 1024 + 4", "", True),
        (
            "99000",
            "cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, 99000);",
            False,
        ),
        ("99000", "// cudaFuncAttributeMaxDynamicSharedMemorySize\n", True),
        (
            "99000",
            "cudaFuncSetAttribute(gemm, cudaFuncAttributePreferredSharedMemoryCarveout, 50);",
            True,
        ),
    ],
)
def test_shared_memory_that_the_host_has_not_asked_for_is_named(shared, before, is_said):
    host = (
        f"void f(int M, int N, int K) {{ {before} gemm<<<N, 256, {shared}>>>(A, B, C, M, N, K); }}"
    )
    warnings = str(Kernel.from_source(KERNEL + host).warnings)
    assert ("cudaFuncSetAttribute" in warnings) == is_said


USED_BY_16 = """void f(int M, int N, int K) { dim3 blocks((N + 15) / 16, (M + 15) / 16);
  gemm<<<blocks, dim3(16, 16)>>>(A, B, C, M, N, K); }
struct Bench { void run() { f(1, 2, 3); } };
int main() { Bench bench; bench.run(); }"""


def test_a_launch_that_nothing_mentions_is_not_that_of_the_file():
    old = "void old(int M, int N, int K) { gemm<<<N, 32>>>(A, B, C, M, N, K); }\n"
    older = "void older() { old(1, 2, 3); }\n"
    assert launch(KERNEL + old + older + USED_BY_16) == BY_16
    assert launch(KERNEL + old) == ("N", "32")


@pytest.mark.parametrize(
    "other",
    [
        "void old(int M, int N, int K) { gemm<<<N, 32>>>(A, B, C, M, N, K); } auto all = {old};",
        """struct Old { void operator()(int M, int N, int K) { gemm<<<N, 32>>>(A, B, C, M, N, K); } };
        Old old;""",
    ],
)
def test_a_launch_that_something_mentions_may_be_that_of_the_file(other):
    assert launch(f"{KERNEL}\n{other}\n{USED_BY_16}") == ("", "")


def test_a_function_is_unused_if_only_itself_and_unused_functions_mention_it():
    unit = read(
        """
        void inner() {}
        void outer() { inner(); }
        void again(int n) { if (n) again(n - 1); }
        void shared() {}
        void other() { shared(); }
        bool operator<(Size a, Size b) { return a.m < b.m; }
        int main() { shared(); }
        """
    )
    assert unused_functions(unit) == {"inner", "outer", "again", "other"}


BATCHED = """
__global__ void gemm(const float* A, int lda, long long strideA, const float* B, int ldb,
                     long long strideB, float* C, int ldc, long long strideC, int M, int N, int K,
                     int swizzle%s) {
  int row = blockIdx.y * 8 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
  if (row >= M || column >= N) return;
  const float* a = A + blockIdx.z * strideA;
  const float* b = B + blockIdx.z * strideB;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += a[row * lda + k] * b[k * ldb + column];
  C[blockIdx.z * strideC + row * ldc + column] = sum;
}
void run(const float* A, int lda, long long sA, const float* B, int ldb, long long sB, float* C,
         int ldc, long long sC, int m, int n, int k, int order, int batch) {
  dim3 grid((n + 31) / 32, (m + 7) / 8, batch);
  gemm<<<grid, dim3(32, 8)>>>(A, lda, sA, B, ldb, sB, C, ldc, sC, m, n, k, order%s);
}
"""
ORDER = "A,K,M * K,B,N,K * N,C,N,M * N,M,N,K,0"


@pytest.mark.parametrize(
    ("parameter", "argument", "value"), [("", "", ""), (", int batch", ", batch", ",batch")]
)
def test_a_launcher_may_pass_on_what_is_no_size(parameter, argument, value):
    source = BATCHED % (parameter, argument)
    launch = Kernel.from_source(source, args=ORDER + value).launch
    assert (launch.grid, launch.block) == ("(N + 31) / 32, (M + 7) / 8, batch", "32, 8")


def test_a_grid_of_what_is_no_size_is_not_read():
    source = (BATCHED % ("", "")).replace("dim3 grid(", "dim3 grid(order * ")
    with pytest.raises(BadSetting, match="needs a launch"):
        Kernel.from_source(source, args=ORDER).require_launch()


def test_a_size_that_only_the_grid_takes_is_the_one_that_the_kernel_lacks():
    found = Kernel.from_source(WITHOUT_M + SAMPLE)
    assert (found.entry, found.grid, found.block) == ("gemm<32>", "N / 32, M / 32", "32, 32")
    passed = WITHOUT_M + SAMPLE.replace("int tile = 32", "int tile = 16")
    assert Kernel.from_source(passed).entry == "gemm<16>"


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("void f(int n) { gemm<<<n, cells(n)>>>(A, B, C, n, 4, 5); }", '"cells" is undefined'),
        (
            "void f(int b, int M, int N, int K) { gemm<<<N / b, b>>>(A, B, C, M, N, K); }",
            "depends on int b, of f",
        ),
        (
            "void f(int M, int N, int K) { gemm<<<N, M>>>(A, B, C, M, N, K); }",
            "its block depends on the sizes",
        ),
        (
            "void f(int M, int N, int K) { gemm<<<N * N + M, 64>>>(A, B, C, M, N, K); }",
            "no expression of M, N and K",
        ),
        (
            """void f(int M, int N, int K) { cudaDeviceProp p; cudaGetDeviceProperties(&p, 0);
            gemm<<<p.multiProcessorCount, 64>>>(A, B, C, M, N, K); }""",
            '"cudaGetDeviceProperties" is undefined',
        ),
        (
            """void g(int b, int M, int N, int K) { gemm<<<N / b, b>>>(A, B, C, M, N, K); }
            int main() { g(32, 1, 2, 3); g(64, 1, 2, 3); }""",
            "launches differ: gemm with grid N / 32, block 32 or gemm with grid N / 64, block 64",
        ),
    ],
)
def test_a_launch_that_cannot_be_told_says_why(host, why):
    with pytest.raises(BadSetting, match=why):
        Kernel.from_source(KERNEL + host).require_launch()


def test_a_launch_at_some_sizes_only_is_that_of_all_where_the_sizes_are_no_rule():
    host = """void f(int M, int N, int K) { if (M > 4096) return;
      gemm<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(A, B, C, M, N, K); }"""
    found = Kernel.from_source(KERNEL + host)
    assert (found.grid, found.block) == BY_16 and found.rules == "any"


def test_an_instance_is_found_by_the_functions_that_lead_to_it():
    host = """template <int S> void run(int M, int N, int K) {
      gemm<S><<<dim3(N / S, M / S), dim3(S, S)>>>(A, B, C, M, N, K); }
    void compare(void (*f)(int, int, int)) { f(1, 2, 3); }
    """
    called = Kernel.from_source(TILED + host + "int main() { run<8>(1, 2, 3); }")
    assert (called.entry, called.block) == ("gemm<8>", "8, 8")
    passed = Kernel.from_source(TILED + host + "int main() { compare(run<4>); }")
    assert (passed.entry, passed.block) == ("gemm<4>", "4, 4")
    given = Kernel.from_source(TILED + host + "template void run<32>(int, int, int);")
    assert (given.entry, given.block) == ("gemm<32>", "32, 32")


@given(
    st.sampled_from([(0, 1), (0, 2)]),
    st.tuples(*2 * [st.tuples(st.integers(0, 63), st.integers(32, 64))]),
    st.integers(1, 4),
)
def test_the_grid_of_any_division_is_found(places, divisions, factor):
    sizes = sizes_to_try(3)
    names = ("x", "y", "z")
    counts = np.full(len(sizes), factor)
    for place, (added, tile) in zip(places, divisions, strict=True):
        counts = counts * ((sizes[:, place] + added) // tile)
    text = fitted(sizes, counts, names)
    rows = dict(zip(names, sizes.T, strict=True))
    assert np.array_equal(eval(text.replace("/", "//"), {}, rows), counts)


def test_a_grid_with_a_least_or_a_largest_size_is_found():
    sizes = sizes_to_try(1)
    x = sizes[:, 0]
    assert fitted(sizes, np.minimum((x + 31) // 32, 132), ["N"]) == "min((N + 31) / 32, 132)"
    assert fitted(sizes, np.maximum(x // 64, 1), ["N"]) == "max(N / 64, 1)"
    for counts in (x * x, x % 7 + 1, np.where(x > BASE, 3, 2)):
        with pytest.raises(BadSetting, match="no expression"):
            fitted(sizes, counts, ["N"])


def test_rules_of_sizes_are_those_that_hold_at_all_of_them():
    sizes = sizes_to_try(2)
    names = ["M", "N"]
    assert guards(sizes, np.ones(len(sizes), bool), names) == []
    is_launched = (sizes[:, 0] % 64 == 0) & (sizes[:, 1] % 8 == 0)
    assert guards(sizes, is_launched, names) == ["M % 64 == 0", "N % 8 == 0"]
    for other in (sizes[:, 0] > 100, sizes[:, 0] % 64 == 3):
        with pytest.raises(BadSetting, match="at some sizes only"):
            guards(sizes, other, names)


LAUNCH = "gemm<<<dim3((N + t - 1) / t, (M + t - 1) / t), dim3(t, t)>>>(A, B, C, M, N, K);"
HEAD = "void f(int M, int N, int K)"


@pytest.mark.parametrize(
    "host",
    [
        # a helper whose parameter is named like a size of the launch
        """int blocks(int N, int tile) { return (N + tile - 1) / tile; }
        void f(int M, int N, int K) { dim3 grid(blocks(N, 16), blocks(M, 16));
        gemm<<<grid, dim3(16, 16)>>>(A, B, C, M, N, K); }""",
        # a search that ends early, or goes on
        f"{HEAD} {{ int t = 32; while (t > 1) {{ if (t * t <= 256) break; t /= 2; }} {LAUNCH} }}",
        (
            f"{HEAD} {{ int t = 8; for (int x = 8; x < 64; x *= 2) {{ if (x > 16) continue; t = x; }} "
            f"{LAUNCH} }}"
        ),
        # a default that the only call doesn't use
        f"void f(int M, int N, int K, int t = 32) {{ {LAUNCH} }} int main() {{ f(8, 9, 10, 16); }}",
        # what a pointer or a reference of a function changes
        f"void half(int* x) {{ *x /= 2; }} {HEAD} {{ int t = 32; half(&t); {LAUNCH} }}",
        (
            f"void set(int x[2]) {{ x[1] = 16; }} {HEAD} {{ int s[2] = {{1, 1}}; set(s); int t = "
            f"s[1]; {LAUNCH} }}"
        ),
    ],
)
def test_host_code_is_run_as_it_is_written(host):
    assert launch(KERNEL + host) == BY_16


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        (f"{HEAD} {{ int t = 32; int& u = t; u = 16; {LAUNCH} }}", "u is another name of t"),
        (f"{HEAD} {{ int t = 32; int* p = &t; *p = 16; {LAUNCH} }}", "p is another name of t"),
        (
            f"{HEAD} {{ int t[1] = {{32}}; for (int& x : t) x = 16; {LAUNCH.replace('t', 't[0]')} }}",
            "x is another name of t",
        ),
        (
            "void f(int M, int N, int K) { dim3 g(N / 32, M / 32); N = (N + 31) / 32 * 32; "
            "gemm<<<g, 1024>>>(A, B, C, M, N, K); }",
            "N changes before the launch",
        ),
        (f"int t = 32; void set() {{ t = 16; }} {HEAD} {{ {LAUNCH} }}", "set changes t"),
        (f"{HEAD} {{ int t = 16; while (t > 4) {{ {LAUNCH} t /= 2; }} }}", "t changes after"),
        (
            f"{HEAD} {{ int t = 32; auto go = [&] {{ {LAUNCH} }}; t = 16; go(); }}",
            "t changes after a launch in a lambda",
        ),
        (
            f"{HEAD} {{ int t = 32; auto go = [&](int t) {{ {LAUNCH} }}; go(16); }}",
            "t is a parameter of a lambda",
        ),
        (f"{HEAD} {{ int t = 16, u = 32; std::swap(t, u); {LAUNCH} }}", "swap"),
        (f"{HEAD} {{ int t = 32; std::cin >> t; {LAUNCH} }}", "cin"),
        (
            (
                f"int main(int argc, char** argv) {{ int M = 1, N = 2, K = 3, t = atoi(argv[4]); "
                f"{LAUNCH} }}"
            ),
            "the host code fails",
        ),
        (
            f"{HEAD} {{ void* all[6]; all[0] = &A; dim3 g(N / 16, M / 16), b(16, 16); "
            "cudaLaunchKernel((void*)gemm, g, b, all, 0, 0); }",
            "whose addresses its arguments are",
        ),
        (
            f"{HEAD} {{ int t = 32;\n#ifdef __CUDA_ARCH__\nt = 16;\n#endif\n{LAUNCH} }}",
            "f has code that depends on __CUDA_ARCH__",
        ),
    ],
)
def test_what_a_slice_can_not_follow_is_not_read(host, reason):
    found = Kernel.from_source(KERNEL + host)
    assert (found.grid, found.block) == ("", "")
    assert reason in str(found.adapted)
