"""Put mutants of right kernels through the gate on the emulator.

`python -m tests.record.mutants [KERNEL…]`; half an hour on 2 cores.

A mutant is a kernel of the ladder, or a small right kernel of the tests, with one edit. The table
counts what became of them: a row per kernel; notebook 04 shows it. A survivor passes the gate. It
is wrong, and the gate has a hole, unless explained.json, beside the recorded tables, says why its
results are the original's.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import click
import pandas as pd

from tests.record import recording
from worklog.errors import CompileFailed, WorklogError
from worklog.gate import edge_shapes
from worklog.kernel import Compiled, Kernel
from worklog.kernel.emulated import build
from worklog.kernel.ladder import RUNGS
from worklog.kernel.ladder.rungs import equal_shares, split
from worklog.kernel.resources import section
from worklog.kernel.source import blank, uncommented
from worklog.peers.exploits import exploits
from worklog.problem import Shape
from worklog.runner.check import Checked, check
from worklog.runs.files import write_text

FOLDER = Path(__file__).parents[2] / "worklog" / "recordings" / "mutants"
SYNCHRONISES = re.compile(r"__sync|__shfl|__threadfence|atomic|\bmma\b|cp\.async")
SMALL = Path(__file__).parents[1] / "emulator" / "kernels" / "right"
ADDS_TO_C = "atomic_halves"
NOT_COMPILED = "does not compile"
EQUAL = "same code"
TOO_SLOW = "time limit"
SURVIVED = "survived"
ORIGINAL_FAILED = "original failed"
SEED = 0
LIMIT_S = 120.0


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    result: NOT_COMPILED, EQUAL (to the original's machine code), TOO_SLOW, SURVIVED,
        ORIGINAL_FAILED, or the stage of the gate that failed it
    detail: of the stage, or the class and the notes of a survivor
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
        """The same as long as the edited line stays, whatever is inserted above it."""
        return f"{self.file}: {self.edit}"


class TimeLimit(Exception):
    """The mutant takes too long."""


@cache
def kernels() -> dict[str, Kernel]:
    """Return the rungs, with as few blocks as show their idea, then small right kernels.

    The small ones are those of the tests that synchronise.
    """
    rungs = {rung.name: rung.at(Shape(130, 190, 700)) for rung in RUNGS}
    rungs |= {"equal_shares": equal_shares(2), "split": split(128).with_launch(grid="2")}
    small = {right.name: right.kernel for right in exploits() if not right.wrong}
    rules = "M % 16 == 0, N % 16 == 0, K % 16 == 0"
    dynamic = {"dynamic_tiles": 2048}
    for path in sorted(SMALL.glob("*.cu")):
        words = {
            "grid": "N / 16, M / 16",
            "block": "16,16",
            "domain": rules,
            "shared": dynamic.get(path.stem, 0),
        }
        if path.stem != ADDS_TO_C:
            small[path.stem] = Kernel.from_file(path, **words)
    return rungs | {
        name: kernel for name, kernel in small.items() if SYNCHRONISES.search(kernel.source)
    }


@cache
def original(name: str) -> Checked:
    """Return the verdict on the unedited kernel."""
    return checked(kernels()[name])


def tried(name: str, edit: Edit, limit_s: float = LIMIT_S) -> Outcome:
    """Compile a mutant, compare its code with the original's, and check it."""

    def stop(*_: object) -> None:
        raise TimeLimit

    kernel = kernels()[name]
    started = time.perf_counter()
    signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        result, detail = result_of(name, kernel.with_text(edit.applied(kernel.source)))
    except TimeLimit:
        result = TOO_SLOW
        detail = f"{limit_s:g} s"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    seconds = round(time.perf_counter() - started, 1)
    return Outcome(name, kernel.file, edit.kind, str(edit), result, detail, seconds)


