"""A process beside this one: it answers on a pipe of its own, is ended while it works, never outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from tests.lab.waiting import WAIT_S, gone, until
from worklog.bench.child import Child, End

HEAD = """
import json, os, signal, subprocess, sys, time
order = json.loads(sys.stdin.readline())
def say(**words): os.write(order["answers"], json.dumps(words).encode() + b"\\n")
"""


def child(source: str, timeout_s: float = WAIT_S, **order: Any) -> Child:
    return Child((sys.executable, "-u", "-c", HEAD + source), order, timeout_s)


def heard(one: Child) -> tuple[list[dict[str, Any]], End]:
    answers: list[dict[str, Any]] = []
    return answers, one.wait(answers.append, lambda: None)


def test_it_gets_its_order_answers_and_ends() -> None:
    one = child("say(got=order['what']); print('last words', file=sys.stderr); sys.exit(3)", what="ä" * 100_000)
    answers, end = heard(one)
    assert answers == [{"got": "ä" * 100_000}]
    assert (end.code, end.printed, end.hung, end.cancelled) == (3, "last words\n", False, False)
    assert str(end) == "its process exited without an answer (exit code 3), and last printed 'last words'"


def test_what_is_no_json_object_is_no_answer() -> None:
    noise = r"os.write(order['answers'], b'7\nnull\n[]\n\xff\n' + b'[' * 9999 + b'\n')"
    answers, _ = heard(child(f"print('{{}}', flush=True)\n{noise}\nsay(right=True)"))
    assert answers == [{"right": True}]


def test_it_may_print_without_end() -> None:
    """What is kept is bounded, and nobody waits for a reader."""
    _, end = heard(child("for i in range(20000): print('x' * 100)\nprint('the last')"))
    assert end.code == 0 and end.printed.endswith("the last\n") and len(end.printed) < 10_000


def test_one_that_reads_nothing_is_no_error_here() -> None:
    one = Child((sys.executable, "-c", "raise SystemExit(4)"), {"long": "x" * 1_000_000}, WAIT_S)
    assert heard(one)[1].code == 4


def test_one_that_cannot_be_started_says_so() -> None:
    with pytest.raises(FileNotFoundError):
        Child(("/nonexistent",), {}, WAIT_S)


def test_one_without_an_answer_is_ended() -> None:
    one = child("say(started=True); time.sleep(300)", timeout_s=0.5)
    _, end = heard(one)
    assert end.hung and not end.cancelled
    assert str(end).startswith("hung: no progress for")
    assert gone(one.pid)


@pytest.mark.parametrize("deaf", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"])
def test_it_is_gone_when_cancel_returns(deaf: str) -> None:
    one = child(deaf + "say(started=True); time.sleep(300)")
    ends: list[End] = []
    started = threading.Event()
    waits = threading.Thread(target=lambda: ends.append(one.wait(lambda _: started.set(), lambda: None)))
    waits.start()
    assert started.wait(WAIT_S)
    one.cancel()
    assert gone(one.pid)
    waits.join(WAIT_S)
    assert ends[0].cancelled and ends[0].code == -(signal.SIGKILL if deaf else signal.SIGTERM)


def test_what_was_answered_before_an_end_is_not_lost() -> None:
    def hear(answer: dict[str, Any]) -> None:
        if answer["number"] == 1:
            raise KeyboardInterrupt

    with child("[say(number=i) for i in range(5)]; time.sleep(300)") as one:
        until(lambda: len(one._answers) == 5)
        with pytest.raises(KeyboardInterrupt):
            one.wait(hear, lambda: None)
        one.end()
        assert [answer["number"] for answer in one.unheard()] == [1, 2, 3, 4]


def test_whatever_is_raised_while_waiting_ends_it() -> None:
    def interrupted(_: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), child("say(started=True); time.sleep(300)") as one:
        one.wait(interrupted, lambda: None)
    assert gone(one.pid)


def test_a_second_ctrl_c_ends_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(seconds: float) -> bool:
        monkeypatch.undo()
        raise KeyboardInterrupt

    with child("signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsay(deaf=True); time.sleep(300)") as one:
        until(lambda: one._answers)
        monkeypatch.setattr(one._gone, "wait", impatient)
        with pytest.raises(KeyboardInterrupt):
            one.end()
        until(lambda: gone(one.pid))


@pytest.mark.parametrize("then", ["time.sleep(300)", "os._exit(0)"], ids=["ended", "left"])
def test_what_it_has_started_goes_with_it(then: str) -> None:
    source = "grandchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])\n"
    one = child(source + f"say(pid=grandchild.pid)\n{then}")
    pids: list[int] = []

    def hear(answer: dict[str, Any]) -> None:
        pids.append(answer["pid"])
        if "sleep" in then:  # the other one may be gone by now, and what it had started with it
            assert not gone(answer["pid"])
            one.cancel()

    one.wait(hear, lambda: None)
    until(lambda: gone(pids[0]))


PARENT = """
import os, signal, sys, threading, time
from worklog.bench.child import Child
child = Child((sys.executable, "-c", {source!r}), {{}}, 300.0)
ready = threading.Event()
threading.Thread(target=child.wait, args=(lambda answer: ready.set(), lambda: None), daemon=True).start()
ready.wait()
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
import json, os, sys, time
from worklog.bench.job import Answers, wait_for_the_end
import threading
order = json.loads(sys.stdin.readline())
threading.Thread(target=wait_for_the_end, args=(0,), daemon=True).start()
Answers(order)("ready")
time.sleep(300)
"""


@pytest.mark.parametrize(
    ("source", "then"),
    [
        ("import json, os, sys, time\norder = json.loads(sys.stdin.readline())\n"
         "os.write(order['answers'], b'{}' + b'\\n')\ntime.sleep(300)",
         "sys.exit()"),
        (JOB, "os._exit(9)"),
        (JOB, "os.kill(os.getpid(), signal.SIGKILL)"),
        (ELSEWHERE, "os.kill(os.getpid(), signal.SIGKILL)"),
    ],
    ids=["exits", "leaves", "is killed", "is killed where no kernel signals it"],
)  # fmt: skip
def test_it_ends_when_its_parent(source: str, then: str) -> None:
    parent = PARENT.format(source=source, then=then)
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, timeout=60)
    pid = int(done.stdout)
    until(lambda: gone(pid))


def test_ctrl_c_in_a_terminal_does_not_reach_it() -> None:
    """It goes to every process of the terminal's session; the parent decides what becomes of this one."""
    answers, _ = heard(one := child("say(session=os.getsid(0))"))
    assert answers == [{"session": one.pid}] and one.pid != os.getsid(0)
