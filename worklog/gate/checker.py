"""One case of a problem, made ready on one device, and the stages that kernels go through on it; and the stages after
timing: every timed launch was right, the time is possible, the GPU is idle.

A declared problem is judged by its own verify_result, so its gate is as strict as that. SGEMM knows inputs that give an
exact result, so its gate needs no tolerance. A verdict holds for this case and for small ones. At a larger shape an
index may overflow, or blocks that wait for each other may not all fit the GPU at once: then the launch does not end,
and the child process that runs it is ended.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np

from worklog.errors import BadSetting, LaunchFailed
from worklog.gate.exact import NEVER_WRITTEN, error_map
from worklog.gate.guarded_buffer import GuardedBuffers, Memory
from worklog.gate.precision import UNIT_ROUNDOFF, projected_limits
from worklog.kernel import COMPILE_OPTIONS, Buffer, Device, Passed, Program, Runnable
from worklog.problem import (
    Case,
    Problem,
    Shape,
    Words,
    dtype_of,
    excess,
    is_array,
    mistake,
    raw,
    rebuilt,
    values_of,
)
from worklog.runs import NeverRan, Stage, Verdict, failed, passed

LAUNCH = "launch"
SEED_BITS = 32  # so that it can be typed
REPEATED = "bit-equal when repeated"
TIMED = "timed output"
FILLING = 0x4B  # a byte whose repetition is no result
LAUNCHES = (
    3  # of a case that is repeated: each with another sentinel, and with memory fouled in between
)
EVERY_LAUNCH = "every timed launch"
PLAUSIBLE = "plausible"
IDLE = "idle after the launch"
# of the peak; the second leaves room for a clock that is stated too low
WARN = 0.95
FAIL = 1.02
# more than after an empty kernel: microseconds, and share of the launch
WAIT_US = 50.0
WAIT = 0.02
SIGNIFICANT_BITS = {
    "tf32": 11,
    "f16": 11,
    "bf16": 8,
    "s8": 8,
    "u8": 8,
    "e4m3": 4,
    "e5m2": 3,
    "f64": 53,
}
DATAPATHS = {
    "f16": "fp16",
    "s8": "fp8",
    "u8": "fp8",
    "e4m3": "fp8",
    "e5m2": "fp8",
    "f64": "fp64_tensor",
}
BLOCK = 256
ROWS_PER_BLOCK = BLOCK // 32  # one warp per row
MOST_BLOCKS = 2048  # of the kernel that fills: each loops over the matrices
_SOURCE = Path(__file__).with_name("every_launch.cu")
OPTIONS = (*COMPILE_OPTIONS, f"-DUNIT_ROUNDOFF={UNIT_ROUNDOFF!r}", f"-DBLOCK={BLOCK}")
ENTRIES = ("refill", "observe", "project", "compare", "fold")
PROGRAMS = tuple(
    Program(_SOURCE.name, _SOURCE.read_text(encoding="utf-8"), entry, OPTIONS) for entry in ENTRIES
)


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
        self.device = device
        self.problem = problem
        self.case = case
        arrays: list[tuple[str, Any]] = []
        for number, (parameter, value) in enumerate(
            zip(problem.signature, case.arguments, strict=True)
        ):
            if number in case.written:
                arrays.append((parameter.name, value.nbytes))
            elif is_array(value):
                data = raw(value)
                arrays.append(
                    (parameter.name, np.frombuffer(data + bytes(-len(data) % 4), np.float32))
                )
        self.buffers = GuardedBuffers(Memory(device, np.random.default_rng(seed)), arrays)
        on_device = iter(self.buffers.arrays)
        roles = (
            ["input"] * len(case.inputs)
            + ["output"] * len(case.outputs)
            + ["extra"] * len(case.extras)
        )
        self.arguments = [
            Passed(parameter, value, next(on_device).inner if is_array(value) else None, role)
            for parameter, value, role in zip(problem.signature, case.arguments, roles, strict=True)
        ]

    def check(self, subject: Runnable) -> Verdict:
        """Run every stage until one fails. The inputs are intact afterwards. Raises BadSetting."""
        self.reached = None
        self.never_ran = ()
        self.buffers.memory.largest = None  # of this subject's launches alone
        ran = until_failure(self.stages(subject))
        if ran[-1].name == LAUNCH and (shape := self.buffers.memory.launched):
            first, newline, others = ran[-1].detail.partition("\n")
            ran = *ran[:-1], replace(ran[-1], detail=f"{first} (at {shape}){newline}{others}")
        with suppress(LaunchFailed):  # the context may be lost: the next launch reports it
            self.buffers.restore()
        least = astuple(subject.domain.padded(Shape.of(1)))
        return Verdict(
            ran,
            self.reached,
            self.seed,
            "",
            self.never_ran,
            self.buffers.memory.largest,
            least,
            square=subject.domain.square,
        )

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
            former, latter = (
                np.frombuffer(b"".join(outputs), np.uint8) for outputs in (first, again)
            )
            count = int(np.count_nonzero(former != latter))
            detail = (
                f"in case {self.case.name}, launch {number} differs from the first in {count} bytes"
            )
            if (
                self.problem.is_exact
                or not self.problem.verified(self.case, self._rebuilt(again))[0]
            ):
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
        return tuple(
            self.device.download(array.inner).tobytes()[: array.nbytes]
            for array in self.buffers.outputs
        )

    def _rebuilt(self, data: tuple[bytes, ...]) -> tuple[Any, ...]:
        return tuple(map(rebuilt, self.case.outputs, data))

    def _judged(self, name: str, data: tuple[bytes, ...]) -> Stage:
        """What verify_result says of the outputs, and whether all of them were written. The map has the wrong elements
        of the first output that has some: all dimensions but the last are rows.
        """
        seed = f"seed {self.case.seed}"
        outputs = self._rebuilt(data)
        if trespass := self.buffers.trespass():
            return failed(name, f"{seed}: {trespass}")
        try:
            right, details = self.problem.verified(self.case, outputs)
        except BadSetting as error:  # on this output, and not on the reference's
            return failed(name, f"{seed}: {str(error).removesuffix(': correct it')}")
        # Scalars of NumPy and tensors without dimensions are numbers, too.
        plain = {
            key: value.item() if getattr(value, "ndim", None) == 0 else value
            for key, value in details.items()
        }
        numbers = [
            f"{key} {value:.3g}" for key, value in plain.items() if isinstance(value, int | float)
        ]
        shown = f"; {', '.join(numbers[:3])}" if numbers else ""
        where = None
        elements = 0
        for like, output, written in zip(self.case.outputs, outputs, data, strict=True):
            values = values_of(like)
            elements += values.size
            before = (self.buffers.sentinel.tobytes() * (len(written) // 4 + 1))[: len(written)]
            same = np.frombuffer(written, np.uint8) == np.frombuffer(before, np.uint8)
            kept = same.reshape(*values.shape, len(written) // max(1, values.size)).all(axis=-1)
            if (
                like.nbytes < 4 * values.size and not kept.all()
            ):  # shorter elements can hold it by chance
                kept[...] = False
            right &= not kept.any()
            wrong = (excess(like, output, self.problem.tolerance) > 1) | kept
            if where is None and wrong.any():
                columns = wrong.shape[-1] if wrong.ndim > 1 else wrong.size
                actual, expected = (
                    array.reshape(-1, columns) for array in (values_of(output), values)
                )
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
    filled = tuple(
        rebuilt(like, np.full(like.nbytes, FILLING, np.uint8).tobytes()) for like in case.outputs
    )
    passes = False
    with suppress(BadSetting):  # it may raise on what is no result at all
        passes = problem.verified(case, filled)[0]
    if passes and not any(dtype_of(output) == "bool" for output in case.outputs):
        raise mistake(
            problem,
            "verify_result passes an output of one repeated value",
            "it checks nothing",
            case.name,
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


class LaunchProbe:
    """Checks each launch of one kernel in one timed loop, which computes C = alpha A B on buffers that it may refill:
    `prepare`, the launch, `observe`, `check`. Nothing here waits for the device before `stage`.

    A kernel can be right while it is checked and do something else while it is timed: copy an earlier result, leave out
    a tile of every second launch, or work on another stream and finish late. So before each timed launch A and B get
    new contents, a hash of a random key and the index, and C a sentinel. After the end event, C is projected on a
    vector of random signs, and C x is compared with alpha A (B x) in FP64. The rms over the rows of each launch has a
    limit too, because a limit on the largest error alone leaves room for a whole format (TF32 below fp32-emulated, BF16
    below TF32).

    The check evicts some of the kernel's code from the instruction caches. A kernel of about 10 µs reads a few percent
    longer, as does the baseline beside it (tests/gpu/test_gpu_every_launch.py prints by how much).

    kernels: PROGRAMS, compiled for the device. rng: for contents that a seed repeats; timed loops have none.
    """

    def __init__(
        self,
        device: Device,
        kernels: tuple[Any, ...],
        shape: Shape,
        claimed: str = "fp32",
        alpha: float = 1.0,
        rng: np.random.Generator | None = None,
    ) -> None:
        self._bits = (
            secrets.randbits if rng is None else lambda bits: int.from_bytes(rng.bytes(bits // 8))
        )
        self.device = device
        self.shape = shape
        self.alpha = alpha
        self._refill, self._observe, self._project, self._compare, self._fold = kernels
        self._sizes = np.int32(shape.m), np.int32(shape.n), np.int32(shape.k)
        self.limit, *self.rms_limits = projected_limits(claimed, shape)
        self.claimed = claimed
        self.launches = 0
        self._key = np.uint64(0)
        self._signs = np.uint64(0)
        self._found, self._record = (device.upload(np.zeros(12, np.float32)) for _ in range(2))
        self._cx = device.upload(np.zeros(2 * shape.m, np.float32))  # doubles
        self._bx, self._gauges = (
            device.upload(np.zeros(2 * shape.k, np.float32)) for _ in range(2)
        )

    def _launch(self, kernel: Any, blocks: int, *arguments: Any) -> None:
        self.device.launch(kernel, (blocks, 1), BLOCK, arguments)

    def prepare(self, a: Buffer, b: Buffer, c: Buffer) -> None:
        """Enqueue new contents for A and B, and a sentinel for C."""
        self.launches += 1
        self._key = np.uint64(self._bits(64))
        i64 = np.int64
        shape = self.shape
        in_a = i64(shape.m * shape.k)
        in_b = i64(shape.k * shape.n)
        in_c = i64(shape.m * shape.n)
        sentinel = np.float32(-3e30 * (1 + self._bits(16) / 2**16))
        blocks = min(MOST_BLOCKS, -(-int(max(in_a, in_b, in_c)) // BLOCK))
        self._launch(self._refill, blocks, self._key, in_a, a, in_b, b, in_c, c, sentinel)

    def observe(self, c: Buffer) -> None:
        """Draw signs, and enqueue the projection of C on them, directly after the launch."""
        self._signs = np.uint64(self._bits(64))
        (m, n, _) = self._sizes
        self._launch(
            self._observe,
            -(-self.shape.m // ROWS_PER_BLOCK),
            self._signs,
            m,
            n,
            c,
            self._cx,
            self._found,
        )

    def check(self, a: Buffer, b: Buffer) -> None:
        """Enqueue the comparison of the projection with the expected one."""
        m, n, k = self._sizes
        vectors = self._bx, self._gauges
        project = self._key, self._signs, n, k, b, *vectors, self._found
        self._launch(self._project, -(-self.shape.k // ROWS_PER_BLOCK), *project)
        last = np.float32(self.alpha), np.float32(self.limit), np.uint32(self.launches), self._found
        self._launch(
            self._compare,
            -(-self.shape.m // ROWS_PER_BLOCK),
            self._key,
            m,
            k,
            a,
            self._cx,
            *vectors,
            *last,
        )
        self.device.launch(self._fold, (1, 1), 1, (m, self._found, self._record))

    def stage(self) -> Stage:
        """Wait; the verdict on all launches since the start. Raises LaunchFailed."""
        record = self.device.download(self._record)  # every_launch.cu describes it
        error = float(record[0])
        off, changed, compared, last = (int(word) for word in record.view(np.uint32)[1:5])
        if compared != self.launches * self.shape.m % 2**32:
            return failed(
                EVERY_LAUNCH, f"only {compared} rows of {self.launches} launches were compared"
            )
        if changed:
            return failed(EVERY_LAUNCH, f"it changed {changed} elements of its inputs", changed)
        if off:
            where = f"first in launch {2**32 - 1 - last} of {self.launches}, on inputs new to the kernel"
            return failed(EVERY_LAUNCH, f"{off} rows off by more than rounding, {where}", off)
        for mean, most in zip(record[6:10].view(np.float64), self.rms_limits, strict=True):
            rms = float(np.sqrt(mean))
            if not rms <= most:
                detail = f"the rows of one launch of {self.launches} have an rms of {rms:.4g} u·D (up to {most:.4g})"
                return Stage(
                    EVERY_LAUNCH, False, rms, most, f"{detail}; {self.claimed} was claimed"
                )
        detail = f"{self.launches} launches, each on new inputs: rows within {error:.3g} u·D"
        return Stage(EVERY_LAUNCH, True, error, self.limit, f"{detail} (up to {self.limit:.4g})")


def fp32_roof(operands: Iterable[str] | None, peaks: Mapping[str, float]) -> tuple[float, str]:
    """TFLOP/s of FP32 results that FP32 lanes and tensor cores reach together, and by what.

    operands: PTX types of the tensor cores' operands in the kernel's code; None: any of them. peaks: as
    worklog.gpu.clocks.Peaks. An FP32 number has 24 bits, so it is the sum of at least n = 24 // bits numbers of a type,
    which needs at least n (n + 1) / 2 products: two numbers of 11 bits, the second one with a sign, hold 23 bits or
    more, and the product of the small ones is below FP32's rounding. A type that isn't known needs one product.
    """
    fp32 = peaks["fp32"]
    best = (peaks["fp32"], "FP32 lanes")
    for type_ in SIGNIFICANT_BITS if operands is None else operands:
        parts = max(24 // SIGNIFICANT_BITS.get(type_, 24), 1)
        products = parts * (parts + 1) // 2
        rate = peaks.get(DATAPATHS.get(type_, type_), max(peaks.values())) / products
        of = f"{products} products of {type_}" if products > 1 else f"one product of {type_}"
        best = max(best, (fp32 + rate, f"{of} on tensor cores, and FP32 lanes"))
    return best


def check_plausible(
    shape: Shape, microseconds: float, peak_tflops: float, by: str = "FP32 lanes"
) -> Stage:
    """Whether the datapaths that the kernel's code uses can do 2MNK operations in this time. A shorter time has lost
    work or a part of the time: the events were on another stream, an algorithm with fewer operations wasn't declared,
    or the class is wrong. Biased measurements are expected to be impossible and aren't checked.

    peak_tflops, by: of fp32_roof, at the highest clock. A time of zero or less fails.
    """
    share = shape.flops / microseconds / 1e6 / peak_tflops if microseconds > 0 else float("inf")
    detail = f"{100 * share:.1f} % of the {peak_tflops:.1f} TFLOP/s that are possible by {by}"
    if share > FAIL:
        detail += ": work or time is missing"
    elif share > WARN:
        detail += ": suspiciously close"
    return Stage(PLAUSIBLE, share <= FAIL, share, FAIL, detail)


def check_idle(waits_us: Sequence[float], us: float) -> Stage:
    """waits_us: of some launches, microseconds from the end of the harness's stream to the end of all work on the GPU,
    beyond what an empty kernel needs. us: of one launch. The median decides: unjoined work is there every time. An
    interrupt of the host in the wait makes it longer, and one between the launch and the wait makes it shorter.
    """
    left = float(np.median(waits_us))
    limit = WAIT_US + WAIT * us
    detail = f"{left:.1f} µs after the launch the whole GPU was idle"
    if left > limit:
        detail += (
            ": it leaves work on a stream that it doesn't join, and the events don't time that work"
        )
    return Stage(IDLE, left <= limit, left, limit, detail)
