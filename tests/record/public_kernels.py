"""The kernels below a folder of someone's CUDA sources, each with what compiles it: `worklog check` for a whole folder.

Template arguments and the launch are taken from the launches in any file of the folder, since many projects keep
kernels in headers and launch them elsewhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from worklog.kernel import Kernel
from worklog.kernel.signature import constants as constants_of
from worklog.kernel.source import Definition, closing, code, definition, kernel_names, parts, reduced

SUFFIXES = (".cu", ".cuh", ".h", ".hpp")
LAUNCH = r"\b{}\s*(?P<template><[^;{{}}]*?>)?\s*<\s*<\s*<"
TEXTURE = re.compile(r"\b(?:tex[123]D\w*|texCubemap|surf[123]D\w*|cudaTextureObject_t|cudaSurfaceObject_t|texture\s*<)")
DEVICE_LAUNCH = re.compile(
    r"<\s*<\s*<|\bcudaDeviceSynchronize\b|\bcudaStreamCreateWithFlags\b|\bcudaGraph(?:Launch|SetConditional)\b"
)
REMOVED = re.compile(r"\b__(?:shfl|shfl_up|shfl_down|shfl_xor|any|all|ballot)\s*\(")  # without _sync: not since sm_70
GEMM = re.compile(r"gemm|mat(?:rix)?[\W_]*mul|mmul|\bmm_", re.IGNORECASE)
TYPE = re.compile(
    r"(?:const |unsigned )*(?:float[24]?|double|int[24]?|char|bool|half2?|__half2?|__nv_bfloat162?|true|false|-?\d+)"
)
# What a template parameter gets where no launch says it, by its declaration.
GUESSES = (("bool", "true"), ("typename", "float"), ("class", "float"), ("", "8"))


@dataclass(frozen=True)
class Found:
    """One kernel. path: of its file, below the folder. entry: with template arguments. host: text of the function that
    launches it, if that is in another file. guessed: whether no launch gives its
    template arguments. constants: of all files of the folder.
    """

    folder: Path
    path: Path
    entry: str
    host: str = ""
    guessed: bool = False
    constants: Mapping[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def text(self) -> str:
        """The file's text."""
        return read(self.folder / self.path)

    @cached_property
    def body(self) -> str:
        """The kernel's parameters and body."""
        bare = code(self.text)
        place = re.search(rf"\b{re.escape(self.entry.partition('<')[0])}\s*\(", bare)
        return bare[place.start() : closing(bare, bare.find("{", place.end()))] if place else ""

    @property
    def apart(self) -> str:
        """Why it is counted apart, or ""."""
        if DEVICE_LAUNCH.search(self.body):
            return "dynamic parallelism"
        if REMOVED.search(self.body):
            return "removed intrinsics"
        own = set(re.findall(r"\w+", self.body))
        textures = set(re.findall(r"\btexture\s*<[^;]*?>\s*(\w+)", code(self.text)))
        return "textures" if TEXTURE.search(self.body) or own & textures else ""

    def symbol(self, ptx: str) -> str:
        """The name of a kernel that is no template in the PTX of its file, or ""."""
        named = re.search(rf"\.entry\s+(_Z{len(self.entry)}{self.entry}\w*|{self.entry})\b", ptx)
        return named[1] if named else ""

    @property
    def is_gemm(self) -> bool:
        """Whether its name says that it multiplies matrices."""
        return bool(GEMM.search(f"{self.path.stem}/{self.entry}"))

    def kernel(self, include: Sequence[Path], define: Sequence[str]) -> Kernel:
        """The record that `worklog check` would make. Raises WorklogError."""
        source = f"{self.text}\n{self.host}"
        folders = (*include, (self.folder / self.path).parent)
        return Kernel.from_source(source, entry=self.entry, file=str(self.path), include=folders, define=define)

    def header_folder(self, message: str) -> Path | None:
        """The nearest folder that has the header which a compiler's message misses."""
        missing = re.search(r'open source file "(.+?)"', message)
        if missing is None or missing[1].startswith((".", "/")):
            return None
        own = self.folder / self.path
        places = sorted(self.folder.rglob(missing[1]), key=lambda one: len(os.path.commonpath((one, own))))
        return Path(str(places[-1])[: -len(missing[1])]) if places else None

    def macro(self, message: str) -> str:
        """A definition of the name that a compiler's message misses."""
        missing = re.search(r'identifier "(\w+)" is undefined', message)
        return f"{missing[1]}={self.constants[missing[1]]}" if missing and missing[1] in self.constants else ""


