"""A verdict crosses to another process as JSON and comes back as it was."""

from __future__ import annotations

import json

from worklog.gate import Verdict
from worklog.gate.verdict import ErrorMap, Stage, passed

WHERE = ErrorMap((8, 16), 3, 128, "row 7", "columns 0 ... 2", (4, 8), ((0.0, 0.25), (1.0, 0.0)), "Only the last row.")


def test_a_verdict_comes_back_from_json_as_it_was() -> None:
    refused = Stage("exact", False, 3, 0, "wrong", WHERE, 0.25)
    for verdict in (Verdict((passed("ragged", "fine", 0.1, 2.0), refused), None), Verdict((), "fp32")):
        assert Verdict.from_dict(json.loads(json.dumps(verdict.as_dict()))) == verdict
