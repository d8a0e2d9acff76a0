"""The other timers and the other way to a cold cache: what each reads, what is an error, and whether they agree."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pytest import approx

from tests.virtual.gpu import VirtualGpu
from tests.virtual.machine import Machine
from worklog.errors import BadSetting, LaunchFailed
from worklog.harness import Harness, Reading, time_in_turn
from worklog.harness import rotating as in_rotation
from worklog.harness.batches import Timed, as_graph, cross_check, input_sets
from worklog.runs.estimates import median

MIB = 2**20
ROTATE, GRAPH = Harness().but(l2="rotate"), Harness().but(timer="graph", l2="warm")


def rotating(gpu: VirtualGpu, us: float, sets: int, start: int = 0) -> Timed:
    order = [*range(start, sets), *range(start)]
    kernels = [gpu.kernel(us, data=f"set {n}", data_bytes=16 * MIB, module=f"{us}") for n in order]
    return in_rotation(kernels, 16 * MIB)


def read(gpu: VirtualGpu, harness: Harness, us: float = 50.0, sets: int = 12) -> Reading:
    start = 0 if harness.timer == "graph" else sets // 2
    return time_in_turn(gpu, [rotating(gpu, us, sets), rotating(gpu, 80.0, sets, start)], harness)


def middle(reading: Reading, side: int = 0) -> float:
    return median(reading.samples.counted(side)).value


def test_the_sets_are_three_times_the_cache_and_at_least_two() -> None:
    sets = {16 * MIB: 12, 64 * MIB: 3, 200 * MIB: 2, 65 * MIB: 3, MIB: 192}
    assert {set_bytes: input_sets(set_bytes, 64 * MIB) for set_bytes in sets} == sets
    with pytest.raises(BadSetting, match="without a byte"):
        input_sets(0, 64 * MIB)


def test_inputs_that_rotate_are_as_cold_as_after_a_flush_and_what_cannot_rotate_is_refused() -> None:
    gpu = VirtualGpu(warm_speedup=1.4, offset_us=0.0)
    reading = read(gpu, ROTATE)
    assert (middle(reading), middle(reading, 1)) == (approx(50.0), approx(80.0))
    assert "flush" not in gpu.log
    with pytest.raises(BadSetting, match=r"3 set\(s\) of 16\.00 MiB .* L2 of 64 MiB: take l2 = flush"):
        read(gpu, ROTATE, sets=3)
    warm = middle(read(gpu, Harness().but(l2="warm"), sets=3))
    assert warm == approx(50.0 / 1.4, abs=1e-3), "3 sets would have been warm"
    with pytest.raises(BadSetting, match="take l2 = flush"):
        time_in_turn(gpu, [gpu.kernel(50.0), gpu.kernel(80.0)], ROTATE)


def test_a_graph_divides_its_time_by_its_launches_and_reads_the_gaps_between_its_nodes() -> None:
    gpu = VirtualGpu(offset_us=3.6, node_us=1.0, machine=Machine(enqueue_us=9.0))
    assert middle(read(gpu, GRAPH)) == approx(50.0 + 0.36 + 1.0)
    cached = VirtualGpu(offset_us=0.0, warm_speedup=1.4)
    assert middle(read(cached, GRAPH.but(l2="rotate"))) == approx(50.0), "cold in every node"
    assert middle(read(cached, GRAPH, sets=1)) == approx(50.0 / 1.4, abs=1e-3)
    slow = VirtualGpu()
    assert middle(read(slow, GRAPH, us=300_000.0)) == approx(300_000.0, rel=1e-3)
    assert slow.machine.host_now < 40e6, "a graph of slow kernels is short"
    alone = VirtualGpu(offset_us=0.0, machine=Machine(enqueue_us=9.0))
    assert 50.0 < middle(read(alone, GRAPH.but(queue=False))) < 60.0, "on an idle stream, with the launch bubble"


def test_a_graph_goes_whole_rounds() -> None:
    launches = {12: 12, 4: 12, 25: 25, 1: 10}
    gpu = VirtualGpu()
    graphs = {sets: as_graph(gpu, rotating(gpu, 50.0, sets), "rotate", 10) for sets in launches}
    assert {sets: graph.count for sets, graph in graphs.items()} == launches


def test_a_graph_is_recorded_again_after_each_move_of_the_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, recorded = VirtualGpu(), []
    capture = gpu.capture
    monkeypatch.setattr(gpu, "capture", lambda launches: (recorded.append(gpu.moves), capture(launches))[1])
    time_in_turn(gpu, [gpu.kernel(50.0), gpu.kernel(80.0)], GRAPH, move=gpu.move)
    assert recorded == [move for move in range(gpu.moves + 1) for _ in range(2)] and gpu.moves >= 8


def test_a_launcher_that_synchronises_cannot_be_recorded() -> None:
    gpu = VirtualGpu()
    kernel = gpu.kernel(50.0)

    def waits() -> None:
        kernel()
        gpu.synchronize()

    with pytest.raises(LaunchFailed, match="capturing"):
        time_in_turn(gpu, [waits, gpu.kernel(80.0)], GRAPH)
    gpu.synchronize()


def check(gpu: VirtualGpu, launch: Callable[[], None], queue: bool = True) -> tuple[float | str, list[str]]:
    launch()
    return cross_check(gpu, launch, 3.45, gpu.machine.enqueue_us, queue)


@pytest.mark.parametrize("us", [20.0, 500.0, 30_000.0])
def test_a_wall_clock_that_agrees_has_nothing_to_say(us: float) -> None:
    gpu = VirtualGpu(noise=1e-3)
    assert check(gpu, gpu.kernel(us)) == (approx(us, rel=2e-3), [])


@pytest.mark.parametrize(("beyond_us", "disagreements"), [(1.5, 0), (2.5, 1)])
def test_the_wall_clock_may_differ_by_2_us_of_a_short_kernel(beyond_us: float, disagreements: int) -> None:
    gpu = VirtualGpu()
    kernel = gpu.kernel(50.0)

    def takes_the_host_longer() -> None:
        kernel()
        gpu.machine.pass_host(50.0 - gpu.machine.enqueue_us + beyond_us)

    assert len(check(gpu, takes_the_host_longer)[1]) == disagreements


def test_a_wrong_offset_is_found_out_and_a_kernel_shorter_than_its_launch_has_no_wall_clock() -> None:
    gpu = VirtualGpu(offset_us=9.0)
    assert len(check(gpu, gpu.kernel(50.0))[1]) == 1
    gpu = VirtualGpu(Machine(enqueue_us=5.0))
    why, disagreements = check(gpu, gpu.kernel(8.0))
    assert "launch of 5.0 µs" in str(why) and disagreements == []


def test_work_on_the_host_is_a_disagreement_and_the_bubble_before_what_is_not_queued_is_none() -> None:
    gpu = VirtualGpu()
    kernel = gpu.kernel(20.0)

    def also_works_on_the_host() -> None:
        kernel()
        gpu.machine.host_now += 700.0

    (said,) = check(gpu, also_works_on_the_host)[1]
    assert (
        said.startswith("cross-check: the wall clock reads 704") and "(both with a warm L2; the host takes 704" in said
    )
    assert check(gpu, kernel, queue=False)[1] == []
    assert check(gpu, also_works_on_the_host, queue=False)[1] == [], "the events see it, too"
    (said,) = cross_check(gpu, kernel, -20.0, 4.0, queue=False)[1]
    assert "(both with a warm L2, and events with a launch bubble of some 4.0 µs)" in said
