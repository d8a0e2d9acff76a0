"""The buffers that timed launches read and write.

They alternate, and move through a pool of device memory. The pool is allocated once and is much
larger than the buffers, so placements differ in their offsets and in the physical pages below them.
In each placement, short kernels are loaded again: their times depend on the code's place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from worklog.gate import (
    GUARD,
    OUTSIDE,
    OUTSIDE_WORKSPACE,
    Guarded,
    LaunchProbe,
    SgemmChecker,
    TimedOperands,
    beyond_product,
    timed_operands,
)
from worklog.gate.guarded_buffer import in_format
from worklog.harness import Harness, TimedLaunch, input_sets
from worklog.kernel import Buffer, Loaded, Runnable
from worklog.problem import Shape, random_inputs
from worklog.problem.formats import SINGLE, WORD_BYTES, Format
from worklog.runs import Stage

if TYPE_CHECKING:
    from worklog.gpu.cuda import CudaDevice
    from worklog.runner.session import Session

ALIGNED = 128  # elements: 512 bytes, the alignment of a caching allocator
# A pool's size is the larger of 4 GiB and three times the size of its buffers. It is smaller if the
# GPU's memory is short, down to the least factor.
POOL_BYTES = 2**32
TIMES_BUFFERS = 3.0
LEAST_TIMES_BUFFERS = 1.25
LEFT_FREE_BYTES = 2**28
# With more work, the time to fetch a kernel's code doesn't show. The effect of the code's place was
# recorded up to this work (turns/h100).
SHORT_FLOPS = 2 * 1024**3
UNWRITTEN = -3.25e30  # in C before a placement's launches, and around it
Buffers = tuple[Any, Any, Any]
Sets = list[tuple[Any, ...]]  # A, B and a C for each kernel


class Pool:
    """Device memory of `elements` float32. Raises OutOfMemory."""

    def __init__(self, device: CudaDevice, elements: int, seed: int | None = None) -> None:
        self.device = device
        self.elements = elements - elements % ALIGNED
        self.allocation: Any = device.allocate(self.elements)
        self._rng = np.random.default_rng(seed)

    @classmethod
    def to_hold(cls, device: CudaDevice, elements: int) -> Pool | None:
        """Return a pool for buffers of `elements` float32 in total.

        None if the GPU's memory is too short.
        """
        free = (device.free_bytes() - LEFT_FREE_BYTES) // 4
        size = min(free, max(POOL_BYTES // 4, round(TIMES_BUFFERS * elements)))
        return cls(device, size) if size >= LEAST_TIMES_BUFFERS * elements else None

    def place(self, sizes: Sequence[int]) -> list[Buffer]:
        """Return buffers at random multiples of 512 bytes, without overlap.

        Their order is random.

        sizes: their numbers of elements
        """
        units = np.array([-(-size // ALIGNED) for size in sizes])
        order = self._rng.permutation(len(sizes))
        gaps = np.sort(
            self._rng.integers(0, self.elements // ALIGNED - int(units.sum()) + 1, len(sizes))
        )
        starts = np.empty(len(sizes), np.int64)
        starts[order] = ALIGNED * (gaps + np.cumsum(units[order]) - units[order])
        return [
            self.device.view(self.allocation, int(start), size)
            for start, size in zip(starts, sizes, strict=True)
        ]


def word_count(nbytes: int) -> int:
    """Return the words of 32 bits that so many bytes take."""
    return -(-nbytes // WORD_BYTES)


def elements(
    shape: Shape, sets: int = 1, kernels: Sequence[Runnable] = (), outputs: int | None = None
) -> int:
    """Return the elements of a loop's buffers and workspaces in a pool.

    sets: of buffers
    outputs: matrices C in a set (default: one for each kernel, and at least two)
    """
    types = kernels[0].types if kernels else SINGLE
    a_bytes, b_bytes, c_bytes = types.nbytes(shape.elements)
    set_elements = word_count(a_bytes) + word_count(b_bytes) + 2 * ALIGNED
    set_elements += (outputs or max(2, len(kernels))) * (word_count(c_bytes) + 2 * GUARD + ALIGNED)
    workspaces = [kernel.workspace_elements(shape) for kernel in dict.fromkeys(kernels)]
    workspace_elements = sum(size + 2 * GUARD + ALIGNED for size in workspaces if size)
    return sets * set_elements + workspace_elements


class OutOfBoundsWrite(Exception):
    """A launch wrote around a C or a workspace; the message states which."""


class RotatingLaunch:
    """Launches of a kernel, each on the next A, B and C."""

    probe: LaunchProbe  # checks each launch, on new inputs
    # Buffers for a launch before the timed inputs are written. It brings the kernel's code back
    # into the SMs' instruction caches, from which the gate's kernels evict the code.
    elsewhere: Sequence[Any] | None = None

    def __init__(self, kernel: Runnable, shape: Shape, alpha: float) -> None:
        self.kernel = kernel
        self.shape = shape
        self.alpha = alpha
        self.use([])

    def use(self, buffers: list[Buffers]) -> None:
        """Launch on these buffers from now on, starting with the first."""
        self.buffers = buffers
        self.last = -1  # the number of the buffers of the last launch
        self.launches = [self.launch_on(*abc) for abc in buffers]

    def launch_on(self, a: Any, b: Any, c: Any) -> Callable[[], None]:
        """Return a launch on buffers.

        It doesn't refer to self: a cycle would keep the pool's memory until garbage is collected.
        """
        return partial(self.kernel.enqueue, self.shape, self.alpha, a, b, 0.0, c)

    def __call__(self) -> None:
        """Enqueue a launch on the next buffers."""
        self.last = (self.last + 1) % len(self.launches)
        self.launches[self.last]()

    def prepare(self) -> None:
        """Write new inputs for a launch that is checked."""
        if self.elsewhere is not None:
            self.launch_on(*self.elsewhere)()
        self.probe.prepare(*self.buffers[(self.last + 1) % len(self.buffers)])
        if self.kernel.workspace is not None:
            self.probe.device.fill(self.kernel.workspace, np.nan)

    def observe(self) -> None:
        """Read the output of the last launch."""
        self.probe.observe(self.buffers[self.last][2])

    def check(self) -> None:
        """Check the output that was read."""
        self.probe.check(*self.buffers[self.last][:2])


class Loop:
    """A kernel and its baselines on the checker's inputs, each with another C.

    A baseline computes -A B, so that its output can't be mistaken for the kernel's. Code that keeps
    variables isn't loaded again, which would reset the variables: the loop must also reach the
    launch at which a kernel goes wrong.

    A kernel that does more than a product gets operands for all launches, and its baselines without
    operands compute the product alone.

    in_step: whether the kernels alternate launch by launch. Then they swap their C in each turn, or
        share out a round of the sets
    sets: of buffers to rotate over, as many as evict each other from L2
    checked: whether outputs are checked
    probed: whether each launch gets new inputs and its output is checked, also a baseline's, so
        that all launches find the GPU in the same state
    warm: whether each kernel is launched before it is timed
    pool: memory to move the buffers through (default: the checker's buffers are used)
    outputs: matrices C in a set, which the kernels share (default: one for each kernel)

    launches: with their names and the work before and after them
    """

    def __init__(
        self,
        checker: SgemmChecker,
        kernels: Sequence[Runnable],
        names: Sequence[str],
        *,
        in_step: bool,
        sets: int = 1,
        checked: bool = True,
        probed: bool = False,
        inputs: str = "random",
        warm: bool = False,
        pool: Pool | None = None,
        outputs: int | None = None,
    ) -> None:
        self.checker = checker
        self.outputs = outputs or len(kernels)
        self.in_step = in_step
        self.sets = sets
        self.pool = pool
        self.checked = checked
        self.probed = probed
        self.changes_inputs = probed or inputs != "random"
        shape = checker.shape
        distinct = dict.fromkeys(kernels)
        self.operands: dict[Runnable, TimedOperands] = {}
        for kernel in distinct:
            if isinstance(kernel, Loaded) and beyond_product(kernel):
                rng = np.random.default_rng()
                self.operands[kernel] = timed_operands(kernel, checker.device, shape, rng)
                kernel.use_operands(self.operands[kernel].arguments)
        buffers = checker.buffers
        if inputs != "random":
            easy = random_inputs(shape, np.random.default_rng(0), inputs, checker.types)
            for buffer, host in zip(buffers.abc[:2], easy, strict=True):
                checker.device.overwrite(buffer, host)
        buffers.poison()
        self.bare = [
            RotatingLaunch(kernel, shape, -1.0 if number else 1.0)
            for number, kernel in enumerate(kernels)
        ]
        # By the message about a launch that writes around them.
        self.guarded: dict[str, list[Guarded]] = {}
        self.owners = [kernel for kernel in distinct if kernel.workspace_elements(shape)]
        is_short = warm and shape.flops <= SHORT_FLOPS
        for owner in () if pool else reversed(self.owners):
            buffers.memory.lend(owner, shape)
        self.relocated = list[Runnable]()
        self.move()
        if is_short and pool:
            self.relocated = [kernel for kernel in distinct if kernel.is_relocatable(shape)]
        self.launches = []
        for name, launch in zip(names, self.bare, strict=True):
            options: dict[str, Any] = {
                "sets": sets,
                "set_bytes": sum(checker.types.nbytes(shape.elements)) if sets > 1 else 0,
            }
            if probed:
                launch.probe = self._probe_of(launch)
                abc = checker.buffers.abc
                launch.elsewhere = self._copies(abc, checker.types.formats) if is_short else None
                options |= {
                    "before": launch.prepare,
                    "behind": launch.observe,
                    "after": launch.check,
                }
            self.launches.append(
                TimedLaunch(launch, name, partial(launch.kernel.kernels, shape), **options)
            )

    def _probe_of(self, launch: RotatingLaunch) -> LaunchProbe:
        """Return the probe for the launches of a kernel."""
        operands = self.operands.get(launch.kernel)
        if operands is None:
            return self.checker.probe(launch.kernel.claimed, alpha=launch.alpha)
        return self.checker.element_probe(launch.kernel, operands, alpha=launch.alpha)

    def move(self) -> None:
        """Move the buffers to a new placement in the pool.

        The code of short kernels moves to another place. Without a pool, the checker's buffers are
        used. Subjects rehearse on each set while nothing is blocked. Kernels that were loaded again
        are launched once on the checker's buffers.
        """
        first = self.bare[0]
        checker_buffers = self.checker.buffers
        for kernel in self.relocated:
            kernel.relocate()
        if self.pool and not self.probed and first.last >= 0:
            # Keep the output: the baseline alone may be launched from here on.
            self.pool.device.copy(checker_buffers.abc[2], first.buffers[first.last][2])
        sets = self._place_sets(self.pool) if self.pool else self._checker_sets()
        for number, launch in enumerate(self.bare):
            launch.use(self._buffers(sets, number))
        for launch in reversed(self.bare):
            launch.kernel.rehearse(launch.launches)
        for kernel in self.relocated:
            a, b, _ = checker_buffers.abc
            kernel.enqueue(self.checker.shape, 1.0, a, b, 0.0, checker_buffers.spare)

    def _buffers(self, sets: Sets, number: int) -> list[Buffers]:
        """Return the buffers of a kernel's launches, in order.

        number: of the kernel in the loop
        """
        count = self.outputs
        if self.in_step and len(sets) == 1:
            a, b, *outputs = sets[0]
            return [(a, b, outputs[(number + turn) % count]) for turn in range(count)]
        buffers = [(a, b, outputs[number % count]) for a, b, *outputs in sets]
        if not self.in_step:
            return buffers
        start = number * len(sets) // len(self.bare)
        return buffers[start:] + buffers[:start]

    def _place_sets(self, pool: Pool) -> Sets:
        """Return sets at new places in the pool, each C and each workspace between guard bands.

        The sets get the checker's inputs if launches don't get new inputs. The first set was copied
        longest ago, so L2 no longer holds it if there are enough sets.
        """
        self.require_intact()
        device = pool.device
        shape = self.checker.shape
        types = self.checker.types
        a_bytes, b_bytes, c_bytes = types.nbytes(shape.elements)
        sizes = [word_count(a_bytes), word_count(b_bytes)]
        sizes += [word_count(c_bytes) + 2 * GUARD] * self.outputs
        workspace_sizes = [owner.workspace_elements(shape) + 2 * GUARD for owner in self.owners]
        pool_buffers = iter(pool.place([*sizes * self.sets, *workspace_sizes]))
        pool_sets = [[next(pool_buffers) for _ in sizes] for _ in range(self.sets)]
        outputs = [
            [
                Guarded(device, output, UNWRITTEN, nbytes=c_bytes, format_=types.c)
                for output in buffers[2:]
            ]
            for buffers in pool_sets
        ]
        workspaces = [Guarded(device, buffer, UNWRITTEN) for buffer in pool_buffers]
        self.guarded = {OUTSIDE: [*chain(*outputs)], OUTSIDE_WORKSPACE: workspaces}
        for owner, workspace in zip(self.owners, workspaces, strict=True):
            owner.use_workspace(workspace.inner)
        for guarded in (*self.guarded[OUTSIDE], *workspaces):
            guarded.fill(UNWRITTEN)
        inputs = self.checker.buffers.abc[:2]
        sets = list[tuple[Any, ...]]()
        for (a, b, *_), set_outputs in zip(pool_sets, outputs, strict=True):
            of_set = [
                in_format(device, buffer, format_, matrix.size)
                for buffer, format_, matrix in zip((a, b), types.formats[:2], inputs, strict=True)
            ]
            if not self.probed:
                for buffer, matrix in zip(of_set, inputs, strict=True):
                    device.copy(buffer, matrix)
            sets.append((*of_set, *(output.inner for output in set_outputs)))
        return sets

    def _checker_sets(self) -> Sets:
        """Return the checker's buffers with a C for each further output, and copies of them all."""
        buffers = self.checker.buffers
        types = self.checker.types
        extra_count = self.outputs - 2
        further_outputs = self._copies([buffers.spare] * extra_count, [types.c] * extra_count)
        first = [*buffers.abc, buffers.spare, *further_outputs]
        formats = [*types.formats, types.c, *[types.c] * extra_count]
        copies = [tuple(self._copies(first, formats)) for _ in range(self.sets - 1)]
        return [tuple(first), *copies]

    def _copies(self, buffers: Sequence[Any], formats: Sequence[Format]) -> list[Any]:
        device = self.checker.device
        return [
            device.upload(device.download(buffer), format_)
            for buffer, format_ in zip(buffers, formats, strict=True)
        ]

    def require_intact(self) -> None:
        """Raise OutOfBoundsWrite if a launch wrote around a C or a workspace."""
        if not self.checked:
            return
        for message, guarded in self.guarded.items():
            if not all(buffer.intact() for buffer in guarded):
                raise OutOfBoundsWrite(message)

    def stage(self) -> Stage:
        """Return the gate's stage on the timed launches. Raises OutOfBoundsWrite."""
        if not self.probed:
            first = self.bare[0]
            has_moved = self.pool is not None and first.last < 0
            written = self.checker.buffers.abc[2] if has_moved else first.buffers[first.last][2]
            operands = self.operands.get(first.kernel)
            if operands is None:
                stage = self.checker.check_timed_output(first.kernel, written)
            else:
                stage = self.checker.check_timed_elements(first.kernel, operands, written)
        else:
            stage, *baseline_stages = (
                self.checker.check_timed_launches(launch.probe) for launch in self.bare
            )
            for baseline, baseline_stage in zip(self.bare[1:], baseline_stages, strict=True):
                if not baseline_stage.passed:
                    detail = f"of the baseline {baseline.kernel.name}: {baseline_stage.detail}"
                    stage = replace(baseline_stage, detail=detail)
        if stage.passed:
            self.require_intact()
        return stage

    def options(self, offset_us: float) -> dict[str, Any]:
        """Return the options of time_in_turn for this loop.

        offset_us: the event overhead
        """
        return {
            "size": (self.checker.shape.flops / 2) ** (1 / 3),
            "move": self.move if self.pool else None,
            "offset_us": offset_us,
        }

    def close(self) -> None:
        """Release the pool and the operands, and restore the inputs.

        A workspace in the pool would keep all of its memory allocated.
        """
        for owner in self.owners if self.pool else ():
            owner.use_workspace(None)
        for kernel in self.relocated:
            kernel.settle()
        for kernel in self.operands:
            assert isinstance(kernel, Loaded)
            kernel.use_operands({})
        if self.changes_inputs:
            self.checker.buffers.restore()


def loop_on(
    session: Session,
    shape: Shape,
    harness: Harness,
    *,
    kernels: Sequence[Runnable],
    names: Sequence[str],
    outputs: int | None = None,
) -> Loop:
    """Return a loop of kernels under a harness.

    If L2 is flushed before each launch, each launch gets new inputs and is checked. Otherwise new
    inputs would warm the L2 that the launch should find cold, and only the output of the last
    launch is checked.

    kernels: the subject and its baselines
    outputs: as for Loop
    """
    sets = 1
    if harness.l2 == "rotate":
        set_bytes = sum(session.types.nbytes(shape.elements))
        sets = input_sets(set_bytes, session.timeline.l2_bytes)
    checker = session.checker(shape)
    pool = None
    if harness.placement == "varied":
        pool = session.pool(elements(shape, sets, kernels, outputs))
    return Loop(
        checker,
        kernels,
        names,
        in_step=harness.order == "interleaved" and harness.timer != "graph",
        sets=sets,
        checked=harness.gate is True and harness.inputs == "random",
        probed=checks_each(harness),
        inputs=harness.inputs,
        warm=harness.warmup != "none",
        pool=pool,
        outputs=outputs,
    )


def checks_each(harness: Harness) -> bool:
    """Return whether each launch gets new inputs and is checked.

    This is only possible if L2 is flushed after the inputs were written.
    """
    return (
        harness.gate is True
        and harness.inputs == "random"
        and harness.l2 == "flush"
        and harness.timer != "graph"
    )
