"""Records whether the 95 % intervals hold: in each of 25 processes, readings of the same kernels.

`python -m tests.record.intervals worklog/recordings/intervals/h100.json` on a machine with a GPU;
six minutes. The constants of worklog/runs/statistics.py, README and notebook 15 come from it.
Physical pages, the event overhead and the gaps between kernels differ between processes, so the
children start one after the other, and each calibrates the overhead for itself.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from worklog.kernel import rung
from worklog.peers import compare
from worklog.peers.harnesses import product as work_of
from worklog.problem import Shape
from worklog.runs import CUBLAS
from worklog.runs.files import write_text
from worklog.runs.statistics import NORMAL, Values, fitted_slope, median, process_half_us

# On an H100, cuBLAS launches 2 kernels at 256, and 1 at the other sizes. The rung is a short launch
# of 1 kernel.
WORKS = ((CUBLAS, 256), (CUBLAS, 1024), (CUBLAS, 2048), (CUBLAS, 4096), ("shared", 256))
PROCESSES = 25
READINGS = 16
# Of a short launch, between measurements of one process: the larger of cuBLAS and `shared` at 256.
DRIFT_SD_US = 0.022
Point = dict[
    str, Any
]  # of one work, all processes: "work", "of", "intervals_us", "sm_mhz", "wall_s", "kernels"


def readings() -> list[Point]:
    """Read each work in this process."""
    from worklog.gpu.cuda import Cublas, CudaDevice
    from worklog.gpu.timeline import CudaTimeline
    from worklog.harness.calibration import read_known_lengths

    device = CudaDevice()
    timeline = CudaTimeline(device)
    overhead = float(np.median([*read_known_lengths(timeline)[0].values()]))
    ours = compare.OurHarness(timeline, device.stream, overhead)
    points = []
    for name, size in WORKS:
        timed = work_of(size, None if name == CUBLAS else rung(name))
        reads = [ours.read(timed) for _ in range(READINGS)]
        times = [interval.shifted(-overhead) for _, interval, _ in reads]
        point = {
            "work": name,
            "of": size,
            "intervals_us": [[us.low, us.value, us.high] for us in times],
            "sm_mhz": [reading.samples.sm_mhz for reading, _, _ in reads],
            "wall_s": [wall_s for _, _, wall_s in reads],
            "kernels": Cublas(device).kernels(Shape(size, size, size)) if name == CUBLAS else 1,
        }
        points.append(point)
    return points


def together(children: Sequence[Sequence[Point]]) -> list[Point]:
    """Return the readings of each work in all processes."""
    points = []
    for of_work in zip(*children, strict=True):
        columns = {name: [child[name] for child in of_work] for name in ("intervals_us", "sm_mhz")}
        wall_s = median([seconds for child in of_work for seconds in child["wall_s"]]).value
        points.append({**of_work[0], **columns, "wall_s": wall_s})
    return points


def coverage(point: Point) -> tuple[float, float]:
    """Return how often the 95 % interval of a difference of two readings holds 0.

    Of the pairs of readings, at one clock: for pairs in one process, with the drift in their
    intervals, and for all pairs across processes, with the process part. It should be 0.95, or
    0.965 if the width of an interval comes from PILOT placements.
    """
    us = at_one_clock(point)
    first, second = np.triu_indices(len(us), 1)
    in_one = share_held(us[:, :-1:2], us[:, 1::2], NORMAL * DRIFT_SD_US)
    return in_one, share_held(
        us[first, :, None], us[second, None, :], process_half_us(point["kernels"])
    )


def at_one_clock(point: Point) -> Values:
    """Return the intervals of a work at one SM clock.

    They are processes x readings x (low, value, high). An interval is of the time at the clock of
    its reading, which differs by a few tenths of a percent between readings.
    """
    clocks = np.log(point["sm_mhz"])
    scaled: Values = (
        point["intervals_us"] * np.exp(clock_slope(point) * (clocks.mean() - clocks))[..., None]
    )
    return scaled


def clock_slope(point: Point) -> float:
    """By how many percent a time grows with an SM clock 1 % higher, fitted within each process."""
    return fitted_slope(
        [*np.log(point["sm_mhz"])], [*np.log(np.array(point["intervals_us"])[..., 1])]
    )[0]


def share_held(first: Values, second: Values, half: float) -> float:
    """Return the share of pairs whose difference has 0 in its 95 % interval.

    A pair is (..., (low, value, high)). The interval adds the sides of both, each with `half`, in
    quadrature, the lower of one and the upper of the other (MOVER: Zou and Donner 2008), since an
    interval of order statistics need not be symmetric. NaN without a pair.
    """
    upwards = np.hypot(first[..., 2] - first[..., 1], second[..., 1] - second[..., 0])
    downwards = np.hypot(first[..., 1] - first[..., 0], second[..., 2] - second[..., 1])
    difference = second[..., 1] - first[..., 1]
    sides = np.hypot(np.where(difference > 0, upwards, downwards), 2**0.5 * half)
    return float(np.mean(abs(difference) <= sides + 1e-12 * abs(second[..., 1])))


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        print(json.dumps(readings()))
    else:
        from worklog.runner.session import Session

        children = []
        words = [sys.executable, "-m", "tests.record.intervals", "--child"]
        for _ in range(PROCESSES):
            said = subprocess.run(
                words, stdout=subprocess.PIPE, text=True, timeout=300, check=True
            ).stdout
            children.append(json.loads(said.splitlines()[-1]))  # below what a library prints
        document = compare.new_document(Session(), compare.SAMPLING)
        document["promises"]["coverage"] = together(children)
        write_text(Path(sys.argv[1]), document | {"complete": True})
