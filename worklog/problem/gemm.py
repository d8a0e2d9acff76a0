"""The problem that every kernel solves, C(M x N) = alpha * A(M x K) * B(K x N) + beta * C in row-major FP32, and the
domain of a kernel: which shapes it takes.

What is known about it without running anything lives here: shapes, floating-point operations, the fewest bytes,
inputs, and a reference in higher precision for a few rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.errors import BadSetting

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

FLOAT_BYTES = 4
CLASSES = ("fp32", "fp32-emulated", "tf32", "fp16", "bf16")  # precision classes, most precise first
ADVICE = "give one such as 4096, or M x N x K such as 512x1024x256"


@dataclass(frozen=True)
class Domain:
    """M, N and K must be multiples of these. square: and equal. alpha, beta: whether the kernel takes them; one that
    doesn't computes with alpha = 1 or beta = 0. any_data: whether it states that subnormal numbers, infinities, NaN and
    numbers of any size give what FP32 gives.
    """

    m: int = 1
    n: int = 1
    k: int = 1
    square: bool = False
    alpha: bool = True
    beta: bool = True
    any_data: bool = False

    def __contains__(self, shape: Shape) -> bool:
        whole = shape.m % self.m == 0 and shape.n % self.n == 0 and shape.k % self.k == 0
        return whole and (shape.square or not self.square)

    def padded(self, shape: Shape) -> Shape:
        """The smallest shape in the domain that holds this one."""
        if self.square:
            step = math.lcm(self.m, self.n, self.k)
            return Shape.of(math.ceil(max(shape.m, shape.n, shape.k) / step) * step)
        steps = ((shape.m, self.m), (shape.n, self.n), (shape.k, self.k))
        return Shape(*(math.ceil(size / step) * step for size, step in steps))

    @classmethod
    def of(cls, rules: str, names: Mapping[str, int] = MappingProxyType({})) -> Domain:
        """Read "M % 128 == 0, K % BK == 0", "M = N = K", or "any" for every shape, and "any data". names: values of
        names such as BK. Raises BadSetting.
        """
        steps, square, any_data = {"M": 1, "N": 1, "K": 1}, False, False
        for rule in re.split(r",|\band\b", rules.replace("any M, N, K", "any")):
            if rule.strip() in ("any", "any data"):
                any_data |= rule.strip() == "any data"
                continue
            if re.fullmatch(r"\s*M\s*==?\s*N\s*==?\s*K\s*", rule):
                square = True
                continue
            match = re.fullmatch(r"\s*([MNK])\s*%\s*(?:([1-9][0-9]{0,8})|([A-Za-z_]\w*))\s*==\s*0\s*", rule)
            if match is None or (match[3] and names.get(match[3], 0) < 1):
                raise BadSetting(
                    f"cannot read the domain {rules!r}: give rules such as 'M % 64 == 0, K % 8 == 0', or any"
                )
            steps[match[1]] = math.lcm(steps[match[1]], names[match[3]] if match[3] else int(match[2]))
        return cls(steps["M"], steps["N"], steps["K"], square, any_data=any_data)

    def __str__(self) -> str:
        rules = [f"{name} % {step} == 0" for name, step in (("M", self.m), ("N", self.n), ("K", self.k)) if step > 1]
        shapes = ", ".join(["M = N = K"] * self.square + rules) or "any M, N, K"
        return shapes + ", any data" * self.any_data


@dataclass(frozen=True, order=True)
class Shape:
    """M, N and K of a product, each at least 1. Raises BadSetting otherwise."""

    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        sizes: tuple[tuple[str, Any], ...] = (("M", self.m), ("N", self.n), ("K", self.k))
        for name, value in sizes:
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BadSetting(f"size {name} = {value!r} is not a positive integer: {ADVICE}")

    @classmethod
    def of(cls, size: Shape | int | str | Iterable[int]) -> Shape:
        """Read 4096, "4096", "512x1024x256" or (M, N, K); NumPy's integers too. Raises BadSetting for anything else."""
        if isinstance(size, Shape):
            return size
        if isinstance(size, str):
            return cls.of(_numbers(size))
        if not isinstance(size, Iterable):
            return cls(*[_whole(size)] * 3)
        values = tuple(_whole(value) for value in size)
        if len(values) not in (1, 3):
            raise BadSetting(f"size {values!r} has {len(values)} parts: {ADVICE}")
        return cls(*values * (3 // len(values)))

    @property
    def flops(self) -> int:
        """2 M N K: one multiply and one add per term. The M N of an epilogue is left out, as is usual."""
        return 2 * self.m * self.n * self.k

    @property
    def compulsory_bytes(self) -> int:
        """Bytes that any algorithm must move with beta = 0: A and B read once, C written once."""
        return FLOAT_BYTES * (self.m * self.k + self.k * self.n + self.m * self.n)

    @property
    def square(self) -> bool:
        """Whether M = N = K."""
        return self.m == self.n == self.k

    def __str__(self) -> str:
        return str(self.m) if self.square else f"{self.m}x{self.n}x{self.k}"


def _numbers(text: str) -> list[int]:
    """The numbers of "4096" or "512x1024x256". Up to 9 digits: more is a mistake, and Python reads no thousands."""
    parts = re.split(r"\s*[x×]\s*", text.strip())
    if not all(re.fullmatch(r"[+-]?[0-9]+", part) for part in parts):
        raise BadSetting(f"size {text!r} is not a number: {ADVICE}")
    if any(len(part) > 9 for part in parts):
        raise BadSetting(f"size {text!r} has more digits than any matrix needs: {ADVICE}")
    return [int(part) for part in parts]


def _whole(value: Any) -> Any:
    """NumPy's integers as Python's; __post_init__ checks everything else."""
    return int(value) if isinstance(value, np.integer) else value


def tflops(shape: Shape, microseconds: float) -> float:
    """TFLOP/s of one launch."""
    return shape.flops / microseconds / 1e6


def random_inputs(shape: Shape, rng: np.random.Generator, kind: str = "random") -> tuple[Float32, Float32]:
    """A (M x K) and B (K x N), float32: "random" is U(-1, 1) with full mantissas; "zeros" and "ones" are easy data,
    which draws less power and biases a measurement.
    """

    def drawn(*size: int) -> Float32:
        if kind == "random":
            return rng.random(size, dtype=np.float32) * np.float32(2) - np.float32(1)
        return np.full(size, {"zeros": 0.0, "ones": 1.0}[kind], np.float32)

    return drawn(shape.m, shape.k), drawn(shape.k, shape.n)


def sampled_reference(a: Float32, b: Float32, rows: NDArray[np.intp]) -> tuple[Float64, Float64]:
    """FP64 product for some rows, and the 2-norm gauge D = sqrt((A∘A)(B∘B)) of the same elements, each (len(rows), N).

    D is the scale of the rounding error of one element: a random walk of K steps of the size of its terms.
    """
    a_rows = a[rows].astype(np.float64)
    reference = np.empty((len(rows), b.shape[1]))
    gauge = np.empty_like(reference)
    for start in range(0, b.shape[1], 1024):  # B in slabs: a float64 copy of all of it would double the memory
        slab = b[:, start : start + 1024].astype(np.float64)
        reference[:, start : start + 1024] = a_rows @ slab
        gauge[:, start : start + 1024] = np.sqrt(np.square(a_rows) @ np.square(slab))
    return reference, gauge
