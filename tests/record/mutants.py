"""Put mutants of right kernels through the gate on the emulator.

`python -m tests.record.mutants --out FILE`; an hour on 2 cores, without the full checks. A run that
is stopped goes on where it was. `--count` takes the first mutants of the same draw.

A mutant is a rung of the ladder with one edit. It is tried at two tiles, in turn at a small one and
at the rung's own, and is killed if the gate fails it at either one. It is equivalent if its machine
code is the original's at both. `worklog check --quick` tries each mutant, and the full check those
that survive. The table counts what became of them; notebook 14 shows it. A survivor is wrong, and
the gate has a hole, unless explained.json, beside the recorded tables, says why its results are the
original's.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import pandas as pd

from tests.record import recording
from tests.record.mutations import Edit, drawn
from worklog.emulator.ptx import UnsupportedInstruction
from worklog.errors import CompileFailed, WorklogError
from worklog.gate import SgemmChecker, edge_shapes
from worklog.gate.bounds import check_array_bounds
from worklog.kernel import Compiled, Kernel
from worklog.kernel.emulated import EmulatedDevice, build
from worklog.kernel.ladder import RUNGS, rung
from worklog.kernel.ladder.rungs import equal_shares, split
from worklog.kernel.resources import section
from worklog.peers.exploits import exploits
from worklog.problem import Shape
from worklog.runs import Verdict
from worklog.runs.files import write_text

FOLDER = Path(__file__).parents[2] / "worklog" / "recordings" / "mutants"
RECORDED = FOLDER / "ladder.json"
SYNCHRONISES = re.compile(r"__sync|__shfl|__threadfence|atomic|\bmma\b|cp\.async")
SMALL = Path(__file__).parents[1] / "emulator" / "kernels" / "right"
ADDS_TO_C = "atomic_halves"
NOT_COMPILED = "does not compile"
EQUAL = "same code"
TOO_SLOW = "time limit"
SURVIVED = "survived"
UNEDITED = "unedited"
# What isn't killed at one tile. The first of these at any tile is the mutant's result.
NOT_KILLED = (TOO_SLOW, SURVIVED, EQUAL, NOT_COMPILED)
QUICK = "quick"
FULL = "full"
COUNT = 1000
SEED = 0
SEPARATOR = " · "
LIMIT_S = 300.0  # of a check, in seconds of the process
BUDGET = 200_000  # instructions of a warp: several times what any rung needs at these shapes

# A second tile of each rung: small, so that a check is short, and with other relations between its
# sizes than the rung's own tile has, so that a swapped size shows. `shared` goes with the tile.
QUADS = {"BM": 64, "BN": 32, "TM": 8, "TN": 4}
WARPS = {"BM": 64, "BN": 32, "BK": 8, "WM": 32, "WN": 32}
SMALL_TILES: dict[str, dict[str, int]] = {
    "naive": {"BM": 16, "BN": 8},
    "coalesced": {"BM": 4, "BN": 64},
    "shared": {"BM": 16, "BN": 16, "BK": 16},
    "tiles_1d": {"BM": 32, "BN": 32, "BK": 8, "TM": 4},
    "tiles_2d": QUADS,
    "vectorized": QUADS,
    "conflict_free": QUADS,
    "double_buffered": QUADS,
    "autotuned": QUADS,
    "pipelined": QUADS,
    "register_banks": QUADS,
    "warptiled": WARPS,
    "lane_map": WARPS,
    "async_copies": {**WARPS, "STAGES": 3},
    "barriers": {**WARPS, "STAGES": 3},
    "specialized": {"BM": 64, "BN": 256, "WM": 32, "WN": 64, "STAGES": 4},
    "bulk_copies": {"BM": 64, "BN": 256, "WM": 32, "WN": 64, "STAGES": 4},
    "tf32": {"BM": 64, "BN": 32, "BK": 32, "WM": 32, "WN": 32},
    "tf32x3": {"BM": 64, "BN": 32, "BK": 32, "WM": 32, "WN": 32},
}
SHARED = {"specialized": 41472, "bulk_copies": 41472}  # bytes at the small tile


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    kind: of the edit, or UNEDITED
    edit: its text, or the tile of an unedited kernel
    result: NOT_COMPILED, EQUAL (to the original's machine code), TOO_SLOW, SURVIVED, or the stage
        of the gate that failed it
    detail: of the stage, or the class and the notes of a survivor
    tile: at which the gate failed it; "" if it failed at none
    effort: QUICK or FULL, of the check that decided
    seconds: of the process
    """

    kernel: str
    file: str
    kind: str
    edit: str
    result: str
    detail: str
    tile: str
    effort: str
    seconds: float

    @property
    def name(self) -> str:
        """The same as long as the edited line stays, whatever is inserted above it."""
        return f"{self.file}: {self.edit}"

    @property
    def is_killed(self) -> bool:
        """Whether the gate failed the mutant."""
        return self.result not in NOT_KILLED


