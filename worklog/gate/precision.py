"""Stages for precision: on the timed data, of products and scalars, and on hard data.

How precise is the kernel on the data that it is timed on, are its products and scalars kept to 24
bits, and what does it lose of hard data?

The natural scale of one element's rounding error is u·D: u = 2^-24, D = sqrt((A∘A)(B∘B)), the
2-norm of its K products. In that unit a sequential FP32 sum has an rms of about 0.30 sqrt(K), split
or tree sums less, TF32 inputs a constant of 4400 (rounded) to 11500 (truncated), BF16 inputs 35000
to 92000, on any zero-mean data. The limits allow a factor of four on the rms of FP32 and of more
than five on its largest error. Between FP32 and TF32 lies the class fp32-emulated: products
assembled from short ones, and accumulators that truncate, whose error grows with K. The class
fp32-norm has a separate stage of hard data (worklog.gate.norms). Here, on data of one size, its
limits are twice FP32's.

A factor is not a format. Rounded operands leave an error that is uncorrelated with the result.
Truncation makes the result smaller, and that factor explains up to 86 % of the squared error (on
U(-1, 1), N(0, 1) and a grid of hundredths, K = 16 to 4096). If a factor explains nearly all of the
error, or makes the result larger, the kernel is wrong by that factor, whatever format its rms
resembles: 1.001 resembles BF16. What a shrinking factor leaves unexplained has a separate limit:
operands in 127 equal steps have an error as large as truncated BF16, without a factor in it.

Hard data is what FP32 takes, and FP32 made of shorter numbers may not. A number that is split into
two halves or two TF32 numbers is scaled first. One scale for a tile or a matrix loses the small
rows beside large ones. So each row of A and each column of B gets a separate power of two, and the
result on integers must be exact. Strassen's algorithm also loses them, and no comparison of results
can tell the two apart: this fails a kernel, and says which class admits Strassen's. Then come
numbers of very different size in one row, rows that cancel, the largest and the subnormal numbers,
infinities and NaN. The limit is the largest error of FP32 in any order, twice, for sums that
truncate, of as many terms as aren't zero: one product shows each low bit of its operands. Libraries
disagree about some of these, so what isn't as in FP32 is a note. It fails a kernel whose domain
states "any data". Last comes a long K: sums that stay in the tensor cores' accumulator are
truncated, so their error grows with K, which is a note; other kernels keep their class.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from worklog.gate.exact import Indices, Which, family, long_bits, multiply, whereabouts
from worklog.gate.guarded_buffer import Buffers, LaunchResult, Memory
from worklog.kernel import Runnable
from worklog.problem import Float32, Float64, Shape, random_inputs, sampled_reference
from worklog.problem.epilogues import RELU
from worklog.problem.formats import FLOAT32, SINGLE, ClaimedResult, Format, Types
from worklog.runs import Stage, failed, passed

# TF32 and FP16 both keep 11 bits: the error cannot distinguish them, so each may claim the other.
RANK = {"fp32": 0, "fp32-norm": 1, "fp32-emulated": 2, "tf32": 3, "fp16": 3, "bf16": 4, "wrong": 5}
BY_NORM = "fp32-norm"
# Times the limits of fp32. Each level of Winograd's form has 2.1 times the rms of a sequential sum,
# the root of the 18/4 by which a level multiplies the bound.
NORM_FACTOR = 2
NORM_LEVELS = 2  # of the algorithm that the class admits
UNIT_ROUNDOFF = 2.0**-24
SAMPLED_ROWS = 64
OUTLIER = 60  # times the rms: beyond, an element is wrong rather than imprecise
PROJECTED_OUTLIER = 10  # the same for a row's projection, which is nearly normal
# Largest rms of a class in u·D, rounded or truncated, and without what a shrinking factor explains.
# Then 11 bits have 4400 and 8 bits 35000.
RMS_OF_CLASS = {"tf32": 1.5e4, "fp16": 1.5e4, "bf16": 1.25e5}
ROUNDING_OF_CLASS = {"tf32": 6.3e3, "fp16": 6.3e3, "bf16": 5e4}
# The share of the squared error that a factor on the result may explain: truncation has 0.86, a
# rounded format 0.01.
SHRINKING = 0.92
GROWING = 0.35
FEWEST_FOR_A_FACTOR = 256, 8  # elements, and terms of each: of fewer, chance explains too much
TINY = float(np.finfo(np.float32).tiny)

ARTICLE_RULE = "the article's rule"
ARTICLE_LIMIT = 1e-2
SCALARS = "alpha, beta and C of 24 bits"
EXTREME = 126  # exponent of the largest alpha; -126 is the one of the smallest
SCALARS_SHAPE = Shape(33, 47, 40)
NAME = "products"
CLASSES = ("fp32", BY_NORM, "fp32-emulated")  # shorter formats cannot keep products to 24 bits
ROWS = 256  # at most, whose products are compared
# Of products below 2^24: Strassen's error is bounded by norms, 2^-24 and a few bits for each level.
FAR = 2.0**14
SHORT = "not kept to 24 bits (Strassen's algorithm, or several short products for one)"
HARD_DATA = "hard data"
SHAPE = Shape(66, 70, 64)
# Exponents of the rows' powers of two and of the columns', or the reverse, so that C is finite.
FAR_SCALES = 60
NEAR_SCALES = 40
HALF_SCALES = 2
LONG = 1024, 16384  # K at least and at most: as much as the checked problem's work allows
BY_NORMS = 2.0**-20  # of the largest product times K
MIXED = "numbers of very different size in a row"
SUBNORMAL = "subnormal numbers"
SPECIAL = "infinities and NaN"
OVERFLOW = "finite numbers that give infinity or NaN"
SATURATED = "sums beyond C's range that don't become infinite"
SUMS = "precision of the sums"
SUMS_OF_16_BITS = ": sums that are kept in 16 bits have such an error, so add in float"
LARGE = 2.0**64  # smaller factors don't overflow: infinity or NaN comes from other elements
# terms: FP32 made of short numbers rounds more
ALONE = "single products, whose operands lost low bits"
FEWEST = 6
NORMS = (
    "a row or column beside larger ones loses bits: scale each row of A and each column of B by "
    f"itself, or claim {BY_NORM} if it multiplies sums of quadrants (Strassen's algorithm)"
)


def rms_limit(k: int) -> float:
    """Return the largest rms error of the class fp32, in u·D."""
    return 4 + 1.2 * float(np.sqrt(k))


def max_limit(k: int) -> float:
    """Return the largest single error of the class fp32, in u·D."""
    return 16 + 20 * float(np.sqrt(k))


def emulated_limit(k: int) -> float:
    """Return the largest rms error of the class fp32-emulated, in u·D.

    An accumulator that truncates each step has 0.42 K.
    """
    return min(4 + 0.5 * k, 2000.0)


def projected_limits(
    claimed: str, shape: Shape, format_c: Format = FLOAT32
) -> tuple[float, float, float]:
    """Return the limits of a class on projected rows, in u·D.

    They are the largest error of a row's projection, the rms over the rows of one launch, and that
    rms without what a shrinking factor explains. Both rms limits leave room for chance if rows or
    products are few. For fp32 one wrong element exceeds the first limit unless it is off by less
    than about 1e-5 of the row's norm. A C of 16 bits adds its rounding to each.
    """
    rms_of_fp32 = rms_limit(shape.k)
    by_class = {"fp32": rms_of_fp32, BY_NORM: NORM_FACTOR * rms_of_fp32, **RMS_OF_CLASS}
    rms = by_class.get(claimed, emulated_limit(shape.k))
    chance = 1 + 4 / float(np.sqrt(min(shape.m, shape.k)))
    largest = PROJECTED_OUTLIER * rms
    if claimed in ("fp32", BY_NORM):
        largest = largest_limit(claimed, shape.k)
    # Half a unit of an element of the size D, which most are below.
    of_c = 0.0
    if format_c != FLOAT32 and not format_c.is_integer:
        of_c = 2.0**-format_c.significand / UNIT_ROUNDOFF
    return (
        largest + PROJECTED_OUTLIER * of_c,
        (rms + of_c) * chance,
        (ROUNDING_OF_CLASS.get(claimed, rms) + of_c) * chance,
    )


def largest_limit(claimed: str, k: int) -> float:
    """Return the largest single error of the class fp32 or fp32-norm, in u·D."""
    return NORM_FACTOR * max_limit(k) if claimed == BY_NORM else max_limit(k)


def classify(rms: float, largest: float, k: int, claimed: str = "fp32") -> str:
    """Return the class of an error in u·D.

    It is fp32, fp32-emulated, tf32 (or fp16: the same 11-bit significand), bf16, or wrong; or
    fp32-norm if that is claimed, since the error on data of one size doesn't show it.
    """
    if claimed == BY_NORM and rms <= NORM_FACTOR * rms_limit(k):
        return BY_NORM if largest <= largest_limit(claimed, k) else "wrong"
    if rms <= rms_limit(k) and largest <= max_limit(k):
        return "fp32"
    if not largest <= OUTLIER * rms:
        return (
            "wrong"  # a few wild elements in an otherwise precise result are an error, not a format
        )
    if rms <= emulated_limit(k):
        return "fp32-emulated"
    if rms < 2e3:
        return "wrong"
    return next((name for name in ("tf32", "bf16") if rms <= RMS_OF_CLASS[name]), "wrong")


def beyond_rounding(error: Float64, expected: Float64, format_: Format) -> Float64:
    """Return the part of each error that rounding to C's format can't explain."""
    if format_ == FLOAT32:
        return error
    left: Float64 = np.maximum(np.abs(error) - format_.half_units(expected), 0)
    return np.copysign(left, error)


def rms_and_largest(difference: Float32 | Float64, gauge: Float64) -> tuple[float, float]:
    """Return the rms and the largest absolute value of a difference, in u·D.

    gauge: D of each element
    """
    error = np.abs(difference) / (UNIT_ROUNDOFF * np.maximum(gauge, TINY))
    return float(np.sqrt(np.mean(np.square(error)))), float(error.max())


def _beside_limits(rms: float, largest: float, k: int, claimed: str) -> str:
    """Return an error in u·D beside the limits of fp32, or of fp32-norm if that is claimed."""
    name = "fp32"
    limit = rms_limit(k)
    if claimed == BY_NORM:
        name = BY_NORM
        limit = NORM_FACTOR * rms_limit(k)
    of_largest = f"largest {largest:.3g} (up to {largest_limit(claimed, k):.4g})"
    return f"rms {rms:.3g} u·D ({name} up to {limit:.3g}), {of_largest}"


class PrecisionReference:
    """An FP64 reference for some rows of A B, and one projection of every row.

    The rows are the first, the last and random ones, with their gauge D. The projection is on a
    random
    vector: it shows a row that is wrong by much more than rounding.

    types: the formats of A, B and C
    rows: (R,)
    reference, gauge: (R, N)
    weights: (N, 1)
    projected, projected_gauge: (M, 1)
    """

    def __init__(
        self, a: Float32, b: Float32, rng: np.random.Generator, types: Types = SINGLE
    ) -> None:
        self.types = types
        (m, self.k) = a.shape
        n = b.shape[1]
        self.rows: Indices = np.unique(
            np.concatenate([[0, m - 1], rng.permutation(m)[:SAMPLED_ROWS]])
        ).astype(np.intp)
        self.reference, gauge = sampled_reference(a, b, self.rows)
        self.gauge = np.maximum(gauge, TINY)
        self.weights = rng.choice([-1.0, 1.0], (n, 1)) * (0.5 + rng.random((n, 1)))
        self.projected = multiply(a, multiply(b, self.weights))
        self.projected_gauge = np.sqrt(
            multiply(np.square(a), multiply(np.square(b), np.square(self.weights)))
        )

    def errors(self, c: Float32, format_: Format = FLOAT32) -> tuple[float, float]:
        """Return the rms and the largest error of C's sampled rows, in u·D.

        Both are infinite if an element isn't finite.

        format_: of C, whose rounding is no error
        """
        if not np.isfinite(c[self.rows]).all():
            return float("inf"), float("inf")
        error = c[self.rows].astype(np.float64) - self.reference
        return rms_and_largest(beyond_rounding(error, self.reference, format_), self.gauge)

    def wrong_rows(self, c: Float32, rms: float) -> Indices:
        """Return the rows whose projected error is too large for this rms error.

        rms: of the sampled rows
        """
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(multiply(c, self.weights) - self.projected)
            limit = max(max_limit(self.k), PROJECTED_OUTLIER * rms)
            right = error <= limit * UNIT_ROUNDOFF * np.maximum(self.projected_gauge, TINY)
        return np.flatnonzero(~right)

    def judge(self, name: str, result: LaunchResult, claimed: str) -> tuple[str, Stage]:
        """Return the result's class, and its stage.

        It passes for the class that was claimed or a more precise one.
        """
        if result.trespass:
            return "wrong", failed(name, result.trespass)
        rms, largest = self.errors(result.c, result.format)
        reached = classify(rms, largest, self.k, claimed)
        factor = self._factor(result) if reached not in ("fp32", BY_NORM) else None
        if factor is not None:
            slope, share = factor
            if share > (GROWING if slope > 0 else SHRINKING):
                product = f"its inputs' product times {1 + slope:.6g}"
                detail = f"class wrong: {product}, which no rounding is"
                return "wrong", Stage(name, False, largest, max_limit(self.k), detail)
            if reached in ROUNDING_OF_CLASS:
                rounding = rms * np.sqrt(max(0.0, 1 - share)) if slope < 0 else rms
                classes = (reached, "bf16", "wrong")
                reached = next(
                    class_
                    for class_ in classes
                    if rounding <= ROUNDING_OF_CLASS.get(class_, np.inf)
                )
        rows = self.rows[:0]
        if reached != "wrong":
            rows = self.wrong_rows(result.c, self.errors(result.c)[0])
        if len(rows):
            places = whereabouts(rows, len(self.projected), "row")
            detail = f"class wrong: on its inputs, {places} off by more than rounding"
            return "wrong", failed(name, detail, len(rows))
        detail = f"class {reached}: {_beside_limits(rms, largest, self.k, claimed)}"
        is_good = RANK[reached] <= RANK[claimed]
        if not is_good:
            detail += f"; {claimed} was claimed"
            if self.types.has_short_formats:
                detail += SUMS_OF_16_BITS
        limit = OUTLIER * rms
        if claimed in ("fp32", BY_NORM):
            limit = largest_limit(claimed, self.k)
        return reached, Stage(name, is_good, largest, limit, detail)

    def _factor(self, result: LaunchResult) -> tuple[float, float] | None:
        """Return the factor on the result, less 1, and its share of the squared error.

        It is the slope of the sampled rows' errors over the right result. None if there are too few
        elements or terms, or the slope isn't defined.
        """
        right = self.reference / self.gauge
        error = result.c[self.rows] - self.reference
        error = beyond_rounding(error, self.reference, result.format) / self.gauge
        fewest_elements, fewest_terms = FEWEST_FOR_A_FACTOR
        if right.size < fewest_elements or self.k < fewest_terms:
            return None
        if not np.isfinite(error).all() or not error.any() or not right.any():
            return None
        slope = float((error * right).sum() / np.square(right).sum())
        share = float(slope**2 * np.square(right).sum() / np.square(error).sum())
        return slope, share

    def judge_by_article(self, result: LaunchResult) -> Stage:
        """Return the stage of the rule of the article and of many leaderboards.

        The rule is max|C - reference| / max|reference| < 0.01.

        Rounded TF32, FP16 and BF16 inputs measure 2e-5 to 3e-3 and pass; so do a single wrong
        element, a warp's tile that lacks a term, and everything times 1.001. A right FP32 kernel at
        K = 4096 measures 3e-6, so the rule is about 3000 times too loose. It replaces the gate only
        with the setting gate=article, and the result says so.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(result.c[self.rows].astype(np.float64) - self.reference).max()
        measured = float(error / np.abs(self.reference).max())
        detail = (
            f"max|error| / max|reference| = {measured:.2g} (below {ARTICLE_LIMIT:g}) on "
            f"{len(self.rows)} rows"
        )
        bounded = measured if np.isfinite(measured) else float("inf")
        return Stage(ARTICLE_RULE, measured < ARTICLE_LIMIT, bounded, ARTICLE_LIMIT, detail)


