"""What every chart states: finding, source, words and alt text.

Nothing overlaps at any number of rows; both palettes are complete; none looks different without a
word; and what can't be drawn says why. Each chart is drawn once.

`python -m tests.plots.test_charts` lists in looks/ what they draw, and writes those that have
changed as SVG.
"""

import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from tests.helpers import CALIBRATION, measured, product, small_run
from tests.noted import file_of, keep, require_as_noted
from tests.plots import conftest as runs
from tests.plots.conftest import SIZE, comparison, full_run, make_run, tall_run
from tests.plots.drawing import listed
from worklog import lab, plots
from worklog.errors import BadSetting, NothingToDraw
from worklog.kernel.ladder import LadderCounts, MemoryCounts, rung
from worklog.plots import Chart, ground
from worklog.plots.charts.ladder import ARTICLE_PERCENT
from worklog.plots.drawing import in_the_dark
from worklog.plots.style import DARK, LIGHT, PAPER
from worklog.problem import Shape
from worklog.problem.axes import Axis as TileAxis
from worklog.runs import ErrorMap, Measurement, Ran, Run, recordings
from worklog.runs.changes import compare_revisions, revision_of
from worklog.runs.statistics import Estimate
from worklog.tune.sweep import Variants, variants
from worklog.viewer.accesses import access

LOOKS = Path(__file__).with_name("looks")
H200 = full_run().label
EMULATED = "emulated · sm_90 PTX"
COMPARED = "recorded · NVIDIA H200"
LIVE = "live · NVIDIA H200"
COUNTED = LadderCounts(
    EMULATED,
    Shape.of(64),
    {
        "naive": MemoryCounts("0", 4096, 67584, 524288, 67584, 32, 1024, 0, 0, 65536),
        "shared": MemoryCounts("0", 128, 512, 16384, 128, 32, 128, 3200, 800, 65536),
        "vectorized": MemoryCounts("0", 32, 512, 16384, 128, 32, 128, 640, 0, 65536),
    },
)
TILES = ((0.0, 0.0, 0.0), (0.0, 0.5, 1.0))
WHERE = ErrorMap(
    (12, 20), 60, 240, "rows 8 to 11", "columns 8 to 19", (8, 8), TILES, "One tile: a race."
)
BROKEN = replace(CALIBRATION, offset_by_length_us={"1": 3.9, "10": 3.45, "1000": 3.45})
GROWTH = {"promoted every 128 k": {128: 8.0, 1024: 8.2}, "never": {128: 8.0, 1024: 61.0}}
NUMBERS = {
    "a heading of more than one line, µs": {"one": 12.5, "another name": 1979.0},
    "%": {"one": 0.0},
}
PERCENTS = " | ".join(f"{percent} %" for percent in ARTICLE_PERCENT.values())


@cache
def tiles() -> Variants:
    """Return four tiles of one rung, compiled."""
    return variants(
        rung("vectorized"), [TileAxis("BM", (64, 128)), TileAxis("BN", (64, 128))], arch="sm_90"
    )


def swept() -> Run:
    """Return a run of these tiles, of which two have a time and the others failed.

    cuBLAS and a loop of finalists also have times.
    """
    slow, fast, *others = (variant.name for variant in tiles().kept)
    times = (slow, 9000.0, 0.3), (fast, 3000.0, 0.9), ("cuBLAS", 2700.0, 1.0), (fast, 2000.0, 1.35)
    found = [measured(name, 4096, us, ratio) for name, us, ratio in times]
    found[-1].against["another tile"] = Estimate(1, 1, 1)
    bad = [
        Measurement(name, product(*SIZE), "failed", reason="at precision: no") for name in others
    ]
    return small_run(measurements=[*found, *bad])


def on_three_days() -> list[Run]:
    """Return three runs of two kernels: one slower each day, the other faster on the last."""
    times = (10, 90.0, 100.0), (11, 100.0, 100.0), (12, 110.0, 90.0)
    pairs = [
        (f"2026-11-{day}T03:12", [measured("a", us=a), measured("b", us=b)]) for day, a, b in times
    ]
    return [small_run(created=created, measurements=pair) for created, pair in pairs]


