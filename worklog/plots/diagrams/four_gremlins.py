"""Diagram 3: each of the article's gremlins, the one measurement that it corrupts, and the setting that stops it.

The wire from gremlin to measurement ends at the setting; what got through where the setting was turned off is the
run's own ablation.
"""

from __future__ import annotations

from worklog.plots.diagrams.facts import ARTICLES_FOUR, MEASURED_AS, change, did_at_worst, largest, value, worst_of_all
from worklog.plots.diagrams.shapes import PAD, Canvas, Say, card_height, height, small, title
from worklog.plots.figure import Chart
from worklog.plots.labels import Box
from worklog.plots.page import page
from worklog.plots.selection import shape_to_draw
from worklog.plots.style import ACCENT, BASELINE, INK, MARGIN_IN, MUTED, PALE, SMALL_PT, WIDTH_IN, styled
from worklog.plots.waterfall import factor
from worklog.runs.run import Run
from worklog.settings import Pitfall, rule

NAME = "diagram_3_four_gremlins"
# Inches: the left and right edge of each column.
GREMLIN, FIX, READING = (MARGIN_IN, 2.22), (2.54, 4.08), (4.42, WIDTH_IN - MARGIN_IN)
BADGE_ROOM, HEAD, GAP, PICTURE, LAUNCHES = 0.27, 0.28, 0.14, 0.5, 6

# The one measurement that each corrupts, and why.
CORRUPTS = {
    "clocks": ("the step from rung to rung", "one rung runs cool, the next one hot"),
    "timer": ("the stopwatch", "it stops when the launch is queued"),
    "l2": ("every launch but the first", "its reads come from the launch before"),
    "warmup": ("the first launch", "it pays what no later one pays"),
}
STOPS = {
    "watched": "a sample off the clock is taken again",
    "locked": "every sample at one clock",
    "events": "both stamps in the GPU's own stream",
    "graph": "many launches in one graph",
    "cupti": "the hardware's own time stamps",
    "flush": "2 × L2 rewritten before each sample",
    "rotate": "inputs take turns, none is still in L2",
    "steady": "until time and clock are flat",
}


@styled()
def four_gremlins(run: Run) -> Chart:
    """Gremlin, setting and measurement of each, wired. Raises NothingToDraw where the run has no measurement."""
    shape_to_draw(run, None)
    rows = [(g, _what(g), _stop(run, g), _reading(run, g)) for g in ARTICLES_FOUR]
    high = max(
        max(height(what, GREMLIN[1] - GREMLIN[0] - BADGE_ROOM - 2 * PAD) + 2 * PAD for _, what, _, _ in rows),
        max(card_height(stop, FIX[1] - FIX[0]) for _, _, stop, _ in rows),
        max(card_height(reading, READING[1] - READING[0] - PICTURE) for _, _, _, reading in rows),
    )
    new = page(NAME, _finding(run), _subtitle(), [run.full_label], _alt(run), HEAD + len(rows) * (high + GAP))
    canvas = Canvas(new)
    for column, words in ((GREMLIN, "the gremlin"), (FIX, "stopped by"), (READING, "the measurement it corrupts")):
        canvas.words(column[0], 0.06, words, SMALL_PT, color=MUTED)
    for number, (pitfall, what, stop, reading) in enumerate(rows):
        y = HEAD + number * (high + GAP)
        middle = y + high / 2
        canvas.box(Box(GREMLIN[0], y, GREMLIN[1], y + high), PALE)
        canvas.badge(GREMLIN[0] + PAD + 0.09, middle, str(pitfall.article))
        left = GREMLIN[0] + PAD + BADGE_ROOM
        canvas.say(left, middle - height(what, GREMLIN[1] - PAD - left) / 2, what, GREMLIN[1] - PAD - left)
        stopped = not pitfall.is_biased(value(run, pitfall))
        canvas.card(Box(FIX[0], y, FIX[1], y + high), stop, ours=stopped, dashed=not stopped)
        canvas.box(Box(READING[0], y, READING[1], y + high), PALE)
        room = READING[1] - READING[0] - PICTURE - 2 * PAD
        canvas.say(READING[0] + PAD + PICTURE, middle - height(reading, room) / 2, reading, room)
        _picture(canvas, pitfall.setting, READING[0] + PAD, middle + 0.16)
        canvas.wire((GREMLIN[1], middle), (FIX[0] - 0.05, middle), dashed=True)
        if stopped:
            canvas.wire((FIX[0] - 0.05, middle - 0.11), (FIX[0] - 0.05, middle + 0.11), colour=ACCENT, width=2.4)
        colour = BASELINE if stopped else MUTED
        canvas.arrow((FIX[1], middle), (READING[0] - 0.02, middle), colour=colour, dashed=True)
    return new.figure


