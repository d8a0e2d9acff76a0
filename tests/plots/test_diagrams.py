"""The article's diagrams: their numbers are the run's, every word fits, and a missing measurement is named."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import resvg_py
from PIL import Image

from tests.plots.conftest import ablate, empty_run, ladder_run, measurement
from worklog.errors import NothingToDraw
from worklog.gate import benchmark_shape, edge_shapes, plausible, products
from worklog.gate.every_launch import NAME as EVERY_LAUNCH
from worklog.gate.precision import ARTICLE_LIMIT, UNIT_ROUNDOFF
from worklog.plots import DIAGRAMS, diagrams
from worklog.plots.diagrams import Diagram, facts
from worklog.problem.gemm import Shape, tflops
from worklog.runs.run import Measurement, Run, recordings
from worklog.settings import PITFALLS

MENTAL_MODEL, HIERARCHY, GREMLINS, LOOP, CONVERSION, FORMULA, GATE = DIAGRAMS
MACHINE = (HIERARCHY, GREMLINS)  # they show the machine and the ablation, not the kernel's time
SIZE = Shape.of(4096)
every = pytest.mark.parametrize("name", DIAGRAMS)


def words(diagram: Diagram) -> str:
    """Everything that is written on it, with ordinary spaces."""
    return " ".join(" ".join(line.text for line in diagram.words).split())


def draw(name: str, run: Run) -> Diagram:
    """The diagram, whose words all fit and touch neither each other nor a line, an edge or the end of the page."""
    diagram = DIAGRAMS[name](run)
    assert [line.text for line in diagram.words if not line.fits] == []
    for one, other in combinations(diagram.words, 2):
        apart = one.x1 <= other.x0 or other.x1 <= one.x0 or one.y1 <= other.y0 + 2 or other.y1 <= one.y0 + 2
        assert apart, (one.text, other.text)
    assert struck(diagram, diagram.svg()) == []
    return diagram


def struck(diagram: Diagram, svg: str) -> list[str]:
    """Lines of text with more than one colour behind them, or beyond the page."""
    bare = re.sub("<use [^>]*/>", "", svg)
    with Image.open(io.BytesIO(resvg_py.svg_to_bytes(svg_string=bare, skip_system_fonts=True))) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    found = []
    for text, *box, _ in diagram.words:
        x0, y0, x1, y1 = map(round, box)
        behind = pixels[y0 + 3 : y1 - 3, max(x0, 0) : x1].reshape(-1, 3)
        if (
            x0 < 0
            or x1 > pixels.shape[1]
            or y1 > pixels.shape[0]
            or (text.strip() and np.ptp(behind, axis=0).max() > 3)
        ):
            found.append(text)
    return found


def with_stages(run: Run, change: Callable[[dict[str, Any]], dict[str, Any]], kernel: str = "warptiled") -> Run:
    """The run with every stage of a kernel's verdict changed."""
    return replace(
        run,
        measurements=[
            replace(m, verdict={"stages": [change(stage) for stage in m.verdict["stages"]]})
            if m.kernel == kernel and m.verdict
            else m
            for m in run.measurements
        ],
    )


@every
def test_words_fit_and_the_source_is_there(name: str, h200: Run) -> None:
    diagram = draw(name, h200)
    assert h200.label in words(diagram) and h200.label in diagram.alt
    assert len(diagram.alt) > 150 and 15 < len(diagram.headline) < 150
    assert min(line.y1 - line.y0 for line in diagram.words if line.text) * 72 / 100 / 1.3 >= 6.99, "font size in pt"


@every
def test_the_words_of_shipped_recordings_fit(name: str) -> None:
    for path in recordings().values():
        draw(name, Run.load(path, origin="recorded"))


def test_words_that_do_not_fit_and_lines_through_words_are_found(h200: Run) -> None:
    diagram = DIAGRAMS[FORMULA](h200)
    [name] = [line for line in diagram.words if line.text == "warptiled"]
    line = f'<path d="M0 {(name.y0 + name.y1) / 2}h700" stroke="#000"/></svg>'
    assert "warptiled" in struck(diagram, diagram.svg().removesuffix("</svg>\n") + line)
    longer = Diagram(
        FORMULA, {**facts.one_formula(h200), "work": "a-word-much-wider-than-its-card", "product": "9 " * 300}
    )
    assert sum(not line.fits for line in longer.words) > 5


@every
def test_the_same_run_gives_the_same_bytes_and_another_reading_other_words(name: str, h200: Run) -> None:
    before = draw(name, h200)
    assert DIAGRAMS[name](h200).svg(dark=True) == before.svg(dark=True) and DIAGRAMS[name](h200).png() == before.png()
    run = with_stages(h200, lambda stage: stage | {"measured": 211.0})
    slower = dict(us=3210.0, us_low=3200.0, us_high=3220.0, tflops=tflops(SIZE, 3210.0))
    run.device["l2_bytes"] = 50 * 2**20
    run.measurements = [
        replace(m, **slower)
        if m.kernel == "warptiled" and m.shape[0] == 4096 and not m.changed
        else replace(m, us=0.4 * m.us, tflops=2.5 * m.tflops)
        if "l2" in m.changed and m.us and m.tflops
        else m
        for m in run.measurements
    ]
    after = draw(name, run)
    assert words(after) != words(before) and after.alt != before.alt
    assert name in MACHINE or "3.21 ms" in words(after)


