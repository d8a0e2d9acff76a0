"""Diagram 2: where the bytes live, which way a cold and a warm run take, and whether the matrices fit into the L2.

The article's picture with this machine's sizes and bandwidths; beside it, to scale, what its warning depends on: A, B
and C of each size against the L2, and what leaving the L2 warm did there.
"""

from __future__ import annotations

from typing import Any

from worklog.errors import NothingToDraw
from worklog.plots.diagrams.facts import Subject, calibrated, change, largest, mebibytes, worst_of_all
from worklog.plots.diagrams.shapes import Canvas, Say, card_height, small, title
from worklog.plots.figure import Chart
from worklog.plots.labels import Box
from worklog.plots.page import page
from worklog.plots.style import ACCENT, BASELINE, BODY_PT, MARGIN_IN, MUTED, PAPER, SMALL_PT, WIDTH_IN, styled
from worklog.plots.waterfall import factor
from worklog.problem.gemm import FLOAT_BYTES, Shape
from worklog.runs.ablation import Effect
from worklog.runs.run import Run

NAME = "diagram_2_memory_hierarchy"
# Inches.
ABOVE, GAP, NARROW, WIDE = 0.1, 0.4, 1.95, 3.55
RIGHT, LABEL, BAR, ROW, HEAD, EFFECT = 4.0, 0.78, 0.2, 0.38, 0.36, 0.66


@styled()
def memory_hierarchy(run: Run) -> Chart:
    """Registers, shared memory, L2 and HBM with this machine's numbers; the matrices against the L2. Raises
    NothingToDraw without the L2's size or the measured bandwidths.
    """
    subject = Subject.of(run)
    l2 = run.device.get("l2_bytes")
    if not l2:
        raise NothingToDraw("the run does not say how large the L2 is: measure again with `worklog run`")
    read, copy = (calibrated(run, name, f"measured {name[:-4]} bandwidth") / 1e3 for name in ("l2_gbs", "copy_gbs"))
    levels = _levels(run, subject, l2)
    high = max(card_height(parts, NARROW) for parts in levels)
    sizes = _sizes(run, l2)
    warm = worst_of_all(run, "l2")
    stack = 4 * high + 3 * GAP
    row = max(ROW, (stack - HEAD) / len(sizes))
    body = ABOVE + max(stack, HEAD + row * len(sizes)) + 0.1
    rates = f"{read:.2f} TB/s read", f"{copy:.2f} TB/s copied"
    new = page(NAME, _finding(l2, sizes, warm), _subtitle(warm), [run.full_label], "", body)
    new.figure.alt = _alt(run, levels, rates, sizes, warm)
    canvas = Canvas(new)
    _pyramid(canvas, levels, high, rates)
    _fits(canvas, sizes, warm, l2, row)
    return new.figure


def _levels(run: Run, subject: Subject, l2: float) -> list[list[Say]]:
    """Names and facts of the four levels, fastest first."""
    made_of = run.kernels.get(subject.name, {})
    registers, shared = made_of.get("registers"), made_of.get("shared_bytes")
    processors, memory = run.device.get("multiprocessors"), run.device.get("memory_bytes")
    return [
        [title("registers"), small(f"{subject.name}: {registers} a thread" if registers else "private to a thread")],
        [
            title("shared memory, L1"),
            small(f"{subject.name}: {mebibytes(shared)} a block" if shared else "one for each SM"),
        ],
        [title(f"L2 · {mebibytes(l2)}"), small(f"one for all {processors} SMs" if processors else "one for all SMs")],
        [title(f"HBM · {mebibytes(memory)}" if memory else "HBM"), small("where a first call finds its inputs")],
    ]


def _pyramid(canvas: Canvas, levels: list[list[Say]], high: float, rates: tuple[str, str]) -> None:
    middle = MARGIN_IN + WIDE / 2
    cold, warm = middle - 0.62, middle + 0.62
    for index, parts in enumerate(levels):
        half = (NARROW + (WIDE - NARROW) * index / 3) / 2
        y = ABOVE + index * (high + GAP)
        canvas.card(Box(middle - half, y, middle + half, y + high), parts, ha="center", ours=index == 3)
    for index in range(3):
        below, above = ABOVE + (index + 1) * (high + GAP) - 0.02, ABOVE + (index + 1) * high + index * GAP + 0.02
        canvas.arrow((cold, below), (cold, above), colour=ACCENT, width=1.8)
        if index < 2:
            canvas.arrow((warm, below), (warm, above), dashed=True, width=1.4)
    runs = (("warm run: from L2", warm, MUTED), ("cold run: from HBM", cold, ACCENT))
    for index, (words, (run, x, colour)) in enumerate(zip(rates, runs, strict=True), start=1):
        y = ABOVE + (index + 1) * high + index * GAP + GAP / 2
        canvas.words(cold - 0.1, y, words, SMALL_PT, ha="right", va="center", color=MUTED)
        canvas.words(x + 0.1, y, run, SMALL_PT, va="center", color=colour, weight="bold")


