"""Tensor-core instructions of a warp and of a warp group.

The PTX, and random words in registers and shared memory.
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
        line.partition(" ")
        for line in Path(__file__).with_name("tensor.txt").read_text(encoding="utf-8").splitlines()
    )
    if crc != "#"
}

# Of random words by kind: the probabilities of a subnormal number or zero, of a zero fraction, and
# of NaN or infinity.
KINDS = {
    "near": (0, 0, 0),
    "any": (0, 0, 0),
    "special": (0.2, 0.2, 0.01),
    "subnormal": (0.7, 0, 0),
    "zeros": (0.6, 1, 0),
    "tiny": (0.2, 0.5, 0),
}


def random_words(
    rng: np.random.Generator, type_: str, registers: int, lanes: int, kind: str, bits: int = 32
) -> np.ndarray:
    """Return registers (registers, lanes) of so many bits, with patterns of a type.

    kind: as in KINDS, of floats; "near": normal numbers of like size; "tiny": numbers whose
        products are about as small as the least normal float32, and an accumulator that is zero
        or below it
    """
    if type_ in INTEGERS:
        return rng.integers(0, 2**32, (registers, lanes), np.uint32)
    shape = registers, lanes * bits // BITS[type_]
    fraction, width = FORMATS[type_]
    top = 2**width - 1
    bias = 2 ** (width - 1) - 1
    (low, zero, high) = KINDS[kind]
    lowest, highest = {"near": (bias - 3, bias + 4), "tiny": (bias // 2 - 12, bias // 2 + 3)}.get(
        kind, (1, top)
    )
    exponents = np.maximum(rng.integers(lowest, highest, shape), 0) * (
        kind != "tiny" or type_ != "f32"
    )
    chosen = rng.random(shape)
    exponents = np.where(chosen < low, 0, np.where(chosen >= 1 - high, top, exponents))
    rest = np.where(rng.random(shape) < zero, 0, rng.integers(0, 2**fraction, shape))
    out = rng.integers(0, 2, shape) << (width + fraction) | exponents << fraction | rest
    return out.astype(f"u{BITS[type_] // 8}").view(f"u{bits // 8}")


class Launch(NamedTuple):
    """Return PTX and its operands.

    The patterns of its operands (registers, lanes), the number of results, and the type of a
    register.
    """

    text: str
    registers: np.ndarray
    results: int
    type_: str = "b32"


def results_of(launch: Launch, device: Callable[..., Any], **options: Any) -> Any:
    """Return what a device's function like `evaluate` returns."""
    types = [launch.type_] * len(launch.registers)
    return device(launch.text, types[: launch.results], types, launch.registers, **options)


