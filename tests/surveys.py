"""What the surveys of kernels share, tests.corpus and tests.mutants: options, the recorded document, and CSV files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pandas as pd

from worklog.emulator.device import ARCH, label
from worklog.kernel.nvrtc import nvrtc_version

SCHEMA = 1
OUT = click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="A CSV file with a line per result.")
RECORD = click.option(
    "--record", "recorded", type=click.Path(dir_okay=False, path_type=Path), help="The table as JSON."
)


def document(kind: str, rows: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """A table as a document, with the time and what made it."""
    made = f"{label(ARCH)} · NVRTC {'.'.join(map(str, nvrtc_version()))}"
    utc = datetime.now(UTC).isoformat(timespec="seconds")
    return {"kind": kind, "schema": SCHEMA, "utc": utc, "label": made, "rows": rows, **more}


def frame(results: Sequence[Any]) -> pd.DataFrame:
    """A row per result, a dataclass; tuples as words."""
    return pd.DataFrame(map(asdict, results)).map(lambda cell: " ".join(cell) if isinstance(cell, tuple) else cell)
