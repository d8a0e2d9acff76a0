"""What the panel shows, without widgets: the reading, its picture, and its distance from the unbiased one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from matplotlib.axes import Axes
from matplotlib.ticker import Locator, LogLocator, MaxNLocator

from worklog.errors import BadSetting
from worklog.lab.choice import (
    Choice,
    Held,
    Nearest,
    NotRecorded,
    Reading,
    Settings,
    changes,
    in_words,
    unbiased_settings,
)
from worklog.plots import figure
from worklog.plots.figure import BODY_PT, INK, MARGIN_IN, MUTED, SMALL_PT, Chart
from worklog.plots.page import Page, page
from worklog.problem import Shape, tflops
from worklog.runner.tasks import ABLATION_RUNGS, ABLATION_SAMPLING, GRID_SIZES, Task
from worklog.runs import Run, duration
from worklog.settings import PITFALLS, Harness, Pitfall, Value

TIME = "TFLOP/s"  # what a pitfall corrupts that changes the time
UNBIASED = Harness()
MOVED = 0.005  # smaller relative changes of a share are not worth a line
GATES = {
    False: "the gate is off: the result was not checked",
    "article": "the gate checked only the article's rule, which passes TF32, FP16, BF16 and missing terms",
}


@dataclass(frozen=True)
class Step:
    """The reading before and after one more biased setting; several where only all of them together were measured."""

    pitfalls: tuple[Pitfall, ...]
    before: Reading
    after: Reading

    @property
    def us(self) -> float:
        """Microseconds that the step adds; negative where it makes the time shorter."""
        return self.after.time.value - self.before.time.value

    @property
    def visible(self) -> bool:
        """Whether that is more than the noise of the two readings."""
        return self.after.differs(self.before)

    @property
    def name(self) -> str:
        """The settings, with the article's number before them."""
        number = next((f"{g.article} " for g in self.pitfalls if g.article), "")
        return number + " + ".join(g.setting for g in self.pitfalls if g.corrupts == TIME)

    @property
    def role(self) -> str:
        """Its colour by role: orange inflates the result, blue deflates it."""
        return ("alert" if self.us < 0 else "accent") if self.visible else "grey"

    @property
    def amount(self) -> str:
        """The change of the time."""
        return f"{'+' if self.us > 0 else '−'}{duration(abs(self.us))}" if self.visible else "not visible"


# Name, colour by role ("dot" for one time instead of a change), microseconds before and after, and words beside it.
Row = tuple[str, str, float, float, str]


