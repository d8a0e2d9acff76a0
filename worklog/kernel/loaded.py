"""A kernel that a device has compiled: its launches in order, and the workspace that they share."""

from __future__ import annotations

from typing import Any

import numpy as np

from worklog.kernel.device import Block, Buffer, Device, Runnable
from worklog.kernel.resources import instruction_mix
from worklog.kernel.source import parts
from worklog.problem import FLOAT_BYTES, Shape

Part = tuple[Any, Any, tuple[int, ...], Block]  # a worklog.kernel.Kernel of one launch, compiled; grid and block


class Loaded(Runnable):
    """A kernel on a device, which allocates a workspace unless its caller lends one. Raises CompileFailed."""

    is_movable = True

    def __init__(self, kernel: Any, device: Device) -> None:
        self.name, self.domain, self.kernel, self.device = kernel.name, kernel.domain, kernel, device
        self.claimed, self.remarks = kernel.claimed, kernel.remarks
        self._compiled: dict[str, Any] = {}
        self._launches: dict[Shape, tuple[list[Part], int]] = {}
        self._former: list[object] = []
        self.passes = [] if kernel.choose else [(part, self._load(part)) for part in kernel.passes]

    def is_ready(self, shape: Shape) -> bool:
        """Whether a launch at this shape compiles nothing."""
        return shape in self._launches

    def workspace_elements(self, shape: Shape) -> int:
        """As Runnable has it."""
        return self.launches_at(shape)[1]

    def kernels(self, shape: Shape) -> int:
        """Its launches."""
        return len(self.launches_at(shape)[0])

    def operands(self, shape: Shape) -> tuple[str, ...]:
        """As Runnable has it."""
        mixes = [instruction_mix(compiled.compiled) for _, compiled, _, _ in self.launches_at(shape)[0]]
        return tuple(dict.fromkeys(operand for mix in mixes for operand in mix.operands))

    def variables(self, shape: Shape) -> list[str]:
        """As Runnable has it."""
        launches, _ = self.launches_at(shape)
        return [*dict.fromkeys(name for _, compiled, _, _ in launches for name in compiled.compiled.variables)]

    def relocate(self) -> None:
        """Load the code again at the next launch. Its former place would be taken again if it were free."""
        self._former.append((self._compiled, self._launches))
        self._compiled, self._launches = {}, {}

    def settle(self) -> None:
        """As Runnable has it."""
        self._former.clear()

    def enqueue(self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer) -> None:
        """Enqueue the launches. Raises BadSetting, and before the first one LaunchFailed for a grid without blocks."""
        launches, needed = self.launches_at(shape)
        if needed and (self.workspace is None or self.workspace.size < needed):
            self.use_workspace(self.device.upload(np.zeros(needed, np.float32)))
        arguments = launches[0][0].bind(shape, alpha, a, b, beta, c, self.workspace)  # the same for each launch
        for _, compiled, grid, threads in launches:
            self.device.launch(compiled, grid, threads, arguments)

    def describe(self) -> dict[str, Any]:
        """The kernel, its resources, its launches where there are several, and at each shape where it chooses."""
        described: dict[str, Any] = self.kernel.describe()
        described |= self.passes[self.kernel.main][1].compiled.resources if self.passes else {}
        passes = [
            {"entry": part.entry, "grid": parts(part.grid), "block": part.threads, **compiled.compiled.resources}
            for part, compiled in self.passes
        ]
        choices = {
            str(shape): [{"entry": part.entry, "grid": list(grid)} for part, _, grid, _ in launches]
            for shape, (launches, _) in self._launches.items()
        }
        described |= {"passes": passes} if len(passes) > 1 else {}
        return described | ({"choices": choices} if self.kernel.choose is not None else {})

    def _load(self, part: Any) -> Any:
        key = part.program.sha256
        if key not in self._compiled:
            self._compiled[key] = self.device.compile(part.program)
        return self._compiled[key]

    def grids(self, key: str, *sizes: Any) -> Any:
        """Blocks along x and y at shapes of the domain, of the program with this hash; 0 where it isn't launched.
        sizes: of M, N and K, an array each. Raises BadSetting.
        """
        if self.kernel.choose is None:
            part = next(part for part, _ in self.passes if part.program.sha256 == key)
            return np.array([sizes[0] * 0 + blocks for blocks in part.blocks_at(*sizes)[:2]])
        shapes, which = np.unique(np.stack(sizes), axis=1, return_inverse=True)
        grids = np.zeros((2, shapes.shape[1]), np.int64)
        for number, shape in enumerate(shapes.T):
            for part in self.kernel.at(Shape(*map(int, shape)), self.device.arch).passes:
                if part.program.sha256 == key:
                    grids[:, number] = part.blocks(Shape(*map(int, shape)))[:2]
        return grids[:, which.reshape(-1)]

    def launches_at(self, shape: Shape) -> tuple[list[Part], int]:
        """The launches and the workspace's elements, computed once, so that a timed launch parses nothing."""
        if shape not in self._launches:
            self.kernel.check(shape)
            kernel = self.kernel.at(shape, self.device.arch)
            launches = [(part, self._load(part), part.blocks(shape), part.threads) for part in kernel.passes]
            self._launches[shape] = launches, -(-kernel.workspace_bytes(shape) // FLOAT_BYTES)
        return self._launches[shape]
