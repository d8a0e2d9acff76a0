"""The real job on the virtual GPU.

One right host function stands in for each rung that a run names.
"""

from tests.exploits.arrays import xp
from tests.virtual.machine import Machine
from tests.virtual.session import VirtualSession
from worklog.kernel import LADDER, Kernel
from worklog.runner import child, worker


def product(alpha, A, B, beta, C):
    """C = alpha A B + beta C."""
    xp.gemm(alpha, A, B, beta, C)


if __name__ == "__main__":
    xp.machine = Machine()
    with child.answering() as (order, pipe):
        here = "tests.virtual.ladder_job:product"
        rungs = [Kernel.from_function(here, name=rung.name) for rung in LADDER]
        worker.answer(order, pipe, lambda user_kernels: VirtualSession(xp.machine, *rungs))