@dataclass(frozen=True)
class Answer:
    """The reading under some settings, the unbiased reading of the same run, and the steps from that to this."""

    settings: Settings
    reading: Reading
    unbiased: Reading
    steps: tuple[Step, ...]

    @cached_property
    def changed(self) -> list[Pitfall]:
        """The pitfalls whose setting is not the unbiased one."""
        return changes(self.settings, self.reading.run)

    @property
    def off(self) -> float:
        """Relative difference of this time from the unbiased one; negative inflates the result."""
        return self.reading.time.value / self.unbiased.time.value - 1

    @cached_property
    def biased(self) -> bool:
        """Whether the two times differ by more than the noise of both."""
        return self.reading.differs(self.unbiased)

    @property
    def role(self) -> str:
        """The colour of the comparison by role: orange if the reading inflates the result, blue if it deflates it."""
        return ("accent" if self.off > 0 else "alert") if self.biased else "ink"

    @property
    def shown(self) -> list[tuple[str, Reading]]:
        """The readings whose samples the picture shows, each with its colour by role."""
        own = ("alert" if self.role == "alert" else "accent", self.reading)
        return [("grey", self.unbiased), own] if self.changed else [own]

    @property
    def rows(self) -> list[Row]:
        """The picture's rows from the unbiased time over each step to this one; none where nothing changes the time."""
        if not self.steps:
            return []
        first, last = self.unbiased.time.value, self.reading.time.value
        between = [(s.name, s.role, s.before.time.value, s.after.time.value, s.amount) for s in self.steps]
        here = ("this reading", "dot", last, last, duration(last))
        return [("unbiased", "dot", first, first, duration(first)), *between, here]

    @property
    def headline(self) -> str:
        """The number that one would publish: time, rate, share of cuBLAS."""
        time = self.reading.time.value
        rate = tflops(self.reading.measurement.problem, time)
        digits = f"{rate:.3g}" if rate < 1000 else f"{rate:.0f}"
        return f"{duration(time)} → {digits} TFLOP/s → {_percent(self.reading.ratio.value)} of cuBLAS"

    @property
    def comparison(self) -> str:
        """The unbiased time, how far off this one is, and its interval."""
        statistic, count = self.settings["statistic"], len(self.reading.samples)
        half = f"±{100 * self.reading.time.relative_half_width:.2g} % (95 %) from {count} samples"
        if not self.changed:
            return f"this is the unbiased reading · {half}"
        noise = half if statistic == "median" else f"{statistic} of {count} samples"  # only a median has an interval
        difference = f"this reading is {amount(self.off)}" if self.biased else "the difference is within the noise"
        return f"unbiased {duration(self.unbiased.time.value)} · {difference} · {noise}"

    @property
    def others(self) -> list[str]:
        """What changed besides the time: the shares of cuBLAS and of the roof, whether the result was checked, and the
        degradations that are not settings.
        """
        here, unbiased = self.reading, self.unbiased
        shares = [("cuBLAS", here.ratio.value, unbiased.ratio.value), ("the roof", here.of_roof, unbiased.of_roof)]
        lines = [
            f"share of {name}: {_percent(share)} here, {_percent(true)} unbiased"
            for name, share, true in shares
            if share and true and abs(share / true - 1) > MOVED
        ]
        lines += [words for value, words in GATES.items() if self.settings["gate"] == value]
        known = {f"{g.setting}: {value}" for g in PITFALLS for value in g.biased}
        degraded = [d for d in here.measurement.degradations if d not in known and not d.startswith("gate:")]
        return lines + degraded

    @property
    def sentences(self) -> list[str]:
        """All of it, for a reader without the controls and the picture."""
        m, steps = self.reading.measurement, "; ".join(f"{step.name}: {step.amount}" for step in self.steps)
        first = f"{m.kernel} at {m.problem}, {in_words(self.settings)}: {self.headline}"
        return [first, self.comparison, *([f"Step by step: {steps}"] if steps else []), *self.others, m.label]


def amount(off: float) -> str:
    """A relative difference in words that suit its size."""
    if off >= 2:
        return f"{off + 1:.3g} times too long"
    if off <= -2 / 3:
        return f"{1 / (off + 1):.3g} times too short"
    return f"{abs(100 * off):.1f} % {'higher' if off > 0 else 'lower'}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if share < 10 else f"{100 * share:.0f} %"


