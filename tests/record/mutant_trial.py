"""Put one mutant through the gate on the emulator."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType

from tests.record.edits import Edit
from worklog.emulator.device import build
from worklog.errors import CompileFailed, WorklogError
from worklog.gate import edge_shapes
from worklog.kernel import Kernel
from worklog.kernel.ladder import RUNGS
from worklog.kernel.nvrtc import Compiled
from worklog.kernel.resources import section
from worklog.kernel.rungs import equal_shares, split
from worklog.peers.exploits import exploits
from worklog.problem import Shape
from worklog.runner.check import Checked, check

SYNCHRONISES = re.compile(r"__sync|__shfl|__threadfence|atomic|\bmma\b|cp\.async")
SMALL = Path(__file__).parents[1] / "emulator" / "kernels" / "right"
ADDS_TO_C = "atomic_halves"
NOT_COMPILED, EQUAL, TOO_SLOW, SURVIVED = "does not compile", "same code", "time limit", "survived"
SEED = 0
LIMIT_S = 120.0


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant. result: NOT_COMPILED, EQUAL (to the original's PTX or machine code), TOO_SLOW, SURVIVED,
    or the stage of the gate that failed it. detail: of the stage, or the class and the notes of a survivor.
    """

    kernel: str
    file: str
    kind: str
    edit: str
    result: str
    detail: str
    seconds: float

    @property
    def name(self) -> str:
        """The same for each run on this source."""
        return f"{self.file}:{self.edit}"


class TimeLimit(Exception):
    """The mutant takes too long."""


@cache
def kernels() -> dict[str, Kernel]:
    """The rungs, with as few blocks as show their idea, then small right kernels of the tests that synchronise."""
    rungs = {one.name: one.at(Shape(130, 190, 700)) for one in RUNGS}
    rungs |= {"equal_shares": equal_shares(2), "split": split(128).with_launch(grid="2")}
    small = {one.name: one.kernel for one in exploits() if not one.wrong and SYNCHRONISES.search(one.kernel.source)}
    rules, dynamic = "M % 16 == 0, N % 16 == 0, K % 16 == 0", {"dynamic_tiles": 2048}
    for path in sorted(SMALL.glob("*.cu")):
        source = path.read_text(encoding="utf-8")
        if SYNCHRONISES.search(source) and path.stem != ADDS_TO_C:
            words = {"grid": "N / 16, M / 16", "block": "16,16", "domain": rules, "shared": dynamic.get(path.stem, 0)}
            small[path.stem] = Kernel.from_file(path, **words)
    return rungs | small


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TimeLimit after these seconds."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeLimit

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@cache
def original(name: str) -> Checked:
    """The verdict on the unedited kernel. Raises WorklogError where it isn't right."""
    done = _checked(kernels()[name])
    if not done.verdict.accepted:
        raise WorklogError(f"{name} itself is refused: {done.verdict.reason}")
    return done


def tried(name: str, edit: Edit, limit_s: float = LIMIT_S) -> Outcome:
    """Compile a mutant, compare its code with the original's, and check it."""
    kernel, started = kernels()[name], time.perf_counter()
    mutant = kernel.with_text(edit.applied(kernel.source))
    try:
        with limited(limit_s):
            result, detail = _result(name, kernel, mutant)
    except TimeLimit:
        result, detail = TOO_SLOW, f"{limit_s:g} s"
    seconds = round(time.perf_counter() - started, 1)
    return Outcome(name, kernel.file, edit.kind, str(edit), result, detail, seconds)


def _result(name: str, kernel: Kernel, mutant: Kernel) -> tuple[str, str]:
    try:
        if all(map(_same, _compiled(kernel), _compiled(mutant))):
            return EQUAL, ""
        done = _checked(mutant)
    except CompileFailed as error:
        return NOT_COMPILED, str(error).splitlines()[0]
    except WorklogError as error:
        return type(error).__name__, str(error).splitlines()[0]
    if not done.verdict.accepted:
        stage = done.verdict.stages[-1]
        kinds = [one.kind for one in done.findings if one.is_error]
        return ("finding" if stage.name == "launch" and kinds else stage.name), stage.detail[:200]
    right = original(name).verdict
    found = [done.verdict.precision] if done.verdict.precision != right.precision else []
    return SURVIVED, "; ".join(map(str, [*found, *(note for note in done.verdict.notes if note not in right.notes)]))


def _compiled(kernel: Kernel) -> list[Compiled]:
    return [build(one.program)[0] for one in kernel.passes]


def _same(one: Compiled, other: Compiled) -> bool:
    """Whether two kernels have the same PTX, or the same machine code."""
    texts = [re.sub(r"^\s*(?:\.loc|//).*\n", "", compiled.ptx, flags=re.MULTILINE) for compiled in (one, other)]
    if texts[0].partition(".section")[0] == texts[1].partition(".section")[0]:
        return True
    codes = [section(compiled.cubin, f".text.{compiled.symbol}") for compiled in (one, other)]
    constants = [section(compiled.cubin, f".nv.constant2.{compiled.symbol}") for compiled in (one, other)]
    return codes[0] == codes[1] != b"" and constants[0] == constants[1] and one.shared_bytes == other.shared_bytes


def _checked(kernel: Kernel) -> Checked:
    return check(kernel, edge_shapes(kernel.domain)[-1], on="emulated", seed=SEED, limit_s=float("inf"))