def check_sums(
    subject: Runnable, buffers: Buffers, rng: np.random.Generator, reached: str | None
) -> tuple[str, Stage]:
    """Return the class of launch whose sums are near 0, or a worse one, and its stage.

    For a C of 16 bits, whose rounding hides how its sums were formed unless these are small: each
    term comes with its negative, at a random place along K, so that C is the error. Sums that were
    kept in 16 bits have an error as large as that of a product of 16 bits, and more. Raises
    LaunchFailed.

    reached: the class on U(-1, 1)
    """
    shape = buffers.shape
    a, b = random_inputs(shape, rng, types=subject.types)
    order = rng.permutation(shape.k)
    half_count = shape.k // 2
    first = order[:half_count]
    second = order[half_count : 2 * half_count]
    a[:, second] = a[:, first]
    b[second] = -b[first]
    buffers.restore(a, b)
    reference = PrecisionReference(a, b, rng, subject.types)
    of_sums, stage = reference.judge(SUMS, buffers.run(subject), subject.claimed)
    return max(of_sums, reached or of_sums, key=RANK.__getitem__), stage


def check_products(subject: Runnable, buffers: Buffers, rng: np.random.Generator) -> Stage:
    """Launch once on family E4, and compare single products. Raises LaunchFailed.

    A has odd 12-bit integers, and each column of B a single one among zeros. Each element of C is
    one product of 23 or 24 bits, which is exact if products are whole, in any order and with any
    accumulator. Matrices of 16 bits have odd integers of as many bits as they hold.

    FP32 hardware forms each product exactly and rounds once. Two methods have FP32's error on U(-1,
    1) and do not: Strassen's algorithm, and emulation on tensor cores without the smallest of
    several products. Both pass, undeclared with a note; a trespass fails, and an error that no
    short product has. Up to ROWS rows are compared, drawn anew each time: a kernel that shortens a
    share s of the rows is missed with a probability of (1 - s)^ROWS.
    """
    m = buffers.shape.m
    n = buffers.shape.n
    k = buffers.shape.k
    a = _odd(rng, (m, k), long_bits(subject.types.a))
    factors = _odd(rng, (1, n), long_bits(subject.types.b))
    terms = rng.integers(0, k, n)
    b = np.zeros((k, n), np.float32)
    b[terms, np.arange(n)] = factors
    buffers.restore(a, b)
    result = buffers.run(subject)
    if result.trespass:
        return failed(NAME, f"family E4 at {buffers.shape}: {result.trespass}")
    compared = np.sort(rng.choice(m, min(m, ROWS), replace=False))
    error = np.abs(result.c[compared] - a[compared][:, terms] * factors)
    places = f"at {buffers.shape}, in {len(compared)} of {m} rows"
    count = len(compared) * n
    if far := int((~(error <= FAR)).sum()):
        detail = f"family E4, with zeros in B: {far} of {count} are wrong {places}"
        return failed(NAME, detail, far)
    if wrong := int((error != 0).sum()):
        detail = f"{SHORT}: {wrong} of {count} differ {places}"
        note = "" if subject.claimed == BY_NORM else f"products are {SHORT}"
        return passed(NAME, detail, measured=wrong, limit=count, note=note)
    return passed(NAME, f"kept to 24 bits {places}", measured=0, limit=count)


