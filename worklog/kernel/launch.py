"""A launch, and what a source's comments state of it: grid, block, tile and domain."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from numbers import Integral
from typing import Any

import numpy as np

from worklog.errors import BadSetting, listed
from worklog.kernel.device import Block
from worklog.kernel.signature import BATCH, SIZE_NAMES
from worklog.kernel.source import comments, evaluate, filled, reduced, sizes, split_list
from worklog.kernel.unit import Definition, Unit
from worklog.problem import CLASSES, Domain

MULTIPROCESSORS = "SMS"  # the number of them, in a grid and in template arguments
EXAMPLE_GRID = "'(N + 31) / 32, (M + 31) / 32'"
LAUNCH_ADVICE = f"give the kernel's own, as in --grid {EXAMPLE_GRID} --block 32,32"
LENGTHS = np.arange(1, 2049)  # of sizes, at which a grid shows how it rounds
UNREAD_LAUNCH = "a launch isn't read"
UNREAD_DOMAIN = "the domain in a comment isn't read"

# Of statements in comments.
LABELS = "grid|block|shared|domain|by columns|epilogue|scale of A|scale of B"


@dataclass(frozen=True)
class Launch:
    """A launch of a __global__ function.

    Its texts may name the parameters of the kernel's template.
    """

    function: str  # with its template arguments, as in "sum_parts<BM, 4>"
    grid: str = ""  # blocks along x, y and z, expressions that may also name M, N, K and SMS
    block: str = ""  # threads along x, y and z
    shared: int = 0  # bytes of dynamic shared memory per block

    @property
    def instance(self) -> str:
        """The arguments of the function's template, as in "half, 32"; "" for none."""
        return self.function.partition("<")[2].rpartition(">")[0]

    def blocks(self, names: Mapping[str, int]) -> tuple[int, ...]:
        """Return the blocks along x and y, and along z if the grid has it.

        names: values of the names in the grid
        Raises BadSetting.
        """
        sizes = tuple(evaluate(part, {BATCH: 1, **names}) for part in split_list(self.grid))
        if len(sizes) > 3:
            raise BadSetting(
                f"cannot read the grid {self.grid!r}: give blocks along x, y and z: {EXAMPLE_GRID}"
            )
        return sizes if len(sizes) > 1 else (*sizes, 1)

    def threads(self, names: Mapping[str, int]) -> Block:
        """Return the threads per block: along x, or along x, y and z.

        names: values of the names in the block
        Raises BadSetting.
        """
        sizes = [evaluate(part, names) for part in split_list(self.block)]
        if len(sizes) > 3 or min(sizes) < 1:
            raise BadSetting(
                f"cannot read the block {self.block!r}: give threads along x, y and z: 256 or 32,8"
            )
        while len(sizes) > 1 and sizes[-1] == 1:
            sizes.pop()
        return sizes[0] if len(sizes) == 1 else tuple(sizes)


def launch_text(argument: str, size: Any) -> str:
    """Return a grid or a block as a text.

    argument: "grid" or "block"
    size: as "N / 8, M", 256, or ("N / 8", "M")
    Raises BadSetting.
    """
    texts = listed(argument, size)
    if not all(isinstance(part, str | Integral) for part in texts):
        raise BadSetting(
            f"{argument}: give integers or text, such as {EXAMPLE_GRID}, not {size!r:.60}"
        )
    text = ", ".join(map(str, texts))
    if re.fullmatch(r"[1-9]\d*(?: ?x ?[1-9]\d*)+", text):
        text = text.replace("x", ",")
    return ", ".join(sizes(text, {}))


