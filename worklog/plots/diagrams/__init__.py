"""The article's seven diagrams: SVG templates, filled from a run, so that every number in them is this machine's."""

from __future__ import annotations

from collections.abc import Callable

from worklog.plots.diagrams import facts
from worklog.plots.diagrams.template import Diagram, Facts
from worklog.runs.run import Run

__all__ = ["DIAGRAMS", "Diagram"]


def _drawing(number: int, found: Callable[[Run], Facts]) -> tuple[str, Callable[[Run], Diagram]]:
    name = f"diagram_{number}_{found.__name__}"
    return name, lambda run: Diagram(name, found(run))


# By file name, in the order in which the article shows them.
DIAGRAMS: dict[str, Callable[[Run], Diagram]] = dict(map(_drawing, range(1, 8), facts.IN_ORDER))