class Mma:
    """An mma.sync.

    types, counts: of A, B and C; counts of registers, which have `word` bits
    kinds: of random operands; integers have one
    """

    def __init__(self, op: str) -> None:
        self.op = op
        self.types = [part for part in op.split(".") if part in BITS][1:]
        self.word = 64 if self.types[2] == "f64" else 32
        m, n, k = map(int, re.search(r"m(\d+)n(\d+)k(\d+)", op).groups())
        sizes = zip((m * k, n * k, m * n), self.types, strict=True)
        self.counts = [size * BITS[t] // self.word // 32 for size, t in sizes]
        self.kinds = [*KINDS] if self.types[2] != "s32" else ["any"]

    def __str__(self) -> str:
        return self.op.removeprefix("mma.sync.aligned.").replace(".row.col", "")

    def launches(self, kind: str, rounds: int = 1) -> Iterator[Launch]:
        """On random operands of 32 warps."""
        rng = np.random.default_rng(11)
        for _ in range(rounds):
            operands = [
                self.operand(rng, *of, kind) for of in zip(self.types, self.counts, strict=True)
            ]
            yield Launch(self.text(), np.concatenate(operands), self.counts[2], f"b{self.word}")

    def operand(self, rng: np.random.Generator, type_: str, count: int, kind: str) -> np.ndarray:
        if type_ == "s32":  # both ends
            return rng.integers(2**31 - 999, 2**31 + 999, (count, 1024)).astype(np.uint32)
        return random_words(rng, type_, count, 1024, kind, self.word)

    def text(self) -> str:
        places = [f"${k}" for k in range(sum(self.counts))]
        (a, b, c) = self.counts
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


SWIZZLES = {
    0: 0,
    128: 1,
    64: 2,
    32: 3,
}  # bits 62 and 63 of a descriptor, by bytes per line of the pattern


@dataclass(frozen=True)
class Wgmma:
    """A wgmma.mma_async.

    width: of the swizzle, 0 for none
    trans: of A and B: rows or columns lie together
    step: which 32 bytes of K of the pattern, where K lies together
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
        rng = np.random.default_rng(12)
        for scaled in (True, False):
            yield wgmma(self, rng, kind, scaled)


def image(rows: int, width: int, trans: bool, step: int) -> tuple[int, int]:
    """Of a matrix (rows, 32 bytes of K).

    Bytes in memory, and the descriptor of an image at byte 0.
    """
    k_lines = 8 * (width or 16)  # bytes of 8 lines of the pattern
    far = 2 * k_lines if trans or not width else 16
    leading, stride = (far, k_lines) if width else (k_lines, far)
    start = 0 if trans or not width else 32 * step
    descriptor = start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | SWIZZLES[width] << 62
    return rows * max(32, width) * (2 if trans else 1), descriptor


def wgmma(case: Wgmma, rng: np.random.Generator, kind: str, scaled: bool) -> Launch:
    """PTX for 4 warps. scaled: C is added."""
    k = 256 // BITS[case.type_]
    first, descriptor_a = image(64, case.width, case.trans[0], case.step)
    second, descriptor_b = image(case.columns, case.width, case.trans[1], case.step)
    first = -(-first // 1024) * 1024
    n = (first + second + 511) // 512
    results = 64 * case.columns * BITS[case.sum_type] // 32 // 128
    shared = random_words(rng, case.type_, n, 128, kind)
    sums = random_words(rng, case.sum_type, results, 128, kind)
    own = random_words(rng, case.type_, 4 * case.in_registers, 128, kind)
    registers = np.concatenate([shared, sums, own, np.full((1, 128), scaled, np.uint32)])
    lines = [
        (
            f"{{ .shared .align 1024 .b8 S[{shared.nbytes}]; .reg .b32 s; .reg .pred p; "
            ".reg .b64 a; "
            ".reg .b64 b;"
        )
    ]
    lines += ["mov.u32 s, S; cvt.u64.u32 a, s; shr.u64 a, a, 4; mad.lo.u32 s, %t0, 4, s;"]
    lines += [f"add.u64 b, a, {descriptor_b + (first >> 4)}; add.u64 a, a, {descriptor_a};"]
    lines += [f"st.shared.b32 [s+{512 * k}], ${k};" for k in range(n)]
    lines += [f"mov.b32 $d{k}, ${n + k};" for k in range(results)]
    lines += [
        (
            f"setp.ne.u32 p, ${len(registers) - 1}, 0; fence.proxy.async; bar.sync 0; "
            "wgmma.fence.sync.aligned;"
        )
    ]
    first_operand = (
        f"{{{', '.join(f'${n + results + k}' for k in range(4))}}}" if case.in_registers else "a"
    )
    short = case.type_ in ("f16", "bf16")
    floats = case.sum_type != "s32"
    numbers = [*case.signs] * floats + [*case.trans[case.in_registers :]] * short
    types = f"{case.sum_type}.{case.type_}.{case.type_}"
    head = f"wgmma.mma_async.sync.aligned.m64n{case.columns}k{k}.{types}"
    given = ", ".join(
        ["{" + ", ".join(f"$d{k}" for k in range(results)) + "}", first_operand, "b, p"]
    )
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

TENSOR: list[Mma | Wgmma] = [*MMAS, *WGMMAS]
