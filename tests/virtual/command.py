"""`python -m tests.virtual.command …` is `worklog …` on a machine with the virtual GPU."""

import sys

import tests.exploits.arrays  # noqa: F401  (first: it chooses the virtual device where there is no GPU)
from worklog.gpu import device

if __name__ == "__main__":
    device.gpu_reason = lambda: None
    from worklog.cli import main
    from worklog.runner import child

    child.COMMAND = (sys.executable, "-m", "tests.virtual.job")
    main()
