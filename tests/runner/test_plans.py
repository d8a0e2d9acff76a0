"""The lists of tasks: the panel's grid holds each combination of settings once, and nothing that is the same
measurement.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from worklog import plots
from worklog.errors import BadSetting
from worklog.kernel.ladder import LADDER, rung
from worklog.problem.gemm import Shape
from worklog.runner.job import ABLATION_RUNGS, GRID_SIZES, article_jobs, grid_jobs, jobs_of
from worklog.runner.measure import held_by, holding, recorded, require_measurable
from worklog.runs import recorded_run
from worklog.settings import PITFALLS, Harness

LAUNCHES = [g for g in PITFALLS if g.resampled and g.setting != "gate"]


def test_the_grid_has_each_pair_of_settings_once_and_every_combination_of_the_fixes() -> None:
    tasks = grid_jobs()
    assert len(set(tasks)) == len(tasks)
    places: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for task in tasks:
        places.setdefault((task.kernel, task.problem.m), []).append(task.pitfalls)
    assert set(places) == set(product(ABLATION_RUNGS, GRID_SIZES))
    for held in places.values():
        for one, other in product(LAUNCHES, LAUNCHES):
            both = {g.setting: g.biased[0] for g in (one, other)}
            assert (both in held) == ({one.setting, other.setting} != {"timer", "queue"}), both
        assert {} in held and {"clocks": "ignored", "l2": "warm", "warmup": "none", "queue": False} in held
        for whole, changed in product((LAUNCHES, [g for g in LAUNCHES if g.article]), (None, *LAUNCHES)):
            biased = {g.setting: g.biased[0] for g in LAUNCHES if (g in whole) != (g is changed)}
            if "timer" in biased:
                biased.pop("queue", None)
            assert biased in held, "all naive and the article's four, and both with one setting changed"
        assert not any({"timer", "queue"} <= biased.keys() for biased in held), "a host clock has no queue"
    used = [Harness().but(**dict(task.changed)) for task in tasks]
    assert [one.biased() for one in used] == [task.pitfalls for task in tasks]
    assert {(one.most_samples, one.budget_s) for one in used} == {(40, 1.0)}


def test_the_article_measures_what_its_figures_show(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    planned = article_jobs()
    tasks = [task for task in planned if held_by(recorded_run(), task)]
    missing = [task.pitfalls for task in planned if task not in tasks]
    assert len(set(planned)) == len(planned) and {"l2": "warm", "queue": False} in missing, "it is in the grid's"
    assert all(biased.keys() & {*recorded_run().unknown} for biased in missing if len(biased) != 2)
    run = recorded(tasks, holding(tasks))
    used = [Harness().but(**dict(task.changed)) for task in article_jobs()]
    assert {one.hot_ms for one in used} == {0} and {one.most_samples for one in used if not one.biased()} == {2000}
    for name in ("save", "write_gallery"):
        monkeypatch.setattr(f"worklog.plots.{name}", lambda *_, **__: [])
    drawn = plots.draw_all(run, tmp_path)
    assert not drawn.missing and len(drawn.charts) == len(plots.draw_all(holding(tasks), tmp_path).charts)


def test_all_kernels_come_at_one_size_before_the_next_and_each_once() -> None:
    tasks, _ = jobs_of(["naive", "cuBLAS", "naive"], (512, "64x32x16", "512x512x512"), (("l2", "warm"),))
    assert [str(task) for task in tasks] == [
        f"{name} at {size} with l2=warm" for size in ("512", "64x32x16") for name in ("naive", "cuBLAS")
    ]
    assert len(jobs_of(None, 256)[0]) == len(LADDER) + 1
    for kernels, sizes in (("naive", 256), (["naive"], "256"), ("naive", Shape.of(256)), ("naive", (256,))):
        tasks, user_kernels = jobs_of(kernels, sizes)
        assert ([str(task) for task in tasks], user_kernels) == (["naive at 256"], [])


def test_two_kernels_of_one_name_and_too_many_tasks_are_errors() -> None:
    mine = [replace(rung(name), name="mine", number=None) for name in ("naive", "shared")]
    tasks, user_kernels = jobs_of(mine, 256)
    assert user_kernels == mine
    with pytest.raises(BadSetting, match="two kernels are called mine"):
        require_measurable(tasks, Harness(), user_kernels)
    for kernels, against in ((Path("mine.cu"), ()), ([print], ()), ("naive", [Path("mine.cu")])):
        with pytest.raises(BadSetting, match="isn't a kernel: give a rung's name"):
            jobs_of(kernels, 256, against=against)
    assert jobs_of("naive", 256, against="shared")[0][0].against == ("shared",)
    with pytest.raises(BadSetting, match="2 kernels x 60000 sizes = 120000 measurements: more than 100000; name fewer"):
        jobs_of(["naive", "cuBLAS"], range(1, 60_001))
