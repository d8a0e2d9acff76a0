"""May this kernel be timed? A kernel that is wrong is infinitely slow, so nothing is timed before it has passed here.

`Exam` holds the questions for one shape (inputs and expected answers, made once) and puts each subject to them; the
answer is a `Verdict`. It knows only the small device interface of worklog.kernel.kernel, so the same stages run on a GPU
and on the emulator.
"""

from worklog.gate.exam import Exam
from worklog.gate.verdict import Stage, Verdict

__all__ = ["Exam", "Stage", "Verdict"]