def _odd(rng: np.random.Generator, size: tuple[int, int], bits: int) -> Float32:
    """Return odd integers of so many bits."""
    drawn = rng.integers(1 << bits - 2, 1 << bits - 1, size, np.int16)
    return (2 * drawn + 1).astype(np.float32)


def full_mantissa(rng: np.random.Generator, types: Types = SINGLE) -> float:
    """Return ±1 to ±1.25 with 24 bits, or with the bits of the scalars' format.

    Cut to 8 or 11 bits, it has a relative error of at least 2^-11.7, rounded or truncated. An
    integer isn't ±1.
    """
    if types.has_integer_scalars:
        return float(rng.choice(types.scalars((-5, -3, -2, 2, 3, 5))))
    low = 2 * int(rng.integers(1639, 2457)) + 1  # 0.4 to 0.6 of the last of 11 bits
    scalar = rng.choice((-1, 1)) * (1 + int(rng.integers(256)) * 2.0**-10 + low * 2.0**-23)
    return float(types.scalar.rounded(np.array(scalar, np.float32)))


class _ScalarProblem:
    """A and B with short mantissas, a C with full mantissas, and the product in FP64.

    product, gauge: A B and its D, (M, N)
    old: C before a launch
    """

    def __init__(self, shape: Shape, claim: ClaimedResult, rng: np.random.Generator) -> None:
        self.format = claim.types.c
        self.a, self.b = family("E1", shape, rng, claim)
        self.product, self.gauge = sampled_reference(self.a, self.b, np.arange(shape.m))
        self.old = random_inputs(Shape(shape.m, 1, shape.n), rng)[0]
        self.old = self.format.rounded(self.old * np.float32(self.gauge.max()))

    @property
    def exponent(self) -> int:
        """The power of two by which to divide A and B, so that A B and C are small."""
        return math.ceil(math.log2(self.gauge.max()) / 2) + 1

    def times(self, exponent: int) -> _ScalarProblem:
        """Return the problem with A and B times a power of two, and C times its square."""
        scaled = copy.copy(self)
        scaled.a = np.ldexp(self.a, exponent)
        scaled.b = np.ldexp(self.b, exponent)
        scaled.product = np.ldexp(self.product, 2 * exponent)
        scaled.gauge = np.ldexp(self.gauge, 2 * exponent)
        scaled.old = np.ldexp(self.old, 2 * exponent)
        return scaled

    def errors(self, c: Float32, alpha: float, beta: float) -> tuple[float, float]:
        """Return the rms and the largest error of a result, in u·D."""
        expected = alpha * self.product + beta * self.old
        difference = beyond_rounding(c.astype(np.float64) - expected, expected, self.format)
        return rms_and_largest(difference, np.hypot(alpha * self.gauge, beta * self.old))


