"""The article's seven diagrams: SVG templates, filled from a run, so that every number in them is this machine's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from worklog.plots.diagrams import facts
from worklog.plots.diagrams.template import Diagram, Facts
from worklog.runs.run import Run

__all__ = ["DIAGRAMS", "Diagram"]


def _draw(name: str, found: Callable[[Run], Facts], run: Run) -> Diagram:
    return Diagram(name, found(run))


# By file name, in the order in which the article shows them.
DIAGRAMS: dict[str, Callable[[Run], Diagram]] = {
    name: partial(_draw, name, found)
    for name, found in (
        ("diagram_1_mental_model", facts.mental_model),
        ("diagram_2_memory_hierarchy", facts.memory_hierarchy),
        ("diagram_3_four_gremlins", facts.four_gremlins),
        ("diagram_4_full_loop", facts.full_loop),
        ("diagram_5_conversion", facts.conversion),
        ("diagram_6_one_formula", facts.one_formula),
        ("diagram_7_gate", facts.gate),
    )
}
