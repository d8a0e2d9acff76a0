"""What a chart's SVG draws, as a list of lines that a person can read and compare.

Texts, paths and marks.
"""

import re
from hashlib import sha256
from itertools import groupby
from xml.etree.ElementTree import Comment, Element, TreeBuilder, XMLParser

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
SHORT = 8  # numbers of a path that are listed; of a longer one, its box and a digest
FEW = 8  # things of one kind in a row that are listed one by one
LEFT_OUT = ("metadata", "style")  # the same in each chart
HREF = "{http://www.w3.org/1999/xlink}href"


def listed(svg: str) -> str:
    """Return a line for each thing that is drawn, in its order, to a tenth of a point.

    Processors differ in the last digits.
    """
    parser = XMLParser(target=TreeBuilder(insert_comments=True))
    parser.feed(svg)
    lines = list[str]()
    # Many marks of one shape and colour in a row, as of a scatter plot, are one line, as are many
    # cells of a map.
    for what, run in groupby(_lines(parser.close()), key=lambda line: line[0]):
        places = [place for _, place in run]
        if len(places) <= FEW:
            lines += [" ".join([what, *_shortened(place)]) for place in places]
        else:
            numbers = [number for place in places for number in place]
            lines.append(" ".join([f"{len(places)} × {what}", *_shortened(numbers)]))
    return "\n".join(lines) + "\n"


def _lines(parent: Element) -> list[tuple[str, list[str]]]:
    """Return what each thing below an element is, with the numbers that place it."""
    found = list[tuple[str, list[str]]]()
    words = ""
    for element in parent:
        if element.tag is Comment:  # matplotlib's, of the text that the next group draws
            words = " ".join((element.text or "").split())
            continue
        tag = element.tag.rpartition("}")[2]
        if words:
            place = dict(re.findall(r"(\w+)\((.*?)\)", element.get("transform", "")))
            size = 100 * float(place["scale"].split()[0])  # matplotlib's glyphs are 100 points high
            turned = f" turned by {place['rotate']}" if "rotate" in place else ""
            text = f"text {words!r} {_style(element)} {size:.1f} pt{turned}"
            found.append((text, _numbers(place["translate"])))
            words = ""
        elif tag in ("title", "desc"):
            found.append((f"{tag} {element.text}", []))
        elif tag == "path":
            found.append((f"path {_style(element)}{_clip(element)}", _numbers(element.get("d"))))
        elif tag == "use":
            place = [element.get("x", "0"), element.get("y", "0")]
            mark = f"mark {element.get(HREF, '')} {_style(element)}"
            found.append((mark, _numbers(" ".join(place))))
        elif tag in ("g", "svg", "defs", "clipPath"):
            if found_below := _lines(element):
                clip = _clip(element)
                found += [(f"{what}{clip}", place) for what, place in found_below]
        elif tag not in LEFT_OUT:
            rest = sha256(repr(sorted(element.attrib.items())).encode()).hexdigest()[:8]
            box = [element.get(name, "0") for name in ("x", "y", "width", "height")]
            digest = "" if tag == "rect" else f" {rest}"
            found.append((f"{tag}{digest}", _numbers(" ".join(box))))
    return found


def _style(element: Element) -> str:
    """Return an element's colours and widths."""
    style = element.get("style", "").replace("stroke-", "")
    style = re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.2f}", style)
    return " ".join(part.strip().replace(": ", "=") for part in style.split(";") if part.strip())


def _clip(element: Element) -> str:
    return " clipped" if element.get("clip-path") else ""


def _numbers(text: str | None) -> list[str]:
    return [f"{float(number):.1f}".removesuffix(".0") for number in NUMBER.findall(text or "")]


def _shortened(numbers: list[str]) -> list[str]:
    """Return some numbers; of many, their box and a digest."""
    if len(numbers) <= SHORT:
        return numbers
    across = numbers[::2]
    down = numbers[1::2]
    box = [
        min(across, key=float),
        min(down, key=float),
        max(across, key=float),
        max(down, key=float),
    ]
    digest = sha256(" ".join(numbers).encode()).hexdigest()[:8]
    return [*box, f"({len(numbers) // 2} points, {digest})"]
