"""The buffers that timed launches read and write: they take turns and move through one pool of device memory.

The pool is allocated once and is much larger than the buffers, so placements differ in their offsets and in the
physical pages below them. A new placement allocates nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from worklog.gate import EVERY_LAUNCH, GUARD, OUTSIDE, OUTSIDE_WORKSPACE, Checker, Guarded, LaunchProbe, Stage, failed
from worklog.harness import Launch, Rotating, Witnessed
from worklog.kernel import Buffer, HostSubject, NeedsWorkspace, Subject
from worklog.problem import Shape

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
SHORT_FLOPS = 2 * 1024**3  # more work than this takes so long that the time to fetch the kernel's code doesn't show
UNWRITTEN = -3.25e30  # in C before a placement's launches, and around it


class InTurn(Rotating):
    """Launches of one subject, each on the next A, B and C."""

    def __init__(self, subject: Subject, shape: Shape, alpha: float, buffers: list[Buffers]) -> None:
        super().__init__((), shape.compulsory_bytes)
        self.subject, self.shape, self.alpha = subject, shape, alpha
        self.use(buffers)

    def use(self, buffers: list[Buffers]) -> None:
        """Launch on these from now on, on the first one next."""
        self.buffers, self.last = buffers, -1
        self.launches = [partial(self.subject.enqueue, self.shape, self.alpha, a, b, 0.0, c) for a, b, c in buffers]

    @property
    def written(self) -> Any:
        """The C that was written last."""
        return self.buffers[self.last][2]

    def witnessed(self, witness: LaunchProbe, elsewhere: Buffers | None) -> Witnessed:
        """The same launches, each on new inputs, and with its output checked.

        The gate's kernels evict the subject's code from the SMs' instruction caches. elsewhere: buffers for a launch
        that brings it back before the timed inputs are written.
        """

        def before() -> None:
            if elsewhere is not None:
                a, b, c = elsewhere
                self.subject.enqueue(self.shape, self.alpha, a, b, 0.0, c)
            witness.prepare(*self.buffers[(self.last + 1) % len(self.buffers)])
            if isinstance(self.subject, NeedsWorkspace) and self.subject.workspace is not None:
                witness.device.fill(self.subject.workspace, np.nan)

        def behind() -> None:
            witness.observe(self.written)

        def after() -> None:
            witness.check(*self.buffers[self.last][:2])

        return Witnessed(self, before, behind, after)


@dataclass(frozen=True)
class Loop:
    """What a timed loop launches in turn; the subject's launches without any work around them; the gate's stage on what
    was timed; what moves the buffers to a new placement, None where they stay; and the launches of further baselines.
    """

    subject: Launch
    baseline: Launch
    bare: Launch
    stage: Callable[[], Stage]
    move: Callable[[], None] | None = None
    further: Sequence[Launch] = ()


def elements(shape: Shape, sets: int = 1, subjects: Sequence[Subject] = ()) -> int:
    """Elements of the buffers that a loop over some sets places in a pool, and of the subjects' workspaces."""
    outputs = max(2, len(subjects))
    one = shape.m * shape.k + shape.k * shape.n + outputs * (shape.m * shape.n + 2 * GUARD) + (2 + outputs) * ALIGNED
    owners = (one for one in dict.fromkeys(subjects) if isinstance(one, NeedsWorkspace))
    return sets * one + sum(owner.workspace_elements(shape) + 2 * GUARD + ALIGNED for owner in owners)


def timed_loop(
    checker: Checker,
    subject: Subject,
    baseline: Subject,
    *further: Subject,
    in_step: bool,
    sets: int = 1,
    classes: Sequence[str] | None = None,
    warm: bool = False,
    pool: Pool | None = None,
) -> Loop:
    """Subject and baseline on the checker's inputs, each with a C of its own, and so each of further baselines. A
    baseline computes -A B, so that its output can't be mistaken for the subject's.

    in_step: whether they take turns launch by launch. Then they swap their C in each turn, or the baseline is half a
    round of the sets ahead. sets: to go round, as many as evict each other from L2. classes: the precision class of
    each; each launch then gets new inputs and its output is checked, a baseline's too, so that all find the GPU
    in the same state. Without them, the subject's last output is checked. warm: whether each launch should find its
    code in the instruction caches. pool: where the buffers move; without one, the checker's buffers are used.
    """
    shape, subjects = checker.shape, (subject, baseline, *further)
    owners = [one for one in dict.fromkeys(subjects) if isinstance(one, NeedsWorkspace)]
    outputs = len(subjects)
    placed = None if pool is None else _Placed(checker, pool, owners, sets, outputs, copied=classes is None)
    for owner in reversed(owners) if placed is None else ():
        checker.lend(owner)
    buffers_of_each = _in_turn(_of_checker(checker, sets, outputs) if placed is None else placed.move(), in_step)
    launches = [
        InTurn(one, shape, -1.0 if number else 1.0, buffers)
        for number, (one, buffers) in enumerate(zip(subjects, buffers_of_each, strict=True))
    ]
    timed: list[Launch] = [*launches]
    if classes is not None:
        probes = [checker.probe(of, alpha=one.alpha) for of, one in zip(classes, launches, strict=True)]
        elsewhere = _of_checker(checker, 2, 2)[1][:3] if warm and shape.flops <= SHORT_FLOPS else None
        timed = [one.witnessed(probe, elsewhere) for one, probe in zip(launches, probes, strict=True)]

    def judge() -> Stage:
        if classes is None:
            moved_since = placed is not None and launches[0].last < 0
            stage = checker.check_timed_output(checker.buffers[2] if moved_since else launches[0].written)
        else:
            stage, *of_baselines = map(checker.check_timed_launches, probes)
            for one, found in zip(subjects[1:], of_baselines, strict=True):
                if not found.passed:
                    stage = replace(found, detail=f"of the baseline {one.name}: {found.detail}")
        if placed is not None and stage.passed and (outside := placed.trespassed()):
            return failed(EVERY_LAUNCH, outside)
        return stage

    def launch_on_new_buffers() -> None:
        """Launch host functions once on each set while nothing is blocked: one may record a graph for new addresses."""
        for launch in reversed(launches):
            if isinstance(launch.subject, HostSubject):
                for enqueue in launch.launches:
                    enqueue()
                checker.device.synchronize()

    def move() -> None:
        assert placed is not None
        if classes is None and launches[0].last >= 0:  # kept, since the baseline alone may be launched from here on
            placed.pool.device.copy(checker.buffers[2], launches[0].written)
        for launch, buffers in zip(launches, _in_turn(placed.move(), in_step), strict=True):
            launch.use(buffers)
        launch_on_new_buffers()

    launch_on_new_buffers()
    return Loop(timed[0], timed[1], launches[0], judge, None if placed is None else move, timed[2:])


