"""The corpus tool finds kernels in a folder as their authors wrote them, and counts what becomes of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.record import corpus, recording
from tests.record.public_kernels import kernels
from worklog.kernel.device import Program
from worklog.kernel.nvrtc import of_nvidia

FOLDER = Path(__file__).with_name("sources")


def test_template_arguments_are_those_of_the_first_launch_with_the_names_of_its_scope() -> None:
    (largest,) = (kernel for kernel in kernels(FOLDER) if kernel.path.stem == "tiled")
    assert largest.entry == "largest<32>" and "unrelated" not in largest.host


@pytest.mark.skipif(not of_nvidia(Program("", "#include <mma.h>", "")), reason="NVIDIA's headers are not installed")
def test_kernels_with_host_code_in_their_headers_are_compiled_checked_and_counted() -> None:
    tries = corpus.tries_of(FOLDER, [])
    rows = {kernel.entry: kernel for kernel in tries}
    assert rows["matmul"].verdict == "passed as fp32" and "M % 16 == 0" in rows["matmul"].domain
    # NVRTC compiles no launch from a kernel, so nothing else in its file either.
    assert [rows[name].apart for name in ("small", "grow", "read")] == [*["dynamic parallelism"] * 2, "textures"]
    (counts,) = corpus.record({FOLDER: tries})["rows"]
    assert [counts[name] for name in ("kernels", "textures", "device launches", "tried", "covered", "passed")] == [
        *(5, 1, 2, 2, 2, 1)
    ]


def test_a_repository_is_cloned_at_its_commit_without_its_data(tmp_path: Path) -> None:
    origin = tmp_path / "one" / "kernels"
    origin.mkdir(parents=True)
    git = ("-C", str(origin), "-c", "user.name=a", "-c", "user.email=a@b")
    recording.git(*git, "init", "-q")
    (origin / "data.bin").write_text("large", encoding="utf-8")
    for text in ("first", "second"):
        (origin / "kernel.cu").write_text(text, encoding="utf-8")
        recording.git(*git, "add", ".")
        recording.git(*git, "commit", "-q", "-m", "a kernel")
    first = recording.git(*git, "rev-parse", "HEAD~1")
    for _ in range(2):
        folder = recording.cloned("one/kernels", first, tmp_path / "clones", host=str(tmp_path))
        assert {path.name for path in folder.iterdir()} == {".git", "kernel.cu"}
        assert corpus.record({folder: []})["rows"][0]["commit"] == first
    assert (folder / "kernel.cu").read_text(encoding="utf-8") == "first"
