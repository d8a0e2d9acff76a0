"""`python -m worklog` is `worklog`."""

from worklog.cli.commands import main

main()
