"""Whatever a kernel does to its process, here it is a verdict, what was finished is kept, and the next one runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lab.waiting import WAIT_S, gone, until
from worklog import device, worker
from worklog.brought import UserKernel
from worklog.callables import HostCallable
from worklog.check import Checked, check
from worklog.device import visible_to_a_child
from worklog.errors import BadSetting, ChildFailed, CompileFailed, GpuBusy, Interrupted, NoGpu, WorklogError
from worklog.gate import Verdict
from worklog.gate.verdict import passed, refused
from worklog.gemm import Shape
from worklog.harness import Harness
from worklog.kernels import Program
from worklog.ladder import Domain, rung
from worklog.nvrtc import UnknownEntry
from worklog.plans import Task
from worklog.process import job
from worklog.runs import Run

FOREIGN = (sys.executable, "-m", "tests.foreign_job")
ITSELF = worker.COMMAND
EMULATE = "run it with `worklog check --emulate`: it names the line"
SHAPE = Shape.of(512)


@pytest.fixture(autouse=True)
def foreign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(worker, "COMMAND", FOREIGN)
    monkeypatch.setenv("FOREIGN_PIDS", str(tmp_path / "pids"))
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path))


@pytest.fixture
def pids(tmp_path: Path) -> Callable[[], list[int]]:
    """Ids of the processes that wrote them down."""

    def read() -> list[int]:
        file = tmp_path / "pids"
        return list(map(int, file.read_text().split())) if file.exists() else []

    return read


def mine(name: str) -> UserKernel:
    return UserKernel(Program("x.cu", "", "x"), ("1", "1"), 1, Domain(), title=name)


def measure(*names: str, own: bool = True, **how: Any) -> Run:
    """The kernels measured, each for the first time."""
    brought = [mine(name) for name in dict.fromkeys(names)] if own else []
    return worker.carry_out([Task(name, SHAPE) for name in names], Harness(), brought=brought, **how)


# ------------------------------------------------------------------------------------------------------------- measure


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
import sys
from tests.test_worker import FOREIGN, Shape, UserKernel, measure, mine, worker
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
    assert str(found["wrong"].reason).startswith("refused at exact on ragged shapes: ")
    alone = "call it by itself in Python to see why"
    assert found["leaves"].reason == f"refused at process: its process left without an answer (exit code 0); {alone}"
    assert "exits raised SystemExit" in str(found["exits"].reason)
    assert found["first"].us == pytest.approx(found["last"].us, rel=0.01)
    assert found["last"].n >= 6 and found["last"].verdict is not None and found["last"].verdict["accepted"]
    assert run.kernels["last"]["label"] == "host-launched" and run.calibration["offset_us"] > 0
    assert run.device["name"] == "a virtual GPU" and run.software["cublas"] == "0"
    assert "from exits at 96x64x80 on: in a fresh process, calibrated again" in run.notes


# --------------------------------------------------------------------------------------------------------------- check


def test_a_check_comes_back_whole() -> None:
    told: list[str] = []
    checked = worker.check(mine("fine"), Shape.of(64), progress=lambda done, total, doing: told.append(doing))
    assert checked.verdict.accepted and checked.verdict.precision == "fp32"
    assert checked.compiled.registers == 32 and checked.shape == Shape.of(64)
    assert "launch 1 at 64" in told


def test_a_verdict_from_there_is_read_by_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host code can teach the gate's classes to say that every stage has passed."""
    right, wrong = passed("exact", "said"), replace(refused("precision", "class tf32", 7.0), passed=True)
    known = Checked(Verdict((right, wrong), "tf32"), Shape.of(64), "live", None, host=("x.py", "f"))
    assert known.verdict.accepted
    found = job.unpacked(json.loads(json.dumps(job.packed(known))))
    assert not found.verdict.accepted and found.verdict.reason == "precision: class tf32"
    assert (found.verdict.precision, found.verdict.stages[0]) == ("tf32", right)


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        ("segfaults", f"process: crashed: its process ended with SIGSEGV (Segmentation fault); {EMULATE}"),
        ("leaves", f"process: its process left without an answer (exit code 0); {EMULATE}"),
        ("illegal address", f"launch: running a kernel: cudaErrorIllegalAddress; {EMULATE}"),
        ("fills the memory", "memory: the host's memory is full: take a smaller size"),
        ("raises", f"process: raised ValueError: no such thing; {EMULATE}"),
        ("hangs", "process: hung: no progress for 2 s, so its process was ended; "),
    ],
)
def test_a_kernel_that_ends_its_process_is_refused(kernel: str, why: str, pids: Callable[[], list[int]]) -> None:
    checked = worker.check(mine(kernel), Shape.of(64), patience_s=2.0)
    assert not checked.verdict.accepted
    assert checked.verdict.reason is not None and checked.verdict.reason.startswith(why)
    assert checked.label == "live · NVIDIA H200"
    assert all(map(gone, pids()))


def test_an_error_in_a_check_is_raised_here_too() -> None:
    with pytest.raises(BadSetting, match="the grid has 0 blocks"):
        worker.check(mine("bad setting"), Shape.of(64))


@pytest.mark.parametrize("kernel", ["dies at once", "begins with nonsense"])
def test_a_check_that_did_not_begin_is_an_error(kernel: str) -> None:
    with pytest.raises(ChildFailed, match=r"exit code 5|no result"):
        worker.check(mine(kernel), Shape.of(64))


RIGHT = """\
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M || col >= N) return;
  float acc = 0.0f;
  for (int k = 0; k < K; ++k) acc += A[row * K + k] * B[k * N + col];
  C[row * N + col] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[row * N + col];
}
"""


