"""Which value each parameter of a kernel takes, read from its source.

A launch passes the ladder's eight values in the order that the kernel declares them: the parameters' names decide. What
was found is stated; what isn't clear is an error that names the option. The gate checks the result in any case, so a
wrong guess fails and never gives a number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from worklog.errors import BadSetting, meant
from worklog.kernel.source import evaluate, parts
from worklog.kernel.unit import Definition
from worklog.problem import SGEMM, Parameter

LADDER = tuple(parameter.name for parameter in SGEMM.signature)
SIZES = LADDER[:3]
MATRICES = ("A", "B", "C")
WORKSPACE = "workspace"  # the address of memory for intermediate results: void*, the last parameter
WIDE = "long "  # before a size that the kernel takes as 64 bits
_AFFIX = r"(?:d|dev|device|gpu|in|input|out|output|mat|matrix|ptr)"
_MATRIX = re.compile(rf"(?:{_AFFIX}_?)?([abc])(?:_{_AFFIX})?", re.IGNORECASE)
# The sizes, row-major leading dimensions, and widths and heights as in NVIDIA's samples.
_MEANING = {
    "m": "M",
    "n": "N",
    "k": "K",
    "lda": "K",
    "ldb": "N",
    "ldc": "N",
    "wa": "K",
    "wb": "N",
    "ha": "M",
}
_MEANING |= {"hb": "K", "alpha": "alpha", "beta": "beta"}
for _a, _rows, _cols in ("aMK", "bKN", "cMN"):  # numARows, A_cols, rowsA
    _MEANING |= {f"{_a}rows": _rows, f"rows{_a}": _rows, f"{_a}cols": _cols, f"cols{_a}": _cols}
_PASSED = (
    "void",
    "float2",
    "float4",
)  # elements of a pointer beside float that the gate's memory may be taken for
_NUMBERS = ("float32", "int32", "uint32", "int64", "uint64")  # passed by value


class UnclearOrder(BadSetting):
    """The names of a kernel's parameters don't say which value each of them takes."""


def order(words: str, file: str, function: str, defined: Definition) -> tuple[str, ...]:
    """The value that each parameter takes: by words such as "A,B,C,M,N,K", else by its name. Raises BadSetting."""
    declared = defined.parameters
    _require_types(defined, file, function)
    if words:
        values = _given(words, file, declared)
    elif declared and (declared[-1].type, declared[-1].name) == ("void", WORKSPACE):
        values = [*_by_name(declared[:-1], file, function), WORKSPACE]
    else:
        values = _by_name(declared, file, function)
    wide = {
        n
        for n, parameter in enumerate(declared)
        if not parameter.pointer and parameter.dtype.endswith("int64")
    }
    return tuple(f"{WIDE}{value}" if n in wide else value for n, value in enumerate(values))


def _require_types(defined: Definition, file: str, function: str) -> None:
    """Raise BadSetting for a parameter whose type the gate can't pass."""
    known = {*_PASSED, *defined.template}
    for parameter in defined.parameters:
        kind = parameter.type
        if kind.endswith(("*", "]")):
            raise BadSetting(
                f"{file}: {function} takes {parameter.declaration}: the gate passes float*, row-major"
            )
        numbers = _NUMBERS[:1] if parameter.pointer else _NUMBERS
        is_of_template = not known.isdisjoint(re.findall(r"\w+", kind))
        is_passed = parameter.dtype in numbers if parameter.dtype else is_of_template
        if not is_passed:
            advice = "the gate passes float*, float and integers of 32 and 64 bits: give the kernel these instead"
            raise BadSetting(f"{file}: {function} takes {parameter.declaration}: {advice}")


def is_computed(value: str) -> bool:
    """Whether a parameter takes no value of the ladder, but an integer, or one that is computed from M, N and K."""
    return value.removeprefix(WIDE) not in (*LADDER, WORKSPACE)


def with_sizes(values: Sequence[str], sizes: Mapping[int, str]) -> tuple[str, ...]:
    """Return values with other sizes at some places, as wide as before."""
    changed = list(values)
    for place, size in sizes.items():
        wide = WIDE if values[place].startswith(WIDE) else ""
        changed[place] = f"{wide}{size}"
    return tuple(changed)


def is_leading_dimension(parameter: Parameter) -> bool:
    """Return whether a parameter's name is that of a leading dimension: lda, ldb or ldc."""
    return parameter.name.lower().replace("_", "") in ("lda", "ldb", "ldc")


