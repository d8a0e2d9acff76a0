"""Text for users: tables, numbers with their units, and progress."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

# Called before each step, and twice a second in between, with the number of finished steps, the
# number of all steps (0 if it's unknown), and a description of the step.
Progress = Callable[[int, int, str], None]
WIDE = 0.05  # if an interval exceeds this share of its number, the number has one or two digits
WIDTH = 160  # characters of a terminal whose width is unknown
FEW = 5  # notes below a table of a page; more are folded
# Bars are translucent, so that the text on them is readable on a light page and on a dark page.
WITHIN = "#3b93d055"
BEYOND = "#e0702455"


@dataclass(frozen=True)
class Bar:
    """A cell with a bar behind its text."""

    text: str
    share: float | None  # length of the bar as a share of the cell, drawn between 0 and 1
    beyond: bool = False  # drawn in the colour of a value that exceeds its limit

    def __str__(self) -> str:
        return self.text

    def html(self) -> str:
        """Return the text on its bar; without a share, the text alone."""
        if self.share is None:
            return escape(self.text)
        length = 100 * min(max(self.share, 0.0), 1.0)
        colour = BEYOND if self.beyond else WITHIN
        gradient = f"linear-gradient(90deg,{colour} {length:.1f}%,transparent 0)"
        return f'<span style="display:block;background:{gradient}">{escape(self.text)}</span>'


Cell = str | Bar


@dataclass(frozen=True, repr=False)
class Table:
    """Rows of cells under a title, for a notebook and a terminal."""

    title: str
    columns: Sequence[str]  # headings, or () for a table of facts
    rows: Sequence[Sequence[Cell]]
    left: int = 1  # number of leading columns that are left-aligned; the others are right-aligned
    notes: Sequence[str] = ()  # lines below

    @classmethod
    def of(
        cls,
        title: str,
        rows: Sequence[Mapping[str, Cell]],
        left: int = 1,
        notes: Sequence[str] = (),
    ) -> Table:
        """Return a table of rows that map columns to cells.

        All rows have the same columns. Without rows, the table has only the title.
        """
        if not rows:
            return cls(title, (), ())
        return cls(title, [*rows[0]], [[*row.values()] for row in rows], left, notes)

    def text(self, width: int = WIDTH) -> str:
        """Return the table for a terminal of `width` characters.

        Trailing columns that don't fit are left out and named, at most half of them.
        """
        cells = [[str(cell) for cell in row] for row in self.rows]
        if self.columns:
            cells.insert(0, [*self.columns])
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        fitting = self._fitting(widths, width)
        lines = [self.title] if self.title else []
        for row in cells:
            padded = [
                f"{cell:<{size}}" if number < self.left else f"{cell:>{size}}"
                for number, (cell, size) in enumerate(zip(row, widths[:fitting], strict=False))
            ]
            lines.append((" " + "  ".join(padded)).rstrip())
        if fitting < len(widths):
            lines.append(f"  in a wider terminal: {', '.join(self.columns[fitting:])}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def _fitting(self, widths: Sequence[int], width: int) -> int:
        """Return the number of columns that fit into `width` characters, at least half of them."""
        count = len(widths)
        if not self.columns:
            return count
        while count > len(widths) // 2 and sum(widths[:count]) + 2 * count > width:
            count -= 1
        return count

    def html(self) -> str:
        """Return the table for a notebook.

        Screen readers announce the title, which is the caption.
        """
        names = [escape(name).replace(" %", "\u00a0%") for name in self.columns]
        headings = [
            self._html_cell('th scope="col"', number, name) if name else "<td></td>"
            for number, name in enumerate(names)
        ]
        head = f"<thead><tr>{''.join(headings)}</tr></thead>" if headings else ""
        body = ""
        for row in self.rows:
            contents = [cell.html() if isinstance(cell, Bar) else escape(cell) for cell in row]
            cells = [
                self._html_cell("td" if number else 'th scope="row"', number, content)
                for number, content in enumerate(contents)
            ]
            body += f"<tr>{''.join(cells)}</tr>"
        caption = ""
        if self.title:
            style = "text-align:left;min-width:36em"
            caption = f'<caption style="{style}">{escape(self.title)}</caption>'
        notes = "".join(f"<p><small>{escape(note)}</small></p>" for note in self.notes)
        if len(self.notes) > FEW:
            notes = f"<details><summary>{len(self.notes)} notes</summary>{notes}</details>"
        table = f"<table>{caption}{head}<tbody>{body}</tbody></table>"
        return scrolling(table, self.title or "table") + notes

    def _html_cell(self, tag: str, column: int, content: str) -> str:
        """Return a cell that wraps only if it's a heading or a long cell on the left.

        tag: with its attributes
        column: its number
        """
        is_left = column < self.left
        style = f"text-align:{'left' if is_left else 'right'}"
        may_wrap = "col" in tag or (is_left and len(content) > 8)
        if not may_wrap:
            style += ";white-space:nowrap"
        return f'<{tag} style="{style}">{content}</{tag[:2]}>'

    __repr__ = text
    _repr_html_ = html

    def page(self) -> str:
        """Return the table as Markdown, with its title and its notes."""
        page = f"### {self.title}\n\n"
        if self.rows:
            page += f"{self.markdown()}\n"
        if self.notes:
            page += "\n"
        for note in self.notes:
            page += f"- {note}\n"
        return page

    def markdown(self) -> str:
        """Return the table as Markdown for the README, without the title and the notes."""
        rule = ["---" if column < self.left else "--:" for column in range(len(self.columns))]
        lines = [f"| {' | '.join(self.columns)} |", f"|{'|'.join(rule)}|"]
        for row in self.rows:
            cells = [" ".join(str(cell).split()).replace("|", "\\|") for cell in row]
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)


def scrolling(html: str, label: str) -> str:
    """Return a part of a page in a box that scrolls, also by keyboard.

    It scrolls if the page is narrower than the part.
    """
    return (
        f'<div tabindex="0" role="group" aria-label="{escape(label)}" '
        f'style="overflow-x:auto">{html}</div>'
    )


class Displayable:
    """An object that a terminal and a notebook display as its table()."""

    def table(self) -> Table:
        """Return the object as a table."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()


