"""What the process itself does: it tells what is finished, holds the GPU, and names a full memory."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from worklog.bench import job, worker
from worklog.errors import GpuBusy, WorklogError
from worklog.gpu import device
from worklog.gpu.device import visible_to_a_child

ITSELF = worker.COMMAND


def answers(act: Callable[[job.Answers], object]) -> list[dict[str, Any]]:
    """What is said on a pipe."""
    ours, theirs = os.pipe()
    say = job.Answers({"answers": theirs})
    act(say)
    say._pipe.close()
    with os.fdopen(ours) as pipe:
        return [json.loads(line) for line in pipe]


def test_each_measurement_is_told_once_and_as_soon_as_it_is_finished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scratch = tmp_path / "run.json"
    monkeypatch.setattr(job, "blank", lambda harness: {"harness": harness})
    monkeypatch.setattr(job, "require_context", lambda: None)

    def work(say: job.Answers) -> None:
        told = job.Told({"scratch": str(scratch), "harness": {}}, say)
        for done in range(3):
            scratch.write_text(json.dumps({"measurements": list(range(done))}))
            told(done, 2, "x")

    said = answers(work)
    assert [one["is"] for one in said] == ["ready", "progress", "measured", "progress", "measured", "progress"]
    assert [one["run"]["measurements"] for one in said if one["is"] == "measured"] == [[0], [1]]


def test_a_folder_that_is_called_like_a_module_is_not_taken_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The child finds what this process finds, not what lies in the current folder."""
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(worker, "COMMAND", ITSELF)
    with pytest.raises(WorklogError, match="there is no rung 'nonsense'"):
        worker.measure(["nonsense"], [256])


def test_two_measurements_at_once_on_a_gpu_are_refused_with_the_ones_id(tmp_path: Path) -> None:
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
    assert worker.environment()["CUDA_VISIBLE_DEVICES"] == now


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
def test_full_memory_is_told_by_whose_it_is(error: Exception, whose: str) -> None:
    assert whose in str(job.memory_is_full(error))
    assert job.memory_is_full(ValueError("out of luck")) is None
