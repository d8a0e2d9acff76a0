"""The harness's settings: the pitfalls that bias a measurement, and how samples are taken.

Harness, ablation, command line, panel and documentation come from these tables, so a pitfall is
added in this file alone: its type, its field of Harness, its rule and its row in PITFALLS.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, TypedDict, Unpack

from worklog.errors import BadSetting, check_keywords, hinted, meant

Value = str | bool
# The values of the settings, for type checkers; PITFALLS has them at run time. A setting of RULES
# is a str, because numbers may follow its value, as in "count:10".
Timer = Literal["events", "graph", "host"]
L2 = Literal["flush", "rotate", "warm"]
Offset = Literal["removed", "kept"]
Statistic = Literal["median", "mean", "min", "first"]
Order = Literal["interleaved", "sequential"]
Turns = Literal["balanced", "fixed"]
Placement = Literal["varied", "fixed"]
Inputs = Literal["random", "zeros", "ones"]
Gate = bool | Literal["article"]
Baseline = Literal["fp32", "tf32"]
Roof = Literal["fp32", "bf16_datasheet"]

WALL_CLOCK = "wall clock"  # the timer of a cross-check
# The arguments of the running `worklog` command; none in Python.
COMMAND = ContextVar[tuple[str, ...]]("COMMAND", default=())


@dataclass(frozen=True)
class Pitfall:
    """A way to get a wrong number."""

    setting: str  # the name in Harness
    unbiased: Value  # the default of the setting
    biased: tuple[Value, ...]  # values of the setting
    title: str
    what: str  # goes wrong
    article: int | None = None  # the number among the article's four pitfalls
    corrupts: str = "TFLOP/s"  # the number that the pitfall changes
    # Whether the pitfall changes how samples are taken. Otherwise its effect follows from unbiased
    # samples.
    resampled: bool = True
    also: tuple[Value, ...] = ()  # further unbiased values

    @property
    def values(self) -> tuple[Value, ...]:
        """Every value of the setting, the unbiased values first."""
        return (self.unbiased, *self.also, *self.biased)

    def check(self, value: Any) -> None:
        """Raise BadSetting for a value that the setting doesn't accept; True is not 1."""
        name = rule(value) if self.setting in RULES else value
        if not any(type(name) is type(choice) and name == choice for choice in self.values):
            names = [str(choice) for choice in self.values]
            advice = meant(str(value), names)
            raise BadSetting(
                f"{self.setting} = {value!r} is not a setting{advice}: choose from "
                f"{', '.join(names)}"
            )

    def is_biased(self, value: Value) -> bool:
        """Return whether a value of the setting is biased."""
        return rule(value) in self.biased


def rule(value: Value) -> Value:
    """Return the value without its numbers: "count" of "count:10"."""
    return value.partition(":")[0] if isinstance(value, str) else value


# The values of these settings, each with the names and defaults of its numbers, which may follow
# after ":". A clock of 0 MHz is chosen automatically. worklog.harness.rules has the rules.
RULES: dict[str, dict[str, dict[str, float]]] = {
    "clocks": {"watched": {}, "ignored": {}, "locked": {"MHz": 0}},
    "warmup": {
        "steady": {}, "count": {"launches": 10}, "time": {"ms": 25.0}, "salykova": {},
        "tensara": {"N": 5000, "products": 10, "pause ms": 500.0},
    },
    "stopping": {
        "interval": {}, "count": {"launches": 10}, "time": {"ms": 100.0}, "salykova": {},
        "tensara": {"variation %": 1.0, "least": 5, "most": 20}, "nvbench": {"noise %": 0.5, "ms": 500.0, "least": 10},
    },
}  # fmt: skip


class PitfallSettings(TypedDict, total=False):
    """The settings of the pitfalls as keywords, for type checkers."""

    clocks: str
    timer: Timer
    l2: L2
    warmup: str
    queue: bool
    offset: Offset
    statistic: Statistic
    order: Order
    turns: Turns
    placement: Placement
    inputs: Inputs
    gate: Gate
    baseline: Baseline
    roof: Roof


class HarnessSettings(PitfallSettings, total=False):
    """The settings of a Harness as keywords, for type checkers."""

    precision: float
    least_samples: int
    most_samples: int
    budget_s: float
    stopping: str
    graph_launches: int
    hot_ms: float
    energy_s: float
    sleep_ms: float
    least_share: float


