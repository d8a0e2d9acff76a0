"""What 03_from_milliseconds_to_tflops says in prose is true of the recording, and of arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

import worklog
from worklog.analysis.traffic import traffic
from worklog.runs.run import Measurement
from worklog.settings import BF16_DATASHEET_TFLOPS


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKLOG_SOURCE", "recorded")


def measured(kernel: str, size: int, **lie: str) -> Measurement:
    return worklog.results([kernel], [size], **lie).measurements[0]


def rate(kernel: str) -> float:
    found = measured(kernel, 4096).tflops
    assert found is not None
    return found


def test_rungs_do_the_work_of_the_formula_and_at_most_an_epilogue_more() -> None:
    counted = traffic()
    shape = counted.shape
    extra = {name: 2 * rung.thread_fma - shape.flops for name, rung in counted.rungs.items()}
    assert set(extra.values()) <= {0, 2 * shape.m * shape.n} and extra["naive"] == 0 < extra["warptiled"]
    assert 2 * shape.m * shape.n / shape.flops == 1 / shape.k


def test_half_a_roof_gives_an_impossible_share_and_the_real_one_does_not() -> None:
    gpu = worklog.open_run().device
    triton = gpu["multiprocessors"] * 4 * 32 * gpu["sm_clock_mhz"] / 1e6
    assert triton == pytest.approx(gpu["fp32_peak_tflops"] / 2)
    assert rate("warptiled") > 1.2 * triton
    assert rate("warptiled") < worklog.open_run().calibration["fp32_tflops"] < 1.01 * gpu["fp32_peak_tflops"]
    assert gpu["fp32_peak_tflops"] == pytest.approx(67, abs=0.5), "the data sheet's FP32, rounded"
    assert BF16_DATASHEET_TFLOPS == 989 == round(1979 / 2 - 0.5) == round(2 * 494.5)


def test_units_lie_by_what_is_said() -> None:
    assert pytest.approx(0.91, abs=0.005) == 10**12 / 2**40, "nine percent"
    assert pytest.approx(1.07, abs=0.005) == 2**30 / 10**9, "seven percent"
    m = measured("warptiled", 4096)
    assert m.us is not None
    gbs = m.problem.compulsory_bytes / m.us / 1e3
    assert gbs < 0.1 * worklog.open_run().calibration["copy_gbs"], "not what this kernel waits for"


def test_the_articles_example_is_another_cards() -> None:
    article = worklog.Shape.of(4096).flops / 8.6e-3 / 1e12
    assert article / 67 == pytest.approx(0.24, abs=0.005)
    assert article / 0.687 < 0.6 * rate("cuBLAS"), "no H200's cuBLAS"
    assert 0.5 < article / 0.687 / 38.7 < 0.8, "but an A6000's, by the peak that the article states for it"
    assert abs(rate("tiles_2d") / rate("cuBLAS") - 0.687) > 0.05, "shares do not travel"


def test_two_ways_to_a_share_agree_and_a_share_of_oneself_is_all() -> None:
    offset = worklog.open_run().calibration["offset_us"]
    for kernel in ("tiles_2d", "vectorized", "warptiled", "cuBLAS"):
        m = measured(kernel, 4096)
        assert m.ratio is not None and m.us is not None
        assert m.ratio == pytest.approx((np.median(m.samples["baseline_us"]) - offset) / m.us, rel=0.01)
    assert measured("cuBLAS", 4096).ratio == pytest.approx(1, abs=0.01)


def test_a_warm_cache_on_one_side_moves_the_share_either_way() -> None:
    offset = worklog.open_run().calibration["offset_us"]
    unbiased, warm = measured("vectorized", 1024), measured("vectorized", 1024, l2="warm")
    assert unbiased.us and warm.us and unbiased.ratio
    cold, cached = (np.median(m.samples["baseline_us"]) - offset for m in (unbiased, warm))
    assert cached / unbiased.us < 0.97 * unbiased.ratio and cold / warm.us > 1.1 * unbiased.ratio


def test_tf32_makes_the_share_meaningless() -> None:
    fp32, tf32 = measured("warptiled", 4096), measured("warptiled", 4096, baseline="tf32")
    assert fp32.ratio and tf32.ratio and fp32.us and tf32.us
    assert tf32.ratio < 0.3 * fp32.ratio and abs(tf32.us / fp32.us - 1) < 0.01


def test_errors_tell_the_formats_apart_and_the_article_lets_both_pass() -> None:
    rng, k = np.random.default_rng(0), 4096
    a, b = (rng.uniform(-1, 1, size).astype(np.float32) for size in ((64, k), (k, 64)))

    def rounded(x: np.ndarray, bits: int) -> np.ndarray:
        mantissa, exponent = np.frexp(x.astype(float))
        return np.ldexp(np.round(mantissa * 2.0 ** (bits + 1)) / 2.0 ** (bits + 1), exponent)

    exact, fp32 = a.astype(float) @ b.astype(float), np.zeros((64, 64), np.float32)
    for i in range(k):
        fp32 += a[:, i, None] * b[i]
    fp32_error, tf32_error, bf16_error = (
        abs(c - exact).max() / abs(exact).max()
        for c in (fp32, rounded(a, 10) @ rounded(b, 10), rounded(a, 7) @ rounded(b, 7))
    )
    assert 100 * fp32_error < 1e-3, "hundreds of times better than what the article calls normal"
    assert 30 * fp32_error < tf32_error < bf16_error < 1e-2, "both pass the article's rule"


def test_the_verdict_names_the_class() -> None:
    m = measured("warptiled", 4096)
    assert m.verdict is not None and m.verdict["precision"] == "fp32"
    assert any(stage["name"] == "precision" and "fp32" in stage["detail"] for stage in m.verdict["stages"])
