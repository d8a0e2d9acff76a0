"""What `worklog check --sarif FILE` writes: findings with their lines, for code-scanning tools.

The format is SARIF 2.1.0 (OASIS), of which GitHub's code scanning reads this part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import worklog
from worklog.emulator.reports import Finding
from worklog.runner.check import Checked

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def log(checked: Iterable[tuple[Path, Checked]]) -> bytes:
    """Return the log of checked kernels, each with its file."""
    results = []
    for path, result_of_file in checked:
        results += _results(path, result_of_file)
    rules = [{"id": name} for name in dict.fromkeys(result["ruleId"] for result in results)]
    driver = {
        "name": "worklog",
        "version": worklog.__version__,
        "rules": rules,
    }
    run = {"tool": {"driver": driver}, "results": results}
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"


def _results(path: Path, checked: Checked) -> list[dict[str, Any]]:
    """Return the failed stages and the findings of a kernel.

    A finding that a failed stage reports stands with its line, and the stage not again.
    """
    results = [_finding_result(path, checked, finding) for finding in checked.findings]
    messages = [finding.message for finding in checked.findings if finding.is_error]
    for stage in checked.verdict.stages:
        if stage.passed or any(message in stage.detail for message in messages):
            continue
        stated_line = re.search(rf"{re.escape(checked.kernel.file)}:(\d+): ", stage.detail)
        line = int(stated_line[1]) if stated_line else 0
        text = f"{checked.kernel.function}: {stage.detail}"
        results.append(_result(path, stage.name, "error", text, line=line))
    return results


def _finding_result(path: Path, checked: Checked, finding: Finding) -> dict[str, Any]:
    """Return a finding at its line, with the line of the other access."""
    level = "error" if finding.is_error else "note"
    text = f"{checked.kernel.function}: {finding.message}"
    result = _result(path, finding.kind, level, text, line=finding.line)
    if finding.other_line:
        result["relatedLocations"] = [_location(path, finding.other_line)]
    return result


def _result(path: Path, rule: str, level: str, text: str, *, line: int = 0) -> dict[str, Any]:
    """Return a result. line: 0 if it is about the whole file."""
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": text},
        "locations": [_location(path, line)],
    }


def _location(path: Path, line: int) -> dict[str, Any]:
    """Return a place in a file, which is named relative to the working folder if it is below it."""
    absolute = path.resolve()
    folder = Path.cwd()
    is_below = absolute.is_relative_to(folder)
    uri = absolute.relative_to(folder).as_posix() if is_below else absolute.as_uri()
    place: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    if line:
        place["region"] = {"startLine": line}
    return {"physicalLocation": place}