@dataclass(frozen=True)
class Judged:
    """The gate's verdict on a kernel, and whether the emulator reported an error."""

    verdict: Verdict
    has_finding: bool


class TimeLimit(Exception):
    """The mutant takes too long."""


@cache
def kernels() -> dict[str, tuple[Kernel, ...]]:
    """Return the ladder, each rung at a small tile and at its own, and other right kernels.

    The others have one tile, and few blocks. They are the other rungs, and the small kernels of the
    tests that synchronise.
    """
    tiles: dict[str, tuple[Kernel, ...]] = {}
    for name, tile in SMALL_TILES.items():
        small = rung(name).with_tile(**tile)
        if name in SHARED:
            small = small.with_launch(shared=SHARED[name])
        tiles[name] = (small, rung(name))
    others = {other.name: other.at(Shape(130, 190, 700)) for other in RUNGS}
    others |= {"equal_shares": equal_shares(2), "split": split(128).with_launch(grid="2")}
    for name, kernel in others.items():
        tiles.setdefault(name, (kernel,))
    for kernel in small_kernels():
        if SYNCHRONISES.search(kernel.source):
            tiles[kernel.name] = (kernel,)
    return tiles


def small_kernels() -> Iterator[Kernel]:
    """Yield small right kernels of the tests."""
    for exploit in exploits():
        if not exploit.wrong:
            yield exploit.kernel
    rules = "M % 16 == 0, N % 16 == 0, K % 16 == 0"
    dynamic = {"dynamic_tiles": 2048}
    for path in sorted(SMALL.glob("*.cu")):
        if path.stem == ADDS_TO_C:
            continue
        yield Kernel.from_file(
            path,
            grid="N / 16, M / 16",
            block="16,16",
            domain=rules,
            shared=dynamic.get(path.stem, 0),
        )


def tried(name: str, edit: Edit, effort: str = QUICK, limit_s: float = LIMIT_S) -> Outcome:
    """Check a mutant at each tile until the gate fails it."""
    started = time.process_time()
    results = list[Found]()
    for tile in range(len(kernels()[name])):
        results.append(_found(name, edit, effort, tile, limit_s))
        if results[-1].is_killed:
            break
    decisive = min(range(len(results)), key=lambda tile: results[tile].rank)
    found = results[decisive]
    kernel = kernels()[name][decisive]
    return Outcome(
        name,
        kernel.file,
        edit.kind,
        str(edit),
        found.result,
        found.detail,
        tile=tile_text(kernel) if found.is_killed else "",
        effort=effort,
        seconds=round(time.process_time() - started, 1),
    )


@dataclass(frozen=True)
class Found:
    """The result and the detail of an Outcome at one tile."""

    result: str
    detail: str = ""

    @property
    def is_killed(self) -> bool:
        """Whether the gate failed the mutant."""
        return self.result not in NOT_KILLED

    @property
    def rank(self) -> int:
        """The place among the results of several tiles: the first one decides."""
        return NOT_KILLED.index(self.result) + 1 if self.result in NOT_KILLED else 0


def _found(name: str, edit: Edit, effort: str, tile: int, limit_s: float) -> Found:
    """Compile a mutant at a tile, compare its code with the original's, and check it."""

    def stop(*_: object) -> None:
        raise TimeLimit

    kernel = kernels()[name][tile]
    mutant = kernel.with_text(edit.applied(kernel.source))
    signal.signal(signal.SIGPROF, stop)
    try:
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        if [*map(machine_code, kernel.passes)] == [*map(machine_code, mutant.passes)]:
            return Found(EQUAL)
        done = judged(mutant, effort)
    except TimeLimit:
        return Found(TOO_SLOW, f"{limit_s:g} s")
    except (CompileFailed, UnsupportedInstruction) as error:
        return Found(NOT_COMPILED, str(error).splitlines()[0])
    except WorklogError as error:
        return Found(type(error).__name__, str(error).splitlines()[0])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return _verdict(done)


def unedited(name: str, tile: int) -> Outcome:
    """Check a kernel without an edit at one of its tiles: the gate must not fail it."""
    started = time.process_time()
    kernel = kernels()[name][tile]
    found = _verdict(judged(kernel))
    return Outcome(
        name,
        kernel.file,
        UNEDITED,
        tile_text(kernel),
        found.result,
        found.detail,
        tile=tile_text(kernel) if found.is_killed else "",
        effort=QUICK,
        seconds=round(time.process_time() - started, 1),
    )


