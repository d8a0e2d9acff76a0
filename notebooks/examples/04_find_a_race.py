"""Find a race without a GPU: the emulator compares the addresses that threads read and write between two barriers.

The result of a racy kernel can be right in most launches, so a comparison of results may not find it.
"""

from pathlib import Path

import worklog

source = Path(__file__).with_name("mine.cu").read_text(encoding="utf-8")
before, _, after = source.rpartition("    __syncthreads();")  # the barrier at the end of the loop
racy = f"{before}    {after.lstrip()}"
trial = worklog.try_kernel(racy, block="16,16", on="emulated", file="mine.cu")
print(trial)  # names both lines
