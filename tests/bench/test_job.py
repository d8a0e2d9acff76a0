"""What the child process itself does: it locks the GPU, sees one GPU, and names a full memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from worklog.bench import job
from worklog.bench.check import check_in_child
from worklog.errors import BadSetting, GpuBusy, WorklogError
from worklog.gpu import device
from worklog.gpu.device import visible_to_a_child
from worklog.kernel import Kernel

ITSELF = (sys.executable, "-P", "-m", "worklog.bench.job")


def test_a_file_in_the_current_folder_is_not_taken_for_a_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadSetting, match="the emulator cannot run"):
        check_in_child(Kernel.from_function("os:getpid"), on="emulated", command=ITSELF)


def test_only_one_run_at_a_time_measures_on_a_gpu(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with (
        job.locked(lock),
        pytest.raises(GpuBusy, match=f"process {os.getpid()} is measuring on this GPU"),
        job.locked(lock),
    ):
        raise AssertionError("both measure")
    with job.locked(lock):
        assert lock.read_text() == str(os.getpid())
    lock.unlink()
    lock.symlink_to(tmp_path / "precious")
    with pytest.raises(WorklogError, match="cannot open"), job.locked(lock):
        raise AssertionError("it followed a link")


@pytest.mark.parametrize(
    ("before", "now"), [(None, "0"), ("3,5", "3"), ("GPU-8932f937, GPU-1", "GPU-8932f937"), ("", ""), ("-1", "-1")]
)
def test_it_sees_one_gpu(monkeypatch: pytest.MonkeyPatch, before: str | None, now: str) -> None:
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if before is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    assert visible_to_a_child() == now


@pytest.mark.parametrize(("named", "visible"), [(None, "1"), ("4,7", "7")])
def test_it_sees_the_gpu_that_is_current_here(monkeypatch: pytest.MonkeyPatch, named: str | None, visible: str) -> None:
    chosen = SimpleNamespace(getDevice=lambda: 1)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=chosen)))  # type: ignore[misc]
    monkeypatch.setattr(device, "gpu_reason", lambda: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert visible_to_a_child() == visible


class OutOfMemoryError(MemoryError):
    """As CuPy's and PyTorch's are called."""


@pytest.mark.parametrize(
    ("error", "whose"),
    [
        (RuntimeError("cudaErrorMemoryAllocation: out of memory"), "the GPU's memory is full"),
        (OutOfMemoryError("Out of memory allocating 512 bytes"), "the GPU's memory is full"),
        (MemoryError(), "the host's memory is full"),
    ],
)
def test_full_memory_is_named(error: Exception, whose: str) -> None:
    assert whose in str(job.memory_is_full(error))
    assert job.memory_is_full(ValueError("out of luck")) is None
