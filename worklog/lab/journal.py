"""What a reader predicted in the exercises, beside what was measured: each graded answer is a line of a file, and
`worklog journal` prints the first answer to each exercise as Markdown.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from worklog.errors import WorklogError
from worklog.runs import Table, runs_dir

EMPTY = "there are no predictions yet: `lab.check_answer` in a notebook keeps your first answer to its exercise"
FILE = "journal.jsonl"  # beside the folder of runs


def keep(exercise: str, asked: str, predicted: Any, measured: float | str, **more: Any) -> str:
    """Add an answer. Returns why it is not kept, "" if it is."""
    if isinstance(predicted, str) and "\n" in predicted:
        predicted = f"{len(predicted.splitlines())} lines of code"
    entry = {"exercise": exercise, "asked": asked, "predicted": predicted, "measured": measured, **more}
    path = runs_dir().parent / FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(entry | {"day": f"{datetime.now(UTC):%Y-%m-%d}"}, default=str) + "\n")
    except OSError as error:
        return f"not kept in {path}: {error.strerror}"
    return ""


def journal() -> str:
    """The page. What was measured is in it once an answer was right. Raises WorklogError for a damaged line."""
    tries, rows, path = dict[str, list[dict[str, Any]]](), [], runs_dir().parent / FILE
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else [], 1):
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise WorklogError(f"{path}: line {number} was cut short: remove it") from error
        tries.setdefault(entry["exercise"], []).append(entry)
    for exercise, entries in sorted(tries.items()):
        first, right = entries[0], next((entry for entry in entries if entry["right"]), None)
        row = {"exercise": exercise, "day": first["day"], "asked": first["asked"], "predicted": str(first["predicted"])}
        row |= {"measured": "not found yet", "gap": "–", "answers": str(len(entries)), "source": first["label"]}
        if right is not None:
            row["measured"] = str(right["measured"])
            if isinstance(right["measured"], float):
                row["measured"] = f"{right['measured']:.4g}"
                row["gap"] = f"{float(first['predicted']) / right['measured'] - 1:+.0%}"
        rows.append(row)
    return f"# What I predicted, and what came\n\n{Table.of('', rows, left=7).markdown() if rows else EMPTY}\n"
