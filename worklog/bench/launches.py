"""Which buffers a timed launch reads and writes: in turn, so that no address and no warm line favours anybody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from worklog.gate import Checker, Stage
from worklog.gate.every_launch import LaunchProbe
from worklog.harness.l2 import Rotating, input_sets
from worklog.harness.launchers import Witnessed
from worklog.harness.timeline import Launch
from worklog.kernel.kernel import Device, Subject
from worklog.problem.gemm import Shape

Buffers = tuple[Any, Any, Any]
# Fetching its code anew shows in the time of a short kernel; of more work than this it is lost in it.
SHORT_FLOPS = 2 * 1024**3


class Alternating:
    """Launches of one subject on one A and B, writing to each of some outputs in turn; `written` is the one written
    last.
    """

    def __init__(
        self, subject: Subject, shape: Shape, alpha: float, inputs: tuple[Any, Any], outputs: list[Any]
    ) -> None:
        self.subject, self.shape, self.alpha, self.inputs, self.outputs = subject, shape, alpha, inputs, outputs
        self.written = outputs[-1]

    @property
    def buffers(self) -> Buffers:
        """A, B and the output of the next launch."""
        return *self.inputs, self.outputs[0]

    def witnessed(self, witness: LaunchProbe, elsewhere: Buffers | None) -> Witnessed:
        """The same launches, each on inputs made for it and looked at afterwards.

        The gate's kernels push the subject's code out of the SMs' instruction caches. elsewhere: buffers for a launch
        that brings it back, as it would be there without the gate. It comes before the timed inputs are there, so that
        nothing can be made of them ahead of time.
        """

        def before() -> None:
            if elsewhere is not None:
                a, b, c = elsewhere
                self.subject.enqueue(self.shape, self.alpha, a, b, 0.0, c)
            witness.prepare(*self.buffers)

        def behind() -> None:
            witness.observe(self.written)

        after = partial(witness.check, *self.inputs)
        return Witnessed(self, before, behind, after)

    def __call__(self) -> None:
        """Enqueue one."""
        self.outputs = [*self.outputs[1:], self.outputs[0]]
        self.written = self.outputs[-1]
        self.subject.enqueue(self.shape, self.alpha, *self.inputs, 0.0, self.written)


class GoingRound(Rotating):
    """Launches of one subject, each on the next A, B and output."""

    def __init__(self, subject: Subject, shape: Shape, alpha: float, sets: list[Buffers]) -> None:
        launches = [partial(subject.enqueue, shape, alpha, a, b, 0.0, c) for a, b, c in sets]
        super().__init__(launches, shape.compulsory_bytes)
        self.outputs = [c for _, _, c in sets]

    @property
    def written(self) -> Any:
        """The output written last."""
        return self.outputs[self.last]


@dataclass(frozen=True)
class Loop:
    """What a timed loop launches in turn, and the gate's stages on what the subject did in it, to be asked in order."""

    subject: Launch
    baseline: Launch
    stages: tuple[Callable[[], Stage], ...]


def alternating(exam: Checker, subject: Subject, reference: Subject, in_step: bool) -> Loop:
    """Subject and baseline on the exam's inputs; judged by what the subject's last launch left.

    In step, the two swap their C in each turn, since at small sizes the address alone is worth some percent. The
    baseline computes -A B, so that it never leaves the answer that the subject owes.
    """
    ours, theirs = _pair(exam, subject, reference, in_step)
    return Loop(ours, theirs, (lambda: exam.check_timed_output(ours.written),))


def witnessed(
    exam: Checker,
    subject: Subject,
    reference: Subject,
    in_step: bool,
    classes: tuple[str, str],
    *,
    warm: bool,
) -> Loop:
    """The same, each launch on inputs that were never seen before and looked at afterwards, the baseline's too, so that
    both find the GPU in the same state. classes: the precision that the two owe. warm: whether each launch should find
    its code in the instruction caches. The exam's inputs are gone afterwards.
    """
    ours, theirs = _pair(exam, subject, reference, in_step)
    elsewhere = exam.extra_buffers() if warm and exam.shape.flops <= SHORT_FLOPS else None
    witnesses = exam.probe(classes[0]), exam.probe(classes[1], alpha=-1.0)

    def judge() -> Stage:
        stage, other = (exam.check_timed_launches(witness) for witness in witnesses)
        return stage if other.passed else replace(other, detail=f"of the baseline {reference.name}: {other.detail}")

    first, second = (
        pair.witnessed(witness, elsewhere) for pair, witness in zip((ours, theirs), witnesses, strict=True)
    )
    return Loop(first, second, (judge,))


def rotating(exam: Checker, subject: Subject, reference: Subject, in_step: bool, device: Device, l2_bytes: int) -> Loop:
    """Both going round copies of the exam's inputs, with outputs of their own; judged by the subject's last launch."""
    our_sets, their_sets = rotation(exam, device, l2_bytes, in_step)
    ours = GoingRound(subject, exam.shape, 1.0, our_sets)
    theirs = GoingRound(reference, exam.shape, -1.0, their_sets)
    return Loop(ours, theirs, (lambda: exam.check_timed_output(ours.written),))


def _pair(exam: Checker, subject: Subject, reference: Subject, in_step: bool) -> tuple[Alternating, Alternating]:
    a, b, c = exam.buffers
    ours, theirs = ([c, exam.spare], [exam.spare, c]) if in_step else ([c], [exam.spare])
    return (
        Alternating(subject, exam.shape, 1.0, (a, b), ours),
        Alternating(reference, exam.shape, -1.0, (a, b), theirs),
    )


def rotation(exam: Checker, device: Device, l2_bytes: int, in_step: bool) -> tuple[list[Buffers], list[Buffers]]:
    """Buffers for subject and baseline to go round, as many as push each other out of L2: they share inputs and have
    outputs of their own. The first are the exam's, the others copies of what these hold now.

    in_step: whether the two take turns launch by launch; then the baseline is half a round ahead.
    """
    a, b, c = exam.buffers
    hosts = [device.download(buffer) for buffer in (a, b, c, exam.spare)]
    copies = input_sets(exam.shape.compulsory_bytes, l2_bytes) - 1
    sets = [(a, b, c, exam.spare)] + [tuple(map(device.upload, hosts)) for _ in range(copies)]
    ours, theirs = [(a, b, c) for a, b, c, _ in sets], [(a, b, c) for a, b, _, c in sets]
    ahead = len(sets) // 2 if in_step else 0
    return ours, theirs[ahead:] + theirs[:ahead]
