"""Harnesses that are wrong by a known amount, missing or failing: each gets rows, and none ends the comparison."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pytest import approx

from tests.exploits.arrays import xp
from tests.virtual.gpu import VirtualGpu
from tests.virtual.machine import Machine
from tests.virtual.session import VirtualSession
from worklog.errors import BadSetting, WorklogError, install_command
from worklog.peers import compare as peers
from worklog.peers.harnesses import Found, OtherHarness, OurHarness, Work, nvbench_summaries, works_on
from worklog.runner.declare import declared
from worklog.runs.comparison import Comparison, Promises, at_one_clock, clock_slope, open_comparison
from worklog.runs.documents import converted
from worklog.runs.estimates import DRIFT_SD_US, NORMAL, median


def work(gpu: VirtualGpu, of: float, us: float) -> Work:
    """cuBLAS of a size, and of a known length."""
    kernel = gpu.kernel(us)
    return Work("cuBLAS", of, lambda stream: kernel())


def virtual_gpu() -> Any:
    return SimpleNamespace(name="Virtual", as_dict=lambda: {"name": "Virtual"})


def ours(gpu: VirtualGpu, offset_us: float = 0.0) -> OurHarness:
    return OurHarness(gpu, SimpleNamespace(stream=None), offset_us)  # type: ignore[arg-type]


def test_events_and_tracer_in_turn_see_the_same_clock() -> None:
    gpu = VirtualGpu(tracer_us=0.6, offset_us=3.4, clock=lambda now: 2000.0 - now / 1e5)
    (beside,) = peers.beside_the_tracer(ours(gpu, 3.4), [work(gpu, 512.0, 200.0)])["beside_cupti"]
    assert beside["of"] == 512.0 and beside["events_us"] > 200.05, "the clock fell"
    assert beside["tracer_us"] - beside["events_us"] == approx(0.6, abs=0.05)


def test_a_tracer_that_fails_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = VirtualGpu(tracer_us=0.6)
    (row,) = peers.traced_rows(ours(gpu), [work(gpu, 512.0, 20.0)])
    assert row.us == approx(20.6)
    monkeypatch.setattr(gpu, "tracer", lambda queued: (_ for _ in ()).throw(RuntimeError("no tracer\nsecond line")))
    (row,) = peers.traced_rows(ours(gpu), [work(gpu, 512.0, 20.0)])
    assert (row.us, row.reason) == (None, "RuntimeError: no tracer")
    found = peers.beside_the_tracer(ours(gpu), [work(gpu, 512.0, 20.0)])
    assert found == {"beside_cupti": [], "beside_cupti_reason": "RuntimeError: no tracer"}


def test_the_same_kernel_twice_agrees_and_is_read_as_precisely_as_everything_else() -> None:
    """To half a percent of the time, not of the time with the offset in it."""
    gpu = VirtualGpu(noise=2e-2, offset_us=1000.0)  # so noisy that the samples of the warm-up are not enough
    found = peers.same_twice(ours(gpu, 1000.0), work(gpu, 512, 1000.0), pairs=10)["aa"]
    assert found["agree"] >= 8
    assert len(found["intervals_us"]) == found["pairs"] == 10
    intervals = [interval for pair in found["intervals_us"] for interval in pair]
    assert all((high - low) / 2 <= 0.0051 * (middle - 1000.0) for low, middle, high in intervals)


AGAIN = [{"of": 512, "wall_s": seconds, "converged": True} for seconds in (0.4, 0.1)]


@pytest.mark.parametrize(
    ("converged", "again", "theirs", "said"),
    [
        (True, AGAIN, [peers.Row("NVBench cold", "cuBLAS", 512, 20.0, 1.5)], "±0.5 % after 0.15 s; NVBench 1.50 s"),
        (False, AGAIN, [], "±0.5 % not reached in 0.15 s; NVBench –"),
        (True, [AGAIN[0], AGAIN[1] | {"converged": False}], [], "±0.5 % not reached in 0.15 s; NVBench –"),
    ],
)
def test_the_time_to_an_interval_is_the_median_reading_and_one_that_did_not_converge_is_reported(
    converged: bool, again: list[dict[str, Any]], theirs: list[peers.Row], said: str
) -> None:
    rows = [peers.Row(peers.OURS, "cuBLAS", 512, 17.0, 0.15, converged=converged), *theirs]
    rows.append(peers.Row("torch Timer", "spin", 1, reason="ImportError: no torch"))
    read = [*map(asdict, rows)]
    promises = {"aa": {"pairs": 50, "agree": 48}, "wall_s": peers.wall_times(read, again)}
    head = {"device": {"name": "Virtual"}, "created": "2026-11-21T05:00:00+00:00"}
    text = peers.text(Comparison({**head, "rows": read, "promises": promises}, "live"))
    assert text.startswith("live · Virtual · ") and f"cuBLAS 512: {said}" in text
    assert re.search(rf"^ +cuBLAS 512 +17\.00 {' +20.00' * len(theirs)} +–$", text, re.MULTILINE)
    assert "48 of 50 pairs agree" in text and "torch Timer: ImportError: no torch" in text


def test_kernels_of_known_length_are_functions_with_a_name() -> None:
    """cupyx's benchmark reads __name__."""
    seen: list[tuple[int, str]] = []
    device = SimpleNamespace(stream="its stream", synchronize=lambda: None)
    timeline = SimpleNamespace(spin=lambda ns, stream: seen.append((ns, stream)))
    works = works_on(SimpleNamespace(device=device, timeline=timeline), (1, 20), ())  # type: ignore[arg-type]
    assert seen == [(1000, "its stream"), (20_000, "its stream")]
    assert all(hasattr(one.enqueue, "__name__") for one in works)


