"""In place of worklog.runner.child, where nothing can be measured.

A kernel's name says what becomes of its process.

Ids of processes that a test has to look for are written to the file that FOREIGN_PIDS names.
"""

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from tests.helpers import CALIBRATION, GPU, product
from worklog.errors import CompileFailed, LaunchFailed, OutOfMemory
from worklog.kernel import Compiled
from worklog.kernel.device import Program
from worklog.runner.child import answering
from worklog.runner.messages import (
    CheckBegun,
    CheckEnded,
    CheckOrder,
    Done,
    Measured,
    MeasureOrder,
    Progressed,
    Started,
)
from worklog.runs import Measurement, Run, line
from worklog.runs.statistics import Estimate

FOR_EVER_S = 300.0


def noted(pid: int) -> None:
    """Write down the id of a process for the test to look for."""
    with Path(os.environ["FOREIGN_PIDS"]).open("a") as file:
        file.write(f"{pid}\n")


def hang(sleep: Callable[[float], object] = time.sleep) -> None:
    noted(os.getpid())
    sleep(FOR_EVER_S)


def with_the_lock(seconds: float) -> None:
    """Where no other thread of this process can do anything."""
    ctypes.PyDLL(None).sleep(int(seconds))


def start_another(then: Callable[[], None]) -> None:
    noted(subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({FOR_EVER_S})"]).pid)
    then()


def leave(code: int = 0, words: str = "") -> None:
    print(words, flush=True)
    os._exit(code)


ACTS: dict[str, Callable[[], object] | BaseException] = {
    "hangs": hang,
    "hangs with the lock": lambda: hang(with_the_lock),
    "hangs with another": lambda: start_another(hang),
    "starts another": lambda: start_another(leave),  # which would have no parent
    "segfaults": lambda: ctypes.string_at(0),
    "leaves": leave,
    "leaves talking": lambda: leave(3, "so long"),
    "leaves a thread that leaves": lambda: threading.Timer(0.1, leave).start(),
    "fills the memory": MemoryError(),
    "fills the GPU": OutOfMemory("allocating 64 MiB: out of memory; take a smaller size"),
    "illegal address": LaunchFailed("running a kernel: cudaErrorIllegalAddress"),
    "raises": ValueError("no such thing"),
    "naive": ValueError("of a rung"),
    "exits": SystemExit(0),
    "does not compile": CompileFailed("x.cu:3: expected a ';'"),
    "no such entry": CompileFailed("x.cu: there is no kernel x"),
}


def act(name: str) -> None:
    """Do what the name says, and nothing for other names."""
    what = ACTS.get(name)
    if isinstance(what, BaseException):
        raise what
    if what is not None:
        what()


def measure(order: MeasureOrder, pipe: Connection) -> None:
    """As worklog.runner.worker.answer, but for the measuring.

    The calibration is another one in each process.
    """
    names = [job.kernel for job in order.jobs]
    if names[0] == "never ready":
        os._exit(4)
    calibration = replace(CALIBRATION, offset_us=float(os.getpid()))
    run = Run(order.harness.as_dict(), GPU, calibration, tool={"name": "gemm-worklog"})
    pipe.send(Started(run.head_lines()))
    for done, name in enumerate(names):
        pipe.send(Progressed(done, name))
        act(name)
        m = Measurement(name, product(512), time=Estimate(100.0, 99.0, 101.0))
        description = {"choices": {"64": ["gate"], "512": ["timed"]}}
        pipe.send(Measured(line("measurement", m), description))
    time.sleep(FOR_EVER_S if "leaves a thread that leaves" in names else 0)
    pipe.send(Done())


def check(order: CheckOrder, pipe: Connection) -> None:
    """As worklog.runner.check.answer, but for the checking."""
    from worklog.runner.check import Checked  # here, since it takes a second
    from worklog.runs import Verdict, passed

    compiled = Compiled(Program("x.cu", "", "x"), "x", "sm_90", "", b"", 32, 0, 0, 0, 0, (), "")
    begun = Checked(order.kernel, Verdict((), None), order.shape, "live · NVIDIA H200", compiled)
    pipe.send(CheckBegun(begun))
    pipe.send(Progressed(0, "launch 1 at 64"))
    act(order.kernel.name)
    pipe.send(CheckEnded(replace(begun, verdict=Verdict((passed("all", "fine"),), "fp32"))))


if __name__ == "__main__":
    with answering() as (order, pipe):
        measure(order, pipe) if isinstance(order, MeasureOrder) else check(order, pipe)
