"""Damaged JSON documents: what a reader must refuse or be able to show."""

from typing import Any

import hypothesis.strategies as st

WORDS = st.sampled_from(["", "x", "[/x]", "kernel", "2026-11-21"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS
DAMAGES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
GONE: Any = object()


def damaged(value: Any, damage: Any, data: st.DataObject) -> Any:
    """Return the document with something anywhere in it replaced."""
    if not value or not isinstance(value, (dict, list)) or data.draw(st.integers(0, 3)) == 0:
        return damage
    where = data.draw(
        st.sampled_from(range(len(value)) if isinstance(value, list) else sorted(value))
    )
    whole = value.copy()
    whole[where] = damaged(value[where], damage, data)
    return whole


def changed(document: Any, place: str, value: Any) -> Any:
    """Return the document with another value in one place, such as "rows 1 us".

    GONE as the value removes the place.
    """
    name, _, rest = place.partition(" ")
    at = int(name) if name.isdigit() else name
    whole = document.copy()
    whole[at] = changed(document[at], rest, value) if rest else value
    if value is GONE and not rest:
        del whole[at]
    return whole
