"""The ablation page: choose a rung and a size; see what each pitfall alone does to the result."""

from __future__ import annotations

import math
from collections.abc import Sequence

from worklog.errors import NothingToDraw
from worklog.lab.choice import Choice, Shown, Size
from worklog.lab.controls import Page
from worklog.lab.readings import NotRecorded
from worklog.plots import Chart, ablation
from worklog.plots.charts.ablation import NAMES, ablated, in_words
from worklog.problem import Shape
from worklog.runs import Bar, Cell, Effect, Run, Table, clock_in_words, older

COLUMNS = ("pitfall", "setting", "number", "unbiased", "biased", "effect", "noise", "SM clock")


class AblationChoice(Choice):
    """The chosen kernel and shape, and the runs that have an ablation. Raises NothingToDraw where none has."""

    def __init__(self, runs: Sequence[Run], kernel: str | None = None, size: Size = None) -> None:
        self.held = [(run, name, every) for run in runs for name, every in ablated(run).items()]
        if not self.held:
            raise NothingToDraw("no run here has an ablation: make one with `worklog ablate warptiled`")
        first = self.held[0][0]
        super().__init__(runs, kernel or [name for run, name, _ in self.held if run is first][-1], size)

    def known_kernels(self) -> list[str]:
        """The kernels that the runs have an ablation of."""
        return list(dict.fromkeys(name for _, name, _ in self.held))

    def known_shapes(self) -> set[Shape]:
        """The shapes of the chosen kernel's ablation."""
        return {e.problem for _, name, every in self.held if name == self.kernel for e in every}

    def found(self) -> tuple[Run, list[Effect]]:
        """The first run that holds the kernel at the shape, and the effects, in the ablation's order. Raises
        NotRecorded, naming what there is.
        """
        known = []
        for run, name, every in self.held:
            here = [e for e in every if name == self.kernel and e.problem == self.shape]
            if here:
                return run, here
            known.append(f"{name} at {', '.join(dict.fromkeys(str(e.problem) for e in every))}")
        missing = f"an ablation of {self.kernel} at {self.shape} is not in these runs"
        raise NotRecorded(f"{missing}, which hold {'; '.join(known)}")

    def result(self) -> Shown:
        """How many effects are larger than the noise, all effects as a table, and the chart."""
        run, found = self.found()
        what, visible = f"{self.kernel} at {self.shape}", sum(in_words(e) != "0" for e in found)
        title = f"{what}: each pitfall alone, at one clock; orange inflates the result, blue deflates it"
        table = Table(title, COLUMNS, [cells(e) for e in found], left=3, notes=[run.full_label, *older(run)])
        said = f"{what}: {visible} of {len(found)} effects are larger than the noise"
        return Shown([said], [table], self.chart())

    def chart(self) -> Chart:
        """The heat map of all sizes beside the waterfall at the chosen one."""
        return ablation(self.found()[0], self.kernel, self.shape)


class Ablation(Page[AblationChoice]):
    """The page as a notebook shows it."""

    def __init__(self, choice: AblationChoice) -> None:
        super().__init__(choice)
        self.fill([self.kernel, self.size, self.words, self.table], self.picture, flex="0 1 auto")


def cells(effect: Effect) -> list[Cell]:
    """One effect's row, in the order of COLUMNS; its bar is full from × 2 or ÷ 2."""
    scale = 1.0 if effect.corrupts == "TFLOP/s" else 100.0
    biased, words = scale * effect.biased, in_words(effect)
    bar = Bar(words, abs(math.log2(effect.factor)), beyond=effect.factor > 1)
    return [
        f"{effect.article} {effect.title}" if effect.article else effect.title,
        "several" if effect.value == "…" else f"{effect.setting.replace('first_launch', 'warmup')} = {effect.value}",
        NAMES[effect.corrupts],
        f"{scale * effect.unbiased:.3g}",
        f"{biased:.4g}" if biased < 1e4 else f"{biased:.0f}",
        Bar("not visible", None) if words == "0" else bar,
        "none, the same samples" if effect.noise == 0 else f"±{100 * effect.noise:.2g} %",
        clock_in_words([effect.clock] if effect.clock else ()),
    ]
