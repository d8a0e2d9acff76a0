"""What compiled code says of a kernel: blocks per SM, its main loop in machine code, and its instruction mix.

The instruction mix, of the PTX, is shown beside the gate's
verdict and never changes it: the measured error decides, since the counts include code that is never executed.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import struct
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from worklog.errors import WorklogError, install_command
from worklog.kernel.device import Program
from worklog.kernel.disk_cache import cached

if TYPE_CHECKING:
    from worklog.emulator.assembled import Widths

MEMORY = ("LDS", "LDG", "STS", "STG", "LDGSTS", "LDL", "STL")
WIDTHS = {
    "U8": "8",
    "S8": "8",
    "U16": "16",
    "S16": "16",
    "64": "64",
    "128": "128",
}  # others move 32 bits

_LABEL = re.compile(r"^(\.L_x_\w+):")
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?\w+)\s+)?([A-Z][\w.]*)([^;]*);?")


def no_sass() -> str:
    """Why there is no SASS without a disassembler, and how to get one."""
    return f"no SASS: nvdisasm is not installed; {install_command('sass')}, or install the CUDA toolkit"


def disassembler() -> Path | None:
    """nvdisasm of the wheel nvidia-cuda-nvdisasm, else the one on PATH."""
    nvidia = importlib.util.find_spec("nvidia")
    for folder in (nvidia.submodule_search_locations or []) if nvidia else []:
        for tool in sorted(Path(folder).glob("*/bin/nvdisasm*")):
            return tool
    on_path = shutil.which("nvdisasm")
    return Path(on_path) if on_path else None


def disassemble(cubin: bytes, tool: Path) -> str:
    """The cubin's code as nvdisasm prints it, once per machine (worklog.kernel.disk_cache). Raises WorklogError."""

    def disassembled() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "kernel.cubin"
            file.write_bytes(cubin)
            done = subprocess.run([tool, "-c", file], stdin=subprocess.DEVNULL, capture_output=True)
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip() or "no message"
            raise WorklogError(f"{tool} exited with {done.returncode}: {said}")
        return done.stdout

    return cached(tool, cubin, disassembled).decode()


@dataclass(frozen=True)
class MainLoop:
    """The loop with the most FFMA of a kernel's machine code; the shorter loop where two have as many. Empty without a
    loop with an FFMA. Instructions that are never executed (@!PT) do not count.

    counts: of instructions by name, memory accesses by width too, most frequent first. register_reads: registers that
    a multiply-add reads from the register file, on average. bank_conflicts: share of the multiply-adds that read two
    registers or more from one bank of the register file, which takes longer. ahead: FFMA from the last load of global
    memory to the next store to shared memory.
    """

    counts: dict[str, int]
    register_reads: float
    bank_conflicts: float
    ahead: int


def loop_of(cubin: bytes, symbol: str) -> MainLoop | None:
    """The main loop of compiled code; None without a disassembler (no_sass says how to get one)."""
    tool = disassembler()
    return None if tool is None else main_loop(disassemble(cubin, tool), symbol)


def main_loop(text: str, symbol: str) -> MainLoop:
    """From nvdisasm's text. An operand marked `.reuse` stays in a cache with one entry per operand slot and bank (the
    register's number modulo 2), until another operand of that slot and bank is read. Source: Huerta et al. 2025, arXiv
    2503.20481.
    """
    code: list[tuple[str, str]] = []  # instructions with their operands, or else their guard
    labels: dict[str, int] = {}  # their places in the code
    for line in text.partition(f"\n.text.{symbol}:")[2].splitlines():
        if line.startswith(("\t.section", ".text.", "//---")):
            break
        label = _LABEL.match(line)
        instruction = _INSTRUCTION.match(line)
        if label:
            labels[label[1]] = len(code)
        elif instruction and instruction[2] != "!PT":
            code.append((instruction[3], instruction[4].strip() or instruction[2] or ""))
    loop: list[tuple[str, str]] = []
    for index, (name, operands) in enumerate(code):
        target = re.search(r"\.L_x_\w+", operands) if name.startswith("BRA") else None
        start = labels.get(target[0], index + 1) if target else index + 1
        # A jump back from behind the kernel's end, where assemblers put attempts to wait, ends no loop.
        if start <= index and ("EXIT", "") not in (body := code[start : index + 1]):
            loop = max(
                loop,
                body,
                key=lambda loop: (sum(name.startswith("FFMA") for name, _ in loop), -len(loop)),
            )
    counts: Counter[str] = Counter()
    cache: dict[tuple[int, int], int | None] = {}
    reads: list[set[int]] = []
    for name, operands in loop:
        operation, *modifiers = name.split(".")
        width = next((WIDTHS[modifier] for modifier in modifiers if modifier in WIDTHS), "32")
        counts[f"{operation}.{width}" if operation in MEMORY else operation] += 1
        if not name.startswith("FFMA"):
            continue
        reads.append(set())
        for slot, operand in enumerate(operands.split(",")[1:4]):
            if part := re.search(r"\bR(\d+)(\.reuse)?", operand):
                register = int(part[1])
                if cache.get((slot, register % 2)) != register:
                    reads[-1].add(register)
                cache[slot, register % 2] = register if part[2] else None
    conflicts = sum(
        len(registers) > len({register % 2 for register in registers}) for registers in reads
    )
    multiplied = max(1, len(reads))
    names = [name.partition(".")[0] for name, _ in loop]
    fetched = len(names) - names[::-1].index("LDG") if "LDG" in names else len(names)
    stored = names.index("STS", fetched) if "STS" in names[fetched:] else fetched
    ahead = names[fetched:stored].count("FFMA")
    return MainLoop(
        dict(counts.most_common()), sum(map(len, reads)) / multiplied, conflicts / multiplied, ahead
    )


