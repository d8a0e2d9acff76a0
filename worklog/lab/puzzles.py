"""The puzzles of notebooks 04 to 06.

A reader changes the kernel of a cell. The gate grades it, and then every count that shows the idea
of the puzzle: it is compared with the reference's, and shown beside that of the step before it. A
hint is about the count that differs, or about what the gate found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from worklog.errors import BadSetting, apart
from worklog.gate.exact import NEVER_WRITTEN
from worklog.kernel import Kernel, rung
from worklog.kernel.prediction import bound
from worklog.lab.block_counts import COUNTED, BlockCount, block_counts
from worklog.lab.exercises import SEED, Graded
from worklog.problem import Shape
from worklog.runner.check import Checked, check
from worklog.runs.text import Table

FILE = "cell"
ENTRY = "mine"  # the name of each puzzle's kernel
ONE_BARRIER = Path(__file__).with_name("one_barrier.cu")
SLACK = 0.01  # of a count that the reference lacks, such as local accesses
NOTABLE = 1.1  # a right answer's count is reported above this multiple of the reference's
MOST_DIGITS = 4
FLOOR = Shape.of(4096)
# Counts that depend on how the assembler joins accesses.
ASSEMBLED = ("wavefronts", "reads", "writes")
# Causes of a failed check that isn't a finding of the emulator.
NONE_WRITTEN = "no element is written"
ALL_WRONG = "all elements"
SOME_WRONG = "some elements"
OTHER_FAILURE = "another failure"

# What a kernel does, by the name of a count. {} is the count.
PHRASES = {
    "multiply-adds": "executes {} multiply-adds for each that is needed",
    "sectors of A": "loads {} sectors of A per multiply-add of a warp",
    "sectors of B": "loads {} sectors of B per multiply-add of a warp",
    "lookups": "looks up {} lines in L1 per multiply-add of a warp",
    "sectors of C": "stores {} sectors per 32 elements of C",
    "floats": "reads {} floats from shared memory per multiply-add",
    "wavefronts": "needs {} shared wavefronts per multiply-add of a warp",
    "reads": "reads shared memory with {} wavefronts for each that is needed without conflicts",
    "writes": "writes shared memory with {} wavefronts for each that is needed without conflicts",
    "barriers": "executes {} barriers per multiply-add of a warp",
    "barriers per tile": "executes {} barriers per tile",
    "local accesses": "accesses local memory {} times per multiply-add of a warp",
}
# Limits of every puzzle, as multiples of the reference's counts.
COMMON_LIMITS = {"multiply-adds": 1.1, "local accesses": 1.0}
# Findings that explain the other findings of a launch.
FIRST_CAUSES = ("divergent-barrier", "barrier-after-exit")
NOT_ASSEMBLED = (
    "the emulator doesn't know how the assembler joins these accesses, so there may be fewer "
    "wavefronts: read four neighbours as a float4, and the count is exact"
)
# A warp's threads lie in one row of C, or in two.
ROW_LIMITS = {"sectors of A": 2.1, "sectors of B": 1.1, "lookups": 1.6, "sectors of C": 1.1}
# Tiles of 16 x 16 have a half of the reuse and a quarter of the width: their idea is the same.
TILE_LIMITS = {"lookups": 4.1, "sectors of A": 2.1, "sectors of B": 2.1}
# Reads that the compiler can't join need up to 1.8 times the wavefronts.
WAVEFRONTS = 1.85
ACCESS_LIMITS = {"reads": 1.1, "writes": 1.1, "wavefronts": WAVEFRONTS}
# By cause: a count, a kind of finding, or how the result is wrong. A puzzle has hints of its own.
HINTS = {
    "multiply-adds": "which multiply-adds are executed twice, or by threads without an element?",
    "sectors of A": "which elements of A do the 32 threads of a warp load at a time?",
    "sectors of B": "which elements of B do the 32 threads of a warp load at a time?",
    "lookups": "how many threads of the block load the same float from global memory?",
    "sectors of C": "neighbouring threads should store neighbouring elements of a row of C",
    "floats": "how many multiply-adds does each float serve that a thread reads?",
    "wavefronts": (
        "count the reads per multiply-add. The compiler joins reads of four neighbours in a row, "
        "if the row's length is a multiple of four"
    ),
    "reads": (
        "a bank conflict: the lanes of a warp read different words of one bank. There are 32 "
        "banks, and the next word is in the next bank"
    ),
    "writes": (
        "a bank conflict: the lanes of a warp write different words of one bank. A padded row "
        "moves the next row to other banks"
    ),
    "barriers": "a barrier is executed once per tile: move it out of loops, or take a deeper tile",
    "barriers per tile": "between which accesses to shared memory does each barrier stand?",
    "local accesses": (
        "an array that is indexed by a variable lies in local memory: the compiler must be able to "
        "unroll the loop, so its bounds must be constants"
    ),
    "shared-race": (
        "a barrier is needed between the writes of a tile and its reads, and another one between "
        "these reads and the next writes"
    ),
    "global-race": "two threads write the same element of C: give each element one thread",
    "global-out-of-bounds": "do grid and block fit the tile, so that each block has its own tile?",
    "shared-out-of-bounds": "does the array have as many rows and columns as the indices say?",
    "uninitialised-shared": "which elements of the tile does no thread copy before they are read?",
    "divergent-barrier": "all threads of a block must reach the same __syncthreads()",
    "barrier-after-exit": "all threads of a block must reach the same __syncthreads()",
    NONE_WRITTEN: "each thread stores its elements of C at the end: is that line reached?",
    ALL_WRONG: "follow one thread: which elements of A and B does it multiply, tile by tile?",
    SOME_WRONG: (
        "compare the grid, the block, and the rows and columns of a thread: each element of C "
        "needs exactly one thread"
    ),
    OTHER_FAILURE: "start with the first message: it names what was launched",
}


@dataclass(frozen=True)
class Puzzle:
    """A task, whose answer is compared with a reference and with the step before it."""

    reference: str  # a rung, or "one_barrier"
    earlier: str  # a rung: the step before
    # By a count's name, how many times the reference's count an answer may have: the most telling
    # count first.
    limits: Mapping[str, float]
    hints: Mapping[str, str] = field(default_factory=dict)  # by cause, instead of HINTS

    @property
    def all_limits(self) -> dict[str, float]:
        """The limits of every puzzle, then those of this puzzle."""
        return {**COMMON_LIMITS, **self.limits}

    def hint(self, cause: str) -> str:
        """Return the hint for a cause."""
        hints = {**HINTS, **self.hints}
        return hints.get(cause, hints[OTHER_FAILURE])


PUZZLES = {
    "neighbours": Puzzle(
        "coalesced",
        "naive",
        ROW_LIMITS,
        {
            "sectors of A": (
                "threads 0 to 31 are a warp: which operators decide whether they lie along a row "
                "of C or along a column?"
            ),
            "lookups": "each row of A that a warp reads is another line: how many rows has a warp?",
            SOME_WRONG: (
                "each element of C needs a thread: of row and col, one has the / 32 and the other "
                "the % 32"
            ),
        },
    ),
    "accumulator": Puzzle(
        "coalesced",
        "naive",
        ROW_LIMITS,
        {
            "sectors of A": (
                "only the accumulator was wrong: the threads of a warp were in one row of C before"
            ),
            ALL_WRONG: (
                "what does the kernel add to? A variable in a register holds anything until "
                "something is assigned to it"
            ),
        },
    ),
    "tiles": Puzzle(
        "shared",
        "coalesced",
        {**TILE_LIMITS, **ACCESS_LIMITS},
        {
            "lookups": (
                "many threads of the block load the same float. Before the inner loop, each thread "
                "copies one element into As and one into Bs; the inner loop reads these"
            ),
            ALL_WRONG: "each copy reads from k0 on: which columns of A, and which rows of B?",
        },
    ),
    "barrier": Puzzle(
        "shared",
        "coalesced",
        {**TILE_LIMITS, "barriers": 2.1, "barriers per tile": 1.1, **ACCESS_LIMITS},
        {
            "lookups": "keep the tiles: without them, many threads load the same float again",
            "barriers": "one barrier more per tile is enough: is yours in the inner loop?",
            "shared-race": (
                "a warp that has left the inner loop writes the next tile, while a slower one "
                "still reads this one"
            ),
        },
    ),
    "columns": Puzzle(
        "tiles_1d",
        "shared",
        {"floats": 1.15, "sectors of A": 2.1, "sectors of B": 2.1, "wavefronts": WAVEFRONTS},
        {
            "floats": (
                "how many multiply-adds does one float of Bs serve? Let a thread own TM rows of "
                "one column: TM accumulators, and BM * BN / TM threads"
            ),
            "uninitialised-shared": (
                "a block has fewer threads than a tile may have elements: a loop that steps by "
                "blockDim.x copies all of them"
            ),
        },
    ),
    "squares": Puzzle(
        "tiles_2d",
        "tiles_1d",
        {
            "floats": 2.1,
            "wavefronts": 1.1,
            "sectors of A": 2.1,
            "sectors of B": 2.1,
        },
        {
            "floats": (
                "TM + TN floats serve TM * TN multiply-adds: give acc and both loops a second index"
            ),
            "wavefronts": (
                "compare the wavefronts of reads for each that is needed: a warp covers 4 rows of "
                "threads in a block of 64 x 64, and 2 in a block of 128 x 128"
            ),
        },
    ),
    "conflicts": Puzzle(
        "conflict_free",
        "vectorized",
        {"reads": 1.05, "writes": 1.05, "floats": 1.55, "wavefronts": 1.5},
        {
            "reads": (
                "the lanes of a warp read Bs 8 floats apart. A thread's 8 columns may be two quads "
                "that lie BN / 2 apart: which threads then read neighbouring quads?"
            ),
            "writes": (
                "the lanes that write a column of As are in different rows of it: a padded row "
                "moves the next one to other banks"
            ),
            "floats": "keep the thread's tile: without it, each float serves fewer multiply-adds",
            ALL_WRONG: "the sum and the result must take the same columns of the thread",
            SOME_WRONG: "the sum and the result must take the same columns of the thread",
        },
    ),
    "one_barrier": Puzzle(
        "one_barrier",
        "shared",
        {**TILE_LIMITS, "barriers per tile": 1.3, "barriers": 1.3, **ACCESS_LIMITS},
        {
            "lookups": "keep the tiles: without them, many threads load the same float again",
            "barriers per tile": (
                "the second barrier protects the tile that is read from the next write. With two "
                "tiles in turn, what does a warp that is ahead write?"
            ),
            "barriers": "the tile is flatter than before: a barrier serves fewer multiply-adds",
            "shared-race": "with two tiles in turn, a warp that is ahead writes the other one",
        },
    ),
}


@dataclass(frozen=True)
class _Compared:
    """A count of an answer beside the reference's and that of the step before it."""

    name: str
    answer: BlockCount
    reference: float
    earlier: float
    limit: float  # the largest count of a right answer
    is_exact: bool  # False if the assembler may have made the answer's count smaller

    @property
    def is_over(self) -> bool:
        """Whether the answer's count is larger than that of a right answer."""
        return self.answer.value > self.limit

    @property
    def is_notable(self) -> bool:
        """Whether a right answer's count is larger than the reference's."""
        return not self.is_over and self.answer.value > NOTABLE * self.reference + SLACK

    @property
    def row(self) -> dict[str, str]:
        """The row of the table.

        Numbers have two digits, or more if the answer and the limit look alike.
        """
        values = (self.answer.value, self.limit, self.reference, self.earlier)
        digits = 2
        while digits < MOST_DIGITS and self._look_alike(digits):
            digits += 1
        texts = [rounded_to(value, digits) for value in values]
        return dict(zip(("yours", "at most", "reference", "step before"), texts, strict=True))

    def _look_alike(self, digits: int) -> bool:
        """Return whether a count over its limit looks like the limit."""
        return self.is_over and rounded_to(self.answer.value, digits) == rounded_to(
            self.limit, digits
        )

    def __str__(self) -> str:
        row = self.row
        line = f" (most of them in line {self.answer.line})" if self.answer.line else ""
        return (
            f"{PHRASES[self.name].format(row['yours'])}{line}: the reference {row['reference']}, "
            f"the step before {row['step before']}, and {row['at most']} would do"
        )


