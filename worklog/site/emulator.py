"""The emulator on a page: its worker's script and its core, which needs no server."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from typing import Any

from worklog.emulator import portable
from worklog.site import scripts


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
        "worker": scripts.WORKER.text(),
    }


def parts_file() -> bytes:
    """Return a script that defines what a page needs to start the emulator.

    Raises WorklogError if the core can't be compiled.
    """
    return f"const emulatorParts = {json.dumps(parts())};\n".encode()
