"""A rung's diff shows what its idea changed, and nothing else."""

from __future__ import annotations

from itertools import pairwise

import pytest

from worklog.errors import UnknownRung
from worklog.kernel.ladder import LADDER
from worklog.lab.ladder_page import diff, source

PAIRS = [(before.name, after.name) for before, after in pairwise(LADDER)]


def test_naive_and_coalesced_differ_in_two_lines() -> None:
    found = diff("naive", "coalesced")
    assert [line[0] for line in repr(found).splitlines()] == ["-", "-", "+", "+"]
    assert found.counts == "+2 −2 lines"
    assert {line[0] for line in diff(None, "naive").lines} == {"+"}, "against an empty file"
    with pytest.raises(UnknownRung, match="nave"):
        diff("nave", "coalesced")


@pytest.mark.parametrize("name", [record.name for record in LADDER])
def test_a_body_has_no_comments_no_signature_and_balanced_braces(name: str) -> None:
    text = repr(source(name))
    assert "//" not in text and "__global__" not in text and f"sgemm_{name}" not in text and "acc" in text
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize(("before", "after"), PAIRS)
@pytest.mark.parametrize("comments", [False, True])
def test_a_diff_leads_from_one_source_to_the_other(before: str, after: str, comments: bool) -> None:
    earlier, later = (list(source(name, comments=comments).lines) for name in (before, after))
    lines = diff(before, after, comments=comments, around=2).lines
    removed, added = ([line[1:] for line in lines if line.startswith(mark)] for mark in "-+")
    assert set(earlier) - set(later) <= set(removed) and set(later) - set(earlier) <= set(added)
    assert len(earlier) - len(removed) == len(later) - len(added)
    if not comments:
        assert len(diff(before, after).lines) <= 70, "short enough to read"
