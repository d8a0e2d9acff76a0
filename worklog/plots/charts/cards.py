"""When each card of a sweep measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots import style
from worklog.plots.marks import RowBar, Rows
from worklog.plots.page import Margins, Texts, on_axes
from worklog.plots.style import ACCENT, PAPER
from worklog.problem.axes import spoken
from worklog.runs import Measurement, Run

if TYPE_CHECKING:
    from worklog.plots.page import OnAxes


# inches
PITCH = 0.4
THICKNESS = 0.26
ByCard = Mapping[str, Sequence[Measurement]]  # measurements by the card's name


@style.chart
def cards(run: Run, *, ax: OnAxes | None = None) -> OnAxes:
    """Draw a row per card of a sweep: when it checked and timed each tile.

    The loops of the finalists are filled. Returns a Chart, or `ax`. Raises NothingToDraw if the run
    isn't from a sweep.
    """
    by_card = _by_card(run)
    spans = list[tuple[float, float]]()
    for measurements in by_card.values():
        spans += [(m.ran.began, m.ran.began + m.ran.seconds) for m in measurements if m.ran]
    if not spans:
        raise NothingToDraw("the run is of no sweep: make one with `worklog sweep`")
    start = min(began for began, _ in spans)
    end = max(ended for _, ended in spans)
    names = sorted(by_card)
    rows = Rows([f"{name} · {run.cards[name].gpu.name}" for name in names], PITCH, THICKNESS)
    alt = ["Timeline of cards"]
    for name, text in zip(names, rows.names, strict=True):
        alt.append(f"{text}: {len(by_card[name])} measurements")
    texts = Texts(
        "cards",
        finding=_finding(by_card, spans, end - start),
        subtitle=(
            "Each box: the check and the loop of one tile, or filled, of the finalists against "
            "each other."
        ),
        footer=[run.full_label],
        alt=alt,
    )

    def draw(axes: Axes) -> None:
        rows.draw_names(axes)
        for row_y, name in zip(rows.ys, names, strict=True):
            for m in by_card[name]:
                if m.ran is None:
                    continue
                colour = ACCENT if len(m.against) > 1 else PAPER
                began = m.ran.began - start
                rows.draw_bar(
                    axes, row_y, RowBar(m.ran.seconds, colour=colour, start=began, outline_pt=0.6)
                )
        axes.set(xlim=(0, end - start), xlabel="seconds")

    margins = Margins(left=rows.left, right=0.3)
    return on_axes(ax, draw, texts, height=rows.height, margins=margins)


def _finding(by_card: ByCard, spans: Sequence[tuple[float, float]], seconds: float) -> str:
    """Return the number of tiles, the time, and the share of it that the cards were busy.

    spans: when each measurement began and ended
    """
    tiles = 0
    for measurements in by_card.values():
        tiles += sum(1 for m in measurements if len(m.against) < 2)
    busy = sum(ended - began for began, ended in spans) / (seconds * len(by_card))
    cards_were = f"{len(by_card)} cards were" if len(by_card) > 1 else "one card was"
    return f"{tiles} tiles in {spoken(seconds)}: {cards_were} busy {100 * busy:.0f} % of the time"


def _by_card(run: Run) -> dict[str, list[Measurement]]:
    """Return the measurements of each card of a sweep, by the card's name."""
    by_card = dict[str, list[Measurement]]()
    for m in run.measurements:
        if m.ran is not None and m.ran.card in run.cards:
            by_card.setdefault(m.ran.card, []).append(m)
    return by_card