class PanelChoice(Choice):
    """The chosen kernel, shape and settings. Without any run, the kernels and shapes that the panel measures can be
    chosen. Raises BadSetting, UnknownRung or BadShape.
    """

    def __init__(
        self, runs: Sequence[Run], kernel: str | None = None, size: Shape | int | None = None, **biased: Value
    ) -> None:
        self.held = [Held(run) for run in runs]
        super().__init__(runs, kernel, size)
        self.all_unbiased()
        for setting, value in biased.items():
            self.choose(setting, value)

    def add(self, run: Run) -> None:
        """Answer from this run first."""
        self.runs.insert(0, run)
        self.held.insert(0, Held(run))

    def known_kernels(self) -> list[str]:
        """The kernels that the runs hold, in their order."""
        return list(dict.fromkeys(m.kernel for run in self.runs for m in run.measurements)) or list(ABLATION_RUNGS)

    def known_shapes(self) -> set[Shape]:
        """The shapes that the runs hold."""
        return {m.problem for run in self.runs for m in run.measurements} or {Shape.of(n) for n in GRID_SIZES}

    @property
    def biased(self) -> list[Pitfall]:
        """The pitfalls whose setting is biased, in the table's order."""
        return [g for g in PITFALLS if g.is_biased(self.settings[g.setting])]

    def choose(self, setting: str, value: Value) -> None:
        """Choose the value of one setting; whether it goes with the others is checked by answer(). Raises BadSetting,
        and changes nothing, where no pitfall has this setting or value.
        """
        pitfall = next((g for g in PITFALLS if g.setting == setting), None)
        if pitfall is None:
            raise BadSetting(f"{setting} is not the setting of a pitfall: choose from {', '.join(self.settings)}")
        pitfall.check(value)
        self.settings[setting] = value

    def fix(self, pitfall: Pitfall, fixed: bool) -> None:
        """Avoid a pitfall (its unbiased value) or not (its first biased one); a value that already does so stays."""
        if fixed == pitfall.is_biased(self.settings[pitfall.setting]):
            self.settings[pitfall.setting] = pitfall.unbiased if fixed else pitfall.biased[0]

    def all_unbiased(self) -> None:
        """Avoid every pitfall."""
        self.settings = unbiased_settings(self.runs[-1] if self.runs else None)

    def all_naive(self) -> None:
        """Avoid none."""
        self.settings = Harness.naive().biased()

    def tasks(self) -> list[Task]:
        """What to measure for an answer: the unbiased reading, and this one if its launches differ."""
        biased = {g.setting: self.settings[g.setting] for g in changes(self.settings) if g.resampled}
        chosen = [{}, biased] if biased else [{}]
        return [Task(self.kernel, self.shape, tuple(changed.items()) + ABLATION_SAMPLING) for changed in chosen]

    def answer(self) -> Answer:
        """The reading in the first run that holds the combination. Raises NotRecorded or BadSetting with the reason."""
        UNBIASED.but(**self.settings)
        if not self.runs:
            raise NotRecorded("nothing has been measured here yet")
        held = next((h for h in self.held if h.find(self.kernel, self.shape, self.settings)), self.held[-1])
        reading = held.read(self.kernel, self.shape, self.settings)
        unbiased = held.read(self.kernel, self.shape, held.unbiased)
        return Answer(dict(self.settings), reading, unbiased, self._steps(held, unbiased))

    def available(self, kernel: str | None = None, shape: Shape | None = None, changed: Settings | None = None) -> bool:
        """Whether there is a time for what is chosen with these changes."""
        where, settings = (kernel or self.kernel, shape or self.shape), {**self.settings, **(changed or {})}
        return any(held.has(*where, settings) for held in self.held)

    def nearest(self) -> Nearest | None:
        """The measured combination that is nearest to what is chosen (see Held.nearest), or None."""
        found = [held.nearest(self.kernel, self.shape, self.settings) for held in self.held]
        return min(filter(None, found), key=lambda one: one.distance, default=None)

    def take(self, nearest: Nearest) -> None:
        """Choose this combination."""
        self.kernel, self.shape, self.settings = nearest.kernel, nearest.shape, dict(nearest.settings)

    def chart(self) -> Chart:
        """The answer's picture with title and source. Raises like answer()."""
        return picture(self.answer())

    def _steps(self, held: Held, unbiased: Reading) -> tuple[Step, ...]:
        """One biased setting after the other, in the table's order; a combination that was not measured is joined with
        the next one.
        """
        so_far, last = dict(held.unbiased), unbiased
        steps: list[Step] = []
        waiting: list[Pitfall] = []
        for pitfall in changes(self.settings, held.run):
            so_far[pitfall.setting] = self.settings[pitfall.setting]
            waiting.append(pitfall)
            if held.find(self.kernel, self.shape, so_far) is None:
                continue
            with suppress(NotRecorded):
                after = held.read(self.kernel, self.shape, so_far)
                if any(g.corrupts == TIME for g in waiting):
                    steps.append(Step(tuple(waiting), last, after))
                last, waiting = after, []
        return tuple(steps)


# Inches: widths beside the controls, left and right of the steps; heights of the samples, a caption, a gap, a step.
BESIDE_IN, LEFT_IN, RIGHT_IN, STRIP_IN, CAPTION_IN, GAP_IN, ROW_IN = 5.4, 1.25, 0.95, 1.15, 0.24, 0.12, 0.2
BAR_PT = 7
WIDE = 3.0  # from this ratio between times on, the axis is logarithmic


