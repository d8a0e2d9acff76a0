"""Nothing else is at work on the GPU while inputs are written and L2 is flushed: the stage on a real one, with real
kernels that stay, start and copy on streams of their own, all bounded; and how little it shows in the number.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.exploits.callable_catalogue import HERE, RIGHT, RIGHT_GPU, WRONG, HostEntry
from tests.gpu.looking import FENCE_US, LOOKING_US
from tests.gpu.marks import MARKS
from worklog.bench import launches
from worklog.bench import measure as bench
from worklog.bench.tasks import Task
from worklog.errors import WorklogError
from worklog.gate.alone import NAME, PATIENCE_NS, WARMTH, Fence
from worklog.gate.every_launch import LaunchChecker, Witness
from worklog.gpu.device import gpu
from worklog.harness import Harness
from worklog.kernel.host_function import HostCallable
from worklog.problem.gemm import Shape

SHAPE = Shape.of(1024)
STAYS_NS = 50_000_000
CHAINED_NS, CHAINED = 3_000, 400
SOURCE = """\
typedef unsigned long long u64;

__device__ u64 now_ns() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// Stays so long, and notes when it came.
extern "C" __global__ void stay(u64 ns, u64* came) {
  const u64 start = now_ns();
  if (threadIdx.x == 0 && blockIdx.x == 0) *came = start;
  while (now_ns() - start < ns) {}
}
"""
CHILD = """\
import json, os, sys
from worklog.bench import measure as bench
from worklog.kernel.host_function import HostCallable
from worklog.harness import Harness

harness = Harness().but(least_samples=8, most_samples=64, precision=0.05, budget_s=1.0)
brought = [HostCallable.read(f"{path}:{path.rpartition('/')[2][:-3]}") for path in sys.argv[1:]]
run = bench.measure(brought, [1024], harness=harness)
print(json.dumps([(m.kernel, m.status, m.reason, m.us, m.verdict) for m in run.measurements]), flush=True)
os._exit(0)  # as worklog.bench.job does: a context in which something waits for ever cannot be left otherwise
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path / "home"))


class Scene:
    """A fence on this GPU, the buffers that it fills, and a stream of somebody else's."""

    def __init__(self) -> None:
        import cupy

        from worklog.gpu.cuda import CudaDevice

        self.cupy, self.device = cupy, CudaDevice()
        self.stay = cupy.RawKernel(SOURCE, "stay")
        self.side = cupy.cuda.Stream(non_blocking=True)
        self.came = cupy.zeros(1 + CHAINED, np.uint64)
        self.witness = Witness(LaunchChecker(self.device), SHAPE, stirred=True)
        self.buffers = tuple(self.device.upload(np.zeros(SHAPE.m * SHAPE.k, np.float32)) for _ in range(3))
        self.fence = self.another()
        cupy.cuda.runtime.deviceSynchronize()

    def another(self) -> Fence:
        """A fence that has seen nothing."""
        fence = Fence(self.device)
        self.write(fence, 1)  # loads it
        self.device.synchronize()
        return fence

    def write(self, fence: Fence, times: int) -> None:
        for turn in range(times):
            self.witness.draw()
            fence.write(turn % 2, *self.witness.filling(*self.buffers))

    def beside(self, blocks: int, threads: int, ns: int, note: int = 0, stream: Any = None) -> None:
        with stream or self.side:
            self.stay((blocks,), (threads,), (np.uint64(ns), self.came[note:]))


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.cupy.cuda.runtime.deviceSynchronize()


def test_on_an_idle_gpu_it_passes(scene: Scene) -> None:
    """The line that is printed holds how long the GPU takes to fill, and how much slower memory is than L2."""
    scene.write(scene.fence, 2000)
    stage = scene.fence.stage()
    print(stage.detail)
    assert stage.passed, stage.detail
    assert stage.measured == 0, "not one launch lost"
    words = scene.device.download(scene.fence._found).view(np.uint32)
    assert words[4] < PATIENCE_NS / 5
    for lines, first, again in words[5:11].reshape(-1, 3):
        assert lines > 500 and again / first < 0.8 * WARMTH