def _verdict(done: Judged) -> Found:
    """Return the stage that failed a kernel, or the class and the notes of one that passes."""
    verdict = done.verdict
    if verdict.accepted:
        return Found(SURVIVED, SEPARATOR.join([str(verdict.precision), *map(str, verdict.notes)]))
    stage = verdict.stages[-1]
    is_finding = stage.name == "launch" and done.has_finding
    return Found("finding" if is_finding else stage.name, stage.detail[:200])


def tile_text(kernel: Kernel) -> str:
    """Return the values of a template's parameters."""
    return " ".join(f"{name}={value}" for name, value in kernel.template.items())


def machine_code(kernel: Any) -> tuple[bytes, bytes, int]:
    """Return the instructions, constants and shared memory of one pass."""
    compiled: Compiled = build(kernel.program)[0]
    sections = (
        section(compiled.cubin, f".{kind}.{compiled.symbol}") for kind in ("text", "nv.constant2")
    )
    return (*sections, compiled.shared_bytes)


def judged(kernel: Kernel, effort: str = QUICK) -> Judged:
    """Check a kernel by the stages of `worklog check`, quick or in full, until one fails.

    Without the advice that `worklog check` looks for after a failure, which takes as long.
    """
    shape = edge_shapes(kernel.domain)[-1]
    device = EmulatedDevice(budget=BUDGET)
    subject = kernel.load(device)
    checker = SgemmChecker(device, shape, SEED, quick=effort == QUICK, sweep=effort == FULL)
    verdict = checker.check(subject)
    is_finding = any(finding.is_error for finding in device.findings)
    if verdict.accepted:
        verdict = check_array_bounds(kernel, shape, BUDGET).added_to(verdict)
    return Judged(verdict, has_finding=is_finding)


def record(
    outcomes: Sequence[Outcome],
    originals: Sequence[Outcome],
    explained: Mapping[str, str],
    seed: int = SEED,
) -> dict[str, Any]:
    """Return the table as a document.

    A row per kernel and one per kind, with the number of mutants of each result; the mutants that
    one tile or one effort alone kills; and each survivor, with what the gate reports of it and not
    of the original.
    """
    usual: dict[str, set[str]] = {}
    for unchanged in originals:
        usual.setdefault(unchanged.kernel, set()).update(unchanged.detail.split(SEPARATOR))
    killed = [mutant for mutant in outcomes if mutant.is_killed]
    tried_kernels = dict.fromkeys(mutant.kernel for mutant in outcomes)
    own_tiles = {name: tile_text(tiles[-1]) for name, tiles in kernels().items()}
    return recording.document(
        "mutants",
        _counted("kernel", [(mutant.kernel, mutant.result) for mutant in outcomes]),
        kinds=_counted("kind", [(mutant.kind, mutant.result) for mutant in outcomes]),
        seed=seed,
        tiles={name: [*map(tile_text, kernels()[name])] for name in tried_kernels},
        unedited={
            "checks": len(originals),
            "refused": [unchanged.name for unchanged in originals if unchanged.is_killed],
        },
        killed={
            "all": len(killed),
            "at the own tile only": sum(
                mutant.tile == own_tiles[mutant.kernel] and len(kernels()[mutant.kernel]) > 1
                for mutant in killed
            ),
            "by the full check only": sum(mutant.effort == FULL for mutant in killed),
        },
        survivors=[
            {
                "mutant": mutant.name,
                "kind": mutant.kind,
                "effort": mutant.effort,
                "found": _beside(mutant.detail, usual.get(mutant.kernel, set())),
                "explained": explained.get(mutant.name, ""),
            }
            for mutant in outcomes
            if mutant.result == SURVIVED
        ],
    )


def _beside(detail: str, usual: Collection[str]) -> str:
    """Return the parts of a detail that the original doesn't have."""
    return SEPARATOR.join(part for part in detail.split(SEPARATOR) if part not in usual)