def read(path: Path) -> str:
    """The text of a file of any encoding."""
    return path.read_text(encoding="utf-8-sig", errors="replace")


def kernels(folder: Path, only: str = "") -> Iterator[Found]:
    """The kernels of a folder's files, in order. only: a pattern that the path must contain."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    texts = {path.relative_to(folder): read(path) for path in files}
    launching = {path: bare for path, text in texts.items() if "<<<" in re.sub(r"\s", "", bare := code(text))}
    constants = constants_of("\n".join(texts.values()))
    for path, text in texts.items():
        if re.search(only, str(path)):
            for name in filter(partial(definition, text), kernel_names(text)):
                yield replace(_found(folder, path, name, texts, launching), constants=constants)


def _found(folder: Path, path: Path, name: str, texts: dict[Path, str], launching: dict[Path, str]) -> Found:
    declared = definition(texts[path], name)
    near = sorted(launching, key=lambda other: (other != path, other.parent != path.parent))
    pattern = re.compile(LAUNCH.format(re.escape(name)))
    instance = host = ""
    for other in near:
        if launch := pattern.search(launching[other]):
            scope = _scope(launching[other], launch.start())
            host = scope if other != path else ""
            instance = _instance(launch["template"] or "", {**constants_of(texts[other]), **constants_of(scope)})
            break
    guess = "" if instance else _guessed(texts[path], declared, name)
    return Found(folder, path, name + instance + guess, host, bool(guess))


def _scope(bare: str, place: int) -> str:
    """The function around a place, up to the end of the place's statement, without the blocks that end before it."""
    starts = [0]
    for bracket in re.finditer(r"[{};]", bare[:place]):
        if bracket[0] == "{":
            starts.append(bracket.end())
        elif bracket[0] == "}" and len(starts) > 1:
            starts.pop()
        if len(starts) == 1 and bracket[0] != "{":
            starts = [bracket.end()]
    kept, depth = [], 0
    for piece in re.split(r"([{}])", bare[starts[0] : bare.find(";", place) + 1])[::-1]:
        depth += {"}": 1}.get(piece, 0)
        if depth == 0:
            kept.append(piece)
        depth -= depth > 0 and piece == "{"
    return re.sub(r"^[ \t]*#.*", "", "".join(kept[::-1]), flags=re.MULTILINE) + "}" * (len(starts) - 1)


def _instance(template: str, known: dict[str, str]) -> str:
    """The template arguments of a launch with numbers for names; "" if they have none, or some isn't known."""
    values = [reduced(part, known).strip("() ") for part in parts(template.strip()[1:-1])] if template else []
    return f"<{', '.join(values)}>" if values and all(map(TYPE.fullmatch, values)) else ""


def _guessed(text: str, declared: Definition | None, name: str) -> str:
    """Template arguments where no launch gives them."""
    if declared is None or not declared.template:
        return ""
    before = code(text)
    place = re.search(rf"\b{re.escape(name)}\s*\(", before)
    assert place is not None
    listed = re.findall(r"\btemplate\s*<([^{}]*?)>\s*(?=\w|$)", before[: place.start()])
    values = []
    for part in parts(listed[-1]) if listed else ():
        default = part.partition("=")[2].strip()
        values.append(default or next(value for kind, value in GUESSES if re.search(rf"\b{kind}", part)))
    return f"<{', '.join(values)}>" if values else ""
