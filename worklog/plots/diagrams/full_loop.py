"""Diagram 4: the loop as this harness runs it, and the samples that it gave.

The article's loop (warm up once; then flush, event, kernel, event; median) with what this harness adds: clock stamps
around each sample, a blocking kernel in front of each batch, and cuBLAS turn about with the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from worklog.errors import NothingToDraw
from worklog.plots.diagrams.facts import Subject, honest, mebibytes, speed, unbroken
from worklog.plots.diagrams.shapes import Canvas, card_height, small, title
from worklog.plots.figure import Chart
from worklog.plots.labels import Box
from worklog.plots.page import page
from worklog.plots.selection import CUBLAS, dimensions
from worklog.plots.style import (
    ACCENT,
    BASELINE,
    BODY_PT,
    FAINT,
    INK,
    MARGIN_IN,
    MUTED,
    PALE,
    PAPER,
    SMALL_PT,
    TINT,
    WIDTH_IN,
    shorten,
    styled,
    text_width,
)
from worklog.runs import Run
from worklog.tables import duration, label_line

NAME = "diagram_4_full_loop"
# Inches from the upper edge of the body, and widths of the stream's parts.
HOST, STREAM, LANE, STRIP, PLOT, RESULT = 0.24, 1.12, 0.36, 2.42, 1.0, 1.95
HOLD, STAMP, FLUSH, EVENT, GAP, TAIL = 0.7, 0.42, 0.58, 0.045, 0.04, 0.3
SHOWN = "timer", "queue", "l2", "warmup", "order", "statistic"


@dataclass(frozen=True)
class Sampled:
    """Microseconds of each sample, offset removed, whether it counts; and what that sums up to."""

    us: list[float]
    counts: list[bool]

    @classmethod
    def of(cls, run: Run, subject: Subject) -> Sampled:
        """The subject's samples. Raises NothingToDraw where the run kept none."""
        samples = subject.m.samples
        if not samples.get("us") or not samples.get("counts"):
            raise NothingToDraw(f"the run kept no samples of {subject.name}: measure again with `worklog run`")
        offset = run.calibration.get("offset_us", 0.0) if run.harness.get("offset", "removed") == "removed" else 0.0
        return cls([us - offset for us in samples["us"]], [bool(counts) for counts in samples["counts"]])


@styled()
def full_loop(run: Run) -> Chart:
    """The loop, drawn as the honest harness runs it, over the samples that it gave. Raises NothingToDraw where the
    run was measured by another loop or kept no samples.
    """
    honest(run, *SHOWN)
    subject = Subject.of(run)
    sampled = Sampled.of(run, subject)
    new = page(NAME, _finding(subject), _subtitle(subject), [label_line(run)], _alt(run, subject), STRIP + PLOT + 0.36)
    canvas = Canvas(new)
    kernel = (WIDTH_IN - 2 * MARGIN_IN - HOLD - TAIL - 0.16) / 2 - 2 * (STAMP + EVENT) - FLUSH - 5 * GAP
    first = MARGIN_IN + HOLD + GAP + 0.06
    _host(canvas)
    canvas.words(MARGIN_IN, STREAM - 0.24, "GPU, one stream", SMALL_PT, color=MUTED)
    canvas.card(Box(MARGIN_IN, STREAM, MARGIN_IN + HOLD, STREAM + LANE), [title("hold")], ha="center")
    second = _sample(canvas, first, kernel, subject.name, ours=True) + 0.06
    end = _sample(canvas, second, kernel, CUBLAS, ours=False)
    canvas.words(end + 0.02, STREAM + LANE / 2, "…", 11, va="center", color=MUTED)
    _explain(canvas, run, first, second, kernel)
    _again(canvas, run)
    _strip(canvas, sampled, subject)
    _result(canvas, subject)
    return new.figure