def attempt(name: str, source: str) -> Graded:
    """Grade a cell's kernel, which states its grid and block in comments.

    Raises BadSetting for an unknown puzzle, and what compiling the kernel raises.
    """
    if name not in PUZZLES:
        raise BadSetting(f"there is no puzzle {name!r}: choose from {', '.join(PUZZLES)}")
    puzzle = PUZZLES[name]
    kernel = _kernel(source)
    checked = check(kernel, on="emulated", seed=SEED, quick=True)
    if not checked.verdict.accepted:
        return _failed(puzzle, checked)
    notes: list[str] = []
    compared = apart("counting", lambda: _compared(kernel, puzzle), None, notes)
    if compared is None:
        facts = [f"it passes the gate, but isn't compared: {notes[0]}"]
        return Graded(False, _feedback(facts, checked), checked.label)
    table = _table(kernel, puzzle, compared, checked.label).text()
    excesses = [count for count in compared if count.is_over]
    if excesses:
        facts = ["it passes the gate, but", *(f"- it {count}" for count in excesses)]
        hint = puzzle.hint(excesses[0].name)
        if not excesses[0].is_exact:
            hint += f" ({NOT_ASSEMBLED})"
        feedback = _feedback(facts, checked, hint=hint)
        return Graded(False, feedback, table, causes=tuple(count.name for count in excesses))
    facts = ["it passes the gate, and its counts show the idea"]
    facts += [f"- it {count}" for count in compared if count.is_notable]
    return Graded(True, _feedback(facts, checked), table)


