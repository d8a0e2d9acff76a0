"""The README's table is rewritten between its markers, and nothing else in the file is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import measured, small_run
from worklog.errors import WorklogError
from worklog.gemm import Shape
from worklog.readme import BEGIN, END, rewrite
from worklog.tables import markdown


@pytest.fixture
def readme(tmp_path: Path) -> Path:
    return tmp_path / "README.md"


def test_the_table_is_put_between_the_markers(readme: Path) -> None:
    readme.write_text(f"# Title\n\n{BEGIN}\nold | numbers\n{END}\n\nThe rest · µs\n", encoding="utf-8")
    run = small_run(measurements=[measured("naive", n) for n in (256, 4096, 8192)])
    assert rewrite(readme, run)
    table = markdown(run, Shape.of(4096))
    assert readme.read_text(encoding="utf-8") == f"# Title\n\n{BEGIN}\n{table}\n{END}\n\nThe rest · µs\n"


def test_twice_is_once(readme: Path) -> None:
    readme.write_text(f"{BEGIN}{END}")
    rewrite(readme, small_run())
    once = readme.read_text(encoding="utf-8")
    rewrite(readme, small_run())
    assert readme.read_text(encoding="utf-8") == once


def test_without_4096_the_largest_size(readme: Path) -> None:
    readme.write_text(f"{BEGIN}\n{END}")
    rewrite(readme, small_run(measurements=[measured("naive", n) for n in (1024, 512)]))
    assert "at 1024 × 1024 × 1024" in readme.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["", "# A README without a table\n"])
def test_without_markers_the_file_stays(readme: Path, text: str) -> None:
    readme.write_text(text)
    assert not rewrite(readme, small_run())
    assert readme.read_text() == text


@pytest.mark.parametrize("text", [f"a\n{BEGIN}\nb\n", f"a\n{END}\nb\n", f"{END}\n{BEGIN}\n"])
def test_one_marker_alone_is_an_error_and_the_file_stays(readme: Path, text: str) -> None:
    readme.write_text(text)
    with pytest.raises(WorklogError, match="only one of the two table markers"):
        rewrite(readme, small_run())
    assert readme.read_text() == text


def test_without_a_file_nothing_is_made(readme: Path) -> None:
    assert not rewrite(readme, small_run())
    assert not readme.exists()


def test_a_run_without_measurements_leaves_the_table(readme: Path) -> None:
    readme.write_text(f"{BEGIN}\nold\n{END}")
    assert not rewrite(readme, small_run(measurements=[]))
    assert "old" in readme.read_text()
