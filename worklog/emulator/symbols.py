"""The names that a compiler gives functions, and the names that they have in the source."""

from __future__ import annotations

import ctypes
import re


def types_of(symbol: str) -> list[str]:
    """The types of a function's parameters as the compiler names them, such as "float const*"; none for a symbol that
    doesn't have them, as that of an extern "C" function.
    """
    listed = re.search(r"\(([^()]*)\)$", _demangled(symbol))
    return [kind for kind in listed[1].split(", ") if kind] if listed else []


def demangled(text: str) -> str:
    """A text with functions' names in place of the compiler's symbols: lab::gemm of _ZN3lab4gemmEPf."""
    return re.sub(
        r"\b_Z[\w$]+",
        lambda symbol: re.sub(r"^\w+ (?=\S+<)|<.*|\(.*", "", _demangled(symbol[0])),
        text,
    )


def _demangled(symbol: str) -> str:
    demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle  # NumPy needs this library, too
    demangle.restype = ctypes.c_char_p
    demangle.argtypes = [ctypes.c_char_p, *3 * [ctypes.c_void_p]]
    full = demangle(symbol.encode(), None, None, None) if symbol.startswith("_Z") else None
    return full.decode() if full else symbol
