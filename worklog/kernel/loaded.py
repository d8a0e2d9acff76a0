"""A kernel that a device has compiled: its passes, launched in order, and the workspace that they share."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from worklog.kernel.device import Buffer, Device, Executable
from worklog.kernel.source import parts
from worklog.problem import FLOAT_BYTES, Shape

if TYPE_CHECKING:
    from worklog.kernel.kernel import Kernel


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
        self.passes: list[tuple[Kernel, Executable]] = [(one, device.compile(one.program)) for one in kernel.passes]
        self.compiled = self.passes[len(kernel.before)][1]
        self.workspace: Buffer | None = None
        self._threads = [one.threads for one, _ in self.passes]
        self._sizes: dict[Shape, tuple[list[tuple[int, ...]], int, int]] = {}

    def workspace_elements(self, shape: Shape) -> int:
        """Elements (float32) of the workspace that a launch at this shape needs."""
        return self._at(shape)[1]

    def use_workspace(self, buffer: Buffer) -> None:
        """Take this memory from the next launch on."""
        self.workspace = buffer

    def enqueue(self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer) -> None:
        """Enqueue the passes. Raises OutsideDomain, and BadSetting for a grid without blocks, before the first one."""
        blocks, needed, zeroed = self._at(shape)
        if needed and (self.workspace is None or self.workspace.size < needed):
            self.use_workspace(self.device.upload(np.zeros(needed, np.float32)))
        if zeroed:
            self.device.fill(self.device.view(self.workspace, 0, zeroed), 0.0)  # type: ignore[arg-type]
        for (one, compiled), grid, threads in zip(self.passes, blocks, self._threads, strict=True):
            arguments = one.bind(shape, alpha, a, b, beta, c, self.workspace)
            self.device.launch(compiled, grid, threads, arguments)

    def describe(self) -> dict[str, Any]:
        """For a run's `kernels`: the resources of the kernel, and of each pass where there are several."""
        found: dict[str, Any] = asdict(self.compiled.resources)
        if len(self.passes) > 1:
            found["passes"] = [
                {"entry": one.entry, "grid": parts(one.grid), "block": one.threads, **asdict(compiled.resources)}
                for one, compiled in self.passes
            ]
        return found

    def _at(self, shape: Shape) -> tuple[list[tuple[int, ...]], int, int]:
        """Blocks of each pass, and elements of the workspace and of its part that is set to zero: evaluated once, so
        that a timed launch does not parse expressions.
        """
        if shape not in self._sizes:
            self.kernel.check(shape)
            sizes = (-(-self.kernel.bytes_of(what, shape) // FLOAT_BYTES) for what in ("workspace", "zeroed"))
            self._sizes[shape] = ([one.blocks(shape) for one, _ in self.passes], *sizes)  # type: ignore[assignment]
        return self._sizes[shape]