class _Placed:
    """Sets of buffers in a pool, each C and each workspace between guard bands. copied: with the checker's inputs, for
    launches that don't get new ones.
    """

    def __init__(
        self,
        checker: Checker,
        pool: Pool,
        owners: Sequence[NeedsWorkspace],
        sets: int,
        outputs: int,
        copied: bool,
    ) -> None:
        self.shape, self.sources = checker.shape, [*checker.buffers[:2], *[checker.spare] * outputs]
        self.pool, self.owners, self.sets, self.copied = pool, owners, sets, copied
        self.outside = ""  # of earlier placements
        self.guarded: list[Guarded] = []
        self.workspaces: list[Guarded] = []

    def move(self) -> Sets:
        """Sets at new places. The first was copied longest ago, so L2 no longer holds it where there are enough."""
        self.outside = self.trespassed()
        device, sizes = self.pool.device, [source.size for source in self.sources]
        one_set = [*sizes[:2], *(size + 2 * GUARD for size in sizes[2:])]
        needed = {owner: size for owner in self.owners if (size := owner.workspace_elements(self.shape))}
        placed = self.pool.place([*one_set * self.sets, *(size + 2 * GUARD for size in needed.values())])
        self.workspaces = [Guarded(device, placed.pop(), UNWRITTEN) for _ in needed][::-1]
        for owner, workspace in zip(needed, self.workspaces, strict=True):
            owner.use_workspace(workspace.inner)
        count = len(sizes)
        self.guarded = [Guarded(device, whole, UNWRITTEN) for number, whole in enumerate(placed) if number % count > 1]
        filled = [guarded.whole for guarded in (*self.guarded, *self.workspaces)]
        for whole in filled if self.sets == 1 else (self.pool.whole,):
            device.fill(whole, UNWRITTEN)
        moved: Sets = []
        for number in range(self.sets):
            a, b = placed[count * number : count * number + 2]
            if self.copied:
                device.copy(a, self.sources[0])
                device.copy(b, self.sources[1])
            outputs = self.guarded[(count - 2) * number : (count - 2) * (number + 1)]
            moved.append((a, b, *(guarded.inner for guarded in outputs)))
        return moved

    def trespassed(self) -> str:
        """OUTSIDE or OUTSIDE_WORKSPACE if a launch wrote around a C or a workspace in any placement, else ""."""
        for where, guarded in ((OUTSIDE, self.guarded), (OUTSIDE_WORKSPACE, self.workspaces)):
            if not all(one.intact() for one in guarded):
                return self.outside or where
        return self.outside


def _of_checker(checker: Checker, sets: int, outputs: int) -> Sets:
    """The checker's buffers, a C for each further output, and copies of them all."""
    device = checker.device
    hosts = [device.download(buffer) for buffer in (*checker.buffers, checker.spare)] if sets > 1 or outputs > 2 else []
    own = (*checker.buffers, checker.spare, *(device.upload(hosts[-1]) for _ in range(outputs - 2)))
    copies: Any = [tuple(map(device.upload, [*hosts, *hosts[-1:] * (outputs - 2)])) for _ in range(sets - 1)]
    return [own, *copies]


def _in_turn(sets: Sets, in_step: bool) -> list[list[Buffers]]:
    """The buffers of each subject."""
    outputs = range(len(sets[0]) - 2)
    each = [[(a, b, written[one]) for a, b, *written in sets] for one in outputs]
    if not in_step:
        return each
    if len(sets) == 1:
        return [[each[(one + turn) % len(each)][0] for turn in outputs] for one in outputs]
    ahead = [one * len(sets) // len(each) for one in outputs]
    return [buffers[first:] + buffers[:first] for buffers, first in zip(each, ahead, strict=True)]