def test_nvbench_results_are_read_by_tag() -> None:
    number = {"name": "value", "type": "float64", "value": "1.25e-05"}
    state = {"summaries": [{"tag": "nv/cold/time/gpu/mean", "data": [number]}, {"tag": "nv/empty"}]}
    assert nvbench_summaries({"benchmarks": [{"name": "work0", "states": [state]}]}) == {
        "work0": {"nv/cold/time/gpu/mean": 1.25e-05}
    }


def reads_three_too_long(works: Sequence[Work]) -> Iterator[Found]:
    yield from (("NVBench cold", one, one.of + 3, 1.0) for one in works)


def reads_no_number(works: Sequence[Work]) -> Iterator[Found]:
    yield from (("no number", one, 20.0 if one is works[0] else float("nan"), float("nan")) for one in works)


def fails_at_the_second(works: Sequence[Work]) -> Iterator[Found]:
    yield "broken", works[0], 8.4, 0.1
    raise RuntimeError("cudaErrorStreamCaptureInvalidated\nsecond line")


def is_not_installed(works: Sequence[Work]) -> Iterator[Found]:
    yield from __import__("a_foreign_package").read(works)


def test_the_whole_comparison_is_written_step_by_step_and_opens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu, recorded = VirtualGpu(noise=1e-3, tracer_us=0.6), open_comparison().document["calibration"]

    class Ready:
        device = SimpleNamespace(stream=None)
        timeline = gpu
        calibration = SimpleNamespace(offset_us=gpu.offset_us, as_dict=lambda: recorded | {"sm_mhz": float("nan")})

    def works_on(session: Ready, known_us: Sequence[int], sizes: Sequence[int]) -> list[Work]:
        spins = [Work("spin", us, lambda stream, us=us: gpu.spin(1000 * us)) for us in known_us]
        return [*spins, *(work(gpu, size, size / 32) for size in sizes)]

    written: list[bool] = []
    path = tmp_path / "peers.json"
    held = {"work": "cuBLAS", "of": 256, "intervals_us": [[[9.0, 10.0, 11.0]] * 2] * 2, "sm_mhz": [[1980.0] * 2] * 2}
    others = [OtherHarness("NVBench cold", reads_three_too_long), OtherHarness("no number", reads_no_number)]
    others += [OtherHarness("broken", fails_at_the_second), OtherHarness("missing", is_not_installed, "torch")]
    replaced = dict(gpu=virtual_gpu, HARNESSES=others, coverage=lambda: [held])
    fewer = dict(KNOWN_US=(1, 100), SIZES=(512, 4096), PROMISED_SIZES=(512, 4096))
    for name, value in (replaced | fewer).items():
        monkeypatch.setattr(peers, name, value)
    monkeypatch.setattr("worklog.runner.session.Session", Ready)
    monkeypatch.setattr("worklog.peers.harnesses.works_on", works_on)
    only = open_comparison(peers.compare(tmp_path / "only.json", only="intervals"))
    assert not only.harnesses and only.document["complete"]
    assert only.coverage() == {"cuBLAS at 256": (1.0, 1.0)} and "holds 0 in 100.0%" in peers.text(only)
    assert peers.compare(path, lambda done, total, doing: written.append(bool(path.stat().st_size))) == path
    assert not written[0] and all(written[1:]), "after each step"
    found = open_comparison(path)
    assert found.document["complete"] and found.document["calibration"]["sm_mhz"] is None, "JSON has no NaN"
    assert {*found.harnesses} == {peers.OURS, peers.KEPT, *(other.name for other in others), peers.TRACED}
    missing = "ModuleNotFoundError: No module named 'a_foreign_package'; to get it: "
    assert found.reasons == {
        "no number": "it read nan µs",
        "broken": "RuntimeError: cudaErrorStreamCaptureInvalidated",
        "missing": missing + install_command("torch"),
    }
    (read, *_), (kept, *_) = ([row for row in found.rows if row.ruler == name] for name in ("no number", "broken"))
    assert (read.us, read.wall_s, kept.us, kept.wall_s) == (20.0, None, 8.4, 0.1)
    errors = found.errors()
    assert all(abs(error) < 0.05 for _, error in errors[peers.OURS])
    assert [error for _, error in errors[peers.KEPT]] == approx([gpu.offset_us] * 2, abs=0.05)
    promises = found.document["promises"]
    assert [point["of"] for point in promises["wall_s"]] == [*peers.PROMISED_SIZES]
    for point in promises["wall_s"]:
        row_s = found.wall_s("cuBLAS", point["of"])[peers.OURS]
        again = [reading["wall_s"] for reading in promises["again"] if reading["of"] == point["of"]]
        assert all(seconds > 0 for seconds in again)
        assert point["worklog_s"] == approx(median([row_s, *again]).value) and len(again) == peers.BESIDE - 1
    assert {point["of"] for point in promises["beside_cupti"]} == {*peers.SIZES}


