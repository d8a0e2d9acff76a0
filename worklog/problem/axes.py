"""What a benchmark varies: named axes, their product, and which of its points are skipped and why.

From Python or from words as `--axis "N[pow2]=8:13"`: a name, a kind in brackets, and values, ranges (both ends
included) or a list of both. The kinds are NVBench's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import chain, product
from math import exp, isqrt, log, prod
from random import Random
from re import fullmatch

from worklog.errors import BadSetting
from worklog.problem.gemm import Shape

Value = int | float | str
KINDS = ("int", "pow2", "float", "str", "type")
NUMBERS = ("int", "pow2", "float")
MOST_VALUES = 100_000
HIGHEST_POWER = 40
LARGEST = Decimal(
    "1e18"
)  # and 1e-18 the smallest: beyond, a short text makes numbers that fill the memory


@dataclass(frozen=True)
class Axis:
    """One thing that varies. kind: "int"; "pow2", whose values are the powers, not the exponents; "float"; "str"; or
    "type", a template argument. Raises BadSetting for no values, for repeated values, and for a bad name or kind.
    """

    name: str
    values: tuple[Value, ...]
    kind: str = "int"

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
        """An axis from words. kind: where they state none. Raises BadSetting, which quotes what cannot be read."""
        match = fullmatch(
            r"\s*([^\[\]=]*?)\s*(?:\[\s*(\w*)\s*\])?\s*=\s*(\[.*\]|[^\[\]]*?)\s*", text
        )
        if match is None:
            raise BadSetting(
                f'cannot read --axis {text!r}: give NAME[KIND]=VALUES, as in "N=64,128" or "N[pow2]=6:13"'
            )
        name, kind, body = (
            match[1],
            match[2] or kind,
            match[3].removeprefix("[").removesuffix("]").strip(),
        )
        if not body:
            return cls(name, (), kind)
        items: list[str] = []
        for part in map(str.strip, body.split(",")):
            bare = (
                items[-1].replace("->", "") if items and kind == "type" else ""
            )  # map<int, float> is one type
            if bare.count("<") > bare.count(">"):
                items[-1] += f", {part}"
            else:
                items.append(part)
        if kind not in NUMBERS:
            return cls(name, tuple(items), kind)
        values: list[Value] = []
        for item in items:
            values += _numbers(name, item, kind)
            _require_few(f"axis {name}", len(values), "values")
        return cls(name, tuple(values), kind)


def _require_few(what: str, count: int, of: str) -> None:
    """Raise BadSetting before more is made than a user could wait for."""
    if count > MOST_VALUES:
        raise BadSetting(
            f"{what} makes {count} {of}: more than {MOST_VALUES}; take larger steps or fewer values"
        )


def _numbers(name: str, item: str, kind: str) -> list[Value]:
    """A number, or a range low:high[:step] with both ends. Of pow2 they are exponents."""
    try:  # decimal, so that 0.1:0.5:0.1 ends at 0.5
        parts = [
            Decimal(part.strip() if kind == "float" else int(part)) for part in item.split(":")
        ]
        readable = len(parts) <= 3 and all(
            part == 0 or 1 / LARGEST <= abs(part) <= LARGEST for part in parts
        )
    except (ValueError, ArithmeticError):
        readable = False
    if not readable:
        what = "a number" if kind == "float" else "a whole number"
        raise BadSetting(
            f"axis {name}: {item!r} is neither {what} nor a range: give 64, 8:13 or 64:512:64"
        )
    low = parts[0]
    high = parts[min(1, len(parts) - 1)]
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
class Point:
    """One combination of values. skipped: why it is not measured, or None."""

    values: Mapping[str, Value]
    skipped: str | None = None

    def __str__(self) -> str:
        return (
            " ".join(f"{name}={value}" for name, value in self.values.items()) or "the only point"
        )


@dataclass(frozen=True)
class Space:
    """The product of some axes under a benchmark's name. skip: from a point's values to the reason why it is skipped,
    or None. together: names of axes that go together, value by value, instead of in all combinations. Raises BadSetting
    for an axis that is given twice, for more points than MOST_VALUES, and for axes that can't go together.
    """

    name: str
    axes: tuple[Axis, ...]
    skip: Callable[[Mapping[str, Value]], str | None] = lambda values: None
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
                    f"{self.name}: together names {name}: name axes, each once, from {', '.join(names)}"
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
        """The axes that go together, and each other axis alone, in the order of their first axes."""
        partners = {name: group for group in self.together for name in group}
        named = dict.fromkeys(partners.get(axis.name, (axis.name,)) for axis in self.axes)
        return [[axis for axis in self.axes if axis.name in group] for group in named]

    @property
    def _counts(self) -> str:
        counts = [
            f"{len(group[0].values)} {' + '.join(axis.name for axis in group)}"
            for group in self.groups
        ]
        return " x ".join(counts) or "1"

    def points(self) -> Iterator[Point]:
        """Every combination, the last axis fastest; skipped ones too, with their reason."""
        for numbers in product(*(range(len(group[0].values)) for group in self.groups)):
            at = {
                axis: number
                for group, number in zip(self.groups, numbers, strict=True)
                for axis in group
            }
            values = {axis.name: axis.values[at[axis]] for axis in self.axes}
            yield Point(values, self.skip(values))

    def preview(self, seconds_each: float | None = None, work: str = "measure") -> str:
        """How many points there are, which are skipped and why, and how long the rest takes, if that is known. work:
        what is done with the rest.
        """
        reasons = Counter(point.skipped for point in self.points())
        size = reasons.total()
        left = reasons.pop(None, 0)
        said = f"{self.name}: {self._counts} = {size} point{'' if size == 1 else 's'}"
        for why, count in reasons.items():
            said += f"; {count} skipped: {why}"
        if not left:
            return f"{said}; nothing to {work}"
        return f"{said}; {left} to {work}" + (
            f", about {spoken(left * seconds_each)}" if seconds_each else ""
        )


def spoken(seconds: float) -> str:
    """A rough time for a sentence: 1.5 h, 12.0 min or 40 s."""
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1.5 else f"{seconds:.1f} s"


DRAWN = ("powers of two", "off by one", "primes")  # kinds of shapes
MOST_DRAWN = 8192


def drawn(count: int, seed: int, without: Collection[Shape] = ()) -> dict[Shape, str]:
    """Different shapes by a seed, log-uniform from 1 to MOST_DRAWN, and the kind of each; the kinds take turns.
    without: shapes that are not drawn.
    """
    rng = Random(seed)
    kinds = dict[Shape, str]()

    def size(kind: str) -> int:
        number = exp(rng.uniform(0, log(MOST_DRAWN)))
        if kind == "primes":
            candidates = range(max(2, int(number)), 2 * MOST_DRAWN)
            return next(n for n in candidates if all(n % d for d in range(2, isqrt(n) + 1)))
        power: int = 2 ** round(log(number, 2))
        return power if kind == "powers of two" else max(1, power + rng.choice((-1, 1)))

    while len(kinds) < count:
        kind = DRAWN[len(kinds) % len(DRAWN)]
        shape = Shape(size(kind), size(kind), size(kind))
        if shape not in without:
            kinds.setdefault(shape, kind)
    return kinds
