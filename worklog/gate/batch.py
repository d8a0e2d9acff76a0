"""The stage for several products in one launch: their matrices lie apart, with poison between.

Elsewhere the gate launches one product. A kernel that computes the first one alone, takes the
wrong distance between matrices, or has a bias, alpha, an activation or a leading dimension in the
first product alone is right there. So is a kernel for few products: a further launch has more
than a byte counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from worklog.errors import LaunchFailed
from worklog.gate.edges import SPECIAL, small_old_c
from worklog.gate.guarded_buffer import GuardedBuffers, Memory
from worklog.gate.leading import GAPS as LONGER_ROWS
from worklog.gate.operands import SMALL, integer_operands, product_factors
from worklog.gate.parts import Parts, cause, is_near, parts_of
from worklog.kernel import WIDE, Buffer, Kernel, Loaded
from worklog.kernel.operands import RESIDUAL
from worklog.problem import Float32, Shape
from worklog.problem.formats import Format
from worklog.runs import Stage, failed, passed
from worklog.runs.text import a_few, before_lines

BATCH = "batch"
PRODUCTS = 5
SHAPE = Shape(*SPECIAL, SPECIAL[0])
MANY_PRODUCTS = 300
SHAPE_OF_MANY = Shape(3, 5, 4)
# Elements between the matrices of a batch, beyond what 16 bits count. Whole vectors stay aligned,
# and each is another number. Operands have those of C.
GAPS = {"A": 2**16 + 32, "B": 2**16 + 64, "C": 2**16 + 96}
Gaps = Mapping[str, int]  # elements between two matrices or operands, by name
NO_GAPS: Gaps = {}


def check_batch(subject: Loaded, memory: Memory) -> Stage:
    """Launch several products, each with inputs of its own.

    If the kernel takes the distances between the matrices, they are larger than the matrices; NaN
    lies between those of A and B, and what lies between those of C must stay. If it also takes
    leading dimensions, a second launch has rows that are longer than the matrix. A third launch has
    many small products.
    """
    batch = BatchedProducts(subject, memory)
    launch = f"{PRODUCTS} products of {batch.shape} with {batch.epilogue}"
    mistake = batch.mistake(batch.gaps)
    if mistake:
        return failed(BATCH, f"{launch}: {before_lines(mistake, _wrong_stride(batch))}")
    detail = f"right in {launch}{', apart' if batch.strides else ''}"
    clause = ""
    mistake = batch.mistake(batch.gaps, batch.row_gaps) if batch.row_gaps else ""
    if mistake:
        ignored = _ignored_leading_dimensions(batch)
        if not subject.kernel.states_leading:
            addition = f"with {ignored} above the rows' length"
            return failed(BATCH, f"{launch}, {addition}: {mistake}")
        clause = f"right in a batch only where {ignored} equals the rows' length"
        detail += f"; {clause}, as it is launched: {mistake}"
    many_products = BatchedProducts(subject, memory, SHAPE_OF_MANY, MANY_PRODUCTS)
    launch = f"{MANY_PRODUCTS} products of {many_products.shape}"
    mistake = many_products.mistake(NO_GAPS)
    if mistake:
        return failed(BATCH, f"{launch}: {mistake}")
    return passed(BATCH, f"{detail}, and in {launch}", clause=clause)


def _ignored_leading_dimensions(batch: BatchedProducts) -> str:
    """Return the leading dimensions that a kernel doesn't follow in each product.

    All of them if each is followed where it alone is longer.
    """
    wrong_names = list[str]()
    for name, gap in batch.row_gaps.items():
        if batch.mistake(batch.gaps, {name: gap}):
            wrong_names.append(name)
    return " and ".join(batch.leading_names(wrong_names or [*batch.row_gaps]))


def _wrong_stride(batch: BatchedProducts) -> str:
    """Return which distance between matrices a kernel doesn't follow, after a colon, or "".

    It is found by launches in which the distance of one name alone differs from a launch in which
    all products are right: without gaps, or with equal distances.
    """
    is_lost = batch.memory.device.source == "live" and batch.has_fault
    if not batch.strides or is_lost:
        return ""
    for gaps, situation in (
        ({}, "without gaps between the matrices"),
        (batch.gaps_for_equal_strides(), "if all distances are equal"),
    ):
        if batch.mistake(gaps):
            continue
        wrong_names = list[str]()
        for name in batch.strides:
            longer = gaps.get(name, 0) + batch.gap_of(name)
            if batch.mistake({**gaps, name: longer}):
                wrong_names.append(name)
        if wrong_names:
            return _in_words(batch, wrong_names, situation)
    return ""


def _in_words(batch: BatchedProducts, names: Sequence[str], situation: str) -> str:
    """Return the distances that a kernel doesn't follow, after a colon.

    names: of the matrices and operands
    situation: in which all products are right
    """
    parameters = " and ".join(batch.stride_names(names))
    verb = "isn't" if len(names) == 1 else "aren't"
    return (
        f": {parameters} {verb} the distance that is taken (all are right {situation}, "
        f"and wrong with a larger distance in {' or '.join(names)} alone)"
    )


@dataclass(frozen=True)
class _BatchedProduct:
    """The inputs of one product, and the parts of its result."""

    factors: tuple[Float32, Float32]
    old: Float32  # C before the launch
    values: Mapping[str, Float32]  # of the operands
    parts: Parts


class BatchedProducts:
    """The products of a batch, and launches of them.

    gaps: the usual elements between two matrices or operands, by name
    row_gaps: elements behind the rows of the matrices whose leading dimension the kernel takes
    strides: the parameters for the distances between two matrices or operands, by name
    has_fault: whether the last launch failed
    """

    def __init__(
        self, subject: Loaded, memory: Memory, shape: Shape = SHAPE, count: int = PRODUCTS
    ) -> None:
        self.subject = subject
        self.memory = memory
        self.has_fault = False
        self.shape = subject.domain.padded(shape)
        self.alpha = 3.0 if subject.domain.alpha else 1.0
        self.shared = integer_operands(subject, self.shape, memory.rng)
        self.own_operands = subject.kernel.operands_of_each_product
        self.products = [self._drawn() for _ in range(count)]
        declared = subject.kernel.definition.parameters
        self.strides = {
            name: declared[place].name for place, name in subject.kernel.batch_strides.items()
        }
        self.gaps = {name: self.gap_of(name) for name in self.strides}
        self.row_gaps = self._row_gaps()
        self.formats: dict[str, Format] = dict(zip("ABC", subject.types.formats, strict=True))
        for operand in subject.kernel.operands:
            if operand.format is not None:
                self.formats[operand.name] = operand.format

    def _drawn(self) -> _BatchedProduct:
        """Return a product with an operand of its own where each product has one."""
        subject = self.subject
        rng = self.memory.rng
        a, b = product_factors(subject, self.shape, rng)
        drawn_values = integer_operands(subject, self.shape, rng)
        values = dict[str, Float32]()
        for name, numbers in drawn_values.items():
            values[name] = numbers if name in self.own_operands else self.shared[name]
        old = small_old_c(subject, self.shape, rng)
        epilogue = subject.types.epilogue
        if epilogue:
            old = np.clip(old, -SMALL, SMALL)
        parts = parts_of(a.astype(np.float64) @ b, self.alpha, old, values, epilogue)
        return _BatchedProduct((a, b), old, values, parts)

    @property
    def epilogue(self) -> str:
        """Alpha, the operands and the activation, in words."""
        names = [f"alpha = {self.alpha:g}", *self.shared, self.subject.types.epilogue]
        return " and ".join(filter(None, names))

    def _row_gaps(self) -> Gaps:
        """Return the elements behind the rows of a matrix with a leading dimension and a distance.

        A kernel without a distance may compute it from the leading dimension or from the row's
        length, and a residual may lie as C does: then the rows stay as they are.
        """
        followed = {*self.strides}
        if any(operand.name == RESIDUAL for operand in self.subject.kernel.operands):
            followed.discard("C")
        matrices = self.subject.kernel.leading_dimensions.values()
        return {name: LONGER_ROWS[name] for name in matrices if name in followed}

    def gap_of(self, name: str) -> int:
        """Return the usual gap between two matrices or operands of a name."""
        return GAPS.get(name, GAPS["C"])

    def gaps_for_equal_strides(self) -> Gaps:
        """Return gaps with which the distances of all matrices are equal."""
        spans = {row.name: row.span for row in self.rows({}, PRODUCTS)}
        stride = max(spans[name] for name in self.strides) + GAPS["C"]
        return {name: stride - spans[name] for name in self.strides}

    def leading_names(self, names: Sequence[str]) -> list[str]:
        """Return the parameters for the leading dimensions of some matrices."""
        kernel = self.subject.kernel
        declared = kernel.definition.parameters
        places = {name: place for place, name in kernel.leading_dimensions.items()}
        return [declared[places[name]].name for name in names]

    def stride_names(self, names: Sequence[str]) -> list[str]:
        """Return the parameters for the distances of some names."""
        return [self.strides[name] for name in names]

    def mistake(self, gaps: Gaps, row_gaps: Gaps = NO_GAPS) -> str:
        """Launch all products, and describe what is wrong; "" for nothing."""
        count = len(self.products)
        rows = self.rows(gaps, count, row_gaps)
        inputs = [row for row in rows if row.name != "C"]
        [of_c] = [row for row in rows if row.name == "C"]
        contents: list[tuple[str, Float32 | int]] = [
            (row.name, row.in_memory(row.format.poison)) for row in inputs
        ]
        contents.append(("C", of_c.format.nbytes(of_c.size)))
        buffers = GuardedBuffers(self.memory, contents, formats=self.formats)
        buffers.poison()
        device = self.memory.device
        views: dict[str, Buffer] = {}
        for row, array in zip((*inputs, of_c), buffers.arrays, strict=True):
            views[row.name] = device.view(array.inner, 0, row.size)
        device.overwrite(views["C"], of_c.in_memory(buffers.sentinel))
        try:
            extra = {row.name: row.stride - row.length for row in rows}
            self.launch(extra, count, views, row_gaps)
            written = device.download(views["C"]).reshape(count, -1)
            trespass = buffers.trespass()
        except LaunchFailed as error:
            self.has_fault = True
            return str(error)
        if trespass:
            return trespass
        if (written[:, of_c.span :] != buffers.sentinel).any():
            return "it wrote between the matrices of C"
        by_rows = written[:, : of_c.span].reshape(count, self.shape.m, -1)
        if (by_rows[:, :, self.shape.n :] != buffers.sentinel).any():
            return "it wrote between the rows of C"
        return self.wrong_products(by_rows[:, :, : self.shape.n].reshape(count, -1))

    def rows(self, gaps: Gaps, count: int, row_gaps: Gaps = NO_GAPS) -> list[BatchedMatrices]:
        """Return the matrices and the operands behind addresses of so many products."""
        products = self.products[:count]
        factors = [self.memory.types.laid_out(*product.factors) for product in products]
        matrices: dict[str, list[Float32]] = {
            "A": [a for a, _ in factors],
            "B": [b for _, b in factors],
            "C": [product.old for product in products],
        }
        for operand in self.subject.kernel.operands:
            if operand.name in self.own_operands:
                matrices[operand.name] = [product.values[operand.name] for product in products]
            elif operand.format is not None:
                matrices[operand.name] = [self.shared[operand.name]]
        rows = list[BatchedMatrices]()
        for name, of_name in matrices.items():
            # A residual without a distance of its own lies as C does.
            follows_c = name == RESIDUAL and len(of_name) > 1 and name not in self.strides
            gap = gaps.get("C" if follows_c else name, 0)
            row_gap = row_gaps.get(name, 0)
            rows.append(BatchedMatrices(name, of_name, gap, self.formats[name], row_gap))
        return rows

    def launch(
        self, gaps: Gaps, count: int, views: Mapping[str, Buffer], row_gaps: Gaps = NO_GAPS
    ) -> None:
        """Launch so many products. Raises LaunchFailed.

        gaps: elements by which the distances exceed a matrix without gaps, by name
        views: memory by the name of a matrix or an operand
        """
        loaded = _spread(self.subject.kernel, gaps, row_gaps).load(self.memory.device)
        assert isinstance(loaded, Loaded)
        arguments = dict[str, Any]()
        for operand in self.subject.kernel.operands:
            arguments[operand.name] = self.shared[operand.name][0]
            if operand.name in views:
                arguments[operand.name] = views[operand.name]
        loaded.use_operands(arguments)
        a, b, c = (views[name] for name in "ABC")
        beta = 1.0 if self.subject.domain.beta else 0.0
        shape = replace(self.shape, batch=count)
        self.memory.launch(loaded, shape, self.alpha, a, b, beta, c, is_raw=True)

    def wrong_products(self, written: Float32) -> str:
        """Return which products are wrong, with the usual mistake; "" for none.

        written: C of each product as a row
        """
        types = self.subject.types
        numbers = list[str]()
        causes = dict[str, None]()
        for number, row in enumerate(written):
            parts = self.products[number].parts
            c = row.reshape(parts.product.shape)
            if not is_near(c, parts.result, types).all():
                numbers.append(str(number + 1))
                causes[cause(c, parts, types) or self._first_residual(c, parts)] = None
        if not numbers:
            return ""
        verb = "is" if len(numbers) == 1 else "are"
        common_cause = next(iter(causes)) if len(causes) == 1 else ""
        listed = " and ".join(numbers) if len(numbers) <= PRODUCTS else a_few(numbers)
        return f"product {listed} of {len(written)} {verb} wrong{common_cause}"

    def _first_residual(self, c: Float32, parts: Parts) -> str:
        """Return the mistake of a kernel that adds the first residual to each product, or ""."""
        first = self.products[0].parts.added
        if RESIDUAL not in self.own_operands:
            return ""
        with_first = parts.with_added(RESIDUAL, first[RESIDUAL])
        if not is_near(c, with_first.result, self.subject.types).all():
            return ""
        return (
            ": the residual of the first product is added to each. If one residual is for all "
            "products, give it a parameter stride_residual, and 0 for that in --args"
        )


@dataclass(frozen=True)
class BatchedMatrices:
    """The matrices or operands of one name, one behind the other in memory.

    gap: elements behind each
    row_gap: elements behind each row, for a matrix
    """

    name: str
    matrices: Sequence[Float32]
    gap: int
    format: Format
    row_gap: int = 0

    @property
    def length(self) -> int:
        """The elements of a matrix without gaps."""
        return int(self.matrices[0].size)

    @property
    def span(self) -> int:
        """The elements of a matrix, with those behind its rows."""
        if not self.row_gap:
            return self.length
        return self.length + len(self.matrices[0]) * self.row_gap

    @property
    def stride(self) -> int:
        """The elements from the start of a matrix to the start of the next."""
        return self.span + self.gap

    @property
    def size(self) -> int:
        """The elements of all, with a gap behind the last one."""
        return len(self.matrices) * self.stride

    def in_memory(self, gap_value: float | np.float32) -> Float32:
        """Return all elements, with a value in the gaps."""
        padded = list[Float32]()
        for matrix in self.matrices:
            rows = matrix
            if self.row_gap:
                rows = np.pad(matrix, ((0, 0), (0, self.row_gap)), constant_values=gap_value)
            padded.append(np.pad(rows.ravel(), (0, self.gap), constant_values=gap_value))
        return np.concatenate(padded)


def _spread(kernel: Kernel, gaps: Gaps, row_gaps: Gaps) -> Kernel:
    """Return a kernel with larger distances between the matrices of a batch, and longer rows."""
    arguments = list(kernel.arguments)
    changes = [(kernel.batch_strides, gaps), (kernel.leading_dimensions, row_gaps)]
    for names, gap_by_name in changes:
        for place, name in names.items():
            wide = WIDE if arguments[place].startswith(WIDE) else ""
            size = arguments[place].removeprefix(WIDE)
            arguments[place] = f"{wide}{size} + {gap_by_name.get(name, 0)}"
    return replace(kernel, arguments=tuple(arguments))