def check_scalars(subject: Runnable, memory: Memory) -> Stage:
    """Check alpha, beta and the old C with full mantissas. Raises LaunchFailed.

    A and B have short mantissas, at a small shape. Then alpha and beta are nearly the largest and
    the smallest numbers, with A, B and C such that results are far from both.
    """
    domain = subject.domain
    rng = memory.rng
    shape = domain.padded(SCALARS_SHAPE)
    problem = _ScalarProblem(shape, subject.claim, rng)
    worst = 0.0
    launches = [(problem, 0, False)]
    if domain.beta:
        launches.append((problem, 0, True))
    if _takes_extremes(subject):
        exponent = problem.exponent
        launches.append((problem.times(-exponent), EXTREME, domain.beta))
        launches.append((problem.times(exponent), -EXTREME, domain.beta))
    for data, extreme, with_beta in launches:
        alpha = math.ldexp(full_mantissa(rng, subject.types), extreme) if domain.alpha else 1.0
        beta = math.ldexp(full_mantissa(rng, subject.types), extreme + 1) if with_beta else 0.0
        result = Buffers(memory, data.a, data.b).run(
            subject, alpha, beta, data.old if with_beta else None
        )
        launch = f"at {shape} with alpha = {alpha:.9g}, beta = {beta:.9g}"
        if result.trespass:
            return failed(SCALARS, f"{launch}: {result.trespass}")
        rms, largest = data.errors(result.c, alpha, beta)
        reached = "wrong"
        if np.isfinite(result.c).all():
            reached = classify(rms, largest, shape.k, subject.claimed)
        if RANK[reached] > RANK[subject.claimed]:
            limit = f"up to {rms_limit(shape.k):.3g} is fp32"
            return failed(SCALARS, f"class {reached} {launch}: rms {rms:.3g} u·D, {limit}")
        worst = max(worst, rms)
    return passed(SCALARS, f"rms {worst:.3g} u·D at {shape}")


