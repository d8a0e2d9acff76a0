"""SGEMM's checker: stages that a problem with exact results and a precision class allows, and those at the benchmark
shape: exact integers, random inputs at sizes just below it, and the same bits when a launch is
repeated.

A kernel can be right on all small shapes and wrong at the benchmark's: a library switches to tensor
cores from some size on, a swizzle stops being a permutation, an index overflows. And the benchmark
shape is mostly a multiple of every tile. A verdict holds for the shape and for small ones. At a
larger shape an index may overflow, or blocks that wait for each other may not all fit the GPU at
once: then the launch does not end, and the child process that runs it is ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from worklog.errors import BadSetting, LaunchFailed
from worklog.gate import edges, exact, precision
from worklog.gate.checker import EVERY_LAUNCH, PROGRAMS, REPEATED, TIMED, Checker, LaunchProbe
from worklog.gate.exact import OPERAND_BITS, ExactProblem, Projection, error_map
from worklog.gate.guarded_buffer import Buffers, Memory
from worklog.gate.precision import PrecisionReference, check_hard_data, full_mantissa
from worklog.kernel import (
    WIDE,
    Compiled,
    Device,
    Kernel,
    Loaded,
    Program,
    Runnable,
    compile_cuda,
    is_computed,
)
from worklog.problem import SGEMM, Domain, Shape, random_inputs
from worklog.runs import Gpu, Stage, Verdict, failed, passed

BENCHMARK_SHAPE = "exact at the benchmark shape"
LAUNCHES = 3
POWERS = (-4.0, -2.0, -1.0, -0.5, -0.25, 0.25, 0.5, 2.0, 4.0)  # alpha
MOST_LOCATED = 1e11  # multiply-adds spent on an error map: a second or two of a CPU
RAGGED = "just below the benchmark shape"
MOST_CUT = 16  # pairs of rows, columns or terms
# repeated launches, and operations of all of them on a GPU
MOST = 20
LEAST = 3
MOST_FLOPS = 4e12
BLOCK = 256
OUTSIDE_KINDS = ("global-out-of-bounds", "misaligned")  # findings of a kernel outside of its domain
# Bits of each parameter, as PTX declares them; f: a float. Sizes of 64 bits are called "long M".
BITS = {p.name: "f32" if p.dtype == "float32" else "32" for p in SGEMM.signature if not p.pointer}
_DIFFER = Path(__file__).with_name("differ.cu")
DIFFER = Program(_DIFFER.name, _DIFFER.read_text(encoding="utf-8"), "differ")


@dataclass
class SmallShapes:
    """The stages of one kernel that no benchmark shape changes, for a session that checks it at several."""

    at: Shape | None = None  # the benchmark shape with which they ran
    stages: dict[str, Stage] = field(default_factory=dict)  # by the name of the check
    largest: tuple[int, int, int] | None = None  # M, N and K, each of any launch


class SgemmChecker(Checker):
    """Checks kernels at one shape. Raises CompileFailed, OutOfMemory.

    quick: search for rare paths for a shorter time.
    seed: of the problems, the same for every kernel, the baseline included; drawn after a kernel's
    source is fixed, so that no result can be prepared. a, b: the timed inputs, U(-1, 1) float32 of
    M x K and K x N. buffers: A, B and C on the device, holding them: the harness times on what the
    gate checked. The second C is for a loop in which kernel and baseline swap outputs;
    `buffers.memory` lends workspaces.
    """

    buffers: Buffers

    def __init__(self, device: Device, shape: Shape, seed: int, *, quick: bool = False) -> None:
        self.device = device
        self.shape = shape
        self.seed = seed
        self.quick = quick
        self._small = SmallShapes()
        self._rng = self._drawn(0)
        self.a, self.b = random_inputs(shape, self._rng)
        self._precision = PrecisionReference(self.a, self.b, self._rng)
        self.buffers = Buffers(Memory(device, self._rng), self.a, self.b)
        self.buffers.poison()
        self._differ = device.compile(DIFFER)
        self._probe_kernels = tuple(map(device.compile, PROGRAMS))
        self._exact: dict[tuple[str, bool, bool], list[Projection]] = {}

    def check(self, subject: Runnable, small: SmallShapes | None = None) -> Verdict:
        """Run every stage until one fails. The inputs are intact afterwards. Raises BadSetting.

        small: gets the stages that no benchmark shape changes; those that it has from an earlier
        call aren't run again.
        """
        self._small = SmallShapes() if small is None else small
        return super().check(subject)

    def stages(self, subject: Runnable) -> Iterator[Stage]:
        """From small shapes to the benchmark's, then precision and hard data."""
        buffers = self.buffers
        memory = self.buffers.memory
        domain = subject.domain
        claimed = subject.claimed
        self._rng = memory.rng = self._drawn(
            1
        )  # the same problems for each kernel, whatever was checked before
        getattr(self.device, "coverage", {}).clear()  # the emulator's, of this kernel alone
        if self.shape not in domain:
            yield failed("domain", f"size {self.shape} is outside the kernel's domain ({domain})")
        yield self._at_small_shapes(edges.check_edge_shapes, subject, part=3)
        if isinstance(subject, Loaded) and subject.variables(self.shape):
            yield edges.check_state(subject, memory)
        if domain.alpha or domain.beta:
            yield self._at_small_shapes(precision.check_scalars, subject, part=4)
        projections = self._exact_problems(claimed, domain)
        yield check_benchmark_shape(subject, buffers, projections)
        yield check_repeated(subject, buffers, projections[0].problem, self._differ)
        whole = claimed in precision.CLASSES
        short = False
        if whole:
            products = precision.check_products(subject, buffers, self._rng)
            short = bool(products.note)
            yield products
        buffers.restore()
        self.reached, stage = self._precision.judge("precision", buffers.run(subject), claimed)
        yield stage
        if whole:
            yield check_hard_data(subject, memory, short, self.shape)
        yield check_ragged(subject, buffers, partial(self.probe, claimed, rng=self._rng))
        yield self._at_small_shapes(edges.check_old_c, subject, part=5)
        yield self._at_small_shapes(edges.check_alignment, subject, part=6)
        if self.device.source == "emulated" and isinstance(subject, Loaded):
            from worklog.gate import (
                search,
            )  # imports the emulator, which a GPU's check doesn't need

            stage, self.never_ran = search.check_rare_paths(subject, memory, quick=self.quick)
            yield stage

    def _at_small_shapes(
        self, check: Callable[[Runnable, Memory], Stage], subject: Runnable, part: int
    ) -> Stage:
        """Return the stage of a check that no benchmark shape changes; it runs once for each `small` of check().

        part: of the seed, so that the other stages draw the same whether this one runs or not.
        """
        memory = self.buffers.memory
        small = self._small
        if check.__name__ in small.stages:
            stage = small.stages[check.__name__]
            if small.largest is not None:
                memory.reach(Shape(*small.largest))
            return replace(stage, detail=f"{stage.detail} (once for all sizes, with {small.at})")
        memory.rng = self._drawn(part)
        stage = check(subject, memory)
        memory.rng = self._rng
        small.at = self.shape
        small.largest = memory.largest
        small.stages[check.__name__] = stage
        return stage

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
        before, and the baseline of a timed loop computes -A B, so its output can't be mistaken for
        the kernel's.
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
        return LaunchProbe(
            self.device, self._probe_kernels, shape or self.shape, claimed, alpha, rng
        )

    def check_timed_launches(self, probe: LaunchProbe) -> Stage:
        """Check every launch of a loop that was probed. `buffers.restore` afterwards: the loop has changed A and B."""
        if outside := self.buffers.wrote_outside():
            return failed(EVERY_LAUNCH, outside)
        return probe.stage()

    def _exact_problems(self, claimed: str, domain: Domain) -> list[Projection]:
        """For a class and what the kernel takes, made on first use."""
        kind = claimed if claimed in OPERAND_BITS else "fp32"
        key = kind, domain.alpha, domain.beta
        if key not in self._exact:
            rng = self._drawn(2)
            self._exact[key] = exact_problems(
                self.shape, rng, kind, alpha=domain.alpha, beta=domain.beta
            )
        return self._exact[key]

    def _drawn(self, part: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *astuple(self.shape), part])


