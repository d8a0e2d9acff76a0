"""Diagram 7: what a kernel had to pass before it was timed, and how much wider the article's gate stands open.

The stages and their margins are the recorded verdict's. What the article's tolerance lets through is worked out on
inputs like the timed ones (worklog.plots.diagrams.looseness), on the same scale.
"""

from __future__ import annotations

from contextlib import suppress
from math import log10
from typing import Any

from worklog.errors import NothingToDraw
from worklog.plots.diagrams.facts import Subject, thousands, unbroken
from worklog.plots.diagrams.looseness import ARTICLE_TOLERANCE, COLUMNS, ROWS, Looseness, looseness
from worklog.plots.diagrams.shapes import Canvas, Say, height, small, title
from worklog.plots.figure import Chart
from worklog.plots.labels import Box
from worklog.plots.page import page
from worklog.plots.selection import CUBLAS, dimensions
from worklog.plots.style import ACCENT, BASELINE, FAINT, INK, MARGIN_IN, MUTED, PALE, PAPER, SMALL_PT, WIDTH_IN, styled
from worklog.runs.run import Run
from worklog.runs.table import duration

NAME = "diagram_7_gate"
# Inches.
ABOVE, GAP, NODE, WORDS, STAGES = 0.12, 0.1, 0.075, 0.32, 4.2
CELL, CELLS, LESSON = 0.13, 9, 2.2
NAMES, VERDICT, HEAD, ROW, BETWEEN = 1.75, 1.3, 0.52, 0.22, 0.22

MAX_NOT_MEAN = title("the largest error, never the mean")
PRECISION, AFTER = "precision", ("every timed launch", "timed output", "plausible", "a second clock")
# Why each stage is there; its own words say what was asked.
WHY = {
    "exact on ragged shapes": "integers that no order of adding rounds: no tolerance",
    "exact at the benchmark shape": "the same at the very size that is timed",
    "bit-equal when repeated": "a race need not show in one launch",
    "products": "several short products in place of one are told, not refused",
    PRECISION: "on the timed data; sums in another order may differ by rounding",
    "every timed launch": "inputs that nobody has seen, and a look behind the event",
    "timed output": "what the timed launches themselves left in C",
    "plausible": "no time below the work over the peak",
    "a second clock": "the global timer saw nothing that the events missed",
}


@styled()
def gate(run: Run) -> Chart:
    """The stages that the subject passed, why errors are reduced with max, and what 1e-2 lets through. Raises
    NothingToDraw where the run kept no verdict with a precision stage.
    """
    subject = Subject.of(run)
    stages = _stages(run, subject.name)
    limit = _precision(stages)["limit"]
    loose = looseness(subject.shape.k)
    errors = _errors(run, subject, loose)
    nodes = _nodes(subject, stages)
    room = STAGES - WORDS
    flow = sum(height(parts, room) + GAP for parts, _ in nodes)
    flow = max(flow, height([MAX_NOT_MEAN, *_lesson(subject)], LESSON) + CELL * CELLS + 0.2)
    body = ABOVE + flow + BETWEEN + HEAD + ROW * len(errors) + 0.1
    footer = [run.full_label, _footnote()]
    new = page(NAME, _finding(subject, stages, loose), _subtitle(subject), footer, "", body)
    new.figure.alt = _alt(run, subject, stages, errors, loose)
    canvas = Canvas(new)
    _flow(canvas, nodes, room)
    _reduction(canvas, subject)
    _scale(canvas, errors, limit, loose, ABOVE + flow + BETWEEN)
    return new.figure


def _stages(run: Run, kernel: str) -> list[dict[str, Any]]:
    """The stages of a kernel's verdict under the run's own harness, at the subject's size. Raises NothingToDraw."""
    shape = Subject.of(run).shape
    found = next((m.verdict for m in run.select(kernel, shape) if m.verdict), None) or {}
    stages: list[dict[str, Any]] = found.get("stages", [])
    if not any(stage["name"] == PRECISION for stage in stages):
        raise NothingToDraw(f"the run has no verdict of the whole gate on {kernel}: `worklog run {kernel}`")
    return stages


def _precision(stages: list[dict[str, Any]]) -> dict[str, Any]:
    return next(stage for stage in stages if stage["name"] == PRECISION)


def _nodes(subject: Subject, stages: list[dict[str, Any]]) -> list[tuple[list[Say], str]]:
    """Words and mark of each stop on the way, the timing at its place."""

    def words(stage: dict[str, Any]) -> list[Say]:
        why = WHY.get(stage["name"], "")
        return [title(stage["name"]), *([small(why)] if why else []), small(str(stage["detail"]), INK)]

    before = [(words(stage), "✓") for stage in stages if stage["name"] not in AFTER]
    after = [(words(stage), "✓") for stage in stages if stage["name"] in AFTER]
    return [*before, ([title(f"only now it is timed: {duration(subject.us)}", ACCENT)], ""), *after]


def _flow(canvas: Canvas, nodes: list[tuple[list[Say], str]], room: float) -> None:
    x, y = MARGIN_IN + 0.12, ABOVE
    centres = []
    for parts, _ in nodes:
        centres.append(y + 0.075)
        y = canvas.say(MARGIN_IN + WORDS, y, parts, room) + GAP
    canvas.wire((x, centres[0]), (x, centres[-1]), colour=BASELINE, width=2.0)
    for (_, mark), centre in zip(nodes, centres, strict=True):
        if mark:
            canvas.dot(x, centre, NODE, fill=ACCENT)
            canvas.words(x, centre, mark, SMALL_PT, color=PAPER, ha="center", va="center_baseline", weight="bold")
        else:
            canvas.dot(x, centre, NODE, fill=PAPER, edge=ACCENT)


