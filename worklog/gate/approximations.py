"""The stage for instructions whose results PTX states only up to an error.

The emulator gives the nearest float32, and a GPU may give one of its neighbours. So each kernel
with such instructions is launched with the neighbours above and below. A result that is off by
rounding passes; a tile's row, computed by a reciprocal and truncated, is another row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from worklog.emulator.flow import is_approximate
from worklog.errors import LaunchFailed
from worklog.gate.edges import edge_shapes
from worklog.gate.guarded_buffer import Buffers, Memory
from worklog.gate.precision import PrecisionReference
from worklog.kernel import Loaded
from worklog.kernel.emulated import EmulatedDevice
from worklog.problem import random_inputs
from worklog.runs import Stage, failed, passed

APPROXIMATIONS = "approximations one ulp off"
PLACES = {1: "above", -1: "below"}  # by ulps


def check_approximations(
    subject: Loaded, memory: Memory, lines: Sequence[tuple[int, str]]
) -> Stage:
    """Launch with all approximations one ulp above, and below, the nearest float32.

    The result must have the claimed precision class.

    lines: those of approximate_lines
    """
    device = memory.device
    assert isinstance(device, EmulatedDevice)
    shape = edge_shapes(subject.domain)[-1]
    a, b = random_inputs(shape, memory.rng, types=subject.types)
    reference = PrecisionReference(a, b, memory.rng, subject.types)
    instructions = ", ".join(f"{op} of line {line}" for line, op in lines)
    for ulps, place in PLACES.items():
        device.ulps = ulps
        try:
            result = Buffers(memory, a, b).run(subject)
            _, stage = reference.judge(APPROXIMATIONS, result, subject.claimed)
        except LaunchFailed as error:
            stage = failed(APPROXIMATIONS, str(error))
        finally:
            device.ulps = 0
        if not stage.passed:
            launch = f"at {shape} with {instructions} one ulp {place} the nearest float32"
            detail = f"{launch}, which PTX allows: {stage.detail}"
            return failed(APPROXIMATIONS, detail, stage.measured or 1)
    return passed(APPROXIMATIONS, f"right at {shape} with {instructions}, above and below")


def approximate_lines(subject: Loaded, device: Any) -> list[tuple[int, str]]:
    """Return the lines of approximate instructions that ran, and their names.

    device: a worklog.kernel.emulated.EmulatedDevice
    """
    lines = set[tuple[int, str]]()
    for (program, _), coverage in device.coverage.items():
        if program not in subject.programs:
            continue
        for instruction in coverage.kernel.instructions:
            if is_approximate(instruction) and coverage.ran[instruction.pc]:
                lines.add((instruction.line, instruction.op))
    return sorted(lines)
