"""Which value each parameter of a kernel takes, and its grid and block, read from its source.

A launch passes the ladder's eight values, by name, in the order that the kernel declares them. Names decide. Where the
rows' strides of A, B and C agree on another convention, such as B (N x K) or column-major matrices, the strides decide,
so `A[row * N + i] * B[i * K + col]` is adapted too. What was found is stated; what isn't clear is an error that names
the option. The gate checks the result in any case, so a wrong guess fails and never gives a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from worklog.errors import BadSetting, meant
from worklog.kernel.source import Definition, Parameter, closing, code, constants, evaluate, parts
from worklog.problem.gemm import Domain

LADDER = ("M", "N", "K", "alpha", "A", "B", "beta", "C")
SIZES, MATRICES = LADDER[:3], ("A", "B", "C")
WIDE = "long "  # before a size that the kernel takes as 64 bits
_AFFIX = r"(?:d|dev|device|g|gpu|mat|matrix|in|input|out|output|ptr|p)"
_MATRIX = re.compile(rf"_*(?:{_AFFIX}_?)*([abc])(?:_{_AFFIX})?_*", re.IGNORECASE)
_SIZE = re.compile(r"_*(?:(?:num|dim|size)_?)?([mnk])(?:_?(?:dim|size))?_*", re.IGNORECASE)
# Leading dimensions, and the names of NVIDIA's samples and of a well-known course.
_OTHER = {"lda": "K", "ldb": "N", "ldc": "N", "wa": "K", "wb": "N", "ha": "M", "hb": "K", "numarows": "M"}
_OTHER |= {"numacolumns": "K", "numbrows": "K", "numbcolumns": "N", "numcrows": "M", "numccolumns": "N"}
_CEILING = re.compile(r"\b\w*(?:ceil|cdiv|div_?up)\w*\s*\(([^(),]+),([^(),]+)\)", re.IGNORECASE)
MAX_THREADS = 1024  # per block
_NOT_FLOAT = re.compile(r"\b(?:double|half|__half2?|int|u?int\d+_t|unsigned|char|short|__nv_bfloat16|bfloat16)\b")


def given(words: str, file: str, found: Definition | None) -> tuple[str, ...]:
    """The values of --args, such as "A,B,C,M,N,K". Raises BadSetting."""
    names = parts(words)
    for name in names:
        if name not in LADDER:
            raise BadSetting(f"--args {words}: {name!r}{meant(name, LADDER)} is none of {', '.join(LADDER)}")
    missing = [name for name in MATRICES if names.count(name) != 1]
    if missing or not any(name in SIZES for name in names):
        raise BadSetting(f"--args {words}: give A, B and C once each and at least one of M, N, K")
    declared = found.parameters if found is not None else ()
    if found is not None and len(declared) != len(names):
        raise BadSetting(f"--args {words}: {file} declares {len(declared)} parameters, and {len(names)} are given")
    return _widened(declared, names) if declared else tuple(names)


def order(file: str, function: str, found: Definition | None) -> tuple[str, ...]:
    """The value that each parameter takes. Raises BadSetting where names and strides don't decide it."""
    declared = found.parameters if found is not None else ()
    if found is None:
        return LADDER
    if _kinds(declared) == _kinds_of_ladder():
        return _widened(declared, LADDER)
    names = ", ".join(parameter.name for parameter in declared)
    for parameter in declared:
        if parameter.pointer and _NOT_FLOAT.search(parameter.type):
            raise BadSetting(f"{file}: {function} takes {parameter.type}* {parameter.name}: the gate passes float*")
    values = _by_name(declared)
    if values is None:
        raise BadSetting(
            f"{file}: {function}({names}): the names don't say which parameter is which: give one of "
            f"{', '.join(LADDER)} for each, as in --args '{','.join(_example(declared))}'"
        )
    values |= _by_stride(found, values)
    return _widened(declared, [values[parameter.name] for parameter in declared])


def described(found: Definition | None, values: Sequence[str]) -> tuple[str, ...]:
    """What is said of an order that isn't the ladder's."""
    plain = [value.removeprefix(WIDE) for value in values]
    if tuple(plain) == LADDER:
        return ()
    names = [parameter.name for parameter in found.parameters] if found is not None else plain
    said = f"parameters ({', '.join(names)})" + ("" if names == plain else f": passed as ({', '.join(plain)})")
    said += ", with M = N = K" if len({value for value in plain if value in SIZES}) == 1 else ""
    missing = [text for name, text in (("alpha", "alpha = 1"), ("beta", "beta = 0")) if name not in plain]
    return (said + (f"; {' and '.join(missing)}, which it doesn't take" if missing else ""),)


