"""HTML pages that need no server, no network and no Python.

They have one head, and the charts' colours, light and dark.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from worklog.plots.style import DARK, LIGHT


def part(name: str, **values: str) -> str:
    """Return the text of a file in worklog/lab.

    values: replace $NAME; without values, the text stays
    """
    text = Path(__file__).with_name(name).read_text(encoding="utf-8").strip()
    return Template(text).substitute(values) if values else text


def palette(selector: str, roles: Mapping[str, str], scheme: str) -> str:
    """Return a CSS rule that defines the charts' colours.

    roles: colours by role
    scheme: light or dark
    """
    colours = "".join(f"--worklog-{role}:{colour};" for role, colour in roles.items())
    return f"{selector}{{{colours}color-scheme:{scheme}}}\n"


def packed(data: Any) -> str:
    """Return data as text that a page decodes with atob and DecompressionStream."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return b64encode(gzip.compress(text.encode(), mtime=0)).decode("ascii")


def document(title: str, about: str, body: str, *styles: str) -> str:
    """Return a whole page.

    about: a sentence for search engines
    styles: names of CSS files, after site.css
    """
    light = palette(":root", LIGHT, "light")
    dark = palette(":root", DARK, "dark")
    rules = [f"{light}@media (prefers-color-scheme: dark) {{ {dark}}}"]
    rules += [part(f"{name}.css") for name in ("site", *styles)]
    return part(
        "page.html", title=escape(title), about=escape(about), style="\n".join(rules), body=body
    )


def viewer(accesses: Sequence[Mapping[str, Any]], header: str = "") -> str:
    """Return the page of access.js for documents of worklog.viewer.accesses.

    The address chooses a document: #vectorized/0/9/34 is a kernel, a warp, a lane and a step.
    header: HTML above the viewer
    """
    documents = {accessed["kernel"]: accessed for accessed in accesses}
    title = next(iter(documents)) if len(documents) == 1 else "the rungs"
    script = part("dom.js") + "\n\n" + part("access.js")
    body = part(
        "access.html", header=header, title=escape(title), script=script, data=packed(documents)
    )
    about = "What each warp of a CUDA kernel touches, from the addresses that the compiled code executed."
    return document(f"worklog: what a warp touches, {title}", about, body, "panel", "access")
