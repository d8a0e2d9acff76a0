"""The axes that a benchmark varies, their product, and the points that are skipped, with reasons.

Axes come from Python, or from text such as `--axis "N[pow2]=8:13"`: a name, a kind in brackets,
and values, ranges (both ends included) or a list of both. The kinds are NVBench's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import chain, product
from math import prod
from re import fullmatch

from worklog.errors import BadSetting

__all__ = ["MAX_VALUES", "Axis", "Configuration", "Space", "Value", "spoken"]

Value = int | float | str
KINDS = ("int", "pow2", "float", "str", "type")
NUMBERS = ("int", "pow2", "float")
MAX_VALUES = 100_000
HIGHEST_POWER = 40
# Numbers go from 1e-18 to 1e18: beyond, a short text makes numbers that fill the memory.
LARGEST = Decimal("1e18")
AXIS = r"\s*([^\[\]=]*?)\s*(?:\[\s*(\w*)\s*\])?\s*=\s*(\[.*\]|[^\[\]]*?)\s*"  # name, kind, values


@dataclass(frozen=True)
class Axis:
    """A named parameter of a benchmark, with the values that it takes.

    Raises BadSetting for no values, for repeated values, and for an invalid name or kind.
    """

    name: str
    values: tuple[Value, ...]  # of a pow2 axis: the powers, not the exponents
    kind: str = "int"  # "int", "pow2", "float", "str", or "type", a template argument

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise BadSetting(
                f"axis {self.name!r}: a name is a letter followed by letters, digits or _"
            )
        if self.kind not in KINDS:
            raise BadSetting(
                f"axis {self.name}: there is no kind {self.kind!r}: choose from {', '.join(KINDS)}"
            )
        if not self.values:
            raise BadSetting(f"axis {self.name} has no values: give at least one")
        value, count = Counter(self.values).most_common(1)[0]
        if count > 1:
            raise BadSetting(f"axis {self.name} has {value} more than once: omit one")

    @classmethod
    def parse(cls, text: str, kind: str = "int") -> Axis:
        """Return the axis that a text such as "N[pow2]=6:13" describes.

        kind: the axis's kind if the text states none
        Raises BadSetting, which quotes the text that can't be read.
        """
        match = fullmatch(AXIS, text)
        if match is None:
            raise BadSetting(
                f'cannot read --axis {text!r}: give NAME[KIND]=VALUES, as in "N=64,128" or '
                '"N[pow2]=6:13"'
            )
        name = match[1]
        kind = match[2] or kind
        body = match[3].removeprefix("[").removesuffix("]").strip()
        if not body:
            return cls(name, (), kind)
        items = _items(body, kind)
        if kind not in NUMBERS:
            return cls(name, tuple(items), kind)
        values: list[Value] = []
        for item in items:
            values += _numbers(name, item, kind)
            _require_few(f"axis {name}", len(values), "values")
        return cls(name, tuple(values), kind)


def _items(body: str, kind: str) -> list[str]:
    """Return the values and ranges of a comma-separated list; map<int, float> is one type."""
    items: list[str] = []
    for part in map(str.strip, body.split(",")):
        if items and kind == "type" and _is_open(items[-1]):
            items[-1] += f", {part}"
        else:
            items.append(part)
    return items


def _is_open(type_name: str) -> bool:
    """Return whether a type's template arguments go on after the next comma."""
    brackets = type_name.replace("->", "")
    return brackets.count("<") > brackets.count(">")


def _require_few(subject: str, count: int, noun: str) -> None:
    """Raise BadSetting before more is made than a user could wait for."""
    if count > MAX_VALUES:
        raise BadSetting(
            f"{subject} makes {count} {noun}: "
            f"more than {MAX_VALUES}; take larger steps or fewer values"
        )


def _decimals(item: str, kind: str) -> list[Decimal] | None:
    """Return the numbers of a range, as decimals, so that 0.1:0.5:0.1 ends at 0.5.

    None if the range can't be read, or if a number is out of range.
    """
    try:
        if kind == "float":
            parts = [Decimal(part.strip()) for part in item.split(":")]
        else:
            parts = [Decimal(int(part)) for part in item.split(":")]
        is_in_range = all(part == 0 or 1 / LARGEST <= abs(part) <= LARGEST for part in parts)
    except (ValueError, ArithmeticError):
        return None
    return parts if is_in_range and len(parts) <= 3 else None


