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
from worklog.kernel.signature import constants as constants_of
from worklog.kernel.source import calls, code, definition, kernel_names, reduced

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
        return read(self.folder / self.path)

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


def read(path: Path) -> str:
    """The text of a file of any encoding."""
    return path.read_text(encoding="utf-8-sig", errors="replace")


def kernels(folder: Path) -> Iterator[PublicKernel]:
    """The kernels of a folder's files, in order."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    texts = {path.relative_to(folder): read(path) for path in files}
    launching = {path: bare for path, text in texts.items() if "<<<" in re.sub(r"\s", "", bare := code(text))}
    constants = constants_of("\n".join(texts.values()))
    for path, text in texts.items():
        near = sorted(launching, key=lambda other: (other != path, other.parent != path.parent))
        for name in kernel_names(text):
            declared = definition(text, name)
            if declared is None:
                continue
            instance = host = ""
            for other in near:
                if launch := next(calls(launching[other], re.escape(name)), None):
                    scope = function_around(launching[other], launch.place)
                    known = {**constants_of(texts[other]), **constants_of(scope)}
                    host = scope if other != path else ""
                    instance = arguments(reduced(part, known).strip("() ") for part in launch.template)
                    break
            yield PublicKernel(folder, path, name + instance, host, bool(declared.template and not instance), constants)


def function_around(bare: str, place: int) -> str:
    """The function around a place, up to the end of the place's statement."""
    text = bare[bare.rfind("\n}", 0, place) + 1 : bare.find(";", place) + 1].removeprefix("}")
    text = re.sub(r"^[ \t]*#.*", "", text, flags=re.MULTILINE)
    return text + "}" * (text.count("{") - text.count("}"))


def arguments(values: Iterator[str]) -> str:
    """Template arguments as C++ writes them; "" if there are none, or one isn't a type or a number."""
    listed = list(values)
    return f"<{', '.join(listed)}>" if listed and all(map(TYPE.fullmatch, listed)) else ""
