"""The README's table, rewritten from a run between two markers, so that no number in it is typed by hand."""

from __future__ import annotations

from pathlib import Path

from worklog.errors import WorklogError
from worklog.runs import Run
from worklog.tables import markdown

BEGIN = "<!-- worklog table: rewritten by `worklog article` -->"
END = "<!-- worklog table ends -->"


def rewrite(path: Path, run: Run) -> bool:
    """Put the run's table (at 4096, else at its largest size) between the markers. False if there is no such file or
    no markers.

    Raises WorklogError for a file with only one of the two markers.
    """
    if not path.is_file() or not run.shapes():
        return False
    text = path.read_text(encoding="utf-8")
    if BEGIN not in text and END not in text:
        return False
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise WorklogError(
            f"{path} has only one of the two table markers: put {BEGIN} before the table and {END} after it"
        )
    shape = next((s for s in run.shapes() if s.square and s.m == 4096), run.shapes()[-1])
    path.write_text(f"{before}{BEGIN}\n{markdown(run, shape)}\n{END}{after}", encoding="utf-8")
    return True