def _numbers(name: str, item: str, kind: str) -> list[Value]:
    """Return the values of a number or a range low:high[:step], which includes both ends.

    name: the axis, for messages
    kind: one of NUMBERS; for pow2, the item's numbers are exponents
    """
    parts = _decimals(item, kind)
    if parts is None:
        noun = "a number" if kind == "float" else "a whole number"
        raise BadSetting(
            f"axis {name}: {item!r} is neither {noun} nor a range: give 64, 8:13 or 64:512:64"
        )
    low = parts[0]
    high = parts[1] if len(parts) > 1 else low
    step = parts[2] if len(parts) == 3 else Decimal(1)
    if step <= 0 or high < low:
        raise BadSetting(
            f"axis {name}: {item!r} is empty: give low:high or low:high:step with a step above 0"
        )
    count = int((high - low) / step) + 1
    _require_few(f"axis {name}: {item!r}", count, "values")
    numbers = [low + n * step for n in range(count)]
    if kind == "float":
        return [float(number) for number in numbers]
    if kind == "int":
        return [int(number) for number in numbers]
    if low < 0 or high > HIGHEST_POWER:
        raise BadSetting(
            f"axis {name}: {item!r} is out of reach: exponents go from 0 to {HIGHEST_POWER}"
        )
    return [2 ** int(number) for number in numbers]


@dataclass(frozen=True)
class Configuration:
    """One combination of the axes' values."""

    values: Mapping[str, Value]
    skipped: str | None = None  # the reason why it isn't measured

    def __str__(self) -> str:
        return (
            " ".join(f"{name}={value}" for name, value in self.values.items()) or "the only point"
        )


@dataclass(frozen=True)
class Space:
    """The product of some axes under a benchmark's name.

    skip: maps a point's values to the reason why the point is skipped, or to None
    together: names of axes that go together, value by value, instead of in all combinations
    Raises BadSetting for an axis that is given twice, for more points than MAX_VALUES, and for
    axes that can't go together.
    """

    name: str
    axes: tuple[Axis, ...]
    skip: Callable[[Mapping[str, Value]], str | None] = lambda _values: None
    together: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        names = [axis.name for axis in self.axes]
        for name, count in Counter(names).items():
            if count > 1:
                raise BadSetting(
                    f"{self.name}: axis {name} is given twice: write its values as one list"
                )
        for name, count in Counter(chain(*self.together)).items():
            if name not in names or count > 1:
                raise BadSetting(
                    f"{self.name}: together names {name}: name axes, each once, from "
                    f"{', '.join(names)}"
                )
        for group in self.groups:
            if len({len(axis.values) for axis in group}) > 1:
                lengths = " and ".join(
                    f"{axis.name} has {len(axis.values)} values" for axis in group
                )
                raise BadSetting(
                    f"{self.name}: axes that go together need equally many values, and {lengths}"
                )
        size = prod(len(group[0].values) for group in self.groups)
        _require_few(f"{self.name}: {self._counts}", size, "configurations")

    @cached_property
    def groups(self) -> list[list[Axis]]:
        """The groups of axes that go together; any other axis is a group of its own.

        The groups are in the order of their first axes.
        """
        partners = {}
        for group in self.together:
            partners.update(dict.fromkeys(group, group))
        names = dict.fromkeys(partners.get(axis.name, (axis.name,)) for axis in self.axes)
        return [[axis for axis in self.axes if axis.name in group] for group in names]

    @property
    def _counts(self) -> str:
        """The number of values of each group, as in "3 N x 2 K"."""
        counts = [
            f"{len(group[0].values)} {' + '.join(axis.name for axis in group)}"
            for group in self.groups
        ]
        return " x ".join(counts) or "1"

    def configurations(self) -> Iterator[Configuration]:
        """Yield every combination, the last axis fastest.

        Skipped points are included, with their reasons.
        """
        for numbers in product(*(range(len(group[0].values)) for group in self.groups)):
            number_of = {}
            for group, number in zip(self.groups, numbers, strict=True):
                number_of.update(dict.fromkeys(group, number))
            values = {axis.name: axis.values[number_of[axis]] for axis in self.axes}
            yield Configuration(values, self.skip(values))

    def preview(self, seconds_each: float | None = None, work: str = "measure") -> str:
        """Return the number of points, the skipped points, and the time.

        Skipped points have their reasons. The time is for the other points.

        seconds_each: the time of a point in seconds, if it is known
        work: a verb, for the points that aren't skipped
        """
        reasons = Counter(configuration.skipped for configuration in self.configurations())
        size = reasons.total()
        left = reasons.pop(None, 0)
        text = f"{self.name}: {self._counts} = {size} point{'' if size == 1 else 's'}"
        for reason, count in reasons.items():
            text += f"; {count} skipped: {reason}"
        if not left:
            return f"{text}; nothing to {work}"
        text += f"; {left} to {work}"
        if seconds_each:
            text += f", about {spoken(left * seconds_each)}"
        return text


def spoken(seconds: float) -> str:
    """Return a rough time for a sentence: 1.5 h, 12.0 min or 40 s."""
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1.5 else f"{seconds:.1f} s"
