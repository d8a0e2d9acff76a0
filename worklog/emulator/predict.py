"""Traffic of a launch of any size from a few of its blocks and two short loops over K, without data or its memory.

The first, an inner and the last block along each axis stand for all, and a block's counts grow linearly with K. The
tests check both against full runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from worklog.emulator.counts import Counts, combined
from worklog.emulator.findings import BadLaunch, NotPredictable
from worklog.emulator.flow import Flow
from worklog.emulator.launch import Result, launch
from worklog.emulator.memory import Pointer
from worklog.emulator.ptx import Kernel
from worklog.kernel import Kernel as Launched
from worklog.problem import Shape

# Floats of K: a multiple of every rung's BK (twice, for two buffers), of a loop's unrolling, and of 256 bytes.
STRETCH = 64
SHORTEST = 2 * STRETCH


def predict(
    kernel: Kernel, rung: Launched, shape: Shape, beta: float = 0.0, blocks: Mapping[int, int] | None = None
) -> Result:
    """Counts of a rung's kernel (or one with its signature, tile and block) at a shape, in about a second at any size.
    alpha is 1.

    blocks: numbers of the blocks to run, each with the number of blocks that it stands for (default: those that stand
    for all). Raises NotPredictable if addresses or branches depend on loaded data, BadSetting outside the domain.
    """
    rung.check(shape)
    line = Flow(kernel).data_dependent
    if line is not None:
        raise NotPredictable(
            f"{rung.file}:{line}: an address or a branch depends on loaded data, so the counts cannot be predicted: "
            "launch it in full"
        )
    grid = rung.blocks(shape)
    weights = blocks or {
        (z * grid[1] + y) * grid[0] + x: count_x * count_y * count_z
        for (x, count_x), (y, count_y), (z, count_z) in product(*map(_representatives, (*grid, 1)[:3]))
    }
    # A shorter K with the same remainder within a stretch, and the number of stretches left out. A kernel for squares
    # reads K from M or N.
    turns = 0 if rung.domain.square else max(0, (shape.k - SHORTEST) // STRETCH)
    short = replace(shape, k=shape.k - turns * STRETCH)
    lines = _of_blocks(kernel, rung, short, grid, weights, beta)
    if turns:
        longer = _of_blocks(kernel, rung, replace(short, k=short.k + STRETCH), grid, weights, beta)
        lines = combined(turns, longer, 1 - turns, lines)
    label = f"emulated · {kernel.arch} PTX · predicted from {len(weights)} blocks"
    return Result(kernel.name, label, len(weights), (), lines)


def count_all(kernel: Kernel, rung: Launched, shape: Shape) -> Mapping[int, Counts]:
    """Counts by source line of every block and all of K, without values; alpha = 1, beta = 0. For small shapes."""
    grid = rung.blocks(shape)
    return _of_blocks(kernel, rung, shape, grid, dict.fromkeys(range(math.prod(grid)), 1), 0.0)


def _representatives(blocks: int) -> Sequence[tuple[int, int]]:
    """Numbers of the blocks to run along one axis, each with the number of blocks that it stands for."""
    if blocks <= 2:
        return [(number, 1) for number in range(blocks)]
    return [(0, 1), (1, blocks - 2), (blocks - 1, 1)]


def _of_blocks(
    kernel: Kernel, rung: Launched, shape: Shape, grid: tuple[int, ...], weights: Mapping[int, int], beta: float
) -> Mapping[int, Counts]:
    m, n, k = shape.m, shape.n, shape.k
    a, b, c = (Pointer(None, 4 * size) for size in (m * k, k * n, m * n))
    workspace = Pointer(None, rung.workspace_bytes(shape))
    arguments = rung.bind(shape, 1.0, a, b, beta, c, workspace)
    out: Mapping[int, Counts] = {}
    # Blocks of equal weight run together.
    for weight in sorted(set(weights.values())):
        blocks = [number for number, own in weights.items() if own == weight]
        how: dict[str, Any] = {"shared_bytes": rung.program.shared, "races": False, "values": False}
        result = launch(kernel, grid, rung.threads, arguments, only_blocks=blocks, **how)
        if result.findings:
            raise BadLaunch(f"{kernel.name} at {shape}: {result.findings[0].at(rung.file)}")
        out = combined(1, out, weight, result.lines)
    return out
