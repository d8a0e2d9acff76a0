"""Records whether the 95 % intervals hold: in each of 25 processes, readings of the same kernels.

`python -m tests.record.intervals worklog/recordings/intervals/h100.json` on a machine with a GPU; six minutes. The
constants of worklog/runs/estimates.py, README and notebook 09 come from it. Physical pages, the event overhead and the
gaps between kernels differ between processes, so the children start one after the other, and each calibrates the
overhead for itself.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

from worklog.kernel import rung
from worklog.peers import compare, works
from worklog.problem import Shape
from worklog.runs import CUBLAS, Estimate, median, write_text
from worklog.runs.clocks import fitted_slope
from worklog.runs.estimates import DRIFT_SD_US, NORMAL, Values, process_half_us

# On an H100, cuBLAS launches 2 kernels at 256, and 1 at the other sizes. The rung is a short launch of 1 kernel.
WORKS = ((CUBLAS, 256), (CUBLAS, 1024), (CUBLAS, 2048), (CUBLAS, 4096), ("shared", 256))
PROCESSES, PAIRS = 25, 8  # of each process: 200 pairs in total
Point = dict[str, Any]  # of one work, all processes: "work", "of", "intervals_us", "sm_mhz", "wall_s", "kernels"


def readings(count: int) -> list[Point]:
    """Read each work `count` times in this process."""
    from worklog.gpu.cuda import Cublas, CudaDevice
    from worklog.harness.calibration import read_known_lengths
    from worklog.harness.cuda_timeline import CudaTimeline

    device = CudaDevice()
    timeline = CudaTimeline(device)
    overhead = read_known_lengths(timeline).offset_us
    ours, points = compare.OurHarness(timeline, device.stream, overhead), []
    for name, size in WORKS:
        timed = works.product(size, None if name == CUBLAS else rung(name))
        reads = [ours.read(timed) for _ in range(count)]
        times = [read.interval.shifted(-overhead) for read in reads]
        points.append(
            {
                "intervals_us": [[us.low, us.value, us.high] for us in times],
                "sm_mhz": [read.sm_mhz for read in reads],
                "wall_s": [read.wall_s for read in reads],
                "kernels": Cublas(device).kernels(Shape(size, size, size)) if name == CUBLAS else 1,
            }
        )
    return points


def in_a_process(count: int) -> list[Point]:
    """The same in a process of its own."""
    words = [sys.executable, "-m", "tests.record.intervals", "--child", str(count)]
    said = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=300, check=True).stdout
    points: list[Point] = json.loads(said.splitlines()[-1])  # below what a library prints
    return points


def recorded(
    processes: int = PROCESSES, pairs: int = PAIRS, read: Callable[[int], list[Point]] = in_a_process
) -> list[Point]:
    """The readings of each work in each process."""
    children = [read(2 * pairs) for _ in range(processes)]
    return [
        {
            "work": name,
            "of": size,
            "intervals_us": [child["intervals_us"] for child in of_work],
            "sm_mhz": [child["sm_mhz"] for child in of_work],
            "wall_s": median([seconds for child in of_work for seconds in child["wall_s"]]).value,
            "kernels": of_work[0]["kernels"],
        }
        for (name, size), of_work in zip(WORKS, zip(*children, strict=True), strict=True)
    ]


def coverage(point: Point) -> tuple[float, float]:
    """In how many of the pairs of readings, at one clock, the 95 % interval of their difference holds 0: for pairs in
    one process, with the drift in their intervals, and for all pairs across processes, with the process part. It should
    be 0.95, or 0.965 if the width of an interval comes from PILOT placements.
    """
    scaled = at_one_clock(point).tolist()
    drift, process = NORMAL * DRIFT_SD_US, process_half_us(point["kernels"])
    in_one = [[Estimate(us, low, high).between_processes(drift) for low, us, high in child] for child in scaled]
    across = [[Estimate(us, low, high).between_processes(process) for low, us, high in child] for child in scaled]
    return (
        share_held(pair for child in in_one for pair in zip(child[::2], child[1::2], strict=False)),
        share_held(pair for first, second in combinations(across, 2) for pair in product(first, second)),
    )


def at_one_clock(point: Point) -> Values:
    """The intervals of a work at one SM clock, processes x readings x (low, value, high). An interval is of the time at
    the clock of its reading, which differs by a few tenths of a percent between readings.
    """
    clocks = np.log(point["sm_mhz"])
    scaled: Values = point["intervals_us"] * np.exp(clock_slope(point) * (clocks.mean() - clocks))[..., None]
    return scaled


def clock_slope(point: Point) -> float:
    """By how many percent a time grows with an SM clock 1 % higher, fitted within each process."""
    return fitted_slope([*np.log(point["sm_mhz"])], [*np.log(np.array(point["intervals_us"])[..., 1])])[0]


def share_held(pairs: Iterable[Sequence[Estimate]]) -> float:
    """The share of pairs whose difference has 0 in its 95 % interval. That interval adds the sides of both in
    quadrature, the lower of one and the upper of the other (MOVER: Zou and Donner 2008), since an interval of order
    statistics need not be symmetric.
    """
    held = []
    for pair in pairs:
        lower, upper = sorted(pair, key=lambda us: us.value)
        half = math.hypot(lower.high - lower.value, upper.value - upper.low)
        held.append(upper.value - lower.value <= half + 1e-12 * upper.value)
    return float(np.mean(held)) if held else float("nan")


def main(out: str) -> None:
    """Write the document."""
    from worklog.runner.session import Session

    document = compare.new_document(Session(), compare.SAMPLING)
    document["promises"]["coverage"] = recorded()
    write_text(Path(out), document | {"complete": True})


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        print(json.dumps(readings(int(sys.argv[2]))))
    else:
        main(sys.argv[1])
