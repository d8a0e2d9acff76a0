"""A kernel that a device has compiled: its passes, launched in order, and the workspace that they share."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from worklog.kernel.device import Block, Buffer, Device, Executable
from worklog.kernel.source import parts
from worklog.problem import FLOAT_BYTES, Shape

if TYPE_CHECKING:
    from worklog.kernel.kernel import Kernel

    Launch = tuple[Kernel, Executable, tuple[int, ...], Block]  # a pass, compiled, its grid and block


@dataclass(frozen=True)
class Pass:
    """One more launch of a kernel, with the same arguments. function: the __global__ function of the same file, with
    its template arguments, which may be names of the kernel's template: "sum_parts<BM, 4>". grid, block, shared: as of
    worklog.kernel.Kernel.
    """

    function: str
    grid: str
    block: str
    shared: int = 0


class Loaded:
    """A kernel on a device, as worklog.kernel.device.Subject. Raises CompileFailed.

    workspace: memory of the kernel's own, which a caller that times or checks it gives (`use_workspace`); otherwise it
    is allocated at the first launch that needs it or needs more of it.
    """

    def __init__(self, kernel: Kernel, device: Device) -> None:
        self.name, self.domain, self.kernel, self.device = kernel.name, kernel.domain, kernel, device
        self._compiled: dict[str, Executable] = {}
        self.passes = [] if kernel.choose is not None else self._compile(kernel)
        self.workspace: Buffer | None = None
        self._launches: dict[Shape, tuple[list[Launch], int]] = {}
        self._former: list[object] = []

    def is_ready(self, shape: Shape) -> bool:
        """Whether a launch at this shape compiles nothing."""
        return shape in self._launches

    def workspace_elements(self, shape: Shape) -> int:
        """Elements (float32) of the workspace that a launch at this shape needs."""
        return self.launches_at(shape)[1]

    def kernels(self, shape: Shape) -> int:
        """How many kernels a launch at this shape enqueues: its passes."""
        return len(self.launches_at(shape)[0])

    def use_workspace(self, buffer: Buffer | None) -> None:
        """Take this memory from the next launch on; None: memory of its own."""
        self.workspace = buffer

    def relocate(self) -> None:
        """Load the code again at the next launch: it then lies elsewhere. What was loaded before stays in memory until
        settle(); otherwise its place would be taken again.
        """
        self._former.append((self._compiled, self._launches))
        self._compiled, self._launches = {}, {}

    def settle(self) -> None:
        """Unload what relocate() has left behind."""
        self._former.clear()

    def enqueue(self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer) -> None:
        """Enqueue the passes. Raises BadSetting, and before the first one LaunchFailed for a grid without blocks."""
        launches, needed = self.launches_at(shape)
        if needed and (self.workspace is None or self.workspace.size < needed):
            self.use_workspace(self.device.upload(np.zeros(needed, np.float32)))
        arguments = launches[0][0].bind(shape, alpha, a, b, beta, c, self.workspace)  # the same for each pass
        for _, compiled, grid, threads in launches:
            self.device.launch(compiled, grid, threads, arguments)

    def describe(self) -> dict[str, Any]:
        """For a run's `kernels`: the resources of the kernel, and of each pass where there are several; the launches at
        each shape where it chooses.
        """
        own = len(self.kernel.before)
        found: dict[str, Any] = asdict(self.passes[own][1].resources) if self.passes else {}
        if len(self.passes) > 1:
            found["passes"] = [
                {"entry": one.entry, "grid": parts(one.grid), "block": one.threads, **asdict(compiled.resources)}
                for one, compiled in self.passes
            ]
        if self.kernel.choose is not None:
            found["choices"] = {
                str(shape): [{"entry": one.entry, "grid": list(grid)} for one, _, grid, _ in launches]
                for shape, (launches, _) in self._launches.items()
            }
        return found

    def _compile(self, kernel: Kernel) -> list[tuple[Kernel, Executable]]:
        for program in (one.program for one in kernel.passes):
            if program.sha256 not in self._compiled:
                self._compiled[program.sha256] = self.device.compile(program)
        return [(one, self._compiled[one.program.sha256]) for one in kernel.passes]

    def launches_at(self, shape: Shape) -> tuple[list[Launch], int]:
        """The launches at a shape, and the workspace's elements; found once, so that a timed launch neither parses
        expressions nor compiles.
        """
        if shape not in self._launches:
            self.kernel.check(shape)
            kernel = self.kernel.at(shape, self.device.arch)
            launches = [(one, compiled, one.blocks(shape), one.threads) for one, compiled in self._compile(kernel)]
            self._launches[shape] = launches, -(-kernel.workspace_bytes(shape) // FLOAT_BYTES)
        return self._launches[shape]
