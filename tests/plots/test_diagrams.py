"""The article's diagrams: their numbers are the run's, nothing lies on anything else, and what they lack is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import PathPatch

from tests.plots.conftest import ablate, empty_run, ladder_run, measurement
from tests.plots.test_charts import boxes, collisions, said, texts
from worklog.errors import NothingToDraw
from worklog.gate import article as rule
from worklog.gate import plausible, products, ragged
from worklog.gate.benchmark import NAME as BENCHMARK
from worklog.gate.every_launch import NAME as EVERY_LAUNCH
from worklog.gate.precision import UNIT_ROUNDOFF
from worklog.gate.repeat import NAME as REPEAT
from worklog.plots import DIAGRAMS, Chart
from worklog.plots.diagrams import (
    conversion,
    four_gremlins,
    full_loop,
    gate,
    looseness,
    memory_hierarchy,
    mental_model,
    one_formula,
)
from worklog.plots.diagrams.facts import Subject, mebibytes
from worklog.plots.diagrams.four_gremlins import CORRUPTS, STOPS
from worklog.plots.diagrams.gate import AFTER, PRECISION, WHY
from worklog.problem.gemm import Shape, tflops
from worklog.runs.run import Measurement, Run, recordings
from worklog.settings import PITFALLS

Draw = Callable[[Run], Chart]
every = pytest.mark.parametrize("draw", DIAGRAMS.values(), ids=DIAGRAMS)


def words(chart: Chart) -> str:
    """All that is said, with ordinary spaces, wrapped lines joined."""
    return " ".join(said(chart).split())


def wires(chart: Chart) -> Iterator[np.ndarray]:
    """The points of every line that leads somewhere, in pixels at 100 dpi."""
    for patch in chart.findobj(PathPatch):
        if not patch.get_fill():
            path = patch.get_transform().transform_path(patch.get_path()).interpolated(40)
            yield path.vertices


def struck(chart: Chart) -> list[str]:
    """Texts that a wire goes through; a tick stands on a disc that covers it."""
    placed = boxes(chart)
    return [
        text
        for text, box in placed
        for points in wires(chart)
        if text != "✓" and any(box.x0 < x < box.x1 and box.y0 + 1 < y < box.y1 - 1 for x, y in points)
    ]


def without(run: Run, kernel: str) -> Run:
    run.measurements = [m for m in run.measurements if m.kernel != kernel]
    return run


@every
def test_nothing_overlaps_no_wire_strikes_words_and_the_label_is_there(draw: Draw, h200: Run) -> None:
    chart = draw(h200)
    assert collisions(chart) == []
    assert struck(chart) == []
    assert h200.label in said(chart)
    assert h200.label in chart.alt
    assert len(chart.alt) > 150
    assert 15 < len(chart.headline) < 140


@every
def test_the_recordings_are_drawn_without_overlaps(draw: Draw) -> None:
    for path in recordings().values():
        chart = draw(Run.load(path, origin="recorded"))
        assert collisions(chart) == []
        assert struck(chart) == []


def test_the_checks_see_a_wire_through_words(h200: Run) -> None:
    chart = full_loop(h200)
    [name] = [box for text, box in boxes(chart) if text == "warptiled"]
    x, y = name.x0 / chart.dpi, (name.y0 + name.y1) / 2 / chart.dpi
    from matplotlib.path import Path

    line = Path([(x - 0.5, y), (x + 2, y)])
    chart.add_artist(PathPatch(line, fill=False, transform=chart.dpi_scale_trans))
    assert "warptiled" in struck(chart)


@every
def test_texts_are_readable_at_700_pixels(draw: Draw, h200: Run) -> None:
    chart = draw(h200)
    assert chart.bbox.width == 700
    assert min(text.get_fontsize() for text in texts(chart)) >= 7


@every
def test_words_stay_in_their_boxes(draw: Draw, h200: Run) -> None:
    from matplotlib.patches import FancyBboxPatch

    chart = draw(h200)
    canvas = chart.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    placed = boxes(chart)
    for patch in chart.findobj(FancyBboxPatch):
        box = patch.get_window_extent(canvas.get_renderer())
        for text, inside in placed:
            x, y = (inside.x0 + inside.x1) / 2, (inside.y0 + inside.y1) / 2
            if box.x0 < x < box.x1 and box.y0 < y < box.y1:
                assert box.x0 <= inside.x0 and inside.x1 <= box.x1, text
                assert box.y0 <= inside.y0 and inside.y1 <= box.y1, text


@every
def test_the_same_run_gives_the_same_bytes(draw: Draw, h200: Run) -> None:
    assert draw(h200).svg() == draw(h200).svg()
    assert draw(h200).png() == draw(h200).png()


@every
def test_another_reading_gives_other_words(draw: Draw, h200: Run) -> None:
    before = draw(h200)
    slower = 3210.0
    stages = [
        stage | {"measured": 211.0} for stage in (h200.select("warptiled", Shape.of(4096))[0].verdict or {})["stages"]
    ]
    h200.measurements = [
        replace(
            m, us=slower, us_low=3200.0, us_high=3220.0, tflops=tflops(m.problem, slower), verdict={"stages": stages}
        )
        if m.kernel == "warptiled" and m.shape[0] == 4096 and not m.changed
        else m
        for m in h200.measurements
    ]
    if draw in (memory_hierarchy, four_gremlins):  # they show the machine and the ablation
        h200.device["l2_bytes"] = 50 * 2**20
        h200.measurements = [
            replace(m, us=m.us and 0.4 * m.us, tflops=m.tflops and 2.5 * m.tflops) if "l2" in m.changed else m
            for m in h200.measurements
        ]
    after = draw(h200)
    assert words(after) != words(before)
    assert after.alt != before.alt
    if draw in (mental_model, full_loop, conversion, one_formula, gate):
        assert "3.21 ms" in words(after)


@every
def test_a_run_without_a_rung_says_what_to_do(draw: Draw) -> None:
    run = empty_run()
    with pytest.raises(NothingToDraw, match="worklog run"):
        draw(run)
    run.measurements.append(Measurement("naive", (64, 64, 64), "refused", reason="wrong"))
    with pytest.raises(NothingToDraw, match="worklog run"):
        draw(run)


@every
def test_without_an_ablation_no_effect_is_claimed(draw: Draw) -> None:
    chart = draw(ladder_run())
    assert collisions(chart) == []
    assert " at 256" not in words(chart)
    assert "+" not in words(chart)


@every
def test_a_small_run_is_drawn_too(draw: Draw) -> None:
    run = empty_run()
    run.measurements += [measurement("naive", 64, 9.8, 0.4), measurement("cuBLAS", 64, 4.0, 1.0)]
    chart = draw(run)
    assert collisions(chart) == []
    assert "naive" in chart.alt or draw in (four_gremlins, memory_hierarchy)


@pytest.mark.parametrize("count", [1, 12, 15])
def test_the_formula_takes_any_number_of_rungs(count: int, tall: Callable[[int], Run]) -> None:
    run = tall(count)
    chart = one_formula(run)
    assert collisions(chart) == []
    assert all(m.kernel in words(chart) for m in run.measurements)


def test_the_subject_is_warptiled_else_the_last_rung_that_was_measured(h200: Run) -> None:
    assert Subject.of(h200).name == "warptiled"
    assert Subject.of(without(h200, "warptiled")).name == "autotuned"
    assert "autotuned makes" in mental_model(h200).headline


def test_the_mental_model_says_the_honest_and_the_naive_reading(h200: Run) -> None:
    [unbiased] = h200.select("warptiled", Shape.of(4096))
    four = {g.setting: g.biased[0] for g in PITFALLS if g.article}
    [naive] = h200.select("warptiled", Shape.of(4096), four)
    chart = mental_model(h200)
    assert "2.648 ms" in words(chart) and f"{unbiased.tflops:.1f} TFLOP/s" in words(chart)
    reading = f"{naive.tflops:,.0f}".replace(",", " ")
    assert reading in words(chart)
    assert chart.headline.replace("\u00a0", " ").endswith(f"it reads {reading}")


def test_each_of_the_four_has_its_number_its_wire_and_its_setting(h200: Run) -> None:
    four = [g for g in PITFALLS if g.article]
    assert set(CORRUPTS) == {g.setting for g in four}
    assert {str(v) for g in four for v in (g.unbiased, *g.also) if isinstance(v, str)} - set(STOPS) <= {
        "count",
        "time",
        "salykova",
        "tensara",
    }
    found = words(four_gremlins(h200))
    for pitfall in four:
        assert pitfall.title in found
        assert f"{pitfall.setting} = {pitfall.unbiased}" in found
    assert "on naive, × 63 600 at 4096" in found


def test_a_gremlin_that_the_run_let_loose_is_not_said_to_be_stopped(h200: Run) -> None:
    assert "not stopped" not in words(four_gremlins(h200))
    h200.harness["l2"] = "warm"
    assert "l2 = warm not stopped in this run" in words(four_gremlins(h200))


def test_the_hierarchy_has_this_machines_sizes_and_bandwidths(h200: Run) -> None:
    h200.kernels["warptiled"] |= {"registers": 201, "shared_bytes": 33 * 1024}
    found = words(memory_hierarchy(h200))
    for number in (
        "L2 · 60 MiB",
        "HBM · 140 GiB",
        "132 SMs",
        "7.82 TB/s",
        "4.24 TB/s",
        "201 a thread",
        "33 KiB a block",
    ):
        assert number in found
    assert "3 × 64 MiB" in found and "+31.0 %" in found


@pytest.mark.parametrize(("where", "what"), [("l2_gbs", "l2 bandwidth"), ("copy_gbs", "copy bandwidth")])
def test_the_hierarchy_needs_its_bandwidths(h200: Run, where: str, what: str) -> None:
    del h200.calibration[where]
    with pytest.raises(NothingToDraw, match=what):
        memory_hierarchy(h200)


def test_the_hierarchy_needs_the_size_of_the_l2(h200: Run) -> None:
    del h200.device["l2_bytes"]
    with pytest.raises(NothingToDraw, match="how large the L2 is"):
        memory_hierarchy(h200)


@pytest.mark.parametrize(
    ("sizes", "claimed"), [((256, 4096), "nothing at 4096"), ((256, 1024, 2048, 4096), "nothing from 2048 on")]
)
def test_the_hierarchy_claims_no_size_that_was_not_measured(sizes: tuple[int, ...], claimed: str) -> None:
    run = ladder_run()
    ablate(run, "warptiled", sizes)
    unbiased = {m.shape: m for m in run.select("warptiled")}
    for index, m in enumerate(run.measurements):
        if m.changed == {"l2": "warm"} and m.shape[0] >= 2048:
            run.measurements[index] = replace(unbiased[m.shape], changed=m.changed)
    assert claimed in words(memory_hierarchy(run))


def test_the_loop_draws_every_sample_and_marks_those_taken_again(h200: Run) -> None:
    def dots(chart: Chart) -> list[int]:
        return [len(line.get_xdata()) for axes in chart.axes for line in axes.lines]

    assert dots(full_loop(h200)) == [9]
    assert "hollow" not in words(full_loop(h200))
    [subject] = h200.select("warptiled", Shape.of(4096))
    subject.samples["counts"][2] = 0
    assert dots(full_loop(h200)) == [8, 1]
    assert "hollow: off the clock, taken again" in words(full_loop(h200))


def test_the_loop_says_the_precision_and_the_offset_of_the_run(h200: Run) -> None:
    h200.harness["precision"] = 0.002
    assert "interval is within ±0.2 %" in words(full_loop(h200))
    assert "− 3.30 µs" in words(full_loop(h200))


def test_the_loop_shows_the_look_at_each_launch_where_the_verdict_has_it(h200: Run) -> None:
    def with_stages(*names: str) -> Chart:
        stages = [{"name": name, "passed": True, "detail": ""} for name in names]
        return full_loop(
            replace(h200, measurements=[replace(m, verdict={"stages": stages}) for m in h200.measurements])
        )

    without, looked = with_stages("precision"), with_stages("precision", "every timed launch")
    assert "look at C" not in words(without) and "look at C" not in without.alt
    assert "look at C" in words(looked) and "look at C" in looked.alt
    assert collisions(without) == collisions(looked) == []


@pytest.mark.parametrize("lie", [{"l2": "warm"}, {"timer": "host"}, {"queue": False}, {"warmup": "none"}])
def test_a_run_by_another_loop_does_not_get_this_one(h200: Run, lie: dict[str, object]) -> None:
    h200.harness |= lie
    [(setting, value)] = lie.items()
    with pytest.raises(NothingToDraw, match=f"{setting}={value}"):
        full_loop(h200)


def test_the_loop_needs_samples(h200: Run) -> None:
    h200.select("warptiled", Shape.of(4096))[0].samples.clear()
    without(h200, "naive").measurements[:] = [m for m in h200.measurements if not m.changed]
    with pytest.raises(NothingToDraw, match="kept no samples"):
        full_loop(h200)


def test_the_conversion_counts_divides_and_compares(h200: Run) -> None:
    found = words(conversion(h200))
    for number in (
        "137.4 GFLOP",
        "2.648 ms",
        "51.9 TFLOP/s",
        "78.6 % of it",
        "100.6 % of it",
        "989 · warptiled is 5.2 %",
    ):
        assert number in found, number


def test_the_conversion_needs_a_measured_ceiling(h200: Run) -> None:
    del h200.calibration["fp32_tflops"]
    with pytest.raises(NothingToDraw, match="measured FP32 ceiling"):
        conversion(h200)


def test_the_formula_says_refusals(h200: Run) -> None:
    refused = Measurement("shared", (4096, 4096, 4096), "refused", reason="wrong")
    h200.measurements = [refused if m.kernel == "shared" else m for m in h200.measurements]
    assert "refused: no time, no rate" in words(one_formula(h200))


def test_the_gate_shows_every_stage_in_order_with_the_timing_between(h200: Run) -> None:
    chart = gate(h200)
    drawn = [text.get_text() for text in texts(chart)]
    stages = (h200.select("warptiled", Shape.of(4096))[0].verdict or {})["stages"]
    names = [stage["name"] for stage in stages]
    timed = next(text for text in drawn if text.startswith("only now"))
    order = [drawn.index(name) for name in names]
    assert order == sorted(order)
    assert drawn.index("precision") < drawn.index(timed) < drawn.index("timed output")
    assert all(stage["detail"] in words(chart) for stage in stages)


def test_the_gates_words_are_about_stages_that_exist() -> None:
    assert set(WHY) == {
        ragged.NAME,
        BENCHMARK,
        REPEAT,
        products.NAME,
        PRECISION,
        EVERY_LAUNCH,
        "timed output",
        plausible.NAME,
        plausible.SECOND,
    }
    assert set(AFTER) < set(WHY)


def test_the_gate_needs_a_verdict(h200: Run) -> None:
    h200.measurements = [replace(m, verdict=None) for m in h200.measurements]
    with pytest.raises(NothingToDraw, match="no verdict"):
        gate(h200)


def test_the_articles_tolerance_is_the_rules() -> None:
    assert looseness.ARTICLE_TOLERANCE == rule.LIMIT
    assert looseness.UNIT_ROUNDOFF == UNIT_ROUNDOFF


@pytest.mark.parametrize("k", [256, 4096])
def test_what_passes_the_articles_rule_is_far_beyond_rounding(k: int) -> None:
    loose = looseness.looseness(k)
    assert loose.passing == list(loose.mistakes)
    assert min(loose.mistakes.values()) > 10 * (16 + 20 * k**0.5)
    # Rounding to nearest at 11 bits: half a unit of the last place is 2^-12 of each operand.
    assert 4400 < loose.mistakes["TF32 inputs"] < 3e4


def test_a_mistake_beyond_the_articles_rule_passes_neither(h200: Run) -> None:
    assert "passes neither" not in words(gate(h200))
    ablate(h200, "tiles_2d", (64,))
    [unbiased] = h200.select("warptiled", Shape.of(4096))
    huge = [
        stage | ({"measured": 9e6} if stage["name"] == "precision" else {})
        for stage in (unbiased.verdict or {})["stages"]
    ]
    h200.measurements = [replace(m, verdict={"stages": huge}) if m.kernel == "cuBLAS" else m for m in h200.measurements]
    assert "passes neither" in words(gate(h200))


@pytest.mark.parametrize(
    ("count", "said_as"), [(60 * 2**20, "60 MiB"), (786432, "768 KiB"), (1000 * 2**20, "1000 MiB")]
)
def test_bytes_in_binary_units(count: int, said_as: str) -> None:
    assert mebibytes(count) == said_as
