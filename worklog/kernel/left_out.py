"""Lines of a kernel that the compiler never gets: #if or the architecture leaves them out."""

from __future__ import annotations

from collections.abc import Collection

from worklog.kernel.kernel import Kernel
from worklog.kernel.preprocessor import left_out


def left_out_lines(kernel: Kernel, arch: str, compiled_lines: Collection[int]) -> list[range]:
    """Return the lines that #if leaves out of the functions that are compiled.

    arch: the architecture, such as "sm_90"
    compiled_lines: those that have instructions
    """
    source, define, headers = kernel.unit.arguments
    texts = [*(text for _, text in headers), source]
    offset = sum(text.count("\n") + 1 for text in texts[:-1])
    architecture = f"__CUDA_ARCH__={arch.removeprefix('sm_')}0"
    functions = list[range]()
    for function in kernel.unit.functions:
        if function.is_own:
            body = function.body
            lines = range(function.line(body.start_byte), function.line(body.end_byte) + 1)
            if any(line in lines for line in compiled_lines):
                functions.append(lines)
    parts = list[range]()
    for joined_lines in left_out("\n".join(texts), [*define, architecture]):
        lines = range(joined_lines.start - offset, joined_lines.stop - offset)
        is_compiled = any(line in lines for line in compiled_lines)
        if not is_compiled and any(lines.start in function for function in functions):
            parts.append(lines)
    return parts


def in_words(arch: str, parts: Collection[range]) -> str:
    """Return the clause of a verdict about lines that were left out; "" without any."""
    texts = list[str]()
    for lines in parts:
        text = f"line {lines.start}"
        if len(lines) > 1:
            text = f"lines {lines.start} to {lines.stop - 1}"
        texts.append(text)
    return f"not compiled for {arch}: {', '.join(texts)}" if texts else ""
