"""The article's diagrams.

Their numbers are the run's, every word fits, and a missing measurement is named.
"""

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
import pytest
import resvg_py
from PIL import Image

from tests.helpers import product
from tests.plots.conftest import (
    ARTICLE_FOUR,
    ablate,
    full_run,
    ladder_run,
    make_run,
    measurement,
    tall_run,
)
from worklog.errors import NothingToDraw
from worklog.gate import checker, edges, precision, sgemm
from worklog.gate.checker import EVERY_LAUNCH
from worklog.plots import DIAGRAMS, diagrams, headline, style
from worklog.plots.diagrams import Diagram, facts
from worklog.plots.diagrams.facts import article_tolerance
from worklog.plots.diagrams.template import SIZES, binary
from worklog.plots.style import ALERT, LIGHT
from worklog.problem import Shape
from worklog.runs import Measurement, Run, Verdict, recordings
from worklog.runs.statistics import Samples

MENTAL_MODEL, HIERARCHY, GREMLINS, LOOP, CONVERSION, FORMULA, GATE = DIAGRAMS
SIZE = Shape.of(4096)
every = pytest.mark.parametrize("name", DIAGRAMS)
ANCHORS = {"start": 0.0, "middle": 0.5, "end": 1.0}


@cache
def shipped() -> list[Run]:
    """Return the recordings, not to be changed."""
    return [
        Run.load(path, origin="recorded")
        for part in ("", "grid")
        for path in recordings(part).values()
    ]


class Line(NamedTuple):
    """A line of text and its box on the page, px."""

    text: str
    x0: float
    y0: float
    x1: float
    y1: float


def lines(
    e: Element, x: float = 0, y: float = 0, wide: float = 700, kind: str = "", anchor: str = ""
) -> Iterator[Line]:
    """Every line of text in an SVG, as the bundled font sets it."""

    def px(length: str, whole: float = wide) -> float:
        return float(length[:-1]) / 100 * whole if length.endswith("%") else float(length)

    kind, anchor = e.get("class", kind), e.get("text-anchor", anchor)
    if move := re.fullmatch(r"translate\((\S+) (\S+)\)", e.get("transform", "")):
        x, y = x + float(move[1]), y + float(move[2])
    if e.tag.endswith("}svg"):
        x, y, wide = x + px(e.get("x", "0")), y + float(e.get("y", 0)), px(e.attrib["width"])
    if not e.tag.endswith("}text"):
        for child in e:
            yield from lines(child, x, y, wide, kind, anchor)
        return
    y += px(e.attrib["y"], 100) + float(
        e.get("dy", 0)
    )  # only the picture of samples has percentages: 100 px high
    for part in [*e] or [e]:
        y += float(part.get("dy", "0em").removesuffix("em")) * SIZES[kind]
        words = part.text or ""
        (points, bold) = style.TEXT[kind]
        long = 100 * style.text_width(words, points, bold)
        left = x + px(e.attrib["x"]) + float(e.get("dx", 0)) - ANCHORS[anchor or "start"] * long
        yield Line(words, left, y - 0.76 * SIZES[kind], left + long, y + 0.2 * SIZES[kind])


def test_the_articles_rule_is_in_units_of_the_standard_deviation_of_an_element():
    for k in (256, 4096):
        assert 4.0 < article_tolerance(k) * 2**-24 / 0.01 < 4.6, "the largest of 16,384 elements"


def written(diagram: Diagram) -> list[Line]:
    return list(lines(ElementTree.fromstring(diagram.svg())))


def words(diagram: Diagram) -> str:
    """Everything that is written on it, with ordinary spaces."""
    return " ".join(" ".join(line.text for line in written(diagram)).split())


def draw(name: str, run: Run) -> Diagram:
    """Return a diagram, or the headline, once its words are known to be legible.

    They don't touch each other, a line, an edge or the page's end.
    """
    diagram = DIAGRAMS.get(name, headline)(run)
    assert struck(diagram) == []
    return diagram


