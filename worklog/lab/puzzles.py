"""The puzzles of notebook 05.

A reader changes the kernel of a cell. The gate, the races and the counts of the emulator grade it,
next to the rung that has the same idea.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from worklog.errors import BadSetting, apart
from worklog.kernel import Kernel, rung
from worklog.lab.exercises import SEED, Graded
from worklog.lab.ladder_tables import counts, per_multiply_add
from worklog.runner.check import check

FILE = "cell"


@dataclass(frozen=True)
class Puzzle:
    """A task with hints: each failed try shows the next hint."""

    rung: str  # of the ladder, which has the idea
    hints: tuple[str, ...]  # for tries that fail the gate
    # by a count's name, how many times the rung's count the answer may have
    allowed: Mapping[str, float] = field(default_factory=dict)
    count_hints: tuple[str, ...] = ()  # for tries with larger counts


PUZZLES = {
    "neighbours": Puzzle(
        "coalesced",
        (
            (
                "each element of C needs a thread: of row and col, one has the / 32 and the other "
                "the % 32"
            ),
        ),
        {"sectors": 1.01},
        (
            (
                "look at the global sectors: a warp's 32 loads of A are 33 sectors with the one "
                "of B, and 5 would do"
            ),
            (
                "threads 0 to 31 are a warp: which operators decide whether they lie along a row "
                "of C or along a column?"
            ),
        ),
    ),
    "accumulator": Puzzle(
        "coalesced",
        (
            "every element is wrong: what does the kernel add to?",
            "a variable in a register holds anything until something is assigned to it",
        ),
    ),
    "tiles": Puzzle(
        "shared",
        ("each copy reads from k0 on; and what must lie between the copies and the reads, twice?",),
        {"sectors": 1.1},
        (
            (
                "look at the global sectors: a block should ask for each float once, "
                "not once for each thread"
            ),
            (
                "before the inner loop, each thread copies one element into As and one into Bs; "
                "the inner loop reads these"
            ),
        ),
    ),
    "barrier": Puzzle(
        "shared",
        (
            "the finding names two lines: which of them runs too early in a warp that is ahead?",
            (
                "a warp that has left the inner loop writes the next tile, while a slower one "
                "still reads this one"
            ),
        ),
    ),
    "columns": Puzzle(
        "tiles_1d",
        (
            (
                "the grid is N / BN, M / BM, a block BM * BN / TM threads; a loop that steps by "
                "blockDim.x copies a tile"
            ),
        ),
        {"wavefronts": 1.1},
        (
            "look at the shared wavefronts: how many multiply-adds does one float of Bs serve?",
            "let a thread own TM rows of one column: TM accumulators, and BM * BN / TM threads",
        ),
    ),
    "squares": Puzzle(
        "tiles_2d",
        (
            (
                "acc and both loops get a second index; the grid is N / BN, M / BM, a block BM * "
                "BN / (TM * TN) threads"
            ),
        ),
        {"wavefronts": 1.1},
        (
            (
                "look at the shared wavefronts: TM + TN floats serve TM * TN multiply-adds, of TN "
                "columns per thread"
            ),
            (
                "look at the conflicts: a warp covers 4 rows of threads in a block of 64 x 64, "
                "and 2 in one of 128 x 128"
            ),
        ),
    ),
    "conflicts": Puzzle(
        "conflict_free",
        ("the sum and the result must take the same columns of the thread",),
        {"wavefronts": 1.1},
        (
            (
                "look at the conflicts: the lanes of a warp read Bs 8 floats apart, and there are "
                "32 banks"
            ),
            (
                "the write to As is a conflict of lanes in different rows: a padded row moves the "
                "next one to other banks"
            ),
            (
                "a thread's 8 columns may be two quads that lie BN / 2 apart: which threads then "
                "read neighbouring quads?"
            ),
        ),
    ),
    "one_barrier": Puzzle(
        "shared",
        ("with two tiles in turn, a warp that is ahead writes the other one",),
        {"barriers": 0.65},
        (
            (
                "look at the barriers: two per tile. The second one protects the tile that is "
                "read from the next write"
            ),
        ),
    ),
}
_tries: Counter[tuple[str, bool]] = Counter()


def attempt(name: str, source: str) -> Graded:
    """Grade a cell's kernel, which states its grid and block in comments.

    Raises BadSetting for an unknown puzzle, and what compiling the kernel raises.
    """
    if name not in PUZZLES:
        raise BadSetting(f"there is no puzzle {name!r}: choose from {', '.join(PUZZLES)}")
    if "__global__" not in source:
        raise BadSetting(
            "the cell has no kernel: put the puzzle's kernel back with Edit, Undo, and change that"
        )
    puzzle = PUZZLES[name]
    kernel = Kernel.from_source(source, file=FILE, name="yours")
    if kernel.arguments and not (kernel.grid and kernel.block):
        raise BadSetting(
            "the cell states no launch: put its grid and block back, as `// grid: N / 32, M / 32` "
            "is one"
        )
    kernel.require_launch()
    checked = check(kernel, on="emulated", seed=SEED, quick=True)
    passed = checked.verdict.accepted
    hints = puzzle.count_hints if passed else puzzle.hints
    number = min(_tries[name, passed], len(hints) - 1)
    _tries[name, passed] += 1
    if not passed:
        facts = f"failed at {checked.verdict.reason}"
        return Graded(False, f"{facts}\nHint: {hints[number]}", checked.label)
    notes: list[str] = []
    table = apart("counting", lambda: counts(kernel, puzzle.rung).text(), None, notes)
    if table is None:
        return Graded(False, f"it passes the gate, but isn't compared: {notes[0]}", checked.label)
    excesses = _excesses(kernel, puzzle)
    if not excesses:
        return Graded(True, "it passes the gate", table)
    facts = f"it passes the gate, but with {', '.join(excesses)}"
    return Graded(False, f"{facts}\nHint: {hints[number]}", table)


def _excesses(kernel: Kernel, puzzle: Puzzle) -> list[str]:
    """Return the counts of a kernel that are larger than the puzzle allows, as text."""
    kernel_counts = per_multiply_add(kernel)
    rung_counts = per_multiply_add(rung(puzzle.rung))
    excesses = []
    for name, factor in puzzle.allowed.items():
        if kernel_counts[name] > factor * rung_counts[name]:
            ratio = kernel_counts[name] / rung_counts[name]
            excesses.append(
                f"{ratio:.1f} times the {name} of {puzzle.rung}, and {factor:.3g} would do"
            )
    return excesses