def is_ladders(values: Sequence[str]) -> bool:
    """Return whether the values are the ladder's in its order, which a kernel takes by position."""
    return tuple(value.removeprefix(WIDE) for value in values) == LADDER


def _given(words: str, file: str, declared: Sequence[Parameter]) -> list[str]:
    """The values of --args. A number, or an expression of sizes, is for an integer that is no size of the product."""
    names = parts(words)
    for name in filter(is_computed, names):
        try:
            evaluate(name, dict.fromkeys(SIZES, 1))
        except BadSetting as error:
            raise BadSetting(
                f"--args {words}: {name!r}{meant(name, LADDER)} is none of {', '.join(LADDER)}, "
                "and no integer"
            ) from error
    if any(names.count(name) != 1 for name in MATRICES) or not any(name in SIZES for name in names):
        raise BadSetting(f"--args {words}: give A, B and C once each and at least one of M, N, K")
    if len(declared) != len(names):
        raise BadSetting(
            f"--args {words}: {file} declares {len(declared)} parameters, and {len(names)} are given"
        )
    for parameter, name in zip(declared, names, strict=True):
        if is_computed(name) and (parameter.pointer or "int" not in parameter.dtype):
            raise BadSetting(
                f"--args {words}: {name} is for {parameter.declaration}, which is no integer"
            )
    return names


def _by_name(declared: Sequence[Parameter], file: str, function: str) -> list[str]:
    """The values of parameters by their names: A, B and C once each, and at least one size."""
    kinds = [
        "pointer" if p.pointer else "integer" if "int" in p.dtype else "float" for p in declared
    ]
    if kinds == [
        "pointer" if v in MATRICES else "integer" if v in SIZES else "float" for v in LADDER
    ]:
        return [*LADDER]
    pointers = kinds.count("pointer")
    if pointers != len(MATRICES):
        raise BadSetting(
            f"{file}: {function} takes {pointers} pointer{'s' * (pointers != 1)}: the gate passes three: A, B and C"
        )
    if all(p.pointer or p.name.lower() in ("alpha", "beta") for p in declared):
        raise BadSetting(
            f"{file}: {function} takes no size, and the gate checks several shapes: add int M, int N, int K"
        )
    values = named(declared)
    if not (all(values) and sorted(value for value in values if value in MATRICES) == [*MATRICES]):
        raise UnclearOrder(
            f"{file}: {function}({', '.join(p.name for p in declared)}): the names don't say which parameter is which: "
            f"give one of {', '.join(LADDER)} for each ?: --args '{','.join(value or '?' for value in values)}'"
        )
    return values


def named(declared: Sequence[Parameter]) -> list[str]:
    """The value that each parameter's name says, "" where it says none; N for an only size."""
    numbers = [p for p in declared if not p.pointer and p.name.lower() not in ("alpha", "beta")]
    values = []
    for parameter in declared:
        if parameter.pointer:
            values.append(matrix_of(parameter.name))
        elif numbers == [parameter]:
            values.append("N")
        else:
            name = re.sub(r"^num|umn", "", parameter.name.lower().replace("_", ""))
            values.append(_MEANING.get(name, ""))
    return values


def matrix_of(name: str) -> str:
    """Return A, B or C for a matrix's name such as d_A, "" for another name."""
    matrix = _MATRIX.fullmatch(name)
    return matrix[1].upper() if matrix else ""


def described(defined: Definition, values: Sequence[str]) -> list[str]:
    """What is said of an order that isn't the ladder's."""
    if is_ladders(values):
        return []
    plain = [value.removeprefix(WIDE) for value in values]
    names = [parameter.name for parameter in defined.parameters]
    said = f"parameters ({', '.join(names)})" + (
        "" if names == plain else f": passed as ({', '.join(plain)})"
    )
    exchanged = {("A", "B"), ("B", "A"), ("M", "N"), ("N", "M")}  # C^T = B^T A^T
    if exchanged <= {*zip(named(defined.parameters), plain, strict=True)}:
        said += " for column-major matrices"
    said += ", with M = N = K" if len({value for value in plain if value in SIZES}) == 1 else ""
    return [said + (f"; {fixed(plain)}, which it doesn't take" if fixed(plain) else "")]


def fixed(values: Sequence[str]) -> str:
    """What a kernel with these parameters computes with, where it doesn't take alpha or beta: "alpha = 1"."""
    return " and ".join(
        text for name, text in (("alpha", "alpha = 1"), ("beta", "beta = 0")) if name not in values
    )


def size_of(value: str) -> str:
    """M, N or K; "" for other values."""
    size = value.removeprefix(WIDE)
    return size if size in SIZES else ""
