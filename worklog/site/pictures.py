"""The stored pictures of the notebooks as files of the site, for a light page and for a dark one.

A picture is drawn in the light palette. In its file for a dark page each colour has its
counterpart, so its background is the page's background in both.
"""

from __future__ import annotations

import io
from base64 import b64decode
from dataclasses import dataclass, field
from html import escape
from itertools import combinations
from typing import Any

import numpy as np
from PIL import Image

from worklog.plots.style import DARK, LIGHT

METHOD = 2  # of WebP's encoder: 4 takes twice as long and saves 1 %
ROLES = [*LIGHT]
Colours = np.ndarray[Any, Any]  # a row for each colour, three columns from 0 to 255


@dataclass
class Pictures:
    """The pictures of a page."""

    page: str  # the stem of its file name
    files: dict[str, bytes] = field(default_factory=dict)

    def add(self, encoded: str, alt: str, width: int) -> str:
        """Add a PNG in base64, and return its HTML element.

        width: on the page, in pixels
        """
        with Image.open(io.BytesIO(b64decode(encoded))) as opened:
            picture = opened.convert("P") if opened.mode == "P" else opened.quantize(256)
        name = f"{self.page}-{len(self.files) // 2 + 1}"
        light = f"{name}.webp"
        dark = f"{name}_dark.webp"
        colours = np.array(picture.getpalette(), float).reshape(-1, 3)
        self.files[light] = _encoded(picture, recoloured(colours, LIGHT))
        self.files[dark] = _encoded(picture, recoloured(colours, DARK))
        height = round(width * picture.height / picture.width)
        return (
            f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
            f'<img src="{light}" width="{width}" height="{height}" loading="lazy" '
            f'alt="{escape(alt)}"></picture>'
        )


def recoloured(colours: Colours, palette: Any) -> Colours:
    """Return the colours of a picture in a palette.

    A colour at an edge is a mix of two roles' colours: it becomes the same mix of their
    counterparts. In the light palette, a colour moves to the nearest such mix.

    palette: colours by role, as "#rrggbb"
    """
    light = _rgb(LIGHT)
    target = _rgb(palette)
    nearest = np.full(len(colours), np.inf)
    result = np.empty_like(colours)
    for first, second in combinations(range(len(ROLES)), 2):
        direction = light[second] - light[first]
        shares = (colours - light[first]) @ direction / (direction @ direction)
        shares = np.clip(np.round(shares, 2), 0, 1)[:, None]
        distances = np.abs(light[first] + shares * direction - colours).sum(axis=1)
        is_nearer = distances < nearest
        mixes = target[first] + shares * (target[second] - target[first])
        nearest[is_nearer] = distances[is_nearer]
        result[is_nearer] = mixes[is_nearer]
    return result


def _rgb(palette: Any) -> Colours:
    """Return a palette's colours in the order of the roles."""
    return np.array([[*bytes.fromhex(palette[role][1:])] for role in ROLES], float)


def _encoded(picture: Image.Image, colours: Colours) -> bytes:
    """Return a picture with other colours as a lossless WebP."""
    coloured = picture.copy()
    coloured.putpalette(np.round(colours).astype(np.uint8).tobytes())
    buffer = io.BytesIO()
    coloured.convert("RGB").save(buffer, "webp", lossless=True, method=METHOD)
    return buffer.getvalue()
