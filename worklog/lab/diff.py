"""What changed between two rungs: the lesson of a rung is its diff, and only that should be on the page."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from html import escape

from worklog.kernel.kernel import Program
from worklog.kernel.ladder import rung
from worklog.plots.style import DARK, LIGHT

HIDDEN = ("__global__", "template <", "static_assert")
ROLES = {"+": "accent", "-": "lie"}


@dataclass(frozen=True, repr=False)
class Code:
    """Lines that show themselves, those that begin with + and - in colour where the page has any."""

    lines: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        return f'<pre style="font-family:monospace;line-height:1.35">{"<br>".join(map(_html, self.lines))}</pre>'


def source(name: str) -> Code:
    """The body of a rung, without comments, signature, assertions and its own last brace. Raises UnknownRung."""
    bare = re.sub(r"//.*", "", Program.of(rung(name)).source)
    kept = [line for line in bare.splitlines() if line.strip() and not any(word in line for word in HIDDEN)]
    return Code(tuple(line.removeprefix("  ").rstrip() for line in kept[:-1]))


def diff(before: str, after: str) -> Code:
    """The lines in which two rungs' bodies differ; "..." stands between places that do not lie together. Raises
    UnknownRung.
    """
    changes = list(difflib.unified_diff(source(before).lines, source(after).lines, n=0, lineterm=""))[3:]
    return Code(tuple("  ..." if line.startswith("@@") else line for line in changes))


def _html(line: str) -> str:
    """In the colour that goes with the page, or where nobody knows, with a light one."""
    role = ROLES.get(line[:1])
    if role is None:
        return escape(line)
    light, dark = LIGHT[role], DARK[role]
    return f'<span style="color:{light};color:light-dark({light},{dark})">{escape(line)}</span>'
