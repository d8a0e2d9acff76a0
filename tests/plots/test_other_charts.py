"""What single charts show: known lengths, samples, levels, traffic, sweeps, tiles and owners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text

from tests.helpers import small_run
from tests.plots.conftest import CALIBRATION, ERRORS, comparison, empty_run, full_run, measurement
from tests.plots.test_charts import COUNTED, WHERE, collisions, drawn, said, swept, tiles
from worklog.analysis import memory_counts
from worklog.analysis.memory_counts import LadderCounts, MemoryCounts
from worklog.errors import NothingToDraw, WorklogError
from worklog.kernel.ladder import rung
from worklog.plots import bars, calibration, certificate, energy, levels, peers, samples, sweep, tile_map
from worklog.plots.figure import ACCENT, GREY
from worklog.plots.levels import levels_of
from worklog.plots.samples import closing
from worklog.problem.axes import Axis
from worklog.problem.gemm import Shape
from worklog.runner.sweep import variants
from worklog.runs.measurement import Measurement
from worklog.runs.run import Run


def calibrated(calibration: Mapping[str, Any]) -> Run:
    return replace(empty_run(), calibration=dict(calibration))


def test_every_harness_has_a_line_and_those_that_read_nothing_are_named() -> None:
    chart = drawn("peers")
    assert all(name in chart.alt for name in ERRORS)
    assert "0.03 µs" in chart.headline and "do_bench_cudagraph, up to +1.00 µs" in chart.headline
    assert "not read: gone" in said(chart)


def test_the_three_harnesses_nearest_to_the_true_length_have_colours_and_the_others_are_grey() -> None:
    lines = [line for line in drawn("peers").axes[0].lines if len(line.get_xdata()) > 2]
    coloured = {name for name, line in zip(ERRORS, lines, strict=True) if line.get_color() != GREY}
    assert coloured == {"worklog", "worklog, CUPTI", "do_bench_cudagraph"}
    assert len({line.get_color() for line in lines}) == 4 and lines[0].get_color() == ACCENT
    assert "the same kind of kernel that worklog calibrates on" in " ".join(said(drawn("peers")).split())


def test_bars_have_a_row_for_each_name_and_a_dash_for_a_missing_number() -> None:
    chart = drawn("bars")
    assert "one: a heading of more than one line, µs 12.50, % 0.000; another name: " in chart.alt
    assert "1979, % –" in chart.alt and {"12.50", "1979", "0.000", "–"} <= set(said(chart).splitlines())
    widths = [bar.get_width() for axes in chart.axes for bar in axes.patches]
    assert widths == [12.5, 1979.0, 0.0, 0.0]
    with pytest.raises(NothingToDraw):
        bars("nothing", {"µs": {}}, "a source")


def test_harnesses_that_agree_keep_their_names_apart_at_either_end_of_the_page() -> None:
    for error in (3.4, -3.4):
        assert collisions(peers(comparison(dict.fromkeys(map("harness {}".format, range(16)), error)))) == []
    with pytest.raises(NothingToDraw):
        peers(comparison({}))


def test_the_calibration_shows_what_is_left_and_what_was_proved() -> None:
    run = empty_run()
    assert calibration(run).headline == "Known lengths from 1 to 1000 µs are read within 0.05 µs"
    for words in (calibration(run).alt, repr(certificate(run)), certificate(run)._repr_html_()):
        assert "+0.050" in words and "270 cycles from L2, 690 after the flush" in words


def test_a_broken_promise_is_the_finding_and_an_older_calibration_is_drawn_as_far_as_it_goes() -> None:
    broken = calibration(calibrated(CALIBRATION | {"offset_by_length_us": {"1": 3.9, "10": 3.45, "1000": 3.45}}))
    assert "breaks its promise at 1 µs" in broken.headline and collisions(broken) == []
    kept = {name: CALIBRATION[name] for name in ("offset_us", "offset_by_length_us", "tick_us")}
    assert "cycles" not in calibration(calibrated(kept)).alt
    for draw in (calibration, certificate):
        with pytest.raises(NothingToDraw):
            draw(calibrated({}))


def noisy(count: int, spread: float) -> list[float]:
    return (100 * (1 + spread * np.random.default_rng(0).standard_normal(count))).tolist()


def test_the_interval_closes_and_the_noise_stays() -> None:
    steps = closing(noisy(900, 0.05))
    assert [step.n for step in steps] == sorted({step.n for step in steps}) and steps[-1].n == 900
    early = next(step for step in steps if step.n >= 50)
    assert steps[-1].median.half_width < 0.4 * early.median.half_width
    assert steps[-1].noise == pytest.approx(early.noise, rel=0.25) == pytest.approx(0.05, rel=0.2)


@pytest.mark.parametrize("count", [1, 9, 2000])
def test_any_number_of_samples_is_drawn(count: int) -> None:
    counting = [1] * (count - count // 10) + [0] * (count // 10)
    run = empty_run()
    found = {"us": noisy(count, 0.01), "counts": counting}
    run.measurements = [measurement("naive", 512, 100.0, 0.5, samples=found)]
    chart = samples(run, "naive", 512)
    assert collisions(chart) == []
    assert f"the median of {sum(counting)} is known" in chart.headline
    with pytest.raises(NothingToDraw, match="no samples of unheard_of"):
        samples(run, "unheard_of", 512)


@pytest.mark.parametrize(("mask", "words"), [(0, "not slowed"), (0x1, "not slowed"), (0x4, "software power cap")])
def test_beside_the_samples_stands_their_clock_and_why_it_was_slowed(mask: int, words: str) -> None:
    found = {"us": noisy(9, 0.01), "counts": [1] * 9, "sm_mhz": [1980.0] * 4 + [1700.0] * 4 + [None]}
    run = empty_run()
    run.measurements = [replace(measurement("naive", 512, 100.0, 0.5, samples=found), throttle_mask=mask)]
    shown = [text.get_text() for text in samples(run, "naive", 512).findobj(Text)]
    assert sum(words in text for text in shown) == 1


def test_the_energy_of_a_launch_is_drawn_in_a_unit_that_suits_or_the_command_is_named() -> None:
    run = empty_run()
    run.measurements = [replace(measurement("naive", 512, 100.0, 0.5), joules=0.0123, watts=123.0)]
    assert "needs the least energy at 512: 12.3 mJ a launch" in energy(run).headline
    run.measurements = [replace(measurement("naive", 512, 100.0, 0.5), joules=1.7, watts=500.0)]
    assert "1.7 J a launch" in energy(run).headline
    run.measurements = [measurement("naive", 512, 100.0, 0.5)]
    with pytest.raises(NothingToDraw, match="--set energy_s=1"):
        energy(run)


def test_the_levels_are_flop_per_byte() -> None:
    shape = Shape(64, 64, 64)
    counted = MemoryCounts("", 1, 512, 32768, 256, 1, 512, 0, 0, 64**3)
    run = replace(empty_run(), kernels={"one": {"tile": {"BM": 32, "BN": 32}}})
    found = levels_of(run, LadderCounts("emulated", shape, {"one": counted, "no tile": counted}))
    assert found.keys() == {"one"}
    assert found["one"].threads == 2 * 64**3 / (32768 + 4 * 64 * 64)
    assert found["one"].sectors == 2 * 64**3 / (32 * 1024)
    assert found["one"].blocks == 2 * 64**3 / (4 * (4 * 64 * 64 + 64 * 64))
    assert found["one"].compulsory == 2 * 64**3 / (3 * 4 * 64 * 64)


def test_levels_need_roofs_and_tiles() -> None:
    for lacking in ({"calibration": {}}, {"kernels": {}}):
        with pytest.raises(NothingToDraw, match="measured roofs"):
            levels(replace(full_run(), **lacking), COUNTED)


def test_traffic_shows_sectors_wavefronts_and_conflicts() -> None:
    words = said(drawn("traffic"))
    for number in ("34 · 16.5 per load", "16.0 per load (float4)", "no shared memory", "1.56 · 25 % conflicts"):
        assert number in words, words


@pytest.mark.parametrize("content", [None, "", "{}", '{"label": 1, "shape": [1], "rungs": {"a": {"b": 1}}}'])
def test_counts_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "traffic.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    monkeypatch.setattr(memory_counts, "FILE", file)
    with pytest.raises(WorklogError, match=r"traffic\.json cannot be read .*install gemm-worklog again"):
        memory_counts.memory_counts.__wrapped__()


def test_a_sweep_without_times_gives_the_command_that_takes_them() -> None:
    words = said(drawn("sweep without times")).replace("\n", " ")
    assert words.count("not measured") == len(tiles().kept) > 1
    assert "worklog sweep vectorized --axis BM=64,128 --axis TN=4,8 --size 4096" in words


def test_the_times_of_a_sweep_are_in_order_beside_cublas() -> None:
    run = swept()
    timed = {m.kernel for m in run.measurements}
    others = [variant.name for variant in tiles().kept if variant.name not in timed]
    run.measurements += [Measurement(name, (4096,) * 3, "refused", reason="at precision: no") for name in others]
    chart = sweep(tiles(), run)
    words = said(chart)
    assert "the best of 2 tiles is 3 times" in chart.headline and words.count("at precision: no") == len(others)
    assert words.index("45.8 · 90.0 %") < words.index("15.3 · 30.0 %") and "cuBLAS 50.9" in words
    assert "one tile measured" in sweep(tiles(), small_run(measurements=run.measurements[:1])).headline


def test_a_sweep_of_nothing_is_nothing_to_draw() -> None:
    with pytest.raises(NothingToDraw, match="no tile is left: vectorized: 1 BM"):
        sweep(variants(rung("vectorized"), [Axis("BM", (96,))], arch="sm_90"))


def test_wrong_tiles_are_filled_by_how_wrong_they_are() -> None:
    chart = drawn("tile map")
    half, whole = (patch.get_alpha() for patch in chart.axes[0].patches if patch.get_fill())
    assert half < whole == 1
    assert chart.headline == "One tile: a race" and "60 of 240 elements wrong" in said(chart)
    corners = [patch.get_bbox().max.tolist() for patch in chart.axes[0].patches]
    assert len(corners) == 6 + 2 and [max(ends) for ends in zip(*corners, strict=True)] == [20, 12]


@pytest.mark.parametrize("shape", [(1, 4000), (4000, 1)])
def test_a_tile_map_of_any_shape(shape: tuple[int, int]) -> None:
    chart = tile_map(replace(WHERE, shape=shape, tile=shape, tiles=((0.001,),), guess=""))
    assert chart.headline == "60 of 240 elements of C are wrong" and collisions(chart) == []
    [tile] = [patch for patch in chart.axes[0].patches if patch.get_fill()]
    assert tile.get_alpha() > 0.2, "one wrong element must show"


def test_ownership_counts_sectors_and_wavefronts() -> None:
    naive, patch = drawn("ownership without shared memory"), drawn("ownership")
    assert naive.headline == "naive: a warp's loads take 32 sectors of A and 1 of B"
    assert "load of A, 4 bytes per lane: 32 floats in 32 sectors, 12.5 % used" in said(naive)
    assert "32 banks" not in said(naive) and "1 element per thread, 32 per warp" in said(naive)
    assert patch.headline == "tiles_2d: a warp reads As in 2, Bs in 8 wavefronts"
    assert "load of Bs, 16 bytes per lane: 64 floats, 8 wavefronts, 4 of them bank conflicts" in said(patch)
