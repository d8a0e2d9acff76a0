"""A mistake in CUDA source is shown with its file, line and text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from worklog.errors import CompileFailed
from worklog.kernel.ladder import rung
from worklog.kernel.nvrtc import compile_cuda, compile_error

BROKEN = """\
template <int N>
__global__ void broken(float* C) {
  C[threadIdx.x] = undeclared + N;
}
"""


def test_a_compile_error_shows_file_line_and_source() -> None:
    with pytest.raises(CompileFailed) as caught:
        compile_cuda(BROKEN, "broken<1>", name="broken.cu")
    first, second, *_ = str(caught.value).splitlines()
    assert first.startswith("broken.cu:3: ") and "undeclared" in first
    assert second.strip() == "C[threadIdx.x] = undeclared + N;"


def test_a_gpus_compile_error_shows_them_too() -> None:
    """CuPy compiles a copy under a name of its own, so the log's file is not the reader's."""
    log = '/tmp/tmpx/c0ffee.cubin.cu(3): error: identifier "undeclared" is undefined\n1 error detected'
    first, second, *rest = str(compile_error("broken.cu", BROKEN, "broken<1>", log)).splitlines()
    assert first == 'broken.cu:3: identifier "undeclared" is undefined'
    assert second == "    C[threadIdx.x] = undeclared + N;"
    assert "1 error detected" in rest


def test_a_log_without_a_line_is_shown_whole() -> None:
    message = str(compile_error("broken.cu", BROKEN, "broken<1>", "nvrtc: error: invalid value\n"))
    assert message.startswith("broken.cu: broken<1> does not compile") and "nvrtc: error: invalid value" in message


def test_a_tile_that_the_source_cannot_take_does_not_compile() -> None:
    program = replace(rung("tiles_2d"), template=dict(BM=128, BN=128, BK=8, TM=8, TN=7)).program
    with pytest.raises(CompileFailed, match=r"05_tiles_2d\.cu:\d+: static assertion failed"):
        compile_cuda(program.source, program.entry, name=program.name)
