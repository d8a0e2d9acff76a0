"""The rungs: one short record each. File, tile, block size and the idea; the domain, the grid and the entry's name
follow from them.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass

from worklog.errors import BadSetting, OutsideDomain, UnknownRung
from worklog.problem.gemm import Shape

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def evaluate(expression: str, names: Mapping[str, int]) -> int:
    """Value of an integer expression such as "BM * BN // (TM * TN)" with + - * // % and the given names, nothing else.

    Raises BadSetting for anything that is not such an expression.
    """

    advice = f"use {', '.join(['integers', *names])} and + - * // %"

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id in names:
            return names[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return int(_OPERATORS[type(node.op)](value(node.left), value(node.right)))
        raise BadSetting(f"cannot read {ast.unparse(node)!r} in {expression!r}: {advice}")

    try:
        return value(ast.parse(expression, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError) as error:
        reason = "by zero" if isinstance(error, ZeroDivisionError) else "not such an expression"
        raise BadSetting(f"cannot read {expression!r}: {advice} ({reason})") from error


@dataclass(frozen=True)
class Domain:
    """The shapes a kernel takes: M, N and K must be multiples of these."""

    m: int = 1
    n: int = 1
    k: int = 1

    def __contains__(self, shape: Shape) -> bool:
        return shape.m % self.m == 0 and shape.n % self.n == 0 and shape.k % self.k == 0

    def padded(self, shape: Shape) -> Shape:
        """The smallest shape in the domain that holds this one."""
        return Shape(
            *(
                math.ceil(have / step) * step
                for have, step in zip((shape.m, shape.n, shape.k), (self.m, self.n, self.k), strict=True)
            )
        )

    @classmethod
    def of(cls, rules: str) -> Domain:
        """Read "M % 128 == 0, K % 8 == 0", or "any" for every shape. Raises BadSetting."""
        steps = {"M": 1, "N": 1, "K": 1}
        for rule in re.split(r",|\band\b", rules):
            match = re.fullmatch(r"\s*([MNK])\s*%\s*([1-9][0-9]{0,8})\s*==\s*0\s*", rule)
            if match is not None:
                steps[match[1]] = math.lcm(steps[match[1]], int(match[2]))
            elif rules.strip() not in ("any", "any M, N, K"):
                raise BadSetting(
                    f"cannot read the domain {rules!r}: give rules such as 'M % 64 == 0, K % 8 == 0', or any"
                )
        return cls(steps["M"], steps["N"], steps["K"])

    def __str__(self) -> str:
        rules = [f"{name} % {step} == 0" for name, step in (("M", self.m), ("N", self.n), ("K", self.k)) if step > 1]
        return ", ".join(rules) or "any M, N, K"


@dataclass(frozen=True)
class Rung:
    """One kernel of the ladder.

    name: as users type it; the entry is `sgemm_<name>`. file: under kernels/. tile: template arguments in order.
    threads: threads of a block, an expression in the tile's names. whole_tiles: the kernel has no bounds checks, so
    M, N and K must be multiples of BM, BN and BK. idea: what this rung adds, in half a sentence.
    """

    name: str
    file: str
    tile: Mapping[str, int]
    threads: str
    idea: str
    whole_tiles: bool = True

    @property
    def entry(self) -> str:
        """The template instance to compile, such as `sgemm_shared<32, 32, 32>`."""
        return f"sgemm_{self.name}<{', '.join(map(str, self.tile.values()))}>"

    @property
    def domain(self) -> Domain:
        """What the tile divides, or everything for a kernel that checks its bounds."""
        return Domain(self.tile["BM"], self.tile["BN"], self.tile["BK"]) if self.whole_tiles else Domain()

    @property
    def block(self) -> int:
        """Threads of one block."""
        return evaluate(self.threads, self.tile)

    def grid(self, shape: Shape) -> tuple[int, int]:
        """Blocks along x (columns of C) and y (rows of C)."""
        return -(-shape.n // self.tile["BN"]), -(-shape.m // self.tile["BM"])

    def block_traffic_bytes(self, shape: Shape) -> int:
        """Bytes that blocks fetch from L2 if each brings its BM rows of A and BN columns of B once, plus C written
        once.
        """
        blocks = math.prod(self.grid(shape))
        return 4 * (blocks * (self.tile["BM"] + self.tile["BN"]) * shape.k + shape.m * shape.n)

    def check(self, shape: Shape) -> None:
        """Raise OutsideDomain, with a way out, for a shape that this rung does not take."""
        if shape in self.domain:
            return
        raise OutsideDomain(
            f"size {shape} is outside {self.name}'s domain ({self.domain}): pad to {self.domain.padded(shape)}, "
            f"or use {LADDER[1].name}, which takes any size"
        )


# The tiles of autotuned and warptiled are the fastest ones on an H200 at 4096. The other rungs have the usual textbook
# tiles or the tile of the rung before, so that the step shows the idea alone.
LADDER: tuple[Rung, ...] = (
    Rung(
        "naive",
        "01_naive.cu",
        dict(BM=32, BN=32),
        "BM * BN",
        "one thread, one element, neighbours in different rows",
        whole_tiles=False,
    ),
    Rung(
        "coalesced",
        "02_coalesced.cu",
        dict(BM=32, BN=32),
        "BM * BN",
        "neighbouring threads take neighbouring columns",
        whole_tiles=False,
    ),
    Rung("shared", "03_shared.cu", dict(BM=32, BN=32, BK=32), "BM * BN", "the block shares tiles of A and B"),
    Rung(
        "tiles_1d",
        "04_tiles_1d.cu",
        dict(BM=64, BN=64, BK=8, TM=8),
        "BM * BN // TM",
        "each thread computes a column of 8",
    ),
    Rung(
        "tiles_2d",
        "05_tiles_2d.cu",
        dict(BM=128, BN=128, BK=8, TM=8, TN=8),
        "BM * BN // (TM * TN)",
        "each thread computes an 8 x 8 tile",
    ),
    Rung(
        "vectorized",
        "06_vectorized.cu",
        dict(BM=128, BN=128, BK=8, TM=8, TN=8),
        "BM * BN // (TM * TN)",
        "16-byte loads, A stored transposed",
    ),
    Rung(
        "conflict_free",
        "07_conflict_free.cu",
        dict(BM=128, BN=128, BK=8, TM=8, TN=8),
        "BM * BN // (TM * TN)",
        "shared memory without bank conflicts",
    ),
    Rung(
        "double_buffered",
        "08_double_buffered.cu",
        dict(BM=128, BN=128, BK=8, TM=8, TN=8),
        "BM * BN // (TM * TN)",
        "the next tile is fetched during this one",
    ),
    Rung(
        "autotuned",
        "09_autotuned.cu",
        dict(BM=128, BN=256, BK=8, TM=8, TN=16, MIN_BLOCKS=1),
        "BM * BN // (TM * TN)",
        "the tile that was fastest on an H200",
    ),
    Rung(
        "pipelined",
        "10_pipelined.cu",
        dict(BM=128, BN=256, BK=8, TM=8, TN=16, MIN_BLOCKS=1),
        "BM * BN // (TM * TN)",
        "the next k is read during this one",
    ),
    Rung(
        "register_banks",
        "11_register_banks.cu",
        dict(BM=128, BN=256, BK=8, TM=8, TN=16, MIN_BLOCKS=1),
        "BM * BN // (TM * TN)",
        "multiply-adds in an order that reuses operands",
    ),
    Rung(
        "warptiled",
        "12_warptiled.cu",
        dict(BM=128, BN=128, BK=16, WM=64, WN=64, MIN_BLOCKS=2),
        "BM * BN // (WM * WN) * 32",
        "each warp computes a 64 x 64 tile",
    ),
)


def rung(name: str) -> Rung:
    """The rung of that name. Raises UnknownRung with the names that exist."""
    for candidate in LADDER:
        if candidate.name == name:
            return candidate
    raise UnknownRung(f"there is no rung {name!r}: choose from {', '.join(r.name for r in LADDER)}")
