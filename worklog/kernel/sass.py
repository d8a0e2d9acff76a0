"""A kernel's main loop in machine code, by NVIDIA's disassembler: the number of FFMA and of loads, and their widths.
PTX does not show this, because ptxas decides which scalar loads become one load of 16 bytes.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from worklog.errors import WorklogError

HOW_TO_GET = "no SASS: nvdisasm is not installed; pip install 'gemm-worklog[sass]', or install the CUDA toolkit"
MEMORY = ("LDS", "LDG", "STS", "STG", "LDGSTS", "LDL", "STL")
WIDTHS = {"U8": "8", "S8": "8", "U16": "16", "S16": "16", "64": "64", "128": "128"}  # others move 32 bits

_LABEL = re.compile(r"^(\.L_x_\w+):")
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?\w+)\s+)?([A-Z][\w.]*)([^;]*);?")


def disassembler() -> Path | None:
    """nvdisasm of the wheel nvidia-cuda-nvdisasm, else the one on PATH."""
    nvidia = importlib.util.find_spec("nvidia")
    for folder in (nvidia.submodule_search_locations or []) if nvidia else []:
        for found in sorted(Path(folder).glob("*/bin/nvdisasm*")):
            return found
    on_path = shutil.which("nvdisasm")
    return Path(on_path) if on_path else None


def disassemble(cubin: bytes, tool: Path) -> str:
    """The cubin's code as nvdisasm prints it. Raises WorklogError."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        done = subprocess.run([tool, "-c", file], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise WorklogError(f"{tool} exited with {done.returncode}: {done.stderr.strip() or 'no message'}")
    return done.stdout


def instructions(text: str, symbol: str) -> list[str]:
    """Names of one kernel's instructions in order, with their modifiers: FFMA.FTZ, HMMA.1688.F32.TF32."""
    return [name for name, _ in _parse(text, symbol)[0]]


def main_loop(text: str, symbol: str) -> dict[str, int]:
    """Instructions of the loop with the most FFMA, by name, memory accesses by width too, most frequent first.

    Empty without a loop with an FFMA. Instructions that are never executed (@!PT) do not count.
    """
    body = [name for name, _ in _main_loop(text, symbol)]
    return dict(Counter(map(_short, body)).most_common()) if _multiply_adds(body) else {}


def register_reads(text: str, symbol: str) -> float:
    """Registers that a multiply-add of the main loop reads from the register file, on average; 0 without an FFMA.

    An operand marked `.reuse` stays in a cache with one entry per operand slot and register bank (the register's number
    modulo 2), until another operand of that slot and bank is read. Source: Huerta et al. 2025, arXiv 2503.20481.
    """
    cached: dict[tuple[int, int], int | None] = {}
    multiply_adds = reads = 0
    for name, operands in _main_loop(text, symbol):
        if not name.startswith("FFMA"):
            continue
        multiply_adds += 1
        for slot, operand in enumerate(operands.split(",")[1:4]):
            found = re.search(r"\bR(\d+)(\.reuse)?", operand)
            if found:
                register = int(found[1])
                reads += cached.get((slot, register % 2)) != register
                cached[slot, register % 2] = register if found[2] else None
    return reads / multiply_adds if multiply_adds else 0.0


def _main_loop(text: str, symbol: str) -> list[tuple[str, str]]:
    """Instructions of the loop with the most FFMA, with their operands; the shorter loop where two have as many."""
    code, labels = _parse(text, symbol)
    best: list[tuple[str, str]] = []
    for index, (name, operands) in enumerate(code):
        target = re.search(r"\.L_x_\w+", operands) if name.startswith("BRA") else None
        start = labels.get(target.group(), index + 1) if target else index + 1
        if start <= index:
            body = code[start : index + 1]
            best = max(best, body, key=lambda loop: (_multiply_adds([name for name, _ in loop]), -len(loop)))
    return best


def _parse(text: str, symbol: str) -> tuple[list[tuple[str, str]], dict[str, int]]:
    """One kernel's instructions in order, and the places of its labels among them."""
    start = text.find(f"\n.text.{symbol}:")
    code: list[tuple[str, str]] = []
    labels: dict[str, int] = {}
    for line in text[start + 1 :].splitlines()[1:] if start >= 0 else []:
        if line.startswith(("\t.section", ".text.", "//---")):
            break
        label, instruction = _LABEL.match(line), _INSTRUCTION.match(line)
        if label:
            labels[label[1]] = len(code)
        elif instruction and instruction[2] != "!PT":
            code.append((instruction[3], instruction[4]))
    return code, labels


def _multiply_adds(names: list[str]) -> int:
    return sum(name.startswith("FFMA") for name in names)


def _short(name: str) -> str:
    """FFMA, IADD3, LDS.128: the operation, and the bits per thread of a memory access."""
    operation, *rest = name.split(".")
    if operation not in MEMORY:
        return operation
    return f"{operation}.{next((WIDTHS[part] for part in rest if part in WIDTHS), '32')}"
