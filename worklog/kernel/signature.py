"""Which value each parameter of a kernel takes, and its grid and block, read from its source.

A launch passes the ladder's eight values in the order that the kernel declares them: the parameters' names decide. What
was found is stated; what isn't clear is an error that names the option. The gate checks the result in any case, so a
wrong guess fails and never gives a number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from numbers import Integral
from typing import Any

from worklog.errors import BadSetting, listed, meant
from worklog.kernel.device import Block
from worklog.kernel.resources import MAX_THREADS
from worklog.kernel.source import comments, evaluate, filled, nodes, parts, plain, reduced, sizes, text_of
from worklog.kernel.unit import Definition, Unit
from worklog.problem import CLASSES, SGEMM, Domain, Parameter

LADDER = tuple(parameter.name for parameter in SGEMM.signature)
SIZES, MATRICES = LADDER[:3], ("A", "B", "C")
INDICES = ("blockIdx.x", "blockIdx.y")
WORKSPACE = "workspace"  # the address of memory for intermediate results: void*, the last parameter
WIDE = "long "  # before a size that the kernel takes as 64 bits
EXAMPLE_GRID = "'(N + 31) / 32, (M + 31) / 32'"
_AFFIX = r"(?:d|dev|device|gpu|in|input|out|output|mat|matrix|ptr)"
_MATRIX = re.compile(rf"(?:{_AFFIX}_?)?([abc])(?:_{_AFFIX})?", re.IGNORECASE)
# The sizes, row-major leading dimensions, and widths and heights as in NVIDIA's samples.
_MEANING = {"m": "M", "n": "N", "k": "K", "lda": "K", "ldb": "N", "ldc": "N", "wa": "K", "wb": "N", "ha": "M"}
_MEANING |= {"hb": "K", "alpha": "alpha", "beta": "beta"}
_PASSED = ("void", "float2", "float4")  # elements of a pointer beside float that the gate's memory may be taken for


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
        if len(sizes) > 3:
            raise BadSetting(f"cannot read the grid {self.grid!r}: give blocks along x and y, such as {EXAMPLE_GRID}")
        return sizes if len(sizes) > 1 else (*sizes, 1)

    def threads(self, names: Mapping[str, int]) -> Block:
        """Threads per block: along x, or along x and y. Raises BadSetting."""
        sizes = [evaluate(part, names) for part in parts(self.block)]
        if len(sizes) == 3 and sizes[-1] == 1:
            sizes.pop()
        if len(sizes) not in (1, 2) or min(sizes) < 1:
            raise BadSetting(f"cannot read the block {self.block!r}: give threads along x, or x and y: 256 or 32,8")
        return sizes[0] if len(sizes) == 1 else (sizes[0], sizes[1])


def launch_text(argument: str, given: Any) -> str:
    """A grid or a block as one text: "N / 8, M", 256, or ("N / 8", "M"). Raises BadSetting."""
    texts = listed(argument, given)
    if not all(isinstance(size, str | Integral) for size in texts):
        raise BadSetting(f"{argument}: give integers or text, such as {EXAMPLE_GRID}, not {given!r:.60}")
    return ", ".join(sizes(", ".join(map(str, texts)), {}))


def order(words: str, file: str, function: str, defined: Definition | None, unit: Unit) -> tuple[str, ...]:
    """The value that each parameter takes: by words such as "A,B,C,M,N,K", else by its name. Raises BadSetting."""
    declared = defined.parameters if defined is not None else ()
    for parameter in declared:
        kind, known = parameter.type, {*_PASSED, *(defined.template if defined is not None else ())}
        if kind.endswith(("*", "[]")):
            taken = parameter.declaration if kind.endswith("*") else f"{parameter.name} as an array of arrays"
            raise BadSetting(f"{file}: {function} takes {taken}: the gate passes float*, row-major")
        numbers = ("float32",) if parameter.pointer else ("float32", "int", "uint", "bool")
        if kind not in known if not parameter.dtype else not parameter.dtype.startswith(numbers):
            advice = "the gate passes float*, float and integers: give the kernel these instead"
            raise BadSetting(f"{file}: {function} takes {parameter.declaration}: {advice}")
    if words:
        values = _given(words, file, len(declared) if defined is not None else None)
    elif defined is None:
        values = [*LADDER]
    elif declared and (declared[-1].type, declared[-1].name) == ("void", WORKSPACE):
        values = [*_by_name(declared[:-1], file, function, defined.body), WORKSPACE]
    else:
        values = _by_name(declared, file, function, defined.body)
    wide = {n for n, parameter in enumerate(declared) if not parameter.pointer and parameter.dtype.endswith("int64")}
    return tuple(f"{WIDE}{value}" if n in wide else value for n, value in enumerate(values))


def _given(words: str, file: str, declared: int | None) -> list[str]:
    """The values of --args. declared: the number of parameters, if it is known."""
    names = parts(words)
    for name in names:
        if name not in LADDER:
            raise BadSetting(f"--args {words}: {name!r}{meant(name, LADDER)} is none of {', '.join(LADDER)}")
    if any(names.count(name) != 1 for name in MATRICES) or not any(name in SIZES for name in names):
        raise BadSetting(f"--args {words}: give A, B and C once each and at least one of M, N, K")
    if declared not in (None, len(names)):
        raise BadSetting(f"--args {words}: {file} declares {declared} parameters, and {len(names)} are given")
    return names


def _by_name(declared: Sequence[Parameter], file: str, function: str, body: Any) -> list[str]:
    """The values of parameters by their names, N for an only size: A, B and C once each, and at least one size."""
    kinds = ["pointer" if p.pointer else "integer" if "int" in p.dtype else "float" for p in declared]
    if kinds == ["pointer" if v in MATRICES else "integer" if v in SIZES else "float" for v in LADDER]:
        return [*LADDER]
    values = []
    numbers = [p for p in declared if not p.pointer and p.name.lower() not in ("alpha", "beta")]
    for parameter in declared:
        if parameter.pointer:
            matrix = _MATRIX.fullmatch(parameter.name)
            values.append(matrix[1].upper() if matrix else "")
        else:
            values.append("N" if numbers == [parameter] else _MEANING.get(parameter.name.lower(), ""))
    if not (numbers and all(values) and sorted(value for value in values if value in MATRICES) == [*MATRICES]):
        integers = list(SIZES) if kinds.count("integer") > 1 else ["N"]
        left = {"pointer": list(MATRICES), "integer": integers, "float": ["alpha", "beta"]}
        example = ",".join(left[kind].pop(0) if left[kind] else "N" for kind in kinds)
        raise BadSetting(
            f"{file}: {function}({', '.join(p.name for p in declared)}): the names don't say which parameter is which: "
            f"give one of {', '.join(LADDER)} for each, as in --args '{example}'"
        )
    if _is_m_n_k(body, {value: p.name for p, value in zip(declared, values, strict=True)}):
        values = [{"N": "K", "K": "N"}.get(value, value) for value in values]
    return values


def _is_m_n_k(body: Any, names: Mapping[str, str]) -> bool:
    """Whether the product is A (M x N) times B (N x K), as on LeetGPU: rows of A have length N, those of B and C K."""
    lengths: dict[str, set[str]] = {names[matrix]: set() for matrix in MATRICES}
    for element in nodes(body, "subscript_expression"):
        factors = set().union(*_products(element.named_children[1]))
        matrix = text_of(element.named_children[0])
        lengths.get(matrix, set()).update(size for size in SIZES if names.get(size) in factors)
    a, b, c = lengths.values()
    return a == {"N"} and b == {"K"} and c <= {"K"}


def _products(node: Any) -> list[set[str]]:
    """The factors of each product in a tree."""

    def factors(node: Any) -> set[str]:
        if node.type == "binary_expression" and node.children[1].type == "*":
            return set().union(*map(factors, node.named_children))
        return factors(node.named_children[0]) if node.type == "parenthesized_expression" else {text_of(node)}

    return [found for product in nodes(node, "binary_expression") if len(found := factors(product)) > 1]


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


def header(source: str) -> tuple[dict[str, int], str, Launch]:
    """What comments such as a rung's state: values of the template's parameters, the precision class, and the launch,
    without a function: "// Tile: BM=128 BN=64", "// Claims: tf32" and "// Launch: grid N / BN, M   block 256   shared
    4096". What can't be read is a comment like any other.
    """
    joined = re.sub(r" *\n// {6,}", " ", source)  # a line that goes on in the next one
    lines = dict(re.findall(r"^// (Tile|Launch|Claims): +(.+?) *$", joined, re.MULTILINE))
    tile = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", lines.get("Tile", ""))}
    claims, launch = lines.get("Claims", ""), Launch("")
    if stated := re.fullmatch(r"grid (.+?) +block (.+?)(?: +shared (.+))?", lines.get("Launch", "")):
        with suppress(BadSetting):
            read = Launch("", stated[1], stated[2], evaluate(stated[3] or "0", tile))
            read.blocks({**dict.fromkeys(SIZES, 1), **tile})
            read.threads(tile)
            launch = read
    return tile, claims if claims in CLASSES else "fp32", launch


def stated(source: str, label: str) -> set[str]:
    """What comments say behind `label:`, up to the next label or the end of the line."""
    pattern = rf"\b{label}\s*[:=]\s*(.+?)[\s,;.*/]*(?=\b(?:grid|block)\b|$)"
    return set(re.findall(pattern, comments(source), re.IGNORECASE | re.MULTILINE))


def domain(source: str, tile: Mapping[str, int]) -> str:
    """The only domain that a comment states in its first sentence, else "any". tile: values of names."""
    rules = {re.split(r"\.\s", text)[0] for text in stated(source, "domain")}
    with suppress(BadSetting):
        if len(rules) == 1 and (only := Domain.of(text := rules.pop(), tuple(tile.items()))) != Domain():
            return text if tile else str(only)
    return "any"


def covered(grid: str) -> tuple[list[str], bool]:
    """Of each axis that a grid rounds down, the sizes that it covers, such as N % 32 == 0; and whether it rounds
    another one up: most likely, one was forgotten.
    """
    floors = [re.fullmatch(r"([MNK]) ?//? ?(\d+)", part) for part in parts(grid)]
    rules = [f"{floor[1]} % {floor[2]} == 0" for floor in floors if floor]
    return rules, bool(rules) and any("+" in part and "/" in part for part in parts(grid))


def launch(
    source: str, unit: Unit, function: str, defined: Definition | None, values: Sequence[str], instance: str
) -> tuple[Launch, str]:
    """The launch that a source states, in a comment `grid: …, block: …`, in its host code, or by its tile; and where it
    was read. An empty one where it states none, or several. instance: arguments of the template, as in "32, 8".
    """
    if defined is None:
        return Launch(function), ""
    template = dict(zip(defined.template, parts(instance), strict=False)) if instance else {}
    own = {p.name: size for p, value in zip(defined.parameters, values, strict=False) if (size := _size(value))}
    free = {n: text for n, text in {**unit.names(defined), **template}.items() if n not in (*SIZES, *own)}
    launches, blocks = set(), set()
    for grid, block in product(stated(source, "grid"), stated(source, "block")):
        with suppress(BadSetting):
            launches.add(_readable(function, parts(grid), parts(block), free, own))
    origin = "a comment" if launches else "the host code"
    calls = [(caller, call) for caller in unit.functions for call in caller.calls if not launches]
    for caller, call in calls:
        if not f"::{defined.name}".endswith(f"::{call.function}"):
            continue
        passed: dict[str, str] = {}
        for argument, value in zip(call.arguments, values, strict=False):
            variable = re.fullmatch(r"\(?([A-Za-z_][\w.]*)\)?", plain(argument))
            if variable and (size := _size(value)):
                # One variable for two sizes says nothing of a grid.
                passed[variable[1]] = size if passed.get(variable[1], size) == size else "?"
        names = {name: text for name, text in {**unit.names(caller), **template}.items() if name not in passed}
        arguments = ", ".join(reduced(part, names) for part in call.template)
        if (instance and arguments != ", ".join(parts(instance))) or len(call.configuration) < 2:
            continue
        grid_sizes, block_sizes = (sizes(words, names) for words in call.configuration[:2])
        with suppress(BadSetting):
            entry = f"{function}<{arguments}>" if arguments else function
            blocks.add(_readable(entry, ["1"], block_sizes, names, passed).block)
            words = call.configuration[2] if len(call.configuration) > 2 else "0"
            try:
                shared = evaluate(reduced(words, names), {})
            except BadSetting:
                shared, origin = 0, f"the host code, but for its {words} bytes of shared memory: give --shared"
            launches.add(replace(_readable(entry, grid_sizes, block_sizes, names, passed), shared=shared))
    if not launches and (guessed := _by_tile(function, defined, free, own)):
        tile, origin = guessed
        if len(blocks) == 1 and tile.block not in blocks and parts(min(blocks))[0] == parts(tile.block)[0]:
            # The host's block is as wide as the tile, and higher or lower: such as with warps that only copy.
            tile, origin = replace(tile, block=min(blocks)), f"{origin} and the host code"
        launches = {tile}
    return (launches.pop(), origin) if len(launches) == 1 else (Launch(function), "")


def _by_tile(
    function: str, defined: Definition, known: Mapping[str, str], own: Mapping[str, str]
) -> tuple[Launch, str] | None:
    """The launch of BM and BN, of the only tile, or of a thread per element, where it is clear which index walks the
    columns of C; and which of these it was.
    """
    body, products = text_of(defined.body), _products(defined.body)
    axes = {"blockIdx.x": "x", "blockIdx.y": "y"}  # also of the names that are computed from these
    for given in nodes(defined.body, "init_declarator", "assignment_expression"):
        used = {text_of(field) for field in nodes(given.named_children[-1], "field_expression")} & {*INDICES}
        axes |= {text_of(given.named_children[0]): index[-1] for index in used}
    numbers, compared = dict[str, str](), dict[str, set[str]]()
    for node in nodes(defined.body, "binary_expression"):
        left, right = (text_of(node.child_by_field_name(side)) for side in ("left", "right"))
        if node.children[1].type in ("<", "<=", ">", ">="):
            compared.setdefault(left, set()).add(own.get(right, ""))
        elif (stride := re.fullmatch(r"blockIdx\.([xy]) \* (\d+)", left)) and right == f"threadIdx.{stride[1]}":
            numbers[stride[1]] = stride[2]
    walked, lengths = set(), {name for name, size in own.items() if size != "M"}  # of rows
    for name, axis in axes.items():
        limits = compared.get(name, set())
        multiplied = any(name in factors and factors & lengths for factors in products)
        is_row = "row" in name.lower() or "M" in limits or multiplied
        is_column = "col" in name.lower() or (len(own) > 1 and "N" in limits)
        if is_row != is_column:
            walked.add((axis == "x") == is_column)
    if len(walked) != 1:
        return None
    columns_first = walked.pop()
    tiles = {name for factors in products if factors & axes.keys() for name in (factors & known.keys()) - axes.keys()}
    planar = "threadIdx.y" in body
    if tiles == {"BM", "BN"}:
        n, m = "BN", "BM"
        block = [f"BN / {known.get('TN', 1)}", f"BM / {known.get('TM', 1)}"]
        block = block if planar else [defined.bounds or f"({block[0]}) * ({block[1]})"]
    elif len(tiles) == 1 and not defined.bounds:
        (n,) = (m,) = tiles
        block = [n, m] if planar else [f"{n} * {m}"]
    elif tiles or not planar:
        return None
    else:  # a thread per element; one without a tile takes any block
        of_any = "blockDim.y" in body and "__shared__" not in body
        block = [numbers.get("x", ""), numbers.get("y", "")] if "blockDim" not in body else ["", ""]
        block = ["32", f"({defined.bounds or MAX_THREADS}) / 32"] if of_any else block
        n, m = (reduced(size, known) for size in (block if columns_first else block[::-1]))
    grid = [f"(N + {n} - 1) / {n}", f"(M + {m} - 1) / {m}"]
    with suppress(BadSetting):
        read = _readable(function, grid if columns_first else grid[::-1], block, known, {})
        if evaluate(read.block.replace(",", " *"), {}) <= MAX_THREADS:
            return read, "the tile" if tiles else "its indices"
    return None


def _size(value: str) -> str:
    """M, N or K; "" for other values."""
    size = value.removeprefix(WIDE)
    return size if size in SIZES else ""


def _readable(
    function: str, grid: Sequence[str], block: Sequence[str], known: Mapping[str, str], own: Mapping[str, str]
) -> Launch:
    """The launch with numbers for all names but M, N and K, which `own` maps the source's to. Raises BadSetting."""
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
    return Launch(function, texts[0], texts[1])
