"""The buffers that timed launches read and write: they take turns and move through one pool of device memory.

The pool is allocated once and is much larger than the buffers, so placements differ in their offsets and in the
physical pages below them. In each placement, short kernels are loaded again: their times depend on the code's place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from worklog.gate import GUARD, OUTSIDE, OUTSIDE_WORKSPACE, Guarded, LaunchProbe, SgemmChecker
from worklog.harness import Timed
from worklog.kernel import Buffer, Loaded, Runnable
from worklog.problem import Shape, random_inputs
from worklog.runs import Stage

if TYPE_CHECKING:
    from worklog.gpu.cuda import CudaDevice

ALIGNED = 128  # elements: 512 bytes, the alignment of a caching allocator
# a pool's size: the larger of 4 GiB and three times what is placed in it,
POOL_BYTES = 2**32
TIMES_BUFFERS = 3.0
LEAST_TIMES_BUFFERS = 1.25  # or less where the GPU's memory is short, down to this
LEFT_FREE_BYTES = 2**28
# With more work, the time to fetch a kernel's code doesn't show; where it lies was recorded up to here (turns/h100).
SHORT_FLOPS = 2 * 1024**3
UNWRITTEN = -3.25e30  # in C before a placement's launches, and around it
Buffers = tuple[Any, Any, Any]
Sets = list[tuple[Any, ...]]  # A, B and a C for each kernel


class Pool:
    """`elements` float32 of device memory. Raises OutOfMemory."""

    def __init__(self, device: CudaDevice, elements: int, seed: int | None = None) -> None:
        self.device = device
        self.elements = elements - elements % ALIGNED
        self.whole: Any = device.allocate(self.elements)
        self._rng = np.random.default_rng(seed)

    @classmethod
    def to_hold(cls, device: CudaDevice, elements: int) -> Pool | None:
        """A pool for buffers of `elements` float32 in total, None where the GPU's memory is too short."""
        free = (device.free_bytes() - LEFT_FREE_BYTES) // 4
        size = min(free, max(POOL_BYTES // 4, round(TIMES_BUFFERS * elements)))
        return cls(device, size) if size >= LEAST_TIMES_BUFFERS * elements else None

    def place(self, sizes: Sequence[int]) -> list[Buffer]:
        """Buffers of these numbers of elements, at random multiples of 512 bytes, in random order, without overlap."""
        units = np.array([-(-size // ALIGNED) for size in sizes])
        order = self._rng.permutation(len(sizes))
        gaps = np.sort(
            self._rng.integers(0, self.elements // ALIGNED - int(units.sum()) + 1, len(sizes))
        )
        starts = np.empty(len(sizes), np.int64)
        starts[order] = ALIGNED * (gaps + np.cumsum(units[order]) - units[order])
        return [
            self.device.view(self.whole, int(start), size)
            for start, size in zip(starts, sizes, strict=True)
        ]


def elements(shape: Shape, sets: int = 1, kernels: Sequence[Runnable] = ()) -> int:
    """Elements of the buffers that a loop over some sets places in a pool, and of the kernels' workspaces."""
    in_a_set = shape.m * shape.k + shape.k * shape.n + 2 * ALIGNED
    in_a_set += max(2, len(kernels)) * (shape.m * shape.n + 2 * GUARD + ALIGNED)
    needed = (kernel.workspace_elements(shape) for kernel in dict.fromkeys(kernels))
    return sets * in_a_set + sum(size + 2 * GUARD + ALIGNED for size in needed if size)


class Trespass(Exception):
    """A launch wrote around a C or a workspace; the message says around which."""


class InTurn:
    """Launches of one kernel, each on the next A, B and C. last: the number of the buffers that it took. probe: checks
    each launch, on new inputs. elsewhere: buffers for a launch that brings the kernel's code back into the SMs'
    instruction caches, from which the gate's kernels evict it, before the timed inputs are written.
    """

    probe: LaunchProbe
    elsewhere: Sequence[Any] | None = None

    def __init__(self, kernel: Runnable, shape: Shape, alpha: float) -> None:
        self.kernel = kernel
        self.shape = shape
        self.alpha = alpha
        self.use([])

    def use(self, buffers: list[Buffers]) -> None:
        """Launch on these from now on, on the first one next."""
        self.buffers = buffers
        self.last = -1
        self.launches = [self.on(*abc) for abc in buffers]

    def on(self, a: Any, b: Any, c: Any) -> Callable[[], None]:
        """A launch on these. It doesn't hold self: a cycle would keep the pool's memory until garbage is collected."""
        return partial(self.kernel.enqueue, self.shape, self.alpha, a, b, 0.0, c)

    def __call__(self) -> None:
        """Enqueue one launch on the next ones."""
        self.last = (self.last + 1) % len(self.launches)
        self.launches[self.last]()

    def before(self) -> None:
        """New inputs for a launch that is checked."""
        if self.elsewhere is not None:
            self.on(*self.elsewhere)()
        self.probe.prepare(*self.buffers[(self.last + 1) % len(self.buffers)])
        if self.kernel.workspace is not None:
            self.probe.device.fill(self.kernel.workspace, np.nan)

    def behind(self) -> None:
        """Read its output."""
        self.probe.observe(self.buffers[self.last][2])

    def after(self) -> None:
        """Check what was read."""
        self.probe.check(*self.buffers[self.last][:2])


class Loop:
    """A kernel and its baselines on the checker's inputs, each with a C of its own. A baseline computes -A B, so that
    its output can't be mistaken for the kernel's. launches: with their names and the work around them.

    in_step: whether they take turns launch by launch. Then they swap their C in each turn, or share out a round of the
    sets. sets: to go round, as many as evict each other from L2. checked: whether outputs are. probed: whether each
    launch gets new inputs and its output is checked, a baseline's too, so that all find the GPU in the same state.
    warm: whether each kernel is launched before its time. pool: to move the buffers through; without it, the checker's
    buffers are used. Code that keeps variables isn't loaded again, which would reset them: a kernel that goes wrong
    after some launches must get there.
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
    ) -> None:
        self.checker = checker
        self.in_step = in_step
        self.sets = sets
        self.pool = pool
        self.checked = checked
        self.probed = probed
        self.changes_inputs = probed or inputs != "random"
        shape = checker.shape
        distinct = dict.fromkeys(kernels)
        buffers = checker.buffers
        if inputs != "random":
            easy = random_inputs(shape, np.random.default_rng(0), inputs)
            for buffer, host in zip(buffers.abc[:2], easy, strict=True):
                checker.device.overwrite(buffer, host)
        buffers.poison()
        self.bare = [
            InTurn(kernel, shape, -1.0 if number else 1.0) for number, kernel in enumerate(kernels)
        ]
        self.guarded: dict[
            str, list[Guarded]
        ] = {}  # by what is said of a launch that writes around them
        self.owners = [kernel for kernel in distinct if kernel.workspace_elements(shape)]
        short = warm and shape.flops <= SHORT_FLOPS
        for owner in () if pool else reversed(self.owners):
            buffers.memory.lend(owner, shape)
        self.relocated = list[Runnable]()
        self.move()
        if short and pool:
            self.relocated = [
                kernel
                for kernel in distinct
                if isinstance(kernel, Loaded) and not kernel.variables(shape)
            ]
        self.launches = []
        for name, launch in zip(names, self.bare, strict=True):
            around: dict[str, Any] = {
                "sets": sets,
                "set_bytes": shape.compulsory_bytes if sets > 1 else 0,
            }
            if probed:
                launch.probe = checker.probe(launch.kernel.claimed, alpha=launch.alpha)
                launch.elsewhere = self._copies(checker.buffers.abc) if short else None
                around |= {"before": launch.before, "behind": launch.behind, "after": launch.after}
            self.launches.append(
                Timed(launch, name, partial(launch.kernel.kernels, shape), **around)
            )

    def move(self) -> None:
        """Move the buffers to a new placement in the pool, and the code of short kernels to another place; without a
        pool, use the checker's buffers. Host functions are launched once on each set while nothing is blocked: one may
        record a graph for new addresses. Kernels that were loaded again are launched once on the checker's buffers.
        """
        first = self.bare[0]
        count = len(self.bare)
        of_checker = self.checker.buffers
        for kernel in self.relocated:
            kernel.relocate()
        if (
            self.pool and not self.probed and first.last >= 0
        ):  # kept: the baseline alone may be launched from here on
            self.pool.device.copy(of_checker.abc[2], first.buffers[first.last][2])
        sets = self._placed(self.pool) if self.pool else self._of_checker(self.sets, count)
        for number, launch in enumerate(self.bare):
            own = [(a, b, outputs[number]) for a, b, *outputs in sets]
            if self.in_step and len(sets) == 1:
                a, b, *outputs = sets[0]
                own = [(a, b, outputs[(number + turn) % count]) for turn in range(count)]
            elif self.in_step:
                ahead = number * len(sets) // count
                own = own[ahead:] + own[:ahead]
            launch.use(own)
        for launch in reversed(self.bare):
            if launch.kernel.is_host:
                for enqueue in launch.launches:
                    enqueue()
                self.checker.device.synchronize()
        for kernel in self.relocated:
            kernel.enqueue(self.checker.shape, 1.0, *of_checker.abc[:2], 0.0, of_checker.spare)

    def _placed(self, pool: Pool) -> Sets:
        """Sets at new places in the pool, each C and each workspace between guard bands. With the checker's inputs, if
        launches don't get new ones; the first was copied longest ago, so L2 no longer holds it where there are enough.
        """
        self.require_intact()
        device = pool.device
        shape = self.checker.shape
        inputs = self.checker.buffers.abc[:2]
        sizes = [
            *(matrix.size for matrix in inputs),
            *[shape.m * shape.n + 2 * GUARD] * len(self.bare),
        ]
        needed = [owner.workspace_elements(shape) + 2 * GUARD for owner in self.owners]
        placed = iter(pool.place([*sizes * self.sets, *needed]))
        by_set = [[next(placed) for _ in sizes] for _ in range(self.sets)]
        outputs = [
            [Guarded(device, output, UNWRITTEN) for output in one_set[2:]] for one_set in by_set
        ]
        workspaces = [Guarded(device, buffer, UNWRITTEN) for buffer in placed]
        self.guarded = {OUTSIDE: [*chain(*outputs)], OUTSIDE_WORKSPACE: workspaces}
        for owner, workspace in zip(self.owners, workspaces, strict=True):
            owner.use_workspace(workspace.inner)
        for guarded in (*self.guarded[OUTSIDE], *workspaces):
            device.fill(guarded.whole, UNWRITTEN)
        for a, b, *_ in () if self.probed else by_set:
            device.copy(a, inputs[0])
            device.copy(b, inputs[1])
        return [
            (a, b, *(c.inner for c in cs)) for (a, b, *_), cs in zip(by_set, outputs, strict=True)
        ]

    def _of_checker(self, sets: int, outputs: int) -> Sets:
        """The checker's buffers, a C for each further output, and copies of them all."""
        buffers = self.checker.buffers
        first = [*buffers.abc, buffers.spare, *self._copies([buffers.spare] * (outputs - 2))]
        return [tuple(first), *(tuple(self._copies(first)) for _ in range(sets - 1))]

    def _copies(self, buffers: Sequence[Any]) -> list[Any]:
        return [
            self.checker.device.upload(self.checker.device.download(buffer)) for buffer in buffers
        ]

    def require_intact(self) -> None:
        """Raise Trespass if a launch wrote around a C or a workspace in this placement."""
        for where, guarded in self.guarded.items() if self.checked else ():
            if not all(buffer.intact() for buffer in guarded):
                raise Trespass(where)

    def stage(self) -> Stage:
        """The gate's stage on what was timed. Raises Trespass."""
        if not self.probed:
            first = self.bare[0]
            moved_since = self.pool is not None and first.last < 0
            written = self.checker.buffers.abc[2] if moved_since else first.buffers[first.last][2]
            stage = self.checker.check_timed_output(written)
        else:
            stage, *of_baselines = (
                self.checker.check_timed_launches(launch.probe) for launch in self.bare
            )
            for baseline, checked in zip(self.bare[1:], of_baselines, strict=True):
                if not checked.passed:
                    stage = replace(
                        checked, detail=f"of the baseline {baseline.kernel.name}: {checked.detail}"
                    )
        if stage.passed:
            self.require_intact()
        return stage

    def close(self) -> None:
        """Let go of the pool, all of whose memory a kernel with a workspace in it would keep; restore the inputs."""
        for owner in self.owners if self.pool else ():
            owner.use_workspace(None)
        for kernel in self.relocated:
            kernel.settle()
        if self.changes_inputs:
            self.checker.buffers.restore()
