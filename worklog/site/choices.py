"""The puzzles of the notebooks without a compiler: which of these kernels is right?

Each choice is an edit of the notebook's own solution, compiled ahead. The page runs it, and grades
what it does: its findings, its C, and the count that shows the idea of the puzzle.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from worklog.emulator.reports import Counts
from worklog.errors import WorklogError
from worklog.kernel import Kernel
from worklog.kernel.portable import compressed, planned
from worklog.problem import Shape
from worklog.site.chapters import notebooks
from worklog.viewer.portable import viewable

FILE = "cell"
SLACK = 1.05  # a right answer's count may be larger than the solution's by this factor
SOLUTION = re.compile(r"```python\n%%puzzle (\w+)\n(.*?)```", re.DOTALL)
LEFT_OUT = "…"
NOTHING = "(nothing)"
# The counts that grade an answer, as worklog/site/product.js has them, in words.
MEASURES = {
    "sectors": "sectors of global memory",
    "lookups": "lookups of lines in L1",
    "reads": "reads of shared memory",
    "conflicts": "wavefronts for bank conflicts",
    "barriers": "barriers of warps",
}


@dataclass(frozen=True)
class Edit:
    """A text of the solution, and what is there instead."""

    old: str
    new: str


@dataclass(frozen=True)
class ChoicePuzzle:
    """A puzzle whose answers are the notebook's solution and edits of it."""

    name: str  # the notebook's name of the puzzle
    question: str
    measure: str  # of MEASURES: the count that a right answer has few of
    shape: Shape
    wrong: tuple[tuple[Edit, ...], ...]  # the edits of each other choice


NEXT_TILE = "    __syncthreads();\n  }\n"
FIRST_BARRIER = "    __syncthreads();\n    for"
OTHER_ACCUMULATORS = (
    "float acc;",
    "float acc = 1.0f;",
    "float acc = A[(size_t)row * K];",
    "__shared__ float acc;\n  acc = 0.0f;",
)

