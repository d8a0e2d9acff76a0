"""A page or a cell is opened on a laptop: no GPU, an empty home, and nothing measured for an earlier cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from worklog.gpu import device
from worklog.lab import choice, magic
from worklog.runner import check
from worklog.runner import measure as bench

WHY = "this test has no GPU"


@pytest.fixture(autouse=True)
def laptop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, few_shapes: None) -> None:
    """A machine without a GPU, whatever machine this is."""
    for module in (bench, check, device, choice, magic):
        monkeypatch.setattr(module, "gpu_reason", lambda: WHY)
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path))
    monkeypatch.setattr(magic, "_ladders", {})
