"""Waiting for what other threads and processes do, and whether a process has gone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

WAIT_S = 30.0


def until(true: Callable[[], object], seconds: float = WAIT_S) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def gone(pid: int) -> bool:
    """Whether a process that is not a child of this one has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] == "Z"