def _counted(name: str, pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return a row per kernel or kind with its number of mutants of each result."""
    results: dict[str, Counter[str]] = {}
    for group, result in pairs:
        results.setdefault(group, Counter())[result] += 1
    return [
        {name: group, "mutants": counts.total(), "results": dict(counts.most_common())}
        for group, counts in results.items()
    ]


def digest(name: str) -> str:
    """Return a short hash of a kernel's source, which its outcomes hold for."""
    return sha256(kernels()[name][0].source.encode()).hexdigest()[:12]


def read_outcomes(path: Path) -> dict[tuple[str, str], Outcome]:
    """Return the outcomes of a file by kernel and edit, if the kernel's source is the same."""
    outcomes: dict[tuple[str, str], Outcome] = {}
    if not path.exists():
        return outcomes
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row.pop("source") == digest(row["kernel"]):
            outcomes[row["kernel"], row["edit"]] = Outcome(**row)
    return outcomes


def all_outcomes(
    mutants: Sequence[tuple[str, Edit]], path: Path, jobs: int, *, full: bool
) -> list[Outcome]:
    """Return the outcome of each mutant. Each is appended to the file as soon as it is known.

    path: has the outcomes of a run that was stopped, which aren't tried again
    full: check the mutants that survive the quick check in full
    """
    outcomes = read_outcomes(path)
    untried = [mutant for mutant in mutants if _key(*mutant) not in outcomes]
    outcomes |= _run(tried, [(*mutant, QUICK) for mutant in untried], path, jobs)
    survivors = [
        mutant
        for mutant in mutants
        if outcomes[_key(*mutant)].result == SURVIVED and outcomes[_key(*mutant)].effort == QUICK
    ]
    if full:
        outcomes |= _run(tried, [(*mutant, FULL) for mutant in survivors], path, jobs)
    return [outcomes[_key(*mutant)] for mutant in mutants]


def all_unedited(names: Iterable[str], path: Path, jobs: int) -> list[Outcome]:
    """Return the outcome of each kernel without an edit at each tile, as all_outcomes does."""
    outcomes = read_outcomes(path)
    wanted = [(name, tile) for name in names for tile in range(len(kernels()[name]))]
    keys = [(name, tile_text(kernels()[name][tile])) for name, tile in wanted]
    left = [pair for pair, key in zip(wanted, keys, strict=True) if key not in outcomes]
    outcomes |= _run(unedited, left, path, jobs)
    return [outcomes[key] for key in keys]


def _key(name: str, edit: Edit) -> tuple[str, str]:
    """Return the key of a mutant's outcome."""
    return name, str(edit)


def _run(
    function: Callable[..., Outcome], wanted: Sequence[tuple[Any, ...]], path: Path, jobs: int
) -> dict[tuple[str, str], Outcome]:
    """Return the outcomes of some calls, and append them to a file as they come."""
    print(f"{function.__name__}: {len(wanted)} to do", flush=True)
    outcomes: dict[tuple[str, str], Outcome] = {}
    with (
        ProcessPoolExecutor(jobs, get_context("spawn")) as pool,
        path.open("a", encoding="utf-8") as file,
    ):
        futures = [pool.submit(function, *arguments) for arguments in wanted]
        for future in as_completed(futures):
            outcome = future.result()
            outcomes[outcome.kernel, outcome.edit] = outcome
            row = asdict(outcome) | {"source": digest(outcome.kernel)}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
    return outcomes


@click.command()
@click.argument("names", nargs=-1, metavar="[KERNEL]...")
@click.option("--count", default=COUNT, show_default=True, help="Mutants of all kernels.")
@click.option("--seed", default=SEED, show_default=True, help="Seed of the edits.")
@click.option("--full/--no-full", default=True, help="Check the survivors in full.")
@click.option("--jobs", default=os.cpu_count(), show_default=True, help="Processes.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="File of outcomes (JSON Lines), from which a stopped run goes on.",
)
def main(names: Sequence[str], count: int, seed: int, jobs: int, out: Path, *, full: bool) -> None:
    """Check mutants of each KERNEL (default: of the ladder, and record them).

    Exits with 1 for a survivor without a reason, and for a kernel that fails itself: then nothing
    is recorded.
    """
    unknown = sorted(set(names) - kernels().keys())
    if unknown:
        choices = ", ".join(kernels())
        raise click.UsageError(f"unknown kernel {', '.join(unknown)}: choose from {choices}")
    sources = {name: kernels()[name][0].source for name in names or SMALL_TILES}
    outcomes = all_outcomes(drawn(sources, count, seed), out, jobs, full=full)
    originals = all_unedited(sources, out, jobs)
    explained = json.loads((FOLDER / "explained.json").read_text(encoding="utf-8"))
    document = record(outcomes, originals, explained, seed)
    broken = [
        f"{unchanged.name} fails unedited: {unchanged.detail}"
        for unchanged in originals
        if unchanged.is_killed
    ]
    if not names and not broken:
        write_text(RECORDED, document)
    frame = pd.DataFrame(outcomes)
    print(
        document["label"],
        pd.crosstab(frame["kernel"], frame["result"], margins=True).to_string(),
        sep="\n",
    )
    if broken:
        sys.exit("\n".join(broken))
    unexplained = [row["mutant"] for row in document["survivors"] if not row["explained"]]
    if unexplained:
        sys.exit("\n".join(["not explained:", *unexplained]))


if __name__ == "__main__":
    main()
