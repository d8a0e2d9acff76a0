"""What a launch finds of the launch before it, and where its code lies: the recording that notebook 02 shows.

Run: python -m tests.record.what_ran_before worklog/recordings/turns/h100.json   (needs a GPU; about 4 minutes)

roles: copies of a rung, loaded one by one, in loops with cuBLAS; each copy is the subject in some. placement says
whether code and buffers move. after: trimmed mean in µs of a rung that follows its own code or cuBLAS, in turns of
random order. state: "as found": nothing but the flush runs between two launches; "warm L2": not even that;
"overwritten": a kernel of 20,000 instructions runs first, which fills the instruction caches; "brought back": the
harness's way, a launch of the same code first.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from worklog.gpu import tool
from worklog.harness import Harness
from worklog.harness.batches import _take_queued
from worklog.harness.launch import Witnessed, witnessed
from worklog.kernel import rung
from worklog.problem import Shape
from worklog.runner.job import attempt
from worklog.runner.launches import Loop, elements
from worklog.runner.session import Session
from worklog.runner.tasks import Task
from worklog.runs import event_overhead_us

RUNGS = ("best", "shared", "warptiled")
SIZES = (256, 1024)
COPIES = ("first", "second", "third")
PROCESSES, LOOPS, TURNS = 3, 4, 1000
STATES = {"as found": "flush", "warm L2": "warm", "overwritten": "flush", "brought back": "flush"}


def copies_of(name: str) -> dict[str, Any]:
    record = rung(name)
    return {copy: replace(record.with_text(f"{record.source}\n// {copy}\n"), name=copy) for copy in COPIES}


def roles(session: Session, name: str, size: int, placement: str) -> Iterator[dict[str, Any]]:
    session.user_kernels.update(copies_of(name))  # type: ignore[attr-defined]
    for copy in COPIES:
        session._subjects.pop(copy, None)
    session._verdicts.clear()
    for subject in COPIES * LOOPS:
        others = tuple(copy for copy in COPIES if copy != subject)
        task = Task(subject, Shape.of(size), (("placement", placement),), against=others)
        for m in attempt(session, task, Harness().but(placement=placement))[1:]:
            yield {
                "rung": name, "size": size, "placement": placement, "subject": subject, "baseline": m.baseline,
                "ratio": m.ratio, "low": m.ratio_low, "high": m.ratio_high,
            }  # fmt: skip


def overwriter(session: Session) -> Callable[[], None]:
    import cupy

    lines = "".join(f"x = x * a + {number}.5f;\n" for number in range(20_000))
    text = f'extern "C" __global__ void fill(float* o, float a) {{ float x = a;\n{lines} if (x == 12.5f) o[0] = x; }}'
    function, sink = cupy.RawModule(code=text).get_function("fill"), cupy.zeros(1, cupy.float32)

    def launch() -> None:
        with session.device.stream:
            function((264,), (32,), (sink, np.float32(1.000001)))

    return launch


def trimmed(values: list[float]) -> float:
    """The mean without the lowest and the highest tenth: events tick in steps of 0.032 µs, which a median keeps."""
    tenth = len(values) // 10
    return float(np.mean(sorted(values)[tenth:-tenth]))


def after(session: Session, name: str, state: str) -> dict[str, Any]:
    shape, timeline, harness = Shape.of(256), session.timeline, Harness().but(l2=STATES[state])
    own = session.kernel(name).load(session.device)
    subjects = (own, session.baselines["fp32"], own)
    checker = session.checker(shape)
    checker.buffers.poison()
    classes = ("fp32",) * 3 if state == "brought back" else None
    pool = session.pool(elements(shape, 1, subjects))
    loop = Loop(checker, subjects, in_step=True, classes=classes, warm=state == "brought back", pool=pool)
    loop.relocated = []
    before, rng = overwriter(session), np.random.default_rng(0)
    times: dict[str, list[float]] = defaultdict(list)
    clocks: dict[str, list[float]] = defaultdict(list)
    timeline.make_room(2)
    previous = None
    for turn in range(TURNS):
        if turn % 4 == 0:
            loop.move()
            previous = None
        for side in rng.permutation(3):
            launch = witnessed(loop.launches[side])
            timeline.draw_place()
            timeline.lift_marks()
            _take_queued(timeline, Witnessed(launch.launch, before) if state == "overwritten" else launch, harness, 0)
            if side != 1 and previous is not None:
                found = "its own code" if previous != 1 else "cuBLAS"
                times[found].append(timeline.elapsed_us(0, 1))
                clocks[found].append(timeline.clock_mhz(0, 1))
            previous = side
    loop.leave_pool()
    checker.buffers.restore()
    overhead = event_overhead_us(harness.as_dict(), session.calibration.as_dict())
    return {
        "rung": name, "state": state,
        "us": {found: round(trimmed(us) - overhead, 3) for found, us in times.items()},
        "sm_mhz": {found: round(float(np.nanmedian(mhz)), 1) for found, mhz in clocks.items()},
    }  # fmt: skip


def process(number: int) -> None:
    session = Session({})
    for name in RUNGS:
        for placement in ("fixed", "varied"):
            for size in SIZES:
                for row in roles(session, name, size, placement):
                    print(json.dumps({"roles": row | {"process": number}}), flush=True)
        for state in STATES if number == 0 else ():
            print(json.dumps({"after": after(session, name, state)}), flush=True)
    print(json.dumps({"head": session.head(Harness(), [])}), flush=True)


def main(path: Path) -> None:
    document: dict[str, Any] = {"tool": tool(), "roles": [], "after": []}
    for number in range(PROCESSES):
        command = [sys.executable, "-m", "tests.record.what_ran_before", "--process", str(number)]
        for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
            for key, value in json.loads(line).items():
                if key == "head":
                    document |= {"device": value["device"], "calibration": value["calibration"]}
                else:
                    document[key].append(value)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "--process":
        process(int(sys.argv[2]))
    else:
        main(Path(sys.argv[1]))
