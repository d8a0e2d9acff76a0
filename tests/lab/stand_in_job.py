"""In place of worklog.runner.job: answers with the unbiased measurement at once, with the biased one after some time.

python stand_in_job.py SECONDS (or a file that says them) [FILE FOR ITS PROCESS ID]
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tests.lab.grid import small_grid
from worklog.runner.worker import Say, started
from worklog.runs.run import Run


def main() -> None:
    order, say = started()
    for name in sys.argv[2:]:
        Path(name).write_text(str(os.getpid()))
    work(order, say, sys.argv[1])


def head_of(run: Run) -> dict[str, Any]:
    """As a job's first answer has it."""
    return {name: getattr(run, name) for name in ("device", "harness", "tool", "software", "calibration", "notes")}


def work(order: Mapping[str, Any], say: Say, seconds: str) -> None:
    """The tasks, out of the grid that was made by hand."""
    grid, tasks, said = small_grid(), order["tasks"], Path(seconds)
    say("ready", head=head_of(grid))
    for done, task in enumerate(tasks):
        say("progress", done=done, doing=str(task))
        if done:
            time.sleep(float(said.read_text() if said.exists() else seconds))
        (found,) = grid.select(task.kernel, task.shape, task.pitfalls)
        say("measured", number=done + 1, measurements=[asdict(replace(found, label=""))], description={})
    say("done")


if __name__ == "__main__":
    main()
