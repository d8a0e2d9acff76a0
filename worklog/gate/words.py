"""A condition on M, N, K, alpha, beta, addresses and blocks in words, found by trying values: the form that the
compiler gave it can be any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]
Truth = Callable[
    [Mapping[str, Values]], Values
]  # of rows: by name of a variable, its value in each
LONGEST = 1024  # period
CHECKED = 2048  # rows
SPOKEN = {"%ctaid.x": "blockIdx.x", "%ctaid.y": "blockIdx.y"} | {
    name: f"the address of {name}" for name in "ABC"
}


def condition(
    truth: Truth, row: Mapping[str, Any], tried: Mapping[str, Values], rng: np.random.Generator
) -> str:
    """The condition on the variables in `tried`, by their values there, that is true of a row; "" if none matters."""
    words = dict[str, str]()
    holds = dict[str, tuple[Values, Values]]()
    for name, some in tried.items():
        values = np.unique(np.append(some, row[name]))
        where = truth(
            {other: values if other == name else np.full(len(values), row[other]) for other in row}
        )
        if not where.all():
            spoken = SPOKEN.get(name, name)
            holds[name] = (values, values[where])
            if (
                name in "ABC"
            ):  # in words only if its place in 256 bytes decides; three turns show a period
                places = np.unique(values % 256)
                of_place = [np.unique(where[values % 256 == place]) for place in places]
                decides = all(len(truths) == 1 for truths in of_place)
                values = np.concatenate([places + 256 * turn for turn in range(3)])
                where = (
                    np.tile(np.concatenate(of_place), 3) if decides else np.zeros(len(values), bool)
                )
            words[spoken] = _described(spoken, values, where) if where.any() else ""
    drawn = {name: np.full(CHECKED, value) for name, value in row.items()}
    expected = np.full(CHECKED, True)
    others = [name for name in tried if name not in holds]
    for name in others:  # what makes no difference in this row may make one in others
        drawn[name] = rng.choice(tried[name], CHECKED)
    for name, (values, chosen) in holds.items():
        drawn[name] = np.where(
            rng.random(CHECKED) < 0.8, rng.choice(chosen, CHECKED), rng.choice(values, CHECKED)
        )
        expected &= np.isin(drawn[name], chosen)
    given = truth(drawn)
    if all(words.values()) and np.array_equal(given, expected):
        return " and ".join(words.values())
    for name in others:
        if not np.array_equal(truth({**drawn, name: np.full(CHECKED, row[name])}), given):
            holds[name] = tried[name], tried[name]
    return (
        f"a condition on {' and '.join(SPOKEN.get(name, name) for name in tried if name in holds)}"
    )


def _described(name: str, values: Values, where: Values) -> str:
    """Of which of these values of one variable, which rise, it is true; "" if that has no simple words."""
    chosen = values[where]
    others = values[~where]
    floating = np.issubdtype(values.dtype, np.floating)
    first, last, other = (
        f"{x:.9g}" if floating else str(x) for x in (chosen[0], chosen[-1], others[0])
    )
    if len(chosen) == 1:
        return f"{name} == {first}"
    if len(others) == 1:
        return f"{name} != {other}"
    if chosen[0] > others[-1]:
        return f"{name} > {others[-1]:.9g}" if floating else f"{name} >= {first}"
    if chosen[-1] < others[0]:
        return f"{name} < {other}"
    if where[(values >= chosen[0]) & (values <= chosen[-1])].all():
        return f"{first} <= {name} <= {last}"
    unit = values[1] - values[0]
    start = int(np.argmax(where))
    regular = where[start : int((values == values[0] + unit * np.arange(len(values))).sum())]
    for period in range(2, min(LONGEST, len(regular) // 2) + 1):
        if np.array_equal(regular[period:], regular[:-period]):
            if start >= period:
                return ""
            rest = np.flatnonzero(~regular[:period])
            modulus = period * unit
            if len(rest) == period - 1:
                return f"{name} % {modulus} == {chosen[0] % modulus}"
            return (
                f"{name} % {modulus} != {(chosen[0] + unit * rest[0]) % modulus}"
                if len(rest) == 1
                else ""
            )
    return ""
