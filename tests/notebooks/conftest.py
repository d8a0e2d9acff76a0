"""The notebooks show what was recorded, also on a machine with a GPU."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKLOG_SOURCE", "recorded")
