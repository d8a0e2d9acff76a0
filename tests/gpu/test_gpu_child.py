"""Whatever a kernel does to the GPU, its process ends in a verdict, this one's CUDA context is as it was, and the next
kernel runs.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.waiting import gone, until
from worklog.bench.check import Checked, check_in_child
from worklog.bench.child import Stop
from worklog.bench.measure import carry_out, measure
from worklog.bench.tasks import Task
from worklog.errors import GpuBusy, Interrupted, OutOfMemory
from worklog.gpu.device import gpu
from worklog.harness import Harness
from worklog.kernel import Kernel
from worklog.problem.gemm import Shape
from worklog.runs.run import Run

MEASURED_S = 120.0
HANGS_S = 15.0
PROMISED_S = 2.0  # between a cancel and an end
EMULATE = "run it with `worklog check --emulate`: it names the line"
SHAPE = Shape.of(512)
GOOD = """\
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M || col >= N) return;
  float acc = 0.0f;
  for (int k = 0; k < K; ++k) acc += A[row * K + k] * B[k * N + col];
  C[row * N + col] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[row * N + col];
}
"""
LATE = "if (M == 512) "  # right on the gate's small shapes
ILLEGAL = GOOD.replace("float acc", "C[(size_t)1 << 40] = 0.0f;\n  float acc")
ENDLESS = GOOD.replace("float acc", LATE + "while (clock64() != 0) {}\n  float acc")
TALKING = GOOD.replace("float acc", 'if (M == 1 && row + col == 0) printf("row %d\\n", row);\n  float acc')


def kernel(source: str, title: str = "mine") -> Kernel:
    return Kernel(title, f"{title}.cu", "mine", grid="(N + 31) / 32, (M + 7) / 8", block="32, 8", text=source)


def refused(checked: Checked) -> str:
    assert not checked.verdict.accepted
    return str(checked.verdict.reason)


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    """A context of this process's own, which has to be as it was."""
    import cupy

    held = cupy.arange(1 << 20, dtype=cupy.int64)
    yield
    assert int(held.sum()) == (1 << 20) * ((1 << 20) - 1) // 2


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path))


def test_an_illegal_address_and_then_a_good_kernel() -> None:
    reason = refused(check_in_child(kernel(ILLEGAL), SHAPE))
    assert "cudaErrorIllegalAddress" in reason and reason.endswith(EMULATE)
    good = check_in_child(kernel(GOOD), SHAPE)
    assert good.verdict.accepted and good.label == f"live · {gpu().name}"
    assert good.compiled is not None and good.compiled.registers > 0


def test_an_illegal_address_in_a_run_costs_only_its_own_row() -> None:
    own = [kernel(GOOD, "first"), kernel(ILLEGAL, "illegal"), kernel(GOOD, "last")]
    run = measure([*own, "naive"], [SHAPE])
    assert [m.status for m in run.measurements] == ["measured", "refused", "measured", "measured"]
    reason = str(run.measurements[1].reason)
    assert "cudaErrorIllegalAddress" in reason and reason.endswith(EMULATE)
    assert run.complete and "from last at 512 on: in a fresh process, calibrated again" in run.notes
    assert run.kernels["last"]["registers"] > 0 and run.calibration["offset_us"] > 0
    assert run.path is not None and Run.load(run.path).measurements == run.measurements
    us = {m.kernel: m.us for m in run.measurements}
    assert us["first"] == pytest.approx(us["last"], rel=0.1)


BROKEN = """
import cupy
from tests.gpu.test_gpu_child import GOOD, SHAPE, kernel
from worklog.bench.check import check_in_child
from worklog.bench.child import Stop
from worklog.bench.measure import carry_out, measure
try:
    cupy.RawKernel('extern "C" __global__ void bad(int* p) { p[1l << 40] = 1; }', "bad")((1,), (1,), (cupy.zeros(1),))
    cupy.cuda.runtime.deviceSynchronize()
except cupy.cuda.runtime.CUDARuntimeError:
    print(check_in_child(kernel(GOOD), SHAPE).verdict.accepted, flush=True)
    os._exit(0)
"""


def test_a_notebook_that_lost_its_own_context_still_checks() -> None:
    command = (sys.executable, "-c", "import os\n" + BROKEN)
    done = subprocess.run(command, capture_output=True, text=True, timeout=MEASURED_S)
    assert done.stdout == "True\n", done.stderr


def pressed_when(doing: str, act: Callable[..., Any]) -> float:
    """Seconds between a Stop and the end of what works, pressed once it is at some step for a while."""
    stop, at, ended = Stop(), threading.Event(), threading.Event()

    def tell(done: int, total: int, what: str) -> None:
        if doing in what:
            at.set()

    def work() -> None:
        with pytest.raises(Interrupted):
            act(progress=tell, stop=stop)
        ended.set()

    threading.Thread(target=work, daemon=True).start()
    assert at.wait(MEASURED_S)
    time.sleep(5.0)  # until the kernel runs
    pressed = time.monotonic()
    stop.press()
    took = time.monotonic() - pressed
    assert stop.pid is not None and gone(stop.pid)
    assert ended.wait(10.0)
    return took


