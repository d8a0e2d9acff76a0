"""The program that tunes the table of `best`: what it draws, what it fits, and what it records."""

from dataclasses import replace
from functools import partial

import pytest
from click.testing import CliRunner
from pytest import approx

from tests.helpers import GPU, measured, small_run
from tests.record import tune
from tests.runner.conftest import JOB
from worklog.kernel import Kernel, best
from worklog.kernel.best import table
from worklog.problem import Shape
from worklog.runner.measure import carry_out

SLOWER = {"split": 1.2, "across": 2.0, "along": 2.0}  # others: 0.9


def test_each_seed_draws_a_third_of_each_kind_up_to_8192():
    first, second = tune.drawn(41), tune.drawn(42)
    assert first == tune.drawn(41) != second and len(first) == len(second) == 48
    for shape, kind in first.items():
        sizes = (shape.m, shape.n, shape.k)
        assert all(1 <= size <= 8193 for size in sizes)
        powers = [size & (size - 1) == 0 for size in sizes]
        assert all(powers) if kind == "powers of two" else kind == "primes" or not all(powers[:1]) or 1 in sizes
    assert [*first.values()].count("primes") == 16


@pytest.fixture
def known(monkeypatch, tmp_path):
    """Times as of a GPU whose kernels differ from the table by known factors."""
    before = table()
    monkeypatch.setattr(best, "FILE", tmp_path / "best.json")
    monkeypatch.setattr(tune, "gpu", lambda: GPU)

    def timed(jobs, kernels, out, seconds):
        made = []
        for job in jobs:
            if job.kernel in ("best", "split"):
                made.append(measured(job.kernel, us=10.0, ratio=1.5))
            else:
                ways = {tune.name_of(kernel): (entry, us) for entry, us, kernel in tune.tried(job.shape, GPU)}
                entry, us = ways[job.kernel]
                us = before.launch_us + SLOWER.get(entry, 0.9) * (us - before.launch_us)
                made.append(measured(job.kernel, us=us))
            made[-1] = replace(made[-1], shape=(job.shape.m, job.shape.n, job.shape.k))
        return small_run(measurements=made)

    monkeypatch.setattr(tune, "timed", timed)
    yield before
    table.cache_clear()
    best.choose.cache_clear()


def test_the_table_follows_the_times_and_the_others_shapes_are_recorded(known, tmp_path):
    done = CliRunner().invoke(tune.main, [str(tmp_path / "run.jsonl")], catch_exceptions=False)
    assert done.exit_code == 0 and 'mode="split" at 48 shapes: geometric mean 1.500 of cuBLAS' in done.stdout
    after = table()
    assert {*after.shapes} == {*known.shapes, *tune.drawn(41)}, "so that nobody draws them for a result"
    assert after.label.endswith("on an NVIDIA H200, driver 580.159.04") and "; scaled by " in after.label
    assert after.vector_gbs == approx(known.vector_gbs / 2) and after.split_tile_us == approx(1.2 * known.split_tile_us)
    factors = {round(new.shared_us / old.shared_us, 2) for old, new in zip(known.tiles, after.tiles, strict=True)}
    assert factors <= {0.9, 1.0} and 0.9 in factors


def test_what_is_measured_on_a_virtual_gpu_becomes_points(monkeypatch, tmp_path):
    (tmp_path / "host.py").write_text(
        "from tests.exploits.arrays import xp\ndef product(alpha, A, B, beta, C):\n    xp.gemm(alpha, A, B, beta, C)\n"
    )
    host = Kernel.from_function(f"{tmp_path}/host.py:product")
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tune, "TILES", 1)
    monkeypatch.setattr(tune, "as_users", lambda kernel, name: host)
    monkeypatch.setattr(tune, "name_of", lambda kernel: "product")
    monkeypatch.setattr(tune, "carry_out", partial(carry_out, command=JOB))
    found = tune.points({Shape(64, 512, 64): "powers of two"}, GPU, tmp_path / "run.jsonl")
    assert [len(ratios) for ratios in found.values()] == [1] and (tmp_path / "run.jsonl").is_file()
