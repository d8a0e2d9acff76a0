"""The source lines that differ between two rungs: each rung adds one idea, and its diff shows it."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from html import escape

from worklog.kernel.ladder import rung

HIDDEN = re.compile(r"template <.*?\) \{\n|static_assert\(.*?\);\n", re.DOTALL)
# Tag and background by a line's first character; translucent, so that text stays readable on light and dark pages.
LOOKS = {"+": ("ins", "#3b93d055"), "-": ("del", "#e0702455")}


@dataclass(frozen=True, repr=False)
class Code:
    """Source lines, shown as text and as HTML. In a diff, "+" begins an added line and "-" a removed one."""

    lines: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        return f'<pre style="font-family:monospace;line-height:1.35">{self.html()}</pre>'

    def html(self) -> str:
        """The lines without a box around them; <ins> and <del> tell a screen reader what changed."""
        looks = [(*LOOKS.get(line[:1], ("span", "transparent")), escape(line)) for line in self.lines]
        return "".join(
            f'<{tag} style="display:block;text-decoration:none;background:{tint}">{line}</{tag}>'
            for tag, tint, line in looks
        )

    @property
    def counts(self) -> str:
        """ "+19 −9 lines" of a diff."""
        marks = [line[:1] for line in self.lines]
        return f"+{marks.count('+')} −{marks.count('-')} lines"


def source(name: str, *, comments: bool = False) -> Code:
    """A rung's body without comments, signature, assertions and final brace; with comments, the whole file. Raises
    UnknownRung.
    """
    text = rung(name).source
    if comments:
        return Code(tuple(text.splitlines()))
    bare = HIDDEN.sub("", re.sub(r"//.*", "", text))
    kept = [line for line in bare.splitlines() if line.strip()]
    return Code(tuple(line.removeprefix("  ").rstrip() for line in kept[:-1]))


def diff(before: str | None, after: str, *, comments: bool = False, around: int = 0) -> Code:
    """The lines in which two rungs differ, with `around` unchanged lines above and below each change; "..." stands for
    the lines in between. before: None compares with an empty file. Raises UnknownRung.
    """
    earlier = () if before is None else source(before, comments=comments).lines
    later = source(after, comments=comments).lines
    changes = list(difflib.unified_diff(earlier, later, n=around, lineterm=""))[3:]
    return Code(tuple("  ..." if line.startswith("@@") else line for line in changes))
