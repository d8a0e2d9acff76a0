"""The widgets of the notebooks in the text of a page, and the files that they load.

A page has a place for each widget, with what is shown until the widget's files are loaded:
reader.js loads them when a reader comes near. A file is a script that defines a name, because a
page that isn't from a server can't fetch anything else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html import escape
from typing import Any

from worklog.errors import NothingToDraw
from worklog.kernel import rung
from worklog.lab.bets import HIGHEST, LOWEST, LadderStep, recorded_step
from worklog.lab.readings import format_value
from worklog.site import scripts
from worklog.site.cells import LabCall
from worklog.site.pages import packed
from worklog.viewer import accesses

STYLES = ("panel.css", "access.css")


def access(kernel: str, still: str, is_live: bool) -> str:
    """Return the place of the access viewer of a rung.

    still: what is shown before it is loaded
    is_live: whether the site's pages run kernels
    """
    place = _place("access", still, rung=kernel)
    address = f"access.html#{kernel}"
    if not is_live:
        return place + page_link(address, "On a page alone")
    # A script shows the button.
    starter = '<button type="button" data-run hidden>Run it here</button>'
    return place + (
        f'<p class="more"><span class="worklog">{starter}</span> '
        f'<a href="{address}">Run it in the page: other sizes, tiles and mistakes →</a></p>'
    )


def panel(call: LabCall, still: str) -> str:
    """Return the place of the panel, as a cell's call chooses it."""
    kernel, size = call.arguments
    biased = {setting: format_value(value) for setting, value in call.options.items()}
    return _place("panel", still, kernel=kernel, size=str(size), biased=json.dumps(biased))


def bet(call: LabCall, question: str) -> str:
    """Return the place of a bet.

    What was measured is of the recordings, as the chapter's text is, and packed, so a reader can't
    see it before.

    question: what is shown before it is loaded
    """
    try:
        step = recorded_step(*call.arguments, **call.options)
    except NothingToDraw:
        return question
    return _place("bet", question, rung=step.later, step=packed(_bet_values(step)))


def answer(kernel: str, outputs: str) -> str:
    """Return the outputs that answer a bet on a rung, folded until the bet."""
    return (
        f'<details class="answer" data-answer="{escape(kernel)}">'
        f"<summary>What was measured</summary>{outputs}</details>"
    )


def page_link(address: str, text: str) -> str:
    """Return a link to a page that shows more."""
    return f'<p class="more"><a href="{address}">{text} →</a></p>'


def viewed(bodies: Iterable[str]) -> list[str]:
    """Return the rungs that the access viewer shows in texts, once each."""
    kernels = dict[str, None]()
    for body in bodies:
        kernels |= dict.fromkeys(re.findall(r'data-widget="access" data-rung="(\w+)"', body))
    return [*kernels]


def script_files(*, is_live: bool) -> dict[str, bytes]:
    """Return the widgets' scripts by file name.

    is_live: whether the site's pages run kernels
    """
    files_by_name = {}
    if is_live:
        files_by_name["widget-live.js"] = _content("live", scripts.LIVE_WIDGET)
    for widget, script in scripts.WIDGETS.items():
        files_by_name[f"widget-{widget}.js"] = _content(widget, script)
    return files_by_name


def access_file(kernel: str) -> tuple[str, bytes]:
    """Return the name and the content of the file with a rung's accesses."""
    document = accesses.access(rung(kernel)).document
    content = f'worklogAccesses["{kernel}"] = "{packed({kernel: document})}";\n'
    return f"accesses-{kernel}.js", content.encode()


def _place(widget: str, content: str, **data: str) -> str:
    """Return the place of a widget.

    content: what is shown until it is loaded
    data: what reader.js reads
    """
    attributes = "".join(f' data-{name}="{escape(value)}"' for name, value in data.items())
    return f'<div class="widget {widget}-widget" data-widget="{widget}"{attributes}>{content}</div>'


def _bet_values(step: LadderStep) -> dict[str, Any]:
    """Return what show_bet.js needs of a step."""
    return {
        "ends": [LOWEST, HIGHEST],
        "question": step.question,
        "later": step.later,
        "measured": step.measured,
        "label": step.label,
    }


def _content(widget: str, script: scripts.Script) -> bytes:
    """Return the file of a widget's script, which adds the widget to worklogWidgets."""
    wrapped = f"worklogWidgets.{widget} = (() => {{\n{script.text()}\nreturn {{ show }};\n}})();\n"
    return wrapped.encode()
