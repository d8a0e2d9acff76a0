"""Compiling without a GPU.

Resources, the messages of mistakes, and what is compiled only once on a machine.
"""

import os
import re
import signal
import sys
import threading
import time
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from worklog.errors import CompileFailed, WorklogError, install_command
from worklog.kernel import Compiled, Kernel, disk_cache, nvrtc
from worklog.kernel.device import Program
from worklog.kernel.disk_cache import SUFFIX, cached
from worklog.kernel.ladder import rung
from worklog.kernel.nvrtc import compile_cuda, compile_error, of_nvidia

TWO = """
template <int N> __global__ void small(float* out) {
  __shared__ float s[N];
  s[threadIdx.x] = out[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = s[0];
}
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float* out) {
  float a[96];
  for (int i = 0; i < 96; ++i) a[i] = out[i * 7 + threadIdx.x];
  for (int r = 0; r < 9; ++r)
    for (int i = 0; i < 96; ++i) a[i] = a[i] * a[(i * 5 + 1) % 96] + out[r * 96 + i];
  for (int i = 0; i < 96; ++i) out[i] += a[i];
}
"""
KEEPS = r"""
__device__ int launches;
__device__ float table[2] = {1, 2};
__device__ float only_read;
__constant__ float factor;
constexpr int ONLY_DECLARED = 1;
extern "C" __global__ void keeps(float* out) {
  printf("%d\n", launches);
  out[0] = table[threadIdx.x & ONLY_DECLARED] * factor * only_read;
  atomicAdd(&launches, 1);
}
"""
IN_A_PROCESS = nvrtc.in_a_process


@pytest.fixture(autouse=True)
def processes(monkeypatch):
    """As for users: each compilation in a process."""
    monkeypatch.setattr(nvrtc, "in_a_process", IN_A_PROCESS)


def test_resources_belong_to_the_entry_and_what_it_keeps_between_launches_is_named():
    small = compile_cuda(Program("two.cu", TWO, "small<64>"))
    spilling = compile_cuda(Program("two.cu", TWO, "spilling"))
    assert (small.shared_bytes, small.spill_store_bytes, spilling.shared_bytes) == (256, 0, 0)
    assert spilling.registers <= 32 and spilling.stack_bytes > 0
    assert min(spilling.spill_store_bytes, spilling.spill_load_bytes) > 0
    assert small.symbol.startswith("_Z5smallILi64E") and spilling.symbol == "spilling"
    kept = compile_cuda(Program("keeps.cu", KEEPS, "keeps")).variables
    assert small.variables == [] and kept == ["launches", "table"]


def test_the_same_source_gives_the_same_ptx_in_every_folder(monkeypatch, tmp_path):
    program = Program("same.cu", 'extern "C" __global__ void here(float* x) { *x = 1.0f; }', "here")
    first = compile_cuda(program)
    monkeypatch.chdir(tmp_path)
    compile_cuda.cache_clear()
    assert compile_cuda(program).ptx == first.ptx and '"same.cu"' in first.ptx


BOMB = """
template <int N, int M> struct F { static const long v = F<N - 1, 2 * M>::v + F<N - 1, 2 * M + 1>::v; };
template <int M> struct F<0, M> { static const long v = M; };
__global__ void bomb(float* x) { *x = F<28, 1>::v; }
"""


def test_an_endless_compile_ends_at_the_time_limit_or_by_an_interrupt(monkeypatch, tmp_path):
    bomb = Program("bomb.cu", BOMB, "bomb")
    with (
        monkeypatch.context() as patch,
        pytest.raises(CompileFailed, match=r"bomb took more than 0\.3 s: reduce"),
    ):
        patch.setattr(nvrtc, "LIMIT_S", 0.3)
        compile_cuda(bomb)

    def interrupt() -> None:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a background job of a shell ignores it
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        compile_cuda(bomb)
    signal.signal(signal.SIGINT, before)
    interrupter.join()
    (tmp_path / "crash.py").write_text("raise SystemExit(3)")
    monkeypatch.setattr(nvrtc, "PROCESS", tmp_path / "crash.py")
    with pytest.raises(CompileFailed, match=r"bomb\.cu: compiling bomb ended the compiler"):
        compile_cuda(bomb)


