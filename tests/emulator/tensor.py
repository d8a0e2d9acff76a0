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
BITS = {"f64": 64, "f32": 32, "tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, **INTEGERS}
EIGHTS = ("e4m3", "e5m2")
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
    (low, zero, high) = KINDS.get(kind, KINDS["any"])
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


# Terms besides the largest one, of "apart".
TERMS = (0, 1, 2, 3, 7, 15, 31)


def kinds_of(type_: str) -> tuple[str, ...]:
    """Kinds of operands for the type of A."""
    return (*KINDS, "apart") if type_ in EIGHTS else tuple(KINDS)


def powers(type_: str, exponents: np.ndarray, fractions: np.ndarray) -> np.ndarray:
    """Bytes of 8-bit floats.

    An exponent below that of the smallest normal number gives a subnormal power of two.
    """
    fraction, width = FORMATS[type_]
    bias = 2 ** (width - 1) - 1
    field = exponents + bias
    power = 1 << np.clip(fraction - 1 + field, 0, fraction)
    return np.where(field > 0, field << fraction | fractions, power).astype(np.uint8)


def apart(
    rng: np.random.Generator, type_a: str, type_b: str, sum_type: str, sizes: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return operands with one large product and others, smaller by each number of bits.

    A (rows, k), B by column (columns, k) and C (rows, columns) as patterns. The products lie at
    random places, and C is about as large, or zero.
    """
    rows, columns, k = sizes
    lowest, highest = {"e4m3": (-9, 7), "e5m2": (-16, 14)}[type_a]
    largest = rng.integers((lowest + highest) // 2, highest + 1, (rows, 1))
    distance = rng.integers(0, 1 + largest - lowest)
    spread = rng.integers(0, 2, (rows, k)) * rng.integers(0, 2, (rows, 1))
    order = rng.permuted(np.tile(np.arange(k), (rows, 1)), axis=1)
    exponents = np.where(order == 0, largest, np.maximum(largest - distance - spread, lowest))
    fractions = rng.integers(0, 2 ** FORMATS[type_a][0], (rows, k)) * rng.integers(0, 2, (rows, 1))
    signs = rng.integers(0, 2, (rows, k)) * rng.integers(0, 2, (rows, 1))
    a = powers(type_a, exponents, fractions) | signs.astype(np.uint8) << 7
    a[order > rng.choice(TERMS, (rows, 1))] = 0
    by_column = rng.integers(-6, 6, (columns, 1))
    fractions = rng.integers(0, 2 ** FORMATS[type_b][0], (columns, k)) * rng.integers(
        0, 2, (columns, 1)
    )
    b = powers(type_b, by_column + np.zeros((1, k), int), fractions)
    b |= (rng.integers(0, 2, (columns, 1)) << 7).astype(np.uint8)
    size = largest + by_column.T + rng.integers(-24, 25, (rows, columns))
    c = np.ldexp(rng.uniform(1, 2, (rows, columns)), size) * rng.choice((-1, 0, 1), size.shape)
    c = np.clip(c, -6e4, 6e4)
    return a, b, c.astype(f"f{BITS[sum_type] // 8}").view(f"u{BITS[sum_type] // 8}")


def by_lane(matrix: np.ndarray, tall: bool) -> np.ndarray:
    """Return bytes (8 n, 16 m) as registers (2 n m / 2, 32): A (tall) or B of a warp."""
    words = np.ascontiguousarray(matrix).view(np.uint32)
    blocks = words.reshape(len(words) // 8, 8, -1, 4).transpose(0, 2, 1, 3)
    return (blocks.swapaxes(0, 1) if tall else blocks).reshape(-1, 32)


def sums_by_lane(c: np.ndarray) -> np.ndarray:
    """Return C of a warp (8 n, 8 m), of 16 or 32 bits, as registers, 8 columns at a time."""
    rows, columns = c.shape
    blocks = c.reshape(rows // 8, 8, columns // 8, 4, 2).transpose(2, 0, 4, 1, 3)
    if c.itemsize == 4:
        return blocks.reshape(-1, 32)
    pairs = blocks.transpose(0, 1, 3, 4, 2).reshape(-1, 32, 2)
    return np.ascontiguousarray(pairs).view(np.uint32)[..., 0]


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
        self.sizes = m, n, k
        self.kinds = [*kinds_of(self.types[0])] if self.types[2] != "s32" else ["any"]

    def __str__(self) -> str:
        return self.op.removeprefix("mma.sync.aligned.").replace(".row.col", "")

    def launches(self, kind: str, rounds: int = 1) -> Iterator[Launch]:
        """On random operands of 32 warps."""
        rng = np.random.default_rng(11)
        for _ in range(rounds):
            if kind == "apart":
                warps = [self.apart(rng) for _ in range(32)]
                yield Launch(self.text(), np.concatenate(warps, axis=1), self.counts[2])
                continue
            operands = [
                self.operand(rng, *of, kind) for of in zip(self.types, self.counts, strict=True)
            ]
            yield Launch(self.text(), np.concatenate(operands), self.counts[2], f"b{self.word}")

    def apart(self, rng: np.random.Generator) -> np.ndarray:
        """Return the operands of a warp."""
        a, b, c = apart(rng, *self.types, self.sizes)
        return np.concatenate([by_lane(a, True), by_lane(b, False), sums_by_lane(c)])

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
        ("m16n8k16 m16n8k32", "e4m3", "e4m3", "f32", ""),
        ("m16n8k32", "e4m3", "e5m2", "f32", ""),
        ("m16n8k32", "e5m2", "e4m3", "f16", ""),
        ("m16n8k16 m16n8k32", "e5m2", "e5m2", "f16", ""),
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
    type_of_b: str = ""  # if it isn't that of A

    @property
    def kinds(self) -> tuple[str, ...]:
        return kinds_of(self.type_)

    def __str__(self) -> str:
        types = f"{self.type_} {self.type_of_b} {self.sum_type}".replace("  ", " ")
        text = f"wgmma n{self.columns} {types} swizzle {self.width}"
        text += " registers" * self.in_registers
        text += f" trans {self.trans[0]:d}{self.trans[1]:d}" if any(self.trans) else ""
        text += f" signs {self.signs[0]} {self.signs[1]}" if self.signs != (1, 1) else ""
        return text + (f" step {self.step}" if self.step else "")

    def launches(self, kind: str, rounds: int = 1) -> Iterator[Launch]:
        """On random operands, with C and without."""
        rng = np.random.default_rng(12)
        for _ in range(rounds):
            for scaled in (True, False):
                yield wgmma(self, rng, kind, scaled)


def in_image(matrix: np.ndarray, width: int, step: int, size: int) -> np.ndarray:
    """Return a matrix (rows, 32 bytes of K) where `image` has it, in `size` bytes."""
    k_lines = 8 * (width or 16)
    row, chunk = np.divmod(np.arange(2 * len(matrix)), 2)
    place = row // 8 * (k_lines if width else 2 * k_lines) + row % 8 * (width or 16)
    place += 32 * step + 16 * chunk if width else chunk * k_lines
    place ^= place >> 3 & (width - 16) if width else 0
    out = np.zeros(size, np.uint8)
    out[place[:, None] + np.arange(16)] = matrix.reshape(-1, 16)
    return out


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
    if case.type_of_b:
        shared[first // 512 :] = random_words(rng, case.type_of_b, n - first // 512, 128, kind)
    sums = random_words(rng, case.sum_type, results, 128, kind)
    own = random_words(rng, case.type_, 4 * case.in_registers, 128, kind)
    if kind == "apart":
        sizes = 64, case.columns, k
        a, b, c = apart(rng, case.type_, case.type_of_b or case.type_, case.sum_type, sizes)
        parts = (
            in_image(a, case.width, case.step, first),
            in_image(b, case.width, case.step, n * 512 - first),
        )
        shared = np.concatenate(parts).view(np.uint32).reshape(n, 128)
        warps = range(0, 64, 16)
        sums = np.concatenate([sums_by_lane(c[row : row + 16]) for row in warps], axis=1)
        own = np.concatenate([by_lane(a[row : row + 16], True) for row in warps], axis=1)
        own = own[: 4 * case.in_registers]
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
    types = f"{case.sum_type}.{case.type_}.{case.type_of_b or case.type_}"
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
    *(
        Wgmma(a, sum_type, n, width, step=step, type_of_b=b)
        for a, b, sum_type, n, width, step in (
            ("e4m3", "", "f32", 64, 128, 1),
            ("e5m2", "", "f32", 16, 0, 0),
            ("e4m3", "e5m2", "f32", 256, 32, 0),
            ("e5m2", "e4m3", "f16", 40, 64, 1),
            ("e4m3", "", "f16", 24, 128, 3),
        )
    ),
    Wgmma("e4m3", "f32", 32, 128, in_registers=True, signs=(-1, 1)),
    Wgmma("e5m2", "f16", 8, 64, in_registers=True, signs=(-1, -1), type_of_b="e4m3"),
    Wgmma("s8", "s32", 64, 128, step=1),
    Wgmma("u8", "s32", 48, 32, in_registers=True),
]

TENSOR: list[Mma | Wgmma] = [*MMAS, *WGMMAS]
