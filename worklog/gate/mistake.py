"""What is wrong with the result of one launch of an exact problem, and the usual mistake that gives exactly this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from types import MappingProxyType

import numpy as np

from worklog.gate.exact import ExactProblem, error_map
from worklog.gate.guarded_buffer import Buffers, Memory, Result
from worklog.kernel import Runnable
from worklog.problem import Float32, Float64
from worklog.runs.verdict import ErrorMap


def mistake_in(
    subject: Runnable, memory: Memory, problem: ExactProblem, shifts: Mapping[str, int] = MappingProxyType({})
) -> ErrorMap | str | None:
    """What is wrong with the kernel's result, or None. shifts: as for Buffers."""
    result = Buffers(memory, problem.a, problem.b, shifts).run(subject, problem.alpha, problem.beta, problem.before)
    if result.trespass:
        return result.trespass
    right = problem.a.astype(np.float64) @ problem.b.astype(np.float64)
    expected = problem.result(right)
    if (result.c == expected).all():
        return None
    factors = None if problem.alpha == 0 else (problem.alpha * problem.a.astype(np.float64), problem.b)
    where = error_map(result.c, expected, result.sentinel, factors)
    guess = _guess(subject, memory, problem, result, right)
    return replace(where, guess=guess) if guess else where


def _wrong_layout(problem: ExactProblem, c: Float32) -> str:
    """Which matrices a kernel that gives this C takes as transposed, or whether it computes B A; "" for none."""
    a, b = problem.a.astype(np.float64), problem.b.astype(np.float64)
    old = np.broadcast_to(np.asarray(problem.before if problem.before is not None else 0.0, np.float64), c.shape)

    def other(matrix: Float64) -> Float64:
        """The same memory, read by columns."""
        return matrix.reshape(matrix.shape[::-1]).T

    for of_a, of_b, of_c in product((False, True), repeat=3):
        values = problem.alpha * ((other(a) if of_a else a) @ (other(b) if of_b else b))
        values += problem.beta * (other(old.copy()) if of_c else old)
        stored = values.T.reshape(c.shape) if of_c else values
        if not np.array_equal(c, stored.astype(np.float32)):
            continue
        if of_a and of_b and of_c:
            return "all matrices are column-major: to pass row-major ones, exchange A and B, and M and N, in --args"
        names = " and ".join(name for name, transposed in (("A", of_a), ("B", of_b)) if transposed)
        read = f"{names} {'are' if of_a and of_b else 'is'} read transposed" if names else ""
        return " and ".join(filter(None, (read, "C is written transposed" if of_c else "")))
    if a.shape == b.shape and np.array_equal(c, (problem.alpha * (b @ a) + problem.beta * old).astype(np.float32)):
        return "it computes B A"
    return ""


def _guess(subject: Runnable, memory: Memory, problem: ExactProblem, result: Result, right: Float64) -> str:
    """The usual mistake that gives exactly this result, or ""."""
    if mistake := problem.wrong_scalar(result.c, right) or _wrong_layout(problem, result.c):
        return f"This is the result if {mistake}."
    if problem.before is None and (result.c == result.sentinel).all():
        # In other buffers, so that a late launch into the first ones isn't mistaken for this one.
        again = Buffers(memory, problem.a, problem.b).run(subject, problem.alpha, problem.beta, 0.0)
        if np.array_equal(again.c, problem.result(right)):
            return "The old C is added although beta is 0: with C = 0 before the launch, the result is right."
    if problem.stretched != (1.0, 1.0) and mistake_in(subject, memory, problem.around_1) is None:
        return "Right for numbers around 1, wrong for large or small ones: parts in FP16? The class fp16 is exempt."
    return ""