def _picture(canvas: Canvas, setting: str, x: float, y: float) -> None:
    """Launches in a row, as long as they are high; those whose reading is corrupted stand out. y: where they stand."""
    highs = {
        "clocks": [0.24] * 3 + [0.32] * 3,
        "timer": [0.3] * LAUNCHES,
        "l2": [0.32] + [0.22] * (LAUNCHES - 1),
        "warmup": [0.34] + [0.22] * (LAUNCHES - 1),
    }[setting]
    wrong = {"clocks": range(3, LAUNCHES), "l2": range(1, LAUNCHES), "warmup": range(1)}.get(setting, range(0))
    for index, high in enumerate(highs):
        left = x + 0.068 * index
        canvas.rectangle(Box(left, y - high, left + 0.05, y), MUTED if index in wrong else BASELINE)
        if setting == "timer":
            canvas.rectangle(Box(left, y - 0.04, left + 0.05, y), MUTED)


def _what(pitfall: Pitfall) -> list[Say]:
    return [title(pitfall.title), small(pitfall.what)]


def _stop(run: Run, pitfall: Pitfall) -> list[Say]:
    is_now = value(run, pitfall)
    if pitfall.is_biased(is_now):
        return [title(f"{pitfall.setting} = {is_now}"), small("not stopped in this run")]
    return [title(f"{pitfall.setting} = {is_now}", ACCENT), small(STOPS.get(str(rule(is_now)), ""), INK)]


def _reading(run: Run, pitfall: Pitfall) -> list[Say]:
    name, why = CORRUPTS[pitfall.setting]
    return [title(name), small(why), small(_let_loose(run, pitfall), INK)]


def _let_loose(run: Run, pitfall: Pitfall) -> str:
    """What got through with the setting turned off, on the kernel where it did most."""
    found = worst_of_all(run, MEASURED_AS.get(pitfall.setting, pitfall.setting))
    who = f"on {found[0].kernel}, " if found and any(factor(e) != 1.0 for e in found) else ""
    return f"let loose: {who}{did_at_worst(found)}"


def _finding(run: Run) -> str:
    found = [worst_of_all(run, MEASURED_AS.get(g.setting, g.setting)) for g in ARTICLES_FOUR]
    worst = largest([e for effects in found for e in effects])
    if worst is None or factor(worst) == 1.0:
        return "Four gremlins, four measurements that they corrupt, four settings that stop them"
    return f"One setting stops each gremlin; let loose, one of them moves a reading by {change(worst)}"


def _subtitle() -> str:
    return (
        "Each of the article's gremlins, wired to the one measurement that it corrupts; the wire ends at the harness "
        "setting that stops it. Let loose: that setting alone turned off, the rung and size where it did most. Bars: "
        "launches by length; those that stand out are read wrong."
    )


def _alt(run: Run) -> str:
    parts = []
    for pitfall in ARTICLES_FOUR:
        name, why = CORRUPTS[pitfall.setting]
        setting = f"{pitfall.setting} = {value(run, pitfall)}"
        stop = "not stopped by" if pitfall.is_biased(value(run, pitfall)) else "stopped by"
        parts.append(
            f"{pitfall.article} {pitfall.title} corrupts {name} ({why}), {stop} {setting}, {_let_loose(run, pitfall)}"
        )
    return f"Diagram of four gremlins, each wired to what it corrupts. {'; '.join(parts)}. Source: {run.label}."
