"""The search for an order of parameters and a launch that give a product."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from worklog.errors import BadSetting
from worklog.kernel.kernel import Kernel
from worklog.kernel.launch import LAUNCH_ADVICE, UNREAD_LAUNCH, Launch
from worklog.kernel.signature import MATRICES, SIZE_NAMES
from worklog.kernel.source import filled, split_list
from worklog.kernel.stated import passes_leading_dimensions
from worklog.kernel.trial.candidates import (
    FLOAT,
    Candidate,
    Labels,
    example_order,
    labelings,
    rounded_up,
    stated_candidates,
    usual_candidates,
)
from worklog.kernel.trial.launches import LENGTHS, LONG, SHORT, Match, TrialLaunch

MAX_SHORT = 40  # launches at the SHORT lengths
MAX_DOUBLINGS = 4  # of a tile, along each axis
ROUNDED_UP = re.compile(r"\((\w+) \+ \d+\) / (\d+)")


def has_launch(kernel: Kernel) -> bool:
    """Return whether the order, the grid and the block are known."""
    return bool(kernel.arguments and kernel.grid and kernel.block)


def filled_in(kernel: Kernel, *, is_quick: bool = False) -> Kernel:
    """Return the kernel with what its file doesn't state, by trial.

    is_quick: end a search for a launch that finds none at short lengths
    Raises BadSetting if no launch gives a product.
    """
    if has_launch(kernel):
        return replace(kernel, stated={})
    pointers = [parameter for parameter in kernel.definition.parameters if parameter.pointer]
    if len(pointers) != len(MATRICES):
        raise BadSetting(f"{kernel.file}: {kernel.adapted[0]}")
    trial = TrialLaunch(kernel)
    labels_to_try = labelings(kernel)
    stated = list[Candidate]()
    for labels in labels_to_try:
        stated += stated_candidates(kernel, labels)
    if stated:
        match = trial.search(stated, LENGTHS[:1] if is_quick else LENGTHS, is_stated=True)
        if match is None:
            raise BadSetting(
                f"{kernel.file}: {kernel.function}: none of {trial.compared} orders of its "
                "parameters gives a product with the launch that the file states, "
                f"{_text(stated[0].launch)}: "
                f"give the order, as in --args '{example_order(kernel)}'"
            )
        return _with_match(kernel, match, is_launch_stated=True)
    match = _search_launch(kernel, trial, labels_to_try, is_quick=is_quick)
    if match is None or not match.is_product:
        raise BadSetting(
            f"{kernel.function} needs a launch, and {kernel.file} doesn't state one: "
            f"{LAUNCH_ADVICE} (of {trial.launches} launches that were tried on the emulator, none "
            f"gives a product{_nearest(match)})"
        )
    return _with_match(kernel, match, is_launch_stated=False)


def _text(launch: Launch) -> str:
    """Return the grid and the block, for a message."""
    return f"grid {launch.grid}; block {launch.block}"


def _nearest(match: Match | None) -> str:
    """Describe the launch that is nearest to a product; "" for none."""
    if match is None:
        return ""
    nearest = f"; the nearest, {_text(match.candidate.launch)}, gives {match.order.share:.0%} of C"
    if match.has_nan:
        nearest += ", and NaN where a value was never set"
    return nearest


def _search_launch(
    kernel: Kernel, trial: TrialLaunch, labels_to_try: Sequence[Labels], *, is_quick: bool
) -> Match | None:
    """Return a launch that gives a product, or else the nearest launch; None if none is near.

    is_quick: whether to end at the short lengths
    """
    short = list[Candidate]()
    long = list[Candidate]()
    for labels in labels_to_try:
        for side, candidate in usual_candidates(kernel, labels):
            (short if side <= SHORT[-1] else long).append(candidate)
    match = trial.search(short, [SHORT], MAX_SHORT)
    if (match is None or not match.is_product) and not is_quick:
        match = trial.search(long, [LONG]) or match
    if match is None or not match.is_product:
        return match
    # A kernel with guards accepts more blocks than it needs: its tile may be larger.
    if kernel.launch.grid:
        return match
    return _with_fewest_blocks(match, trial)


def _with_fewest_blocks(match: Match, trial: TrialLaunch) -> Match:
    """Return the launch with the largest tile along each axis that still gives the product."""
    for axis in (0, 1):
        for _ in range(MAX_DOUBLINGS):
            launch = match.candidate.launch
            grid = split_list(launch.grid)
            quotient = ROUNDED_UP.fullmatch(grid[axis])
            assert quotient is not None, "as usual_candidates writes it"
            grid[axis] = rounded_up(quotient[1], 2 * int(quotient[2]))
            candidate = replace(
                match.candidate,
                launch=replace(launch, grid=", ".join(grid)),
                roles=match.order.roles,
            )
            wider = trial.search([candidate], [LONG])
            if wider is None or not wider.is_product:
                break
            match = replace(match, candidate=replace(candidate, roles=match.candidate.roles))
    return match


def _with_match(kernel: Kernel, match: Match, *, is_launch_stated: bool) -> Kernel:
    """Return the kernel as if its file stated the match, with lines that describe the trial."""
    launch = match.candidate.launch
    options = dict(kernel.stated)
    lines = list[str]()
    warnings = list[str]()
    origins = dict[str, str]()
    if not kernel.arguments:
        options["args"] = ",".join(_arguments(kernel, match))
        lines.append(f"order: by trial, {_reason(match)}; --args '{options['args']}' states it")
        origins["order"] = "by trial"
    if not is_launch_stated or match.candidate.is_of_one_variable:
        grid = filled(launch.grid, {} if kernel.arguments else match.order.roles)
        options["grid"] = grid
        options["block"] = launch.block
        if is_launch_stated:
            options["shared"] = launch.shared
            reason = "the grid's axes: by trial, the host passes one variable for several sizes"
            origins["axes"] = "by trial"
        else:
            reason = f"launch: by trial, {_absence(kernel)}, and the author's may differ"
            origins["launch"] = "by trial"
        warnings.append(f"{reason}: grid {grid}; block {launch.block}")
    complete = Kernel.from_source(**options)
    # Without an order, the first line says what isn't clear.
    former_lines = kernel.adapted if kernel.arguments else kernel.adapted[1:]
    other_lines = [line for line in former_lines if line not in complete.adapted]
    return replace(
        complete,
        name=kernel.name,
        adapted=(*complete.adapted, *other_lines, *lines),
        warnings=(*warnings, *complete.warnings),
        states_leading=states_leading(kernel, complete),
        stated={},
        found=origins,
    )


def states_leading(kernel: Kernel, complete: Kernel) -> bool:
    """Return whether the user or host code passes the leading dimensions.

    An order by trial isn't the user's.

    kernel: before the trial
    complete: the same kernel, in the order that the trial found
    """
    if kernel.states_leading:
        return True
    return passes_leading_dimensions(complete.definition, [complete.unit], complete.arguments)


def _absence(kernel: Kernel) -> str:
    """Describe why no launch of the kernel is known."""
    if any(UNREAD_LAUNCH in line for line in kernel.adapted):
        return "what launches it isn't read"
    return "neither its file nor one that includes it launches it"


def _reason(match: Match) -> str:
    """Describe why an order was chosen."""
    lengths = "x".join(str(match.lengths[size]) for size in SIZE_NAMES)
    order = match.order
    sizes = [label for label in match.candidate.labels if label in SIZE_NAMES]
    if order.share < 1:
        reason = f"{order.share:.0%} of C at {lengths} are right, the most of {match.compared}"
    elif len(match.candidate.sizes) == 1:
        reason = f"not unique (square): taken as row-major, it gives A·B at {lengths}"
    elif match.fitting > 1 or len(sizes) > len(match.candidate.sizes):
        # A parameter that the kernel doesn't use may take any size.
        reason = f"the first that gives A·B at {lengths}, and others may"
    else:
        reason = f"the only one of {match.compared} that gives A·B at {lengths}"
    stored = [name for name, by_columns in zip("AB", order.by_columns, strict=True) if by_columns]
    if stored:
        reason += f", with {' and '.join(stored)} stored by columns"
        reason += f"; if that is meant, state --by-columns {','.join(stored)}"
    return reason


def _arguments(kernel: Kernel, match: Match) -> Iterator[str]:
    """Yield the value that each parameter takes."""
    matrices = iter(match.order.matrices)
    scalars = iter(match.order.scalars)
    declared = kernel.definition.parameters
    for parameter, label in zip(declared, match.candidate.labels, strict=True):
        if parameter.pointer:
            yield next(matrices)
        elif label == FLOAT:
            yield next(scalars)
        else:
            yield filled(label, match.order.roles)
