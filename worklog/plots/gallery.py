"""The page that shows all figures of a folder: each with its finding and, in words, what it shows.

It is Markdown, so that a repository's page for the folder is the gallery.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from worklog.errors import WorklogError

if TYPE_CHECKING:
    from worklog.plots import Drawn

BEGIN = "<!-- written by `worklog figures` and `worklog article`: the next one writes it anew -->"
TITLE = "# The figures"
ARTICLES, OTHERS = "## The article's diagrams, with this machine's numbers", "## The charts"


@dataclass(frozen=True)
class Caption:
    """headline: a figure's finding. alt: what it shows, in words."""

    headline: str
    alt: str


def gallery(drawn: Drawn) -> str:
    """The page in Markdown: the article's diagrams, then the charts."""
    diagrams = [name for name in drawn.captions if name.startswith("diagram_")]
    others = [name for name in drawn.captions if name not in diagrams]
    page = [BEGIN, TITLE]
    page += _section(ARTICLES, diagrams, drawn) + _section(OTHERS, others, drawn)
    page += [f"Not drawn: `{name}`, {why}" for name, why in drawn.missing.items()]
    return "\n\n".join(page) + "\n"


def _section(title: str, names: Iterable[str], drawn: Drawn) -> list[str]:
    figures = [_figure(name, drawn.captions[name]) for name in names]
    return [title, *figures] if figures else []


def _figure(name: str, caption: Caption) -> str:
    """Heading, picture as the reader's page is light or dark, words for those who do not see it, and the SVGs."""
    dark = f'<source media="(prefers-color-scheme: dark)" srcset="{name}_dark.png">'
    picture = f'<picture>{dark}<img src="{name}.png" width="700" alt="{escape(caption.alt)}"></picture>'
    files = f'<a href="{name}.svg">SVG</a>, <a href="{name}_dark.svg">dark</a>'
    words = f"<details><summary>In words · {files}</summary>\n\n{escape(caption.alt, False)}"
    return f"### {escape(caption.headline, False)}\n\n{picture}\n\n{words}\n\n</details>"


def write_gallery(drawn: Drawn, folder: Path) -> Path | None:
    """Write README.md into the figures' folder. None, and nothing written, where a README.md of somebody else's is
    there or nothing was drawn. Raises WorklogError where the file cannot be written.
    """
    path = folder / "README.md"
    try:
        if not drawn.captions or (path.exists() and not path.read_bytes().startswith(BEGIN.encode())):
            return None
        path.write_text(gallery(drawn), encoding="utf-8", newline="\n")
    except OSError as error:
        raise WorklogError(
            f"cannot write the gallery {path}: {error.strerror}; give another folder with --out"
        ) from error
    return path