def result_of(name: str, mutant: Kernel) -> tuple[str, str]:
    """Return the result and the detail of an Outcome."""
    try:
        if [*map(machine_code, kernels()[name].passes)] == [*map(machine_code, mutant.passes)]:
            return EQUAL, ""
        done = checked(mutant)
    except CompileFailed as error:
        return NOT_COMPILED, str(error).splitlines()[0]
    except WorklogError as error:
        return type(error).__name__, str(error).splitlines()[0]
    if not done.verdict.accepted:
        stage = done.verdict.stages[-1]
        has_finding = any(finding.is_error for finding in done.findings)
        return ("finding" if stage.name == "launch" and has_finding else stage.name), stage.detail[
            :200
        ]
    signal.setitimer(signal.ITIMER_REAL, 0)  # the limit is the mutant's
    if not (right := original(name).verdict).accepted:
        return ORIGINAL_FAILED, str(right.reason)
    details = [str(done.verdict.precision)] if done.verdict.precision != right.precision else []
    return SURVIVED, "; ".join(
        [*details, *(str(note) for note in done.verdict.notes if note not in right.notes)]
    )


def machine_code(kernel: Any) -> tuple[bytes, bytes, int]:
    """Instructions, constants and shared memory of one pass."""
    compiled: Compiled = build(kernel.program)[0]
    sections = (
        section(compiled.cubin, f".{kind}.{compiled.symbol}") for kind in ("text", "nv.constant2")
    )
    return (*sections, compiled.shared_bytes)


def checked(kernel: Kernel) -> Checked:
    return check(kernel, edge_shapes(kernel.domain)[-1], on="emulated", seed=SEED)


def record(outcomes: Sequence[Outcome], explained: Mapping[str, str]) -> dict[str, Any]:
    """Return the table as a document.

    A row per kernel with the number of mutants of each result, and each survivor.
    """
    results: dict[str, Counter[str]] = {}
    for mutant in outcomes:
        results.setdefault(mutant.kernel, Counter())[mutant.result] += 1
    return recording.document(
        "mutants",
        [
            {"kernel": name, "mutants": of.total(), "results": dict(of.most_common())}
            for name, of in results.items()
        ],
        kinds=dict(Counter(mutant.kind for mutant in outcomes).most_common()),
        survivors=[
            {
                "mutant": mutant.name,
                "found": mutant.detail,
                "explained": explained.get(mutant.name, ""),
            }
            for mutant in outcomes
            if mutant.result == SURVIVED
        ],
    )


# What stays: preprocessor lines, heads of templates and functions, static_asserts, launch bounds;
# and casts to 64 bits, which matter beyond 2^31 elements only, where no check of a small shape
# looks.
KEPT = (
    r"^[ \t]*#[^\n]*",
    r"\btemplate\s*<[^{;()]*>",
    r"\b__(?:global|device)__[^{;=]*(?=[{;=])",
    r"\b(?:static_assert|__launch_bounds__|__align__)\s*\([^;{]*?\)(?=[;\s])",
    r"^.*\"\+f\"\(.*\"\+f\"\(.*$",  # operands of a tensor instruction
    r"\(size_t\)|\(long long\)",
)
OPERATORS = {
    **{
        "+": ("-",),
        "-": ("+",),
        "*": ("+", "/"),
        "/": ("*", "%"),
        "%": ("/",),
        "<<": (">>",),
        ">>": ("<<",),
    },
    **{
        "&": ("|",),
        "|": ("&",),
        "^": ("|",),
        "+=": ("=", "-="),
        "-=": ("+=",),
        "*=": ("=",),
        "/=": ("*=",),
    },
    **{
        "max": ("min",),
        "min": ("max",),
        "fmaxf": ("fminf",),
        "atomicAdd": ("atomicMax",),
        "atomicMax": ("atomicMin",),
    },
}
BOUNDS = {
    **{
        "<": ("<=", ">"),
        "<=": ("<",),
        ">": (">=", "<"),
        ">=": (">",),
        "==": ("!=",),
        "!=": ("==",),
    },
    **{"&&": ("||",), "||": ("&&",)},
}
NAMES = {
    **{
        "M": ("N", "K"),
        "N": ("M", "K"),
        "K": ("N", "M"),
        "A": ("B",),
        "B": ("A",),
        "row": ("col",),
        "col": ("row",),
    },
    **{
        "BM": ("BN", "BK"),
        "BN": ("BM", "BK"),
        "BK": ("BM",),
        "TM": ("TN",),
        "TN": ("TM",),
        "WM": ("WN",),
    },
    **{"WN": ("WM",), "threadIdx.x": ("threadIdx.y", "blockIdx.x"), "blockIdx.x": ("blockIdx.y",)},
    **{
        "blockIdx.y": ("blockIdx.x",),
        "hi": ("lo",),
        "lo": ("hi",),
        "full": ("empty",),
        "empty": ("full",),
    },
    **{"lane": ("warp",), "warp": ("lane",), "i": ("j",), "j": ("i",)},
}
SCALARS = {"alpha": ("1.0f", "-alpha", "beta"), "beta": ("1.0f", "0.0f", "alpha")}
WAITS = re.compile(
    r"__sync|__threadfence|wait|arrive|commit|fence|expect|init|hand_over|bar\.|setmaxnreg|atomic",
    re.IGNORECASE,
)
CALL = re.compile(
    r"(?<=[;{})\n])\s*(?P<call>(?:asm "
    r"volatile|(?!if|for|while|switch|return)[A-Za-z_]\w*(?:<\d+>)?)\()"
)
ASSIGNMENT = re.compile(
    r"^\s*(?!(?:const|int|float|unsigned|auto|bool|constexpr|extern|return|size_t|char|struct|for|if|while|else|else"
    r"|Line|long|float2|float4|asm|__shared__)\b)(?P<it>\*?[\w(][^;{}=]*? [-+*/^|&]?= [^;{}]*;)",
    re.MULTILINE,
)
LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')


