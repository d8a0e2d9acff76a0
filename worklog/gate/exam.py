"""The stages in order, for one shape. Questions are made once a shape and put to every subject, the baseline
included.

Inputs sit between guard bands: NaN around A and B, so that a read out of bounds poisons the result, and a known value
around C, so that a write out of bounds is seen. Before each launch C holds a finite sentinel drawn anew: an element
left alone keeps it. It is finite because NaN would refuse a right kernel that computes alpha * acc + beta * C with
beta = 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from worklog.errors import LaunchFailed
from worklog.gate.exact import FAMILIES, Projection, family, ragged_shapes, whereabouts
from worklog.gate.precision import PrecisionQuestion, classify, max_limit, rms_limit
from worklog.gate.verdict import Stage, Verdict
from worklog.gemm import Float32, Shape, random_inputs
from worklog.kernels import Buffer, Device, Subject

GUARD = 4096  # elements on either side: 16 KiB, which keeps the matrix between them aligned as an allocation is
SCALARS = ((1.0, 0.0), (1.0, 1.0), (2.0, -1.0), (0.5, 0.5))  # alpha, beta: with even C, all exact


@dataclass
class _Banded:
    """A matrix on the device between two guard bands."""

    whole: Buffer
    inner: Buffer


class Exam:
    """Everything the gate asks about one shape. claimed: the precision class a subject must have, "fp32" unless it
    says otherwise.

    seed: for the questions; drawn after a subject's source is fixed, so that no answer can be prepared. The timed
    inputs, A and B of U(-1, 1), belong to the exam too: precision is judged on what is timed.
    """

    def __init__(self, device: Device, shape: Shape, seed: int) -> None:
        self.device = device
        self.shape = shape
        self._rng = np.random.default_rng([seed, shape.m, shape.n, shape.k])
        self.a, self.b = random_inputs(shape, self._rng)
        self._precision = PrecisionQuestion.of(self.a, self.b, self._rng)
        self._exact: list[tuple[str, Float32, Float32, Projection]] = []
        for name in FAMILIES:
            a, b = family(name, shape, self._rng)
            self._exact.append((name, a, b, Projection.of(a, b, self._rng)))
        self._a = self._banded(self.a, np.nan)
        self._b = self._banded(self.b, np.nan)
        self._c = self._banded(np.zeros((shape.m, shape.n), np.float32), self._sentinel())
        self._spare = self._banded(np.zeros((shape.m, shape.n), np.float32), self._sentinel())

    @property
    def buffers(self) -> tuple[Buffer, Buffer, Buffer]:
        """Device A, B and C of the benchmark shape, holding the timed inputs: the harness times on what the gate
        judged.
        """
        return self._a.inner, self._b.inner, self._c.inner

    def examine(self, subject: Subject, claimed: str = "fp32") -> Verdict:
        """Put one subject to every stage and stop at the first that it fails."""
        stages: list[Stage] = []
        precision: str | None = None
        try:
            for question in (self._ragged, self._benchmark_shape):
                stages.append(question(subject))
                if not stages[-1].passed:
                    return Verdict(tuple(stages), precision)
            precision, stage = self._precision_class(subject, claimed)
            stages.append(stage)
        except LaunchFailed as error:
            stages.append(Stage("launch", False, 1, 0, str(error)))
        return Verdict(tuple(stages), precision)

    @property
    def spare(self) -> Buffer:
        """A second C, between guards too, for a loop in which subject and baseline swap buffers."""
        return self._spare.inner

    def check_timed_output(self, written: Buffer, claimed: str = "fp32") -> Stage:
        """Judge what the timed launches left in C or in the spare, whichever the subject wrote last.

        Both were poisoned before, and whoever else writes to them must leave something else than A B: the baseline of a
        timed loop computes -A B, so that its right answer cannot stand in for the subject's.
        """
        return self._judge("timed output", claimed, self._c if written is self._c.inner else self._spare)[1]

    def poison(self) -> None:
        """Fill C and the spare, guards included, with a sentinel drawn anew."""
        self._sentinel_value = self._sentinel()
        for banded in (self._c, self._spare):
            self.device.fill(banded.whole, self._sentinel_value)

    def _ragged(self, subject: Subject) -> Stage:
        """Exact integers on small shapes of every kind in the domain, with alpha and beta; between guards."""
        shapes = ragged_shapes(subject.domain)
        for index, shape in enumerate(shapes):
            a, b = family(FAMILIES[index % len(FAMILIES)], shape, self._rng)
            for alpha, beta in SCALARS:
                problem = self._small_problem(subject, shape, a, b, alpha, beta)
                if problem is not None:
                    detail = f"at {shape.m} x {shape.n} x {shape.k} with alpha = {alpha:g}, beta = {beta:g}: {problem}"
                    return Stage("exact on ragged shapes", False, 1, 0, detail)
        return Stage(
            "exact on ragged shapes",
            True,
            0,
            0,
            f"{len(shapes)} shapes x {len(SCALARS)} pairs of alpha and beta, no element wrong",
        )

    def _small_problem(
        self, subject: Subject, shape: Shape, a: Float32, b: Float32, alpha: float, beta: float
    ) -> str | None:
        """What is wrong with the subject's answer, or None."""
        sentinel = self._sentinel()
        # Even integers, so that half of one is an integer; below 2^24 together with the product's share.
        before = (
            (2 * self._rng.integers(-1000, 1000, (shape.m, shape.n))).astype(np.float32)
            if beta
            else np.full((shape.m, shape.n), sentinel, np.float32)
        )
        on_device = self._banded(a, np.nan), self._banded(b, np.nan), self._banded(before, sentinel)
        subject.enqueue(shape, alpha, on_device[0].inner, on_device[1].inner, beta, on_device[2].inner)
        self.device.synchronize()
        whole = self.device.download(on_device[2].whole)
        if not ((whole[:GUARD] == np.float32(sentinel)).all() and (whole[-GUARD:] == np.float32(sentinel)).all()):
            return "it wrote outside C"
        c = whole[GUARD:-GUARD].reshape(shape.m, shape.n).astype(np.float64)
        expected = alpha * (a.astype(np.float64) @ b.astype(np.float64)) + (beta * before if beta else 0)
        # alpha = 0.5 can leave half integers, exact in FP32 below 2^23; beyond, one rounding of the epilogue is right.
        wrong = c != expected.astype(np.float32)
        if not wrong.any():
            return self._inputs_changed((on_device[0], a), (on_device[1], b))
        if (c[wrong] == np.float32(sentinel)).all():
            return f"{int(wrong.sum())} of {c.size} elements were never written"
        row, column = (int(i[0]) for i in np.nonzero(wrong))
        return (
            f"{int(wrong.sum())} of {c.size} elements are wrong, the first at row {row}, column {column}: "
            f"{c[row, column]:g} instead of {expected[row, column]:g}"
        )

    def _inputs_changed(self, *pairs: tuple[_Banded, Float32]) -> str | None:
        for banded, original in pairs:
            if not np.array_equal(self.device.download(banded.inner), original.ravel()):
                return "it changed its inputs"
        return None

    def _benchmark_shape(self, subject: Subject) -> Stage:
        """The three exact families at the shape that is timed, by projection."""
        if self.shape not in subject.domain:
            return Stage("domain", False, 1, 0, f"size {self.shape} is outside the kernel's domain ({subject.domain})")
        try:
            for name, a, b, projection in self._exact:
                self.device.overwrite(self._a.inner, a)
                self.device.overwrite(self._b.inner, b)
                c = self._run(subject)
                wrong = projection.wrong_rows(c)
                if len(wrong):
                    meaning = "an operand lost its low bits (TF32, FP16 or BF16), or " if name != "E1" else ""
                    where = f"family {name} at {self.shape}: {whereabouts(wrong, self.shape.m)}"
                    detail = f"{where}; {meaning}terms are missing, stale or misplaced"
                    return Stage("exact at the benchmark shape", False, len(wrong), 0, detail)
        finally:
            self.device.overwrite(self._a.inner, self.a)
            self.device.overwrite(self._b.inner, self.b)
        return Stage(
            "exact at the benchmark shape", True, 0, 0, f"families {', '.join(FAMILIES)} at {self.shape}, no row wrong"
        )

    def _precision_class(self, subject: Subject, claimed: str) -> tuple[str, Stage]:
        """The class of the result on the timed inputs."""
        self.poison()
        subject.enqueue(self.shape, 1.0, *self.buffers[:2], 0.0, self.buffers[2])
        self.device.synchronize()
        return self._judge("precision", claimed, self._c)

    def _judge(self, name: str, claimed: str, banded: _Banded) -> tuple[str, Stage]:
        c = self.device.download(banded.whole)
        guards = np.concatenate([c[:GUARD], c[-GUARD:]])
        rms, largest = self._precision.errors(c[GUARD:-GUARD].reshape(self.shape.m, self.shape.n))
        found = classify(rms, largest, self.shape.k)
        k = self.shape.k
        detail = (
            f"class {found}: rms {rms:.3g} u·D (fp32 up to {rms_limit(k):.3g}), "
            f"largest {largest:.3g} (up to {max_limit(k):.4g})"
        )
        if not (guards == np.float32(self._sentinel_value)).all():
            return "wrong", Stage(name, False, 1, 0, "it wrote outside C")
        passed = found == claimed
        return found, Stage(
            name, passed, largest, max_limit(self.shape.k), detail if passed else f"{detail}; {claimed} was claimed"
        )

    def _run(self, subject: Subject) -> Float32:
        """One launch at the benchmark shape on what A and B hold; C as (M, N)."""
        self.poison()
        subject.enqueue(self.shape, 1.0, *self.buffers[:2], 0.0, self.buffers[2])
        self.device.synchronize()
        return self.device.download(self._c.inner).reshape(self.shape.m, self.shape.n)

    def _banded(self, host: Float32, guard: float) -> _Banded:
        band = np.full(GUARD, guard, np.float32)
        whole = self.device.upload(np.concatenate([band, host.ravel(), band]))
        return _Banded(whole, self.device.view(whole, GUARD, host.size))

    def _sentinel(self) -> float:
        """About -3e30: finite, far from any result, never the same twice in a row."""
        return float(np.float32(-3e30 * (1 + self._rng.random())))

    _sentinel_value: float = 0.0
