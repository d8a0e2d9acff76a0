"""Which test runs which lines: mutants_of_code copies this file into a copy of the checkout as sitecustomize.py, so
that every Python process there notes it, also one that a test starts. lines.json beside it has the lines of each file
that count; ran.jsonl gets a line for each pair of a test and a line of code ("" for a test: while tests are collected).
"""

import json
import os
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

FOLDER = Path(__file__).parent
LINES = {str(FOLDER / path): {*lines} for path, lines in json.loads((FOLDER / "lines.json").read_bytes()).items()}
OUT = os.open(FOLDER / "ran.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
seen: set[tuple[str, str, int]] = set()
functions: dict[int, tuple[CodeType, bool]] = {}  # by id, as the hash of code is slow; has it any such line


def called(frame: FrameType, event: str, _: object) -> Any:
    code = frame.f_code
    if (lines := LINES.get(code.co_filename)) is None:
        return None
    if id(code) not in functions:
        functions[id(code)] = code, any(line in lines for *_, line in code.co_lines())
    return reached if functions[id(code)][1] else None


def reached(frame: FrameType, event: str, _: object) -> Any:
    path = frame.f_code.co_filename
    if event == "line" and frame.f_lineno in LINES[path]:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]  # without its phase
        if (pair := (test, path, frame.f_lineno)) not in seen:
            seen.add(pair)
            row = test, str(Path(path).relative_to(FOLDER)), frame.f_lineno
            os.write(OUT, json.dumps(row).encode() + b"\n")
    return reached


threading.settrace(called)
sys.settrace(called)
