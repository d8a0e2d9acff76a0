"""A kernel's compiled code: its resources, its main loop in machine code, its instruction mix.

The instruction mix of the PTX is shown beside the gate's verdict and never changes it. The
measured error decides, since the counts include code that is never executed.
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
from worklog.problem.formats import SINGLE, Types

if TYPE_CHECKING:
    from worklog.emulator.assembled import Widths

MEMORY = ("LDS", "LDG", "STS", "STG", "LDGSTS", "LDL", "STL")
# Bits that an access moves by the modifier of its instruction; 32 without these modifiers.
WIDTHS = {
    "U8": "8",
    "S8": "8",
    "U16": "16",
    "S16": "16",
    "64": "64",
    "128": "128",
}

_LABEL = re.compile(r"^(\.L_x_\w+):")
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?\w+)\s+)?([A-Z][\w.]*)([^;]*);?")


def no_sass() -> str:
    """Return why there is no SASS without a disassembler, and how to install nvdisasm."""
    return (
        f"no SASS: nvdisasm is not installed; {install_command('sass')}, or install the CUDA "
        "toolkit"
    )


def disassembler() -> Path | None:
    """Return nvdisasm of the wheel nvidia-cuda-nvdisasm, else from PATH, else None."""
    nvidia = importlib.util.find_spec("nvidia")
    for folder in (nvidia.submodule_search_locations or []) if nvidia else []:
        for tool in sorted(Path(folder).glob("*/bin/nvdisasm*")):
            return tool
    on_path = shutil.which("nvdisasm")
    return Path(on_path) if on_path else None


def disassemble(cubin: bytes, tool: Path) -> str:
    """Return the cubin's code as nvdisasm prints it.

    tool: the path of nvdisasm

    nvdisasm runs once per machine (worklog.kernel.disk_cache).

    Raises WorklogError.
    """

    def run_tool() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "kernel.cubin"
            file.write_bytes(cubin)
            process = subprocess.run(
                [tool, "-c", file], stdin=subprocess.DEVNULL, capture_output=True
            )
        if process.returncode:
            message = process.stderr.decode(errors="replace").strip() or "no message"
            raise WorklogError(f"{tool} exited with {process.returncode}: {message}")
        return process.stdout

    return cached(tool, cubin, run_tool).decode()


@dataclass(frozen=True)
class MainLoop:
    """The loop with the most FFMA of a kernel's machine code; of equal loops, the shorter.

    Empty without a loop with an FFMA. Instructions that are never executed (@!PT) don't count.
    """

    # Of instructions by name, memory accesses also by width, most frequent first.
    counts: dict[str, int]
    register_reads: float  # registers that a multiply-add reads from the register file, on average
    # Share of the multiply-adds that read two or more registers from one bank of the register
    # file, which takes longer.
    bank_conflicts: float
    ahead: int  # FFMA from the last load of global memory to the next store to shared memory


# Instructions with their operands, or else with their guard.
_Code = list[tuple[str, str]]


def loop_of(cubin: bytes, symbol: str) -> MainLoop | None:
    """Return the main loop of compiled code.

    None without a disassembler (no_sass() says how to install it).
    """
    tool = disassembler()
    return None if tool is None else main_loop(disassemble(cubin, tool), symbol)


def main_loop(text: str, symbol: str) -> MainLoop:
    """Return the main loop in nvdisasm's text.

    symbol: the kernel's mangled name
    """
    loop = _longest_loop(*_parse(text, symbol))
    counts: Counter[str] = Counter()
    for name, _ in loop:
        operation, *modifiers = name.split(".")
        width = next((WIDTHS[modifier] for modifier in modifiers if modifier in WIDTHS), "32")
        counts[f"{operation}.{width}" if operation in MEMORY else operation] += 1
    reads = _register_reads(loop)
    conflicts = sum(
        len(registers) > len({register % 2 for register in registers}) for registers in reads
    )
    multiply_adds = max(1, len(reads))
    return MainLoop(
        counts=dict(counts.most_common()),
        register_reads=sum(map(len, reads)) / multiply_adds,
        bank_conflicts=conflicts / multiply_adds,
        ahead=_multiply_adds_ahead(loop),
    )


def _parse(text: str, symbol: str) -> tuple[_Code, dict[str, int]]:
    """Return a kernel's instructions, and the places of its labels among them."""
    code: _Code = []
    labels: dict[str, int] = {}
    for line in text.partition(f"\n.text.{symbol}:")[2].splitlines():
        if line.startswith(("\t.section", ".text.", "//---")):
            break
        label = _LABEL.match(line)
        instruction = _INSTRUCTION.match(line)
        if label:
            labels[label[1]] = len(code)
        elif instruction and instruction[2] != "!PT":
            guard = instruction[2] or ""
            code.append((instruction[3], instruction[4].strip() or guard))
    return code, labels


