"""Starter code for a solution of a problem."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

from worklog.problem import Problem

HEADERS = {"__half": "cuda_fp16.h", "half": "cuda_fp16.h", "__nv_bfloat16": "cuda_bf16.h"}


def starters(problem: Problem, argument: str, folder: Path) -> dict[Path, str]:
    """Return starter code by file, in CUDA and Python.

    argument: the problem as on the command line
    folder: of the files
    Raises BadSetting.
    """
    declared = problem.signature
    written = [
        parameter.name for parameter in declared if parameter.pointer and not parameter.const
    ]
    needed = {HEADERS[parameter.type] for parameter in declared if parameter.type in HEADERS}
    values = {
        "ABOUT": " ".join((inspect.getdoc(problem) or "a problem").partition("\n\n")[0].split()),
        "CALLED": argument,
        "INCLUDES": "".join(f"#include <{header}>\n" for header in sorted(needed)),
        "PROBLEM": problem.name,
        "ENTRY": re.sub(r"\W", "_", problem.name) + "_kernel",
        "PASSED": ", ".join(parameter.name for parameter in declared),
        "WRITTEN": " and ".join(written or ["the output"]),
        "DECLARED": ",\n    ".join(parameter.declaration for parameter in declared),
    }
    files = {}
    for name, template in (("solution.cu", "solution.cu"), ("solution.py", "solution.py.txt")):
        text = Path(__file__).with_name(template).read_text(encoding="utf-8")
        texts = values | {"FILE": shlex.quote(str(folder / name))}
        files[folder / name] = re.sub("|".join(texts), lambda match: texts[match[0]], text)  # noqa: B023
    return files