@every
def test_a_run_without_a_rung_says_what_to_do(name: str) -> None:
    run = empty_run()
    with pytest.raises(NothingToDraw, match="worklog run"):
        DIAGRAMS[name](run)
    run.measurements.append(Measurement("naive", (64, 64, 64), "refused", reason="wrong"))
    with pytest.raises(NothingToDraw, match="worklog run"):
        DIAGRAMS[name](run)


@every
def test_without_an_ablation_no_effect_is_claimed(name: str) -> None:
    assert not re.search(r"[+×÷] ?\d[\d.]*( %)? at \d", words(draw(name, ladder_run())))


@every
def test_a_small_run_and_long_names_are_drawn_too(name: str) -> None:
    run = empty_run()
    run.measurements += [measurement("naive", 64, 9.8, 0.4), measurement("cuBLAS", 64, 4.0, 1.0)]
    assert "naive" in draw(name, run).alt or name in MACHINE
    run.measurements[0] = replace(run.measurements[0], kernel="a_kernel_with_a_name_much_longer_than_any_rung_has")
    assert DIAGRAMS[name](run).svg()


@pytest.mark.parametrize("count", [1, 12, 15])
def test_the_formula_takes_any_number_of_rungs(count: int, tall: Callable[[int], Run]) -> None:
    run = tall(count)
    written = words(draw(FORMULA, run))
    assert all(m.kernel in written for m in run.measurements)


def test_the_subject_is_warptiled_else_the_last_rung_that_was_measured(h200: Run) -> None:
    assert "warptiled" in draw(MENTAL_MODEL, h200).headline
    h200.measurements = [m for m in h200.measurements if m.kernel != "warptiled"]
    assert "autotuned" in draw(MENTAL_MODEL, h200).headline


def test_the_mental_model_has_the_unbiased_and_the_naive_result(h200: Run) -> None:
    [unbiased] = h200.select("warptiled", SIZE)
    [naive] = h200.select("warptiled", SIZE, {p.setting: p.biased[0] for p in PITFALLS if p.article})
    diagram = draw(MENTAL_MODEL, h200)
    assert "2.648 ms" in words(diagram) and f"{unbiased.tflops:.1f} TFLOP/s" in words(diagram)
    assert f"{naive.tflops:,.0f}".replace(",", " ") in diagram.headline.replace("\u00a0", " ")


@pytest.mark.parametrize("pitfall", [p for p in PITFALLS if p.article], ids=lambda p: p.setting)
def test_each_gremlin_has_its_measurement_and_each_of_its_settings_a_sentence(pitfall: Any, h200: Run) -> None:
    template = Path(diagrams.__file__).with_name("four_gremlins.svg").read_text()
    assert template.count(f'if="{pitfall.setting}"') >= 4, "bars, the measurement's name, why, and in the alt text"
    named = {str(v) for v in (pitfall.unbiased, *pitfall.also)} - {"count", "time", "salykova", "tensara"}
    assert all(f'if="{value}"' in template for value in named)
    assert f"{pitfall.setting} = {pitfall.unbiased}" in words(draw(GREMLINS, h200))
    assert "not stopped" not in words(draw(GREMLINS, h200))
    h200.harness[pitfall.setting] = pitfall.biased[0]
    assert f"{pitfall.setting} = {pitfall.biased[0]} not stopped" in words(draw(GREMLINS, h200))


def test_the_hierarchy_has_this_machines_sizes_and_bandwidths(h200: Run) -> None:
    h200.kernels["warptiled"] |= {"registers": 201, "shared_bytes": 33 * 1024}
    written = words(draw(HIERARCHY, h200))
    for number in (
        "60 MiB",
        "140 GiB",
        "132 SMs",
        "7.82 TB/s",
        "4.24 TB/s",
        "201 per",
        "33 KiB",
        "3 × 64 MiB",
        "+31.0 %",
    ):
        assert number in written


@pytest.mark.parametrize(
    ("name", "place", "key", "missing"),
    [
        (HIERARCHY, "calibration", "l2_gbs", "l2 bandwidth"),
        (HIERARCHY, "calibration", "copy_gbs", "copy bandwidth"),
        (HIERARCHY, "device", "l2_bytes", "size of the L2"),
        (CONVERSION, "calibration", "fp32_tflops", "FP32 ceiling"),
    ],
)
def test_a_missing_number_of_the_machine_is_named(name: str, place: str, key: str, missing: str, h200: Run) -> None:
    del getattr(h200, place)[key]
    with pytest.raises(NothingToDraw, match=missing):
        DIAGRAMS[name](h200)