BROKEN = (
    "template <int N>\n__global__ void broken(float* C) {\n  C[threadIdx.x] = undeclared + N;\n}\n"
)
BOUNDS = """// __global__ void no() {}
__global__ void __launch_bounds__(32 * (4 + 1)) a(int*) {} static __global__ void b() {}"""
NO_KERNEL = "__device__ void f(int* p) { *p = 1; }"
SHARED, SPECIALIZED, BARRIERS = (
    rung(name).program for name in ("shared", "specialized", "barriers")
)


def test_a_mistake_is_shown_with_file_line_and_text():
    program = Program("broken.cu", BROKEN, "broken<1>")
    with pytest.raises(CompileFailed) as caught:
        compile_cuda(program)
    said, _, log = str(caught.value).partition("+ N;")
    assert (
        said
        == 'broken.cu:3: identifier "undeclared" is undefined\n    C[threadIdx.x] = undeclared '
    )
    assert "undeclared" not in log


def test_errors_are_shown_without_the_compilers_warnings():
    unused = "__device__ void f() {\n  int unused = 1;\n}\n"
    with pytest.raises(CompileFailed) as caught:
        compile_cuda(
            Program(
                "broken.cu",
                f"{unused}{BROKEN}__device__ int g() {{ return other; }}\n",
                "broken<1>",
            )
        )
    said = str(caught.value)
    assert all(f'identifier "{name}" is undefined' in said for name in ("undeclared", "other"))
    assert not {"warning", "unused", "Remark"} & {*re.findall(r"\w+", said)}


@pytest.mark.parametrize(
    ("program", "arch", "first_line"),
    [
        (
            Program("two.cu", TWO, "small<1, 2>"),
            "sm_90",
            r"two\.cu: there is no kernel small<1, 2>",
        ),
        (
            Program("two.cu", TWO, "small"),
            "sm_90",
            r".* a template needs its arguments, as in name<32, 32>",
        ),
        (Program("k.cu", BOUNDS, "c"), "sm_90", r"k\.cu: there is no kernel c"),
        (Program("k.cu", NO_KERNEL, "f"), "sm_90", r"k\.cu: there is no kernel f"),
        (
            Program("two.cu", TWO, "spilling"),
            "sm_35",
            r"two\.cu: spilling does not compile; the compiler printed:",
        ),
        (
            replace(SHARED, entry="sgemm_shared<32, 32, 16>"),
            "sm_90",
            r"03_shared\.cu:\d+: static assertion failed.*",
        ),
        (
            SPECIALIZED,
            "sm_80",
            r"16_spec.*\.cu: .* for this architecture: .*setmaxnreg.* the rung best runs on all",
        ),
        (
            BARRIERS,
            "sm_80",
            r"15_barriers\.cu: .* for this arch.*: .*mbarrier.* sm_90 or higher.* best runs on all",
        ),
    ],
)
def test_what_a_program_or_an_architecture_lacks_is_named(program, arch, first_line):
    with pytest.raises(CompileFailed) as failed:
        compile_cuda(program, arch)
    assert re.fullmatch(first_line, str(failed.value).splitlines()[0])


@pytest.mark.parametrize(
    ("header", "advice"),
    [
        ("mine.cuh", "give its folder with -I"),
        ("cute/tensor.hpp", "give its folder with -I"),
        ("mma.h", "in the wheels nvidia-cuda-runtime, nvidia-cuda-crt"),
    ],
)
def test_a_missing_header_is_named_with_what_to_do(header, advice):
    log = f'mine.cu(2): catastrophic error: cannot open source file "{header}"'
    error = compile_error(Program("mine.cu", f"\n#include <{header}>", "k"), log)
    assert (
        str(error).startswith("mine.cu:2: ")
        and header in str(error)
        and advice in str(error).splitlines()[0]
    )


