"""From a kernel to a run on a real GPU: right kernels are measured, wrong ones fail.

A kernel that damages its CUDA context or never ends gets a verdict, the context of this process
stays as it was, and the next kernel runs. (Damage to its process on the host: tests/runner.)
"""

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import worklog
from tests.gpu.conftest import QUICK
from tests.helpers import PLAIN
from tests.lab.waiting import gone
from worklog.errors import Interrupted, LaunchFailed, NoGpu, OutOfMemory
from worklog.gate import SgemmChecker
from worklog.gate.guarded_buffer import Memory
from worklog.gpu.device import environment, gpu
from worklog.harness import Harness
from worklog.kernel import Kernel, Program
from worklog.kernel.ladder import rung
from worklog.kernel.ladder.rungs import LADDER
from worklog.kernel.launch import Launch
from worklog.problem import Shape
from worklog.runner.check import Checked, check_in_child
from worklog.runner.execute import carry_out, order_of
from worklog.runner.job import product_job
from worklog.runner.measure import measure
from worklog.runner.timing import own_session
from worklog.runs import CUBLAS, Run, open_run

NAMES = [record.name for record in LADDER]
SMALL = Shape.of(512)

# A launch finds NaN in the memory that the gate fouled before it.
FOUND = {
    "shared": "__shared__ volatile float slots[64]; const float found = slots[threadIdx.x % 64];",
    "local": (
        "volatile float slots[64]; const float found = slots[(threadIdx.x + blockIdx.x) % 64];"
    ),
}


@pytest.mark.parametrize("memory", FOUND)
def test_a_launch_finds_no_number_in_memory_that_it_did_not_write(memory, session):
    device = session.device
    blocks = 2048
    threads = 128
    body = f"{FOUND[memory]} out[blockIdx.x * blockDim.x + threadIdx.x] = found;"
    kernel = device.compile(
        Program("finds.cu", f"__global__ void finds(float* out) {{ {body} }}", "finds")
    )
    gate = Memory(device, np.random.default_rng(0))
    out = device.upload(np.zeros(blocks * threads, np.float32))
    device.launch(
        kernel, (blocks, 1), threads, (out,)
    )  # what a module's first launch allocates is clean
    gate.foul()
    device.launch(kernel, (blocks, 1), threads, (out,))
    assert np.isnan(device.download(out)).mean() > 0.5


@pytest.mark.parametrize("name", [*NAMES, CUBLAS])
def test_every_rung_and_cublas_pass(session, name):
    verdict = session.verdict(name, SMALL)
    assert verdict.accepted, verdict.reason
    assert verdict.precision == "fp32"
    (precision,) = (stage for stage in verdict.stages if stage.name == "precision")
    assert 0 < precision.measured < precision.limit / 2


def test_cublas_passes_at_any_shape(session):
    for shape in (Shape(384, 640, 256), Shape(1, 1, 1), Shape(1000, 17, 333)):
        verdict = SgemmChecker(session.device, shape, seed=1).check(session.baselines["fp32"])
        assert verdict.accepted, (shape, verdict.reason)


def test_cublas_with_tf32_passes_as_tf32_only(session, monkeypatch):
    checker = SgemmChecker(session.device, SMALL, seed=1)
    tf32 = session.baselines["tf32"]
    assert checker.check(tf32).precision == "tf32"
    monkeypatch.setattr(tf32, "claimed", "fp32")
    assert not checker.check(tf32).accepted
    a, b, c = checker.buffers.abc
    checker.buffers.poison()
    tf32.enqueue(SMALL, 1.0, a, b, 0.0, c)
    timed = checker.check_timed_output(tf32)
    assert not timed.passed and "class tf32" in timed.detail


def test_an_illegal_launch_fails_and_the_session_goes_on(session, measured):
    kernel = session.device.compile(rung("naive").program)
    with pytest.raises(LaunchFailed, match="launching a kernel"):
        session.device.launch(kernel, (1, 1), 4096, ())
    text = rung("naive").source
    wide = Kernel.from_source(
        text, entry=rung("naive").program.entry, name="wide", grid="M, N", block="64, 64"
    )
    found = measured(wide, Shape.of(256))
    assert (found.status, found.us) == ("failed", None) and "launch" in str(found.reason)
    assert measured("coalesced", Shape.of(256)).us is not None