def on_two_cards() -> Run:
    """Return a run of three tiles and one loop of finalists: 6 of 8 seconds of two cards."""
    run = small_run(measurements=[])
    for card in ("a:0", "b:1"):
        run.add_card(card, run.gpu, run.calibration)
    for name, card, began, seconds in (
        ("x", "a:0", 0, 2),
        ("y", "b:1", 0, 1),
        ("z", "b:1", 1, 1),
        ("x", "a:0", 2, 2),
    ):
        final = (
            {"against": {"cuBLAS": Estimate(1, 1, 1), "y": Estimate(1, 1, 1)}} if began == 2 else {}
        )
        run.add(
            replace(measured(name, 512), ran=Ran(card, 1e9 + began, seconds), context=None, **final)
        )
    return run


class Case(NamedTuple):
    """A chart and its texts."""

    draw: Callable[[], Chart]
    words: str = ""  # texts that are drawn, between bars
    absent: str = ""  # texts that aren't drawn, between bars
    source: str = H200  # in the footer and in the alt text


# From values that no recording touches: what the recordings give is compared with figures/ and the
# stored notebooks.
CASES = {
    "ladder": Case(
        lambda: plots.ladder(full_run()),
        "warptiled reaches 100.6 % of cuBLAS, 104 times naive | measured FP32 ceiling 60.0 | "
        f"{PERCENTS}",
        "*",
    ),
    "ladder, some failed and some the user's": Case(
        lambda: plots.ladder(runs.failed()),
        f"{runs.REASON} | mine · yours | 1.0 % * | * the interval | mine reaches 50.0 % of "
        "cuBLAS, more than tiles_2d",
    ),
    "ladder at another size": Case(
        lambda: plots.ladder(full_run(), 1024), absent="A6000 | 93.7 % | 84.8 %"
    ),
    "energy": Case(
        lambda: runs.with_energy(runs.ladder_run()).plot.energy(),
        "autotuned computes 88.4 GFLOP per joule, 1.12 times as many as cuBLAS | cuBLAS 78.7 | "
        "the energy counter went back: it wrapped | "
        "not measured: `worklog run --energy` measures it",
    ),
    "energy without cuBLAS": Case(
        lambda: runs.with_energy(make_run(measured("naive", 4096))).plot.energy(),
        absent="times as many",
    ),
    "both ladders": Case(
        lambda: plots.ladders(runs.both()),
        "444 % · class tf32 | 380 % · 1650 MHz | 2026-10-01: best | split computes FP32 on tensor "
        "cores 3.8 "
        "times as fast as cuBLAS; on FP32 cores, best reaches 106.5 % of cuBLAS | below the GPU's "
        "1980.",
        "1980 MHz",
    ),
    "roofline without 4096": Case(lambda: plots.roofline(runs.below(4096)), "2048 × 2048 × 2048"),
    "sizes": Case(
        lambda: plots.sizes(runs.over_sizes()),
        "warptiled: 110 % of cuBLAS at N = 4096, 20 % at 256",
    ),
    "lines": Case(
        lambda: plots.lines(runs.over_sizes()),
        "shared: 1374 TFLOP/s at N = 4096, where warptiled can't be",
    ),
    "lines of a benchmark": Case(
        lambda: plots.lines(runs.benchmark()), "1 GB/s at N = 64, 0.5 times the rate of theirs"
    ),
    "lines of times": Case(
        lambda: plots.lines(runs.benchmark(), y="us"), "fast: 64 µs at N = 64, 0.5 times as fast"
    ),
    "ablation": Case(
        lambda: plots.ablation(full_run(), "warptiled"),
        "size: 1 clocks drift, wrong answers are fast.",
    ),
    "ablation at 512": Case(lambda: plots.ablation(full_run(), "naive", 512), "at 512"),
    "ablation of small sizes": Case(
        lambda: plots.ablation(runs.below(2048), "naive"), "reading at 256,"
    ),
    "accuracy": Case(
        lambda: plots.accuracy(runs.both()),
        "split is 3.80 times as fast as cuBLAS, with less error | split 196 | tf32 229 | best "
        "55.0 | Muted blue: FP32",
    ),
    "accuracy of cuBLAS": Case(
        lambda: plots.accuracy(make_run(*runs.both().measurements[::4])),
        "cuBLAS is the fastest kernel with FP32's error",
    ),
    "bars": Case(
        lambda: plots.bars("Two", NUMBERS, "some", accented=["one"]),
        "12.50 | 1979 | 0.000 | –",
        "",
        "some",
    ),
    "calibration with a broken promise": Case(
        lambda: plots.calibration(replace(full_run(), calibration=BROKEN)),
        "breaks its promise at 1 µs",
    ),
    "peers": Case(lambda: plots.peers(comparison()), "not read: gone", source=COMPARED),
    "peers without ours": Case(
        lambda: plots.peers(comparison({"do_bench": 0.2})), "What each harness", "", COMPARED
    ),
    "samples": Case(
        lambda: plots.samples(full_run(), "warptiled"),
        "scatter by 1 %, the median of 9 is known to ±0.27 % | unknown",
    ),
    "samples, slowed": Case(
        lambda: plots.samples(runs.sampled(9, 0x4), "naive", 512), "slowed: software power cap"
    ),
    "sweep": Case(
        lambda: plots.sweep(tiles(), swept()),
        "the best of 2 tiles is 3 times as fast | 45.81 | 15.27 | at precision: no",
        "not measured",
        LIVE,
    ),
    "sweep with one time": Case(
        lambda: plots.sweep(tiles(), small_run(measurements=swept().measurements[:1])),
        "1 of 4 tiles measured | not measured",
        source="sm_90",
    ),
    "heat map": Case(
        lambda: plots.heat_map(tiles(), swept()),
        "30 | 90 | – | BM | BN | at precision: no",
        "",
        LIVE,
    ),
    "changes": Case(
        lambda: plots.changes(
            compare_revisions(*([revision_of(run)] for run in on_three_days()[:2]))
        ),
        source=LIVE,
    ),
    "history": Case(lambda: plots.history("a", on_three_days()), source=LIVE),
    "cards": Case(
        lambda: plots.cards(on_two_cards()),
        "3 tiles in 4 s: 2 cards were busy 75 % | b:1",
        source="live",
    ),
}
# Without a recording of this GPU, whose name no recording has.
UNKNOWN_CARD = replace(full_run(), gpu=replace(full_run().gpu, name="<GPU & Co>"))
CASES |= {
    "memories": Case(
        lambda: ground.memories(UNKNOWN_CARD),
        "registers | shared memory | 256 KiB per SM | at most | not recorded | Latencies without",
        source=UNKNOWN_CARD.label,
    ),
    "touched": Case(
        lambda: ground.touched({"a row": range(32), "a column of many rows": range(0, 1056, 33)}),
        "A request costs 4 to 32 sectors of global memory, or 1 wavefront of shared memory | "
        "1 line | 32 lines | 12.5 % used",
        source="computed from these addresses",
    ),
    "waiting": Case(
        lambda: ground.waiting({"much": 40, "little": 4.0}, 400, EMULATED, warps=(1, 100)),
        "much 9.1 % with 1 warp, 100 % with 100; little 1.0 % with 1 warp, 99 % with 100 | "
        "little, 100 warps",
        source=EMULATED,
    ),
}
LIMIT = {128: 17.0, 1024: 42.0}
for name, (draw, words) in {
    "traffic": (
        lambda: plots.traffic(COUNTED),
        "16.0 per load (float4) | no shared memory | 25 % conflicts",
    ),
    "error growth": (
        lambda: plots.curves("It grows", GROWTH, EMULATED, x="K", y="u·D", limit=LIMIT),
        "never | 128 | 1024",
    ),
    "curves": (
        lambda: plots.curves("Saved", GROWTH, EMULATED, x="K tiles", y="µs"),
        "K tiles | µs | 20 | 1024",
    ),
    "tile map": (lambda: plots.tile_map(WHERE, EMULATED), "One tile: a race | 60 of 240"),
}.items():
    CASES[name] = Case(draw, words, source=EMULATED)
