"""How the lab's pages look: the palettes as the notebook's theme asks for them, and pictures that follow it
too. HTML only, no widgets.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape

from worklog.plots.figure import Chart, in_the_dark
from worklog.plots.style import DARK, LIGHT

# How JupyterLab and Notebook, Visual Studio Code, and Colab say that their page is dark.
DARK_PAGES = ('[data-jp-theme-light="false"]', ".vscode-dark", "html[theme=dark]")


def colour(role: str) -> str:
    """A role's colour in CSS, in the palette that goes with the page: where SHEET applies, inside class worklog."""
    return f"var(--worklog-{role})"


def image(chart: Chart) -> str:
    """The chart as HTML in both palettes, of which the page shows one. Apart from the page, so that the ids of two
    pictures cannot meet.
    """
    light = chart.svg()
    return _image(light, chart.alt, "light") + _image(in_the_dark(light), chart.alt, "dark")


def _image(svg: str, words: str, palette: str) -> str:
    data = base64.b64encode(svg.encode()).decode("ascii")
    source = f'src="data:image/svg+xml;base64,{data}"'
    return f'<img class="worklog-{palette}" style="width:100%;max-width:44em" alt="{escape(words)}" {source}>'


def _page(where: str, palette: Mapping[str, str], shown: str, hidden: str) -> str:
    variables = "".join(f"--worklog-{role}:{value};" for role, value in palette.items())
    show, hide = f"{where} img.worklog-{shown}{{display:inline}}", f"{where} img.worklog-{hidden}{{display:none}}"
    return f"{where}{{{variables}}}{show}{hide}"


SHEET = _page(".worklog", LIGHT, "light", "dark") + "".join(
    _page(f"{page} .worklog", DARK, "dark", "light") for page in DARK_PAGES
)
