"""The notebooks show what was recorded, also on a machine with a GPU."""

import pytest


@pytest.fixture(autouse=True)
def recorded(monkeypatch):
    monkeypatch.setenv("WORKLOG_SOURCE", "recorded")