def _host(canvas: Canvas) -> None:
    """What the CPU does, once a batch, and when it waits."""
    canvas.words(MARGIN_IN, 0.04, "host", SMALL_PT, color=MUTED)
    steps = (
        (1.75, "warm up, once", "until time and clock are flat"),
        (2.05, "queue a batch of pairs", "behind a kernel that blocks"),
        (0.75, "let go", "all at once"),
        (1.35, "read the events", "one wait a batch"),
    )
    between = (WIDTH_IN - 2 * MARGIN_IN - sum(wide for wide, _, _ in steps)) / (len(steps) - 1)
    x, middle = MARGIN_IN, HOST + 0.21
    for index, (wide, name, what) in enumerate(steps):
        if index:
            canvas.arrow((x - between + 0.02, middle), (x - 0.02, middle))
        canvas.card(Box(x, HOST, x + wide, HOST + 0.42), [title(name), small(what)], ha="center")
        x += wide + between


def _sample(canvas: Canvas, x: float, kernel: float, name: str, *, ours: bool) -> float:
    """One sample on the stream: stamp, flush, event, kernel, event, stamp. Returns where it ends."""
    top, bottom = STREAM, STREAM + LANE
    parts = ((STAMP, "stamp"), (FLUSH, "flush L2"), (EVENT, ""), (kernel, name), (EVENT, ""), (STAMP, "stamp"))
    for index, (wide, words) in enumerate(parts):
        if words:
            is_kernel = index == 3
            canvas.box(
                Box(x, top, x + wide, bottom),
                (ACCENT if ours else BASELINE) if is_kernel else PALE,
                MUTED,
                width=0.0 if is_kernel else 0.8,
            )
            points, room = (BODY_PT, wide - 0.1) if is_kernel else (SMALL_PT, wide)
            how = {"weight": "bold", "color": PAPER if ours else INK} if is_kernel else {}
            fitted = shorten(words, points, room, bold=is_kernel)
            canvas.words(x + wide / 2, top + LANE / 2, fitted, points, ha="center", va="center_baseline", **how)
        else:
            canvas.rectangle(Box(x, top - 0.07, x + wide, bottom + 0.07), INK)
            canvas.words(x + wide / 2, top - 0.1, "event", SMALL_PT, ha="center", va="bottom", color=MUTED)
        x += wide + GAP
    return x - GAP


def _explain(canvas: Canvas, run: Run, first: float, second: float, kernel: float) -> None:
    """Brackets under the stream: what is measured between which marks."""
    y = STREAM + LANE + 0.13
    canvas.words(MARGIN_IN, y, "until all", SMALL_PT, color=MUTED)
    canvas.words(MARGIN_IN, y + 0.13, "is queued", SMALL_PT, color=MUTED)
    from_event = STAMP + FLUSH + 2 * GAP
    long = kernel + 2 * (EVENT + GAP)
    offset = run.calibration.get("offset_us")
    removed = offset is not None and run.harness.get("offset", "removed") == "removed"
    _bracket(canvas, first + from_event, first + from_event + long, y)
    canvas.words(
        first + from_event + long / 2, y + 0.08, "this is the time", SMALL_PT, ha="center", color=ACCENT, weight="bold"
    )
    words = f"− {offset:.2f} µs, events' own" if removed else "event to event"
    canvas.words(first + from_event + long / 2, y + 0.21, words, SMALL_PT, ha="center", color=MUTED)
    l2 = run.device.get("l2_bytes")
    flushed = f"2 × {mebibytes(l2)}" if l2 else "2 × L2"
    canvas.words(first + STAMP + GAP + FLUSH / 2, y, flushed, SMALL_PT, ha="center", color=MUTED)
    canvas.words(first + STAMP + GAP + FLUSH / 2, y + 0.13, "rewritten", SMALL_PT, ha="center", color=MUTED)
    whole = from_event + long + STAMP + GAP
    _bracket(canvas, second, second + whole, y)
    canvas.words(second + whole / 2, y + 0.08, "stamp to stamp: the SM clock", SMALL_PT, ha="center", color=MUTED)
    canvas.words(second + whole / 2, y + 0.21, "next pair: cuBLAS goes first", SMALL_PT, ha="center", color=MUTED)


def _bracket(canvas: Canvas, left: float, right: float, y: float) -> None:
    canvas.wire((left, y - 0.04), (left, y + 0.03), (right, y + 0.03), (right, y - 0.04), width=0.9)


