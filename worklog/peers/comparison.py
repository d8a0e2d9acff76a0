"""What each ruler read on the same work: the document that `worklog peers` writes, to be looked at without a GPU.

It is no run: its rows are mostly other people's readings, and each is shown as that ruler gave it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from worklog.errors import BadRunFile, NothingToDraw

KNOWN, CUBLAS = "spin", "cuBLAS"  # the two kinds of work: a kernel of known length in microseconds, a product of size N

SCHEMA = 1  # the newest that is read here

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Comparison:
    """A document of `worklog peers`. origin: "recorded" for the one that comes with the package, else "live"."""

    document: dict[str, Any] = field(repr=False)
    origin: str = "recorded"

    @property
    def label(self) -> str:
        """What must stand beside every number of it: source, device, clocks, date."""
        cut = "" if self.document.get("complete") else " · cut short"
        name = self.document["device"].get("name", "unknown GPU")
        return f"{self.origin} · {name} · clocks as found · {self.document['created'][:10]}{cut}"

    @property
    def rulers(self) -> list[str]:
        """Every ruler that was asked, in order."""
        return list(dict.fromkeys(row["ruler"] for row in self.document["rows"]))

    @property
    def reasons(self) -> dict[str, str]:
        """Why a ruler did not read a work, by ruler."""
        return {row["ruler"]: row["reason"] for row in self.document["rows"] if row["reason"]}

    def works(self, kind: str) -> list[float]:
        """The known lengths (KNOWN) or the sizes (CUBLAS) that were timed, smallest first."""
        return sorted({row["of"] for row in self.document["rows"] if row["work"] == kind})

    def us(self, kind: str, of: float) -> dict[str, float]:
        """Microseconds of one work as each ruler gave them."""
        return self._column("us", kind, of)

    def wall_s(self, kind: str, of: float) -> dict[str, float]:
        """Seconds that each ruler took for one work, where that is known."""
        return self._column("wall_s", kind, of)

    def _column(self, name: str, kind: str, of: float) -> dict[str, float]:
        rows = (row for row in self.document["rows"] if (row["work"], row["of"]) == (kind, of))
        return {row["ruler"]: row[name] for row in rows if row[name] is not None}

    def errors(self) -> dict[str, Points]:
        """(true length, reading minus it) in microseconds of each ruler that read a known length, shortest first."""
        found: dict[str, Points] = {}
        for row in self.document["rows"]:
            if row["work"] == KNOWN and row["us"] is not None:
                found.setdefault(row["ruler"], []).append((row["of"], row["us"] - row["of"]))
        return {name: sorted(points) for name, points in found.items()}


def open_comparison(path: str | Path | None = None) -> Comparison:
    """The comparison in a file that `worklog peers` wrote, or by default the recording that comes with the package.

    Raises BadRunFile for a file that is no such document or of a newer schema, NothingToDraw where the package holds
    none.
    """
    if path is not None:
        return _read(Path(path), "live")
    folder = Path(str(resources.files("worklog"))) / "recordings" / "peers"
    found = sorted(folder.glob("*.json"))
    if not found:
        raise NothingToDraw("no comparison of rulers is recorded: make one with `worklog peers` on a GPU")
    return _read(found[-1], "recorded")


def _read(path: Path, origin: str) -> Comparison:
    advice = "give a file that `worklog peers` wrote" if origin == "live" else "install gemm-worklog again"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadRunFile(f"{path} cannot be read ({error}): {advice}") from error
    if not isinstance(document, dict) or document.get("kind") != "peers":
        raise BadRunFile(f"{path} holds no comparison of rulers: {advice}")
    schema = document.get("schema")
    if type(schema) is not int or schema < 1:
        raise BadRunFile(f"{path} states no known schema: {advice}")
    if schema > SCHEMA:
        raise BadRunFile(f"{path} has schema {schema}, and this version reads {SCHEMA}: install a newer gemm-worklog")
    return Comparison(document, origin)
