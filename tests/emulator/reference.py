"""A slow interpreter of a part of PTX in plain Python, with semantics of its own: PTX ISA's words, not the emulator's.

One thread after the other runs until its next barrier or shuffle. Registers hold what their names say: %r 32 bits, %d
64 and %h 16 as unsigned numbers, %f and %e a float of 32 and 64 bits, %p a truth value. Floating point is exact
fractions, rounded once.
"""

import math
import operator
import re
import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

LINE = re.compile(r"(?:@(!?)(%p\d+)\s+)?([a-z][\w.]*)\s*(.*?);")
FORMATS = {"f32": (24, -126, 127, "f"), "f64": (53, -1022, 1023, "d")}  # digits, least and greatest exponent
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
BITWISE: dict[str, Callable[[int, int], int]] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


@dataclass
class Thread:
    """registers: by name. place: of the instruction that comes next. number: in its block."""

    number: int
    block: int
    registers: dict[str, Any] = field(default_factory=dict)
    place: int = 0


class Machine:
    """A kernel's instructions, and the bytes of the memories. buffers: global memory, by first address."""

    def __init__(self, text: str, buffers: Mapping[int, bytearray], params: Sequence[int], size: int) -> None:
        body = text[text.index("{") + 1 : text.rindex("}")]
        self.code: list[tuple[str, str, str, list[str]]] = []
        self.labels: dict[str, int] = {}
        for line in (line.strip() for line in body.splitlines()):
            if line.endswith(":"):
                self.labels[line[:-1]] = len(self.code)
            elif line and not line.startswith("."):
                found = LINE.fullmatch(line)
                assert found, line
                operands = [word.strip() for word in found[4].split(",")]
                self.code.append((found[1], found[2], found[3], operands))
        self.params, self.buffers, self.size = params, buffers, size
        self.shared = bytearray()

    def run(self, blocks: int, threads: int, shared: int) -> None:
        """All blocks, one after the other."""
        for block in range(blocks):
            self.shared = bytearray(shared)
            runs = {n: self.thread(Thread(n, block)) for n in range(threads)}
            waits = {n: next(run, None) for n, run in runs.items()}
            while any(waits.values()):
                values = answers(waits)
                assert values, "threads wait for each other"
                for n, value in values.items():
                    try:
                        waits[n] = runs[n].send(value)
                    except StopIteration:
                        waits[n] = None

    def thread(self, t: Thread) -> Generator[tuple[Any, ...], Any, None]:
        """Yields what the thread waits for; what is sent back is the value that it gets."""
        while True:
            negated, guard, opcode, operands = self.code[t.place]
            t.place += 1
            if guard and t.registers[guard] == (negated == "!"):
                continue
            parts = opcode.split(".")
            if parts[0] in ("ret", "exit"):
                return
            if parts[0] == "bra":
                t.place = self.labels[operands[0]]
            elif parts[0] == "bar":
                yield ("bar",)
            elif parts[0] in ("shfl", "vote"):
                first = self.value(t, operands[1], "b32")
                rest = [self.value(t, word, "b32") for word in operands[2:]]
                first = first if parts[0] == "shfl" else t.registers[operands[1]]
                t.registers[operands[0].split("|")[0]] = yield (parts[0], parts[2], first, rest)
            elif parts[0] in ("ld", "st", "red"):
                self.memory(t, parts, operands)
            else:
                sources = [self.value(t, word, source_type(parts, n)) for n, word in enumerate(operands[1:])]
                t.registers[operands[0]] = result(parts, sources, operands[0])

    def value(self, t: Thread, word: str, type_: str) -> Any:
        """An operand, as its type says."""
        if word.startswith("%p") or word[:2] in ("%f", "%e"):
            return t.registers[word]
        if word == "%tid.x":
            bits = t.number
        elif word == "%ntid.x":
            bits = self.size
        elif word == "%ctaid.x":
            bits = t.block
        else:
            bits = t.registers[word] if word[0] == "%" else int(word, 0)
        return typed(bits, type_)

    def memory(self, t: Thread, parts: list[str], operands: list[str]) -> None:
        """ld, st and red."""
        place, other = operands[::-1] if parts[0] == "ld" else operands
        type_, size = parts[-1], int(parts[-1][1:]) // 8
        register, _, offset = place.strip("[]").partition("+")
        if parts[1] == "param":
            t.registers[other] = self.params[int(register[1:])]
            return
        address = t.registers[register] + int(offset or 0)
        data, at = (self.shared, address) if parts[1] == "shared" else self.find(address)
        assert address % size == 0 and 0 <= at <= len(data) - size
        old = int.from_bytes(data[at : at + size], "little")
        if parts[0] == "ld":
            is_float = other[:2] in ("%f", "%e")
            t.registers[other] = as_float(old, type_) if is_float else cut(typed(old, type_), other)
            return
        given = t.registers[other] if other[0] == "%" else int(other, 0)
        new = as_bits(given, type_) if isinstance(given, float) else given
        if parts[0] == "red":
            new = {
                "add": old + new,
                "min": min(typed(old, type_), typed(new, type_)),
                "max": max(typed(old, type_), typed(new, type_)),
                **{name: act(old, new) for name, act in BITWISE.items()},
            }[parts[-2]]
        data[at : at + size] = (new % 2 ** (8 * size)).to_bytes(size, "little")

    def find(self, address: int) -> tuple[bytearray, int]:
        """The buffer that holds an address, and the place in it."""
        base = max(base for base in self.buffers if base <= address)
        return self.buffers[base], address - base


