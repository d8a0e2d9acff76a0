"""The buffers that timed launches read and write: they take turns and move through one pool of device memory.

The pool is allocated once and is much larger than the buffers, so placements differ in their offsets and in the
physical pages below them. In each placement, short kernels are loaded again: their times depend on the code's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from worklog.gate import EVERY_LAUNCH, GUARD, OUTSIDE, OUTSIDE_WORKSPACE, Guarded, LaunchProbe, SgemmChecker, failed
from worklog.harness import Launch, Timed
from worklog.kernel import Buffer, HostSubject, Subject
from worklog.kernel.loaded import Loaded
from worklog.problem import Shape
from worklog.runs.verdict import Stage

if TYPE_CHECKING:
    from worklog.gpu.cuda import CudaDevice


ALIGNED = 128  # elements: 512 bytes, the alignment of a caching allocator
POOL_BYTES, TIMES_BUFFERS = 2**32, 3.0  # a pool's size: the larger of 4 GiB and three times what is placed in it,
LEAST_TIMES_BUFFERS = 1.25  # or less where the GPU's memory is short, down to this
LEFT_FREE_BYTES = 2**28


class Pool:
    """`elements` float32 of device memory. Raises OutOfMemory."""

    def __init__(self, device: CudaDevice, elements: int, seed: int | None = None) -> None:
        self.device, self.elements = device, elements - elements % ALIGNED
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
        gaps = np.sort(self._rng.integers(0, self.elements // ALIGNED - int(units.sum()) + 1, len(sizes)))
        starts = np.empty(len(sizes), np.int64)
        starts[order] = ALIGNED * (gaps + np.cumsum(units[order]) - units[order])
        return [self.device.view(self.whole, int(start), size) for start, size in zip(starts, sizes, strict=True)]


Buffers = tuple[Any, Any, Any]
Sets = list[tuple[Any, ...]]  # A, B and a C for each subject
# With more work, the time to fetch a kernel's code doesn't show; where it lies was recorded up to here (turns/h100).
SHORT_FLOPS = 2 * 1024**3
UNWRITTEN = -3.25e30  # in C before a placement's launches, and around it


class InTurn:
    """Launches of one subject, each on the next A, B and C. last: the number of the buffers that it took."""

    def __init__(self, subject: Subject, shape: Shape, alpha: float) -> None:
        self.subject, self.shape, self.alpha = subject, shape, alpha
        self.use([])

    def use(self, buffers: list[Buffers]) -> None:
        """Launch on these from now on, on the first one next."""
        self.buffers, self.last = buffers, -1
        self.launches = [self.on(*abc) for abc in buffers]

    def on(self, a: Any, b: Any, c: Any) -> Launch:
        """A launch on these. It doesn't hold self: a cycle would keep the pool's memory until garbage is collected."""
        return partial(self.subject.enqueue, self.shape, self.alpha, a, b, 0.0, c)

    def __call__(self) -> None:
        """Enqueue one launch on the next ones."""
        self.last = (self.last + 1) % len(self.launches)
        self.launches[self.last]()

    @property
    def written(self) -> Any:
        """The C that was written last."""
        return self.buffers[self.last][2]


def _kernels(subject: Subject, shape: Shape) -> int:
    """How many a launch enqueues, found when it is asked for: it may compile."""
    return subject.kernels(shape)


def checked(launch: Timed, of: InTurn, probe: LaunchProbe, elsewhere: Buffers | None) -> Timed:
    """The same launch, each time on new inputs, and with its output checked.

    The gate's kernels evict the subject's code from the SMs' instruction caches. elsewhere: buffers for a launch that
    brings it back before the timed inputs are written.
    """

    def before() -> None:
        if elsewhere is not None:
            of.on(*elsewhere)()
        probe.prepare(*of.buffers[(of.last + 1) % len(of.buffers)])
        if of.subject.workspace is not None:
            probe.device.fill(of.subject.workspace, np.nan)

    def behind() -> None:
        probe.observe(of.written)

    def after() -> None:
        probe.check(*of.buffers[of.last][:2])

    return replace(launch, before=before, behind=behind, after=after)


def elements(shape: Shape, sets: int = 1, subjects: Sequence[Subject] = ()) -> int:
    """Elements of the buffers that a loop over some sets places in a pool, and of the subjects' workspaces."""
    outputs = max(2, len(subjects))
    in_a_set = (
        shape.m * shape.k + shape.k * shape.n + outputs * (shape.m * shape.n + 2 * GUARD) + (2 + outputs) * ALIGNED
    )
    needed = (subject.workspace_elements(shape) for subject in dict.fromkeys(subjects))
    return sets * in_a_set + sum(size + 2 * GUARD + ALIGNED for size in needed if size)


