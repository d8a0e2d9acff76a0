"""SGEMM's checker: stages that a problem with exact results and a precision class allows.

A verdict holds for the shape and for small ones. At a larger shape an index may overflow, or blocks that wait for each
other may not all fit the GPU at once: then the launch does not end, and the child process that runs it is ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple
from functools import partial
from typing import Any

import numpy as np

from worklog.errors import LaunchFailed
from worklog.gate import after_timing, edges, precision, shapes
from worklog.gate.after_timing import LaunchProbe
from worklog.gate.checker import TIMED, Checker
from worklog.gate.exact import OPERAND_BITS, Projection
from worklog.gate.guarded_buffer import Buffers, Memory
from worklog.gate.precision import PrecisionReference, check_hard_data
from worklog.gate.verdict import failed
from worklog.kernel import Device, Runnable
from worklog.kernel.loaded import Loaded
from worklog.problem import Domain, Shape, random_inputs
from worklog.runs.verdict import Stage, Verdict


class SgemmChecker(Checker):
    """Checks kernels at one shape. Raises CompileFailed, OutOfMemory.

    quick: search for rare paths for a shorter time.
    seed: of the problems, the same for every kernel, the baseline included; drawn after a kernel's source is fixed, so
    that no result can be prepared. a, b: the timed inputs, U(-1, 1) float32 of M x K and K x N. buffers: A, B and C on
    the device, holding them: the harness times on what the gate checked. The second C is for a loop in which kernel and
    baseline swap outputs; `buffers.memory` lends workspaces.
    """

    buffers: Buffers

    def __init__(self, device: Device, shape: Shape, seed: int, *, quick: bool = False) -> None:
        self.device, self.shape, self.seed, self.quick = device, shape, seed, quick
        self._rng = self._drawn(0)
        self.a, self.b = random_inputs(shape, self._rng)
        self._precision = PrecisionReference(self.a, self.b, self._rng)
        self.buffers = Buffers(Memory(device, self._rng), self.a, self.b)
        self.buffers.poison()
        self._differ = device.compile(shapes.DIFFER)
        self._probe_kernels = tuple(map(device.compile, after_timing.PROGRAMS))
        self._exact: dict[tuple[str, bool, bool], list[Projection]] = {}

    def stages(self, subject: Runnable) -> Iterator[Stage]:
        """From small shapes to the benchmark's, then precision and hard data."""
        buffers, memory, domain, claimed = self.buffers, self.buffers.memory, subject.domain, subject.claimed
        self._rng = memory.rng = self._drawn(1)  # the same problems for each kernel, whatever was checked before
        if self.shape not in domain:
            yield failed("domain", f"size {self.shape} is outside the kernel's domain ({domain})")
        yield edges.check_edge_shapes(subject, memory)
        if subject.is_movable and subject.variables(self.shape):
            yield edges.check_state(subject, memory)
        if domain.alpha or domain.beta:
            yield precision.check_scalars(subject, memory)
        exact = self._exact_problems(claimed, domain)
        yield shapes.check_benchmark_shape(subject, buffers, exact)
        yield shapes.check_repeated(subject, buffers, exact[0].problem, self._differ)
        whole, short = claimed in precision.CLASSES, False
        if whole:
            products = precision.check_products(subject, buffers, self._rng)
            short = bool(products.note)
            yield products
        buffers.restore()
        self.reached, stage = self._precision.judge("precision", buffers.run(subject), claimed)
        yield stage
        if whole:
            yield check_hard_data(subject, memory, short, self.shape)
        yield shapes.check_ragged(subject, buffers, partial(self.probe, claimed, rng=self._rng))
        yield edges.check_alignment(subject, memory)
        if self.device.source == "emulated" and isinstance(subject, Loaded):
            from worklog.gate import search  # imports the emulator, which a GPU's check doesn't need

            stage, self.never_ran = search.check_rare_paths(subject, memory, quick=self.quick)
            yield stage

    def check_by_article(self, subject: Runnable) -> Verdict:
        """The article's rule in place of the gate; the precision class is shown, but not judged."""
        try:
            result = self.buffers.run(subject)
        except LaunchFailed as error:
            return Verdict((failed("launch", str(error)),), None)
        reached, _ = self._precision.judge("precision", result, "fp32")
        return Verdict((self._precision.judge_by_article(result),), reached)

    def check_timed_output(self, written: Any, claimed: str = "fp32") -> Stage:
        """Check what the timed launches left in C, in the spare or in a copy of them. All were filled with a sentinel
        before, and the baseline of a timed loop computes -A B, so its output can't be mistaken for the kernel's.
        """
        return self._precision.judge(TIMED, self.buffers.written(written), claimed)[1]

    def probe(
        self,
        claimed: str = "fp32",
        alpha: float = 1.0,
        shape: Shape | None = None,
        rng: np.random.Generator | None = None,
    ) -> LaunchProbe:
        """For launches of a kernel of that class, which computes C = alpha A B; by default at this checker's shape."""
        return LaunchProbe(self.device, self._probe_kernels, shape or self.shape, claimed, alpha, rng)

    def check_timed_launches(self, probe: LaunchProbe) -> Stage:
        """Check every launch of a loop that was probed. `buffers.restore` afterwards: the loop has changed A and B."""
        if outside := self.buffers.wrote_outside():
            return failed(after_timing.EVERY_LAUNCH, outside)
        return probe.stage()

    def _exact_problems(self, claimed: str, domain: Domain) -> list[Projection]:
        """For a class and what the kernel takes, made on first use."""
        kind = claimed if claimed in OPERAND_BITS else "fp32"
        key = kind, domain.alpha, domain.beta
        if key not in self._exact:
            rng = self._drawn(2)
            self._exact[key] = shapes.exact_problems(self.shape, rng, kind, alpha=domain.alpha, beta=domain.beta)
        return self._exact[key]

    def _drawn(self, part: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *astuple(self.shape), part])
