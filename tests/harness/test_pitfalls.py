"""The table of pitfalls and the frozen Harness made from it.

Unbiased by default, and an error names the remedy.

Pitfalls in what is timed, on a virtual session, as in a run: the number is off by what the GPU was
given. Those in how it is timed are in test_readings.py and test_loop.py.
"""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pytest import approx

from tests.harness.test_readings import CASES
from tests.virtual.arrays import Array, VirtualArrays
from tests.virtual.machine import Machine
from tests.virtual.session import PEAK_TFLOPS, QUICK, VirtualSession, measure, true_us
from worklog.errors import BadSetting
from worklog.harness import Harness
from worklog.harness.rules import salykova_replays
from worklog.problem import Shape
from worklog.runs import CUBLAS, Measurement
from worklog.runs.effects import BF16_DATASHEET_TFLOPS
from worklog.settings import PITFALLS, RULES, SAMPLING, parse_settings

BY_NAME = pytest.mark.parametrize("pitfall", PITFALLS, ids=lambda g: g.setting)


@BY_NAME
def test_every_pitfall_has_one_setting_that_is_unbiased_by_default_and_can_be_biased_alone(pitfall):
    assert getattr(Harness(), pitfall.setting) == pitfall.unbiased
    assert pitfall.biased and pitfall.unbiased not in pitfall.biased
    for value in pitfall.biased:
        assert Harness().but(**{pitfall.setting: value}).biased() == {pitfall.setting: value}
    for value in pitfall.also:
        l2 = {"l2": "rotate"} if value == "graph" else {}
        assert Harness().but(**{pitfall.setting: value}, **l2).biased() == {}


def test_every_setting_belongs_to_one_pitfall_or_to_sampling_and_is_described():
    named = [pitfall.setting for pitfall in PITFALLS] + list(SAMPLING)
    assert named == [field.name for field in dataclasses.fields(Harness)]
    assert [g.article for g in PITFALLS] == [1, 2, 3, 4, *[None] * (len(PITFALLS) - 4)]
    assert repr(Harness().but(l2="warm")) == "Harness(l2='warm')"
    assert Harness().biased() == {} and set(Harness.naive().biased()) == {
        pitfall.setting for pitfall in PITFALLS
    }
    for setting in ("warmup", "stopping"):
        for word in RULES[setting]:
            assert Harness().but(**{setting: word}).biased() == {}


def test_a_changed_harness_is_another_one_and_survives_the_way_through_a_run_file():
    unbiased = Harness()
    warm = unbiased.but(l2="warm")
    assert (unbiased.l2, warm.l2) == ("flush", "warm")
    assert warm.but(l2="flush") == unbiased
    with pytest.raises(dataclasses.FrozenInstanceError):
        unbiased.l2 = "warm"
    changed = Harness.naive().but(precision=0.02)
    assert Harness(**changed.as_dict()) == changed


@BY_NAME
def test_an_unknown_value_is_answered_with_the_known_ones(pitfall):
    with pytest.raises(BadSetting) as error:
        Harness().but(**{pitfall.setting: "sideways"})
    assert f"{pitfall.setting} = 'sideways'" in str(error.value)
    assert all(str(value) in str(error.value) for value in pitfall.values)
    for word in pitfall.values:  # behind any other word, a number would be taken for a part of it
        if isinstance(word, str) and word not in ("count", "time", "locked", "tensara"):
            with pytest.raises(BadSetting):
                Harness().but(**{pitfall.setting: f"{word}:1"})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"cache": "warm"}, "no setting 'cache': choose from clocks, timer, l2"),
        ({"queue": 1}, "queue = 1 is not a setting"),
        ({"l2": ["warm"]}, "is not a setting"),
        ({"precision": float("nan")}, "from 1e-06 to 0.999"),
        ({"precision": "0.01"}, "precision = '0.01' is of type str: give a number"),
        ({"least_samples": 0}, "at least 1"),
        ({"least_samples": 10, "most_samples": 9}, "most_samples = 9"),
        ({"least_samples": True}, "least_samples = True is of type bool: give a whole number"),
        ({"budget_s": float("inf")}, "from 1e-06 to"),
        ({"stopping": None}, "stopping = None is of type NoneType: give a word"),
        ({"warmup": "count:2.5"}, r"a whole number above 0 \(launches\)"),
        ({"warmup": "time:nan"}, r"number above 0 \(ms\)"),
        ({"warmup": "count:many"}, "'many' is not a number"),
        ({"stopping": "sometime"}, "choose from interval, count"),
        ({"stopping": "nvbench:1:2:3:4"}, r"nvbench\[:noise %\[:ms\[:least\]\]\]"),
        ({"clocks": "locked:0"}, r"a whole number above 0 \(MHz\)"),
        ({"timer": "graph"}, "set l2=rotate too"),
        ({"timer": "graph", "l2": "warm", "warmup": "none"}, "launched before"),
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_says_why(changes, says):
    with pytest.raises(BadSetting, match=says):
        Harness().but(**changes)


