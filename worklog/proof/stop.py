"""Why a proof stops."""

from __future__ import annotations

from worklog.errors import WorklogError


class ProofStopped(WorklogError):
    """The kernel has something that proofs don't model. The message names its line."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}" if line else reason)
