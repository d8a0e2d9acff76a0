"""Record the combinations of settings that the panel shows.

`python -m tests.record.grid grid.jsonl` on a machine with a GPU, in minutes. `worklog site --grid
FILE` shows them.
"""

import sys
from itertools import combinations
from pathlib import Path

from worklog.problem import Shape
from worklog.runner.execute import carry_out, order_of
from worklog.runner.job import ABLATION_RUNGS, GRID_SIZES, Changes, Job, product_job
from worklog.settings import PITFALLS, Harness

# A second is a few launches of the slowest kernel; so few samples keep a recording small enough to
# be shipped.
SAMPLING: Changes = (("most_samples", 40), ("budget_s", 1.0), ("hot_ms", 0.0))


def grid_jobs() -> list[Job]:
    """Return the measurements that the panel answers from, for each rung at each size.

    Each pitfall that needs launches alone, each two of them together, every combination of the
    article's four fixes and the blocking kernel, and all together; and from all together and from
    the article's four, each setting changed alone. What only changes the arithmetic on samples is
    computed, and the gate doesn't change the launches.
    """
    every = [g for g in PITFALLS if g.resampled and g.setting != "gate"]
    fixes = [g for g in every if g.article or g.setting == "queue"]
    chosen = [both for count in range(3) for both in combinations(every, count)]
    chosen += [
        several for count in range(3, len(fixes) + 1) for several in combinations(fixes, count)
    ]
    for changed in every:
        chosen.append(tuple(g for g in every if g is not changed))
        chosen.append(tuple(g for g in every if (g.article is not None) != (g is changed)))
    distinct = dict[Changes, None]()
    for pitfalls in [*chosen, tuple(every)]:
        biased = {g.setting: g.biased[0] for g in pitfalls}
        if biased.get("timer") == "host":  # which needs no blocking kernel
            biased.pop("queue", None)
        distinct[tuple(biased.items())] = None
    places = [(name, Shape.of(size)) for size in GRID_SIZES for name in ABLATION_RUNGS]
    return [
        product_job(name, shape, changes + SAMPLING)
        for name, shape in places
        for changes in distinct
    ]


if __name__ == "__main__":
    print(carry_out(order_of(grid_jobs(), Harness()), out=Path(sys.argv[1])).path)