OPCODES = {0x984: "LDS", 0x388: "STS", 0x988: "STS"}  # 0x988: the address adds a uniform register
BITS = {4: "32", 5: "64", 6: "128"}  # bits 73 to 75; below are the 8- and 16-bit ones
NEVER = 0xF  # the guard @!PT: assemblers leave instructions in the code that are not executed


def shared_widths(cubin: bytes, symbol: str) -> Widths:
    """Static counts of a kernel's shared loads and stores: (("LDS.128", 16), ("LDS.32", 8), ("STS.32", 2)). PTX doesn't
    show them, because the assembler joins neighbouring accesses and unrolls loops. The encoding is that of sm_70 and
    later: 16 bytes per instruction. Empty if the cubin doesn't hold the kernel. Raises struct.error for bytes that are
    not a 64-bit ELF file.
    """
    code = np.frombuffer(section(cubin, f".text.{symbol}"), "<u8").reshape(-1, 2)
    operations = code[:, 0] & np.uint64(0xFFF)
    guards = code[:, 0] >> np.uint64(12) & np.uint64(0xF)
    widths = code[:, 1] >> np.uint64(9) & np.uint64(7)
    counts: Counter[str] = Counter()
    for opcode, name in OPCODES.items():
        executed = (operations == opcode) & (guards != NEVER)
        for width, count in Counter(widths[executed].tolist()).items():
            counts[f"{name}.{BITS.get(width, 'narrow')}"] += count
    return tuple(sorted(counts.items()))