def _longest_loop(code: _Code, labels: dict[str, int]) -> _Code:
    """Return the loop with the most FFMA; of loops with as many, the shorter."""

    def rank(loop: _Code) -> tuple[int, int]:
        return sum(name.startswith("FFMA") for name, _ in loop), -len(loop)

    loop: _Code = []
    for index, (name, operands) in enumerate(code):
        target = re.search(r"\.L_x_\w+", operands) if name.startswith("BRA") else None
        start = labels.get(target[0], index + 1) if target else index + 1
        body = code[start : index + 1]
        # Assemblers put attempts to wait after the kernel's end. A jump back from there ends no
        # loop.
        if body and ("EXIT", "") not in body:
            loop = max(loop, body, key=rank)
    return loop


def _register_reads(loop: _Code) -> list[set[int]]:
    """Return the registers that each multiply-add reads from the register file.

    An operand marked `.reuse` stays in a cache with one entry per operand slot and bank (the
    register's number modulo 2), until another operand of that slot and bank is read. Source:
    Huerta et al. 2025, arXiv 2503.20481.
    """
    cache: dict[tuple[int, int], int | None] = {}
    reads: list[set[int]] = []
    for name, operands in loop:
        if not name.startswith("FFMA"):
            continue
        registers = set[int]()
        for slot, operand in enumerate(operands.split(",")[1:4]):
            if match := re.search(r"\bR(\d+)(\.reuse)?", operand):
                register = int(match[1])
                if cache.get((slot, register % 2)) != register:
                    registers.add(register)
                cache[slot, register % 2] = register if match[2] else None
        reads.append(registers)
    return reads


def _multiply_adds_ahead(loop: _Code) -> int:
    """Return the FFMA from the last load of global memory to the next store to shared memory."""
    names = [name.partition(".")[0] for name, _ in loop]
    if "LDG" not in names:
        return 0
    after_load = names[len(names) - names[::-1].index("LDG") :]
    if "STS" not in after_load:
        return 0
    return after_load[: after_load.index("STS")].count("FFMA")


OPCODES = {0x984: "LDS", 0x388: "STS", 0x988: "STS"}  # 0x988: the address adds a uniform register
BITS = {4: "32", 5: "64", 6: "128"}  # bits 73 to 75; below are the 8- and 16-bit ones
NEVER = 0xF  # the guard @!PT: assemblers leave instructions in the code that are not executed


def shared_widths(cubin: bytes, symbol: str) -> Widths:
    """Return the static counts of a kernel's shared loads and stores.

    Example: (("LDS.128", 16), ("LDS.32", 8), ("STS.32", 2)). PTX doesn't show them, because the
    assembler joins neighbouring accesses and unrolls loops. The encoding is that of sm_70 and
    later: 16 bytes per instruction. Empty if the cubin doesn't contain the kernel.

    Raises struct.error for bytes that aren't a 64-bit ELF file.
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
    """Return the bytes of an ELF file's section; empty if there is none with this name."""
    (first,) = struct.unpack_from("<Q", elf, 40)
    size, count, names_section = struct.unpack_from("<HHH", elf, 58)
    # Of each section: the offset of its name, its start and its length.
    headers = [struct.unpack_from("<I20xQQ", elf, first + number * size) for number in range(count)]
    for name_offset, start, length in headers:
        name_start = headers[names_section][1] + name_offset
        if elf[name_start : elf.index(b"\0", name_start)].decode() == name:
            return elf[start : start + length]
    return b""


