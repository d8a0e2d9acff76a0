"""The real job, in a process of its own, on the virtual GPU.

Host functions are checked by the real gate and timed.
"""

from dataclasses import replace
from multiprocessing.connection import Connection

from tests.exploits.arrays import xp
from tests.virtual.machine import Machine
from tests.virtual.session import VirtualSession
from worklog.kernel.emulated import EmulatedDevice
from worklog.runner import check, child, worker
from worklog.runner.messages import CheckEnded, CheckOrder, MeasureOrder


def check_without_races(order: CheckOrder, pipe: Connection) -> None:
    """CUDA sources run on an emulator that sees no races, as no GPU does."""
    check.device_of = lambda live, budget: EmulatedDevice(races=False)
    checked = check.check(
        order.kernel,
        order.shape,
        on="emulated",
        seed=order.seed,
        budget=order.budget,
        quick=order.quick,
    )
    pipe.send(CheckEnded(replace(checked, label="live · a virtual GPU")))


if __name__ == "__main__":
    xp.machine = Machine()
    with child.answering() as (order, pipe):
        if isinstance(order, MeasureOrder):
            worker.answer(
                order, pipe, lambda user_kernels: VirtualSession(xp.machine, *user_kernels.values())
            )
        else:
            check_without_races(order, pipe)