def _kernel(source: str) -> Kernel:
    """Return the kernel of a cell. Raises BadSetting without a kernel or a launch."""
    kernels = source.count("__global__")
    if not kernels:
        raise BadSetting(
            "the cell has no kernel: put the puzzle's kernel back with Edit, Undo, and change that"
        )
    entry = ENTRY if kernels > 1 else None
    kernel = Kernel.from_source(source, file=FILE, name="yours", entry=entry)
    if kernel.arguments and not (kernel.grid and kernel.block):
        raise BadSetting(
            "the cell states no launch: put its grid and block back, as `// grid: N / 32, M / 32` "
            "is one"
        )
    kernel.require_launch()
    return kernel


def _failed(puzzle: Puzzle, checked: Checked) -> Graded:
    """Return the grade of a kernel that fails the gate, with a hint about the cause."""
    verdict = checked.verdict
    causes = [finding.kind for finding in checked.findings if finding.is_error]
    if not causes and verdict.where is not None:
        causes = [ALL_WRONG if verdict.where.is_everywhere else SOME_WRONG]
    if causes == [ALL_WRONG] and NEVER_WRITTEN in (verdict.reason or ""):
        causes = [NONE_WRITTEN]
    if not causes and verdict.failed is not None:
        causes = [verdict.failed.name]
    causes = list(dict.fromkeys(causes))
    causes.sort(key=lambda cause: cause not in FIRST_CAUSES)
    facts = [f"failed at {verdict.reason}"]
    feedback = _feedback(facts, checked, hint=puzzle.hint(causes[0]))
    return Graded(False, feedback, checked.label, causes=tuple(causes))


