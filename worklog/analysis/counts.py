"""A kernel's accesses to memory, from the compiled code as the emulator runs it, not from a second description of its
indices: each one of a block (executed), and a rung's access pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from worklog.emulator import FIRST_ADDRESS, SPACING, WARP, EmulatedDevice, Result, Site, launch, plain_name
from worklog.emulator import Kernel as Code
from worklog.kernel import Kernel, Program
from worklog.problem import Shape

Lanes = NDArray[np.int64]
FLOAT = 4  # bytes
LEAST_K = 64  # floats, so that rows of A lie in different sectors
GLOBAL = ("A", "B", "C", "workspace")


class Step(NamedTuple):
    """An access of a warp, as the assembler leaves it. memory: one of GLOBAL, the shared array, or "memory" where the
    name isn't known. lanes: the active ones. byte: (32,), the place of each lane in the buffer or in shared memory.
    width: bytes per lane; 0 where the assembler makes it part of another one. costs: requests, sectors, wavefronts,
    conflicts, bytes, lines. words: (32, 4), the aligned 16 bytes of shared memory around it, afterwards.
    """

    site: Site
    warp: int
    memory: str
    lanes: Lanes
    byte: Lanes
    width: int
    costs: Sequence[int]
    words: NDArray[np.uint32]

    @property
    def line(self) -> int:
        """Of the .cu file."""
        return self.site.line

    @property
    def is_store(self) -> bool:
        """Whether it changes memory."""
        return self.site.writes

    @property
    def in_shared(self) -> bool:
        """Whether it accesses shared memory."""
        return self.site.space == "shared"

    @property
    def floats(self) -> Lanes:
        """(lanes, width / 4), the floats of the buffer or of shared memory that each active lane accesses."""
        return self.byte[self.lanes, None] // FLOAT + np.arange(self.width // FLOAT)

    @property
    def sectors(self) -> int:
        """Of 32 bytes, in global memory."""
        return self.costs[1]

    @property
    def wavefronts(self) -> int:
        """Passes through shared memory."""
        return self.costs[2]

    @property
    def conflicts(self) -> int:
        """Those of the wavefronts that bank conflicts add."""
        return self.costs[3]


class Executed(NamedTuple):
    """A block that ran: its result and trace, its code, and the source of both."""

    result: Result
    trace: NDArray[Any]
    code: Code
    label: str


def executed(kernel: Kernel, shape: Shape, block: int = 0, *, a: Any = None, b: Any = None) -> Executed:
    """Run a block of a kernel's main launch with a trace; all blocks where one may wait for another, or know that it is
    the last: where there are atomics or fences. a, b: float32 (default: zeros).
    """
    compiled, label = _compiled(kernel.program)
    sizes = shape.m * shape.k, shape.k * shape.n, shape.m * shape.n, -(-kernel.workspace_bytes(shape) // FLOAT)
    zeros = [np.zeros(size, np.float32) for size in sizes]
    a, b, c, workspace = zeros[0] if a is None else a, zeros[1] if b is None else b, *zeros[2:]
    arguments = kernel.bind(shape, 1.0, a, b, 0.0, c, workspace)
    ordered = any(instruction.parts[0] in ("atom", "red", "membar") for instruction in compiled.instructions)
    result = launch(
        compiled, kernel.blocks(shape), kernel.threads, arguments, shared_bytes=kernel.program.shared, races=False,
        trace=True, only_blocks=None if ordered else [block],
    )  # fmt: skip
    return Executed(result, result.trace[result.trace["block"] == block], compiled, label)


@lru_cache(maxsize=8)
def _compiled(program: Program) -> tuple[Code, str]:
    """Once for several blocks, as the emulator decodes each compiled kernel anew."""
    device = EmulatedDevice()
    return device.compile(program).kernel, device.label


def step_of(kernel: Kernel, result: Result, record: Any) -> Step | None:
    """A record of the trace; None for a barrier, a bulk copy, and what a multiplication reads."""
    site = result.sites.get(int(record["pc"]))
    if site is None or site.op == "wgmma" or "bulk" in site.parts:
        return None
    in_global = record["space"] == 0
    site = site.source if site.source and in_global else site.at("global" if in_global else "shared")
    byte, width = record["address"].astype(np.int64), site.width
    lanes = np.flatnonzero(record["mask"] >> np.arange(WARP, dtype=np.uint32) & 1)
    if in_global:
        memory, byte = buffer_of(kernel, byte, lanes[0])
    else:
        memory = plain_name(site.array.name) if site.array else "shared"
        for group in site.groups:
            wide = byte + (group.offset - site.offset)
            if not (wide[lanes] % group.width).any():
                width, byte = group.width * bool(group.leads), wide
                break
    return Step(site, int(record["warp"]), memory, lanes, byte, width, record["costs"].tolist(), record["words"])


def buffer_of(kernel: Kernel, addresses: Lanes, lane: int) -> tuple[str, Lanes]:
    """The buffer of a lane's address in global memory, or "memory", and the bytes from its start."""
    own = [name for name in kernel.arguments if name in GLOBAL]
    number, byte = divmod(addresses - FIRST_ADDRESS, SPACING)
    return own[number[lane]] if 0 <= number[lane] < len(own) else "memory", byte


@dataclass(frozen=True)
class AccessPattern:
    """owners: (BM, BN), the thread that stores each element of block 0's tile of C. requests: of warp 0, the first at
    each place of the program. shape: of the problem that was run. label: the source.
    """

    rung: Kernel
    shape: Shape
    owners: Lanes
    requests: tuple[Step, ...]
    label: str

    def first(self, memory: str, *, store: bool = False) -> Step | None:
        """The first load from (or store to) a matrix or a shared array, or None."""
        return next((r for r in self.requests if r.memory == memory and r.is_store == store), None)


def access_pattern(rung: Kernel) -> AccessPattern:
    """Run the first block of a problem of 2 x 2 blocks on zeros: about a second."""
    bm, bn = rung.template["BM"], rung.template["BN"]
    shape = rung.domain.padded(Shape(2 * bm, 2 * bn, LEAST_K))
    owners, requests = np.full(shape.m * shape.n, -1, np.int64), dict[int, Step]()
    result, trace, _, label = executed(rung, shape)
    for record in trace:
        step = step_of(rung, result, record)
        if step is None or not step.width or step.memory == "memory":
            continue
        if step.memory == "C" and step.is_store:
            owners[step.floats] = WARP * step.warp + step.lanes[:, None]
        if not step.warp:
            requests.setdefault(step.site.pc, step)
    tile = owners.reshape(shape.m, shape.n)[:bm, :bn]
    return AccessPattern(rung, shape, tile, tuple(requests.values()), label)
