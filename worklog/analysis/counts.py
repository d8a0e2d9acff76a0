"""A kernel's accesses to memory, from the compiled code as the emulator runs it, not from a second description of its
indices: each one of a block (executed), and a rung's access pattern.
"""

from __future__ import annotations

from collections import defaultdict
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
FLOAT, BANKS = 4, 32  # bytes; of 4 bytes
LEAST_K = 64  # floats, so that rows of A lie in different sectors
GLOBAL = ("A", "B", "C", "workspace")


class Step(NamedTuple):
    """An access of a warp. memory: one of GLOBAL, the shared array, or "memory" where the name isn't known. lanes: the
    active ones. byte: (32,), the place of each lane in the buffer or in shared memory. width: bytes per lane; 0 where
    the assembler makes it part of another one. costs: requests, sectors, wavefronts, conflicts, bytes, lines. words:
    (32, 4), the aligned 16 bytes of shared memory around it, afterwards.
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
    def in_shared(self) -> bool:
        """Whether it accesses shared memory."""
        return self.site.space == "shared"


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
    how: dict[str, Any] = {"shared_bytes": kernel.program.shared, "races": False, "trace": True}
    ordered = any(instruction.parts[0] in ("atom", "red", "membar") for instruction in compiled.instructions)
    how["only_blocks"] = None if ordered else [block]
    result = launch(compiled, kernel.blocks(shape), kernel.threads, arguments, **how)
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
        own = [name for name in kernel.arguments if name in GLOBAL]
        number, byte = divmod(byte - FIRST_ADDRESS, SPACING)
        memory = own[number[lanes[0]]] if 0 <= number[lanes[0]] < len(own) else "memory"
    else:
        memory = plain_name(site.array.name) if site.array else "shared"
        for group in site.groups:
            wide = byte + (group.offset - site.offset)
            if not (wide[lanes] % group.width).any():
                width, byte = group.width * bool(group.leads), wide
                break
    return Step(site, int(record["warp"]), memory, lanes, byte, width, record["costs"].tolist(), record["words"])


def wavefronts(byte: Lanes, lanes: Lanes, width: int, base: int) -> list[list[list[int]]]:
    """Of an access to shared memory, by phase and wavefront, the words that are delivered, counted from the base. As
    count_shared in the core: a phase has 128 bytes; there are half as many if lanes n and n ^ 1, or n ^ 2, agree.
    """
    phases = max(1, width // FLOAT)
    at = dict(zip(lanes.tolist(), byte.tolist(), strict=True))
    if phases > 1:
        paired = (all(at[lane] == at.get(lane ^ distance, at[lane]) for lane in at) for distance in (1, 2))
        phases //= 2 if any(paired) else 1
    out = []
    for phase in range(phases):
        rows: list[list[int]] = []
        depth: dict[int, int] = defaultdict(int)
        for word in sorted({
            start // FLOAT + k for lane, start in at.items() if lane * phases // WARP == phase
            for k in range(max(1, width // FLOAT))
        }):  # fmt: skip
            row = depth[word % BANKS]
            depth[word % BANKS] += 1
            rows += [[]] * (row == len(rows))
            rows[row] = [*rows[row], word - base // FLOAT]
        out.append(rows)
    return out


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
    source, bm, bn = rung.source.splitlines(), rung.template["BM"], rung.template["BN"]
    shape = rung.domain.padded(Shape(2 * bm, 2 * bn, LEAST_K))
    owners = np.full(shape.m * shape.n, -1, np.int64)
    requests: dict[int, Request] = {}
    result, trace, _, label = executed(rung, shape)
    for record in trace:
        step = step_of(rung, result, record)
        if step is None or not step.width or step.memory == "memory":
            continue
        floats = step.byte[step.lanes, None] // FLOAT + np.arange(step.width // FLOAT)
        if step.memory == "C" and step.site.writes:
            owners[floats] = WARP * step.warp + step.lanes[:, None]
        if step.warp or step.site.pc in requests:
            continue
        text = source[step.site.line - 1].strip() if step.site.line else ""
        costs = step.costs[1:4]
        requests[step.site.pc] = Request(
            step.site.line, text, step.memory, step.site.writes, step.width, floats, *costs
        )
    tile = owners.reshape(shape.m, shape.n)[:bm, :bn]
    return AccessPattern(rung, shape, tile, tuple(requests.values()), label)
