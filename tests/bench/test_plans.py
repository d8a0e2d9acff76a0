"""The lists of tasks: the panel's grid holds every combination once, and nothing that is the same measurement."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from worklog.bench.measure import require_measurable
from worklog.bench.tasks import ABLATION_RUNGS, GRID_SIZES, grid_tasks, tasks_of
from worklog.errors import BadSetting
from worklog.kernel.ladder import LADDER, rung
from worklog.problem.gemm import Shape
from worklog.settings import Harness


def test_the_grid_has_each_combination_of_the_fixes_once_for_each_rung_and_size() -> None:
    tasks = grid_tasks()
    assert len(set(tasks)) == len(tasks)
    places = Counter((task.kernel, task.shape.m) for task in tasks)
    combinations = 2**5 - 2**3  # a host clock needs no blocking kernel
    alone = 4  # order, inputs, baseline, placement
    together = 1
    assert places == {(name, size): combinations + alone + together for name in ABLATION_RUNGS for size in GRID_SIZES}


def test_the_grid_has_the_unbiased_reading_and_all_biases_together() -> None:
    changed = [task.pitfalls for task in grid_tasks() if (task.kernel, task.shape.m) == ("naive", 256)]
    assert {} in changed
    assert {"clocks": "ignored", "timer": "host", "l2": "warm", "warmup": "none"} in changed
    assert {"clocks": "ignored", "l2": "warm", "warmup": "none", "queue": False} in changed
    assert {"order": "sequential"} in changed
    everything = dict(clocks="ignored", timer="host", l2="warm", warmup="none", order="sequential", inputs="zeros")
    assert {**everything, "baseline": "tf32", "placement": "fixed"} in changed
    assert not any(biased.get("timer") == "host" and "queue" in biased for biased in changed)


def test_the_grids_settings_are_a_harness_and_its_sizes_ascend() -> None:
    """What is too slow is judged from smaller sizes."""
    tasks = grid_tasks()
    used = [Harness().but(**dict(task.changed)) for task in tasks]
    assert [one.biased() for one in used] == [task.pitfalls for task in tasks]
    assert {(one.most_samples, one.budget_s) for one in used} == {(60, 1.0)}
    assert [task.shape.m for task in tasks] == sorted(task.shape.m for task in tasks)


@pytest.mark.parametrize("sizes", [256, "256", Shape.of(256), [256], (256,)])
@pytest.mark.parametrize("kernels", ["naive", ["naive"]])
def test_one_kernel_and_one_size_need_no_list(kernels: Any, sizes: Any) -> None:
    tasks, user_kernels = tasks_of(kernels, sizes)
    assert ([str(task) for task in tasks], user_kernels) == (["naive at 256"], [])


def test_all_kernels_come_at_one_size_before_the_next_and_each_once() -> None:
    tasks, _ = tasks_of(["naive", "cuBLAS", "naive"], (512, "64x32x16", "512x512x512"), (("l2", "warm"),))
    assert [str(task) for task in tasks] == [
        f"{name} at {size} with l2=warm" for size in ("512", "64x32x16") for name in ("naive", "cuBLAS")
    ]
    assert len(tasks_of(None, 256)[0]) == len(LADDER) + 1


def test_two_kernels_of_one_name_are_not_taken_for_one() -> None:
    first = replace(rung("naive"), name="mine", number=None)
    other = replace(rung("shared"), name="mine", number=None)
    tasks, user_kernels = tasks_of([first, other], 256)
    assert user_kernels == [first, other]
    with pytest.raises(BadSetting, match="two kernels are called mine"):
        require_measurable(tasks, Harness(), user_kernels)


def test_too_many_tasks_are_an_error() -> None:
    with pytest.raises(BadSetting, match="2 kernels x 60000 sizes = 120000 measurements: more than 100000; name fewer"):
        tasks_of(["naive", "cuBLAS"], range(1, 60_001))
