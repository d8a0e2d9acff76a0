"""Harnesses that are wrong by a known amount, missing or failing.

Each gets rows, and none ends the comparison.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest
from pytest import approx

from tests.exploits.arrays import xp
from tests.helpers import GPU, compared
from tests.virtual.gpu import VirtualGpu
from tests.virtual.machine import Machine
from tests.virtual.session import CALIBRATION, VirtualSession
from worklog.benchmarks.declare import declared
from worklog.errors import BadSetting, LaunchFailed, install_command
from worklog.peers import compare as peers
from worklog.peers.harnesses import Timer, Workload, by_timer, cupti_timer, works_on
from worklog.runs.comparison import HarnessReading, open_comparison
from worklog.runs.sources import runs_dir
from worklog.runs.statistics import Estimate


def work(gpu: VirtualGpu, size: float, us: float) -> Workload:
    """cuBLAS of a size, and of a known length."""
    kernel = gpu.kernel(us)
    return Workload("cuBLAS", size, lambda stream: kernel())


def ours(gpu: VirtualGpu, offset_us: float = 0.0) -> peers.OurHarness:
    return peers.OurHarness(gpu, None, offset_us)


class VirtualCupti:
    """CUPTI's activity interface as the tracer uses it.

    Records reach the callback only when they are flushed.
    """

    ActivityKind = SimpleNamespace(CONCURRENT_KERNEL=10)

    def __init__(self) -> None:
        self.gpu = VirtualGpu()
        self.error = ""
        self.completed = list[Any]().extend

    def activity_register_callbacks(
        self, requested: Callable[[], Any], completed: Callable[[Any], None]
    ) -> None:
        self.completed = completed

    def activity_enable(self, kind: int) -> None:
        if self.error:
            raise RuntimeError(self.error)
        self.gpu.traced = []

    def activity_disable(self, kind: int) -> None:
        self.gpu.traced = None

    def activity_flush_all(self, flag: int) -> None:
        self.completed(
            [
                SimpleNamespace(start=start, end=end, name=name)
                for start, end, name in self.gpu.traced
            ]
        )
        self.gpu.traced.clear()

    def timer(self) -> Timer:
        return cupti_timer(self.gpu, None)


@pytest.fixture
def cupti(monkeypatch):
    stand_in = VirtualCupti()
    monkeypatch.setitem(sys.modules, "cupti", SimpleNamespace(cupti=stand_in))
    return stand_in


def test_the_tracer_reads_first_start_to_last_end_with_a_cold_cache_and_without_launch_or_events(
    cupti,
):
    cupti.gpu = gpu = VirtualGpu(Machine(enqueue_us=9.0), tracer_us=0.6, warm_speedup=1.4)
    first = gpu.kernel(4.0)
    second = gpu.kernel(7.5, data="other")
    two = Workload("two kernels", 1, lambda stream: (first(), second())[0])
    assert cupti.timer()(work(gpu, 512.0, 50.0)) == approx(50.6)
    assert cupti.timer()(two) == approx(11.5 + 0.6), "the GPU doesn't wait for the second"
    assert gpu.traced is None, "switched off"
    gpu.placement = lambda rng: rng.random()
    settled = list[int]()
    kernel = gpu.kernel(50.0, sensitivity=1.0)
    moving = Workload(
        "cuBLAS", 512, lambda stream: kernel(), gpu.move, lambda: settled.append(gpu.moves)
    )
    assert 60.0 < cupti.timer()(moving) < 90.0, "the median of many placements"
    assert settled == [gpu.moves] and gpu.moves > 20
    assert ours(gpu).read(moving) and settled[1:] == [gpu.moves], "back to the buffers' own places"


def test_events_and_tracer_in_turn_see_the_same_clock(cupti):
    cupti.gpu = gpu = VirtualGpu(
        tracer_us=0.6, offset_us=3.4, clock=lambda now_us: 2000.0 - now_us / 1e5
    )
    (point,) = peers.beside_the_tracer(ours(gpu, 3.4), cupti.timer, [work(gpu, 512.0, 200.0)])[
        "beside_cupti"
    ]
    assert point["of"] == 512.0 and point["events_us"] > 200.05, "the clock fell"
    assert point["tracer_us"] - point["events_us"] == approx(0.6, abs=0.05)


def test_a_tracer_that_fails_is_a_reason(cupti):
    with pytest.raises(LaunchFailed, match="saw no kernel"):
        cupti.timer()(Workload("nothing", 1, lambda stream: None))
    cupti.error = "MULTIPLE_SUBSCRIBERS\nsecond line"
    points = peers.beside_the_tracer(ours(cupti.gpu), cupti.timer, [work(cupti.gpu, 512.0, 20.0)])
    assert points == {
        "beside_cupti": [],
        "beside_cupti_reason": "RuntimeError: MULTIPLE_SUBSCRIBERS",
    }


def test_the_same_kernel_twice_agrees_and_is_read_as_precisely_as_everything_else():
    """To half a percent of the time, not of the time with the offset in it."""
    gpu = VirtualGpu(
        noise=2e-2, offset_us=1000.0
    )  # so noisy that the samples of the warm-up are not enough
    promise = peers.same_twice(ours(gpu, 1000.0), work(gpu, 512, 1000.0), pairs=10)
    assert promise["agree"] >= 8
    assert len(promise["intervals_us"]) == promise["pairs"] == 10
    intervals = [interval for pair in promise["intervals_us"] for interval in pair]
    assert all((high - low) / 2 <= 0.0051 * (middle - 1000.0) for low, middle, high in intervals)


def test_two_readings_agree_if_their_intervals_overlap():
    for second, agree in (
        ((51.0, 52.0), 1),
        ((51.5, 52.0), 0),
        ((48.0, 49.0), 1),
        ((48.0, 48.9), 0),
    ):
        reads = iter([Estimate(50.0, 49.0, 51.0), Estimate(sum(second) / 2, *second)])
        harness: Any = SimpleNamespace(read=lambda work, reads=reads: (None, next(reads), 0.1))
        assert peers.same_twice(harness, work(VirtualGpu(), 1, 1.0), pairs=1)["agree"] == agree


def test_the_table_shows_readings_and_what_is_missing():
    rows = [
        HarnessReading(peers.OURS, "cuBLAS", 512, 17.0, 0.15),
        HarnessReading("NVBench cold", "cuBLAS", 512, 20.0, 1.5),
    ]
    rows.append(HarnessReading("torch Timer", "spin", 1, reason="ImportError: no torch"))
    promises = {"aa": {"pairs": 50, "agree": 48, "intervals_us": []}}
    text = peers.text(compared([*map(asdict, rows)], promises=promises, origin="live"))
    assert (
        text.startswith("live · NVIDIA H200 · ")
        and f"\n  [0] {peers.OURS}\n  [1] NVBench cold\n" in text
    )
    assert re.search(r"^ +cuBLAS 512 +17\.00 +20\.00 +–$", text, re.MULTILINE)
    assert "48 of 50 pairs agree" in text and "torch Timer: ImportError: no torch" in text


def test_kernels_of_known_length_are_functions_with_a_name():
    """cupyx's benchmark reads __name__."""
    machine = SimpleNamespace(stream="a stream", synchronize=lambda: None)
    spins = list[tuple[int, str]]()
    session: Any = SimpleNamespace(
        device=machine, timeline=SimpleNamespace(spin=lambda *spun: spins.append(spun))
    )
    works = works_on(session, (1, 20), ())
    assert spins == [(1000, "a stream"), (20_000, "a stream")] and all(
        hasattr(w.enqueue, "__name__") for w in works
    )


