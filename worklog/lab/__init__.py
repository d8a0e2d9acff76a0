"""The notebook layer: panel, ladder, magics, and the notebooks' exercises.

The ladder is shown rung by rung. The panel switches each fix of the harness on and off. The pages
read runs, and start a child process for new ones. They never use CUDA themselves. Their scripts
and style sheets are here, too, and also those of the access viewer.
"""

from worklog.lab.bets import bet, step
from worklog.lab.exercises import check_answer
from worklog.lab.ladder_tables import (
    counts,
    ladder_summary,
    register_reads,
    setting_effect,
    steps,
)
from worklog.lab.listings import diff, source
from worklog.lab.widgets import access, ladder, panel, timeline

__all__ = [
    "access", "bet", "check_answer", "counts", "diff", "ladder", "ladder_summary",
    "panel", "register_reads", "setting_effect", "source", "step", "steps", "timeline",
]  # fmt: skip
