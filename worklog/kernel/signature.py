"""Which value each parameter of a kernel takes, and its grid and block, read from its source.

A launch passes the ladder's eight values in the order that the kernel declares them: the parameters' names decide. What
was found is stated; what isn't clear is an error that names the option. The gate checks the result in any case, so a
wrong guess fails and never gives a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from numbers import Integral
from typing import Any

from worklog.errors import BadSetting, listed, meant
from worklog.kernel.device import Block
from worklog.kernel.resources import MAX_THREADS
from worklog.kernel.source import (
    Definition,
    calls,
    code,
    constants,
    evaluate,
    filled,
    parts,
    plain,
    reduced,
    sizes,
)
from worklog.problem import CLASSES, SGEMM, Domain, Parameter

LADDER = tuple(parameter.name for parameter in SGEMM.signature)
SIZES, MATRICES = LADDER[:3], ("A", "B", "C")
WORKSPACE = "workspace"  # the address of memory for intermediate results: void*, the last parameter
WIDE = "long "  # before a size that the kernel takes as 64 bits
_AFFIX = r"(?:d|dev|device|gpu|in|input|out|output|mat|matrix|ptr)"
_MATRIX = re.compile(rf"(?:{_AFFIX}_?)?([abc])(?:_{_AFFIX})?", re.IGNORECASE)
# The sizes, row-major leading dimensions, and widths and heights as in NVIDIA's samples.
_MEANING = {"m": "M", "n": "N", "k": "K", "lda": "K", "ldb": "N", "ldc": "N", "wa": "K", "wb": "N", "ha": "M"}
_MEANING |= {"hb": "K", "alpha": "alpha", "beta": "beta"}
_NOT_FLOAT = re.compile(r"\b(?:double|half|__half2?|int|u?int\d+_t|unsigned|char|short|__nv_bfloat16|bfloat16)\b")
_WIDE = re.compile(r"\b(?:u?int64_t|s?size_t|long|ptrdiff_t)\b")


EXAMPLE_GRID = "'(N + 31) / 32, (M + 31) / 32'"


@dataclass(frozen=True)
class Launch:
    """One launch of a __global__ function. Its texts may name the parameters of the kernel's template.

    function: with its template arguments, as in "sum_parts<BM, 4>". grid: blocks along x, y and z, expressions that may
    also name M, N and K. block: threads along x, or along x and y. shared: bytes of dynamic shared memory per block.
    """

    function: str
    grid: str = ""
    block: str = ""
    shared: int = 0

    def blocks(self, names: Mapping[str, int]) -> tuple[int, ...]:
        """Blocks along x and y, and along z if the grid has that. names: values of names. Raises BadSetting."""
        sizes = tuple(evaluate(part, names) for part in parts(self.grid))
        if not 1 <= len(sizes) <= 3:
            raise BadSetting(
                f"cannot read the grid {self.grid!r}: give blocks along x and y, such as '(N + 31) / 32, M / 8'"
            )
        return sizes if len(sizes) > 1 else (*sizes, 1)

    def threads(self, names: Mapping[str, int]) -> Block:
        """Threads per block: along x, or along x and y. Raises BadSetting."""
        sizes = [evaluate(part, names) for part in parts(self.block)]
        if len(sizes) not in (1, 2) or min(sizes) < 1:
            raise BadSetting(f"cannot read the block {self.block!r}: give threads along x, or x and y: 256 or 32,8")
        return sizes[0] if len(sizes) == 1 else (sizes[0], sizes[1])


def launch_text(argument: str, sizes: Any) -> str:
    """A grid or a block as one text: "N / 8, M", 256, or ("N / 8", "M"). Raises BadSetting."""
    given = listed(argument, sizes)
    if not all(isinstance(size, str | Integral) for size in given):
        raise BadSetting(f"{argument}: give integers or text, such as {EXAMPLE_GRID}, not {sizes!r:.60}")
    return ", ".join(map(str, given))


def require_texts(words: Mapping[str, Any]) -> None:
    """Raise BadSetting for what is no text, or no CUDA C++. words: arguments of Kernel.from_source."""
    for argument, value in words.items():
        if not isinstance(value, str | None):
            raise BadSetting(f"{argument}: give text, not {value!r:.60}")
    source, file = words["source"], words["file"]
    if source.strip().endswith(".cu") and "{" not in source:
        raise BadSetting(f"{source.strip()!r} is the name of a file: give its text, or use Kernel.from_file")
    if "\0" in source:
        line = source[: source.index("\0")].count("\n") + 1
        raise BadSetting(f"{file}:{line}: the source has a NUL character, where the compiler stops: delete it")


def given(words: str, file: str, defined: Definition | None) -> tuple[str, ...]:
    """The values of --args, such as "A,B,C,M,N,K". Raises BadSetting."""
    names = parts(words)
    for name in names:
        if name not in LADDER:
            raise BadSetting(f"--args {words}: {name!r}{meant(name, LADDER)} is none of {', '.join(LADDER)}")
    missing = [name for name in MATRICES if names.count(name) != 1]
    if missing or not any(name in SIZES for name in names):
        raise BadSetting(f"--args {words}: give A, B and C once each and at least one of M, N, K")
    declared = defined.parameters if defined is not None else ()
    if defined is not None and len(declared) != len(names):
        raise BadSetting(f"--args {words}: {file} declares {len(declared)} parameters, and {len(names)} are given")
    return _widened(declared, names) if declared else tuple(names)


def order(file: str, function: str, defined: Definition | None) -> tuple[str, ...]:
    """The value that each parameter takes. Raises BadSetting where the names don't decide it."""
    if defined is None:
        return LADDER
    declared = defined.parameters
    if declared and (declared[-1].type, declared[-1].name) == ("void", WORKSPACE):
        return (*order(file, function, replace(defined, parameters=declared[:-1])), WORKSPACE)
    kinds = ["pointer" if p.pointer else "float" if p.type in ("float", "T") else "integer" for p in declared]
    if kinds == ["pointer" if v in MATRICES else "integer" if v in SIZES else "float" for v in LADDER]:
        return _widened(declared, LADDER)
    for parameter in declared:
        if parameter.pointer and _NOT_FLOAT.search(parameter.type):
            raise BadSetting(f"{file}: {function} takes {parameter.type}* {parameter.name}: the gate passes float*")
    values = _by_name(declared)
    if values is None:
        integers = list(SIZES) if kinds.count("integer") > 1 else ["N"]
        left = {"pointer": list(MATRICES), "integer": integers, "float": ["alpha", "beta"]}
        example = ",".join(left[kind].pop(0) if left[kind] else "N" for kind in kinds)
        raise BadSetting(
            f"{file}: {function}({', '.join(p.name for p in declared)}): the names don't say which parameter is which: "
            f"give one of {', '.join(LADDER)} for each, as in --args '{example}'"
        )
    if _is_m_n_k(defined.body, {value: p.name for p, value in zip(declared, values, strict=True)}):
        values = [{"N": "K", "K": "N"}.get(value, value) for value in values]
    return _widened(declared, values)


