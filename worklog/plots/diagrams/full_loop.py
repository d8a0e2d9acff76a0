"""Diagram 4: the loop as this harness runs it, and the samples that it gave.

The article's loop (warm up once; then flush, event, kernel, event; median) with what this harness adds: clock stamps
around each sample, a blocking kernel in front of it, cuBLAS turn about with the kernel, and outside the events
new inputs and a look at the output for each launch, where the gate asks for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from worklog.errors import NothingToDraw
from worklog.plots.diagrams.facts import Subject, mebibytes, speed, unbiased, unbroken
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
from worklog.runs.run import Run
from worklog.runs.table import duration

NAME = "diagram_4_full_loop"
# Inches from the upper edge of the body, and widths of the stream's parts.
HOST, STREAM, LANE, STRIP, PLOT, RESULT = 0.24, 1.12, 0.36, 2.62, 1.0, 1.95
HOLD, NEW, STAMP, FLUSH, EVENT, LOOK, CHECK = 0.62, 0.56, 0.4, 0.54, 0.045, 0.58, 0.42
OTHER, GAP, TAIL = 0.8, 0.04, 0.26
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
    unbiased(run, *SHOWN)
    subject = Subject.of(run)
    sampled = Sampled.of(run, subject)
    new = page(NAME, _finding(subject), _subtitle(subject), [run.full_label], _alt(run, subject), STRIP + PLOT + 0.36)
    canvas = Canvas(new)
    _host(canvas)
    canvas.words(MARGIN_IN, STREAM - 0.24, "GPU, one stream", SMALL_PT, color=MUTED)
    canvas.card(Box(MARGIN_IN, STREAM, MARGIN_IN + HOLD, STREAM + LANE), [title("hold")], ha="center")
    _explain(canvas, run, _sample(canvas, subject.name, _looked_at(subject)))
    _again(canvas, run)
    _strip(canvas, sampled, subject)
    _result(canvas, subject)
    return new.figure


def _looked_at(subject: Subject) -> bool:
    """Whether each timed launch had inputs of its own and was checked: what the verdict says was done."""
    return any(stage["name"] == "every timed launch" for stage in (subject.m.verdict or {}).get("stages", ()))


def _host(canvas: Canvas) -> None:
    """What the CPU does, and when it waits."""
    canvas.words(MARGIN_IN, 0.04, "host", SMALL_PT, color=MUTED)
    steps = (
        (1.75, "warm up, once", "until time and clock are flat"),
        (2.05, "queue one sample", "behind a kernel that blocks"),
        (0.85, "let go", "and wait"),
        (1.35, "read the events", "after a few pairs"),
    )
    between = (WIDTH_IN - 2 * MARGIN_IN - sum(wide for wide, _, _ in steps)) / (len(steps) - 1)
    x, middle = MARGIN_IN, HOST + 0.21
    for index, (wide, name, what) in enumerate(steps):
        if index:
            canvas.arrow((x - between + 0.02, middle), (x - 0.02, middle))
        canvas.card(Box(x, HOST, x + wide, HOST + 0.42), [title(name), small(what)], ha="center")
        x += wide + between


def _parts(name: str, looked: bool) -> dict[str, tuple[str, float]]:
    """One sample on the stream, in order: what stands in each box, and its width. The kernel gets what is left."""
    parts = {
        "inputs": ("new A, B", NEW),
        "stamp": ("stamp", STAMP),
        "flush": ("flush L2", FLUSH),
        "event": ("", EVENT),
        "kernel": (name, 0.0),
        "end event": ("", EVENT),
        "look": ("look at C", LOOK),
        "end stamp": ("stamp", STAMP),
        "check": ("check", CHECK),
    }
    kept = {key: part for key, part in parts.items() if looked or key not in ("inputs", "look", "check")}
    taken = sum(wide for _, wide in kept.values()) + GAP * len(kept)
    return kept | {"kernel": (name, WIDTH_IN - 2 * MARGIN_IN - HOLD - OTHER - TAIL - 0.16 - taken)}


def _sample(canvas: Canvas, name: str, looked: bool) -> dict[str, tuple[float, float]]:
    """One sample of the kernel, part by part, then cuBLAS's in one box. Returns where each part begins and ends."""
    top, bottom = STREAM, STREAM + LANE
    x, at = MARGIN_IN + HOLD + GAP + 0.06, {}
    for key, (words, wide) in _parts(name, looked).items():
        at[key] = (x, x + wide)
        if words:
            is_kernel = key == "kernel"
            fill, width = (ACCENT, 0.0) if is_kernel else (PALE, 0.8)
            canvas.box(Box(x, top, x + wide, bottom), fill, MUTED, width=width)
            points, room = (BODY_PT, wide - 0.1) if is_kernel else (SMALL_PT, wide)
            how = {"weight": "bold", "color": PAPER} if is_kernel else {}
            fitted = shorten(words, points, room, bold=is_kernel)
            canvas.words(x + wide / 2, top + LANE / 2, fitted, points, ha="center", va="center_baseline", **how)
        else:
            canvas.rectangle(Box(x, top - 0.07, x + wide, bottom + 0.07), INK)
            canvas.words(x + wide / 2, top - 0.1, "event", SMALL_PT, ha="center", va="bottom", color=MUTED)
        x += wide + GAP
    x += 0.04
    canvas.box(Box(x, top, x + OTHER, bottom), BASELINE, MUTED, width=0.0)
    canvas.words(x + OTHER / 2, top + 0.06, CUBLAS, BODY_PT, ha="center", weight="bold")
    canvas.words(x + OTHER / 2, top + 0.2, "the same way", SMALL_PT, ha="center")
    canvas.words(x + OTHER + 0.02, top + LANE / 2, "…", 11, va="center", color=MUTED)
    return at | {CUBLAS: (x, x + OTHER)}


