"""Compiling without a GPU: resources, and what a user is told when it fails."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from worklog.errors import WorklogError
from worklog.kernel.ladder import LADDER, rung
from worklog.kernel.nvrtc import (
    ARCHITECTURES,
    CompileFailed,
    UnknownArchitecture,
    UnknownEntry,
    compile_cuda,
    kernel_names,
    nvrtc_version,
)

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


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture_gives_ptx_cubin_and_resources(arch: str) -> None:
    out = compile_cuda(rung("tiles_2d").source, rung("tiles_2d").entry, name="05_tiles_2d.cu", arch=arch)
    assert f".target {arch}" in out.ptx
    assert out.cubin[:4] == b"\x7fELF"
    assert 64 < out.registers <= 255
    assert out.shared_bytes == 2 * 128 * 8 * 4
    assert (out.stack_bytes, out.spill_store_bytes, out.spill_load_bytes) == (0, 0, 0)
    assert out.symbol in out.ptx
    assert ".loc" in out.ptx


def test_the_last_rung_uses_every_register_and_spills_none() -> None:
    last = LADDER[-1]
    out = compile_cuda(last.source, last.entry, name=last.file)
    assert out.registers == 255
    assert out.spill_store_bytes == 0


def test_resources_are_those_of_the_kernel_that_was_asked_for() -> None:
    small = compile_cuda(TWO, "small<64>", name="two.cu")
    spilling = compile_cuda(TWO, "spilling", name="two.cu")
    assert small.shared_bytes == 256
    assert small.spill_store_bytes == 0
    assert spilling.registers <= 32
    assert spilling.shared_bytes == 0
    assert spilling.stack_bytes > 0
    assert min(spilling.spill_store_bytes, spilling.spill_load_bytes) > 0
    assert small.symbol.startswith("_Z5smallILi64E")
    assert spilling.symbol == "spilling"
    with pytest.raises(FrozenInstanceError):
        small.registers = 1  # type: ignore[misc]


def test_the_same_source_gives_the_same_ptx_in_every_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = 'extern "C" __global__ void here(float* x) { *x = 1.0f; }'
    first = compile_cuda(source, "here", name="same.cu")
    monkeypatch.chdir(tmp_path)
    compile_cuda.cache_clear()
    assert compile_cuda(source, "here", name="same.cu").ptx == first.ptx and '"same.cu"' in first.ptx


def test_equal_sources_compile_once() -> None:
    assert compile_cuda(TWO, "small<32>", name="two.cu") is compile_cuda(TWO, "small<32>", name="two.cu")


def test_a_mistake_is_shown_with_file_line_and_text() -> None:
    source = "__global__ void k(float* out) {\n  out[0] = 1.0f;\n  out[1] = missing + 1;\n}\n"
    with pytest.raises(CompileFailed) as caught:
        compile_cuda(source, "k", name="mine.cu")
    first, second, *log = str(caught.value).splitlines()
    assert first == 'mine.cu:3: identifier "missing" is undefined'
    assert second == "    out[1] = missing + 1;"
    assert any("1 error detected" in line for line in log)


def test_a_static_assertion_is_shown_where_it_stands() -> None:
    source = rung("shared").source
    line = source[: source.index("static_assert")].count("\n") + 1
    with pytest.raises(CompileFailed, match=rf'^03_shared\.cu:{line}: static assertion failed with "each thread'):
        compile_cuda(source, "sgemm_shared<32, 32, 16>", name="03_shared.cu")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("medium", "there is no kernel medium; its kernels are small, spilling"),
        ("small", "a template needs its arguments, as in name<32, 32>"),
        ("small<1, 2>", "there is no kernel small<1, 2>"),
    ],
)
def test_an_entry_that_does_not_exist(entry: str, message: str) -> None:
    with pytest.raises(UnknownEntry, match=message):
        compile_cuda(TWO, entry, name="two.cu")


def test_a_device_function_is_no_entry() -> None:
    with pytest.raises(UnknownEntry, match="it has no __global__ function"):
        compile_cuda("__device__ void f(int* p) { *p = 1; }", "f")


def test_an_architecture_that_does_not_exist() -> None:
    with pytest.raises(UnknownArchitecture, match="sm_90"):
        compile_cuda(TWO, "spilling", arch="sm_35")


def test_an_option_that_nvrtc_does_not_know() -> None:
    with pytest.raises(CompileFailed, match="--frobnicate"):
        compile_cuda(TWO, "spilling", options=("--frobnicate",))


def test_names_of_kernels_survive_launch_bounds_and_comments() -> None:
    assert kernel_names("// __global__ void no() {}\n" + TWO) == ["small", "spilling"]
    assert kernel_names("__global__ void __launch_bounds__(32 * (4 + 1)) a(int*); static __global__ void b() {}") == [
        "a",
        "b",
    ]


def test_the_version_is_known() -> None:
    assert nvrtc_version() >= (13, 0)


def test_importing_loads_no_bindings() -> None:
    code = (
        "import sys, worklog.kernel.nvrtc, worklog.emulator; sys.exit(any(n.startswith('cuda') for n in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_nvrtc_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(WorklogError, match="pip install nvidia-cuda-nvrtc cuda-bindings"):
        compile_cuda("__global__ void unique_to_this_test() {}", "unique_to_this_test")
