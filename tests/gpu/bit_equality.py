"""Records which instruction forms, rungs and kernels give the same bits on the emulator and on this GPU.

`python -m tests.gpu.bit_equality OUT.json` on a machine with a GPU runs the tests that compare them, beside each other;
exit code 1 if one differs. The record made on an H200 is tests/emulator/bits_h200.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.ncu_counts import provenance

HERE = Path(__file__).parent
FILES = ("instructions", "tensor", "emulator", "rungs")


class Outcomes:
    """Of each test, by what it compares: the words in the brackets of its name, else its name."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, str]] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep what pytest reports, from all of its processes."""
        if report.when == "call" or report.outcome != "passed":
            name = report.nodeid.split("::", 1)[1]
            test, bracket, words = name.partition("[")
            self.found.setdefault(test, {})[words[:-1] if bracket else ""] = report.outcome


def main(out: Path) -> int:
    """Run the tests and write; 1 if one differs."""
    outcomes, files = Outcomes(), [str(HERE / f"test_gpu_{name}.py") for name in FILES]
    pytest.main(["-q", "-n", "auto", "-p", "no:benchmark", *files], plugins=[outcomes])
    about = {name: provenance()[name] for name in ("device", "arch", "driver", "nvrtc", "date")}
    every = [outcome for cases in outcomes.found.values() for outcome in cases.values()]
    counts = {outcome: every.count(outcome) for outcome in ("passed", "failed", "skipped")}
    tests = {test: dict(sorted(cases.items())) for test, cases in sorted(outcomes.found.items())}
    document = {**about, **counts, "tests": tests}
    out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{counts}; written: {out}")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.gpu.bit_equality OUT.json")
    sys.exit(main(Path(sys.argv[1])))