for name, words in {
    "naive": (
        "naive: a warp reads A in 32, B in 1 sectors | write of C, 4 bytes per lane: 32 "
        "floats in 32 sectors"
    ),
    "vectorized": (
        "As in 2, Bs in 8 wavefronts | load of Bs, 16 bytes per lane: 64 floats, 8 "
        "wavefronts | thread 0's"
    ),
    "split": "split: warp 0 loads no element | colour thread 128's elements",  # but for bulk copies
}.items():
    CASES[f"ownership of {name}"] = Case(
        lambda name=name: plots.ownership(access(name)), words, source=EMULATED
    )
for name, words in {
    "coalesced": "coalesced: two neighbouring lanes store 4 bytes apart | 31: [0][31], 124",
    "vectorized": "block 0, 0: 256 threads, 8 warps | C: 256 × 256 floats",
}.items():
    CASES[f"grid of {name}"] = Case(
        lambda name=name: ground.grid(access(name)), words, source=EMULATED
    )
for name, words in {
    "conflict_free": "requests no tile ahead",
    "async_copies": "requests 4 tiles ahead | copy to shared memory",
    "bulk_copies": "warps 0–1 and warps 2–3 copy, warps 4–11 multiply | fetch to registers",
    "equal_shares": "write a part of C",
}.items():
    where = (Shape(768, 2560, 104), 2) if name == "equal_shares" else (None, 0)
    CASES[f"timeline of {name}"] = Case(partial(lab.timeline, name, *where), words, source=EMULATED)
