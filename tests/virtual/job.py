"""The real job, in a process of its own, on the virtual GPU: host functions are checked by the real gate and timed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.exploits.arrays import xp
from tests.virtual.machine import Machine
from tests.virtual.session import VirtualSession
from worklog.kernel.emulated import EmulatedDevice
from worklog.runner import check, child, worker


def check_without_races(order: Mapping[str, Any], say: child.Say) -> None:
    """CUDA sources run on an emulator that sees no races, as no GPU does."""
    check.device_of = lambda live, budget: EmulatedDevice(races=False)
    checked = check.check(order["what"], **order["how"] | {"on": "emulated"})
    say("checked", checked=replace(checked, label="live · a virtual GPU"))


if __name__ == "__main__":
    xp.machine = Machine()
    with child.answering() as (order, say):
        if order["do"] == "measure":
            worker.answer(
                order, say, lambda user_kernels: VirtualSession(xp.machine, *user_kernels.values())
            )
        else:
            check_without_races(order, say)
