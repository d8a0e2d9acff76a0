"""A run as an H200 leaves it, built by hand, and a comparison of harnesses.

The run has round times, a few samples each, and an ablation of every pitfall.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.helpers import CALIBRATION, compared, measured, product, small_run
from worklog.kernel.ladder import LADDER
from worklog.problem import Point, Shape
from worklog.runs import Energy, Measurement, Run, Stage, Verdict, Work
from worklog.runs.comparison import Comparison
from worklog.runs.statistics import Estimate, LaunchSeries, Samples
from worklog.settings import HOW_ONE_MEASURES, PITFALLS

# Milliseconds at 4096.
TIMES_MS = dict(
    naive=276.5, coalesced=23.5, shared=16.03, tiles_1d=7.51, tiles_2d=5.61, vectorized=3.89
)
TIMES_MS |= dict(autotuned=2.745, warptiled=2.648, cuBLAS=2.663)
SIZE = (4096, 4096, 4096)
PASSED = (
    "exact on edge shapes",
    "exact at the benchmark shape",
    "bit-equal when repeated",
    "precision",
)
STAGES = tuple(
    Stage(name, True, 187.4, 1296.0, f"{name}: 187")
    for name in (*PASSED, "timed output", "plausible")
)
BIASED = {pitfall.setting: pitfall.biased[0] for pitfall in PITFALLS}
NAIVE_READING = {setting: BIASED[setting] for setting in HOW_ONE_MEASURES}
ARTICLE_FOUR = {pitfall.setting: pitfall.biased[0] for pitfall in PITFALLS if pitfall.article}
# How much faster each bias makes a kernel of 20 µs look; at other lengths the effect of a fixed
# time shrinks or grows.
ALONE_AT_20_US = dict(
    clocks=1.004, timer=4.6, l2=1.31, warmup=0.83, queue=0.78
)  # that of the clocks is below the noise
ALONE_AT_20_US |= dict(order=1.02, placement=1.03, inputs=1.07, gate=1.0, baseline=0.16)
BIAS_AT_20_US = [({setting: BIASED[setting]}, factor) for setting, factor in ALONE_AT_20_US.items()]
BIAS_AT_20_US += [(ARTICLE_FOUR, 4.1), (NAIVE_READING, 4.3)]


def measurement(kernel: str, n: int, us: float, ratio: float, **more: Any) -> Measurement:
    """Return one finished measurement of a square problem, ±0.4 % wide, with nine samples."""
    spread = [1.0, 0.999, 1.001, 0.998, 1.002, 1.0, 1.004, 0.997, 1.03]
    times = [round(us * factor + CALIBRATION.offset_us, 3) for factor in spread]
    fields: dict[str, Any] = {
        "time": Estimate(us, us * 0.996, us * 1.004),
        "against": {"cuBLAS": Estimate(ratio, ratio * 0.997, ratio * 1.003)},
        "samples": Samples([LaunchSeries(kernel, times)], [1] * len(spread)),
        "verdict": Verdict(STAGES, "fp32"),
    }
    return replace(measured(kernel, n, us, ratio), **(fields | more))


def empty_run() -> Run:
    """Return a run with provenance and calibration, without a measurement."""
    kernels = {rung.name: {"tile": dict(rung.template), "idea": rung.idea} for rung in LADDER} | {
        "cuBLAS": {}
    }
    return small_run(kernels=kernels, measurements=[], origin="recorded")


def ladder_run(size: int = 4096) -> Run:
    """Return a run of the eight rungs and cuBLAS at one size."""
    run = empty_run()
    scale = (size / 4096) ** 3
    for kernel, ms in TIMES_MS.items():
        run.add(measurement(kernel, size, 1e3 * ms * scale, TIMES_MS["cuBLAS"] / ms))
    return run


def ablate(run: Run, kernel: str, sizes: tuple[int, ...] = (256, 512, 1024, 2048, 4096)) -> None:
    """Add an ablation of a kernel to a run.

    Effects of fixed times (the host clock, the bubble) shrink or grow with the kernel's time.
    """
    for n in sizes:
        if not run.select(kernel, Shape(n, n, n)):
            us = max(1e3 * TIMES_MS[kernel] * (n / 4096) ** 3, 12.0)
            run.add(measurement(kernel, n, us, TIMES_MS["cuBLAS"] / TIMES_MS[kernel]))
        [unbiased] = run.select(kernel, Shape(n, n, n))
        us = unbiased.us or 0.0
        share = unbiased.ratio or 0.0
        for changed, factor in BIAS_AT_20_US:
            if "timer" in changed:
                biased_us = us / factor / max(1.0, us / 20)
            else:
                biased_us = us * (1 + (1 / factor - 1) * min(1.0, 20 / us))
            ratio = (
                share * factor if changed.keys() & {"order", "baseline"} else share * us / biased_us
            )
            run.add(measurement(kernel, n, biased_us, ratio, changed=changed))


def full_run() -> Run:
    """Return a run of the ladder at 4096 and the ablation of two rungs."""
    run = ladder_run()
    for kernel in ("naive", "warptiled"):
        ablate(run, kernel)
    return run


def with_energy(run: Run) -> Run:
    """Return a run whose kernels have an energy, by powers from 300 to 700 W.

    shared has a reason instead, and coalesced nothing.
    """
    measurements = []
    for number, m in enumerate(run.measurements):
        assert m.us is not None
        watts = 300 + 400 * number / len(run.measurements)
        energy: Energy | None = Energy(watts * m.us * 1e-6, m.us, 100, 1.0, 50)
        if m.kernel == "shared":
            energy = Energy(reason="the energy counter went back: it wrapped")
        if m.kernel == "coalesced":
            energy = None
        measurements.append(replace(m, energy=energy))
    return replace(run, measurements=measurements)


LENGTHS = (1, 2, 5, 10, 30, 100, 1000)
ERRORS = {
    "worklog": 0.03,
    "worklog, offset kept": 3.45,
    "CuPy benchmark": 9.0,
    "torch Timer": 12.0,
    "do_bench": 3.42,
}
ERRORS |= {
    "do_bench_cudagraph": 1.0,
    "NVBench cold": 2.8,
    "NVBench batch": 1.3,
    "worklog, CUPTI": 0.6,
}


def comparison(errors: Mapping[str, float] = ERRORS) -> Comparison:
    """Return a comparison of harnesses with errors in µs, the same at every known length.

    One more harness has no reading.
    """
    rows: list[dict[str, Any]] = [
        {"ruler": "gone", "work": "spin", "of": 1, "us": None, "reason": "ImportError"}
    ]
    for name, error in errors.items():
        rows += [
            {"ruler": name, "work": "spin", "of": length, "us": length + error, "reason": None}
            for length in LENGTHS
        ]
    return compared(rows)


def tall_run(count: int) -> Run:
    """Return a run of that many rungs.

    The ladder's, then made-up rungs with tiles between theirs.
    """
    run = ladder_run()
    baseline = run.measurements.pop()
    for index in range(len(run.measurements), count):
        name = f"rung_{index + 1}"
        run.kernels[name] = {"tile": {"BM": 128, "BN": 64 * (1 + index % 3), "BK": 16}}
        run.measurements.append(
            measurement(name, 4096, 2700.0 - 11 * index, 2663 / (2700.0 - 11 * index))
        )
    run.measurements = [*run.measurements[:count], baseline]
    return run


def make_run(*measurements: Measurement, **changes: Any) -> Run:
    """Return a run of these measurements, with the full run's device and calibration."""
    return replace(empty_run(), measurements=[*measurements], **changes)


