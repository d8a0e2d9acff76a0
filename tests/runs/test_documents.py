"""JSON files that are cut, damaged or of another kind: an error names the file, the part and a remedy. A comparison of
harnesses is one: opened, labelled, and read by harness.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from pytest import approx

from tests.damage import DAMAGES, GONE, changed, damaged
from tests.helpers import compared
from worklog.errors import BadRunFile
from worklog.peers.compare import text
from worklog.peers.exploits import open_exploits
from worklog.runs import Date, read_json, write_text
from worklog.runs.comparison import CUBLAS, KNOWN, open_comparison

EXPLOITS = {"schema": 2, "kind": "exploits", **asdict(replace(open_exploits(), rows=open_exploits().rows[-3:]))}
WHOLE = {"schema": 2, "kind": "rows", "created": "2026-11-21", "rows": [{"us": 1.5}], "more": None}


@dataclass
class Rows:
    """A kind of document."""

    created: Date
    rows: list[dict[str, float]]


def refused(content: Any, path: Path) -> str:
    """The message for a file with this content, which stays as it was, without its name and the advice."""
    path.write_bytes(content := content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(BadRunFile) as caught:
        read_json(path, Rows, "rows", (1, 2), "do this")
    words = str(caught.value)
    assert path.read_bytes() == content and caught.value.exit_code == 2
    assert words.startswith(str(path)) and "\n" not in words
    assert words.endswith((": do this", ": install a newer gemm-worklog"))
    return words.removeprefix(str(path)).removesuffix(": do this")


def test_what_is_no_such_document_is_named_with_the_part_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    for content in (b"not json", b"\xff\xfe\x00", b"[" * 100_000, json.dumps(WHOLE).encode()[:-9], [float("inf")]):
        assert " is not a whole JSON document: it was cut short or is another format" in refused(content, path)
    for content in ([], None, "schema", {"schema": 1, "kind": "other"}):
        assert "other" in refused(content, path).partition(", not rows")[0]
    for schema in ("1", None, True, 0, 99):
        words = refused({**WHOLE, "schema": schema}, path)
        assert f"has schema {schema!r}" in words and ("install a newer gemm-worklog" in words) == (schema == 99)
    for place, value in (("created", "lately"), ("created", GONE), ("rows", {}), ("rows 0 us", "1.5")):
        words = refused(changed(WHOLE, place, value), path)
        assert "isn't a whole document of rows" in words and place.partition(" ")[0] in words


def test_a_document_is_read_as_it_was_written_and_numpys_numbers_and_nan_can_be(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.json"
    write_text(path, WHOLE | {"rows": [{"us": np.float64(1.5)}], "more": float("nan")})
    assert read_json(path, Rows, "rows", (1, 2), "") == (WHOLE, Rows("2026-11-21", [{"us": 1.5}]))


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, why in (("none", "No such file"), ("", "directory"), ("pipe", "a pipe or a device, not a file")):
        with pytest.raises(BadRunFile, match=f"{why}.*; do this"):
            read_json(tmp_path / name, Rows, "rows", (1, 2), "do this")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(damage=DAMAGES, data=st.data())
def test_a_damaged_table_of_exploits_is_an_error_or_can_be_shown(
    tmp_path: Path, damage: Any, data: st.DataObject
) -> None:
    (tmp_path / "file.json").write_text(json.dumps(damaged(EXPLOITS, damage, data)))
    with suppress(BadRunFile):
        table = open_exploits(tmp_path / "file.json")
        assert table.text() and json.dumps(table.as_dict(), allow_nan=False)


@pytest.mark.parametrize(("kind", "recorded"), [("peers", open_comparison), ("exploits", open_exploits)])
def test_a_damaged_recording_is_installed_again(
    kind: str, recorded: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "recordings" / kind
    folder.mkdir(parents=True)
    (folder / "file.json").write_text(json.dumps({"schema": 1 if kind == "peers" else 2, "kind": kind}))
    monkeypatch.setattr(resources, "files", lambda package: tmp_path)
    with pytest.raises(BadRunFile, match=r"missing.*: install gemm-worklog again"):
        recorded()


ROWS = [
    {"ruler": "ours", "work": KNOWN, "of": 10, "us": 10.02, "wall_s": 0.1},
    {"ruler": "ours", "work": KNOWN, "of": 1, "us": 1.01, "wall_s": 0.2},
    {"ruler": "theirs", "work": KNOWN, "of": 1, "us": 4.4},
    {"ruler": "theirs", "work": CUBLAS, "of": 512, "us": 17.9, "wall_s": 2.0},
    {"ruler": "gone", "work": KNOWN, "of": 1, "us": None, "reason": "ImportError: no module"},
]


def test_a_reading_is_found_by_kind_and_length_and_its_error_is_against_the_true_length() -> None:
    comparison = compared(ROWS)
    assert comparison.harnesses == ["ours", "theirs", "gone"]
    assert (comparison.works(KNOWN), comparison.works(CUBLAS)) == ([1, 10], [512])
    assert comparison.us(KNOWN, 1) == {"ours": 1.01, "theirs": 4.4}
    assert (comparison.wall_s(CUBLAS, 512), comparison.wall_s(KNOWN, 1)) == ({"theirs": 2.0}, {"ours": 0.2})
    assert comparison.reasons == {"gone": "ImportError: no module"}
    errors = comparison.errors()
    assert errors.keys() == {"ours", "theirs"} and [length for length, _ in errors["ours"]] == [1, 10]
    assert [error for _, error in errors["ours"]] == approx([0.01, 0.02])


def test_a_comparison_is_opened_as_far_as_it_goes_and_labelled(tmp_path: Path) -> None:
    path, document = tmp_path / "peers.json", {"schema": 1, "kind": "peers", **compared(ROWS).document}
    short = document | {"complete": False, "origin": "live", "promises": {"wall_s": []}}
    for written, label in ((document, "recorded · NVIDIA H200 · clocks as found · 2026-11-21"), (short, "live · ")):
        path.write_text(json.dumps(written))
        comparison = open_comparison(path)
        assert comparison.document == written and comparison.label.startswith(label)
        assert comparison.label.endswith("cut short") is not comparison.complete and "4.40" in text(comparison)
    shipped = open_comparison()
    assert shipped.label.startswith("recorded · ") and {"worklog", "NVBench cold"} <= {*shipped.harnesses}
    path.write_text(json.dumps(document | {"rows": [{"ruler": "ours", "work": KNOWN, "of": 0}]}))
    with pytest.raises(BadRunFile, match=r"rows.*: give a file that `worklog peers` wrote"):
        open_comparison(path)
