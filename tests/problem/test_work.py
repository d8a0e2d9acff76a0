"""What a problem must do, as a run states it."""

from __future__ import annotations

from worklog.bench.tasks import work_of
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement


def test_the_work_of_a_product_is_counted_once_a_matrix() -> None:
    shape = Shape(64, 32, 16)
    work = work_of(shape)
    assert work == {
        "flops": 2 * 64 * 32 * 16,
        "elements": 64 * 16 + 16 * 32,
        "bytes_read": 4 * (64 * 16 + 16 * 32),
        "bytes_written": 4 * 64 * 32,
    }
    assert work["bytes_read"] + work["bytes_written"] == shape.compulsory_bytes


def test_a_measurement_of_no_stated_work_has_a_time_and_no_rate() -> None:
    told = Measurement.from_dict({"kernel": "other", "shape": [1, 1, 1], "status": "measured", "us": 12.5})
    assert told.us == 12.5
    assert (told.tflops, told.gbs, told.flops, told.bytes_read) == (None, None, None, None)