def test_without_nvrtc_the_way_out_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    monkeypatch.setattr(nvrtc, "_driver_major", lambda: None)
    nvrtc.nvidia_library.cache_clear()
    with pytest.raises(WorklogError, match=re.escape(install_command())):
        compile_cuda(
            Program("x.cu", "__global__ void unique_to_this_test() {}", "unique_to_this_test")
        )


def test_nvrtc_is_the_drivers_or_the_message_names_its_wheel(monkeypatch, tmp_path):
    wheel = tmp_path / "cuda_nvrtc" / "lib" / "libnvrtc.so.12"
    wheel.parent.mkdir(parents=True)
    newest = Path(nvrtc._nvrtc()._name)
    monkeypatch.setattr(nvrtc, "_driver_major", lambda: 12)
    monkeypatch.setattr(
        nvrtc, "find_spec", lambda _: SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    )
    assert Path(nvrtc._nvrtc()._name) == newest, "the emulator needs no driver"
    assert "pip install nvidia-cuda-nvrtc-cu12" in str(nvrtc.newer_than_the_driver())
    wheel.symlink_to(newest)
    assert nvrtc._nvrtc()._name == str(wheel)
    for driver in (None, 13, 14):
        monkeypatch.setattr(nvrtc, "_driver_major", lambda driver=driver: driver)
        assert nvrtc.newer_than_the_driver() is None


GRID = (
    "#include <cuda_fp16.h>\n#include <cooperative_groups.h>\n#include <stdint.h>\n#include "
    "<stdio.h>\n"
)
HALVES = (
    "uint32_t i = cooperative_groups::this_grid().thread_rank(); C[i] = "
    "__half2float(__float2half(A[i] + B[i]));"
)
STANDARD = "#include <cmath>\n#include <array>\n"
CUB = (
    "typedef cub::BlockReduce<float, 32> R; __shared__ R::TempStorage s; C[0] = "
    "R(s).Sum(A[threadIdx.x]);"
)


@pytest.mark.skipif(
    not of_nvidia(Program("", "#include <mma.h>", "")), reason="NVIDIA's headers are not installed"
)
@pytest.mark.parametrize(
    ("preface", "body", "ptx"),
    [
        (GRID, HALVES, "cvt.rn.f16.f32"),
        ("#include <cub/cub.cuh>\n", CUB, "shfl.sync.down"),
        ("", "C[0] = std::max(A[0], 1.0f);", "setp.lt.f32"),
        (
            "typedef unsigned long uint64_t;\n#define FLT_MAX 2.0f\n",
            "uint64_t i = N; C[i] = FLT_MAX;",
            "1073741824",
        ),
        ("", "*(__int128_t*)C = *(const __int128_t*)A;", "ld.global.v2.u64"),
        ("#include <cstdint>\n", "C[0] = uintptr_t(A) % 16 + UINT32_MAX;", "cvt.rn.f32"),
        (STANDARD, "std::array<float, 2> v{A[0]}; C[0] = std::ceil(v[0]);", "cvt.rpi.f32"),
        ("struct Host { std::vector<int> kept; } of_the_host;\n", "C[0] = INT_MAX;", "1325400064"),
    ],
)
def test_kernels_with_nvidia_headers_and_types_of_the_host_compile(preface, body, ptx):
    source = (
        f"{preface}__global__ void k(const float* A, const float* B, float* C, int N) {{ {body} }}"
    )
    assert ptx in compile_cuda(Kernel.from_source(source, grid="N", block=1).program).ptx


def test_a_header_beside_the_file_may_hold_host_code_and_counts_as_part_of_the_program(tmp_path):
    header = tmp_path / "cuda_own.h"
    source = tmp_path / "mine.cu"
    host = "#include <vector>\nstatic int calls = 0;\ninline int twice(int n) { return 2 * n; }\n"
    header.write_text(f"{host}#define TWO 2\n")
    body = "a[0] = fmaxf(a[0], INFINITY) * TWO;"
    source.write_text(f'#include "cuda_own.h"\nextern "C" __global__ void k(float* a) {{ {body} }}')
    kernel = Kernel.from_file(source)
    assert "cuda_own.h" in dict(kernel.program.headers) and compile_cuda(kernel.program).ptx
    header.write_text("#define TWO f()\n#define THREE\n__device__ int f() { return wrong; }\n")
    edited = Kernel.from_file(source)
    assert edited.program.sha256 != kernel.program.sha256
    with pytest.raises(CompileFailed, match=r'^cuda_own.h:3: identifier "wrong" is undefined'):
        compile_cuda(edited.program)


