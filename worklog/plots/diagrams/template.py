"""Fill an SVG template with facts and put it on a page.

README.md describes what a template can contain. Texts are `<text>` in a font that most machines
have; the PNG is drawn with the copy that comes with matplotlib.
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
from worklog.plots.drawing import Drawing
from worklog.plots.selection import dimensions, rate
from worklog.runs.text import duration, format_signed

Facts = Mapping[str, Any]  # words, numbers and conditions by name, and rows of such facts

DPI = 100
WIDTH = 672.0  # px, of title, subtitle and footer
# px, by a text's class
SIZES = {name: points * DPI / 72 for name, (points, _) in style.TEXT.items()}
STYLE = "".join(
    f".{name}{{font-size:{size:.2f}px;font-weight:{'bold' if style.TEXT[name][1] else 'normal'}}}"
    for name, size in SIZES.items()
)


def binary(count: float) -> str:
    """Return bytes in a binary unit: "60 MiB", "768 KiB", "140 GiB"."""
    unit = "KiB"
    amount = count / 2**10
    if count >= 2**30:
        unit = "GiB"
        amount = count / 2**30
    elif count >= 2**20:
        unit = "MiB"
        amount = count / 2**20
    return f"{amount:.0f} {unit}" if amount >= 100 else f"{amount:.3g} {unit}"


# How a template writes a number, by the format behind the colon. No line ends at the spaces.
FORMATS: dict[str, Callable[[Any], str]] = {
    "rate": rate,  # TFLOP/s
    "duration": duration,  # of microseconds
    "binary": binary,
    "dimensions": dimensions,
    "percent": lambda share: f"{100 * share:.1f}",
    "share": lambda share: f"{100 * share:.1f} %",
    "whole": lambda share: f"{100 * share:.0f} %",
    "added": lambda us: f"{us:+.0f} µs".replace("-", "−"),
    "changed": lambda share: format_signed(share, 0),
    "thousands": lambda count: f"{count:,.0f}".replace(",", "\u2009"),
}


class Written(Formatter):
    """A formatter of facts, with these formats and Python's."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a fact in its placeholder's format."""
        if format_spec not in FORMATS:
            return format(value, format_spec)
        text = FORMATS[format_spec](value)
        return text if format_spec == "dimensions" else text.replace(" ", "\u00a0")


fill = Written().vformat


class Diagram(Drawing):
    """A template, filled with a run's facts."""

    def __init__(self, name: str, facts: Facts) -> None:
        source = _read(f"{name.split('_', 2)[-1]}.svg")
        source = source.replace(' xmlns="http://www.w3.org/2000/svg"', "")
        template = filled(ElementTree.fromstring(source), {**style.LIGHT, **facts})
        texts = _take_texts(template)
        self.name = name
        self.headline = texts["title"]
        self.alt = texts["desc"]
        title, title_end = paragraph(self.headline, "title", 29.5)
        subtitle, top = paragraph(texts["subtitle"], "subtitle", title_end - 4)
        footer_y = top + float(template.attrib["height"]) + 18
        footer, height = paragraph(facts["run"].full_label, "small", footer_y)
        roles, descriptions = self.spoken()
        self._svg = Template(_read("page.svg")).substitute(
            style.LIGHT,
            roles=roles,
            described=descriptions,
            style=STYLE,
            words=title + subtitle + footer,
            top=f"{top - 3:g}",
            body="".join(ElementTree.tostring(part, "unicode") for part in template),
            height=round(height),
        )

    def drawn(self) -> str:
        """Return the diagram as SVG."""
        return self._svg


def _take_texts(template: Element) -> dict[str, str]:
    """Remove title, description and subtitle from a template; return their texts by tag."""
    texts = {}
    for part in template.findall("*"):
        if part.tag in ("title", "desc", "subtitle"):
            texts[part.tag] = re.sub("[ \n]+", " ", "".join(part.itertext())).strip(" ")
            template.remove(part)
    return texts


def paragraph(text: str, kind: str, top: float) -> tuple[str, float]:
    """Return a text as SVG, as wide as the page, and the y of the next line.

    kind: the text's class
    top: the y of the first line, px
    """
    fill = style.INK if kind == "title" else style.MUTED
    element = Element("text", {"class": kind, "x": "14", "y": f"{top:g}", "fill": fill})
    lines = wrap(element, text, kind, WIDTH)
    end = round(top + lines * style.LINE * SIZES[kind], 1)
    return ElementTree.tostring(element, "unicode") + "\n", end


def wrap(element: Element, text: str, kind: str, width: float) -> int:
    """Put a text into a <text>, in lines of at most `width` px; return their number."""
    points, bold = style.TEXT[kind]
    lines = style.wrap(text, points, width / DPI, bold=bold)
    for index, line in enumerate(lines):
        position = {"x": element.attrib["x"], "dy": f"{style.LINE if index else 0}em"}
        SubElement(element, "tspan", position).text = line
    return len(lines)


def filled(element: Element, facts: Facts, kind: str = "body") -> Element:
    """Return a copy of an element with its placeholders filled.

    A child is left out if its condition isn't met, and repeated for each row of its facts.

    kind: the class of text that the element inherits
    """
    attributes = {name: fill(value, (), facts) for name, value in element.attrib.items()}
    kind = attributes.get("class", kind)
    width = attributes.pop("width", "") if element.tag == "text" else ""
    for name in ("if", "each", "step"):
        attributes.pop(name, None)
    copy = Element(element.tag, attributes)
    text = fill(element.text or "", (), facts)
    if width:
        wrap(copy, text, kind, float(width))
    else:
        copy.text = text
    for child in element:
        copy.extend(_copies(child, facts, kind))
        tail = fill(child.tail or "", (), facts)
        if len(copy):
            copy[-1].tail = (copy[-1].tail or "") + tail
        else:
            copy.text = (copy.text or "") + tail
    return copy


def _copies(child: Element, facts: Facts, kind: str) -> list[Element]:
    """Return the copies of a child: one, none, or one for each row of its facts."""
    rows = facts[child.attrib["each"]] if "each" in child.attrib else [{}]
    copies = []
    for index, row in enumerate(rows):
        row_facts = {**facts, "sep": "; " if index else "", **row}
        if not _is_met(child.get("if", ""), row_facts):
            continue
        copy = filled(child, row_facts, kind)
        if "step" in child.attrib:
            copy.set("transform", f"translate(0 {index * float(child.attrib['step']):g})")
        copies.append(copy)
    return copies


def _is_met(condition: str, facts: Facts) -> bool:
    """Return True if the fact of that name is there; after "!", if it isn't there."""
    if not condition:
        return True
    is_there = bool(facts.get(condition.lstrip("!")))
    return is_there is not condition.startswith("!")


def _read(name: str) -> str:
    """Return the text of a file next to this module."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