def described(defined: Definition | None, values: Sequence[str]) -> list[str]:
    """What is said of an order that isn't the ladder's."""
    plain = [value.removeprefix(WIDE) for value in values]
    if tuple(plain) == LADDER:
        return []
    names = [parameter.name for parameter in defined.parameters] if defined is not None else plain
    said = f"parameters ({', '.join(names)})" + ("" if names == plain else f": passed as ({', '.join(plain)})")
    said += ", with M = N = K" if len({value for value in plain if value in SIZES}) == 1 else ""
    return [said + (f"; {fixed(plain)}, which it doesn't take" if fixed(plain) else "")]


def fixed(values: Sequence[str]) -> str:
    """What a kernel with these parameters computes with, where it doesn't take alpha or beta: "alpha = 1"."""
    return " and ".join(text for name, text in (("alpha", "alpha = 1"), ("beta", "beta = 0")) if name not in values)


def _widened(declared: Sequence[Parameter], values: Sequence[str]) -> tuple[str, ...]:
    wide = [not parameter.pointer and _WIDE.search(parameter.type) for parameter in declared]
    return tuple(f"{WIDE}{value}" if is_wide else value for is_wide, value in zip(wide, values, strict=True))


def _by_name(declared: Sequence[Parameter]) -> list[str] | None:
    """The value of each parameter by its name, N for an only size; None unless A, B and C are there once each, a size
    is, and each name has a value.
    """
    sizes = [p for p in declared if not p.pointer and p.name.lower() not in ("alpha", "beta")]
    values = []
    for parameter in declared:
        matrix = _MATRIX.fullmatch(parameter.name) if parameter.pointer else None
        only = "N" if sizes == [parameter] else _MEANING.get(parameter.name.lower(), "")
        values.append(matrix[1].upper() if matrix else "" if parameter.pointer else only)
    complete = sizes and all(values) and sorted(value for value in values if value in MATRICES) == [*MATRICES]
    return values if complete else None


