"""JSON files of each kind that are cut, damaged or of another kind: an error names the file, the part and a remedy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from tests.damage import DAMAGES, GONE, changed, damaged
from tests.runs.test_comparison import DOCUMENT, show_comparison
from worklog.errors import BadRunFile
from worklog.peers.exploits import ExploitTable, open_exploits
from worklog.runs.comparison import open_comparison

NAN, INFINITE = float("nan"), float("inf")


def show_exploits(table: ExploitTable) -> None:
    assert table.text() and json.dumps(table.as_dict(), allow_nan=False)


@dataclass
class Kind:
    """One kind of document. show: what the commands, the notebooks and the charts do with what a file holds."""

    document: dict[str, Any]
    read: Callable[[Path], Any]
    show: Callable[[Any], None]
    advice: str

    def opened(self, content: Any, folder: Path) -> Any:
        """What a file with this content holds; the file stays as it was."""
        path = folder / "file.json"
        path.write_bytes(content := content if isinstance(content, bytes) else json.dumps(content).encode())
        try:
            return self.read(path)
        finally:
            assert path.read_bytes() == content

    def refused(self, content: Any, folder: Path) -> str:
        """The message for a file with this content, without its name and the advice."""
        with pytest.raises(BadRunFile) as caught:
            self.opened(content, folder)
        words = str(caught.value)
        assert words.startswith(str(folder / "file.json")) and "\n" not in words and caught.value.exit_code == 2
        assert words.endswith((self.advice, "install a newer gemm-worklog"))
        return words.removeprefix(str(folder)).removesuffix(self.advice)


EXPLOITS = {"schema": 2, "kind": "exploits", **asdict(replace(open_exploits(), rows=open_exploits().rows[-3:]))}
KINDS = {
    "peers": Kind(DOCUMENT, open_comparison, show_comparison, "a file that `worklog peers` wrote"),
    "exploits": Kind(EXPLOITS, open_exploits, show_exploits, "a file that `worklog exploits --out` wrote"),
}
EACH = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@EACH
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(damage=DAMAGES, data=st.data())
def test_a_damaged_one_is_an_error_or_can_be_shown(
    kind: Kind, tmp_path: Path, damage: Any, data: st.DataObject
) -> None:
    with suppress(BadRunFile):
        kind.show(kind.opened(damaged(kind.document, damage, data), tmp_path))


@EACH
def test_what_is_no_such_document_is_named(kind: Kind, tmp_path: Path) -> None:
    whole = json.dumps(kind.document).encode()
    cut = [whole[:length] for length in range(0, len(whole) - 1, 997)]
    broken = [b"not json", b"\xff\xfe\x00", b"[" * 100_000, *cut, {**kind.document, "created": NAN}, [-INFINITE]]
    for content in broken:
        assert "is not a whole JSON document: it was cut short or is another format" in kind.refused(content, tmp_path)
    for content in ([], 1, None, "schema", {"schema": 1, "kind": "other"}):
        assert "other" in kind.refused(content, tmp_path).partition(", not ")[0]
    for schema in ("1", None, True, 0, -1, 99):
        words = kind.refused({**kind.document, "schema": schema}, tmp_path)
        assert f"has schema {schema!r}" in words and ("install a newer gemm-worklog" in words) == (schema == 99)


@EACH
def test_what_is_no_file_is_not_read(kind: Kind, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    pipe = "a pipe or a device, not a file"
    reasons = {tmp_path / "none.json": "No such file", tmp_path: "directory", tmp_path / "pipe": pipe}
    for path, why in (*reasons.items(), (Path("/dev/full"), pipe)):
        with pytest.raises(BadRunFile, match=f"{why}.*{kind.advice}"):
            kind.read(path)


@pytest.mark.parametrize(
    ("kind", "place", "values"),
    [
        ("peers", "created", [GONE, 20261121, "lately"]),
        ("peers", "calibration offset_us", ["2.75"]),
        ("peers", "calibration offset_by_length_us", [{}, {"1": None}]),
        ("peers", "rows", [GONE, {}]),
        ("peers", "rows 1", ["ours"]),
        ("peers", "rows 1 us", ["1.01", True, [0] * 1000]),
        ("peers", "rows 1 converged", [1]),
        ("peers", "rows 1 of", [None, 0, GONE]),
        ("peers", "rows 1 work", ["spun"]),
        ("peers", "promises", [GONE, []]),
        ("peers", "promises wall_s 0 worklog_s", [None, 0]),
        ("peers", "promises wall_s 1 nvbench_s", [GONE]),
        ("peers", "promises aa", [GONE, None]),
        ("peers", "promises aa intervals_us", [[[[1, 2], [1, 2, 3]]]]),
        ("exploits", "rows", [GONE, []]),
        ("exploits", "rows 1 how", [GONE, 3]),
        ("exploits", "tool", [None]),
        ("exploits", "created", ["lately"]),
        ("exploits", "peers 0 mark", [1]),
    ],
)
def test_a_missing_or_wrong_part_is_named(kind: str, place: str, values: list[Any], tmp_path: Path) -> None:
    first, *path = place.split()
    named = "verdict" if "verdict" in path else place.split()[-1]
    for value in values:
        words = KINDS[kind].refused(changed(KINDS[kind].document, place, value), tmp_path)
        assert "isn't a whole document" in words and first in words and (named in words or named.isdigit()), words


def test_a_damaged_recording_is_installed_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for kind, recorded in (("peers", open_comparison), ("exploits", open_exploits)):
        folder = tmp_path / "recordings" / kind
        folder.mkdir(parents=True)
        (folder / "file.json").write_text(json.dumps(changed(KINDS[kind].document, "rows", GONE)))
        monkeypatch.setattr(resources, "files", lambda package: tmp_path)
        with pytest.raises(BadRunFile, match=r"rows.*: install gemm-worklog again"):
            recorded()
