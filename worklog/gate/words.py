"""A condition on M, N, K, alpha, beta, addresses and blocks in words, found by trying values: the form that the
compiler gave it can be any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import permutations
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]
Truth = Callable[[Mapping[str, Values]], Values]  # of rows: by name of a variable, its value in each
SIZES = "MNK"
LONGEST = 1024  # period
CHECKED = 2048  # rows
SMALL = 20  # values
SPOKEN = {"%ctaid.x": "blockIdx.x", "%ctaid.y": "blockIdx.y"}
RELATIONS = {"==": np.equal, "!=": np.not_equal, ">": np.greater, ">=": np.greater_equal}


def condition(truth: Truth, row: Mapping[str, Any], tried: Mapping[str, Values], rng: np.random.Generator) -> str:
    """The condition that is true of a row, on the variables in `tried`, by their values there; "" if it has no simple
    words.
    """
    words, holds, all_values = list[str](), dict[str, Values](), dict[str, Values]()
    for name, values in tried.items():
        values = np.unique([*values, row[name]])
        where = truth({other: values if other == name else np.full(len(values), row[other]) for other in row})
        if not where.all():
            words.append(_described(SPOKEN.get(name, name), values, where))
            holds[name], all_values[name] = values[where], values
    if not holds:
        return ""
    drawn: dict[str, Values] = {name: np.full(CHECKED, value) for name, value in row.items()}
    for name, values in holds.items():
        drawn[name] = np.where(
            rng.random(CHECKED) < 0.8, rng.choice(values, CHECKED), rng.choice(all_values[name], CHECKED)
        )
    for name in holds.keys() & {*SIZES}:  # so that relations are true of some
        small = rng.choice(all_values[name][:SMALL], CHECKED)
        drawn[name] = np.where(rng.random(CHECKED) < 0.3, small, drawn[name])
    where = truth(drawn)
    if np.array_equal(where, np.logical_and.reduce([np.isin(drawn[name], values) for name, values in holds.items()])):
        return " and ".join(words) if all(words) else ""
    for first, second in permutations([name for name in holds if name in SIZES], 2):
        for sign, relation in RELATIONS.items():
            if np.array_equal(where, relation(drawn[first], drawn[second])):
                return f"{first} {sign} {second}"
    *names, last = (SPOKEN.get(name, name) for name in holds)
    return f"a condition on {', '.join(names)} and {last}" if names else ""


def _described(name: str, values: Values, where: Values) -> str:
    """Of which of these values of one variable, which rise, it is true; "" if that has no simple words."""
    if name in ("A", "B", "C"):
        name, values = f"the address of {name}", values % 256
    chosen, others = values[where], values[~where]
    shown = [
        f"{value:.9g}" if isinstance(value, np.floating) else str(value) for value in (chosen[0], chosen[-1], others[0])
    ]
    if len(chosen) == 1:
        return f"{name} == {shown[0]}"
    if len(others) == 1:
        return f"{name} != {shown[2]}"
    if chosen[0] > others[-1]:
        return f"{name} > {others[-1]:.9g}" if np.issubdtype(values.dtype, np.floating) else f"{name} >= {shown[0]}"
    if chosen[-1] < others[0]:
        return f"{name} < {shown[2]}"
    if np.issubdtype(values.dtype, np.floating):
        return ""
    between = (values >= chosen[0]) & (values <= chosen[-1])
    if where[between].all():
        return f"{shown[0]} <= {name} <= {shown[1]}"
    unit, first = int(values[1] - values[0]), int(np.argmax(where))
    regular = where[first : int((values == values[0] + unit * np.arange(len(values))).sum())]
    for period in range(2, min(LONGEST, len(regular) // 2) + 1):
        if not np.array_equal(regular[period:], regular[:-period]):
            continue
        rest, modulus = np.flatnonzero(~regular[:period]), period * unit
        start = f"{name} >= {shown[0]} and " if first >= period else ""
        if len(rest) == period - 1:
            return f"{start}{name} % {modulus} == {chosen[0] % modulus}"
        return f"{start}{name} % {modulus} != {(chosen[0] + unit * rest[0]) % modulus}" if len(rest) == 1 else ""
    return ""
