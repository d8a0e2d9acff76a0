"""The names that a compiler gives functions, and the names that they have in the source."""

from __future__ import annotations

import ctypes
import re


def types_of(symbol: str) -> list[str]:
    """Return the types of a function's parameters.

    As the compiler names them, such as "float const*".
    None for a symbol that doesn't have them, such as that of an extern "C" function.
    """
    listed = re.search(r"\(([^()]*)\)$", _demangled(symbol))
    if not listed:
        return []
    return [kind for kind in listed[1].split(", ") if kind]


def demangled(text: str) -> str:
    """Return a text with functions' names instead of the compiler's symbols.

    Such as lab::gemm for _ZN3lab4gemmEPf.
    """
    return re.sub(
        r"\b_Z[\w$]+",
        lambda symbol: re.sub(r"^\w+ (?=\S+<)|<.*|\(.*", "", _demangled(symbol[0])),
        text,
    )


def variable_name(symbol: str) -> str:
    """Return the name of a variable as C++ code has it.

    Such as lab::count, or gemm::count for a static variable of a function.
    """
    name = re.sub(r"\(anonymous namespace\)::|_INTERNAL_\w+::", "", _demangled(symbol))
    with_parameters = ""
    while with_parameters != name:  # parentheses may be nested
        with_parameters = name
        name = re.sub(r"\([^()]*\)", "", name)
    return name


def _demangled(symbol: str) -> str:
    """Return a symbol as C++ code has it, with its parameters; unchanged if it isn't mangled."""
    if not symbol.startswith("_Z"):
        return symbol
    demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle  # NumPy also needs this library
    demangle.restype = ctypes.c_char_p
    demangle.argtypes = [ctypes.c_char_p, *3 * [ctypes.c_void_p]]
    name = demangle(symbol.encode(), None, None, None)
    return name.decode() if name else symbol
