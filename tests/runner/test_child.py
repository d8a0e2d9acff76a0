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

HEAD = """
import json, os, pickle, signal, subprocess, sys, time
order = pickle.load(sys.stdin.buffer)
def say(**words): os.write(order["answers"], json.dumps(words).encode() + b"\\n")
"""


def child(source: str, timeout_s: float = WAIT_S, **order: Any) -> Child:
    return Child((sys.executable, "-u", "-c", HEAD + source), order, timeout_s)


def heard(one: Child) -> list[dict[str, Any]]:
    """All answers of a process until its end."""
    with one:
        return [answer for answer in one.answers() if answer is not None]


def test_it_gets_its_order_answers_in_json_objects_and_ends() -> None:
    words = "x" * 1_000_000
    noise = r"os.write(order['answers'], b'7\nnull\n[]\n\xff\n' + b'[' * 9999 + b'\n')"
    printed = "for i in range(20000): print('x' * 100)\nprint('last words', file=sys.stderr); sys.exit(3)"
    one = child(f"print('{{}}', flush=True)\n{noise}\nsay(got=order['what'])\n{printed}", what=words)
    assert heard(one) == [{"got": words}]
    assert one.printed.endswith("last words") and len(one.printed) < 10_000 and not one.hung
    assert str(one) == "its process exited without an answer (exit code 3), and last printed 'last words'"


def test_one_that_prints_without_an_answer_is_ended() -> None:
    heard(one := child("say(started=True)\nwhile True: print('x')", timeout_s=0.5))
    assert one.hung and str(one).startswith("hung: no progress for")
    assert gone(one.pid)


def test_what_was_answered_before_an_end_is_not_lost() -> None:
    at_once = "os.write(order['answers'], ''.join(f'{{\"number\": {i}}}\\n' for i in range(5)).encode())"
    with child(f"{at_once}; time.sleep(300)") as one:
        answers = one.answers()
        first = filter(None, answers)  # a slow process gives None first
        assert [next(first)["number"] for _ in range(2)] == [0, 1]
        with pytest.raises(KeyboardInterrupt):
            answers.throw(KeyboardInterrupt)
        one.end()
        assert [answer["number"] for answer in one.answers()] == [1, 2, 3, 4]
    assert gone(one.pid)


PARENT = """
import os, sys
from worklog.runner.child import Child
child = Child((sys.executable, "-c", {source!r}), {{}}, 300.0)
next(child.answers())
print(child.pid, flush=True)
{then}
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

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", started)
    monkeypatch.setattr("selectors.DefaultSelector", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Child((sys.executable, "-c", JOB), {}, WAIT_S)
    monkeypatch.undo()
    begun[0].communicate(timeout=WAIT_S)  # until it has ended


@pytest.mark.parametrize(
    ("source", "then"),
    [
        (JOB, "sys.exit()"),
        (JOB, "os._exit(9)"),
        (LATE, "os._exit(9)"),
    ],
    ids=["exits", "leaves", "leaves early"],
)
def test_it_ends_when_its_parent(source: str, then: str) -> None:
    parent = PARENT.format(source=source, then=then)
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, timeout=60)
    pid = int(done.stdout)
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
