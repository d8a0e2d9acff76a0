"""Batches in a run: its file, tables, frames and charts keep them apart from single products."""

from dataclasses import replace

from tests.helpers import measured, small_run
from worklog.problem import Point, Shape
from worklog.runs import Run

BATCH = Shape(512, 512, 512, batch=8)


def run_of_both() -> Run:
    """Return a run with one product and with a batch of the same size."""
    one = measured("mine")
    work = replace(one.work, flops=BATCH.flops)
    batch = replace(one, point=Point.of_product(BATCH), work=work, beyond=("bias", "relu"))
    return small_run(measurements=[one, batch])


def test_a_shape_with_a_batch_is_read_as_it_is_shown():
    assert str(BATCH) == "512 batch 8"
    for shape in (BATCH, Shape(3, 4, 5, batch=2), Shape.of(64)):
        assert Shape.of(str(shape)) == shape
    assert BATCH.flops == 8 * BATCH.single.flops
    assert BATCH.compulsory_bytes == 8 * BATCH.single.compulsory_bytes


def test_a_run_file_keeps_the_batch_and_what_a_kernel_does_beyond_a_product(tmp_path):
    one, batch = Run.load(run_of_both().save(tmp_path / "run.jsonl")).measurements
    assert (one.problem, one.beyond) == (BATCH.single, ())
    assert (batch.problem, batch.beyond) == (BATCH, ("bias", "relu"))
    assert batch.shape == one.shape == (512, 512, 512)
    assert batch.point.value("batch") == 8


def test_a_run_selects_one_of_them():
    run = run_of_both()
    assert [m.place for m in run.select(shape=BATCH)] == ["512 batch 8"]
    assert [m.place for m in run.select(shape=BATCH.single)] == ["512"]
    assert run.shapes() == [BATCH.single, BATCH]


def test_tables_and_frames_tell_them_apart():
    run = run_of_both()
    assert [table.title for table in run.tables()][:2] == [
        "512 × 512 × 512",
        "512 × 512 × 512, batch 8",
    ]
    assert run.frame().batch.to_list() == [1, 8]
    assert "batch" not in small_run().frame()


def test_the_label_says_that_cublas_computes_the_product_alone():
    remark = "cuBLAS computes the product alone, without bias, relu"
    one, batch = run_of_both().measurements
    assert remark in batch.label and remark not in one.label
    assert remark in run_of_both().full_label


def test_charts_of_a_batch_state_it():
    run = run_of_both()
    run.kernels = {"mine": {"tile": {"BM": 64, "BN": 64}}}
    for chart in (run.plot.ladder("512 batch 8"), run.plot.roofline("512 batch 8")):
        assert "512 × 512 × 512, batch 8" in str(chart.alt)


def test_the_products_of_a_batch_can_be_the_axis_of_a_chart():
    alt = str(run_of_both().plot.lines("batch").alt)
    assert "batch" in alt
