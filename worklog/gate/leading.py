"""The stage for leading dimensions: rows that are longer than the matrix, with poison behind them.

A kernel that takes lda and ignores it is right for whole matrices, and wrong for views of larger
ones, for which the parameter is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from worklog.errors import LaunchFailed
from worklog.gate import exact
from worklog.gate.edges import SPECIAL, small_old_c
from worklog.gate.guarded_buffer import GuardedBuffers, Memory
from worklog.kernel import WIDE, Loaded, Runnable
from worklog.problem import Float32, Shape
from worklog.problem.formats import Format
from worklog.runs import Stage, failed, passed

LEADING = "leading dimensions"
# By which rows are longer: whole vectors and bulk copies stay aligned, and each is another number.
GAPS = {"A": 32, "B": 64, "C": 96}


def check_leading_dimensions(subject: Loaded, memory: Memory) -> Stage:
    """Launch with leading dimensions above the lengths of the rows.

    NaN lies between the rows of A and B, and what lies between those of C must stay. A kernel that
    ignores a leading dimension fails; if its host code passes the rows' lengths, the verdict's line
    names it. Raises LaunchFailed.
    """
    kernel = subject.kernel
    places = kernel.leading_dimensions
    names = [kernel.definition.parameters[place].name for place in places]
    mistake = _mistake(subject, memory, [*places])
    if not mistake:
        return passed(LEADING, f"right with {' and '.join(names)} above the rows' lengths")
    ignored = [
        name
        for place, name in zip(places, names, strict=True)
        if _mistake(subject, memory, [place])
    ]
    listed = " and ".join(ignored or names)
    if not kernel.states_leading:
        return failed(LEADING, f"{listed} above the rows' length: {mistake}")
    clause = f"right only where {listed} {'is' if len(ignored) == 1 else 'are'} the rows' length"
    return passed(LEADING, f"{clause}, as it is launched: {mistake}", clause=clause)


def _mistake(subject: Loaded, memory: Memory, places: Sequence[int]) -> str:
    """Return what is wrong with a launch whose rows are longer, or "".

    places: of the leading dimensions that are longer
    """
    kernel = subject.kernel
    gaps = dict.fromkeys(GAPS, 0)
    arguments = list(kernel.arguments)
    for place in places:
        matrix = kernel.leading_dimensions[place]
        gaps[matrix] = GAPS[matrix]
        wide = WIDE if arguments[place].startswith(WIDE) else ""
        arguments[place] = f"{wide}{kernel.types.row_length(matrix)} + {gaps[matrix]}"
    launched = replace(kernel, arguments=tuple(arguments)).load(memory.device)
    shape = subject.domain.padded(Shape(*SPECIAL, SPECIAL[0]))
    a, b = exact.family("E1", shape, memory.rng, subject.claim, headroom=exact.HEADROOM)
    old = small_old_c(subject, shape, memory.rng)
    rows = _LongRows(memory, shape, a, b, gaps)
    try:
        c = rows.launch(launched, old)
    except LaunchFailed as error:
        return f"at {shape}: {error}"
    if outside := rows.buffers.trespass():
        return f"at {shape}: {outside}"
    if (c[:, shape.n :] != rows.buffers.sentinel).any():
        return f"at {shape}: it wrote between the rows of C"
    expected = (a.astype(np.float64) @ b + old).astype(np.float32)
    wrong_count = int((c[:, : shape.n] != expected).sum())
    return f"at {shape}: {wrong_count} of {expected.size} elements are wrong" if wrong_count else ""


class _LongRows:
    """A, B and C on the device, with gaps behind their rows.

    gaps: of each, in elements
    """

    def __init__(
        self, memory: Memory, shape: Shape, a: Float32, b: Float32, gaps: Mapping[str, int]
    ) -> None:
        self.memory = memory
        self.shape = shape
        self.size = (shape.m, shape.n + gaps["C"])
        nbytes = memory.types.c.nbytes(shape.m * (shape.n + gaps["C"]))
        in_a, in_b = memory.types.laid_out(a, b)
        contents: list[tuple[str, Float32 | int]] = [
            ("A", _spread(in_a, gaps["A"], memory.types.a)),
            ("B", _spread(in_b, gaps["B"], memory.types.b)),
            ("C", nbytes),
        ]
        formats = dict(zip("ABC", memory.types.formats, strict=True))
        self.buffers = GuardedBuffers(memory, contents, formats=formats)

    def launch(self, subject: Runnable, old: Float32) -> Float32:
        """Launch C = A B + C once. Return C with its gaps. Raises LaunchFailed.

        old: C before; without beta it isn't read
        """
        self.buffers.poison()
        rows = np.full(self.size, self.buffers.sentinel)
        rows[:, : self.shape.n] = old
        a, b, inner = (array.inner for array in self.buffers.arrays)
        device = self.memory.device
        c = device.view(inner, 0, rows.size)
        device.overwrite(c, rows)
        beta = 1.0 if subject.domain.beta else 0.0
        self.memory.launch(subject, self.shape, 1.0, a, b, beta, c)
        return device.download(c).reshape(self.size)


def _spread(matrix: Float32, gap: int, format_: Format) -> Float32:
    """Return a matrix with so many elements of a format's poison behind each row."""
    return np.pad(matrix, ((0, 0), (0, gap)), constant_values=format_.poison)
