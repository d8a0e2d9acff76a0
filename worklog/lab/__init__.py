"""The notebook layer: panel, ladder, magics, and the notebooks' exercises.

The ladder is shown rung by rung. The panel switches each fix of the harness on and off. The pages
read runs, and start a child process for new ones. They never use CUDA themselves.
"""

from worklog.lab.exercises import check_answer
from worklog.lab.rungs import (
    climb,
    counts,
    diff,
    effect,
    register_reads,
    source,
    step,
    steps,
)
from worklog.lab.widgets import access, ladder, panel, timeline

__all__ = [
    "access", "check_answer", "climb", "counts", "diff", "effect", "ladder",
    "panel", "register_reads", "source", "step", "steps", "timeline",
]  # fmt: skip
