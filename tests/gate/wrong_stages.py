"""What wrong kernels share: the stages that refuse them, and what they look at to be wrong in one place only."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.gate.numpy_device import Function, Problem

RAGGED, BENCHMARK, REPEAT, PRECISION, TIMED, LAUNCH = (
    "exact on edge shapes",
    "exact at the benchmark shape",
    "bit-equal when repeated",
    "precision",
    "timed output",
    "launch",
)
Register = Callable[[Function], Function]
BIG = 90  # ragged shapes with all of M, N and K this large are none: what happens only there shows at the benchmark


def register_in(found: list[tuple[Function, str]]) -> Callable[[str], Register]:
    """A decorator that puts a wrong kernel into a list, with the stage that sees it first."""

    def refused_by(stage: str) -> Register:
        def register(function: Function) -> Function:
            found.append((function, stage))
            return function

        return register

    return refused_by


def is_big(p: Problem) -> bool:
    return min(p.m, p.n, p.k) >= BIG


def holds_integers(p: Problem) -> bool:
    """Of 12 bits, times a power of two."""
    return not (p.a.view(np.uint32) & 0xFFF).any()
