"""The launches to try: the launch that a kernel's file states, or else usual launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

from worklog.emulator.limits import MAX_THREADS
from worklog.errors import BadSetting
from worklog.kernel.kernel import Kernel
from worklog.kernel.launch import LAUNCH_ADVICE, Launch
from worklog.kernel.signature import SIZE_NAMES, WIDE, named
from worklog.kernel.source import evaluate, filled, split_list
from worklog.kernel.stated import JOINT
from worklog.kernel.trial.of_source import stated_launch, values_passed

MAX_LAUNCHES = 60
BLOCKS = ("32, 32", "16, 16", "256", "128", "32, 8", "8, 32", "64", "1024", "512", "8, 8")
FLOAT = "float"  # the label of a float parameter
Labels = tuple[str, ...]


@dataclass(frozen=True)
class Candidate:
    """A launch to try."""

    # Of each parameter: the label of a size (M, N or K, whose role isn't known), an expression of
    # labels, FLOAT, or "" for a pointer.
    labels: Labels
    launch: Launch  # its texts name labels
    roles: Mapping[str, str] | None = None  # the only roles of the labels; None for any roles
    # Whether the host passes one variable for several sizes, so that the grid's axes are tried.
    is_of_one_variable: bool = False

    @property
    def sizes(self) -> Labels:
        """The labels of sizes."""
        return tuple(size for size in SIZE_NAMES if size in self.labels)


def roles_of(sizes: Sequence[str]) -> list[dict[str, str]]:
    """Return each way to assign the roles M, N and K to labels of sizes."""
    if len(sizes) == 1:
        return [{sizes[0]: "N"}]
    return [dict(zip(SIZE_NAMES, roles, strict=True)) for roles in permutations(SIZE_NAMES)]


def labelings(kernel: Kernel) -> list[Labels]:
    """Return the ways to label a kernel's parameters.

    An integer gets the size that its name says, or else each of the three sizes. If the host code
    passes a number for it, it may also be no size, such as a tile's width.

    Raises BadSetting for too many ways, and for none.
    """
    if kernel.arguments:
        return [_labels_of_order(kernel.arguments)]
    declared = kernel.definition.parameters
    template = kernel.definition.template
    by_name = _labels_by_name(kernel)
    options = _options(kernel, by_name)
    labels = list(by_name)
    for place, parameter in enumerate(declared):
        if not parameter.pointer and (parameter.dtype == "float32" or parameter.type in template):
            labels[place] = FLOAT
    has_names = any(label in SIZE_NAMES for label in labels)
    complete = list[Labels]()
    for choice in product(*options.values()):
        for place, label in zip(options, choice, strict=True):
            labels[place] = label
        if _is_new(labels, has_names=has_names):
            complete.append(tuple(labels))
    complete.sort(key=lambda labels: sum(label.isdigit() for label in labels))
    if not complete or len(complete) > MAX_LAUNCHES:
        names = ", ".join(parameter.name for parameter in declared)
        raise BadSetting(
            f"{kernel.file}: {kernel.function}({names}): the names don't say which parameter is "
            "which, and a trial finds only M, N and K, or one size: state the order, as in "
            f"--args '{example_order(kernel)}', with a number for what is no size"
        )
    return complete


def _labels_of_order(arguments: Sequence[str]) -> Labels:
    """Return the labels of parameters whose values are known."""
    labels = {"A": "", "B": "", "C": "", "alpha": FLOAT, "beta": FLOAT}
    values = [value.removeprefix(WIDE) for value in arguments]
    return tuple(labels.get(value, value) for value in values)


def _labels_by_name(kernel: Kernel) -> list[str]:
    """Return the size that the name of each integer says; "" for other parameters."""
    declared = kernel.definition.parameters
    labels = list[str]()
    for parameter, name in zip(declared, named(declared), strict=True):
        is_integer = "int" in parameter.dtype and not parameter.pointer
        labels.append(name if is_integer else "")
    return labels


def _options(kernel: Kernel, by_name: Sequence[str]) -> dict[int, tuple[str, ...]]:
    """Return the labels to try for each integer whose name says no size, by place.

    by_name: the labels by name
    """
    passed = values_passed(kernel, by_name)
    options = dict[int, tuple[str, ...]]()
    for place, parameter in enumerate(kernel.definition.parameters):
        is_integer = "int" in parameter.dtype and not parameter.pointer
        if not is_integer or by_name[place]:
            continue
        text = passed.get(place, "")
        if {*SIZE_NAMES} <= {*by_name} and text:
            options[place] = (text,)
        elif text.isdigit():
            options[place] = (*SIZE_NAMES, text)
        else:
            options[place] = SIZE_NAMES
    return options


def _is_new(labels: Sequence[str], *, has_names: bool) -> bool:
    """Return whether labels have one size or three, and differ from others by more than names.

    has_names: whether a parameter's name says a size. Without names, the labels mean nothing yet:
        only their first use in order is tried
    """
    sizes = [label for label in labels if label in SIZE_NAMES]
    different = list(dict.fromkeys(sizes))
    if not has_names and different != [*SIZE_NAMES][: len(different)]:
        return False
    return len(different) == 3 or len(sizes) == 1


def example_order(kernel: Kernel) -> str:
    """Return an order of the kernel's parameters, as an example for --args."""
    declared = kernel.definition.parameters
    integers = sum("int" in parameter.dtype and not parameter.pointer for parameter in declared)
    sizes = iter({1: ("N",), 2: ("K", "N")}.get(integers, SIZE_NAMES))
    matrices = iter(("A", "B", "C"))
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


