"""Fills an SVG template with facts, and draws its words as outlines, so that it looks the same on every machine.

What a template may hold is described in README.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any, NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from worklog.plots import figure
from worklog.plots.figure import Drawing

Facts = Mapping[str, Any]  # words, numbers and conditions by name, and rows of such facts

DPI = 100
ANCHORS = {"start": 0.0, "middle": 0.5, "end": 1.0}
BASELINE = 0.365  # of the font size: from the middle of a line down to its baseline, half of a capital's height
HEAD = ElementTree.fromstring(
    '<g><text x="14" y="14" width="672" height="0"><tspan class="title">${headline}</tspan>'
    '<tspan class="subtitle" fill="${muted}">${subtitle}</tspan></text></g>'
)
FOOT = ElementTree.fromstring(
    '<g><text class="small" x="14" y="12" width="672" height="0" fill="${muted}">${footer}</text></g>'
)


class Words(NamedTuple):
    """A line of text and the box it takes on the page, px. fits: whether it is drawn whole and within its room."""

    text: str
    x0: float
    y0: float
    x1: float
    y1: float
    fits: bool


class Frame(NamedTuple):
    """What lengths refer to, px: an origin on the page, and the size that percentages are of."""

    x: float = 0.0
    y: float = 0.0
    width: float = 700.0
    height: float = 0.0


class Diagram(Drawing):
    """A template, filled with a run's facts. words: every line of text on the page."""

    def __init__(self, name: str, facts: Facts) -> None:
        source = _read(f"{name.split('_', 2)[-1]}.svg")
        template = ElementTree.fromstring(source.replace(' xmlns="http://www.w3.org/2000/svg"', ""))
        self.name = name
        self.headline, self.alt, subtitle = (
            spoken(part, facts).strip(" ") for tag in ("title", "desc", "subtitle") for part in template.iter(tag)
        )
        sheet = Sheet()
        names = {**figure.LIGHT, **facts, "headline": self.headline, "subtitle": subtitle}
        drawn, height = sheet.sections(template, names)
        glyphs = "\n".join(f'<path id="{key}" d="{outline}"/>' for key, outline in sorted(sheet.glyphs.items()))
        words = {"name": name, "title": escape(self.headline), "desc": escape(self.alt)}
        page = Template(_read("page.svg"))
        self._svg = page.substitute(figure.LIGHT, **words, height=height, glyphs=glyphs, drawn=drawn)
        self.words = sheet.words

    def drawn(self) -> str:
        """The diagram; its words are outlines."""
        return self._svg


