"""Diagram 1: the honest quantity on the left, the four gremlins that corrupt a naive measurement of it on the right.

Under them stands what one reads with all four at large, where the run has that, so that the picture is no metaphor.
"""

from __future__ import annotations

from worklog.plots.diagrams.facts import ARTICLES_FOUR, MEASURED_AS, Subject, change, did, did_at_worst, speed
from worklog.plots.diagrams.shapes import PAD, Canvas, Say, card_height, height, small, title
from worklog.plots.figure import Chart
from worklog.plots.labels import Box
from worklog.plots.page import page
from worklog.plots.selection import dimensions
from worklog.plots.style import ACCENT, INK, MARGIN_IN, PALE, WIDTH_IN, styled
from worklog.runs.ablation import Effect
from worklog.runs.run import Run
from worklog.runs.table import duration

NAME = "diagram_1_mental_model"
# Inches.
LEFT, BETWEEN, GAP, STRIP, ABOVE = 2.35, 0.75, 0.1, 0.52, 0.1
BADGE_ROOM = 0.3


@styled()
def mental_model(run: Run) -> Chart:
    """The quantity, the four gremlins, and what is read with all four at large. Raises NothingToDraw."""
    subject = Subject.of(run)
    together = subject.effect("article")
    right = Box(MARGIN_IN + LEFT + BETWEEN, 0, WIDTH_IN - MARGIN_IN, 0)
    room = right.x1 - right.x0 - 2 * PAD - BADGE_ROOM
    cards = [[title(g.title), small(g.what), small(f"alone: {_alone(subject, g.setting)}", INK)] for g in ARTICLES_FOUR]
    tall = max(height(card, room) for card in cards) + 2 * PAD
    body = ABOVE + len(cards) * (tall + GAP) + (STRIP + 0.26 if together else 0)
    new = page(NAME, _finding(subject, together), _subtitle(subject), [run.full_label], _alt(run, subject), body)
    canvas = Canvas(new)
    bottom = ABOVE + len(cards) * (tall + GAP) - GAP
    quantity = _quantity(subject)
    half, middle = card_height(quantity, LEFT) / 2 + 0.08, (ABOVE + bottom) / 2
    unbiased = Box(MARGIN_IN, middle - half, MARGIN_IN + LEFT, middle + half)
    canvas.card(unbiased, quantity, ours=True, ha="center", width=1.4)
    for number, (pitfall, card) in enumerate(zip(ARTICLES_FOUR, cards, strict=True)):
        y = ABOVE + number * (tall + GAP)
        canvas.box(Box(right.x0, y, right.x1, y + tall), PALE)
        canvas.badge(right.x0 + PAD + 0.09, y + tall / 2, str(pitfall.article))
        canvas.say(right.x0 + PAD + BADGE_ROOM, y + (tall - height(card, room)) / 2, card, room)
        _corrupts(canvas, unbiased, right.x0, y + tall / 2, number / (len(cards) - 1))
    if together:
        top = bottom + 0.24
        canvas.card(
            Box(MARGIN_IN, top, right.x1, top + STRIP), _naive(subject, together, run), ha="center", dashed=True
        )
        canvas.arrow((unbiased.centre[0], unbiased.y1 + 0.02), (unbiased.centre[0], top - 0.02), dashed=True)
    return new.figure


def _corrupts(canvas: Canvas, unbiased: Box, x: float, y: float, place: float) -> None:
    """A wire from a gremlin at (x, y) to the quantity's edge; place: 0 the uppermost, 1 the lowest. No two cross."""
    port = unbiased.y0 + (unbiased.y1 - unbiased.y0) * (0.2 + 0.6 * place)
    bend = unbiased.x1 + BETWEEN * (0.62 - 0.3 * abs(2 * place - 1))
    canvas.arrow((x, y), (bend, y), (bend, port), (unbiased.x1 + 0.02, port), dashed=True)


def _quantity(subject: Subject) -> list[Say]:
    return [
        small("what we want to know"),
        title(f"how long {subject.name} takes"),
        small("one launch, cold L2, steady machine"),
        small(" "),
        Say(duration(subject.us), 20, ACCENT, bold=True),
        small(f"median of {subject.m.n} samples,"),
        small(f"95 % interval {subject.interval}"),
        small(" "),
        title(f"{speed(subject.tflops)} TFLOP/s"),
        small(f"{100 * subject.ratio:.1f} % of cuBLAS"),
    ]


def _naive(subject: Subject, together: Effect, run: Run) -> list[Say]:
    us = subject.shape.flops / together.lying / 1e6
    ceiling = run.calibration.get("fp32_tflops")
    times = f", {together.lying / ceiling:.3g} × the FP32 ceiling" if ceiling else ""
    return [
        title(f"With all four let loose, one reads {duration(us)}: {speed(together.lying)} TFLOP/s{times}"),
        small(f"the same kernel on the same GPU, {change(together)}"),
    ]


def _alone(subject: Subject, setting: str) -> str:
    measured_as = MEASURED_AS.get(setting, setting)
    worst = did_at_worst(subject.effects(measured_as))
    here = subject.effect(measured_as)
    return worst if here is None or did(here) == worst or worst.startswith("nothing") else f"{did(here)}, {worst}"


def _finding(subject: Subject, together: Effect | None) -> str:
    unbiased = f"{subject.name} makes {speed(subject.tflops)} TFLOP/s"
    if together is None or not together.visible:
        return f"{unbiased}; four gremlins stand between it and the reading"
    return f"{unbiased}; measured naively, it reads {speed(together.lying)}"


def _subtitle(subject: Subject) -> str:
    return (
        f"C = A·B in FP32, {dimensions(subject.shape)}. Left: the honest quantity. Right: the article's four gremlins "
        "and what each alone does to the TFLOP/s that are read, at this size and where it does most."
    )


def _alt(run: Run, subject: Subject) -> str:
    pitfalls = "; ".join(f"{g.article} {g.title}, alone {_alone(subject, g.setting)}" for g in ARTICLES_FOUR)
    together = subject.effect("article")
    naive = f" All four together: {speed(together.lying)} TFLOP/s are read." if together else ""
    return (
        f"Diagram. On the left the honest quantity: {subject.name} at {dimensions(subject.shape)} takes "
        f"{duration(subject.us)} (95 % interval {subject.interval}), {speed(subject.tflops)} TFLOP/s. On the right "
        f"four gremlins with arrows into it: {pitfalls}.{naive} Source: {run.label}."
    )