VARIABLE = re.compile(
    r"^(?:\.(?:visible|weak) )?\.global (?:\.attribute\S* )?\.align \d+ \.\w+ ([$\w]+)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Compiled:
    """A kernel, compiled for an architecture."""

    program: Program
    symbol: str  # the entry's mangled name in the PTX and the cubin
    arch: str
    ptx: str
    cubin: bytes
    registers: int  # per thread
    # Local memory per thread, as ptxas reports it.
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int  # static, per block
    shared_accesses: Widths  # number of shared loads and stores in the machine code, by width
    log: str  # the output of NVRTC and ptxas, warnings included

    @property
    def has_resources(self) -> bool:
        """Whether ptxas has reported the resources. Nothing assembles clang's code."""
        return self.registers > 0

    @property
    def resources(self) -> dict[str, int]:
        """The resources for a run's `kernels`.

        Registers and bytes of local memory per thread, and static shared bytes per block; empty
        without has_resources.
        """
        if not self.has_resources:
            return {}
        return {
            "registers": self.registers,
            "local_bytes": self.stack_bytes,
            "shared_bytes": self.shared_bytes,
        }

    @cached_property
    def code(self) -> str:
        """PTX of the kernel, with the functions that it calls and that weren't inlined."""
        code, _ = self._reachable
        return code

    @cached_property
    def _reachable(self) -> tuple[str, dict[str, str]]:
        """The kernel's code, and the initial values of the module's variables that it reaches.

        The values are by name. What other kernels of the file call or name isn't part of either.
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
                mentions = re.findall(r"[$_A-Za-z][$\w]*", reached[name])
                waiting += [name for name in mentions if name in bodies or name in values]
        code = [body for name, body in bodies.items() if name in reached]
        return "\n".join(code), {name: values[name] for name in values if name in reached}

    @property
    def takes_dynamic_shared(self) -> bool:
        """True if the code names an array of dynamic shared memory."""
        return any(
            re.search(rf"{re.escape(name)}\b", self.code) for name in _DYNAMIC.findall(self.ptx)
        )

    @cached_property
    def mix(self) -> InstructionMix:
        """The instruction mix of the kernel and of the functions that weren't inlined."""
        counts = Counter[str]()
        operands = dict[str, None]()
        for name in _MNEMONIC.findall(self.code):
            counts.update(kind for kind, pattern in KINDS.items() if re.match(pattern, name))
            if re.match(KINDS[TENSOR], name):
                operands |= dict.fromkeys(part for part in name.split(".") if part in OPERANDS)
        return InstructionMix(dict(counts), tuple(operands))

    @property
    def variables(self) -> list[str]:
        """The kernel's `__device__` variables that keep their values between launches.

        Left out are constants, variables that are only declared, the compiler's variables
        (strings, tables of virtual functions), variables that the code only loads by name, and
        tables of functions that no store reaches.
        """
        code, values = self._reachable
        functions = {match["name"] for match in _BODY.finditer(self.ptx)}
        mentions = Counter(re.findall(r"[$\w]+", "\n".join((code, *values.values()))))
        loads = Counter(_LOADED.findall(code))
        names = list[str]()
        for name in VARIABLE.findall(self.ptx):
            is_of_compiler = name.startswith(("$", "_$_", "_ZTV", "__unnamed_"))
            if is_of_compiler or name not in values or mentions[name] <= loads[name]:
                continue
            is_of_functions = not functions.isdisjoint(re.findall(r"[$\w]+", values[name]))
            if not is_of_functions or self._may_write(name):
                names.append(name)
        return names

    def _may_write(self, variable: str) -> bool:
        """Return whether a store may reach a variable: true of code that the emulator can't run."""
        from worklog.emulator import load  # here: most code needs no emulator
        from worklog.emulator.flow import Flow
        from worklog.emulator.ptx import PtxError, UnsupportedInstruction

        try:
            written = Flow(load(self.ptx, self.symbol)).written
        except (PtxError, UnsupportedInstruction):
            return True
        return written is None or variable in written


OPERANDS = ("tf32", "f16", "bf16", "e4m3", "e5m2", "s8", "u8", "f64")
SHORT_CLASSES = ("tf32", "fp16", "bf16")
EIGHT_BITS = ("e4m3", "e5m2")
TENSOR = "tensor-core instructions"
SHORTENED = "conversions to a shorter format"
TRUNCATED = "sums or products that truncate"
_ARITHMETIC = r"(?:add|sub|mul|fma|mad)\b"
# Patterns of the instructions of each kind, such as
# mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 and fma.rz.ftz.f32.
KINDS = {
    TENSOR: r"(?:mma|wmma\.mma|wgmma\.mma_async|tcgen05\.mma)\b",
    SHORTENED: r"cvt\..*\b(?:tf32|b?f16(?:x2)?|e4m3x2|e5m2x2)\b.*\.f32$",
    "instructions that flush subnormals to zero": r".*\.ftz\b",
    "approximate functions": r".*\.(?:approx|full)\b",
    TRUNCATED: rf"{_ARITHMETIC}.*\.rz\b",
    "FP64 sums or products": rf"{_ARITHMETIC}.*\.f64$",
    (
        "masks from __activemask(), which may lack threads in the same branch (state a mask "
        "instead)"
    ): r"activemask\b",
}
# The name of a module's variable, and the rest of its declaration with its initial value.
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
# Also after a brace: NVIDIA's headers write "{  cvt.rn.f16.f32 %rs1, %f1;}" on one line.
_MNEMONIC = re.compile(r"(?:^|[{;])\s*(?:@!?%\w+\s+)?([a-z]\w*(?:\.[\w:]+)+)\s", re.MULTILINE)


def _body(ptx: str, start: int) -> str:
    """Return the text up to the brace that closes the brace before `start`."""
    depth = 1
    for brace in re.finditer(r"[{}]", ptx[start:]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return ptx[start : start + brace.start()]
    return ptx[start:]


@dataclass(frozen=True)
class InstructionMix:
    """The instructions of a kernel that say something about its precision."""

    counts: dict[str, int]  # by kind, of the KINDS that occur
    operands: tuple[str, ...] = ()  # types of the tensor cores' operands, as in PTX

    @property
    def notes(self) -> list[str]:
        """A line for each kind; empty for a kernel of plain FP32 instructions."""
        notes = []
        for kind in KINDS:
            if kind not in self.counts:
                continue
            name = kind
            if kind == TENSOR and self.operands:
                name = f"{kind} on {', '.join(self.operands)}"
            notes.append(f"{name}: {self.counts[kind]} in the PTX")
        return notes

    def warnings(self, claimed: str, types: Types = SINGLE) -> list[str]:
        """Return how the code contradicts the claimed precision class; never a verdict.

        types: the formats of the matrices. With 8-bit factors, the class is one of the sums that
            no user need claim
        """
        if types.has_eight_bits and claimed == types.default_precision:
            return []
        if eights := [type_ for type_ in self.operands if type_ in EIGHT_BITS]:
            return [
                (
                    f"{claimed} is claimed, and the code multiplies 8-bit floats "
                    f"({', '.join(eights)}), which are less precise than every precision class"
                )
            ]
        if claimed == "fp32" and TENSOR in self.counts:
            return [
                (
                    "fp32 is claimed, and the code uses tensor cores, whose sums truncate: "
                    "check a K as long as yours"
                )
            ]
        if claimed == "fp32" and TRUNCATED in self.counts:
            return [
                "fp32 is claimed, and the code truncates: state fp32-emulated if its sums truncate"
            ]
        if claimed in SHORT_CLASSES and not self.counts.keys() & {TENSOR, SHORTENED}:
            return [
                (
                    f"{claimed} is claimed, and the code has neither tensor-core instructions nor "
                    "conversions to it"
                )
            ]
        return []
