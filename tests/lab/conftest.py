"""A page or a cell is opened on a laptop: no GPU, an empty home, and nothing measured for an earlier cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from worklog.lab import magic


@pytest.fixture(autouse=True)
def opened_on_a_laptop(laptop: None, few_shapes: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path))
    monkeypatch.setattr(magic, "_ladders", {})