def _is_m_n_k(body: str, names: Mapping[str, str]) -> bool:
    """Whether the product is A (M x N) times B (N x K), as on LeetGPU: rows of A have length N, those of B and C K."""

    def lengths(matrix: str) -> set[str]:
        indices = " ".join(re.findall(rf"\b{names[matrix]}\s*\[([^\]]*)\]", body))
        return {s for s in SIZES if s in names and re.search(rf"\*\s*{names[s]}\b|\b{names[s]}\s*\*", indices)}

    return lengths("A") == {"N"} and lengths("B") == {"K"} and lengths("C") <= {"K"}


@dataclass(frozen=True)
class Header:
    """What a file's comments state, as in the rungs. tile: values of the template's parameters. claims: the precision
    class. launch: without a function.
    """

    tile: Mapping[str, int]
    claims: str
    launch: Launch


def header(source: str) -> Header:
    """Read "// Tile: BM=128 BN=64", "// Launch: grid N / BN, M   block 256   shared 4096" and "// Claims: tf32". What
    can't be read is a comment like any other.
    """
    joined = re.sub(r" *\n// {6,}", " ", source)  # a line that goes on in the next one
    lines = dict(re.findall(r"^// (Tile|Launch|Claims): +(.+?) *$", joined, re.MULTILINE))
    tile = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", lines.get("Tile", ""))}
    claims = lines.get("Claims", "")
    launch = Launch("")
    with suppress(BadSetting):
        if stated := re.fullmatch(r"grid (.+?) +block (.+?)(?: +shared (.+))?", lines.get("Launch", "")):
            read = Launch("", stated[1], stated[2], evaluate(stated[3] or "0", tile))
            read.blocks({**dict.fromkeys(SIZES, 1), **tile})
            read.threads(tile)
            launch = read
    return Header(tile, claims if claims in CLASSES else "fp32", launch)


@dataclass(frozen=True)
class Stated:
    """A launch that a source states. origin: where it was read, "" if nowhere. template: its arguments, as in "<8>"."""

    grid: str = ""
    block: str = ""
    origin: str = ""
    template: str = ""


def covered(grid: str) -> list[str]:
    """Of each axis that a grid rounds down, the sizes that it covers, such as N % 32 == 0."""
    floors = [re.fullmatch(r"([MNK]) ?//? ?(\d+)", part) for part in parts(grid)]
    return [f"{floor[1]} % {floor[2]} == 0" for floor in floors if floor]


def is_uneven(grid: str) -> bool:
    """Whether a grid rounds one axis down and another one up: most likely, one was forgotten."""
    return bool(covered(grid)) and any("+" in part and "/" in part for part in parts(grid))


