"""A run as an H200 leaves it, built by hand: round times, a few samples each, and an ablation of every pitfall; and a
comparison of harnesses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.helpers import measured
from worklog.kernel.ladder import LADDER
from worklog.problem.gemm import Shape, tflops
from worklog.runs.comparison import Comparison
from worklog.runs.measurement import Measurement
from worklog.runs.run import Run
from worklog.settings import HOW_ONE_MEASURES, PITFALLS, Harness

# Milliseconds at 4096.
TIMES_MS = {
    "naive": 276.5,
    "coalesced": 23.5,
    "shared": 16.03,
    "tiles_1d": 7.51,
    "tiles_2d": 5.61,
    "vectorized": 3.89,
    "autotuned": 2.745,
    "warptiled": 2.648,
    "cuBLAS": 2.663,
}
CALIBRATION: dict[str, Any] = {
    "offset_us": 3.45,
    "offset_by_length_us": {"1": 3.5, "10": 3.44, "1000": 3.41},
    "tick_us": 0.032,
    "slope": 0.99996,
    "aa_ratio": 1.0001,
    "aa_low": 0.9998,
    "aa_high": 1.0004,
    "warm_cycles": 270.0,
    "cold_cycles": 690.0,
    "still_cached": 0.0,
}
CEILING = 66.0
PRECISE = 187.4, 1296.0, "class fp32: rms 19.3 u·D (fp32 up to 80.8), largest 187 (up to 1296)"
STAGES = [
    {"name": name, "passed": True, "measured": measured, "limit": limit, "detail": detail}
    for name, measured, limit, detail in (
        ("exact on edge shapes", 0, 0, "4 shapes x 4 pairs of alpha and beta, no element wrong"),
        ("exact at the benchmark shape", 0, 0, "families E1, E2, E3 at 4096, no row wrong"),
        ("bit-equal when repeated", 0, 0, "20 launches on the same integers"),
        ("precision", *PRECISE),
        ("timed output", *PRECISE),
        ("plausible", 0.78, 1.02, "77.7 % of the 66.9 TFLOP/s that are possible"),
    )
]
BIASED = {pitfall.setting: pitfall.biased[0] for pitfall in PITFALLS}
NAIVE_READING = {setting: BIASED[setting] for setting in HOW_ONE_MEASURES}
ARTICLE_FOUR = {pitfall.setting: pitfall.biased[0] for pitfall in PITFALLS if pitfall.article}
# How much faster each bias makes a kernel of 20 µs look; at other lengths the effect of a fixed time shrinks or grows.
ALONE_AT_20_US = {
    "clocks": 1.004,  # below the noise
    "timer": 4.6,
    "l2": 1.31,
    "warmup": 0.83,
    "queue": 0.78,
    "order": 1.02,
    "placement": 1.03,
    "inputs": 1.07,
    "gate": 1.0,
    "baseline": 0.16,
}
BIAS_AT_20_US = [({setting: BIASED[setting]}, factor) for setting, factor in ALONE_AT_20_US.items()]
BIAS_AT_20_US += [(ARTICLE_FOUR, 4.1), (NAIVE_READING, 4.3)]


def measurement(kernel: str, n: int, us: float, ratio: float, **more: Any) -> Measurement:
    """One finished measurement of a square problem, ±0.4 % wide, with nine samples."""
    rate = tflops(Shape.of(n), us)
    spread = [1.0, 0.999, 1.001, 0.998, 1.002, 1.0, 1.004, 0.997, 1.03]
    fields: dict[str, Any] = {
        "us_low": us * 0.996,
        "us_high": us * 1.004,
        "ratio_low": ratio * 0.997,
        "ratio_high": ratio * 1.003,
        "of_ceiling": rate / CEILING,
        "of_roof": rate / 66.9,
        "samples": {"us": [round(us * s + CALIBRATION["offset_us"], 3) for s in spread], "counts": [1] * len(spread)},
        "verdict": {"accepted": True, "precision": "fp32", "reason": None, "stages": STAGES},
    }
    return replace(measured(kernel, n, us, ratio), **(fields | more))


def empty_run() -> Run:
    """Provenance and calibration, no measurement."""
    return Run(
        device={
            "name": "NVIDIA H200",
            "multiprocessors": 132,
            "l2_bytes": 60 * 2**20,
            "memory_bytes": 140 * 2**30,
            "fp32_peak_tflops": 66.9,
            "memory_peak_gbs": 4814.3,
        },
        harness=Harness().as_dict(),
        created="2026-11-21T03:12:44+00:00",
        calibration=CALIBRATION | {"fp32_tflops": CEILING, "copy_gbs": 4244.6, "l2_gbs": 7824.2},
        kernels={rung.name: {"tile": dict(rung.template), "idea": rung.idea} for rung in LADDER} | {"cuBLAS": {}},
        complete=True,
        origin="recorded",
    )


def ladder_run(size: int = 4096) -> Run:
    """The eight rungs and cuBLAS at one size."""
    run = empty_run()
    scale = (size / 4096) ** 3
    for kernel, ms in TIMES_MS.items():
        run.add(measurement(kernel, size, 1e3 * ms * scale, TIMES_MS["cuBLAS"] / ms))
    return run


def ablate(run: Run, kernel: str, sizes: tuple[int, ...] = (256, 512, 1024, 2048, 4096)) -> None:
    """Add an ablation: effects of fixed times (the host clock, the bubble) shrink or grow with the kernel's own."""
    for n in sizes:
        if not run.select(kernel, Shape(n, n, n)):
            us = max(1e3 * TIMES_MS[kernel] * (n / 4096) ** 3, 12.0)
            run.add(measurement(kernel, n, us, TIMES_MS["cuBLAS"] / TIMES_MS[kernel]))
        [unbiased] = run.select(kernel, Shape(n, n, n))
        us, share = unbiased.us or 0.0, unbiased.ratio or 0.0
        for changed, factor in BIAS_AT_20_US:
            if "timer" in changed:
                biased_us = us / factor / max(1.0, us / 20)
            else:
                biased_us = us * (1 + (1 / factor - 1) * min(1.0, 20 / us))
            ratio = share * factor if changed.keys() & {"order", "baseline"} else share * us / biased_us
            run.add(measurement(kernel, n, biased_us, ratio, changed=changed))