for error in (3.4, -3.4):
    alike = comparison(dict.fromkeys(["worklog", *map("harness {}".format, range(16))], error))
    CASES[f"16 peers {error} µs off"] = Case(
        partial(plots.peers, alike), "harness 15", source=COMPARED
    )
for shape in ((1, 4000), (4000, 1)):
    where = replace(WHERE, shape=shape, tile=shape, tiles=((0.001,),), guess="")
    wrong = "60 of 240 elements of C are wrong"
    CASES[f"tile map of {shape}"] = Case(
        partial(plots.tile_map, where, EMULATED), wrong, source=EMULATED
    )
for count in (1, 9, 2000):
    known = f"the median of {count - count // 10} is known | not slowed"
    CASES[f"{count} samples"] = Case(
        partial(plots.samples, runs.sampled(count), "naive", 512), known
    )
for count in (1, 15):
    run = tall_run(count)
    names = [m.kernel for m in run.measurements[:-1]]
    many = replace(COUNTED, rungs=dict.fromkeys(names, COUNTED.rungs["shared"]))
    every = " | ".join(names)
    CASES |= {
        f"ladder of {count}": Case(partial(plots.ladder, run), every),
        f"roofline of {count}": Case(partial(plots.roofline, run), every),
        f"traffic of {count}": Case(partial(plots.traffic, many), every, source=EMULATED),
    }


@cache
def drawn(name: str) -> Chart:
    """Return one of the charts. Callers mustn't change it."""
    return CASES[name].draw()


def texts(chart: Chart) -> Iterator[Text]:
    """Yield texts that are drawn: visible, not empty, and no tick label outside its axis."""
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
    """Return each text with its extent in pixels at 100 dpi; an annotation's without its arrow."""
    renderer = FigureCanvasAgg(chart).get_renderer()
    chart.draw_without_rendering()
    return [(text.get_text(), Text.get_window_extent(text, renderer)) for text in texts(chart)]


def collisions(chart: Chart, slack: float = 0.5) -> list[str]:
    """Return pairs of texts that overlap by more than the slack, and texts that leave the figure.

    slack: in pixels
    """
    found = []
    extents = boxes(chart)
    for (first, a), (second, b) in combinations(extents, 2):
        if min(a.x1, b.x1) - max(a.x0, b.x0) > slack and min(a.y1, b.y1) - max(a.y0, b.y0) > slack:
            found.append(f"{first!r} on {second!r}")
    width = chart.bbox.width
    height = chart.bbox.height
    return found + [
        f"{text!r} leaves the page"
        for text, box in extents
        if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height
    ]


