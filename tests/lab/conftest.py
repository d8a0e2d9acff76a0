"""A page or a cell is opened on a laptop.

No GPU, an empty home, and nothing measured for an earlier cell.
"""

import pytest

from worklog.lab import trials


@pytest.fixture(autouse=True)
def opened_on_a_laptop(laptop, few_shapes, monkeypatch, tmp_path):
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path))
    monkeypatch.setattr(trials, "_ladders", {})
