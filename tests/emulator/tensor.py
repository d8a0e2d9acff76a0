"""Tensor-core instructions of a warp and of a warp group: random operands, where lanes and shared memory hold them,
and the PTX.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.emulator.evaluate import FORMATS

INTEGERS = {"s32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}
BITS = {"f64": 64, "f32": 32, "tf32": 32, "f16": 16, "bf16": 16, **INTEGERS}
# Of the results for each instruction and kind of operands.
CRCS = {
    name: crc
    for crc, _, name in (
        line.partition(" ") for line in Path(__file__).with_name("tensor.txt").read_text(encoding="utf-8").splitlines()
    )
    if crc != "#"
}

# Of random words by kind: the probabilities of a subnormal number or zero, of a zero fraction, and of NaN or infinity.
KINDS = {
    "near": (0, 0, 0),
    "any": (0, 0, 0),
    "special": (0.2, 0.2, 0.01),
    "subnormal": (0.7, 0, 0),
    "zeros": (0.6, 1, 0),
    "tiny": (0.2, 0.5, 0),
}


def random_words(rng: np.random.Generator, type_: str, shape: tuple[int, int], kind: str) -> np.ndarray:
    """Patterns of a type. kind: as in KINDS, of floats; "near": normal numbers of like size; "tiny": numbers whose
    products are about as small as the least normal float32, and an accumulator that is zero or below it.
    """
    if type_ in INTEGERS:
        return rng.integers(0, 2 ** BITS[type_], shape).astype(f"u{BITS[type_] // 8}")
    fraction, width = FORMATS[type_]
    top, bias, (low, zero, high) = 2**width - 1, 2 ** (width - 1) - 1, KINDS[kind]
    lowest, highest = {"near": (bias - 3, bias + 4), "tiny": (bias // 2 - 12, bias // 2 + 3)}.get(kind, (1, top))
    exponents = np.maximum(rng.integers(lowest, highest, shape), 0) * (kind != "tiny" or type_ != "f32")
    chosen = rng.random(shape)
    exponents = np.where(chosen < low, 0, np.where(chosen >= 1 - high, top, exponents))
    rest = np.where(rng.random(shape) < zero, 0, rng.integers(0, 2**fraction, shape))
    out = rng.integers(0, 2, shape) << (width + fraction) | exponents << fraction | rest
    return out.astype(f"u{BITS[type_] // 8}")


def lanes_of(matrix: np.ndarray, side: int = 1, warps: int = 1) -> np.ndarray:
    """The registers (registers, lanes) that hold a matrix of words, as PTX ISA's figures give them: in 8 rows and 4
    columns of `side` words, lane 4 r + c holds those of row r and column c. Each warp holds as many rows.
    """
    blocks = matrix.reshape(warps, -1, 8, matrix.shape[1] // (4 * side), 4, side)
    return blocks.transpose(3, 1, 5, 0, 2, 4).reshape(-1, 32 * warps)


class Launch(NamedTuple):
    """PTX, the patterns of its operands (registers, lanes), the number of results, and the type of a register."""

    text: str
    registers: np.ndarray
    results: int
    type_: str = "b32"


def results_of(launch: Launch, device: Callable[..., Any], **options: Any) -> Any:
    """What a device's function like `evaluate` returns."""
    types = [launch.type_] * len(launch.registers)
    return device(launch.text, types[: launch.results], types, launch.registers, **options)