def reads_three_too_long(works: Sequence[Workload]) -> Iterator[HarnessReading]:
    yield from (
        HarnessReading("NVBench cold", timed.kind, timed.of, timed.of + 3, 1.0) for timed in works
    )


def reads_no_number(works: Sequence[Workload]) -> Iterator[HarnessReading]:
    for timed in works:
        yield HarnessReading(
            "no number",
            timed.kind,
            timed.of,
            20.0 if timed is works[0] else float("nan"),
            float("nan"),
        )


def fails_at_the_second(works: Sequence[Workload]) -> Iterator[HarnessReading]:
    yield HarnessReading("broken", works[0].kind, works[0].of, 8.4, 0.1)
    raise RuntimeError("cudaErrorStreamCaptureInvalidated\nsecond line")


def test_a_harness_has_the_seconds_that_it_took():
    [row] = by_timer("theirs", lambda: lambda work: 5.0)([work(VirtualGpu(), 512, 5.0)])
    assert row.us == 5.0 and 0 <= (row.wall_s or -1.0) < time.perf_counter() / 2


def is_not_installed() -> Timer:
    return __import__("a_foreign_package").timer


def test_the_whole_comparison_is_written_step_by_step_and_opens(monkeypatch, tmp_path, cupti):
    gpu = VirtualGpu(noise=1e-3, tracer_us=0.6)
    cupti.gpu = gpu

    calibration = replace(CALIBRATION, offset_us=gpu.offset_us)
    ready = SimpleNamespace(
        device=SimpleNamespace(stream=None), timeline=gpu, calibration=calibration
    )

    def works_on(session: Any, known_us: Sequence[int], sizes: Sequence[int]) -> list[Workload]:
        spins = [Workload("spin", us, lambda stream, us=us: gpu.spin(1000 * us)) for us in known_us]
        return [*spins, *(work(gpu, size, size / 32) for size in sizes)]

    harnesses = {
        "NVBench cold": (reads_three_too_long, "peers"),
        "no number": (reads_no_number, "peers"),
        "broken": (fails_at_the_second, "peers"),
        "missing": (by_timer("missing", is_not_installed), "torch"),
    }
    replaced: dict[str, Any] = dict(gpu=lambda: GPU, HARNESSES=harnesses, works_on=works_on)
    replaced |= dict(KNOWN_US=(1, 100), SIZES=(512, 4096))
    for name, value in replaced.items():
        monkeypatch.setattr(peers, name, value)
    monkeypatch.setattr("worklog.runner.session.Session", lambda: ready)
    steps = list[tuple[Any, ...]]()
    complete = list[bool | None]()
    path = tmp_path / "peers.json"

    def progress(*step: Any) -> None:
        steps.append(step)
        complete.append(json.loads(path.read_text())["complete"] if path.stat().st_size else None)

    assert peers.compare(path, progress) == path
    step_names = peers.OURS, *harnesses, peers.TRACED, "A/A", "worklog beside CUPTI", "done"
    assert steps == [(number, 8, name) for number, name in enumerate(step_names)]
    assert complete == [None, *[False] * 7, True], "written after each step"
    compared = open_comparison(path)
    assert compared.label.startswith("live · ")
    assert {*compared.harnesses} == {peers.OURS, peers.KEPT, *harnesses, peers.TRACED}
    missing = "ModuleNotFoundError: No module named 'a_foreign_package'; to get it: "
    assert compared.reasons == {
        "no number": "it read nan µs",
        "broken": "RuntimeError: cudaErrorStreamCaptureInvalidated",
        "missing": missing + install_command("torch"),
    }
    (read, *_), (broken, *_) = (
        [row for row in compared.rows if row.ruler == name] for name in ("no number", "broken")
    )
    assert (read.us, read.wall_s, broken.us, broken.wall_s) == (20.0, None, 8.4, 0.1)
    errors = compared.errors()
    assert all(abs(error) < 0.05 for _, error in errors[peers.OURS])
    assert [error for _, error in errors[peers.KEPT]] == approx([gpu.offset_us] * 2, abs=0.05)
    promises = compared.document["promises"]
    ours_s = [compared.us("cuBLAS", size, "wall_s")[peers.OURS] for size in (512, 4096)]
    assert all(seconds > 0 for seconds in ours_s) and all(
        row.converged for row in compared.rows[:4]
    )
    assert {point["of"] for point in promises["beside_cupti"]} == {512, 4096}
    assert (promises["aa"]["work"], promises["aa"]["of"]) == ("cuBLAS", 512)


