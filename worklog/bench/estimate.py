"""How long measurements will take, roughly, from what a recorded run took: for a preview."""

from __future__ import annotations

import math
from collections.abc import Sequence

from worklog.bench.tasks import BASELINE, Task
from worklog.harness import Harness
from worklog.runs.run import Run, recordings

# What the gate of one kernel takes, from the stages' own seconds in the recording, an H200's: most of it is the host's
# work on the matrices' elements.
GATE_S = 0.15
GATE_S_A_BYTE = 4e-9
GATE_LAUNCHES = 8
SLOWEST_FLOPS = 0.5e12  # naive's, a second: for an installation without a recording


def foreseen(tasks: Sequence[Task], harness: Harness) -> tuple[list[float], str]:
    """Roughly the seconds that each task takes, and whose rates that is reckoned from: the gate, which grows with the
    matrices, and the fewest samples of the kernel and of cuBLAS beside it, as far as patience goes.
    """
    runs = [Run.load(path, origin="recorded") for path in list(recordings().values())[:1]]
    known = [(m.kernel, m.problem.flops, m.problem.flops / m.us * 1e6) for run in runs for m in run.select() if m.us]

    def launch_s(kernel: str, flops: int) -> float:
        """At the rate of this kernel where its size comes nearest, or of the slowest for one that was not recorded."""
        alike = [(there, rate) for name, there, rate in known if name == kernel]
        alike = alike or [(there, rate) for _, there, rate in known] or [(flops, SLOWEST_FLOPS)]
        _, rate = min(alike, key=lambda one: (abs(math.log(flops / one[0])), one[1]))
        return flops / rate

    def task_s(task: Task) -> float:
        kernel_s, flops = launch_s(task.kernel, task.shape.flops), task.shape.flops
        gate_s = GATE_S + GATE_S_A_BYTE * task.shape.compulsory_bytes + GATE_LAUNCHES * kernel_s
        sampling_s = min(harness.budget_s, harness.least_samples * (kernel_s + launch_s(BASELINE, flops)))
        return (gate_s if harness.gate else 0.0) + sampling_s

    return [task_s(task) for task in tasks], runs[0].label if runs else "the slowest rung's"
