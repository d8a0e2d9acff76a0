"""In place of worklog.process.job: has the honest measurement at once, works for some seconds, and has the other one.

python stand_in_job.py SECONDS (or a file that says them) [FILE FOR ITS PROCESS ID]
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from tests.foreign_job import document
from tests.lab.grid import small_grid
from worklog.process.job import started, tasks_of


def main() -> None:
    order, say = started()
    for name in sys.argv[2:]:
        Path(name).write_text(str(os.getpid()))
    grid, tasks, said = small_grid(), tasks_of(order), Path(sys.argv[1])
    say("ready", run=document(replace(grid, measurements=[])))
    for done, task in enumerate(tasks):
        say("progress", done=done, total=len(tasks), doing=str(task))
        if done:
            time.sleep(float(said.read_text() if said.exists() else sys.argv[1]))
        found = grid.select(task.kernel, task.shape, task.gremlins)
        finished = document(replace(grid, measurements=found))
        say("measured", run=finished, done=done + 1, total=len(tasks), doing=str(task))
    say("done")


if __name__ == "__main__":
    main()
