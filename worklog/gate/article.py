"""The rule that the article and many a leaderboard use, kept to show what slips through it.

max|C - reference| / max|reference| < 0.01: one number for all of C. Rounded TF32, FP16 and BF16 inputs measure 2e-5
to 3e-3 in it and pass; so do a single wrong element, a warp's tile that lacks a term, and everything times 1.001. An
honest FP32 kernel at K = 4096 measures 3e-6, so the rule is about 3000 times too loose. It is no stage of the gate:
it stands in for the gate where somebody asks for it, and the result says so.
"""

from __future__ import annotations

import numpy as np

from worklog.gate.arena import Result
from worklog.gate.precision import PrecisionQuestion
from worklog.gate.verdict import Stage

NAME = "the article's rule"
LIMIT = 1e-2


def judge(result: Result, question: PrecisionQuestion) -> Stage:
    """The rule on the rows whose reference is known."""
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(result.c[question.rows].astype(np.float64) - question.reference).max()
    measured = float(error / np.abs(question.reference).max())
    detail = f"max|error| / max|reference| = {measured:.2g} (below {LIMIT:g}) on {len(question.rows)} rows"
    good = measured < LIMIT
    return Stage(NAME, good, measured if np.isfinite(measured) else float("inf"), LIMIT, detail)
