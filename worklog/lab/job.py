"""The panel's child process: `python -m worklog.lab.job` measures a few tasks and prints how far it is.

Apart from the notebook, a kernel bug cannot take the notebook's memory along, and a cancel need not wait for the GPU.
It ends when the other end of its standard input does, so that no restart of a notebook leaves it behind.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from worklog import bench
from worklog.errors import WorklogError
from worklog.gemm import Shape
from worklog.harness.settings import Harness
from worklog.plans import Task


def main() -> None:
    """Read one line of JSON, {"out": path, "tasks": [[kernel, [m, n, k], {setting: value}]]}, and carry it out."""
    order = json.loads(sys.stdin.readline())
    watch_the_parent()
    tasks = [Task(kernel, Shape(*shape), tuple(changed.items())) for kernel, shape, changed in order["tasks"]]
    try:
        bench.carry_out(tasks, Harness(), progress=_say, out=Path(order["out"]))
    except WorklogError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


def order(tasks: list[Task], out: Path) -> str:
    """The line that main() reads."""
    listed = [[t.kernel, [t.shape.m, t.shape.n, t.shape.k], dict(t.changed)] for t in tasks]
    return json.dumps({"out": str(out), "tasks": listed}) + "\n"


def _say(done: int, total: int, doing: str) -> None:
    line: dict[str, Any] = {"done": done, "total": total, "doing": doing}
    print(json.dumps(line), flush=True)


def watch_the_parent() -> None:
    """End this process as soon as the one at the other end of its standard input has gone. First read all it says."""
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