class Loop:
    """A subject and its baselines on the checker's inputs, each with a C of its own. A baseline computes -A B, so that
    its output can't be mistaken for the subject's. bare: the launches of each; launches: with their
    names and the work around them.

    in_step: whether they take turns launch by launch. Then they swap their C in each turn, or share out a round of the
    sets. sets: to go round, as many as evict each other from L2. classes: the precision class of each; each launch then
    gets new inputs and its output is checked, a baseline's too, so that all find the GPU in the same state. Without
    them, the subject's last output is checked. warm: whether each launch should find its code in the instruction
    caches. pool: where the buffers move; without one, the checker's buffers are used. staying: kernels whose code keeps
    variables, which loading it again would reset: a kernel that goes wrong after some launches must get there.
    """

    def __init__(
        self,
        checker: SgemmChecker,
        subjects: Sequence[Subject],
        *,
        names: Sequence[str],
        in_step: bool,
        sets: int = 1,
        classes: Sequence[str] | None = None,
        warm: bool = False,
        pool: Pool | None = None,
        staying: Sequence[Subject] = (),
    ) -> None:
        self.checker, self.subjects, self.in_step = checker, subjects, in_step
        self.bare = [InTurn(subject, checker.shape, -1.0 if number else 1.0) for number, subject in enumerate(subjects)]
        self.probes: list[LaunchProbe] = []
        self.placed: _Placed | None = None
        short = warm and checker.shape.flops <= SHORT_FLOPS
        movable = (kernel for kernel in dict.fromkeys(subjects) if kernel not in staying)
        loaded = [kernel for kernel in movable if isinstance(kernel, Loaded)]
        self.relocated = loaded if short and pool is not None else []
        owners = [subject for subject in dict.fromkeys(subjects) if subject.workspace_elements(checker.shape)]
        if pool is not None:
            self.placed = _Placed(checker, pool, owners, sets, len(subjects), copied=classes is None)
            self._use(self.placed.move())
        else:
            for owner in reversed(owners):
                checker.buffers.memory.lend(owner, checker.shape)
            self._use(_of_checker(checker, sets, len(subjects)))
        at_once = any(isinstance(subject, HostSubject) for subject in subjects)
        self.launches = [
            Timed(
                launch,
                name,
                kernels=partial(_kernels, launch.subject, checker.shape),
                at_once=at_once,
                sets=sets,
                set_bytes=checker.shape.compulsory_bytes if sets > 1 else 0,
            )
            for name, launch in zip(names, self.bare, strict=True)
        ]
        if classes is not None:
            elsewhere = _of_checker(checker, 2, 2)[1][:3] if short else None
            self.probes = [checker.probe(of, alpha=launch.alpha) for of, launch in zip(classes, self.bare, strict=True)]
            every = zip(self.launches, self.bare, self.probes, strict=True)
            self.launches = [checked(launch, of, probe, elsewhere) for launch, of, probe in every]

    def move(self) -> None:
        """Move the buffers to a new placement in the pool, and the code of short kernels to another place."""
        assert self.placed is not None
        for kernel in self.relocated:
            kernel.relocate()
        subject = self.bare[0]
        if not self.probes and subject.last >= 0:  # kept, since the baseline alone may be launched from here on
            self.placed.pool.device.copy(self.checker.buffers.abc[2], subject.written)
        self._use(self.placed.move())

    def _use(self, sets: Sets) -> None:
        """Launch on these sets. Host functions are launched once on each while nothing is blocked: one may record a
        graph for new addresses. Kernels that were loaded again are launched once on the checker's buffers.
        """
        for launch, buffers in zip(self.bare, _in_turn(sets, self.in_step), strict=True):
            launch.use(buffers)
        for launch in reversed(self.bare):
            if isinstance(launch.subject, HostSubject):
                for enqueue in launch.launches:
                    enqueue()
                self.checker.device.synchronize()
        of_checker = self.checker.buffers
        for kernel in self.relocated:
            kernel.enqueue(self.checker.shape, 1.0, *of_checker.abc[:2], 0.0, of_checker.spare)

    def leave_pool(self) -> None:
        """Let go of the pool: a subject whose workspace is in it would keep all of its memory."""
        for owner in self.placed.owners if self.placed else ():
            owner.use_workspace(None)
        for kernel in self.relocated:
            kernel.settle()

    def stage(self) -> Stage:
        """The gate's stage on what was timed."""
        if not self.probes:
            moved_since = self.placed is not None and self.bare[0].last < 0
            written = self.checker.buffers.abc[2] if moved_since else self.bare[0].written
            stage = self.checker.check_timed_output(written)
        else:
            stage, *of_baselines = map(self.checker.check_timed_launches, self.probes)
            for baseline, checked in zip(self.subjects[1:], of_baselines, strict=True):
                if not checked.passed:
                    stage = replace(checked, detail=f"of the baseline {baseline.name}: {checked.detail}")
        if self.placed is not None and stage.passed and (outside := self.placed.trespassed()):
            return failed(EVERY_LAUNCH, outside)
        return stage


