"""The progress of a site that is being written."""

from __future__ import annotations

from worklog.runs.text import Progress


class Steps:
    """The steps of a site, of about a second each. A step is reported when it begins."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.progress = progress
        self.total = total
        self.finished = 0

    def begin(self, step: str) -> None:
        """Report the next step."""
        self.progress(self.finished, self.total, step)
        self.finished += 1
