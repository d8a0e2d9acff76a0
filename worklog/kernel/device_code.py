"""What NVRTC gets of a user's CUDA source: its code for the device, the headers that this includes, and options.

NVRTC rejects host code and the host's headers, so both are left out, and what device code uses of these headers is
defined.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from worklog.kernel.device import COMPILE_OPTIONS, Program
from worklog.kernel.source import DIRECTIVE, blank, closing, code

_HOST_HEADERS = r"(?:cuda|device_launch|helper_|assert|cublas|curand|float|limits|math|std|string|time)\w*\.h"
_INCLUDE = re.compile(rf'#[ \t]*include[ \t]*(?:<(.+?)>|"({_HOST_HEADERS})")')
STANDARD, HOST = (Path(__file__).with_name(name) for name in ("std.cuh", "host.cuh"))
HOST_AS_DEVICE = "-default-device"  # host code that wasn't recognised, such as member functions, is no error then
# A variable outside of functions that isn't for the device, and isn't constant.
_VARIABLE = re.compile(
    r"\s*(?:static\s+|unsigned\s+)*(?!(?:const|constexpr|typedef|using|template|struct|class|union|enum|extern|namespace|"
    r"friend|static_assert|return)\b)[A-Za-z_]\w*(?:<[\w\s,*]*>)?(?:\s+|\s*\*+\s*)\w+\s*(?:\[[^\]]*\]\s*)*(?:=[^;]*)?;?$",
    re.DOTALL,
)
_CONSTANT_POINTERS = re.compile(r"\s*(?:static\s+)?const\s+\w+\s*(?:\*[^(=]*|\w+\s*\[[^(=]*)=")
# A macro for host functions, such as a binding of PyTorch's.
_HOST_MACRO = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+\w+\([^)]*\)(?P<body>(?:\\\n|[^\n])*?\b(?:torch|at|pybind11)::(?:\\\n|[^\n])*)",
    re.MULTILINE,
)
_NAMESPACE = re.compile(r"\s*(?:(?:inline\s+)?namespace[\w\s:]*|extern\s*)")
# What ends at the semicolon behind its braces.
_ENDS_LATER = re.compile(r"\s*(?:typedef\s+)?(?:struct|class|union|enum)\b[^()]*$|[^(]*=\s*$")
_FOR_NVRTC = "__CUDACC_RTC__"  # a header that has code for it needs no help
# The headers of types that the host's headers of NVIDIA bring along.
_TYPE_HEADERS = {"cuda_fp16.h": r"(?:__)?half2?", "cuda_bf16.h": r"__nv_bfloat162?|nv_bfloat162?"}
_FOR_THE_HOST = re.compile(
    r"\bstd\b|\bcuda[A-Z]\w*|\bcu(?:blas|rand|fft|sparse|solver|dnn)\w+|\bnccl[A-Z]\w+|\bMPI_\w+|\bglob_t\b|\bFILE\b|\btorch::|"
    r"\bpthread_\w+|\busing\s+namespace\s+(?!(?:nvcuda|cooperative_groups|cub|cuda|cute|cutlass)\b)"
)
# Headers that hold something for the device; NVRTC knows the others' part of the language already.
_DEVICE_HEADERS = re.compile(
    r"cuda_(?:fp|bf)\d|cuda_pipeline|cuda_awbarrier|mma|cooperative_groups|"
    r"cuda/|nv/|cub/(?!cub\.cuh)|cute/|cutlass|nvfunctional|math_constants"
)
# In place of cub/cub.cuh, which has code for the host.
_CUB = tuple(f"cub/block/block_{what}.cuh" for what in ("load", "store", "reduce", "scan", "exchange", "radix_sort"))
_CUB += tuple(f"cub/warp/warp_{what}.cuh" for what in ("reduce", "scan"))


def prepared(file: str, source: str, folders: Sequence[str], define: Sequence[str]) -> Program:
    """What NVRTC gets of a source, for any entry. folders: of headers. define: macros."""
    text = device_code(source, folders)
    own = headers(text, folders)
    options = (*COMPILE_OPTIONS, *(f"-D{macro}" for macro in define), *(f"-I{folder}" for folder in folders))
    if added := _prelude(source, own):
        own[HOST.name] = added
        options += (f"-include={HOST.name}",)
    if text != source:
        options += (HOST_AS_DEVICE,)
    return Program(file, text, "", options, headers=tuple(own.items()))


def device_code(source: str, folders: Sequence[str] = ()) -> str:
    """The source without host code, which NVRTC rejects: host functions, headers for the host, and declarations with
    std:: or the CUDA runtime. Spaces take its place, so the rest keeps its line numbers. A header in one of the folders
    stays.
    """
    bare = code(source)
    out = list(source)
    for match in _INCLUDE.finditer(source):
        name = match[1] or match[2]
        own = not re.match(r"helper_(?!math)", name) and any(Path(folder, name).is_file() for folder in folders)
        if bare[match.start()] == "#" and not own and not _DEVICE_HEADERS.match(name):
            out[match.start() : match.end()] = " " * len(match[0])
    for match in _HOST_MACRO.finditer(bare):
        if "__device__" not in match[0] and "__global__" not in match[0]:
            out[match.start("body") : match.end()] = blank(match["body"])
    declared = DIRECTIVE.sub(lambda match: blank(match[0]), bare)
    for start, end in _host_code(declared):
        start = end - len(declared[start:end].lstrip())  # directives before it stay
        out[start:end] = blank(source[start:end])
    return "".join(out)


def headers(source: str, folders: Sequence[str]) -> dict[str, str]:
    """Texts by the names in #include: of headers in the folders that device code includes, and that these include in
    turn, without host code unless they are written for NVRTC; and STANDARD for code that uses the standard library.
    """
    texts: dict[str, str] = {}
    waiting = [(source, list(folders))]
    while waiting:
        text, places = waiting.pop()
        for name in included(text):
            path = next((path for place in places if (path := Path(place, name)).is_file()), None)
            if path is None or name in texts:
                continue
            header = path.read_text(encoding="utf-8-sig", errors="replace")
            texts[name] = header if _FOR_NVRTC in header else device_code(header, [str(path.parent), *folders])
            waiting.append((texts[name], [str(path.parent), *folders]))
    if any(re.search(r"\bstd\s*::", code(text)) for text in (source, *texts.values())):
        texts[STANDARD.name] = STANDARD.read_text(encoding="utf-8")
    return texts


def included(source: str) -> list[str]:
    """Names of the headers that a source includes."""
    return re.findall(r'^[ \t]*#[ \t]*include[ \t]*[<"](.+?)[>"]', source, re.MULTILINE)


def is_of_nvidia(header: str) -> bool:
    """Whether it is one of NVIDIA's headers for device code."""
    return bool(_DEVICE_HEADERS.match(header)) or header == "cub/cub.cuh"