@pytest.mark.parametrize(
    "changed", [{}, {"l2": "warm"}, {"timer": "graph", "l2": "rotate"}], ids=str
)
def test_best_and_split_are_measured_as_any_rung_with_every_state_of_the_cache(changed):
    names = ["best", "split"] if gpu().compute_capability == (9, 0) else ["best"]
    run = measure(names, [(1021, 1021, 1021), (128, 128, 16384)], harness=QUICK.but(**changed))
    assert [m.status for m in run.measurements] == ["measured"] * 2 * len(names), run
    assert set(run.kernels["best"]["choices"]) == {"1021", "128x128x16384"}


def test_a_run_holds_all_that_its_numbers_need(home):
    run = measure(["naive", CUBLAS], [256, (256, 128, 512)], harness=QUICK)
    assert run.complete and run.path is not None and run.path.parent == home / "runs"
    with pytest.raises(OutOfMemory, match="take a smaller size"):
        measure(["naive"], [400_000])
    loaded = open_run()
    assert loaded.path == run.path and loaded.measurements == run.measurements
    assert run.label.startswith(f"live · {gpu().name} · clocks as found")
    assert run.kernels["naive"]["sha256"] == rung("naive").program.code_sha256
    assert run.kernels["naive"]["registers"] > 0
    assert run.software["cublas"] and run.software["cuda_driver"]
    for m in run.measurements:
        assert m.us_low <= m.us <= m.us_high
        stages = [stage.name for stage in m.verdict.stages]
        assert {"every timed launch", "plausible"} <= {*stages}
        assert m.n >= QUICK.least_samples
        assert len(m.samples.sides[0].us) == len(m.samples.sides[0].sm_mhz) == len(m.samples.counts)
        assert m.sm_mhz is not None and 300 < m.sm_mhz < 4000


def test_at_4096_every_rung_is_faster_than_the_one_before(measured):
    """But for `pipelined`, whose tile is a smaller one.

    Two reach the article's shares, 84.8 % and 93.7 % of cuBLAS.
    """
    if "H200" not in gpu().name:
        pytest.skip(f"tiles were chosen for an H200, this is {gpu().name}")
    found = {
        name: measured(name, Shape.of(4096), Harness().but(budget_s=0.5, precision=0.01))
        for name in NAMES
    }
    assert {m.status for m in found.values()} == {"measured"}, {
        name: m.reason for name, m in found.items()
    }
    times = {name: found[name].us or 0.0 for name in NAMES if name != "pipelined"}
    assert list(times.values()) == sorted(times.values(), reverse=True), times
    shares = {name: found[name].ratio or 0.0 for name in ("autotuned", "warptiled")}
    assert shares["autotuned"] >= 0.848 and shares["warptiled"] >= 0.937, shares


MEASURED_S = 120.0
PROMISED_S = 2.0  # between a cancel and the end of the process
ILLEGAL = PLAIN.replace("float acc", "C[(size_t)1 << 40] = 0.0f;\n  float acc")
ENDLESS = PLAIN.replace(
    "float acc", "if (M == 512) while (clock64() != 0) {}\n  float acc"
)  # the gate's shapes end
PRINTS = PLAIN.replace(
    "float acc", 'if (M == 1 && row + col == 0) printf("row %d\\n", row);\n  float acc'
)


def kernel(source: str, name: str = "mine") -> Kernel:
    return Kernel(
        name,
        Program(f"{name}.cu", source, ""),
        (Launch("mine", "(N + 31) / 32, (M + 7) / 8", "32, 8"),),
    )


def reason(checked: Checked) -> str:
    assert not checked.verdict.accepted
    return str(checked.verdict.reason)