def _takes_extremes(subject: Runnable) -> bool:
    """Return whether alpha may be nearly the largest number, with A and B such that C isn't.

    fp16 has no such A and B.
    """
    if RANK[subject.claimed] >= RANK["fp16"] or subject.types.is_narrow:
        return False
    return subject.domain.alpha and subject.types.scalar == FLOAT32


def check_hard_data(
    subject: Runnable, memory: Memory, is_short: bool, checked_shape: Shape
) -> Stage:
    """Launch three or four times on hard data. Raises LaunchFailed.

    is_short: whether the kernel's products were not kept to 24 bits
    checked_shape: its work limits the long K
    """
    operands = subject.operands(checked_shape)
    # Whether its code uses tensor cores; None if that isn't known.
    on_tensor_cores = None if operands is None else bool(operands)
    domain = subject.domain
    shape = domain.padded(SHAPE)
    if shape.m == shape.n and not domain.square:
        # At a square, M in place of N as a stride wouldn't show.
        shape = replace(shape, n=shape.n + domain.n)
    is_split = on_tensor_cores or is_short  # FP32 made of shorter numbers
    failure = _check_scaled_rows(subject, memory, shape)
    if failure is not None:
        return failure
    on_any_data = _check_any_data(subject, memory, shape)
    if on_any_data.failure is not None:
        return on_any_data.failure
    shape = on_any_data.shape
    unlike = on_any_data.unlike
    notes = list[str]()
    detail = f"as FP32 at {shape}"
    if unlike:
        counts = ", ".join(f"{name} ({count})" for name, count in unlike.items())
        detail = f"at {shape} and not as FP32: {counts}"
        must_be_exact = not is_split or on_tensor_cores is False
        if domain.any_data or (must_be_exact and {MIXED, ALONE} & unlike.keys()):
            return failed(HARD_DATA, f"elements {detail}", sum(unlike.values()))
        notes.append(on_any_data.clause)
    if not domain.square:
        shape = domain.padded(Shape(shape.m, shape.n, long_k(shape, checked_shape)))
        reached, stage = _check_random_inputs(subject, memory, shape)
        if not stage.passed:
            if reached == "wrong" or domain.any_data or not is_split:
                return replace(stage, detail=f"at {shape}: {stage.detail}")
            notes.append(f"class {reached} at {shape}: its error grows with K")
    return passed(HARD_DATA, detail, note="; ".join(notes), clause=on_any_data.clause)