def test_an_endless_kernel_is_cancelled_and_then_a_good_one_runs(tmp_path: Path) -> None:
    own = [kernel(GOOD, "good"), kernel(ENDLESS, "endless")]
    tasks = [Task("good", SHAPE), Task("endless", SHAPE), Task("good", Shape.of(256))]
    out = tmp_path / "run.json"

    def act(**how: Any) -> None:
        carry_out(tasks, Harness(), user_kernels=own, out=out, **how)

    took = pressed_when("endless", act)
    print(f"cancelled in {took:.2f} s")
    assert took < PROMISED_S
    assert [m.kernel for m in Run.load(out).measurements] == ["good"]
    assert measure([own[0]], [SHAPE]).measurements[0].status == "measured"


def test_an_endless_kernel_is_refused_when_patience_ends() -> None:
    reason = refused(check_in_child(kernel(ENDLESS), SHAPE, patience_s=HANGS_S))
    assert reason == f"process: hung: no progress for 15 s, so its process was ended; {EMULATE}"
    assert check_in_child(kernel(GOOD), SHAPE).verdict.accepted


def test_an_endless_kernel_in_a_run_costs_only_its_own_row() -> None:
    own = [kernel(ENDLESS, "endless"), kernel(GOOD, "good")]
    run = carry_out([Task(one.name, SHAPE) for one in own], Harness(budget_s=1.0), user_kernels=own, patience_s=20.0)
    assert [m.status for m in run.measurements] == ["refused", "measured"]
    assert "hung: no progress for 21 s" in str(run.measurements[0].reason)


def test_full_gpu_memory_is_said() -> None:
    import cupy

    spare = 1 << 30  # for the other process's context, but not for matrices of 8192 x 8192
    free, _ = cupy.cuda.runtime.memGetInfo()
    held = cupy.cuda.alloc(free - spare)
    try:
        assert "memory" in refused(check_in_child(kernel(GOOD), Shape.of(8192)))
        with pytest.raises(OutOfMemory, match="GPU"):
            measure(["naive"], [8192])
    finally:
        del held
        cupy.get_default_memory_pool().free_all_blocks()
    assert check_in_child(kernel(GOOD), SHAPE).verdict.accepted


def test_a_gpu_without_room_for_a_context_is_said() -> None:
    import cupy

    held = []
    for size in (1 << 30, 1 << 26, 1 << 21):
        try:
            while True:
                held.append(cupy.cuda.Memory(size))
        except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError):
            continue
    try:
        with pytest.raises(OutOfMemory, match="memory"):
            measure(["naive"], [256])
    finally:
        held.clear()
    assert measure(["naive"], [256]).complete


def test_two_at_once_are_refused_and_the_first_goes_on() -> None:
    stop, at, runs = Stop(), threading.Event(), list[Run]()

    def tell(done: int, total: int, doing: str) -> None:
        if "naive" in doing:
            at.set()

    def work() -> None:
        runs.append(carry_out([Task("naive", Shape.of(4096))], Harness(), progress=tell, stop=stop))

    works = threading.Thread(target=work)
    works.start()
    assert at.wait(MEASURED_S)
    with pytest.raises(GpuBusy, match=f"process {stop.pid} is measuring on this GPU"):
        measure(["naive"], [256])
    works.join(MEASURED_S)
    assert runs[0].complete


def test_what_a_kernel_prints_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    assert check_in_child(kernel(TALKING), SHAPE).verdict.accepted
    assert "row 0\n" in capfd.readouterr().err


HOST = """\
import ctypes, os, subprocess, sys, time
from pathlib import Path

import cupy


def leaves(alpha, A, B, beta, C):
    os._exit(0)


def crashes(alpha, A, B, beta, C):
    ctypes.string_at(0)


def hangs(alpha, A, B, beta, C):
    ctypes.PyDLL(None).sleep(300)


def starts_another(alpha, A, B, beta, C):
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    Path("pid").write_text(str(other.pid))
    os._exit(0)


def fills_the_gpu(alpha, A, B, beta, C):
    held = []
    while True:
        held.append(cupy.cuda.Memory(1 << 30))


def right(alpha, A, B, beta, C):
    product = cupy.float32(alpha) * (A @ B)
    cupy.copyto(C, product if beta == 0 else product + cupy.float32(beta) * C)
"""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Kernel]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "host.py").write_text(HOST)
    return lambda function: Kernel.from_function(f"host.py:{function}")


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("leaves", "its process exited without an answer (exit code 0)"),
        ("crashes", "SIGSEGV"),
        ("hangs", "hung: no progress for 15 s"),
        ("starts_another", "its process exited without an answer (exit code 0)"),
        ("fills_the_gpu", "emory"),
    ],
)
def test_host_code_ends_only_its_own_process(
    function: str, why: str, host: Callable[[str], Kernel], tmp_path: Path
) -> None:
    assert why in refused(check_in_child(host(function), SHAPE, patience_s=HANGS_S))
    if function == "starts_another":
        until(lambda: gone(int((tmp_path / "pid").read_text())))
    assert check_in_child(host("right"), SHAPE).verdict.accepted


def test_host_code_that_leaves_a_run_costs_only_its_own_row(host: Callable[[str], Kernel]) -> None:
    run = measure([host("leaves"), host("right")], [SHAPE])
    assert [m.status for m in run.measurements] == ["refused", "measured"]
    assert "exited without an answer (exit code 0)" in str(run.measurements[0].reason)