def warning(grid: str, domain: Domain) -> str:
    """What is said of a grid that covers this domain only, where none was stated."""
    what = f"the domain is inferred from the grid: {domain}; other shapes are not checked"
    if is_uneven(grid):
        what = f"one rounded axis of two: the grid {grid} rounds one axis down only"
    return f"{what}; round up, as in (N + 31) / 32, or state the domain: --domain '{domain}'"


def launch(source: str, function: str, defined: Definition | None, values: Sequence[str], arguments: str) -> Stated:
    """The launch that a source states: in a comment `grid: …, block: …`, in its host code, or by its tile. An empty one
    where it states none, or several. arguments: of the template, as in "32, 8".
    """
    if defined is None:
        return Stated()
    known = constants(source)
    known |= dict(zip(defined.template, parts(arguments), strict=False)) if arguments else {}
    own = {p.name: size for p, value in zip(defined.parameters, values, strict=False) if (size := _size(value))}
    free = {name: text for name, text in known.items() if name not in (*SIZES, *own)}
    host = source, function, values, known, arguments
    blocks = {read.block for read in _in_host_code(*host, ["1"])}
    tile = (_with_rows_of(read, blocks) for read in _by_tile(defined, free, own))
    found_first = next(filter(None, map(set, (_in_comments(source, free, own), _in_host_code(*host), tile))), set())
    return found_first.pop() if len(found_first) == 1 else Stated()


def _size(value: str) -> str:
    """M, N or K; "" for other values."""
    size = value.removeprefix(WIDE)
    return size if size in SIZES else ""


def comments(source: str) -> str:
    """The comments and literals of a source, with spaces in place of its code."""
    return "".join(" " if kept == char != "\n" else char for char, kept in zip(source, code(source), strict=True))


def stated(source: str, label: str) -> set[str]:
    """What comments say behind `label:`, up to the next label or the end of the line."""
    pattern = rf"\b{label}\s*[:=]\s*(.+?)[\s,;.*/]*(?=\b(?:grid|block)\b|$)"
    return set(re.findall(pattern, comments(source), re.IGNORECASE | re.MULTILINE))


def domain(source: str, tile: Mapping[str, int]) -> str:
    """The only domain that a comment states in its first sentence, as in "Domain: M % 8 == 0"; "any" where none or
    several do. tile: values of names.
    """
    rules = {re.split(r"\.\s", text)[0] for text in stated(source, "domain")}
    with suppress(BadSetting):
        if len(rules) == 1 and (only := Domain.of(text := rules.pop(), tile)) != Domain():
            return text if tile else str(only)
    return "any"


def _in_comments(source: str, known: Mapping[str, str], own: Mapping[str, str]) -> Iterator[Stated]:
    for grid, block in product(stated(source, "grid"), stated(source, "block")):
        with suppress(BadSetting):
            yield _readable(parts(grid), parts(block), known, own, "a comment")


def _in_host_code(
    source: str,
    function: str,
    values: Sequence[str],
    known: Mapping[str, str],
    arguments: str,
    other_grid: Sequence[str] = (),
) -> Iterator[Stated]:
    """other_grid: for the launch's own."""
    for call in calls(code(source), re.escape(function)):
        passed: dict[str, str] = {}
        for argument, value in zip(call.arguments, values, strict=False):
            variable = re.fullmatch(r"\(?([A-Za-z_][\w.]*)\)?", plain(argument))
            if variable and (size := _size(value)):
                # One variable for two sizes says nothing of a grid.
                passed[variable[1]] = size if passed.get(variable[1], size) == size else "?"
        names = {name: text for name, text in known.items() if name not in passed}
        template = ", ".join(reduced(part, names) for part in call.template)
        if (arguments and template != ", ".join(parts(arguments))) or len(call.configuration) < 2:
            continue
        grid, block = (sizes(words, names) for words in call.configuration[:2])
        with suppress(BadSetting):
            instance = f"<{template}>" if template else ""
            yield _readable(other_grid or grid, block, names, passed, "the host code", instance)


