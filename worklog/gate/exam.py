"""The stages in order, for one shape. Questions are made once a shape and put to every subject, the baseline included.

What each stage asks, and why, is in its module: ragged, benchmark, repeat, products, precision; and for what was timed,
every_launch (or precision again, where inputs cannot be new) and plausible.

The word holds for the shape that was asked, and for small ones. A larger shape has another exam: nothing here tells
whether an index overflows there, or whether blocks that wait for each other all fit the GPU at once; where they do not,
the launch does not end, and the process that runs it is ended (worklog.bench.worker).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

import numpy as np

from worklog.errors import LaunchFailed
from worklog.gate import article, benchmark, products, ragged
from worklog.gate.arena import Arena, Memory
from worklog.gate.benchmark import ExactQuestion
from worklog.gate.every_launch import NAME as EVERY_LAUNCH
from worklog.gate.every_launch import LaunchChecker, Witness
from worklog.gate.precision import PrecisionQuestion
from worklog.gate.repeat import Repeater
from worklog.gate.verdict import Stage, Verdict, refused
from worklog.kernel.kernel import Buffer, Device, Subject
from worklog.problem.gemm import Shape, random_inputs


class Exam:
    """Everything the gate asks about one shape. claimed: the precision class a subject must have at least, one of
    worklog.gate.precision.CLASSES.

    seed: for the questions; drawn after a subject's source is fixed, so that no answer can be prepared. The timed
    inputs, A and B of U(-1, 1), belong to the exam too: precision is judged on what is timed.
    """

    def __init__(self, device: Device, shape: Shape, seed: int) -> None:
        self.device = device
        self.shape = shape
        self._rng = np.random.default_rng([seed, shape.m, shape.n, shape.k])
        self.a, self.b = random_inputs(shape, self._rng)
        self._precision = PrecisionQuestion.of(self.a, self.b, self._rng)
        self._memory = Memory(device, self._rng)
        self._arena = Arena(self._memory, shape, self.a, self.b)
        self._repeater = Repeater(device)
        self._checker = LaunchChecker(device)
        self._questions: dict[str, list[ExactQuestion]] = {}

    @property
    def buffers(self) -> tuple[Buffer, Buffer, Buffer]:
        """Device A, B and C of the benchmark shape, holding the timed inputs: the harness times on what the gate
        judged.
        """
        return self._arena.buffers

    @property
    def spare(self) -> Buffer:
        """A second C, between guards too, for a loop in which subject and baseline swap buffers."""
        return self._arena.spare

    def poison(self) -> None:
        """Fill C and the spare, guards included, with a sentinel drawn anew."""
        self._arena.poison()

    def examine(self, subject: Subject, claimed: str = "fp32") -> Verdict:
        """Put one subject to every stage and stop at the first that it fails. The next one finds the inputs intact."""
        verdict = self._examine(subject, claimed)
        if not verdict.accepted:
            with suppress(LaunchFailed):  # the context may be lost: whoever launches next is told
                self._arena.restore()
        return verdict

    def _examine(self, subject: Subject, claimed: str) -> Verdict:
        stages: list[Stage] = []
        precision: str | None = None
        try:
            for ask in self._stages(subject, claimed):
                stages.append(clocked(ask))
                if not stages[-1].passed:
                    return Verdict(tuple(stages), None)
            started = time.perf_counter()
            precision, stage = self._precision.judge("precision", self._arena.run(subject), claimed)
            stages.append(replace(stage, seconds=time.perf_counter() - started))
        except LaunchFailed as error:
            stages.append(refused("launch", str(error)))
        return Verdict(tuple(stages), precision)

    def examine_by_article(self, subject: Subject) -> Verdict:
        """The article's rule in place of the gate; the precision class is found and told, but not judged."""
        try:
            result = self._arena.run(subject)
        except LaunchFailed as error:
            return Verdict((refused("launch", str(error)),), None)
        found, _ = self._precision.judge("precision", result, "fp32")
        return Verdict((article.judge(result, self._precision),), found)

    def check_timed_output(self, written: Buffer, claimed: str = "fp32") -> Stage:
        """Judge what the timed launches left in C, in the spare or in a copy of them, whichever the subject wrote last.

        All were poisoned before, and whoever else writes to them must leave something else than A B: the baseline of a
        timed loop computes -A B, so that its right answer cannot stand in for the subject's.
        """
        return self._precision.judge("timed output", self._arena.written(written), claimed)[1]

    def witness(self, claimed: str = "fp32", alpha: float = 1.0) -> Witness:
        """For one timed loop of a subject of that class, which computes C = alpha A B in this exam's buffers."""
        return Witness(self._checker, self.shape, claimed, alpha)

    def check_timed_launches(self, witness: Witness) -> Stage:
        """Judge every launch of a loop that was witnessed. Whoever timed it on new inputs restores these."""
        if self._arena.guards_written():
            return refused(EVERY_LAUNCH, "it wrote outside C")
        return witness.stage()

    def elsewhere(self) -> tuple[Buffer, Buffer, Buffer]:
        """Another A, B and C of this shape, for launches that are neither timed nor judged."""
        upload = self.device.upload
        return upload(self.a), upload(self.b), upload(np.zeros((self.shape.m, self.shape.n), np.float32))

    def restore(self) -> None:
        """Have the timed inputs in A and B again, after a loop that changed them."""
        self._arena.reload()

    def _stages(self, subject: Subject, claimed: str) -> Iterator[Callable[[], Stage]]:
        """The exact stages in order, each ready to be asked."""
        if self.shape not in subject.domain:
            outside = f"size {self.shape} is outside the kernel's domain ({subject.domain})"
            yield lambda: refused("domain", outside)
        yield lambda: ragged.ask(subject, self._memory, claimed)
        yield lambda: benchmark.ask(subject, self._arena, self._exact(claimed))
        yield lambda: self._repeater.ask(subject, self._arena, self._exact(claimed)[0])
        if claimed in products.CLASSES:
            yield lambda: products.ask(subject, self._arena, self._products)

    @cached_property
    def _products(self) -> products.ProductQuestion:
        """The label's question, made when first asked."""
        return products.ProductQuestion.of(self.shape, self._rng)

    def _exact(self, claimed: str) -> list[ExactQuestion]:
        """The exact questions for a class, made when first asked."""
        kind = claimed if claimed in ("tf32", "fp16", "bf16") else "fp32"
        if kind not in self._questions:
            self._questions[kind] = benchmark.questions(self.shape, self._rng, kind)
        return self._questions[kind]


def clocked(ask: Callable[[], Stage]) -> Stage:
    """The answer, with the seconds that it took."""
    started = time.perf_counter()
    stage = ask()
    return replace(stage, seconds=time.perf_counter() - started)
