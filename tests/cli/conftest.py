"""Commands are typed on a laptop: no GPU, an empty home, and a folder of its own to write to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.typed import WHY
from worklog.bench import measure as bench
from worklog.cli import doctor
from worklog.gpu import device


@pytest.fixture(autouse=True)
def laptop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without a GPU, whatever machine this is."""
    for module in (bench, device, doctor):
        monkeypatch.setattr(module, "gpu_reason", lambda: WHY)
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
