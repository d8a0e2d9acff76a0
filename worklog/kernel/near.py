"""Files near a .cu file: the headers that it includes, and the programs that include it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from worklog.kernel.folder import text_of_header
from worklog.kernel.nvrtc import Missing, is_of_a_library
from worklog.kernel.source import INCLUDE, included, uncommented

MAX_FOLDERS = 200  # to look for a header in
MAX_FILES = 200  # to look for a launch in
MAX_BYTES = 300_000  # of a file with a launch
LEVELS = 2  # above a file that is in no repository
_LIKELY = ("include", "inc", "common", "src")  # folders to look into first
_SUFFIXES = (".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".inl", ".c", ".cc", ".cpp", ".cxx")


@dataclass(frozen=True)
class Headers:
    """The places of the headers that a file needs."""

    folders: list[Path]  # that have them
    remarks: list[str]  # where a header was found
    ambiguous: list[Missing]  # that several folders have, none of them nearer than another


def folders_of_headers(path: Path, source: str, folders: Sequence[Path]) -> Headers:
    """Return folders near a file that have headers which it needs.

    source: the text of the file
    folders: where headers are looked for already
    """
    near_folders: list[Path] = []
    remarks: list[str] = []
    ambiguous: list[Missing] = []
    searched = set[str]()
    waiting = [(source, path.parent)]
    for text, folder_of_text in waiting:  # which grows
        for header in included(text):
            if header in searched or (f"<{header}>" in text and not _is_a_users(header)):
                continue
            searched.add(header)
            places = (folder_of_text, *folders, *near_folders)
            listed = next((place for place in places if (place / header).is_file()), None)
            holders = [listed] if listed else _holders(path, header)
            if len(holders) > 1:
                ambiguous.append(Missing(header, tuple(map(str, holders))))
            if len(holders) != 1:
                continue
            [folder] = holders
            if listed is None:
                near_folders.append(folder)
                remarks.append(f"{header}: from {folder}, as by -I {folder}")
            waiting.append((text_of_header(folder / header), (folder / header).parent))
    return Headers(near_folders, remarks, ambiguous)


@dataclass(frozen=True)
class Includer:
    """A file that includes a kernel's file, directly or through headers."""

    path: Path
    code_before: str  # in front of the kernel's file, in this file and in those headers
    folders: tuple[Path, ...]  # of this file and of those headers


def programs(path: Path) -> list[Includer]:
    """Return the files that include a file, directly or through headers, nearest first."""
    target = path.resolve()
    files = _sources(target)
    by_name: dict[str, list[Path]] = {}
    for file in (*files, target):
        by_name.setdefault(file.name, []).append(file)
    includes = {file: _includes(file, by_name) for file in files}
    includers = {target}
    is_complete = False
    while not is_complete:
        added = set[Path]()
        for file in files:
            if file not in includers and includers & {*includes[file]}:
                added.add(file)
        includers |= added
        is_complete = not added
    nearest_first = []
    for file in files:
        if file in includers:
            code, folders = _code_before(file, target, includes, includers)
            nearest_first.append(Includer(file, code, folders))
    return nearest_first


def _includes(file: Path, by_name: Mapping[str, Sequence[Path]]) -> dict[Path, int]:
    """Return the files that a file includes, and the places of the include directives.

    by_name: the files that it may include, by their names
    """
    places: dict[Path, int] = {}
    for match in INCLUDE.finditer(text_of_header(file)):
        header = _included_file(file, match[1], by_name.get(Path(match[1]).name, ()))
        if header is not None:
            places.setdefault(header, match.start())
    return places


