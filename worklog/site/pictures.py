"""The stored pictures of the notebooks as files of the site, for a light page and for a dark one.

A picture is a PNG with a palette, drawn for a light page. In its file for a dark page each colour
has its counterpart, so its background is the page's background in both. Only the palette of the
file changes: the rest is copied as it is.
"""

from __future__ import annotations

import io
import struct
import zlib
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from itertools import combinations
from typing import Any

import numpy as np
from PIL import Image

from worklog.plots.style import DARK, LIGHT
from worklog.site.pages import DARK_SCREEN

ROLES = [*LIGHT]
PALETTE = b"PLTE"  # the chunk of a PNG with its palette: its length, this, the colours, a CRC
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
        png = _with_a_palette(b64decode(encoded))
        with Image.open(io.BytesIO(png)) as picture:
            height = round(width * picture.height / picture.width)
        name = f"{self.page}-{len(self.files) // 2 + 1}"
        light = f"{name}.png"
        dark = f"{name}_dark.png"
        # A reader sees the first picture at once, so it loads while the page does.
        loading = 'loading="lazy"' if self.files else 'fetchpriority="high"'
        self.files[light] = repainted(png, LIGHT)
        self.files[dark] = repainted(png, DARK)
        return (
            f'<picture><source media="{DARK_SCREEN}" srcset="{dark}">'
            f'<img src="{light}" width="{width}" height="{height}" {loading} '
            f'alt="{escape(alt)}"></picture>'
        )


def repainted(png: bytes, palette: Mapping[str, str]) -> bytes:
    """Return a PNG with a palette, in other colours.

    palette: colours by role, as "#rrggbb"
    """
    start = png.index(PALETTE) - 4
    (length,) = struct.unpack(">I", png[start : start + 4])
    end = start + 12 + length
    colours = np.frombuffer(png[start + 8 : end - 4], np.uint8).reshape(-1, 3)
    chunk = PALETTE + np.round(recoloured(colours, palette)).astype(np.uint8).tobytes()
    checked = chunk + struct.pack(">I", zlib.crc32(chunk))
    return png[: start + 4] + checked + png[end:]


def recoloured(colours: Colours, palette: Mapping[str, str]) -> Colours:
    """Return the colours of a picture in a palette.

    A colour at an edge is a mix of two roles' colours: it becomes the same mix of their
    counterparts. In the light palette, a colour moves to the nearest such mix.
    """
    light = _rgb(LIGHT)
    target = _rgb(palette)
    nearest = np.full(len(colours), np.inf)
    result = np.empty(colours.shape)
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


def _rgb(palette: Mapping[str, str]) -> Colours:
    """Return a palette's colours in the order of the roles."""
    return np.array([[*bytes.fromhex(palette[role][1:])] for role in ROLES], float)


def _with_a_palette(png: bytes) -> bytes:
    """Return a PNG whose colours are in a palette; one that has a palette stays as it is."""
    with Image.open(io.BytesIO(png)) as picture:
        if picture.mode == "P":
            return png
        buffer = io.BytesIO()
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(buffer, "png")
    return buffer.getvalue()