def duration(microseconds: float, *, padded: bool = False) -> str:
    """Return a time in the unit that suits it, with up to four digits: 8.4 µs, 2.65 ms.

    padded: always with four digits, as in 8.400 µs
    """
    unit = "µs"
    value = microseconds
    if microseconds >= 1e6:
        unit = "s"
        value = microseconds / 1e6
    elif microseconds >= 1e3:
        unit = "ms"
        value = microseconds / 1e3
    digits = f"{value:#.4g}".rstrip(".") if padded else f"{value:.4g}"
    return f"{digits} {unit}"


def format_energy(joules: float) -> str:
    """Return an energy in the unit that suits it: 1.234 J, 45.60 mJ, 812.0 µJ."""
    for unit, scale in (("J", 1.0), ("mJ", 1e-3)):
        if joules >= scale:
            return f"{joules / scale:#.4g}".rstrip(".") + f" {unit}"
    return f"{joules / 1e-6:#.4g}".rstrip(".") + " µJ"


def a_few(names: Iterable[str], limit: int = 3) -> str:
    """Return the first names, and the number of the others."""
    listed = [*names]
    text = ", ".join(listed[:limit])
    if len(listed) > limit:
        text += f" and {len(listed) - limit} more"
    return text


def format_half_width(half_width: float) -> str:
    """Return a half-width to two decimals, or to its first digit: 0.05, 0.002."""
    digits = 2
    if 0 < half_width < 0.005:
        digits = -math.floor(math.log10(half_width))
    return f"{half_width:.{digits}f}"


def format_ratio(ratio: float, low: float, high: float) -> str:
    """Return a share of the baseline and its interval in percent, to the same digit.

    For example: 62.7 % ±0.3, 97.31 % ±0.08.
    """
    half_width = 50 * (high - low)
    text = f"{half_width:.1f}" if round(half_width, 2) >= 0.1 else format_half_width(half_width)
    digits = len(text.partition(".")[2]) or 1
    return f"{100 * ratio:.{digits}f} % ±{text}"


def format_bound(value: float) -> str:
    """Return an upper bound to two digits after the point, rounded up."""
    return f"{math.ceil(100 * abs(value) - 1e-9) / 100:.2f}"


def percent(share: float | None) -> str:
    """Return a share in percent: 65.0 %, or 0.74 % for less than a tenth; "" for None."""
    if share is None:
        return ""
    return f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"


def format_signed(share: float, digits: int = 1) -> str:
    """Return a change in percent: +9.0 %, −30.2 %."""
    return f"{100 * share:+z.{digits}f} %".replace("-", "−")


def change_in_percent(share: float, noise: float) -> str:
    """Return a visible change in percent, to one digit after the point.

    noise: the logarithm by which two equal numbers may differ; if it's wide, the change is rounded
        to the noise's first digit: +40 %
    """
    if 2 * noise > WIDE:
        return format_signed(rounded(100 * share, 100 * (1 + share) * noise) / 100, 0)
    return format_signed(share)


def format_si(count: float) -> str:
    """Return a count in four digits: 8432, 84.32 k, 5.244 M."""
    for unit, smallest, scale in (
        ("T", 1e12, 1e12),
        ("G", 1e9, 1e9),
        ("M", 1e6, 1e6),
        ("k", 1e4, 1e3),
    ):
        if count >= smallest:
            return f"{count / scale:.4g} {unit}"
    return f"{count:.4g}"


def format_estimate(value: float, half_width: float, text_of: Callable[[float], str]) -> str:
    """Return a number, rounded if its 95 % interval is wider than WIDE.

    It's rounded to the first digit of the half-width: "about 3000" for 3404 ±52 %.
    half_width: relative
    text_of: formats the number
    """
    if 2 * half_width <= WIDE:
        return text_of(value)
    text = text_of(rounded(value, value * half_width))
    return "about " + re.sub(r"\.0+\b|(?<=\.\d)0+\b", "", text)  # without trailing zeros


def rounded(value: float, half_width: float) -> float:
    """Return a value, rounded to the first digit of its half-width.

    Keeps at least the value's own first digit.
    """
    return round(value, -math.floor(math.log10(min(half_width, abs(value)))))


def silent(step: int, steps: int, description: str) -> None:
    """Show no progress."""


def before_lines(message: str, addition: str) -> str:
    """Return a message with an addition behind its first line; code may follow."""
    first, newline, lines = message.partition("\n")
    return f"{first}{addition}{newline}{lines}"
