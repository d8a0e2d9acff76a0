"""The page that shows where each feature of the five documents is.

For each feature that this project implements, it shows what does it here and which test holds it:
`python -m tests.seeds` writes notebooks/seeds.md from tests/seeds.csv, which test_seeds.py
checks.
"""

import csv
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from worklog.runs.text import Table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "notebooks" / "seeds.md"
HEAD = """# The five documents, feature by feature

This project implements what five documents describe: an article on benchmarking a GEMM, NVBench, FlashInfer's timing by
CUDA graphs, the practices of Triton's benchmark function, and Tensara's problems. Each row names a feature, the command
or the name that does it here, and the test that holds it; or the reason why it is not here. The last table has what
users of these and other tools ask for.
"""


class Row(NamedTuple):
    """One feature.

    how: a command, or a Python name or call
    test: "file::function", below tests/; "" for a feature that is not here, whose `how` is the
        reason
    """

    document: str
    feature: str
    how: str
    test: str


with (ROOT / "tests" / "seeds.csv").open(encoding="utf-8", newline="") as lines:
    ROWS = [Row(*row) for row in list(csv.reader(lines))[1:]]


def page() -> str:
    """Return the page in Markdown."""
    parts = [HEAD]
    for document, rows in groupby(ROWS, lambda row: row.document):
        cells = []
        for row in rows:
            file, _, name = row.test.partition("::")
            held = f"[{name.removeprefix('test_').replace('_', ' ')}](../tests/{file})"
            cells.append(
                (row.feature, f"`{row.how}`", held) if row.test else (row.feature, row.how, "–")
            )
        table = Table("", ("feature", "here", "held by"), cells, left=3)
        parts.append(f"## {document}\n\n{table.markdown()}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
