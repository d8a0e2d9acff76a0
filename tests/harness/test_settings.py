"""The table of pitfalls and the frozen Harness made from it: unbiased by default, and an error names the remedy."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from worklog.errors import BadSetting
from worklog.harness import Harness
from worklog.settings import PITFALLS, RULES, SAMPLING, Pitfall, parse_settings

BY_NAME = pytest.mark.parametrize("pitfall", PITFALLS, ids=lambda g: g.setting)


@BY_NAME
def test_every_pitfall_has_one_setting_that_is_unbiased_by_default_and_can_be_biased_alone(pitfall: Pitfall) -> None:
    assert getattr(Harness(), pitfall.setting) == pitfall.unbiased
    assert pitfall.biased and pitfall.unbiased not in pitfall.biased
    for value in pitfall.biased:
        assert Harness().but(**{pitfall.setting: value}).biased() == {pitfall.setting: value}
    for value in pitfall.also:
        l2 = {"l2": "rotate"} if value == "graph" else {}
        assert Harness().but(**{pitfall.setting: value}, **l2).biased() == {}


def test_every_setting_belongs_to_one_pitfall_or_to_sampling_and_is_described() -> None:
    named = [pitfall.setting for pitfall in PITFALLS] + list(SAMPLING)
    assert named == [field.name for field in dataclasses.fields(Harness)]
    assert [g.article for g in PITFALLS] == [1, 2, 3, 4, *[None] * (len(PITFALLS) - 4)]
    assert Harness().biased() == {} and set(Harness.naive().biased()) == {pitfall.setting for pitfall in PITFALLS}
    for setting in ("warmup", "stopping"):
        for word in RULES[setting]:
            assert Harness().but(**{setting: word}).biased() == {}


def test_a_changed_harness_is_another_one_and_survives_the_way_through_a_run_file() -> None:
    unbiased = Harness()
    warm = unbiased.but(l2="warm")
    assert (unbiased.l2, warm.l2) == ("flush", "warm")
    assert warm.but(l2="flush") == unbiased
    with pytest.raises(dataclasses.FrozenInstanceError):
        unbiased.l2 = "warm"  # type: ignore[misc]
    changed = Harness.naive().but(precision=0.02)
    assert Harness(**changed.as_dict()) == changed


@BY_NAME
def test_an_unknown_value_is_answered_with_the_known_ones(pitfall: Pitfall) -> None:
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
def test_a_setting_that_cannot_be_says_why(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(BadSetting, match=says):
        Harness().but(**changes)


def test_words_of_the_command_line_become_settings() -> None:
    words = ["l2=warm", "queue=off", "gate=TRUE", "precision=0.01", "least_samples=5"]
    settings = {"l2": "warm", "queue": False, "gate": True, "precision": 0.01, "least_samples": 5}
    assert parse_settings(words) == settings
    for word in ("l2", "least_samples=2.5", "precision=small", "="):
        with pytest.raises(BadSetting, match="cannot read --set"):
            parse_settings([word])
    with pytest.raises(BadSetting, match="l2 is set twice"):
        parse_settings(["l2=warm", "queue=off", "l2=flush"])
