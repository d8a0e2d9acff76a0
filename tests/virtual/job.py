"""The real job, in a process of its own, on the virtual GPU: host functions are checked by the real gate and timed."""

from __future__ import annotations

from functools import partial

from tests.exploits.arrays import xp
from tests.virtual.machine import Machine
from tests.virtual.session import VirtualSession
from worklog.runner import child, prepare

if __name__ == "__main__":
    xp.machine = Machine()
    on_virtual = partial(
        prepare.answer, make_session=lambda user_kernels: VirtualSession(xp.machine, *user_kernels.values())
    )
    child.main({"measure": on_virtual})
