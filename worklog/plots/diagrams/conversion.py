"""Diagram 5: from a time to a rate to a share: FLOPs counted, divided by the honest median, held against the same
datapath.

The step that people botch is the last, so the roofs are drawn to one scale, the wrong one among them, crossed out.
"""

from __future__ import annotations

from dataclasses import dataclass

from worklog.plots.diagrams.facts import Subject, beside, calibrated, speed, thousands, unbroken, value
from worklog.plots.diagrams.shapes import Canvas, Say, card_height, small
from worklog.plots.figure import Chart
from worklog.plots.labels import Box
from worklog.plots.page import page
from worklog.plots.selection import dimensions
from worklog.plots.style import (
    ACCENT,
    BASELINE,
    BODY_PT,
    INK,
    MARGIN_IN,
    MUTED,
    PALE,
    SMALL_PT,
    WIDTH_IN,
    styled,
    text_width,
)
from worklog.runs.run import Run
from worklog.runs.table import duration
from worklog.settings import BF16_DATASHEET_TFLOPS, PITFALLS

NAME = "diagram_5_conversion"
# Inches.
SIGN, ABOVE, BETWEEN, HEAD, ROW, BAR, NAMES = 0.34, 0.08, 0.3, 0.2, 0.31, 0.21, 1.78
BIG = 13.0


@dataclass(frozen=True)
class Roof:
    """Something to compare a rate with, TFLOP/s. share: the rate as a share of it. right: of the same datapath."""

    name: str
    tflops: float
    share: float
    right: bool = True


@styled()
def conversion(run: Run) -> Chart:
    """Work over time is rate, and rate over roof a share. Raises NothingToDraw without a measured rung or ceiling."""
    subject = Subject.of(run)
    roofs = _roofs(run, subject)
    cards = _cards(run, subject)
    wide = (WIDTH_IN - 2 * MARGIN_IN - 2 * SIGN) / 3
    high = max(card_height(card, wide) for card in cards)
    top = ABOVE + high + BETWEEN
    body = top + HEAD + ROW * (len(roofs) + 1) + 0.1
    new = page(NAME, _finding(subject, roofs), _subtitle(subject), [run.full_label], _alt(run, subject, roofs), body)
    canvas = Canvas(new)
    for index, card in enumerate(cards):
        x = MARGIN_IN + index * (wide + SIGN)
        canvas.card(Box(x, ABOVE, x + wide, ABOVE + high), card, ours=index == 2, ha="center")
        if index:
            canvas.words(x - SIGN / 2, ABOVE + high / 2, "÷="[index - 1], BIG, ha="center", va="center", weight="bold")
    _compare(canvas, subject, roofs, top)
    return new.figure


def gigaflop(subject: Subject) -> str:
    """The work of one launch: "137.4 GFLOP"."""
    return f"{subject.shape.flops / 1e9:.4g} GFLOP"


def _cards(run: Run, subject: Subject) -> list[list[Say]]:
    shape = subject.shape
    return [
        [
            small("count the work: 2·M·N·K"),
            Say(gigaflop(subject), BIG, bold=True),
            small(f"{thousands(shape.m * shape.n)} elements of C,"),
            small(f"{thousands(2 * shape.k)} operations each"),
        ],
        [
            small("take the honest median"),
            Say(duration(subject.us), BIG, bold=True),
            small(f"{subject.m.n} samples, {unbroken(subject.half_width)},"),
            small(", ".join(f"{g.setting} = {value(run, g)}" for g in PITFALLS if g.setting in ("timer", "l2"))),
        ],
        [
            small("that is a rate"),
            Say(f"{speed(subject.tflops)} TFLOP/s", BIG, ACCENT, bold=True),
            small("a number, not yet an answer:"),
            small("out of what?"),
        ],
    ]