class Mma:
    """An mma.sync. A, B transposed and C are given as patterns by row, those below 32 bits packed into words of `word`
    bits. types, sizes, counts: of A, B and C; sizes are rows and words in each, counts those of registers. side: words
    of C side by side in a lane. kinds: of random operands; integers have one.
    """

    def __init__(self, op: str) -> None:
        self.op, self.types = op, [part for part in op.split(".") if part in BITS][1:]
        self.word = 64 if self.types[2] == "f64" else 32
        m, n, k = map(int, re.search(r"m(\d+)n(\d+)k(\d+)", op).groups())
        shapes = zip(((m, k), (n, k), (m, n)), self.types, strict=True)
        self.sizes = [(rows, columns * BITS[t] // self.word) for (rows, columns), t in shapes]
        self.counts = [rows * words // 32 for rows, words in self.sizes]
        self.side = 1 if self.types[2] == "f16" else 2
        self.kinds = [*KINDS] if self.types[2] != "s32" else ["any"]

    def __str__(self) -> str:
        return self.op.removeprefix("mma.sync.aligned.").replace(".row.col", "")

    def launches(self, kind: str, rounds: int = 1) -> Iterator[Launch]:
        """On random operands of 32 warps."""
        rng = np.random.default_rng(11)
        for _ in range(rounds):
            warps = []
            for _ in range(32):
                a, b, c = self.operands(rng, kind)
                warps.append(np.concatenate([lanes_of(a), lanes_of(b), lanes_of(c, self.side)]))
            yield Launch(self.text(), np.concatenate(warps, axis=1), self.counts[2], f"b{self.word}")

    def operands(self, rng: np.random.Generator, kind: str) -> list[np.ndarray]:
        """Random A, B transposed and C. kind: as in KINDS, of floats."""
        out = []
        for t, (rows, words) in zip(self.types, self.sizes, strict=True):
            if t == "s32":  # both ends
                out.append(rng.integers(2**31 - 999, 2**31 + 999, (rows, words)).astype(np.uint32))
            elif t in INTEGERS:
                out.append(rng.integers(0, 2**32, (rows, words), np.uint32))
            else:
                numbers = random_words(rng, t, (rows, words * self.word // BITS[t]), kind)
                out.append(numbers.view(f"u{self.word // 8}"))
        return out

    def text(self) -> str:
        places, (a, b, c) = [f"${k}" for k in range(sum(self.counts))], self.counts
        groups = ([f"$d{k}" for k in range(c)], places[:a], places[a : a + b], places[a + b :])
        return f"{self.op} {', '.join('{' + ', '.join(group) + '}' for group in groups)};"


MMAS = [
    Mma(f"mma.sync.aligned.{shape}.row.col.{c}.{a}.{b}.{c}{end}")
    for shapes, a, b, c, end in (
        ("m16n8k4 m16n8k8", "tf32", "tf32", "f32", ""),
        ("m16n8k8 m16n8k16", "f16", "f16", "f32", ""),
        ("m16n8k8 m16n8k16", "f16", "f16", "f16", ""),
        ("m16n8k8 m16n8k16", "bf16", "bf16", "f32", ""),
        ("m8n8k4 m16n8k4 m16n8k8 m16n8k16", "f64", "f64", "f64", ""),
        ("m8n8k16 m16n8k16 m16n8k32", "s8", "u8", "s32", ""),
        ("m8n8k32 m16n8k32 m16n8k64", "u4", "s4", "s32", ""),
        ("m8n8k128 m16n8k128 m16n8k256", "b1", "b1", "s32", ".and.popc"),
        ("m8n8k128 m16n8k256", "b1", "b1", "s32", ".xor.popc"),
    )
    for shape in shapes.split()
] + [
    Mma("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32"),
    Mma("mma.sync.aligned.m16n8k16.row.col.satfinite.s32.u8.u8.s32"),
    Mma("mma.sync.aligned.m8n8k32.row.col.satfinite.s32.s4.s4.s32"),
]


SWIZZLES = {0: 0, 128: 1, 64: 2, 32: 3}  # bits 62 and 63 of a descriptor, by bytes per line of the pattern


@dataclass(frozen=True)
class Wgmma:
    """width: of the swizzle, 0 for none. trans: of A and B: rows or columns lie together. step: which 32 bytes of K of
    the pattern, where K lies together.
    """

    type_: str
    sum_type: str
    columns: int
    width: int
    in_registers: bool = False
    trans: tuple[bool, bool] = (False, False)
    signs: tuple[int, int] = (1, 1)
    step: int = 0

    kinds = tuple(KINDS)

    def __str__(self) -> str:
        text = f"wgmma n{self.columns} {self.type_} {self.sum_type} swizzle {self.width}"
        text += " registers" * self.in_registers
        text += f" trans {self.trans[0]:d}{self.trans[1]:d}" if any(self.trans) else ""
        text += f" signs {self.signs[0]} {self.signs[1]}" if self.signs != (1, 1) else ""
        return text + (f" step {self.step}" if self.step else "")

    def launches(self, kind: str, rounds: int = 1) -> Iterator[Launch]:
        """On random operands, with C and without."""
        rng, k = np.random.default_rng(12), 256 // BITS[self.type_]
        for scaled in (True, False):
            a, b = (random_words(rng, self.type_, (rows, k), kind) for rows in (64, self.columns))
            yield wgmma(self, a, b, random_words(rng, self.sum_type, (64, self.columns), kind), scaled)


def turned(chunk: int, row: int, width: int) -> int:
    """The place of a 16-byte chunk in a line of the pattern: as in CUTLASS' pictures of the swizzles."""
    return chunk ^ {0: 0, 32: row % 8 // 4, 64: row % 8 // 2, 128: row % 8}[width]


def image(matrix: np.ndarray, width: int, trans: bool, step: int) -> tuple[bytes, int]:
    """A matrix (rows, 32 bytes of K) in memory, and its descriptor for an image at byte 0."""
    lines = np.ascontiguousarray(matrix.T if trans else matrix).view(np.uint8)
    rows, per_line = matrix.shape[0], max(width // 16, 1)
    k_lines = 8 * (width or 16)  # bytes of 8 lines of the pattern
    far = 2 * k_lines if trans or not width else 16
    leading, stride = (far, k_lines) if width else (k_lines, far)
    out = np.random.default_rng(1).integers(0, 256, rows * max(32, width) * (2 if trans else 1), np.uint8)
    for line, content in enumerate(lines):
        for chunk in range(lines.shape[1] // 16):
            if not width:
                by_line, by_chunk = (leading, stride) if trans else (stride, leading)
                place = line // 8 * by_line + line % 8 * 16 + chunk * by_chunk
            elif trans:
                place = chunk // per_line * leading + line // 8 * stride + line % 8 * width
                place += turned(chunk % per_line, line, width) * 16
            else:
                place = line // 8 * stride + line % 8 * width + turned(chunk + 2 * step, line, width) * 16
            out[place : place + 16] = content[16 * chunk : 16 * chunk + 16]
    start = 0 if trans or not width else 32 * step
    return out.tobytes(), start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | SWIZZLES[width] << 62


def wgmma(case: Wgmma, a: np.ndarray, b: np.ndarray, c: np.ndarray, scaled: bool) -> Launch:
    """PTX for 4 warps. scaled: C is added. a: (64, K), b: (columns, K), c: (64, columns)."""
    k = 32 // a.itemsize
    first, descriptor_a = image(a, case.width, case.trans[0], case.step)
    second, descriptor_b = image(b, case.width, case.trans[1], case.step)
    first += bytes(-len(first) % 1024)
    second += bytes(-len(second) % 512)
    shared = np.frombuffer(first + second, np.uint32).reshape(-1, 128)
    sums = lanes_of(np.ascontiguousarray(c).view(np.uint32), 1 if case.sum_type == "f16" else 2, 4)
    own = lanes_of(np.ascontiguousarray(a).view(np.uint32), 1, 4)[: 4 * case.in_registers]
    registers = np.concatenate([shared, sums, own, np.full((1, 128), scaled, np.uint32)])
    n, results = len(shared), len(sums)
    lines = [f"{{ .shared .align 1024 .b8 S[{shared.nbytes}]; .reg .b32 s; .reg .pred p; .reg .b64 a; .reg .b64 b;"]
    lines += ["mov.u32 s, S; cvt.u64.u32 a, s; shr.u64 a, a, 4; mad.lo.u32 s, %t0, 4, s;"]
    lines += [f"add.u64 b, a, {descriptor_b + (len(first) >> 4)}; add.u64 a, a, {descriptor_a};"]
    lines += [f"st.shared.b32 [s+{512 * k}], ${k};" for k in range(n)]
    lines += [f"mov.b32 $d{k}, ${n + k};" for k in range(results)]
    lines += [f"setp.ne.u32 p, ${len(registers) - 1}, 0; fence.proxy.async; bar.sync 0; wgmma.fence.sync.aligned;"]
    first_operand = f"{{{', '.join(f'${n + results + k}' for k in range(4))}}}" if case.in_registers else "a"
    short, floats = case.type_ in ("f16", "bf16"), case.sum_type != "s32"
    numbers = [*case.signs] * floats + [*case.trans[case.in_registers :]] * short
    head = f"wgmma.mma_async.sync.aligned.m64n{case.columns}k{k}.{case.sum_type}.{case.type_}.{case.type_}"
    given = ", ".join(["{" + ", ".join(f"$d{k}" for k in range(results)) + "}", first_operand, "b, p"])
    lines += [f"{head} {', '.join([given, *(str(int(x)) for x in numbers)])};"]
    lines += ["wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }"]
    return Launch("\n".join(lines), registers, results)


WGMMAS = [
    *(
        Wgmma("tf32", "f32", n, width, step=step)
        for n, width, step in ((8, 0, 0), (24, 32, 0), (64, 64, 1), (40, 128, 3))
    ),
    *(
        Wgmma("f16", "f16", n, width, step=step)
        for n, width, step in ((16, 0, 0), (32, 32, 0), (8, 64, 1), (256, 128, 2))
    ),
    *(Wgmma("bf16", "f32", 64, width, trans=(True, True)) for width in (0, 32, 64, 128)),
    Wgmma("f16", "f32", 128, 128, trans=(False, True), signs=(-1, 1)),
    Wgmma("f16", "f32", 64, 64, trans=(True, False), signs=(1, -1)),
    Wgmma("bf16", "f32", 64, 128, in_registers=True, trans=(False, True)),
    Wgmma("tf32", "f32", 16, 128, in_registers=True, signs=(-1, -1)),
    Wgmma("s8", "s32", 64, 128, step=1),
    Wgmma("u8", "s32", 48, 32, in_registers=True),
]

TENSOR = [*MMAS, *WGMMAS]
