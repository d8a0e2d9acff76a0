"""Starter code for a problem, from its signature: CUDA source that compiles, and a Python function."""

from __future__ import annotations

import inspect
import re
import shlex
import textwrap
from pathlib import Path

from worklog.problem import Problem

STARTERS = {
    name: Path(__file__).with_name(file)
    for name, file in (("solution.cu", "solution.cu"), ("solution.py", "solution.py.txt"))
}
HEADERS = {"__half": "cuda_fp16.h", "half": "cuda_fp16.h", "__nv_bfloat16": "cuda_bf16.h"}
WIDTH, KEPT = 98, "\0"  # of starter code: columns, and a space at which a line isn't broken


def starters(problem: Problem, called: str, folder: Path) -> dict[Path, str]:
    """Starter code for a problem, by file: CUDA source that compiles, and a Python function. called: the problem as the
    command line names it, with its dtype. Raises BadProblem for a signature that isn't known.
    """
    declared = problem.signature
    written = [one.name for one in declared if one.pointer and not one.const] or ["the output"]
    needed = {HEADERS[one.type] for one in declared if one.type in HEADERS}
    values = {
        "ABOUT": " ".join((inspect.getdoc(problem) or "a problem").partition("\n\n")[0].split()),
        "CALLED": called,
        "INCLUDES": "".join(f"#include <{header}>\n" for header in sorted(needed)),
        "PROBLEM": problem.name,
        "ENTRY": re.sub(r"\W", "_", problem.name) + "_kernel",
        "PASSED": ", ".join(one.name for one in declared),
        "WRITTEN": " and ".join(written),
        "DECLARED": ", ".join(one.declaration.replace(" ", KEPT) for one in declared),
    }
    found = {}
    for name, template in STARTERS.items():
        text, of_file = template.read_text(encoding="utf-8"), values | {"FILE": shlex.quote(str(folder / name))}
        filled = "".join(of_file.get(word, word) for word in re.split(rf"({'|'.join(of_file)})", text))
        found[folder / name] = "".join(map(_wrapped, filled.splitlines(keepends=True)))
    return found


def _wrapped(line: str) -> str:
    """A line of starter code in the width of a page: text and parameters go on in the next one."""
    if len(line) <= WIDTH:
        return line.replace(KEPT, " ")
    opened = 0 if line.startswith(("//", '"')) else line.find("(") + 1
    indent = "// " if line.startswith("//") else " " * (opened or len(line) - len(line.lstrip()))
    kept = line.rstrip().replace(") {", f"){KEPT}{{")
    return textwrap.fill(kept, WIDTH, subsequent_indent=indent, break_on_hyphens=False).replace(KEPT, " ") + "\n"
