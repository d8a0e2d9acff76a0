"""The path from kernel to run on a real GPU: what is right is measured, what is wrong is refused, an interrupt keeps
what there is. The last test is the ladder's own promise, and is made for the GPU whose name it bears."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from worklog.bench import measure as bench
from worklog.bench.tasks import BASELINE
from worklog.errors import LaunchFailed, OutOfMemory, UnknownRung
from worklog.gate import Checker
from worklog.gpu.device import gpu
from worklog.harness import Harness
from worklog.kernel.device import Subject
from worklog.kernel.kernel import Kernel, Loaded
from worklog.kernel.ladder import LADDER, rung
from worklog.kernel.nvrtc import compile_cuda
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement, Run, open_run, runs_dir

ROOT = Path(__file__).parents[2]
NAMES = [r.name for r in LADDER]
QUICK = Harness().but(budget_s=1.0, precision=0.05)
SMALL = Shape.of(512)


@pytest.fixture(scope="module")
def session() -> Iterator[bench.Session]:
    yield bench.Session()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


# ----------------------------------------------------------------------------------------------------------------- gate


@pytest.mark.parametrize("name", [*NAMES, BASELINE])
def test_every_rung_and_cublas_are_accepted(session: bench.Session, name: str) -> None:
    verdict = session.verdict(name, SMALL)
    assert verdict.accepted, verdict.reason
    assert verdict.precision == "fp32"
    precision = verdict.stages[-1]
    assert 0 < precision.measured < precision.limit / 2


@pytest.mark.parametrize("shape", [Shape(384, 640, 256), Shape(1, 1, 1), Shape(1000, 17, 333)])
def test_cublas_is_accepted_on_any_shape(session: bench.Session, shape: Shape) -> None:
    verdict = Checker(session.device, shape, seed=1).check(session.baselines["fp32"])
    assert verdict.accepted, verdict.reason


def test_cublas_with_tf32_is_refused_as_tf32(session: bench.Session) -> None:
    exam = Checker(session.device, SMALL, seed=1)
    verdict = exam.check(session.baselines["tf32"])
    assert not verdict.accepted
    assert "low bits" in str(verdict.reason) or "elements are wrong" in str(verdict.reason)
    a, b, c = exam.buffers
    exam.poison()
    session.baselines["tf32"].enqueue(SMALL, 1.0, a, b, 0.0, c)
    timed = exam.check_timed_output(c)
    assert not timed.passed and "class tf32" in timed.detail


class Edited(Loaded):
    """A rung with one piece of its source, or its launch, replaced."""

    def __init__(self, session: bench.Session, record: Kernel, old: str = "", new: str = "") -> None:
        program = record.program
        assert old in program.source
        super().__init__(record, session.device, replace(program, source=program.source.replace(old, new)))


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        ("naive", "k < K; ++k", "k < K - 1; ++k", "exact on edge shapes"),
        ("naive", "if (row >= M || col >= N) return;", "if (row >= M - 1 || col >= N) return;", "never written"),
        ("coalesced", "row >= M || col >= N", "row >= M", "it wrote outside C"),
        ("coalesced", "beta * *c", "*c", "This is the answer if beta is taken for 1."),
        ("shared", "k0 < K", "k0 + BK < K", "exact on edge shapes"),
    ],
)
def test_a_broken_rung_is_refused(session: bench.Session, name: str, old: str, new: str, reason: str) -> None:
    verdict = Checker(session.device, SMALL, seed=1).check(Edited(session, rung(name), old, new))
    assert not verdict.accepted
    assert reason in str(verdict.reason)


# ------------------------------------------------------------------------------------------------------------ resources


@pytest.mark.parametrize("record", LADDER, ids=NAMES)
def test_resources_are_those_of_the_compiler(session: bench.Session, record: Kernel) -> None:
    subject = session.subject(record.name)
    assert isinstance(subject, Loaded)
    spent = subject.compiled.resources
    assert spent.local_bytes == 0, "nothing spills"
    assert 16 <= spent.registers <= 255
    program = record.program
    arch = "sm_" + "".join(map(str, gpu().compute_capability))
    alone = compile_cuda(program.source, program.entry, arch=arch, options=program.options)
    assert spent.shared_bytes == alone.shared_bytes
    # CuPy may compile with another NVRTC than the wheel's: near is near enough.
    assert abs(spent.registers - alone.registers) <= 16


# ------------------------------------------------------------------------------------------------------------ bad input


class TooManyThreads:
    """A kernel whose launch no GPU takes."""

    name = "too_many_threads"

    def __init__(self, session: bench.Session) -> None:
        self.inner = rung("naive").load(session.device)
        self.domain = self.inner.domain

    def enqueue(self, shape: Shape, alpha: float, a: object, b: object, beta: float, c: object) -> None:
        self.inner.device.launch(self.inner.compiled, (1, 1), 2048, ())


def test_an_illegal_launch_becomes_a_refused_row(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run goes on: the next kernel is measured."""
    real = bench.Session.subject

    def subject(self: bench.Session, name: str) -> Subject:
        return TooManyThreads(self) if name == "naive" else real(self, name)

    monkeypatch.setattr(bench.Session, "subject", subject)
    run = bench.measure(["naive", "coalesced"], [256], harness=QUICK)
    first, second = run.measurements
    assert (first.status, first.us) == ("refused", None)
    assert "launch" in str(first.reason)
    assert second.status == "measured" and second.us is not None


