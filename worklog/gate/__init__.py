"""The gate: is this kernel right? Nothing is timed before it has passed.

`Checker` holds the problems for one shape (inputs and expected results, made once) and checks kernels on them; the
result is a `Verdict`. It knows only the device interface of the kernel room, so the same stages run on a GPU and on the
emulator.
"""

from worklog.gate.checker import Checker
from worklog.gate.verdict import Stage, Verdict

__all__ = ["Checker", "Stage", "Verdict"]
