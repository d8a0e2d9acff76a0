"""Commands are typed on a laptop: no GPU, an empty home, and a folder of its own to write to."""

import pytest
from click.testing import Result

from tests.helpers import typed

worklog = typed


@pytest.fixture(autouse=True)
def typed_on_a_laptop(laptop, few_shapes, monkeypatch, tmp_path):
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path / "home"))


def one_line(result: Result) -> str:
    """Return the complaint: one line on standard error, no output, exit code 2."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("worklog: ") and result.stderr.count("\n") == 1, result.stderr
    return result.stderr.removeprefix("worklog: ").rstrip("\n")
