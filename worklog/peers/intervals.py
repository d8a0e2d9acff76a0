"""Whether the harness's 95 % intervals hold: cuBLAS against itself, within a process and across processes.

`coverage` starts child processes one after the other, since physical pages and the event overhead differ between
processes; `python -m worklog.peers.intervals SIZES COUNT` is such a child, and calibrates the overhead for itself. It
prints JSON: for each size, each reading's low, middle and high in microseconds without overhead, and its seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from worklog.errors import ChildFailed
from worklog.peers.works import Movable, product, read_work
from worklog.runs.statistics import median

SIZES = (256, 1024, 2048, 4096)
PROCESSES, PAIRS = 10, 20  # of each process: 200 pairs in total
LIMIT_S = 300.0  # for one child


def coverage(
    progress: Callable[[int], None] = lambda done: None,
    *,
    processes: int = PROCESSES,
    pairs: int = PAIRS,
    sizes: Sequence[int] = SIZES,
    command: Sequence[str] = (sys.executable, "-P", "-m", "worklog.peers.intervals"),
) -> list[dict[str, Any]]:
    """For each size, the intervals of 2 x pairs readings in each process, and the median seconds of a reading. Raises
    ChildFailed with the child's last words.
    """
    found: list[dict[str, Any]] = []
    for done in range(processes):
        progress(done)
        arguments = [*command, ",".join(map(str, sizes)), str(2 * pairs)]
        child = subprocess.run(arguments, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if child.returncode:
            words = (child.stderr.strip().splitlines() or ["no message"])[-1]
            raise ChildFailed(f"the process that measures the intervals ended with {child.returncode}: {words}")
        found.append(json.loads(child.stdout.splitlines()[-1]))
    return [
        {
            "work": "cuBLAS",
            "of": size,
            "intervals_us": [one[str(size)]["intervals_us"] for one in found],
            "wall_s": median([s for one in found for s in one[str(size)]["wall_s"]]).value,
        }
        for size in sizes
    ]


def main(sizes: str, count: str) -> None:
    """Read each size `count` times in turn."""
    from worklog.gpu.cuda import CudaDevice
    from worklog.harness.calibration import read_known_lengths
    from worklog.harness.cuda_timeline import CudaTimeline

    device = CudaDevice()
    timeline = CudaTimeline(device)
    overhead = read_known_lengths(timeline).offset_us
    found: dict[str, Any] = {}
    for size in map(int, sizes.split(",")):
        work = product(size)
        launch = Movable(partial(work.enqueue, device.stream), *(work.moves or ()))
        read = [read_work(timeline, launch, offset_us=overhead) for _ in range(int(count))]
        found[str(size)] = {
            "intervals_us": [[one.low - overhead, one.value - overhead, one.high - overhead] for one, _, _ in read],
            "wall_s": [seconds for _, _, seconds in read],
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