PUZZLES = (
    ChoicePuzzle(
        "neighbours",
        "A warp's loads should touch few sectors. Which two lines let neighbouring threads read "
        "neighbouring floats, and compute all of C?",
        "sectors",
        Shape(64, 96, 32),
        (
            (
                Edit("blockIdx.y * 32 + threadIdx.x / 32", "blockIdx.y * 32 + threadIdx.x % 32"),
                Edit("blockIdx.x * 32 + threadIdx.x % 32", "blockIdx.x * 32 + threadIdx.x / 32"),
            ),
            (Edit("blockIdx.y * 32 + threadIdx.x / 32", "blockIdx.y * 32 + threadIdx.x % 32"),),
            (
                Edit("row = blockIdx.y", "row = blockIdx.x"),
                Edit("col = blockIdx.x", "col = blockIdx.y"),
            ),
            (Edit("blockIdx.x * 32 + threadIdx.x % 32", "blockIdx.x * 32 + threadIdx.x / 32"),),
        ),
    ),
    ChoicePuzzle(
        "accumulator",
        "A sum begins with a value. Which declaration gives each element of C its own sum?",
        "sectors",
        Shape(64, 64, 32),
        tuple((Edit("float acc = 0.0f;", new),) for new in OTHER_ACCUMULATORS),
    ),
    ChoicePuzzle(
        "tiles",
        "The block copies a tile of A and a tile of B, and all threads read the tiles. Which lines "
        "are right?",
        "lookups",
        Shape(64, 64, 96),
        (
            (
                Edit(
                    "As[y][x] = A[(size_t)row * K + k0 + x]",
                    "As[x][y] = A[(size_t)row * K + k0 + x]",
                ),
            ),
            (Edit(FIRST_BARRIER, "    for"),),
            (Edit("B[(size_t)(k0 + y) * N + col]", "B[(size_t)(k0 + x) * N + col]"),),
            (
                Edit(
                    "As[y][k] * Bs[k][x]",
                    "A[(size_t)row * K + k0 + k] * B[(size_t)(k0 + k) * N + col]",
                ),
            ),
        ),
    ),
    ChoicePuzzle(
        "barrier",
        "One barrier isn't enough. Where does the second barrier belong?",
        "barriers",
        Shape(64, 64, 96),
        (
            (Edit(NEXT_TILE, "  }\n"),),
            (Edit(NEXT_TILE, "    __syncwarp();\n  }\n"),),
            (Edit(NEXT_TILE, "  }\n  __syncthreads();\n"),),
            (
                Edit(
                    "    for (int k = 0; k < 32; ++k) acc", "    for (int k = 0; k < 32; ++k) { acc"
                ),
                Edit("* Bs[k][x];\n    __syncthreads();\n", "* Bs[k][x]; __syncthreads(); }\n"),
            ),
        ),
    ),
    ChoicePuzzle(
        "columns",
        "A thread owns TM rows of a column of C. Which lines read the tiles, and store the rows, "
        "that belong together?",
        "reads",
        Shape(128, 128, 16),
        (
            (Edit("As[y * TM + i][k]", "As[y + i * TM][k]"),),
            (Edit("(size_t)(row + y * TM + i) * N", "(size_t)(row + y + i * TM) * N"),),
            (Edit("As[y * TM + i][k]", "As[y * TM][k]"),),
            (
                Edit(
                    "(size_t)(row + y * TM + i) * N + col + x",
                    "(size_t)(row + y * TM) * N + col + x",
                ),
            ),
        ),
    ),
    ChoicePuzzle(
        "squares",
        "A thread owns TM rows and TN columns. Which launch and which threads cover a tile of "
        "128 x 128?",
        "reads",
        Shape(256, 256, 16),
        (
            (Edit("// block: 256", "// block: 512"),),
            (Edit("// grid: N / 128, M / 128", "// grid: N / 64, M / 64"),),
            (
                Edit(
                    "y = threadIdx.x / (BN / TN), x = threadIdx.x % (BN / TN)",
                    "y = threadIdx.x / BN, x = threadIdx.x % BN",
                ),
            ),
            (
                Edit(
                    "y = threadIdx.x / (BN / TN), x = threadIdx.x % (BN / TN)",
                    "y = threadIdx.x / TN, x = threadIdx.x % TN",
                ),
            ),
        ),
    ),
    ChoicePuzzle(
        "conflicts",
        "Which layout of As, and which columns of a thread, need no wavefront for bank conflicts?",
        "conflicts",
        Shape(128, 128, 16),
        (
            (Edit("As[BK][BM + 4]", "As[BK][BM]"),),
            (Edit("As[BK][BM + 4]", "As[BK + 4][BM]"),),
            (
                Edit("Bs[k][x * 4 + j / 4 * (BN / 2) + j % 4]", "Bs[k][x * TN + j]"),
                Edit("col + x * 4 + j / 4 * (BN / 2) + j % 4", "col + x * TN + j"),
            ),
            (Edit("Bs[k][x * 4 + j / 4 * (BN / 2) + j % 4]", "Bs[k][x * TN + j]"),),
        ),
    ),
    ChoicePuzzle(
        "one_barrier",
        "With two tiles in turn, one barrier per tile is enough. Which kernel is right with the "
        "fewest barriers?",
        "barriers",
        Shape(64, 64, 128),
        (
            (Edit("const int b = k0 / 32 % 2;", "const int b = 0;"),),
            (Edit("const int b = k0 / 32 % 2;", "const int b = k0 % 2;"),),
            (Edit("Bs[b][k][x];\n  }\n", "Bs[b][k][x];\n    __syncthreads();\n  }\n"),),
            (Edit(FIRST_BARRIER, "    for"),),
        ),
    ),
)


def counts_of(counts: Counts) -> dict[str, int]:
    """Return the counts that grade an answer."""
    return {
        "sectors": counts.global_load.sectors + counts.global_store.sectors,
        "lookups": counts.global_load.cache_lines + counts.global_store.cache_lines,
        "reads": counts.shared_load.requests,
        "conflicts": counts.shared_load.conflicts + counts.shared_store.conflicts,
        "barriers": counts.instructions.get("barrier", 0),
    }


@lru_cache(maxsize=1)
def solutions() -> Mapping[str, str]:
    """Return the notebooks' solutions by the name of their puzzle. Raises WorklogError."""
    by_puzzle = dict[str, str]()
    for file in notebooks():
        for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                by_puzzle |= dict(SOLUTION.findall("".join(cell["source"])))
    return by_puzzle