@dataclass
class _Placed:
    """Sets of buffers in a pool, each C and each workspace between guard bands. copied: with the checker's inputs, for
    launches that don't get new ones. outside: where a launch wrote outside in an earlier placement.
    """

    checker: SgemmChecker
    pool: Pool
    owners: Sequence[Subject]
    sets: int
    outputs: int
    copied: bool
    outside: str = ""
    guarded: list[Guarded] = field(default_factory=list)
    workspaces: list[Guarded] = field(default_factory=list)

    def move(self) -> Sets:
        """Sets at new places. The first was copied longest ago, so L2 no longer holds it where there are enough."""
        self.outside = self.trespassed()
        device, inputs = self.pool.device, self.checker.buffers.abc[:2]
        one_set = [*(matrix.size for matrix in inputs), *[self.checker.buffers.spare.size + 2 * GUARD] * self.outputs]
        needed = {owner: size for owner in self.owners if (size := owner.workspace_elements(self.checker.shape))}
        placed = self.pool.place([*one_set * self.sets, *(size + 2 * GUARD for size in needed.values())])
        self.workspaces = [Guarded(device, buffer, UNWRITTEN) for buffer in placed[len(one_set) * self.sets :]]
        for owner, workspace in zip(needed, self.workspaces, strict=True):
            owner.use_workspace(workspace.inner)
        by_set = [placed[len(one_set) * number :][: len(one_set)] for number in range(self.sets)]
        self.guarded = [Guarded(device, output, UNWRITTEN) for _, _, *outputs in by_set for output in outputs]
        filled = [guarded.whole for guarded in (*self.guarded, *self.workspaces)]
        for whole in filled if self.sets == 1 else (self.pool.whole,):
            device.fill(whole, UNWRITTEN)
        for pair in by_set if self.copied else ():
            for to, source in zip(pair, inputs, strict=False):
                device.copy(to, source)
        inner = iter(self.guarded)
        return [(a, b, *(next(inner).inner for _ in outputs)) for a, b, *outputs in by_set]

    def trespassed(self) -> str:
        """OUTSIDE or OUTSIDE_WORKSPACE if a launch wrote around a C or a workspace in any placement, else ""."""
        for where, guarded in ((OUTSIDE, self.guarded), (OUTSIDE_WORKSPACE, self.workspaces)):
            if not all(buffer.intact() for buffer in guarded):
                return self.outside or where
        return self.outside


def _of_checker(checker: SgemmChecker, sets: int, outputs: int) -> Sets:
    """The checker's buffers, a C for each further output, and copies of them all."""
    device, buffers = checker.device, checker.buffers

    def copy(buffer: Any) -> Any:
        return device.upload(device.download(buffer))

    first = [*buffers.abc, buffers.spare, *(copy(buffers.spare) for _ in range(outputs - 2))]
    return [tuple(first), *(tuple(map(copy, first)) for _ in range(sets - 1))]


def _in_turn(sets: Sets, in_step: bool) -> list[list[Buffers]]:
    """The buffers of each subject."""
    count = len(sets[0]) - 2
    own = [[(a, b, written[number]) for a, b, *written in sets] for number in range(count)]
    if not in_step:
        return own
    if len(sets) == 1:
        return [[own[(number + turn) % count][0] for turn in range(count)] for number in range(count)]
    ahead = [number * len(sets) // count for number in range(count)]
    return [buffers[first:] + buffers[:first] for buffers, first in zip(own, ahead, strict=True)]
