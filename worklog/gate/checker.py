"""One case of a problem, made ready on one device, and the stages that kernels go through on it.

A declared problem is judged by its own verify_result, so its gate is as strict as that. SGEMM knows inputs that give an
exact result, so its gate needs no tolerance. A verdict holds for this case and for small ones. At a larger shape an
index may overflow, or blocks that wait for each other may not all fit the GPU at once: then the launch does not end,
and the child process that runs it is ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple
from functools import partial
from typing import Any

import numpy as np

from worklog.errors import BadSetting, LaunchFailed
from worklog.gate import after_timing, precision, shapes
from worklog.gate.after_timing import LaunchProbe
from worklog.gate.error_map import NEVER_WRITTEN, Which, error_map
from worklog.gate.exact import OPERAND_BITS, Projection
from worklog.gate.guarded_buffer import Buffers, GuardedBuffers, Memory
from worklog.gate.hard_data import check_hard_data
from worklog.gate.precision import PrecisionReference
from worklog.gate.verdict import failed, passed, until_failure
from worklog.kernel import Buffer, Device, Runnable, Subject
from worklog.kernel.solution import Passed
from worklog.problem import (
    Case,
    Domain,
    Problem,
    Shape,
    Words,
    dtype_of,
    excess,
    is_array,
    nbytes,
    random_inputs,
    raw,
    rebuilt,
    values_of,
)
from worklog.runs.verdict import ErrorMap, Stage, Verdict

SEED_BITS = 32  # so that it can be typed
TIMED = "timed output"
FILLING = 0x4B  # a byte whose repetition is no result
LAUNCHES = 3  # of a case that is repeated: each with another sentinel, and with memory fouled in between


class Checker:
    """Checks solutions on one case of a problem. Raises BadSetting, CompileFailed, OutOfMemory.

    seed: of sentinels, and of what else the stages draw. arguments: what a solution gets, on the device; `buffers` has
    its arrays between guard bands.
    """

    def __init__(self, device: Device, problem: Problem, case: Case, seed: int) -> None:
        require_sound(problem, case)
        self.device, self.problem, self.case = device, problem, case
        arrays: list[tuple[str, Any]] = []
        for number, (parameter, value) in enumerate(zip(problem.signature, case.arguments, strict=True)):
            if is_array(value):
                arrays.append((parameter.name, nbytes(value) if number in case.written else _words_of(value)))
        self.buffers = GuardedBuffers(Memory(device, np.random.default_rng(seed)), arrays)
        on_device = iter(self.buffers.arrays)
        self.arguments = [
            Passed(parameter, value, next(on_device).inner if is_array(value) else None)
            for parameter, value in zip(problem.signature, case.arguments, strict=True)
        ]

    @property
    def nbytes(self) -> int:
        """Of all arrays."""
        return sum(nbytes(value) for value in self.case.arguments if is_array(value))

    def check(self, subject: Runnable) -> Verdict:
        """Launch it on the case, and repeat the launch. The precision is the dtype. Raises BadSetting."""
        return _verdict(self.problem, (run(subject) for run in (self.check_case, self.check_repeated)))

    def check_case(self, subject: Runnable) -> Stage:
        """One launch on the case's inputs. Raises LaunchFailed and BadSetting."""
        return self._judged(f"case {self.case.name}", self._run(subject))

    def check_repeated(self, subject: Runnable) -> Stage:
        """Repeat a launch and compare the results bit by bit. Different bits fail an exact problem, and are stated for
        others: sums by atomics differ in the last bits. Raises LaunchFailed and BadSetting.
        """
        name, first = shapes.REPEATED, self._run(subject)
        for number in range(2, LAUNCHES + 1):
            again = self._run(subject)
            if again == first:
                continue
            count = int(np.count_nonzero(np.not_equal(*(_bytes_of(b"".join(outputs)) for outputs in (first, again)))))
            detail = f"in case {self.case.name}, launch {number} differs from the first in {count} bytes"
            if self.problem.is_exact or not self.problem.verified(self.case, self._rebuilt(again))[0]:
                return failed(name, f"{detail}: a race", count)
            note = f"{detail}, within the tolerance: atomics, or a race"
            return passed(name, note, count, note=note)
        return passed(name, f"{LAUNCHES} launches of case {self.case.name}")

    def check_timed_output(self, subject: Runnable) -> Stage:
        """Check what the timed launches left in the outputs, which were poisoned before. Raises LaunchFailed."""
        return self._judged(TIMED, self._outputs(subject))

    def _run(self, subject: Runnable) -> tuple[bytes, ...]:
        """Poison, launch once, and read the outputs."""
        self.buffers.poison()
        self.buffers.memory.foul()
        subject.enqueue(self.arguments, self.case.written)
        return self._outputs(subject)

    def _outputs(self, subject: Runnable) -> tuple[bytes, ...]:
        subject.collect(self.arguments, self.case.written)
        return tuple(self.device.download(array.inner).tobytes()[: array.nbytes] for array in self.buffers.outputs)

    def _rebuilt(self, data: tuple[bytes, ...]) -> tuple[Any, ...]:
        return tuple(rebuilt(like, output) for like, output in zip(self.case.outputs, data, strict=True))

    def _judged(self, name: str, data: tuple[bytes, ...]) -> Stage:
        """What verify_result says of the outputs, and whether all of them were written."""
        seed = f"seed {self.case.seed}"
        if trespass := self.buffers.trespass():
            return failed(name, f"{seed}: {trespass}")
        try:
            right, details = self.problem.verified(self.case, self._rebuilt(data))
        except BadSetting as error:  # on this output, and not on the reference's
            return failed(name, f"{seed}: {str(error).removesuffix(': correct it')}")
        numbers = [f"{key} {value:.3g}" for key, value in details.items() if isinstance(value, int | float)]
        shown = f"; {', '.join(numbers[:3])}" if numbers else ""
        unwritten = [self._unwritten(output, like) for output, like in zip(data, self.case.outputs, strict=True)]
        if right and not any(mask.any() for mask in unwritten):
            elements = sum(values_of(output).size for output in self.case.outputs)
            return passed(name, f"{seed}, {elements} element{'s' * (elements != 1)}{shown}")
        where = self._map(data, unwritten)
        if where is None:
            return failed(name, f"{seed}: verify_result fails it{shown or ', without details'}")
        wrong = f"{str(where).removesuffix('.')}{shown}"
        if where.guess.startswith(NEVER_WRITTEN):
            wrong = "the output was never written: it holds what was there before"
        return failed(name, f"{seed}: {wrong}", where.wrong, where)

    def _kept(self, like: Any) -> bytes:
        """What an output holds before a launch."""
        return (self.buffers.sentinel.tobytes() * (nbytes(like) // 4 + 1))[: nbytes(like)]

    def _unwritten(self, output: bytes, like: Any) -> Which:
        """Which elements hold the sentinel still; of those shorter than 32 bits, which can by chance, all or none."""
        shape, itemsize = values_of(like).shape, nbytes(like) // max(1, values_of(like).size)
        same = _bytes_of(output) == _bytes_of(self._kept(like))
        kept = same.reshape(*shape, itemsize).all(axis=-1)
        return kept if itemsize >= 4 or kept.all() else np.zeros(shape, np.bool_)

    def _map(self, data: tuple[bytes, ...], unwritten: list[Which]) -> ErrorMap | None:
        """The wrong elements of the first output that has some: all dimensions but the last are rows. None where no
        element is beyond the tolerance.
        """
        for like, output, kept in zip(self.case.outputs, self._rebuilt(data), unwritten, strict=True):
            wrong = (excess(like, output, self.problem.tolerance) > 1) | kept
            if wrong.any():
                columns = wrong.shape[-1] if wrong.ndim > 1 else wrong.size
                actual, right = (values_of(values).reshape(-1, columns) for values in (output, like))
                sentinel = values_of(rebuilt(like, self._kept(like))).ravel()[0]
                return error_map(actual, right, sentinel, wrong=wrong.reshape(-1, columns))
        return None


def _bytes_of(data: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(data, np.uint8)


def _words_of(array: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    """An array's bytes as 32-bit words."""
    data = raw(array)
    return np.frombuffer(data + bytes(-len(data) % 4), np.float32)


def require_sound(problem: Problem, case: Case) -> None:
    """Raise BadSetting for a verify_result that fails the reference's own result, or passes one that is all wrong."""
    if not problem.verified(case, case.outputs)[0]:
        raise BadSetting(
            f"{problem.name}: verify_result fails the reference's own result in case {case.name!r}: NaN in it, or a "
            "reference that isn't deterministic"
        )
    filled = tuple(rebuilt(like, np.full(nbytes(like), FILLING, np.uint8).tobytes()) for like in case.outputs)
    passes = False
    with suppress(BadSetting):  # it may raise on what is no result at all
        passes = problem.verified(case, filled)[0]
    if passes and not any(dtype_of(output) == "bool" for output in case.outputs):
        raise BadSetting(
            f"{problem.name}: verify_result passes an output of one repeated value in case {case.name!r}: it checks "
            "nothing"
        )


def check_cases(
    subject: Runnable,
    problem: Problem,
    cases: Sequence[Words],
    device: Device,
    *,
    seed: int,
    progress: Callable[[int, int, str], None] = lambda done, total, doing: None,
) -> Verdict:
    """Check each case until one fails; then repeat the launch of the largest one. Raises what Checker raises."""

    def stages() -> Iterator[Stage]:
        largest: Checker | None = None
        for number, words in enumerate(cases):
            progress(number, len(cases), f"case {words['name']}")
            checker = Checker(device, problem, problem.prepared(words), seed)
            yield checker.check_case(subject)
            if largest is None or checker.nbytes >= largest.nbytes:
                largest = checker
        if largest is not None:
            yield largest.check_repeated(subject)

    return _verdict(problem, stages())


def _verdict(problem: Problem, stages: Iterator[Stage]) -> Verdict:
    ran = until_failure(stages)
    passes = all(stage.passed for stage in ran)
    return Verdict(ran, problem.dtype if passes else None)


class SgemmChecker:
    """Checks kernels at one shape. Raises CompileFailed, OutOfMemory.

    seed: for the problems, the same for every kernel, the baseline included; drawn after a kernel's source is fixed, so
    that no result can be prepared. a, b: the timed inputs, U(-1, 1) float32 of M x K and K x N. buffers: A, B and C on
    the device, holding them: the harness times on what the gate checked. The second C is for a loop in which kernel and
    baseline swap outputs; `buffers.memory` lends workspaces.
    """

    def __init__(self, device: Device, shape: Shape, seed: int) -> None:
        self.device, self.shape, self.seed = device, shape, seed
        self._rng = self._drawn(0)
        self.a, self.b = random_inputs(shape, self._rng)
        self._precision = PrecisionReference(self.a, self.b, self._rng)
        self.buffers = Buffers(Memory(device, self._rng), self.a, self.b)
        self.buffers.poison()
        self._differ = device.compile(shapes.DIFFER)
        self._probe_kernels = tuple(map(device.compile, after_timing.PROGRAMS))
        self._exact: dict[tuple[str, bool, bool], list[Projection]] = {}

    def check(self, subject: Subject, claimed: str = "fp32", tensor: bool | None = None) -> Verdict:
        """Run every stage until one fails. claimed: the precision class that the kernel must reach at least. tensor:
        whether its code uses tensor cores; None: not known. The inputs are intact afterwards.
        """
        buffers, memory, domain = self.buffers, self.buffers.memory, subject.domain
        self._rng = memory.rng = self._drawn(1)  # the same problems for each kernel, whatever was checked before
        reached: str | None = None

        def stages() -> Iterator[Stage]:
            nonlocal reached
            if self.shape not in domain:
                yield failed("domain", f"size {self.shape} is outside the kernel's domain ({domain})")
            yield shapes.check_edge_shapes(subject, memory, claimed)
            if domain.alpha or domain.beta:
                yield precision.check_scalars(subject, memory, claimed)
            exact = self._exact_problems(claimed, domain)
            yield shapes.check_benchmark_shape(subject, buffers, exact)
            yield shapes.check_repeated(subject, buffers, exact[0].problem, self._differ)
            whole, short = claimed in precision.CLASSES, False
            if whole:
                products = precision.check_products(subject, buffers, self._rng)
                short = bool(products.note)
                yield products
            buffers.restore()
            reached, stage = self._precision.judge("precision", buffers.run(subject), claimed)
            yield stage
            if whole:
                yield check_hard_data(subject, memory, tensor, short, claimed, self.shape.flops)
            yield shapes.check_ragged(subject, buffers, partial(self.probe, claimed, rng=self._rng))

        ran = until_failure(stages())
        with suppress(LaunchFailed):  # the context may be lost: the next launch reports it
            buffers.restore()
        return Verdict(ran, reached, seed=self.seed)

    def check_by_article(self, subject: Subject) -> Verdict:
        """The article's rule in place of the gate; the precision class is shown, but not judged."""
        try:
            result = self.buffers.run(subject)
        except LaunchFailed as error:
            return Verdict((failed("launch", str(error)),), None)
        reached, _ = self._precision.judge("precision", result, "fp32")
        return Verdict((self._precision.judge_by_article(result),), reached)

    def check_timed_output(self, written: Buffer, claimed: str = "fp32") -> Stage:
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
