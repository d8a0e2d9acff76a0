"""Whatever a kernel does to its process, here it is a verdict, what was finished is kept, and the next one runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.lab.waiting import WAIT_S, gone, until
from worklog.bench import job, worker
from worklog.bench.tasks import Task
from worklog.errors import BadSetting, ChildFailed, CompileFailed, Interrupted
from worklog.harness import Harness
from worklog.kernel.host_function import HostCallable
from worklog.kernel.kernel import Program
from worklog.kernel.ladder import Domain
from worklog.kernel.nvrtc import UnknownEntry
from worklog.kernel.user_kernel import UserKernel
from worklog.problem.gemm import Shape
from worklog.runs.run import Run

ITSELF = worker.COMMAND
EMULATE = "run it with `worklog check --emulate`: it names the line"
SHAPE = Shape.of(512)


def mine(name: str) -> UserKernel:
    return UserKernel(Program("x.cu", "", "x"), ("1", "1"), 1, Domain(), title=name)


def measure(*names: str, own: bool = True, **how: Any) -> Run:
    """The kernels measured, each for the first time."""
    brought = [mine(name) for name in dict.fromkeys(names)] if own else []
    return worker.carry_out([Task(name, SHAPE) for name in names], Harness(), brought=brought, **how)


def test_what_is_measured_comes_back_and_is_saved(tmp_path: Path) -> None:
    told: list[tuple[int, int, str]] = []
    run = measure("fine", "fine", own=False, out=tmp_path / "run.json", progress=lambda *how_far: told.append(how_far))
    assert [m.status for m in run.measurements] == ["measured", "measured"]
    assert run.complete and run.origin == "live" and run.notes == []
    assert Run.load(tmp_path / "run.json").measurements == run.measurements
    assert told[0] == (0, 2, "starting") and (1, 2, "fine") in told and told[-1] == (2, 2, "done")


LEFT = "its process left without an answer"
ELSE = "process: its process answered for something else than was asked for"
RUINOUS = {
    "segfaults": f"process: crashed: its process ended with SIGSEGV (Segmentation fault); {EMULATE}",
    "leaves": f"process: {LEFT} (exit code 0); {EMULATE}",
    "leaves talking": f"process: {LEFT} (exit code 3), and last printed 'so long'; {EMULATE}",
    "exits": f"process: raised SystemExit: 0; {EMULATE}",
    "raises": f"process: raised ValueError: no such thing; {EMULATE}",
    "illegal address": f"launch: running a kernel: cudaErrorIllegalAddress; {EMULATE}",
    "fills the GPU": "memory: allocating 64 MiB: out of memory; take a smaller size",
    "fills the memory": "memory: the host's memory is full: take a smaller size",
    "starts another": f"process: {LEFT} (exit code 0); {EMULATE}",
    "answers for another": ELSE,
    "answers under another harness": ELSE,
    "answers nonsense": "process: its process answered with something that is no run: ",
}


def test_a_kernel_that_ends_its_process_is_refused_and_the_next_one_runs(pids: Callable[[], list[int]]) -> None:
    run = measure("first", *RUINOUS, "last")
    assert [m.kernel for m in run.measurements] == ["first", *RUINOUS, "last"]
    for m in run.measurements:
        if m.kernel in RUINOUS:
            assert str(m.reason).startswith(f"refused at {RUINOUS[m.kernel]}")
            assert m.status == "refused" and m.problem == SHAPE
            assert m.verdict is not None and m.verdict["accepted"] is False
        else:
            assert m.status == "measured" and m.reason is None
    assert run.complete and run.path is not None and Run.load(run.path).measurements == run.measurements
    assert run.notes == ["from last at 512 on: in a fresh process, calibrated again"]
    assert "SIGSEGV" in str(run)  # the table can show it
    assert pids()
    for pid in pids():
        until(lambda pid=pid: gone(pid))


def test_nothing_else_is_measured_in_a_callables_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    order = job.measure_order

    def noted(tasks: Sequence[Task], *rest: Any) -> dict[str, Any]:
        asked.append([task.kernel for task in tasks])
        return order(tasks, *rest)

    monkeypatch.setattr(job, "measure_order", noted)
    callables = [HostCallable.read(f"os:{name}") for name in ("fine", "garbage")]
    names = ["first", "last", "fine", "fine", "garbage", "first"]
    kernels = [mine(name) for name in ("first", "last")]
    run = worker.carry_out([Task(name, SHAPE) for name in names], Harness(), brought=[*kernels, *callables])
    assert [m.kernel for m in run.measurements] == names and run.complete
    assert asked == [["first", "last"], ["fine", "fine"], ["garbage"], ["first"]]


def test_garbage_on_every_pipe_is_no_answer_and_no_harm() -> None:
    run = measure("garbage", "fine")
    assert run.measurements[-1].status == "measured" and run.complete


def test_a_kernel_that_hangs_is_ended_and_the_next_one_runs(pids: Callable[[], list[int]]) -> None:
    harness = Harness().but(budget_s=0.5)
    tasks = [Task("hangs with the lock", SHAPE), Task("fine", SHAPE)]
    run = worker.carry_out(tasks, harness, brought=[mine("hangs with the lock")], patience_s=1.0)
    assert [m.status for m in run.measurements] == ["refused", "measured"]
    assert str(run.measurements[0].reason).startswith("refused at process: hung: no progress for ")
    assert all(map(gone, pids()))


def test_a_lost_context_is_blamed_on_the_kernel_before_it() -> None:
    run = measure("is refused and loses the context", "loses the context", "fine")
    refused, lost, fine = run.measurements
    assert refused.reason == f"refused at launch: a fault; {EMULATE}"
    assert lost.status == "refused" and lost.us is None
    assert f"an illegal memory access was encountered; {EMULATE}" in str(lost.reason)
    assert fine.status == "measured"


def test_all_measured_is_not_enough_without_the_last_word() -> None:
    run = measure("fine", "leaves a thread that leaves")
    assert [m.status for m in run.measurements] == ["measured", "refused"]
    assert "left without an answer" in str(run.measurements[1].reason)


@pytest.mark.parametrize(
    ("kernel", "error", "says"),
    [
        ("does not compile", CompileFailed, r"^x\.cu:3: expected a ';'$"),
        ("no such entry", UnknownEntry, r"^x\.cu: there is no kernel x$"),
        ("bad setting", BadSetting, r"^the grid has 0 blocks$"),
    ],
)
def test_an_error_of_the_package_is_raised_here_too(
    kernel: str, error: type[Exception], says: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=says) as raised:
        measure("fine", kernel, out=tmp_path / "run.json")
    assert type(raised.value) is error
    kept = Run.load(tmp_path / "run.json")
    assert [m.status for m in kept.measurements] == ["measured"] and not kept.complete


def test_what_a_rung_raises_is_no_verdict_on_it() -> None:
    with pytest.raises(ChildFailed, match=r"ValueError: no such thing: a mistake of worklog's own(?s:.)*Traceback"):
        measure("raises", own=False)


@pytest.mark.parametrize("kernel", ["never ready", "ready with nonsense"])
def test_a_process_that_comes_to_no_kernel_is_an_error(kernel: str) -> None:
    with pytest.raises(ChildFailed, match=r"exit code 4|no run"):
        measure(kernel)


def test_nothing_to_measure() -> None:
    with pytest.raises(BadSetting, match="nothing to measure"):
        measure()


@pytest.mark.parametrize("kernel", ["hangs", "hangs deaf", "hangs with the lock", "hangs with another"])
def test_a_stop_ends_a_kernel_that_hangs_and_keeps_what_is_finished(
    kernel: str, pids: Callable[[], list[int]], tmp_path: Path
) -> None:
    stop, ends = worker.Stop(), list[Exception]()

    def work() -> None:
        try:
            measure("fine", kernel, "fine", stop=stop, out=tmp_path / "run.json")
        except Interrupted as error:
            ends.append(error)

    works = threading.Thread(target=work)
    works.start()
    until(lambda: len(pids()) == (2 if kernel == "hangs with another" else 1))
    stop.press()
    assert stop.pid is not None and gone(stop.pid)
    until(lambda: all(map(gone, pids())))
    works.join(WAIT_S)
    assert str(ends[0]) == f"interrupted: 1 of 3 measurements are kept in {tmp_path / 'run.json'}"
    assert [m.kernel for m in Run.load(tmp_path / "run.json").measurements] == ["fine"]
    assert measure("fine").complete


def test_a_stop_that_was_pressed_before_starts_nothing_that_lasts(pids: Callable[[], list[int]]) -> None:
    stop = worker.Stop()
    stop.press()
    with pytest.raises(Interrupted, match="nothing is saved"):
        measure("hangs", stop=stop)
    assert all(map(gone, pids()))


def test_progress_may_stop_it() -> None:
    def interrupt(done: int, total: int, doing: str) -> None:
        if doing == "hangs":
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="1 of 2 measurements are kept"):
        measure("fine", "hangs", progress=interrupt)


INTERRUPTED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
from tests.bench.conftest import FOREIGN
from tests.bench.test_worker import Shape, measure, mine, worker
from worklog.errors import Interrupted
worker.COMMAND = FOREIGN
try:
    {call}
except Interrupted as error:
    print(error.exit_code, error)
"""


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("measure('fine', 'hangs')", "1 of 2 measurements are kept in "),
        ("worker.check(mine('hangs'), Shape.of(64))", "hangs was not judged, and nothing runs any more"),
    ],
)
def test_ctrl_c_ends_a_kernel_that_hangs(call: str, says: str, pids: Callable[[], list[int]]) -> None:
    command = (sys.executable, "-c", INTERRUPTED.format(call=call))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    until(lambda: pids())
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=WAIT_S)
    assert said.startswith(f"130 interrupted: {says}")
    assert all(map(gone, pids()))


