"""What tests of several rooms share.

A small run, made by hand, with a measured, a failed and a skipped kernel; two kernels of a user;
a command that is typed.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from click.testing import CliRunner, Result
from numpy.typing import NDArray

from worklog.cli import main
from worklog.problem import Point, Shape
from worklog.runner.products import work_of
from worklog.runs import Calibration, Gpu, Measurement, Roof, Run, Verdict
from worklog.runs.comparison import Comparison
from worklog.runs.statistics import Estimate, LaunchSeries, Samples
from worklog.settings import Harness

SIGNATURE = "int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C"
# The second one lacks a barrier.
PLAIN, RACY = (
    (Path(__file__).parent / "kernel" / f"{name}.cu").read_text(encoding="utf-8")
    for name in ("plain", "racy")
)
# No texture instruction is supported by the emulator.
TEXTURE = 'asm volatile("{.reg .b32 w; txq.width.b32 w, [%0];}" :: "l"(A));'
GPU = Gpu("NVIDIA H200", (9, 0), 132, 62914560, 150109880320, 1980.0, 3201.0, 6016, "580.159.04")
CALIBRATION = Calibration(
    offset_us=3.45, offset_by_length_us={"1": 3.45, "1000": 3.45}, tick_us=0.03,
    fp32_tflops=60.0, copy_gbs=4000.0, l2_gbs=8000.0, sm_mhz=1980.0, slope=1.0, aa_ratio=1.0,
    aa_low=0.99, aa_high=1.01,
    launch_us=11.0, warm_cycles=294.5, cold_cycles=707.0, still_cached=0.0,
)  # fmt: skip


def product(*sizes: int) -> Point:
    """Return the point of a product: N, or M, N and K."""
    return Point.of_product(Shape.of(sizes))


def integers(rows: int, columns: int, seed: int = 0) -> NDArray[np.float32]:
    """Return small whole numbers, whose products and sums are exact in float32."""
    random = np.random.default_rng([rows, columns, seed])
    return random.integers(-8, 9, (rows, columns)).astype(np.float32)


def measured(
    kernel: str, n: int = 512, us: float = 100.0, ratio: float = 0.5, **changed: Any
) -> Measurement:
    """Return a measurement with three samples, one of which does not count."""
    sides = [
        LaunchSeries(kernel, [us, us * 1.01, us * 9], [1980.0, 1980.0, 900.0]),
        LaunchSeries("cuBLAS", [us * ratio] * 3, [1980.0] * 3),
    ]
    return Measurement(
        kernel,
        product(n),
        changed=changed,
        verdict=None if changed.get("gate") is False else Verdict((), "fp32"),
        time=Estimate(us, us * 0.99, us * 1.01),
        against={"cuBLAS": Estimate(ratio, ratio - 0.01, ratio + 0.01)},
        work=work_of(Shape.of(n)),
        roof=Roof(GPU.fp32_peak_tflops),
        degradations=tuple(f"{name}: {value}" for name, value in changed.items()),
        samples=Samples(sides, [1, 1, 0]),
    )


def small_run(**changes: Any) -> Run:
    """Return a run of naive at three sizes and of cuBLAS at one.

    naive and cuBLAS at 512, naive failed at 1024 and skipped at 2048, and naive at 512 with a
    warm L2.
    """
    values: dict[str, Any] = dict(
        gpu=GPU,
        harness=Harness().as_dict(),
        tool={"name": "gemm-worklog", "version": "0.1.0"},
        created="2026-11-21T03:12:44+00:00",
        calibration=CALIBRATION,
        kernels={
            "naive": {"file": "01_naive.cu", "registers": 40, "idea": "one thread, one element"}
        },
        measurements=[
            measured("naive"),
            measured("cuBLAS", us=50.0, ratio=1.0),
            Measurement("naive", product(1024), "failed", "failed at precision: class wrong"),
            Measurement("naive", product(2048), "skipped", "too slow: one launch takes 9.0 s"),
            measured("naive", us=70.0, l2="warm"),
        ],
        complete=True,
    )
    return Run(**(values | changes))


def compared(rows: Sequence[dict[str, Any]], **parts: Any) -> Comparison:
    """Return a comparison of harnesses with these rows."""
    promises = {"aa": {"pairs": 1, "agree": 1, "intervals_us": []}}
    document = {
        "created": "2026-11-21T05:20:00+00:00",
        "complete": True,
        "device": {"name": "NVIDIA H200"},
        "calibration": asdict(CALIBRATION),
        "promises": promises,
        "rows": [*rows],
        **parts,
    }
    comparison = msgspec.convert(document, Comparison, str_keys=True)
    comparison.document = document
    return comparison


def typed(*words: object) -> Result:
    """Type a command after `worklog`. An exception that is not an exit would be a traceback."""
    result = CliRunner().invoke(main, [*map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result
