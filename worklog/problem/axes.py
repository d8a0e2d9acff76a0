"""What a benchmark varies: named axes, their product, and which of its points are skipped and why.

From Python or from words as `--axis "N[pow2]=8:13"`: a name, a kind in brackets, and values, ranges (both ends
included) or a list of both. The kinds are NVBench's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import pairwise, product
from math import prod
from re import fullmatch

from worklog.errors import BadSetting
from worklog.problem.gemm import Shape

Value = int | float | str
KINDS = ("int", "pow2", "float", "str", "type")
MOST_VALUES = 100_000
HIGHEST_POWER = 40
MOST_DIGITS = 18  # before the point and behind it: beyond, a short word makes numbers that fill the memory


@dataclass(frozen=True)
class Taken:
    """What somebody's axes may be, so that advice never leads to the next refusal. kinds: some of KINDS. examples: as
    they stand in messages.
    """

    kinds: tuple[str, ...]
    examples: str


ANY = Taken(KINDS, 'as in "N[pow2]=8:13", "K=512,1024:4096:1024", "alpha[float]=0.5:1.5:0.5" or "T[type]=float,double"')
TEMPLATES = Taken(KINDS, 'as in "N[pow2]=8:13", "BM=64,128" or "T[type]=float,double"')
SIZES = Taken(("int", "pow2"), 'as in "N[pow2]=8:13" or "K=512,1024:4096:1024"')
TILES = Taken(("int", "pow2"), 'as in "BM=64,128" or "TN[pow2]=2:4"')


@dataclass(frozen=True)
class Axis:
    """One thing that varies. kind: "int"; "pow2", whose values are the powers, not the exponents; "float"; "str"; or
    "type", a template argument. Raises BadSetting for no values, for one twice, or for a name that is none.
    """

    name: str
    values: tuple[Value, ...]
    kind: str = "int"

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise BadSetting(f"axis {self.name!r}: a name is a letter followed by letters, digits or _")
        if self.kind not in KINDS:
            raise BadSetting(f"axis {self.name}: {self.kind!r} is no kind: choose from {', '.join(KINDS)}")
        if not self.values:
            raise BadSetting(f"axis {self.name} has no values: give at least one")
        repeated = next((value for value, count in Counter(self.values).items() if count > 1), None)
        if repeated is not None:
            raise BadSetting(f"axis {self.name} has {repeated} more than once: leave one away")

    @classmethod
    def pow2(cls, name: str, exponents: Sequence[int]) -> Axis:
        """Powers of two. Raises BadSetting for an exponent outside 0 … 40."""
        for exponent in exponents:
            if not 0 <= exponent <= HIGHEST_POWER:
                raise BadSetting(f"axis {name}: 2^{exponent} is out of reach: exponents go from 0 to {HIGHEST_POWER}")
        return cls(name, tuple(2**exponent for exponent in exponents), "pow2")

    @classmethod
    def parse(cls, text: str, taken: Taken = ANY) -> Axis:
        """An axis from words. taken: what will be done with it takes no others. Raises BadSetting, quoting what cannot
        be read.
        """
        found = fullmatch(r"\s*([^\[\]=]*?)\s*(?:\[\s*(\w*)\s*\])?\s*=\s*(\[.*\]|[^\[\]]*?)\s*", text)
        if found is None:
            raise BadSetting(f"cannot read --axis {text!r}: give name[kind]=values, {taken.examples}")
        name, kind, body = found[1], found[2] or "int", found[3].removeprefix("[").removesuffix("]")
        if kind not in taken.kinds:
            raise BadSetting(f"axis {name}: {kind!r} is no kind here: choose from {', '.join(taken.kinds)}")
        items = (_types(name, body) if kind == "type" else body.split(",")) if body.strip() else []
        items = [item.strip() for item in items]
        if kind in ("str", "type"):
            return cls(name, tuple(items), kind)
        numbers: list[Decimal] = []
        for item in items:
            numbers += _numbers(name, item, taken, whole=kind != "float")
            _require_few(f"axis {name}", len(numbers), "values")
        if kind == "pow2":
            return cls.pow2(name, [int(number) for number in numbers])
        return cls(name, tuple(float(number) if kind == "float" else int(number) for number in numbers), kind)


def _require_few(what: str, count: int, of: str) -> None:
    """Raise BadSetting before more is made than anybody could wait for."""
    if count > MOST_VALUES:
        raise BadSetting(f"{what} makes {count} {of}: more than {MOST_VALUES}; take larger steps or fewer values")


def _types(name: str, body: str) -> list[str]:
    """Split at the commas that are in no angle brackets: map<int, float> is one type. Raises BadSetting."""
    items, depth = [""], 0
    for before, character in pairwise(" " + body):
        arrow = before + character == "->"  # of decltype(a->b)
        depth += 0 if arrow else {"<": 1, ">": -1}.get(character, 0)
        if depth < 0:
            break
        if character == "," and depth == 0:
            items.append("")
        else:
            items[-1] += character
    if depth != 0:
        raise BadSetting(f"axis {name}: {body!r} has a < without its >, or a > without its <: write map<int, float>")
    return items


def _numbers(name: str, item: str, taken: Taken, whole: bool) -> list[Decimal]:
    """A number, or a range lo:hi[:step] with both ends; decimal, so that 0.1:0.5:0.1 ends at 0.5."""
    try:
        parts = [Decimal(part.strip()) for part in item.split(":")]
    except InvalidOperation as error:
        raise BadSetting(f"axis {name}: {item!r} is neither a number nor a range, {taken.examples}") from error
    if len(parts) > 3 or not all(part.is_finite() for part in parts):
        raise BadSetting(f"axis {name}: {item!r} is neither a number nor a range, {taken.examples}")
    if any(abs(part.adjusted()) > MOST_DIGITS for part in parts):
        raise BadSetting(
            f"axis {name}: {item!r} is out of reach: give numbers from 1e-{MOST_DIGITS} to 1e{MOST_DIGITS}, or 0"
        )
    if whole and any(part != part.to_integral_value() for part in parts):
        advice = f"write {name}[float]={item}" if "float" in taken.kinds else "give whole numbers"
        raise BadSetting(f"axis {name}: {item!r} is not whole: {advice}")
    if len(parts) == 1:
        return parts
    low, high, step = (*parts, Decimal(1))[:3]
    if step <= 0 or high < low:
        raise BadSetting(f"axis {name}: {item!r} goes nowhere: give low:high or low:high:step with a step above 0")
    count = int((high - low) / step) + 1
    _require_few(f"axis {name}: {item!r}", count, "values")
    return [low + n * step for n in range(count)]


@dataclass(frozen=True)
class Point:
    """One combination of values. skipped: why it is not measured, or None."""

    values: Mapping[str, Value]
    skipped: str | None = None

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.values.items()) or "the only point"


def _keep(values: Mapping[str, Value]) -> str | None:
    """Skip nothing."""


@dataclass(frozen=True)
class Space:
    """The product of some axes under a benchmark's name. skip: from a point's values to the reason why it is left out,
    or None. Raises BadSetting for an axis that is there twice, and for more points than MOST_VALUES.
    """

    name: str
    axes: tuple[Axis, ...]
    skip: Callable[[Mapping[str, Value]], str | None] = _keep

    def __post_init__(self) -> None:
        names = [axis.name for axis in self.axes]
        for name in names:
            if names.count(name) > 1:
                raise BadSetting(f"{self.name}: axis {name} is given twice: write its values as one list")
        count = prod(len(axis.values) for axis in self.axes)  # len() of itself takes no number beyond 2^63
        _require_few(f"{self.name}: {self._counts()}", count, "configurations")

    def __len__(self) -> int:
        return prod(len(axis.values) for axis in self.axes)

    def _counts(self) -> str:
        return " x ".join(f"{len(axis.values)} {axis.name}" for axis in self.axes) or "1"

    def points(self) -> Iterator[Point]:
        """Every combination, the last axis fastest; skipped ones too, with their reason."""
        for values in product(*(axis.values for axis in self.axes)):
            point = {axis.name: value for axis, value in zip(self.axes, values, strict=True)}
            yield Point(point, self.skip(point))

    def preview(self, seconds_each: float) -> str:
        """How many points there are, what is skipped and why, and how long the others take."""
        reasons: dict[str, int] = {}
        for point in self.points():
            if point.skipped is not None:
                reasons[point.skipped] = reasons.get(point.skipped, 0) + 1
        left = len(self) - sum(reasons.values())
        skipped = "".join(f"; {count} skipped: {why}" for why, count in reasons.items())
        time = _duration(left * seconds_each)
        points = "1 point" if len(self) == 1 else f"{len(self)} points"
        ahead = f"{left} to measure, about {time}" if left else "nothing to measure"
        return f"{self.name}: {self._counts()} = {points}{skipped}; {ahead}"


def _duration(seconds: float) -> str:
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1.5 else f"{seconds:.1f} s"


def shapes(axes: Sequence[Axis]) -> list[Shape]:
    """Shapes from axes M, N and K, of which M and K are N where they are not given. Raises BadSetting for any other
    axis, or without N, and BadShape for a size that is none.
    """
    space = Space("sizes", tuple(axes))
    names = [axis.name for axis in axes]
    strange = [name for name in names if name not in ("M", "N", "K")]
    if strange or "N" not in names:
        found = f"{strange[0]} is no axis of a problem" if strange else "there is no axis N"
        raise BadSetting(f"--axis: {found}: give N, and M and K where they differ from N")
    points = [point.values for point in space.points()]
    sizes = [(p.get("M", p["N"]), p["N"], p.get("K", p["N"])) for p in points]
    return [Shape.of("x".join(map(_size, size))) for size in sizes]


def _size(value: Value) -> str:
    """As a word, so that it has no more digits than one of --size may have."""
    if not isinstance(value, int):
        raise BadSetting(f"--axis: {value!r} is no size: sizes are whole numbers")
    return str(value)
