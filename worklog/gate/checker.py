"""The stages of the gate in order, for one shape. The problems are made once per shape and used for every kernel, the
baseline included. Each stage is described in its module: shapes, precision, hard_data, after_timing.

A verdict holds for this shape and for small ones. At a larger shape an index may overflow, or blocks that wait for each
other may not all fit the GPU at once: then the launch does not end, and the child process that runs it is ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import astuple

import numpy as np

from worklog.errors import LaunchFailed
from worklog.gate import after_timing, precision, shapes
from worklog.gate.after_timing import LaunchProbe
from worklog.gate.exact import OPERAND_BITS
from worklog.gate.guarded_buffer import Buffers, Memory
from worklog.gate.hard_data import check_hard_data
from worklog.gate.precision import PrecisionReference
from worklog.gate.shapes import DIFFER, Exact
from worklog.gate.verdict import failed, until_failure
from worklog.kernel import Buffer, Device, Subject
from worklog.problem import Domain, Shape, random_inputs
from worklog.runs.verdict import Stage, Verdict

SEED_BITS = 32  # so that it can be typed


class Checker:
    """Everything that the gate needs to check kernels at one shape on one device. Raises CompileFailed, OutOfMemory.

    seed: for the problems, the same for every kernel; drawn after a kernel's source is fixed, so that no result can be
    prepared. The verdict states it. a, b: the timed
    inputs, U(-1, 1) float32 of M x K and K x N: precision is checked on what is timed. buffers: A, B and C on the
    device, holding them: the harness times on what the gate checked. The second C is for a loop in which kernel and
    baseline swap outputs; `buffers.memory` lends workspaces, whose guards `check_timed_launches` compares.
    """

    def __init__(self, device: Device, shape: Shape, seed: int) -> None:
        self.device = device
        self.shape = shape
        self.seed = seed
        self._rng = self._drawn(0)
        self.a, self.b = random_inputs(shape, self._rng)
        self._precision = PrecisionReference(self.a, self.b, self._rng)
        self.buffers = Buffers(Memory(device, self._rng), self.a, self.b)
        self.buffers.poison()
        self._differ = device.compile(DIFFER)
        self._probe_kernels = tuple(map(device.compile, after_timing.PROGRAMS))
        self._problems: dict[tuple[str, bool, bool], list[Exact]] = {}

    def check(self, subject: Subject, claimed: str = "fp32", tensor: bool | None = None) -> Verdict:
        """Run every stage until one fails. claimed: the precision class that the kernel must reach at least. tensor:
        whether its code uses tensor cores; None: not known. The inputs are intact afterwards.
        """
        buffers, memory, domain = self.buffers, self.buffers.memory, subject.domain
        self._rng = memory.rng = self._drawn(1)  # the same problems for each kernel, whatever was checked before
        found: str | None = None

        def probe(shape: Shape, alpha: float) -> LaunchProbe:
            return LaunchProbe(self.device, self._probe_kernels, shape, claimed, alpha, self._rng)

        def stages() -> Iterator[Stage]:
            nonlocal found
            if self.shape not in domain:
                yield failed("domain", f"size {self.shape} is outside the kernel's domain ({domain})")
            yield shapes.check_edge_shapes(subject, memory, claimed)
            if domain.alpha or domain.beta:
                yield precision.check_scalars(subject, memory, claimed)
            exact = self._exact(claimed, domain)
            yield shapes.check_benchmark_shape(subject, buffers, exact)
            yield shapes.check_repeated(subject, buffers, exact[0][0], self._differ)
            long, short = claimed in precision.CLASSES, False
            if long:
                products = precision.check_products(subject, buffers, self._rng)
                short = bool(products.note)
                yield products
            buffers.restore()
            found, stage = self._precision.judge("precision", buffers.run(subject), claimed)
            yield stage
            if long:
                yield check_hard_data(subject, memory, tensor, short, claimed, self.shape.flops)
            yield shapes.check_ragged(subject, buffers, probe)

        ran = until_failure(stages())
        with suppress(LaunchFailed):  # the context may be lost: the next launch reports it
            buffers.restore()
        return Verdict(ran, found, seed=self.seed)

    def check_by_article(self, subject: Subject) -> Verdict:
        """The article's rule in place of the gate; the precision class is found and shown, but not judged."""
        try:
            result = self.buffers.run(subject)
        except LaunchFailed as error:
            return Verdict((failed("launch", str(error)),), None)
        found, _ = self._precision.judge("precision", result, "fp32")
        return Verdict((self._precision.judge_by_article(result),), found)

    def check_timed_output(self, written: Buffer, claimed: str = "fp32") -> Stage:
        """Check what the timed launches left in C, in the spare or in a copy of them. All were filled with a sentinel
        before, and the baseline of a timed loop computes -A B, so its output can't be mistaken for the kernel's.
        """
        return self._precision.judge("timed output", self.buffers.written(written), claimed)[1]

    def probe(self, claimed: str = "fp32", alpha: float = 1.0) -> LaunchProbe:
        """For one timed loop of a kernel of that class, which computes C = alpha A B in this checker's buffers."""
        return LaunchProbe(self.device, self._probe_kernels, self.shape, claimed, alpha)

    def check_timed_launches(self, probe: LaunchProbe) -> Stage:
        """Check every launch of a loop that was probed. `buffers.restore` afterwards: the loop has changed A and B."""
        if outside := self.buffers.wrote_outside():
            return failed(after_timing.EVERY_LAUNCH, outside)
        return probe.stage()

    def _exact(self, claimed: str, domain: Domain) -> list[Exact]:
        """The exact problems for a class and what the kernel takes, made on first use."""
        kind = claimed if claimed in OPERAND_BITS else "fp32", domain.alpha, domain.beta
        if kind not in self._problems:
            self._problems[kind] = shapes.exact_problems(self.shape, self._drawn(2), kind[0], kind[1:])
        return self._problems[kind]

    def _drawn(self, part: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *astuple(self.shape), part])
