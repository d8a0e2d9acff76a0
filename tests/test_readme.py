"""The README's tables are rewritten between their markers and nowhere else.

Every cell of the comparison links to what backs it.
"""

import math
import re
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import WHY
from tests.helpers import compared, measured, small_run, typed
from tests.readme_commands import COMMANDS, ELSEWHERE, blocks, written_commands
from tests.record.notebooks import sources
from tests.record.readme import (
    BY,
    COLUMNS,
    WORDS,
    chapters,
    comparison_table,
    in_a_row,
    introduction,
    parts,
    pictures,
)
from worklog.cli.figures import markdown, markers, rewrite
from worklog.errors import WorklogError
from worklog.kernel import LADDER, RUNGS
from worklog.problem import Shape
from worklog.runs import Measurement, Run, Stage, Verdict, recorded_run, recordings
from worklog.runs.comparison import KNOWN, open_comparison

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
THEIRS = {
    "NVBench": "https://github.com/NVIDIA/nvbench/blob/",
    "Triton's do_bench": "https://(github.com/triton-lang/triton/blob/|triton-lang.org/)",
    "KernelBench": "https://github.com/ScalingIntelligence/KernelBench/blob/",
}


@pytest.fixture
def readme(tmp_path):
    return tmp_path / "README.md"


def test_the_table_is_put_between_its_markers_and_once_written_it_stays(readme):
    begin, end = markers("table")
    assert not rewrite(readme, "new", begin, end) and not readme.exists()
    readme.write_text(f"# Title\n{begin}\nold | numbers\n{end}\nprose · µs\n", encoding="utf-8")
    table = markdown(small_run(measurements=[measured("naive", n) for n in (256, 4096, 8192)]))
    assert "at 4096 × 4096 × 4096" in table
    for _ in range(2):
        assert rewrite(readme, table, begin, end)
        assert (
            readme.read_text(encoding="utf-8") == f"# Title\n{begin}\n{table}\n{end}\nprose · µs\n"
        )
    run = small_run(measurements=[measured("naive", n) for n in (1024, 512)])
    assert "at 1024 × 1024 × 1024" in markdown(run), "the largest size if there is no 4096"


@pytest.mark.parametrize("text", ["# No table\n", "a\n{0}\nb\n", "a\n{1}\nb\n", "{1}\n{0}\n"])
def test_without_markers_the_file_stays_and_one_marker_alone_is_an_error(text, readme):
    text = text.format(*markers("table"))
    readme.write_text(text)
    with (
        pytest.raises(WorklogError, match="only one of two markers")
        if "<" in text
        else nullcontext()
    ):
        assert not rewrite(readme, "new", *markers("table"))
    assert readme.read_text() == text


def test_the_numbers_beside_the_first_picture_are_the_runs():
    def of(name: str, share: float, rms: float, precision: str) -> Measurement:
        detail = f"class x: rms {rms} u·D (fp32 up to 80.8), largest 1"
        verdict = Verdict((Stage("precision", True, rms, 80.8, detail),), precision)
        return replace(measured(name, 4096, us=2663 / share, ratio=share), verdict=verdict)

    shares = dict.fromkeys((*(rung.name for rung in RUNGS), "cuBLAS"), 0.5) | {
        "bulk_copies": 0.95,
        "best": 1.2,
    }
    rows = [
        of(name, share, 19.0, "fp32")
        for name, share in shares.items()
        if name not in ("tf32", "split", "ragged")
    ]
    rows += [of("tf32", 4.0, 4000.0, "tf32"), of("split", 3.0, 9.5, "fp32")]
    run = small_run(measurements=rows)
    earlier = replace(run.context, created="2026-10-01")
    run.measurements = [
        replace(m, context=earlier) if m.kernel == "split" else m for m in run.measurements
    ]
    text = " ".join(f"{pictures(run)} {chapters(run)}".split())
    assert "`split` computes FP32 on tensor cores" in text and "is 3.00 times as fast" in text
    ratio, label = in_a_row("cuBLAS")
    assert ratio == 1
    assert f"3.6 times as fast ({label}). Its largest error is 0.5 times" in text
    first = " ".join(introduction(run).split())
    assert "1.20 times cuBLAS on FP32 cores" in first and "3.0 times on tensor cores" in first
    power = Run.load(recordings("settings")["h200_energy"], "recorded")
    [split] = power.select("split")
    [best] = power.select("best")
    cap = 700  # W, of an H200 by its data sheet
    assert split.watts > 0.98 * cap and split.sm_mhz < 0.9 * best.sm_mhz
    assert "`best` is 1.20 times as fast" in text, "tf32 is faster, and hasn't FP32's error"
    assert "reach 50 % (`tf32x3`) to 300 % (`split`)" in text
    assert re.findall(r"<img src=\"figures/(\w+)\.png", text) == ["ladders"]
    assert re.search(r"Source: [^;]+2026-10-01 \(`split`\); [^;]+2026-11-21 \(`best`\)", text)