def test_what_it_prints_is_shown_where_errors_go(capfd: pytest.CaptureFixture[str]) -> None:
    measure("leaves talking")
    said = capfd.readouterr()
    assert said.out == "" and said.err == "so long\n"


def test_settings_reach_it_and_a_mistake_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's own job, which finds no GPU here or a rung that is not there."""
    monkeypatch.setattr(worker, "COMMAND", ITSELF)
    order = job.measure_order(
        [Task("naive", SHAPE, (("l2", "warm"),))], Harness(gate="article"), [mine("m")], Path("s")
    )
    order = json.loads(json.dumps(order))
    assert job.tasks_of(order) == [Task("naive", SHAPE, (("l2", "warm"),))]
    assert Harness(**order["harness"]) == Harness(gate="article")
    with pytest.raises(Exception, match="there is no rung 'nonsense'") as raised:
        worker.measure(["nonsense"], [256])
    assert type(raised.value).__name__ == "UnknownRung"


HOST = """\
import os, sys
from tests.exploits.arrays import xp

def first(alpha, A, B, beta, C):
    xp.gemm(alpha, A, B, beta, C)

def leaves(alpha, A, B, beta, C):
    os._exit(0)

def wrong(alpha, A, B, beta, C):
    xp.gemm(2 * alpha, A, B, beta, C)

def exits(alpha, A, B, beta, C):
    sys.exit()

last = first
"""


