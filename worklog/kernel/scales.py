"""Whether a scale is one number, or has a number for each row of A or each column of B.

Quantised factors have either: one scale of a tensor, or one of each token and each channel. A
comment such as `// scale of A: per row` states it. Otherwise the kernel's code decides: it indexes
a vector.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from worklog.errors import BadSetting
from worklog.kernel.launch import own_part, stated
from worklog.kernel.operands import (
    COLUMN_SCALE,
    ROW_SCALE,
    SCALE_OF_A,
    SCALE_OF_B,
    VECTOR_OF_SCALE,
)
from worklog.kernel.source import nodes, text_of
from worklog.kernel.unit import Definition, Unit

_STATEMENT = re.compile(r"per\b", re.IGNORECASE)  # other texts are comments like any other
_WHOLE = re.compile(r"per[ -]?(tensor|matrix)", re.IGNORECASE)
_ROWS = re.compile(r"per[ -]?(row|token)", re.IGNORECASE)
_COLUMNS = re.compile(r"per[ -]?(column|channel)", re.IGNORECASE)
_FIRST = re.compile(r"\[0[uUlL]*\]")


def with_vector_scales(
    values: Sequence[str], defined: Definition, unit: Unit, source: str
) -> tuple[str, ...]:
    """Return the values of parameters, with scales of each row and of each column.

    values: of the parameters, by their names
    Raises BadSetting for a scale of other parts, and for a vector whose dimension isn't clear.
    """
    changed = list(values)
    for place, parameter in enumerate(defined.parameters):
        value = values[place]
        if parameter.pointer and value in (*VECTOR_OF_SCALE, "scale"):
            statements = stated(own_part(source, unit, defined, value), value)
            statements = [text for text in statements if _STATEMENT.match(text)]
            if statements:
                changed[place] = _of_statement(value, statements[0])
            elif is_indexed(defined.body, parameter.name):
                changed[place] = _of_index(value, parameter.name)
    return tuple(changed)


def _of_statement(value: str, statement: str) -> str:
    """Return the value of a scale that a comment states. Raises BadSetting."""
    if _WHOLE.search(statement):
        return value
    if value != SCALE_OF_B and _ROWS.search(statement):
        return ROW_SCALE
    if value != SCALE_OF_A and _COLUMNS.search(statement):
        return COLUMN_SCALE
    parts = {SCALE_OF_A: "per row", SCALE_OF_B: "per column"}.get(value, "per row or per column")
    raise BadSetting(f"{value}: {statement!r}: the gate passes a scale {parts}, or per tensor")


def _of_index(value: str, name: str) -> str:
    """Return the value of a scale that the kernel indexes. Raises BadSetting for one of both."""
    if value in VECTOR_OF_SCALE:
        return VECTOR_OF_SCALE[value]
    raise BadSetting(
        f"{name} is indexed, so it has several numbers: state // scale: per row, or per column"
    )


def is_indexed(body: Any, name: str) -> bool:
    """Return whether code reads behind the first element at an address.

    It has an index other than 0, or adds to the address.
    """
    for subscript in nodes(body, "subscript_expression"):
        index = text_of(subscript.child_by_field_name("indices"))
        is_of_name = text_of(subscript.child_by_field_name("argument")) == name
        if is_of_name and not _FIRST.fullmatch(index):
            return True
    for sum_of in nodes(body, "binary_expression", "assignment_expression"):
        sides = [text_of(sum_of.child_by_field_name(side)) for side in ("left", "right")]
        operator = text_of(sum_of.child_by_field_name("operator"))
        if (operator == "+=" and sides[0] == name) or (operator == "+" and name in sides):
            return True
    return False
