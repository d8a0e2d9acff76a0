"""Every chart, on runs of every size: the words are there, nothing lies on anything else, and refusals are said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

import pytest
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgba
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from worklog.errors import BadShape, NothingToDraw
from worklog.plots import Chart, ablation, ladder, roofline
from worklog.plots.ladder import ARTICLE_PERCENT
from worklog.plots.style import ACCENT, PAPER
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement, Run, recordings

Draw = Callable[[Run], Chart]
CHARTS: tuple[Draw, ...] = (ladder, roofline, ablation)


def texts(chart: Chart) -> Iterator[Text]:
    """Texts that are drawn: visible, not empty, and no tick label outside its axis."""
    hidden = {id(label) for axis in chart.findobj(Axis) for label in _outside(axis)}
    for text in chart.findobj(Text):
        if text.get_visible() and text.get_text().strip() and id(text) not in hidden:
            yield text


def _outside(axis: Axis) -> Iterator[Text]:
    low, high = sorted(axis.get_view_interval())
    for tick in axis.get_major_ticks() + axis.get_minor_ticks():
        if not axis.axes.axison or not low <= tick.get_loc() <= high:
            yield from (tick.label1, tick.label2)
    if not axis.axes.axison:
        yield axis.label


def boxes(chart: Chart) -> list[tuple[str, Bbox]]:
    """Each text with its extent in pixels at 100 dpi; an annotation's without its arrow."""
    canvas = chart.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    canvas.draw()
    renderer = canvas.get_renderer()
    return [
        (
            t.get_text(),
            Text.get_window_extent(t, renderer) if isinstance(t, Annotation) else t.get_window_extent(renderer),
        )
        for t in texts(chart)
    ]


def collisions(chart: Chart, slack: float = 0.5) -> list[str]:
    """Pairs of texts that share more than a hair, and texts that leave the figure."""
    found, placed = [], boxes(chart)
    for (one, a), (other, b) in combinations(placed, 2):
        if min(a.x1, b.x1) - max(a.x0, b.x0) > slack and min(a.y1, b.y1) - max(a.y0, b.y0) > slack:
            found.append(f"{one!r} on {other!r}")
    width, height = chart.bbox.width, chart.bbox.height
    return found + [
        f"{words!r} leaves the page"
        for words, box in placed
        if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height
    ]


def said(chart: Chart) -> str:
    return "\n".join(text.get_text() for text in texts(chart))


def test_the_overlap_check_sees_overlaps_and_texts_that_leave(h200: Run) -> None:
    chart = ladder(h200)
    assert collisions(chart) == []
    chart.text(0.5, 0.5, "one")
    chart.text(0.501, 0.501, "two")
    chart.text(0.99, 0.3, "out of the page")
    assert {"'one' on 'two'", "'out of the page' leaves the page"} <= set(collisions(chart))


@pytest.mark.parametrize("draw", CHARTS)
def test_nothing_overlaps_and_the_label_is_there(draw: Draw, h200: Run) -> None:
    chart = draw(h200)
    assert collisions(chart) == []
    assert h200.label in said(chart)
    assert h200.label in chart.alt


@pytest.mark.parametrize("draw", [ladder, roofline])
@pytest.mark.parametrize("count", [1, 2, 8, 12, 15])
def test_any_number_of_rungs(draw: Draw, count: int, tall: Callable[[int], Run]) -> None:
    run = tall(count)
    chart = draw(run)
    assert collisions(chart) == []
    assert all(m.kernel in said(chart) for m in run.measurements)


@pytest.mark.parametrize("draw", CHARTS)
def test_the_recordings_are_drawn_without_overlaps(draw: Draw) -> None:
    for path in recordings().values():
        run = Run.load(path, origin="recorded")
        for kernel in {m.kernel for m in run.measurements if m.changed} if draw is ablation else [None]:
            chart = ablation(run, kernel) if kernel else draw(run)
            assert collisions(chart) == []
            assert run.label in said(chart)


def test_the_recordings_are_drawn_at_every_size_without_overlaps() -> None:
    for path in recordings().values():
        run = Run.load(path, origin="recorded")
        for shape in run.shapes():
            assert collisions(ladder(run, shape)) == []
            assert collisions(roofline(run, shape)) == []


def test_the_width_of_a_figure_is_for_700_pixels(h200: Run) -> None:
    for draw in CHARTS:
        chart = draw(h200)
        assert 690 <= chart.bbox.width <= 740
        assert min(text.get_fontsize() for text in texts(chart)) * chart.dpi / 72 * 700 / chart.bbox.width >= 8.5


