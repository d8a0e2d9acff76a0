"""Checks kernels on one case of a problem, stage after stage, and what was timed.

The stages after timing: every timed launch was right, the time is possible, the GPU is idle.

A declared problem is judged by its own verify_result, so its gate is as strict as that. SGEMM knows
inputs that give an exact result, so its gate needs no tolerance. A verdict holds for this case and
for small ones. At a larger shape an index may overflow, or blocks that wait for each other may not
all fit the GPU at once: then the launch doesn't end, and the child process that runs it is ended.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from worklog.errors import BadSetting, LaunchFailed
from worklog.gate.exact import NEVER_WRITTEN, error_map
from worklog.gate.guarded_buffer import GuardedBuffers, Memory
from worklog.gate.precision import BY_NORM, NORM_LEVELS, UNIT_ROUNDOFF, projected_limits
from worklog.kernel import COMPILE_OPTIONS, Buffer, Device, Program, Runnable
from worklog.kernel.solution import Passed
from worklog.problem import Case, Problem, Shape, Words, mistake
from worklog.problem.arrays import dtype_of, excess, is_array, raw, rebuilt, values_of
from worklog.problem.formats import FLOAT32, SINGLE, Format, Types
from worklog.runs import ErrorMap, NeverRan, Stage, Verdict, failed, passed

LAUNCH = "launch"
SEED_BITS = 32  # so that it can be typed
REPEATED = "bit-equal when repeated"
TIMED = "timed output"
FILLING = 0x4B  # a byte whose repetition is no result
# Of a case that is repeated: each with another sentinel, and with memory fouled in between.
LAUNCHES = 3
EVERY_LAUNCH = "every timed launch"
PLAUSIBLE = "plausible"
IDLE = "idle after the launch"
# Shares of the peak. The second leaves room for a clock that is stated too low.
WARN = 0.95
FAIL = 1.02
# Longer waits than after an empty kernel: in microseconds, and as a share of the launch.
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


class Checker:
    """Checks kernels on one case of a problem, stage after stage until one fails.

    A problem with stages of its own derives from it. Raises BadSetting, CompileFailed, OutOfMemory.

    seed: of sentinels and of what else the stages draw; None if a verdict needn't state it
    arguments: what a solution gets, on the device
    buffers: the arrays of the arguments, between guard bands
    reached: the precision that the last check found
    never_ran: what no launch of the last check ran
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
        parameters = zip(problem.signature, case.arguments, strict=True)
        for number, (parameter, value) in enumerate(parameters):
            if number in case.written:
                arrays.append((parameter.name, value.nbytes))
            elif is_array(value):
                data = raw(value)
                padded = data + bytes(-len(data) % 4)
                arrays.append((parameter.name, np.frombuffer(padded, np.float32)))
        self.buffers = GuardedBuffers(Memory(device, np.random.default_rng(seed)), arrays)
        roles = ["input"] * len(case.inputs)
        roles += ["output"] * len(case.outputs)
        roles += ["extra"] * len(case.extras)
        on_device = iter(self.buffers.arrays)
        self.arguments = [
            Passed(parameter, value, next(on_device).inner if is_array(value) else None, role)
            for parameter, value, role in zip(problem.signature, case.arguments, roles, strict=True)
        ]

    def check(self, subject: Runnable) -> Verdict:
        """Run every stage until one fails. Raises BadSetting.

        The inputs are intact afterwards.
        """
        self.reached = None
        self.never_ran = ()
        self.buffers.memory.shapes.clear()  # of this subject's launches alone
        stages = until_failure(self.stages(subject))
        shape = self.buffers.memory.launched
        if stages[-1].name == LAUNCH and shape:
            first, newline, lines = stages[-1].detail.partition("\n")
            failure = replace(stages[-1], detail=f"{first} (at {shape}){newline}{lines}")
            stages = (*stages[:-1], failure)
        with suppress(LaunchFailed):  # the context may be lost: the next launch reports it
            self.buffers.restore()
        return Verdict(
            stages,
            self.reached,
            self.seed,
            "",
            self.never_ran,
            self.buffers.memory.largest,
            subject.domain.padded(Shape.of(1)).sizes,
            square=subject.domain.square,
            ran=self.buffers.memory.value_counts,
            types="" if subject.types == SINGLE else str(subject.types),
        )

    def stages(self, subject: Runnable) -> Iterator[Stage]:
        """Launch the subject on the case, and repeat the launch.

        The precision is the dtype.
        """
        yield self.check_case(subject)
        yield self.check_repeated(subject)
        self.reached = self.problem.dtype

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return sum(value.nbytes for value in self.case.arguments if is_array(value))

    def check_case(self, subject: Runnable) -> Stage:
        """Launch once on the case's inputs. Raises LaunchFailed and BadSetting."""
        return self._judged(f"case {self.case.name}", self._run(subject))

    def check_repeated(self, subject: Runnable) -> Stage:
        """Repeat a launch and compare the results bit by bit.

        Different bits fail an exact problem, and are stated for others: sums by atomics differ in
        the last bits. Raises LaunchFailed and BadSetting.
        """
        first = self._run(subject)
        for number in range(2, LAUNCHES + 1):
            repeated = self._run(subject)
            if repeated == first:
                continue
            first_bytes = np.frombuffer(b"".join(first), np.uint8)
            repeated_bytes = np.frombuffer(b"".join(repeated), np.uint8)
            count = int(np.count_nonzero(first_bytes != repeated_bytes))
            launch = f"in case {self.case.name}, launch {number}"
            detail = f"{launch} differs from the first in {count} bytes"
            is_within_tolerance = (
                not self.problem.is_exact
                and self.problem.verified(self.case, self._rebuilt(repeated))[0]
            )
            if not is_within_tolerance:
                return failed(REPEATED, f"{detail}: a race", count)
            note = f"{detail}, within the tolerance: atomics, or a race"
            return passed(REPEATED, note, measured=count, note=note)
        return passed(REPEATED, f"{LAUNCHES} launches of case {self.case.name}")

    def check_timed_output(self, subject: Runnable) -> Stage:
        """Check what the timed launches left in the outputs. Raises LaunchFailed.

        The outputs were poisoned before.
        """
        return self._judged(TIMED, self._outputs(subject))

    def _run(self, subject: Runnable) -> tuple[bytes, ...]:
        """Poison, launch once, and return the outputs."""
        self.buffers.poison()
        self.buffers.memory.foul()
        subject.enqueue(*self.arguments)
        return self._outputs(subject)

    def _outputs(self, subject: Runnable) -> tuple[bytes, ...]:
        """Return the bytes of each output."""
        subject.collect(*self.arguments)
        return tuple(
            self.device.download(array.inner).tobytes()[: array.nbytes]
            for array in self.buffers.outputs
        )

    def _rebuilt(self, data: tuple[bytes, ...]) -> tuple[Any, ...]:
        """Return outputs of the types of the case's outputs."""
        return tuple(map(rebuilt, self.case.outputs, data))

    def _judged(self, name: str, data: tuple[bytes, ...]) -> Stage:
        """Return the stage of a launch: were all outputs written, and does verify_result pass them?

        The map has the wrong elements of the first output that has some: all dimensions but the
        last are rows.

        data: the bytes of each output
        """
        seed = f"seed {self.case.seed}"
        outputs = self._rebuilt(data)
        if trespass := self.buffers.trespass():
            return failed(name, f"{seed}: {trespass}")
        try:
            is_right, details = self.problem.verified(self.case, outputs)
        except BadSetting as error:  # on this output, and not on the reference's
            return failed(name, f"{seed}: {str(error).removesuffix(': correct it')}")
        numbers = _numbers_in_words(details)
        wrong_map: ErrorMap | None = None
        for expected, output, written in zip(self.case.outputs, outputs, data, strict=True):
            unwritten = self._unwritten(expected, written)
            if unwritten.any():
                is_right = False
            wrong = (excess(expected, output, self.problem.tolerance) > 1) | unwritten
            if wrong_map is None and wrong.any():
                wrong_map = self._error_map(expected, output, written, wrong)
        if is_right:
            count = sum(values_of(output).size for output in self.case.outputs)
            elements = "element" if count == 1 else "elements"
            return passed(name, f"{seed}, {count} {elements}{numbers}")
        if wrong_map is None:
            return failed(name, f"{seed}: verify_result fails it{numbers or ', without details'}")
        detail = f"{str(wrong_map).removesuffix('.')}{numbers}"
        if wrong_map.guess.startswith(NEVER_WRITTEN):
            detail = "the output was never written: it holds what was there before"
        return failed(name, f"{seed}: {detail}", wrong_map.wrong, wrong_map)

    def _sentinels(self, nbytes: int) -> bytes:
        """Return what an output of this size holds before a launch."""
        return (self.buffers.sentinel.tobytes() * (nbytes // 4 + 1))[:nbytes]

    def _unwritten(self, expected: Any, written: bytes) -> Any:
        """Return which elements of an output were not written.

        Elements shorter than the sentinel can hold a part of it by chance. So of those, all are
        unwritten or none.

        expected: the case's output
        written: the bytes of the output after the launch
        """
        values = values_of(expected)
        poison = np.frombuffer(self._sentinels(len(written)), np.uint8)
        is_same = np.frombuffer(written, np.uint8) == poison
        by_element = is_same.reshape(*values.shape, len(written) // max(1, values.size))
        unwritten = by_element.all(axis=-1)
        if expected.nbytes < 4 * values.size and not unwritten.all():
            unwritten[...] = False
        return unwritten

    def _error_map(self, expected: Any, output: Any, written: bytes, wrong: Any) -> ErrorMap:
        """Return a map of the wrong elements of one output."""
        columns = wrong.shape[-1] if wrong.ndim > 1 else wrong.size
        sentinels = values_of(rebuilt(expected, self._sentinels(len(written))))
        return error_map(
            values_of(output).reshape(-1, columns),
            values_of(expected).reshape(-1, columns),
            sentinels.ravel()[0],
            wrong=wrong.reshape(-1, columns),
        )


def _numbers_in_words(details: Mapping[str, Any]) -> str:
    """Return the first three numbers among verify_result's details, behind a semicolon, or ""."""
    numbers = list[str]()
    for key, detail in details.items():
        # Scalars of NumPy and tensors without dimensions are numbers, too.
        value = detail.item() if getattr(detail, "ndim", None) == 0 else detail
        if isinstance(value, int | float):
            numbers.append(f"{key} {value:.3g}")
    return f"; {', '.join(numbers[:3])}" if numbers else ""


def require_sound(problem: Problem, case: Case) -> None:
    """Raise BadSetting for a verify_result that can't tell right from wrong.

    It fails the reference's own result, or passes a result that is all wrong.
    """
    if not problem.verified(case, case.outputs)[0]:
        causes = "NaN in it, or a reference that isn't deterministic"
        raise mistake(problem, "verify_result fails the reference's own result", causes, case.name)
    filled = tuple(
        rebuilt(output, np.full(output.nbytes, FILLING, np.uint8).tobytes())
        for output in case.outputs
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
    progress: Callable[[int, int, str], None] = lambda _number, _total, _label: None,
) -> Verdict:
    """Check each case until one fails; then repeat the launch of the largest one.

    Raises what Checker raises.

    progress: called with the number of a case, the number of all cases, and a label
    """

    def stages() -> Iterator[Stage]:
        largest: Checker | None = None
        for number, case in enumerate(cases):
            progress(number, len(cases), f"case {case['name']}")
            checker = Checker(device, problem, problem.prepared(case), seed)
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
    """Return the stages up to the first that fails, each with the seconds that it took.

    A launch that fails is a failed stage.
    """
    ran: list[Stage] = []
    try:
        while not ran or ran[-1].passed:
            ran.append(timed(lambda: next(stages)))
    except StopIteration:
        pass
    except LaunchFailed as error:
        ran.append(failed(LAUNCH, str(error)))
    return tuple(ran)


def programs_for(types: Types) -> tuple[Program, ...]:
    """Return the programs of a probe for matrices of these formats."""
    options: tuple[str, ...] = OPTIONS
    if types != SINGLE:
        for matrix, name in zip("ABC", types.names, strict=True):
            type_ = "float" if name == "float32" else name
            options = (*options, f"-DTYPE_{matrix}={type_}")
        options += tuple(f"-D{matrix}_BY_COLUMNS" for matrix in types.by_columns)
        for matrix, format_ in (("A", types.a), ("B", types.b)):
            options = (*options, f"-DSIZE_{matrix}={format_.usual_size}f")
    source = _SOURCE.read_text(encoding="utf-8")
    return tuple(Program(_SOURCE.name, source, entry, options) for entry in ENTRIES)


class LaunchProbe:
    """Checks each launch of one kernel in one timed loop that computes C = alpha A B.

    The loop's buffers may be refilled. For each launch: `prepare`, the launch, `observe`, `check`.
    Nothing here waits for the device before `stage`.

    A kernel can be right while it is checked and do something else while it is timed: copy an
    earlier result, leave out a tile of every second launch, or work on another stream and finish
    late. So before each timed launch A and B get new contents, a hash of a random key and the
    index, and C a sentinel. After the end event, C is projected on a vector of random signs, and C
    x is compared with alpha A (B x) in FP64. The rms over the rows of each launch also has a limit,
    because a limit on the largest error alone leaves room for a whole format (TF32 below
    fp32-emulated, BF16 below TF32).

    The check evicts some of the kernel's code from the instruction caches. A kernel of about 10 µs
    reads a few percent longer, as does the baseline beside it (tests/gpu/test_gpu_every_launch.py
    prints by how much).

    kernels: as programs_for returns them, compiled for the device
    format_c: of C
    rng: for contents that a seed repeats; timed loops have none
    """

    checked = "rows"  # what of C is compared
    unit = "u·D"  # of the largest error

    def __init__(
        self,
        device: Device,
        kernels: tuple[Any, ...],
        shape: Shape,
        format_c: Format = FLOAT32,
        *,
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
        self._products = np.int32(shape.batch)
        self._rows = shape.batch * shape.m  # of all C
        self.limit, *self.rms_limits = projected_limits(claimed, shape, format_c)
        self._smallest_sentinel = _smallest_sentinel(format_c)
        self.claimed = claimed
        self.launches = 0
        self._key = np.uint64(0)
        self._signs = np.uint64(0)
        self._sums, self._record = (device.upload(np.zeros(12, np.float32)) for _ in range(2))
        self._cx = device.upload(np.zeros(2 * self._rows, np.float32))  # doubles
        self._bx, self._gauges = (
            device.upload(np.zeros(2 * shape.batch * shape.k, np.float32)) for _ in range(2)
        )

    def _launch(self, kernel: Any, blocks: int, *arguments: Any) -> None:
        """Enqueue one of the probe's kernels."""
        self.device.launch(kernel, (blocks, 1), BLOCK, arguments)

    def prepare(self, a: Buffer, b: Buffer, c: Buffer) -> None:
        """Enqueue new contents for A and B, and a sentinel for C."""
        self.launches += 1
        self._key = np.uint64(self._bits(64))
        in_a, in_b, in_c = map(np.int64, self.shape.elements)
        sentinel = np.float32(self._smallest_sentinel * (1 + self._bits(16) / 2**16))
        blocks = min(MOST_BLOCKS, -(-int(max(in_a, in_b, in_c)) // BLOCK))
        self._launch(self._refill, blocks, self._key, in_a, a, in_b, b, in_c, c, sentinel)

    def observe(self, c: Buffer) -> None:
        """Draw signs, and enqueue the projection of C on them.

        Call it directly after the launch.
        """
        self._signs = np.uint64(self._bits(64))
        blocks = -(-self._rows // ROWS_PER_BLOCK)
        sizes = np.int32(self._rows), self._sizes[1]
        self._launch(self._observe, blocks, self._signs, *sizes, c, self._cx, self._sums)

    def check(self, a: Buffer, b: Buffer) -> None:
        """Enqueue the comparison of the projection with the expected one."""
        m, n, k = self._sizes
        vectors = (self._bx, self._gauges)
        in_b = (self._key, self._signs, self._products, n, k, b)
        blocks = -(-self.shape.batch * self.shape.k // ROWS_PER_BLOCK)
        self._launch(self._project, blocks, *in_b, *vectors, self._sums)
        in_a = (self._key, self._products, m, k, a, self._cx)
        limits = (np.float32(self.alpha), np.float32(self.limit), np.uint32(self.launches))
        blocks = -(-self._rows // ROWS_PER_BLOCK)
        self._launch(self._compare, blocks, *in_a, *vectors, *limits, self._sums)
        self._add_up()

    def _add_up(self) -> None:
        """Enqueue the kernel that adds what one launch left to the record."""
        arguments = (np.int32(self._rows), self._sums, self._record)
        self.device.launch(self._fold, (1, 1), 1, arguments)

    def stage(self) -> Stage:
        """Wait, and return the stage of all launches since the start.

        Raises LaunchFailed.
        """
        record = self.device.download(self._record)  # every_launch.cu describes it
        error = float(record[0])
        wrong, changed, compared, last = (int(bits) for bits in record.view(np.uint32)[1:5])
        if compared != self.launches * self._rows % 2**32:
            detail = f"only {compared} {self.checked} of {self.launches} launches were compared"
            return failed(EVERY_LAUNCH, detail)
        if changed:
            return failed(EVERY_LAUNCH, f"it changed {changed} elements of its inputs", changed)
        if wrong:
            first = f"first in launch {2**32 - 1 - last} of {self.launches}"
            detail = f"{wrong} {self.checked} off by more than rounding, {first}, "
            detail += "on inputs new to the kernel"
            return failed(EVERY_LAUNCH, detail, wrong)
        for mean, limit in zip(record[6:10].view(np.float64), self.rms_limits, strict=True):
            rms = float(np.sqrt(mean))
            if not rms <= limit:
                detail = (
                    f"the {self.checked} of one launch of {self.launches} have an rms of "
                    f"{rms:.4g} u·D (up to {limit:.4g})"
                )
                detail += f"; {self.claimed} was claimed"
                return Stage(EVERY_LAUNCH, False, rms, limit, detail)
        detail = f"{self.launches} launches, each on new inputs: {self.checked} within {error:.3g}"
        detail += f" {self.unit} (up to {self.limit:.4g})"
        return Stage(EVERY_LAUNCH, True, error, self.limit, detail)


def _smallest_sentinel(format_: Format) -> float:
    """Return the number of the smallest size that a launch's sentinel has.

    The sentinel is up to twice as large. It is far from usual results.
    """
    if format_.is_integer:
        return -(2.0**29)
    return -3e30 if format_.largest > 6e30 else -3e4


def fp32_roof(
    operands: Iterable[str] | None, peaks: Mapping[str, float], claimed: str = "fp32"
) -> tuple[float, str]:
    """Return the highest TFLOP/s of FP32 results, and the datapaths that reach them.

    FP32 lanes and tensor cores work together. An FP32 number has 24 bits, so it is the sum of at
    least n = 24 // bits numbers of a type, which needs at least n (n + 1) / 2 products: two numbers
    of 11 bits, the second one with a sign, hold 23 bits or more, and the product of the small ones
    is below FP32's rounding. An unknown type needs one product. The class fp32-norm admits
    algorithms that multiply less, and the rate counts the multiplications that they replace.

    operands: PTX types of the tensor cores' operands in the kernel's code; None for any of them
    peaks: as worklog.gpu.clocks.Peaks, in TFLOP/s
    claimed: the kernel's class
    """
    best = (peaks["fp32"], "FP32 lanes")
    for type_ in SIGNIFICANT_BITS if operands is None else operands:
        parts = max(24 // SIGNIFICANT_BITS.get(type_, 24), 1)
        products = parts * (parts + 1) // 2
        rate = peaks.get(DATAPATHS.get(type_, type_), max(peaks.values())) / products
        work = f"{products} products of {type_}" if products > 1 else f"one product of {type_}"
        best = max(best, (peaks["fp32"] + rate, f"{work} on tensor cores, and FP32 lanes"))
    if claimed == BY_NORM:
        peak, in_words = best
        products = 7**NORM_LEVELS
        replaced = 8**NORM_LEVELS
        fewer = f"{in_words} with {products} products in place of {replaced}"
        return peak * replaced / products, fewer
    return best


def check_plausible(
    shape: Shape, microseconds: float, peak_tflops: float, datapaths: str = "FP32 lanes"
) -> Stage:
    """Check that the kernel's datapaths can do 2MNK operations in this time.

    A shorter time has lost work or a part of the time: the events were on another stream, an
    algorithm with fewer operations wasn't declared by the class, or the class is wrong. Biased
    measurements are expected to be impossible and aren't checked. A time of zero or less fails.

    peak_tflops: the rate of fp32_roof, at the highest clock
    datapaths: the datapaths of fp32_roof, in words
    """
    share = shape.flops / microseconds / 1e6 / peak_tflops if microseconds > 0 else float("inf")
    detail = (
        f"{100 * share:.1f} % of the {peak_tflops:.1f} TFLOP/s that are possible by {datapaths}"
    )
    if share > FAIL:
        detail += ": work or time is missing"
    elif share > WARN:
        detail += ": suspiciously close"
    return Stage(PLAUSIBLE, share <= FAIL, share, FAIL, detail)


def check_idle(waits_us: Sequence[float], us: float) -> Stage:
    """Check that the GPU is idle soon after a launch.

    The median wait decides: unjoined work is there every time. An interrupt of the host in the wait
    makes it longer, and one between the launch and the wait makes it shorter.

    waits_us: of some launches, the time from the end of the harness's stream to the end of all work
    on the GPU, beyond what an empty kernel needs
    us: the time of one launch
    """
    wait_us = float(np.median(waits_us))
    limit_us = WAIT_US + WAIT * us
    detail = f"{wait_us:.1f} µs after the launch the whole GPU was idle"
    if wait_us > limit_us:
        detail += (
            ": it leaves work on a stream that it doesn't join, and the events don't time that work"
        )
    return Stage(IDLE, wait_us <= limit_us, wait_us, limit_us, detail)
