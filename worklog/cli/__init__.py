"""The command line: `worklog …`."""
