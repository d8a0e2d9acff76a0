"""Note which test runs which mutant.

mutants_of_code copies this file into a copy of the checkout as sitecustomize.py, so that every
Python process there has mutant_runs(), also one that a test starts. The code of the copy calls it
where a mutant would run. ran.jsonl gets a line for each pair of a test and a mutant ("" for a
test: while tests are collected).
"""

import builtins
import json
import os
from pathlib import Path

OUT = os.open(Path(__file__).with_name("ran.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
seen: set[tuple[str, int]] = set()


def mutant_runs(number: int) -> None:
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]  # without its phase
    if (test, number) not in seen:
        seen.add((test, number))
        os.write(OUT, json.dumps((test, number)).encode() + b"\n")


vars(builtins)["mutant_runs"] = mutant_runs
