"""The ablation page: choose a rung and a size; see what each pitfall alone does to the result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import ipywidgets as widgets

from worklog.errors import NothingToDraw
from worklog.lab.choice import Choice
from worklog.lab.controls import BESIDE, Page, Shown, box, image
from worklog.lab.readings import NotRecorded
from worklog.plots import ablation
from worklog.plots.ablation import NAMES, ablated, in_words
from worklog.plots.figure import Chart
from worklog.problem.gemm import Shape
from worklog.runs.ablation import Effect, effects
from worklog.runs.run import Run
from worklog.runs.table import Bar, Cell, Table

COLUMNS = ("pitfall", "setting", "number", "unbiased", "biased", "effect", "noise")
HIDDEN = "not visible"


@dataclass(frozen=True)
class Ablated:
    """The effects on one kernel at one shape, in the ablation's order, and the run that holds them."""

    run: Run
    kernel: str
    shape: Shape
    effects: tuple[Effect, ...]

    @property
    def headline(self) -> str:
        """How many effects are larger than the noise."""
        visible = sum(in_words(effect) != "0" for effect in self.effects)
        return f"{self.kernel} at {self.shape}: {visible} of {len(self.effects)} effects are larger than the noise"

    @property
    def table(self) -> Table:
        """All effects; a bar shows how large each is, full from × 2 or ÷ 2."""
        title = f"{self.kernel} at {self.shape}: each pitfall alone; orange inflates the result, blue deflates it"
        return Table(title, COLUMNS, [cells(effect) for effect in self.effects], left=3, notes=[self.run.full_label])


def cells(effect: Effect) -> list[Cell]:
    """One effect's row, in the order of COLUMNS."""
    scale = 1.0 if effect.corrupts == "TFLOP/s" else 100.0
    biased, words = scale * effect.biased, in_words(effect)
    size = None if words == "0" else abs(math.log2(effect.factor))
    return [
        f"{effect.article} {effect.title}" if effect.article else effect.title,
        "several" if effect.value == "…" else f"{effect.setting.replace('first_launch', 'warmup')} = {effect.value}",
        NAMES[effect.corrupts],
        f"{scale * effect.unbiased:.3g}",
        f"{biased:.4g}" if biased < 1e4 else f"{biased:.0f}",
        Bar(HIDDEN if words == "0" else words, size, beyond=effect.factor > 1),
        "none, the same samples" if effect.noise == 0 else f"±{100 * effect.noise:.2g} %",
    ]


class AblationChoice(Choice):
    """The chosen kernel and shape, and the runs that have an ablation. Raises NothingToDraw where none has."""

    def __init__(self, runs: Sequence[Run], kernel: str | None = None, size: Shape | int | None = None) -> None:
        runs = [run for run in runs if ablated(run)]
        if not runs:
            raise NothingToDraw("no run here has an ablation: make one with `worklog ablate warptiled`")
        super().__init__(runs, kernel or ablated(runs[0])[-1], size)

    def known_kernels(self) -> list[str]:
        """The kernels that the runs have an ablation of."""
        return list(dict.fromkeys(name for run in self.runs for name in ablated(run)))

    def known_shapes(self) -> set[Shape]:
        """The shapes of the chosen kernel's ablation."""
        return {Shape(*e.shape) for run in self.runs if self.kernel in ablated(run) for e in effects(run, self.kernel)}

    def ablated(self) -> Ablated:
        """The effects in the first run that holds the kernel at the shape. Raises NotRecorded, naming what there is."""
        for run in self.runs:
            if self.kernel in ablated(run):
                found = tuple(e for e in effects(run, self.kernel) if Shape(*e.shape) == self.shape)
                if found:
                    return Ablated(run, self.kernel, self.shape, found)
        held = "; ".join(
            f"{name} at {', '.join(dict.fromkeys(str(Shape(*e.shape)) for e in effects(run, name)))}"
            for run in self.runs
            for name in ablated(run)
        )
        raise NotRecorded(f"an ablation of {self.kernel} at {self.shape} is not in these runs, which hold {held}")


class Ablation(Page):
    """The page as a notebook shows it."""

    def __init__(self, choice: AblationChoice) -> None:
        super().__init__(choice)
        self.ablation = choice
        left = widgets.VBox([self.kernel, self.size, self.words, self.table], layout=widgets.Layout(flex="0 1 auto"))
        self.picture.layout = BESIDE
        self.box = box([left, self.picture], widgets.HBox)
        self.show()

    def result(self) -> Shown:
        """The effects as headline, table and chart."""
        found = self.ablation.ablated()
        words = f'<div style="font-weight:600;line-height:1.6">{escape(found.headline)}</div>'
        return Shown(f"{found.headline}\n{found.table.text()}", words, found.table.html(), image(self.chart()))

    def chart(self) -> Chart:
        """The heat map of all sizes beside the waterfall at the chosen one."""
        found = self.ablation.ablated()
        return ablation(found.run, found.kernel, found.shape)
