"""A block's accesses to memory, from the compiled code as the emulator runs it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from worklog.emulator import FIRST_ADDRESS, SPACING, Result, Site, launch, plain_name
from worklog.emulator import Kernel as Code
from worklog.kernel import Kernel, Program
from worklog.kernel.emulated import EmulatedDevice
from worklog.problem import Shape
from worklog.runs.limits import WARP

Lanes = NDArray[np.int64]
FLOAT = 4  # bytes
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
    def in_shared(self) -> bool:
        """Whether it accesses shared memory."""
        return self.site.space == "shared"


class Executed(NamedTuple):
    """A block that ran: its result and trace, its code, and the source of both."""

    result: Result
    trace: NDArray[Any]
    code: Code
    label: str


def executed(
    kernel: Kernel, shape: Shape, block: int = 0, *, a: Any = None, b: Any = None
) -> Executed:
    """Run a block of a kernel's main launch with a trace; all blocks where one may wait for another, or know that it is
    the last: where there are atomics or fences. a, b: float32 (default: zeros).
    """
    compiled, label = _compiled(kernel.program)
    sizes = (
        shape.m * shape.k,
        shape.k * shape.n,
        shape.m * shape.n,
        -(-kernel.workspace_bytes(shape) // FLOAT),
    )
    zeros = [np.zeros(size, np.float32) for size in sizes]
    a, b, c, workspace = zeros[0] if a is None else a, zeros[1] if b is None else b, *zeros[2:]
    arguments = kernel.bind(shape, 1.0, a, b, 0.0, c, workspace)
    ordered = any(
        instruction.parts[0] in ("atom", "red", "membar") for instruction in compiled.instructions
    )
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
    site = (
        site.source if site.source and in_global else site.at("global" if in_global else "shared")
    )
    byte = record["address"].astype(np.int64)
    width = site.width
    lanes = np.flatnonzero(record["mask"] >> np.arange(WARP, dtype=np.uint32) & 1)
    if in_global:
        memory, byte = buffer_of(kernel, byte, lanes[0])
    else:
        memory = plain_name(site.array.name) if site.array else "shared"
        for group in site.groups:
            wide = byte + (group.offset - site.offset)
            if not (wide[lanes] % group.width).any():
                width = group.width * bool(group.leads)
                byte = wide
                break
    return Step(
        site,
        int(record["warp"]),
        memory,
        lanes,
        byte,
        width,
        record["costs"].tolist(),
        record["words"],
    )


def buffer_of(kernel: Kernel, addresses: Lanes, lane: int) -> tuple[str, Lanes]:
    """The buffer of a lane's address in global memory, or "memory", and the bytes from its start."""
    own = [name for name in kernel.arguments if name in GLOBAL]
    number, byte = divmod(addresses - FIRST_ADDRESS, SPACING)
    return own[number[lane]] if 0 <= number[lane] < len(own) else "memory", byte