def edited(puzzle: ChoicePuzzle, edits: Sequence[Edit]) -> str:
    """Return a choice's source.

    Raises WorklogError unless the solution has each text exactly once.
    """
    text = solutions().get(puzzle.name, "")
    for edit in edits:
        count = text.count(edit.old)
        if count != 1:
            raise WorklogError(
                f"puzzle {puzzle.name}: the notebook's solution has {edit.old!r} {count} times: "
                "adapt worklog/site/choices.py to the notebook"
            )
        text = text.replace(edit.old, edit.new)
    return text


def choices(puzzle: ChoicePuzzle) -> list[str]:
    """Return the sources of the choices, in an order that doesn't tell which is right."""
    sources = [edited(puzzle, edits) for edits in ((), *puzzle.wrong)]
    return sorted(sources, key=lambda source: hashlib.sha256(source.encode()).hexdigest())


def kernel_of(source: str) -> Kernel:
    """Return the kernel of a choice, which is run at any shape."""
    return replace(Kernel.from_source(source, file=FILE, name="yours"), rules="any")


def excerpts(sources: Sequence[str], solution: str) -> list[str]:
    """Return the lines of each source in which the sources differ."""
    lines = solution.splitlines()
    differing = set[int]()
    for source in sources:
        for tag, first, stop, *_ in _differences(lines, source):
            if tag != "equal":
                differing |= {*range(first, max(stop, first + 1))}
    return [_excerpt(lines, source, differing) for source in sources]


def _differences(lines: list[str], source: str) -> Sequence[tuple[str, int, int, int, int]]:
    matcher = difflib.SequenceMatcher(None, lines, source.splitlines(), autojunk=False)
    return matcher.get_opcodes()


def _excerpt(lines: list[str], source: str, differing: set[int]) -> str:
    """Return the lines of a source that correspond to lines of the solution.

    lines: of the solution
    differing: the numbers of these lines
    """
    numbers = set[int]()
    for tag, first, stop, source_first, source_stop in _differences(lines, source):
        if tag == "equal":
            numbers |= {source_first + n - first for n in range(first, stop) if n in differing}
        else:
            numbers |= {*range(source_first, source_stop)}
    source_lines = source.splitlines()
    excerpt = list[str]()
    previous = -1
    for number in sorted(numbers):
        if excerpt and number > previous + 1:
            excerpt.append(LEFT_OUT)
        excerpt.append(source_lines[number])
        previous = number
    return "\n".join(excerpt) or NOTHING


def file_of(puzzle: ChoicePuzzle) -> str:
    """Return the name of the file with the kernels of a puzzle."""
    return f"puzzle-{puzzle.name.replace('_', '-')}.js"


def content(puzzle: ChoicePuzzle) -> bytes:
    """Return the file with the kernels of a puzzle, in the order of its choices."""
    documents = [viewable(kernel_of(source), [puzzle.shape]) for source in choices(puzzle)]
    packed = [b64encode(compressed(dict(document))).decode() for document in documents]
    return f"worklogPrograms[{json.dumps(file_of(puzzle))}] = {json.dumps(packed)};\n".encode()


def entry(puzzle: ChoicePuzzle) -> dict[str, Any]:
    """Return a puzzle for the page."""
    sources = choices(puzzle)
    return {
        "name": puzzle.name,
        "question": puzzle.question,
        "measure": puzzle.measure,
        "about": MEASURES[puzzle.measure],
        "most": most_of(puzzle),
        "file": file_of(puzzle),
        "choices": excerpts(sources, solutions()[puzzle.name]),
    }


def most_of(puzzle: ChoicePuzzle) -> int:
    """Return the largest count of a right answer: the solution's, with some slack."""
    counts = counts_at(kernel_of(solutions()[puzzle.name]), puzzle.shape)
    return int(SLACK * counts[puzzle.measure])


def counts_at(kernel: Kernel, shape: Shape) -> dict[str, int]:
    """Return the counts of a kernel at a shape, as the emulator runs it here."""
    total = dict.fromkeys(MEASURES, 0)
    [(_, _, launches)] = planned(kernel, [shape])
    for launch in launches:
        for name, count in counts_of(launch.run().counts).items():
            total[name] += count
    return total
