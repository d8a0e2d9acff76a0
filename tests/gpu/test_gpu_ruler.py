"""The ruler's promises on a real GPU: known lengths are read right, every timer and both ways to a cold cache agree,
and any callable can be timed.
"""

from __future__ import annotations

from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from pytest import approx

import worklog
from tests.gpu.marks import MARKS
from worklog.bench import measure as bench
from worklog.bench.tasks import BASELINE
from worklog.harness import Harness, time_pair
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement
from worklog.runs.statistics import median
from worklog.settings import STOPPINGS, WARMUPS

QUICK = Harness().but(budget_s=2.0, most_samples=300)


@pytest.fixture(scope="module")
def session() -> bench.Session:
    return bench.Session()


def spin_us(session: bench.Session, us: float, harness: Harness = QUICK) -> float:
    """A kernel of known length as read, offset included."""
    launch = partial(session.timeline.spin, round(1000 * us))
    return median(time_pair(session.timeline, launch, launch, harness).counted("subject")).value


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path_factory.getbasetemp() / "home"))


@cache
def cublas(size: int, **changes: Any) -> Measurement:
    (m,) = bench.measure([BASELINE], [Shape.of(size)], harness=QUICK.but(**changes)).measurements
    assert m.status == "measured", m.reason
    return m


# ---------------------------------------------------------------------------------------------------------- calibration


def test_the_calibration_keeps_its_promises(session: bench.Session) -> None:
    found = session.calibration
    assert found.remarks == []
    assert found.slope == approx(1.0, abs=1e-3)
    assert found.aa_low <= 1.0 <= found.aa_high
    assert found.aa_high - found.aa_low < 0.01
    assert 0.5 < found.launch_us < 100
    assert found.cold_cycles > 1.5 * found.warm_cycles


@pytest.mark.parametrize("us", [1.5, 3.7, 17, 240, 700])
def test_lengths_between_the_calibrated_ones_are_read_right(session: bench.Session, us: float) -> None:
    assert spin_us(session, us) - session.calibration.offset_us == approx(us, abs=max(0.1, 0.002 * us))


@pytest.mark.parametrize("size", [256, 512, 1024])
def test_a_kernel_is_as_fast_as_itself(size: int) -> None:
    """Short kernels take longer from some places in the ring of launches; subject and baseline come by all of them."""
    (m,) = bench.measure([BASELINE], [Shape.of(size)]).measurements
    assert m.converged, m.degradations
    assert m.ratio is not None and m.ratio_low is not None and m.ratio_high is not None
    print(f"{size}: {m.ratio:.4f}, from {m.ratio_low:.4f} to {m.ratio_high:.4f}")
    assert m.ratio_low - 0.003 <= 1.0 <= m.ratio_high + 0.003


def test_the_flush_evicts_what_a_kernel_marked_to_stay(session: bench.Session) -> None:
    import cupy

    timeline, found = session.timeline, session.calibration
    marks, out = cupy.RawKernel(MARKS, "marks"), cupy.zeros(1, cupy.uint32)
    halfway = (found.warm_cycles + found.cold_cycles) / 2
    warm = {}
    for lifted in (False, True):
        with session.device.stream:
            marks((132,), (1024,), (timeline._chain, np.int32(timeline._chain.size), out))
        session.device.synchronize()
        if lifted:
            timeline.lift_marks()
        timeline.flush_l2()
        warm[lifted] = float(np.mean(np.asarray(timeline.probe_l2()) < halfway))
    print(f"of the lines that were marked to stay, {warm[False]:.0%} outlive a flush, and {warm[True]:.0%} once lifted")
    assert warm[True] <= 0.02 < warm[False]
    assert timeline.remarks() == []


# --------------------------------------------------------------------------------------------------------------- timers


def test_a_graph_reads_a_known_length_and_its_own_gap(session: bench.Session) -> None:
    read = spin_us(session, 50.0, QUICK.but(timer="graph", l2="warm"))
    assert 50.0 < read < 53.0


@pytest.mark.skipif(find_spec("cupti") is None, reason="needs cupti-python")
def test_the_tracer_reads_a_known_length(session: bench.Session) -> None:
    assert spin_us(session, 50.0, QUICK.but(timer="cupti")) == approx(50.5, abs=0.7)


@pytest.mark.parametrize("size", [256, 2048])
def test_rotation_and_flush_are_about_as_cold(size: int) -> None:
    flushed, rotated = cublas(size), cublas(size, l2="rotate")
    assert rotated.us == approx(flushed.us, rel=0.15)
    assert rotated.verdict is not None


def test_a_graph_of_rotating_inputs_passes_the_gate_and_is_about_as_fast() -> None:
    events, graph = cublas(1024), cublas(1024, timer="graph", l2="rotate")
    assert graph.us == approx(events.us, rel=0.1)


# ---------------------------------------------------------------------------------------------------------------- rules


@pytest.mark.parametrize("warmup", WARMUPS)
def test_every_warm_up_leads_to_a_measurement(warmup: str) -> None:
    assert cublas(512, warmup=warmup).us == approx(cublas(512).us or 0.0, rel=0.1)


@pytest.mark.parametrize("stopping", STOPPINGS)
def test_every_stopping_rule_ends(stopping: str) -> None:
    assert cublas(512, stopping=stopping).us == approx(cublas(512).us or 0.0, rel=0.1)


# --------------------------------------------------------------------------------------------------------- any callable


def test_a_cupy_kernel_is_timed_and_rotated() -> None:
    import cupy

    x = cupy.ones(2**22, cupy.float32)
    add = cupy.ElementwiseKernel("float32 x", "float32 y", "y = x + 1", "add_one")
    out = cupy.empty_like(x)
    flushed = worklog.time(lambda a: add(a, out), x, moved_bytes=2 * x.nbytes)
    rotated = worklog.time(lambda a: add(a, out), x, harness=Harness().but(l2="rotate"))
    assert flushed.gbs is not None and 500 < flushed.gbs < 8000
    assert rotated.us == approx(flushed.us, rel=0.5)  # what is written stays in L2 when only the inputs rotate


def test_a_torch_product_agrees_with_cublas() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = torch.randn(2, 2048, 2048, device="cuda").unbind()
    told = worklog.time(torch.matmul, a, b, against=torch.matmul, flops=2 * 2048.0**3)
    assert told.ratio == approx(1.0, abs=0.01)
    assert told.us == approx(cublas(2048).us or 0.0, rel=0.1)


def test_a_part_of_a_call_is_timed_and_a_waiting_call_says_its_cost(session: bench.Session) -> None:
    def launch(watch: Any) -> None:
        ruler_stream(session, 200.0)
        watch.start()
        ruler_stream(session, 50.0)
        watch.stop()

    assert worklog.time(launch, partly=True, harness=QUICK).us == approx(50.0, abs=0.3)

    def waiting() -> None:
        import cupy

        ruler_stream(session, 50.0)
        cupy.cuda.get_current_stream().synchronize()

    told = worklog.time(waiting, synchronises=True, harness=QUICK)
    assert 50.0 < told.us < 120.0
    assert any("waits for the GPU" in said for said in told.degradations)


def ruler_stream(session: bench.Session, us: float) -> None:
    """A kernel of known length on CuPy's current stream."""
    import cupy

    session.timeline.spin(round(1000 * us), cupy.cuda.get_current_stream())
