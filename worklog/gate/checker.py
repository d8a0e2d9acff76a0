"""One case of a problem, made ready on one device, and the stages that kernels go through on it.

A declared problem is judged by its own verify_result, so its gate is as strict as that. SGEMM knows inputs that give an
exact result, so its gate needs no tolerance. A verdict holds for this case and for small ones. At a larger shape an
index may overflow, or blocks that wait for each other may not all fit the GPU at once: then the launch does not end,
and the child process that runs it is ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, replace
from typing import Any

import numpy as np

from worklog.errors import BadSetting, LaunchFailed
from worklog.gate.exact import NEVER_WRITTEN, error_map
from worklog.gate.guarded_buffer import GuardedBuffers, Memory
from worklog.kernel import Device, Passed, Runnable
from worklog.problem import Case, Problem, Shape, Words, dtype_of, excess, is_array, mistake, raw, rebuilt, values_of
from worklog.runs import NeverRan, Stage, Verdict, failed, passed

LAUNCH = "launch"
SEED_BITS = 32  # so that it can be typed
REPEATED, TIMED = "bit-equal when repeated", "timed output"
FILLING = 0x4B  # a byte whose repetition is no result
LAUNCHES = 3  # of a case that is repeated: each with another sentinel, and with memory fouled in between


class Checker:
    """Checks kernels on one case of a problem, stage after stage until one fails. A problem with stages of its own
    derives from it. Raises BadSetting, CompileFailed, OutOfMemory.

    seed: of sentinels, and of what else the stages draw; a verdict states it if that isn't all. arguments: what a
    solution gets, on the device; `buffers` has its arrays between guard bands. reached: the precision that the last
    check found; never_ran: what no launch of it ran.
    """

    seed: int | None = None
    reached: str | None = None
    never_ran: tuple[NeverRan, ...] = ()

    def __init__(self, device: Device, problem: Problem, case: Case, seed: int) -> None:
        require_sound(problem, case)
        self.device, self.problem, self.case = device, problem, case
        arrays: list[tuple[str, Any]] = []
        for number, (parameter, value) in enumerate(zip(problem.signature, case.arguments, strict=True)):
            if number in case.written:
                arrays.append((parameter.name, value.nbytes))
            elif is_array(value):
                data = raw(value)
                arrays.append((parameter.name, np.frombuffer(data + bytes(-len(data) % 4), np.float32)))
        self.buffers = GuardedBuffers(Memory(device, np.random.default_rng(seed)), arrays)
        on_device = iter(self.buffers.arrays)
        roles = ["input"] * len(case.inputs) + ["output"] * len(case.outputs) + ["extra"] * len(case.extras)
        self.arguments = [
            Passed(parameter, value, next(on_device).inner if is_array(value) else None, role)
            for parameter, value, role in zip(problem.signature, case.arguments, roles, strict=True)
        ]

    def check(self, subject: Runnable) -> Verdict:
        """Run every stage until one fails. The inputs are intact afterwards. Raises BadSetting."""
        self.reached, self.never_ran = None, ()
        ran = until_failure(self.stages(subject))
        if ran[-1].name == LAUNCH and (shape := self.buffers.memory.launched):
            first, newline, others = ran[-1].detail.partition("\n")
            ran = *ran[:-1], replace(ran[-1], detail=f"{first} (at {shape}){newline}{others}")
        with suppress(LaunchFailed):  # the context may be lost: the next launch reports it
            self.buffers.restore()
        least = astuple(subject.domain.padded(Shape.of(1)))
        return Verdict(ran, self.reached, self.seed, "", self.never_ran, self.buffers.memory.largest, least)

    def stages(self, subject: Runnable) -> Iterator[Stage]:
        """Launch it on the case, and repeat the launch. The precision is the dtype."""
        yield self.check_case(subject)
        yield self.check_repeated(subject)
        self.reached = self.problem.dtype

    @property
    def nbytes(self) -> int:
        """Of all arrays."""
        return sum(value.nbytes for value in self.case.arguments if is_array(value))

    def check_case(self, subject: Runnable) -> Stage:
        """One launch on the case's inputs. Raises LaunchFailed and BadSetting."""
        return self._judged(f"case {self.case.name}", self._run(subject))

    def check_repeated(self, subject: Runnable) -> Stage:
        """Repeat a launch and compare the results bit by bit. Different bits fail an exact problem, and are stated for
        others: sums by atomics differ in the last bits. Raises LaunchFailed and BadSetting.
        """
        first = self._run(subject)
        for number in range(2, LAUNCHES + 1):
            if (again := self._run(subject)) == first:
                continue
            former, latter = (np.frombuffer(b"".join(outputs), np.uint8) for outputs in (first, again))
            count = int(np.count_nonzero(former != latter))
            detail = f"in case {self.case.name}, launch {number} differs from the first in {count} bytes"
            if self.problem.is_exact or not self.problem.verified(self.case, self._rebuilt(again))[0]:
                return failed(REPEATED, f"{detail}: a race", count)
            note = f"{detail}, within the tolerance: atomics, or a race"
            return passed(REPEATED, note, count, note=note)
        return passed(REPEATED, f"{LAUNCHES} launches of case {self.case.name}")

    def check_timed_output(self, subject: Runnable) -> Stage:
        """Check what the timed launches left in the outputs, which were poisoned before. Raises LaunchFailed."""
        return self._judged(TIMED, self._outputs(subject))

    def _run(self, subject: Runnable) -> tuple[bytes, ...]:
        """Poison, launch once, and read the outputs."""
        self.buffers.poison()
        self.buffers.memory.foul()
        subject.enqueue(*self.arguments)
        return self._outputs(subject)

    def _outputs(self, subject: Runnable) -> tuple[bytes, ...]:
        subject.collect(*self.arguments)
        return tuple(self.device.download(array.inner).tobytes()[: array.nbytes] for array in self.buffers.outputs)

    def _rebuilt(self, data: tuple[bytes, ...]) -> tuple[Any, ...]:
        return tuple(map(rebuilt, self.case.outputs, data))

    def _judged(self, name: str, data: tuple[bytes, ...]) -> Stage:
        """What verify_result says of the outputs, and whether all of them were written. The map has the wrong elements
        of the first output that has some: all dimensions but the last are rows.
        """
        seed, outputs = f"seed {self.case.seed}", self._rebuilt(data)
        if trespass := self.buffers.trespass():
            return failed(name, f"{seed}: {trespass}")
        try:
            right, details = self.problem.verified(self.case, outputs)
        except BadSetting as error:  # on this output, and not on the reference's
            return failed(name, f"{seed}: {str(error).removesuffix(': correct it')}")
        # Scalars of NumPy and tensors without dimensions are numbers, too.
        plain = {key: value.item() if getattr(value, "ndim", None) == 0 else value for key, value in details.items()}
        numbers = [f"{key} {value:.3g}" for key, value in plain.items() if isinstance(value, int | float)]
        shown = f"; {', '.join(numbers[:3])}" if numbers else ""
        where, elements = None, 0
        for like, output, written in zip(self.case.outputs, outputs, data, strict=True):
            values = values_of(like)
            elements += values.size
            before = (self.buffers.sentinel.tobytes() * (len(written) // 4 + 1))[: len(written)]
            same = np.frombuffer(written, np.uint8) == np.frombuffer(before, np.uint8)
            kept = same.reshape(*values.shape, len(written) // max(1, values.size)).all(axis=-1)
            if like.nbytes < 4 * values.size and not kept.all():  # shorter elements can hold it by chance
                kept[...] = False
            right &= not kept.any()
            wrong = (excess(like, output, self.problem.tolerance) > 1) | kept
            if where is None and wrong.any():
                columns = wrong.shape[-1] if wrong.ndim > 1 else wrong.size
                actual, expected = (array.reshape(-1, columns) for array in (values_of(output), values))
                sentinel = values_of(rebuilt(like, before)).ravel()[0]
                where = error_map(actual, expected, sentinel, wrong=wrong.reshape(-1, columns))
        if right:
            return passed(name, f"{seed}, {elements} element{'s' * (elements != 1)}{shown}")
        if where is None:
            return failed(name, f"{seed}: verify_result fails it{shown or ', without details'}")
        said = f"{str(where).removesuffix('.')}{shown}"
        if where.guess.startswith(NEVER_WRITTEN):
            said = "the output was never written: it holds what was there before"
        return failed(name, f"{seed}: {said}", where.wrong, where)


def require_sound(problem: Problem, case: Case) -> None:
    """Raise BadSetting for a verify_result that fails the reference's own result, or passes one that is all wrong."""
    if not problem.verified(case, case.outputs)[0]:
        why = "NaN in it, or a reference that isn't deterministic"
        raise mistake(problem, "verify_result fails the reference's own result", why, case.name)
    filled = tuple(rebuilt(like, np.full(like.nbytes, FILLING, np.uint8).tobytes()) for like in case.outputs)
    passes = False
    with suppress(BadSetting):  # it may raise on what is no result at all
        passes = problem.verified(case, filled)[0]
    if passes and not any(dtype_of(output) == "bool" for output in case.outputs):
        raise mistake(problem, "verify_result passes an output of one repeated value", "it checks nothing", case.name)


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

    ran = until_failure(stages())
    return Verdict(ran, problem.dtype if ran[-1].passed else None)


def timed(stage: Callable[[], Stage]) -> Stage:
    """Run a stage, and note the seconds that it took."""
    started = time.perf_counter()
    return replace(stage(), seconds=time.perf_counter() - started)


def until_failure(stages: Iterator[Stage]) -> tuple[Stage, ...]:
    """The stages up to the first that fails, each with the seconds that it took. A launch that fails is a stage too."""
    ran: list[Stage] = []
    try:
        while not ran or ran[-1].passed:
            ran.append(timed(lambda: next(stages)))
    except StopIteration:
        pass
    except LaunchFailed as error:
        ran.append(failed(LAUNCH, str(error)))
    return tuple(ran)