def answers(waits: Mapping[int, tuple[Any, ...] | None]) -> dict[int, Any]:
    """What threads get that go on now: of a warp whose lanes all wait for the same shuffle or vote, else of a block
    whose threads all wait at a barrier.
    """
    for first in range(0, len(waits), 32):
        lanes = {n: wait for n in range(first, first + 32) if (wait := waits[n])}
        if lanes and all(wait[0] != "bar" for wait in lanes.values()):
            return {n: exchanged(n - first, wait, [lanes[m] for m in lanes]) for n, wait in lanes.items()}
    return {n: None for n, wait in waits.items() if wait}


def exchanged(lane: int, wait: tuple[Any, ...], lanes: Sequence[tuple[Any, ...]]) -> Any:
    """PTX ISA, shfl.sync and vote.sync, of whole warps. A shuffle's operand c holds the clamp and the segment mask."""
    what, mode, own, rest = wait
    if what == "vote":
        truths = [other[2] for other in lanes]
        ballot = sum(truth << n for n, truth in enumerate(truths))
        return {"ballot": ballot, "any": any(truths), "all": all(truths), "uni": len({*truths}) == 1}[mode]
    distance, c = rest[0] & 31, rest[1]
    clamp, segment = c & 31, c >> 8 & 31
    most = (lane & segment) | (clamp & ~segment)
    least = lane & segment
    source = {"up": lane - distance, "down": lane + distance, "bfly": lane ^ distance,
              "idx": least | (distance & ~segment & 31)}[mode]  # fmt: skip
    inside = source >= most if mode == "up" else source <= most
    return lanes[source][2] if inside else own


def cut(value: int, register: str) -> int:
    """A number as a register of integers holds it."""
    return value % 2 ** {"r": 32, "d": 64, "h": 16}[register[1]]


def typed(bits: int, type_: str) -> int:
    """The number that the low bits of a register stand for."""
    size = int(type_[1:])
    low = bits % 2**size
    return low - 2**size if type_[0] == "s" and low >> size - 1 else low


def as_float(bits: int, type_: str) -> float:
    size, letter = int(type_[1:]) // 8, FORMATS["f" + type_[1:]][3]
    return float(struct.unpack(f"<{letter}", bits.to_bytes(size, "little"))[0])


def as_bits(value: float, type_: str) -> int:
    """NaN has one pattern."""
    if math.isnan(value):
        return 2 ** (int(type_[1:]) - 1) - 1
    return int.from_bytes(struct.pack(f"<{FORMATS['f' + type_[1:]][3]}", value), "little")


def rounded(exact: Fraction, type_: str, mode: str = "rn", zero: float = 0.0) -> float:
    """A fraction as the nearest float in a direction. zero: what 0 becomes."""
    if exact == 0:
        return zero
    digits, least, most, _ = FORMATS[type_]
    size, sign = abs(exact), -1 if exact < 0 else 1
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, least) - digits + 1)
    whole, rest = divmod(size / unit, 1)
    up = {"rz": False, "rm": sign < 0, "rp": sign > 0}.get(mode, rest > Fraction(1, 2) or (2 * rest == 1 and whole % 2))
    whole += bool(up and rest)
    if whole * unit >= Fraction(2) ** (most + 1):
        return sign * (math.inf if up or mode == "rn" else float((2 - Fraction(2) ** (1 - digits)) * 2**most))
    return sign * float(whole * unit) or math.copysign(0.0, sign)


def flushed(value: float, is_ftz: bool) -> float:
    """A subnormal number as a zero of its sign."""
    return math.copysign(0.0, value) if is_ftz and abs(value) < 2.0**-126 else value


