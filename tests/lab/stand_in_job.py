"""In place of the panel's job: keeps the honest measurement at once, works for some seconds, and has it all.

python stand_in_job.py SECONDS (or a file that says them) [FILE FOR ITS PROCESS ID]
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from tests.lab.grid import small_grid
from worklog.lab.job import watch_the_parent


def main() -> None:
    order = json.loads(sys.stdin.readline())
    watch_the_parent()
    out = Path(order["out"])
    for name in sys.argv[2:]:
        Path(name).write_text(str(os.getpid()))
    print(json.dumps({"done": 0, "total": 2, "doing": "warptiled at 1024"}), flush=True)
    cut = small_grid()
    cut.measurements = [m for m in cut.measurements if m.kernel == "warptiled" and not m.changed]
    cut.complete = False
    cut.save(out)
    print(json.dumps({"done": 1, "total": 2, "doing": "warptiled at 1024 with l2=warm"}), flush=True)
    said = Path(sys.argv[1])
    time.sleep(float(said.read_text() if said.exists() else sys.argv[1]))
    small_grid().save(out)


if __name__ == "__main__":
    main()
