"""Waiting for what other threads and processes do, and whether a process has gone."""

import time
from collections.abc import Callable

import psutil

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
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
