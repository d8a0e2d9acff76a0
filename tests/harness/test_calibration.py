"""The harness measured by itself on a GPU with known overhead, slope, flush and noise.

And its kernels as the compiler sees them.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from pytest import approx

import worklog
from tests.harness.fake_nvml import GPU
from tests.helpers import typed
from tests.virtual.gpu import VirtualGpu
from tests.virtual.machine import Machine
from tests.virtual.session import CALIBRATION
from worklog.emulator.limits import LIMITS
from worklog.harness import calibration as harness
from worklog.harness.calibration import calibrate, certificate
from worklog.kernel.device import Program
from worklog.kernel.nvrtc import compile_cuda
from worklog.runs import Calibration, recorded_run


def test_a_calibration_finds_what_the_gpu_was_given():
    gpu = VirtualGpu(Machine(enqueue_us=5.5), offset_us=2.8, noise=5e-4, warm_speedup=2.0)
    found = calibrate(gpu)
    assert (found.offset_us, found.slope) == approx((2.8, 1.0), abs=1e-6)
    assert found.launch_us == approx(5.5) and found.aa_low <= 1.0 <= found.aa_high
    rates = found.fp32_tflops, found.copy_gbs / 1e3, found.l2_gbs / 1e3
    assert rates == approx((1 / 52.8, 1 / 52.8, 1 / 27.8), rel=1e-3), (
        "only reads of L2 are from a warm cache"
    )
    assert found.sm_mhz == approx(2000.0) and found.flush_evicts and found.remarks == []
    noisy = calibrate(VirtualGpu(noise=0.02))
    assert noisy.aa_high - noisy.aa_low == approx(40 * (found.aa_high - found.aa_low), rel=0.5)


def test_a_ceiling_is_of_a_rate_that_lasts():
    first = 1 + 2 * harness.AA_PAIRS  # of FP32
    found = calibrate(VirtualGpu(slow_launches=range(first, first + 17), slow_mhz=1000.0))
    assert found.fp32_tflops == approx(1 / 53.45, rel=1e-3) and found.sm_mhz == approx(2000.0)


@pytest.mark.parametrize(("slope", "within"), [(1.0, True), (1.001, True), (1.01, False)])
def test_a_slope_is_distinguished_from_an_overhead_and_has_its_tolerance(slope, within):
    found = calibrate(VirtualGpu(offset_us=2.8, event_slope=slope))
    over_us = found.offset_by_length_us
    assert (next(iter(over_us)), [*over_us][-1]) == ("1", "1000")
    assert over_us == approx(
        {known: 2.8 + (slope - 1) * float(known) for known in over_us}, abs=1e-4
    )
    assert found.offset_us == approx(2.8 + (slope - 1) * 20), "halfway between 10 and 30 µs"
    assert found.slope == approx(slope, rel=1e-5)
    assert found.error_us[1000.0] == approx(1000 * (slope - 1), rel=0.1, abs=1e-6)
    assert found.within_tolerance is within


@pytest.mark.parametrize(("beyond_us", "within"), [(0.0, True), (1e-9, False)])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_error_as_large_as_the_tolerance_is_within_it(beyond_us, within, sign):
    lengths = (1.0, 10.0, 30.0, 1000.0)
    most = {known: Calibration.allowed_us(known) for known in lengths}
    over = dict.fromkeys(map("{:g}".format, lengths), 0.0)
    over["1000"] = sign * (most[1000.0] + beyond_us)
    found = replace(CALIBRATION, offset_us=0.0, offset_by_length_us=over)
    assert abs(found.error_us[1000.0]) == most[1000.0] + beyond_us
    assert found.within_tolerance is within


def test_the_tick_is_the_smallest_step():
    # The flush before it makes each reading fall elsewhere on the grid, as on a real GPU.
    gpu = VirtualGpu(tick_us=0.032, offset_us=3.45)
    jitter = iter(range(10**6))
    spin = gpu.spin
    gpu.spin = lambda ns: spin(ns + next(jitter) % 7 * 20)
    assert harness.read_known_lengths(gpu)[1] == approx(0.032, abs=1e-3)


def test_a_short_disturbance_shifts_no_length():
    gpu = VirtualGpu(offset_us=2.8)
    number = iter(range(10**6))
    spin = gpu.spin
    gpu.spin = lambda ns: spin(ns + 1000 * (300 <= next(number) < 520))
    assert harness.read_known_lengths(gpu)[0] == approx(
        dict.fromkeys(harness.KNOWN_US, 2.8), abs=1e-6
    )
    assert next(number) > 520


@pytest.mark.parametrize(
    ("evicts", "cold", "still"), [(True, 650, 0.0), (False, 250, 0.95), (0.9, 650, 0.1)]
)
def test_whether_the_flush_works_is_found_out_and_how_much_it_leaves(
    monkeypatch, evicts, cold, still
):
    gpu = VirtualGpu(flush_evicts=bool(evicts))
    if evicts == 0.9:  # of the cache
        warm = [250.0 + n % 20 for n in range(1000)]
        reads = iter([warm, warm, warm[:100] + 900 * [650.0]])
        monkeypatch.setattr(gpu, "probe_l2", lambda: next(reads))
    found = calibrate(gpu)
    assert found.flush_evicts is (evicts is True)
    assert (found.warm_cycles, found.cold_cycles) == approx((250, cold), rel=0.05)
    assert found.still_cached == approx(still, abs=0.05)


def test_the_certificate_states_promise_evidence_and_machine_and_does_not_hide_a_failure():
    found = replace(
        CALIBRATION,
        fp32_tflops=65.3,
        copy_gbs=4000.0,
        sm_mhz=1980.0,
        aa_ratio=1.0001,
        aa_low=0.9998,
        aa_high=1.0004,
    )
    page = certificate(found, GPU, "live · Virtual · 2026-11-21")
    for words in (
        "live · Virtual · 2026-11-21 · driver 580\n",
        "3.45 µs, removed",
        "within 0.1 µs or 0.2 %",
        "100.01 % ±0.03",
        "evicts: a read takes 250 cycles",
        "65.3 TFLOP/s at 1980 MHz, 97.6 % of theory",
        "4000 GB/s, 81.4 % of theory",
    ):
        assert words in page
    for read_us, error in ((4.2, "+0.80"), (2.6, "-0.80")):
        bad = replace(
            CALIBRATION, offset_by_length_us={"1": 3.4, "10": 3.4, "100": read_us}, still_cached=0.4
        )
        page = certificate(bad, GPU, "2026-11-21")
        assert f"OUT OF TOLERANCE; largest error {error}0 µs" in page and "DOES NOT EVICT" in page
        assert f"up to {error} µs wrong" in bad.remarks[0] and "40% of the reads" in bad.remarks[1]
    assert CALIBRATION.remarks == []


@pytest.mark.parametrize("live", [True, False])
def test_the_command_prints_the_certificate_or_json_of_this_gpu_or_of_the_recording(
    live, monkeypatch
):
    monkeypatch.setattr(
        "worklog.runner.sources.gpu_reason", lambda: None if live else "no usable NVIDIA driver"
    )
    monkeypatch.setenv("WORKLOG_SOURCE", "" if live else "recorded")
    monkeypatch.setattr(
        "worklog.runner.session.Session", lambda: SimpleNamespace(calibration=CALIBRATION)
    )
    for module in ("runner.session", "gpu.device"):
        monkeypatch.setattr(f"worklog.{module}.gpu", lambda: GPU)
    recorded = recorded_run()
    calibration, card = (CALIBRATION, GPU) if live else (recorded.calibration, recorded.gpu)
    page = typed("doctor", "--calibrate")
    assert page.exit_code == 0 and "removed from every result" in page.output
    assert live or page.output.startswith(f"{recorded.label} · driver {recorded.gpu.driver}\n")
    document = json.loads(typed("doctor", "--calibrate", "--json").output)
    assert (document["calibration"], document["remarks"]) == (asdict(calibration), [])
    assert document["device"] == json.loads(json.dumps(asdict(card)))
    assert live or document["label"] == recorded.label


SOURCE = (Path(worklog.__file__).parent / "gpu" / "timeline.cu").read_text(encoding="utf-8")


@pytest.mark.parametrize("entry", ["hold", "stamp", "flush", "spin", "ffma", "read", "probe"])
def test_every_kernel_of_the_harness_compiles_for_the_oldest_and_the_newest_gpu_without_spills(
    entry,
):
    first, *_, last = LIMITS
    for arch in (first, last):
        kernel = compile_cuda(Program("timeline.cu", SOURCE, f"harness_{entry}"), arch)
        assert kernel.spill_store_bytes == kernel.spill_load_bytes == 0
    if entry == "ffma":
        assert kernel.ptx.count("fma.rn.f32") >= 256
    if entry == "probe":
        assert "ld.global.cg" in kernel.ptx, "past L1"
