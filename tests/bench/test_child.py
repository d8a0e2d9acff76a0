"""A child process: it answers on a pipe of its own, is ended while it works, and never outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.lab.waiting import WAIT_S, gone, until
from worklog.bench.child import Child

HEAD = """
import json, os, pickle, signal, subprocess, sys, time
order = pickle.load(sys.stdin.buffer)
def say(**words): os.write(order["answers"], json.dumps(words).encode() + b"\\n")
"""
GRANDCHILD = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])"


def child(source: str, timeout_s: float = WAIT_S, **order: Any) -> Child:
    return Child((sys.executable, "-u", "-c", HEAD + source), order, timeout_s)


def heard(one: Child) -> list[dict[str, Any]]:
    """All answers of a process until its end."""
    with one:
        return [answer for answer in one.answers() if answer is not None]


def test_it_gets_its_order_answers_and_ends() -> None:
    words = "x" * 1_000_000
    one = child("say(got=order['what']); print('last words', file=sys.stderr); sys.exit(3)", what=words)
    assert heard(one) == [{"got": words}]
    assert one.printed == "last words" and not one.hung
    assert str(one) == "its process exited without an answer (exit code 3), and last printed 'last words'"


def test_what_is_no_json_object_is_no_answer() -> None:
    noise = r"os.write(order['answers'], b'7\nnull\n[]\n\xff\n' + b'[' * 9999 + b'\n')"
    assert heard(child(f"print('{{}}', flush=True)\n{noise}\nsay(right=True)")) == [{"right": True}]


def test_of_what_it_prints_the_last_is_kept() -> None:
    heard(one := child("for i in range(20000): print('x' * 100)\nprint('the last')"))
    assert one.printed.endswith("the last") and len(one.printed) < 10_000


def test_one_that_cannot_be_started_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        Child(("/nonexistent",), {}, WAIT_S)


@pytest.mark.parametrize("does", ["time.sleep(300)", "while True: print('x')"])
def test_one_without_an_answer_is_ended(does: str) -> None:
    heard(one := child(f"say(started=True)\n{does}", timeout_s=0.5))
    assert one.hung and str(one).startswith("hung: no progress for")
    assert gone(one.pid)


def test_what_was_answered_before_an_end_is_not_lost() -> None:
    with child("[say(number=i) for i in range(5)]; time.sleep(300)") as one:
        answers = one.answers()
        assert [next(answers)["number"] for _ in range(2)] == [0, 1]
        with pytest.raises(KeyboardInterrupt):
            answers.throw(KeyboardInterrupt)
        one.end()
        assert [answer["number"] for answer in one.answers()] == [1, 2, 3, 4]
    assert gone(one.pid)


@pytest.mark.parametrize("then", ["time.sleep(300)", "os._exit(0)"], ids=["ended", "left"])
def test_what_it_has_started_goes_with_it(then: str) -> None:
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    with child(f"{deaf}say(pid={GRANDCHILD}.pid)\n{then}", timeout_s=0.5) as one:
        pids = [answer["pid"] for answer in one.answers() if answer is not None]
    until(lambda: gone(pids[0]))
    assert gone(one.pid)


PARENT = """
import os, signal, sys
from worklog.bench.child import Child
child = Child((sys.executable, "-c", {source!r}), {{}}, 300.0)
next(child.answers())
print(child.pid, flush=True)
{then}
"""
JOB = """
import ctypes, os, sys
from worklog.bench import job
order, say = job.started()
say("ready")
ctypes.PyDLL(None).sleep(300)  # holds the interpreter's lock: no thread of ours can do anything
"""
ELSEWHERE = """
import fcntl, time
from worklog.bench import job
del fcntl.F_SETSIG
job.started()[1]("ready")
time.sleep(300)
"""


@pytest.mark.parametrize(
    ("source", "then"),
    [
        (JOB, "sys.exit()"),
        (JOB, "os._exit(9)"),
        (JOB, "os.kill(os.getpid(), signal.SIGKILL)"),
        (ELSEWHERE, "os.kill(os.getpid(), signal.SIGKILL)"),
    ],
    ids=["exits", "leaves", "is killed", "is killed where no kernel signals it"],
)
def test_it_ends_when_its_parent(source: str, then: str) -> None:
    parent = PARENT.format(source=source, then=then)
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, timeout=60)
    pid = int(done.stdout)
    until(lambda: gone(pid))


def test_ctrl_c_in_a_terminal_does_not_reach_it() -> None:
    """It goes to every process of the terminal's session; the parent decides what becomes of this one."""
    answers = heard(one := child("say(session=os.getsid(0))"))
    assert answers == [{"session": one.pid}] and one.pid != os.getsid(0)


def test_a_crash_has_the_signals_name() -> None:
    heard(one := child("os.abort()"))
    assert "SIGABRT" in str(one) and signal.strsignal(signal.SIGABRT) in str(one)
