"""What each gremlin alone does to the reading of one rung at one size, as a run recorded it. The model of the
ablation's page, without widgets, and its words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from worklog.errors import NothingToDraw
from worklog.lab.readings import NotRecorded
from worklog.lab.theme import colour
from worklog.plots import ablation
from worklog.plots.ablation import NAMES, ablated, in_words
from worklog.plots.figure import Chart
from worklog.problem.gemm import Shape
from worklog.runs.ablation import Effect, effects
from worklog.runs.run import Run

COLUMNS = ("gremlin", "lie", "number", "honest", "lying", "effect", "noise")


@dataclass(frozen=True)
class Told:
    """The effects on one rung at one shape, in the ablation's order, and the run that holds them."""

    run: Run
    kernel: str
    shape: Shape
    effects: tuple[Effect, ...]


class Lies:
    """What is chosen, and the runs to answer from, the one to be believed first coming first. Raises BadShape, and
    NothingToDraw where no run has an ablation.
    """

    def __init__(self, runs: Sequence[Run], kernel: str | None = None, size: Shape | int | None = None) -> None:
        self.runs = [run for run in runs if ablated(run)]
        if not self.runs:
            raise NothingToDraw("no run here has an ablation: make one with `worklog ablate warptiled`")
        self.kernel = ablated(self.runs[0])[-1] if kernel is None else kernel
        known = self._known()
        self.shape = Shape.of(size) if size is not None else known[len(known) // 2] if known else Shape.of(1024)

    @property
    def kernels(self) -> list[str]:
        """The kernels that the runs have an ablation of, and the one that is chosen."""
        return list(dict.fromkeys([*(name for run in self.runs for name in ablated(run)), self.kernel]))

    @property
    def shapes(self) -> list[Shape]:
        """The shapes of the chosen kernel's ablation, and the one that is chosen, smallest first."""
        return sorted({*self._known(), self.shape}, key=lambda shape: (shape.flops, shape))

    def _known(self) -> list[Shape]:
        found = {Shape(*e.shape) for run in self.runs if self.kernel in ablated(run) for e in effects(run, self.kernel)}
        return sorted(found, key=lambda shape: (shape.flops, shape))

    def choose(self, kernel: str) -> None:
        """Take another kernel."""
        self.kernel = kernel

    def choose_shape(self, shape: Shape | int) -> None:
        """Take another size. Raises BadShape."""
        self.shape = Shape.of(shape)

    def told(self) -> Told:
        """What the first run that has them says. Raises NotRecorded, naming what there is."""
        for run in self.runs:
            if self.kernel in ablated(run):
                found = tuple(e for e in effects(run, self.kernel) if Shape(*e.shape) == self.shape)
                if found:
                    return Told(run, self.kernel, self.shape, found)
        there = "; ".join(
            f"{name} at {', '.join(dict.fromkeys(str(Shape(*e.shape)) for e in effects(run, name)))}"
            for run in self.runs
            for name in ablated(run)
        )
        raise NotRecorded(f"an ablation of {self.kernel} at {self.shape} is not in these runs, which hold {there}")


def picture(told: Told) -> Chart:
    """The heat map of all sizes and the waterfall at this one."""
    return ablation(told.run, told.kernel, told.shape)


def cells(effect: Effect) -> tuple[str, ...]:
    """One effect's row, in the order of COLUMNS."""
    number = NAMES[effect.corrupts]
    scale = 1.0 if effect.corrupts == "TFLOP/s" else 100.0
    lying = scale * effect.lying
    name = f"{effect.article} {effect.title}" if effect.article else effect.title
    lie = "several" if effect.lie == "…" else f"{effect.setting.replace('first_launch', 'warmup')} = {effect.lie}"
    noise = "none, the same samples" if effect.noise == 0 else f"±{100 * effect.noise:.2g} %"
    seen = in_words(effect)
    return (
        name,
        lie,
        number,
        f"{scale * effect.unbiased:.3g}",
        f"{lying:.4g}" if lying < 1e4 else f"{lying:.0f}",
        "not visible" if seen == "0" else seen,
        noise,
    )


def text(told: Told) -> str:
    """All effects in words."""
    rows = [cells(effect) for effect in told.effects]
    parts = [
        f"{name} ({lie}): {number} {unbiased} becomes {lying}, {seen}"
        for name, lie, number, unbiased, lying, seen, _ in rows
    ]
    return f"{told.kernel} at {told.shape}, each lie alone. {'; '.join(parts)}. Source: {told.run.full_label}."


def headline(told: Told) -> str:
    """How many of the lies can be seen."""
    seen = sum(in_words(effect) != "0" for effect in told.effects)
    return f"{told.kernel} at {told.shape}: {seen} of {len(told.effects)} readings show that they lie"


def said_html(told: Told) -> str:
    """The headline."""
    return f'<div style="font-weight:600;line-height:1.6">{escape(headline(told))}</div>'


def html(told: Told) -> str:
    """The table of all effects, with those that can be seen in the colour of the heat map."""
    head = "".join(f'<th scope="col" style="{_side(name)}">{name}</th>' for name in COLUMNS)
    rows = []
    for effect in told.effects:
        name, *values = (escape(cell) for cell in cells(effect))
        looks = [f"{_side(column)};{_look(effect) if column == 'effect' else ''}" for column in COLUMNS[1:]]
        row = [f'<td style="{look}">{value}</td>' for look, value in zip(looks, values, strict=True)]
        rows.append(f'<tr><th scope="row" style="{_side("pitfall")};font-weight:400">{name}</th>{"".join(row)}</tr>')
    caption = f"{escape(told.kernel)} at {told.shape}: each lie alone against the honest reading"
    return (
        f'<table style="line-height:1.35"><caption style="text-align:left">{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        f'<small style="color:{colour("muted")}">{escape(told.run.full_label)}</small>'
    )


def _side(column: str) -> str:
    side = "right" if column in ("honest", "lying", "effect", "noise") else "left"
    return f"text-align:{side};padding:0 0.5em;white-space:nowrap"


def _look(effect: Effect) -> str:
    if in_words(effect) == "0":
        return f"color:{colour('muted')}"
    role = "flatters" if effect.factor > 1 else "belittles"
    return f"background:color-mix(in srgb, {colour(role)} 60%, transparent);font-weight:600"