def test_what_is_marked_to_stay_in_l2_is_gone_all_the_same(scene: Scene) -> None:
    """Lines of the inputs that a kernel read with the hint to evict them last: honest, and worth nothing here."""
    marks = scene.cupy.RawKernel(MARKS, "marks")
    for turn in range(400):
        with scene.device.stream:
            for matrix in scene.buffers[:2]:
                marks((132,), (1024,), (matrix, np.int32(matrix.size), scene.came))
        scene.witness.draw()
        scene.fence.write(turn % 2, *scene.witness.filling(*scene.buffers))
    stage = scene.fence.stage()
    assert stage.passed, stage.detail
    for lines, first, again in scene.device.download(scene.fence._found).view(np.uint32)[5:11].reshape(-1, 3):
        assert lines > 50 and again / first < 0.8 * WARMTH


@pytest.mark.parametrize(("everywhere", "threads"), [(False, 32), (False, 1024), (True, 32)])
def test_what_stays_is_found_and_nothing_hangs(scene: Scene, everywhere: bool, threads: int) -> None:
    blocks = gpu().multiprocessors if everywhere else 1
    scene.beside(blocks, threads, STAYS_NS)
    scene.write(scene.fence, 20)
    scene.device.synchronize()
    stage = scene.fence.stage()
    assert not stage.passed and stage.name == NAME and stage.measured == 20, stage.detail
    scene.cupy.cuda.runtime.deviceSynchronize()
    after = scene.another()
    scene.write(after, 50)
    assert after.stage().passed, after.stage().detail


def test_what_takes_half_of_every_sm_is_found_or_waited_for(scene: Scene) -> None:
    """An H200 lets the fence begin only when all of it is gone. Either way nothing was written beside it."""
    scene.beside(gpu().multiprocessors, 1024, STAYS_NS)
    started = time.perf_counter()
    scene.write(scene.fence, 20)
    scene.device.synchronize()
    waited_ns = 1e9 * (time.perf_counter() - started)
    stage = scene.fence.stage()
    assert stage.measured == 20 or (stage.passed and waited_ns > 0.9 * STAYS_NS), (stage.detail, waited_ns)


def test_what_was_written_beside_it_is_right_all_the_same(scene: Scene) -> None:
    """Without the guarantee it still does its work."""
    scene.beside(gpu().multiprocessors, 512, STAYS_NS)
    a, b, c = scene.buffers
    for _ in range(5):
        scene.witness.draw()
        scene.fence.write(0, *scene.witness.filling(a, b, c))
        x, y = (scene.cupy.asarray(one).reshape(1024, 1024) for one in (a, b))
        with scene.device.stream:
            c[...] = (x @ y).ravel()
        scene.witness.observe(c)
        scene.witness.check(a, b)
    stage = scene.witness.found()
    assert (stage.off, stage.changed) == (0, 0)