def below(size: int) -> Run:
    """Return the full run's sizes below this size."""
    run = full_run()
    return replace(run, measurements=[m for m in run.measurements if m.shape and m.shape[0] < size])


REASON = (
    "exact integers: 3 of 4096 rows differ, the first at row 127, column 0 (tile row 0, tile "
    "column 0 of 32)"
)


def failed() -> Run:
    """Return the ladder with failures and with two user kernels, which come first.

    vectorized and one user kernel failed the gate, and naive's interval is too wide.
    """
    run = ladder_run()
    wide = ("not converged: ±0.5 % was not reached",)
    kernels = {
        m.kernel: replace(m, degradations=wide if m.kernel == "naive" else ())
        for m in run.measurements
    }
    for name, reason in (("vectorized", REASON), ("wrong", "wrong")):
        kernels[name] = Measurement(name, product(*SIZE), "failed", reason=reason)
    users = {name: {"user": "kernel"} for name in ("mine", "wrong")}
    return make_run(
        measurement("mine", 4096, 5500.0, 0.5), *kernels.values(), kernels=run.kernels | users
    )


def both() -> Run:
    """Return both ladders at 4096.

    tf32 has neither the class nor the error of FP32, split ran at a lower clock, and best on
    another day.
    """

    def checked(
        name: str, us: float, largest: float, limit: float = 1296.0, precision: str = "fp32"
    ) -> Measurement:
        verdict = Verdict((Stage("precision", True, largest, limit, ""),), precision)
        return replace(measured(name, 4096, us, 2663 / us), verdict=verdict)

    another_day = replace(empty_run().context, created="2026-10-01T00:00:00+00:00")
    return make_run(
        checked("naive", 270_000, 205.0),
        replace(checked("best", 2500, 205.0), context=another_day),
        checked("tf32", 600, 20_400.0, 263_000.0, "tf32"),
        replace(
            checked("split", 700, 38.4),
            samples=Samples([LaunchSeries("split", [700.0], [1650.0])], [1]),
        ),
        checked("cuBLAS", 2663, 205.0),
    )


