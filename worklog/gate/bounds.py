"""Check the bounds of a kernel's arrays, in local and shared memory, at a few shapes.

The optimiser removes an access past the end of a local array, so the emulator never sees it. clang
compiles the kernel a second time, with a check before each access to an array of a known size: of
its index, and of its width if it is an access to a scalar or to a vector type of CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from worklog.emulator.ptx import UnsupportedInstruction
from worklog.errors import CompileFailed, LaunchFailed, OutOfMemory
from worklog.gate.checker import check_cases
from worklog.gate.edges import edge_shapes
from worklog.kernel import Kernel
from worklog.kernel.clang import ClangMissing, Outside
from worklog.kernel.emulated import EmulatedDevice
from worklog.kernel.solution import Solution
from worklog.problem import Domain, Problem, Shape, Words, random_inputs
from worklog.runs import Verdict, failed

ARRAY_BOUNDS = "array bounds"
EVERY = 3  # edge shapes are left out but for the second of so many
CASES = 2  # of a problem
STEPS = 5  # of K: more than a pipeline has stages, mostly
MOST_TERMS = 2**21  # M N K of a shape: some tenths of a second


@dataclass(frozen=True)
class ArrayBounds:
    """The result of a check of the bounds of arrays."""

    outside: Outside | None = None  # the first access out of bounds
    unchecked: str = ""  # why arrays weren't checked

    def added_to(self, verdict: Verdict) -> Verdict:
        """Return the verdict, with a failed stage if an access is out of bounds.

        It comes before another failed stage, whose cause it may be.
        """
        if self.outside is None:
            return verdict
        stages = [stage for stage in verdict.stages if stage.passed]
        stages.append(failed(ARRAY_BOUNDS, str(self.outside)))
        stages += [stage for stage in verdict.stages if not stage.passed]
        return replace(verdict, stages=tuple(stages))


def check_array_bounds(kernel: Kernel, shape: Shape, budget: int) -> ArrayBounds:
    """Launch a kernel at a few small shapes with a check of each access to an array.

    shape: the benchmark's
    budget: as for worklog.emulator.launch
    """

    def launch(device: EmulatedDevice) -> None:
        subject = kernel.load(device)
        for number, launch_shape in enumerate(_shapes(kernel.domain, shape.k)):
            beta = float(kernel.domain.beta and number % 2 == 1)
            a, b = random_inputs(launch_shape, np.random.default_rng(0))
            c = np.ones((launch_shape.m, launch_shape.n), np.float32)
            on_device_a, on_device_b, on_device_c = map(
                device.upload, (a, b, c), kernel.types.formats
            )
            subject.enqueue(launch_shape, 1.0, on_device_a, on_device_b, beta, on_device_c)
            if device.outside is not None:
                return

    return _checked(launch, budget)


def check_bounds_of_solution(
    solution: Solution, problem: Problem, cases: Sequence[Words], seed: int, budget: int
) -> ArrayBounds:
    """Check a solution's first cases with a check of each access to an array.

    solution: of kernels
    seed: of the sentinels
    budget: as for worklog.emulator.launch
    """

    def launch(device: EmulatedDevice) -> None:
        check_cases(solution.load(device), problem, cases[:CASES], device, seed=seed)

    return _checked(launch, budget)


def _checked(launch: Callable[[EmulatedDevice], None], budget: int) -> ArrayBounds:
    """Return the result of launches on a device that checks the bounds of arrays.

    A launch that fails ends the check: the other stages report it. Findings other than an access
    out of the bounds of an array are left to them, too.
    """
    device = EmulatedDevice(races=False, budget=budget, has_bounds=True)
    unchecked = ""
    try:
        launch(device)
    except ClangMissing as error:
        unchecked = str(error)
    except CompileFailed as error:
        unchecked = f"clang says {_first_line(error)}"
    except (UnsupportedInstruction, LaunchFailed, OutOfMemory) as error:
        unchecked = _first_line(error)
    if device.outside is not None:
        return ArrayBounds(device.outside)
    if not unchecked and device.unchecked_widths:
        unchecked = f"widths of accesses, clang says {device.unchecked_widths}"
    return ArrayBounds(unchecked=unchecked)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _shapes(domain: Domain, k: int) -> list[Shape]:
    """Return small shapes: some edge shapes, and the smallest with a long K.

    k: the benchmark's K, for arrays that are indexed by steps of K
    """
    shapes = edge_shapes(domain)[1::EVERY]
    long = [STEPS * domain.k, k] if domain.k > 1 else [k]
    for terms in long:
        longest = domain.padded(Shape(1, 1, terms))
        if longest.m * longest.n * longest.k <= MOST_TERMS:
            shapes.append(longest)
    return [*dict.fromkeys(shapes)]
