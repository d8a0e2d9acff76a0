"""A figure that shows itself in a notebook, says in words what it shows, and is always saved to the same bytes.

Matplotlib writes dates, versions and random ids into its files, and no words for those who do not see; that is put
right here.
"""

from __future__ import annotations

import base64
import io
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo

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
        title = f'<title id="{self.name}-title">{escape(self.headline)}</title>'
        description = f'<desc id="{self.name}-desc">{escape(self.alt)}</desc>'
        roles = f'role="img" aria-labelledby="{self.name}-title {self.name}-desc"'
        before, opening, after = buffer.getvalue().partition("<svg ")
        attributes, end, drawing = after.partition(">")
        return f"{before}{opening}{roles} {attributes}{end}\n {title}\n {description}{drawing}"

    def png(self) -> bytes:
        """The figure as PNG, twice as large as on screen, with title and description inside.

        256 colours are a third of the bytes; the surfaces keep theirs, and only edges of letters move to the nearest.
        """
        drawn, small = io.BytesIO(), io.BytesIO()
        self._save(drawn, "png", {"Software": None}, pil_kwargs={"compress_level": 1})  # read again at once
        words = PngInfo()
        words.add_text("Title", self.headline)
        words.add_text("Description", self.alt)
        with Image.open(drawn) as image:
            few_colours(image).save(small, "png", optimize=True, pnginfo=words, dpi=image.info["dpi"])
        return small.getvalue()

    def _save(self, buffer: io.StringIO | io.BytesIO, kind: str, metadata: dict[str, str | None], **how: Any) -> None:
        with styled():
            self.savefig(buffer, format=kind, metadata=metadata, **how)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, str], dict[str, Any]]:
        """PNG, twice as large as on screen, and words. An SVG beside it would double what a notebook stores."""
        width, height = (round(100 * inches) for inches in self.get_size_inches())
        data = {"image/png": base64.b64encode(self.png()).decode("ascii"), "text/plain": self.alt}
        return data, {"image/png": {"width": width, "height": height, "alt": self.alt}}


def few_colours(image: Image.Image, most: int = 256) -> Image.Image:
    """The image in its most frequent colours, which stay as they are; each rarer one becomes the nearest of them."""
    pixels = np.asarray(image.convert("RGB"), dtype=np.int64)
    codes, where, counts = np.unique(pixels @ (65536, 256, 1), return_inverse=True, return_counts=True)
    colours = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=1)
    kept = colours[np.argsort(-counts, kind="stable")[:most]]
    nearest = np.square(colours[:, None, :] - kept[None, :, :]).sum(axis=2).argmin(axis=1).astype(np.uint8)
    indexed = Image.fromarray(nearest[where].reshape(pixels.shape[:2]))
    indexed.putpalette(kept.astype(np.uint8).tobytes())
    return indexed


def save(figure: Chart, path_stem: Path | str) -> list[Path]:
    """Write `<path_stem>.svg` and `<path_stem>.png`; return their paths. Raises WorklogError if it cannot."""
    stem = Path(path_stem)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("svg", "png")]
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        paths[0].write_text(figure.svg(), encoding="utf-8", newline="\n")
        paths[1].write_bytes(figure.png())
    except OSError as error:
        what = f"cannot write the figure {stem}: {error.strerror}"
        raise WorklogError(f"{what}; give another folder with --out") from error
    return paths
