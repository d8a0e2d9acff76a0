"""The article's seven diagrams, drawn from a run, so that every number in them is this machine's."""

from __future__ import annotations

from collections.abc import Callable

from worklog.plots.diagrams.conversion import conversion
from worklog.plots.diagrams.four_gremlins import four_gremlins
from worklog.plots.diagrams.full_loop import full_loop
from worklog.plots.diagrams.gate import gate
from worklog.plots.diagrams.memory_hierarchy import memory_hierarchy
from worklog.plots.diagrams.mental_model import mental_model
from worklog.plots.diagrams.one_formula import one_formula
from worklog.plots.figure import Chart
from worklog.runs.run import Run

# In the order in which the article shows them, by file name.
DIAGRAMS: dict[str, Callable[[Run], Chart]] = {
    f"diagram_{number}_{draw.__name__}": draw
    for number, draw in enumerate(
        (mental_model, memory_hierarchy, four_gremlins, full_loop, conversion, one_formula, gate), start=1
    )
}

__all__ = [
    "DIAGRAMS",
    "conversion",
    "four_gremlins",
    "full_loop",
    "gate",
    "memory_hierarchy",
    "mental_model",
    "one_formula",
]
