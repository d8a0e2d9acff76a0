"""What a CUDA source and its headers define, as the compiler reads them."""

from worklog.kernel.unit.declarations import RECORDS
from worklog.kernel.unit.definitions import Definition, Piece, Spans, Unit
from worklog.kernel.unit.reader import FOR_NVRTC, NAMESPACES, read, without_macros

__all__ = [
    "FOR_NVRTC",
    "NAMESPACES",
    "RECORDS",
    "Definition",
    "Piece",
    "Spans",
    "Unit",
    "read",
    "without_macros",
]
