"""A trace of a block's accesses to memory, warp by warp, as the emulator runs it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from worklog.emulator import PtxKernel as Code
from worklog.emulator import Result, launch
from worklog.emulator.limits import WARP
from worklog.emulator.memory import FIRST_ADDRESS, SPACING
from worklog.emulator.program import Site
from worklog.emulator.ptx import plain_name
from worklog.kernel import Kernel, Program
from worklog.kernel.emulated import EmulatedDevice, with_maps
from worklog.problem import Shape

Lanes = NDArray[np.int64]
FLOAT = 4  # bytes
GLOBAL = ("A", "B", "C", "workspace")


class Step(NamedTuple):
    """An access of a warp, as the assembler leaves it."""

    site: Site
    warp: int
    memory: str  # one of GLOBAL, the shared array, or "memory" if the name isn't known
    lanes: Lanes  # that are active
    byte: Lanes  # (32,): the place of each lane in the buffer or in shared memory
    width: int  # bytes per lane; 0 if the assembler makes the access part of another access
    costs: Sequence[int]  # requests, sectors, wavefronts, conflicts, bytes, lines
    # (32, 4): the aligned 16 bytes of shared memory around it, afterwards
    words: NDArray[np.uint32]

    @property
    def in_shared(self) -> bool:
        """Whether the step accesses shared memory."""
        return self.site.space == "shared"


class Executed(NamedTuple):
    """A block that ran: its result and trace, its code, and the source of both."""

    result: Result
    trace: NDArray[Any]
    code: Code
    label: str
    has_all_blocks: bool  # whether the result has the traces of all blocks

    def of_block(self, block: int) -> Executed:
        """Return another block of a run that has all blocks."""
        trace = self.result.trace
        return self._replace(trace=trace[trace["block"] == block])


def executed(
    kernel: Kernel, shape: Shape, block: int = 0, *, a: Any = None, b: Any = None
) -> Executed:
    """Run a block of a kernel's main launch with a trace.

    If the code has atomics or fences, all blocks run: a block may wait for another block, or know
    that it is the last.

    a, b: float32 (default: zeros)
    """
    compiled, label = _compiled(kernel.program)
    sizes = (
        shape.m * shape.k,
        shape.k * shape.n,
        shape.m * shape.n,
        -(-kernel.workspace_bytes(shape) // FLOAT),
    )
    zeros = [np.zeros(size, np.float32) for size in sizes]
    a = zeros[0] if a is None else a
    b = zeros[1] if b is None else b
    arguments = with_maps(kernel.bind(shape, 1.0, a, b, 0.0, zeros[2], zeros[3]))
    needs_all_blocks = any(
        instruction.parts[0] in ("atom", "red", "membar") for instruction in compiled.instructions
    )
    result = launch(
        compiled,
        kernel.blocks(shape),
        kernel.threads,
        arguments,
        shared_bytes=kernel.program.shared,
        races=False,
        trace=True,
        only_blocks=None if needs_all_blocks else [block],
    )
    run = Executed(result, result.trace, compiled, label, needs_all_blocks)
    return run.of_block(block)


@lru_cache(maxsize=8)
def _compiled(program: Program) -> tuple[Code, str]:
    """Return a compiled kernel, the same for several blocks, and the emulator's label.

    The emulator decodes each compiled kernel anew.
    """
    device = EmulatedDevice()
    return device.compile(program).kernel, device.label


def step_of(kernel: Kernel, result: Result, record: Any) -> Step | None:
    """Return the step of a record of the trace.

    None for a barrier, a bulk copy, and the reads of a multiplication.
    """
    site = result.sites.get(int(record["pc"]))
    if site is None or site.op == "wgmma" or "bulk" in site.parts:
        return None
    in_global = record["space"] == 0
    space = "global" if in_global else "shared"
    site = site.source if in_global and site.source else site.at(space)
    byte = record["address"].astype(np.int64)
    width = site.width
    lanes = np.flatnonzero(record["mask"] >> np.arange(WARP, dtype=np.uint32) & 1)
    if in_global:
        memory, byte = buffer_of(kernel, byte, lanes[0])
    else:
        memory = plain_name(site.array.name) if site.array else "shared"
        for group in site.groups:
            group_byte = byte + (group.offset - site.offset)
            if not (group_byte[lanes] % group.width).any():
                width = group.width if group.leads else 0
                byte = group_byte
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
    """Return the buffer of a lane's global address, and the bytes from its start.

    The buffer is "memory" if it isn't known.
    """
    buffers = buffer_names(kernel)
    number, byte = divmod(addresses - FIRST_ADDRESS, SPACING)
    if 0 <= number[lane] < len(buffers):
        return buffers[number[lane]], byte
    return "memory", byte


def buffer_names(kernel: Kernel) -> list[str]:
    """Return the names of a kernel's buffers in the order of their addresses."""
    return [name for name in kernel.arguments if name in GLOBAL]
