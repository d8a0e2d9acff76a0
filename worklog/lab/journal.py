"""The journal of exercises and bets: each graded answer and each bet is a line of a file.

`worklog journal` prints the first answer to each exercise, the first bet on each step of the
ladder, and what was measured.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from worklog.errors import WorklogError
from worklog.runs.sources import runs_dir
from worklog.runs.text import Table, format_signed

EMPTY = (
    "there are no predictions yet: in a notebook, `lab.bet` keeps your first bet on a step, and "
    "`lab.check_answer` your first answer to the exercise"
)
FILE = "journal.jsonl"  # beside the folder of runs


def add_to_journal(
    exercise: str, question: str, predicted: Any, measured: float | str, *, right: bool, label: str
) -> str:
    """Add an answer or a bet to the journal.

    Returns the reason if that fails, else "".
    """
    if isinstance(predicted, str) and "\n" in predicted:
        predicted = f"{len(predicted.splitlines())} lines of code"
    entry = {
        "exercise": exercise,
        "asked": question,
        "predicted": predicted,
        "measured": measured,
        "right": right,
        "label": label,
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
    }
    path = runs_dir().parent / FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(entry, default=str) + "\n")
    except OSError as error:
        return f"not kept in {path}: {error.strerror}"
    return ""


def journal() -> str:
    """Return the journal as Markdown.

    It has what was measured once an answer was right.
    Raises WorklogError for a damaged line.
    """
    rows = []
    for exercise, entries in sorted(_entries().items()):
        first = entries[0]
        row = {
            "exercise": exercise,
            "day": first["day"],
            "asked": first["asked"],
            "predicted": _four_digits(first["predicted"]),
            "measured": "not found yet",
            "gap": "–",
            "answers": str(len(entries)),
            "source": first["label"],
        }
        right = next((entry for entry in entries if entry["right"]), None)
        if right is not None:
            measured = right["measured"]
            row["measured"] = _four_digits(measured)
            if isinstance(measured, float):
                row["gap"] = format_signed(float(first["predicted"]) / measured - 1, 0)
        rows.append(row)
    table = Table.of("", rows, left=7).markdown() if rows else EMPTY
    return f"# What I predicted, and what was measured\n\n{table}\n"


def _entries() -> dict[str, list[dict[str, Any]]]:
    """Return the journal's entries by exercise. Raises WorklogError for a damaged line."""
    entries = dict[str, list[dict[str, Any]]]()
    path = runs_dir().parent / FILE
    if not path.exists():
        return entries
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise WorklogError(f"{path}: line {number} was cut short: remove it") from error
        entries.setdefault(entry["exercise"], []).append(entry)
    return entries


def _four_digits(value: Any) -> str:
    """Return a value as text, a float with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
