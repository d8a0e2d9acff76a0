"""The real job, in a process of its own, on the virtual GPU: host functions are checked by the real gate and timed."""

from __future__ import annotations

from functools import partial

from tests.exploits.arrays import xp
from tests.virtual.machine import Machine
from tests.virtual.session import VirtualSession
from worklog.runner import worker

if __name__ == "__main__":
    xp.machine = Machine()
    on_virtual = partial(
        worker.measure, make_session=lambda user_kernels: VirtualSession(xp.machine, *user_kernels.values())
    )
    worker.main({"measure": on_virtual})
