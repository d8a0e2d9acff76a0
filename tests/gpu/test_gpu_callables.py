"""Host code on a real GPU: the verdicts of the virtual device, and PyTorch, CuPy, Triton and a shared library beside
them. No right one is refused, on ten seeds; what cheats is refused by the gate or in the timed loop.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.exploits.callable_catalogue import DISARMED, RIGHT, RIGHT_GPU, WRONG, HostEntry
from tests.exploits.callable_catalogue import HERE as CALLABLES
from tests.virtual.session import measure
from tests.virtual.undone import undone
from worklog.bench.session import Session
from worklog.errors import BadSetting
from worklog.gate import Exam
from worklog.harness import Harness
from worklog.kernel.host_function import HostCallable, HostSubject
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement

SEEDS = range(10)
SHAPE = Shape(264, 384, 176)
TIMED = Shape(1024, 1024, 1024)
QUICK = Harness().but(least_samples=8, most_samples=64, precision=0.05, budget_s=1.0)
# A stream that waits for a value may share a queue of the hardware with the harness's: test_gpu_alone.py runs these.
OWN_PROCESS = ("waits_for_the_fill", "waits_in_the_wings")
IN_THE_EXAM = {"exact on ragged shapes", "exact at the benchmark shape", "bit-equal when repeated", "precision"}


@pytest.fixture(scope="module")
def session() -> Session:
    return Session()


@pytest.fixture(autouse=True)
def process() -> Iterator[None]:
    """As it was, afterwards: current stream, device and allocator too."""
    import cupy

    stream, device, allocator = cupy.cuda.get_current_stream(), cupy.cuda.Device(), cupy.cuda.get_allocator()
    with undone():
        yield
    device.use()
    stream.use()
    if "torch" in sys.modules:
        sys.modules["torch"].backends.cuda.matmul.allow_tf32 = False
    cupy.cuda.set_allocator(allocator)
    cupy.cuda.runtime.deviceSynchronize()  # what a cheat left behind ends before the next one begins


def measured(session: Session, brought: HostCallable, shape: Shape = SHAPE) -> Measurement:
    """One measurement in a session that has never seen it."""
    session.brought = {brought.name: brought}
    session.ask_anew(brought.name, shape, secrets.randbits(63))
    return measure(session, brought.name, shape, QUICK)


@pytest.mark.parametrize("entry", [e for e in WRONG if str(e) not in OWN_PROCESS], ids=str)
def test_a_wrong_callable_is_refused(entry: HostEntry, session: Session) -> None:
    import cupy

    if str(entry) == "moves_to_another_device" and cupy.cuda.runtime.getDeviceCount() == 1:
        with pytest.raises(BadSetting, match="cannot load"):
            measured(session, entry.callable)
        return
    found = measured(session, entry.callable, TIMED)
    if entry.disarmed and found.status == "measured":
        return
    assert found.status == "refused" and found.reason is not None, f"it passed with {found.us} µs"
    assert found.reason.removeprefix("refused at ").partition(":")[0] in entry.stages, found.reason


ALWAYS_IN_THE_EXAM = [entry for entry in WRONG if {*entry.stages} <= IN_THE_EXAM]


@pytest.mark.parametrize("entry", ALWAYS_IN_THE_EXAM, ids=str)
def test_what_the_exam_alone_must_see_it_sees_on_every_seed(entry: HostEntry, session: Session) -> None:
    for seed in SEEDS:
        verdict = Exam(session.device, SHAPE, seed).examine(entry.callable.subject(session.device))
        assert not verdict.accepted and verdict.stages[-1].name in entry.stages, verdict.reason


@pytest.mark.parametrize("entry", RIGHT + RIGHT_GPU, ids=str)
def test_a_right_callable_is_accepted_on_every_seed(entry: HostEntry, session: Session) -> None:
    subject = entry.callable.subject(session.device)
    for seed in SEEDS:
        verdict = Exam(session.device, SHAPE, seed).examine(subject, entry.callable.claimed)
        assert verdict.accepted, verdict.reason
    assert isinstance(subject, HostSubject)
    kept = subject.integrity()
    assert kept.passed, kept.detail


def test_what_waits_inside_is_told_so(session: Session) -> None:
    """Each of its threads makes cuBLAS a handle of its own, which waits for the GPU: the contract says, once only."""
    (entry,) = (entry for entry in RIGHT if str(entry) == "thread_joined")
    found = measured(session, entry.callable)
    assert found.status == "refused" and "the launcher synchronises" in str(found.reason)


@pytest.mark.parametrize("entry", [e for e in RIGHT + RIGHT_GPU if str(e) != "thread_joined"], ids=str)
@pytest.mark.parametrize("shape", [SHAPE, TIMED], ids=str)
def test_a_right_callable_is_timed(entry: HostEntry, shape: Shape, session: Session) -> None:
    found = measured(session, entry.callable, shape)
    assert found.status == "measured", found.reason
    assert found.us is not None and found.us > 0


@pytest.mark.parametrize("entry", DISARMED, ids=str)
def test_a_cheat_that_finds_nothing_to_gain_is_no_faster(entry: HostEntry, session: Session) -> None:
    """Its own kernel is naive: cuBLAS, right beside it, is faster."""
    found = measured(session, entry.callable, TIMED)
    assert found.status == "measured" and found.ratio is not None and found.ratio < 1, found.reason


# ------------------------------------------------------------------------------------------------------------ a library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    made = tmp_path_factory.mktemp("library") / "libgemm.so"
    source = CALLABLES / "library" / "gemm.cu"
    subprocess.run(["nvcc", "-shared", "-Xcompiler", "-fPIC", "-o", str(made), str(source)], check=True)
    return made


def test_a_shared_library_on_the_stream_is_accepted_and_timed(library: Path, session: Session) -> None:
    theirs = HostCallable.read(f"{library}:on_the_stream")
    for seed in SEEDS:
        verdict = Exam(session.device, SHAPE, seed).examine(theirs.subject(session.device))
        assert verdict.accepted, verdict.reason
    found = measured(session, theirs)
    assert found.status == "measured", found.reason


@pytest.mark.parametrize("name", ["on_the_legacy_stream", "on_its_own_stream"])
def test_a_shared_library_elsewhere_is_refused(name: str, library: Path, session: Session) -> None:
    found = measured(session, HostCallable.read(f"{library}:{name}"), TIMED)
    assert found.status == "refused", f"it passed with {found.us} µs"


# --------------------------------------------------------------------------------------------------------- command line


@pytest.mark.parametrize(
    ("entry", "code"), [(RIGHT[0], 0), (RIGHT_GPU[0], 0), (WRONG[-1], 1)], ids=lambda value: str(value)
)
def test_worklog_check(entry: HostEntry, code: int) -> None:
    command = [sys.executable, "-m", "worklog", "check", f"{entry.path}:{entry.path.stem}", "--size", "256"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=CALLABLES.parents[2])
    assert done.returncode == code, done.stdout + done.stderr
    assert "host-launched" in done.stdout