def ragged_shapes(shape: Shape, domain: Domain, rng: np.random.Generator) -> list[Shape]:
    """Up to four shapes in the domain, at most a few percent below this one: all sizes odd, all of them 4 times an odd
    number, which loads of four elements take, only K odd, and only N.
    """

    def below(size: int, step: int, multiple: int) -> int:
        if step > 1 or size <= multiple:
            return max(step, size - step)
        if multiple > 1:
            whole = (size - 1) // multiple
            return multiple * (whole - 1 + whole % 2)
        cut = size - 1 - 2 * int(rng.integers(max(1, min(MOST_CUT, size // 64))))
        return max(1, cut - 1 + cut % 2)

    sizes = (shape.m, domain.m), (shape.n, domain.n), (shape.k, domain.k)
    odd, fours = (
        Shape(*(below(size, step, multiple) for size, step in sizes)) for multiple in (1, 4)
    )
    shapes = [odd, fours, Shape(shape.m, shape.n, odd.k), Shape(shape.m, odd.n, shape.k)]
    if domain.square:
        step = max(domain.m, domain.n, domain.k)
        shapes = [domain.padded(Shape.of(max(1, shape.m - cut))) for cut in (2 * step, step)]
    return [smaller for smaller in dict.fromkeys(shapes) if smaller in domain and smaller != shape]


def exact_problems(
    shape: Shape,
    rng: np.random.Generator,
    claimed: str = "fp32",
    *,
    alpha: bool = True,
    beta: bool = True,
) -> list[Projection]:
    """One for each family on which a kernel of the class must be exact, at least three: the first with the usual alpha
    and beta, which is repeated, the others with an alpha, and with both. alpha, beta: whether the
    kernel takes it.

    alpha is a power of two with a sign, and beta and the old C are odd integers of 12 and 11 bits,
    because a fast path for large shapes can forget or shorten either; their product is as large as
    A B may be.
    """
    projections = []
    for index, name in enumerate((exact.families(claimed) * LAUNCHES)[:LAUNCHES]):
        with_beta = index == 2 and beta
        a, b = exact.family(name, shape, rng, claimed, int(with_beta))
        of_a, of_b = exact.stretch(a, b, (exact.exponents(rng), exact.exponents(rng)), claimed)
        power = float(rng.choice(POWERS)) if index and alpha else 1.0
        factor = (
            float(rng.choice((-1, 1)) * (2 * rng.integers(1024, 2048) + 1)) if with_beta else 0.0
        )
        odd = float(2 * rng.integers(512, 1024) + 1)
        before = odd * abs(power) * of_a * of_b if with_beta else None
        projections.append(
            Projection(ExactProblem(name, a, b, (of_a, of_b), power, factor, before), rng)
        )
    return projections


def check_benchmark_shape(
    subject: Runnable, buffers: Buffers, projections: list[Projection]
) -> Stage:
    """One launch per family: C must be exact in every row, and its guards intact. Raises LaunchFailed."""
    for projection in projections:
        problem = projection.problem
        buffers.restore(problem.a, problem.b)
        result = buffers.run(subject, problem.alpha, problem.beta, problem.before)
        scalars = (
            "" if problem.usual else f" with alpha = {problem.alpha:g}, beta = {problem.beta:g}"
        )
        launch = f"family {problem.family} at {buffers.shape}{scalars}"
        if result.trespass:
            return failed(BENCHMARK_SHAPE, f"{launch}: {result.trespass}")
        if not len(rows := projection.wrong_rows(result.c)):
            continue
        # What is expected in the wrong rows and columns, or in some of the rows if that is too much. In FP32: every
        # partial sum is an exact integer times a power of two, in BLAS's order too.
        columns = projection.wrong_columns(result.c)
        step = int(np.ceil(len(rows) * len(columns) * problem.a.shape[1] / MOST_LOCATED))
        seen = np.ix_(rows[:: max(1, step)], columns)
        right = problem.a[rows[:: max(1, step)]] @ problem.b[:, columns]
        expected = result.c.copy()
        if problem.before is None and (result.c == result.sentinel).all():  # nothing was written
            expected[...] = 0
        expected[seen] = problem.result(right)
        factors = np.float32(problem.alpha) * problem.a, problem.b
        where = error_map(result.c, expected, result.sentinel, factors)
        if mistake := problem.wrong_scalar(result.c[seen], right):
            where = replace(where, guess=f"This is the result if {mistake}.")
        return failed(BENCHMARK_SHAPE, f"{launch}: {where}", where.wrong, where)
    names = ", ".join(dict.fromkeys(projection.problem.family for projection in projections))
    return passed(BENCHMARK_SHAPE, f"families {names} at {buffers.shape}, no row wrong")


def check_ragged(
    subject: Runnable, buffers: Buffers, probe: Callable[[float, Shape], LaunchProbe]
) -> Stage:
    """One launch at each ragged shape, in the first elements of the buffers, whose inputs are lost. probe: for an
    alpha and a shape, new. Raises LaunchFailed.
    """
    memory = buffers.memory
    domain = subject.domain
    shapes = ragged_shapes(buffers.shape, domain, memory.rng)
    for number, shape in enumerate(shapes):
        alpha = full_mantissa(memory.rng) if domain.alpha and number != 1 else 1.0
        checks = probe(alpha, shape)
        buffers.poison()
        a, b, c = buffers.part(shape)
        checks.prepare(a, b, c)
        memory.launch(subject, shape, alpha, a, b, 0.0, c)
        checks.observe(c)
        checks.check(a, b)
        stage = checks.stage()
        detail = buffers.wrote_outside(4 * shape.m * shape.n) or (
            "" if stage.passed else stage.detail
        )
        if detail:
            return failed(
                RAGGED, f"at {shape} with alpha = {alpha:.9g}: {detail}", stage.measured or 1
            )
    return passed(
        RAGGED, f"at {', '.join(map(str, shapes)) or 'no shape: the domain has none'}, no row wrong"
    )


def check_repeated(
    subject: Runnable, buffers: Buffers, problem: ExactProblem, differ: Any
) -> Stage:
    """Repeat a launch and compare the results on the device: a race need not show in one launch, and on the dense
    integers of family E1 two launches of a right kernel agree bit by bit, even with atomics.
    differ: DIFFER, compiled. A race that is rarer needs compute-sanitizer's racecheck or the
    emulator. Raises LaunchFailed.
    """
    device = buffers.memory.device
    differs = device.upload(np.zeros(MOST, np.float32))
    a, b, c = buffers.abc
    affordable = min(MOST, int(MOST_FLOPS / buffers.shape.flops))
    most = LEAST if device.source == "emulated" else max(LEAST, affordable)
    launches = 1
    buffers.restore(problem.a, problem.b)
    buffers.run(subject)
    while launches < most:
        device.fill(buffers.spare, float(buffers.memory.sentinel()))
        buffers.memory.lend(subject, buffers.shape)
        subject.enqueue(buffers.shape, 1.0, a, b, 0.0, buffers.spare)
        arguments = (np.int64(c.size), c, buffers.spare, np.int32(launches), differs)
        device.launch(differ, (-(-c.size // BLOCK), 1), BLOCK, arguments)
        device.synchronize()
        launches += 1
    differing = np.flatnonzero(device.download(differs))
    if len(differing):
        which = ", ".join(str(i + 1) for i in differing[:5])
        detail = f"of {launches} launches on the same integers, number {which} differs from the first: a race"
        return failed(REPEATED, detail, len(differing))
    return passed(REPEATED, f"{launches} launches on the same integers")


def _bits(argument: str) -> str:
    """How PTX declares the parameter that takes an argument: "f32", "32" or "64"."""
    if argument.startswith(WIDE):
        return "64"
    return BITS.get(argument, "32" if is_computed(argument) else "64")


def compile_for(kernel: Kernel, gpu: Gpu | None) -> tuple[Compiled, str]:
    """The kernel compiled for a GPU, or None for the emulator, and the label of that machine; nothing is launched.
    Raises CompileFailed, and BadSetting for other parameters than the gate passes, or dynamic
    shared memory that isn't stated.
    """
    # Here: a measurement doesn't need the emulator.
    from worklog.emulator.symbols import types_of
    from worklog.kernel import emulated

    built: list[tuple[Compiled, str]] = []
    for part in kernel.passes:
        if gpu is None:
            built.append(emulated.build(part.program))
        else:
            built.append((compile_cuda(part.program, gpu.arch), f"live · {gpu.name}"))
        compiled = built[-1][0]
        program = built[-1][0].program
        name = f"{program.name}: {program.entry}"
        ptx = compiled.ptx
        entry = re.search(rf"\.entry\s+{re.escape(compiled.symbol)}\s*\((.*?)\)", ptx, re.DOTALL)
        if compiled.takes_dynamic_shared and not program.shared:
            takes = "dynamic shared memory (extern __shared__): give its bytes per block with --shared BYTES"
            unread = [said for said in kernel.adapted if "shared memory: give" in said]
            raise BadSetting("; ".join((f"{name} takes {takes}", *unread)))
        declared = (
            re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.([a-z]\d+)", entry[1]) if entry else ()
        )
        bits = tuple(kind if kind.startswith("f") else kind[1:] for kind in declared)
        if bits != tuple(map(_bits, part.arguments)):
            raise BadSetting(
                f"{name} takes {len(bits)} parameters of {', '.join(bits) or 'no'} bits, which don't take "
                f"({', '.join(part.arguments)}): give their order, as in --args 'A,B,C,M,N,K'; sizes are integers, "
                "alpha, beta and the matrices' elements are float"
            )
        for parameter, kind in zip(part.arguments, types_of(compiled.symbol), strict=False):
            if parameter in ("A", "B", "C") and kind.replace(" const", "") not in (
                "float*",
                "float2*",
                "float4*",
            ):
                raise BadSetting(f"{name} takes {kind} for {parameter}: the gate passes float*")
    return built[kernel.main]