@dataclass(frozen=True)
class Edit:
    """A text in place of another one.

    start: its place in the source
    line: the text of its line
    column: the place in that text, from 1
    nth: which of the lines with this text, from 1
    """

    kind: str
    start: int
    line: str
    column: int
    nth: int
    old: str
    new: str

    def applied(self, source: str) -> str:
        """Return the mutant, with as many lines as the source."""
        lost = "\n" * (self.old.count("\n") - self.new.count("\n"))
        return source[: self.start] + self.new + lost + source[self.start + len(self.old) :]

    def __str__(self) -> str:
        old, new = (re.sub(r"\s+", " ", text) for text in (self.old, self.new))
        nth = f" ({self.nth})" if self.nth > 1 else ""
        return f"{self.line}{nth}:{self.column}: {old} → {new or 'nothing'}"


def edits(source: str) -> list[Edit]:
    """Every edit of a source."""
    bare = LITERAL.sub(lambda match: blank(match[0]), uncommented(source))
    listed = list[Edit]()
    lines = [" ".join(line.split()) for line in source.split("\n")]
    for pattern in KEPT:
        bare = re.sub(pattern, lambda match: blank(match[0]), bare, flags=re.MULTILINE)

    def add(kind: str, start: int, old: str, *new: str) -> None:
        number = source.count("\n", 0, start)
        before = source[source.rfind("\n", 0, start) + 1 : start]
        nth = lines[: number + 1].count(lines[number])
        listed.extend(
            Edit(kind, start, lines[number], len(before.lstrip()) + 1, nth, old, text)
            for text in new
        )

    def swap(kind: str, pattern: str, words: Mapping[str, Sequence[str]]) -> None:
        for match in re.finditer(pattern, bare):
            add(kind, match.start(), match[0], *words.get(match[0], ()))

    # With another order, a seed chooses other edits.
    swap(
        "operator", r"(?<= )(?:[-+*/%&|^]|[-+*/]=|<<|>>)(?= )|\b(?:f?max|f?min)f?(?=\()", OPERATORS
    )
    swap("operator", r"\batomic(?:Add|Max)(?=\()", OPERATORS)
    swap("bound", r"(?<= )(?:[<>]=?|[=!]=|&&|\|\|)(?= )", BOUNDS)
    for match in re.finditer(r"(?<![\w.])(\d+)((?:\.\d+)?f?)(?![\w.])", bare):
        add(
            "constant",
            match.start(),
            match[0],
            *(number + match[2] for number in neighbours(match[1])),
        )
    for literal in LITERAL.finditer(
        re.sub(r"//[^\n]*", lambda match: blank(match[0]), source)
    ):  # inline assembly
        for match in re.finditer(r"(?<=[ ,])\d+(?=[;,])", literal[0]):
            add("constant", literal.start() + match.start(), match[0], *neighbours(match[0]))
    for match in re.finditer(r"\[([^\[\]]+)\]\[([^\[\]]+)\]", bare):
        add("index", match.start(), match[0], f"[{match[2]}][{match[1]}]")
    swap("name", r"\b(?:threadIdx\.x|blockIdx\.[xy]|[A-Za-z_]+)\b", NAMES)
    swap("alpha, beta", r"\b(?:alpha|beta)\b", SCALARS)
    for match in re.finditer(r"\bif (\()", bare):
        add("guard", match.start(1), bare[match.start(1) : closing(bare, match.start(1))], "(true)")
    for match in CALL.finditer(bare):
        end = closing(bare, match.end("call") - 1)
        if bare[end : end + 1] == ";":
            old = source[match.start("call") : end + 1]
            add(
                "synchronisation" if WAITS.search(old) else "statement",
                match.start("call"),
                old,
                ";",
            )
    for match in ASSIGNMENT.finditer(bare):
        add("statement", match.start("it"), source[match.start("it") : match.end("it")], ";")
    return listed


