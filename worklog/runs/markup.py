"""What a result looks like by itself: HTML with small bars for a notebook, lines for a terminal. It takes plain values,
so that every room can show what it has.

Bars shine through, so that words on them can be read on a light page and on a dark one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

BAR = "#3b93d055"
OVER = "#e0702455"  # a bar beyond what is allowed
LEFT = "text-align:left"


def bar(words: str, share: float | None, *, over: bool = False) -> str:
    """Words on a bar as long as the share of its cell; a share beyond 1 fills it. None: no bar."""
    if share is None:
        return escape(words)
    length = 100 * min(max(share, 0.0), 1.0)
    colour = OVER if over else BAR
    return (
        f'<span style="display:block;background:linear-gradient(90deg,{colour} {length:.1f}%,transparent 0)">'
        f"{escape(words)}</span>"
    )


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells that are HTML already, the first of each row its heading. Without columns there is no head."""
    head = "".join(f'<th scope="col" style="{LEFT}">{escape(column)}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row" style="{LEFT}">{first}</th>'
        + "".join(f'<td style="{LEFT}">{cell}</td>' for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    top = f"<thead><tr>{head}</tr></thead>" if columns else ""
    named = f'<caption style="{LEFT};min-width:36em">{escape(caption)}</caption>'
    return f"<table>{named}{top}<tbody>{body}</tbody></table>"


def verdict_html(verdict: Mapping[str, Any], label: str = "") -> str:
    """A verdict as a run file holds it: every stage with how much of what it allows was used, and where C is wrong.
    label: where the kernel ran, unless what is around it says so.
    """
    rows = []
    for stage in verdict["stages"]:
        answer = "✓\u00a0passed" if stage["passed"] else "✗\u00a0refused"
        margin = bar(_margin(stage), _used(stage), over=not stage["passed"])
        rows.append((escape(stage["name"]), answer, margin, escape(stage["detail"])))
    return table(_said(verdict, label), ("stage", "", "measured of allowed", "detail"), rows)


def verdict_text(verdict: Mapping[str, Any], label: str = "") -> str:
    """The same for a terminal."""
    stages = verdict["stages"]
    names = max((len(stage["name"]) for stage in stages), default=0)
    margins = max((len(_margin(stage)) for stage in stages), default=0)
    lines = [_said(verdict, label)]
    for stage in stages:
        mark = "✓" if stage["passed"] else "✗"
        lines.append(f"  {mark} {stage['name']:{names}}  {_margin(stage):{margins}}  {stage['detail']}")
    return "\n".join(lines)


def _said(verdict: Mapping[str, Any], label: str) -> str:
    word = f"accepted as {verdict['precision']}" if verdict["accepted"] else "refused"
    return f"the gate: {word}" + (f" · {label}" if label else "")


def _margin(stage: Mapping[str, Any]) -> str:
    """What was measured, of what is allowed, in the stage's own unit; empty where nothing is."""
    return f"{stage['measured']:.4g} of {stage['limit']:.4g}" if stage["limit"] else ""


def _used(stage: Mapping[str, Any]) -> float | None:
    return stage["measured"] / stage["limit"] if stage["limit"] else None
