"""What a kernel's file doesn't state, found by launches on the emulator: the order of its parameters, and its launch.

A trial fills in what nobody states. What a file states is taken as stated, also where it is wrong. Matrices of small
integers have exact products, and M, N and K differ, so one launch decides: which buffer changed is C, and what is in it
is compared with each product that the other two can have.

An order by names is verified. If it doesn't give the product, the names may follow another convention, such as that of
column-major matrices. Any other order that fits is a mistake of the kernel, which the check reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, permutations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator.limits import MAX_THREADS
from worklog.errors import BadSetting, CompileFailed, LaunchFailed, NvrtcMissing, OutOfMemory
from worklog.kernel.kernel import Kernel
from worklog.kernel.ladder import kernel_of as kernel_as_read
from worklog.kernel.launch import LAUNCH_ADVICE, SIZES, UNREAD_LAUNCH, Launch
from worklog.kernel.signature import WIDE, is_ladders, is_leading_dimension, named, size_of
from worklog.kernel.source import evaluate, filled, parts
from worklog.kernel.stated import JOINT
from worklog.problem import Shape

# Of the labels M, N and K; each for tiles that the one before is no multiple of.
SHORT = (64, 96, 32)
LONG = (256, 384, 128)
LONGEST = (512, 1024, 256)
LENGTHS = (SHORT, LONG, LONGEST)
SCALARS = (2.0, 3.0)  # of the float parameters, in their order
LARGEST = 3  # of a matrix's integers: sums of a thousand products are exact
SPREAD = 16  # rows of C that are compared before all of it is
LEAST_SHARE = 0.2  # of C that must be right for an order to be named
MOST_LAUNCHES = 60
MOST_SHORT = 40  # of these, at the SHORT lengths
MOST_DOUBLINGS = 4  # of a tile, along each axis
ROUNDED_UP = re.compile(r"\((\w+) \+ \d+\) / (\d+)")
MOST_INSTRUCTIONS = 5e7  # of warps, in all launches: some seconds
MOST_TO_VERIFY = 1e7  # of these, in a launch that verifies an order
BLOCKS = ("32, 32", "16, 16", "256", "128", "32, 8", "8, 32", "64", "1024", "512", "8, 8")
FLOAT = "float"  # the label of a float parameter
COLUMNS = ((False, False), (False, True), (True, False), (True, True))
MATRICES = ("A", "B", "C")
# What a parameter takes in another convention for names: by its name, and else instead of a value.
INNER_IS_N = {"n": "K", "k": "N"}
LEADING_BY_COLUMNS = {"lda": "N", "ldb": "K", "ldc": "N"}
EXCHANGED_BY_COLUMNS = {"M": "N", "N": "M", "A": "B", "B": "A"}  # C^T = B^T A^T
Labels = tuple[str, ...]
Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Order:
    """A product that a launch's result may be.

    roles: of each label of a size, "M", "N" or "K".
    matrices: of each pointer in its order, "A", "B" or "C".
    by_columns: whether A, and whether B, is stored by columns.
    scalars: of each float parameter in its order, "alpha" or "beta".
    share: of C's elements that it explains.
    """

    roles: Mapping[str, str]
    matrices: tuple[str, ...]
    by_columns: tuple[bool, bool]
    scalars: tuple[str, ...]
    share: float

    @property
    def rank(self) -> tuple[float, bool]:
        """The larger, the likelier. The gate passes row-major matrices."""
        return self.share, not any(self.by_columns)


@dataclass(frozen=True)
class Candidate:
    """A launch to try.

    labels: of each parameter, the label of a size (M, N or K, whose roles aren't known), an expression of labels,
        FLOAT, or "" for a pointer
    launch: its texts name labels
    roles: the only ones that it is for; None: any
    is_of_one_variable: whether the host passes one variable for several sizes, so that the grid's axes are tried
    """

    labels: Labels
    launch: Launch
    roles: Mapping[str, str] | None = None
    is_of_one_variable: bool = False

    @property
    def sizes(self) -> Labels:
        """The labels of sizes."""
        return tuple(size for size in SIZES if size in self.labels)


@dataclass(frozen=True)
class Found:
    """What a trial ended with.

    lengths: of the labels
    compared: orders
    fitting: of these, those that explain all of C
    is_clean: whether the emulator found no error in the launch
    has_nan: whether the launch wrote NaN
    """

    candidate: Candidate
    order: Order
    lengths: Mapping[str, int]
    compared: int
    fitting: int
    is_clean: bool
    has_nan: bool

    @property
    def is_product(self) -> bool:
        """Whether the launch gives a product and makes no error."""
        return self.is_clean and self.order.share == 1


def kernel_of(what: str, words: Mapping[str, Any]) -> Kernel:
    """The kernel that a user names, as worklog.kernel.kernel_of reads it, completed by trial.

    Raises what that raises, and what `completed` raises.
    """
    kernel = completed(kernel_as_read(what, words))
    kernel.require_launch()
    return kernel


def completed(kernel: Kernel) -> Kernel:
    """Return the kernel with the order of its parameters and its launch, by trial if its file doesn't state them.

    An order by names is verified by one launch. A kernel that lacks nothing stays as it is, and so does one of which a
    trial can't be made: its require_launch says what to state. Raises BadSetting if no order gives a product; and
    CompileFailed and UnsupportedInstruction for a kernel that lacks something.
    """
    return _completed(kernel) if kernel.stated else kernel


@lru_cache(maxsize=64)
def _completed(kernel: Kernel) -> Kernel:
    from worklog.emulator.ptx import UnsupportedInstruction  # here: few commands need it

    conventions = _conventions(kernel)
    if not conventions:
        return _filled(kernel)
    if not _has_launch(kernel):
        # A host's `lda = m` states a launch for columns; for rows, it is one variable for two sizes.
        other = _by_convention(kernel, conventions, is_launched=True)
        if other is not None:
            return other
    try:
        by_names = _filled(kernel)
    except BadSetting:
        other = _by_convention(kernel, conventions)
        if other is None:
            raise
        return other
    try:
        if _shape_of_product(by_names):
            return by_names
        return _by_convention(kernel, conventions) or by_names
    except (CompileFailed, NvrtcMissing, OutOfMemory, UnsupportedInstruction):
        return by_names  # the check reports it


def _has_launch(kernel: Kernel) -> bool:
    """Return whether the order, the grid and the block are known."""
    return bool(kernel.arguments and kernel.grid and kernel.block)


def _conventions(kernel: Kernel) -> dict[str, str]:
    """Return the orders by other conventions for names, and what each convention means.

    A kernel for square matrices has none: one that is written for columns gives B·A, as a mistake does.
    """
    values = _plain(kernel.arguments)
    if kernel.stated["args"] or is_ladders(values) or not {*SIZES} <= {*values}:
        return {}
    declared = kernel.definition.parameters
    # What the host code passes for leading dimensions is stated, whatever the order of the matrices.
    labels = [
        "" if is_leading_dimension(parameter) else size_of(value)
        for parameter, value in zip(declared, values, strict=True)
    ]
    passed = {} if labels == [size_of(value) for value in values] else kernel.passed(labels)
    inner_is_n = list[str]()
    by_columns = list[str]()
    for place, (parameter, value) in enumerate(zip(declared, values, strict=True)):
        name = parameter.name.lower().replace("_", "")
        inner_is_n.append(INNER_IS_N.get(name, value))
        exchanged = EXCHANGED_BY_COLUMNS.get(value, value)
        is_stated = place in passed
        by_columns.append(exchanged if is_stated else LEADING_BY_COLUMNS.get(name, exchanged))
    conventions = {",".join(by_columns): "column-major"}
    if inner_is_n != values:
        conventions[",".join(inner_is_n)] = "A is M x N, B is N x K"
    return conventions


def _plain(arguments: Sequence[str]) -> list[str]:
    """Return values without their widths."""
    return [value.removeprefix(WIDE) for value in arguments]


def _by_convention(
    kernel: Kernel, conventions: Mapping[str, str], *, is_launched: bool = False
) -> Kernel | None:
    """Return the kernel with the only one of these orders that gives the product, if exactly one does.

    is_launched: only try orders with which the file states a launch
    """
    as_read = Kernel.from_source(**kernel.stated)
    if (as_read.code, as_read.launches) != (kernel.code, kernel.launches):
        return None  # a program has changed its text or launch, which would be lost
    products = dict[str, tuple[Kernel, Shape]]()
    for order in conventions:
        other = Kernel.from_source(**{**kernel.stated, "args": order})
        if is_launched and not _has_launch(other):
            continue
        try:
            made = _filled(other, is_quick=True)
            shape = _shape_of_product(made)
        except (BadSetting, OutOfMemory):  # no launch gives a product
            continue
        if shape:
            products[order] = (made, shape)
    if len(products) != 1:
        return None
    [(order, (made, shape))] = products.items()
    line = (
        f"order: by trial, the names say {','.join(_plain(kernel.arguments))}, and only {order} "
        f"({conventions[order]}) gives A·B at {shape}; --args '{order}' states it"
    )
    # The source's own lines are read anew in this order; lines about files are kept.
    kept = [text for text in kernel.adapted if text not in as_read.adapted]
    return replace(
        made,
        name=kernel.name,
        adapted=(*made.adapted, *kept, line),
        found={**made.found, "order": "by trial"},
    )


def _shape_of_product(kernel: Kernel) -> Shape | None:
    """Return the shape at which a kernel's launch gives the product in the kernel's order, if it does."""
    shapes = [Shape(*lengths) for lengths in LENGTHS]
    shape = next((shape for shape in shapes if _is_whole(kernel, shape)), None)
    if shape is None:
        return None
    values = _plain(kernel.arguments)
    matrices = tuple(value for value in values if value in MATRICES)
    scalars = tuple(value for value in values if value in ("alpha", "beta"))
    for order in _Trial(kernel).orders(shape):
        is_own = order.matrices == matrices and order.scalars == scalars
        if is_own and order.share == 1 and not any(order.by_columns):
            return shape
    return None


def _is_whole(kernel: Kernel, shape: Shape) -> bool:
    """Return whether a shape is in the domain, and a multiple of the tile that the grid implies."""
    if shape not in kernel.domain:
        return False
    sides = _sides(shape)
    lengths = np.arange(1, max(LONGEST) + 1)
    for part in parts(kernel.grid):
        axes = [size for size in SIZES if re.search(rf"\b{size}\b", part)]
        if len(axes) == 1:
            [size] = axes
            blocks = evaluate(part, {**kernel.template, size: lengths})
            tile = np.count_nonzero(blocks == 1)  # whether the grid rounds up or down
            if tile and sides[size] % tile:
                return False
    return True


def _sides(shape: Shape) -> dict[str, int]:
    """Return the lengths by their names."""
    return {"M": shape.m, "N": shape.n, "K": shape.k}


def _filled(kernel: Kernel, *, is_quick: bool = False) -> Kernel:
    """Return the kernel with what its file doesn't state, by trial. Raises BadSetting.

    is_quick: end a search for a launch that finds none at short lengths
    """
    if _has_launch(kernel):
        return replace(kernel, stated={})
    trial = _Trial(kernel)
    labelings = [*_labelings(kernel)]
    stated = [*chain.from_iterable(_stated_candidates(kernel, labels) for labels in labelings)]
    if stated:
        found = trial.search(stated, LENGTHS[:1] if is_quick else LENGTHS, is_stated=True)
        if found is None:
            raise BadSetting(
                f"{kernel.file}: {kernel.function}: none of {trial.compared} orders of its parameters gives a "
                f"product with the launch that the file states, {_text(stated[0].launch)}: "
                f"give the order, as in --args '{_example_order(kernel)}'"
            )
        return _with_found(kernel, found, is_launch_stated=True)
    found = _search_launch(kernel, trial, labelings, is_quick=is_quick)
    if found is None or not found.is_product:
        nearest = ""
        if found is not None:
            launch = found.candidate.launch
            nearest = f"; the nearest, {_text(launch)}, gives {found.order.share:.0%} of C"
            if found.has_nan:
                nearest += ", and NaN where a value was never set"
        raise BadSetting(
            f"{kernel.function} needs a launch, and {kernel.file} doesn't state one: {LAUNCH_ADVICE} "
            f"(of {trial.launches} launches that were tried on the emulator, none gives a "
            f"product{nearest})"
        )
    return _with_found(kernel, found, is_launch_stated=False)


def _search_launch(
    kernel: Kernel, trial: _Trial, labelings: Sequence[Labels], *, is_quick: bool
) -> Found | None:
    """A launch that gives a product, else the nearest to one, if any is near."""
    short = list[Candidate]()
    long = list[Candidate]()
    for tile, candidate in chain.from_iterable(_searched(kernel, way) for way in labelings):
        (short if tile <= SHORT[-1] else long).append(candidate)
    found = trial.search(short, [SHORT], MOST_SHORT)
    if (found is None or not found.is_product) and not is_quick:
        found = trial.search(long, [LONG]) or found
    if found is None or not found.is_product:
        return found
    # A kernel with guards takes more blocks than it needs: its tile may be larger.
    if kernel.launch.grid:
        return found
    return _with_fewest_blocks(found, trial)


def _with_fewest_blocks(found: Found, trial: _Trial) -> Found:
    """Return a launch that was found with the largest tile along each axis that still gives the product."""
    for axis in (0, 1):
        for _ in range(MOST_DOUBLINGS):
            launch = found.candidate.launch
            grid = parts(launch.grid)
            rounded_up = ROUNDED_UP.fullmatch(grid[axis])
            assert rounded_up is not None, "as _searched writes it"
            grid[axis] = _rounded_up(rounded_up[1], 2 * int(rounded_up[2]))
            candidate = replace(
                found.candidate,
                launch=replace(launch, grid=", ".join(grid)),
                roles=found.order.roles,
            )
            wider = trial.search([candidate], [LONG])
            if wider is None or not wider.is_product:
                break
            found = replace(found, candidate=replace(candidate, roles=found.candidate.roles))
    return found


def _rounded_up(size: str, tile: int) -> str:
    """Return the number of tiles that cover a size."""
    return f"({size} + {tile - 1}) / {tile}"


def _text(launch: Launch) -> str:
    return f"grid {launch.grid}; block {launch.block}"


def _labelings(kernel: Kernel) -> Iterator[Labels]:
    """Ways to give each integer a label of a size: the one that its name says, else any of three, or of one.

    What the host code passes as a number may be no size, such as a tile's width. Raises BadSetting for too many.
    """
    if kernel.arguments:
        known = dict.fromkeys(("A", "B", "C"), "") | dict.fromkeys(("alpha", "beta"), FLOAT)
        values = [value.removeprefix(WIDE) for value in kernel.arguments]
        yield tuple(known.get(value, value) for value in values)
        return
    declared = kernel.definition.parameters
    integers = [place for place, p in enumerate(declared) if "int" in p.dtype and not p.pointer]
    floats = [
        place
        for place, p in enumerate(declared)
        if not p.pointer and (p.dtype == "float32" or p.type in kernel.definition.template)
    ]
    labels = [name if place in integers else "" for place, name in enumerate(named(declared))]
    open_places = [place for place in integers if not labels[place]]
    passed = kernel.passed(labels)
    options = list[tuple[str, ...]]()
    for place in open_places:
        text = passed.get(place, "")
        if {*SIZES} <= {*labels} and text:
            options.append((text,))
        else:
            options.append((*SIZES, text) if text.isdigit() else SIZES)
    for place in floats:
        labels[place] = FLOAT
    ways = list[Labels]()
    for chosen in product(*options):
        labeling = list(labels)
        for place, label in zip(open_places, chosen, strict=True):
            labeling[place] = label
        sizes = [label for label in labeling if label in SIZES]
        used = list(dict.fromkeys(sizes))
        # Without names, the labels mean nothing yet: only their first use in order is tried.
        is_new = any(label in SIZES for label in labels) or used == [*SIZES][: len(used)]
        if is_new and (len(used) == 3 or len(sizes) == 1):
            ways.append(tuple(labeling))
    ways.sort(key=lambda way: sum(label.isdigit() for label in way))
    if not ways or len(ways) > MOST_LAUNCHES:
        names = ", ".join(p.name for p in declared)
        raise BadSetting(
            f"{kernel.file}: {kernel.function}({names}): the names don't say which parameter is which, and a trial "
            f"finds only M, N and K, or one size: state the order, as in --args '{_example_order(kernel)}', with a "
            "number for what is no size"
        )
    yield from ways


def _example_order(kernel: Kernel) -> str:
    """Return an order of the kernel's parameters, as an example of what to give."""
    declared = kernel.definition.parameters
    integers = sum("int" in parameter.dtype and not parameter.pointer for parameter in declared)
    sizes = iter(("N",) if integers == 1 else ("K", "N") if integers == 2 else SIZES)
    matrices = iter(MATRICES)
    scalars = iter(("alpha", "beta"))
    values = list[str]()
    for parameter in declared:
        if parameter.pointer:
            values.append(next(matrices, "?"))
        elif "int" in parameter.dtype:
            values.append(next(sizes, "16"))
        else:
            values.append(next(scalars, "?"))
    return ",".join(values)


def _stated_candidates(kernel: Kernel, labels: Labels) -> Iterator[Candidate]:
    """The launch that a user or the file states. A user's names M, N and K, which are roles and no labels.

    Raises BadSetting for one that isn't read: a trial would choose another.
    """
    sizes = Candidate(labels, kernel.launch).sizes
    if kernel.launch.grid and kernel.launch.block:
        for roles in _roles(sizes):
            names = {role: label for label, role in roles.items()}
            grid = filled(kernel.launch.grid, names)
            yield Candidate(labels, replace(kernel.launch, grid=grid), roles)
        return
    launch, unread = kernel.read_launch(labels)
    if JOINT.search(launch.grid):
        for grid in _with_axes(launch.grid):
            yield Candidate(labels, replace(launch, grid=grid), is_of_one_variable=True)
    elif launch.grid and launch.block:
        yield Candidate(labels, launch)
    elif unread:
        raise BadSetting(
            f"{kernel.function} needs a launch, and {kernel.file} doesn't state one: {'; '.join(unread)}; "
            f"{LAUNCH_ADVICE}"
        )


def _with_axes(grid: str) -> list[str]:
    """The grids that one may be in which a variable stands for several sizes, the likelier first."""
    likely = ("N", "M", "K")
    options = list[list[str]]()
    for part in parts(grid):
        joint = JOINT.search(part)
        sizes = sorted(joint[0].split("_or_"), key=likely.index) if joint else [""]
        options.append([JOINT.sub(size, part) for size in sizes])
    grids = [*product(*options)]
    # Two axes of a grid are rarely of one size.
    grids.sort(key=lambda axes: len({*"".join(axes)} & {*SIZES}), reverse=True)
    return [", ".join(axes) for axes in grids]


def _roles(sizes: Sequence[str]) -> list[dict[str, str]]:
    """Each way in which labels of sizes may have the roles M, N and K."""
    if len(sizes) == 1:
        return [{sizes[0]: "N"}]
    return [dict(zip(SIZES, roles, strict=True)) for roles in permutations(SIZES)]


def _searched(kernel: Kernel, labels: Labels) -> Iterator[tuple[int, Candidate]]:
    """Launches of a kernel that no file launches, and the sides of their tiles: from its constants, and usual ones."""
    named_numbers = {**kernel.unit.constants, **_template(kernel)}
    numbers = {name: int(text) for name, text in named_numbers.items() if text.isdigit()}
    constants = sorted({number for number in numbers.values() if 4 <= number <= 256})
    bounds = kernel.definition.bounds
    squares = [f"{side}, {side}" for side in constants if side * side <= MAX_THREADS]
    usual = [(numbers["BN"], numbers["BM"])] if {"BM", "BN"} <= {*numbers} else []
    own_block = [
        str(wide * high // (numbers.get("TM", 1) * numbers.get("TN", 1))) for wide, high in usual
    ]
    if kernel.launch.block:
        blocks = [kernel.launch.block]
    elif bounds:
        blocks = [bounds]
    else:
        blocks = list(dict.fromkeys([*own_block, *squares, *BLOCKS]))
    sizes = Candidate(labels, kernel.launch).sizes
    named_sizes = SIZES if kernel.arguments and len(sizes) > 1 else sizes
    likely = [pair for pair in (("N", "M"), ("M", "N")) if {*pair} <= {*named_sizes}]
    others = [] if kernel.arguments else permutations(sizes, 2)
    axes = list(dict.fromkeys([*likely, *others])) or [(sizes[0], sizes[0])]
    for block in blocks:
        try:
            threads = [int(evaluate(part, {**numbers, **kernel.template})) for part in parts(block)]
        except BadSetting:  # a bound that is computed
            continue
        own = (threads[0], threads[1] if len(threads) > 1 else 1)
        sides = sorted({32, 64, 128, *constants}, reverse=True)
        # From the largest: a kernel with guards takes more blocks than it needs, too.
        tiles = dict.fromkeys([*usual, *((side, side) for side in sides), own])
        for (wide, high), (x, y) in product(tiles, axes):
            grid = f"{_rounded_up(x, wide)}, {_rounded_up(y, high)}"
            if kernel.launch.grid:
                grid = kernel.launch.grid
            launch = replace(kernel.launch, grid=grid, block=block)
            yield max(wide, high), Candidate(labels, launch)


def _template(kernel: Kernel) -> dict[str, str]:
    """The values of the kernel's template."""
    _, _, instance = kernel.entry.partition("<")
    values = parts(instance.rpartition(">")[0])
    return dict(zip(kernel.definition.template, values, strict=False))


class _Trial:
    """A compiled kernel and what was tried of it.

    launches: how many
    compared: orders, with one launch
    """

    def __init__(self, kernel: Kernel) -> None:
        from worklog.emulator.reports import TooLarge  # here: few commands need it
        from worklog.kernel.emulated import EmulatedDevice

        self.kernel = kernel
        self.declared = kernel.definition.parameters
        self.launches = 0
        self.compared = 0
        self._too_large = TooLarge
        self._device = EmulatedDevice(races=False)
        self._device.most_instructions = MOST_INSTRUCTIONS
        self._compiled = self._device.compile(kernel.program)  # as a check does: compiled once

    def search(
        self,
        candidates: Iterable[Candidate],
        lengths: Sequence[tuple[int, ...]] = LENGTHS,
        most: int = MOST_LAUNCHES,
        *,
        is_stated: bool = False,
    ) -> Found | None:
        """The first launch whose result is a product, else the one that is nearest to one, if any is near.

        is_stated: whether a user or the file states the launch, which then may make errors
        """
        best: Found | None = None
        seen = set[tuple[Any, ...]]()
        for candidate, numbers in product([*candidates], lengths):
            values = dict(zip(SIZES, numbers, strict=True))
            if len(candidate.sizes) == 1:
                values = dict.fromkeys(SIZES, numbers[0])
            try:
                grid = candidate.launch.blocks({**values, **self.kernel.template})
                threads = candidate.launch.threads(self.kernel.template)
            except BadSetting:
                continue
            key = (candidate.labels, grid, threads, numbers, str(candidate.roles))
            if key in seen or min(grid) < 1 or self.launches >= most:
                continue
            seen.add(key)
            try:
                before, after, is_clean = self._launched(candidate, grid, threads, values)
            except self._too_large:
                break
            orders = fitting(before, after, candidate, values)
            self.compared = max(self.compared, len(orders))
            exact = sum(order.share == 1 for order in orders)
            for order in orders:
                if order.share >= LEAST_SHARE and (best is None or order.rank > best.order.rank):
                    has_nan = any(np.isnan(matrix).any() for matrix in after)
                    best = Found(candidate, order, values, len(orders), exact, is_clean, has_nan)
            # With a stated launch, an error is a matter of the check.
            if best is not None and best.order.share == 1 and (best.is_clean or is_stated):
                return best
        return best

    def orders(self, shape: Shape) -> list[Order]:
        """Return the products that the kernel's own launch may give at a shape, in the sizes of its order.

        Raises TooLarge, as for a grid of constants that is for large matrices.
        """
        self._device.most_instructions = MOST_TO_VERIFY
        launch = self.kernel.launch
        [labels] = _labelings(self.kernel)
        sides = _sides(shape)
        candidate = Candidate(labels, launch, roles={size: size for size in SIZES})
        grid = launch.blocks({**sides, **self.kernel.template})
        if min(grid) < 1:
            return []
        threads = launch.threads(self.kernel.template)
        before, after, _ = self._launched(candidate, grid, threads, sides)
        return fitting(before, after, candidate, sides)

    def _launched(
        self, candidate: Candidate, grid: tuple[int, ...], threads: Any, lengths: Mapping[str, int]
    ) -> tuple[list[Matrix], list[Matrix], bool]:
        """The matrices before and after a launch, and whether the emulator found no error in it."""
        rng = np.random.default_rng(1)
        elements = max(x * y for x, y in permutations(lengths.values(), 2))
        before = list[Matrix]()
        buffers = list[Any]()
        arguments = list[Any]()
        scalars = iter(SCALARS)
        for parameter, label in zip(self.declared, candidate.labels, strict=True):
            if parameter.pointer:
                drawn = rng.integers(-LARGEST, LARGEST + 1, elements).astype(np.float32)
                buffer = self._device.upload(drawn)
                before.append(drawn)
                buffers.append(buffer)
                arguments.append(buffer)
            elif label == FLOAT:
                arguments.append(np.float32(next(scalars)))
            else:
                value = evaluate(label, lengths)
                arguments.append(np.dtype(parameter.dtype).type(value))
        self.launches += 1
        is_clean = True
        shared = candidate.launch.shared
        program = replace(self._compiled.program, arguments=(), shared=shared)
        try:
            self._device.launch(replace(self._compiled, program=program), grid, threads, arguments)
            self._device.synchronize()
        except LaunchFailed as error:
            if isinstance(error, self._too_large):
                raise
            is_clean = False
        return before, [buffer.data for buffer in buffers], is_clean


def fitting(
    before: Sequence[Matrix],
    after: Sequence[Matrix],
    candidate: Candidate,
    lengths: Mapping[str, int],
) -> list[Order]:
    """Each product that may be what a launch wrote, with its share of C's elements.

    before, after: each pointer's elements
    lengths: of the labels
    """
    changed = [place for place, old in enumerate(before) if not np.array_equal(old, after[place])]
    if len(changed) != 1 or len(before) != 3:
        return []
    [written] = changed
    others = [place for place in range(3) if place != written]
    orders = list[Order]()
    for roles in _roles(candidate.sizes) if candidate.roles is None else [candidate.roles]:
        length = {role: lengths[label] for label, role in roles.items()}
        m, n, k = (length.get(size, length["N"]) for size in SIZES)
        old = before[written][: m * n].reshape(m, n)
        new = after[written][: m * n].reshape(m, n)
        for (first, second), columns in product(permutations(others), COLUMNS):
            a = _matrix(before[first], m, k, columns[0])
            b = _matrix(before[second], k, n, columns[1])
            matrices = {written: "C", first: "A", second: "B"}
            placed = tuple(matrices[place] for place in range(3))
            for scalars, share in _shares(a, b, old, new, candidate.labels.count(FLOAT)):
                orders.append(Order(roles, placed, columns, scalars, share))
    return orders


def _shares(
    a: Matrix, b: Matrix, old: Matrix, new: Matrix, floats: int
) -> Iterator[tuple[tuple[str, ...], float]]:
    """For each order of alpha and beta, the share of C that is right with it."""
    rows = np.linspace(0, len(new) - 1, SPREAD).astype(int)
    part = a[rows] @ b
    for scalars in dict.fromkeys(pair[:floats] for pair in (("alpha", "beta"), ("beta", "alpha"))):
        values = dict(zip(scalars, SCALARS, strict=False))
        alpha = values.get("alpha", 1.0)
        # Without a beta, a kernel may set C or add to it.
        betas = (values["beta"],) if "beta" in values else (0.0, 1.0)
        shares = [float(np.mean(new[rows] == alpha * part + beta * old[rows])) for beta in betas]
        beta = betas[shares.index(max(shares))]
        share = max(shares)
        if share == 1:
            share = float(np.mean(new == alpha * (a @ b) + beta * old))
        yield scalars, share


def _matrix(elements: Matrix, rows: int, columns: int, by_columns: bool) -> Matrix:
    """A matrix of the first elements of a buffer."""
    if by_columns:
        return elements[: rows * columns].reshape(columns, rows).T
    return elements[: rows * columns].reshape(rows, columns)


def _with_found(kernel: Kernel, found: Found, *, is_launch_stated: bool) -> Kernel:
    """The kernel as if its file stated what was found, with lines that say so."""
    launch = found.candidate.launch
    words = dict(kernel.stated)
    lines = list[str]()
    warnings = list[str]()
    known = dict[str, str]()
    if not kernel.arguments:
        words["args"] = ",".join(_arguments(kernel, found))
        lines.append(f"order: by trial, {_reason(found)}; --args '{words['args']}' states it")
        known["order"] = "by trial"
    if not is_launch_stated:
        words["grid"] = filled(launch.grid, {} if kernel.arguments else found.order.roles)
        words["block"] = launch.block
        is_unread = any(UNREAD_LAUNCH in line for line in kernel.adapted)
        reason = "neither its file nor one that includes it launches it"
        if is_unread:
            reason = "what launches it isn't read"
        warnings.append(
            f"launch: by trial, {reason}, and the author's may differ: "
            f"grid {words['grid']}; block {launch.block}"
        )
        known["launch"] = "by trial"
    elif found.candidate.is_of_one_variable:
        words["grid"] = filled(launch.grid, {} if kernel.arguments else found.order.roles)
        words["block"] = launch.block
        words["shared"] = launch.shared
        warnings.append(
            "the grid's axes: by trial, the host passes one variable for several sizes: "
            f"grid {words['grid']}; block {launch.block}"
        )
        known["axes"] = "by trial"
    made = Kernel.from_source(**words)
    # Without an order, the first line says what isn't clear.
    before = kernel.adapted if kernel.arguments else kernel.adapted[1:]
    kept = [line for line in before if line not in made.adapted]
    return replace(
        made,
        name=kernel.name,
        adapted=(*made.adapted, *kept, *lines),
        warnings=(*warnings, *made.warnings),
        stated={},
        found=known,
    )


def _reason(found: Found) -> str:
    """Why an order was taken."""
    at = "x".join(str(found.lengths[size]) for size in SIZES)
    order = found.order
    sizes = [label for label in found.candidate.labels if label in SIZES]
    if order.share < 1:
        reason = f"{order.share:.0%} of C at {at} are right, the most of {found.compared}"
    elif len(found.candidate.sizes) == 1:
        reason = f"not unique (square): taken as row-major, it gives A·B at {at}"
    elif found.fitting > 1 or len(sizes) > len(found.candidate.sizes):
        # A parameter that the kernel doesn't use may take any size.
        reason = f"the first that gives A·B at {at}, and others may"
    else:
        reason = f"the only one of {found.compared} that gives A·B at {at}"
    stored = [name for name, columns in zip("AB", order.by_columns, strict=True) if columns]
    if stored:
        reason += f", with {' and '.join(stored)} stored by columns, which the gate doesn't pass"
    return reason


def _arguments(kernel: Kernel, found: Found) -> Iterator[str]:
    """What each parameter takes."""
    matrices = iter(found.order.matrices)
    scalars = iter(found.order.scalars)
    declared = kernel.definition.parameters
    for parameter, label in zip(declared, found.candidate.labels, strict=True):
        if parameter.pointer:
            yield next(matrices)
        elif label == FLOAT:
            yield next(scalars)
        else:
            yield filled(label, found.order.roles)
