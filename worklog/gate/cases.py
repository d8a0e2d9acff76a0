"""The gate for any problem with a reference: every case by name, at the dtype's tolerance, and the same bits when a
launch is repeated.

The mechanisms are those of the gate for SGEMM (worklog.gate.guarded_buffer): every array is between guard bands, NaN
around what is read and the sentinel around what is written, each launch gets a new sentinel, and inputs must be
unchanged. Memory is counted in 32-bit words, so arrays of any type take the same guards. The result is judged by the
problem's verify_result, so the gate is as strict as that: unlike SGEMM's stages, it can't know which inputs give an
exact result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from worklog.errors import BadSetting
from worklog.gate.guarded_buffer import GUARD, Guarded, Memory
from worklog.gate.verdict import ErrorMap, Stage, Verdict, error_map, failed, passed, until_failure
from worklog.kernel import Device
from worklog.kernel.solution import Passed, Ready
from worklog.problem import Case, Problem, Words, dtype_of, excess, is_array, nbytes, raw, rebuilt, values_of

REPEATED = "bit-equal when repeated"
FILLING = 0x4B  # a byte whose repetition is no result
LAUNCHES = 3  # of a case that is repeated: each with another sentinel, and with memory fouled in between
Progress = Callable[[int, int, str], None]


class CaseBuffers:
    """A case's arguments on a device, arrays between guard bands. Raises OutOfMemory."""

    def __init__(self, memory: Memory, problem: Problem, case: Case) -> None:
        self.memory, self.case = memory, case
        self.arguments: list[Passed] = []
        self.guarded: dict[int, Guarded] = {}
        for number, (parameter, value) in enumerate(zip(problem.signature, case.arguments, strict=True)):
            if is_array(value):
                guarded = Guarded.of_size(memory.device, -(-nbytes(value) // 16) * 4)  # whole views of 16 bytes
                view = memory.device.view(guarded.whole, GUARD, max(1, -(-nbytes(value) // 4)))
                if number not in case.written:
                    data = raw(value)
                    guarded.load(np.frombuffer(data + bytes(-len(data) % 4), np.float32))
                self.guarded[number] = guarded
                self.arguments.append(Passed(parameter, value, view))
            else:
                self.arguments.append(Passed(parameter, value))
        self.sentinel = np.uint32(0)

    def poison(self) -> None:
        """Fill the outputs, guards included, with a new sentinel: two equal halves that are finite, as 32 bits and as
        16 of either format.
        """
        half = int(self.memory.rng.integers(0xF000, 0xF780))
        self.sentinel = np.uint32(half << 16 | half)
        for number in self.case.written:
            self.guarded[number].fill(self.sentinel.view(np.float32))

    def run(self, subject: Ready) -> tuple[bytes, ...]:
        """Poison, launch once, and read the outputs. Raises LaunchFailed."""
        self.poison()
        self.memory.foul()
        subject.enqueue(self.arguments, self.case.written)
        subject.collect(self.arguments, self.case.written)
        return self.outputs()

    def outputs(self) -> tuple[bytes, ...]:
        """What the outputs hold, after all enqueued work."""
        device = self.memory.device
        found = []
        for number in self.case.written:
            buffer = self.arguments[number].buffer
            assert buffer is not None
            found.append(device.download(buffer).tobytes()[: nbytes(self.case.arguments[number])])
        return tuple(found)

    def trespass(self) -> str:
        """Which memory was written that must not be, "" for none."""
        for number, guarded in self.guarded.items():
            name, written = self.arguments[number].parameter.name, number in self.case.written
            if not guarded.intact(nbytes(self.case.arguments[number]) if written else None):
                return f"it wrote outside {name}"
            if not written and guarded.changed():
                return f"it changed its input {name}"
        return ""


def check_cases(
    subject: Ready,
    problem: Problem,
    cases: Sequence[Words],
    device: Device,
    *,
    seed: int,
    progress: Progress = lambda done, total, doing: None,
) -> Verdict:
    """Check each case until one fails; then repeat the launch of the largest one. seed: of sentinels.
    The verdict's precision is the dtype. Raises BadSetting, CompileFailed, OutOfMemory.
    """
    memory = Memory(device, np.random.default_rng(seed))

    def stages() -> Iterator[Stage]:
        largest, most = None, 0
        for number, words in enumerate(cases):
            progress(number, len(cases), f"case {words['name']}")
            case = problem.prepared(words)
            require_sound(problem, case)
            buffers = CaseBuffers(memory, problem, case)
            yield check_case(subject, problem, buffers)
            size = sum(nbytes(value) for value in case.arguments if is_array(value))
            if size >= most:
                largest, most = buffers, size
        if largest is not None:
            yield check_repeated(subject, problem, largest)

    found = until_failure(stages())
    accepted = all(stage.passed for stage in found)
    return Verdict(found, (problem.dtype or problem.first) if accepted else None)


def require_sound(problem: Problem, case: Case) -> None:
    """Raise BadSetting for a verify_result that fails the reference's own result, or passes one that is all wrong."""
    right, _ = problem.verified(case, case.outputs)
    if not right:
        raise BadSetting(
            f"{problem.name}: verify_result fails the reference's own result in case {case.name!r}: NaN in it, or a "
            "reference that isn't deterministic"
        )
    filled = tuple(rebuilt(one, np.full(nbytes(one), FILLING, np.uint8).tobytes()) for one in case.outputs)
    passes = False
    with suppress(BadSetting):  # it may raise on what is no result at all
        passes = problem.verified(case, filled)[0]
    if passes and not any(dtype_of(one) == "bool" for one in case.outputs):
        raise BadSetting(
            f"{problem.name}: verify_result passes an output of one repeated value in case {case.name!r}: it checks "
            "nothing"
        )


def check_case(subject: Ready, problem: Problem, buffers: CaseBuffers) -> Stage:
    """One launch on a case's inputs. Raises LaunchFailed and BadSetting."""
    return judged(f"case {buffers.case.name}", problem, buffers, buffers.run(subject))


def judged(name: str, problem: Problem, buffers: CaseBuffers, data: tuple[bytes, ...]) -> Stage:
    """The stage of that name on what a launch left in the outputs. Raises LaunchFailed."""
    case = buffers.case
    seed = f"seed {case.seed}"
    if trespass := buffers.trespass():
        return failed(name, f"{seed}: {trespass}")
    actual = tuple(rebuilt(like, one) for like, one in zip(case.outputs, data, strict=True))
    try:
        right, details = problem.verified(case, actual)
    except BadSetting as error:  # on this output, and not on the reference's
        return failed(name, f"{seed}: {str(error).removesuffix(': correct it')}")
    unwritten = sum(_unwritten(one, like, buffers.sentinel) for one, like in zip(data, case.outputs, strict=True))
    if right and not unwritten:
        elements = sum(one.size for one in map(values_of, case.outputs))
        return passed(name, f"{seed}, {elements} element{'s' * (elements != 1)}{_shown(details)}")
    where = _map(problem, case, actual, buffers.sentinel)
    if where is not None and where.guess.startswith("C was never written"):
        found = "the output was never written: it holds what was there before"
    elif where is not None:
        found = f"{str(where).removesuffix('.')}{_shown(details)}"
    elif unwritten:
        found = f"{unwritten} elements were never written"
    else:
        found = f"verify_result fails it{_shown(details) or ', without details'}"
    return failed(name, f"{seed}: {found}", where.wrong if where else unwritten or 1, where)


def _shown(details: dict[str, Any]) -> str:
    """The numbers of verify_result's details."""
    plain = [f"{name} {value:.3g}" for name, value in details.items() if isinstance(value, int | float)]
    return f"; {', '.join(plain[:3])}" if plain else ""


def _unwritten(data: bytes, like: Any, sentinel: np.uint32) -> int:
    """Elements of at least 32 bits that hold the sentinel still; of shorter ones, all or none."""
    words = np.frombuffer(data[: len(data) // 4 * 4], np.uint32)
    held = int((words == sentinel).sum())
    size = nbytes(like) // max(1, len(values_of(like).ravel()))
    return held * 4 // size if size >= 4 or (words.size and held == words.size) else 0


def _map(problem: Problem, case: Case, actual: tuple[Any, ...], sentinel: np.uint32) -> ErrorMap | None:
    """The wrong elements of the first output that has some: all dimensions but the last are rows. None where no element
    is beyond the tolerance.
    """
    for like, found in zip(case.outputs, actual, strict=True):
        wrong = excess(like, found, problem.tolerance) > 1
        if wrong.any() and wrong.ndim:
            columns = wrong.shape[-1] if wrong.ndim > 1 else wrong.size
            output, right = (values_of(one).reshape(-1, columns) for one in (found, like))
            kept = rebuilt(like, (sentinel.tobytes() * (nbytes(like) // 4 + 1))[: nbytes(like)])
            return error_map(output, right, values_of(kept).ravel()[0], wrong=wrong.reshape(-1, columns))
    return None


def check_repeated(subject: Ready, problem: Problem, buffers: CaseBuffers) -> Stage:
    """Repeat a launch and compare the results bit by bit. Different bits fail an exact problem, and are stated for
    others: sums by atomics differ in the last bits. Raises LaunchFailed and BadSetting.
    """
    case, first = buffers.case, buffers.run(subject)
    for number in range(2, LAUNCHES + 1):
        again = buffers.run(subject)
        if again == first:
            continue
        actual = tuple(rebuilt(like, one) for like, one in zip(case.outputs, again, strict=True))
        one, other = (np.frombuffer(b"".join(outputs), np.uint8) for outputs in (first, again))
        count = int((one != other).sum())
        detail = f"in case {case.name}, launch {number} differs from the first in {count} bytes"
        if problem.is_exact or not problem.verified(case, actual)[0]:
            return failed(REPEATED, f"{detail}: a race", count)
        note = f"{detail}, within the tolerance: atomics, or a race"
        return Stage(REPEATED, True, count, 0, note, note=note)
    return passed(REPEATED, f"{LAUNCHES} launches of case {case.name}")
