"""Each example is short, uses public names only, runs without a GPU, and labels its numbers."""

import json
import re
import runpy
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

import worklog
from tests.helpers import typed

FOLDER = Path(__file__).parents[2] / "notebooks" / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_is_short_and_uses_public_names(path):
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= 30
    assert re.findall(r"^(?:from|import) worklog\S*", source, re.MULTILINE) == ["import worklog"]
    rooms = {"plots": worklog.plots.__all__}
    for name, inner in re.findall(r"\bworklog\.(\w+)(?:\.(\w+))?", source):
        assert name in dir(worklog) or inner in rooms[name], f"worklog.{name}"


@pytest.mark.parametrize(
    ("name", "said", "shown"),
    [
        ("01_time_a_rung", "", r"vectorized +fp32 ok(.|\n)*recorded · NVIDIA H200"),
        (
            "02_your_kernel",
            "",
            r"emulated · sm_90 PTX(.|\n)*recorded · NVIDIA H200(.|\n)*mine +skipped",
        ),
        ("03_torch_function", "needs a GPU: no GPU to measure on", ""),
        ("10_torch_compile", "needs a GPU: no GPU to measure on", ""),
        (
            "04_find_a_race",
            "",
            r"shared-race: .*reads \(line 12\) .*writes \(line 9\)(.|\n)*emulated · sm_90 PTX",
        ),
        (
            "08_sgemm",
            "",
            (
                r"any shape: up to \S+e-0[56] off, emulated(.|\n)*split: +up to \S+e-0[56] off, "
                r"emulated"
            ),
        ),
        ("05_draw_a_ladder", "", r"ladder\.svg(.|\n)*TFLOP/s(.|\n)*recorded · NVIDIA H200"),
    ],
)
def test_it_runs_without_a_gpu(name, said, shown, tmp_path, monkeypatch, capsys):
    """said: what it exits with."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name])
    with pytest.raises(SystemExit, match=said) if said else nullcontext():
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    assert re.search(shown, capsys.readouterr().out)
    assert {path.suffix for path in tmp_path.iterdir()} == (
        {".svg", ".png"} if "draw" in name else set()
    )


def test_attention_has_24_shapes_of_each_benchmark():
    listed = typed("bench", str(FOLDER / "11_attention.py"), "--list", "--json")
    assert {name: len(points) for name, points in json.loads(listed.stdout).items()} == {
        "sgemm": 24,
        "bmm": 24,
    }


def test_declared_benchmarks_are_listed_without_a_gpu():
    listed, found = (
        typed("bench", str(FOLDER / "06_benchmarks.py"), "--list", *more)
        for more in ([], ["--json"])
    )
    assert all(
        name in listed.stdout and points for name, points in json.loads(found.stdout).items()
    )
    assert (
        "matmul: 5 N x 2 dtype = 10 points" in listed.stdout
        and "softmax: 1 rows x 7 columns" in listed.stdout
    )
