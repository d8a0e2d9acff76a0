"""The real worker of a sweep, in a process of its own, on the virtual GPU.

The real gate checks tiles before they are timed. A tile takes as long as cuBLAS times its BM over
64, and one of MIN_BLOCKS = 2 takes 0.3 % longer.

TILES_DIE names a file with the name of a tile and of who dies: the first "worker" that measures
it, "every" one, or its "child".
"""

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

from tests.virtual.device import VirtualBaseline
from tests.virtual.machine import Machine
from tests.virtual.session import VirtualSession
from worklog.runner import child, worker
from worklog.runs import CUBLAS

COMMAND = (sys.executable, "-m", "tests.virtual.tiles")


class Tile(VirtualBaseline):
    """A right product of a known length."""

    def __init__(self, session: VirtualSession, name: str) -> None:
        super().__init__(session.device, name)
        values = {axis: int(value) for axis, value in re.findall(r"(\w+)=(\d+)", name)}
        self.factor = values.get("BM", 64) / 64 * (1.003 if values.get("MIN_BLOCKS") == 2 else 1.0)
        self.describe = session.kernel(name).describe


class Session(VirtualSession):
    """Whose user kernels are tiles."""

    def load(self, name: str) -> Any:
        file = Path(os.environ.get("TILES_DIE", "/nowhere"))
        if file.exists() and (who := file.read_text().partition(": "))[0] == name:
            if who[2].startswith("every"):
                with file.open("a") as tried:  # by a child, which may end in the middle of this
                    tried.write(f", {os.getpid()}")
            else:
                file.unlink()
            os.kill(os.getpid() if who[2] == "child" else os.getppid(), signal.SIGKILL)
        if name != CUBLAS and name not in self.loaded:
            self.loaded[name] = Tile(self, name)
        return self.loaded[name]


if __name__ == "__main__":
    with child.answering() as (order, pipe):
        worker.answer(order, pipe, lambda kernels: Session(Machine(), *kernels.values()))