@dataclass(frozen=True, repr=False)
class Harness:
    """How to measure.

    Each field up to `roof` belongs to a pitfall, and its default is unbiased. The other fields
    state how long to measure. No field is in a group, since a call, --set and a run file name each
    setting alone. Raises BadSetting for a value that PITFALLS and SAMPLING don't have.
    """

    clocks: str = "watched"
    timer: Timer = "events"
    l2: L2 = "flush"
    warmup: str = "steady"
    queue: bool = True
    offset: Offset = "removed"
    statistic: Statistic = "median"
    order: Order = "interleaved"
    turns: Turns = "balanced"
    placement: Placement = "varied"
    inputs: Inputs = "random"
    gate: Gate = True
    baseline: Baseline = "fp32"
    roof: Roof = "fp32"
    precision: float = 0.005
    least_samples: int = 10
    most_samples: int = 2000
    budget_s: float = 8.0
    stopping: str = "interval"
    graph_launches: int = 10
    hot_ms: float = 10.0
    energy_s: float = 0.0
    sleep_ms: float = 0.0
    least_share: float = 0.0

    def __post_init__(self) -> None:
        for pitfall in PITFALLS:
            pitfall.check(getattr(self, pitfall.setting))
        for name in SAMPLING:
            self._check_sampling(name)
        for name in RULES:
            if (name, getattr(self, name)) != ("warmup", "none"):
                split_rule(name, getattr(self, name))
        if self.least_samples > self.most_samples:
            raise BadSetting(
                f"least_samples = {self.least_samples} is above most_samples = {self.most_samples}"
            )
        if self.timer == "graph" and self.l2 == "flush":
            raise BadSetting(
                "timer = graph cannot flush between its launches: set l2=rotate too (cold) or "
                "l2=warm"
            )
        if self.timer == "graph" and self.warmup == "none":
            raise BadSetting(
                "timer = graph and warmup = none contradict: what is recorded has been launched "
                "before"
            )

    def _check_sampling(self, name: str) -> None:
        """Raise BadSetting for the value of a sampling setting that has the wrong type or range."""
        _, limits = SAMPLING[name]
        value = getattr(self, name)
        kind = type(getattr(Harness, name))
        is_number = kind is float and type(value) is int  # True is no number
        if type(value) is not kind and not is_number:
            raise BadSetting(
                f"{name} = {value!r} is of type {type(value).__name__}: give {TYPES[kind]}"
            )
        if limits is None:
            return
        lower, upper = limits
        if not lower <= value <= upper:
            limit = f"at least {lower:g}" if upper == math.inf else f"from {lower:g} to {upper:g}"
            raise BadSetting(f"{name} = {value!r} must be {limit}")

    def __repr__(self) -> str:
        """Return the settings that differ from the unbiased harness."""
        changed = [
            f"{name}={value!r}"
            for name, value in self.as_dict().items()
            if value != getattr(Harness, name)
        ]
        return f"Harness({', '.join(changed)})"

    @classmethod
    def naive(cls) -> Harness:
        """Return a harness with the first biased value of every pitfall."""
        biased: dict[str, Any] = {pitfall.setting: pitfall.biased[0] for pitfall in PITFALLS}
        return cls().but(**biased)

    @property
    def queues(self) -> bool:
        """Whether each timed launch is enqueued behind a blocking kernel."""
        return self.queue and self.timer != "host"

    def but(self, **changes: Unpack[HarnessSettings]) -> Harness:
        """Return the harness with some settings changed."""
        check_keywords("there is no setting", changes, [field.name for field in fields(self)])
        return replace(self, **changes)

    def biased(self) -> dict[str, Value]:
        """Return the settings that are biased, with their values."""
        values = {pitfall: getattr(self, pitfall.setting) for pitfall in PITFALLS}
        return {
            pitfall.setting: value for pitfall, value in values.items() if pitfall.is_biased(value)
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for a run file."""
        return asdict(self)


Harness.__init__ = hinted(Harness.__init__)  # type: ignore[method-assign]


def _pitfall(
    setting: str, biased: tuple[Value, ...], title: str, problem: str, **options: Any
) -> Pitfall:
    """Return a pitfall. Its unbiased value is the default of the setting."""
    return Pitfall(setting, getattr(Harness, setting), biased, title, problem, **options)


PITFALLS = (
    _pitfall("clocks", ("ignored",), "clocks drift",
             "The SM clock changes with load and temperature, and every time changes with it.",
             article=1, also=("locked",)),
    _pitfall("timer", ("host",), "the launch is asynchronous",
             "A host clock around a launch times the queue, not the kernel.", article=2, also=("graph",)),
    _pitfall("l2", ("warm",), "L2 stays warm",
             "The launch before left the inputs in L2, where a single call would not find them.",
             article=3, also=("rotate",)),
    _pitfall("warmup", ("none",), "cold start",
             "A first launch has costs that later ones don't have, such as loading its module.",
             article=4, also=("count", "time", "salykova", "tensara")),
    _pitfall("queue", (False,), "the launch bubble",
             "Between two events on an empty stream, the GPU waits for the host to launch."),
    _pitfall("offset", ("kept",), "the event pair has a length",
             "Two events around nothing read some microseconds; every kernel gets them on top.", resampled=False),
    _pitfall("statistic", ("mean", "min", "first"), "one fat outlier",
             "A mean follows the one sample that was interrupted; a minimum shows the "
             "luckiest.", resampled=False),
    _pitfall("order", ("sequential",), "drift between two kernels",
             "Timed one after the other, kernel and baseline run at different clocks and "
             "temperatures.",
             corrupts="of cuBLAS"),
    _pitfall("turns", ("fixed",), "what ran before",
             "A kernel that ran just before has left its code in the instruction caches. If all "
             "turns have one order, "
             "each kernel always follows the same other one.", corrupts="of cuBLAS"),
    _pitfall("placement", ("fixed",), "buffers and code stay in one place",
             "Buffers and code lie in one place for all samples; a time can depend on the "
             "addresses of A, B, C and of "
             "the code, and an interval over launches in one place can't see it."),
    _pitfall("inputs", ("zeros", "ones"), "easy data", "Zeros draw less power, and hide wrong "
                                                       "answers."),
    _pitfall("gate", (False, "article"), "wrong answers are fast",
             "Without a check, the fastest kernel is the one that does least; with a loose one, "
             "BF16."),
    _pitfall("baseline", ("tf32",), "the baseline runs on another datapath",
             "cuBLAS may use tensor cores with 10-bit mantissas when asked for FP32.", corrupts="of cuBLAS"),
    _pitfall("roof", ("bf16_datasheet",), "the wrong roof",
             "A share of another datapath's peak says nothing.", corrupts="of the roof", resampled=False),
)  # fmt: skip
# How long to measure: the meaning of each setting, and its lowest and highest number, or None for
# text.
SAMPLING: dict[str, tuple[str, tuple[float, float] | None]] = {
    "precision": (
        "relative half-width of the 95 % interval at which sampling stops",
        (1e-6, 0.999),
    ),
    "least_samples": ("minimum number of samples", (1, math.inf)),
    "most_samples": ("maximum number of samples", (1, math.inf)),
    "budget_s": ("seconds for the samples of one kernel at one size", (1e-6, 1e9)),
    "stopping": (
        (
            f"the stopping criterion: {', '.join(RULES['stopping'])}; results state what it "
            "doesn't "
            "check"
        ),
        None,
    ),
    "graph_launches": ("launches in one graph (timer = graph), fewer of slow kernels", (1, 10_000)),
    "hot_ms": (
        "milliseconds of launches in a row for the hot time beside the cold one; 0 for none",
        (0, 1000),
    ),
    "energy_s": (
        "seconds of launches in a row for the joules of a launch; 0 for none",
        (0, 60),
    ),
    "sleep_ms": (
        "milliseconds that the host sleeps and the GPU idles before each sample",
        (0, 60_000),
    ),
    "least_share": (
        "share of the baseline below which, with its interval, sampling stops; 0 for none",
        (0, 1e9),
    ),
}
# These pitfalls change how to measure, and the ablation sets all of them together. The excluded
# pitfalls change what is measured.
HOW_ONE_MEASURES = tuple(
    pitfall.setting
    for pitfall in PITFALLS
    if pitfall.setting not in ("baseline", "inputs", "roof", "gate")
)
TYPES: dict[type, str] = {
    float: "a number",
    int: "a whole number",
    str: "a word such as 'interval'",
}
TRUTH = {
    "true": True,
    "on": True,
    "yes": True,
    "1": True,
    "false": False,
    "off": False,
    "no": False,
    "0": False,
}


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """Return settings for Harness.but().

    pairs: text such as "l2=warm", "queue=false" or "precision=0.01"

    Raises BadSetting.
    """
    defaults = Harness().as_dict()
    settings = dict[str, Any]()
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise BadSetting(f"cannot read --set {pair}: give setting=value, such as l2=warm")
        if name in settings:
            raise BadSetting(f"--set {pair}: {name} is set twice; give it one value")
        kind = type(defaults.get(name, text))
        try:
            settings[name] = TRUTH.get(text.lower(), text) if kind is bool else kind(text)
        except ValueError as error:
            raise BadSetting(f"cannot read --set {pair}: give {TYPES[kind]}") from error
    return settings


def split_rule(setting: str, value: str) -> tuple[str, list[float]]:
    """Return the name and the numbers of a value, such as "count:10".

    A number that isn't stated has its default. Raises BadSetting.
    """
    name, *texts = value.split(":")
    rules = RULES[setting]
    if name not in rules or len(texts) > len(rules[name]):
        choices = [
            choice + "".join(f"[:{unit}" for unit in units) + "]" * len(units)
            for choice, units in rules.items()
        ]
        raise BadSetting(
            f"{setting} = {value!r} is not a setting: choose from {', '.join(choices)}"
        )
    numbers = list(rules[name].values())
    for index, (unit, text) in enumerate(zip(rules[name], texts, strict=False)):
        try:
            number = float(text)
        except ValueError as error:
            raise BadSetting(f"{setting} = {value!r}: {text!r} is not a number ({unit})") from error
        is_whole = isinstance(numbers[index], int)
        if not 0 < number < 1e9 or (is_whole and not number.is_integer()):
            kind = "whole number" if is_whole else "number"
            raise BadSetting(f"{setting} = {value!r}: give a {kind} above 0 ({unit})")
        numbers[index] = number
    return name, numbers