@figure.styled()
def picture(answer: Answer, *, beside: bool = False) -> Chart:
    """The samples of this reading and of the unbiased one; below them, the steps from one to the other. beside: without
    title and source, for a page that shows them beside it.
    """
    m, alt, rows = answer.reading.measurement, ". ".join(answer.sentences), answer.rows
    high = len(rows) * ROW_IN
    height = CAPTION_IN + STRIP_IN + (GAP_IN + CAPTION_IN + high if rows else 0.0)
    if beside:
        sheet = Page(Chart("reading", answer.headline, alt, BESIDE_IN, height + 0.1), 0.05, 0.05 + height)
    else:
        title = f"{m.kernel} at {m.problem}: {answer.headline}"
        subtitle = f"{in_words(answer.settings)}: {answer.comparison}" if answer.changed else answer.comparison
        sheet = page("reading", title, subtitle, [m.label], [alt], height)
    bottom, wide = sheet.body_top - CAPTION_IN - STRIP_IN, sheet.figure.get_figwidth() - LEFT_IN
    caption = "samples in launch order" + (", unbiased ones in grey" if answer.changed else "")
    sheet.text(MARGIN_IN, sheet.body_top, caption, SMALL_PT, color=MUTED, va="top")
    _strip(sheet.axes(LEFT_IN, bottom, wide - MARGIN_IN, STRIP_IN), answer)
    if rows:
        top = bottom - GAP_IN
        caption = "what each setting adds to the time: orange inflates the result, blue deflates it"
        sheet.text(MARGIN_IN, top, caption, SMALL_PT, color=MUTED, va="top")
        names = [figure.shorten(name, BODY_PT, LEFT_IN - MARGIN_IN) for name, *_ in rows]
        _steps(sheet.rows(LEFT_IN, top - CAPTION_IN - high, wide - RIGHT_IN, ROW_IN, names), rows)
    return sheet.figure


def _strip(axes: Axes, answer: Answer) -> None:
    """Every sample that counts as a dot, and their estimate as a line."""
    for role, reading in answer.shown:
        colour, numbers = figure.LIGHT[role], range(1, len(reading.samples) + 1)
        axes.plot(numbers, reading.samples, "o", color=colour, markersize=3, alpha=0.85)
        axes.axhline(reading.time.value, color=colour, linewidth=1)
    us = Axis.around([us for _, reading in answer.shown for us in (*reading.samples, reading.time.value)], 1.25)
    axes.set_yscale(us.scale)
    axes.set_ylim(us.low, us.high)
    axes.minorticks_off()
    axes.yaxis.set_major_locator(us.ticks)
    axes.yaxis.set_major_formatter(lambda us, _: duration(us))
    axes.set_xlim(0, max(len(reading.samples) for _, reading in answer.shown) + 1)
    axes.set_xticks([])
    axes.grid(True, axis="y")


def _steps(axes: Axes, rows: list[Row]) -> None:
    """A bar for each step, in a row of its own, from the time before it to the time after."""
    places = list(axes.get_yticks())
    for above, y, (_, role, before, after, _) in zip(places, places[1:], rows[1:], strict=False):
        axes.plot([before, before], [above, y], color=MUTED, linewidth=0.6, zorder=1)
        if role != "dot":
            colour = figure.LIGHT[role]
            axes.plot([before, after], [y, y], color=colour, linewidth=BAR_PT, solid_capstyle="butt", zorder=2)
    axes.plot([rows[0][2], rows[-1][2]], [places[0], places[-1]], "o", color=INK, markersize=4.5, zorder=3)
    us = Axis.of_rows(rows)
    axes.set_xscale(us.scale)
    axes.set_xlim(us.low, us.high)
    axes.minorticks_off()
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    for y, (_, _, _, _, words) in zip(places, rows, strict=True):
        axes.axhline(y, color=figure.FAINT, linewidth=0.5, zorder=0)
        axes.text(1.02, y, words, transform=axes.get_yaxis_transform(), va="center", color=INK)


@dataclass(frozen=True)
class Axis:
    """An axis of microseconds from low to high, logarithmic where the values differ much."""

    low: float
    high: float
    logarithmic: bool

    @classmethod
    def around(cls, values: Sequence[float], air: float) -> Axis:
        """With a margin: the factor `air` if logarithmic, else at least 2 %, so that noise isn't drawn as a cliff."""
        low, high = min(values), max(values)
        if low > 0 and high > WIDE * low:
            return cls(low / air, high * air, True)
        room = max((high - low) * 0.12, 0.02 * abs(high))
        return cls(low - room, high + room, False)

    @classmethod
    def of_rows(cls, rows: Sequence[Row]) -> Axis:
        """The axis of the steps."""
        return cls.around([after for _, _, _, after, _ in rows], 1.15)

    @property
    def scale(self) -> str:
        """As matplotlib names it."""
        return "log" if self.logarithmic else "linear"

    @property
    def ticks(self) -> Locator:
        """Where the axis has ticks."""
        return LogLocator(subs=(1, 3), numticks=5) if self.logarithmic else MaxNLocator(4, steps=[1, 2, 5, 10])
