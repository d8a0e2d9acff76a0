"""The value that each parameter of a kernel takes, read from its source.

A launch passes the ladder's eight values in the order in which the kernel declares them. The names
of the parameters decide, and the order is stated to the user. If it isn't clear, the error names
the option. The gate checks the result in any case, so a kernel with a wrong order is never timed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from worklog.errors import BadSetting, meant
from worklog.kernel.source import evaluate, split_list
from worklog.kernel.unit import Definition
from worklog.problem import FLOAT32, FORMATS, SGEMM, TYPES, Format, Parameter, Types

SGEMM_ARGUMENTS = tuple(parameter.name for parameter in SGEMM.signature)
SIZE_NAMES = SGEMM_ARGUMENTS[:3]
MATRICES = ("A", "B", "C")
COLUMNS = {"A": "K", "B": "N", "C": "N"}
WORKSPACE = "workspace"  # the address of memory for intermediate results: void*, the last parameter
WIDE = "long "  # before a size that the kernel takes as 64 bits
MAP_TYPE = "CUtensorMap"  # of cuda.h
MAP_OF = "map of "  # before the matrix of a tensor map that is passed by value
ADDRESS_OF_MAP = "address of a map of "  # before the matrix of a tensor map in global memory
# Words beside the matrix in a tensor map's name, such as d_tma_map_A and tensorMapA.
_MAP_WORDS = {
    *("tensor", "map", "tensormap", "tmap", "tma", "tm", "desc", "descriptor", "cu", "ptr"),
    *("d", "dev", "device", "g", "gmem", "global", "load", "mat", "matrix", "const", "param"),
}
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
# Vectors that a kernel may read in a matrix, and the format of their elements.
VECTORS = {
    "float2": "float32",
    "float4": "float32",
    "half2": "float16",
    "__half2": "float16",
    "nv_bfloat162": "bfloat16",
    "__nv_bfloat162": "bfloat16",
}
_PASSED_AS = (
    "the gate passes float, half and __nv_bfloat16 matrices, and float and integers of 32 and 64 "
    "bits"
)
_NUMBERS = ("float32", "int32", "uint32", "int64", "uint64")  # passed by value


class UnclearOrder(BadSetting):
    """The names of a kernel's parameters don't say which value each of them takes."""


def order(
    text: str,
    file: str,
    function: str,
    defined: Definition,
    *,
    mapped: Mapping[str, str] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Return the value that each parameter takes.

    text: the values, such as "A,B,C,M,N,K"; "" for the values that the parameters' names say
    file: in messages
    mapped: the matrix of tensor maps, by parameter, that the source states
    Raises BadSetting.
    """
    declared = defined.parameters
    _require_types(defined, file, function)
    if text:
        values = _values_of_text(text, file, declared)
    elif declared and (declared[-1].type, declared[-1].name) == ("void", WORKSPACE):
        values = [*_by_name(declared[:-1], file, function, mapped), WORKSPACE]
    else:
        values = _by_name(declared, file, function, mapped)
    for place, parameter in enumerate(declared):
        if parameter.type == MAP_TYPE:
            values[place] = _mapped(parameter, values[place])
        elif not parameter.pointer and parameter.dtype.endswith("int64"):
            values[place] = f"{WIDE}{values[place]}"
    return tuple(values)


def _mapped(parameter: Parameter, matrix: str) -> str:
    """Return the value of a parameter that is a tensor map, such as "map of A"."""
    return f"{ADDRESS_OF_MAP if parameter.pointer else MAP_OF}{matrix}"


def is_map(value: str) -> bool:
    """Return whether a value is a tensor map or the address of one."""
    return value.startswith((MAP_OF, ADDRESS_OF_MAP))


def mapped_matrix(value: str) -> str:
    """Return the matrix of a value that is a tensor map."""
    return value.removeprefix(ADDRESS_OF_MAP).removeprefix(MAP_OF)


def _require_types(defined: Definition, file: str, function: str) -> None:
    """Raise BadSetting for a parameter whose type the gate can't pass."""
    types = {"void", MAP_TYPE, *VECTORS, *defined.template}
    for parameter in defined.parameters:
        kind = parameter.type
        if kind.endswith(("*", "]")):
            advice = "the gate passes float*, row-major"
            raise BadSetting(f"{file}: {function} takes {parameter.declaration}: {advice}")
        numbers = [*FORMATS] if parameter.pointer else _NUMBERS
        is_of_template = not types.isdisjoint(re.findall(r"\w+", kind))
        is_passed = parameter.dtype in numbers if parameter.dtype else is_of_template
        if not is_passed:
            raise BadSetting(
                f"{file}: {function} takes {parameter.declaration}: {_PASSED_AS}: give the kernel "
                "these instead"
            )


