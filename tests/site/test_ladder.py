"""The ladder of the first page: times by size, and those of another card."""

from dataclasses import replace

from tests.helpers import small_run
from worklog.problem import Shape
from worklog.runs.text import duration
from worklog.site.ladder import another_card, by_size, ladder

OTHER = "NVIDIA H100 80GB HBM3"


def on_card(run, name):
    """Return a run as if a card of this name had measured it."""
    return replace(run, gpu=replace(run.gpu, name=name))


def test_another_card_is_the_first_one_that_is_not_the_ladders():
    run = small_run()
    shape = run.measurements[0].problem
    timed = {m.kernel for m in run.select(shape=shape) if m.us and not m.changed}
    runs = [run, on_card(run, OTHER), on_card(run, "NVIDIA L4")]
    other = another_card(runs, run.gpu, shape)
    assert other.name == "H100" and {*other.measurements} == timed and timed
    assert another_card([run], run.gpu, shape).name == ""
    assert another_card(runs, run.gpu, Shape(1, 2, 3)).measurements == {}


def test_times_by_size_are_of_the_card_and_the_first_run_counts():
    run = small_run()
    measured = next(m for m in run.measurements if m.us and not m.changed)
    later = replace(run, measurements=[replace(m) for m in run.measurements])
    sizes = by_size([run, later, on_card(run, OTHER)], run.gpu)
    assert sizes[measured.kernel][measured.problem] is measured
    assert by_size([on_card(run, OTHER)], run.gpu) == {}
    biased = replace(run, measurements=[replace(measured, changed={"l2": "warm"})])
    assert by_size([biased], run.gpu) == {}


def test_each_row_has_its_numbers_and_opens_to_its_times_by_size():
    run = small_run()
    shape = run.measurements[0].problem
    html = ladder(run, shape)
    timed = [m for m in run.select(shape=shape) if m.us and not m.changed]
    assert html.count("<summary>") >= len(timed) > 0
    for m in timed:
        assert f"<span>{m.tflops:.2f}</span><span>{duration(m.us, padded=True)}</span>" in html
    assert f"By size: {timed[0].label}" in html
