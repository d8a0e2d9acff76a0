"""The real job, in a process of its own, on the virtual GPU: host code is put to the real gate and timed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from tests.exploits.arrays import xp
from tests.virtual.machine import Machine
from tests.virtual.session import GPU, VirtualSession, virtual_gpu
from worklog.bench import job
from worklog.bench import measure as bench
from worklog.gpu import device
from worklog.kernel.host_function import HostCallable
from worklog.problem.gemm import Shape


class WholeSession(VirtualSession):
    """With everything that was brought."""

    def __init__(self, own: Mapping[str, HostCallable]) -> None:
        super().__init__(xp.machine, next(iter(own.values())))
        self.brought = dict(own)
        for baseline in self.baselines.values():
            baseline.version = "0"  # type: ignore[attr-defined]

    def require_memory(self, shape: Shape) -> None:
        """There is enough."""


if __name__ == "__main__":
    xp.machine = Machine()
    device.gpu = lambda: GPU  # type: ignore[assignment]
    bench.Session = WholeSession  # type: ignore[misc, assignment]
    job.require_context = lambda: None
    job.alone_on_the_gpu = nullcontext  # type: ignore[assignment]
    with virtual_gpu():
        job.main()