def struck(diagram: Diagram, more: str = "") -> list[str]:
    """Lines of text on other text, with more than one colour behind them, or beyond the page.

    more: SVG on top.
    """
    bare = re.sub("<text .*?</text>", "", diagram.svg(), flags=re.DOTALL).replace(
        "</svg>\n", f"{more}</svg>\n"
    )
    with Image.open(
        io.BytesIO(resvg_py.svg_to_bytes(svg_string=bare, skip_system_fonts=True))
    ) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    height, width, _ = pixels.shape
    bad = []
    for one, other in combinations(written(diagram), 2):
        if (
            min(one.x1, other.x1) > max(one.x0, other.x0)
            and min(one.y1, other.y1) > max(one.y0, other.y0) + 1
        ):
            bad.append(f"{one.text} on {other.text}")
    for line in written(diagram):
        x0, y0, x1, y1 = map(round, line[1:])
        behind = pixels[y0 + 1 : y1, max(x0, 0) : x1].reshape(-1, 3)
        if x0 < 0 or x1 > width or y1 > height or np.ptp(behind, axis=0).max() > 3:
            bad.append(line.text)
    return bad


def change(run: Run, **changes: Any) -> Measurement:
    """Change parts of the measurement of warptiled at 4096."""
    [m] = run.select("warptiled", SIZE)
    place = run.measurements.index(m)
    run.measurements[place] = replace(m, **changes)
    return run.measurements[place]


@every
def test_words_fit_at_any_run_with_a_rung_and_the_source_is_there(name):
    for run in (full_run(), *shipped()):
        diagram = draw(name, run)
        assert run.label in words(diagram) and run.label in diagram.alt
        assert len(diagram.alt) > 150 and 15 < len(diagram.headline) < 150
        drawn = set(re.findall('(?:fill|stroke)="([^"]+)"', diagram.svg())) - {"none"}
        assert drawn <= set(LIGHT.values()), (
            "colours that are not the palette's stay as they are on a dark page"
        )
    assert not re.search(r"[+×÷] ?\d[\d.]*( %)? at \d", words(draw(name, ladder_run()))), (
        "no ablation: no effect"
    )
    small = measurement("a_kernel_with_a_name_much_longer_than_any_rung_has", 64, 9.8, 0.4)
    draw(name, make_run(small, measurement("cuBLAS", 64, 4.0, 1.0)))
    for kernels in ([], [Measurement("naive", product(64), "failed", reason="wrong")]):
        with pytest.raises(NothingToDraw, match="worklog run"):
            DIAGRAMS[name](make_run(*kernels))


def test_words_that_do_not_fit_and_lines_through_words_are_found(h200):
    diagram = DIAGRAMS[FORMULA](h200)
    [name] = [line for line in written(diagram) if line.text == "warptiled"]
    middle = (name.y0 + name.y1) / 2
    assert "warptiled" in struck(diagram, f'<path d="M0 {middle}h700" stroke="#000"/>')
    m = facts.subject(h200)
    names = {
        **facts.common(h200, m),
        **facts.one_formula(h200, m),
        "work": "a-word-much-wider-than-its-card",
    }
    assert any(names["work"] in bad for bad in struck(Diagram(FORMULA, names)))


def test_the_formula_takes_any_number_of_rungs_and_marks_failed_ones():
    run = tall_run(15)
    run.measurements.insert(0, Measurement("mine", product(4096), "failed", reason="wrong"))
    shown = words(draw(FORMULA, run))
    assert all(m.kernel in shown for m in run.measurements) and "mine failed" in shown


def test_the_mental_model_is_about_warptiled_else_the_last_rung(h200):
    [naive] = h200.select("warptiled", SIZE, ARTICLE_FOUR)
    assert naive.tflops is not None
    one_digit = f"{float(f'{naive.tflops:.0e}'):,.0f}".replace(",", "\u00a0")
    assert f"says about {one_digit}" in DIAGRAMS[MENTAL_MODEL](h200).headline, "by a host clock"
    h200.measurements = [m for m in h200.measurements if m.kernel != "warptiled"]
    assert "autotuned" in DIAGRAMS[MENTAL_MODEL](h200).headline


def test_the_headline_is_of_the_run_that_holds_it_else_of_the_recording(h200):
    [grid] = [run for run in shipped() if facts.cancels(run)]
    live = replace(grid, origin="live")
    for run, source in ((h200, grid), (grid, grid), (live, live)):
        picture = draw("headline", run)
        assert source.label in picture.alt and picture.svg().count(f'fill="{ALERT}"') == 1
        for number in (
            "198.7 ±0.6 µs",
            "60.0 ±0.4 µs",
            "63.1 to 65.8",
            "−34 µs",
            "+43 µs",
            "64.4 % of",
        ):
            assert number in words(picture)


