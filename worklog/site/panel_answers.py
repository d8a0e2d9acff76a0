"""The answers of the first page's panel: data.js holds the answer to every choice of a reader."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from worklog.errors import BadRunFile, NotRecorded
from worklog.lab.answers import Answers
from worklog.lab.readings import LAUNCHES, SPOKEN, grid_runs
from worklog.lab.widgets import Panel, places
from worklog.runs import Run
from worklog.runs.text import silent
from worklog.settings import PITFALLS
from worklog.site.pages import packed
from worklog.site.steps import Steps

# With another value of these, the launches are the same.
COMPUTED = [
    pitfall for pitfall in PITFALLS if pitfall not in LAUNCHES and pitfall.setting not in SPOKEN
]
# With a host clock, all values of the queue have the same answer.
QUEUE = next(pitfall for pitfall in PITFALLS if pitfall.setting == "queue")
ANSWER_STEPS = 40  # of the progress: 7,600 answers take as long as everything else together


def answers(run: Run | Path | None, steps: Steps | None = None) -> bytes:
    """Return data.js: every answer of the panel, by choice.

    A choice is without the settings that change only a sentence. An answer is the places of its
    parts in `parts`, because most parts belong to several answers.
    Raises BadRunFile without a run, NotRecorded for a run without an unbiased reading.
    """
    steps = steps or Steps(silent, ANSWER_STEPS)
    grid = _grid(run)
    panel = _panel(grid)
    start = panel.chosen
    panel.unobserve(panel.show, "chosen")  # nobody sees it
    timed = [place for place, pitfall in enumerate(PITFALLS) if pitfall.setting not in SPOKEN]
    choices = [*_choices(panel.answers, grid)]
    begins = Counter(step * len(choices) // ANSWER_STEPS for step in range(ANSWER_STEPS))
    parts = dict[str, int]()
    by_choice = {}
    for number, choice in enumerate(choices):
        for _ in range(begins[number]):
            steps.begin(f"answer {number} of {len(choices)} of the panel")
        panel.chosen = choice
        by_choice[_key(choice, timed)] = _places_of_parts(panel.answered(), parts)
    data = {
        "start": start,
        "timed": timed,
        "answers": by_choice,
        "table": {name: values for name, values in panel.table.items() if name != "live"},
        "parts": [*map(json.loads, parts)],
    }
    return f'globalThis.worklogData = "{packed(data)}";\n'.encode()


def _grid(run: Run | Path | None) -> Run:
    """Return the panel's run. Raises BadRunFile if there is none."""
    grids = grid_runs(run)
    if not grids:
        raise BadRunFile(
            "the panel has no recording with WORKLOG_SOURCE=live: give one of `python -m "
            "tests.record.grid` with --grid"
        )
    return grids[0]


def _key(choice: Mapping[str, Any], timed: Sequence[int]) -> str:
    """Return a choice as show_panel.js looks it up: kernel/size/value/value/…

    timed: the pitfalls' places in the table whose values are part of the key
    """
    values = [choice["values"][place] for place in timed]
    return "/".join(map(str, (choice["kernel"], choice["size"], *values)))


def _places_of_parts(answer: Mapping[str, Any], parts: dict[str, int]) -> dict[str, int]:
    """Return the place of each part of an answer. New parts are appended to `parts`."""
    places_of_parts = {}
    for name, value in answer.items():
        text = json.dumps(value, ensure_ascii=False)
        places_of_parts[name] = parts.setdefault(text, len(parts))
    return places_of_parts


def _panel(grid: Run) -> Panel:
    """Return the page's panel: the last kernel at the largest size, with all four gremlins.

    It begins unbiased if the grid has no time with all four.
    Raises NotRecorded for a grid without an unbiased reading.
    """
    source = Answers([grid])
    kernel = source.kernels[-1]
    largest = source.shapes[-1]
    if not any(source.has(m.kernel, m.problem, source.unbiased) for m in grid.measurements):
        raise NotRecorded(
            f"this {grid.origin} run has no unbiased reading: make one: `python -m "
            "tests.record.grid`"
        )
    gremlins = {pitfall.setting: pitfall.biased[0] for pitfall in PITFALLS if pitfall.article}
    if not source.has(kernel, largest, source.unbiased | gremlins):
        gremlins = {}
    panel = Panel(source, kernel, largest, gremlins)
    panel.reason = "the page measures nothing"
    return panel


def _choices(source: Answers, grid: Run) -> Iterator[dict[str, Any]]:
    """Yield everything that a reader of the page can choose.

    These are each measurement's settings, with all values of the settings that need no further
    launches.
    """
    for m in grid.measurements:
        if m.status != "measured" or not source.has(m.kernel, m.problem, source.unbiased):
            continue
        free = [*COMPUTED, QUEUE] if m.changed.get("timer") == "host" else COMPUTED
        names = [pitfall.setting for pitfall in free]
        kernel = source.kernels.index(m.kernel)
        size = source.shapes.index(m.problem)
        for values in product(*(pitfall.values for pitfall in free)):
            settings = source.unbiased | m.changed | dict(zip(names, values, strict=True))
            yield {"kernel": kernel, "size": size, "values": places(settings)}
