"""The products that a launch's result may be, each with the share of C that it explains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
from numpy.typing import NDArray

from worklog.kernel.signature import SIZE_NAMES
from worklog.kernel.trial.candidates import FLOAT, Candidate, roles_of

SCALARS = (2.0, 3.0)  # of the float parameters, in their order
SPREAD = 16  # rows of C that are compared before the others
MATRICES = ("A", "B", "C")
COLUMNS = ((False, False), (False, True), (True, False), (True, True))
Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Order:
    """A product that a launch's result may be."""

    roles: Mapping[str, str]  # M, N or K, by the label of a size
    matrices: tuple[str, ...]  # A, B or C, of each pointer in its order
    by_columns: tuple[bool, bool]  # whether A, and whether B, is stored by columns
    scalars: tuple[str, ...]  # alpha or beta, of each float parameter in its order
    share: float  # of C's elements that it explains

    @property
    def rank(self) -> tuple[float, bool]:
        """The larger, the likelier. The gate passes row-major matrices."""
        return self.share, not any(self.by_columns)


def fitting(
    initial: Sequence[Matrix],
    final: Sequence[Matrix],
    candidate: Candidate,
    lengths: Mapping[str, int],
) -> list[Order]:
    """Return each product that a launch may have written.

    initial, final: each pointer's elements, before and after the launch
    lengths: of the labels
    """
    changed = _changed_places(initial, final)
    if len(changed) != 1 or len(initial) != 3:
        return []
    [written] = changed
    inputs = [place for place in range(3) if place != written]
    orders = list[Order]()
    floats = candidate.labels.count(FLOAT)
    for roles in [candidate.roles] if candidate.roles else roles_of(candidate.sizes):
        length = {role: lengths[label] for label, role in roles.items()}
        m, n, k = (length.get(size, length["N"]) for size in SIZE_NAMES)
        old = initial[written][: m * n].reshape(m, n)
        new = final[written][: m * n].reshape(m, n)
        for (first, second), by_columns in product(permutations(inputs), COLUMNS):
            a = _matrix(initial[first], m, k, by_columns[0])
            b = _matrix(initial[second], k, n, by_columns[1])
            by_place = {written: "C", first: "A", second: "B"}
            matrices = tuple(by_place[place] for place in range(3))
            for scalars, share in _shares(a, b, old=old, new=new, floats=floats):
                orders.append(Order(roles, matrices, by_columns, scalars, share))
    return orders


def _changed_places(initial: Sequence[Matrix], final: Sequence[Matrix]) -> list[int]:
    """Return the places of the buffers that a launch changed."""
    places = list[int]()
    for place, elements in enumerate(initial):
        if not np.array_equal(elements, final[place]):
            places.append(place)
    return places


def _shares(
    a: Matrix, b: Matrix, *, old: Matrix, new: Matrix, floats: int
) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield each order of alpha and beta with the share of C that is right.

    old, new: C before and after the launch
    floats: the number of float parameters
    """
    rows = np.linspace(0, len(new) - 1, SPREAD).astype(int)
    part = a[rows] @ b
    for scalars in dict.fromkeys(pair[:floats] for pair in (("alpha", "beta"), ("beta", "alpha"))):
        values = dict(zip(scalars, SCALARS, strict=False))
        alpha = values.get("alpha", 1.0)
        # Without a beta, a kernel may set C or add to it.
        betas = (values["beta"],) if "beta" in values else (0.0, 1.0)
        shares = [float(np.mean(new[rows] == alpha * part + beta * old[rows])) for beta in betas]
        beta = betas[shares.index(max(shares))]
        share = max(shares)
        if share == 1:
            share = float(np.mean(new == alpha * (a @ b) + beta * old))
        yield scalars, share


def _matrix(elements: Matrix, rows: int, columns: int, by_columns: bool) -> Matrix:
    """Return a matrix of the first elements of a buffer."""
    if by_columns:
        return elements[: rows * columns].reshape(columns, rows).T
    return elements[: rows * columns].reshape(rows, columns)
