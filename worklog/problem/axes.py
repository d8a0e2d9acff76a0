"""What a benchmark varies: named axes, their product, and which of its points are skipped and why.

From Python or from words as `--axis "N[pow2]=8:13"`: a name, a kind in brackets, and values, ranges (both ends
included) or a list of both. The kinds are NVBench's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import chain, pairwise, product
from math import exp, isqrt, log, prod
from random import Random
from re import fullmatch

from worklog.errors import BadSetting
from worklog.problem.gemm import Shape

Value = int | float | str
KINDS = ("int", "pow2", "float", "str", "type")
MOST_VALUES = 100_000
HIGHEST_POWER = 40
MOST_DIGITS = 18  # before and after the decimal point: with more, a short text makes numbers that fill the memory


@dataclass(frozen=True)
class Taken:
    """The axes that a command takes, so that no message advises what the command rejects. kinds: some of KINDS.
    examples: for messages.
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
    "type", a template argument. Raises BadSetting for no values, for repeated values, and for a bad name or kind.
    """

    name: str
    values: tuple[Value, ...]
    kind: str = "int"

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise BadSetting(f"axis {self.name!r}: a name is a letter followed by letters, digits or _")
        if self.kind not in KINDS:
            raise BadSetting(f"axis {self.name}: there is no kind {self.kind!r}: choose from {', '.join(KINDS)}")
        if not self.values:
            raise BadSetting(f"axis {self.name} has no values: give at least one")
        repeated = next((value for value, count in Counter(self.values).items() if count > 1), None)
        if repeated is not None:
            raise BadSetting(f"axis {self.name} has {repeated} more than once: omit one")

    @classmethod
    def parse(cls, text: str, taken: Taken = ANY) -> Axis:
        """An axis from words. Raises BadSetting, which quotes what cannot be read."""
        found = fullmatch(r"\s*([^\[\]=]*?)\s*(?:\[\s*(\w*)\s*\])?\s*=\s*(\[.*\]|[^\[\]]*?)\s*", text)
        if found is None:
            raise BadSetting(f"cannot read --axis {text!r}: give name[kind]=values, {taken.examples}")
        name, kind, body = found[1], found[2] or "int", found[3].removeprefix("[").removesuffix("]")
        if kind not in taken.kinds:
            raise BadSetting(f"axis {name}: kind {kind!r} is not possible here: choose from {', '.join(taken.kinds)}")
        items = (_types(name, body) if kind == "type" else body.split(",")) if body.strip() else []
        items = [item.strip() for item in items]
        if kind in ("str", "type"):
            return cls(name, tuple(items), kind)
        numbers: list[Decimal] = []
        for item in items:
            numbers += _numbers(name, item, taken, whole=kind != "float")
            _require_few(f"axis {name}", len(numbers), "values")
        if kind == "float":
            return cls(name, tuple(map(float, numbers)), kind)
        whole = tuple(map(int, numbers))
        if kind == "int":
            return cls(name, whole, kind)
        for exponent in whole:
            if not 0 <= exponent <= HIGHEST_POWER:
                raise BadSetting(f"axis {name}: 2^{exponent} is out of reach: exponents go from 0 to {HIGHEST_POWER}")
        return cls(name, tuple(2**exponent for exponent in whole), kind)


def _require_few(what: str, count: int, of: str) -> None:
    """Raise BadSetting before more is made than a user could wait for."""
    if count > MOST_VALUES:
        raise BadSetting(f"{what} makes {count} {of}: more than {MOST_VALUES}; take larger steps or fewer values")


def _types(name: str, body: str) -> list[str]:
    """Split at the commas outside of angle brackets: map<int, float> is one type. Raises BadSetting."""
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
    except InvalidOperation:
        parts = []
    if not 1 <= len(parts) <= 3 or not all(part.is_finite() for part in parts):
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
        raise BadSetting(f"axis {name}: {item!r} is empty: give low:high or low:high:step with a step above 0")
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
        for name in names:
            if names.count(name) > 1:
                raise BadSetting(f"{self.name}: axis {name} is given twice: write its values as one list")
        for name in chain(*self.together):
            if name not in names or sum(name in group for group in self.together) > 1:
                raise BadSetting(f"{self.name}: together names {name}: name axes, each once, from {', '.join(names)}")
        for group in self._groups():
            if len({len(axis.values) for axis in group}) > 1:
                lengths = " and ".join(f"{axis.name} has {len(axis.values)} values" for axis in group)
                raise BadSetting(f"{self.name}: axes that go together need equally many values, and {lengths}")
        _require_few(f"{self.name}: {self._counts()}", self._size(), "configurations")

    def _groups(self) -> list[tuple[Axis, ...]]:
        """The axes that go together, and each other one alone, in the order of their first axes."""
        groups = {name: group for group in self.together for name in group}
        found = dict.fromkeys(groups.get(axis.name, (axis.name,)) for axis in self.axes)
        return [tuple(axis for axis in self.axes if axis.name in group) for group in found]

    def _size(self) -> int:
        return prod(len(group[0].values) for group in self._groups())

    def _counts(self) -> str:
        groups = self._groups()
        return " x ".join(f"{len(group[0].values)} {' + '.join(one.name for one in group)}" for group in groups) or "1"

    def points(self) -> Iterator[Point]:
        """Every combination, the last axis fastest; skipped ones too, with their reason."""
        groups = self._groups()
        for values in product(*(zip(*(axis.values for axis in group), strict=True) for group in groups)):
            found = {axis.name: value for axis, value in zip(chain(*groups), chain(*values), strict=True)}
            point = {axis.name: found[axis.name] for axis in self.axes}
            yield Point(point, self.skip(point))

    def preview(self, seconds_each: float | None = None) -> str:
        """How many points there are, which are skipped and why, and how long the rest takes, if that is known."""
        size, reasons = self._size(), Counter(point.skipped for point in self.points())
        left = reasons.pop(None, 0)
        skipped = "".join(f"; {count} skipped: {why}" for why, count in reasons.items())
        points = "1 point" if size == 1 else f"{size} points"
        about = "" if seconds_each is None else f", about {spoken(left * seconds_each)}"
        ahead = f"{left} to measure{about}" if left else "nothing to measure"
        return f"{self.name}: {self._counts()} = {points}{skipped}; {ahead}"


def spoken(seconds: float) -> str:
    """A rough time for a sentence: 1.5 h, 12.0 min or 40 s."""
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1.5 else f"{seconds:.1f} s"


def shapes(axes: Sequence[Axis]) -> list[Shape]:
    """Shapes from axes M, N and K; M and K default to N. Raises BadSetting for any other axis, or without N, and
    BadSetting for values that are not sizes.
    """
    names = [axis.name for axis in axes]
    other = [name for name in names if name not in ("M", "N", "K")]
    if other or "N" not in names:
        found = f"a problem has no axis {other[0]}" if other else "there is no axis N"
        raise BadSetting(f"--axis: {found}: give N, and M and K where they differ from N")
    points = [point.values for point in Space("sizes", tuple(axes)).points()]
    # As text, so that a value of --axis has as many digits as one of --size may have.
    return [Shape.of(f"{p.get('M', p['N'])}x{p['N']}x{p.get('K', p['N'])}") for p in points]


MOST_DRAWN_BYTES = 2**27  # of A, B and C: the gate then takes well below a second
# M, N and K between these, evenly on a log scale; the last three kinds are multiples of 8.
DRAWN: dict[str, tuple[tuple[int, int], ...]] = {
    "powers of two": ((128, 4096),) * 3,
    "primes": ((101, 4099),) * 3,
    "off by one": ((128, 4096),) * 3,
    "tall": ((2048, 32768), (16, 256), (64, 2048)),
    "flat": ((16, 256), (2048, 32768), (64, 2048)),
    "deep": ((32, 512), (32, 512), (4096, 65536)),
}


def drawn(count: int, seed: int, without: Collection[Shape] = ()) -> dict[Shape, str]:
    """Different shapes by a seed, and the kind of each: the kinds of DRAWN take turns. without: shapes that are not
    drawn, such as those that a table was tuned at.
    """
    rng, found, kinds = Random(seed), dict[Shape, str](), [*DRAWN]
    while len(found) < count:
        kind = kinds[len(found) % len(kinds)]
        shape = Shape(*(_drawn(rng, kind, *limits) for limits in DRAWN[kind]))
        if shape not in without and shape.compulsory_bytes <= MOST_DRAWN_BYTES:
            found.setdefault(shape, kind)
    return found


def _drawn(rng: Random, kind: str, low: int, high: int) -> int:
    size = int(exp(rng.uniform(log(low), log(high))))
    if kind == "primes":
        return next(n for n in range(size, 2 * high) if all(n % d for d in range(2, isqrt(n) + 1)))
    if kind in ("powers of two", "off by one"):
        power: int = 1 << rng.randint(low.bit_length() - 1, high.bit_length() - 1)
        return power + (rng.choice((-1, 1)) if kind == "off by one" else 0)
    return size // 8 * 8
