"""Check your own kernel, and time it next to cuBLAS and two rungs.

Without a GPU, the kernel is checked on the emulator and has no time. The rungs' times come from the recording then.
"""

from pathlib import Path

import worklog

source = Path(__file__).with_name("mine.cu").read_text(encoding="utf-8")
trial = worklog.try_kernel(source, block="16,16", file="mine.cu", beside=["shared", "tiles_1d"])
print(trial)  # the verdict, then the table with its label
if not trial.passed:
    raise SystemExit("mine failed the gate: it has no time")
