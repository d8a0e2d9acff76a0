"""SGEMM's checker: stages for exact results and a precision class.

Some stages run at the benchmark shape: exact integers, random inputs at sizes just below it, and
the same bits when a launch is repeated.

A kernel can be right on all small shapes and wrong at the benchmark's: a library switches to tensor
cores from some size on, a swizzle stops being a permutation, an index overflows. And the benchmark
shape is mostly a multiple of every tile. A verdict holds for the shape and for small ones. At a
larger shape an index may overflow, or blocks that wait for each other may not all fit the GPU at
once: then the launch doesn't end, and the child process that runs it is ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from worklog.errors import BadSetting, LaunchFailed, apart
from worklog.gate import (
    batch,
    edges,
    exact,
    integers,
    kept_state,
    large_sums,
    leading,
    norms,
    operands,
    precision,
    sweeps,
)
from worklog.gate.checker import (
    EVERY_LAUNCH,
    REPEATED,
    TIMED,
    Checker,
    LaunchProbe,
    programs_for,
)
from worklog.gate.elements import ElementProbe, TimedOperands, element_programs
from worklog.gate.exact import OPERAND_BITS, ExactProblem, Projection, error_map
from worklog.gate.guarded_buffer import Buffers, LaunchResult, Memory
from worklog.gate.precision import PrecisionReference, check_hard_data, full_mantissa
from worklog.kernel import (
    COMPILE_OPTIONS,
    Buffer,
    Device,
    Loaded,
    Program,
    Runnable,
)
from worklog.kernel.left_out import in_words, left_out_lines
from worklog.problem import Domain, Float32, Shape, random_inputs
from worklog.problem.formats import FLOAT16, FLOAT32, SINGLE, ClaimedResult, Format, Types
from worklog.runs import ErrorMap, Stage, Verdict, failed, passed
from worklog.runs.text import before_lines

BENCHMARK_SHAPE = "exact at the benchmark shape"
LAUNCHES = 3
POWERS = (-4.0, -2.0, -1.0, -0.5, -0.25, 0.25, 0.5, 2.0, 4.0)  # alpha
MOST_ON_HOST = 2**22  # elements of a matrix in a corner whose result is computed on the host
MOST_LOCATED = 1e11  # multiply-adds spent on an error map: a second or two of a CPU
RAGGED = "just below the benchmark shape"
MOST_CUT = 16  # pairs of rows, columns or terms
# The most and the fewest launches of a repetition, and the most operations of all of them on a GPU.
MOST = 20
LEAST = 3
MOST_FLOPS = 4e12
BLOCK = 256
OUTSIDE_KINDS = ("global-out-of-bounds", "misaligned")  # findings of a kernel outside of its domain
_DIFFER = Path(__file__).with_name("differ.cu")


@dataclass
class SmallShapes:
    """The stages of one kernel that no benchmark shape changes.

    For a session that checks it at several shapes.
    """

    checked_with: Shape | None = None  # the benchmark shape with which they ran
    stages: dict[str, Stage] = field(default_factory=dict)  # by the name of the check
    shapes: set[Shape] = field(default_factory=set)  # of the launches


class SgemmChecker(Checker):
    """Checks kernels at one shape. Raises CompileFailed, OutOfMemory.

    It has matrices in place of a case, whose expected output is a whole product in float64: that
    takes up to minutes at a benchmark's shape, and no input of a case makes the result exact.

    quick: whether to search for rare paths for a shorter time
    sweep: whether to launch each size that the verdict states
    seed: of the problems, the same for every kernel and for the baseline; drawn after a kernel's
    source is fixed, so that no result can be prepared
    types: the formats of A, B and C; a subject's must be the same
    a, b: the timed inputs, U(-1, 1) of M x K and K x N, rounded to their formats; those of a batch
    have the products first
    buffers: A, B and C on the device, with these inputs: the harness times on what the gate
    checked. The second C is for a loop in which kernel and baseline swap outputs; `buffers.memory`
    lends workspaces.
    """

    buffers: Buffers

    def __init__(
        self,
        device: Device,
        shape: Shape,
        seed: int,
        *,
        types: Types = SINGLE,
        quick: bool = False,
        sweep: bool = False,
    ) -> None:
        self.device = device
        self.shape = shape
        self.seed = seed
        self.quick = quick
        self.sweep = sweep
        self.types = types
        self._small = SmallShapes()
        self._rng = self._drawn(0)
        self.a, self.b = random_inputs(shape, self._rng, types=types)
        self._precision = PrecisionReference(*self._factors(0), self._rng, types)
        self.buffers = Buffers(Memory(device, self._rng, types), self.a, self.b)
        self.buffers.poison()
        self._differ = device.compile(differ_for(types.c))
        self._probe_kernels = tuple(map(device.compile, programs_for(types)))
        self._exact: dict[tuple[str, bool, bool], list[Projection]] = {}
        self._element_kernels: tuple[Any, ...] = ()  # compiled when they are needed

    def check(self, subject: Runnable, small: SmallShapes | None = None) -> Verdict:
        """Run every stage until one fails. Raises BadSetting, also for a batch.

        The inputs are intact afterwards. A batch has a stage at the shape of one product.

        subject: whose types are this checker's
        small: gets the stages that no benchmark shape changes; the stages that it has from an
        earlier call aren't run again
        """
        if subject.types != self.types:
            raise BadSetting(
                f"{subject.name} takes {subject.types} matrices, and these are {self.types}"
            )
        if self.shape.batch > 1:
            raise BadSetting(f"{self.shape}: check one product, at {self.shape.single}")
        self._small = SmallShapes() if small is None else small
        return super().check(subject)

    def stages(self, subject: Runnable) -> Iterator[Stage]:
        """Yield the stages: small shapes, the benchmark's, precision and hard data."""
        buffers = self.buffers
        memory = self.buffers.memory
        domain = subject.domain
        claim = subject.claim
        # The same problems for each kernel, whatever was checked before.
        self._rng = self._drawn(1)
        memory.rng = self._rng
        getattr(self.device, "coverage", {}).clear()  # the emulator's, of this kernel alone
        if self.shape not in domain:
            yield failed("domain", f"size {self.shape} is outside the kernel's domain ({domain})")
        if self.types.epilogue and isinstance(subject, Loaded):
            yield self._with_readings(operands.check_operands, subject, part=14)
        yield self._with_readings(edges.check_edge_shapes, subject, part=3)
        yield from self._kept_state(subject)
        if (domain.alpha or domain.beta) and not self.types.has_integer_scalars:
            yield self._at_small_shapes(precision.check_scalars, subject, part=4)
        projections = self._exact_problems(claim, domain)
        yield check_benchmark_shape(subject, buffers, projections)
        yield check_repeated(subject, buffers, projections[0].problem, self._differ)
        claims_whole_products = claim.precision in precision.CLASSES
        is_short = False
        if claims_whole_products and self.types.c == FLOAT32:  # which holds whole products
            products = precision.check_products(subject, buffers, self._rng)
            is_short = bool(products.note)
            yield products
        yield from self._check_precision(subject)
        self._keeps_nan = False
        if self.types.has_integers:
            yield self._check_integers(subject)
        elif claims_whole_products and not self.types.has_gelu:  # which rounds, also to 0
            yield self._check_hard_data(subject, is_short)
        yield check_ragged(subject, buffers, partial(self.probe, claim.precision, rng=self._rng))
        if not self.types.c.is_integer:  # 0 times an integer is 0
            yield self._at_small_shapes(edges.check_old_c, subject, part=5)
        if domain.alpha and not self.types.has_integers:
            yield self._at_small_shapes(edges.check_unread_inputs, subject, part=9)
        yield self._at_small_shapes(edges.check_alignment, subject, part=6)
        yield from self._ends(subject)
        if isinstance(subject, Loaded):
            yield from self._by_code(subject)

    def _check_precision(self, subject: Runnable) -> Iterator[Stage]:
        """Yield the stages that find the precision class."""
        buffers = self.buffers
        buffers.restore()
        result = buffers.run(subject)
        self.reached, stage = self._precision.judge("precision", result, subject.claimed)
        yield stage
        if self.types.c.itemsize == FLOAT16.itemsize:
            self.reached, stage = precision.check_sums(subject, buffers, self._rng, self.reached)
            yield stage
            buffers.restore()

    def _check_integers(self, subject: Runnable) -> Stage:
        """Return the stage of integers of the full range, and note that C is exact."""
        memory = self.buffers.memory
        stated_shapes = set(memory.shapes)
        stage = integers.check_full_range(subject, memory)
        memory.shapes = stated_shapes  # a long K of a few rows isn't stated
        if stage.passed and self.types.c.is_integer:
            self.reached = integers.EXACT
        return stage

    def _check_hard_data(self, subject: Runnable, is_short: bool) -> Stage:
        """Return the stage of hard data, and note whether NaN stays in its row and column.

        is_short: whether the kernel's products were not kept to 24 bits
        """
        memory = self.buffers.memory
        stated_shapes = set(memory.shapes)
        if subject.claimed == precision.BY_NORM:
            stage = norms.check_norms(subject, memory, self.shape)
        else:
            stage = check_hard_data(subject, memory, is_short, self.shape)
        memory.shapes = stated_shapes  # a long K of a few rows isn't stated
        self._keeps_nan = precision.SPECIAL not in stage.clause and not self.types.epilogue
        return stage

    def _by_code(self, subject: Loaded) -> Iterator[Stage]:
        """Yield the stages that depend on the parameters and the instructions of a kernel."""
        if subject.kernel.leading_dimensions:
            yield self._at_small_shapes(leading.check_leading_dimensions, subject, part=11)
        if subject.kernel.is_batched:
            yield self._at_small_shapes(batch.check_batch, subject, part=13)
        if subject.kernel.operands and not self.types.epilogue:
            yield self._at_small_shapes(operands.check_operands, subject, part=14)
        if self.types.has_eight_bits:
            yield self._at_small_shapes(large_sums.check_large_sums, subject, part=15)
        if self.device.source != "emulated":
            return
        # Here: it imports the emulator, which a GPU's check doesn't need.
        from worklog.gate import approximations, far_products, search, size_values, tables

        if subject.kernel.is_batched:
            self.buffers.memory.rng = self._drawn(13)
            far = far_products.check_far_products(subject, self.buffers.memory)
            self.buffers.memory.rng = self._rng
            if far is not None:
                yield far
        lines = approximations.approximate_lines(subject, self.device)
        if lines:
            check = approximations.check_approximations
            yield self._at_small_shapes(check, subject, lines, part=10)
        memory = self.buffers.memory
        stage, self.never_ran = search.check_rare_paths(subject, memory, quick=self.quick)
        yield replace(stage, clause=self._left_out(subject))
        values, untried = size_values.check_size_values(subject, memory, quick=self.quick)
        if values is not None:
            yield values
        coverages = getattr(self.device, "coverage", {})
        self.never_ran += (*untried, *tables.unread_entries(subject, coverages))

    def _left_out(self, subject: Loaded) -> str:
        """Return which lines #if left out of the kernel, as a clause; "" for none."""
        coverages = getattr(self.device, "coverage", {})
        lines = set[int]()
        for (program, _), coverage in coverages.items():
            if program in subject.programs:
                lines |= {instruction.line for instruction in coverage.kernel.instructions}
        notes: list[str] = []
        parts = apart(
            "the search for lines that weren't compiled",
            lambda: left_out_lines(subject.kernel, self.device.chip.arch, lines),
            [],
            notes,
        )
        return in_words(self.device.chip.arch, parts)

    def _kept_state(self, subject: Runnable) -> Iterator[Stage]:
        """Yield the stages of a subject that may keep something between launches."""
        has_variables = bool(subject.variables(self.shape))
        if has_variables and isinstance(subject, Loaded):
            yield self._at_small_shapes(kept_state.check_state, subject, part=7)
        if has_variables or subject.uses_streams:
            memory = self.buffers.memory
            memory.rng = self._drawn(8)
            yield kept_state.check_replay(subject, self.buffers)
            memory.rng = self._rng

    def _ends(self, subject: Runnable) -> Iterator[Stage]:
        """Yield the stages at the ends of the sizes that the verdict states."""
        memory = self.buffers.memory
        memory.shapes |= self._small.shapes  # with those of other benchmark shapes
        memory.rng = self._drawn(12)
        yield sweeps.check_corners(subject, memory, partial(self._corner_failure, subject))
        self._small.shapes |= memory.shapes
        if self.sweep:
            yield sweeps.check_each_size(subject, memory)
        if self.device.source == "emulated" and isinstance(subject, Loaded):
            # Here: it imports the emulator, which a GPU's check doesn't need.
            from worklog.gate import far_blocks, limits

            assert memory.largest is not None
            stage = far_blocks.check_far_blocks(
                subject, memory, memory.largest, quick=not self.sweep
            )
            if stage is not None:
                yield stage
            yield limits.check_limits(subject, memory.largest, quick=not self.sweep)
        memory.rng = self._rng

    def _corner_failure(self, subject: Runnable, shape: Shape) -> Stage | None:
        """Launch at a corner, and return the failed stage. Raises LaunchFailed.

        A large result is checked on the device, in the memory of the benchmark shape.
        """
        sizes = zip(shape.sizes, self.shape.sizes, strict=True)
        is_large = max(shape.m, shape.n) * max(shape.n, shape.k) > MOST_ON_HOST
        if not is_large or any(size > max_size for size, max_size in sizes):
            if shape.k == subject.domain.padded(Shape.of(1)).k:
                return sweeps.special_corner_failure(
                    subject, self.buffers.memory, shape, with_nan=self._keeps_nan
                )
            return sweeps.corner_failure(subject, self.buffers.memory, shape)
        alpha = full_mantissa(self._rng, self.types) if subject.domain.alpha else 1.0
        probe = partial(self.probe, subject.claimed, rng=self._rng)
        mistake, wrong_count = _mistake_in_part(subject, self.buffers, probe, shape, alpha)
        detail = f"at {shape} with alpha = {alpha:.9g}: {mistake}"
        return failed(sweeps.CORNERS, detail, wrong_count) if mistake else None

    def _at_small_shapes(
        self, check: Callable[..., Stage], subject: Runnable, *arguments: Any, part: int
    ) -> Stage:
        """Return the stage of a check that no benchmark shape changes.

        It runs once for each `small` of check().

        check: called with the subject, the memory and the arguments
        part: of the seed, so that the other stages draw the same whether this one runs or not
        """
        memory = self.buffers.memory
        small = self._small
        if check.__name__ in small.stages:
            stage = small.stages[check.__name__]
            memory.shapes |= small.shapes
            return replace(
                stage, detail=f"{stage.detail} (once for all sizes, with {small.checked_with})"
            )
        memory.rng = self._drawn(part)
        stage = check(subject, memory, *arguments)
        memory.rng = self._rng
        small.checked_with = self.shape
        small.shapes |= memory.shapes
        small.stages[check.__name__] = stage
        return stage

    def _with_readings(
        self, check: Callable[[Loaded, Memory], Stage], subject: Runnable, part: int
    ) -> Stage:
        """Return the stage of a check at small shapes, and explain an access behind an operand.

        Raises LaunchFailed.
        """
        memory = self.buffers.memory
        try:
            return self._at_small_shapes(check, subject, part=part)
        except LaunchFailed as error:
            has_operands = isinstance(subject, Loaded) and subject.kernel.operands
            if not has_operands or self.device.source != "emulated":
                raise
            assert isinstance(subject, Loaded)
            launched = memory.launched
            advice = operands.other_reading(subject, memory)
            memory.launched = launched
            if not advice:
                raise
            raise LaunchFailed(before_lines(str(error), f": {advice}")) from error

    def check_by_article(self, subject: Runnable) -> Verdict:
        """Return the verdict by the article's rule, in place of the gate.

        The precision class is stated, but not judged.
        """
        try:
            result = self.buffers.run(subject)
        except LaunchFailed as error:
            return Verdict((failed("launch", str(error)),), None)
        reached, _ = self._precision.judge("precision", result, "fp32")
        return Verdict((self._precision.judge_by_article(result),), reached)

    def check_timed_output(self, subject: Runnable, written: Buffer | None = None) -> Stage:
        """Check what the timed launches left in C, in the spare or in a copy of them.

        All were filled with a sentinel before, and the baseline of a timed loop computes -A B, so
        its output can't be mistaken for the kernel's.

        written: the buffer (default: C)
        """
        result = self.buffers.written(self.buffers.abc[2] if written is None else written)
        parts = np.split(result.c, self.shape.batch)
        stage = self._precision.judge(TIMED, replace(result, c=parts[0]), subject.claimed)[1]
        for number in range(1, self.shape.batch):
            if not stage.passed:
                break
            # Made here: a loop whose launches are all checked by a probe doesn't need it.
            reference = PrecisionReference(*self._factors(number), self._drawn(15), self.types)
            part = replace(result, c=parts[number])
            stage = reference.judge(TIMED, part, subject.claimed)[1]
        return stage

    def _factors(self, number: int) -> tuple[Float32, Float32]:
        """Return A and B of one product of a batch."""
        shape = self.shape
        a = self.a.reshape(-1, shape.m, shape.k)
        b = self.b.reshape(-1, shape.k, shape.n)
        return a[number], b[number]

    def check_timed_elements(
        self, subject: Runnable, operands: TimedOperands, written: Buffer
    ) -> Stage:
        """Check the output of a timed launch with operands.

        written: C, the spare or a copy of them
        """
        outside = self.buffers.wrote_outside()
        if outside:
            return failed(TIMED, outside)
        self.buffers.restore()
        probe = self.element_probe(subject, operands)
        return replace(probe.check_on(*self.buffers.abc[:2], written), name=TIMED)

    def element_probe(
        self, subject: Runnable, operands: TimedOperands, alpha: float = 1.0
    ) -> ElementProbe:
        """Return a probe for launches of a kernel that does more than a product.

        alpha: of the launches
        """
        if not self._element_kernels:
            programs = element_programs(self.types)
            self._element_kernels = tuple(map(self.device.compile, programs))
        return ElementProbe(
            self.device,
            self._probe_kernels,
            self._element_kernels,
            self.shape,
            self.types,
            subject=subject,
            operands=operands,
            alpha=alpha,
        )

    def probe(
        self,
        claimed: str = "fp32",
        alpha: float = 1.0,
        shape: Shape | None = None,
        rng: np.random.Generator | None = None,
    ) -> LaunchProbe:
        """Return a probe for launches of a kernel of a class.

        alpha: of C = alpha A B
        shape: of the launches; None for this checker's
        """
        return LaunchProbe(
            self.device,
            self._probe_kernels,
            shape or self.shape,
            self.types.c,
            claimed=claimed,
            alpha=alpha,
            rng=rng,
        )

    def check_launch(self, subject: Runnable) -> Stage:
        """Check a launch at this shape on new inputs, as a timed launch is checked.

        This is for a subject that exists at this shape alone. Call `buffers.restore` afterwards.
        Raises LaunchFailed.
        """
        buffers = self.buffers
        buffers.poison()
        a, b, c = buffers.abc
        probe = self.probe(subject.claimed)
        probe.prepare(a, b, c)
        buffers.memory.launch(subject, self.shape, 1.0, a, b, 0.0, c)
        probe.observe(c)
        probe.check(a, b)
        return self.check_timed_launches(probe)

    def check_timed_launches(self, probe: LaunchProbe) -> Stage:
        """Check every launch of a loop that was probed.

        Call `buffers.restore` afterwards: the loop has changed A and B.
        """
        if outside := self.buffers.wrote_outside():
            return failed(EVERY_LAUNCH, outside)
        return probe.stage()

    def _exact_problems(self, claim: ClaimedResult, domain: Domain) -> list[Projection]:
        """Return the problems of a class for what the kernel takes, made on first use."""
        kind = claim.precision if claim.precision in OPERAND_BITS else "fp32"
        key = kind, domain.alpha, domain.beta
        if key not in self._exact:
            rng = self._drawn(2)
            self._exact[key] = exact_problems(
                self.shape,
                rng,
                ClaimedResult(kind, self.types),
                alpha=domain.alpha,
                beta=domain.beta,
            )
        return self._exact[key]

    def _drawn(self, part: int) -> np.random.Generator:
        """Return the random numbers of a part of the seed."""
        assert self.seed is not None
        return np.random.default_rng([self.seed, *self.shape.sizes, part])


