"""`make stale` notices a change of what generated files are made from, and of the files; what the contributors' page
names is there.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import stale
from worklog.cli.commands import COMMANDS

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


def test_what_contributors_are_told_to_edit_and_to_run_is_there() -> None:
    page = (stale.ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    recipes = [line for line in page.splitlines() if line.startswith("| a")]
    assert len(recipes) == 6 and len(page.splitlines()) < 40
    for words in re.findall(r"`(.+?)`", page):
        if words.startswith("python -m "):
            _, _, module, *options = words.split()
            assert find_spec(module) is not None, words
            assert not options or {*options[1:]} <= {*stale.TARGETS, "all"}, words
        elif words.startswith("worklog "):
            assert words.split()[1] in COMMANDS, words
        elif words.startswith("make "):
            assert re.search(rf"^{words.split()[1]}:", (stale.ROOT / "Makefile").read_text(), re.MULTILINE), words
        elif "/" in words:
            assert (stale.ROOT / words).exists(), words
