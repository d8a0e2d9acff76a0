"""The site is written on a laptop: no GPU, and an empty home."""

import pytest


@pytest.fixture(autouse=True)
def written_on_a_laptop(laptop, few_shapes, monkeypatch, tmp_path):
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path))