def test_each_gremlin_has_its_measurement_and_each_of_its_settings_a_sentence(h200):
    template = Path(diagrams.__file__).with_name("four_gremlins.svg").read_text()
    assert "not stopped" not in words(DIAGRAMS[GREMLINS](h200))
    for pitfall in facts.FOUR:
        assert template.count(f'if="{pitfall.setting}"') >= 4, (
            "bars, the measurement's name, why, and in the alt text"
        )
        named = {str(v) for v in (pitfall.unbiased, *pitfall.also)} - {
            "count",
            "time",
            "salykova",
            "tensara",
        }
        assert all(f'if="{value}"' in template for value in named)
        assert f"{pitfall.setting} = {pitfall.unbiased}" in words(DIAGRAMS[GREMLINS](full_run()))
        h200.harness[pitfall.setting] = pitfall.biased[0]
        assert f"{pitfall.setting} = {pitfall.biased[0]} not stopped" in words(
            DIAGRAMS[GREMLINS](h200)
        )


def test_what_a_diagram_needs_and_the_run_lacks_is_named(h200):
    change(h200, samples=Samples(), verdict=None)
    for name, missing in ((LOOP, "no samples"), (GATE, "no verdict")):
        with pytest.raises(NothingToDraw, match=missing):
            DIAGRAMS[name](h200)
    h200.harness["l2"] = "warm"
    with pytest.raises(NothingToDraw, match="l2=warm"):
        DIAGRAMS[LOOP](h200)


@pytest.mark.parametrize(
    ("sizes", "claim"),
    [((256, 4096), "at 4096"), ((128, 256, 512, 1024, 2048, 4096), "from 2048 on")],
)
def test_the_hierarchy_claims_no_size_that_was_not_measured(sizes, claim):
    run = ladder_run()
    ablate(run, "warptiled", sizes)
    unbiased = {m.shape: m for m in run.select("warptiled")}
    run.measurements = [
        replace(unbiased[m.shape], changed=m.changed)
        if m.changed == {"l2": "warm"} and m.shape[0] >= 2048
        else m
        for m in run.measurements
    ]
    finding = draw(HIERARCHY, run).headline
    fits = run.gpu.l2_bytes >= 3 * 4 * 2048**2
    assert f"nothing {claim}" in finding
    assert ("fit into" in finding) == (2048 in sizes and fits), (
        "fitting alone does not explain an effect"
    )


def test_the_loop_draws_every_sample_marks_the_repeated_ones_and_shows_the_check_of_every_launch(
    h200,
):
    before = DIAGRAMS[LOOP](h200)
    m = change(h200)
    assert (
        before.svg().count("<circle") == 9
        and "hollow" not in words(before)
        and "check" not in words(before)
    )
    m.samples.counts[2] = 0
    change(h200, verdict=Verdict((replace(m.verdict.stages[-1], name=EVERY_LAUNCH),), "fp32"))
    after = draw(LOOP, h200)
    assert (
        after.svg().count("<circle") == 9 and "hollow" in words(after) and "check" in words(after)
    )


def test_the_gate_shows_every_stage_in_order_with_the_timing_between(h200):
    diagram = draw(GATE, h200)
    at = {line.text.replace("\u00a0", " "): (line.x0, line.y0) for line in written(diagram)}
    verdict = change(h200).verdict
    stages = verdict.stages if verdict else ()
    numbers = [at[str(number)] for number in range(1, len(stages) + 1)]
    assert numbers == sorted(numbers), "down the left column, then down the right one"
    before = sum(stage.name not in facts.AFTER for stage in stages)
    timed = at["2.648 ms"]
    assert (
        numbers[before - 1][0] < timed[0] <= numbers[before][0] + 10
        and timed[1] < numbers[before][1]
    )
    assert (
        f"after {before} checks" in diagram.headline
        and f"after {len(stages) - before} more" in diagram.headline
    )
    assert all(stage.detail in diagram.alt for stage in stages)
    # The template's words are about stages that exist, or that older recordings have.
    names = {
        sgemm.BENCHMARK_SHAPE,
        sgemm.REPEATED,
        checker.PLAUSIBLE,
        edges.EDGE_SHAPES,
        precision.NAME,
    }
    names |= {EVERY_LAUNCH, "exact on ragged shapes", "a second clock", "precision", "timed output"}
    template = Path(diagrams.__file__).with_name("gate.svg").read_text()
    assert set(re.findall('<text if="([^"]+)"', template)) == names > set(facts.AFTER)


def test_bytes_have_a_binary_unit_and_no_exponent():
    sizes = {
        192 << 10: "192 KiB",
        1023 << 10: "1023 KiB",
        int(999.7 * 2**20): "1000 MiB",
        3 << 19: "1.5 MiB",
    }
    assert [binary(size) for size in sizes] == [*sizes.values()]
