"""The emulator on a page: its scripts and its core, which needs no server.

Scripts are put one after the other: the last one uses the names of the files before it.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

from worklog.emulator import portable


def parts() -> dict[str, Any]:
    """Return what a page's script needs to start the emulator, as JSON.

    core: the core in WebAssembly, compressed, in base64
    layouts: of its records
    worker: the script of the worker that runs it

    Raises WorklogError if the core can't be compiled.
    """
    core = gzip.compress(portable.core_file().read_bytes(), mtime=0)
    return {
        "core": b64encode(core).decode(),
        "layouts": portable.layouts(),
        "worker": _scripts("records.js", "findings.js", "trace.js", "product.js", "core.js"),
    }


def parts_file() -> bytes:
    """Return a script that defines what a page needs to start the emulator.

    Raises WorklogError if the core can't be compiled.
    """
    return f"const emulatorParts = {json.dumps(parts())};\n".encode()


def page_script() -> str:
    """Return the script that runs the emulator on a page."""
    return _scripts("records.js", "emulator.js")


def _scripts(*names: str) -> str:
    folder = Path(__file__).parent
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)
