"""Random PTX.

Right programs give what was recorded, wrong ones findings or an error that says why.
"""

import re
import subprocess
import sys
import time
import zlib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.emulator.helpers import HEAD
from worklog.emulator import launch, load
from worklog.emulator.ptx import Param
from worklog.emulator.reports import BudgetExceeded
from worklog.errors import WorklogError
from worklog.kernel.device import Program as Source
from worklog.kernel.nvrtc import compile_cuda

ROOT = Path(__file__).parents[2]
WORDS = 64  # of the input
OWN = 4  # elements of global and of shared memory that belong to a thread
REGISTERS = {"r": 6, "d": 4, "h": 3, "f": 5, "e": 4, "p": 4}
TYPES = {"r": "u32", "d": "u64", "h": "u16", "f": "f32", "e": "f64"}
SLOTS = [f"%{kind}{n}" for kind in TYPES for n in range(REGISTERS[kind])]
STRIDE = 8 + 4 * OWN + 8 * len(SLOTS)  # bytes of the output that belong to a thread
RECORDED, FORMS = (
    [line for line in part.splitlines() if line[0] != "#"]
    for part in Path(__file__).with_name("programs.txt").read_text(encoding="utf-8").split("\n\n")
)
ROWS = [(line[0], *form.split()) for line in FORMS for form in line[2:].split(" | ")]


