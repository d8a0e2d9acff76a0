"""The way of one live measurement through our code, traced on the virtual GPU.

`python -m tests.steps` prints it.

`worklog run FILE.py:product --size 256` runs in this process and its child; the virtual GPU stands
in for CUDA.

Steps: our functions on the longest chain of calls from the command's function to the one that
starts the child, from the child's main to the one that calls the kernel in the timed loop, to the
one that sends the answer, and, in the parent again, to the one that writes the file. Files: those
that hold a step or a function that a step calls.
"""

import json
import os
import runpy
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from io import IOBase
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner

from worklog.cli import main
from worklog.gpu import device

ROOT = Path(__file__).parents[1]
OURS = f"{ROOT / 'worklog'}{os.sep}"
KERNEL = """\
from tests.exploits.arrays import xp

def product(alpha, A, B, beta, C):
    xp.gemm(alpha, A, B, beta, C)
"""


def function(frame: FrameType | None) -> str:
    """Our function that a frame runs, as "file:name", else "".

    A comprehension or a module's own code is none.
    """
    if (
        frame is None
        or frame.f_code.co_name.startswith("<")
        or not frame.f_code.co_filename.startswith(OURS)
    ):
        return ""
    return f"{frame.f_code.co_filename.removeprefix(OURS)}:{frame.f_code.co_qualname}"


def chain(frame: FrameType | None) -> list[str]:
    """Our functions on the stack, outermost first."""
    names = []
    while frame is not None:
        names.append(function(frame))
        frame = frame.f_back
    return [name for name in reversed(names) if name]


class Trace:
    """A profiler.

    The chain to each call of the kernel and to each write in runner/ or runs/, and who calls
    whom.
    """

    def __init__(self) -> None:
        self.calls: set[tuple[str, str]] = set()
        self.to_kernel: list[list[str]] = []
        self.to_write: list[list[str]] = []

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and (callee := function(frame)):
            self.calls.add((function(frame.f_back), callee))
        elif event == "call" and frame.f_code.co_name == "product":
            self.to_kernel.append(chain(frame))
        elif (
            event == "c_call"
            and arg.__name__ == "write"
            and isinstance(arg.__self__, (IOBase, ModuleType))
        ):
            names = chain(frame)
            if names and names[-1].startswith(("runner", "runs")):
                self.to_write.append(names)


def trace_child(report: Path) -> None:
    """Trace the child: tests.virtual.job. It ends by os._exit."""
    trace = Trace()
    leave = os._exit

    def write_and_leave(code: int) -> None:
        sys.setprofile(None)
        timed = [
            names for names in trace.to_kernel if any(name.startswith("harness") for name in names)
        ]
        answer = trace.to_write[-1]
        report.write_text(
            json.dumps(
                {"calls": sorted(trace.calls), "timed": max(timed, key=len), "answer": answer}
            )
        )
        leave(code)

    with patch.object(os, "_exit", write_and_leave):
        sys.setprofile(trace)
        sys.argv = ["tests.virtual.job"]
        runpy.run_module("tests.virtual.job", run_name="__main__")


def way() -> tuple[list[str], list[str]]:
    """Return the steps, in their order, and the files."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as patches:
        kernel = Path(folder, "mine.py")
        report = Path(folder, "child.json")
        start = subprocess.Popen
        kernel.write_text(KERNEL)
        started: list[list[str]] = []

        def start_traced(command: Any, *args: Any, **how: Any) -> Any:
            if any(str(word).startswith("worklog.runner.") for word in command):
                started.append(chain(sys._getframe(1)))
                command = (sys.executable, "-m", "tests.steps", str(report))
            return start(command, *args, **how)

        patches.enter_context(patch.object(subprocess, "Popen", start_traced))
        reason = device.gpu_reason
        for module in [
            module for name, module in sys.modules.items() if name.startswith("worklog")
        ]:
            if getattr(module, "gpu_reason", None) is reason:
                patches.enter_context(patch.object(module, "gpu_reason", lambda: None))
        trace = Trace()
        sys.setprofile(trace)
        done = CliRunner().invoke(
            main, ["run", f"{kernel}:product", "--size", "256", "--out", f"{folder}/run"]
        )
        sys.setprofile(None)
        assert done.exit_code == 0, done.output
        child = json.loads(report.read_text())
    to_child = started[0]
    to_file = max(trace.to_write, key=len)
    begin = to_child.index("cli/run.py:run")
    steps = list(
        dict.fromkeys([*to_child[begin:], *child["timed"], *child["answer"], *to_file[begin:]])
    )
    calls = {*trace.calls, *map(tuple, child["calls"])}
    entered = {*steps, *(callee for caller, callee in calls if caller in steps)}
    return steps, sorted({name.partition(":")[0] for name in entered})


if __name__ == "__main__":
    if sys.argv[1:]:
        trace_child(Path(sys.argv[1]))
    else:
        steps, files = way()
        print(*steps, f"{len(steps)} steps", "", *files, f"{len(files)} files", sep="\n")
