"""The shipped recording holds what the project claims, and what is shown of it is what it holds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pytest import approx

from worklog.cli.figures import markdown, markers, others
from worklog.errors import BadRunFile
from worklog.kernel.ladder import LADDER
from worklog.peers.exploits import open_exploits
from worklog.plots import draw_all
from worklog.problem import Shape
from worklog.runner import measure, sources
from worklog.runs import CUBLAS, Calibration, Run, open_run, recordings
from worklog.runs.comparison import open_comparison
from worklog.runs.sources import in_steps, load_recording
from worklog.runs.statistics import median, summarize

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = next(iter(recordings().values())).parent
RUNS = sorted(RECORDINGS.rglob("*.jsonl"))


@pytest.fixture(scope="module")
def h200():
    return Run.load(recordings()["h200"], origin="recorded")


def test_a_copy_of_what_ships_is_labelled_recorded():
    """A new recording is loaded with origin="recorded" and saved again before it ships."""
    for path in RUNS:
        assert open_run(path).label.startswith("recorded · "), path
    opens = {
        "exploits": open_exploits,
        **dict.fromkeys(("peers", "intervals", "benchmarks"), open_comparison),
    }
    for kind, opened in opens.items():
        for path in (RECORDINGS / kind).glob("*.json"):
            assert opened(path).label.startswith("recorded · "), path


@pytest.mark.parametrize("path", RUNS, ids=lambda path: str(path.relative_to(RECORDINGS)))
def test_its_estimates_are_those_of_its_samples(path):
    run = Run.load(path)
    for m in run.measurements:
        if m.us is None or not m.samples.sides:
            continue
        summary = summarize(m.samples, run.harness | m.changed, m.samples.overhead_us)
        for recomputed, stored in (
            (summary.time, m.time),
            *((ratio, m.against[name]) for name, ratio in summary.ratios.items()),
        ):
            assert (recomputed.value, recomputed.low, recomputed.high) == approx(
                (stored.value, stored.low, stored.high), rel=1e-5
            )


def test_an_arithmetic_mean_over_placements_would_be_larger_by_what_notebook_02_states():
    larger = dict[float, float]()
    for run in map(Run.load, RUNS):
        for m in run.measurements:
            if m.ratio is not None and not m.changed:
                ours, theirs, placements = m.samples.comparisons()
                ratios = (np.array(theirs) - m.samples.overhead_us) / (
                    np.array(ours) - m.samples.overhead_us
                )
                larger[m.us] = median(ratios.tolist(), placements).value / m.ratio - 1
    assert max(larger.values()) == approx(0.0185, abs=2e-4) and min(larger.values()) > -2e-4
    assert max(by for us, by in larger.items() if us > 5) == approx(0.002, abs=2e-4)


def test_its_numbers_belong_to_the_sources_in_kernels(h200):
    """A kernel whose code was edited after it was measured has no number: measure again."""
    assert [r.name for r in LADDER if not r.program.measured_as(h200.kernels[r.name])] == []


def test_the_ladder_rises_to_the_articles_shares_of_cublas(h200):
    """Except at `pipelined`, whose tile is a smaller one.

    Notebook 04 compares both rungs at this tile.
    """
    rungs = [
        h200.select(rung.name, Shape.of(4096))[0] for rung in LADDER if rung.name != "pipelined"
    ]
    rates = [m.tflops or 0.0 for m in rungs]
    assert rates == sorted(rates) and len(set(rates)) == len(rates)
    shares = {m.kernel: m.ratio_low or 0.0 for m in rungs}
    assert shares["autotuned"] >= 0.848
    assert shares["warptiled"] >= 0.937


def test_the_readmes_table_is_the_recordings(h200):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    begin, end = markers("table")
    table = text.partition(begin)[2].partition(end)[0].strip()
    assert table == markdown(h200), (
        "the README's table is out of date: WORKLOG_SOURCE=recorded make article"
    )


def test_the_figures_are_the_recordings(h200, tmp_path, one_png, drawn_before):
    """The PNGs that are not drawn here have their title and description checked.

    Every change of a number changes these.
    """
    drawn = draw_all(h200, tmp_path, others())
    assert not drawn.missing
    for path in drawn.paths:
        stored_path = ROOT / "figures" / path.name
        chart = drawn.charts[path.stem.removesuffix("_dark")]
        is_same = stored_path.read_bytes() == path.read_bytes()
        if not path.stat().st_size:
            with Image.open(stored_path) as image:
                is_same = (
                    image.info["Title"] == chart.headline and image.info["Description"] == chart.alt
                )
        assert is_same, f"{stored_path.name} is out of date: WORKLOG_SOURCE=recorded make article"
    assert (ROOT / "figures" / "README.md").read_text(encoding="utf-8") == (
        tmp_path / "README.md"
    ).read_text("utf-8")


def test_the_comparison_holds_what_the_harness_promises():
    """Calibration is of known lengths and of two readings of one kernel.

    Of the time to ±0.5 %, and beside the tracer.
    """
    comparison = open_comparison()
    read = comparison.errors()["worklog"]
    promises = comparison.document["promises"]
    assert {1, 2, 5, 10, 30, 100, 1000} <= {length for length, _ in read}
    for length, error in read:
        assert abs(error) <= Calibration.allowed_us(length), f"{length} µs"
    assert (
        promises["aa"]["pairs"] >= 50 and promises["aa"]["agree"] >= 0.9 * promises["aa"]["pairs"]
    )
    assert all(
        row.converged for row in comparison.rows if (row.ruler, row.work) == ("worklog", CUBLAS)
    )
    for size in (512, 1024, 2048, 4096):
        seconds = comparison.us(CUBLAS, size, "wall_s")
        assert seconds["worklog"] <= seconds["NVBench cold"] / 8, size
    for point in promises["beside_cupti"]:
        assert abs(point["events_us"] - point["tracer_us"]) <= max(
            0.5, 0.01 * point["tracer_us"]
        ), point


def test_sizes_in_steps_and_the_articles_recording_are_one_run_with_both_labels(h200):
    drawn = {(m.kernel, m.problem.m): m for m in in_steps().measurements}
    (article,) = h200.select("shared", Shape.of(256))
    assert drawn["shared", 256].ratio == article.ratio and drawn["shared", 256].label == h200.label
    assert drawn["shared", 768].label != h200.label
    assert {m.kernel for m in h200.select()} <= {kernel for kernel, _ in drawn}, (
        "also those without steps"
    )


def test_a_rung_that_it_does_not_hold_is_left_out_and_named(h200, monkeypatch):
    monkeypatch.setenv("WORKLOG_SOURCE", "recorded")
    fewer = replace(h200, measurements=[m for m in h200.measurements if m.kernel != "shared"])
    monkeypatch.setattr(sources, "holding", lambda tasks: replace(fewer))
    monkeypatch.setattr("worklog.runs.recordings", lambda part: {})
    run = measure.results()
    assert "naive" in {m.kernel for m in run.measurements} and "shared" not in {
        m.kernel for m in run.measurements
    }
    assert "shared" in run.notes[-1]
    with pytest.raises(BadRunFile, match="shared"):
        measure.results(["shared"])


def test_a_recording_is_read_once_and_a_caller_may_change_its_run(monkeypatch, tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(next(iter(recordings().values())).read_bytes())
    first = load_recording(path)
    first.notes.append("changed")
    first.measurements.clear()
    first.kernels.clear()
    again = load_recording(path)
    assert again.measurements and again.kernels and "changed" not in again.notes
    assert again.measurements[0] is load_recording(path).measurements[0]
    shorter = b"".join(path.read_bytes().splitlines(keepends=True)[:3])
    path.write_bytes(shorter)
    assert len(load_recording(path).measurements) < len(again.measurements)