def _again(canvas: Canvas, run: Run) -> None:
    """The way back, and what ends it."""
    y, right = STREAM + LANE + 0.62, WIDTH_IN - MARGIN_IN - 0.08
    precision = run.harness.get("precision")
    within = f" within ±{100 * precision:g} %" if precision else " narrow enough"
    words = f"next batch, until the median's 95 % interval is{within}"
    half = text_width(words, SMALL_PT) / 2 + 0.08
    middle = WIDTH_IN / 2
    canvas.wire((right, STREAM + LANE / 2 + 0.12), (right, y), (middle + half, y), colour=ACCENT)
    left = MARGIN_IN + HOLD - 0.08
    canvas.arrow((middle - half, y), (left, y), (left, STREAM + LANE + 0.02), colour=ACCENT)
    canvas.words(middle, y, words, SMALL_PT, ha="center", va="center", color=INK)


def _strip(canvas: Canvas, sampled: Sampled, subject: Subject) -> None:
    """Every sample as a dot, over the median and its interval."""
    left, right = MARGIN_IN + 0.62, WIDTH_IN - MARGIN_IN - RESULT - 0.3
    low, high = min(*sampled.us, subject.low), max(*sampled.us, subject.high)
    air = 0.08 * (high - low) or 1.0

    def up(us: float) -> float:
        return STRIP + PLOT * (high + air - us) / (high - low + 2 * air)

    canvas.rectangle(Box(left, up(subject.high), right, up(subject.low)), TINT)
    canvas.wire((left, up(subject.us)), (right, up(subject.us)), colour=ACCENT)
    for us in (low, high):
        canvas.wire((left, up(us)), (right, up(us)), colour=FAINT, width=0.6)
        canvas.words(left - 0.06, up(us), duration(us), SMALL_PT, ha="right", va="center", color=MUTED)
    n = len(sampled.us)
    xs = [left + (right - left) * (index + 0.5) / n for index in range(n)]
    size = 3.4 if n <= 100 else 1.6
    for counts, fill in ((True, ACCENT), (False, PAPER)):
        dots = [(x, up(us)) for x, us, kept in zip(xs, sampled.us, sampled.counts, strict=True) if kept == counts]
        if dots:
            look: dict[str, Any] = {
                "markerfacecolor": fill,
                "markeredgecolor": ACCENT if counts else MUTED,
                "markeredgewidth": 0.7,
            }
            canvas.axes.plot(*zip(*dots, strict=True), "o", markersize=size, zorder=4, **look)
    hollow = "" if all(sampled.counts) else "; hollow: off the clock, taken again"
    canvas.say(left, STRIP + PLOT + 0.05, [small(f"every sample, in the order taken{hollow}")], right - left)


def _result(canvas: Canvas, subject: Subject) -> None:
    parts = [
        small("median, interval"),
        title(f"{duration(subject.us)} {subject.half_width}", ACCENT),
        small(f"{subject.m.n} samples, {speed(subject.tflops)} TFLOP/s"),
        small("pair by pair against cuBLAS"),
        title(f"{100 * subject.ratio:.1f} %"),
    ]
    right = WIDTH_IN - MARGIN_IN
    box = Box(right - RESULT, STRIP + 0.04, right, STRIP + 0.04 + card_height(parts, RESULT))
    canvas.card(box, parts, ours=True, ha="center", width=1.4)


def _finding(subject: Subject) -> str:
    return (
        f"Warm up once, flush before every launch, take the median: {subject.m.n} samples give {subject.name}'s time "
        + unbroken(f"to {subject.half_width}")
    )


def _subtitle(subject: Subject) -> str:
    return (
        f"The loop that measured {subject.name} at {dimensions(subject.shape)}: what the host does, what the stream "
        "holds for one pair of samples (widths not to scale), and every sample that came out of it."
    )


def _alt(run: Run, subject: Subject) -> str:
    return (
        "Diagram of the measuring loop. The host warms up once until time and clock are flat, queues a batch of pairs "
        "behind a blocking kernel, lets go, and waits once to read the events. On the stream each sample is: clock "
        f"stamp, L2 flush, event, kernel, event, clock stamp; {subject.name} and cuBLAS take turns, and turn about who "
        f"is first. The median of {subject.m.n} samples is {duration(subject.us)} (95 % interval {subject.interval}), "
        f"{speed(subject.tflops)} TFLOP/s, {100 * subject.ratio:.1f} % of cuBLAS. Source: {run.label}."
    )