@pytest.mark.parametrize(
    "source",
    [RIGHT, RIGHT.replace("col >= N", "col >= N - 1"), RIGHT.replace("A[row", "A[4000000 + row")],
    ids=["right", "wrong", "out of bounds"],
)
def test_the_emulators_verdict_is_the_same_from_there_as_from_here(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "COMMAND", ITSELF)
    kernel = UserKernel(Program("mine.cu", source, "mine"), ("(N + 15) // 16", "(M + 7) // 8"), (16, 8), Domain())
    there = worker.check(kernel, Shape(40, 24, 8), on="emulated", seed=7, patience_s=0.0)
    here = check(kernel, Shape(40, 24, 8), on="emulated", seed=7)
    assert [(s.name, s.passed, s.where) for s in there.verdict.stages] == [
        (s.name, s.passed, s.where) for s in here.verdict.stages
    ]
    assert (there.verdict.precision, there.findings) == (here.verdict.precision, here.findings)
    assert (there.label, there.shape, there.compiled.ptx) == (here.label, here.shape, here.compiled.ptx)


def test_a_gpu_that_is_not_there_is_an_error_of_the_same_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "COMMAND", ITSELF)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(NoGpu, match="no GPU to measure on"):
        worker.check(UserKernel.of(rung("naive")), on="gpu")


# ----------------------------------------------------------------------------------------------------------------- job


def answers(act: Callable[[job.Answers], object]) -> list[dict[str, Any]]:
    """What is said on a pipe."""
    ours, theirs = os.pipe()
    say = job.Answers({"answers": theirs, "nonce": "n"})
    act(say)
    say._pipe.close()
    with os.fdopen(ours) as pipe:
        return [json.loads(line) for line in pipe]


def test_each_measurement_is_told_once_and_as_soon_as_it_is_finished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scratch = tmp_path / "run.json"
    monkeypatch.setattr(job, "blank", lambda harness: {"harness": harness})
    monkeypatch.setattr(job, "require_context", lambda: None)

    def work(say: job.Answers) -> None:
        told = job.Told({"scratch": str(scratch), "harness": {}}, say)
        for done in range(3):
            scratch.write_text(json.dumps({"measurements": list(range(done))}))
            told(done, 2, "x")

    said = answers(work)
    assert [one["is"] for one in said] == ["ready", "progress", "measured", "progress", "measured", "progress"]
    assert [one["run"]["measurements"] for one in said if one["is"] == "measured"] == [[0], [1]]
    assert {one["nonce"] for one in said} == {"n"}


def test_a_folder_that_is_called_like_a_module_is_not_taken_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The child finds what this process finds, not what lies in the current folder."""
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(worker, "COMMAND", ITSELF)
    with pytest.raises(WorklogError, match="there is no rung 'nonsense'"):
        worker.measure(["nonsense"], [256])


def test_two_measurements_at_once_on_a_gpu_are_refused_with_the_ones_id(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with (
        job.locked(lock),
        pytest.raises(GpuBusy, match=f"process {os.getpid()} is measuring on this GPU"),
        job.locked(lock),
    ):
        raise AssertionError("both measure")
    with job.locked(lock):
        assert lock.read_text() == str(os.getpid())
    lock.unlink()
    lock.symlink_to(tmp_path / "precious")
    with pytest.raises(WorklogError, match="cannot open"), job.locked(lock):
        raise AssertionError("it followed a link")


def test_trials_share_the_gpu_with_each_other_and_not_with_a_measurement(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(job, "_lock_file", lambda: tmp_path / "gpu.lock")
    waited: list[str] = []

    def leaves() -> None:
        waited.append("once more")
        if len(waited) == 2:
            first.close()

    with ExitStack() as first:
        first.enter_context(job.among_trials(alone=False, waits=leaves))
        with job.among_trials(alone=False, waits=leaves):
            assert waited == []
            with pytest.raises(GpuBusy, match="is measuring on this GPU"), job.alone_on_the_gpu():
                raise AssertionError("it measures beside trials")
        with job.among_trials(alone=True, waits=leaves):
            assert waited == ["once more"] * 2
    with (
        job.alone_on_the_gpu(),
        pytest.raises(GpuBusy, match="is measuring on this GPU"),
        job.among_trials(alone=False, waits=leaves),
    ):
        raise AssertionError("it tries beside a measurement")


@pytest.mark.parametrize(
    ("before", "now"), [(None, "0"), ("3,5", "3"), ("GPU-8932f937, GPU-1", "GPU-8932f937"), ("", ""), ("-1", "-1")]
)
def test_it_sees_one_gpu(monkeypatch: pytest.MonkeyPatch, before: str | None, now: str) -> None:
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if before is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    assert visible_to_a_child() == now
    assert worker.environment()["CUDA_VISIBLE_DEVICES"] == now


@pytest.mark.parametrize(("named", "visible"), [(None, "1"), ("4,7", "7")])
def test_it_sees_the_gpu_that_is_current_here(monkeypatch: pytest.MonkeyPatch, named: str | None, visible: str) -> None:
    chosen = SimpleNamespace(getDevice=lambda: 1)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=chosen)))  # type: ignore[misc]
    monkeypatch.setattr(device, "gpu_reason", lambda: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert visible_to_a_child() == visible


class OutOfMemoryError(MemoryError):
    """As CuPy's and PyTorch's are called."""


@pytest.mark.parametrize(
    ("error", "whose"),
    [
        (RuntimeError("cudaErrorMemoryAllocation: out of memory"), "the GPU's memory is full"),
        (OutOfMemoryError("Out of memory allocating 512 bytes"), "the GPU's memory is full"),
        (MemoryError(), "the host's memory is full"),
    ],
)
def test_full_memory_is_told_by_whose_it_is(error: Exception, whose: str) -> None:
    assert whose in str(job.memory_is_full(error))
    assert job.memory_is_full(ValueError("out of luck")) is None