def _feedback(facts: list[str], checked: Checked, hint: str = "") -> str:
    """Return facts with the gate's notes and a hint below."""
    lines = [*facts, *checked.remarks()]
    if hint:
        lines.append(f"Hint: {hint}")
    return "\n".join(lines)


def _compared(kernel: Kernel, puzzle: Puzzle) -> list[_Compared]:
    """Return the counts of an answer that show the puzzle's idea."""
    answer = block_counts(kernel)
    reference = block_counts(reference_kernel(puzzle.reference)).by_name
    earlier = block_counts(rung(puzzle.earlier)).by_name
    return [
        _Compared(
            name,
            answer.by_name[name],
            reference=reference[name].value,
            earlier=earlier[name].value,
            limit=max(factor * reference[name].value, SLACK),
            is_exact=answer.is_assembled or name not in ASSEMBLED,
        )
        for name, factor in puzzle.all_limits.items()
    ]


@lru_cache(maxsize=1)
def _one_barrier() -> Kernel:
    """Return the reference of the puzzle one_barrier."""
    return Kernel.from_source(
        ONE_BARRIER.read_text(encoding="utf-8"), file=ONE_BARRIER.name, name="one_barrier"
    )


def reference_kernel(name: str) -> Kernel:
    """Return the reference of a puzzle: a rung, or the kernel of one_barrier.cu."""
    return _one_barrier() if name == "one_barrier" else rung(name)


def _table(kernel: Kernel, puzzle: Puzzle, compared: list[_Compared], label: str) -> Table:
    """Return the counts of an answer, with the floor of its time if it can be predicted."""
    rows = [{"count": count.name, **count.row} for count in compared]
    notes: list[str] = []
    floor = apart("the floor", lambda: bound(kernel), None, notes)
    if floor is not None:
        notes.append(str(floor))
    title = f"block 0 at {COUNTED}: {label}; reference: {puzzle.reference}"
    return replace(Table.of(f"{title}; step before: {puzzle.earlier}", rows), notes=notes)


def rounded_to(value: float, digits: int) -> str:
    """Return a number with at least so many significant digits, without an exponent.

    Example: 0.0625 with two digits is "0.062", 1 is "1.0" and 273.4 is "273".
    """
    if not value:
        return f"{value:.{digits - 1}f}"
    exponent = math.floor(math.log10(abs(float(f"{value:.{digits}g}"))))
    return f"{value:.{max(digits - 1 - exponent, 0)}f}"