def _prelude(source: str, own: Mapping[str, str]) -> str:
    """A header to begin with: what a source and its own headers use of headers that NVRTC rejects, and don't define."""
    source = "\n".join((source, *own.values()))
    bare, names = code(source), included(source)
    used = set(re.findall(r"\w+", bare))
    functions = set(re.findall(r"\b(?:float|double|int|unsigned|void|bool)\s+(\w+)\s*\(", bare))
    defined = set(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", source, re.MULTILINE))
    defined |= set(re.findall(r"\btypedef\b[^;{}]*?(\w+)\s*;", bare))
    types = {header: re.compile(pattern) for header, pattern in _TYPE_HEADERS.items() if header not in names}
    needed = [header for header, pattern in types.items() if any(map(pattern.fullmatch, used - functions))]
    needed += _CUB if "cub/cub.cuh" in names else ()
    needed += [STANDARD.name] if STANDARD.name in own else []
    lines = [f"#include <{header}>" for header in needed]
    for line in HOST.read_text(encoding="utf-8").splitlines():
        kind, name, *_ = line.split()
        if kind in ("using", "#define") and name in used - defined:
            of_nvidia = name.endswith("_t") and any(map(is_of_nvidia, names))  # whose headers define these
            lines.append("#include <cuda/std/cstdint>" if of_nvidia else line)
    return "\n".join(dict.fromkeys(lines))


def _host_code(bare: str) -> Iterator[tuple[int, int]]:
    """Start and end of each declaration for the host, in a namespace or an extern "C" block too."""
    start = place = 0
    while match := re.compile(r"[{};]").search(bare, place):
        head, place = bare[start : match.start()], match.end()
        if match[0] == "{" and _NAMESPACE.fullmatch(head):
            start = place
            continue
        if match[0] == "{":
            place = closing(bare, match.start())
            if _ENDS_LATER.match(head):
                continue
        if match[0] != "}" and _is_for_the_host(head, bare[start:place], match[0] == "{"):
            yield start, place
        start = place


def _is_for_the_host(head: str, whole: str, has_body: bool) -> bool:
    declared = re.sub(r"\btemplate\s*<[^{}()<>]*(?:<[^<>]*>[^{}()<>]*)*>", " ", head)
    if re.search(r"__(?:global|device|constant|shared)__|\bconstexpr\b|\b[A-Z_]*DEVICE[A-Z_]*\b", declared):
        return False
    before = declared.partition("(")[0]  # parameters may have default values
    no_function = r"^\s*(?:struct|class|union|enum|static_assert)\b|=|\btypedef\b|\busing\b"
    is_function = before != declared and not re.search(no_function, before)
    if is_function and (has_body or len(before.split()) > 1):  # one word and its arguments may be a macro
        return True
    if _VARIABLE.match(declared) or _CONSTANT_POINTERS.match(declared):
        return True
    return bool(_FOR_THE_HOST.search(whole)) and "__device__" not in whole