def _sizes(run: Run, l2: float) -> list[Shape]:
    """Square sizes to draw: up to the first whose single matrix is larger than the L2. Raises NothingToDraw."""
    squares = [shape for shape in run.shapes() if shape.square]
    if not squares:
        raise NothingToDraw("the run has no square size to hold against the L2: `worklog run --size 4096`")
    beyond = [shape for shape in squares if _matrix(shape) > l2]
    return [shape for shape in squares if not beyond or shape <= beyond[0]]


def _matrix(shape: Shape) -> int:
    return FLOAT_BYTES * shape.m * shape.k


def _fits(canvas: Canvas, sizes: list[Shape], warm: tuple[Effect, ...], l2: float, row: float) -> None:
    left, right = RIGHT + LABEL, WIDTH_IN - MARGIN_IN
    scale = (right - left - (EFFECT if warm else 0)) / max(3 * _matrix(sizes[-1]), l2)
    edge = left + scale * l2
    canvas.words(left, ABOVE, f"L2 {mebibytes(l2)}", BODY_PT, color=ACCENT, weight="bold")
    canvas.rectangle(Box(left, ABOVE + 0.19, edge, ABOVE + 0.27), ACCENT)
    if warm:
        canvas.words(right, ABOVE, "left warm,", SMALL_PT, ha="right", color=MUTED)
        canvas.words(right, ABOVE + 0.13, f"{warm[0].kernel} reads", SMALL_PT, ha="right", color=MUTED)
    for index, shape in enumerate(sizes):
        y = ABOVE + HEAD + row * (index + 0.5)
        canvas.words(left - 0.1, y - 0.07, f"{shape}²", ha="right", va="center")
        canvas.words(
            left - 0.1, y + 0.07, f"3 × {mebibytes(_matrix(shape))}", SMALL_PT, ha="right", va="center", color=MUTED
        )
        _matrices(canvas, left, y, scale * _matrix(shape))
        effect = next((e for e in warm if Shape(*e.shape) == shape), None)
        if effect:
            seen = factor(effect) != 1.0
            look: dict[str, Any] = {"weight": "bold"} if seen else {"color": MUTED}
            canvas.words(right, y, change(effect) if seen else "±0", ha="right", va="center_baseline", **look)
    canvas.wire((edge, ABOVE + 0.19), (edge, ABOVE + HEAD + row * len(sizes)), colour=ACCENT, width=1.0)


def _matrices(canvas: Canvas, left: float, y: float, wide: float) -> None:
    """A, B and C side by side, each `wide` inches."""
    for part, name in enumerate("ABC"):
        box = Box(left + part * wide, y - BAR / 2, left + (part + 1) * wide, y + BAR / 2)
        canvas.rectangle(box, BASELINE, PAPER, 0.5 if wide > 0.05 else 0.0)
        if wide > 0.2:
            canvas.words(*box.centre, name, SMALL_PT, ha="center", va="center_baseline")


def _finding(l2: float, sizes: list[Shape], warm: tuple[Effect, ...]) -> str:
    holds, worst = f"The L2 holds {mebibytes(l2)}", largest(warm)
    if worst is None or factor(worst) == 1.0:
        largest_one = f"{holds}, a matrix of {sizes[-1]}² is {mebibytes(_matrix(sizes[-1]))}"
        return largest_one + (": left warm, it flatters nothing here" if warm else "")
    spared: list[str] = []  # no size from the first of these on is moved
    for effect in sorted(warm, key=lambda e: e.shape):
        spared = [*spared, str(Shape(*effect.shape))] if factor(effect) == 1.0 else []
    nothing = f", nothing {f'from {spared[0]} on' if spared[1:] else f'at {spared[0]}'}" if spared else ""
    return f"{holds}: left warm, it gives {worst.kernel} {change(worst)} at {Shape(*worst.shape)}{nothing}"


def _subtitle(warm: tuple[Effect, ...]) -> str:
    of_whom = f" of {warm[0].kernel}, which it moves most" if warm else "; this run has no such reading"
    return (
        "Left: where bytes live, and where a cold and a warm run find theirs; bandwidths measured. Right: A, B and C "
        f"of each size (M = N = K) against the L2, to scale, and what a warm L2 does to the reading{of_whom}."
    )


def _alt(
    run: Run, levels: list[list[Say]], rates: tuple[str, str], sizes: list[Shape], warm: tuple[Effect, ...]
) -> str:
    stack = "; ".join(": ".join(part.words for part in parts) for parts in levels)
    did = {Shape(*e.shape): f", a warm L2 does {change(e)}" for e in warm}
    fits = "; ".join(f"{s}: three matrices of {mebibytes(_matrix(s))}{did.get(s, '')}" for s in sizes)
    return (
        f"Diagram of the memory hierarchy, fastest first: {stack}. Between L2 and the SMs {rates[0]}, from HBM "
        f"{rates[1]}. A cold run's bytes come all the way from HBM, a warm run's start in the L2. By size: {fits}. "
        f"Source: {run.label}."
    )