def over_sizes() -> Run:
    """Return a rung that leads at 256, a rung that leads at 4096, and cuBLAS."""
    shares = {"shared": (0.7, 0.2), "warptiled": (0.2, 1.1), "cuBLAS": (1.0, 1.0)}
    return make_run(
        *(measured(name, n, 100.0, shares[name][n > 256]) for name in shares for n in (256, 4096))
    )


def sampled(count: int, mask: int = 0) -> Run:
    """Return naive at 512 with that many noisy samples. A tenth of them doesn't count.

    mask: the reasons why the clock was slowed
    """
    us = 100 * (1 + 0.01 * np.random.default_rng(0).standard_normal(count))
    counts = [1] * (count - count // 10) + [0] * (count // 10)
    clocks = [1980.0] * (count - 1) + [None if count > 1 else 1980.0]
    samples = Samples([LaunchSeries("naive", us.tolist(), clocks)], counts, throttle_mask=mask)
    return make_run(measurement("naive", 512, 100.0, 0.5, samples=samples))


def benchmark(sizes: Iterable[int] = (8, 64)) -> Run:
    """Return a declared benchmark over N of two kernels, of 1 and of 0.5 GB/s.

    Their baseline reaches 2 and 1 GB/s.
    """
    shown = []
    for name, us in (("fast", 1.0), ("slow", 2.0)):
        for n in sizes:
            time = Estimate(us * n, 0.99 * us * n, 1.01 * us * n)
            ratio = Estimate(0.5, 0.49, 0.51)
            m = replace(
                measured(name, us=us * n),
                point=Point(axes=(("N", n), ("dtype", "half"))),
                time=time,
            )
            shown.append(
                replace(m, against={"theirs": ratio}, work=Work(bytes_read=1000 * n), roof=None)
            )
    return make_run(*shown)


@pytest.fixture
def h200():
    """Return a full run. The test may change it."""
    return full_run()
