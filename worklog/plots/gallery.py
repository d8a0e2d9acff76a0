"""The page that shows all figures of a folder, each with its finding and its alt text.

It is Markdown named README.md, so that a repository shows it as the folder's page.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path

from worklog.errors import WorklogError
from worklog.plots.figure import Drawing

BEGIN = "<!-- written by `worklog figures` and `worklog article`"
ARTICLES, OTHERS = "## The article's diagrams, with this machine's numbers", "## The charts"


def gallery(charts: Mapping[str, Drawing], missing: Mapping[str, str]) -> str:
    """The page in Markdown: the article's diagrams, then the charts, then why others are missing."""
    diagrams = [_figure(name, chart) for name, chart in charts.items() if name.startswith("diagram_")]
    others = [_figure(name, chart) for name, chart in charts.items() if not name.startswith("diagram_")]
    page = [f"{BEGIN}, which overwrite it -->", "# The figures"]
    page += [ARTICLES, *diagrams] if diagrams else []
    page += [OTHERS, *others] if others else []
    page += [f"Not drawn: `{name}`, {why}" for name, why in missing.items()]
    return "\n\n".join(page) + "\n"


def _figure(name: str, chart: Drawing) -> str:
    """Heading, picture in the palette of the reader's page, alt text, and links to the SVGs."""
    dark = f'<source media="(prefers-color-scheme: dark)" srcset="{name}_dark.png">'
    picture = f'<picture>{dark}<img src="{name}.png" width="700" alt="{escape(chart.alt)}"></picture>'
    files = f'<a href="{name}.svg">SVG</a>, <a href="{name}_dark.svg">dark</a>'
    words = f"<details><summary>In words · {files}</summary>\n\n{escape(chart.alt, False)}"
    return f"### {escape(chart.headline, False)}\n\n{picture}\n\n{words}\n\n</details>"


def write_gallery(charts: Mapping[str, Drawing], missing: Mapping[str, str], folder: Path) -> Path | None:
    """Write README.md into the folder of the figures. None, and nothing written, if there is no chart or if a README.md
    from another source is there. Raises WorklogError where the file cannot be written.
    """
    path = folder / "README.md"
    try:
        if not charts or (path.exists() and not path.read_bytes().startswith(BEGIN.encode())):
            return None
        path.write_text(gallery(charts, missing), encoding="utf-8", newline="\n")
    except OSError as error:
        why = f"cannot write the gallery {path}: {error.strerror}"
        raise WorklogError(f"{why}; give another folder with --out") from error
    return path
