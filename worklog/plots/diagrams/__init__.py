"""The article's seven diagrams and the README's first picture.

They are SVG templates, filled from a run, so that every number in them is this machine's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from worklog.plots.diagrams import facts
from worklog.plots.diagrams.template import Diagram, Facts
from worklog.runs import Measurement, Run, recordings

__all__ = ["DIAGRAMS", "Diagram", "headline"]


def _draw(name: str, facts_of: Callable[[Run, Measurement], Facts], run: Run) -> Diagram:
    """Return the diagram of that name from the run's first card."""
    run = run.by_card()[0]
    m = facts.subject(run)
    return Diagram(name, {**facts.common(run, m), **facts_of(run, m)})


# By file name, in the article's order. Each raises NothingToDraw, which names what a run lacks.
NAMED = {
    f"diagram_{number}_{facts_of.__name__}": facts_of
    for number, facts_of in enumerate(facts.IN_ORDER, start=1)
}
DIAGRAMS: dict[str, Callable[[Run], Diagram]] = {
    name: partial(_draw, name, NAMED[name]) for name in NAMED
}


def headline(run: Run | None = None) -> Diagram:
    """Return the README's first picture.

    run: used if it has the measurements; else the recording of the panel is used
    """
    if run is not None:
        run = run.by_card()[0]
    if run is None or not facts.cancels(run):
        run = Run.load([*recordings("grid").values()][-1], "recorded")
    return Diagram("headline", facts.headline(run))
