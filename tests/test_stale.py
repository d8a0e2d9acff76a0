"""`make stale` notices a change of what generated files are made from, and of the files."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests import stale

TARGET = stale.TARGETS["seeds"]


@pytest.mark.parametrize("changed", ["tests/seeds.csv", "notebooks/seeds.md"])
def test_a_change_of_the_data_or_of_the_result_makes_files_stale(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*TARGET.data, *TARGET.files):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(stale.ROOT / name, tmp_path / name)
    monkeypatch.setattr(stale, "ROOT", tmp_path)
    monkeypatch.setattr(stale, "TARGETS", {"seeds": TARGET})
    monkeypatch.setattr(stale, "MADE", tmp_path / "made.json")
    stale.MADE.write_text(json.dumps({"seeds": stale.fingerprint(TARGET)}))
    assert stale.stale() == []
    (tmp_path / changed).write_text("another")
    assert stale.stale() == ["seeds"]


def test_code_counts_and_comments_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "chart.py"
    monkeypatch.setattr(stale, "sources", lambda module: iter([path]))
    found = []
    for text in ("x = 1\n", "# why\n\nx = 1\n", "x = 2\n"):
        path.write_text(text)
        stale.code.cache_clear()
        found.append(stale.fingerprint(replace(TARGET, code=("chart",))))
    assert found[0] == found[1] != found[2]


def test_every_target_has_files_and_code_that_is_there() -> None:
    for name, target in stale.TARGETS.items():
        assert all(any(stale.ROOT.glob(pattern)) for pattern in (*target.data, *target.files)), name
        assert all(path.is_file() for module in target.code for path in stale.sources(module)), name