def test_what_goes_before_its_patience_ends_is_waited_for(scene: Scene) -> None:
    for _ in range(20):
        scene.beside(1, 32, PATIENCE_NS // 4)
        scene.write(scene.fence, 1)
        scene.cupy.cuda.runtime.deviceSynchronize()
    assert scene.fence.stage().passed, scene.fence.stage().detail


def test_a_chain_of_short_kernels_gets_no_more_than_the_gap(scene: Scene) -> None:
    """Each is gone in time, so none is found; but none runs while the inputs are written and L2 is flushed, and what
    waits starts no more than a few microseconds before the launch does. Prints the head start.
    """
    spin = scene.cupy.cuda.Stream(non_blocking=True)
    starts = []
    for _ in range(20):
        scene.beside(1, 1, 10_000_000, stream=spin)  # time to enqueue the chain
        scene.side.wait_event(spin.record())
        scene.device.stream.wait_event(spin.record())
        for note in range(CHAINED):
            scene.beside(1, 32, CHAINED_NS, note)
        scene.write(scene.fence, 1)
        scene.device.stream.record()
        scene.beside(1, 32, 0, CHAINED, stream=scene.device.stream)
        scene.cupy.cuda.runtime.deviceSynchronize()
        came = scene.came.get().astype(np.int64)
        chain, launch = came[:CHAINED], came[CHAINED]
        steps = np.diff(chain)
        longest = int(np.argmax(steps))
        if steps[longest] > 20_000:  # the fence came between these two
            starts.append(launch - chain[longest + 1])
    assert len(starts) >= 10, "the chain was there when the fence came"
    print(f"head start: {np.median(starts) / 1e3:.2f} µs, at most {max(starts) / 1e3:.2f} µs")
    assert np.median(starts) < 10_000


def test_what_waits_for_ever_is_not_idle(scene: Scene) -> None:
    """Until the host writes what it waits for."""
    from cuda.bindings import driver

    pinned = scene.cupy.cuda.alloc_pinned_memory(4)
    word = np.frombuffer(pinned, np.uint32, 1)
    word[0] = 0
    assert scene.device.idle(1.0)
    flag = int(driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ)
    waited = driver.cuStreamWaitValue32(driver.CUstream(scene.side.ptr), driver.CUdeviceptr(pinned.ptr), 1, flag)
    assert waited == (driver.CUresult.CUDA_SUCCESS,)
    try:
        scene.write(scene.fence, 3)
        stage = scene.fence.stage()
        assert not stage.passed and "left on the GPU" in stage.detail
    finally:
        word[0] = 1
    assert scene.device.idle(1.0)


# -------------------------------------------------------------------------- callables, each in a process of its own


def in_a_process(entry: HostEntry) -> tuple[str, str, str, float, dict[str, Any]]:
    """Its measurement at 1024. A process of its own, since streams that wait may share a queue with others."""
    command = [sys.executable, "-c", CHILD, str(entry.path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parents[2], timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (found,) = json.loads(done.stdout.splitlines()[-1])
    return tuple(found)


def by(name: str) -> HostEntry:
    return next(entry for entry in (*WRONG, *RIGHT, *RIGHT_GPU) if str(entry) == name)


@pytest.mark.parametrize("name", ["watches_the_inputs", "prefetches_after_the_flush", "waits_in_the_wings"])
def test_who_watches_for_the_inputs_is_refused(name: str) -> None:
    _, status, reason, us, _ = in_a_process(by(name))
    print(reason)
    assert status == "refused", us
    assert reason.startswith(f"refused at {NAME}"), reason


def test_who_keeps_the_inputs_in_l2_is_refused_or_gains_nothing() -> None:
    """A copy engine that reads past L2, or is done before the flush is, leaves nothing to be found, nor to be used."""
    _, status, reason, us, _ = in_a_process(by("waits_for_the_fill"))
    print(status, reason, us)
    if status == "refused":
        assert reason.startswith(f"refused at {NAME}"), reason
        return
    _, _, _, honest_us, _ = in_a_process(by("returns_c"))
    assert us > 0.98 * honest_us, "the same product, with nothing beside it"


@pytest.mark.parametrize("name", ["clears_beside_and_joins", "own_stream_joined", "graph_of_its_work", "triton_gemm"])
def test_who_joins_what_it_starts_is_accepted(name: str) -> None:
    _, status, reason, _, verdict = in_a_process(by(name))
    assert status == "measured", reason
    print([stage["detail"] for stage in verdict["stages"] if stage["name"] == NAME])


# ------------------------------------------------------------------------------------------- it shows little


@pytest.mark.parametrize("size", [256, 1024])
def test_the_fence_shows_little_in_the_number_and_never_flatters(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With it, without it, and without any gate: medians of three, in turn. What the look at each launch costs a short
    kernel, the fence does too, and neither flatters.
    """
    entry = by("cupy_matmul")
    theirs = HostCallable.read(f"{entry.path}:cupy_matmul")
    shape = Shape.of(size)
    us: dict[str, list[float]] = {"fenced": [], "looked at": [], "unseen": []}
    baselines: dict[str, list[float]] = {how: [] for how in us}
    for _ in range(3):
        for how, times in us.items():
            with monkeypatch.context() as patched:
                if how == "looked at":
                    patched.setattr(launches, "Fence", lambda device: None)
                task = Task(theirs.name, shape, (("gate", False),) if how == "unseen" else ())
                run = bench.carry_out([task], Harness(), brought=[theirs])
            (found,) = run.measurements
            if found.us is None:
                raise WorklogError(f"{how}: {found.reason}")
            times.append(found.us)
            baselines[how].append(float(np.median(found.samples["baseline_us"])) - run.calibration["offset_us"])
    for what, found_us in (("matmul", us), ("cuBLAS", baselines)):
        fenced, looked_at, unseen = (sorted(times)[1] for times in found_us.values())
        print(f"{what} {size}: {fenced:.3f} µs fenced, {looked_at:.3f} looked at, {unseen:.3f} without the gate")
        assert -max(0.02 * unseen, 0.15) < fenced - unseen < max(0.02 * unseen, LOOKING_US[size]), found_us
        least, most = FENCE_US[size]
        assert min(-0.02 * looked_at, least) < fenced - looked_at < max(0.02 * looked_at, most), found_us