def _lesson(subject: Subject) -> list[Say]:
    count = subject.shape.m * subject.shape.n
    return [
        small(f"Wrong by 1 among {thousands(count)} elements:"),
        small("the largest error is 1: refused", INK),
        small(f"the mean error is {1 / count:.0e}: waved through", INK),
        small("So an exact stage allows 0 wrong elements, and precision goes by the largest error it meets."),
    ]


def _reduction(canvas: Canvas, subject: Subject) -> None:
    """One wrong element among many, and what max and mean make of it."""
    left = WIDTH_IN - MARGIN_IN - LESSON
    y = canvas.say(left, ABOVE, [MAX_NOT_MEAN], LESSON) + 0.1
    for row in range(CELLS):
        for column in range(CELLS):
            wrong = (row, column) == (3, 6)
            cell = Box(left + CELL * column, y + CELL * row, left + CELL * (column + 1), y + CELL * (row + 1))
            canvas.rectangle(cell, INK if wrong else FAINT, PAPER, 0.8)
    beside = left + CELL * CELLS + 0.12
    canvas.say(beside, y + CELL * 3 - 0.02, [small("one raced", INK), small("element", INK)], LESSON)
    canvas.say(left, y + CELL * CELLS + 0.1, _lesson(subject), LESSON)


def _errors(run: Run, subject: Subject, loose: Looseness) -> list[tuple[str, float, bool]]:
    """Name, largest error in u·D, and whether it is a kernel of the run (else a mistake)."""
    recorded = [(subject.name, _precision(_stages(run, subject.name))["measured"], True)]
    with suppress(NothingToDraw):
        recorded.append((CUBLAS, _precision(_stages(run, CUBLAS))["measured"], True))
    return [*recorded, *((name, error, False) for name, error in loose.mistakes.items())]


def _scale(canvas: Canvas, errors: list[tuple[str, float, bool]], limit: float, loose: Looseness, top: float) -> None:
    """Errors as dots on a log axis between the two limits."""
    left, right = MARGIN_IN + NAMES + 0.1, WIDTH_IN - MARGIN_IN - VERDICT
    every = [error for _, error, _ in errors] + [limit, loose.tolerance]
    low, high = log10(min(every)) - 0.3, log10(max(every)) + 0.3
    bottom = top + HEAD + ROW * len(errors)

    def along(error: float) -> float:
        return left + (right - left) * (log10(error) - low) / (high - low)

    canvas.rectangle(Box(along(limit), top + 0.36, along(loose.tolerance), bottom), PALE)
    canvas.words(MARGIN_IN, top, "largest error of an element, u·D, log scale", SMALL_PT, color=MUTED)
    for at, words, colour, ours in (
        (limit, f"this gate: {thousands(limit)}", ACCENT, True),
        (loose.tolerance, f"the article's {ARTICLE_TOLERANCE:g}: about {thousands(loose.tolerance)}", MUTED, False),
    ):
        ha = "center" if ours else "right"
        canvas.words(along(at) + (0 if ours else 0.35), top + 0.2, words, SMALL_PT, ha=ha, color=colour, weight="bold")
        canvas.wire((along(at), top + 0.36), (along(at), bottom), colour=colour, width=1.4, dashed=not ours)
    for index, (name, error, ours) in enumerate(errors):
        y = top + HEAD + ROW * (index + 0.5) - 0.03
        canvas.words(left - 0.1, y, name, ha="right", va="center_baseline", color=INK)
        canvas.wire((left, y), (along(error), y), colour=BASELINE, width=0.8)
        canvas.dot(along(error), y, 0.045, fill=ACCENT if ours else PAPER, edge=ACCENT if ours else INK)
        canvas.words(right + 0.1, y, _passes(error, limit, loose), SMALL_PT, va="center_baseline", color=INK)


def _passes(error: float, limit: float, loose: Looseness) -> str:
    if error <= limit:
        return "passes both"
    return f"passes {ARTICLE_TOLERANCE:g} only" if error < loose.tolerance else "passes neither"


def _finding(subject: Subject, stages: list[dict[str, Any]], loose: Looseness) -> str:
    measured, limit = (_precision(stages)[key] for key in ("measured", "limit"))
    margin = unbroken(f"{thousands(measured)} of {thousands(limit)}")
    times = unbroken(f"about {thousands(float(f'{loose.tolerance / limit:.2g}'))} times")
    return (
        f"{subject.name} was timed only after the gate: largest error {margin} u·D allowed; "
        f"the article's rule allows {times} that"
    )


def _subtitle(subject: Subject) -> str:
    return (
        f"The gate on {subject.name} at {dimensions(subject.shape)}, stage by stage, in its verdict's words. Below: "
        "errors in u·D (u = 2⁻²⁴, D the 2-norm of an element's K products), filled measured, hollow worked out."
    )


def _footnote() -> str:
    how = f"computed for {ROWS} × {COLUMNS} elements of inputs like the timed ones"
    return f"Hollow marks and the article's limit: {how}."


def _alt(
    run: Run, subject: Subject, stages: list[dict[str, Any]], errors: list[tuple[str, float, bool]], loose: Looseness
) -> str:
    passed = "; ".join(f"{stage['name']}: {stage['detail']}" for stage in stages)
    limit = _precision(stages)["limit"]
    said = "; ".join(f"{name} {thousands(error)}, {_passes(error, limit, loose)}" for name, error, _ in errors)
    return (
        f"Diagram of the correctness gate that {subject.name} passed at {dimensions(subject.shape)}, before it was "
        f"timed and after. Stages: {passed}. Errors are reduced with max: one wrong element shows in the largest error "
        f"and vanishes in the mean. Largest errors in u·D against this gate's {thousands(limit)} and the article's "
        f"rule, about {thousands(loose.tolerance)}: {said}. Source: {run.label}."
    )
