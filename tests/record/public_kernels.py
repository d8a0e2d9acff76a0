"""The kernels below a folder of someone's CUDA sources, each with what compiles it.

Template arguments and the launch are taken from the launches in any file of the folder, since many projects keep
kernels in headers and launch them elsewhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from worklog.kernel import Kernel
from worklog.kernel.source import reduced, uncommented
from worklog.kernel.unit import UNCLEAR, read

SUFFIXES = (".cu", ".cuh", ".h", ".hpp")
GEMM = re.compile(r"gemm|mat(?:rix)?[\W_]*mul|mmul|\bmm_", re.IGNORECASE)
TYPE = re.compile(
    r"(?:const |unsigned )*(?:float[24]?|double|int[24]?|char|bool|half2?|__half2?|__nv_bfloat162?|true|false|-?\d+)"
)


@dataclass(frozen=True)
class PublicKernel:
    """path: of its file, below the folder. entry: with template arguments. host: text of the function that launches it,
    if that is in another file. unknown: whether no launch gives its template arguments. constants: of all files of the
    folder.
    """

    folder: Path
    path: Path
    entry: str
    host: str = ""
    unknown: bool = False
    constants: Mapping[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def text(self) -> str:
        """The file's text."""
        return text_of(self.folder / self.path)

    @property
    def is_gemm(self) -> bool:
        """Whether its name says that it multiplies matrices."""
        return bool(GEMM.search(f"{self.path.stem}/{self.entry}"))

    def kernel(self, include: Sequence[Path], define: Sequence[str]) -> Kernel:
        """The record that `worklog check` would make. Raises WorklogError."""
        source, folders = f"{self.text}\n{self.host}", (*include, (self.folder / self.path).parent)
        return Kernel.from_source(source, entry=self.entry, file=str(self.path), include=folders, define=define)

    def header_folder(self, message: str) -> Path | None:
        """The nearest folder that has the header which a compiler's message misses."""
        missing = re.search(r'open source file "([^./].*?)"', message)
        own = self.folder / self.path
        places = sorted(
            self.folder.rglob(missing[1]) if missing else (), key=lambda p: len(os.path.commonpath((p, own)))
        )
        return Path(str(places[-1])[: -len(missing[1])]) if missing and places else None

    def macro(self, message: str) -> str:
        """A definition of the name that a compiler's message misses, or ""."""
        missing = re.search(r'identifier "(\w+)" is undefined', message)
        return f"{missing[1]}={self.constants[missing[1]]}" if missing and missing[1] in self.constants else ""


def text_of(path: Path) -> str:
    """The text of a file of any encoding."""
    return path.read_text(encoding="utf-8-sig", errors="replace")


def kernels(folder: Path) -> Iterator[PublicKernel]:
    """The kernels of a folder's files, in order."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    texts = {path.relative_to(folder): text_of(path) for path in files}
    units = {path: read(text) for path, text in texts.items()}
    constants: dict[str, str] = {}
    for unit in units.values():
        for constant, value in unit.constants.items():
            constants[constant] = value if constants.get(constant, value) == value else UNCLEAR
    constants = {name: value for name, value in constants.items() if value != UNCLEAR}
    for path, own in units.items():
        near = sorted(units, key=lambda other: (other != path, other.parent != path.parent))
        for name in own.kernels:
            declared = own.definition(name)
            launches = [
                (other, function, call)
                for other in near
                for function in units[other].functions
                for call in function.calls
                if f"::{name}".endswith(f"::{call.function}")
            ]
            instance = host = ""
            for other, function, launch in launches[:1]:
                scope = function_around(uncommented(texts[other]), launch.node.start_byte)
                host = scope if other != path else ""
                names = units[other].names(function)
                instance = arguments(reduced(part, names).strip("() ") for part in launch.template)
            template = bool(declared is not None and declared.template and not instance)
            yield PublicKernel(folder, path, name + instance, host, template, constants)


def function_around(bare: str, place: int) -> str:
    """The function around a place, up to the end of the place's statement."""
    text = bare[bare.rfind("\n}", 0, place) + 1 : bare.find(";", place) + 1].removeprefix("}")
    text = re.sub(r"^[ \t]*#.*", "", text, flags=re.MULTILINE)
    return text + "}" * (text.count("{") - text.count("}"))


def arguments(values: Iterator[str]) -> str:
    """Template arguments as C++ writes them; "" if there are none, or one isn't a type or a number."""
    listed = list(values)
    return f"<{', '.join(listed)}>" if listed and all(map(TYPE.fullmatch, listed)) else ""