def long_k(shape: Shape, checked_shape: Shape) -> int:
    """Return a long K for a small shape, at which it has the work of the checked shape."""
    shortest, longest = LONG
    k = checked_shape.flops // (2 * shape.m * shape.n)
    return min(max(shortest, k), longest)


def _check_random_inputs(subject: Runnable, memory: Memory, shape: Shape) -> tuple[str, Stage]:
    """Return the class of one launch on U(-1, 1), and its stage."""
    a, b = random_inputs(shape, memory.rng, types=subject.types)
    result = Buffers(memory, a, b).run(subject)
    reference = PrecisionReference(a, b, memory.rng, subject.types)
    return reference.judge(HARD_DATA, result, subject.claimed)


@dataclass
class _OnAnyData:
    """What launches on any data have shown."""

    shape: Shape  # of the last launch
    failure: Stage | None = None
    unlike: dict[str, int] = field(default_factory=dict)  # elements that aren't as in FP32, by kind
    overflow: float = math.inf  # the least of least_overflow

    @property
    def clause(self) -> str:
        """The kinds of elements that aren't as in FP32, and what overflows."""
        if not self.unlike:
            return ""
        kinds = list(self.unlike)
        if OVERFLOW in kinds:
            kinds[kinds.index(OVERFLOW)] = f"{OVERFLOW} (A or B of {self.overflow:.1e})"
        return f"not as FP32: {', '.join(kinds)}"