def all_text(chart: Chart) -> str:
    """Return all texts of a chart, one a line."""
    return "\n".join(text.get_text() for text in texts(chart))


def test_the_overlap_check_finds_overlaps_and_texts_that_leave():
    chart = CASES["ladder"].draw()
    chart.text(0.5, 0.5, "one")
    chart.text(0.501, 0.501, "two")
    chart.text(0.99, 0.3, "out of the page")
    assert {"'one' on 'two'", "'out of the page' leaves the page"} <= set(collisions(chart))


@pytest.mark.parametrize("name", CASES)
def test_a_charts_finding_source_and_words_are_there_and_all_of_it_is_readable(name):
    chart = drawn(name)
    case = CASES[name]
    assert collisions(chart) == []
    words = " ".join(all_text(chart).split())
    assert [
        found
        for found in (*case.words.split(" | "), chart.headline)
        if " ".join(found.split()) not in words
    ] == []
    assert [found for found in filter(None, case.absent.split(" | ")) if found in words] == []
    assert (
        case.source in words and case.source in chart.alt and len(chart.alt) > len(chart.headline)
    )
    assert 550 <= chart.bbox.width <= 740
    for text in texts(chart):
        red, green, blue = to_rgb(text.get_color())
        shade = 0.299 * red + 0.587 * green + 0.114 * blue
        assert text.get_fontsize() * chart.dpi / 72 * 700 / max(chart.bbox.width, 700) >= 8.5, text
        assert shade < 0.5 or text.get_color() == PAPER, text
    light = chart.svg()
    roles = {role for role in LIGHT if LIGHT[role] in light}
    assert (
        set(re.findall(r"#[0-9a-f]{6}\b", light))
        == {LIGHT[role] for role in roles}
        > {LIGHT["paper"]}
    )
    assert set(re.findall(r"#[0-9a-f]{6}\b", in_the_dark(light))) == {DARK[role] for role in roles}


@pytest.mark.parametrize("name", CASES)
def test_a_chart_looks_as_it_was_last_looked_at(name):
    advice = "another drawing: python -m tests.stale --make looks, and look at it"
    require_as_noted(LOOKS, name, listed(drawn(name).svg()), advice)


def test_no_drawing_is_kept_of_a_chart_that_is_gone():
    assert {*LOOKS.iterdir()} <= {file_of(LOOKS, name) for name in CASES}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda chart: chart.texts[0].set_text("another"), "+text 'another' fill="),
        (lambda chart: chart.texts[0].set_fontsize(7), "7.0 pt"),
        (lambda chart: chart.texts[0].set_color("#0072b2"), "fill=#0072b2"),
        (lambda chart: chart.axes[0].patches[0].set_width(30), "+path fill="),
        (lambda chart: chart.axes[0].lines[0].set_linewidth(2), "width=2"),
        (lambda chart: chart.axes[0].lines[0].set_visible(False), "-path fill=none"),
        (lambda chart: chart.axes[0].set_xlim(0, 70), "-mark #"),
    ],
)
def test_another_drawing_fails_with_what_differs(change, line, tmp_path):
    chart = CASES["ladder"].draw()
    keep(tmp_path, {"ladder": listed(chart.svg())})
    require_as_noted(tmp_path, "ladder", listed(chart.svg()), "")
    change(chart)
    with pytest.raises(pytest.fail.Exception, match="look at it") as failure:
        require_as_noted(tmp_path, "ladder", listed(chart.svg()), "look at it")
    assert line in str(failure.value)


