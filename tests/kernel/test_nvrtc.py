"""Compiling without a GPU: resources, and the messages of mistakes."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from worklog.errors import BadSetting, CompileFailed, UnknownEntry, WorklogError, install_command
from worklog.kernel import Kernel, nvrtc
from worklog.kernel.device import Program
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
__constant__ float factor;
constexpr int ONLY_DECLARED = 1;
extern "C" __global__ void keeps(float* out) {
  printf("%d\n", launches);
  out[0] = table[threadIdx.x & ONLY_DECLARED] * factor;
  atomicAdd(&launches, 1);
}
"""


def test_what_a_kernel_keeps_between_launches_is_named() -> None:
    assert compile_cuda(Program("keeps.cu", KEEPS, "keeps")).variables == ["launches", "table"]
    assert compile_cuda(rung("warptiled").program).variables == []


def test_resources_belong_to_the_entry() -> None:
    small = compile_cuda(Program("two.cu", TWO, "small<64>"))
    spilling = compile_cuda(Program("two.cu", TWO, "spilling"))
    assert (small.shared_bytes, small.spill_store_bytes, spilling.shared_bytes) == (256, 0, 0)
    assert spilling.registers <= 32 and spilling.stack_bytes > 0
    assert min(spilling.spill_store_bytes, spilling.spill_load_bytes) > 0
    assert small.symbol.startswith("_Z5smallILi64E") and spilling.symbol == "spilling"
    assert compile_cuda(Program("two.cu", TWO, "small<64>")) is small, "equal sources compile once"


def test_the_same_source_gives_the_same_ptx_in_every_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
SMALL = "__global__ void %s(float* x) { *x = 1.0f; }"


def test_an_endless_compile_ends_at_the_time_limit_and_the_next_one_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "LIMIT_S", 0.3)
    with pytest.raises(CompileFailed, match=r"bomb.cu: compiling bomb took more than 0.3 s: reduce its templates"):
        compile_cuda(Program("bomb.cu", BOMB, "bomb"))
    monkeypatch.undo()
    assert compile_cuda(Program("next.cu", SMALL % "next", "next")).registers > 0


def test_an_endless_compile_can_be_interrupted() -> None:
    running = threading.Event()

    def interrupt() -> None:
        running.wait()
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
    with pytest.raises(KeyboardInterrupt):
        running.set()
        compile_cuda(Program("bomb.cu", BOMB, "bomb"))
    signal.signal(signal.SIGINT, before)
    interrupter.join()
    assert compile_cuda(Program("again.cu", SMALL % "again", "again")).registers > 0


BROKEN = "template <int N>\n__global__ void broken(float* C) {\n  C[threadIdx.x] = undeclared + N;\n}\n"
# CuPy compiles a copy with another file name.
CUPYS = '/tmp/tmpx/c0ffee.cubin.cu(3): error: identifier "undeclared" is undefined\n1 error detected'


def test_a_mistake_is_shown_with_file_line_and_text() -> None:
    program = Program("broken.cu", BROKEN, "broken<1>")
    with pytest.raises(CompileFailed) as caught:
        compile_cuda(program)
    for error in (caught.value, compile_error(program, CUPYS)):
        first, second, *log = str(error).splitlines()
        assert first == 'broken.cu:3: identifier "undeclared" is undefined'
        assert second == "    C[threadIdx.x] = undeclared + N;"
        assert any("1 error detected" in line for line in log)
    without_a_line = str(compile_error(program, "nvrtc: error: invalid value\n"))
    assert without_a_line.startswith("broken.cu: broken<1>") and "nvrtc: error: invalid value" in without_a_line


@pytest.mark.parametrize(("name", "entry"), [("shared", "<32, 32, 16>"), ("tiles_2d", "<128, 128, 8, 8, 7>")])
def test_a_tile_that_the_source_cannot_take_fails_a_static_assertion(name: str, entry: str) -> None:
    record = rung(name)
    with pytest.raises(CompileFailed, match=rf"^{record.file}:\d+: static assertion failed"):
        compile_cuda(Program(record.file, record.source, record.function + entry))


BOUNDS = """// __global__ void no() {}
__global__ void __launch_bounds__(32 * (4 + 1)) a(int*) {} static __global__ void b() {}"""


