"""The command line: `worklog ...`."""

from worklog.cli.commands import main

__all__ = ["main"]
