"""A kernel that damages its CUDA context or never ends gets a verdict, the context of this process stays as it was,
and the next kernel runs. (Damage to its process on the host: tests/runner.)
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import worklog
from tests.gpu.conftest import QUICK
from tests.helpers import PLAIN
from tests.lab.waiting import gone
from worklog.errors import Interrupted, NoGpu, OutOfMemory
from worklog.gpu.device import gpu
from worklog.kernel import Kernel, Program
from worklog.kernel.signature import Launch
from worklog.problem.gemm import Shape
from worklog.runner.check import Checked, check_in_child
from worklog.runner.child import environment
from worklog.runner.job import Job
from worklog.runner.measure import carry_out, measure
from worklog.runner.timing import own_session
from worklog.runs.run import Run

MEASURED_S = 120.0
PROMISED_S = 2.0  # between a cancel and the end of the process
SHAPE = Shape.of(512)
ILLEGAL = PLAIN.replace("float acc", "C[(size_t)1 << 40] = 0.0f;\n  float acc")
ENDLESS = PLAIN.replace("float acc", "if (M == 512) while (clock64() != 0) {}\n  float acc")  # the gate's shapes end
PRINTS = PLAIN.replace("float acc", 'if (M == 1 && row + col == 0) printf("row %d\\n", row);\n  float acc')


def kernel(source: str, name: str = "mine") -> Kernel:
    return Kernel(name, Program(f"{name}.cu", source, ""), (Launch("mine", "(N + 31) / 32, (M + 7) / 8", "32, 8"),))


def reason(checked: Checked) -> str:
    assert not checked.verdict.accepted
    return str(checked.verdict.reason)


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    """A context of this process, which must be as it was."""
    import cupy

    held = cupy.arange(1 << 20, dtype=cupy.int64)
    yield
    assert int(held.sum()) == (1 << 20) * ((1 << 20) - 1) // 2


def test_an_illegal_address_fails_only_its_own_kernel() -> None:
    own = [kernel(PLAIN, "first"), kernel(ILLEGAL, "illegal"), kernel(PLAIN, "last")]
    run = measure(own, [SHAPE], harness=QUICK)
    assert [m.status for m in run.measurements] == ["measured", "failed", "measured"]
    failed = str(run.measurements[1].reason)
    assert "cudaErrorIllegalAddress" in failed and "worklog check --emulate" in failed
    assert run.complete and any("fresh process" in note for note in run.notes)
    assert run.kernels["last"]["registers"] > 0 and run.calibration.offset_us > 0
    assert run.path is not None and Run.load(run.path).measurements == run.measurements
    us = {m.kernel: m.us for m in run.measurements}
    assert us["first"] == pytest.approx(us["last"], rel=0.1)


LOST = """
import os, cupy
from tests.gpu.test_gpu_child import PRINTS, SHAPE, check_in_child, kernel
try:
    cupy.RawKernel('extern "C" __global__ void bad(int* p) { p[1l << 40] = 1; }', "bad")((1,), (1,), (cupy.zeros(1),))
    cupy.cuda.runtime.deviceSynchronize()
except cupy.cuda.runtime.CUDARuntimeError:
    print(check_in_child(kernel(PRINTS), SHAPE).verdict.accepted, flush=True)
    os._exit(0)
"""


def test_a_notebook_that_lost_its_own_context_still_checks_and_what_a_kernel_prints_is_shown() -> None:
    done = subprocess.run((sys.executable, "-c", LOST), capture_output=True, text=True, timeout=MEASURED_S)
    assert done.stdout == "True\n" and "row 0\n" in done.stderr, done.stderr


def test_an_endless_kernel_is_cancelled_and_the_gpu_is_free_for_the_next_one(tmp_path: Path) -> None:
    """While it runs, a second run fails with the id of the process that measures."""
    own = [kernel(PLAIN, "good"), kernel(ENDLESS, "endless")]
    stop, at, ended, out = *(threading.Event() for _ in range(3)), tmp_path / "run.json"

    def progress(done: int, total: int, doing: str) -> None:
        if "endless" in doing:
            at.set()

    def work() -> None:
        tasks = [Job(one.name, SHAPE) for one in own]
        with pytest.raises(Interrupted):
            carry_out(tasks, QUICK, user_kernels=own, out=out, progress=progress, stop=stop)
        ended.set()

    threading.Thread(target=work, daemon=True).start()
    assert at.wait(MEASURED_S)
    with pytest.raises(NoGpu, match="is measuring on this GPU") as busy:
        measure(["naive"], [256])
    (pid,) = map(int, re.findall(r"process (\d+)", str(busy.value)))
    time.sleep(2.0)  # until the kernel runs
    pressed = time.monotonic()
    stop.set()
    assert ended.wait(10.0)
    took = time.monotonic() - pressed
    print(f"cancelled in {took:.2f} s")
    assert took < PROMISED_S and gone(pid)
    assert [m.kernel for m in Run.load(out).measurements] == ["good"]
    assert check_in_child(own[0], SHAPE).verdict.accepted


def test_a_gpu_whose_memory_is_full_is_reported() -> None:
    import cupy

    spare = 1 << 30  # for the context of another process, but not for matrices of 8192 x 8192
    free, _ = cupy.cuda.runtime.memGetInfo()
    held = [cupy.cuda.Memory(free - spare)]
    try:
        assert "memory" in reason(check_in_child(kernel(PLAIN), Shape.of(8192)))
        for size in (1 << 26, 1 << 21):  # now not even a context
            try:
                while True:
                    held.append(cupy.cuda.Memory(size))
            except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError):
                continue
        with pytest.raises(OutOfMemory, match="memory"):
            measure(["naive"], [256])
    finally:
        held.clear()
    checked = check_in_child(kernel(PLAIN), SHAPE)
    assert checked.verdict.accepted and checked.label == f"live · {gpu().name}"


def test_the_gpu_that_is_current_is_the_one_that_measures() -> None:
    import cupy

    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    sessions = []
    for number in (0, 1, 0):
        with cupy.cuda.Device(number):
            assert environment()["CUDA_VISIBLE_DEVICES"].split(",")[0] == str(number)
            matrix = cupy.ones((1024, 1024), "float32")
            found = worklog.time(cupy.matmul, matrix, matrix, harness=QUICK)
            assert found.us and found.label.startswith(f"live · {gpu().name}")
            run = measure("naive", 256, harness=QUICK)
            assert run.gpu == gpu() and run.measurements[0].us
            sessions.append(own_session())
    assert sessions[0] is sessions[2] is not sessions[1]