def types_of_matrices(defined: Definition, values: Sequence[str], instance: str) -> Types:
    """Return the formats of A, B and C.

    values: of the parameters
    instance: the arguments of the template, as in "half, 32"
    """
    formats = formats_of_pointers(defined, instance)
    of_matrices = {
        value.lower(): formats.get(parameter.name, FLOAT32)
        for parameter, value in zip(defined.parameters, values, strict=False)
        if value in MATRICES
    }
    return Types(**of_matrices)


def formats_of_pointers(defined: Definition, instance: str) -> dict[str, Format]:
    """Return the formats behind a kernel's pointers, by the names of its parameters.

    instance: the arguments of the template, as in "half, 32"
    """
    of_template = dict(zip(defined.template, split_list(instance), strict=False))
    formats = dict[str, Format]()
    for parameter in defined.parameters:
        kind = of_template.get(parameter.type, parameter.type)
        name = VECTORS.get(kind) or TYPES.get(kind, "")
        if parameter.pointer and name in FORMATS:
            formats[parameter.name] = FORMATS[name]
    return formats


def is_computed(value: str) -> bool:
    """Return whether a value is an integer or computed from M, N and K."""
    return not is_map(value) and value.removeprefix(WIDE) not in (*SGEMM_ARGUMENTS, WORKSPACE)


def with_sizes(values: Sequence[str], sizes: Mapping[int, str]) -> tuple[str, ...]:
    """Return values with other sizes at some places, as wide as before."""
    changed = list(values)
    for place, size in sizes.items():
        wide = WIDE if values[place].startswith(WIDE) else ""
        changed[place] = f"{wide}{size}"
    return tuple(changed)


def is_leading_dimension(parameter: Parameter) -> bool:
    """Return whether a parameter is a leading dimension by its name: lda, ldb or ldc."""
    return parameter.name.lower().replace("_", "") in ("lda", "ldb", "ldc")


def row_lengths(declared: Sequence[Parameter], values: Sequence[str]) -> dict[int, str]:
    """Return the matrix of each leading dimension, by place.

    Only of those that are the length of the matrix' rows. A kernel for column-major matrices gets B
    as its A.
    """
    passed_as = dict[str, str]()
    for parameter, value in zip(declared, values, strict=True):
        if parameter.pointer and value in MATRICES:
            passed_as[matrix_of(parameter.name)] = value
    lengths = dict[int, str]()
    for place, parameter in enumerate(declared):
        if not is_leading_dimension(parameter):
            continue
        matrix = passed_as.get(parameter.name[-1].upper(), "")
        if matrix and values[place].removeprefix(WIDE) == COLUMNS[matrix]:
            lengths[place] = matrix
    return lengths


def is_ladders(values: Sequence[str]) -> bool:
    """Return whether the values are the ladder's in its order.

    A kernel takes these by position.
    """
    return tuple(value.removeprefix(WIDE) for value in values) == SGEMM_ARGUMENTS


def _values_of_text(text: str, file: str, declared: Sequence[Parameter]) -> list[str]:
    """Return the values of --args.

    A number, or an expression of sizes, is for an integer that is no size of the product.

    Raises BadSetting.
    """
    names = split_list(text)
    for name in filter(is_computed, names):
        try:
            evaluate(name, dict.fromkeys(SIZE_NAMES, 1))
        except BadSetting as error:
            raise BadSetting(
                f"--args {text}: {name!r}{meant(name, SGEMM_ARGUMENTS)} is none of "
                f"{', '.join(SGEMM_ARGUMENTS)}, and no integer"
            ) from error
    if len(declared) != len(names):
        raise BadSetting(
            f"--args {text}: {file} declares {len(declared)} parameters, and {len(names)} are given"
        )
    if not _has_matrices(declared, names) or not any(name in SIZE_NAMES for name in names):
        raise BadSetting(f"--args {text}: give A, B and C once each and at least one of M, N, K")
    for parameter, name in zip(declared, names, strict=True):
        if is_computed(name) and (parameter.pointer or "int" not in parameter.dtype):
            raise BadSetting(
                f"--args {text}: {name} is for {parameter.declaration}, which is no integer"
            )
    return names


def _has_matrices(declared: Sequence[Parameter], values: Sequence[str]) -> bool:
    """Return whether the values have A, B and C, each once or as tensor maps.

    A matrix may have several maps, and a pointer beside them.
    """
    passed = list[str]()
    mapped = set[str]()
    for parameter, value in zip(declared, values, strict=True):
        if parameter.type == MAP_TYPE:
            mapped.add(value)
        elif value in MATRICES:
            passed.append(value)
    return len({*passed}) == len(passed) and mapped | {*passed} == {*MATRICES}