def _roofs(run: Run, subject: Subject) -> list[Roof]:
    ceiling = calibrated(run, "fp32_tflops", "measured FP32 ceiling")
    roofs = [
        Roof("cuBLAS, FP32, same loop", beside(run, subject.shape), subject.ratio),
        Roof("FP32 ceiling, measured", ceiling, subject.tflops / ceiling),
    ]
    if subject.m.of_roof:
        roofs.append(Roof("FP32 peak at this clock", subject.tflops / subject.m.of_roof, subject.m.of_roof))
    wrong = subject.tflops / BF16_DATASHEET_TFLOPS
    return [*roofs, Roof("BF16 tensor cores, datasheet", BF16_DATASHEET_TFLOPS, wrong, right=False)]


def _compare(canvas: Canvas, subject: Subject, roofs: list[Roof], top: float) -> None:
    """Bars to one scale, the rate first; the wrong roof hollow and crossed out."""
    left, right = MARGIN_IN + NAMES + 0.1, WIDTH_IN - MARGIN_IN
    scale = (right - left) / max(roof.tflops for roof in [*roofs, Roof("", subject.tflops, 1.0)])
    canvas.words(left, top, "TFLOP/s, to one scale", SMALL_PT, color=MUTED)
    rows = [Roof(subject.name, subject.tflops, 0.0), *roofs]
    for index, roof in enumerate(rows):
        y = top + HEAD + ROW * (index + 0.5)
        end = left + scale * roof.tflops
        colour = INK if roof.right else MUTED
        weight = "normal" if index else "bold"
        canvas.words(left - 0.1, y, roof.name, ha="right", va="center_baseline", color=colour, weight=weight)
        words = speed(roof.tflops)
        if roof.right:
            canvas.rectangle(Box(left, y - BAR / 2, end, y + BAR / 2), BASELINE if index else ACCENT)
            words += f" · {subject.name} is {100 * roof.share:.1f} % of it" if index else ""
            canvas.words(end + 0.07, y, words, va="center_baseline", weight=weight)
        else:
            canvas.box(Box(left, y - BAR / 2, end, y + BAR / 2), PALE, dashed=True)
            words += f" · {subject.name} is {100 * roof.share:.1f} % of it, and it says nothing"
            canvas.words(left + 0.1, y, words, va="center_baseline", color=MUTED)
            _cross_out(canvas, Box(left + 0.1 + text_width(words, BODY_PT) + 0.15, y - BAR / 2, end, y + BAR / 2))


def _cross_out(canvas: Canvas, box: Box) -> None:
    """Two strokes from corner to corner."""
    canvas.wire((box.x0, box.y0), (box.x1, box.y1), colour=INK, width=1.6)
    canvas.wire((box.x0, box.y1), (box.x1, box.y0), colour=INK, width=1.6)


def _finding(subject: Subject, roofs: list[Roof]) -> str:
    ceiling, wrong = roofs[1], roofs[-1]
    return (
        f"{unbroken(gigaflop(subject))} in {unbroken(duration(subject.us))} are {speed(subject.tflops)} TFLOP/s: "
        f"{unbroken(f'{100 * ceiling.share:.1f} %')} of what FP32 can do here, "
        f"not {unbroken(f'{100 * wrong.share:.1f} %')} of BF16's peak"
    )


def _subtitle(subject: Subject) -> str:
    return (
        f"{subject.name} at {dimensions(subject.shape)}. The rate is compared with what the same datapath, at the same "
        "precision and shape, can do; a share of the tensor cores' BF16 peak says nothing about an FP32 kernel."
    )


def _alt(run: Run, subject: Subject, roofs: list[Roof]) -> str:
    parts = [
        f"{roof.name} {speed(roof.tflops)} TFLOP/s, of which it is {100 * roof.share:.1f} %"
        + ("" if roof.right else " (crossed out: another datapath)")
        for roof in roofs
    ]
    return (
        f"Diagram of the conversion for {subject.name} at {dimensions(subject.shape)}: {gigaflop(subject)} divided by "
        f"{duration(subject.us)} is {speed(subject.tflops)} TFLOP/s. Bars to one scale: {'; '.join(parts)}. "
        f"Source: {run.label}."
    )