DECLARED = """
import worklog
from tests.exploits.arrays import xp

def product(state):
    a, b, c = (xp.empty(state.N, state.N) for _ in range(3))
    if state.N == 96:
        state.skip("not today")
    return a, b, c

@worklog.bench("beta=0", "N=64,96,128")
def scaled(state):
    a, b, c = product(state)
    state.run(xp.gemm, 1.0, a, b, float(state.beta), c)

@worklog.bench("N=64", "op[str]=a,b")
def on_a_stream(state):
    a, b, c = product(state)
    def launcher(stream):
        assert stream == xp.machine.current.ptr
        xp.gemm(1.0, a, b, 0.0, c)
    return launcher

@worklog.bench("N=64")
def waits(state):
    state.run(print, sync=True)
"""


def test_declared_benchmarks_are_compared_cold_and_hot(monkeypatch, tmp_path):
    (tmp_path / "file.py").write_text(DECLARED)
    scaled, on_a_stream, waits = declared(tmp_path / "file.py")
    xp.machine = machine = Machine()
    session = VirtualSession(machine)

    def on_its_own_stream() -> Timer:
        def timed(work: Workload) -> float:
            stream = machine.stream()
            session_launch = session.device.stream.last
            work.enqueue(stream)
            machine.synchronize(stream)
            assert stream.last is not None and session.device.stream.last is session_launch
            return float(stream.last.us)

        return timed

    monkeypatch.setattr("worklog.runner.session.Session", lambda: session)
    monkeypatch.setattr(peers, "gpu", lambda: GPU)
    monkeypatch.setattr(
        peers, "HARNESSES", {"foreign": (by_timer("foreign", on_its_own_stream), "peers")}
    )
    path = peers.compare(benchmarks=[scaled, on_a_stream])
    assert path.parent == runs_dir().parent / "peers"
    compared = open_comparison(path, "benchmarks")
    kinds = [*dict.fromkeys(row.work for row in compared.rows)]
    assert kinds == ["scaled · beta=0 · N", "on_a_stream · op=a · N", "on_a_stream · op=b · N"]
    assert compared.works(kinds[0]) == [64, 128]
    for kind, size in ((kinds[0], 64), (kinds[0], 128), (kinds[2], 64)):
        cold_us = 2 * size**3 / machine.flops_per_us
        read = compared.us(kind, size)
        assert read[peers.OURS] == approx(cold_us, rel=0.01)
        assert read["foreign"] == approx(cold_us, rel=0.3)
        assert read[peers.HOT] == approx(cold_us / machine.warm_speedup, rel=0.1)
    table = peers.text(compared)
    assert (
        "on_a_stream · op=b · N 64" in table
        and f"{peers.TRACED}: " in table
        and "complete" in compared.document
    )
    with pytest.raises(BadSetting, match="waits has sync=True"):
        peers.compare(tmp_path / "other.json", benchmarks=[waits])
