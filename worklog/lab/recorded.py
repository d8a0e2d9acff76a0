"""What a run holds for the panel, in words that are computed from it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from worklog.lab.choice import LAUNCHES, Held, in_words
from worklog.runs import Run, Table
from worklog.settings import PITFALLS, Pitfall, Value


def contents(run: Run) -> Table:
    """The rungs, the sizes and the combinations of settings that there is a time for at each rung and size."""
    held = Held(run)
    places = list(dict.fromkeys((m.kernel, m.problem) for m in run.measurements))

    def there(*changes: tuple[Pitfall, Value]) -> bool:
        settings = {**held.unbiased, **{g.setting: value for g, value in changes}}
        return all(held.has(*place, settings) for place in places)

    values = [(g, v) for g in LAUNCHES for v in g.values if v not in (g.unbiased, held.unbiased[g.setting])]
    alone = [change for change in values if there(change)]
    pairs = [(one, other) for one, other in combinations(alone, 2) if one[0] is not other[0]]
    several = [g for g, value in alone if value == g.biased[0]]
    whole = [subset for count in range(len(several) + 1) for subset in combinations(several, count)]
    held_whole = {subset for subset in whole if there(*((g, g.biased[0]) for g in subset))}
    complete = max(
        (s for s in held_whole if all(part in held_whole for n in range(len(s)) for part in combinations(s, n))),
        key=lambda subset: (len(subset), -whole.index(subset)),
        default=(),
    )
    more = f"every combination of {_names(complete)}" if len(complete) > 2 else "none"
    together = "; and all of these settings together" if tuple(several) in held_whole - {complete} else ""
    most = max((len(m.samples.get("us", ())) for m in run.measurements), default=0)
    rows = [
        ("rungs", ", ".join(dict.fromkeys(kernel for kernel, _ in places))),
        ("sizes", ", ".join(str(shape) for shape in dict.fromkeys(shape for _, shape in places))),
        ("one setting changed", _words(alone)),
        ("two of these", f"{sum(there(*pair) for pair in pairs)} of {len(pairs)} pairs"),
        ("three or more of these", more + together),
        ("any value of", f"{_names([g for g in PITFALLS if g not in LAUNCHES])}: these need no other launches"),
        ("not recorded", _words([change for change in values if change not in alone])),
    ]
    notes = [f"{len(run.measurements)} measurements of at most {most} samples", run.label]
    return Table("recorded for the panel", (), rows, left=2, notes=notes)


def _names(pitfalls: Iterable[Pitfall]) -> str:
    return ", ".join(g.setting for g in pitfalls)


def _words(changes: Iterable[tuple[Pitfall, Value]]) -> str:
    return ", ".join(in_words({g.setting: value}, [g]) for g, value in changes) or "none"
