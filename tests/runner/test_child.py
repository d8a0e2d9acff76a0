"""A child process: it answers on a pipe of its own, is ended while it works, and never outlives its parent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lab.waiting import WAIT_S, gone, until
from worklog.errors import BadSetting, NoGpu, WorklogError, memory_is_full
from worklog.gpu import device
from worklog.kernel import Kernel
from worklog.runner import session
from worklog.runner.check import check_in_child
from worklog.runner.child import Child, environment
from worklog.runner.job import silent

HEAD = """
import os, pickle, signal, subprocess, sys, time
from multiprocessing.connection import Connection
order = pickle.load(sys.stdin.buffer)
pipe = Connection(order["answers"], readable=False)
def say(**words): pipe.send({"is": "said", **words})
"""


def child(source: str, timeout_s: float = WAIT_S, **order: Any) -> Child:
    return Child(order, timeout_s, (sys.executable, "-u", "-c", HEAD + source))


def heard(of: Child) -> list[dict[str, Any]]:
    """All answers of a process until its end."""
    said: list[dict[str, Any]] = []
    with of:
        of.run(said.append, silent)
    return said


def test_it_gets_its_order_answers_and_ends(capfd: pytest.CaptureFixture[str]) -> None:
    words = "x" * 1_000_000
    printed = "for i in range(20000): print('x' * 100)\nprint('last words', file=sys.stderr); sys.exit(3)"
    of = child(f"print('{{}}', flush=True)\nsay(got=order['what'])\n{printed}", what=words)
    assert heard(of) == [{"is": "said", "got": words}] and not of.hung
    assert of.printed.endswith("last words") and len(of.printed) < 10_000
    assert str(of) == "its process exited without an answer (exit code 3), and last printed 'last words'"
    assert "last words" in capfd.readouterr().err
    noise = child("say(good=1)\nos.write(order['answers'], b'\\xff\\x00{]' * 9)\nsay(lost=1)")
    assert heard(noise) == [{"is": "said", "good": 1}]


def test_one_that_prints_without_an_answer_is_ended_and_progress_goes_on() -> None:
    of, said, shown = child("say(started=True)\nwhile True: print('x')", timeout_s=1.5), list[Any](), list[Any]()
    with of:
        of.run(said.append, lambda *step: shown.append(step), 3, 7)
    assert len(said) == 1 and of.hung and str(of).startswith("hung: no progress for") and gone(of.pid)
    assert len(shown) >= 3 and {*shown} == {(3, 7, "starting")}


PARENT = """
import os, sys
from worklog.runner.child import Child
child = Child({{}}, 300.0, (sys.executable, "-c", {source!r}))
print(child.pid, file=sys.stderr, flush=True)
def then(answer): {then}
child.run(then, lambda *_: None)
"""
JOB = """
import ctypes, os, sys
from worklog.runner.child import started
order, say = started()
say("ready")
ctypes.PyDLL(None).sleep(300)  # holds the interpreter's lock: no thread of ours can do anything
"""
LATE = "import time; time.sleep(1.0)\n" + JOB  # its parent has gone before it says that it ends with it


def test_an_interrupt_while_it_is_started_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def started(*command: Any, **how: Any) -> subprocess.Popen[bytes]:
        begun.append(start(*command, **how))
        return begun[0]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", started)
    monkeypatch.setattr("pickle.dump", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Child({}, WAIT_S, (sys.executable, "-c", JOB))
    monkeypatch.undo()
    assert gone(begun[0].pid)


@pytest.mark.parametrize(
    ("source", "then"),
    [(JOB, "sys.exit()"), (JOB, "os._exit(9)"), (LATE, "os._exit(9)")],
    ids=["exits", "leaves", "leaves early"],
)
def test_it_ends_when_its_parent(source: str, then: str) -> None:
    parent = PARENT.format(source=source, then=then)
    if source == LATE:
        parent = parent.replace("child.run(", then + "; child.run(")
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, timeout=60)
    pid = int(done.stderr)
    until(lambda: gone(pid))


# ------------------------------------------------------------------------------------------- what the child does first


def test_a_file_in_the_current_folder_is_not_taken_for_a_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadSetting, match="the emulator cannot run"):
        check_in_child(Kernel.from_function("os:getpid"), on="emulated")


def test_only_one_run_at_a_time_measures_on_a_gpu(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with (
        session.locked(lock),
        pytest.raises(NoGpu, match=f"process {os.getpid()} is measuring on this GPU"),
        session.locked(lock),
    ):
        raise AssertionError("both measure")
    with session.locked(lock):
        assert lock.read_text() == str(os.getpid())
    lock.unlink()
    lock.symlink_to(tmp_path / "precious")
    with pytest.raises(WorklogError, match="cannot open"), session.locked(lock):
        raise AssertionError("it followed a link")


@pytest.mark.parametrize(
    ("named", "current", "visible"),
    [
        (None, None, "0"),
        ("3,5", None, "3"),
        ("GPU-8932f937, GPU-1", None, "GPU-8932f937"),
        ("", None, ""),
        ("-1", None, "-1"),
        (None, 1, "1"),
        ("4,7", 1, "7"),
    ],
)
def test_it_sees_the_one_gpu_that_is_current_here(
    monkeypatch: pytest.MonkeyPatch, named: str | None, current: int | None, visible: str
) -> None:
    chosen = SimpleNamespace(getDevice=lambda: current)
    cupy = None if current is None else SimpleNamespace(cuda=SimpleNamespace(runtime=chosen))
    monkeypatch.setitem(sys.modules, "cupy", cupy)  # type: ignore[misc, arg-type]
    monkeypatch.setattr(device, "gpu_reason", lambda: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert environment()["CUDA_VISIBLE_DEVICES"] == visible


class OutOfMemoryError(MemoryError):
    """As CuPy's and PyTorch's are called."""


@pytest.mark.parametrize(
    ("error", "whose"),
    [
        (RuntimeError("cudaErrorMemoryAllocation: out of memory"), "the GPU's memory is full"),
        (OutOfMemoryError("Out of memory allocating 512 bytes"), "the GPU's memory is full"),
    ],
)
def test_full_memory_is_named(error: Exception, whose: str) -> None:
    assert whose in str(memory_is_full(error))
    assert memory_is_full(ValueError("out of luck")) is None
