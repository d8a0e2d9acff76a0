"""Traffic of a launch of any size from a few of its blocks and two short loops over K, without data or its memory.

The first, an inner and the last block along each axis stand for all, and a block's counts grow linearly with K. The
tests check both against full runs. Blocks of a grid that does not follow the shape share its work, in parts that may
differ: they are all run.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

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
WHOLE = Shape.of(512)  # the most work of which all blocks are run


def predict(
    kernel: Kernel, rung: Launched, shape: Shape, beta: float = 0.0, blocks: Mapping[int, int] | None = None
) -> Result:
    """Counts of a rung's kernel (or one with its signature, tile and block) at a shape, in about a second at any size.
    alpha is 1.

    blocks: numbers of the blocks to run, each with the number of blocks that it stands for (default: those that stand
    for all). Raises NotPredictable if addresses or branches depend on loaded data, or if the grid does not follow the
    shape, which is larger than WHOLE; BadSetting outside the domain.
    """
    rung.check(shape)
    if (line := Flow(kernel).data_dependent) is not None:
        why = "an address or a branch depends on loaded data, so the counts cannot be predicted: launch it in full"
        raise NotPredictable(f"{rung.file}:{line}: {why}")
    grid = rung.blocks(shape)
    # A shorter K with the same remainder within a stretch, and the number of stretches left out. A kernel for squares
    # reads K from M or N.
    turns = 0 if rung.domain.square else max(0, (shape.k - SHORTEST) // STRETCH)
    axes = [[(0, 1), (1, n - 2), (n - 1, 1)] if n > 2 else [(k, 1) for k in range(n)] for n in (*grid, 1)[:3]]
    weights = blocks or {
        (z * grid[1] + y) * grid[0] + x: count_x * count_y * count_z
        for (x, count_x), (y, count_y), (z, count_z) in product(*axes)
    }
    if math.prod(grid) > 1 and rung.blocks(replace(shape, m=2 * shape.m, n=2 * shape.n)) == grid:
        if shape.flops > WHOLE.flops:
            why = (
                f"its grid does not follow the shape, and shares differ: take a size of up to {WHOLE}, which runs whole"
            )
            raise NotPredictable(
                f"{rung.file}: the counts of {rung.entry} cannot be predicted from a few blocks: {why}"
            )
        turns, weights = 0, blocks or dict.fromkeys(range(math.prod(grid)), 1)
    short = replace(shape, k=shape.k - turns * STRETCH)
    lines = _of_blocks(kernel, rung, short, weights, beta)
    if turns:
        longer = _of_blocks(kernel, rung, replace(short, k=short.k + STRETCH), weights, beta)
        lines = combined(turns, longer, 1 - turns, lines)
    label = f"emulated · {kernel.arch} PTX · predicted from {len(weights)} blocks"
    return Result(kernel.name, label, len(weights), (), lines)


def count_all(kernel: Kernel, rung: Launched, shape: Shape) -> Mapping[int, Counts]:
    """Counts by source line of every block and all of K, without values; alpha = 1, beta = 0. For small shapes."""
    return _of_blocks(kernel, rung, shape, dict.fromkeys(range(math.prod(rung.blocks(shape))), 1), 0.0)


def _of_blocks(
    kernel: Kernel, rung: Launched, shape: Shape, weights: Mapping[int, int], beta: float
) -> Mapping[int, Counts]:
    a, b, c = (Pointer(None, 4 * x * y) for x, y in ((shape.m, shape.k), (shape.k, shape.n), (shape.m, shape.n)))
    arguments = rung.bind(shape, 1.0, a, b, beta, c, Pointer(None, rung.workspace_bytes(shape)))
    together = defaultdict[int, list[int]](list)  # by weight
    for number, weight in weights.items():
        together[weight].append(number)
    out: Mapping[int, Counts] = {}
    for weight, blocks in sorted(together.items()):
        result = launch(
            kernel,
            rung.blocks(shape),
            rung.threads,
            arguments,
            shared_bytes=rung.program.shared,
            races=False,
            values=False,
            only_blocks=blocks,
        )
        if result.findings:
            raise BadLaunch(f"{kernel.name} at {shape}: {result.findings[0].at(rung.file)}")
        out = combined(1, out, weight, result.lines)
    return out