def neighbours(number: str) -> list[str]:
    """Return a number one larger, and one smaller if that isn't negative."""
    return [str(int(number) + step) for step in (1, -1) if int(number) + step >= 0]


def chosen(every: Sequence[Edit], most: int, seed: int) -> list[Edit]:
    """Return up to `most` edits at random, in the order of the source.

    As many of each kind as there are.
    """
    rng = Random(seed)
    by_kind = {}
    for edit in rng.sample(every, len(every)):
        by_kind.setdefault(edit.kind, []).append(edit)
    kept: list[Edit] = []
    while len(kept) < most and any(by_kind.values()):
        kept += [group.pop() for group in by_kind.values() if group]
    return sorted(kept[:most], key=lambda edit: (edit.start, edit.new))


def closing(text: str, start: int) -> int:
    """Return the place behind the bracket that closes the one at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place + 1
    return len(text)


@click.command()
@click.argument("names", nargs=-1, metavar="[KERNEL]...")
@click.option("--count", default=24, show_default=True, help="Mutants of each kernel, at most.")
@click.option("--seed", default=0, show_default=True, help="Chooses the edits.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A CSV file with a line per mutant.",
)
def main(names: Sequence[str], count: int, seed: int, out: Path | None) -> None:
    """Check mutants of each KERNEL (default: of all, and record them).

    Exits with 1 for a survivor without a reason, and for a kernel that fails itself: then nothing
    is recorded.
    """
    known = kernels()
    if unknown := sorted(set(names) - known.keys()):
        raise click.UsageError(
            f"there is no kernel {', '.join(unknown)}: choose from {', '.join(known)}"
        )
    edits_of = {
        name: chosen(edits(known[name].source), count, seed + crc32(name.encode()))
        for name in names or known
    }
    wanted = [(name, edit) for name, chosen_edits in edits_of.items() for edit in chosen_edits]
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        outcomes = list(pool.map(tried, *zip(*wanted, strict=True)))
    frame = pd.DataFrame(outcomes)
    if out is not None:
        frame.to_csv(out, index=False)
    document = record(outcomes, json.loads((FOLDER / "explained.json").read_text(encoding="utf-8")))
    broken = sorted(
        {
            f"{of.kernel} fails unedited: {of.detail}"
            for of in outcomes
            if of.result == ORIGINAL_FAILED
        }
    )
    if not names and not broken:
        (recorded,) = FOLDER.glob("2*.json")
        write_text(recorded, document)
    print(
        document["label"],
        pd.crosstab(frame["kernel"], frame["result"], margins=True).to_string(),
        sep="\n",
    )
    if broken:
        sys.exit("\n".join(broken))
    if unexplained := [
        survivor["mutant"] for survivor in document["survivors"] if not survivor["explained"]
    ]:
        sys.exit(f"not explained: {', '.join(unexplained)}")


if __name__ == "__main__":
    main()
