"""A few blocks of launches with M, N and K at their largest.

The emulator can't run such a launch as a whole, and sweeps and corners keep one size small. So a
kernel could be wrong, or less precise, in elements that have a large row, a large column and many
terms. Blocks at the corners of C show it, if they need no others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

import numpy as np

from worklog.emulator.reports import BudgetExceeded, TooLarge
from worklog.gate.exact import Which
from worklog.gate.guarded_buffer import Buffers, LaunchResult, Memory
from worklog.gate.limits import corner_blocks, flows
from worklog.gate.precision import (
    RANK,
    beyond_rounding,
    classify,
    full_mantissa,
    rms_and_largest,
)
from worklog.kernel import Loaded
from worklog.kernel.emulated import EmulatedDevice, EmulatedKernel
from worklog.problem import Float32, Shape, random_inputs, sampled_reference
from worklog.runs import Stage, failed, passed

FAR_BLOCKS = "far blocks"
LENGTHS = 3  # drawn for K, beside the largest one


def check_far_blocks(
    subject: Loaded, memory: Memory, largest: tuple[int, int, int], *, quick: bool
) -> Stage | None:
    """Launch the blocks at the corners of C, with M and N at their largest.

    None if its blocks need others. Raises LaunchFailed.

    K is the largest one first, and then drawn. Elements must be in the class that was claimed, or
    in that of the first block at the largest K: its precision was judged before.

    quick: whether to launch the largest K alone
    """
    if not _blocks_are_independent(subject):
        return None
    shape = subject.domain.padded(Shape(*largest))
    lengths = [shape.k]
    if not (quick or subject.domain.square):
        lengths += memory.rng.integers(1, shape.k, LENGTHS, endpoint=True).tolist()
    allowed = RANK[subject.claimed]
    count = 0
    for k in lengths:
        launched = subject.domain.padded(replace(shape, k=k))
        alpha = full_mantissa(memory.rng, subject.types) if subject.domain.alpha else 1.0
        a, b = random_inputs(launched, memory.rng, types=subject.types)
        try:
            result = _corner_blocks(subject, memory, launched, alpha, a, b)
        except BudgetExceeded:  # no loop without an end: the corners were launched
            too_many = "a warp takes more instructions than --budget allows"
            return _not_launched(launched, too_many)
        except TooLarge as error:
            return _not_launched(launched, str(error))
        launch = f"in the blocks at the corners of C at {launched}"
        if result.trespass:
            return failed(FAR_BLOCKS, f"{launch}: {result.trespass}")
        for place, rms, worst in _by_corner(result, alpha, a, b):
            reached = classify(rms, worst, launched.k)
            if not count:
                allowed = max(allowed, RANK[reached])
            count += 1
            if reached == "wrong" or RANK[reached] > allowed:
                detail = f"class {reached} in {place}: rms {rms:.3g} u·D, largest {worst:.3g}"
                return failed(FAR_BLOCKS, f"{launch}, {detail}")
    return passed(FAR_BLOCKS, f"{len(lengths)} launches of the blocks at the corners of C, {shape}")


def _blocks_are_independent(subject: Loaded) -> bool:
    """Return whether each block can run alone, in one launch with a grid of two dimensions."""
    if subject.kernel.follows_shape or len(subject.passes) != 1:
        return False
    if subject.variables(subject.domain.padded(Shape.of(1))):
        return False
    [(kernel, loaded)] = subject.passes
    [flow] = flows(subject)
    assert isinstance(loaded, EmulatedKernel)
    shares = any(
        instruction.opcode.memory == "atom" and "shared" not in instruction.parts
        for instruction in loaded.kernel.instructions
    )
    is_flat = len(kernel.blocks_at(1, 1, 1)) < 3 or kernel.blocks_at(*(2**12,) * 3)[2] == 1
    is_clustered = math.prod(loaded.kernel.cluster or (1,)) > 1
    return is_flat and not (flow.may_wait or flow.may_meet or shares or is_clustered)


def _corner_blocks(
    subject: Loaded, memory: Memory, shape: Shape, alpha: float, a: Float32, b: Float32
) -> LaunchResult:
    """Launch four blocks of a grid. Raises LaunchFailed."""
    [(_, _, grid, _)] = subject.launches_at(shape)[0]
    with _only_blocks(corner_blocks(grid), memory):
        return Buffers(memory, a, b).run(subject, alpha)


@contextmanager
def _only_blocks(blocks: list[int], memory: Memory) -> Iterator[None]:
    """Run only these blocks of a launch, whose shape isn't one of those that were launched."""
    device = memory.device
    assert isinstance(device, EmulatedDevice)
    shapes = set(memory.shapes)
    device.only_blocks = blocks
    try:
        yield
    finally:
        device.only_blocks = None
        memory.shapes = shapes


def _not_launched(shape: Shape, reason: str) -> Stage:
    """Return the stage of a launch that takes too long or too much memory."""
    detail = f"not launched at {shape}: {reason}"
    return passed(FAR_BLOCKS, detail, note=detail)


def _by_corner(
    result: LaunchResult, alpha: float, a: Float32, b: Float32
) -> Iterator[tuple[str, float, float]]:
    """Yield where elements were written, and their rms and largest error in u·D.

    The first rows and columns come first.
    """
    is_written: Which = result.c != result.sentinel
    m, n = is_written.shape
    is_lower = np.arange(m)[:, None] >= m // 2
    is_right = np.arange(n)[None, :] >= n // 2
    for lower, right in product((False, True), repeat=2):
        corner = is_written & (is_lower == lower) & (is_right == right)
        rows = np.flatnonzero(corner.any(axis=1))
        columns = np.flatnonzero(corner.any(axis=0))
        if not len(rows):
            continue
        chosen = np.ix_(rows, columns)
        product_ab, gauge = sampled_reference(a, np.ascontiguousarray(b[:, columns]), rows)
        product_ab *= alpha
        error = beyond_rounding(result.c[chosen] - product_ab, product_ab, result.format)
        is_chosen = corner[chosen]
        rms, worst = rms_and_largest(error[is_chosen], abs(alpha) * gauge[is_chosen])
        yield f"rows {rows[0]} to {rows[-1]}, columns {columns[0]} to {columns[-1]}", rms, worst
