"""In place of worklog.runner.child: answers with the unbiased measurement at once, with the biased one later.

python stand_in_job.py SECONDS (or a file that says them) [FILE FOR ITS PROCESS ID]
"""

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.lab.grid import small_grid
from worklog.runner.child import Say, started
from worklog.runs import line


def main() -> None:
    order, say = started()
    for name in sys.argv[2:]:
        Path(name).write_text(str(os.getpid()))
    work(order, say, sys.argv[1])


def work(order: Mapping[str, Any], say: Say, seconds: str) -> None:
    """The jobs, out of the grid that was made by hand."""
    grid = replace(small_grid(), origin="live")
    file = Path(seconds)
    say("ready", head=grid.head_lines())
    for number, job in enumerate(order["jobs"]):
        say("progress", done=number, doing=str(job))
        if number:
            time.sleep(float(file.read_text() if file.exists() else seconds))
        (m,) = grid.select(job.kernel, job.shape, job.pitfalls)
        say("measured", number=number + 1, line=line("measurement", m), description={})
    say("done")


if __name__ == "__main__":
    main()