def test_words_of_the_command_line_become_settings():
    words = ["l2=warm", "queue=off", "gate=TRUE", "precision=0.01", "least_samples=5"]
    settings = {"l2": "warm", "queue": False, "gate": True, "precision": 0.01, "least_samples": 5}
    assert parse_settings(words) == settings
    for word in ("l2", "least_samples=2.5", "precision=small", "="):
        with pytest.raises(BadSetting, match="cannot read --set"):
            parse_settings([word])
    with pytest.raises(BadSetting, match="l2 is set twice"):
        parse_settings(["l2=warm", "queue=off", "l2=flush"])


SHAPE = Shape(96, 64, 80)
TENSOR_CORES = 4.0  # how much faster a product with short operands is here
ZEROS = 1.25  # and one of zeros, which draws less power


class Products(VirtualArrays):
    """Products whose time depends on the datapath and on the data."""

    faster = 1.0

    def _product_us(self, a: Array, b: Array) -> float:
        easy = 1.0 if a.data.any() else ZEROS
        return super()._product_us(a, b) / self.faster / easy


class Nothing(VirtualArrays):
    """A product that is never computed."""

    def gemm(
        self, alpha: float, a: Array, b: Array, beta: float, c: Array, *_: Any, **__: Any
    ) -> None:
        self._enqueue(1.0, lambda: np.float32(0) + c.data, c)


@pytest.fixture
def session():
    """cuBLAS against itself, and a TF32 one beside it."""
    made = VirtualSession(Machine(), SimpleNamespace(name="other"))
    baselines: dict[str, Any] = made.baselines
    for math, baseline in baselines.items():
        baseline.arrays = Products(made.device.machine)
        baseline.arrays.faster = TENSOR_CORES if math == "tf32" else 1.0
    return made


def measured(session: VirtualSession, **biased: Any) -> Measurement:
    return measure(session, CUBLAS, SHAPE, QUICK.but(**biased))


def unbiased_us(session: VirtualSession) -> float:
    return true_us(session.device.machine, SHAPE)


def test_another_datapath_makes_every_kernel_look_slow_by_as_much_as_it_is_faster(session):
    found = measured(session, baseline="tf32")
    assert found.ratio == approx(1 / TENSOR_CORES, rel=1e-3)
    assert found.us == approx(unbiased_us(session), rel=1e-3)
    assert "baseline: tf32" in found.degradations


def test_zeros_are_faster_by_what_the_device_gains_from_them(session):
    found = measured(session, inputs="zeros")
    assert found.us == approx(unbiased_us(session) / ZEROS, rel=1e-3)
    assert "inputs: zeros" in found.degradations
    unbiased = measured(session)
    assert unbiased.us == approx(unbiased_us(session), rel=1e-3), (
        "the checker's own inputs are restored"
    )
    assert unbiased.ratio == approx(1.0, rel=1e-3)


def test_a_rule_by_size_takes_the_square_product_of_as_much_work(session):
    found = measured(session, stopping="salykova", most_samples=2000)
    assert (
        found.samples.n
        == salykova_replays("stopping", (SHAPE.m * SHAPE.n * SHAPE.k) ** (1 / 3)) // 2
    )


def test_the_wrong_roof_hides_the_share_that_was_reached(session):
    for roof, tflops in (("fp32", PEAK_TFLOPS), ("bf16_datasheet", BF16_DATASHEET_TFLOPS)):
        found = measured(session, roof=roof)
        assert found.tflops is not None and found.of_roof == approx(found.tflops / tflops)


def test_without_the_gate_the_kernel_that_does_nothing_wins(session):
    baselines: Any = session.baselines
    baselines["fp32"].arrays = Nothing(baselines["fp32"].device.machine)
    assert measured(session).status == "failed"
    found = measured(session, gate=False)
    assert (found.status, found.us) == ("measured", approx(1.0, rel=1e-3))
    assert any(said.startswith("gate: off") for said in found.degradations)


def test_every_pitfall_has_a_test():
    table = {setting for case in CASES.values() for setting in case.changes}
    others = {
        "statistic",
        "order",
        "turns",
        "inputs",
        "gate",
        "baseline",
        "roof",
    }  # functions here and in test_loop.py
    assert {pitfall.setting for pitfall in PITFALLS} <= table | others, (
        "test what a new setting does to the number"
    )
