"""Words for a condition on M, N, K, alpha, beta, addresses and blocks, found by trying values.

The compiler may have given the condition any form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]
Truth = Callable[[Mapping[str, Values]], Values]  # of rows: the values of each variable, by name
LONGEST = 1024  # period
CHECKED = 2048  # rows
ALIGNMENT = 256  # bytes: an address is described by its place in so many, or not at all
TURNS = 3  # of ALIGNMENT bytes: they show a period
SPOKEN = {"%ctaid.x": "blockIdx.x", "%ctaid.y": "blockIdx.y"} | {
    name: f"the address of {name}" for name in "ABC"
}


def condition(
    truth: Truth,
    row: Mapping[str, Any],
    candidates: Mapping[str, Values],
    rng: np.random.Generator,
) -> str:
    """Return the condition that is true of a row, in words; "" if no variable matters.

    truth: whether the condition is true of each of some rows
    candidates: values of each variable that the condition may be about
    """
    descriptions = list[str]()
    true_values = dict[str, Values]()  # of the variables that matter, in this row
    all_values = dict[str, Values]()
    for name, drawn in candidates.items():
        values = np.unique(np.append(drawn, row[name]))
        is_true = truth(_varied(row, name, values))
        if is_true.all():
            continue
        all_values[name] = values
        true_values[name] = values[is_true]
        descriptions.append(_description(name, values, is_true))
    rows = {name: np.full(CHECKED, value) for name, value in row.items()}
    other_names = [name for name in candidates if name not in true_values]
    for name in other_names:  # a variable without effect in this row may have an effect in others
        rows[name] = rng.choice(candidates[name], CHECKED)
    expected = np.full(CHECKED, True)
    for name, chosen in true_values.items():
        rows[name] = _mostly(chosen, all_values[name], rng)
        expected &= np.isin(rows[name], chosen)
    is_true = truth(rows)
    if all(descriptions) and np.array_equal(is_true, expected):
        return " and ".join(descriptions)
    matters = set(true_values)
    for name in other_names:
        fixed = {**rows, name: np.full(CHECKED, row[name])}
        if not np.array_equal(truth(fixed), is_true):
            matters.add(name)
    variables = [SPOKEN.get(name, name) for name in candidates if name in matters]
    return f"a condition on {' and '.join(variables)}"


def _mostly(chosen: Values, values: Values, rng: np.random.Generator) -> Values:
    """Return random values of a variable, most of which are chosen values."""
    is_chosen = rng.random(CHECKED) < 0.8
    mixed = np.where(is_chosen, rng.choice(chosen, CHECKED), rng.choice(values, CHECKED))
    return np.asarray(mixed)


def _varied(row: Mapping[str, Any], name: str, values: Values) -> dict[str, Values]:
    """Return copies of a row with each of these values of one variable."""
    rows = {other: np.full(len(values), value) for other, value in row.items()}
    rows[name] = values
    return rows


def _description(name: str, values: Values, is_true: Values) -> str:
    """Return of which values of a variable a condition is true; "" if there are no simple words."""
    spoken = SPOKEN.get(name, name)
    if name not in "ABC":
        return _comparison(spoken, values, is_true) if is_true.any() else ""
    places = np.unique(values % ALIGNMENT)
    truths = [np.unique(is_true[values % ALIGNMENT == place]) for place in places]
    if any(len(values_there) > 1 for values_there in truths):  # the place doesn't decide
        return ""
    in_turns = np.concatenate([places + ALIGNMENT * turn for turn in range(TURNS)])
    is_true = np.tile(np.concatenate(truths), TURNS)
    return _comparison(spoken, in_turns, is_true) if is_true.any() else ""


def _comparison(name: str, values: Values, is_true: Values) -> str:
    """Return a comparison that is true of some of these values; "" if none is simple.

    values: of one variable, in rising order
    """
    true_values = values[is_true]
    false_values = values[~is_true]
    is_float = np.issubdtype(values.dtype, np.floating)
    first, last, least_false = (
        f"{value:.9g}" if is_float else str(value)
        for value in (true_values[0], true_values[-1], false_values[0])
    )
    if len(true_values) == 1:
        return f"{name} == {first}"
    if len(false_values) == 1:
        return f"{name} != {least_false}"
    if true_values[0] > false_values[-1]:
        return f"{name} > {false_values[-1]:.9g}" if is_float else f"{name} >= {first}"
    if true_values[-1] < false_values[0]:
        return f"{name} < {least_false}"
    if is_true[(values >= true_values[0]) & (values <= true_values[-1])].all():
        return f"{first} <= {name} <= {last}"
    return _remainder(name, values, is_true)


def _remainder(name: str, values: Values, is_true: Values) -> str:
    """Return a comparison of a remainder that is true of some of these values, or ""."""
    unit = values[1] - values[0]
    start = int(np.argmax(is_true))
    regular_count = int((values == values[0] + unit * np.arange(len(values))).sum())
    regular = is_true[start:regular_count]
    for period in range(2, min(LONGEST, len(regular) // 2) + 1):
        if not np.array_equal(regular[period:], regular[:-period]):
            continue
        if start >= period:
            return ""
        false_places = np.flatnonzero(~regular[:period])
        modulus = period * unit
        first = values[start]
        if len(false_places) == period - 1:
            return f"{name} % {modulus} == {first % modulus}"
        if len(false_places) == 1:
            return f"{name} % {modulus} != {(first + unit * false_places[0]) % modulus}"
        return ""
    return ""