@pytest.mark.parametrize(
    ("source", "entry", "arch", "options", "error", "message"),
    [
        (TWO, "medium", "sm_90", (), UnknownEntry, "there is no kernel medium; its kernels are small, spilling"),
        (TWO, "small<1, 2>", "sm_90", (), UnknownEntry, "there is no kernel small<1, 2>"),
        (BOUNDS, "c", "sm_90", (), UnknownEntry, "its kernels are a, b"),
        ("__device__ void f(int* p) { *p = 1; }", "f", "sm_90", (), UnknownEntry, "it has no __global__ function"),
        (TWO, "spilling", "sm_35", (), BadSetting, "sm_90"),
        (TWO, "spilling", "sm_90", ("--frobnicate",), CompileFailed, "--frobnicate"),
    ],
)
def test_mistakes(
    source: str, entry: str, arch: str, options: tuple[str, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        compile_cuda(Program("two.cu", source, entry, options), arch)


@pytest.mark.parametrize(("name", "needs"), [("specialized", "setmaxnreg"), ("barriers", "mbarrier.* sm_90 or higher")])
def test_what_an_architecture_lacks_is_named_with_what_runs_on_all(name: str, needs: str) -> None:
    with pytest.raises(CompileFailed) as failed:
        compile_cuda(rung(name).program, "sm_80")
    assert re.search(rf"^{rung(name).file}: .* for this architecture: .*{needs}", str(failed.value))
    assert str(failed.value).splitlines()[0].endswith("; the rung best runs on all")


def test_without_nvrtc_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    nvrtc.nvidia_library.cache_clear()
    with pytest.raises(WorklogError, match=re.escape(install_command())):
        compile_cuda(Program("x.cu", "__global__ void unique_to_this_test() {}", "unique_to_this_test"))


@pytest.mark.parametrize(
    ("header", "advice"),
    [("mine.cuh", "give its folder with -I"), ("mma.h", "in the wheels nvidia-cuda-runtime, nvidia-cuda-crt")],
)
def test_a_missing_header_is_named_with_what_to_do(header: str, advice: str) -> None:
    log = f'mine.cu(2): catastrophic error: cannot open source file "{header}"'
    error = compile_error(Program("mine.cu", f"\n#include <{header}>", "k"), log)
    assert str(error).startswith("mine.cu:2: ") and header in str(error) and advice in str(error).splitlines()[0]


@pytest.mark.skipif(not of_nvidia(Program("", "#include <mma.h>", "")), reason="NVIDIA's headers are not installed")
def test_kernels_with_nvidia_headers_and_types_of_the_host_compile() -> None:
    includes = "#include <cuda_fp16.h>\n#include <cooperative_groups.h>\n#include <stdint.h>\n#include <stdio.h>\n"
    body = "uint32_t i = cooperative_groups::this_grid().thread_rank(); C[i] = __half2float(__float2half(A[i] + B[i]));"
    source = f"{includes}__global__ void k(const float* A, const float* B, float* C, int N) {{ {body} }}"
    assert "cvt.rn.f16.f32" in compile_cuda(Kernel.from_source(source, grid="N", block=1).program).ptx


def test_a_header_beside_the_file_may_hold_host_code_and_counts_as_part_of_the_program(tmp_path: Path) -> None:
    header, source = tmp_path / "cuda_own.h", tmp_path / "mine.cu"
    header.write_text(
        "#include <vector>\nstatic int calls = 0;\ninline int twice(int n) { return 2 * n; }\n#define TWO 2\n"
    )
    source.write_text(
        '#include "cuda_own.h"\nextern "C" __global__ void k(float* a) { a[0] = fmaxf(a[0], INFINITY) * TWO; }'
    )
    kernel = Kernel.from_file(source)
    assert [name for name, _ in kernel.headers] == ["cuda_own.h"] and compile_cuda(kernel.program).ptx
    header.write_text("#define TWO 3\n#define THREE\n__device__ int f() { return wrong; }\n")
    edited = Kernel.from_file(source)
    assert edited.program.sha256 != kernel.program.sha256
    with pytest.raises(CompileFailed, match=r'^cuda_own.h:3: identifier "wrong" is undefined'):
        compile_cuda(edited.program)