def full_run() -> Run:
    """The ladder at 4096 and the ablation of two rungs."""
    run = ladder_run()
    for kernel in ("naive", "warptiled"):
        ablate(run, kernel)
    return run


LENGTHS = (1, 2, 5, 10, 30, 100, 1000)
ERRORS = {
    "worklog": 0.03,
    "worklog, offset kept": 3.45,
    "CuPy benchmark": 9.0,
    "torch Timer": 12.0,
    "do_bench": 3.42,
    "do_bench_cudagraph": 1.0,
    "NVBench cold": 2.8,
    "NVBench batch": 1.3,
    "worklog, CUPTI": 0.6,
}


def comparison(errors: Mapping[str, float] = ERRORS) -> Comparison:
    """Harnesses that read every known length wrong by the same time, in microseconds, and one that read none."""
    rows = [
        {"ruler": name, "work": "spin", "of": length, "us": length + error, "reason": None}
        for name, error in errors.items()
        for length in LENGTHS
    ]
    rows.append({"ruler": "gone", "work": "spin", "of": 1, "us": None, "reason": "ImportError"})
    return Comparison(
        {
            "device": {"name": "NVIDIA H200"},
            "created": "2026-11-21T05:20:00+00:00",
            "complete": True,
            "calibration": CALIBRATION,
            "rows": rows,
        }
    )


@pytest.fixture
def h200() -> Run:
    """A full run, to be changed at will."""
    return full_run()


def tall_run(count: int) -> Run:
    """A run of that many rungs: the ladder's own, then made-up ones with tiles between theirs."""
    run = ladder_run()
    baseline = run.measurements.pop()
    for index in range(len(LADDER), count):
        name = f"rung_{index + 1}"
        run.kernels[name] = {"tile": {"BM": 128, "BN": 64 * (1 + index % 3), "BK": 16}}
        run.measurements.append(measurement(name, 4096, 2700.0 - 11 * index, 2663 / (2700.0 - 11 * index)))
    run.measurements = [*run.measurements[:count], baseline]
    return run
