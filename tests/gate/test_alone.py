"""Nothing else is at work on the GPU while inputs are written and L2 is flushed: the stage on the virtual device, whose
streams run beside each other, and what each of its three parts is there for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.exploits.arrays import xp
from tests.exploits.callable_catalogue import RIGHT, WRONG, HostEntry
from tests.gate.numpy_device import NumpyDevice, NumpySubject, Problem
from tests.virtual.arrays import VirtualArrays
from tests.virtual.device import FLUSH_US, LOOK_US, VirtualDevice
from tests.virtual.machine import NEVER, Machine, Stream
from tests.virtual.session import VirtualSession, measure, true_us, virtual_gpu
from tests.virtual.undone import undone
from worklog.bench import launches
from worklog.bench.launches import witnessed
from worklog.errors import NoGpu
from worklog.gate import Exam, alone
from worklog.gate.alone import NAME, PATIENCE_NS, TOLERATED, Fence
from worklog.gate.every_launch import LaunchChecker, Witness
from worklog.kernel.nvrtc import ARCHITECTURES, compile_cuda
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement

SHAPE = Shape(96, 64, 80)
SLOTS = {"sm_75": 1024, "sm_86": 1536, "sm_87": 1536, "sm_89": 1536, "sm_120": 1536}  # of an SM; 2048 on the others
REGISTERS = 65536  # of an SM


# ----------------------------------------------------------------------------------------------------------- the kernel


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_two_blocks_of_it_fill_an_sm(arch: str) -> None:
    """By threads, and not by registers or shared memory, of which they must not need more than there is."""
    threads = SLOTS.get(arch, 2048) // alone.BLOCKS_A_PROCESSOR
    program = alone.program(threads)
    made = compile_cuda(program.source, program.entry, name=program.name, arch=arch, options=program.options)
    assert threads <= 1024 and threads % 32 == 0
    assert made.registers * threads * alone.BLOCKS_A_PROCESSOR <= REGISTERS
    assert made.stack_bytes == 0 and ".shared" not in made.ptx


def test_it_needs_a_device_that_can_be_filled() -> None:
    with pytest.raises(NoGpu, match="of which every slot can be taken"):
        Fence(Hidden(NumpyDevice()))  # type: ignore[arg-type]


class Hidden:
    """A device that compiles and launches, and says nothing of its size."""

    def __init__(self, device: NumpyDevice) -> None:
        self.source, self.compile, self.launch = device.source, device.compile, device.launch
        self.upload, self.download = device.upload, device.download


# -------------------------------------------------------------------------------------------------- on a virtual device


class Scene:
    """A fence on a virtual device, the buffers that it fills, and a stream of somebody else's."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.device = VirtualDevice(self.machine)
        self.arrays = VirtualArrays(self.machine)
        self.fence = Fence(self.device)
        self.witness = Witness(LaunchChecker(self.device), SHAPE, stirred=True)
        sizes = SHAPE.m * SHAPE.k, SHAPE.k * SHAPE.n, SHAPE.m * SHAPE.n
        self.buffers = tuple(self.device.upload(np.zeros(size, np.float32)) for size in sizes)
        self.side: Stream = self.machine.stream()
        loan = self.device.loan("cupy")
        self.a = loan.matrix(self.buffers[0], SHAPE.m, SHAPE.k)
        self.b = loan.matrix(self.buffers[1], SHAPE.k, SHAPE.n)
        self.c = loan.matrix(self.buffers[2], SHAPE.m, SHAPE.n)

    def write(self, times: int = 1, party: int = 0) -> None:
        """New inputs, so many times, and wait."""
        for _ in range(times):
            self.witness.draw()
            self.fence.write(party, *self.witness.filling(*self.buffers))
        self.device.synchronize()

    def beside(self, enqueue: Callable[[], object]) -> None:
        """On the other stream."""
        with self.machine.on(self.side):
            enqueue()

    def copy_once_filled(self) -> None:
        """The other stream waits for the next fill, and reads A and B without a thread until L2 was flushed."""
        self.machine.idle(1e4)
        self.device.fill(self.buffers[2], 0.0)
        self.device.synchronize()
        self.beside(lambda: self.arrays.wait_until_filled(self.c))
        self.beside(lambda: self.arrays.read_by_copy_engine(self.a, self.b, (self.a, self.b), 16))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_alone_it_passes_and_says_what_it_saw(scene: Scene) -> None:
    scene.write(10)
    stage = scene.fence.stage()
    assert stage.passed and stage.name == NAME
    assert stage.detail.startswith("nobody else ran while the inputs of 10 launches were written and L2 was flushed")
    assert "80 lines of A and B took 700 cycles to read, and 300 from L2" in stage.detail
    assert alone.UNSEEN in stage.detail


def test_what_stays_is_found(scene: Scene) -> None:
    scene.beside(lambda: scene.machine.enqueue(1e5))
    scene.write(3)
    stage = scene.fence.stage()
    assert not stage.passed and (stage.measured, stage.limit) == (3, 0)
    assert stage.detail.startswith("in 3 of 3 launches something else was running on the GPU")