def _code_before(
    file: Path, target: Path, includes: Mapping[Path, Mapping[Path, int]], includers: Set[Path]
) -> tuple[str, tuple[Path, ...]]:
    """Return the code of a program in front of a file that it includes, and the folders of both.

    The code is "" if its brackets aren't closed.

    includes: the files that each file includes, and the places
    includers: files that include the target, and the target
    """
    code = ""
    folders: list[Path] = []
    visited = set[Path]()
    while file != target and file not in visited:
        visited.add(file)
        header, place = _first(includes[file], includers)
        text = text_of_header(file)[:place]
        opened = len(re.findall(r"^[ \t]*#[ \t]*if", text, re.MULTILINE))
        closed = len(re.findall(r"^[ \t]*#[ \t]*endif", text, re.MULTILINE))
        code += text + "#endif\n" * (opened - closed)
        folders.append(file.parent)
        file = header
    bare = uncommented(code)
    if bare.count("{") != bare.count("}"):
        code = ""
    return code, tuple(folders)


def _first(places: Mapping[Path, int], includers: Set[Path]) -> tuple[Path, int]:
    """Return the first of a file's headers that is the target or includes it, and the place."""
    return next((header, place) for header, place in places.items() if header in includers)


def _is_a_users(header: str) -> bool:
    """Return whether a header in <…> may be one of the user's headers."""
    return header.endswith(_SUFFIXES) and not is_of_a_library(header)


def _holders(path: Path, header: str) -> list[Path]:
    """Return the folders nearest to a file that have a header, none of them nearer than another."""
    distances = _distances(path.resolve().parent)
    holders = [folder for folder in distances if (folder / header).is_file()]
    nearest = [folder for folder in holders if distances[folder] == distances[holders[0]]]
    return [Path(os.path.relpath(folder)) for folder in nearest]


def _distances(start: Path) -> dict[Path, int]:
    """Return the folders around a folder with the steps to them, nearest first."""
    root = _root(start)
    distances = {start: 0}
    waiting = [start]
    for folder in waiting:  # which grows
        above = [] if folder == root else [folder.parent]
        for other in (*above, *_subfolders(folder)):
            if other not in distances and len(distances) < MAX_FOLDERS:
                distances[other] = distances[folder] + 1
                waiting.append(other)
    return distances


def _root(folder: Path) -> Path:
    """Return the folder of the repository; outside of a repository, a folder above."""
    repository = _repository(folder)
    if repository is not None:
        return repository
    root = folder
    for above in [*folder.parents][:LEVELS]:
        if above == Path(above.anchor) or root == Path.home():
            break
        root = above
    return root


def _repository(folder: Path) -> Path | None:
    """Return the nearest folder with .git, from a folder upwards; None for none."""
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), None)


def _subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder, likely ones first."""
    try:
        inner = [entry for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink()]
    except OSError:  # which a user may not read
        return []
    visible = [entry for entry in inner if not entry.name.startswith(".")]
    return sorted(visible, key=lambda entry: (entry.name not in _LIKELY, entry.name))


def _sources(target: Path) -> list[Path]:
    """Return the files of the repository that may include a file, nearest first."""
    start = target.parent
    sources: list[Path] = []
    # A header's programs are in other folders, also outside of a repository.
    is_wide = _repository(start) is not None or target.suffix != ".cu"
    for folder in _distances(start) if is_wide else [start]:
        try:
            files = sorted(entry for entry in folder.iterdir() if entry.suffix in _SUFFIXES)
            sources += [file for file in files if file.stat().st_size <= MAX_BYTES]
        except OSError:  # which a user may not read
            continue
    return [file for file in sources if file != target][:MAX_FILES]


def _included_file(file: Path, header: str, candidates: Sequence[Path]) -> Path | None:
    """Return the file that another file includes; None if no candidate is the only nearest one.

    candidates: files with the header's name
    """
    relative = Path(os.path.normpath(file.parent / header))
    if relative in candidates:
        return relative
    end = [part for part in Path(header).parts if part not in (".", "..")]
    ending = [other for other in candidates if [*other.parts][-len(end) :] == end]
    steps = {other: len(Path(os.path.relpath(other, file.parent)).parts) for other in ending}
    nearest = [other for other in ending if steps[other] == min(steps.values())]
    return nearest[0] if len(nearest) == 1 else None