def stated_candidates(kernel: Kernel, labels: Labels) -> Iterator[Candidate]:
    """Yield the launch that a user or the file states.

    A user's launch names M, N and K: roles, not labels.

    Raises BadSetting for a launch that isn't read: a trial would choose another launch.
    """
    sizes = Candidate(labels, kernel.launch).sizes
    if kernel.launch.grid and kernel.launch.block:
        for roles in roles_of(sizes):
            names = {role: label for label, role in roles.items()}
            grid = filled(kernel.launch.grid, names)
            yield Candidate(labels, replace(kernel.launch, grid=grid), roles)
        return
    launch, unread = stated_launch(kernel, labels)
    if JOINT.search(launch.grid):
        for grid in _with_axes(launch.grid):
            yield Candidate(labels, replace(launch, grid=grid), is_of_one_variable=True)
    elif launch.grid and launch.block:
        yield Candidate(labels, launch)
    elif unread:
        raise BadSetting(
            f"{kernel.function} needs a launch, and {kernel.file} doesn't state one: "
            f"{'; '.join(unread)}; {LAUNCH_ADVICE}"
        )


def _with_axes(grid: str) -> list[str]:
    """Return the possible grids if a variable stands for several sizes, the likelier first."""
    likely = ("N", "M", "K")
    options = list[list[str]]()
    for part in split_list(grid):
        joint = JOINT.search(part)
        sizes = sorted(joint[0].split("_or_"), key=likely.index) if joint else [""]
        options.append([JOINT.sub(size, part) for size in sizes])
    grids = [*product(*options)]
    # Two axes of a grid are rarely of one size.
    grids.sort(key=lambda axes: len({*"".join(axes)} & {*SIZE_NAMES}), reverse=True)
    return [", ".join(axes) for axes in grids]


def usual_candidates(kernel: Kernel, labels: Labels) -> Iterator[tuple[int, Candidate]]:
    """Yield usual launches of a kernel, each with the longer side of its tile.

    Tiles and blocks are the kernel's constants, and usual ones.
    """
    numbers = _numbers(kernel)
    axes = _axes_to_try(kernel, labels)
    for block in _blocks_to_try(kernel, numbers):
        try:
            threads = [
                int(evaluate(part, {**numbers, **kernel.template})) for part in split_list(block)
            ]
        except BadSetting:  # a bound that is computed
            continue
        for (width, height), (x, y) in product(_tiles_to_try(numbers, threads), axes):
            grid = f"{rounded_up(x, width)}, {rounded_up(y, height)}"
            if kernel.launch.grid:
                grid = kernel.launch.grid
            launch = replace(kernel.launch, grid=grid, block=block)
            yield max(width, height), Candidate(labels, launch)


def rounded_up(size: str, tile: int) -> str:
    """Return the number of tiles that cover a size."""
    return f"({size} + {tile - 1}) / {tile}"


def _numbers(kernel: Kernel) -> dict[str, int]:
    """Return the kernel's constants and the arguments of its template that are numbers."""
    texts = {**kernel.unit.constants, **_template(kernel)}
    return {name: int(text) for name, text in texts.items() if text.isdigit()}


def _template(kernel: Kernel) -> dict[str, str]:
    """Return the arguments of the kernel's template by name."""
    _, _, instance = kernel.entry.partition("<")
    values = split_list(instance.rpartition(">")[0])
    return dict(zip(kernel.definition.template, values, strict=False))


def _possible_sides(numbers: Mapping[str, int]) -> list[int]:
    """Return the constants that may be the side of a tile or a block, sorted."""
    return sorted({number for number in numbers.values() if 4 <= number <= 256})


def _usual_tiles(numbers: Mapping[str, int]) -> list[tuple[int, int]]:
    """Return the block's tile by the constants BM and BN, if there are such constants."""
    return [(numbers["BN"], numbers["BM"])] if {"BM", "BN"} <= {*numbers} else []


def _blocks_to_try(kernel: Kernel, numbers: Mapping[str, int]) -> list[str]:
    """Return the kernel's block if it is known, or else blocks by constants and usual ones."""
    if kernel.launch.block:
        return [kernel.launch.block]
    if kernel.definition.bounds:
        return [kernel.definition.bounds]
    blocks = list[str]()
    for width, height in _usual_tiles(numbers):
        elements_per_thread = numbers.get("TM", 1) * numbers.get("TN", 1)
        blocks.append(str(width * height // elements_per_thread))
    for side in _possible_sides(numbers):
        if side * side <= MAX_THREADS:
            blocks.append(f"{side}, {side}")
    return list(dict.fromkeys([*blocks, *BLOCKS]))


def _tiles_to_try(numbers: Mapping[str, int], threads: Sequence[int]) -> list[tuple[int, int]]:
    """Return widths and heights of tiles: by constants, usual squares, the block's threads.

    Squares start with the largest: a kernel with guards also accepts more blocks than it needs.
    """
    sides = sorted({32, 64, 128, *_possible_sides(numbers)}, reverse=True)
    of_threads = (threads[0], threads[1] if len(threads) > 1 else 1)
    tiles = [*_usual_tiles(numbers), *((side, side) for side in sides), of_threads]
    return list(dict.fromkeys(tiles))


def _axes_to_try(kernel: Kernel, labels: Labels) -> list[tuple[str, str]]:
    """Return pairs of sizes that x and y of the grid may walk, the likelier first."""
    sizes = Candidate(labels, kernel.launch).sizes
    named_sizes = SIZE_NAMES if kernel.arguments and len(sizes) > 1 else sizes
    axes = [pair for pair in (("N", "M"), ("M", "N")) if {*pair} <= {*named_sizes}]
    if not kernel.arguments:
        axes += permutations(sizes, 2)
    return list(dict.fromkeys(axes)) or [(sizes[0], sizes[0])]
