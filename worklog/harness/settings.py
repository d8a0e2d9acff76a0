"""How to measure: one frozen value whose fields are the settings of the table of gremlins, honest by default."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from worklog.errors import BadSetting
from worklog.gremlins import GREMLINS, Gremlin, Value
from worklog.harness.l2 import require_no_flush
from worklog.harness.rules import STOPPINGS, stopping_rule, warm_up_rule

# The settings that are no gremlins but patience.
PATIENCE = {
    "precision": "half-width of the median's 95 % interval, relative, at which sampling stops",
    "least_samples": "fewer are never enough",
    "most_samples": "more are never taken",
    "budget_s": "seconds that sampling one kernel at one size may take",
    "stopping": f"the rule by which sampling stops; also {', '.join(STOPPINGS[1:])}, which say what they do not check",
}

# What each of them may be, by the annotation of its field: the types and how to ask for one.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "float": ((int, float), "a number"),
    "int": ((int,), "a whole number"),
    "str": ((str,), "a word such as 'interval'"),
}


@dataclass(frozen=True)
class Harness:
    """How to measure. Each field is the setting of one gremlin; the defaults are honest. Raises BadSetting for any
    other value.

    The remaining fields are no gremlins but patience (PATIENCE). `stopping` names a rule of worklog.harness.rules; the
    honest one looks at the interval.
    """

    clocks: str = "watched"
    timer: str = "events"
    l2: str = "flush"
    warmup: str = "steady"
    queue: bool = True
    offset: str = "removed"
    statistic: str = "median"
    order: str = "interleaved"
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
        for gremlin in GREMLINS:
            value = getattr(self, gremlin.setting)
            if not gremlin.takes(value):
                raise BadSetting(
                    f"{gremlin.setting} = {value!r} is not a setting: choose from {', '.join(map(str, gremlin.values))}"
                )
        self._require_kinds()
        if self.timer == "graph":
            require_no_flush(self.l2)
            if self.warmup == "none":
                raise BadSetting(
                    "timer = graph and warmup = none contradict: what is recorded has been launched before"
                )
        if self.warmup != "none":
            warm_up_rule(self.warmup, size=1024)
        stopping_rule(self.stopping, self.precision, self.least_samples, size=1024)
        if not 0 < self.precision < 1:
            raise BadSetting(f"precision = {self.precision!r} must be between 0 and 1: 0.005 stops at ±0.5 %")
        if not 1 <= self.least_samples <= self.most_samples:
            raise BadSetting(
                f"least_samples = {self.least_samples} and most_samples = {self.most_samples}: need 1 <= least <= most"
            )
        if not 0 < self.budget_s < math.inf:
            raise BadSetting(f"budget_s = {self.budget_s!r} must be a positive, finite number of seconds")

    def _require_kinds(self) -> None:
        """Raise BadSetting for patience of a wrong type: text is no number, True no count, and 2.5 no whole number."""
        kinds = {field.name: str(field.type) for field in fields(self)}
        for name in PATIENCE:
            value, (types, words) = getattr(self, name), _KINDS[kinds[name]]
            if isinstance(value, bool) or not isinstance(value, types):
                raise BadSetting(f"{name} = {value!r} is of type {type(value).__name__}: give {words}")

    @classmethod
    def naive(cls) -> Harness:
        """Every gremlin at large: the first lie of each, except that kernels and roof stay what they are named."""
        return cls().but(**{gremlin.setting: gremlin.lies[0] for gremlin in GREMLINS})

    @classmethod
    def article_naive(cls) -> Harness:
        """Only the article's four gremlins at large."""
        return cls().but(**{gremlin.setting: gremlin.lies[0] for gremlin in GREMLINS if gremlin.article})

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
    def fixes(cls) -> tuple[Gremlin, ...]:
        """The table."""
        return GREMLINS

    def lies(self) -> dict[str, Value]:
        """The gremlin settings that are not honest."""
        return {g.setting: getattr(self, g.setting) for g in GREMLINS if g.is_lie(getattr(self, g.setting))}

    def taken_off(self, offset_us: float) -> float:
        """Microseconds to take off each sample, where a pair of events reads offset_us too long."""
        return offset_us if self.offset == "removed" and self.timer == "events" else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For a run file."""
        return asdict(self)


def require_unchanged(recorded: dict[str, Any], *found: dict[str, Any]) -> None:
    """Raise BadSetting unless the settings found after a measurement are those recorded before the run: a result that
    was taken under others must not be kept.
    """
    for settings in found:
        changed = [name for name in sorted({*recorded, *settings}) if recorded.get(name) != settings.get(name)]
        if changed:
            name = changed[0]
            raise BadSetting(
                f"the harness changed under the run: {name} was {recorded.get(name)!r} and is {settings.get(name)!r}; "
                "the measurement is not kept: find what changes it, and measure again"
            )


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """Settings from words such as "l2=warm", "queue=false" or "precision=0.01". Raises BadSetting for what cannot be
    read, and for a setting that is there twice.
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


def _read(name: str, word: str, kind: str) -> Any:
    if kind.startswith("bool"):
        truth = {
            "true": True,
            "on": True,
            "yes": True,
            "1": True,
            "false": False,
            "off": False,
            "no": False,
            "0": False,
        }
        if word.lower() not in truth and kind == "bool":
            raise BadSetting(f"cannot read --set {name}={word}: give true or false")
        return truth.get(word.lower(), word)
    if kind in ("int", "float"):
        try:
            return int(word) if kind == "int" else float(word)
        except ValueError as error:
            raise BadSetting(f"cannot read --set {name}={word}: give a number") from error
    return word
