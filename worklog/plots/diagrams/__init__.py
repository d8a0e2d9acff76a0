"""The article's seven diagrams: SVG templates, filled from a run, so that every number in them is this machine's."""

from __future__ import annotations

from collections.abc import Callable

from worklog.plots.diagrams import facts
from worklog.plots.diagrams.template import Diagram, Facts
from worklog.runs.run import Measurement, Run

__all__ = ["DIAGRAMS", "Diagram"]


def _drawing(number: int, found: Callable[[Run, Measurement], Facts]) -> tuple[str, Callable[[Run], Diagram]]:
    name = f"diagram_{number}_{found.__name__}"

    def draw(run: Run) -> Diagram:
        m = facts.subject(run)
        return Diagram(name, {**facts.common(run, m), **found(run, m)})

    return name, draw


# By file name, in the order in which the article shows them.
DIAGRAMS: dict[str, Callable[[Run], Diagram]] = dict(map(_drawing, range(1, 8), facts.IN_ORDER))
