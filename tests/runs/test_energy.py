"""Energy in a run: its file, tables and frames, and that runs without it stay readable."""

import math
from dataclasses import replace

import pytest
from pytest import approx

from tests.helpers import measured, small_run
from worklog.errors import BadRunFile
from worklog.runs import Energy, Run, open_run
from worklog.runs.measurement import ENERGY_LABEL, NO_ENERGY
from worklog.runs.text import format_energy

JOULES = 0.05
COARSE = "the energy counter is too coarse"
KNOWN = Energy(JOULES, us=100.0, launches=10_000, seconds=1.0, steps=50)
UNKNOWN = Energy(reason=COARSE)


def run_with_energy() -> Run:
    """Return a run in which naive has an energy, cuBLAS a reason, and `old` nothing."""
    return small_run(
        measurements=[
            replace(measured("naive"), energy=KNOWN),
            replace(measured("cuBLAS"), energy=UNKNOWN),
            measured("old"),
        ]
    )


def test_gflop_per_joule_is_the_work_over_the_energy():
    m = replace(measured("naive"), energy=KNOWN)
    assert m.joules == JOULES and m.watts == approx(500.0)
    assert m.gflop_per_joule == approx(2 * 512**3 / JOULES / 1e9)
    assert m.no_energy == ""
    assert replace(m, energy=UNKNOWN).no_energy == COARSE
    assert replace(m, energy=None).no_energy == NO_ENERGY


def test_a_run_keeps_the_energy_and_the_reason_in_its_file(tmp_path):
    path = run_with_energy().save(tmp_path / "run.jsonl")
    known, unknown, old = Run.load(path).measurements
    assert known.energy == KNOWN
    assert unknown.energy == UNKNOWN
    assert old.energy is None and '"energy"' not in path.read_text().splitlines()[-2]


def test_an_old_run_has_the_energy_of_its_work(tmp_path):
    path = small_run(measurements=[measured("naive")]).save(tmp_path / "run.jsonl")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"work":{', '"work":{"joules":0.05,"watts":500.0,'), "utf-8")
    [m] = Run.load(path).measurements
    assert m.joules == JOULES and m.watts == approx(500.0)
    assert m.energy.us == approx(100.0)
    assert m.no_energy == ""


def test_a_work_with_joules_and_without_watts_is_damaged(tmp_path):
    path = small_run(measurements=[measured("naive")]).save(tmp_path / "run.jsonl")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"work":{', '"work":{"joules":1.0,'), encoding="utf-8")
    with pytest.raises(BadRunFile, match="whole run"):
        Run.load(path)


def test_a_frame_has_nan_and_the_reason_where_there_is_no_number():
    frame = run_with_energy().frame().set_index("kernel")
    assert frame.joules["naive"] == JOULES and frame.no_energy["naive"] == ""
    for name, reason in (("cuBLAS", COARSE), ("old", NO_ENERGY)):
        for column in ("joules", "gflop_per_joule", "watts"):
            assert math.isnan(frame[column][name])
        assert frame.no_energy[name] == reason


@pytest.mark.parametrize("run", [small_run(), small_run(measurements=[])], ids=["old", "empty"])
def test_without_any_energy_a_frame_has_columns_of_nan(run):
    frame = run.frame()
    for column in ("joules", "gflop_per_joule", "watts"):
        assert frame[column].dtype == float and frame[column].isna().all()


def test_the_recorded_run_has_no_energy_and_says_so():
    frame = open_run().frame()
    assert frame.joules.isna().all() and set(frame.no_energy) == {NO_ENERGY}


def test_a_table_shows_the_energy_beside_the_time_and_what_is_in_it():
    text = run_with_energy().text(width=200)
    header, naive, cublas = text.splitlines()[2:5]
    assert header.endswith("energy  GFLOP/J")
    assert naive.endswith(f"{format_energy(JOULES)}    5.369")
    assert cublas.rstrip().endswith("–")
    assert f"{ENERGY_LABEL} (naive at 512)" in text
    assert f"energy: {COARSE} (cuBLAS at 512)" in text
    assert "energy" not in small_run().text() and "GFLOP/J" not in small_run().text()


def test_the_facts_of_a_measurement_have_the_energy_or_the_reason():
    known, unknown, old = map(repr, run_with_energy().measurements)
    assert "50.00 mJ, 5.369 GFLOP/J, 500 W, launches in a row, whole board" in known
    assert COARSE in unknown
    assert "energy" not in old


@pytest.mark.parametrize(
    ("joules", "text"),
    [(12.345, "12.35 J"), (1.0, "1.000 J"), (0.0456, "45.60 mJ"), (8.12e-4, "812.0 µJ")],
)
def test_an_energy_has_the_unit_that_suits_it(joules, text):
    assert format_energy(joules) == text
