"""Expressions of sizes that give recorded grids, and rules of the sizes with a launch.

Host code is run at sizes of which only one varies, and at random sizes. The first show a form such
as (M + 31) / 32. All of them verify it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from worklog.errors import BadSetting

Integers = NDArray[np.int64]
BASE = 15360  # the constant sizes while one varies: a multiple of usual tiles
NEAR = np.arange(1, 258)  # sizes that show how a grid rounds
FAR = np.array(
    [300, 511, 512, 513, 640, 1000, 1024, 1025, 2047, 2048, 2049, 4096, 5000, 15360, 40000]
)
RANDOM_ROWS = 64
MAX_TILE = 4096
MIN_STEPS = 8  # different numbers of blocks, for a grid with an upper limit


def sizes_to_try(inputs: int) -> Integers:
    """Return the sizes of each run: only one input varies, or all do.

    inputs: the number of inputs
    """
    rows: list[Integers] = [np.full((1, inputs), BASE)]
    values = np.concatenate((NEAR, FAR))
    for place in range(inputs):
        part = np.full((len(values), inputs), BASE)
        part[:, place] = values
        rows.append(part)
    rng = np.random.default_rng(1)
    rows.append(rng.integers(1, 40_000, (RANDOM_ROWS, inputs)))
    rows.append(rng.integers(1, 80, (RANDOM_ROWS, inputs)) * 512)
    return np.concatenate(rows).astype(np.int64)


def fitted(sizes: Integers, counts: Integers, names: Sequence[str]) -> str:
    """Return the expression of sizes that gives these numbers of blocks.

    sizes: rows by inputs
    counts: of each row
    names: of the inputs
    Raises BadSetting if there is none.
    """
    if (counts == counts[0]).all():
        return str(counts[0])
    forms = list[list[tuple[str, Integers]]]()
    for place, name in enumerate(names):
        varies_alone = _varies_alone(sizes, place)
        varied = counts[varies_alone]
        if len(varied) and (varied != varied[0]).any():
            forms.append([*_forms(sizes[:, place], counts, varies_alone, name)])
    for text, product in _products(forms):
        positive = product > 0
        if not positive.any():
            continue
        factor = counts[positive][0] / product[positive][0]
        if factor == int(factor) and (counts == int(factor) * product).all():
            return text if factor == 1 else f"{int(factor)} * ({text})"
    raise BadSetting("no expression of M, N and K gives its grid at all sizes")


def _varies_alone(sizes: Integers, place: int) -> NDArray[np.bool_]:
    """Return the rows where the other inputs are BASE."""
    is_base: NDArray[np.bool_] = np.delete(sizes, place, axis=1) == BASE
    return np.asarray(is_base.all(axis=1))


def _products(forms: Sequence[Sequence[tuple[str, Integers]]]) -> Iterator[tuple[str, Integers]]:
    """Yield the products of a form of each size."""
    if not forms:
        return
    first, *later = forms
    for text, values in first:
        if not later:
            yield text, values
        for factor_text, factor_values in _products(later):
            yield f"({text}) * ({factor_text})", values * factor_values


def _forms(
    size: Integers, counts: Integers, varies_alone: NDArray[np.bool_], name: str
) -> Iterator[tuple[str, Integers]]:
    """Yield expressions of one size that may be a factor of the counts: (size + added) / tile.

    varies_alone: the rows where only this size varies
    """
    varied = size[varies_alone]
    varied_counts = counts[varies_alone]
    limit = int(varied_counts.max())
    for added, tile in _roundings(varied, varied_counts):
        text = _quotient(name, added, tile)
        values = (varied + added) // tile
        if _is_proportional(values, varied_counts):
            yield text, (size + added) // tile
        elif _is_proportional(np.maximum(values, 1), varied_counts):
            yield f"max({text}, 1)", np.maximum((size + added) // tile, 1)
        elif _is_capped(values, varied_counts):
            yield f"min({text}, {limit})", np.minimum((size + added) // tile, limit)


def _roundings(varied: Integers, counts: Integers) -> list[tuple[int, int]]:
    """Return the pairs (added, tile) for which (size + added) / tile may give the counts.

    varied: the sizes
    """
    count_at = dict(zip(varied.tolist(), counts.tolist(), strict=True))
    steps = list[int]()  # sizes with another count than the size before
    for length in NEAR[1:].tolist():
        if count_at.get(length) != count_at.get(length - 1, count_at.get(length)):
            steps.append(length)
    if len(steps) > 1:
        tile = steps[1] - steps[0]
        # At multiples of the tile, each rounding fits: the plain division comes first.
        return [(0, tile), (-steps[0] % tile, tile), (-steps[0] % tile + tile, tile)]
    pairs = list[tuple[int, int]]()
    for tile in range(len(NEAR) // 2, MAX_TILE + 1):
        pairs += [(tile - 1, tile), (0, tile)]
    return pairs


def _quotient(name: str, added: int, tile: int) -> str:
    """Return the text of (name + added) / tile, without needless terms."""
    if tile == 1:
        return f"{name} + {added}" if added else name
    if added == 0:
        return f"{name} / {tile}"
    return f"({name} + {added}) / {tile}"


def _is_proportional(values: Integers, counts: Integers) -> bool:
    """Return whether the counts are a constant multiple of the values."""
    top = int(values.argmax())
    return bool(values[top] > 0 and (values * counts[top] == counts * values[top]).all())


def _is_capped(values: Integers, counts: Integers) -> bool:
    """Return whether the counts are the values up to a largest count."""
    largest = counts.max()
    is_equal = (np.minimum(values, largest) == counts).all()
    is_repeated = (counts == largest).sum() > 1
    return bool(is_equal and is_repeated and len({*counts.tolist()}) >= MIN_STEPS)


def guards(sizes: Integers, is_launched: NDArray[np.bool_], names: Sequence[str]) -> list[str]:
    """Return rules, such as "M % 32 == 0", of the sizes at which a kernel is launched.

    sizes: of all runs, rows by inputs
    Raises BadSetting if such rules don't describe the sizes.
    """
    rules = list[str]()
    holds = np.ones(len(sizes), bool)
    for place, name in enumerate(names):
        launched = sizes[_varies_alone(sizes, place) & is_launched][:, place]
        tile = int(np.gcd.reduce(launched)) if len(launched) else 1
        if tile > 1:
            rules.append(f"{name} % {tile} == 0")
            holds &= sizes[:, place] % tile == 0
    if not np.array_equal(holds, is_launched):
        raise BadSetting("it is launched at some sizes only")
    return rules