def test_the_recordings_are_drawn_without_overlaps():
    for path in recordings().values():
        run = Run.load(path, origin="recorded")
        first, *_, last = (*run.shapes(), *run.shapes())
        kernel = [m.kernel for m in run.select(shape=first) if m.status == "measured"][-1]
        charts = [draw(run) for draw in (plots.sizes, plots.ablation, plots.calibration)]
        charts.append(plots.samples(run, kernel, first))
        charts += [
            draw(run, shape) for draw in (plots.ladder, plots.roofline) for shape in (first, last)
        ]
        for chart in charts:
            assert collisions(chart) == [], chart.headline
            assert run.label in all_text(chart)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plots.ladder(make_run()), "`worklog run"),
        (lambda: plots.roofline(full_run(), 100), "size 100, only at 256, .*--size 100"),
        (lambda: plots.roofline(replace(full_run(), kernels={})), "no rung with a tile"),
        (lambda: plots.ladders(full_run()), "no kernel FP32 on tensor cores was measured"),
        (lambda: full_run().plot.energy(), "the run has no energy: .*`worklog run --energy`"),
        (
            lambda: runs.with_energy(runs.ladder_run()).plot.energy(512),
            "no energy at size 512, only at 4096",
        ),
        (lambda: plots.accuracy(swept()), "error at size 4096"),
        (lambda: plots.sizes(make_run(measured("naive"))), "measure two values"),
        (lambda: plots.ablation(make_run()), "`worklog ablate"),
        (lambda: plots.ablation(full_run(), "warptiled", 100), "warptiled at 100, only at 256, "),
        (lambda: plots.ablation(full_run(), "shared"), "no ablation of shared"),
        (
            lambda: plots.ablation(
                make_run(*(m for m in full_run().measurements if len(m.changed) < 2))
            ),
            "combined",
        ),
        (lambda: plots.bars("nothing", {"µs": {}}, "a source"), "no numbers"),
        (lambda: ground.touched({}), "no request with floats"),
        (lambda: ground.touched({"a": range(4), "b": []}), "no request with floats"),
        (lambda: ground.waiting({}, 400, "a source"), "no warp uses the unit"),
        (lambda: ground.waiting({"a": 0}, 400, "a source"), "cycles above 0"),
        (lambda: ground.waiting({"a": 1}, 400, "a source", warps=()), "at least one warp"),
        (lambda: ground.grid(access("split")), "split: thread 0 stores no element of C"),
        (lambda: plots.peers(comparison({})), "no kernel of known length"),
        (lambda: plots.samples(full_run(), "unheard_of", 512), "no samples of unheard_of"),
        (
            lambda: plots.sweep(replace(tiles(), kept=()), make_run()),
            "no tile is left: vectorized: 2 BM x 2 BN",
        ),
        (
            lambda: plots.heat_map(tiles(), swept(), "BM" * 2),
            "a map needs two axes that vary: choose from BM, BN",
        ),
        (lambda: plots.heat_map(tiles(), make_run()), "no tile of these axes has a time"),
        (lambda: plots.cards(make_run()), "the run is of no sweep"),
        (lambda: plots.lines(runs.benchmark(sizes=[8])), "measure two values"),
        (lambda: plots.lines(runs.benchmark(), y="tflops"), "states no work for TFLOP/s"),
        (
            lambda: plots.lines(runs.benchmark(), y="speed"),
            "choose from tflops, gbs, items, us, share",
        ),
        (lambda: plots.lines(runs.benchmark(), x="dtype"), "no line has two points over dtype"),
        (lambda: plots.ladder(full_run(), 0), "size"),
        (
            lambda: plots.ladder(None),
            r"ladder: run: give a run, such as worklog.open_run\(\), not None",
        ),
        (lambda: plots.accuracy(full_run().frame()), "accuracy: run: give a run"),
        (lambda: plots.sweep(tiles(), run="newest"), "sweep: run: give a run, .* not 'newest'"),
        (lambda: plots.history(3), "history: kernel: give a kernel's name, not 3"),
        (lambda: lab.timeline("naive"), "naive (states no tile|.*reads a tile)"),
        (
            lambda: lab.timeline("equal_shares"),
            "equal_shares: no warp reads a tile",
        ),  # block 0 has no share
    ],
)
def test_what_cannot_be_drawn_has_a_reason(draw, message):
    with pytest.raises((NothingToDraw, BadSetting), match=message):
        draw()


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp(prefix="looks"))
    for name in keep(LOOKS, {name: listed(drawn(name).svg()) for name in CASES}):
        (folder / f"{name}.svg").write_text(drawn(name).svg(), encoding="utf-8")
        print(f"another drawing of {name}: {folder / name}.svg")