def test_the_readmes_pictures_and_its_comparison_are_those_of_the_recordings(drawn_before):
    for name, part in parts().items():
        begin, end = markers(name, BY)
        assert f"{begin}\n{part}\n{end}" in README, f"out of date: {BY}"


def test_each_command_and_example_does_what_the_readme_says_without_a_gpu(
    laptop, few_shapes, tmp_path, monkeypatch
):
    """In the README's order.

    Exit code 2 and the reason where a line is marked GPU; 1 for an unwritten solution.
    """
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path / "home"))
    [first, declared] = [block for block in blocks("python") if "cupy" not in block]
    (tmp_path / "mine.py").write_text(declared, encoding="utf-8")
    lines = [
        line for block in blocks() for line in block.splitlines() if line.startswith("worklog ")
    ]
    for line in lines:
        command, _, about = line.partition("  ")
        about = about.strip()
        result = typed(*command.replace("tests/", f"{ROOT}/tests/").split()[1:])
        gpu = about.startswith("GPU")
        wrong = "once you wrote it" in about or "/wrong/" in command
        assert result.exit_code == (2 if gpu else wrong), (
            line,
            result.output,
        )
        assert not gpu or WHY in result.stderr
    introduced = " ".join(README.split())
    assert f"{len(RUNGS)} CUDA kernels" in introduced
    assert f"{len(sources())} notebooks" in introduced
    assert len(lines) > 10 and sum("GPU" in line for line in lines) == 5
    matrices = np.ones((2, 64, 64), np.float32)
    names = {"A": matrices[0], "B": matrices[1]}
    exec(first, names)
    assert (names["C"] == 64).all() and isinstance(names["run"], Run)


def test_make_article_needs_nothing_that_only_tests_do():
    """`make article` writes the README's parts in the user's environment.

    That environment lacks the extra `dev`.
    """
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = extras["optional-dependencies"]["dev"]
    names = {re.split(r"[>=<;\[ ]", word)[0].replace("-", "_") for word in wanted}
    assert {"jupytext", "nbclient", "pytest"} <= names
    # These come with JupyterLab and PyTorch's extra, too.
    lacking = names - {"nbclient", "nbformat", "packaging"}
    absent = "".join(f"sys.modules[{name!r}] = None\n" for name in sorted(lacking))
    run = subprocess.run(
        [sys.executable, "-c", f"import sys\n{absent}import tests.record.readme"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


def test_every_command_is_typed_on_a_gpu():
    typed_there = {command.written for command in COMMANDS} | ELSEWHERE
    assert written_commands() == typed_there
    assert len(blocks("python")) == 3


def test_at_256_the_fastest_rung_has_the_most_blocks_that_later_rungs_lack():
    run = recorded_run()
    text = " ".join(README.split())
    shares = {
        m.kernel: 100 * (m.ratio or 0.0)
        for m in run.select(shape=Shape.of(256))
        if m.kernel != "cuBLAS"
    }
    blocks = {rung.name: math.prod(rung.blocks(Shape.of(256))) for rung in LADDER}
    assert (
        max(shares, key=shares.__getitem__) == "shared"
        and "At 256, `shared` is the fastest of these twelve" in text
    )
    assert f"with {blocks['shared']} blocks for {run.gpu.multiprocessors} SMs" in text
    later = [*blocks.values()][[*blocks].index("shared") + 1 :]
    assert f"larger tiles, which give {min(later)} to {max(later)} blocks" in text


def test_every_cell_links_to_what_backs_it():
    for row in WORDS["row"]:
        cells = dict(zip(COLUMNS[1:], row["cells"], strict=True))
        words, test = cells.pop("worklog")
        assert words and "def test_" in (ROOT / test).read_text(encoding="utf-8")
        for peer, (theirs, link) in cells.items():
            assert theirs and re.match(THEIRS[peer], link.format(**WORDS["addresses"])), link


def test_what_was_timed_is_what_was_recorded_and_a_harness_without_a_reading_has_no_number():
    row = {"ruler": "worklog", "work": KNOWN, "of": 2, "us": 2.004, "wall_s": 0.1, "reason": None}
    lines = comparison_table(compared([row])).splitlines()
    assert (
        "| a kernel of 2 µs reads | [2.00 µs](figures/peers.png) | not timed | not timed | not "
        "timed |"
    ) in lines
    recorded = open_comparison()
    assert f"The last row: {recorded.label}." in comparison_table(recorded)
