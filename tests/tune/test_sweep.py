"""Tile parameters as axes.

A tile that cannot be built has a reason, the others have resources, and recorded times belong to
the same sources.
"""

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from tests.helpers import measured, small_run, typed
from worklog import plots
from worklog.errors import BadSetting, CompileFailed
from worklog.kernel.ladder import LADDER, rung
from worklog.plots.registry import FIGURES
from worklog.problem import Shape
from worklog.problem.axes import Axis
from worklog.runner.execute import limit_s, order_of
from worklog.runner.job import article_jobs, jobs_of, product_job
from worklog.runner.sources import held_by, holding, recorded
from worklog.runs import recorded_run
from worklog.settings import Harness
from worklog.tune import sweep as tuning
from worklog.tune.sweep import results, variants

AUTOTUNED = rung("autotuned")


pytestmark = pytest.mark.usefixtures("laptop")


@pytest.fixture(scope="module")
def pair():
    """Two variants; the compiler must spill in the second."""
    return variants(AUTOTUNED, [Axis("MIN_BLOCKS", (1, 2))], arch="sm_90")


def test_a_variant_is_the_rung_with_another_tile_and_has_a_row(pair):
    own, squeezed = pair.kept
    assert own.kernel.program == AUTOTUNED.program and own.name == "MIN_BLOCKS=1"
    assert squeezed.kernel.template == {**AUTOTUNED.template, "MIN_BLOCKS": 2}
    assert squeezed.kernel.entry == replace(AUTOTUNED, template=squeezed.kernel.template).entry
    assert (own.resident.blocks, own.spilled_bytes) == (1, 0) and own.registers > 128
    assert (
        squeezed.resident.blocks == 2 and squeezed.registers <= 128 and squeezed.spilled_bytes > 0
    )
    frame = pair.frame()
    assert list(frame["MIN_BLOCKS"]) == [1, 2] and list(frame["threads"]) == [256, 256]
    assert list(frame["blocks"]) == [32 * 16] * 2 and list(frame["FMA/float"]) == [5.33] * 2
    assert list(frame["L2 GB"]) == [round(4 * (512 * 384 * 4096 + 4096**2) / 1e9, 2)] * 2


@pytest.mark.parametrize(
    ("axis", "why"),
    [
        (Axis("TN", (1,)), "more than 1024 threads"),
        (Axis("TM", (512,)), "no whole warps: 4 threads for 32768 outputs"),
        (
            Axis("TN", (4,)),
            "the kernel requires that every thread copies the same number of float4",
        ),
        (Axis("BK", (32,)), "more static shared memory than a block may have"),
        (Axis("BM", (96,)), "4096 is not a multiple of the tile"),
    ],
)
def test_a_tile_that_cannot_be_built_has_a_reason(axis, why):
    found = variants(AUTOTUNED, [axis], arch="sm_90")
    assert found.kept == () and [why in str(point.skipped) for point in found.skipped] == [True]
    assert "1 skipped: " in found.preview() and found.preview().endswith("nothing to measure")
    for needs_some in (found.require_some, partial(results, found)):
        with pytest.raises(
            BadSetting, match=f"no tile is left .*{re.escape(why)}.*: choose other values"
        ):
            needs_some()


def test_any_other_mistake_is_an_error(monkeypatch):
    for axis, why in (
        (Axis("BM", (0,)), "axis BM: tile parameters are whole numbers"),
        (Axis("BM", ("64",), "str"), "axis BM: tile parameters are whole numbers"),
    ):
        with pytest.raises(BadSetting, match=why):
            variants(AUTOTUNED, [axis], arch="sm_90")
    broken = mock.Mock(side_effect=CompileFailed('07_autotuned.cu:12: expected a ";"'))
    monkeypatch.setattr(tuning, "compile_cuda", broken)
    with pytest.raises(CompileFailed, match="expected a"):
        variants(AUTOTUNED, [Axis("BM", (64,))], arch="sm_90")


def test_recorded_times_belong_to_the_same_sources_or_say_that_the_source_changed(
    pair, monkeypatch, tmp_path
):
    monkeypatch.setattr(tuning, "recordings", lambda part: {})
    assert results(pair) is None
    names = [variant.name for variant in pair.kept]
    run = small_run(
        measurements=[measured(name, n=4096) for name in (*names, "cuBLAS")],
        kernels={
            names[0]: {"sha256": pair.kept[0].kernel.program.code_sha256},
            names[1]: {"sha256": "of another source"},
        },
    )
    path = run.save(tmp_path / "sweep.json")
    monkeypatch.setattr(tuning, "recordings", lambda part: {"one": path})
    found = results(pair)
    assert found is not None and found.origin == "recorded"
    assert [m.kernel for m in found.measurements] == [names[0], "cuBLAS"]
    assert f"not in the recorded run: {names[1]} (measure on a GPU)" in found.notes
    shown = typed("sweep", "autotuned", "--axis", "MIN_BLOCKS=1")
    assert (
        shown.exit_code == 0
        and shown.stdout.startswith("recorded · ")
        and "MIN_BLOCKS=1" in shown.stdout
    )
    own = pair.kept[0]
    compiled = {
        "entry": own.kernel.entry,
        "registers": own.registers,
        "shared_bytes": own.shared_bytes,
    }
    run.kernels[names[0]] = {"sha256": "of an earlier source", **compiled}
    run.save(path)
    changed = results(pair)
    labels = {m.kernel: m.label for m in changed.measurements}
    assert {name for name, label in labels.items() if label.endswith("source changed since")} == {
        names[0]
    }
    run.kernels[names[0]]["registers"] += 1
    run.save(path)
    assert results(pair) is None


