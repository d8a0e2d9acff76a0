"""What NVRTC gets of a user's CUDA source: its code for the device, the headers that this includes, and options.

NVRTC rejects host code and the host's headers, so both are left out, and what device code uses of these headers is
defined.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from worklog.errors import BadSetting
from worklog.kernel.device import COMPILE_OPTIONS, Program
from worklog.kernel.source import LINE, blank, uncommented
from worklog.kernel.unit import Spans, Unit, read

_HOST_HEADERS = (
    r"(?:cuda|device_launch|helper_|assert|cublas|curand|float|limits|math|(?:nvtx3/)?nvTools|std|string|time)\w*\.h"
)
_INCLUDE = re.compile(rf'^[ \t]*#[ \t]*include[ \t]*(?:<(.+?)>|"({_HOST_HEADERS})")', re.MULTILINE)
STANDARD, HOST = (Path(__file__).with_name(name) for name in ("std.cuh", "host.cuh"))
HOST_AS_DEVICE = "-default-device"  # host code that wasn't recognised, such as member functions, is no error then
_FOR_NVRTC = "__CUDACC_RTC__"  # a header that has code for it needs no help
# The headers of types that the host's headers of NVIDIA bring along.
_TYPE_HEADERS = {"cuda_fp16.h": r"(?:__)?half2?", "cuda_bf16.h": r"__nv_bfloat162?|nv_bfloat162?"}
# Headers that hold something for the device; NVRTC knows the others' part of the language already.
_DEVICE_HEADERS = re.compile(
    r"cuda_(?:fp|bf)\d|cuda_pipeline|cuda_awbarrier|mma|cooperative_groups|"
    r"cuda/|nv/|cub/(?!cub\.cuh)|cute/|cutlass|nvfunctional|math_constants"
)
_OF_STD = ("array", "complex", "functional", "numeric", "optional", "span", "tuple", "variant")  # that libcu++ has
# In place of cub/cub.cuh, which has code for the host.
_CUB = tuple(f"cub/block/block_{what}.cuh" for what in ("load", "store", "reduce", "scan", "exchange", "radix_sort"))
_CUB += tuple(f"cub/warp/warp_{what}.cuh" for what in ("reduce", "scan"))


def prepared(file: str, source: str, include: Sequence[Any], define: Sequence[str]) -> tuple[Program, Unit]:
    """What NVRTC gets of a source, for any entry; and what the source and its headers define. include: folders of
    headers. define: macros. Raises BadSetting for a folder that isn't there, and for what is no macro.
    """
    for macro in define:
        if not re.match(r"[A-Za-z_]\w*(?:=|$)", str(macro)):
            raise BadSetting(f"cannot read -D {macro!r}: write NAME or NAME=VALUE")
    for folder in include:
        if not Path(folder).is_dir():
            raise BadSetting(f"cannot read -I {folder}: there is no such folder")
    folders = [str(Path(folder).resolve()) for folder in include]
    texts = own_headers(source, folders)
    unit = read(source, tuple(define), tuple(texts.values()))
    spans = iter(unit.host)
    headers = {
        name: header if _FOR_NVRTC in header else _without_host(header, host, texts)
        for (name, header), host in zip(texts.items(), spans, strict=False)
    }
    text = _without_host(source, next(spans), texts)
    device = "\n".join((text, *headers.values()))
    if re.search(r"\bstd\s*::", uncommented(device)):
        headers[STANDARD.name] = STANDARD.read_text(encoding="utf-8")
    options = (*COMPILE_OPTIONS, *(f"-D{macro}" for macro in define), *(f"-I{folder}" for folder in folders))
    if added := _prelude(device, included(source), unit, STANDARD.name in headers):
        headers[HOST.name] = added
        options += (f"-include={HOST.name}",)
    if "int128" in device:
        options += ("-device-int128",)
    if text != source:
        options += (HOST_AS_DEVICE,)
    return Program(file, text, "", options, headers=tuple(headers.items())), unit


def own_headers(source: str, folders: Sequence[str]) -> dict[str, str]:
    """Texts by the names in #include: of headers in the folders that a source includes, behind those that they include
    in turn.
    """
    texts: dict[str, str] = {}
    begun = set[str]()

    def visit(text: str, places: Sequence[str]) -> None:
        for name in included(text):
            path = next((path for place in places if (path := Path(place, name)).is_file()), None)
            if path is not None and name not in begun:
                begun.add(name)
                header = path.read_text(encoding="utf-8-sig", errors="replace")
                visit(header, [str(path.parent), *folders])
                texts[name] = header

    visit(source, folders)
    return texts


def _without_host(source: str, host: Spans, own: Mapping[str, str]) -> str:
    """The source with spaces in place of code and headers for the host, so that the rest keeps its line numbers. own:
    headers that stay.
    """
    out = list(source)
    for match in _INCLUDE.finditer(uncommented(source)):
        name = match[1] or match[2]
        if name not in own and not _DEVICE_HEADERS.match(name):
            out[match.start() : match.end()] = blank(match[0])
    for start, end, kept in host:
        for match in LINE.finditer(source, start, end):
            if not match["directive"]:
                out[match.start() : match.end()] = blank(match[0])
        out[start] = kept or out[start]
    return "".join(out)


def included(source: str) -> list[str]:
    """Names of the headers that a source includes."""
    return re.findall(r'^[ \t]*#[ \t]*include[ \t]*[<"](.+?)[>"]', source, re.MULTILINE)


def is_of_nvidia(header: str) -> bool:
    """Whether it is one of NVIDIA's headers for device code, or includes one."""
    return bool(_DEVICE_HEADERS.match(header)) or header in ("cub/cub.cuh", STANDARD.name)


def _prelude(device: str, names: Sequence[str], unit: Unit, standard: bool) -> str:
    """A header to begin with: what code for the device uses of headers that NVRTC rejects, and doesn't define. names:
    of headers that the source includes.
    """
    names = [*names, *included(device)]
    used = {*re.findall(r"\w+", uncommented(device))} - unit.defined
    types = {header: re.compile(pattern) for header, pattern in _TYPE_HEADERS.items() if header not in names}
    needed = [header for header, pattern in types.items() if any(map(pattern.fullmatch, used))]
    needed += _CUB if "cub/cub.cuh" in names else ()
    needed += [STANDARD.name, *(f"cuda/std/{name}" for name in _OF_STD if name in names)] if standard else []
    lines = [f"#include <{header}>" for header in needed]
    for line in HOST.read_text(encoding="utf-8").splitlines():
        kind, name, *_ = line.split()
        if kind in ("using", "#define") and name in used:
            of_nvidia = name.endswith("_t") and any(map(is_of_nvidia, [*names, *needed]))  # whose headers define these
            lines.append("#include <cuda/std/cstdint>" if of_nvidia else line)
    return "\n".join(dict.fromkeys(lines))
