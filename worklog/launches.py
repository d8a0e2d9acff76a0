"""Which buffers a timed launch reads and writes: in turn, so that no address and no warm line favours anybody."""

from __future__ import annotations

from functools import partial
from typing import Any

from worklog.gate import Exam
from worklog.gemm import Shape
from worklog.harness.l2 import Rotating, input_sets
from worklog.kernels import Device, Subject

Buffers = tuple[Any, Any, Any]


class Alternating:
    """Launches of one subject on one A and B, writing to each of some outputs in turn; `written` is the one written
    last.
    """

    def __init__(
        self, subject: Subject, shape: Shape, alpha: float, inputs: tuple[Any, Any], outputs: list[Any]
    ) -> None:
        self.subject, self.shape, self.alpha, self.inputs, self.outputs = subject, shape, alpha, inputs, outputs
        self.written = outputs[-1]

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


def rotation(exam: Exam, device: Device, l2_bytes: int, in_step: bool) -> tuple[list[Buffers], list[Buffers]]:
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