def test_the_ladder_says_rate_and_share_of_each_rung_and_the_finding(h200: Run) -> None:
    words = said(ladder(h200))
    assert "51.9 TFLOP/s · 100.6 %" in words
    assert "0.50 TFLOP/s · 1.0 %" in words
    assert "warptiled reaches 100.6 % of cuBLAS, 104 times naive" in words
    assert "cuBLAS 51.6" in words
    assert "measured FP32 ceiling 66.0" in words


def test_the_article_has_its_own_numbers_and_its_gpu_is_named(h200: Run) -> None:
    words = said(ladder(h200))
    assert "RTX A6000" in words
    assert all(f"{percent} %" in words for percent in ARTICLE_PERCENT.values())


def test_a_run_of_other_kernels_has_no_article_marks(h200: Run) -> None:
    h200.measurements = [replace(m, kernel=f"my_{m.kernel}") for m in h200.measurements if m.kernel != "cuBLAS"]
    words = said(ladder(h200))
    assert "article" not in words
    assert "cuBLAS 51.6" in words  # from the pairs, since it has no row of its own


@pytest.mark.parametrize("status", ["refused", "skipped"])
def test_a_rung_without_a_time_has_a_row_with_the_reason(h200: Run, status: str) -> None:
    reason = "exact integers: 3 of 4096 rows differ, the first at row 127, column 0 (tile row 0, tile column 0 of 32)"
    refused = Measurement("vectorized", (4096, 4096, 4096), status, reason=reason)
    h200.measurements = [refused if m.kernel == "vectorized" and not m.changed else m for m in h200.measurements]
    chart = ladder(h200)
    assert f"{status}: {reason}" in said(chart).replace("\n", " ")
    assert reason in chart.alt
    assert collisions(chart) == []
    rates = {round(patch.get_width(), 1) for patch in chart.axes[0].patches}
    assert 35.3 not in rates
    assert 51.9 in rates


def test_rows_are_in_the_ladders_order_with_cublas_last(h200: Run) -> None:
    expected = [label.get_text() for label in ladder(h200).axes[0].get_yticklabels()]
    h200.measurements.reverse()
    h200.measurements.sort(key=lambda m: bool(m.changed))
    assert [label.get_text() for label in ladder(h200).axes[0].get_yticklabels()] == expected
    assert (expected[0], expected[-1]) == ("naive", "cuBLAS")


def test_an_interval_that_is_too_wide_is_marked(h200: Run) -> None:
    assert "wider than asked" not in said(ladder(h200))
    h200.measurements[0] = replace(h200.measurements[0], converged=False)
    words = said(ladder(h200))
    assert "1.0 % *" in words
    assert "* the interval is wider than asked for" in words


def test_the_default_size_is_4096_and_another_can_be_asked_for(h200: Run) -> None:
    assert "4096 × 4096 × 4096" in said(ladder(h200))
    assert "1024 × 1024 × 1024" in said(ladder(h200, 1024))
    h200.measurements = [m for m in h200.measurements if m.problem != Shape.of(4096)]
    assert "2048 × 2048 × 2048" in said(ladder(h200))
    with pytest.raises(BadShape):
        ladder(h200, 0)


def test_a_size_that_the_run_lacks_is_named_with_those_it_has(h200: Run) -> None:
    for draw in (ladder, roofline):
        with pytest.raises(NothingToDraw, match=r"no measurement at size 100, only at 256, .*--size 100"):
            draw(h200, 100)


def test_the_roofline_counts_from_the_tile_that_the_run_recorded(h200: Run) -> None:
    def place(run: Run) -> float:
        [points] = [line for line in roofline(run).axes[0].lines if line.get_marker() == "o"]
        return float(points.get_xdata()[0])

    assert place(h200) == pytest.approx(8, rel=0.01)
    h200.kernels["naive"]["tile"] = {"BM": 16, "BN": 16}
    assert place(h200) == pytest.approx(4, rel=0.01)


def test_the_roofline_names_measured_and_theoretical_roofs(h200: Run) -> None:
    words = said(roofline(h200))
    for number in ("66.0 TFLOP/s measured", "66.9 on paper", "7.82 TB/s measured", "4.24 TB/s copy", "4.81 on paper"):
        assert number in words
    assert "counted from the tile" in words
    styles = [line.get_linestyle() for line in roofline(h200).axes[0].lines]
    assert styles.count("--") == 2


