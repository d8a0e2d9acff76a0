"""C as a grid: which elements of one failed check are wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from worklog.plots import style
from worklog.plots.page import Chart, Texts, page
from worklog.plots.style import ALERT, BODY_PT, FAINT, INK, MARGIN_IN, MUTED, WIDTH_IN

if TYPE_CHECKING:
    from worklog.runs import ErrorMap


# inches: the longer side of C, and the space around it
SIDE = 2.0
LEFT = 0.35
ABOVE = 0.28
BELOW = 0.1
RIGHT = 0.3
LEAST = 0.25  # opacity of a tile with a single wrong element, so that it shows


@dataclass(frozen=True)
class Note:
    """A text next to the map."""

    text: str
    colour: str = INK
    weight: str = "normal"


@style.chart
def tile_map(
    errors: ErrorMap, label: str = "", *, name: str = "tile_map", notes: Mapping[str, str] = {}
) -> Chart:
    """Draw the map of C of one failed check (Verdict.where), with the guess as a text.

    label: its source, for the footer
    name: the stem of the chart's file
    notes: more about the kernel, a sentence by its heading
    """
    m, n = errors.shape
    width = max(SIDE / max(m, n) * n, 0.4)
    height = max(SIDE / max(m, n) * m, 0.4)
    texts = Texts(
        name,
        finding=errors.guess.rstrip(".") or f"{_wrong(errors)} of C are wrong",
        subtitle=_subtitle(errors),
        footer=[label] if label else [],
        alt=_alt(errors, notes),
    )
    left = MARGIN_IN + LEFT + width + RIGHT
    lines = _wrapped(_notes(errors, notes), WIDTH_IN - MARGIN_IN - left)
    text_height = style.line_height(BODY_PT, len(lines))
    chart = page(texts, ABOVE + max(height, 1.0, text_height) + BELOW)
    top = chart.body_top - ABOVE
    _draw_errors(chart.axes_at(MARGIN_IN + LEFT, top - height, width, height), errors)
    for line in lines:
        top = chart.write((left, top), [line.text], BODY_PT, color=line.colour, weight=line.weight)
    return chart


def _wrong(errors: ErrorMap) -> str:
    """Return how many of the checked elements are wrong."""
    return f"{errors.wrong} of {errors.checked} elements"


def _subtitle(errors: ErrorMap) -> str:
    """Return the explanation of the tiles."""
    m, n = errors.shape
    tile_rows, tile_columns = errors.tile
    return (
        f"Where the kernel's C is wrong: C = A·B, {m} × {n}, on exact integers, in tiles of "
        f"{tile_rows} × {tile_columns}. The darker a tile, the more of its elements are wrong."
    )


def _alt(errors: ErrorMap, notes: Mapping[str, str]) -> list[str]:
    """Return the alt text: the map as a text, and the notes."""
    tile_rows, tile_columns = errors.tile
    alt = [f"Map of C in tiles of {tile_rows} by {tile_columns}", str(errors).rstrip(".")]
    alt += [f"{heading}: {note.rstrip('.')}" for heading, note in notes.items()]
    return alt


def _notes(errors: ErrorMap, notes: Mapping[str, str]) -> list[Note]:
    """Return the texts next to the map: the wrong rows and columns, and the notes."""
    paragraphs = [
        Note(f"{_wrong(errors)} wrong"),
        Note(errors.rows, MUTED),
        Note(f"{errors.columns} (rows down, columns across)", MUTED),
    ]
    for heading, note in notes.items():
        paragraphs += [Note(""), Note(heading, weight="bold"), Note(note)]
    return paragraphs


def _wrapped(paragraphs: Sequence[Note], width: float) -> list[Note]:
    """Return the texts in lines of at most `width` inches."""
    lines = list[Note]()
    for paragraph in paragraphs:
        for text in style.wrap(paragraph.text, BODY_PT, width):
            lines.append(replace(paragraph, text=text))
    return lines


def _draw_errors(axes: Axes, errors: ErrorMap) -> None:
    """Draw the tiles of C: the more of its elements are wrong, the darker a tile."""
    m, n = errors.shape
    tile_rows, tile_columns = errors.tile
    axes.set(xlim=(0, n), ylim=(m, 0), xticks=[0, n], yticks=[0, m])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[["top", "right"]].set_visible(True)
    for row, shares in enumerate(errors.tiles):
        for column, share in enumerate(shares):
            corner = column * tile_columns, row * tile_rows
            size = min(tile_columns, n - corner[0]), min(tile_rows, m - corner[1])
            axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=FAINT, linewidth=0.4))
            if share:
                opacity = LEAST + (1 - LEAST) * share
                axes.add_patch(Rectangle(corner, *size, facecolor=ALERT, alpha=opacity))
