"""One compilation by NVRTC, in a process that worklog.kernel.nvrtc starts and ends.

A call of NVRTC can't be interrupted, and a source may make it endless. This file is run
alone, without the package, so that the process starts in well below 0.1 s. ctypes calls
NVRTC, because NVIDIA's Python bindings are another 30 MB.
"""

import ctypes
import json
import os
import re
import sys
from collections.abc import Iterable


def compiled(
    library: str, name: str, source: str, entry: str, options: list[str], headers: dict[str, str]
) -> dict[str, str]:
    """Compile a source.

    library: the path of NVRTC
    name: the file name for messages
    source: the text
    entry: the kernel, with its template arguments
    options: for NVRTC
    headers: names in #include, and texts

    The result has "log", of NVRTC and ptxas, and "failed", the name of the error or "". If
    "failed" is "", it also has "symbol", the entry's mangled name ("" if the source has no
    such kernel), "ptx", and "cubin" as hexadecimal digits.
    """
    nvrtc = ctypes.CDLL(library)
    handle = ctypes.c_void_p()
    lowered = ctypes.c_char_p()
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(function: str, *arguments: object) -> str:
        """Call NVRTC. Return the name of the error, as NVRTC_ERROR_COMPILATION, or ""."""
        result = getattr(nvrtc, f"nvrtc{function}")(*arguments)
        return nvrtc.nvrtcGetErrorString(result).decode() if result else ""

    def read(output: str) -> bytes:
        """Return an output: ProgramLog, PTX or CUBIN."""
        size = ctypes.c_size_t()
        call(f"Get{output}Size", handle, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        call(f"Get{output}", handle, data)
        return data.raw

    def text(output: str) -> str:
        """Return an output as text."""
        return read(output).rstrip(b"\0 \n").decode(errors="replace")

    failed = call(
        "CreateProgram",
        ctypes.byref(handle),
        source.encode(),
        name.encode(),
        len(headers),
        _c_strings(headers.values()),
        _c_strings(headers),
    )
    if not failed:
        failed = call("AddNameExpression", handle, entry.encode())
    if not failed:
        failed = call("CompileProgram", handle, len(options), _c_strings(options))
    log = text("ProgramLog") if handle.value else ""
    if failed:
        return {"log": log, "failed": failed}
    call("GetLoweredName", handle, entry.encode(), ctypes.byref(lowered))
    symbol = (lowered.value or b"").decode()
    # NVRTC puts the current directory before the name: the same source must give the same text
    # everywhere.
    ptx = re.sub(r'(\.file\s+\d+ ")[^"]*/', r"\1", text("PTX"))
    if not re.search(rf"\.entry\s+{re.escape(symbol)}\b", ptx):
        symbol = ""
    return {"log": log, "failed": "", "symbol": symbol, "ptx": ptx, "cubin": read("CUBIN").hex()}


def _c_strings(texts: Iterable[str]) -> "ctypes.Array[ctypes.c_char_p]":
    """Return an array of C strings."""
    encoded = [text.encode() for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "w") as answer:
        os.dup2(2, 1)  # nothing else may write into the answer
        json.dump(compiled(*json.load(sys.stdin)), answer)
