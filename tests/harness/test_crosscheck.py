"""Witnesses that agree are silent; one that does not is quoted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pytest import approx

from tests.harness.virtual import VirtualGpu
from worklog.errors import BadSetting
from worklog.harness.crosscheck import ALLOWED, CrossCheck, cross_check
from worklog.runs.comparison import open_comparison


def check(gpu: VirtualGpu, launch: Callable[[], None], offset_us: float = 3.45) -> CrossCheck:
    launch()
    return cross_check(gpu, launch, offset_us, gpu.enqueue_us)


@pytest.mark.parametrize("us", [20.0, 500.0, 30_000.0])
def test_witnesses_that_agree_have_nothing_to_say(us: float) -> None:
    gpu = VirtualGpu(node_us=1.0, tracer_us=0.6, noise=1e-3)
    found = check(gpu, gpu.kernel(us))
    assert found.disagreements == []
    assert set(found.others) == {"graph", "cupti", "wall clock"}
    assert found.events_us == approx(us, rel=2e-3)
    assert found.others["wall clock"] == approx(us, rel=2e-3)
    assert found.others["graph"] == approx(us + 1.0, rel=2e-3)


def test_what_is_allowed_covers_what_the_witnesses_read_on_kernels_of_known_length() -> None:
    """As recorded with this package: a graph of launches (do_bench_cudagraph's is one), and the tracer."""
    recorded = open_comparison().errors()
    for witness, name in (("cupti", "worklog, CUPTI"), ("graph", "do_bench_cudagraph")):
        assert recorded[name]
        for length, error in recorded[name]:
            us, share = ALLOWED[witness]
            assert 0 < error < max(us, share * length), f"{name} at {length} µs"


def test_work_that_events_do_not_see_is_seen_by_the_wall_clock() -> None:
    gpu = VirtualGpu()
    kernel = gpu.kernel(50.0)

    def also_works_on_the_host() -> None:
        kernel()
        gpu.host_now += 700.0

    (said,) = check(gpu, also_works_on_the_host).disagreements
    assert said.startswith("cross-check: the wall clock") and "704.00 µs" in said and "50.00 µs" in said


def test_an_offset_that_is_wrong_is_found_out_by_all() -> None:
    gpu = VirtualGpu(offset_us=9.0)
    assert len(check(gpu, gpu.kernel(50.0)).disagreements) == 3


def test_a_kernel_shorter_than_its_launch_has_no_wall_clock() -> None:
    gpu = VirtualGpu(enqueue_us=5.0)
    found = check(gpu, gpu.kernel(8.0))
    assert "launch of 5.0 µs" in found.absent["wall clock"]
    assert found.disagreements == []


@pytest.mark.parametrize("us", [20.0, 500.0])
def test_the_bubble_before_what_is_not_queued_is_no_disagreement(us: float) -> None:
    gpu = VirtualGpu(tracer_us=0.6)
    kernel = gpu.kernel(us)

    def also_works_on_the_host() -> None:
        kernel()
        gpu.host_now += 700.0

    kernel()
    found = cross_check(gpu, kernel, 3.45, gpu.enqueue_us, queue=False)
    assert found.bubble_us > 2 and found.disagreements == []
    found = cross_check(gpu, also_works_on_the_host, 3.45, gpu.enqueue_us, queue=False).disagreements
    assert found and all("(both with a warm L2, and events with a launch bubble of some" in said for said in found)


def test_a_witness_that_cannot_be_had_is_named_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = VirtualGpu()
    kernel = gpu.kernel(50.0)

    def no_tracer(queued: bool) -> None:
        raise BadSetting("pip install cupti-python")

    def cannot_be_recorded() -> None:
        kernel()
        if gpu._recording is not None:
            gpu.synchronize()

    monkeypatch.setattr(gpu, "tracer", no_tracer)
    found = check(gpu, cannot_be_recorded)
    assert set(found.others) == {"wall clock"}
    assert "capturing" in found.absent["graph"]
    assert "cupti-python" in found.absent["cupti"]