def test_a_wrong_kernel_gets_no_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = bench.Session.subject
    wrong: dict[int, Subject] = {}

    def subject(self: bench.Session, name: str) -> Subject:
        if name != "naive":
            return real(self, name)
        return wrong.setdefault(id(self), Edited(self, rung("naive"), "k < K; ++k", "k < K - 1; ++k"))

    monkeypatch.setattr(bench.Session, "subject", subject)
    (m,) = bench.measure(["naive"], [256], harness=QUICK).measurements
    assert (m.status, m.us, m.tflops, m.samples) == ("refused", None, None, {})
    assert m.verdict is not None and m.verdict["accepted"] is False


def test_the_articles_rule_lets_a_wrong_kernel_have_a_time_and_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.Session, "subject", lambda self, name: self.baselines["tf32"])
    (m,) = bench.measure(["naive"], [1024], harness=QUICK.but(gate="article")).measurements
    assert m.status == "measured" and m.verdict is not None and m.verdict["precision"] == "tf32"
    assert any(degradation.startswith("gate: the article") for degradation in m.degradations)
    (m,) = bench.measure(["naive"], [1024], harness=QUICK).measurements
    assert m.status == "refused"


def test_a_time_that_cannot_be_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peak that is set too low stands in for a time that is too short."""
    slow = replace(gpu(), sm_clock_mhz=0.001)
    monkeypatch.setattr(bench, "gpu", lambda: slow)
    (m,) = bench.measure(["coalesced"], [512], harness=QUICK).measurements
    assert (m.status, m.us) == ("refused", None) and "plausible" in str(m.reason)


@pytest.mark.parametrize("l2", ["flush", "rotate", "warm"])
def test_a_right_kernel_is_accepted_whatever_the_cache(home: Path, l2: str) -> None:
    (m,) = bench.measure(["coalesced"], [512], harness=QUICK.but(l2=l2)).measurements
    assert m.status == "measured", m.reason


def test_the_gate_is_cheap_at_4096(session: bench.Session) -> None:
    exam = session.checker(Shape.of(4096))
    subject = session.subject("warptiled")
    exam.check(subject)
    started = time.monotonic()
    verdict = exam.check(subject)
    spent = time.monotonic() - started
    assert verdict.accepted and spent < 1.5, f"{spent:.2f} s"


def test_mistakes_are_found_before_anything_is_measured(home: Path) -> None:
    with pytest.raises(UnknownRung):
        bench.measure(["naive", "nonsense"], [256])
    with pytest.raises(OutOfMemory, match="take a smaller size"):
        bench.measure(["naive"], [256, 400_000])
    assert not runs_dir().exists()


def test_a_device_says_what_it_was_doing(session: bench.Session) -> None:
    kernel = session.device.compile(rung("naive").program)
    with pytest.raises(LaunchFailed, match="launching a kernel"):
        session.device.launch(kernel, (1, 1), 4096, ())
    session.device.synchronize()


# --------------------------------------------------------------------------------------------------------------- runs


def test_a_run_holds_all_that_its_numbers_need(home: Path) -> None:
    run = bench.measure(["naive", BASELINE], [256, (256, 128, 512)], harness=QUICK)
    assert run.complete and run.path is not None and run.path.parent == home / "runs"
    loaded = open_run()
    assert loaded.path == run.path and loaded.measurements == run.measurements
    assert run.label.startswith(f"live · {gpu().name} · clocks as found")
    assert run.kernels["naive"]["sha256"] == rung("naive").program.sha256
    assert run.kernels["naive"]["registers"] > 0
    assert run.software["cublas"] and run.software["cuda_driver"]
    for m in run.measurements:
        assert m.status == "measured" and m.us is not None and m.us_low is not None and m.us_high is not None
        assert m.us_low <= m.us <= m.us_high
        assert m.verdict is not None
        assert [stage["name"] for stage in m.verdict["stages"][-3:]] == [
            "every timed launch",
            "plausible",
            "a second clock",
        ]
        assert m.n >= QUICK.least_samples
        assert len(m.samples["us"]) == len(m.samples["sm_mhz"]) == len(m.samples["counts"])
        assert m.sm_mhz is not None and 300 < m.sm_mhz < 4000


def test_cublas_against_itself_is_even(home: Path) -> None:
    (m,) = bench.measure([BASELINE], [2048], harness=Harness().but(budget_s=4.0)).measurements
    assert m.ratio == pytest.approx(1.0, abs=0.01)


def worklog(*words: str, home: Path, interrupt_after: str = "") -> subprocess.CompletedProcess[str]:
    """`worklog …` in a process of its own; with interrupt_after, SIGINT once a run file holds this text.

    The child handles SIGINT as usual again: a shell that runs the tests in the background has it ignored.
    """
    command = [sys.executable, "-m", "worklog", *words]
    environment = os.environ | {"WORKLOG_HOME": str(home)}
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        while interrupt_after and child.poll() is None:
            if any(interrupt_after in path.read_text() for path in (home / "runs").glob("*.json")):
                child.send_signal(signal.SIGINT)
                break
            time.sleep(0.02)
        out, err = child.communicate(timeout=240)
    finally:
        child.kill()
    return subprocess.CompletedProcess(command, child.returncode, out, err)


def test_an_interrupt_leaves_what_was_measured(tmp_path: Path) -> None:
    done = worklog("run", "--size", "1024,2048,4096", home=tmp_path, interrupt_after='"tiles_1d"')
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    kept = re.search(r"interrupted: (\d+) of 27 measurements are kept in (\S+)", done.stderr)
    assert kept is not None, done.stderr
    run = Run.load(Path(kept[2]))
    assert int(kept[1]) == len(run.measurements) >= 4
    assert not run.complete and run.label.endswith("cut short")
    assert [m.kernel for m in run.measurements[:4]] == NAMES[:4]
    assert all(m.status == "measured" for m in run.measurements)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [Path(kept[2]).name]


def test_the_command_line_measures(tmp_path: Path) -> None:
    done = worklog("run", "naive", "--size", "256", "--json", home=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["label"].startswith("live · ") and document["measurements"][0]["us"] > 0
    assert Path(document["path"]).parent == tmp_path / "runs"


# ----------------------------------------------------------------------------------------------------------- the ladder


def one(run: Run, name: str) -> Measurement:
    (m,) = run.select(name)
    assert m.status == "measured" and m.ratio is not None, (name, m.reason)
    return m


def test_at_4096_every_rung_is_faster_than_the_one_before(home: Path) -> None:
    """And the last two reach what the article reports of its own, 84.8 % and 93.7 % of cuBLAS."""
    if "H200" not in gpu().name:
        pytest.skip(f"tiles were chosen for an H200, this is {gpu().name}")
    run = bench.measure(harness=Harness())
    times = [one(run, name).us or 0.0 for name in NAMES]
    assert times == sorted(times, reverse=True), dict(zip(NAMES, times, strict=True))
    shares = {name: one(run, name).ratio or 0.0 for name in NAMES}
    assert shares["autotuned"] >= 0.848 and shares["warptiled"] >= 0.937, shares
