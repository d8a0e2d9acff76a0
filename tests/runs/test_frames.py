"""Data frames, files and the pivot of a run, and the command that prints one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from pytest import approx

from tests.helpers import measured, small_run
from tests.helpers import typed as worklog
from worklog.plots.selection import sample_times
from worklog.problem.gemm import Shape
from worklog.runs import Estimate, Measurement, Run, ablation, recorded_run
from worklog.runs.comparison import open_comparison


def points() -> Run:
    """A benchmark with two axes, one of which is called as a column of the frame."""
    m = replace(measured("relu"), shape=None, axes={"N": 8, "us": "half"})
    m = replace(m, against={"gelu": m.first})
    hot = [replace(m.samples.sides[0], hot_us=[7.0, 8.0]), m.samples.sides[1]]
    m = replace(m, samples=replace(m.samples, sides=hot, overhead_us=3.45))
    return small_run(measurements=[m, Measurement("relu", None, "skipped", "no", axes={"N": 9, "us": "half"})])


def test_a_frame_has_the_axes_as_columns() -> None:
    frame = points().frame()
    assert list(frame[["kernel", "N", "axis us", "us"]].iloc[0]) == ["relu", 8, "half", 100.0]
    assert frame.status.to_list() == ["measured", "skipped"] and frame.columns.is_unique


def test_samples_are_tidy_and_give_the_measurements_time_again() -> None:
    run = points()
    samples, (m, _) = run.samples(), run.measurements
    assert samples.of.value_counts().to_dict() == {"kernel": 3, "baseline": 3, "hot kernel": 2}
    assert samples[samples.of == "kernel"].counts.to_list() == [True, True, False]
    assert (samples.us_read - samples.us).dropna().to_list() == approx([3.45] * 6, abs=1e-6)
    assert sample_times(m)[0] == approx([us - 3.45 for us in m.samples.sides[0].us]), "as the charts have them"
    assert set(samples.label) == {run.label} and set(samples["axis us"]) == {"half"}


def example(of: Callable[..., object]) -> Any:
    """The value of a docstring's example, of the recording."""
    words = re.sub(r"\s+", " ", of.__doc__ or "")
    return eval(re.findall(r"Example[^`]*`([^`]+)`", words)[0], {"run": recorded_run()})


def test_the_examples_in_the_docstrings_give_one_number_a_kernel_and_size() -> None:
    naive = recorded_run().select("naive", Shape.of(256))[0]
    assert example(Run.samples)["naive", 256] == approx(np.std(naive.samples.counted(), ddof=1), abs=1e-4)
    assert example(Run.frame).loc["naive", 256] == naive.us


def test_effects_and_comparisons_are_frames_with_labels() -> None:
    run = recorded_run()
    found = ablation.effects_frame(run, "warptiled")
    assert len(found) == len(ablation.effects(run, "warptiled")) and {"factor", "visible", "label"} <= {*found}
    assert set(open_comparison().frame().label) == {open_comparison().label}


def test_the_pivot_marks_the_fastest_the_slowest_and_what_cannot_be_told_apart() -> None:
    near = [replace(measured(name, us=us), time=Estimate(us, us - 1, us + 1)) for name, us in (("a", 50), ("b", 51.5))]
    run = small_run(measurements=[*near, measured("c", us=90), measured("d", us=70), measured("a", 1024, us=9)])
    table = run.pivot()
    assert table.columns == ["kernel", "512", "1024"] and "recorded" not in table.title
    shown = {row[0]: [str(cell) for cell in row[1:]] for row in table.rows}
    assert shown == {
        "a": ["+ 50.00 µs", "9.000 µs"],
        "b": ["≈ 51.50 µs", ""],
        "c": ["− 90.00 µs", ""],
        "d": ["70.00 µs", ""],
    }
    assert run.label in table.title and "one clock" in table.text()
    assert "skipped" in small_run().pivot().text() and small_run(measurements=[]).pivot().rows == ()


def test_shares_end_with_the_geometric_mean_and_the_lowest_and_name_what_has_no_time() -> None:
    run = small_run(measurements=[*small_run().measurements, measured("cuBLAS", 1024, ratio=0.25)])
    shown = {row[0]: [str(cell) for cell in row[1:]] for row in run.shares().rows}
    assert shown == {
        "512": ["100.0 µs", "50.0 % ±1.0", "50.00 µs", "100.0 % ±1.0"],
        "1024": ["failed", "", "100.0 µs", "25.0 % ±1.0"],
        "2048": ["skipped", "", "", ""],
        "geometric mean": ["", "50.0 %", "", "50.0 %"],
        "lowest": ["", "50.0 %", "", "25.0 %"],
    }
    assert "naive: failed: failed at precision" in run.shares().text()
    kinds = {Shape.of(1024): "large", Shape.of(3): "absent"}
    assert [row[:2] for row in run.shares(kinds).rows][:2] == [["1024", "large"], ["3", "absent"]]
    assert small_run(measurements=[]).shares().rows == ()


def test_show_prints_a_run_and_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = points().save(tmp_path / "run.jsonl")
    csv, tables, parquet = tmp_path / "a.csv", tmp_path / "a.md", tmp_path / "a.parquet"
    shown = worklog("show", path, "--csv", csv, "--markdown", tables)
    assert shown.exit_code == 0 and "100.0 µs" in shown.stdout and "relu" in shown.stdout
    assert pandas.read_csv(csv).kernel.to_list() == ["relu", "relu"]
    written = tables.read_text()
    assert written.startswith(points().full_label) and "| N | us | time |" in written
    assert "N=9 us=half: skipped" in written
    assert "fastest" in worklog("show", path, "--pivot").stdout
    again = worklog("show", path, "--csv", csv)
    assert again.exit_code == 2 and "exists already: give --csv another name" in again.stderr
    csv.unlink()
    worklog("show", path, "--samples", "--csv", csv)
    assert len(pandas.read_csv(csv)) == 8
    with monkeypatch.context() as patch:
        patch.setattr(pandas.DataFrame, "to_parquet", missing)
        found = worklog("show", path, "--parquet", parquet)
    assert found.exit_code == 2 and "pip install pyarrow" in found.stderr
    pytest.importorskip("pyarrow", reason="pyarrow isn't installed: pip install pyarrow")
    worklog("show", path, "--parquet", parquet)
    assert len(pandas.read_parquet(parquet)) == len(points().frame())


def missing(*_: object, **__: object) -> None:
    raise ImportError


@pytest.mark.parametrize(("command", "column"), [(("ablate", "naive"), "factor"), (("peers",), "wall_s")])
def test_every_command_that_prints_measurements_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, str], column: str
) -> None:
    monkeypatch.setenv("WORKLOG_SOURCE", "recorded")
    found = worklog(*command, "--csv", tmp_path / "a.csv", "--markdown", tmp_path / "a.md")
    assert found.exit_code == 0 and column in pandas.read_csv(tmp_path / "a.csv").columns
    head, _, columns, rule, *rows = (tmp_path / "a.md").read_text().splitlines()
    assert "recorded · NVIDIA H200" in head and f" {column} " in columns and rule.startswith("|---") and len(rows) > 10
