"""Parameters of a kernel or a solution, and their C++ types."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import ml_dtypes  # noqa: F401  # gives NumPy bfloat16 and the types of 8 bits
import numpy as np

from worklog.errors import BadSetting

# C++ types of parameters by the dtype of their elements. Starter code writes the first of each.
NAMES = {
    "float32": ("float",),
    "float64": ("double",),
    "float16": ("__half", "half", "float16"),
    "bfloat16": ("__nv_bfloat16", "bfloat16", "nv_bfloat16"),
    "float8_e4m3fn": ("__nv_fp8_e4m3",),
    "float8_e5m2": ("__nv_fp8_e5m2",),
    "int32": ("int", "int32_t"),
    "uint64": ("size_t", "unsigned long long", "unsigned long", "uint64_t"),
    "int64": ("long long", "int64_t", "long"),
    "uint32": ("unsigned int", "unsigned", "uint32_t"),
    "int16": ("short",),
    "uint16": ("unsigned short",),
    "int8": ("int8_t", "char", "signed char"),
    "uint8": ("uint8_t", "unsigned char", "float8"),
    "bool": ("bool",),
}
TYPES: dict[str, str] = {}  # the dtype of each C++ type
for _dtype, _types in NAMES.items():
    TYPES.update(dict.fromkeys(_types, _dtype))


@dataclass(frozen=True)
class Parameter:
    """A parameter of a solution."""

    name: str
    type: str  # of C++
    dtype: str  # of the value, or of the elements that a pointer points to
    pointer: bool
    const: bool = False  # only read

    @property
    def declaration(self) -> str:
        """The declaration in C++, as in "const float* input"."""
        if not self.pointer:
            return f"{self.type} {self.name}"
        element, bracket, lengths = self.type.partition("[")
        is_array_type = bool(bracket)  # a pointer to an array
        name = f" (*{self.name})[{lengths}" if is_array_type else f"* {self.name}"
        return f"{'const ' if self.const else ''}{element}{name}"

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return np.dtype(self.dtype).itemsize


def ctype_of(parameter: Parameter) -> Any:
    """Return the type by which ctypes passes a parameter.

    Raises BadSetting for a half-precision number, which ctypes doesn't have.
    """
    if parameter.pointer:
        return ctypes.c_void_p
    if parameter.dtype in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
        raise BadSetting(
            f"{parameter.declaration}: a number of this type can't be passed: pass a float"
        )
    return np.ctypeslib.as_ctypes_type(np.dtype(parameter.dtype))
