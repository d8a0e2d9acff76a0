"""The article's seven diagrams and the README's first picture: SVG templates, filled from a run, so that every number
in them is this machine's.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from worklog.errors import NothingToDraw
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
    """The README's first picture, from this run if it holds what that shows, else from the recording that does. Raises
    NothingToDraw where no recording does, either.
    """
    runs = chain([run] if run else [], (Run.load(path, "recorded") for path in recordings().values()))
    chosen = next(filter(facts.cancels, runs), None)
    if chosen is None:
        raise NothingToDraw("no run holds the two mistakes that cancel: `worklog article` measures them on a GPU")
    return Diagram("headline", facts.headline(chosen))