def _widened(declared: Sequence[Parameter], values: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{WIDE}{value}" if p.wide else value for p, value in zip(declared, values, strict=True))


def _kinds(declared: tuple[Parameter, ...]) -> list[str]:
    return ["pointer" if p.pointer else "float" if p.type in ("float", "T") else "integer" for p in declared]


def _kinds_of_ladder() -> list[str]:
    return ["pointer" if v in MATRICES else "integer" if v in SIZES else "float" for v in LADDER]


def _example(declared: tuple[Parameter, ...]) -> list[str]:
    """The ladder's values in an order that fits the parameters' types."""
    left = {"pointer": list(MATRICES), "integer": list(SIZES), "float": ["alpha", "beta"]}
    return [left[kind].pop(0) if left[kind] else "N" for kind in _kinds(declared)]


def _by_name(declared: tuple[Parameter, ...]) -> dict[str, str] | None:
    """The value of each parameter by its name; None unless A, B and C are there once each, and each parameter has a
    value.
    """
    values: dict[str, str] = {}
    pointers = [p.name for p in declared if p.pointer]
    textbook = {name.lower() for name in pointers} == {"m", "n", "p"}  # P = M N
    sizes = [p.name for p in declared if not p.pointer and p.name.lower() not in ("alpha", "beta")]
    for parameter in declared:
        name = parameter.name.lower()
        if parameter.pointer:
            match = _MATRIX.fullmatch(parameter.name)
            value = {"m": "A", "n": "B", "p": "C"}[name] if textbook else match[1].upper() if match else ""
        elif name in ("alpha", "beta"):
            value = name
        elif len(sizes) == 1:
            value = "N"  # of square matrices
        else:
            match = _SIZE.fullmatch(parameter.name)
            value = match[1].upper() if match else _OTHER.get(name.replace("_", ""), "?")
        values[parameter.name] = value
    # Of M, N and P or L, or of any names, the strides may tell.
    if sorted(values[name] for name in pointers) != [*MATRICES] or not sizes:
        return None
    unknown = [name for name in sizes if values[name] == "?"]
    if unknown and len(sizes) != 3:
        return None
    return values


def _by_stride(found: Definition, values: Mapping[str, str]) -> dict[str, str]:
    """Other values for three sizes, and for A and B, where the rows' strides of A, B and C agree on a convention that
    isn't the names'. Raises BadSetting for names without a meaning where the strides don't agree.
    """
    sizes = [name for name, value in values.items() if value in (*SIZES, "?")]
    matrix = {value: name for name, value in values.items() if value in MATRICES}
    a, b, c = (_stride(found.body, matrix[value], sizes) for value in MATRICES)
    if len(sizes) == 3 and a and b and c and len({a, b, c}) == 2:
        (rest,) = set(sizes) - {a, b, c}
        if b == c and {values[a], values[c]} <= {"N", "K", "?"}:
            return {a: "K", c: "N", rest: "M"}
        if a == c and values[a] in "M?":  # column-major: the transposed product, in which B comes first
            return {matrix["A"]: "B", matrix["B"]: "A", c: "N", b: "K", rest: "M"}
    unclear = [name for name in sizes if values[name] == "?"]
    if unclear:
        raise BadSetting(
            f"which of M, N and K {', '.join(unclear)} is, is not clear: give --args, such as 'A,B,C,M,N,K'"
        )
    return {}


def _stride(body: str, matrix: str, sizes: list[str]) -> str:
    """The only size that is multiplied in the indices of a matrix; "" where there are none or several."""
    found = set()
    for start in re.finditer(rf"\b{re.escape(matrix)}\s*\[", body):
        depth, end = 1, start.end()
        while depth and end < len(body):
            depth += {"[": 1, "]": -1}.get(body[end], 0)
            end += 1
        index = body[start.end() : end]
        found |= {name for name in sizes if re.search(rf"\*\s*\(?\s*{name}\b|\b{name}\s*\)?\s*\*", index)}
    return found.pop() if len(found) == 1 else ""


@dataclass(frozen=True)
class Launch:
    """A grid and a block, as worklog.kernel.Kernel takes them. origin: where they were read. template: arguments of the
    launch, as in <32, 8>, or "".
    """

    grid: str
    block: str
    origin: str
    template: str = ""

    def within(self, domain: str) -> str:
        """The shapes of a domain that the grid covers: where it rounds down, multiples such as N % 32 == 0."""
        floors = [re.fullmatch(r"([MNK]) ?//? ?(\d+)", part) for part in parts(self.grid)]
        rules = [f"{found[1]} % {found[2]} == 0" for found in floors if found]
        return ", ".join([*([] if domain.startswith("any") and rules else [domain]), *rules])


def launch(
    source: str, function: str, found: Definition | None, values: Sequence[str], arguments: str
) -> Launch | None:
    """The launch that a source states: in a comment `grid: …, block: …`, in its host code, or by its tile. None where
    it states none, or several. arguments: of the template, as in "32, 8".
    """
    if found is None:
        return None
    known = constants(source)
    known |= dict(zip(found.template, parts(arguments), strict=False)) if arguments else {}
    sizes = {p.name: v for p, value in zip(found.parameters, values, strict=False) if (v := _size(value))}
    for stated in (
        _in_comments(source, known, sizes),
        _in_host_code(source, function, values, known, arguments),
        _by_tile(found, known, sizes),
    ):
        distinct = dict.fromkeys(stated)
        if distinct:
            return next(iter(distinct)) if len(distinct) == 1 else None
    return None


def _size(value: str) -> str:
    """M, N or K; "" for other values."""
    size = value.removeprefix(WIDE)
    return size if size in SIZES else ""


def _comments(source: str) -> str:
    return "".join(" " if k == c != "\n" else c for c, k in zip(source, code(source), strict=True))


def domain(source: str) -> str:
    """The only domain that a comment states, as in "Domain: M % 8 == 0"; "any" where none or several do."""
    stated = set(re.findall(r"\bdomain:\s*(.+?)[\s.*/]*$", _comments(source), re.IGNORECASE | re.MULTILINE))
    with suppress(BadSetting):
        if len(stated) == 1:
            return str(Domain.of(stated.pop()))
    return "any"


def _in_comments(source: str, known: Mapping[str, str], sizes: Mapping[str, str]) -> Iterator[Launch]:
    comments = _comments(source)
    label = r"\b{}(?:\s*(?:size|dim))?\s*[:=]\s*(?:dim3)?\s*(.+?)[\s,;.|*/]*"
    grids = re.findall(label.format("grid") + r"(?=\bblock|$)", comments, re.IGNORECASE | re.MULTILINE)
    blocks = re.findall(label.format("block") + r"(?=\bgrid|$)", comments, re.IGNORECASE | re.MULTILINE)
    for grid in grids:
        for block in blocks:
            with suppress(BadSetting):
                yield _readable([grid], [block], known, sizes, "a comment")


def _in_host_code(
    source: str, function: str, values: Sequence[str], known: Mapping[str, str], arguments: str
) -> Iterator[Launch]:
    bare = code(source)
    call = rf"\b{re.escape(function)}\s*(<[^<>;]*>)?\s*<\s*<\s*<(.*?)>\s*>\s*>\s*\((.*?)\)\s*;"
    for entry, configuration, passed in re.findall(call, bare, re.DOTALL):
        sizes: dict[str, str] = {}
        for argument, value in zip(parts(passed), values, strict=False):
            size = _size(value)
            if size and re.fullmatch(r"[A-Za-z_][\w.]*", argument):
                sizes[argument] = size if sizes.get(argument, size) == size else "?"  # one variable for two sizes
        with suppress(BadSetting, ValueError):
            names = {name: text for name, text in known.items() if name not in sizes}
            template = ", ".join(_value(one, names) for one in parts(entry[1:-1])) if entry else ""
            if arguments and template != ", ".join(parts(arguments)):
                continue
            words = parts(configuration)
            grid, block = (_dimensions(bare, one) for one in words[:2])
            members = {f"{words[1]}.{axis}": f"({one})" for axis, one in zip("xyz", block, strict=False)}
            grid = [_replaced(one, members) for one in grid]
            yield _readable(grid, block, names, sizes, "the host code", f"<{template}>" if template else "")


def _dimensions(bare: str, words: str) -> list[str]:
    """The expressions of a dim3, by its name or written out, or of a number. Raises ValueError for several."""
    named = rf"\bdim3\b[^;]*?\b{words}\s*([({{])|\b{words}\s*=\s*dim3\s*([({{])" if words.isidentifier() else ""
    stated = re.finditer(named or r"^dim3\s*([({])", bare if named else words)
    texts = bare if named else words
    found = {texts[one.end() : closing(texts, one.end() - 1) - 1] for one in stated}
    if len(found) > 1:
        raise ValueError
    return parts(found.pop()) if found else [words]


def _by_tile(found: Definition, known: Mapping[str, str], sizes: Mapping[str, str]) -> Iterator[Launch]:
    """From __launch_bounds__ and the names of a tile, where it is clear which index walks the columns of C."""
    body = found.body
    for name, axis in re.findall(r"\b(\w+)\s*=\s*blockIdx\.([xy])\s*[;,]", body):
        body += re.sub(rf"\b{name}\b(?!\s*=[^=])", f"blockIdx.{axis}", found.body)
    x, two = _columns(body, sizes), "threadIdx.y" in body
    tiles = {name for name in known if re.search(rf"blockIdx\.[xy]\s*\*\s*{name}\b|\b{name}\s*\*\s*blockIdx", body)}
    pairs = [(m, n) for m, n in (("BM", "BN"), ("BLOCK_M", "BLOCK_N"), ("TILE_M", "TILE_N")) if {m, n} <= tiles]
    if len(pairs) == 1 and len(tiles) == 2:
        m, n = pairs[0]
        per_m, per_n = known.get("TM", "1"), known.get("TN", "1")
        flat = found.bounds or f"({m}) * ({n}) / (({per_m}) * ({per_n}))"
        block = [f"({n}) / ({per_n})", f"({m}) / ({per_m})"] if two else [flat]
    elif len(tiles) == 1 and not found.bounds:
        (m,) = (n,) = tiles
        block = [m, n] if two else [f"{m} * {n}"]
    elif not tiles and {"blockDim.x", "blockDim.y", "threadIdx.y"} <= set(re.findall(r"\w+\.\w", body)):
        if "__shared__" in body:
            return
        m = n = "32"  # a thread per element takes any block
        block = [m, n]
    else:
        return
    grid = [f"(N + {n} - 1) / {n}", f"(M + {m} - 1) / {m}"]
    with suppress(BadSetting, ValueError):
        known = {name: text for name, text in known.items() if name not in SIZES}
        read = _readable(grid if x == "N" else grid[::-1], block, known, {}, "the tile" if tiles else "its indices")
        most = int(_value(found.bounds, known)) if found.bounds else MAX_THREADS
        if x and evaluate(read.block.replace(",", " *"), {}) <= most:
            yield read


def _columns(body: str, sizes: Mapping[str, str]) -> str:
    """What blockIdx.x walks: "N" for the columns of C, "M" for its rows, "" where the source doesn't say."""
    votes = set()
    strides = "|".join(name for name, size in sizes.items() if size in "NK") or "N|K"
    ahead, behind = rf"\b(?:{strides})\s*\*\s*\w+\s*\*\s*blockIdx\.", rf"\s*\*\s*\w+\s*\*\s*(?:{strides})\b"
    for axis in re.findall(rf"{ahead}([xy])", body) + re.findall(rf"blockIdx\.([xy]){behind}", body):
        votes.add("M" if axis == "x" else "N")
    for name, axis in re.findall(r"\b(\w+)\s*=[^;=]*?\bblockIdx\.([xy])", body):
        row = "row" in name.lower() or re.search(rf"\b{name}\s*(?:<\s*_*[mM]|\*\s*(?:{strides}))\b", body) is not None
        column = "col" in name.lower() or re.search(rf"\b{name}\s*<\s*_*[nN]\b", body) is not None
        if row != column:
            votes.add("N" if (axis == "x") == column else "M")
    return votes.pop() if len(votes) == 1 else ""


def _readable(
    grid: Sequence[str],
    block: Sequence[str],
    known: Mapping[str, str],
    sizes: Mapping[str, str],
    origin: str,
    arguments: str = "",
) -> Launch:
    """The launch with numbers for all names but M, N and K. sizes: the source's names for these. Raises BadSetting
    where that isn't possible, or where it has a third dimension.
    """
    texts = []
    for dimensions, names in ((grid, dict.fromkeys(SIZES, 1)), (block, {})):
        shown = [_replaced(_value(part, known), sizes) for one in dimensions for part in parts(one)]
        while len(shown) > 1 and shown[-1] == "1":
            shown.pop()
        if len(shown) > 2:
            raise BadSetting("a third dimension")
        for part in shown:
            evaluate(part, names)
        texts.append(", ".join(shown))
    return Launch(texts[0], texts[1], origin, arguments)


def _value(text: str, names: Mapping[str, str], depth: int = 8) -> str:
    """The expression with the names' values, as a number if that is all that is left."""
    text = re.sub(r"\(\s*(?:unsigned\s+)?int\s*\)|(?<=\d)[uU]\b", "", text)
    values = {name: f"({value})" for name, value in names.items()}
    for _ in range(depth):
        text = re.sub(_CEILING, r"(((\1) + (\2) - 1) / (\2))", _replaced(text, values))
    with suppress(BadSetting):
        return str(evaluate(text, {}))
    for _ in range(depth):
        text = re.sub(r"\(\s*(\w+)\s*\)", r"\1", text)
    return " ".join(text.split())


def _replaced(text: str, values: Mapping[str, str]) -> str:
    """The text with the names' values, all at once."""
    names = "|".join(map(re.escape, sorted(values, key=len, reverse=True)))
    return re.sub(rf"(?<![\w.])(?:{names})(?![\w.(])", lambda found: values[found[0]], text) if values else text
