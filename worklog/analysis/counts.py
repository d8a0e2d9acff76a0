"""A kernel's access pattern: the owner of each element of C, and the addresses of a warp's loads and stores.

It is taken from the compiled code as the emulator runs it, not from a second description of its indices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worklog.emulator import (
    FIRST_ADDRESS,
    SPACING,
    WARP,
    EmulatedDevice,
    Site,
    costs_of,
    launch,
    plain_name,
)
from worklog.kernel import Kernel
from worklog.problem import Shape

Lanes = NDArray[np.int64]
FLOAT = 4
LEAST_K = 64  # floats, so that rows of A lie in different sectors
GLOBAL = ("A", "B", "C", "workspace")  # in the order of the launch


@dataclass(frozen=True)
class Request:
    """One memory instruction of warp 0 in block 0, as the assembler leaves it. line: of the .cu file; text: that line.
    memory: one of GLOBAL in global memory, else the shared array's name. width: bytes per lane. floats: (lanes, width /
    4), the floats of it that each active lane accesses. sectors: of 32 bytes, in global memory. wavefronts: passes
    through shared memory; conflicts: those that bank conflicts add.
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
        """Whether it accesses shared memory."""
        return self.memory not in GLOBAL


@dataclass(frozen=True)
class AccessPattern:
    """owners: (BM, BN), the thread that stores each element of block 0's tile of C. requests: of warp 0, the first at
    each place of the program. shape: of the problem that was run. label: the source.
    """

    rung: Kernel
    shape: Shape
    owners: Lanes
    requests: tuple[Request, ...]
    label: str

    def first(self, memory: str, *, store: bool = False) -> Request | None:
        """The first load from (or store to) a matrix or a shared array, or None."""
        return next((r for r in self.requests if r.memory == memory and r.is_store == store), None)


def access_pattern(rung: Kernel) -> AccessPattern:
    """Run the first block of a problem of 2 x 2 blocks on zeros: about a second."""
    device, source = EmulatedDevice(), rung.source.splitlines()
    kernel = device.compile(rung.program).kernel
    bm, bn = rung.template["BM"], rung.template["BN"]
    shape = rung.domain.padded(Shape(2 * bm, 2 * bn, LEAST_K))
    owners = np.full(shape.m * shape.n, -1, np.int64)
    requests: dict[int, Request] = {}

    def record(site: Site, address: Lanes, active: NDArray[np.bool_], width: int) -> None:
        """One memory instruction of all lanes of the block (worklog.emulator.globalmem.Watch)."""
        in_global = site.space == "global"
        number, byte = divmod(address - FIRST_ADDRESS, SPACING) if in_global else (address, address)
        floats = byte[:, None] // FLOAT + np.arange(width // FLOAT)
        if in_global and site.writes and number[active][0] == GLOBAL.index("C"):
            owners[floats[active]] = np.flatnonzero(active)[:, None]
        warp = active[:WARP]
        if site.pc in requests or not warp.any():
            return
        costs: dict[str, int] = {}
        if in_global:
            argument = int(number[:WARP][warp][0])
            if argument >= len(GLOBAL):  # a __device__ variable
                return
            memory = GLOBAL[argument]
            costs["sectors"] = costs_of(byte[:WARP], warp, width, shared=False)[1]
        else:
            memory = plain_name(site.array.name) if site.array else "shared"
            _, _, costs["wavefronts"], costs["conflicts"], *_ = costs_of(byte[:WARP], warp, width, shared=True)
        text = source[site.line - 1].strip() if site.line else ""
        requests[site.pc] = Request(site.line, text, memory, site.writes, width, floats[:WARP][warp], **costs)

    sizes = shape.m * shape.k, shape.k * shape.n, shape.m * shape.n, -(-rung.workspace_bytes(shape) // FLOAT)
    a, b, c, workspace = (np.zeros(size, np.float32) for size in sizes)
    arguments = rung.bind(shape, 1.0, a, b, 0.0, c, workspace)
    grid = rung.blocks(shape)
    shared = rung.program.shared
    launch(kernel, grid, rung.threads, arguments, shared_bytes=shared, races=False, only_blocks=[0], watch=record)
    tile = owners.reshape(shape.m, shape.n)[:bm, :bn]
    return AccessPattern(rung, shape, tile, tuple(requests.values()), device.label)