def arithmetic(name: str, x: Sequence[float], type_: str, mode: str) -> float:
    """add, sub, mul, fma, div and sqrt, rounded once."""
    if name == "sub":
        return arithmetic("add", [x[0], -x[1]], type_, mode)
    if any(map(math.isnan, x)):
        return math.nan
    down = -0.0 if mode == "rm" else 0.0
    if name == "sqrt":
        if x[0] < 0:
            return math.nan
        return root(x[0], type_, mode) if 0 < x[0] < math.inf else x[0]
    if name == "add":
        if not all(map(math.isfinite, x)):
            return x[0] + x[1]
        zero = x[0] if x[0] == x[1] == 0 and math.copysign(1, x[0]) == math.copysign(1, x[1]) else down
        return rounded(Fraction(x[0]) + Fraction(x[1]), type_, mode, zero)
    sign = math.copysign(1, x[0]) * math.copysign(1, x[1])
    if name == "div":
        if math.isinf(x[0]) or math.isinf(x[1]) or x[1] == 0:
            if math.isinf(x[0]) == math.isinf(x[1]) and (math.isinf(x[0]) or x[0] == x[1] == 0):
                return math.nan
            return sign * (0.0 if math.isinf(x[1]) else math.inf)
        return rounded(Fraction(x[0]) / Fraction(x[1]), type_, mode, sign * 0.0)
    if math.isinf(x[0]) or math.isinf(x[1]):
        product = math.nan if 0 in x[:2] else sign * math.inf
        return product if name == "mul" else product + x[2]
    exact = Fraction(x[0]) * Fraction(x[1])
    if name == "mul":
        return rounded(exact, type_, mode, sign * 0.0)
    if math.isinf(x[2]):
        return x[2]
    zero = x[2] if exact == 0 == x[2] and sign == math.copysign(1, x[2]) else down
    return rounded(exact + Fraction(x[2]), type_, mode, zero)


