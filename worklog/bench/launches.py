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

from worklog.gate import Checker, Stage
from worklog.gate.after_timing import EVERY_LAUNCH, LaunchProbe
from worklog.gate.guarded_buffer import GUARD, OUTSIDE, Guarded
from worklog.gate.verdict import failed
from worklog.harness.launch import Launch, Rotating, Witnessed, input_sets
from worklog.kernel.device import Buffer, Device, Subject
from worklog.problem.gemm import Shape

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
        """A pool for buffers of so many elements in total, None where the GPU's memory is too short."""
        free = (device.free_bytes() - LEFT_FREE_BYTES) // 4
        size = min(free, max(POOL_BYTES // 4, round(TIMES_BUFFERS * elements)))
        return cls(device, size) if size >= LEAST_TIMES_BUFFERS * elements else None

    def place(self, sizes: Sequence[int]) -> list[Buffer]:
        """Buffers of so many elements each, at random multiples of 512 bytes, in random order, without overlap."""
        units = np.array([-(-size // ALIGNED) for size in sizes])
        order = self._rng.permutation(len(sizes))
        gaps = np.sort(self._rng.integers(0, self.elements // ALIGNED - int(units.sum()) + 1, len(sizes)))
        starts = np.empty(len(sizes), np.int64)
        starts[order] = ALIGNED * (gaps + np.cumsum(units[order]) - units[order])
        return [self.device.view(self.whole, int(start), size) for start, size in zip(starts, sizes, strict=True)]

    def fill(self, value: float) -> None:
        """Set every element."""
        self.device.fill(self.whole, value)


Buffers = tuple[Any, Any, Any]
SHORT_FLOPS = 2 * 1024**3  # more work than this takes so long that the time to fetch the kernel's code doesn't show
UNWRITTEN = -3.25e30  # in C before a placement's launches, and around it


class Alternating:
    """Launches of one subject on one A and B, writing to each of some outputs in turn; `written` is the one written
    last.
    """

    def __init__(
        self, subject: Subject, shape: Shape, alpha: float, inputs: tuple[Any, Any], outputs: list[Any]
    ) -> None:
        self.subject, self.shape, self.alpha = subject, shape, alpha
        self.use(inputs, outputs)

    def use(self, inputs: tuple[Any, Any], outputs: list[Any]) -> None:
        """Launch on these buffers from now on."""
        self.inputs, self.outputs, self.written = inputs, outputs, outputs[-1]

    @property
    def buffers(self) -> Buffers:
        """A, B and the output of the next launch."""
        return *self.inputs, self.outputs[0]

    def witnessed(self, witness: LaunchProbe, elsewhere: Buffers | None) -> Witnessed:
        """The same launches, each on new inputs, and with its output checked.

        The gate's kernels evict the subject's code from the SMs' instruction caches. elsewhere: buffers for a launch
        that brings it back before the timed inputs are written.
        """

        def before() -> None:
            if elsewhere is not None:
                a, b, c = elsewhere
                self.subject.enqueue(self.shape, self.alpha, a, b, 0.0, c)
            witness.prepare(*self.buffers)

        def behind() -> None:
            witness.observe(self.written)

        def after() -> None:
            witness.check(*self.inputs)

        return Witnessed(self, before, behind, after)

    def __call__(self) -> None:
        """Enqueue one."""
        self.outputs = [*self.outputs[1:], self.outputs[0]]
        self.written = self.outputs[-1]
        self.subject.enqueue(self.shape, self.alpha, *self.inputs, 0.0, self.written)


class GoingRound(Rotating):
    """Launches of one subject, each on the next A, B and output."""

    def __init__(self, subject: Subject, shape: Shape, alpha: float, sets: list[Buffers]) -> None:
        self.subject, self.shape, self.alpha = subject, shape, alpha
        self.use(sets)
        super().__init__(self.launches, shape.compulsory_bytes)

    def use(self, sets: list[Buffers]) -> None:
        """Launch on these sets from now on, of which there are as many as before."""
        self.launches = [partial(self.subject.enqueue, self.shape, self.alpha, a, b, 0.0, c) for a, b, c in sets]
        self.outputs = [c for _, _, c in sets]

    @property
    def written(self) -> Any:
        """The output written last."""
        return self.outputs[self.last]


@dataclass(frozen=True)
class Loop:
    """What a timed loop launches in turn; the gate's stages on these launches, to run in order; and what moves the
    buffers to a new placement, None where they stay.
    """

    subject: Launch
    baseline: Launch
    stages: tuple[Callable[[], Stage], ...]
    move: Callable[[], None] | None = None


class _Placed:
    """The A, B, C and second C of two Alternating in a pool, both C's between guard bands."""

    def __init__(
        self, checker: Checker, pool: Pool, pair: tuple[Alternating, Alternating], in_step: bool, copied: bool
    ) -> None:
        self.checker, self.pool, self.pair, self.in_step, self.copied = checker, pool, pair, in_step, copied
        self.move()

    def move(self) -> None:
        """A new placement for both. copied: with the checker's inputs; otherwise each launch gets new ones."""
        device, sources = self.pool.device, [*self.checker.buffers, self.checker.spare]
        sizes = [source.size for source in sources]
        a, b, *wholes = self.pool.place([*sizes[:2], *(size + 2 * GUARD for size in sizes[2:])])
        self.guarded = [Guarded(device, whole) for whole in wholes]
        for whole in wholes:
            device.fill(whole, UNWRITTEN)
        if self.copied:
            device.copy(a, sources[0])
            device.copy(b, sources[1])
        _use(self.pair, (a, b), [guarded.inner for guarded in self.guarded], self.in_step)

    def trespass(self, stage: Stage) -> Stage:
        """The stage, failed if a launch wrote around C in the last placement."""
        clean = all(guarded.intact(np.float32(UNWRITTEN)) for guarded in self.guarded)
        return stage if clean or not stage.passed else failed(EVERY_LAUNCH, OUTSIDE)


def elements(shape: Shape, sets: int = 1) -> int:
    """Elements of the buffers that a loop over so many sets places in a pool."""
    return sets * (shape.m * shape.k + shape.k * shape.n + 2 * (shape.m * shape.n + 2 * GUARD) + 4 * ALIGNED)


def alternating(
    checker: Checker, subject: Subject, reference: Subject, in_step: bool, pool: Pool | None = None
) -> Loop:
    """Subject and baseline on the checker's inputs, in its buffers or copied into a pool; the gate checks the subject's
    last output.

    In step, the two swap their C in each turn. The baseline computes -A B, so that its output can't be mistaken for the
    subject's.
    """
    ours, theirs = _pair(checker, subject, reference, in_step)
    if pool is None:
        return Loop(ours, theirs, (lambda: checker.check_timed_output(ours.written),))
    placed = _Placed(checker, pool, (ours, theirs), in_step, copied=True)
    return Loop(ours, theirs, (lambda: placed.trespass(checker.check_timed_output(ours.written)),), placed.move)


def witnessed(
    checker: Checker,
    subject: Subject,
    reference: Subject,
    in_step: bool,
    classes: tuple[str, str],
    *,
    warm: bool,
    pool: Pool | None = None,
) -> Loop:
    """The same, but each launch gets new inputs and its output is checked, the baseline's too, so that both find the
    GPU in the same state. classes: the precision classes of the two. warm: whether each launch should find its code in
    the instruction caches. Without a pool, the checker's inputs are overwritten.
    """
    ours, theirs = _pair(checker, subject, reference, in_step)
    placed = None if pool is None else _Placed(checker, pool, (ours, theirs), in_step, copied=False)
    elsewhere = checker.extra_buffers() if warm and checker.shape.flops <= SHORT_FLOPS else None
    witnesses = checker.probe(classes[0]), checker.probe(classes[1], alpha=-1.0)

    def judge() -> Stage:
        stage, other = (checker.check_timed_launches(witness) for witness in witnesses)
        stage = stage if other.passed else replace(other, detail=f"of the baseline {reference.name}: {other.detail}")
        return stage if placed is None else placed.trespass(stage)

    first, second = (
        pair.witnessed(witness, elsewhere) for pair, witness in zip((ours, theirs), witnesses, strict=True)
    )
    return Loop(first, second, (judge,), None if placed is None else placed.move)


def rotating(
    checker: Checker,
    subject: Subject,
    reference: Subject,
    in_step: bool,
    device: Device,
    l2_bytes: int,
    pool: Pool | None = None,
) -> Loop:
    """Both rotate over copies of the checker's inputs, with outputs of their own; the gate checks the subject's last
    output. In a pool, all sets move together.
    """
    if pool is None:
        our_sets, their_sets = rotation(checker, device, l2_bytes, in_step)
    else:
        our_sets, their_sets = _sets_in(pool, checker, l2_bytes, in_step, 0)
    ours = GoingRound(subject, checker.shape, 1.0, our_sets)
    theirs = GoingRound(reference, checker.shape, -1.0, their_sets)

    def move() -> None:
        assert pool is not None
        for rotation, sets in zip(
            (ours, theirs), _sets_in(pool, checker, l2_bytes, in_step, ours.last + 1), strict=True
        ):
            rotation.use(sets)

    return Loop(ours, theirs, (lambda: checker.check_timed_output(ours.written),), None if pool is None else move)


def _pair(checker: Checker, subject: Subject, reference: Subject, in_step: bool) -> tuple[Alternating, Alternating]:
    a, b, c = checker.buffers
    ours = Alternating(subject, checker.shape, 1.0, (a, b), [c])
    theirs = Alternating(reference, checker.shape, -1.0, (a, b), [checker.spare])
    _use((ours, theirs), (a, b), [c, checker.spare], in_step)
    return ours, theirs


def _use(pair: tuple[Alternating, Alternating], inputs: tuple[Any, Any], outputs: list[Any], in_step: bool) -> None:
    """In step: both outputs in turn, the baseline the other one; otherwise one for each."""
    for one, own in zip(pair, (outputs, outputs[::-1]), strict=True):
        one.use(inputs, own if in_step else own[:1])


def _sets_in(
    pool: Pool, checker: Checker, l2_bytes: int, in_step: bool, first: int
) -> tuple[list[Buffers], list[Buffers]]:
    """The sets of a rotation at new places. They are copied in the order of their use from number `first` on: the next
    one to use was copied longest ago, so L2 no longer holds it.
    """
    sources = [*checker.buffers, checker.spare]
    count = input_sets(checker.shape.compulsory_bytes, l2_bytes)
    buffers = pool.place([source.size for source in sources] * count)
    sets: list[Any] = [tuple(buffers[4 * number : 4 * number + 4]) for number in range(count)]
    pool.fill(UNWRITTEN)
    for number in range(count):
        for to, source in zip(sets[(first + number) % count][:2], sources, strict=False):
            pool.device.copy(to, source)
    return _in_turn(sets, in_step)


def rotation(checker: Checker, device: Device, l2_bytes: int, in_step: bool) -> tuple[list[Buffers], list[Buffers]]:
    """Buffers for subject and baseline to rotate over, as many as evict each other from L2: they share inputs and have
    outputs of their own. The first are the checker's, the others copies.

    in_step: whether the two take turns launch by launch; then the baseline is half a round ahead.
    """
    a, b, c = checker.buffers
    hosts = [device.download(buffer) for buffer in (a, b, c, checker.spare)]
    copies = input_sets(checker.shape.compulsory_bytes, l2_bytes) - 1
    return _in_turn([(a, b, c, checker.spare)] + [tuple(map(device.upload, hosts)) for _ in range(copies)], in_step)


def _in_turn(sets: list[Any], in_step: bool) -> tuple[list[Buffers], list[Buffers]]:
    ours, theirs = [(a, b, c) for a, b, c, _ in sets], [(a, b, c) for a, b, _, c in sets]
    ahead = len(sets) // 2 if in_step else 0
    return ours, theirs[ahead:] + theirs[:ahead]