SOURCE = "__global__ void mine(float* x) { *x = TWO; }"
PROGRAM = Program("mine.cu", SOURCE, "mine", ("-DTWO=2",))


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """Return the folder of the cache, which is empty."""
    monkeypatch.setenv("WORKLOG_CACHE", str(tmp_path / "cache"))
    return disk_cache.cache_folder()


def entries(cache: Path) -> list[Path]:
    return sorted(cache.glob(f"*{SUFFIX}"))


def another_process(program: Program, arch: str = "sm_90") -> Compiled:
    compile_cuda.cache_clear()
    nvrtc._build.cache_clear()
    return compile_cuda(program, arch)


def test_a_second_process_compiles_only_what_is_another_program(cache, monkeypatch):
    first = another_process(PROGRAM)
    [path] = entries(cache)
    path.write_bytes(
        zlib.compress(zlib.decompress(path.read_bytes()).replace(b"ptxas info", b"from a file"))
    )
    assert "from a file" in another_process(PROGRAM).log and "from a file" not in first.log
    others = [
        replace(PROGRAM, source=SOURCE + "\n"),
        replace(PROGRAM, name="other.cu"),
        replace(PROGRAM, options=("-DTWO=3",)),
        replace(PROGRAM, entry="again", source=SOURCE + SOURCE.replace("mine", "again")),
    ]
    assert len({another_process(other).ptx for other in others}) == 4 and len(entries(cache)) == 5
    another_process(PROGRAM, "sm_80")
    assert len(entries(cache)) == 6
    for damage in (b"", b"noise", path.read_bytes()[:-9]):
        path.write_bytes(damage)
        assert another_process(PROGRAM).cubin == first.cubin and path.read_bytes() != damage, (
            "it is made again"
        )
    monkeypatch.setenv("WORKLOG_CACHE", str(path))  # a file, where nothing can be written
    assert another_process(PROGRAM).ptx == first.ptx


def test_a_program_that_reads_a_file_and_one_with_a_mistake_are_compiled_each_time(cache, tmp_path):
    header = tmp_path / "two.h"
    outside = Program("mine.cu", f'#include "two.h"\n{SOURCE}', "mine", (f"-I{tmp_path}",))
    found = []
    for value in "23":
        header.write_text(f"#define TWO {value}\n")
        found.append(another_process(outside).ptx)
        with pytest.raises(CompileFailed):
            another_process(replace(PROGRAM, options=()))
    assert entries(cache) == [] and found[0] != found[1]
    within = replace(outside, options=(), headers=(("two.h", "#define TWO 2\n"),))
    assert another_process(within) == another_process(within) and len(entries(cache)) == 1
    of_a_user = Kernel.from_source(
        "__global__ void k(float* a) { a[0] = INFINITY; } int main() {}"
    ).program
    another_process(of_a_user)
    assert "-default-device" in of_a_user.options and of_a_user.headers and len(entries(cache)) == 2


def test_a_new_tool_begins_anew_and_the_oldest_entries_are_removed(cache, monkeypatch, tmp_path):
    monkeypatch.setattr(disk_cache, "ENTRIES", 2)
    tool = tmp_path / "tool"
    made = list[bytes]()

    def make() -> bytes:
        made.append(b"")
        return b"made"

    def count(*words: bytes) -> int:
        for given in words:
            assert cached(tool, given, make) == b"made"
        return len(made)

    tool.write_text("version 1")
    assert count(b"ab", b"ab", b"a") == 2
    tool.write_text("version 2.0")
    assert count(b"ab") == 3
    for second, path in enumerate(entries(cache)):
        os.utime(path, (second, second))
    assert count(b"d", b"e") == 5 and len(entries(cache)) == 2
    assert count(b"e") == 5, "the newest ones stay"
