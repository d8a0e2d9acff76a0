"""A figure that shows itself in a notebook, carries a text for those who do not see it, and is saved to the same bytes every time."""

from __future__ import annotations

import base64
import io
import re
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from worklog.errors import WorklogError
from worklog.plots.style import styled


class Chart(Figure):
    """A matplotlib figure with a name (its file's stem), a headline (its finding) and an alt text. Sizes in inches."""

    def __init__(self, name: str, headline: str, alt: str, width: float, height: float) -> None:
        super().__init__(figsize=(width, height))
        FigureCanvasAgg(self)
        self.name, self.headline, self.alt = name, headline, alt

    def svg(self) -> str:
        """The figure as SVG with role, title and description, so that a screen reader says what it shows."""
        buffer = io.StringIO()
        self._save(buffer, "svg", {"Date": None, "Creator": None})
        words = (
            f'<title id="{self.name}-title">{escape(self.headline)}</title>\n'
            f' <desc id="{self.name}-desc">{escape(self.alt)}</desc>'
        )
        roles = f'role="img" aria-labelledby="{self.name}-title {self.name}-desc"'
        return re.sub(
            r"<svg ([^>]*)>", rf"<svg {roles} \1>" + "\n " + words.replace("\\", r"\\"), buffer.getvalue(), count=1
        )

    def png(self) -> bytes:
        """The figure as PNG, at twice the size of the screen, with title and description inside."""
        buffer = io.BytesIO()
        self._save(buffer, "png", {"Software": None, "Title": self.headline, "Description": self.alt})
        return buffer.getvalue()

    def _save(self, buffer: io.StringIO | io.BytesIO, kind: str, metadata: dict[str, str | None]) -> None:
        with styled():
            self.savefig(buffer, format=kind, metadata=metadata)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, str], dict[str, Any]]:
        """SVG where a notebook draws it, PNG where it does not, words where there is neither."""
        width, height = (round(100 * inches) for inches in self.get_size_inches())
        data = {
            "image/svg+xml": self.svg(),
            "image/png": base64.b64encode(self.png()).decode("ascii"),
            "text/plain": self.alt,
        }
        return data, {"image/png": {"width": width, "height": height, "alt": self.alt}}


def save(figure: Chart, path_stem: Path | str) -> list[Path]:
    """Write `<path_stem>.svg` and `<path_stem>.png` and return their paths. Raises WorklogError where they cannot be written."""
    stem = Path(path_stem)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("svg", "png")]
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        paths[0].write_text(figure.svg(), encoding="utf-8", newline="\n")
        paths[1].write_bytes(figure.png())
    except OSError as error:
        raise WorklogError(
            f"cannot write the figure {stem}: {error.strerror}; give another folder with --out"
        ) from error
    return paths