def _by_tile(defined: Definition, known: Mapping[str, str], own: Mapping[str, str]) -> Iterator[Stated]:
    """From BM and BN, from the only tile, or from a thread per element, where it is clear which index walks the
    columns of C.
    """
    body = defined.body
    axes = {"blockIdx.x": "x", "blockIdx.y": "y", **dict(re.findall(r"\b(\w+)\s*=[^;=]*?\bblockIdx\.([xy])", body))}
    products = [set(re.split(r"\s*\*\s*", product)) for product in re.findall(r"[\w.]+(?:\s*\*\s*[\w.]+)+", body)]
    tiles = {name for factors in products if factors & axes.keys() for name in (factors & known.keys()) - axes.keys()}
    planar = "threadIdx.y" in body
    if tiles == {"BM", "BN"}:
        m, n = "BM", "BN"
        block = [f"BN / {known.get('TN', 1)}", f"BM / {known.get('TM', 1)}"]
        block = block if planar else [defined.bounds or f"({block[0]}) * ({block[1]})"]
    elif len(tiles) == 1 and not defined.bounds:
        (m,) = (n,) = tiles
        block = [n, m] if planar else [f"{n} * {m}"]
    elif not tiles and planar and "blockDim.y" in body and "__shared__" not in body:
        n, m = "32", reduced(f"({defined.bounds or MAX_THREADS}) / 32", known)  # a thread per element takes any block
        block = [n, m]
    else:
        return
    grid = [f"(N + {n} - 1) / {n}", f"(M + {m} - 1) / {m}"]
    with suppress(BadSetting):
        first = _first_index(body, axes, products, own)
        read = _readable(grid if first == "N" else grid[::-1], block, known, {}, "the tile" if tiles else "its indices")
        if first and evaluate(read.block.replace(",", " *"), {}) <= MAX_THREADS:
            yield read


def _with_rows_of(tile: Stated, blocks: set[str]) -> Stated:
    """The launch of a tile, with the block of the host code where that is as wide, such as for warps that only copy."""
    if len(blocks) != 1 or tile.block in blocks or parts(min(blocks))[0] != parts(tile.block)[0]:
        return tile
    return replace(tile, block=min(blocks), origin=f"{tile.origin} and the host code")


def _first_index(body: str, axes: Mapping[str, str], products: Sequence[set[str]], own: Mapping[str, str]) -> str:
    """What blockIdx.x walks: "N" for the columns of C, "M" for its rows, "" where the source doesn't say. axes: x or y
    of each name that is computed from blockIdx.
    """
    lengths = {name for name, size in own.items() if size != "M"}  # of rows
    walked = set()
    for name, axis in axes.items():
        compared = {own.get(size) for size in re.findall(rf"\b{re.escape(name)}\s*[<>]=?\s*(\w+)", body)}
        multiplied = any(name in factors and factors & lengths for factors in products)
        row = "row" in name.lower() or "M" in compared or multiplied
        column = "col" in name.lower() or (len(own) > 1 and "N" in compared)
        if row != column:
            walked.add("N" if (axis == "x") == column else "M")
    return walked.pop() if len(walked) == 1 else ""


def _readable(
    grid: Sequence[str],
    block: Sequence[str],
    known: Mapping[str, str],
    own: Mapping[str, str],
    origin: str,
    template: str = "",
) -> Stated:
    """The launch with numbers for all names but M, N and K. own: the source's names for these. Raises BadSetting where
    that isn't possible, or where it has a third dimension.
    """
    texts = []
    for dimensions, names in ((grid, dict.fromkeys(SIZES, 1)), (block, {})):
        shown = [filled(reduced(part, known), own) for part in dimensions]
        while len(shown) > 1 and shown[-1] == "1":
            shown.pop()
        if len(shown) > 2:
            raise BadSetting("a third dimension")
        for part in shown:
            evaluate(part, names)
        texts.append(", ".join(shown))
    return Stated(texts[0], texts[1], origin, template)