class Sheet:
    """A page being drawn: lines of text, outlines by id, and how far down it reaches (px)."""

    def __init__(self) -> None:
        self.words: list[Words] = []
        self.glyphs: dict[str, str] = {}
        self.low = 0.0

    def sections(self, template: Element, names: Facts) -> tuple[str, int]:
        """Title and subtitle, the template's sections and the source, one below another; and the page's height."""
        drawn, y = [], 0.0
        for section in [HEAD, *template.findall("g"), FOOT]:
            if _wanted(section, names):
                content, height = self.measured(section, names, Frame(y=y), float(section.get("height", 0)))
                drawn.append(f'<g transform="translate(0 {_number(y)})">{content}</g>')
                y += height + (8 if section is HEAD else 0)
        return "\n".join(drawn), round(y) + 14

    def measured(self, e: Element, names: Facts, frame: Frame, least: float) -> tuple[str, float]:
        """A group's content as SVG and its height, at least `least`; drawn twice, the first time to measure it."""
        drawn, height, known = "", least, len(self.words)
        for _ in range(2):
            del self.words[known:]
            self.low = frame.y
            inner = frame._replace(height=height)
            drawn = "".join(self.element(child, {**names, "height": _number(height)}, inner) for child in e)
            height = max(least, math.ceil(self.low - frame.y))
        return drawn, height

    def element(self, e: Element, names: Facts, frame: Frame) -> str:
        """One element of a template as SVG."""
        if not _wanted(e, names):
            return ""
        given = {name: _filled(value, names) for name, value in e.attrib.items() if name != "if"}
        if e.tag == "text":
            return self.text(e, given, names, frame)
        if "each" in given:
            return self.rows(e, given, names, frame)
        inner = frame
        if e.tag == "svg":
            x, width = _px(given["x"], frame.width), _px(given["width"], frame.width)
            inner = Frame(frame.x + x, frame.y + float(given["y"]), width, float(given["height"]))
            given["overflow"] = "visible"
        attributes = "".join(f' {name}="{escape(value)}"' for name, value in given.items())
        return f"<{e.tag}{attributes}>{''.join(self.element(child, names, inner) for child in e)}</{e.tag}>"

    def rows(self, e: Element, given: Mapping[str, str], names: Facts, frame: Frame) -> str:
        """A group, repeated for each row of facts."""
        rows: Sequence[Facts] = names[given["each"]]
        y, step, gap, height = (float(given.get(name, 0)) for name in ("y", "step", "gap", "height"))
        pitch = max(step, height / max(len(rows), 1)) if step else 0.0
        drawn, lowest = "", self.low
        for row in rows:
            content, high = self.measured(e, {**names, **row}, frame._replace(y=frame.y + y), pitch)
            drawn += f'<g transform="translate(0 {_number(y)})">{content}</g>' if y else content
            y += pitch if step else high + gap if gap else 0.0
        self.low = max(lowest, frame.y + y)
        return drawn

    def text(self, e: Element, given: Mapping[str, str], names: Facts, frame: Frame) -> str:
        """One line with its baseline at y, or paragraphs in the middle of a height."""
        kind, colour = given.get("class", "body"), given.get("fill", names["ink"])
        x = _px(given["x"], frame.width) + float(given.get("dx", 0))
        y = _px(given["y"], frame.height) + float(given.get("dy", 0))
        width, height = _px(given["width"], frame.width), float(given.get("height", 0))
        lines = []
        for part in e.findall("tspan") or [e]:
            if _wanted(part, names):
                look = part.get("class", kind), _filled(part.get("fill", ""), names) or colour
                words, (points, bold) = _filled(part.text or "", names), figure.TEXT[look[0]]
                wrapped = figure.wrap(words, points, width / DPI, bold=bold) if "height" in given else [words]
                lines += [(figure.shorten(line, points, width / DPI, bold=bold), *look) for line in wrapped]
        block = sum(_line(kind) for _, kind, _ in lines)
        y += (height - block) / 2 if height else 0.0 if "height" in given else -BASELINE * _size(kind) - block / 2
        drawn = ""
        for words, kind, colour in lines:
            wide = DPI * figure.text_width(words, *figure.TEXT[kind])
            left, top = x - wide * ANCHORS[given.get("text-anchor", "start")], frame.y + y
            fits = "…" not in words and not 0 < height < block
            self.words.append(Words(words, frame.x + left, top, frame.x + left + wide, top + _line(kind), fits))
            self.low = max(self.low, top + _line(kind))
            drawn += self.outlines(words, kind, colour, left, y + _line(kind) / 2 + BASELINE * _size(kind))
            y += _line(kind)
        return drawn

    def outlines(self, words: str, kind: str, colour: str, x: float, y: float) -> str:
        """A line of text as outlines; y: its baseline."""
        bold, uses, along = figure.TEXT[kind][1], "", 0
        for letter in words:
            key, (outline, advance) = f"{'bold' if bold else 'sans'}-{ord(letter):x}", figure.glyph(letter, bold)
            if outline:
                self.glyphs[key] = outline
                uses += f'<use href="#{key}" x="{along}"/>'
            along += advance
        scale = _size(kind) / figure.face(bold).units_per_EM
        place = f"translate({_number(x)} {_number(y)}) scale({scale:.6f} {-scale:.6f})"
        return f'<g transform="{place}" fill="{colour}">{uses}</g>\n' if uses else ""


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def spoken(e: Element, names: Facts) -> str:
    """The words of an element that is not drawn, and of what is in it."""
    words = Template(e.text or "").substitute(names)
    for child in e:
        if _wanted(child, names):
            rows: Sequence[Facts] = names[child.attrib["each"]] if "each" in child.attrib else [{}]
            words += "; ".join(spoken(child, {**names, **row}) for row in rows)
        words += Template(child.tail or "").substitute(names)
    return re.sub("[ \n]+", " ", words)


def _wanted(e: Element, names: Facts) -> bool:
    """Whether an element's condition, if it has one, is met."""
    condition = e.get("if", "")
    return not condition or bool(names.get(condition.lstrip("!"))) != condition.startswith("!")


def _filled(words: str, names: Facts) -> str:
    """Words with their placeholders filled, on one line; no-break and thin spaces stay."""
    return re.sub("[ \n]+", " ", Template(words).substitute(names)).strip(" ")


def _px(length: str, whole: float) -> float:
    return float(length[:-1]) / 100 * whole if length.endswith("%") else float(length)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _size(kind: str) -> float:
    """The font's size in px."""
    return figure.TEXT[kind][0] * DPI / 72


def _line(kind: str) -> float:
    """From one line of text to the next, px."""
    return figure.LINE * _size(kind)
