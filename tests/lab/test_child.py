"""A process beside the notebook: tells how far it is, is cancelled while it works, and never outlives the kernel."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.waiting import WAIT_S, gone, until
from worklog.gemm import Shape
from worklog.lab.child import Child, End, Progress
from worklog.lab.job import order
from worklog.plans import Task

WORKS = """
import json, sys, time
order = sys.stdin.readline()
print("a library's greeting")
print(json.dumps({"done": 1, "total": 2, "doing": order.strip()}), flush=True)
time.sleep({seconds})
print("last words", file=sys.stderr)
sys.exit({code})
"""


def started(seconds: float = 0.0, code: int = 0, source: str = WORKS) -> tuple[Child, list[Progress], queue.Queue[End]]:
    told: list[Progress] = []
    ended: queue.Queue[End] = queue.Queue()
    script = source.replace("{seconds}", str(seconds)).replace("{code}", str(code))
    return Child((sys.executable, "-c", script), "the order\n", told.append, ended.put), told, ended


def test_it_gets_its_order_tells_its_progress_and_ends() -> None:
    child, told, ended = started()
    assert ended.get(timeout=WAIT_S) == End(0, "last words", cancelled=False)
    assert (told[-1].done, told[-1].total, told[-1].doing) == (1, 2, "the order")
    assert not child.running


def test_a_failure_ends_in_its_last_words() -> None:
    assert started(code=3)[2].get(timeout=WAIT_S) == End(3, "last words", cancelled=False)


def test_cancel_ends_it_while_it_works() -> None:
    child, told, ended = started(seconds=60)
    until(lambda: told and told[-1].done)
    child.cancel()
    end = ended.get(timeout=WAIT_S)
    assert end.cancelled and end.code < 0
    assert not child.running


def test_cancel_ends_even_one_that_will_not_listen() -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WORKS
    child, told, ended = started(seconds=60, source=deaf)
    until(lambda: told and told[-1].done)
    child.cancel()
    assert ended.get(timeout=WAIT_S).cancelled


def test_a_process_that_reads_nothing_is_no_error_here() -> None:
    _, _, ended = started(source="raise SystemExit(4)")
    assert ended.get(timeout=WAIT_S).code == 4


def test_two_at_once_do_not_meet() -> None:
    (long, told, long_ended), (_, _, ended) = started(seconds=60), started()
    assert ended.get(timeout=WAIT_S).code == 0
    until(lambda: told and told[-1].done)
    assert long.running
    long.cancel()
    assert long_ended.get(timeout=WAIT_S).cancelled


def test_time_left_is_judged_from_the_steps_done() -> None:
    assert Progress(1, 3, "", elapsed_s=4.0).left_s == 8.0
    assert Progress(0, 3, "", elapsed_s=4.0).left_s is None


PARENT = """
import os, sys, time
from worklog.lab.child import Child
child = Child((sys.executable, "-c", {script!r}), "go\\n", lambda progress: None, lambda end: None)
print(child.pid, flush=True)
{then}
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at a process through /proc")
@pytest.mark.parametrize(
    ("script", "then"),
    [
        ("import time; time.sleep(60)", "sys.exit()"),  # an exit handler ends it
        (
            "import time; from worklog.lab.job import watch_the_parent as watch; watch(); time.sleep(60)",
            "os._exit(9)",
        ),  # the pipe ends it
    ],
    ids=["the kernel exits", "the kernel is killed"],
)
def test_no_process_outlives_the_notebooks_kernel(script: str, then: str) -> None:
    parent = PARENT.format(script=script, then=then)
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, timeout=60)
    pid = int(done.stdout)
    until(lambda: gone(pid))


def test_the_job_takes_an_order_and_refuses_in_words(tmp_path: Path) -> None:
    told = order([Task("nonsense", Shape.of(256), (("l2", "warm"),))], tmp_path / "out.json")
    assert json.loads(told)["tasks"] == [["nonsense", [256, 256, 256], {"l2": "warm"}]]
    ended: queue.Queue[End] = queue.Queue()
    Child((sys.executable, "-m", "worklog.lab.job"), told, lambda progress: None, ended.put)
    end = ended.get(timeout=60)
    assert end.code == 2 and "there is no rung 'nonsense'" in end.words
