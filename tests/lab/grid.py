"""A small grid made by hand.

Two rungs at two sizes, each bias with a known effect, so that each reading is known.
"""

from dataclasses import replace
from typing import Any

from tests import helpers
from tests.record.grid import grid_jobs
from worklog.lab.answers import Answers
from worklog.lab.readings import grid_runs
from worklog.runner.job import Job
from worklog.runs import Measurement, Roof, Run
from worklog.runs.statistics import LaunchSeries, Samples

OFFSET = 3.0
UNBIASED_US = {
    ("naive", 256): 100.0,
    ("naive", 1024): 4000.0,
    ("warptiled", 256): 40.0,
    ("warptiled", 1024): 140.0,
}
FACTORS = {"clocks": 1.0, "l2": 0.8, "warmup": 1.0, "order": 1.0, "inputs": 0.9, "baseline": 1.0}
BUBBLE = 20.0  # µs that an empty queue adds
HOST = 25.0  # µs that a host clock reads, whatever is launched
CUBLAS = 50.0
PEAK = 66.9


def true_us(kernel: str, n: int, biased: dict[str, Any]) -> float:
    """Return the time that the harness would read with these biased settings.

    The event overhead is removed.
    """
    if biased.get("timer") == "host":
        return HOST
    us = UNBIASED_US[kernel, n]
    for setting in biased:
        us *= FACTORS.get(setting, 1.0)
    return us + (BUBBLE if "queue" in biased else 0.0)


def small_grid(without: tuple[dict[str, Any], ...] = ()) -> Run:
    """Return a recorded run of the panel's tasks, but for the combinations `without`."""
    tasks = [
        t for t in grid_jobs() if (t.kernel, t.shape.m) in UNBIASED_US and t.pitfalls not in without
    ]
    measurements = [measured(task) for task in tasks]
    calibration = replace(helpers.CALIBRATION, offset_us=OFFSET)
    return helpers.small_run(measurements=measurements, calibration=calibration, origin="recorded")


def part_of_the_recording() -> Run:
    """Return a part of the panel's recording.

    Two rungs at the largest size, and one with few settings at every size.
    """
    [recording] = grid_runs()
    largest = max(m.problem for m in recording.measurements)
    names = Answers([recording]).kernels
    few_settings = {"clocks", "timer", "l2", "warmup", "queue"}
    two_rungs = [m for m in recording.measurements if m.kernel in (names[0], names[-1])]
    measurements = [
        m
        for m in two_rungs
        if m.problem == largest or (m.kernel == names[-1] and {*m.changed} <= few_settings)
    ]
    return replace(
        recording, measurements=sorted(measurements, key=lambda m: names.index(m.kernel))
    )


def measured(task: Job) -> Measurement:
    """Return nine samples around the true time, and one that does not count.

    The first one is cold without a warm-up.
    """
    biased = task.pitfalls
    shape = task.shape
    us = true_us(task.kernel, shape.m, biased)
    read = us + (0.0 if biased.get("timer") == "host" else OFFSET)
    samples = [read * (1 + 0.0001 * (i - 4)) for i in range(9)] + [read * 3]
    samples[0] += 1000.0 if "warmup" in biased else 0.0
    baseline = CUBLAS / (8 if "baseline" in biased else 1) + read - us
    sides = [
        LaunchSeries(task.kernel, samples, [1980.0] * 10),
        LaunchSeries("cuBLAS", [baseline] * 10, [1980.0] * 10),
    ]
    measurement = helpers.measured(task.kernel, shape.m, us, CUBLAS / us, **biased)
    return replace(
        measurement, roof=Roof(PEAK), verdict=None, samples=Samples(sides, [1] * 9 + [0])
    )
