"""The value that each parameter of a kernel takes, read from its source.

A launch passes the ladder's eight values in the order in which the kernel declares them. The names
of the parameters decide, and the order is stated to the user. If it isn't clear, the error names
the option. The gate checks the result in any case, so a kernel with a wrong order is never timed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from worklog.errors import BadSetting, meant
from worklog.kernel.operands import (
    BIAS,
    COLUMN_SCALE,
    OPERANDS,
    RESIDUAL,
    ROW_BIAS,
    ROW_SCALE,
    SCALES,
    Operand,
)
from worklog.kernel.source import evaluate, split_list, uncommented
from worklog.kernel.unit import Definition
from worklog.problem import SGEMM, TYPES, Parameter
from worklog.problem.formats import (
    FLOAT32,
    FORMATS,
    INT8,
    INT32,
    OF_C,
    OF_INTEGERS,
    OF_SCALARS,
    Format,
    Types,
)

SGEMM_ARGUMENTS = tuple(parameter.name for parameter in SGEMM.signature)
SIZE_NAMES = SGEMM_ARGUMENTS[:3]
MATRICES = ("A", "B", "C")
WORKSPACE = "workspace"  # the address of memory for intermediate results: void*, the last parameter
WIDE = "long "  # before a size that the kernel takes as 64 bits
BATCH = "batch"  # the number of products of one launch
_RESIDUAL_NAMES = ("residual", "res", "skip")
_READ_RESIDUAL_NAMES = ("d", "r")  # if they are only read; else they may be results
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
# The matrices of a layer, as PyTorch names them: F.linear(x, weight, bias).
_LAYER_NAMES = {
    **dict.fromkeys(("x", "inp", "input"), "A"),
    **dict.fromkeys(("w", "weight", "weights"), "B"),
    **dict.fromkeys(("y", "out", "output"), "C"),
}
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
_MEANING |= {"infeatures": "K", "outfeatures": "N"}
_BATCHES = ("batch", "batches", "batchcount", "batchsize", "numbatches", "nbatch", "nbatches")
_MEANING |= dict.fromkeys(_BATCHES, BATCH)
_STRIDES = ("stride{}", "strides{}", "batchstride{}", "{}stride", "{}batchstride")
_SPAN = {"A": "M * K", "B": "K * N", "C": "M * N"}  # elements of a matrix
for _matrix, _span in _SPAN.items():
    for _name in _STRIDES:
        _MEANING[_name.format(_matrix.lower())] = _span
for _matrix in "ab":
    for _name in ("scale{}", "scales{}", "{}scale", "descale{}", "{}descale", "scaleinv{}"):
        _MEANING[_name.format(_matrix)] = f"scale of {_matrix.upper()}"
_MEANING |= {"scale": "scale", "descale": "scale"}
_VECTOR_SCALE_NAMES = {
    **dict.fromkeys(("rowscale", "rowscales", "tokenscale", "tokenscales"), ROW_SCALE),
    **dict.fromkeys(("colscale", "colscales", "channelscale", "channelscales"), COLUMN_SCALE),
}
_BIAS_NAMES = {"bias": BIAS, "colbias": BIAS, "rowbias": ROW_BIAS, "biasrow": ROW_BIAS}
# Operands with a distance of their own between the products of a batch, by its name.
_STRIDE_OF = dict[str, str]()
_STRIDE_SPAN = {BIAS: "N", ROW_BIAS: "M", RESIDUAL: "M * N"}
_STRIDED = {**_BIAS_NAMES, **dict.fromkeys((*_RESIDUAL_NAMES, *_READ_RESIDUAL_NAMES), RESIDUAL)}
for _operand_name, _operand_value in _STRIDED.items():
    for _name in _STRIDES:
        _STRIDE_OF[_name.format(_operand_name)] = _operand_value
        _MEANING[_name.format(_operand_name)] = _STRIDE_SPAN[_operand_value]
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
    "__nv_fp8x2_e4m3": "float8_e4m3fn",
    "__nv_fp8x4_e4m3": "float8_e4m3fn",
    "__nv_fp8x2_e5m2": "float8_e5m2",
    "__nv_fp8x4_e5m2": "float8_e5m2",
    "char2": "int8",
    "char4": "int8",
    "int2": "int32",
    "int4": "int32",
}
_PASSED_AS = (
    "the gate passes float, half, __nv_bfloat16, __nv_fp8_e4m3, __nv_fp8_e5m2, int8_t and int "
    "matrices, and float and integers of 32 and 64 bits"
)
_NUMBERS = ("float32", "int32", "uint32", "int64", "uint64")  # passed by value
_SHORT_SCALARS = ("float16", "bfloat16")  # passed by value as alpha and beta
# Code that takes four int8 from each int: the functions __dp4a and dp4a, and mma's type s8.
_PACKS = re.compile(r"dp4a|\bs8\b")


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
        numbers: Sequence[str] = [*FORMATS] if parameter.pointer else _NUMBERS
        if not parameter.pointer and _MEANING.get(_plain(parameter.name)) in ("alpha", "beta"):
            numbers = (*_NUMBERS, *_SHORT_SCALARS)
        is_of_template = not types.isdisjoint(re.findall(r"\w+", kind))
        is_passed = parameter.dtype in numbers if parameter.dtype else is_of_template
        if not is_passed:
            raise BadSetting(
                f"{file}: {function} takes {parameter.declaration}: {_PASSED_AS}: give the kernel "
                "these instead"
            )


def types_of_matrices(
    defined: Definition, values: Sequence[str], instance: str, *, source: str, layout: Types
) -> Types:
    """Return the formats of A, B and C, and of alpha and beta.

    values: of the parameters
    instance: the arguments of the template, as in "half, 32"
    source: its code says if integers of A and B are four int8 each
    layout: has what isn't in the signature
    """
    formats = formats_of_pointers(defined, instance)
    of_matrices = dict.fromkeys(MATRICES, FLOAT32)
    is_packed = _PACKS.search(uncommented(source)) is not None
    for parameter, value in zip(defined.parameters, values, strict=False):
        if value not in MATRICES:
            continue
        format_ = formats.get(parameter.name, FLOAT32)
        if value != "C" and format_ == INT32 and is_packed:
            format_ = INT8
        if value != "C" and format_ == INT32 and parameter.type != "int":
            raise BadSetting(
                f"{parameter.declaration}: the gate passes {parameter.type}* as packed int8_t, if "
                "the code has __dp4a or mma on s8"
            )
        of_matrices[value] = format_
    a, b, c = of_matrices.values()
    if a.is_integer != b.is_integer:
        raise BadSetting(
            f"A is {a.cuda} and B is {b.cuda}: the gate takes two integers or two floats"
        )
    allowed = OF_INTEGERS if a.is_integer else OF_C
    if c not in allowed:
        names = ", ".join(format_.cuda for format_ in allowed)
        raise BadSetting(f"C is {c.cuda}, and A is {a.cuda}: the gate takes a C of {names}")
    scalar = _format_of_scalars(defined, values, instance)
    return replace(layout, a=a, b=b, c=c, scalar=scalar)


def _format_of_scalars(defined: Definition, values: Sequence[str], instance: str) -> Format:
    """Return the format of alpha and beta. Raises BadSetting if these differ."""
    of_template = dict(zip(defined.template, split_list(instance), strict=False))
    formats = dict[str, None]()
    for parameter, value in zip(defined.parameters, values, strict=False):
        if value in ("alpha", "beta"):
            kind = of_template.get(parameter.type, parameter.type)
            formats[TYPES.get(kind, kind)] = None
    if not formats:
        return FLOAT32
    [name, *differing] = formats
    if differing or name not in [format_.name for format_ in OF_SCALARS]:
        names = ", ".join(format_.cuda for format_ in OF_SCALARS)
        raise BadSetting(
            f"alpha and beta are {' and '.join(formats)}: the gate passes two of one type: "
            f"declare them as one of {names}"
        )
    return FORMATS[name]


def operands(defined: Definition, values: Sequence[str], instance: str) -> tuple[Operand, ...]:
    """Return the operands beyond a product's, in the order of the parameters.

    values: of the parameters
    instance: the arguments of the template, as in "half, 32"
    """
    formats = formats_of_pointers(defined, instance)
    listed = list[Operand]()
    for parameter, value in zip(defined.parameters, values, strict=True):
        if value in OPERANDS:
            format_ = formats.get(parameter.name, FLOAT32) if parameter.pointer else None
            listed.append(Operand(value, format_))
    return tuple(listed)


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
    argument_names = (*SGEMM_ARGUMENTS, WORKSPACE, BATCH, *OPERANDS)
    return not is_map(value) and value.removeprefix(WIDE) not in argument_names


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


def batch_strides(declared: Sequence[Parameter], values: Sequence[str]) -> dict[int, str]:
    """Return what lies at each distance between a batch's matrices, by place.

    It is a matrix or an operand. A residual or a bias whose distance isn't its length is one for
    all products.
    """
    matrices = {span: matrix for matrix, span in _SPAN.items()}
    strides = dict[int, str]()
    for place, (parameter, value) in enumerate(zip(declared, values, strict=True)):
        span = value.removeprefix(WIDE)
        operand = stride_of(parameter)
        if operand:
            if span == _STRIDE_SPAN[operand]:
                strides[place] = operand
        elif "stride" in parameter.name.lower() and span in matrices:
            strides[place] = matrices[span]
    return strides


def stride_of(parameter: Parameter) -> str:
    """Return the operand that a distance between products is of, by its name.

    "" for other parameters, also for a matrix' distance.
    """
    return "" if parameter.pointer else _STRIDE_OF.get(_plain(parameter.name), "")


def turned(
    declared: Sequence[Parameter], values: Sequence[str], by_columns: str
) -> tuple[str, ...]:
    """Return values for factors that lie by columns, with other leading dimensions.

    by_columns: as in Types
    """
    types = Types(by_columns=by_columns)
    lengths = {matrix: Types().row_length(matrix) for matrix in MATRICES}
    sizes = {
        place: types.row_length(matrix)
        for place, matrix in row_lengths(declared, values, lengths).items()
    }
    return with_sizes(values, sizes)


def is_batch(name: str) -> bool:
    """Return whether a variable is the number of products of a launch, by its name."""
    return _MEANING.get(_plain(name)) == BATCH


def row_lengths(
    declared: Sequence[Parameter], values: Sequence[str], lengths: Mapping[str, str]
) -> dict[int, str]:
    """Return the matrix of each leading dimension, by place.

    Only of those that are the length of the matrix' rows. A kernel for column-major matrices gets B
    as its A.

    lengths: of the rows of A, B and C in memory: M, N or K
    """
    passed_as = dict[str, str]()
    for parameter, value in zip(declared, values, strict=True):
        if parameter.pointer and value in MATRICES:
            passed_as[matrix_of(parameter.name)] = value
    matrices = dict[int, str]()
    for place, parameter in enumerate(declared):
        if not is_leading_dimension(parameter):
            continue
        matrix = passed_as.get(parameter.name[-1].upper(), "")
        if matrix and values[place].removeprefix(WIDE) == lengths[matrix]:
            matrices[place] = matrix
    return matrices


def goes_beyond_product(values: Sequence[str]) -> bool:
    """Return whether parameters take more than a product: a workspace or a bias."""
    extra_values = {WORKSPACE, BATCH, *OPERANDS}
    return not extra_values.isdisjoint(value.removeprefix(WIDE) for value in values)


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
            evaluate(name, dict.fromkeys((*SIZE_NAMES, BATCH), 1))
        except BadSetting as error:
            raise BadSetting(
                f"--args {text}: {name!r}{meant(name, SGEMM_ARGUMENTS)} is none of "
                f"{', '.join((*SGEMM_ARGUMENTS, *OPERANDS))}, and no integer"
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
    operands = [_operand_among(parameter, declared) for parameter in declared if parameter.pointer]
    added = [operand for operand in operands if operand]
    has_three = len(operands) - len(added) == len(MATRICES) or "map" in kinds
    if not has_three or len({*added}) < len(added):
        advice = ""
        if len(operands) > len(MATRICES):
            template = ",".join(value or "?" for value in named(declared, mapped))
            choices = ", ".join((*SGEMM_ARGUMENTS, *OPERANDS))
            advice = f": give one of {choices} for each ?: --args '{template}'"
        raise BadSetting(
            f"{file}: {function} takes {kinds.count('pointer')} "
            f"pointer{'' if kinds.count('pointer') == 1 else 's'}: "
            "the gate passes A, B and C, and those called bias, residual, scale_a and scale_b"
            f"{advice}"
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
            f"give one of {', '.join((*SGEMM_ARGUMENTS, *OPERANDS))} for each ?: "
            f"--args '{template}'"
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
    no_sizes = ("alpha", "beta", BATCH, *SCALES, *_SPAN.values())
    for parameter in declared:
        is_number = not parameter.pointer and parameter.type != MAP_TYPE
        is_number = is_number and not stride_of(parameter)
        if is_number and _MEANING.get(_plain(parameter.name)) not in no_sizes:
            numbers.append(parameter)
    return numbers


def _plain(name: str) -> str:
    """Return a name in lower case, without underscores."""
    return name.lower().replace("_", "")


def _operand(parameter: Parameter) -> str:
    """Return one of OPERANDS for the name of an address such as d_bias; "" for another name.

    A matrix D or R is a residual if it is only read. Else it may be a result.
    """
    names = "bias|rowbias|colbias|scale|rowscale|colscale|res|skip"
    plain = re.sub(rf"^{_AFFIX}(?={names})", "", _plain(parameter.name))
    is_read_residual = plain in _READ_RESIDUAL_NAMES and parameter.const
    if plain in _RESIDUAL_NAMES or is_read_residual:
        return RESIDUAL
    meaning = _MEANING.get(plain, "")
    if meaning in SCALES:
        return meaning
    return _VECTOR_SCALE_NAMES.get(plain, _BIAS_NAMES.get(plain, ""))


def _operand_among(parameter: Parameter, declared: Sequence[Parameter]) -> str:
    """Return one of OPERANDS for the name of an address; "" for another name.

    Beside a layer's x, w and y, the name b is its bias.
    """
    matrices = {_layer_matrix(other) for other in declared}
    if parameter.pointer and matrix_of(parameter.name) == "B" and {*MATRICES} <= matrices:
        return BIAS
    return _operand(parameter)


def named(
    declared: Sequence[Parameter], mapped: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return the value that each parameter's name says; "" if it says none.

    An only size is N. The value of a tensor map is its matrix.

    mapped: as for order
    """
    numbers = _numbers(declared)
    has_layer = is_layer(declared)
    values = []
    for parameter in declared:
        if has_layer and _layer_matrix(parameter):
            values.append(_layer_matrix(parameter))
        elif parameter.type == MAP_TYPE:
            values.append(mapped.get(parameter.name) or matrix_of_map(parameter.name))
        elif parameter.pointer:
            bias = _operand_among(parameter, declared) if has_layer else ""
            values.append(bias or matrix_of(parameter.name) or _operand(parameter))
        elif numbers == [parameter]:
            values.append("N")
        else:
            plain = _plain(parameter.name)
            name = re.sub(r"^num|umn", "", plain)
            values.append(_MEANING.get(plain) or _MEANING.get(name, ""))
    return values


def matrix_of(name: str) -> str:
    """Return A, B or C for a matrix's name such as d_A, "" for another name."""
    matrix = _MATRIX.fullmatch(name)
    return matrix[1].upper() if matrix else ""


def is_layer(declared: Sequence[Parameter]) -> bool:
    """Return whether the matrices have a layer's names: x, weight and out, for example."""
    pointers = [parameter for parameter in declared if parameter.pointer]
    matrices = list[str]()
    for parameter in pointers:
        if not _operand_among(parameter, declared):
            matrices.append(_layer_matrix(parameter))
    return sorted(matrices) == [*MATRICES]


def _layer_matrix(parameter: Parameter) -> str:
    """Return the matrix of an address with a layer's name such as d_weight; "" for others."""
    plain = re.sub(r"^(d|dev|device|gpu)_", "", parameter.name.lower())
    return _LAYER_NAMES.get(plain, "") if parameter.pointer else ""


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
    """Return M, N, K or the batch for a value that is a size; "" for other values."""
    size = value.removeprefix(WIDE)
    return size if size in (*SIZE_NAMES, BATCH) else ""
