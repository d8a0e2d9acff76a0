"""The kernels that the live viewer runs: every rung, its tiles and its mistakes, decoded ahead.

Each has a file that the page loads when it is chosen: a script, since a page that isn't from a
server can't fetch anything else.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from worklog.kernel import LADDER, Kernel
from worklog.kernel.emulated import CHIP
from worklog.kernel.ladder import FP32, TENSOR
from worklog.kernel.portable import compressed
from worklog.problem import Shape
from worklog.site.mistakes import MISTAKES, RungMistake
from worklog.viewer.accesses import default_shape
from worklog.viewer.portable import viewable

# By rung, further tiles that the live viewer offers.
TILES: dict[str, list[dict[str, int]]] = {
    "naive": [{"BM": 16, "BN": 16}],
    "coalesced": [{"BM": 16, "BN": 16}],
    "shared": [{"BM": 16, "BN": 16, "BK": 16}],
    "tiles_1d": [{"BM": 32, "BN": 32, "TM": 4}],
    "tiles_2d": [{"BM": 64, "BN": 64, "TM": 4, "TN": 4}],
    "conflict_free": [{"BM": 64, "BN": 128}],
    "double_buffered": [{"BM": 64, "BN": 64}],
    "autotuned": [{"BM": 64}, {"BN": 64}],
    "pipelined": [{"BM": 64}, {"BK": 16}],
    "register_banks": [{"BN": 64}],
    "warptiled": [{"BK": 8}],
}
SQUARES = (128, 256)  # sizes that every rung is offered at, padded to its tile
# What a size with edges lacks of whole tiles: rows and columns of C.
MISSING_ROWS = 3
MISSING_COLUMNS = 5


@dataclass(frozen=True)
class LiveKernel:
    """A kernel of the live viewer: a rung as it is, or with another tile or a mistake."""

    kernel: Kernel
    tile: str = ""  # in addresses, such as BM16-BN16
    mistake: RungMistake | None = None

    @property
    def file(self) -> str:
        """The name of the file that has the decoded kernel."""
        parts = [self.kernel.name.partition(" ")[0], self.tile]
        if self.mistake is not None:
            parts.append(self.mistake.name)
        name = "-".join(filter(None, parts)).lower()
        return f"program-{re.sub(r'[^a-z0-9]+', '-', name)}.js"

    @property
    def shapes(self) -> list[Shape]:
        """The sizes of the menu: whole tiles, two squares, and a size with edges.

        A size at which a dispatcher chooses another tile is left out: it needs another program.
        """
        small = default_shape(self.kernel)
        squares = [self.kernel.domain.padded(Shape.of(size)) for size in SQUARES]
        tile = self.kernel.at(small, CHIP).template
        shapes = []
        for shape in dict.fromkeys((small, *squares, with_edges(small))):
            if self.kernel.at(shape, CHIP).template == tile:
                shapes.append(shape)
        return shapes

    @property
    def about(self) -> str:
        """The text of the menu."""
        if self.mistake is not None:
            return self.mistake.about
        return self.tile.replace("-", " ")

    def entry(self) -> dict[str, Any]:
        """Return the variant for the page: its file, and its sizes."""
        sizes = []
        for shape in self.shapes:
            sizes.append(
                {
                    "size": "x".join(map(str, (shape.m, shape.n, shape.k))),
                    "blocks": math.prod(self.kernel.blocks(shape)),
                    "outside": shape not in self.kernel.domain,
                }
            )
        has_edges = self.mistake is not None and self.mistake.at_edges
        return {
            "name": self.mistake.name if self.mistake else self.tile,
            "about": self.about,
            "file": self.file,
            "sizes": sizes,
            "start": len(sizes) - 1 if has_edges else 0,
        }

    def content(self) -> bytes:
        """Return the file: a script that keeps the decoded kernel.

        Sizes outside of the kernel's domain are also run, to show what happens.
        """
        document = viewable(replace(self.kernel, rules="any"), self.shapes)
        packed = b64encode(compressed(document)).decode()
        return f'worklogPrograms["{self.file}"] = "{packed}";\n'.encode()


def with_edges(shape: Shape) -> Shape:
    """Return a size slightly smaller than whole tiles, with a step more along K."""
    return Shape(shape.m - MISSING_ROWS, shape.n - MISSING_COLUMNS, shape.k + 1)


def rungs() -> tuple[Kernel, ...]:
    """Return the rungs that the live viewer runs."""
    return (*LADDER, *FP32, *TENSOR)


def tiles(kernel: Kernel) -> list[LiveKernel]:
    """Return a rung as it is, and with its further tiles."""
    variants = [LiveKernel(kernel)]
    for tile in TILES.get(kernel.name, ()):
        name = "-".join(f"{parameter}{value}" for parameter, value in tile.items())
        variants.append(LiveKernel(kernel.with_tile(**tile), name))
    return variants


def broken(kernel: Kernel) -> list[LiveKernel]:
    """Return a rung with each of its mistakes.

    Raises WorklogError if an edit doesn't apply.
    """
    mistakes = [mistake for mistake in MISTAKES if mistake.rung == kernel.name]
    return [LiveKernel(mistake.kernel, mistake=mistake) for mistake in mistakes]


def catalogue(kernels: Sequence[Kernel]) -> list[dict[str, Any]]:
    """Return the menus: rungs with their tiles and mistakes, and the files of each."""
    entries = []
    for kernel in kernels:
        entries.append(
            {
                "name": kernel.name,
                "idea": kernel.idea,
                "tiles": [variant.entry() for variant in tiles(kernel)],
                "mistakes": [variant.entry() for variant in broken(kernel)],
            }
        )
    return entries


def programs(kernel: Kernel) -> dict[str, bytes]:
    """Return the files with a rung's decoded kernels."""
    return {variant.file: variant.content() for variant in (*tiles(kernel), *broken(kernel))}