class Program:
    """A random kernel without races.

    Each thread uses its own elements of the output and of shared memory, reads any of the
    input's, and gives a number to another thread between two barriers. The last words count with
    atomics.
    """

    def __init__(self, random: Random, threads: int) -> None:
        self.random = random
        self.threads = threads
        self.lines = list[str]()
        self.labels = 0
        for _ in range(random.randint(1, 12)):
            self.statement(depth=0)

    def any(self, kind: str) -> str:
        """Return a register or a literal."""
        random = self.random
        if kind == "N":
            return str(
                random.choice([0, 1, 5, 8, 31, 32, 33, 63, 64, 255, random.randrange(2**16)])
            )
        if kind == "L":
            return str(random.randrange(256))
        if kind == "R" and random.random() < 0.5:
            return str(random.choice([0, 1, 2, 31, 2**31 - 1, random.randrange(2**31)]))
        kind = kind.lower()
        return f"%{kind}{random.randrange(REGISTERS[kind])}"

    def statement(self, depth: int) -> None:
        """One instruction, a memory access, a branch, a loop, or an exchange between threads."""
        random = self.random
        add = self.lines.append
        what = random.random()
        if what < 0.6 or (depth and what > 0.9) or (depth == 3 and what > 0.78):
            result, opcode, *kinds = random.choice(ROWS)
            guard = f"@{random.choice(['', '!'])}{self.any('p')} " if random.random() < 0.2 else ""
            add(f"{guard}{opcode} {', '.join([self.any(result), *map(self.any, kinds)])};")
        elif what < 0.66:
            sign = random.choice("us")
            name = random.choice(["div", "rem"])
            add(f"and.b32 %r6, {self.any('r')}, 32767;\nadd.u32 %r6, %r6, 1;")
            add(f"{name}.{sign}32 {self.any('r')}, {self.any('r')}, %r6;")
        elif what < 0.78:
            self.access()
        elif what < 0.9:
            self.labels += 1
            end = f"END{self.labels}"
            top = f"TOP{self.labels}"
            counter = f"%r{8 + self.labels % 8}" if depth == 0 else ""
            if (
                counter and random.random() < 0.5
            ):  # a loop, of the same length for all threads or not
                add(f"and.b32 {counter}, {random.choice(['%r16', '3', '%r7'])}, 3;\n{top}:")
                for _ in range(random.randint(1, 4)):
                    self.statement(depth + 1)
                add(
                    f"setp.ne.u32 %p6, {counter}, 0;\nsub.u32 {counter}, {counter}, 1;\n@%p6 bra "
                    f"{top};"
                )
                return
            add(f"@{random.choice(['', '!'])}{self.any('p')} bra {end};")
            for _ in range(random.randint(1, 4)):
                self.statement(depth + 1)
            add(f"{end}:")
        elif what < 0.95:
            own = "%d6"
            other = "%d7"
            add(f"st.shared.u32 [{own}], {self.any('r')};\nbar.sync 0;")
            add(
                f"xor.b32 %r6, %r16, {random.randrange(32)};\nmul.wide.u32 {other}, %r6, {4 * OWN};"
            )
            add(f"ld.shared.u32 {self.any('r')}, [{other}];\nbar.sync 0;")
        elif random.random() < 0.5:
            mode, c = random.choice(
                [
                    ("bfly", 31),
                    ("idx", 31),
                    ("up", 0),
                    ("down", 31),
                    ("bfly", 0x1C03),
                    ("idx", 0x1807),
                ]
            )
            count = random.choice([self.any("r"), str(random.randrange(32))])
            add(f"shfl.sync.{mode}.b32 {self.any('r')}, {self.any('r')}, {count}, {c}, -1;")
        else:
            mode = random.choice(["ballot.b32", "any.pred", "all.pred", "uni.pred"])
            result = self.any("r" if mode == "ballot.b32" else "p")
            add(f"vote.sync.{mode} {result}, {self.any('p')}, -1;")

    def access(self) -> None:
        """Write a load or a store.

        %d4 is the input, %d5 the thread's part of the output, %d6 of shared memory.
        """
        random = self.random
        add = self.lines.append
        if random.random() < 0.2:
            operation = random.choice(
                ["add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32"]
            )
            place = 4 * ["add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32"].index(
                operation
            )
            add(f"red.global.{operation} [%d8+{place}], {self.any('R')};")
        elif random.random() < 0.4:
            kind, type_ = random.choice(
                ["r u32", "r s8", "r u16", "d s32", "d u64", "h u8", "f f32", "e f64"]
            ).split()
            size = int(type_[1:]) // 8
            add(
                f"and.b32 %r6, {self.any('r')}, {4 * WORDS - size};\nmul.wide.u32 %d7, %r6, "
                "1;\nadd.u64 %d7, %d7, %d4;"
            )
            add(f"ld.global.{type_} {self.any(kind)}, [%d7];")
        else:
            kind, type_ = random.choice(["r u32", "r u8", "h u16", "d u64", "f f32"]).split()
            space, base = random.choice([("global", "%d5"), ("shared", "%d6")])
            if kind == "f":  # apart from numbers, because NaN has many patterns
                place = "%d5"
                offset = random.choice([0, 4])
                space = "global"
            else:
                place = base
                offset = random.randrange(0, 4 * OWN, int(type_[1:]) // 8)
                offset += 8 if space == "global" else 0
            if random.random() < 0.5:
                add(f"st.{space}.{type_} [{place}+{offset}], {self.any(kind)};")
            else:
                add(f"ld.{space}.{type_} {self.any(kind)}, [{place}+{offset}];")

    def text(self) -> str:
        """random.ptx: all registers have values before, and are written to the output behind."""
        loads = [f"ld.global.{TYPES[slot[1]]} {slot}, [%d7+{8 * int(slot[2:])}];" for slot in SLOTS]
        loads += [f"setp.lt.s32 %p{n}, %r{n}, {7 * n};" for n in range(REGISTERS["p"])]
        stores = [
            f"st.global.{TYPES[slot[1]]} [%d5+{8 + 4 * OWN + 8 * n}], {slot};"
            for n, slot in enumerate(SLOTS)
        ]
        for n in range(REGISTERS["p"]):
            stores.append(
                f"selp.b32 %r{n}, 1, 0, %p{n};\nst.global.u8 [%d5+{8 + 4 * OWN + 8 * n + 4}], "
                f"%r{n};"
            )
        numbers = {"TILE": 4 * OWN * self.threads, "STRIDE": STRIDE, "OWN": 4 * OWN}
        text = HEAD + Path(__file__).with_name("random.ptx").read_text(encoding="utf-8")
        for name, new in {**numbers, "LOADS": loads, "BODY": self.lines, "STORES": stores}.items():
            text = text.replace(name, "\n".join(new) if isinstance(new, list) else str(new))
        return text


def one_nan(data: np.ndarray) -> np.ndarray:
    """Return the output with one pattern for NaN where floats are."""
    rows = data.reshape(-1, STRIDE).copy()
    for start, count, dtype in ((0, 2, "u4"), *((8 + 4 * OWN + 8 * n, 1, dict(f="u4", e="u8")[slot[1]])
                                                for n, slot in enumerate(SLOTS) if slot[1] in "fe")):  # fmt: skip
        size = int(dtype[1])
        words = np.ascontiguousarray(rows[:, start : start + size * count]).view(dtype)
        limit = 0x7F800000 if size == 4 else 0x7FF << 52
        words[(words & (2 ** (8 * size - 1) - 1)) > limit] = 2 ** (8 * size - 1) - 1
        rows[:, start : start + size * count] = words.view(np.uint8)
    return rows


def inputs(random: Random) -> np.ndarray:
    """Numbers of all kinds, which are floats of 32 and 64 bits, too."""
    some = [
        0,
        1,
        2**31,
        2**32 - 1,
        0x3F800000,
        0x7F800000,
        0xFF800000,
        0x7FFFFFFF,
        0x80000001,
        0x00800000,
        0x7F7FFFFF,
    ]
    words = [
        random.choice([*some, random.randrange(2**32), 0x3F000000 + random.randrange(2**25)])
        for _ in range(WORDS)
    ]
    return np.array(words, np.uint32)


def program(seed: int) -> tuple[str, list[np.ndarray], int, int]:
    """PTX, arguments, blocks and threads."""
    random = Random(seed)
    threads = random.choice([32, 64])
    blocks = random.choice([1, 2])
    arrays = [inputs(random), np.zeros(blocks * threads * STRIDE, np.uint8), np.zeros(24, np.uint8)]
    return Program(random, threads).text(), arrays, blocks, threads


def crc(arrays: list[np.ndarray]) -> str:
    """Of what a program has written."""
    return f"{zlib.crc32(one_nan(arrays[1]).tobytes() + arrays[2].tobytes()):08x}"


def test_a_random_program_gives_what_was_recorded():
    """And no finding."""
    for seed, right in map(str.split, RECORDED):
        text, arrays, blocks, threads = program(int(seed))
        result = launch(load(text, "k"), (blocks,), threads, arrays, budget=100_000)
        assert result.findings == () and crc(arrays) == right, f"program {seed}:\n{text}"


ODD = [
    "0",
    "-1",
    "1",
    "3",
    "4097",
    "1048577",
    "2147483647",
    "-2147483648",
    "4294967295",
    "1099511627776",
    "0f7F800000",
    "0dFFF0000000000000",
    "0d7FF8000000000000",
]
SWAPS = [
    ("global", "shared"), ("shared", "global"), (".global", ""), (".shared", ".local"), (".u32",
    ".u64"),
    (".b32", ".b64"), (".s32", ".u16"), (".sync", ""), (".aligned", ""), ("bar.sync", "bar.arrive"),
    ("bra", "bra.uni"), ("ret;", ""), ("@%p", "@!%p"), ("@!%p", "@%p"), ("ld.", "st."), ("st.",
    "ld."),
    ("atom.", "red."), (".v4", ".v2"), (".x4", ".x2"), ("cp.async", "cp.async.bulk"),
    ("mbarrier.init", "mbarrier.arrive"), ("add", "div"), (".wide", ".lo"), ("[%", "[%x"),
]  # fmt: skip
SIZES = [
    (1,), (1,), (2,), (3, 2), (2, 2, 2), (0,), (-1,), (2**31 - 1,), (65535, 65535), (2**40,), (1,
    70000), (1, 1, 65535),
]  # fmt: skip
BLOCKS = [1, 31, 32, 33, 64, 128, (7, 5, 3), 1024, 1025, 0, -3, (1, 1, 64), (1, 1, 65), 2**33]


def damaged(text: str, random: Random) -> str:
    """Return the text with a few random faults in the kernel's body, or cut off."""
    if random.random() < 0.1:
        return text[: random.randrange(len(text))]
    lines = text.splitlines()
    first = next((n for n, line in enumerate(lines) if line.strip() == "{"), 0)
    for _ in range(random.choice([0, 1, 1, 2, 4])):
        n = random.randrange(first, len(lines))
        fault = random.random()
        if fault < 0.2:
            lines[n] = ""
        elif fault < 0.3:
            m = random.randrange(first, len(lines))
            lines[n], lines[m] = lines[m], lines[n]
        elif fault < 0.5:
            lines[n] = re.sub(r"(?<![\w%.])-?\d+(?![\w.])", lambda _: random.choice(ODD), lines[n])
        elif fault < 0.7:
            lines[n] = re.sub(
                r"(%[a-z]+)\d+", lambda name: f"{name[1]}{random.randrange(1, 12)}", lines[n]
            )
        else:
            lines[n] = lines[n].replace(*random.choice(SWAPS))
    return "\n".join(lines)


def attack(seed: int) -> str:
    """Launch a damaged kernel in an odd way; what became of it.

    Anything but a result or a WorklogError is raised.
    """
    random = Random(seed)
    folder = Path(__file__).parent / "kernels"
    sources = [path for path in sorted(folder.rglob("*.*")) if path.stem != "counts_launches"]
    source = random.choice([*sources, None])
    if source is None:
        text = Program(random, 32).text()
    elif source.suffix == ".ptx":
        text = HEAD + source.read_text(encoding="utf-8")
    else:
        arch = "sm_90a" if "wgmma" in source.name else "sm_90"
        text = compile_cuda(Source("k.cu", source.read_text(encoding="utf-8"), "k"), arch).ptx
    end = time.monotonic() + 3

    def late(steps: int, budget: int) -> None:
        if time.monotonic() > end:
            raise BudgetExceeded("the test's time is over")

    try:
        kernel = load(damaged(text, random), "k")
        usual = random.random() < 0.7
        arguments = [odd_argument(param, random) for param in kernel.params]
        result = launch(
            kernel, (2,) if usual else random.choice(SIZES),
            64 if usual else random.choice(BLOCKS), arguments,
            shared_bytes=random.choice([0] * 9 + [1024, 3, -1, 10**6, 2**40]), budget=5000,
            progress=late,
            races=random.random() < 0.8, count=random.random() < 0.8, schedule=random.randrange(3),
        )  # fmt: skip
    except WorklogError as error:
        assert str(error)
        return type(error).__name__
    return "findings" if result.findings else "right"


def odd_argument(param: Param, random: Random) -> Any:
    """Return an array that may be too short, a pointer that leads nowhere, or a number."""
    if param.type in ("u64", "b64", "s64") and random.random() < 0.9:
        return np.zeros(random.choice([0, 4, 64, 4096, 65536]), np.uint8)
    return random.choice([0, 1, 7, 64, -1, 2**31 - 1, 2**40, 1.5])


def test_no_kernel_however_wrong_ends_the_process():
    """Damaged kernels in odd launches give findings or errors that say why.

    In a process of its own.
    """
    command = (sys.executable, "-m", "tests.emulator.test_fuzz", "0", "30")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert {"findings", "right", "BadLaunch", "PtxError"} <= {*done.stdout.split()}


if __name__ == "__main__":
    for number in range(*map(int, sys.argv[1:3])):
        print(number, end=" ", flush=True)
        print(attack(number))
