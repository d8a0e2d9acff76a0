"""Fills an SVG template with facts and puts it on a page. What a template may hold is described in README.md.

Words are `<text>` in a font that most machines have; the PNG is drawn with the copy that comes with matplotlib.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from worklog.plots import figure
from worklog.plots.figure import Drawing

Facts = Mapping[str, Any]  # words, numbers and conditions by name, and rows of such facts

DPI = 100
WIDTH = 672.0  # px, of title, subtitle and footer
SIZES = {name: points * DPI / 72 for name, (points, _) in figure.TEXT.items()}  # px, by a text's class
STYLE = "".join(
    f".{name}{{font-size:{size:.2f}px;font-weight:{'bold' if figure.TEXT[name][1] else 'normal'}}}"
    for name, size in SIZES.items()
)


class Diagram(Drawing):
    """A template, filled with a run's facts."""

    def __init__(self, name: str, facts: Facts) -> None:
        source = _read(f"{name.split('_', 2)[-1]}.svg").replace(' xmlns="http://www.w3.org/2000/svg"', "")
        template = filled(ElementTree.fromstring(source), {**figure.LIGHT, **facts})
        spoken = {}
        for part in template.findall("*"):
            if part.tag in ("title", "desc", "subtitle"):
                spoken[part.tag] = re.sub("[ \n]+", " ", "".join(part.itertext())).strip(" ")
                template.remove(part)
        self.name, self.headline, self.alt = name, spoken["title"], spoken["desc"]
        title, y = paragraph(self.headline, "title", 29.5)
        subtitle, top = paragraph(spoken["subtitle"], "subtitle", y - 4)
        footer, end = paragraph(facts["footer"], "small", top + float(template.attrib["height"]) + 18)
        roles, described = self.spoken()
        self._svg = Template(_read("page.svg")).substitute(
            figure.LIGHT,
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
    fill = figure.INK if kind == "title" else figure.MUTED
    text = Element("text", {"class": kind, "x": "14", "y": f"{y:g}", "fill": fill})
    lines = wrap(text, words, kind, WIDTH)
    return ElementTree.tostring(text, "unicode") + "\n", round(y + lines * figure.LINE * SIZES[kind], 1)


def wrap(text: Element, words: str, kind: str, width: float) -> int:
    """Put the words into a <text>, in lines of at most `width` px; return how many."""
    points, bold = figure.TEXT[kind]
    lines = figure.wrap(words, points, width / DPI, bold=bold)
    for index, line in enumerate(lines):
        SubElement(text, "tspan", {"x": text.attrib["x"], "dy": f"{figure.LINE if index else 0}em"}).text = line
    return len(lines)


def filled(e: Element, facts: Facts, kind: str = "body") -> Element:
    """A copy of an element with its placeholders filled; of its children, those whose condition is met, and those with
    rows of facts once a row. kind: the class of text that it inherits.
    """
    given = {name: Template(value).substitute(facts) for name, value in e.attrib.items()}
    kind, width = given.get("class", kind), given.pop("width", "") if e.tag == "text" else ""
    new = Element(e.tag, {name: value for name, value in given.items() if name not in ("if", "each", "step")})
    words = Template(e.text or "").substitute(facts)
    if width:
        wrap(new, words, kind, float(width))
    else:
        new.text = words
    for child in e:
        rows = facts[child.attrib["each"]] if "each" in child.attrib else [{}]
        for index, row in enumerate(rows):
            known, condition = {**facts, "sep": "; " if index else "", **row}, child.get("if", "")
            if not condition or bool(known.get(condition.lstrip("!"))) != condition.startswith("!"):
                new.append(filled(child, known, kind))
                if "step" in child.attrib:
                    new[-1].set("transform", f"translate(0 {index * float(child.attrib['step']):g})")
        tail = Template(child.tail or "").substitute(facts)
        if len(new):
            new[-1].tail = (new[-1].tail or "") + tail
        else:
            new.text = (new.text or "") + tail
    return new


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
