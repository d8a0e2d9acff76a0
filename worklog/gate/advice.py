"""Advice about a failed check: a cause that the stages can't name, and options to try.

All of it runs after the verdict, with separate launches. So a part that fails says so in a line and
changes nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from worklog.errors import LaunchFailed, apart
from worklog.gate import exact
from worklog.gate.checker import LAUNCH
from worklog.gate.edges import EDGE_SHAPES, edge_shapes, is_exact
from worklog.gate.exact import OLD_C_ADDED, READ_OUTSIDE, ExactProblem
from worklog.gate.guarded_buffer import Memory
from worklog.gate.sgemm import BENCHMARK_SHAPE, RAGGED, SgemmChecker
from worklog.kernel import EXAMPLE_GRID, UNREAD_DOMAIN, Compiled, Kernel, Runnable, split_list
from worklog.kernel.guards import guarded_sizes
from worklog.problem import Domain, Shape
from worklog.runs import Verdict

if TYPE_CHECKING:
    from worklog.emulator import Finding

OUTSIDE_KINDS = ("global-out-of-bounds", "misaligned")  # findings of a kernel outside of its domain
TILE = "64"  # sides of a block's tile, if the grid states none
WIDEST_K = 192, 128  # multiples of K to try: one with a factor of 3, and a longer power of two
EXCHANGED = {"M": "N", "N": "M", "A": "B", "B": "A"}  # for column-major matrices
ZEROED = (
    "if the host sets C to 0 before the launch, check both together: a solution that launches a "
    "kernel "
    "which sets C to 0, then this one (worklog new sgemm DIR writes one to start from)"
)


def explained(
    verdict: Verdict,
    kernel: Kernel,
    *,
    compiled: Compiled,
    subject: Runnable,
    checker: SgemmChecker,
    findings: Sequence[Finding],
) -> tuple[Verdict, list[str]]:
    """Return a failed verdict, which may name a cause now, and notes about what to do.

    findings: the emulator's, up to the verdict
    """
    notes: list[str] = []
    verdict = apart(
        "the search for a value that was never set",
        lambda: _with_unset(verdict, compiled),
        verdict,
        notes,
    )
    advice = apart(
        "the search for advice",
        lambda: _advice(verdict, kernel, subject=subject, checker=checker, findings=findings),
        "",
        notes,
    )
    lines = [advice] if advice else []
    if any(line.startswith(UNREAD_DOMAIN) for line in kernel.adapted):
        lines.insert(
            0, f"{UNREAD_DOMAIN}: if {kernel.entry} doesn't take every shape, state one by --domain"
        )
    return verdict, [*lines, *notes]


def _with_unset(verdict: Verdict, compiled: Compiled) -> Verdict:
    """Return a verdict that names a value that was never set, if NaN may come from it."""
    # Here: a measurement doesn't need the emulator.
    from worklog.emulator import load
    from worklog.emulator.flow import Flow
    from worklog.emulator.ptx import UnsupportedInstruction

    *passed_stages, failure = verdict.stages
    if READ_OUTSIDE not in failure.detail or "nan" in compiled.program.whole.lower():
        return verdict
    with suppress(UnsupportedInstruction):  # which only a GPU runs
        line = Flow(load(compiled.ptx, compiled.symbol)).unset
        if line is not None:
            cause = f"{compiled.program.name}:{line} reads a value that was never set, or"
            failure = replace(failure, detail=failure.detail.replace(READ_OUTSIDE, cause))
    return replace(verdict, stages=(*passed_stages, failure))


def _advice(
    verdict: Verdict,
    kernel: Kernel,
    *,
    subject: Runnable,
    checker: SgemmChecker,
    findings: Sequence[Finding],
) -> str:
    """Return the option to pass, or the change to make, so that the kernel is right; or ""."""
    failure = verdict.stages[-1]
    if OLD_C_ADDED in failure.detail:
        return ZEROED
    reaches_outside = exact.UNWRITTEN in failure.detail or any(
        finding.kind in OUTSIDE_KINDS for finding in findings
    )
    if reaches_outside and kernel.grid and not re.search(r"\b[MNK]\b", kernel.grid):
        cause = f"the grid {kernel.grid} doesn't depend on M, N or K"
        return f"{cause}: give one that does, such as --grid {EXAMPLE_GRID}"
    is_open = kernel.rules == "any" and not kernel.warnings
    depends_on_shape = failure.name in (LAUNCH, EDGE_SHAPES, BENCHMARK_SHAPE, RAGGED)
    narrow = None
    if depends_on_shape:
        narrow = _narrower(kernel, subject, checker.buffers.memory)
    if narrow is not None:
        return _domain_advice(kernel, narrow, is_open)
    if is_open and depends_on_shape:
        options = _by_columns(kernel, checker)
        if options:
            return f"all matrices are column-major: {kernel.entry} is right with {options}"
        domain = _domain_with_b_by_columns(kernel, checker)
        if domain is not None:
            return (
                f"{kernel.entry} is right if B lies by columns, in whole tiles: if both are "
                f"meant, state --by-columns B --domain '{domain}'"
            )
    return _axes_advice(kernel, subject, checker) if reaches_outside else ""


def _domain_advice(kernel: Kernel, domain: Domain, is_open: bool) -> str:
    """Return the advice to state a domain in which a kernel is right.

    is_open: whether the kernel states no domain
    """
    rules = replace(domain, square=False)
    if is_open:
        advice = (
            f"if {kernel.entry} takes whole tiles only, state its domain, such as "
            f"--domain '{rules}'"
        )
        steps = {"M": rules.m, "N": rules.n, "K": rules.k}
        guarded = [size for size in guarded_sizes(kernel) if steps[size] > 1]
        if guarded:
            return (
                f"it compares with {' and '.join(guarded)}, so a bound may be wrong; else, {advice}"
            )
        return advice
    return (
        f"{kernel.entry} is right where {rules}, and not in all of {kernel.domain}: state its "
        f"domain, such as --domain '{rules}'"
    )


def _axes_advice(kernel: Kernel, subject: Runnable, checker: SgemmChecker) -> str:
    """Return the advice to exchange the grid's axes, or M, N and K; or "".

    The kernel is wrong on whole tiles then, and right with the axes exchanged, or at a square.
    """
    memory = checker.buffers.memory
    m, n = _tile(kernel)
    domain = kernel.domain
    if not domain.square:  # also whole tiles along K: a square shape has them
        domain = replace(domain, m=m, n=n, k=math.lcm(domain.k, m, n))
    shapes = _two_shapes(domain)
    if _is_right_at(shapes, subject, memory):
        return ""
    axes = split_list(kernel.grid)
    exchanged_grid = ", ".join((*reversed(axes[:2]), *axes[2:]))
    if exchanged_grid != kernel.grid:
        exchanged = kernel.with_launch(grid=exchanged_grid).load(checker.device)
        if _is_right_at(shapes, exchanged, memory):
            return (
                f"the grid's axes are exchanged: at a small shape, {kernel.entry} is right with "
                f"--grid '{exchanged_grid}'"
            )
    if _is_right_at(_two_shapes(replace(domain, square=True)), subject, memory):
        cause = "an index or the grid uses one of M, N and K in place of another"
        return f"at a small square shape, {kernel.entry} is right: {cause}"
    return ""


def _by_columns(kernel: Kernel, checker: SgemmChecker) -> str:
    """Return the options with which a kernel of column-major matrices is right, or "".

    The memory of a column-major matrix holds the transpose, and C^T = B^T A^T.
    """

    def exchanged(text: str) -> str:
        return re.sub(r"\b[MNAB]\b", lambda name: EXCHANGED[name[0]], text)

    arguments = tuple(map(exchanged, kernel.arguments))
    if arguments == kernel.arguments or kernel.domain.square:
        return ""
    grid = exchanged(kernel.grid)
    other = replace(kernel, arguments=arguments).with_launch(grid=grid)
    subject = other.load(checker.device)
    memory = checker.buffers.memory
    options = f"--args '{','.join(arguments)}'"
    is_grid_read = any("from the host code" in line for line in kernel.adapted)
    if not is_grid_read:  # a stated grid stays as it is with another order
        options += f" --grid '{grid}'"
    if _is_right_at(edge_shapes(other.domain), subject, memory):
        return options
    narrow = _narrower(other, subject, memory)
    return "" if narrow is None else f"{options} --domain '{narrow}'"


def _domain_with_b_by_columns(kernel: Kernel, checker: SgemmChecker) -> Domain | None:
    """Return the widest domain in which a kernel is right if B lies by columns, or None.

    The weights of a layer lie so. The advice about a wrong result has the layout alone, so a kernel
    that is right in all its domain isn't looked for here.
    """
    if kernel.types.by_columns or kernel.domain.square:
        return None
    other = kernel.with_layout("B")
    memory = Memory(checker.device, checker.buffers.memory.rng, other.types)
    return _narrower(other, other.load(checker.device), memory)


def _narrower(kernel: Kernel, subject: Runnable, memory: Memory) -> Domain | None:
    """Return the widest domain of whole tiles in which a wrong kernel is right, or None.

    It has the least multiple along each axis with which the kernel is right at small shapes.
    """
    domain = kernel.domain
    if (widest := _widest(kernel, subject, memory)) is None:
        return None
    for axis in ("n",) if domain.square else ("k", "m", "n"):
        stated = getattr(domain, axis)
        widest_step = getattr(widest, axis)
        for step in range(stated, widest_step, stated):
            if widest_step % step:
                continue
            steps: Any = {axis: step}
            candidate = replace(widest, **steps)
            if _is_right_at(_two_shapes(candidate), subject, memory):
                widest = candidate
                break
    is_narrower = widest != domain
    if is_narrower and _is_right_at(edge_shapes(widest), subject, memory):
        return widest
    return None


def _widest(kernel: Kernel, subject: Runnable, memory: Memory) -> Domain | None:
    """Return a domain of large tiles in which the kernel is right at small shapes, or None."""
    domain = kernel.domain
    m, n = _tile(kernel)
    if domain.square:
        candidates = [replace(domain, m=1, n=math.lcm(m, n, domain.k, int(TILE)), k=1)]
    else:
        candidates = [replace(domain, m=m, n=n, k=math.lcm(domain.k, k)) for k in WIDEST_K]
    for candidate in candidates:
        if _is_right_at(_two_shapes(candidate), subject, memory):
            return candidate
    return None


def _tile(kernel: Kernel) -> tuple[int, int]:
    """Return multiples of M and N that hold whole tiles of a block.

    The grid states the sides of a tile. The multiples are in the domain.
    """
    sides = dict(re.findall(r"\b([MN])\b[^,]*?//? ?(\d+)", kernel.grid))
    m, n = (int(sides.get(name, TILE)) for name in "MN")
    return math.lcm(kernel.domain.m, m), math.lcm(kernel.domain.n, n)


def _two_shapes(domain: Domain) -> list[Shape]:
    """Return two small shapes of a domain.

    Along each axis one has one multiple, and the other two or three.
    """
    if domain.square:
        smallest = domain.padded(Shape.of(1))
        return [smallest, domain.padded(Shape.of(smallest.m + 1))]
    sizes = (domain.m + 1, 1, 2 * domain.k + 1), (1, 2 * domain.n + 1, 1)
    return [domain.padded(Shape(*size)) for size in sizes]


def _is_right_at(shapes: Iterable[Shape], subject: Runnable, memory: Memory) -> bool:
    """Return whether the kernel's result is right at each shape, with alpha = 1 and beta = 0."""
    for shape in shapes:
        problem = ExactProblem("E1", *exact.family("E1", shape, memory.rng, subject.claim))
        try:
            if not is_exact(subject, memory, problem):
                return False
        except LaunchFailed:
            return False
    return True