@pytest.fixture(autouse=True)
def context():
    """Yield a context of this process, which must be as it was."""
    import cupy

    held = cupy.arange(1 << 20, dtype=cupy.int64)
    yield
    assert int(held.sum()) == (1 << 20) * ((1 << 20) - 1) // 2


def test_an_illegal_address_fails_only_its_own_kernel():
    own = [kernel(PLAIN, "first"), kernel(ILLEGAL, "illegal"), kernel(PLAIN, "last")]
    run = measure(own, [SMALL], harness=QUICK)
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
from tests.gpu.test_gpu_measure import PRINTS, SMALL, check_in_child, kernel
try:
    source = 'extern "C" __global__ void bad(int* p) { p[1l << 40] = 1; }'
    cupy.RawKernel(source, "bad")((1,), (1,), (cupy.zeros(1),))
    cupy.cuda.runtime.deviceSynchronize()
except cupy.cuda.runtime.CUDARuntimeError:
    print(check_in_child(kernel(PRINTS), SMALL).verdict.accepted, flush=True)
    os._exit(0)
"""


def test_a_notebook_that_lost_its_own_context_still_checks_and_what_a_kernel_prints_is_shown():
    done = subprocess.run(
        (sys.executable, "-c", LOST), capture_output=True, text=True, timeout=MEASURED_S
    )
    assert done.stdout == "True\n" and "row 0\n" in done.stderr, done.stderr


def test_an_endless_kernel_is_cancelled_and_the_gpu_is_free_for_the_next_one(tmp_path):
    """While it runs, a second run fails with the id of the process that measures."""
    own = [kernel(PLAIN, "good"), kernel(ENDLESS, "endless")]
    stop, at, ended, out = *(threading.Event() for _ in range(3)), tmp_path / "run.json"

    def progress(done: int, total: int, doing: str) -> None:
        if "endless" in doing:
            at.set()

    def work() -> None:
        tasks = [product_job(one.name, SMALL) for one in own]
        with pytest.raises(Interrupted):
            carry_out(order_of(tasks, QUICK, own), out=out, progress=progress, stop=stop)
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
    assert check_in_child(own[0], SMALL).verdict.accepted


SHIFTED = PLAIN.replace(
    "A[row * K", "((const float*)((size_t)A & ~15ull))[(size_t(A) & 15) + row * K"
)


def test_what_only_the_emulator_sees_fails_a_check_on_a_gpu():
    assert check_in_child(kernel(SHIFTED), SMALL, emulate=False).verdict.accepted
    assert " (emulated)" in reason(check_in_child(kernel(SHIFTED), SMALL))


def test_a_gpu_whose_memory_is_full_is_reported():
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
    checked = check_in_child(kernel(PLAIN), SMALL)
    assert (
        checked.verdict.accepted
        and checked.label == f"live · {gpu().name} · beside emulated · sm_90 PTX"
    )


def test_what_never_ran_on_the_emulator_is_named_beside_a_gpu():
    source = PLAIN.replace("float acc = 0.0f;", "float acc = 0.0f; if (M == 50000021) acc = 1.0f;")
    checked = check_in_child(kernel(source), SMALL)
    assert "never ran: M == 50000021" in checked.verdict.result


def test_the_gpu_that_is_current_is_the_one_that_measures():
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


def test_a_build_of_a_revision_takes_turns_with_the_same_source_and_is_the_same(tmp_path):
    (tmp_path / "mine.cu").write_text(rung("warptiled").source)
    for words in ("init -q", "add mine.cu", "-c user.name=x -c user.email=x@x commit -qm x"):
        subprocess.run(["git", *words.split()], check=True, cwd=tmp_path)
    command = [
        sys.executable,
        "-m",
        "worklog",
        "run",
        "mine.cu",
        "--size",
        "1024",
        "--against-revision",
        "HEAD",
    ]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^1 (same|cannot tell) · threshold 2 %$", done.stdout, re.MULTILINE), (
        done.stdout
    )
    (run,) = (Run.load(Path(name)) for name in re.findall(r"run saved: (.*)", done.stdout))
    assert run.tool["command"] == command[3:] and run.gpu.uuid.startswith("GPU-")