def ragged_shapes(shape: Shape, domain: Domain, rng: np.random.Generator) -> list[Shape]:
    """Return up to four shapes in the domain, at most a few percent below this one.

    All sizes are odd; all of them are 4 times an odd number, which loads of four elements take;
    only K is odd; and only N.
    """

    def below(size: int, step: int, multiple: int) -> int:
        if step > 1 or size <= multiple:
            return max(step, size - step)
        if multiple > 1:
            count = (size - 1) // multiple
            if count % 2 == 0:
                count -= 1
            return multiple * count
        cut = size - 1 - 2 * int(rng.integers(max(1, min(MOST_CUT, size // 64))))
        if cut % 2 == 0:
            cut -= 1
        return max(1, cut)

    sizes = (shape.m, domain.m), (shape.n, domain.n), (shape.k, domain.k)
    odd, fours = (
        Shape(*(below(size, step, multiple) for size, step in sizes)) for multiple in (1, 4)
    )
    shapes = [odd, fours, Shape(shape.m, shape.n, odd.k), Shape(shape.m, odd.n, shape.k)]
    if domain.square:
        step = max(domain.m, domain.n, domain.k)
        shapes = [domain.padded(Shape.of(max(1, shape.m - cut))) for cut in (2 * step, step)]
    candidates = [smaller for smaller in dict.fromkeys(shapes) if smaller != shape]
    return [smaller for smaller in candidates if smaller in domain]


def exact_problems(
    shape: Shape,
    rng: np.random.Generator,
    claim: ClaimedResult = exact.FP32,
    *,
    alpha: bool = True,
    beta: bool = True,
) -> list[Projection]:
    """Return a problem for each family on which a kernel of the class must be exact.

    There are at least three: the first with the usual alpha and beta, which is repeated, the others
    with an alpha, and with both.

    alpha is a power of two with a sign, and beta and the old C are odd integers of 12 and 11 bits,
    because a fast path for large shapes can forget or shorten either; their product is as large as
    A B may be. They are shorter if C has 16 bits.

    alpha, beta: whether the kernel takes it
    """
    projections = []
    bits_of_beta = min(exact.sum_bits(claim) // 2, claim.types.scalar.significand)
    bits_of_c = exact.sum_bits(claim) - 1 - bits_of_beta
    for index, name in enumerate((exact.families(claim) * LAUNCHES)[:LAUNCHES]):
        with_beta = index == 2 and beta
        a, b = exact.family(name, shape, rng, claim, headroom=int(with_beta))
        decks = (exact.exponents(rng), exact.exponents(rng))
        scale_a, scale_b = exact.stretch(a, b, decks, claim)
        alpha_value = float(rng.choice(claim.types.scalars(POWERS))) if index and alpha else 1.0
        beta_value = 0.0
        if with_beta:
            sign = rng.choice((-1, 1))
            beta_value = float(sign * _odd(rng, bits_of_beta))
        odd = _odd(rng, bits_of_c)
        initial_c = odd * abs(alpha_value) * scale_a * scale_b if with_beta else None
        problem = ExactProblem(name, a, b, (scale_a, scale_b), alpha_value, beta_value, initial_c)
        projections.append(Projection(problem, rng))
    return projections


def _odd(rng: np.random.Generator, bits: int) -> float:
    """Return a random odd integer of so many bits."""
    return float(2 * rng.integers(1 << bits - 2, 1 << bits - 1) + 1)


def check_benchmark_shape(
    subject: Runnable, buffers: Buffers, projections: list[Projection]
) -> Stage:
    """Launch once per family. Raises LaunchFailed.

    C must be exact in every row, and its guards intact.
    """
    for projection in projections:
        problem = projection.problem
        buffers.restore(problem.a, problem.b)
        result = buffers.run(subject, problem.alpha, problem.beta, problem.initial_c)
        launch = f"family {problem.family} at {buffers.shape}"
        if not problem.usual:
            launch += f" with alpha = {problem.alpha:g}, beta = {problem.beta:g}"
        if result.trespass:
            return failed(BENCHMARK_SHAPE, f"{launch}: {result.trespass}")
        rows = projection.wrong_rows(result.c)
        if len(rows):
            wrong_map = _error_map(projection, result, rows)
            return failed(BENCHMARK_SHAPE, f"{launch}: {wrong_map}", wrong_map.wrong, wrong_map)
    names = ", ".join(dict.fromkeys(projection.problem.family for projection in projections))
    return passed(BENCHMARK_SHAPE, f"families {names} at {buffers.shape}, no row wrong")


def _error_map(projection: Projection, result: LaunchResult, rows: exact.Indices) -> ErrorMap:
    """Return a map of the wrong elements of a result, with a guess of the cause.

    It has the wrong rows and columns, or some of the rows if all are too many. The expected result
    is computed in FP32: every partial sum is an exact integer times a power of two, also in BLAS's
    order.

    rows: the wrong rows
    """
    problem = projection.problem
    columns = projection.wrong_columns(result.c)
    step = int(np.ceil(len(rows) * len(columns) * problem.a.shape[1] / MOST_LOCATED))
    some_rows = rows[:: max(1, step)]
    computed = np.ix_(some_rows, columns)
    product = problem.a[some_rows] @ problem.b[:, columns]
    expected = result.c.copy()
    if problem.initial_c is None and (result.c == result.sentinel).all():  # nothing was written
        expected[...] = 0
    expected[computed] = problem.result(product)
    factors = np.float32(problem.alpha) * problem.a, problem.b
    wrong_map = error_map(result.c, expected, result.sentinel, factors)
    if mistake := problem.wrong_scalar(result.c[computed], product):
        return replace(wrong_map, guess=f"This is the result if {mistake}.")
    return wrong_map


def check_ragged(
    subject: Runnable, buffers: Buffers, probe: Callable[[float, Shape], LaunchProbe]
) -> Stage:
    """Launch once at each ragged shape. Raises LaunchFailed.

    The launches use the first elements of the buffers, whose inputs are lost.

    probe: makes a new probe for an alpha and a shape
    """
    memory = buffers.memory
    domain = subject.domain
    shapes = ragged_shapes(buffers.shape, domain, memory.rng)
    for number, shape in enumerate(shapes):
        alpha = 1.0
        if domain.alpha and number != 1:
            alpha = full_mantissa(memory.rng, subject.types)
        mistake, wrong_count = _mistake_in_part(subject, buffers, probe, shape, alpha)
        if mistake:
            detail = f"at {shape} with alpha = {alpha:.9g}: {mistake}"
            return failed(RAGGED, detail, wrong_count)
    places = ", ".join(map(str, shapes)) or "no shape: the domain has none"
    return passed(RAGGED, f"at {places}, no row wrong")


def _mistake_in_part(
    subject: Runnable,
    buffers: Buffers,
    probe: Callable[[float, Shape], LaunchProbe],
    shape: Shape,
    alpha: float,
) -> tuple[str, float]:
    """Return the mistake in a launch on the first elements of the buffers, or "".

    With it, how much is wrong. The launch is checked on the device, and the buffers' inputs are
    lost. Raises LaunchFailed.

    probe: as for check_ragged
    """
    checks = probe(alpha, shape)
    buffers.poison()
    a, b, c = buffers.part(shape)
    checks.prepare(a, b, c)
    buffers.memory.launch(subject, shape, alpha, a, b, 0.0, c)
    checks.observe(c)
    checks.check(a, b)
    stage = checks.stage()
    mistake = buffers.wrote_outside(buffers.memory.types.c.nbytes(shape.m * shape.n))
    if not mistake and not stage.passed:
        mistake = stage.detail
    return mistake, stage.measured or 1


def check_repeated(
    subject: Runnable, buffers: Buffers, problem: ExactProblem, differ: Any
) -> Stage:
    """Repeat a launch and compare the results on the device. Raises LaunchFailed.

    One launch may not expose a race. On the dense integers of family E1 two launches of a right
    kernel agree bit by bit, even with atomics. A rarer race needs compute-sanitizer's racecheck or
    the emulator.

    differ: as differ_for returns it, compiled
    """
    device = buffers.memory.device
    differs = device.upload(np.zeros(MOST, np.float32))
    a, b, c = buffers.abc
    affordable = min(MOST, int(MOST_FLOPS / buffers.shape.flops))
    count = LEAST if device.source == "emulated" else max(LEAST, affordable)
    launches = 1
    buffers.restore(problem.a, problem.b)
    buffers.run(subject, is_raw=True)
    while launches < count:
        device.fill(buffers.spare, float(buffers.memory.sentinel(buffers.memory.types.c)))
        buffers.memory.lend(subject, buffers.shape)
        subject.enqueue(buffers.shape, 1.0, a, b, 0.0, buffers.spare)
        arguments = (np.int64(c.size), c, buffers.spare, np.int32(launches), differs)
        device.launch(differ, (-(-c.size // BLOCK), 1), BLOCK, arguments)
        device.synchronize()
        launches += 1
    differing = np.flatnonzero(device.download(differs))
    if len(differing):
        numbers = ", ".join(str(index + 1) for index in differing[:5])
        detail = (
            f"of {launches} launches on the same integers, number {numbers} differs from the "
            "first: a race"
        )
        return failed(REPEATED, detail, len(differing))
    return passed(REPEATED, f"{launches} launches on the same integers")


def differ_for(format_: Format) -> Program:
    """Return the program that compares two matrices of a format bit by bit."""
    options: tuple[str, ...] = COMPILE_OPTIONS
    if format_.itemsize == FLOAT16.itemsize:
        options = (*options, "-DBITS=unsigned short")
    return Program(_DIFFER.name, _DIFFER.read_text(encoding="utf-8"), "differ", options)
