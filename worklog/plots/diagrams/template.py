"""Fills an SVG template with facts and puts it on a page. What a template may hold is described in README.md.

Words are `<text>` in a font that most machines have; the PNG is drawn with the copy that comes with matplotlib.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import resources
from string import Formatter, Template
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from worklog.plots import style
from worklog.plots.figure import Drawing
from worklog.plots.selection import dimensions, rate
from worklog.runs import duration, signed

Facts = Mapping[str, Any]  # words, numbers and conditions by name, and rows of such facts

DPI = 100
WIDTH = 672.0  # px, of title, subtitle and footer
SIZES = {
    name: points * DPI / 72 for name, (points, _) in style.TEXT.items()
}  # px, by a text's class
STYLE = "".join(
    f".{name}{{font-size:{size:.2f}px;font-weight:{'bold' if style.TEXT[name][1] else 'normal'}}}"
    for name, size in SIZES.items()
)


def binary(count: float) -> str:
    """Bytes in a binary unit: "60 MiB", "768 KiB", "140 GiB"."""
    unit, scale = next(
        (known for known in (("GiB", 2**30), ("MiB", 2**20)) if count >= known[1]), ("KiB", 2**10)
    )
    amount = count / scale
    return f"{amount:.0f} {unit}" if amount >= 100 else f"{amount:.3g} {unit}"


# How a template writes a number, by what stands behind the colon; no line ends at the spaces.
FORMATS: dict[str, Callable[[Any], str]] = {
    "rate": rate,  # TFLOP/s
    "duration": duration,  # of microseconds
    "binary": binary,
    "dimensions": dimensions,
    "percent": lambda share: f"{100 * share:.1f}",
    "share": lambda share: f"{100 * share:.1f} %",
    "whole": lambda share: f"{100 * share:.0f} %",
    "added": lambda us: f"{us:+.0f} µs".replace("-", "−"),
    "changed": lambda share: signed(share, 0),
    "thousands": lambda count: f"{count:,.0f}".replace(",", "\u2009"),
}


class Written(Formatter):
    """Fills in facts, in these formats and in Python's."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """A fact as its placeholder says."""
        if format_spec in FORMATS:
            words = FORMATS[format_spec](value)
            return words if format_spec == "dimensions" else words.replace(" ", "\u00a0")
        return format(value, format_spec)


fill = Written().vformat


class Diagram(Drawing):
    """A template, filled with a run's facts."""

    def __init__(self, name: str, facts: Facts) -> None:
        source = _read(f"{name.split('_', 2)[-1]}.svg").replace(
            ' xmlns="http://www.w3.org/2000/svg"', ""
        )
        template = filled(ElementTree.fromstring(source), {**style.LIGHT, **facts})
        spoken = {}
        for part in template.findall("*"):
            if part.tag in ("title", "desc", "subtitle"):
                spoken[part.tag] = re.sub("[ \n]+", " ", "".join(part.itertext())).strip(" ")
                template.remove(part)
        self.name = name
        self.headline = spoken["title"]
        self.alt = spoken["desc"]
        title, y = paragraph(self.headline, "title", 29.5)
        subtitle, top = paragraph(spoken["subtitle"], "subtitle", y - 4)
        footer, end = paragraph(
            facts["run"].full_label, "small", top + float(template.attrib["height"]) + 18
        )
        roles, described = self.spoken()
        self._svg = Template(_read("page.svg")).substitute(
            style.LIGHT,
            roles=roles,
            described=described,
            style=STYLE,
            words=title + subtitle + footer,
            top=f"{top - 3:g}",
            body="".join(ElementTree.tostring(part, "unicode") for part in template),
            height=round(end),
        )

    def drawn(self) -> str:
        """The diagram."""
        return self._svg


def paragraph(words: str, kind: str, y: float) -> tuple[str, float]:
    """A text as wide as the page, the first line at y, and where the next one would be."""
    fill = style.INK if kind == "title" else style.MUTED
    text = Element("text", {"class": kind, "x": "14", "y": f"{y:g}", "fill": fill})
    lines = wrap(text, words, kind, WIDTH)
    return ElementTree.tostring(text, "unicode") + "\n", round(
        y + lines * style.LINE * SIZES[kind], 1
    )


def wrap(text: Element, words: str, kind: str, width: float) -> int:
    """Put the words into a <text>, in lines of at most `width` px; return how many."""
    points, bold = style.TEXT[kind]
    lines = style.wrap(words, points, width / DPI, bold=bold)
    for index, line in enumerate(lines):
        SubElement(
            text, "tspan", {"x": text.attrib["x"], "dy": f"{style.LINE if index else 0}em"}
        ).text = line
    return len(lines)


def filled(e: Element, facts: Facts, kind: str = "body") -> Element:
    """A copy of an element with its placeholders filled; of its children, those whose condition is met, and those with
    rows of facts once a row. kind: the class of text that it inherits.
    """
    given = {name: fill(value, (), facts) for name, value in e.attrib.items()}
    kind, width = given.get("class", kind), given.pop("width", "") if e.tag == "text" else ""
    new = Element(
        e.tag, {name: value for name, value in given.items() if name not in ("if", "each", "step")}
    )
    words = fill(e.text or "", (), facts)
    if width:
        wrap(new, words, kind, float(width))
    else:
        new.text = words
    for child in e:
        rows = facts[child.attrib["each"]] if "each" in child.attrib else [{}]
        for index, row in enumerate(rows):
            known = {**facts, "sep": "; " if index else "", **row}
            condition = child.get("if", "")
            if not condition or bool(known.get(condition.lstrip("!"))) != condition.startswith("!"):
                new.append(filled(child, known, kind))
                if "step" in child.attrib:
                    new[-1].set(
                        "transform", f"translate(0 {index * float(child.attrib['step']):g})"
                    )
        tail = fill(child.tail or "", (), facts)
        if len(new):
            new[-1].tail = (new[-1].tail or "") + tail
        else:
            new.text = (new.text or "") + tail
    return new


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
