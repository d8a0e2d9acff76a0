"""Diagram 6: the whole ladder is one formula, the same work over ever shorter times.

Because one ruler took all the times, the shares beside them can be compared.
"""

from __future__ import annotations

from worklog.plots.diagrams.conversion import gigaflop
from worklog.plots.diagrams.facts import Subject, speed, unbroken
from worklog.plots.diagrams.shapes import Canvas, small, title
from worklog.plots.figure import Chart
from worklog.plots.labels import Box
from worklog.plots.page import page
from worklog.plots.selection import CUBLAS, cublas_tflops, dimensions, measured, rows
from worklog.plots.style import (
    ACCENT,
    BASELINE,
    BODY_PT,
    INK,
    MARGIN_IN,
    MUTED,
    PAPER,
    SMALL_PT,
    WIDTH_IN,
    shorten,
    styled,
    text_width,
)
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement, Run
from worklog.runs.table import duration

NAME = "diagram_6_one_formula"
# Inches.
HEAD, PITCH, BAR, LEAST = 0.3, 0.31, 0.21, 1.1
WORK, SIGN, NAMES, TIME = 1.12, 0.3, 0.98, 0.72


@styled()
def one_formula(run: Run) -> Chart:
    """Work ÷ time = rate, a row a rung. Raises NothingToDraw where no rung was measured."""
    subject = Subject.of(run)
    shape = subject.shape
    kernels = rows(run, shape)
    high = max(PITCH * len(kernels), LEAST)
    new = page(
        NAME,
        _finding(subject, kernels),
        _subtitle(shape),
        [run.full_label],
        _alt(run, subject, kernels),
        HEAD + high + 0.1,
    )
    canvas = Canvas(new)
    names = MARGIN_IN + WORK + SIGN
    time = names + NAMES + TIME
    bars = time + SIGN
    for x, words, ha in (
        (MARGIN_IN, "2·M·N·K", "left"),
        (names, "÷ the honest median", "left"),
        (bars, "= TFLOP/s · % of cuBLAS", "left"),
    ):
        canvas.words(x, 0.08, words, BODY_PT, ha=ha, weight="bold")
    work = [title(gigaflop(subject)), small(" "), small(_product(shape)), small("the same in"), small("every row")]
    canvas.card(Box(MARGIN_IN, HEAD, MARGIN_IN + WORK, HEAD + high), work, ha="center")
    rates = [m.tflops or 0.0 for m in kernels if measured(m)]
    scale = (WIDTH_IN - MARGIN_IN - bars) / (1.04 * max(*rates, cublas_tflops(kernels)))
    for index, m in enumerate(kernels):
        y = HEAD + high * (index + 0.5) / len(kernels)
        canvas.words(names - SIGN / 2, y, "÷", ha="center", va="center_baseline", color=MUTED)
        colour = INK if measured(m) else MUTED
        canvas.words(names, y, shorten(m.kernel, BODY_PT, NAMES), va="center_baseline", color=colour)
        if measured(m):
            canvas.words(time, y, duration(m.us or 0.0), ha="right", va="center_baseline", weight="bold")
            canvas.words(bars - SIGN / 2, y, "=", ha="center", va="center_baseline", color=MUTED)
            _bar(canvas, m, bars, y, scale)
        else:
            words = f"{m.status}: no time, no rate"
            canvas.words(bars, y, words, SMALL_PT, va="center_baseline", color=MUTED, style="italic")
    return new.figure


def _bar(canvas: Canvas, m: Measurement, x: float, y: float, scale: float) -> None:
    rate, ours = m.tflops or 0.0, m.kernel != CUBLAS
    end = x + scale * rate
    canvas.rectangle(Box(x, y - BAR / 2, end, y + BAR / 2), ACCENT if ours else BASELINE)
    words = f"{speed(rate)} · {100 * (m.ratio or 0.0):.1f} %"
    inside = scale * rate > text_width(words, BODY_PT) + 0.2
    canvas.words(
        end - 0.07 if inside else end + 0.07,
        y,
        words,
        ha="right" if inside else "left",
        va="center_baseline",
        color=PAPER if inside and ours else INK,
    )


def _product(shape: Shape) -> str:
    return f"2 · {shape.m}³" if shape.square else f"2 · {shape.m} · {shape.n} · {shape.k}"


def _ours(kernels: list[Measurement]) -> list[Measurement]:
    return [m for m in kernels if measured(m) and m.kernel != CUBLAS]


def _finding(subject: Subject, kernels: list[Measurement]) -> str:
    ours = _ours(kernels)
    first, best = ours[0], max(ours, key=lambda m: m.tflops or 0.0)

    def said(m: Measurement) -> str:
        return unbroken(f"{duration(m.us or 0.0)} are {speed(m.tflops or 0.0)} TFLOP/s")

    if first is best:
        return f"One formula, one rung: {said(first)}"
    return f"One formula for every rung: the same {unbroken(gigaflop(subject))} in {said(first)}, in {said(best)}"


def _subtitle(shape: Shape) -> str:
    return (
        f"C = A·B in FP32, {dimensions(shape)}. Each row divides the same work by its own time; because one ruler took "
        "every time, the shares of cuBLAS can be compared."
    )


def _alt(run: Run, subject: Subject, kernels: list[Measurement]) -> str:
    parts = [
        f"{m.kernel} {duration(m.us or 0.0)}, {speed(m.tflops or 0.0)} TFLOP/s, {100 * (m.ratio or 0.0):.1f} %"
        if measured(m)
        else f"{m.kernel} {m.status}"
        for m in kernels
    ]
    return (
        f"Diagram of one formula, work divided by time, with the share of cuBLAS, at {dimensions(subject.shape)}: the "
        f"work is {gigaflop(subject)} in every row. {'; '.join(parts)}. Source: {run.label}."
    )
