"""Roughly how long measurements will take, from the rates in a recorded run: for a preview."""

from __future__ import annotations

import math
from collections.abc import Sequence

from worklog.bench.tasks import BASELINE, Task
from worklog.harness import Harness
from worklog.runs.run import Run, recordings

# Seconds of the gate for one kernel, from its stages' times in the recording of an H200. Most of it is the host's work
# on the elements of the matrices.
GATE_S = 0.15
GATE_S_PER_BYTE = 4e-9
GATE_LAUNCHES = 8
SLOWEST_FLOPS = 0.5e12  # per second, of naive: for an installation without a recording


def estimate(tasks: Sequence[Task], harness: Harness) -> tuple[list[float], str]:
    """Roughly the seconds per task, and the label of the run whose rates are used. A task takes the gate, which grows
    with the matrices, and the least number of samples of the kernel and of cuBLAS, up to the budget.
    """
    runs = [Run.load(path, origin="recorded") for path in list(recordings().values())[:1]]
    known = [(m.kernel, m.problem.flops, m.problem.flops / m.us * 1e6) for run in runs for m in run.select() if m.us]

    def launch_s(kernel: str, flops: int) -> float:
        """At this kernel's rate at the nearest size, or at the slowest rate for a kernel that wasn't recorded."""
        same = [(work, rate) for name, work, rate in known if name == kernel]
        same = same or [(work, rate) for _, work, rate in known] or [(flops, SLOWEST_FLOPS)]
        _, rate = min(same, key=lambda one: (abs(math.log(flops / one[0])), one[1]))
        return flops / rate

    def task_s(task: Task) -> float:
        kernel_s, flops = launch_s(task.kernel, task.shape.flops), task.shape.flops
        gate_s = GATE_S + GATE_S_PER_BYTE * task.shape.compulsory_bytes + GATE_LAUNCHES * kernel_s
        sampling_s = min(harness.budget_s, harness.least_samples * (kernel_s + launch_s(BASELINE, flops)))
        return (gate_s if harness.gate else 0.0) + sampling_s

    return [task_s(task) for task in tasks], runs[0].label if runs else "the slowest rung's"