def header(source: str) -> tuple[dict[str, int], str, Launch]:
    """Return the tile, the precision class and the launch that comments state.

    The class is "" if they state none.

    They are written as in a rung: "// Tile: BM=128 BN=64", "// Claims: tf32" and
    "// Launch: grid N / BN, M   block 256   shared 4096". The tile has values of the template's
    parameters, and the launch has no function. A line that can't be read is a comment like any
    other.
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
            read.blocks({**dict.fromkeys((*SIZE_NAMES, MULTIPROCESSORS), 1), **tile})
            read.threads(tile)
            launch = read
    return tile, claims if claims in CLASSES else "", launch


def stated(source: str, label: str) -> list[str]:
    """Return the statements of comments behind `label:`, each once and in order.

    A statement ends at the next label or at the end of the line.
    """
    pattern = rf"\b{label}\s*[:=]\s*(.+?)[\s,;.*/]*(?=\b(?:{LABELS})\b|$)"
    statements = re.findall(pattern, comments(source), re.IGNORECASE | re.MULTILINE)
    return list(dict.fromkeys(statements))


def own_part(source: str, unit: Unit, defined: Definition, label: str) -> str:
    """Return the lines of a source whose comments may be about a kernel.

    These are the lines from the function before a kernel to its end if they state the label, else
    the lines that belong to no other kernel. The lines of the first kernel may be for all kernels:
    a comment at the top of the file is above it.

    label: as for stated(), such as "grid"
    """
    functions = [function for function in unit.functions if function.is_own]
    parts_of_kernels = list[range]()
    part_of_kernel = range(0)
    end = 0
    for function in functions:
        part = range(end, function.line(function.body.end_byte))
        end = max(end, part.stop)
        if function is defined:
            part_of_kernel = part
        elif function.is_kernel and part.start:
            parts_of_kernels.append(part)
    lines = source.splitlines()
    text = "\n".join(lines[part_of_kernel.start : part_of_kernel.stop])
    if stated(text, label):
        return text
    for part in parts_of_kernels:
        for line in part:
            lines[line] = ""
    return "\n".join(lines)


def domain(source: str, tile: Mapping[str, int]) -> tuple[str, list[str]]:
    """Return the domain that comments state, else "any", and a remark on it.

    Only the first sentence counts.

    tile: values of names
    """
    texts = dict.fromkeys(re.split(r"\.\s", text)[0] for text in stated(source, "domain"))
    try:
        domains = {Domain.of(text, tuple(tile.items())): text for text in texts}
        if len(domains) > 1:
            raise BadSetting(f"comments state {' or '.join(map(str, domains))}")
    except BadSetting as error:
        return "any", [f"{UNREAD_DOMAIN}, so every shape is checked: {error}"]
    for stated_domain, text in domains.items():
        rules = text if tile and text else str(stated_domain)
        if stated_domain != Domain() and rules != "any":
            return rules, [f"domain: {rules}; from a comment"]
    return "any", []


def covered(grid: str, template: Mapping[str, int]) -> tuple[list[str], bool]:
    """Return the sizes that a grid covers, and whether it also rounds an axis up.

    The sizes are of each axis that is rounded down, such as N % 32 == 0. If another axis is rounded
    up, the user most likely forgot to round this one up.

    template: values of names in the grid
    """
    rules = list[str]()
    rounds_up = False
    for part in split_list(grid):
        axes = [size for size in SIZE_NAMES if re.search(rf"\b{size}\b", part)]
        if len(axes) != 1:
            continue
        [size] = axes
        blocks = evaluate(part, {**template, size: LENGTHS})
        tile = next((length for length, count in zip(LENGTHS, blocks, strict=True) if count), 1)
        if np.array_equal(blocks, LENGTHS // tile) and tile > 1:
            rules.append(f"{size} % {tile} == 0")
        elif blocks[0] == 1 and blocks[-1] < LENGTHS[-1]:
            rounds_up = True
    return rules, bool(rules) and rounds_up


def from_comments(
    source: str, function: str, names: Mapping[str, str], labels: Mapping[str, str]
) -> tuple[list[Launch], str]:
    """Return the launches that comments state, and why a launch isn't read or "".

    Comments state them as `grid: …, block: …`, and dynamic shared memory as `shared: … bytes`.

    names: expressions of constants
    labels: names of the kernel's sizes, with M, N or K for each
    """
    launches = dict[Launch, None]()
    prose = ""
    shared = _shared_bytes(source, names)
    for grid, block in product(stated(source, "grid"), stated(source, "block")):
        try:
            launch = readable(function, sizes(grid, names), sizes(block, names), labels)
            launches[replace(launch, shared=shared)] = None
        except BadSetting as error:
            reason = str(error).partition(": use integers")[0]
            prose = f"the launch in a comment isn't read: {reason}"
    return [*launches], prose


def _shared_bytes(source: str, names: Mapping[str, str]) -> int:
    """Return the bytes of dynamic shared memory that comments state; 0 without a number of them.

    Without an array of dynamic memory, such a comment is about another one.

    names: expressions of constants
    """
    if not re.search(r"\bextern\b[^;]*__shared__", source):
        return 0
    for text in stated(source, "shared"):
        with suppress(BadSetting):
            return int(evaluate(reduced(text.removesuffix("bytes").strip(), names), {}))
    return 0


def readable(
    function: str, grid: Sequence[str], block: Sequence[str], labels: Mapping[str, str]
) -> Launch:
    """Return the launch of reduced sizes.

    labels: names in the sizes, with M, N or K for each
    Raises BadSetting for a size that isn't an expression of M, N and K, and for a block's size that
    isn't a number.
    """
    texts = list[str]()
    for dimensions, names in ((grid, dict.fromkeys((*SIZE_NAMES, BATCH), 1)), (block, {})):
        expressions = [filled(size, labels) for size in dimensions]
        while len(expressions) > 1 and expressions[-1] == "1":
            expressions.pop()
        for size in expressions:
            evaluate(size, names)
        texts.append(", ".join(expressions))
    return Launch(function, texts[0], texts[1])