def section(elf: bytes, name: str) -> bytes:
    """A section's bytes by its name."""
    (first,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    # Of each section: the offset of its name, its start and its length.
    headers = [struct.unpack_from("<I20xQQ", elf, first + number * size) for number in range(count)]
    for at, start, length in headers:
        text = headers[names][1] + at
        if elf[text : elf.index(b"\0", text)].decode() == name:
            return elf[start : start + length]
    return b""


VARIABLE = re.compile(
    r"^(?:\.(?:visible|weak) )?\.global (?:\.attribute\S* )?\.align \d+ \.\w+ ([$\w]+)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Compiled:
    """One kernel, compiled for one architecture.

    symbol: the entry's mangled name in the PTX and the cubin. registers: per thread. stack_bytes, spill_store_bytes,
    spill_load_bytes: local memory per thread, as ptxas reports it. shared_bytes: static, per block. shared_accesses:
    number of shared loads and stores in the machine code, by width. log: the output of NVRTC and ptxas, warnings
    included.
    """

    program: Program
    symbol: str
    arch: str
    ptx: str
    cubin: bytes
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int
    shared_accesses: Widths
    log: str

    @property
    def resources(self) -> dict[str, int]:
        """Registers and bytes of local memory per thread, and static shared bytes per block, for a run's `kernels`."""
        return {
            "registers": self.registers,
            "local_bytes": self.stack_bytes,
            "shared_bytes": self.shared_bytes,
        }

    @cached_property
    def code(self) -> str:
        """PTX of the kernel, with the functions that it calls and that were not inlined."""
        code, _ = self._own
        return code

    @cached_property
    def _own(self) -> tuple[str, dict[str, str]]:
        """The kernel's code, and the initial values of the module's variables that it reaches, by name.

        What other kernels of the file call or name isn't part of either.
        """
        ptx = _COMMENT.sub("", self.ptx)
        bodies: dict[str, str] = {
            match["name"]: _body(ptx, match.end()) for match in _BODY.finditer(ptx)
        }
        values: dict[str, str] = dict(_DECLARED.findall(ptx))
        reached = dict[str, str]()
        waiting = [self.symbol]
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached[name] = bodies.get(name, values.get(name, ""))
                named = re.findall(r"[$_A-Za-z][$\w]*", reached[name])
                waiting += [word for word in named if word in bodies or word in values]
        code = [body for name, body in bodies.items() if name in reached]
        return "\n".join(code), {name: values[name] for name in values if name in reached}

    @property
    def takes_dynamic_shared(self) -> bool:
        """Whether its code names an array of dynamic shared memory."""
        return any(
            re.search(rf"{re.escape(name)}\b", self.code) for name in _DYNAMIC.findall(self.ptx)
        )

    @cached_property
    def mix(self) -> InstructionMix:
        """Of the kernel, with the functions that were not inlined."""
        names = _MNEMONIC.findall(self.code)
        counts = Counter(
            kind for name in names for kind, pattern in KINDS.items() if re.match(pattern, name)
        )
        tensor = [name for name in names if re.match(KINDS[TENSOR], name)]
        operands = dict.fromkeys(
            part for name in tensor for part in name.split(".") if part in OPERANDS
        )
        return InstructionMix(dict(counts), tuple(operands))

    @property
    def variables(self) -> list[str]:
        """`__device__` variables of the kernel, which keep their values, without constants, what is only declared, the
        compiler's own (strings, tables of virtual functions), and those that the code only loads by their names.
        """
        code, values = self._own
        named = Counter(re.findall(r"[$\w]+", "\n".join((code, *values.values()))))
        loaded = Counter(_LOADED.findall(code))
        return [
            name
            for name in VARIABLE.findall(self.ptx)
            if not name.startswith(("$", "_ZTV", "__unnamed_"))
            and name in values
            and named[name] > loaded[name]
        ]


OPERANDS = ("tf32", "f16", "bf16", "e4m3", "e5m2", "s8", "u8", "f64")
SHORT_CLASSES = ("tf32", "fp16", "bf16")
TENSOR = "tensor-core instructions"
SHORTENED = "conversions to a shorter format"
TRUNCATED = "sums or products that truncate"
_ARITHMETIC = r"(?:add|sub|mul|fma|mad)\b"
# Patterns of the instructions of each kind, such as mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32, fma.rz.ftz.f32.
KINDS = {
    TENSOR: r"(?:mma|wmma\.mma|wgmma\.mma_async|tcgen05\.mma)\b",
    SHORTENED: r"cvt\..*\b(?:tf32|b?f16(?:x2)?)\b.*\.f32$",
    "instructions that flush subnormals to zero": r".*\.ftz\b",
    "approximate functions": r".*\.(?:approx|full)\b",
    TRUNCATED: rf"{_ARITHMETIC}.*\.rz\b",
    "FP64 sums or products": rf"{_ARITHMETIC}.*\.f64$",
    "masks from __activemask(), which may lack threads in the same branch (state a mask instead)": r"activemask\b",
}
# Of a module's variable, its name and the rest of its declaration, with its initial value.
_DECLARED = re.compile(
    r"^(?:\.(?:visible|weak) )?\.(?:global|const) .*\.align \d+ \.\w+ ([$\w]+)([^;]*);",
    re.MULTILINE,
)
_DYNAMIC = re.compile(r"\.extern\s+\.shared\s[^;]*?([\w$]+)\[\]")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LOADED = re.compile(r"\bld\.[\w.:]+\s[^;]*\[([$\w]+)")
_BODY = re.compile(
    r"\.(?P<kind>entry|func)\s+(?:\([^)]*\)\s*)?(?P<name>[\w$]+)\s*(?:\([^)]*\))?[^{;]*\{"
)
# Also behind a brace: NVIDIA's headers write "{  cvt.rn.f16.f32 %rs1, %f1;}" on one line.
_MNEMONIC = re.compile(r"(?:^|[{;])\s*(?:@!?%\w+\s+)?([a-z]\w*(?:\.[\w:]+)+)\s", re.MULTILINE)


def _body(ptx: str, start: int) -> str:
    """Return the text up to the brace that closes the one before `start`."""
    depth = 1
    for brace in re.finditer(r"[{}]", ptx[start:]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return ptx[start : start + brace.start()]
    return ptx[start:]


@dataclass(frozen=True)
class InstructionMix:
    """counts: by kind, of those of KINDS that occur. operands: types of the tensor cores' operands, as in PTX."""

    counts: dict[str, int]
    operands: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """A line for each kind; empty for a kernel of plain FP32 instructions."""
        on = {TENSOR: f" on {', '.join(self.operands)}"} if self.operands else {}
        return [
            f"{kind}{on.get(kind, '')}: {self.counts[kind]} in the PTX"
            for kind in KINDS
            if kind in self.counts
        ]

    def warnings(self, claimed: str) -> list[str]:
        """Where the code contradicts the claimed precision class; never a verdict."""
        if claimed == "fp32" and TENSOR in self.counts:
            return [
                "fp32 is claimed, and the code uses tensor cores, whose sums truncate: check a K as long as yours"
            ]
        if claimed == "fp32" and TRUNCATED in self.counts:
            return [
                "fp32 is claimed, and the code truncates: state fp32-emulated if its sums truncate"
            ]
        if claimed in SHORT_CLASSES and not self.counts.keys() & {TENSOR, SHORTENED}:
            return [
                f"{claimed} is claimed, and the code has neither tensor-core instructions nor conversions to it"
            ]
        return []