def root(x: float, type_: str, mode: str) -> float:
    """More digits than any result has, and one that says whether others follow: no root lies half way."""
    exact = Fraction(x) * 4**600
    whole = math.isqrt(exact.numerator // exact.denominator)
    return rounded(Fraction(2 * whole + (whole * whole != exact), 2 ** (601)), type_, mode)


def source_type(parts: Sequence[str], number: int) -> str:
    """Of an operand."""
    if parts[0] == "setp" or parts[0] == "cvt" or parts[0] in ("popc", "clz", "brev"):
        return parts[-1]
    if parts[0] in ("shl", "shr") and number == 1:
        return "u32"
    if parts[0] in ("bfe", "bfi") and number >= (1 if parts[0] == "bfe" else 2):
        return "u32"
    if parts[0] == "mad" and parts[1] == "wide" and number == 2:
        return parts[-1][0] + "64"
    return parts[-1] if parts[-1] not in ("pred",) else "b32"


def result(parts: Sequence[str], x: Sequence[Any], to: str) -> Any:
    """Of an instruction without effect on memory. to: the register that gets it."""
    name, type_ = parts[0], parts[-1]
    if to[1] == "p":
        if type_ == "pred":
            return not x[0] if name == "not" else bool(BITWISE[name](x[0], x[1]))
        holds = compared(parts[1], x[0], x[1])
        return bool(BITWISE[parts[2]](holds, x[2])) if len(x) > 2 else holds
    if name == "cvt":
        return converted(parts, x[0], to)
    if name == "selp":
        return (x[0] if x[2] else x[1]) if to[1] in "fe" else cut(x[0] if x[2] else x[1], to)
    if to[1] in "fe":
        return float_result(parts, x, type_)
    return cut(integer_result(parts, x, type_), to)


def compared(name: str, a: Any, b: Any) -> bool:
    """Of setp. A NaN makes those comparisons true whose names end in u, and ne of integers has no NaN."""
    unordered = any(isinstance(y, float) and math.isnan(y) for y in (a, b))
    if name in ("num", "nan"):
        return unordered == (name == "nan")
    if unordered:
        return len(name) == 3
    return COMPARE[{"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(name, name[:2])](a, b)


def float_result(parts: Sequence[str], x: Sequence[float], type_: str) -> float:
    """Of add, sub, mul, fma, mad, div, rcp, sqrt, min, max, abs, neg and mov."""
    name, is_ftz = parts[0], "ftz" in parts
    mode = next((part for part in parts if part in ("rn", "rz", "rm", "rp")), "rn")
    given = [flushed(y, is_ftz) for y in x]
    if name in ("mov", "abs", "neg"):
        return {"mov": x[0], "abs": abs(given[0]), "neg": -given[0]}[name]
    if name in ("min", "max"):
        a, b = sorted(given, key=lambda y: (math.isnan(y), y, math.copysign(1, y)))
        return a if name == "min" or math.isnan(b) else b
    name, given = ("div", [1.0, *given]) if name == "rcp" else (name, given)
    return flushed(arithmetic("fma" if name == "mad" else name, given, type_, mode), is_ftz)


def converted(parts: Sequence[str], x: Any, to: str) -> Any:
    """cvt between integers, between floats, and from one to the other."""
    target, source = parts[-2], parts[-1]
    mode = next((part for part in parts if part in ("rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi")), "rn")
    if target[0] == "f":
        if isinstance(x, float) and not math.isfinite(x):
            return x
        zero = x if isinstance(x, float) else 0.0
        return rounded(Fraction(x), target, mode, zero)
    if source[0] == "f":
        if math.isnan(x):
            return 2 ** (int(target[1:]) - 1) if source == "f64" or target.endswith("64") else 0
        if math.isfinite(x):
            exact = Fraction(x)
            x = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[mode](exact)
    if source[0] == "f" or "sat" in parts:
        size = int(target[1:])
        low, high = (-(2 ** (size - 1)), 2 ** (size - 1) - 1) if target[0] == "s" else (0, 2**size - 1)
        x = low if x < low else high if x > high else x
    return cut(typed(int(x), target), to)


def integer_result(parts: Sequence[str], x: Sequence[int], type_: str) -> int:
    """Of instructions on integers and bits."""
    name, size = parts[0], int(type_[1:])
    if name in ("mul", "mad"):
        product = x[0] * x[1]
        return (product >> size if parts[1] == "hi" else product) + (x[2] if name == "mad" else 0)
    if name in ("div", "rem"):
        quotient = abs(x[0]) // abs(x[1]) * (-1 if (x[0] < 0) != (x[1] < 0) else 1)
        return quotient if name == "div" else x[0] - quotient * x[1]
    if name in ("add", "sub"):
        total = x[0] + x[1] if name == "add" else x[0] - x[1]
        return max(-(2**31), min(2**31 - 1, total)) if "sat" in parts else total
    if name in ("min", "max"):
        return min(x[0], x[1]) if name == "min" else max(x[0], x[1])
    if name in BITWISE:
        return BITWISE[name](x[0], x[1])
    if name in ("shl", "shr"):
        return x[0] << min(x[1], size) if name == "shl" else x[0] >> min(x[1], size)
    if name == "sad":
        return x[2] + abs(x[0] - x[1])
    if name == "lop3":
        rows = (((x[0] >> n & 1) << 2 | (x[1] >> n & 1) << 1 | (x[2] >> n & 1), n) for n in range(32))
        return sum((x[3] >> row & 1) << n for row, n in rows)
    if name == "prmt":
        pool = (x[0] % 2**32 | x[1] % 2**32 << 32).to_bytes(8, "little")
        picked = [x[2] >> 4 * n & 15 for n in range(4)]
        return int.from_bytes(bytes(255 * (pool[p & 7] >> 7) if p & 8 else pool[p & 7] for p in picked), "little")
    if name == "shf":
        both, count = x[0] | x[1] << 32, x[2] & 31 if parts[2] == "wrap" else min(x[2], 32)
        return both << count >> 32 if parts[1] == "l" else both >> count
    if name == "bfe":
        start, length = x[1] & 255, x[2] & 255
        last = min(start + length - 1, size - 1)
        sign = x[0] >> last & 1 if type_[0] == "s" and length else 0
        return sum((x[0] >> start + n & 1 if n < length and start + n < size else sign) << n for n in range(size))
    if name == "bfi":
        start, length = x[2] & 255, x[3] & 255
        inside = [start <= n < start + length for n in range(size)]
        return sum(((x[0] >> n - start if inside[n] else x[1] >> n) & 1) << n for n in range(size))
    unary: dict[str, Callable[[int], int]] = {
        "mov": lambda y: y,
        "not": lambda y: ~y,
        "neg": lambda y: -y,
        "abs": abs,
        "cnot": lambda y: int(y == 0),
        "popc": lambda y: f"{y:b}".count("1"),
        "clz": lambda y: size - y.bit_length(),
        "brev": lambda y: int(f"{y:0{size}b}"[::-1], 2),
    }
    return unary[name](x[0])