def test_the_real_job_gates_and_times_what_lives_and_goes_on_after_what_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The orchestrator's own path, on the virtual GPU."""
    monkeypatch.setattr(worker, "COMMAND", (sys.executable, "-m", "tests.virtual.job"))
    (tmp_path / "host.py").write_text(HOST)
    names = ["first", "wrong", "leaves", "exits", "last"]
    own = [HostCallable.read(f"{tmp_path}/host.py:{name}") for name in names]
    harness = Harness().but(least_samples=6, most_samples=64, precision=0.05)
    run = worker.measure(own, [Shape(96, 64, 80)], harness=harness)
    found = {m.kernel: m for m in run.measurements}
    assert list(found) == names and run.complete
    assert [m.status for m in run.measurements] == ["measured", "refused", "refused", "refused", "measured"]
    assert str(found["wrong"].reason).startswith("refused at exact on edge shapes: ")
    alone = "call it by itself in Python to see why"
    assert found["leaves"].reason == f"refused at process: its process left without an answer (exit code 0); {alone}"
    assert "exits raised SystemExit" in str(found["exits"].reason)
    assert found["first"].us == pytest.approx(found["last"].us, rel=0.01)
    assert found["last"].n >= 6 and found["last"].verdict is not None and found["last"].verdict["accepted"]
    assert run.kernels["last"]["label"] == "host function" and run.calibration["offset_us"] > 0
    assert run.device["name"] == "a virtual GPU" and run.software["cublas"] == "0"
    assert "from exits at 96x64x80 on: in a fresh process, calibrated again" in run.notes