def _by_name(
    declared: Sequence[Parameter], file: str, function: str, mapped: Mapping[str, str]
) -> list[str]:
    """Return the values of parameters by their names.

    These are A, B and C, once each, and at least one size.

    mapped: as for order
    Raises BadSetting, and UnclearOrder if the names don't say which parameter is which.
    """
    kinds = [_kind(parameter) for parameter in declared]
    if kinds == [_kind(parameter) for parameter in SGEMM.signature]:
        return [*SGEMM_ARGUMENTS]
    pointers = kinds.count("pointer")
    if "map" not in kinds and pointers != len(MATRICES):
        raise BadSetting(
            f"{file}: {function} takes {pointers} pointer{'' if pointers == 1 else 's'}: "
            "the gate passes three: A, B and C"
        )
    if not _numbers(declared):
        raise BadSetting(
            f"{file}: {function} takes no size, and the gate checks several shapes: "
            "add int M, int N, int K"
        )
    values = named(declared, mapped)
    if not all(values) or not _has_matrices(declared, values):
        names = ", ".join(parameter.name for parameter in declared)
        template = ",".join(value or "?" for value in values)
        if "map" in kinds:
            raise BadSetting(
                f"{file}: {function}({names}) is read as ({template}): the gate passes A, B and C, "
                "each as a pointer or as tensor maps: give the order, as in --args 'A,B,C,M,N,K', "
                "or state the matrices of tensor maps in a comment, as in // tensor maps: "
                f"{_first_map(declared)} = A, box 64 x 32 of float"
            )
        raise UnclearOrder(
            f"{file}: {function}({names}): the names don't say which parameter is which: "
            f"give one of {', '.join(SGEMM_ARGUMENTS)} for each ?: --args '{template}'"
        )
    return values


def _first_map(declared: Sequence[Parameter]) -> str:
    """Return the name of the first parameter that is a tensor map."""
    return next(parameter.name for parameter in declared if parameter.type == MAP_TYPE)


def _kind(parameter: Parameter) -> str:
    """Return the kind of a parameter's value: "map", "pointer", "integer" or "float"."""
    if parameter.type == MAP_TYPE:
        return "map"
    if parameter.pointer:
        return "pointer"
    return "integer" if "int" in parameter.dtype else "float"


def _numbers(declared: Sequence[Parameter]) -> list[Parameter]:
    """Return the parameters that may be sizes: no pointers, and not alpha and beta."""
    numbers = []
    for parameter in declared:
        is_number = not parameter.pointer and parameter.type != MAP_TYPE
        if is_number and parameter.name.lower() not in ("alpha", "beta"):
            numbers.append(parameter)
    return numbers


def named(
    declared: Sequence[Parameter], mapped: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return the value that each parameter's name says; "" if it says none.

    An only size is N. The value of a tensor map is its matrix.

    mapped: as for order
    """
    numbers = _numbers(declared)
    values = []
    for parameter in declared:
        if parameter.type == MAP_TYPE:
            values.append(mapped.get(parameter.name) or matrix_of_map(parameter.name))
        elif parameter.pointer:
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


def matrix_of_map(name: str) -> str:
    """Return A, B or C for a tensor map's name such as tma_a, "" for another name."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[A-Z]", name)
    left = [part.upper() for part in parts if part.lower() not in _MAP_WORDS]
    return left[0] if len(left) == 1 and left[0] in MATRICES else ""


def described(defined: Definition, values: Sequence[str]) -> list[str]:
    """Describe an argument order that differs from the ladder's."""
    if is_ladders(values):
        return []
    plain = [value.removeprefix(WIDE) for value in values]
    names = [parameter.name for parameter in defined.parameters]
    line = f"parameters ({', '.join(names)})"
    if names != plain:
        line += f": passed as ({', '.join(plain)})"
    exchanged = {("A", "B"), ("B", "A"), ("M", "N"), ("N", "M")}  # C^T = B^T A^T
    if exchanged <= {*zip(named(defined.parameters), plain, strict=True)}:
        line += " for column-major matrices"
    if len({value for value in plain if value in SIZE_NAMES}) == 1:
        line += ", with M = N = K"
    if fixed(plain):
        line += f"; {fixed(plain)}, which it doesn't take"
    return [line]


def fixed(values: Sequence[str]) -> str:
    """Describe alpha and beta if a kernel doesn't take them, such as "alpha = 1".

    "" if it takes both.

    values: of the kernel's parameters
    """
    lines = []
    if "alpha" not in values:
        lines.append("alpha = 1")
    if "beta" not in values:
        lines.append("beta = 0")
    return " and ".join(lines)


def size_of(value: str) -> str:
    """Return M, N or K for a value that is a size; "" for other values."""
    size = value.removeprefix(WIDE)
    return size if size in SIZE_NAMES else ""
