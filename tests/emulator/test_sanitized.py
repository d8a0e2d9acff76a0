"""Tests of the core once more, with ASan and UBSan. `make sanitized` runs all of the emulator's."""

import subprocess
import sys

import pytest

from tests.emulator import sanitized

# Calls, copies, clusters and tensor cores; then damaged kernels.
SOME = (
    "tests/emulator/test_calls.py", "tests/emulator/test_kernels.py",
    "-k", ("(test_calls and (mistakes or frames)) or writes and (bulk or clusters or warp_spec or "
          "wgmma_tf32)"),
)  # fmt: skip
COMMANDS = [
    sanitized.command(*SOME),
    (sys.executable, "-m", "tests.emulator.test_fuzz", "0", "30"),
]


def test_the_sanitizers_find_nothing_in_the_core():
    try:
        variables = sanitized.environment()
    except sanitized.NoSanitizers as error:
        pytest.skip(str(error))
    for command in COMMANDS:
        done = subprocess.run(
            command, cwd=sanitized.ROOT, env=variables, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{done.stdout[-1000:]}\n{done.stderr[:6000]}"
