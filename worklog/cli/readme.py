"""The README's tables, rewritten between markers from a run and from a comparison of rulers, so that no number in them
is typed by hand.
"""

from __future__ import annotations

from pathlib import Path

from worklog.cli import versus
from worklog.errors import WorklogError
from worklog.runs import report
from worklog.runs.comparison import Comparison
from worklog.runs.run import Run

BEGIN = "<!-- worklog table: rewritten by `worklog article` -->"
END = "<!-- worklog table ends -->"
VERSUS_BEGIN = "<!-- worklog comparison: rewritten by `worklog article` -->"
VERSUS_END = "<!-- worklog comparison ends -->"


def rewrite(path: Path, run: Run) -> bool:
    """Put the run's table (at 4096, else at its largest size) between its markers. False if there is no such file or
    no markers, or no measurement.

    Raises WorklogError for a file with only one of the two markers.
    """
    if not run.shapes():
        return False
    shape = next((s for s in run.shapes() if s.square and s.m == 4096), run.shapes()[-1])
    return _put(path, BEGIN, report.markdown(run, shape), END)


def rewrite_comparison(path: Path, comparison: Comparison) -> bool:
    """Put the table of what others do between its markers. Returns and raises what rewrite() does."""
    return _put(path, VERSUS_BEGIN, versus.markdown(comparison), VERSUS_END)


def _put(path: Path, begin: str, table: str, end: str) -> bool:
    if not path.is_file():
        return False
    text = path.read_text(encoding="utf-8")
    if begin not in text and end not in text:
        return False
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise WorklogError(
            f"{path} has only one of the two table markers: put {begin} before the table and {end} after it"
        )
    path.write_text(f"{before}{begin}\n{table}\n{end}{after}", encoding="utf-8")
    return True
