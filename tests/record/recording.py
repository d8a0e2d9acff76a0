"""What the programs of this folder share.

Clones of public repositories, and recordings of what became of kernels.
"""

import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from worklog.kernel.emulated import ARCH, label
from worklog.kernel.nvrtc import nvrtc_version

GITHUB = "https://github.com"
SOURCES = (
    "*.c",
    "*.cc",
    "*.cpp",
    "*.cu",
    "*.cuh",
    "*.h",
    "*.hh",
    "*.hpp",
    "*.inc",
    "*.inl",
    "*.py",
)


def git(*words: str) -> str:
    """Return what a git command prints. Raises CalledProcessError."""
    return subprocess.run(
        ("git", *words), check=True, capture_output=True, encoding="utf-8"
    ).stdout.strip()


def cloned(repository: str, commit: str, below: Path) -> Path:
    """Return a clone owner/name of a public repository at a commit, with its sources only.

    It is made if it is absent. Raises CalledProcessError.
    """
    clone = below / repository
    if not clone.exists():
        git(
            "clone",
            "--quiet",
            "--no-checkout",
            "--filter=blob:none",
            f"{GITHUB}/{repository}",
            str(clone),
        )
    git("-C", str(clone), "sparse-checkout", "set", "--no-cone", *SOURCES)
    git("-C", str(clone), "checkout", "--quiet", "--detach", commit)
    return clone


def document(kind: str, rows: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """Return a table of what the emulator found as a recording.

    It has the time and what made it.
    """
    made = f"{label(ARCH)} · NVRTC {'.'.join(map(str, nvrtc_version()))}"
    utc = datetime.now(UTC).isoformat(timespec="seconds")
    return {"kind": kind, "schema": 1, "utc": utc, "label": made, "rows": rows, **more}