def test_the_command_previews_and_names_what_was_recorded():
    words = ["sweep", "autotuned", "--axis", "MIN_BLOCKS=1"]
    shown = typed(*words, "--preview", "--json")
    assert shown.exit_code == 0 and "1 MIN_BLOCKS = 1 point; 1 to measure" in shown.stderr
    [row] = json.loads(shown.stdout)
    assert row["MIN_BLOCKS"] == 1 and row["threads"] == 256
    columns, values = typed(*words, "--preview").stdout.splitlines()
    assert columns.split() == " ".join(row).split() and len(values.split()) == len(row)
    none = typed("sweep", "naive", "--axis", "BM=64", "--preview")
    assert (none.exit_code, none.stdout) == (0, "") and "1 BM = 1 point; 1 skipped: " in none.stderr
    at_512 = typed(*words, "--size", "512")
    assert (
        at_512.exit_code == 2
        and "no such tile of autotuned at 512 was recorded: measure" in at_512.stderr
    )


def test_the_article_measures_what_its_figures_show(monkeypatch, tmp_path):
    planned = article_jobs()
    article = recorded_run()
    tasks = [task for task in planned if held_by(article, task)]
    missing = [task.pitfalls for task in planned if task not in tasks]
    assert len(set(planned)) == len(planned) and {"l2": "warm", "queue": False} in missing, (
        "it is in the grid's"
    )
    assert all(biased.keys() & {*article.unknown} for biased in missing if len(biased) != 2)
    run = recorded(tasks, holding(tasks))
    used = [Harness().but(**dict(task.changed)) for task in planned]
    assert {one.hot_ms for one in used} == {0} and {
        one.most_samples for one in used if not one.biased()
    } == {2000}
    monkeypatch.setattr("worklog.plots.gallery.rendered", lambda chart: {})
    drawn = plots.draw_all(run, tmp_path)
    assert not drawn.missing and {*drawn.charts} >= {*FIGURES}


def test_all_kernels_come_at_one_size_before_the_next_and_each_once():
    tasks, _ = jobs_of(
        ["naive", "cuBLAS", "naive"], (512, "64x32x16", "512x512x512"), (("l2", "warm"),)
    )
    assert [str(task) for task in tasks] == [
        f"{name} at {size} with l2=warm"
        for size in ("512", "64x32x16")
        for name in ("naive", "cuBLAS")
    ]
    assert len(jobs_of(None, 256)[0]) == len(LADDER) + 1
    for kernels, sizes in (
        ("naive", 256),
        (["naive"], "256"),
        ("naive", Shape.of(256)),
        ("naive", (256,)),
    ):
        tasks, user_kernels = jobs_of(kernels, sizes)
        assert ([str(task) for task in tasks], user_kernels) == (["naive at 256"], [])


def test_two_kernels_of_one_name_and_too_many_tasks_are_errors():
    mine = [replace(rung(name), name="mine", number=None) for name in ("naive", "shared")]
    tasks, user_kernels = jobs_of(mine, 256)
    assert user_kernels == mine
    with pytest.raises(BadSetting, match="two kernels are called mine"):
        order_of(tasks, Harness(), user_kernels)
    for kernels, against in ((Path("mine.cu"), ()), ([print], ()), ("naive", [Path("mine.cu")])):
        with pytest.raises(BadSetting, match="isn't a kernel: give a rung's name"):
            jobs_of(kernels, 256, against=against)
    assert jobs_of("naive", 256, against="shared")[0][0].against == ("cuBLAS", "shared")
    with pytest.raises(
        BadSetting,
        match="2 kernels x 60000 sizes = 120000 measurements: more than 100000; name fewer",
    ):
        jobs_of(["naive", "cuBLAS"], range(1, 60_001))
    assert len(jobs_of(["naive", "cuBLAS"], range(1, 50_001))[0]) == 100_000


def test_a_measurement_hangs_after_the_longest_budget_of_its_jobs_and_more_for_large_matrices():
    jobs = (
        product_job("naive", Shape.of(256)),
        product_job("naive", Shape.of(256), (("budget_s", 30.0),)),
    )
    near = 256**2 * 1e-6
    assert limit_s((), Harness(budget_s=5.0), 10.0) == 15.0
    assert 40.0 < limit_s(jobs, Harness(budget_s=5.0), 10.0) < 40.0 + near
    assert limit_s([product_job("naive", Shape.of(16384))], Harness(budget_s=5.0), 10.0) > 16.0
