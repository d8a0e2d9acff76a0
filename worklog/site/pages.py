"""HTML pages that need no server, no network and no Python.

They have one head, and the charts' colours, light and dark.
"""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from worklog.lab.assets import assets, palette
from worklog.plots.style import DARK, LIGHT
from worklog.site import scripts

TOUCHES = (
    "What each warp of a CUDA kernel touches, from the addresses that the compiled code executed."
)
PUZZLE_PAGE = "puzzles.html"
PUZZLE_TITLE = "Puzzles"
PUZZLE_ABOUT = "Which of these CUDA kernels is right? They run in the page, which grades them."
# The header's links: an address, the text, and the pages that belong to it.
LINKS = (
    ("index.html#story", "Story"),
    ("index.html#ladder", "Ladder"),
    ("index.html#panel", "Panel"),
    ("access.html", "What a warp touches"),
    (PUZZLE_PAGE, PUZZLE_TITLE),
    ("wrong.html", "What we got wrong"),
    ("glossary.html", "Glossary"),
    ("api.html", "Python"),
)
DARK_SCREEN = "screen and (prefers-color-scheme: dark)"  # a printed page is light
CARD = "card.png"  # the picture that other sites show next to a link to a page


def header(page: str) -> str:
    """Return the site's header, in which the link of a page is marked.

    page: the page's file name; a chapter's starts with its number
    """
    current = "index.html#story" if page[:1].isdigit() else page
    links = []
    for address, text in LINKS:
        mark = ' aria-current="page"' if address == current else ""
        links.append(f'<a href="{address}"{mark}>{text}</a>')
    return (
        '<a class="skip" href="#content">Skip to the content</a>\n<header class="site">'
        f'<a class="home" href="index.html">worklog</a>\n<nav aria-label="site">{" ".join(links)}'
        "</nav></header>"
    )


def read_part(name: str) -> str:
    """Return the text of a file next to this module."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8").strip()


def filled(name: str, **values: str) -> str:
    """Return a template next to this module with its $NAMEs replaced by `values`."""
    return Template(read_part(name)).substitute(values)


def packed(data: Any) -> str:
    """Return data as text that a page decodes with atob and DecompressionStream."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return b64encode(gzip.compress(text.encode(), mtime=0)).decode("ascii")


def document(title: str, about: str, body: str, *styles: str, is_of_site: bool = True) -> str:
    """Return a whole page.

    about: a sentence for search engines
    styles: style sheets that follow site.css
    is_of_site: whether the page is next to the site's picture
    """
    image = f'<meta property="og:image" content="{CARD}">' if is_of_site else ""
    light = palette(":root", LIGHT, "light")
    dark = palette(":root", DARK, "dark")
    colours = f"{light}@media {DARK_SCREEN} {{ {dark}}}"
    style = "\n".join([colours, read_part("site.css"), *styles])
    return filled(
        "page.html",
        title=escape(title),
        about=escape(about),
        image=image,
        style=style,
        body=body,
    )


def site_page(page: str, title: str, about: str, body: str, *styles: str, kind: str = "") -> str:
    """Return a page of text with the site's header.

    page: its file name
    styles: style sheets that follow site.css
    kind: a further CSS class of the text
    """
    main = f'{header(page)}\n<main id="content" class="text {kind}">\n{body}\n</main>'
    return document(f"{title} · worklog", about, main, *styles)


def reading_page(
    page: str, title: str, about: str, body: str, *styles: str, levels: str = "2"
) -> str:
    """Return a long page of text: its headings are in the margin of a wide page.

    page, styles: as for site_page
    levels: of the headings in the margin
    """
    text = f'{_contents(body, levels)}<div class="body">{body}</div>'
    script = f'<script type="module">\n{scripts.READER.text()}\n</script>'
    return site_page(page, title, about, f"{text}\n{script}", *styles, kind="chapter")


def _contents(body: str, levels: str) -> str:
    """Return the headings of a text as links.

    levels: of the headings
    """
    links = []
    for level, anchor, text in re.findall(rf'<h([{levels}]) id="([^"]+)">(.*?)</h\1>', body):
        plain = re.sub(r"<[^>]+>", "", text)
        links.append(f'<li class="level{level}"><a href="#{anchor}">{plain}</a></li>')
    if not links:
        return ""
    return (
        '<nav class="contents" aria-label="page"><details><summary>On this page</summary>'
        f"<ol>{''.join(links)}</ol></details></nav>"
    )


def viewer(accesses: Sequence[Mapping[str, Any]], head: str = "", note: str = "") -> str:
    """Return the page of access.js for documents of worklog.viewer.accesses.

    The address chooses a document: #vectorized/0/9/34 is a kernel, a warp, a lane and a step. A
    level of the zoom and a block may follow: #vectorized/0/9/34/block/3.
    head: HTML above the viewer
    note: HTML below its title
    """
    documents = {accessed["kernel"]: accessed for accessed in accesses}
    title = next(iter(documents)) if len(documents) == 1 else "the rungs"
    body = filled(
        "access.html",
        header=head,
        note=note,
        title=escape(title),
        script=scripts.ACCESS.text(),
        data=packed(documents),
    )
    return document(
        f"What a warp touches, {title} · worklog",
        TOUCHES,
        body,
        assets("panel.css", "access.css"),
        is_of_site=bool(head),
    )


def live_viewer(catalogue: Sequence[Mapping[str, Any]]) -> str:
    """Return the page that runs kernels: live.js in place of access.js alone.

    catalogue: what a reader can choose (worklog.site.live)
    """
    body = filled(
        "live.html",
        header=header("access.html"),
        script=scripts.LIVE.text(),
        catalogue=_in_script(catalogue),
    )
    styles = assets("panel.css", "access.css"), read_part("live.css")
    return document("Kernels that run in this page · worklog", TOUCHES, body, *styles)


def puzzle_page(puzzles: Sequence[Mapping[str, Any]]) -> str:
    """Return the page of puzzles.js.

    puzzles: their questions, choices and files (worklog.site.choices)
    """
    body = filled(
        "puzzles.html",
        header=header(PUZZLE_PAGE),
        script=scripts.PUZZLES.text(),
        puzzles=_in_script(puzzles),
    )
    title = f"{PUZZLE_TITLE} · worklog"
    return document(title, PUZZLE_ABOUT, body, assets("panel.css"), read_part("live.css"))


def _in_script(data: Any) -> str:
    """Return data as an expression of a page's script, which it can't end."""
    return json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
