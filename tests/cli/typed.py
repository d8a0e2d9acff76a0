"""`worklog …` as a person types it."""

from __future__ import annotations

from click.testing import CliRunner, Result

from worklog.cli.commands import main

WHY = "this test has no GPU"


def worklog(*words: str) -> Result:
    """Type it. An exception that is no exit would be a traceback."""
    result = CliRunner().invoke(main, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def one_line(result: Result) -> str:
    """The complaint: one line on standard error, nothing on standard output, exit code 2."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("worklog: ") and result.stderr.count("\n") == 1, result.stderr
    return result.stderr.removeprefix("worklog: ").rstrip("\n")