@pytest.mark.parametrize(("name", "missing"), [(LOOP, "no samples"), (GATE, "no verdict")])
def test_a_missing_part_of_the_measurement_is_named(name: str, missing: str, h200: Run) -> None:
    h200.measurements = [replace(m, samples={}, verdict=None) for m in h200.measurements if not m.changed]
    with pytest.raises(NothingToDraw, match=missing):
        DIAGRAMS[name](h200)


@pytest.mark.parametrize(("sizes", "claim"), [((256, 4096), "at 4096"), ((256, 1024, 2048, 4096), "from 2048 on")])
def test_the_hierarchy_claims_no_size_that_was_not_measured(sizes: tuple[int, ...], claim: str) -> None:
    run = ladder_run()
    ablate(run, "warptiled", sizes)
    unbiased = {m.shape: m for m in run.select("warptiled")}
    run.measurements = [
        replace(unbiased[m.shape], changed=m.changed) if m.changed == {"l2": "warm"} and m.shape[0] >= 2048 else m
        for m in run.measurements
    ]
    assert f"nothing {claim}" in draw(HIERARCHY, run).headline


def test_the_loop_draws_every_sample_and_marks_the_repeated_ones(h200: Run) -> None:
    assert draw(LOOP, h200).svg().count("<circle") == 9 and "hollow" not in words(draw(LOOP, h200))
    h200.select("warptiled", SIZE)[0].samples["counts"][2] = 0
    assert draw(LOOP, h200).svg().count("<circle") == 9 and "hollow" in words(draw(LOOP, h200))


def test_the_loop_has_the_runs_precision_overhead_and_checks(h200: Run) -> None:
    h200.harness["precision"] = 0.002
    assert "±0.2 %" in words(draw(LOOP, h200)) and "3.30 µs" in words(draw(LOOP, h200))
    assert "check" not in words(draw(LOOP, h200))
    checked = draw(LOOP, with_stages(h200, lambda stage: stage | {"name": EVERY_LAUNCH}))
    assert "check" in words(checked) and "check" in checked.alt


@pytest.mark.parametrize("biased", [{"l2": "warm"}, {"timer": "host"}, {"queue": False}, {"warmup": "none"}])
def test_a_run_by_another_loop_does_not_get_this_one(h200: Run, biased: dict[str, object]) -> None:
    h200.harness |= biased
    with pytest.raises(NothingToDraw, match="=".join(map(str, *biased.items()))):
        DIAGRAMS[LOOP](h200)


def test_the_conversion_counts_divides_and_compares(h200: Run) -> None:
    written = words(draw(CONVERSION, h200))
    for number in ("137.4 GFLOP", "2.648 ms", "51.9 TFLOP/s", "78.6 % of it", "100.6 % of it", "989 · 5.2 %"):
        assert number in written, number


def test_the_formula_marks_a_rung_that_failed_the_gate(h200: Run) -> None:
    failed = Measurement("shared", (4096, 4096, 4096), "refused", reason="wrong")
    h200.measurements = [failed if m.kernel == "shared" else m for m in h200.measurements]
    assert "shared failed the gate" in words(draw(FORMULA, h200))


def test_the_gate_shows_every_stage_in_order_with_the_timing_between(h200: Run) -> None:
    lines = [line.text for line in draw(GATE, h200).words]
    stages = (h200.select("warptiled", SIZE)[0].verdict or {})["stages"]
    order = [lines.index(stage["name"]) for stage in stages]
    [timed] = [index for index, line in enumerate(lines) if "timed: 2.648" in line.replace("\u00a0", " ")]
    assert order == sorted(order)
    assert lines.index("precision") < timed < lines.index("timed output")
    assert all(stage["detail"] in words(draw(GATE, h200)) for stage in stages)


def test_the_gates_words_are_about_stages_that_exist() -> None:
    names = {
        edge_shapes.NAME,
        benchmark_shape.NAME,
        benchmark_shape.REPEATED,
        products.NAME,
        EVERY_LAUNCH,
        plausible.NAME,
        plausible.SECOND,
    }
    template = Path(diagrams.__file__).with_name("gate.svg").read_text()
    explained = set(re.findall('<tspan if="([^"]+)"', template))
    assert explained == names | {"precision", "timed output"}
    assert set(facts.AFTER) < explained


def test_the_articles_tolerance_passes_errors_far_beyond_rounding() -> None:
    assert (facts.ARTICLE_TOLERANCE, facts.UNIT_ROUNDOFF) == (ARTICLE_LIMIT, UNIT_ROUNDOFF)
    for k in (256, 4096):
        tolerance, mistakes = facts.computed_errors(k)
        assert 10 * (16 + 20 * k**0.5) < min(mistakes.values()) < max(mistakes.values()) < tolerance
        # Rounding to nearest at 11 bits: half a unit of the last place is 2^-12 of each operand.
        assert 4400 < mistakes["TF32 inputs"] < 3e4


def test_an_error_beyond_the_articles_rule_fails_both(h200: Run) -> None:
    assert "fails both" not in words(draw(GATE, h200))
    assert "fails both" in words(draw(GATE, with_stages(h200, lambda stage: stage | {"measured": 9e6}, "cuBLAS")))