def test_what_goes_in_time_has_seen_nothing(scene: Scene) -> None:
    """It was there before the inputs: the fence waits for it, and tells the wait."""
    scene.beside(lambda: scene.machine.enqueue(PATIENCE_NS / 1000 - 20))
    scene.write(3)
    stage = scene.fence.stage()
    waited = re.search(r"it took at most ([\d.]+) µs to fill the GPU", stage.detail)
    assert stage.passed and waited and 0 < float(waited[1]) < PATIENCE_NS / 1000 - 20


def test_one_launch_in_fifty_may_be_lost_and_is_told(scene: Scene) -> None:
    scene.beside(lambda: scene.machine.enqueue(120.0))
    scene.write(TOLERATED)
    stage = scene.fence.stage()
    assert stage.passed and "but for 1 that were lost" in stage.detail
    other = Scene()
    other.beside(lambda: other.machine.enqueue(120.0))
    other.write(TOLERATED - 1)
    assert not other.fence.stage().passed


def test_what_would_start_meanwhile_starts_afterwards(scene: Scene) -> None:
    began: list[float] = []
    scene.beside(lambda: scene.arrays.wait_until_filled(scene.c))
    scene.beside(lambda: scene.machine.enqueue(1.0, lambda: began.append(scene.machine.device_now)))
    scene.write()
    ended = scene.machine.device_now
    assert scene.machine.idle(10.0) and began == [ended]


def test_what_needs_no_thread_is_found_by_what_it_leaves(scene: Scene) -> None:
    for _ in range(4):
        scene.copy_once_filled()
        scene.write()
    stage = scene.fence.stage()
    assert not stage.passed and stage.limit == alone.WARMTH
    assert "32 lines of A and B took 300 cycles to read, and 300 from L2: they were there before" in stage.detail


def test_a_cold_baseline_does_not_hide_a_warm_subject(scene: Scene) -> None:
    scene.write(20, party=1)
    scene.copy_once_filled()
    scene.write(party=0)
    assert "they were there before the clock started" in scene.fence.stage().detail


def test_what_waits_for_ever_is_found_at_the_end(scene: Scene) -> None:
    scene.beside(lambda: scene.machine.enqueue(NEVER, threads=False))
    scene.write(3)
    stage = scene.fence.stage()
    assert not stage.passed and "something that it had started and not joined was left on the GPU" in stage.detail


def test_a_launch_that_went_past_it_is_missed(scene: Scene) -> None:
    scene.write(3)
    scene.fence.launches += 1
    assert scene.fence.stage().detail == "3 of 4 launches were fenced: not all of them"


# --------------------------------------------------------------------------------------------------------- in the loop


def correct(p: Problem) -> None:
    p.c[:] = p.alpha * (p.a @ p.b)


@pytest.mark.parametrize("has_host_code", [False, True])
def test_the_inputs_of_host_code_come_with_the_flush(has_host_code: bool) -> None:
    """What could watch them is not there yet before, and the clock starts behind. Kernels cannot watch."""
    device = NumpyDevice()
    exam = Exam(device, Shape(32, 48, 16), 0)
    subjects = NumpySubject(device, correct), NumpySubject(device, correct)
    loop: Any = witnessed(
        exam, *subjects, in_step=True, classes=("fp32", "fp32"), warm=True, has_host_code=has_host_code
    )
    kept = device.download(exam.buffers[0])
    loop.subject.before()
    assert np.array_equal(device.download(exam.buffers[0]), kept) is has_host_code
    assert (loop.subject.flush is not None) is has_host_code
    if has_host_code:
        loop.subject.flush()
        assert not np.array_equal(device.download(exam.buffers[0]), kept)


# ------------------------------------------------------------------------------------------- each part is for somebody


@pytest.fixture
def machine() -> Iterator[Machine]:
    with undone(), virtual_gpu():
        xp.machine = Machine()
        yield xp.machine


def by(name: str) -> HostEntry:
    return next(entry for entry in (*WRONG, *RIGHT) if str(entry) == name)


def measured(name: str, machine: Machine) -> Measurement:
    return measure(VirtualSession(machine, by(name).callable), name, SHAPE)


WATCHERS = ("watches_the_inputs", "prefetches_after_the_flush", "waits_for_the_fill")


@pytest.mark.parametrize("name", WATCHERS)
def test_without_the_stage_a_watcher_is_believed(name: str, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right on inputs never seen before, in time, and faster than its work can be done."""
    monkeypatch.setattr(launches, "Fence", lambda device: None)
    found = measured(name, machine)
    assert found.status == "measured" and found.us is not None
    assert found.us < true_us(machine, SHAPE) - 0.9 * FLUSH_US


def test_without_the_look_into_l2_copies_are_believed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "WARMTH", float("inf"))
    found = measured("waits_for_the_fill", machine)
    assert found.status == "measured" and found.us is not None
    assert found.us < true_us(machine, SHAPE) / 1.2


def test_without_a_wait_for_the_whole_device_what_is_left_is_not_found(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VirtualDevice, "idle", lambda self, within_s: True)
    assert measured("waits_in_the_wings", machine).status == "measured"


def test_what_is_joined_is_accepted_and_the_stage_is_told(machine: Machine) -> None:
    found = measured("clears_beside_and_joins", machine)
    assert found.status == "measured" and found.us is not None and found.us >= true_us(machine, SHAPE) - LOOK_US
    assert found.verdict is not None
    (stage,) = (stage for stage in found.verdict["stages"] if stage["name"] == NAME)
    assert stage["passed"] and stage["detail"].startswith("nobody else ran")
