"""The source of a rung, and the lines in which two rungs differ."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from worklog.kernel import (
    rung,
)

SIGNATURE = re.compile(
    r"template <(?P<tile>[^>]*)>\s*__global__[^;{}]*?"
    r"(?P<name>sgemm_\w+)\((?P<arguments>[^)]*)\) \{\n"
)
HIDDEN = re.compile(r"^ *static_assert\(.*?\);\n", re.DOTALL | re.MULTILINE)
# Tag and background by a line's first character. The background is translucent, so that text stays
# readable on light and dark pages.
LOOKS = {"+": ("ins", "#3b93d055"), "-": ("del", "#e0702455")}


@dataclass(frozen=True, repr=False)
class CodeListing:
    """Source lines, shown as text and as HTML.

    In a diff, "+" begins an added line and "-" a removed one.
    """

    lines: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        style = "font-family:monospace;line-height:1.35;word-break:normal"
        return f'<pre style="{style}">{self.html()}</pre>'

    def html(self) -> str:
        """Return the lines without a box around them.

        <ins> and <del> tell a screen reader what changed.
        """
        html = ""
        for line in self.lines:
            tag, tint = LOOKS.get(line[:1], ("span", "transparent"))
            style = f"display:block;text-decoration:none;background:{tint}"
            html += f'<{tag} style="{style}">{escape(line)}</{tag}>'
        return html


def source(name: str, begin: str = "", limit: int | None = None) -> CodeListing:
    """Return a rung's short signature and its body.

    The body has no comments, no assertions and no final brace.
    begin: the body starts at the first line with this text (default: all of it)
    limit: at most this many lines of the body
    Raises BadSetting.
    """
    code = HIDDEN.sub("", re.sub(r"//.*", "", rung(name).source))
    signature = SIGNATURE.search(code)
    assert signature is not None  # a test checks every rung's
    tile = re.findall(r"(\w+)(?:,|$)", signature["tile"])
    arguments = re.findall(r"(\w+)(?:,|$)", signature["arguments"])
    short_signature = f"{signature['name']}<{', '.join(tile)}>({', '.join(arguments)})"
    text = code[: signature.start()] + code[signature.end() :]
    body = [line.removeprefix("  ").rstrip() for line in text.splitlines() if line.strip()][:-1]
    start = next((number for number, line in enumerate(body) if begin in line), 0)
    return CodeListing((short_signature, *body[start:][:limit]))


def diff(
    earlier: str | None, later: str, *, around: int = 0, hunks: Sequence[int] = ()
) -> CodeListing:
    """Return the lines in which two rungs differ.

    "..." stands for the lines between two changes.
    earlier: the rung to compare with; None for an empty file
    around: the unchanged lines to show above and below each change
    hunks: the changes to show below the signature, counted from 0 (default: all)
    Raises BadSetting.
    """
    earlier_lines = () if earlier is None else source(earlier).lines
    later_lines = source(later).lines
    lines = difflib.unified_diff(earlier_lines, later_lines, n=around, lineterm="")
    chosen_hunks = set(hunks)
    changes = list[str]()
    hunk = -1
    for line in list(lines)[2:]:  # without the names of the files
        is_head = line.startswith("@@")
        if is_head:
            hunk += 1
        if not chosen_hunks or hunk in chosen_hunks:
            changes.append("  ..." if is_head else line)
    if chosen_hunks:
        return CodeListing((f"  {later_lines[0]}", *changes))
    return CodeListing(tuple(changes[1:]))