def _explain(canvas: Canvas, run: Run, at: dict[str, tuple[float, float]]) -> None:
    """Brackets under the stream: what is measured between which marks."""
    y = STREAM + LANE + 0.13
    canvas.words(MARGIN_IN, y, "until all", SMALL_PT, color=MUTED)
    canvas.words(MARGIN_IN, y + 0.13, "is queued", SMALL_PT, color=MUTED)
    l2 = run.device.get("l2_bytes")
    flushed = f"2 × {mebibytes(l2)}" if l2 else "2 × L2"
    _under(canvas, at["flush"], y, flushed, "rewritten")
    _under(canvas, at[CUBLAS], y, "next pair:", "it goes first")
    timed = at["event"][0], at["end event"][1]
    _bracket(canvas, *timed, y)
    offset = run.calibration.get("offset_us")
    removed = offset is not None and run.harness.get("offset", "removed") == "removed"
    canvas.words(sum(timed) / 2, y + 0.08, "this is the time", SMALL_PT, ha="center", color=ACCENT, weight="bold")
    words = f"− {offset:.2f} µs, events' own" if removed else "event to event"
    canvas.words(sum(timed) / 2, y + 0.21, words, SMALL_PT, ha="center", color=MUTED)
    clocked, lower = (at["stamp"][0], at["end stamp"][1]), y + 0.37
    _bracket(canvas, *clocked, lower)
    canvas.words(sum(clocked) / 2, lower + 0.06, "stamp to stamp: the SM clock", SMALL_PT, ha="center", color=MUTED)


def _under(canvas: Canvas, part: tuple[float, float], y: float, *lines: str) -> None:
    for index, words in enumerate(lines):
        canvas.words(sum(part) / 2, y + 0.13 * index, words, SMALL_PT, ha="center", color=MUTED)


def _bracket(canvas: Canvas, left: float, right: float, y: float) -> None:
    canvas.wire((left, y - 0.04), (left, y + 0.03), (right, y + 0.03), (right, y - 0.04), width=0.9)


def _again(canvas: Canvas, run: Run) -> None:
    """The way back, and what ends it."""
    y, right = STREAM + LANE + 0.82, WIDTH_IN - MARGIN_IN - 0.08
    precision = run.harness.get("precision")
    within = f" within ±{100 * precision:g} %" if precision else " narrow enough"
    words = f"next pair, until the median's 95 % interval is{within}"
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
    looked = "new A and B, {}; a look at C comes right behind the second event, its check after the last stamp"
    sample = "clock stamp, L2 flush, event, kernel, event, clock stamp"
    return (
        "Diagram of the measuring loop. The host warms up once until time and clock are flat, queues one sample at a "
        "time behind a blocking kernel, lets go and waits, and reads the events after a few pairs. On the stream each "
        "sample is: "
        f"{looked.format(sample) if _looked_at(subject) else sample}. {subject.name} and cuBLAS take turns, and turn "
        f"about who is first. The median of {subject.m.n} samples is {duration(subject.us)} (95 % interval "
        f"{subject.interval}), {speed(subject.tflops)} TFLOP/s, {100 * subject.ratio:.1f} % of cuBLAS. "
        f"Source: {run.label}."
    )
