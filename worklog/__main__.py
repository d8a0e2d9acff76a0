"""`python -m worklog` is `worklog`."""

from worklog.cli import main

main()
