"""A launch, and what a source's comments state of it: grid, block, tile and domain."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from numbers import Integral
from typing import Any

import numpy as np

from worklog.errors import BadSetting, listed
from worklog.kernel.device import Block
from worklog.kernel.source import comments, evaluate, filled, parts, sizes
from worklog.kernel.unit import Definition, Unit
from worklog.problem import CLASSES, Domain

SIZES = ("M", "N", "K")
EXAMPLE_GRID = "'(N + 31) / 32, (M + 31) / 32'"
LAUNCH_ADVICE = f"give the kernel's own, as in --grid {EXAMPLE_GRID} --block 32,32"
LENGTHS = np.arange(1, 2049)  # of sizes, at which a grid tells how it rounds
UNREAD_LAUNCH = "a launch isn't read"
UNREAD_DOMAIN = "the domain in a comment isn't read"


@dataclass(frozen=True)
class Launch:
    """One launch of a __global__ function. Its texts may name the parameters of the kernel's template.

    function: with its template arguments, as in "sum_parts<BM, 4>". grid: blocks along x, y and z, expressions that may
    also name M, N and K. block: threads along x, y and z. shared: bytes of dynamic shared memory per block.
    """

    function: str
    grid: str = ""
    block: str = ""
    shared: int = 0

    def blocks(self, names: Mapping[str, int]) -> tuple[int, ...]:
        """Blocks along x and y, and along z if the grid has that. names: values of names. Raises BadSetting."""
        sizes = tuple(evaluate(part, names) for part in parts(self.grid))
        if len(sizes) > 3:
            raise BadSetting(
                f"cannot read the grid {self.grid!r}: give blocks along x, y and z: {EXAMPLE_GRID}"
            )
        return sizes if len(sizes) > 1 else (*sizes, 1)

    def threads(self, names: Mapping[str, int]) -> Block:
        """Threads per block: along x, or along x, y and z. Raises BadSetting."""
        sizes = [evaluate(part, names) for part in parts(self.block)]
        if len(sizes) > 3 or min(sizes) < 1:
            raise BadSetting(
                f"cannot read the block {self.block!r}: give threads along x, y and z: 256 or 32,8"
            )
        while len(sizes) > 1 and sizes[-1] == 1:
            sizes.pop()
        return sizes[0] if len(sizes) == 1 else tuple(sizes)


def launch_text(argument: str, given: Any) -> str:
    """A grid or a block as one text: "N / 8, M", 256, or ("N / 8", "M"). Raises BadSetting."""
    texts = listed(argument, given)
    if not all(isinstance(size, str | Integral) for size in texts):
        raise BadSetting(
            f"{argument}: give integers or text, such as {EXAMPLE_GRID}, not {given!r:.60}"
        )
    words = ", ".join(map(str, texts))
    if re.fullmatch(r"[1-9]\d*(?: ?x ?[1-9]\d*)+", words):
        words = words.replace("x", ",")
    return ", ".join(sizes(words, {}))


def header(source: str) -> tuple[dict[str, int], str, Launch]:
    """What comments such as a rung's state: values of the template's parameters, the precision class, and the launch,
    without a function: "// Tile: BM=128 BN=64", "// Claims: tf32" and "// Launch: grid N / BN, M   block 256   shared
    4096". What can't be read is a comment like any other.
    """
    joined = re.sub(r" *\n// {6,}", " ", source)  # a line that goes on in the next one
    lines = dict(re.findall(r"^// (Tile|Launch|Claims): +(.+?) *$", joined, re.MULTILINE))
    tile = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", lines.get("Tile", ""))}
    claims = lines.get("Claims", "")
    launch = Launch("")
    if stated := re.fullmatch(
        r"grid (.+?) +block (.+?)(?: +shared (.+))?", lines.get("Launch", "")
    ):
        with suppress(BadSetting):
            read = Launch("", stated[1], stated[2], evaluate(stated[3] or "0", tile))
            read.blocks({**dict.fromkeys(SIZES, 1), **tile})
            read.threads(tile)
            launch = read
    return tile, claims if claims in CLASSES else "fp32", launch


def stated(source: str, label: str) -> list[str]:
    """What comments say, each once and in their order, behind `label:`, up to the next label or the end of the line."""
    pattern = rf"\b{label}\s*[:=]\s*(.+?)[\s,;.*/]*(?=\b(?:grid|block)\b|$)"
    found = re.findall(pattern, comments(source), re.IGNORECASE | re.MULTILINE)
    return list(dict.fromkeys(found))


def own_part(source: str, unit: Unit, defined: Definition, label: str) -> str:
    """Return the lines of a source whose comments may state something of a kernel, such as its grid.

    These are the lines from the function before a kernel to its end if they state the label, else those that are of
    no other kernel. The first kernel's may be for all: a comment at the top of the file is above it.
    label: as for stated()
    """
    functions = [function for function in unit.functions if function.is_own]
    parts_of_kernels = list[range]()
    own = range(0)
    end = 0
    for function in functions:
        part = range(end, function.line(function.body.end_byte))
        end = max(end, part.stop)
        if function is defined:
            own = part
        elif function.is_kernel and part.start:
            parts_of_kernels.append(part)
    lines = source.splitlines()
    own_lines = "\n".join(lines[own.start : own.stop])
    if stated(own_lines, label):
        return own_lines
    for part in parts_of_kernels:
        for line in part:
            lines[line] = ""
    return "\n".join(lines)


def domain(source: str, tile: Mapping[str, int]) -> tuple[str, list[str]]:
    """The domain that comments state in their first sentence, else "any"; and what is said of it. tile: as names."""
    texts = dict.fromkeys(re.split(r"\.\s", text)[0] for text in stated(source, "domain"))
    try:
        read = {Domain.of(text, tuple(tile.items())): text if tile else "" for text in texts}
        if len(read) > 1:
            raise BadSetting(f"comments state {' or '.join(map(str, read))}")
    except BadSetting as error:
        return "any", [f"{UNREAD_DOMAIN}, so every shape is checked: {error}"]
    rules = next((text or str(only) for only, text in read.items() if only != Domain()), "any")
    return rules, [] if rules == "any" else [f"domain: {rules}; from a comment"]


def covered(grid: str, template: Mapping[str, int]) -> tuple[list[str], bool]:
    """Of each axis that a grid rounds down, the sizes that it covers, such as N % 32 == 0; and whether it rounds
    another one up: most likely, one was forgotten.
    """
    rules = list[str]()
    rounds_up = False
    for part in parts(grid):
        named = [size for size in SIZES if re.search(rf"\b{size}\b", part)]
        if len(named) != 1:
            continue
        [size] = named
        blocks = evaluate(part, {**template, size: LENGTHS})
        tile = next((length for length, count in zip(LENGTHS, blocks, strict=True) if count), 1)
        if np.array_equal(blocks, LENGTHS // tile) and tile > 1:
            rules.append(f"{size} % {tile} == 0")
        elif blocks[0] == 1:
            rounds_up = rounds_up or bool(blocks[-1] < LENGTHS[-1])
    return rules, bool(rules) and rounds_up


def from_comments(
    source: str, function: str, names: Mapping[str, str], own: Mapping[str, str]
) -> tuple[list[Launch], str]:
    """Return the launches that comments state as `grid: …, block: …`, and why one isn't read or "".

    names: expressions of constants
    own: names of the kernel's sizes, with M, N or K for each
    """
    launches = dict[Launch, None]()
    prose = ""
    for grid, block in product(stated(source, "grid"), stated(source, "block")):
        try:
            launches[readable(function, sizes(grid, names), sizes(block, names), own)] = None
        except BadSetting as error:
            reason = str(error).partition(": use integers")[0]
            prose = f"the launch in a comment isn't read: {reason}"
    return [*launches], prose


def readable(
    function: str, grid: Sequence[str], block: Sequence[str], own: Mapping[str, str]
) -> Launch:
    """Return the launch of reduced sizes. Raises BadSetting for what is no expression of M, N and K.

    own: names in the sizes, with M, N or K for each
    """
    texts = list[str]()
    for dimensions, names in ((grid, dict.fromkeys(SIZES, 1)), (block, {})):
        shown = [filled(size, own) for size in dimensions]
        while len(shown) > 1 and shown[-1] == "1":
            shown.pop()
        for size in shown:
            evaluate(size, names)
        texts.append(", ".join(shown))
    return Launch(function, texts[0], texts[1])