def _check_any_data(subject: Runnable, memory: Memory, shape: Shape) -> _OnAnyData:
    """Launch twice on any data.

    The second launch has a beta, and a K that ends inside a tile. An element that is stored a
    second time, after a doubt about its first sum, takes what was stored first for the old C.
    """
    domain = subject.domain
    on_any_data = _OnAnyData(shape)
    for beta, k in (0.0, shape.k), (-0.5 if domain.beta else 0.0, shape.k + 3):
        shape = domain.padded(replace(shape, k=k))
        on_any_data.shape = shape
        a, b = any_data(shape, memory.rng, subject.types)
        with np.errstate(over="ignore", invalid="ignore"):
            old = subject.types.c.rounded((a.astype(np.float64) @ b).astype(np.float32))
            is_special = ~np.isfinite(old)
            old[is_special] = 1
            result = Buffers(memory, a, b).run(subject, 1.0, beta, old if beta else None)
            product = result.c - beta * old
            if subject.types.epilogue:  # it may make NaN 0
                product[is_special & (result.c == 0)] = 0
        if result.trespass:
            launch = f"at {shape} with beta = {beta:g}"
            on_any_data.failure = failed(HARD_DATA, f"{launch}: {result.trespass}")
            return on_any_data
        unlike = not_as_fp32(a, b, product, subject.types)
        for name, count in unlike.items():
            on_any_data.unlike[name] = max(count, on_any_data.unlike.get(name, 0))
        if OVERFLOW in unlike:
            on_any_data.overflow = min(on_any_data.overflow, least_overflow(a, b, product))
    return on_any_data


def _check_scaled_rows(subject: Runnable, memory: Memory, shape: Shape) -> Stage | None:
    """Return the failed stage of a launch with scaled rows and columns, None if it is exact."""
    a, b, scales = scaled_rows(shape, memory.rng, subject.claim)
    result = Buffers(memory, a, b).run(subject)
    right = a.astype(np.float64) @ b
    wrong = result.c != right
    if not result.trespass and not wrong.any():
        return None
    is_bounded = not result.trespass and bool((beyond_norms(result.c - right, a, b) <= 1).all())
    rows = wrong.any(axis=1).sum()
    detail = result.trespass or f"{wrong.sum()} of {wrong.size} elements are wrong, in {rows} rows"
    if is_bounded:
        detail += f"; {NORMS}"
    return failed(HARD_DATA, f"at {shape} with {scales}: {detail}", float(wrong.sum()) or 1)


def scaled_rows(
    shape: Shape, rng: np.random.Generator, claim: ClaimedResult
) -> tuple[Float32, Float32, str]:
    """Return A and B of integers with a power of two for each row of A and column of B.

    With them, these powers in words.
    """
    a, b = family("E1", shape, rng, ClaimedResult(types=claim.types))
    largest = (FAR_SCALES, NEAR_SCALES)
    if claim.types.is_narrow:  # whose numbers end at 2^-24 and 2^16
        largest = (HALF_SCALES, HALF_SCALES)
    far_a, far_b = rng.permutation(largest).tolist()
    a = (a * np.exp2(rng.integers(-far_a, far_a + 1, (shape.m, 1)))).astype(np.float32)
    b = (b * np.exp2(rng.integers(-far_b, far_b + 1, (1, shape.n)))).astype(np.float32)
    return a, b, f"rows and columns times 2^-{largest[0]} to 2^{largest[0]}"


def beyond_norms(error: Float64, a: Float32, b: Float32) -> Float64:
    """Return the size of each error as a share of the bound of fp32-norm."""
    bound = BY_NORMS * a.shape[1] * float(np.abs(a).max()) * float(np.abs(b).max())
    share: Float64 = np.abs(error) / bound
    return share


def any_data(
    shape: Shape, rng: np.random.Generator, types: Types = SINGLE
) -> tuple[Float32, Float32]:
    """Return A and B on U(-1, 1), but for some rows of A and columns of B, anywhere.

    The powers of two in these are smaller in a format of smaller numbers.

    shape: at least SHAPE
    """
    share = min(format_.largest_exponent for format_ in types.formats) / FLOAT32.largest_exponent

    offset = min(1000, 2.0 ** (min(format_.largest_exponent for format_ in types.formats) - 2))

    def power(exponent: Any) -> Float32:
        """Return a power of two, by an exponent for float32's range."""
        powers: Float32 = np.exp2(np.trunc(exponent * share)).astype(np.float32)
        return powers

    a, b = (
        rng.uniform(-1, 1, size).astype(np.float32)
        for size in ((shape.m, shape.k), (shape.k, shape.n))
    )
    for first in range(0, min(shape.m, shape.n) - 31, 32):
        for lines in (a[first:], b.T[first:]):
            lines[8:12] *= power(rng.integers(-30, 31, (4, shape.k)))
            lines[12:14] *= power(-140)
            lines[14] = 0
            lines[16:18] += offset
            lines[17, ::2] *= -1  # times the row with an offset: it cancels
            lines[15] = 0
            lines[15, 4] = 0.4  # times the largest numbers, nearly the largest
            lines[24] *= power(126)
            lines[25] = np.copysign(1, lines[25]) + lines[25] / 2
            lines[25] *= power(127)  # finite after all rounding
            lines[26] *= power(-60)
            lines[27] *= power(-100)
        rows = a[first:]
        columns = b[:, first:]
        rows[18, 0] = power(40)
        columns[0, 18:22] = 0
        columns[1, 23] = power(40)
        rows[18:22, 1] = 0
        scales = power(rng.integers(-20, 21, shape.k))
        rows[22] *= scales  # large times small: all products are alike
        columns[:, 22] /= scales
        rows[28, -1] = -np.inf
        rows[29, 3] = np.nan
        columns[3, 30] = 0
        columns[[1, -1], 31] = np.inf  # whose terms have different signs in half of the rows
    return types.rounded(a[rng.permutation(shape.m)], b[:, rng.permutation(shape.n)])


