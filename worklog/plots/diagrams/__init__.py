"""The article's seven diagrams and the README's first picture: SVG templates, filled from a run, so that every number
in them is this machine's.
"""

from __future__ import annotations

from collections.abc import Callable

from worklog.plots.diagrams import facts
from worklog.plots.diagrams.template import Diagram, Facts
from worklog.runs import Measurement, Run, recordings

__all__ = ["DIAGRAMS", "Diagram", "headline"]


def _drawing(name: str, found: Callable[[Run, Measurement], Facts]) -> Callable[[Run], Diagram]:
    def draw(run: Run) -> Diagram:
        m = facts.subject(run)
        return Diagram(name, {**facts.common(run, m), **found(run, m)})

    return draw


# By file name, in the order in which the article shows them.
DIAGRAMS: dict[str, Callable[[Run], Diagram]] = {
    (name := f"diagram_{number}_{found.__name__}"): _drawing(name, found)
    for number, found in enumerate(facts.IN_ORDER, start=1)
}


def headline(run: Run | None = None) -> Diagram:
    """The README's first picture, from this run if it holds what that shows, else from the recording of the panel."""
    if run is None or not facts.cancels(run):
        run = Run.load([*recordings("grid").values()][-1], "recorded")
    return Diagram("headline", facts.headline(run))
