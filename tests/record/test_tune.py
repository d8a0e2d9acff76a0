"""The program that tunes the table of `best`: what it draws, what it fits, and what it records."""

from dataclasses import replace
from functools import partial
from random import Random
from statistics import fmean

import pytest
from click.testing import CliRunner
from pytest import approx

from tests.helpers import GPU, measured, small_run
from tests.record import tune
from tests.runner.conftest import JOB
from worklog.kernel import Kernel
from worklog.kernel.ladder import best
from worklog.kernel.ladder.best import table
from worklog.problem import Point, Shape
from worklog.problem.drawn_shapes import drawn
from worklog.runner.execute import carry_out


def truth_of(before):
    """Return a GPU whose kernels differ from the table.

    Guesses are off by far, and so is the rate of the memory.
    """
    rng = Random(0)
    new = []
    for tile in before.tiles:
        off = 1.5 if tile.points == 0 else 1.05
        times = {name: getattr(tile, name) * off ** rng.uniform(-1, 1) for name in tune.TIMES}
        new.append(replace(tile, **times))
    slower = {
        "launch_us": 1.1 * before.launch_us,
        "read_gbs": before.read_gbs / 1.5,
        "row_bytes": 30.0,
    }
    return replace(before, tiles=tuple(new), split_tile_us=1.2 * before.split_tile_us, **slower)


@pytest.fixture
def known(monkeypatch, tmp_path):
    """Return the table, and one of the true times.

    The virtual GPU measures the true times with an error of about 3 %.
    """
    before = table()
    rng = Random(1)
    truth = truth_of(before)
    by_entry = {tune.entry_of(tile): tile for tile in truth.tiles}
    monkeypatch.setattr(best, "FILE", tmp_path / "best.json")
    monkeypatch.setattr(tune, "gpu", lambda: GPU)

    def timed(jobs, kernels, out, seconds):
        made = []
        for job in jobs:
            us = 10.0
            if job.kernel not in ("best", "split"):
                entry, _, parts = job.kernel.rpartition(" ")
                us = (
                    truth.split_us(job.shape)
                    if entry == "split"
                    else truth.us(by_entry[entry], int(parts), job.shape)
                )
                us *= rng.lognormvariate(0, 0.03)
            made.append(replace(measured(job.kernel, us=us, ratio=1.5), point=job.point))
        return small_run(measurements=made)

    monkeypatch.setattr(tune, "timed", timed)
    yield before, truth
    table.cache_clear()
    best.choose.cache_clear()


def regrets(of, truth, monkeypatch):
    """Of a table's choices at the shapes of the result, by the true times."""
    monkeypatch.setattr(best, "table", lambda: of)
    by_entry = {tune.entry_of(tile): tile for tile in truth.tiles}
    found = []
    for shape in drawn(48, 42):
        listed = [trial for trial in tune.trials(shape, GPU) if trial.entry != "split"]
        times = [truth.us(by_entry[trial.entry], trial.parts, shape) for trial in listed]
        found.append(times[0] / min(times) - 1)
    return found


def test_a_table_that_is_fitted_chooses_well_at_other_shapes(known, tmp_path, monkeypatch):
    before, truth = known
    done = CliRunner().invoke(tune.main, [str(tmp_path / "run.jsonl")], catch_exceptions=False)
    assert (
        done.exit_code == 0
        and 'mode="split" at 48 shapes: geometric mean 1.500 of cuBLAS' in done.stdout
    )
    after = table()
    assert {*after.shapes} >= {*before.shapes, *drawn(48, 41)}, (
        "so that nobody draws them for a result"
    )
    assert (
        after.label.endswith("on an NVIDIA H200, driver 580.159.04")
        and "; fitted to " in after.label
    )
    assert after.launch_us == approx(truth.launch_us, rel=0.05) and after.read_gbs == approx(
        truth.read_gbs, rel=0.1
    )
    assert all(tile.points for tile in after.tiles), "each guess is timed"
    first = regrets(before, truth, monkeypatch)
    then = regrets(after, truth, monkeypatch)
    assert fmean(then) < fmean(first) / 2 and fmean(then) < 0.02 and max(then) < 0.15, (first, then)


def test_a_table_is_fitted_again_to_what_was_timed(known, tmp_path):
    """Without a GPU: `known` answers no measurement here."""
    _, truth = known
    tiles = [tile for tile in truth.tiles if tile.kernel == "sliced" and tile.template["BM"] == 1]
    taken = [
        replace(
            measured(f"{tune.entry_of(tile)} 1", us=truth.us(tile, 1, shape)),
            point=Point.of_product(shape),
        )
        for tile in tiles
        for shape in map(Shape.of, ("1x4096x4000", "1x8192x900", "1x640x9000", "1x2000x2000"))
    ]
    small_run(measurements=taken).save(tmp_path / "trials.jsonl")
    done = CliRunner().invoke(
        tune.main, [str(tmp_path / "trials.jsonl"), "--fit"], catch_exceptions=False
    )
    assert done.exit_code == 0 and f"fitted to {len(taken)} of {len(taken)} trials" in done.stdout
    after = table()
    assert after.row_bytes / after.read_gbs == approx(truth.row_bytes / truth.read_gbs, rel=0.15)
    assert {*tmp_path.iterdir()} == {tmp_path / "trials.jsonl", tmp_path / "best.json"}


def test_few_points_move_a_measured_tile_little_and_a_guess_much():
    of = table()
    shape = Shape.of(1000)
    tile = next(tile for tile in of.tiles if tile.points)
    twice = [
        tune.Point(shape, "", 1, 2 * (of.us(tile, 1, shape) - of.launch_us) + of.launch_us, None)
    ]
    firsts = {points: replace(tile, points=points) for points in (0, 9)}
    moved = {
        points: tune.fit(of, first, first, twice).shared_us / tile.shared_us
        for points, first in firsts.items()
    }
    assert moved[0] > 1.8 and moved[9] < 1.2
    assert tune.fit(of, tile, tile, []) == tile


def test_what_is_measured_on_a_virtual_gpu_becomes_points(monkeypatch, tmp_path):
    (tmp_path / "host.py").write_text(
        "from tests.exploits.arrays import xp\ndef product(alpha, A, B, beta, C):\n    "
        "xp.gemm(alpha, A, B, beta, C)\n"
    )
    host = Kernel.from_function(f"{tmp_path}/host.py:product")
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tune, "as_users", lambda kernel, name: replace(host, name=name))
    monkeypatch.setattr(tune, "carry_out", partial(carry_out, command=JOB))
    trial = tune.trials(Shape(64, 512, 64), GPU)[0]
    run = tune.timed_trials(
        [trial, replace(trial, shape=Shape(64, 512, 32))], tmp_path / "run.jsonl"
    )
    first, second = tune.points_of(run)
    assert (first.shape, first.entry, first.parts) == (trial.shape, trial.entry, trial.parts)
    assert first.us > second.us > 0 and first.share and second.share
    assert [m.verdict is not None and m.verdict.accepted for m in run.measurements] == [
        True,
        False,
    ], "checked once"


def test_a_kernel_that_fails_is_named_and_no_point(capsys):
    failed = next(m for m in small_run().measurements if m.status == "failed")
    assert (
        tune.points_of(small_run(measurements=[failed])) == []
        and "naive at 1024: failed, " in capsys.readouterr().out
    )