# ------------------------------------------------------------------------------------ whether the 95 % intervals hold

CHILD = """
import json, sys
works, count = json.loads(sys.argv[1]), sys.argv[2]
print("a library says something")
one = {"intervals_us": [[9.0, 10.0, 11.0]] * int(count), "sm_mhz": [1980.0] * int(count), "wall_s": [0.5], "kernels": 2}
print(json.dumps([one for kind, size in works]))
"""


def coverage_of(
    *processes: list[list[float]], mhz: float = 1980.0, clocks: list[list[float]] | None = None, kernels: int = 1
) -> tuple[float, float]:
    """In one process, and across processes. mhz: the clock of every second reading, where no clocks are given."""
    clocks = clocks or [[1980.0, mhz] * (len(process) // 2) for process in processes]
    point = {"work": "cuBLAS", "of": 256, "intervals_us": list(processes), "sm_mhz": clocks, "kernels": kernels}
    return Comparison({"promises": {"coverage": [point]}}).coverage()["cuBLAS at 256"]


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


def test_declared_benchmarks_are_compared_cold_and_hot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text(DECLARED)
    scaled, on_a_stream, waits = declared(tmp_path / "file.py")
    xp.machine = machine = Machine()
    session = VirtualSession(machine)
    calibration = open_comparison().document["calibration"] | {"offset_us": session.calibration.offset_us}
    session.calibration = SimpleNamespace(offset_us=session.calibration.offset_us, as_dict=lambda: calibration)  # type: ignore[assignment]

    def on_its_own_stream(works: Sequence[Work]) -> Iterator[Found]:
        for one in works:
            stream, before = machine.stream(), session.device.stream.last
            one.enqueue(stream)
            machine.synchronize(stream)
            assert stream.last is not None and session.device.stream.last is before
            yield "foreign", one, stream.last.us, 0.1

    monkeypatch.setattr("worklog.runner.session.Session", lambda: session)
    monkeypatch.setattr(peers, "gpu", virtual_gpu)
    monkeypatch.setattr(peers, "HARNESSES", (OtherHarness("foreign", on_its_own_stream),))
    path = peers.compare(tmp_path / "out.json", benchmarks=[scaled, on_a_stream])
    found = open_comparison(path, "benchmarks")
    assert found.kinds == ["scaled · beta=0 · N", "on_a_stream · op=a · N", "on_a_stream · op=b · N"]
    assert found.works(found.kinds[0]) == [64, 128]
    for kind, of in ((found.kinds[0], 64), (found.kinds[0], 128), (found.kinds[2], 64)):
        cold_us, read = 2 * of**3 / machine.flops_per_us, found.us(kind, of)
        assert read[peers.OURS] == approx(cold_us, rel=0.01)
        assert read["foreign"] == approx(cold_us, rel=0.3)
        assert read[peers.HOT] == approx(cold_us / machine.warm_speedup, rel=0.1)
    shown = peers.text(found)
    assert "on_a_stream · op=b · N 64" in shown and f"{peers.TRACED}: " in shown and "complete" in found.document
    with pytest.raises(BadSetting, match="waits has sync=True"):
        peers.compare(tmp_path / "other.json", benchmarks=[waits])


def test_each_process_reads_each_size() -> None:
    works = ("cuBLAS", 256), ("shared", 512)
    found = peers.coverage(processes=3, pairs=2, works=works, command=[sys.executable, "-c", CHILD])
    assert [(point["work"], point["of"]) for point in found] == [*works]
    assert all(np.shape(point["intervals_us"]) == (3, 4, 3) and point["wall_s"] == 0.5 for point in found)
    assert [point["kernels"] for point in found] == [2, 2]


def test_a_child_that_fails_ends_the_measurement_with_its_last_line() -> None:
    with pytest.raises(WorklogError, match="no room left"):
        peers.coverage(command=[sys.executable, "-c", "import sys; sys.exit('no room left')"])


@pytest.mark.parametrize(
    ("one", "other", "mhz", "share"),
    [
        ([9.0, 10.0, 11.0], [10.4, 11.4, 12.4], 1980.0, 1.0),
        ([9.0, 10.0, 11.0], [10.5, 11.5, 12.5], 1980.0, 0.0),
        ([99.9, 100.0, 100.1], [100.9, 101.0, 101.1], 1980.0, 0.0),
        ([99.9, 100.0, 100.1], [100.9, 101.0, 101.1], 1980 / 1.01, 1.0),
        ([10.0, 10.0, 11.0], [10.0, 11.0, 11.0], 1980.0, 1.0),  # order statistics of times in two groups
    ],
)
def test_a_pair_holds_if_its_difference_at_one_clock_is_within_both_half_widths_in_quadrature(
    one: list[float], other: list[float], mhz: float, share: float
) -> None:
    assert coverage_of([one, other], mhz=mhz)[0] == share


@pytest.mark.parametrize(("slope", "fitted"), [(-0.5, -0.5), (-2.0, -1.0), (0.5, 0.0)])
def test_the_dependence_on_the_clock_is_fitted_within_processes(slope: float, fitted: float) -> None:
    """Process 1 is slower at higher clocks for a reason of its own, and the upper limits are too high at all clocks."""
    clocks = np.array([[1960.0, 1970.0, 1980.0], [1980.0, 1990.0, 2000.0]])
    middles = np.array([[100.0], [103.0]]) * (clocks / 1980) ** slope
    highs = middles * (1.1 + np.array([[0.0, 0.1, 0.3]] * 2))
    intervals = np.stack([middles * 0.9, middles, highs], axis=-1)
    point: Any = {"work": "cuBLAS", "of": 256, "intervals_us": intervals.tolist(), "sm_mhz": clocks.tolist()}
    assert clock_slope(point) == approx(fitted)
    scaled = at_one_clock(point)
    assert scaled / intervals == approx(np.broadcast_to((scaled / intervals)[..., :1], scaled.shape))
    if fitted == slope:
        assert scaled[..., 1].std(axis=1) == approx([0.0, 0.0], abs=1e-9)
        assert scaled[1, 0, 1] / scaled[0, 0, 1] == approx(1.03)
    assert clock_slope({**point, "sm_mhz": [[1980.0] * 3] * 2}) == 0


def test_a_file_from_before_kernels_were_counted_opens() -> None:
    document = deepcopy(open_comparison(part="intervals").document)
    for point in document["promises"]["coverage"]:
        del point["work"]
        point["kernels"] = "no tracer here"
    found = converted(document["promises"], Promises)
    assert {*Comparison({"promises": found}).coverage()} == {f"cuBLAS at {n}" for n in (256, 1024, 2048, 4096)}


def test_in_one_process_an_interval_has_the_drift_and_not_the_process() -> None:
    limit = 2**0.5 * NORMAL * DRIFT_SD_US
    for off, held in ((0.98 * limit, 1.0), (1.02 * limit, 0.0)):
        pair = [[10.0] * 3, [10.0 + off] * 3]
        assert coverage_of(pair * 4, kernels=2)[0] == held


def test_an_effect_of_the_process_shows_across_processes_only() -> None:
    one, other = ([[x - 0.1, x, x + 0.1]] * 8 for x in (10.0, 10.3))
    assert coverage_of(one, other) == (1.0, 0.0)
    assert coverage_of(one, other, kernels=2) == (1.0, 1.0), "the gap before a second kernel differs between processes"


@pytest.mark.parametrize("slope", [-1.0, 0.0])
def test_intervals_of_the_right_width_hold_in_95_percent(slope: float) -> None:
    """Whether the time depends on the clock or not: the readings show it."""
    rng = np.random.default_rng(0)
    clocks = rng.uniform(1960, 2000, (10, 400))
    middles = 1000 * (clocks / 1980) ** slope + rng.standard_normal(clocks.shape)
    found = coverage_of(*[[[x - 1.96, x, x + 1.96] for x in process] for process in middles], clocks=clocks.tolist())
    assert all(share == approx(0.95, abs=0.015) for share in found)


def test_intervals_over_nine_placements_hold_in_more_of_the_pairs() -> None:
    """Each is one of Student's t with 8 degrees of freedom, and a difference has about 16: 96.5 %."""
    samples = np.random.default_rng(0).normal(1000.0, 30.0, (4, 400, 9)).repeat(3, axis=2).tolist()
    placements = [number // 3 for number in range(27)]
    found = [[median(one, placements) for one in process] for process in samples]
    across = coverage_of(*[[[one.low, one.value, one.high] for one in process] for process in found])[1]
    assert across == approx(0.965, abs=0.007)