def test_the_roofline_does_without_memory_roofs(h200: Run) -> None:
    h200.calibration = {"fp32_tflops": 66.0}
    h200.device = {"name": "some GPU"}
    assert collisions(roofline(h200)) == []


def test_no_gremlin_is_lost_and_the_articles_four_come_first(h200: Run) -> None:
    words = said(ablation(h200, "warptiled"))
    for name in ("1 clocks drift", "2 the launch is asynchronous", "3 L2 stays warm", "4 cold start", "the wrong roof"):
        assert name in words
    names = [text.get_text() for text in ablation(h200).axes[0].texts]
    assert names.index("1 clocks drift") < names.index("4 cold start") < names.index("the launch bubble")
    assert names.index("the wrong roof") < names.index("the article's four together")
    assert names[-2] == "all that touch the time"


def test_cells_say_the_effect_and_their_colour_its_sign(h200: Run) -> None:
    axes = ablation(h200).axes[0]
    assert "+31.0 %" in said(ablation(h200))
    assert "× 609" in said(ablation(h200))
    cells = {t.get_text(): t.get_position() for t in axes.texts}

    def colour(words: str) -> tuple[float, float, float, float]:
        x, y = cells[words]
        [cell] = [p for p in axes.patches if p.get_fill() and p.get_bbox().contains(x, y)]
        return cell.get_facecolor()

    red, _, blue, _ = colour("+31.0 %")
    assert red > blue
    red, _, blue, _ = colour("÷ 14.8")
    assert blue > red


def test_the_title_names_the_largest_lie_without_an_exponent(h200: Run) -> None:
    assert ablation(h200, "warptiled").headline == (
        "The largest lie about warptiled's TFLOP/s: the launch is asynchronous, ×\u00a0609\u00a0at\u00a04096"
    )
    assert "× 63 600 at 4096" in ablation(h200, "naive").headline.replace("\u00a0", " ")


@pytest.mark.parametrize("draw", CHARTS)
def test_a_run_without_measurements_has_nothing_to_draw(draw: Draw, h200: Run) -> None:
    h200.measurements = []
    with pytest.raises(NothingToDraw, match=r"`worklog (run|ablate)"):
        draw(h200)


def test_what_else_can_be_missing(h200: Run) -> None:
    h200.calibration = {}
    assert "ceiling" not in said(ladder(h200))
    with pytest.raises(NothingToDraw, match="ceiling"):
        roofline(h200)
    with pytest.raises(NothingToDraw, match="no ablation of shared"):
        ablation(h200, "shared")
    h200.kernels = {}
    h200.calibration = {"fp32_tflops": 66.0}
    with pytest.raises(NothingToDraw, match="tile"):
        roofline(h200)


def test_an_ablation_without_a_combined_reading_has_no_waterfall(h200: Run) -> None:
    h200.measurements = [m for m in h200.measurements if len(m.changed) < 2]
    chart = ablation(h200)
    assert len(chart.axes) == 1
    assert collisions(chart) == []


def test_no_word_is_smaller_or_fainter_than_can_be_read(h200: Run) -> None:
    from matplotlib.colors import to_rgb

    for draw in (ladder, roofline):
        for text in texts(draw(h200)):
            red, green, blue = to_rgb(text.get_color())
            grey = 0.299 * red + 0.587 * green + 0.114 * blue
            assert grey < 0.45 or text.get_color() == PAPER, text


def test_what_a_user_brought_stands_below_the_rungs_in_the_accent(h200: Run) -> None:
    h200.kernels |= {"mine": {"brought": "kernel"}, "wrong": {"brought": "kernel"}}
    made = replace(h200.select("tiles_1d")[0], kernel="mine", ratio=0.5, tflops=25.0)
    h200.measurements = [made, *h200.select(), Measurement("wrong", (4096,) * 3, "refused", reason="refused at launch")]
    chart = ladder(h200)
    assert collisions(chart) == []
    assert chart.headline == "mine reaches 50.0 % of cuBLAS, more than tiles_2d"
    names = [text.get_text() for text in chart.axes[0].get_yticklabels()]
    assert names[-3:] == ["mine · yours", "wrong · yours", "cuBLAS"]
    colours = [patch.get_facecolor() for patch in chart.axes[0].patches]
    assert colours[-2] == to_rgba(ACCENT) and ACCENT not in map(to_hex, colours[:-2])
    assert to_hex(ladder(replace(h200, kernels={})).axes[0].patches[0].get_facecolor()) == ACCENT
