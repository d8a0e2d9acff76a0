"""Who owns what, and what one load of a warp asks of memory: taken from a rung's compiled code as the emulator runs it,
not from a second description of its indices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worklog.emulator import EmulatedDevice, Pointer, launch
from worklog.emulator.findings import plain_name
from worklog.emulator.globalmem import FIRST_ADDRESS, SPACING
from worklog.emulator.sites import Site
from worklog.emulator.traffic import WARP, sectors, wavefronts
from worklog.kernel.kernel import Kernel
from worklog.problem.gemm import Shape

Lanes = NDArray[np.int64]

FLOAT = 4
LEAST_K = 64  # floats, so that rows of A lie in different sectors
MATRICES = ("A", "B", "C")


@dataclass(frozen=True)
class Request:
    """One access of warp 0 in block 0, as the assembler leaves it.

    line: of the .cu file; text: that line. memory: "A", "B" or "C" in global memory, else the shared array's name.
    is_store: it writes. width: bytes a lane. floats: (lanes, width / 4), which floats of that memory each active lane
    asks for. sectors: of 32 bytes, for global memory; wavefronts: passes through shared memory, conflicts: those of
    them that bank conflicts add.
    """

    line: int
    text: str
    memory: str
    is_store: bool
    width: int
    floats: Lanes
    sectors: int = 0
    wavefronts: int = 0
    conflicts: int = 0

    @property
    def in_shared(self) -> bool:
        """Whether it goes to shared memory."""
        return self.memory not in MATRICES


@dataclass(frozen=True)
class Touches:
    """owners: (BM, BN), the thread that stores each element of block 0's tile of C. requests: of warp 0, the first at
    each place of the program. shape: of the problem that was run; label: where this comes from.
    """

    rung: Kernel
    shape: Shape
    owners: Lanes
    requests: tuple[Request, ...]
    label: str

    def first(self, memory: str, *, store: bool = False) -> Request | None:
        """The first load from (or store to) a matrix or a shared array, or None."""
        return next((r for r in self.requests if r.memory == memory and r.is_store == store), None)


class _Watch:
    """Notes what it is called with (worklog.emulator.globalmem.Watch)."""

    def __init__(self, shape: Shape, source: str) -> None:
        self.source = source.splitlines()
        self.owners = np.full(shape.m * shape.n, -1, np.int64)
        self.found: dict[int, Request] = {}

    def __call__(self, site: Site, address: Lanes, active: NDArray[np.bool_], width: int) -> None:
        """One access of the block, all lanes."""
        in_global = site.space == "global"
        number, byte = divmod(address - FIRST_ADDRESS, SPACING) if in_global else (address, address)
        floats = byte[:, None] // FLOAT + np.arange(width // FLOAT)
        if in_global and site.writes:
            self.owners[floats[active]] = np.flatnonzero(active)[:, None]
        warp = active[:WARP]
        if site.pc in self.found or not warp.any():
            return
        costs: dict[str, int] = {}
        if in_global:
            memory = MATRICES[int(number[:WARP][warp][0])]
            costs["sectors"] = sectors(byte[None, :WARP], warp[None], width)[1]
        else:
            memory = plain_name(site.array.name) if site.array else "shared"
            _, costs["wavefronts"], costs["conflicts"] = wavefronts(byte[None, :WARP], warp[None], width)
        text = self.source[site.line - 1].strip() if site.line else ""
        self.found[site.pc] = Request(site.line, text, memory, site.writes, width, floats[:WARP][warp], **costs)


def touches(record: Kernel) -> Touches:
    """Run the first block of a problem of 2 x 2 blocks, addresses alone. Well below a second."""
    device, program = EmulatedDevice(), record.program
    kernel = device.compile(program).kernel
    bm, bn = record.template["BM"], record.template["BN"]
    shape = record.domain.padded(Shape(2 * bm, 2 * bn, LEAST_K))
    watch = _Watch(shape, program.source)
    a, b, c = (Pointer(None, FLOAT * size) for size in (shape.m * shape.k, shape.k * shape.n, shape.m * shape.n))
    arguments = [shape.m, shape.n, shape.k, 1.0, a, b, 0.0, c]
    grid = record.blocks(shape)
    launch(kernel, grid, record.threads, arguments, races=False, values=False, only_blocks=[0], watch=watch)
    owners = watch.owners.reshape(shape.m, shape.n)[:bm, :bn]
    return Touches(record, shape, owners, tuple(watch.found.values()), device.label)
