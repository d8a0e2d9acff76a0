"""The table of pitfalls: everything that biases a measurement, with the one setting that fixes it.

The harness, the ablation, the command line, the widgets and the documentation are generated from this table, so a
pitfall is added here and nowhere else. The module holds data only, so code that only shows results can import it too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from worklog.errors import BadSetting

Value = str | bool

# BF16 tensor-core peak of an H100 or H200 SXM as NVIDIA's datasheet states it: the wrong roof for FP32.
BF16_DATASHEET_TFLOPS = 989.0


@dataclass(frozen=True)
class Pitfall:
    """One way to get a wrong number. setting: its name in Harness. unbiased, biased: the values of the setting; also:
    other unbiased values. numbered: whether a value may be followed by ":" and a number.

    article: its number among the article's four, or None if the article does not name it. what: what goes wrong.
    corrupts: the number that it changes. resampled: whether it changes how samples are taken; otherwise it changes what
    is computed from them, and its effect follows from unbiased samples.
    """

    setting: str
    title: str
    unbiased: Value
    biased: tuple[Value, ...]
    article: int | None
    what: str
    corrupts: str = "TFLOP/s"
    resampled: bool = True
    also: tuple[Value, ...] = ()
    numbered: bool = False

    @property
    def values(self) -> tuple[Value, ...]:
        """Every value that the setting takes, the unbiased ones first."""
        return (self.unbiased, *self.also, *self.biased)

    def takes(self, value: object) -> bool:
        """Whether the setting takes this value; True is not 1."""
        return any(value is known or (isinstance(value, str) and self._word(value) == known) for known in self.values)

    def is_biased(self, value: Value) -> bool:
        """Whether a value that the setting takes is a biased one."""
        return self._word(value) in self.biased

    def _word(self, value: Value) -> Value:
        return rule(value) if self.numbered else value


def rule(value: Value) -> Value:
    """The value without its number: "count" of "count:10"."""
    return value.partition(":")[0] if isinstance(value, str) else value


PITFALLS: tuple[Pitfall, ...] = (
    Pitfall(
        "clocks",
        "clocks drift",
        "watched",
        ("ignored",),
        1,
        "The SM clock changes with load and temperature, and every time changes with it.",
        also=("locked",),
        numbered=True,
    ),
    Pitfall(
        "timer",
        "the launch is asynchronous",
        "events",
        ("host",),
        2,
        "A host clock around a launch times the queue, not the kernel.",
        also=("graph", "cupti"),
    ),
    Pitfall(
        "l2",
        "L2 stays warm",
        "flush",
        ("warm",),
        3,
        "The launch before left the inputs in L2, where a single call would not find them.",
        also=("rotate",),
    ),
    Pitfall(
        "warmup",
        "cold start",
        "steady",
        ("none",),
        4,
        "A first launch pays for loading the module and for clocks that are still rising.",
        also=("count", "time", "salykova", "tensara"),
        numbered=True,
    ),
    Pitfall(
        "queue",
        "the launch bubble",
        True,
        (False,),
        None,
        "Between two events on an empty stream, the GPU waits for the host to launch.",
    ),
    Pitfall(
        "offset",
        "the event pair has a length",
        "removed",
        ("kept",),
        None,
        "Two events around nothing read some microseconds; every kernel gets them on top.",
        resampled=False,
    ),
    Pitfall(
        "statistic",
        "one fat outlier",
        "median",
        ("mean", "min", "first"),
        None,
        "A mean follows the one sample that was interrupted; a minimum shows the luckiest.",
        resampled=False,
    ),
    Pitfall(
        "order",
        "drift between two kernels",
        "interleaved",
        ("sequential",),
        None,
        "Timed one after the other, kernel and baseline run at different clocks and temperatures.",
        corrupts="of cuBLAS",
    ),
    Pitfall(
        "placement",
        "the buffers stay in one place",
        "varied",
        ("fixed",),
        None,
        "The buffers lie in one place for all samples; a time can depend on the addresses of A, B and C, and an "
        "interval over launches in one place can't see it.",
    ),
    Pitfall("inputs", "easy data", "random", ("zeros", "ones"), None, "Zeros draw less power, and hide wrong answers."),
    Pitfall(
        "gate",
        "wrong answers are fast",
        True,
        (False, "article"),
        None,
        "Without a check, the fastest kernel is the one that does least; with a loose one, BF16.",
    ),
    Pitfall(
        "baseline",
        "the baseline runs on another datapath",
        "fp32",
        ("tf32",),
        None,
        "cuBLAS may use tensor cores with 10-bit mantissas when asked for FP32.",
        corrupts="of cuBLAS",
    ),
    Pitfall(
        "roof",
        "the wrong roof",
        "fp32",
        ("bf16_datasheet",),
        None,
        "A share of another datapath's peak says nothing.",
        corrupts="of the roof",
        resampled=False,
    ),
)

# The others change what is measured, not how: the ablation leaves them unbiased where all pitfalls act together.
HOW_ONE_MEASURES = tuple(g.setting for g in PITFALLS if g.setting not in ("baseline", "inputs", "roof", "gate"))

# The values that take a number, with the number's default. A clock is in MHz: 0 chooses one.
CLOCKS = ("watched", "ignored", "locked")
CLOCK_NUMBERS: Mapping[str, float] = {"locked": 0}
# The rules of worklog.harness.rules, and the numbers of those that take one.
WARMUPS = ("steady", "count", "time", "salykova", "tensara")
STOPPINGS = ("interval", "count", "time", "salykova", "tensara", "nvbench")
WARMUP_NUMBERS: Mapping[str, float] = {"count": 10, "time": 25.0}  # launches; milliseconds, as triton.testing.do_bench
STOPPING_NUMBERS: Mapping[str, float] = {"count": 10, "time": 100.0}

# The other settings: how long to measure.
SAMPLING = {
    "precision": "half-width of the median's 95 % interval, relative, at which sampling stops",
    "least_samples": "minimum number of samples",
    "most_samples": "maximum number of samples",
    "budget_s": "seconds for the samples of one kernel at one size",
    "stopping": f"the stopping criterion; also {', '.join(STOPPINGS[1:])}: the result states what they don't check",
}

# The types of each of them, by the annotation of its field, and their names in messages.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "float": ((int, float), "a number"),
    "int": ((int,), "a whole number"),
    "str": ((str,), "a word such as 'interval'"),
}


@dataclass(frozen=True)
class Harness:
    """How to measure. Each field is the setting of one pitfall; the defaults are unbiased. The last five say how long
    to measure (SAMPLING). Raises BadSetting for any other value.
    """

    clocks: str = "watched"
    timer: str = "events"
    l2: str = "flush"
    warmup: str = "steady"
    queue: bool = True
    offset: str = "removed"
    statistic: str = "median"
    order: str = "interleaved"
    placement: str = "varied"
    inputs: str = "random"
    gate: bool | str = True
    baseline: str = "fp32"
    roof: str = "fp32"
    precision: float = 0.005
    least_samples: int = 10
    most_samples: int = 2000
    budget_s: float = 8.0
    stopping: str = "interval"

    def __post_init__(self) -> None:
        for pitfall in PITFALLS:
            value = getattr(self, pitfall.setting)
            if not pitfall.takes(value):
                raise BadSetting(
                    f"{pitfall.setting} = {value!r} is not a setting: choose from {', '.join(map(str, pitfall.values))}"
                )
        self._require_kinds()
        if self.timer == "graph":
            if self.l2 == "flush":
                raise BadSetting(
                    "timer = graph cannot flush between the launches of a graph: set l2=rotate too (cold) or l2=warm"
                )
            if self.warmup == "none":
                raise BadSetting(
                    "timer = graph and warmup = none contradict: what is recorded has been launched before"
                )
        split_rule("clocks", self.clocks, CLOCK_NUMBERS, CLOCKS)
        if self.warmup != "none":
            split_rule("warmup", self.warmup, WARMUP_NUMBERS, WARMUPS)
        split_rule("stopping", self.stopping, STOPPING_NUMBERS, STOPPINGS)
        if not 0 < self.precision < 1:
            raise BadSetting(f"precision = {self.precision!r} must be between 0 and 1: 0.005 stops at ±0.5 %")
        if not 1 <= self.least_samples <= self.most_samples:
            raise BadSetting(
                f"least_samples = {self.least_samples} and most_samples = {self.most_samples}: need 1 <= least <= most"
            )
        if not 0 < self.budget_s < math.inf:
            raise BadSetting(f"budget_s = {self.budget_s!r} must be a positive, finite number of seconds")

    def _require_kinds(self) -> None:
        """Raise BadSetting for a field of SAMPLING of a wrong type; True isn't a number, and 2.5 isn't an integer."""
        kinds = {field.name: str(field.type) for field in fields(self)}
        for name in SAMPLING:
            value, (types, words) = getattr(self, name), _KINDS[kinds[name]]
            if isinstance(value, bool) or not isinstance(value, types):
                raise BadSetting(f"{name} = {value!r} is of type {type(value).__name__}: give {words}")

    @classmethod
    def naive(cls) -> Harness:
        """The first biased value of every pitfall."""
        return cls().but(**{pitfall.setting: pitfall.biased[0] for pitfall in PITFALLS})

    @classmethod
    def article_naive(cls) -> Harness:
        """The article's four pitfalls at their first biased values."""
        return cls().but(**{pitfall.setting: pitfall.biased[0] for pitfall in PITFALLS if pitfall.article})

    def but(self, **changes: Any) -> Harness:
        """The same harness with some settings changed."""
        known = {field.name for field in fields(self)}
        for name in changes:
            if name not in known:
                raise BadSetting(
                    f"there is no setting {name!r}: choose from {', '.join(field.name for field in fields(self))}"
                )
        return replace(self, **changes)

    @classmethod
    def fixes(cls) -> tuple[Pitfall, ...]:
        """The table."""
        return PITFALLS

    def biased(self) -> dict[str, Value]:
        """The settings that are biased."""
        return {g.setting: getattr(self, g.setting) for g in PITFALLS if g.is_biased(getattr(self, g.setting))}

    def taken_off(self, offset_us: float) -> float:
        """Microseconds to subtract from each sample, where a pair of events reads offset_us too long."""
        return offset_us if self.offset == "removed" and self.timer == "events" else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For a run file."""
        return asdict(self)


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """Settings from words such as "l2=warm", "queue=false" or "precision=0.01". Raises BadSetting for a word that it
    cannot parse, and for a setting that is given twice.
    """
    types = {field.name: field.type for field in fields(Harness)}
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, word = pair.partition("=")
        if not equals or name not in types:
            raise BadSetting(f"cannot read --set {pair}: give setting=value with a setting from {', '.join(types)}")
        if name in settings:
            raise BadSetting(f"--set {pair}: {name} is set twice; give it one value")
        settings[name] = _read(name, word, str(types[name]))
    return settings


TRUTH = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}


def _read(name: str, word: str, kind: str) -> Any:
    if kind.startswith("bool"):
        if word.lower() not in TRUTH and kind == "bool":
            raise BadSetting(f"cannot read --set {name}={word}: give true or false")
        return TRUTH.get(word.lower(), word)
    if kind in ("int", "float"):
        try:
            return int(word) if kind == "int" else float(word)
        except ValueError as error:
            raise BadSetting(f"cannot read --set {name}={word}: give a number") from error
    return word


def split_rule(setting: str, word: str, numbers: Mapping[str, float], names: Sequence[str]) -> tuple[str, float]:
    """The name and the number of a word such as "count:10"; without a number, its default. Raises BadSetting."""
    name, colon, text = word.partition(":")
    if name not in names or (colon and name not in numbers):
        choices = ", ".join(f"{name}[:{numbers[name]:g}]" if name in numbers else name for name in names)
        raise BadSetting(f"{setting} = {word!r} is not a setting: choose from {choices}")
    try:
        number = float(text) if colon else numbers.get(name, 0.0)
    except ValueError as error:
        raise BadSetting(f"{setting} = {word!r}: {text!r} is not a number") from error
    kind = _INTEGERS.get(name, "milliseconds")
    if colon and not (1 <= number < 1e9 and (name not in _INTEGERS or number == int(number))):
        raise BadSetting(f"{setting} = {word!r}: give {kind}, 1 or more")
    return name, number


_INTEGERS = {"count": "a whole number of launches", "locked": "a whole number of MHz"}
