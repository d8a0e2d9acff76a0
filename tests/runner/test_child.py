"""A child process.

It answers on a pipe of its own, is ended while it works, and never outlives its parent.
"""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lab.waiting import WAIT_S, gone, until
from worklog.errors import BadSetting, NoGpu, WorklogError, memory_is_full
from worklog.gpu import device
from worklog.kernel import Kernel
from worklog.runner import child, session
from worklog.runner.check import check_in_child
from worklog.runner.child import Ended, run_child
from worklog.runs.text import silent

HEAD = """
import os, pickle, signal, subprocess, sys, time
from multiprocessing.connection import Connection
order, answers = pickle.load(sys.stdin.buffer)
pipe = Connection(answers, readable=False)
def say(**words): pipe.send(words)
"""


def run(source: str, progress: Any = silent, **how: Any) -> tuple[list[dict[str, Any]], Ended]:
    """All answers of a process, and its end."""
    command = (sys.executable, "-u", "-c", HEAD + source)
    order: Any = {"what": "x" * 1_000_000}
    *said, ended = run_child(order, progress, command=command, **{"timeout_s": WAIT_S, **how})
    return said, ended


def test_it_gets_its_order_answers_and_ends(capfd):
    printed = (
        "for i in range(20000): print('x' * 100)\nprint('last words', file=sys.stderr); sys.exit(3)"
    )
    said, ended = run(f"print('{{}}', flush=True)\nsay(got=order['what'])\n{printed}")
    assert [len(answer["got"]) for answer in said] == [1_000_000]
    assert ended.printed.endswith("last words") and len(ended.printed) < 10_000
    assert (
        str(ended)
        == "its process exited without an answer (exit code 3), and last printed 'last words'"
    )
    assert "last words" in capfd.readouterr().err
    said, _ = run("say(good=1)\nos.write(answers, b'\\xff\\x00{]' * 9)\nsay(lost=1)")
    assert said == [{"good": 1}]


def test_one_that_prints_without_an_answer_is_ended_and_progress_goes_on(monkeypatch):
    shown = list[Any]()
    monkeypatch.setattr(child, "TICK_S", 0.1)
    source = "say(pid=os.getpid())\nwhile True: print('x')"
    (answer,), ended = run(
        source, lambda *step: shown.append(step), timeout_s=0.3, first=3, total=7
    )
    assert str(ended).startswith("hung: no progress for") and gone(answer["pid"])
    assert len(shown) >= 3 and {*shown} == {(3, 7, "starting")}


def test_after_ctrl_c_all_that_was_answered_is_there_and_ctrl_c_raises_again():
    said = list[int]()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    source = "[say(n=n) for n in range(3)]\nos.write(1, b'x')\ntime.sleep(300)"
    with pytest.raises(KeyboardInterrupt):
        for answer in run_child(
            {}, timeout_s=WAIT_S, command=(sys.executable, "-u", "-c", HEAD + source)
        ):
            if not said:
                time.sleep(0.5)  # until the others were sent
                signal.raise_signal(signal.SIGINT)
            said.append(answer["n"])
    assert said == [0, 1, 2] and signal.signal(signal.SIGINT, before) is signal.SIG_IGN


PARENT = """
import os, subprocess, sys
from worklog.runner.child import run_child
start = subprocess.Popen
def started(*words, **how):
    process = start(*words, **how)
    print(process.pid, file=sys.stderr, flush=True)
    return process
subprocess.Popen = started
def then(*_): {then}
command = (sys.executable, "-c", {source!r})
for _ in run_child({{}}, {progress}, timeout_s=300.0, command=command): then()
"""
JOB = """
import ctypes, os, sys
from worklog.runner.child import started
order, pipe = started()
pipe.send("ready")
ctypes.PyDLL(None).sleep(300)  # holds the interpreter's lock: no thread of ours can do anything
"""
# Its parent has gone before it says that it ends with it. It answers nothing: that would end it,
# too.
LATE = "import time; time.sleep(1.0)\n" + JOB.replace('pipe.send("ready")\n', "")


def test_an_interrupt_while_it_is_started_leaves_no_process(monkeypatch):
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
        next(run_child({}, timeout_s=WAIT_S, command=(sys.executable, "-c", JOB)))
    monkeypatch.undo()
    assert gone(begun[0].pid)


@pytest.mark.parametrize(
    ("source", "then"),
    [(JOB, "sys.exit()"), (JOB, "os._exit(9)"), (LATE, "os._exit(9)")],
    ids=["exits", "leaves", "leaves early"],
)
def test_it_ends_when_its_parent(source, then):
    progress = (
        "lambda done, total, doing, n=[]: n.append(1) or n[1:] and then()"
        if source == LATE
        else "print"
    )
    parent = PARENT.format(source=source, then=then, progress=progress)
    done = subprocess.run(
        [sys.executable, "-c", parent], capture_output=True, text=True, timeout=60
    )
    pid = int(done.stderr)
    until(lambda: gone(pid))


def test_a_child_does_not_wait_before_it_begins():
    source = """
import sys, time
from worklog.runner.child import started
began = time.monotonic()
order, pipe = started()
pipe.send(time.monotonic() - began)
"""
    fastest = WAIT_S
    for _ in range(3):  # a busy machine may stop a process at any place
        command = (sys.executable, "-c", source)
        seconds, _ = run_child({}, timeout_s=WAIT_S, command=command)
        fastest = min(fastest, seconds)
        if fastest < 0.5:
            break
    assert fastest < 0.5


# ------------------------------------------------------------------------ what the child does first


def test_a_file_in_the_current_folder_is_not_taken_for_a_module(monkeypatch, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadSetting, match="the emulator cannot run"):
        check_in_child(Kernel.from_function("os:getpid"), on="emulated")


def test_only_one_run_at_a_time_measures_on_a_gpu(tmp_path):
    lock = tmp_path / "lock"
    lock.write_text("of a longer text, that is gone")
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
def test_it_sees_the_one_gpu_that_is_current_here(monkeypatch, named, current, visible):
    chosen = SimpleNamespace(getDevice=lambda: current)
    cupy = None if current is None else SimpleNamespace(cuda=SimpleNamespace(runtime=chosen))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(device, "gpu_reason", lambda: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert device.environment()["CUDA_VISIBLE_DEVICES"] == visible


class OutOfMemoryError(MemoryError):
    """As CuPy's and PyTorch's are called."""


def test_full_memory_is_named():
    for error in (
        RuntimeError("cudaErrorMemoryAllocation: out of memory"),
        OutOfMemoryError("Out of memory"),
    ):
        assert "the GPU's memory is full" in str(memory_is_full(error))
    assert memory_is_full(ValueError("out of luck")) is None