def not_as_fp32(a: Float32, b: Float32, c: Float32, types: Types = SINGLE) -> dict[str, int]:
    """Return how many elements of C no order of FP32 operations gives.

    An element is rounded to C's format. They are counted by what is special about them.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        right = a.astype(np.float64) @ b
        sizes = _finite_sizes(a) @ _finite_sizes(b)
        terms = (a != 0).astype(np.float64) @ (b != 0)
        units = UNIT_ROUNDOFF * np.maximum(sizes, TINY)
        error = np.abs(beyond_rounding(c - right, right, types.c))
        is_near = error <= 2 * np.maximum(terms, FEWEST) * units
        is_special = ~np.isfinite(right)
        is_equal = (c == right) | (np.isnan(c) & np.isnan(right))
        if types.epilogue == RELU:  # fmaxf makes NaN 0
            is_equal |= (c == 0) & np.isnan(right)
        is_subnormal = _has_subnormals(a, b, types) | (error <= a.shape[1] * TINY)
        is_subnormal |= error <= _flushed(types.c)  # also on the way
        is_beyond = np.isfinite(right) & _is_beyond(right, types.c)
    wrong = ~np.where(is_special, is_equal, is_near)
    wrong[is_beyond] = c[is_beyond] != np.copysign(np.inf, right[is_beyond])
    wrong &= is_beyond | (sizes < _no_overflow(types.c))  # others may overflow, in some order
    overflows = ~np.isfinite(c) & (_largest_factors(a, b) >= LARGE)
    kinds = (
        (SATURATED, is_beyond),
        (SPECIAL, is_special | ~(np.isfinite(c) | overflows)),
        (OVERFLOW, overflows),
        (SUBNORMAL, is_subnormal),
        (ALONE, terms == 1),
        (MIXED, np.ones_like(wrong)),
    )
    unlike = {}
    for name, is_kind in kinds:
        if count := int((wrong & is_kind).sum()):
            unlike[name] = count
        wrong &= ~is_kind
    if MIXED in unlike:  # which also loses single products
        unlike[MIXED] += unlike.pop(ALONE, 0)
    return unlike


def _no_overflow(format_: Format) -> float:
    """Return the size of sums below which no partial sum overflows, whatever the order."""
    return 2.0**format_.largest_exponent


def _is_beyond(right: Float64, format_: Format) -> Which:
    """Return which sums are infinite in a format of 16 bits, but not in FP32."""
    if format_.largest_exponent == FLOAT32.largest_exponent:
        return np.zeros(right.shape, np.bool_)
    is_beyond: Which = np.abs(right) >= 2.0 ** (format_.largest_exponent + 1)
    return is_beyond


def _flushed(format_: Format) -> float:
    """Return the size up to which numbers may be flushed to 0 when C is stored."""
    return 0.0 if format_ == FLOAT32 else format_.tiny


def least_overflow(a: Float32, b: Float32, c: Float32) -> float:
    """Return the least factor for which C isn't finite, though FP32 doesn't overflow.

    It is the largest one of its row of A and column of B; infinity if there is none.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        is_finite = np.isfinite(a.astype(np.float64) @ b)
    fits = _finite_sizes(a) @ _finite_sizes(b) < 2.0**127
    factors = _largest_factors(a, b)
    overflows = is_finite & fits & ~np.isfinite(c) & (factors >= LARGE)
    return float(np.min(factors, where=overflows, initial=np.inf))


def _largest_factors(a: Float32, b: Float32) -> Float32:
    """Return the largest number in the row of A and the column of B of each element."""
    in_rows = np.abs(a).max(axis=1)[:, None]
    in_columns = np.abs(b).max(axis=0)[None, :]
    largest: Float32 = np.maximum(in_rows, in_columns)
    return largest


def _finite_sizes(matrix: Float32) -> Float64:
    """Return the absolute values of a matrix, with 0 for infinities and NaN."""
    return np.where(np.isfinite(matrix), np.abs(matrix), 0).astype(np.float64)


def _has_subnormals(a: Float32, b: Float32, types: Types) -> Which:
    """Return which elements of A B have a row of A or a column of B of subnormal numbers."""
    row_sizes = np.abs(a).max(axis=1)[:, None]
    column_sizes = np.abs(b).max(axis=0)[None, :]
    is_row = (row_sizes > 0) & (row_sizes < types.a.tiny)
    is_column = (column_sizes > 0) & (column_sizes < types.b.tiny)
    is_either: Which = is_row | is_column
    return is_either
