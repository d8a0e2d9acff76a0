"""In place of worklog.runner.child.

Answers with the unbiased measurement at once, with the biased one later.

python stand_in_job.py SECONDS (or a file that says them) [FILE FOR ITS PROCESS ID]
"""

import os
import sys
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from tests.lab.grid import small_grid
from worklog.runner.child import started
from worklog.runner.messages import Done, Measured, MeasureOrder, Progressed, Started
from worklog.runs import line


def main() -> None:
    order, pipe = started()
    for name in sys.argv[2:]:
        Path(name).write_text(str(os.getpid()))
    work(order, pipe, sys.argv[1])


def work(order: MeasureOrder, pipe: Connection, seconds: str) -> None:
    """Yield the jobs, out of the grid that was made by hand."""
    grid = replace(small_grid(), origin="live")
    file = Path(seconds)
    pipe.send(Started(grid.head_lines()))
    for number, job in enumerate(order.jobs):
        pipe.send(Progressed(number, str(job)))
        if number:
            time.sleep(float(file.read_text() if file.exists() else seconds))
        (m,) = grid.select(job.kernel, job.shape, job.pitfalls)
        pipe.send(Measured(line("measurement", m), {}))
    pipe.send(Done())


if __name__ == "__main__":
    main()
