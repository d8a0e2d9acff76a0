"""Launches of the kernels in tests/emulator/kernels, and what they write: on the emulator, and on a GPU."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.emulator.helpers import compiled, cuda, edited, integers
from worklog.emulator import Result, launch
from worklog.emulator.launch import load_variables


@dataclass(frozen=True)
class Launch:
    """wanted: what the last arguments begin with afterwards; None: anything. kinds: of the findings, all of which are
    warnings. counts: the result's, by name. options: of `launch`.
    """

    arguments: Sequence[Any]
    wanted: Sequence[Any] = ()
    block: Any = 32
    grid: Any = (1,)
    kinds: Sequence[str] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def check(self, arguments: Sequence[Any]) -> None:
        """Compare the arguments of a launch with what is wanted."""
        for found, right in zip(arguments[len(arguments) - len(self.wanted) :], self.wanted, strict=True):
            if right is not None:
                right = np.ravel(right)
                np.testing.assert_array_equal(np.ravel(found)[: right.size], right)


# Races are found in another way in a kernel with mbarriers.
MBARRIER = """
  __shared__ long long mbarrier;
  asm volatile("{.reg .pred %p; setp.eq.u32 %p, %1, 0; @%p mbarrier.init.shared.b64 [%0], 1;}"
               ::"r"((unsigned)__cvta_generic_to_shared(&mbarrier)), "r"(threadIdx.x));
"""


def launched(
    name: str, change: str | tuple[str, str] = "", *, mbarrier: bool = False, arch: str = "sm_90", **options: Any
) -> tuple[list[Any], Result, str]:
    """The arguments after a launch, its result, and the source. change: a text that occurs once in the source and the
    one that replaces it, or the name of one of the kernel's bugs. mbarrier: with one that nobody uses.
    """
    one, source = KERNELS[name], cuda(name.split()[0])
    if mbarrier:
        source, _ = edited(source, "int* out) {\n", f"int* out) {{{MBARRIER}\n")
    if isinstance(change, tuple):
        source, _ = edited(source, *change)
    kernel = compiled(source, "k", arch)
    if isinstance(change, str) and change:
        variables = load_variables(kernel)
        variables["bug"][0] = bugs(source).index(change)
        options["variables"] = variables
    own = [x.copy() if isinstance(x, np.ndarray) else x for x in one.arguments]
    given = {"grid": one.grid, "block": one.block, "source": source, **one.options, **options}
    return own, launch(kernel, arguments=own, **given), source


def bugs(source: str) -> list[str]:
    """The names in a source's enum of bugs."""
    listed = re.search(r"enum Bug \{(.*?)\}", source, re.DOTALL)
    return re.findall(r"\w+", listed[1]) if listed else []


def warps(values: np.ndarray) -> np.ndarray:
    return np.reshape(values, (-1, 32))


def bit_sums(bits: np.ndarray, size: int) -> np.ndarray:
    """For each lane, its tile's lanes that have a bit, as a mask of the warp."""
    return (bits << np.arange(bits.size) % 32).reshape(-1, size).sum(axis=1).repeat(size)


zeros, words, floats = (partial(np.zeros, dtype=type_) for type_ in (np.int32, np.uint32, np.float32))
RNG = np.random.default_rng(1)
T32, T64, T128, T2560 = (np.arange(n) for n in (32, 64, 128, 64 * 40))
V64, V128 = RNG.integers(0, 9, 64, np.int32), RNG.integers(0, 9, 128, np.int32)


# Threads that wait for each other: what kernels/converging and kernels/barriers do with V64 and V128.


def turns(left: int) -> int:
    """Of a lane in any_loop.cu."""
    count = 0
    while left > 0:
        left, count = left - (2 if left % 3 == 0 else 1), count + 1
    return count


def served() -> np.ndarray:
    busy = (warps(V64) > 0).sum(axis=1)
    return (busy * (busy + 1) // 2).repeat(32)


def switched() -> np.ndarray:
    rest = V64 % 5
    return warps(np.select([rest == 2, rest == 3], [7, 2 * V64], V64)).sum(axis=1).repeat(32)


def swapped() -> np.ndarray:
    rows = warps(V64)
    return np.hstack([3 * rows[:, 16:], -(rows[:, :16] + 1)])


def loops() -> np.ndarray:
    v, own, total = V64.copy(), np.zeros(64, np.int64), np.zeros(64, np.int64)
    for number in range(3):
        own += [sum(i for i in range(n + number) if not (i ^ t) & 1) for t, n in enumerate(v)]
        total += own[np.where(T64 % 32 < 31, T64 + 1, T64)]
        v = v[T64 ^ 5]
    return total


CONVERGING = {
    "any_loop": warps([turns(v) for v in V64]).max(axis=1).repeat(32),
    "ballot_loop": served(),
    "redux_after_switch": switched(),
    "shuffle_in_two_branches": swapped(),
    "loop_trips": loops(),
    "locks_between_warps": np.full(64, V64[::32].sum() + 80),
    "turns_of_warps": V64 + 1,
    "flags_between_warps": np.concatenate([2 * V64[31::-1], V64[:32]]),
    "reserved_memory": 3 * V64[::-1] + 3,
}


def buffers() -> np.ndarray:
    out = np.zeros(128, np.int64)
    tiles = [V128[:64], *(V128[64:] + i for i in range(4))]
    for i in range(4):
        out[:64] = (out[:64] + tiles[i][::-1]) * 3
        out[64:] -= tiles[i + 1][::-1]
    return out


def consumed() -> np.ndarray:
    """Of six stages, each weighs twice the one after it."""
    weight = sum((i + 1) * 2 ** (5 - i) for i in range(6))
    return np.concatenate([0 * V128[:64], weight * V128[63::-1]])


def paired() -> np.ndarray:
    pairs = V128.reshape(2, 64)
    once = pairs + pairs[:, ::-1]
    return np.concatenate([once[0], once[1] + once[1][::-1]])


def reduced() -> np.ndarray:
    most = V128[:64] > 4
    half = most.sum() + 100 * most.all() + 10000 * (32 + (T128[64:] % 3 == 0).sum())
    both = (V128 > 3).sum() + 1000 * (V128 < 9).all() + 2000 * (V128 == 8).any()
    return np.concatenate([np.full(128, both), np.full(64, half), np.full(64, -(half // 10000))])


BARRIERS = {
    "two_in_branches": (buffers(), ["barrier-by-warp"]),
    "producers_and_consumers": (consumed(), []),
    "pairs_of_warps": (paired(), []),
    "reductions": (reduced(), ["barrier-by-warp"]),
    "lanes_apart": (np.where(T128 % 3 == 0, V128[::-1], -V128[::-1]), []),
    "half_warps": (V128.reshape(8, 16).sum(axis=1)[np.arange(8) ^ 1].repeat(16), []),
    "guarded": (np.concatenate([V128[63::-1], np.full(64, 5)]), []),
}
# What becomes of c, d and flag, five blocks of 64 threads.
HAND_OVERS = {
    "last_block": (None, 5 * (T64 ^ 1) + 10, [5]),
    "one_fence": (None, T64 ^ 1, [1]),
    "by_warp": (None, T32 ^ 1, [1]),
    "by_guard": (None, T32 ^ 1, [1]),
    "passed_on": (np.full(64, 10), None, [5]),
    "two_chains": (np.repeat([6, 4], 64), None, [3, 2]),
    "shared_lock": ([32] * 5, None, None),
}


def gemm(
    m: int,
    n: int,
    k: int,
    grid: Sequence[int],
    block: Any,
    *,
    scaled: bool = False,
    start: float = math.nan,
    **more: Any,
) -> Launch:
    """C = A B of whole numbers. scaled: by alpha = 1, plus beta = 0 times C, which holds `start` before."""
    a, b, c = integers(RNG, m, k), integers(RNG, k, n), np.full(m * n, start, np.float32)
    return Launch([m, n, k, 1.0, a, b, 0.0, c] if scaled else [m, n, k, a, b, c], [a @ b], block, grid, **more)


def right(name: str) -> Launch:
    """One of kernels/right: atomic_halves adds to C."""
    options = {"shared_bytes": 2048} if "dynamic" in name else {}
    return gemm(32, 48, 96, (3, 2), (16, 16), start=0 if "atomic" in name else math.nan, options=options)


# Of 2 blocks of 4 warps, in 6 steps one copy of A and one of B, of 16 bytes per thread.
COPIED = {"requests": 96, "sectors": 96 * 16, "bytes": 96 * 512}


def uniform() -> Launch:
    """A product of 128 x 128 x 128 with full mantissas."""
    a, b = (RNG.uniform(-1, 1, (128, 128)).astype(np.float32) for _ in "ab")
    numbers = [np.int32(128)] * 3
    return Launch(
        [*numbers, np.float32(1), a, b, np.float32(0), np.full(128 * 128, np.nan, np.float32)], (), 128, (2, 2)
    )


def mma_f16() -> Launch:
    a, b = (integers(RNG, 16, columns).astype(np.float16) for columns in (16, 8))
    return Launch([a, b, np.zeros(256, np.float16)], [[(a @ b).ravel(), (a @ b).T.ravel()]])


def wmma() -> Launch:
    """The counts are those of an ldmatrix; the other loads are from global memory, or from generic addresses."""
    a, b = integers(RNG, 16, 24).astype(np.float16), integers(RNG, 16, 16).astype(np.float16)
    old, x, y, own = integers(RNG, 5, 256), integers(RNG, 128), integers(RNG, 128), a[:, :16].astype(np.float32)
    halves = np.stack([own @ b.T, (own.T @ b).T, own @ b]).reshape(3, 256)
    singles = [x.reshape(16, 8) @ y.reshape(8, 16), x.reshape(8, 16).T @ y.reshape(16, 8).T]
    counts = {"shared_load.requests": 1, "shared_load.wavefronts": 4}
    wanted = [[*(halves + old[:3]), *(one.ravel() for one in singles)], halves, None, None]
    return Launch([a, b, old, np.zeros(3 * 256, np.float16), x, y], wanted, counts=counts)


def wmma_types() -> Launch:
    a, b = RNG.integers(0, 4, 2048).astype(np.float16).view(np.uint8), RNG.integers(0, 256, 4096, np.uint8)
    halves = RNG.integers(-4, 4, 3200).astype(np.float16)
    return Launch([a, b, RNG.integers(-99, 99, 5632, np.int32), RNG.uniform(-1, 1, 256), halves])


def tiles_of_warps(size: int) -> Launch:
    """Ballots, flags, sums, minima, matches, and sums by shuffles."""
    values = RNG.integers(0, 100, 64, np.int32)
    tiles, rests = values.reshape(-1, size), values % 3
    total, large = tiles.sum(axis=1), tiles > 50
    flags = (tiles > 90).any(axis=1) + 2 * (tiles > 9).all(axis=1) + 4 * (large.all(axis=1) | ~large.any(axis=1))
    by_tile = [flags, total, tiles.min(axis=1)]
    match = np.choose(rests, [bit_sums(rests == rest, size) for rest in range(3)])
    wanted = [bit_sums(values & 1, size), *(x.repeat(size) for x in by_tile), match, *[total.repeat(size)] * 2]
    return Launch([values, size, words(448)], [wanted], 64)


def disjoint_masks() -> Launch:
    group = np.where(T32 % 2, 0, np.where(T32 < 20, 1, 2))
    mine = [T32[group == one] for one in group]
    ballots, greatest = [sum(1 << k for k in lanes if k % 3 == 0) for lanes in mine], [max(x * 7 % 32) for x in mine]
    return Launch([words(96)], [[ballots, greatest, np.where(T32 % 2, 0xAAAAAAAA, 16)]])


def shuffles() -> Launch:
    values = T64.astype(np.int32) ** 2
    sums, parts = warps(values).sum(axis=1).repeat(32), values.reshape(8, 8)
    shifted = np.hstack([parts[:, 3:], parts[:, 5:]])
    return Launch([values, zeros(256)], [[sums, sums, warps(values).cumsum(axis=1).ravel(), shifted.ravel()]], 64)


def match() -> Launch:
    """The other two are 0xffffffff + 1, and nothing."""
    values = T32.astype(np.int32) ** 2
    same = [sum(1 << k for k in range(32) if values[k] % 5 == rest) for rest in values % 5]
    return Launch([values, words(128)], [[same, [0] * 32, [0] * 32, [0] * 7 + [701] + [700] * 24]])


def memories() -> Launch:
    values = T32.astype(np.int32) * 3
    dynamic = (values + (values & 7) ** 2)[::-1]
    wanted = dynamic * np.array([1, 10, 100, 1000])[T32 & 3] + np.array([7, -7])[T32 & 1] + 1
    return Launch([values, zeros(32)], [wanted], options={"shared_bytes": 128})


def collatz(n: int) -> int:
    """Steps of diverged.cu."""
    count = 0
    while n != 1:
        n, count = (3 * n + 1 if n % 2 else n // 2), count + 1
    return count


def batches() -> Launch:
    b, t = np.indices((5, 64))
    return Launch([zeros(5 * 64)], [(b + 1) * (63 - t) + b * (b + 1) // 2], 64, (5,))


def bulk_copies() -> Launch:
    values, sums = np.arange(100, 356, dtype=np.uint32), 2 * 100 + 63
    wanted = [*values[:252], *values[:4], *[sums] * 64, *T64, *T64, *[0] * 64, *[1] * 128]
    return Launch([values, words(640)], [wanted], 64)


def three_dimensions() -> Launch:
    b, z, y, x = np.indices((24, 2, 3, 5))
    return Launch([zeros(24 * 30)], [1000 * b + 100 * z + 10 * y + x], (5, 3, 2), (2, 3, 4))


def in_order(way: int) -> Launch:
    """More blocks than usually run together."""
    expected = 0
    for block in reversed(range(34)):
        expected = (expected * 3 + block) % 2**32
    return Launch([way, zeros(1), words(256)], [[34], [expected] * 256], 256, (34,), options={"count": False})


SQUARES, FLOATS = T2560.astype(np.int32) ** 2, np.arange(33, dtype=np.float32)
# By file, and a word more where a file is launched in several ways.
KERNELS: dict[str, Launch] = {
    **{f"converging/{name}": Launch([V64, zeros(192)], [out], 64) for name, out in CONVERGING.items()},
    **{
        f"barriers/{name}": Launch([V128, zeros(256)], [out], 128, kinds=kinds)
        for name, (out, kinds) in BARRIERS.items()
    },
    **{f"hand_over/{n}": Launch([zeros(1280) for _ in "cdf"], out, 64, (5,)) for n, out in HAND_OVERS.items()},
    **{f"right/{path.stem}": right(path.stem) for path in sorted(Path(__file__).parent.glob("kernels/right/*.cu"))},
    **{f"tiles_of_warps {size}": tiles_of_warps(size) for size in (2, 4, 8, 16, 32)},
    **{f"blocks_in_order {way}": in_order(way) for way in range(5)},
    "copies": gemm(
        *(64, 32, 96, (1, 2), 128),
        counts={"shared_store.requests": 0, **{f"global_load.{what}": count for what, count in COPIED.items()}},
    ),
    "warp_specialised": gemm(64, 64, 96, (1, 1), 160, scaled=True, counts={"global_load.bytes": 2 * 64 * 96 * 4}),
    "wgmma_tf32": gemm(64, 128, 64, (2, 1), 128, scaled=True),
    "wgmma_tf32 uniform": uniform(),
    "mma_tf32": uniform(),
    "mma_f16": mma_f16(),
    "wmma": wmma(),
    "wmma_types": wmma_types(),
    "mbarriers": Launch([words(288)], [np.repeat([2, 1, 1, 0, 1, 0, 1, 0, 1], 32)]),
    "bulk_copies": bulk_copies(),
    "disjoint_masks": disjoint_masks(),
    "partial_warp": Launch([FLOATS[1:], floats(32)], [[sum(range(1, 21))]]),
    "exited_lanes": Launch([words(40)], [[0xAAAAA] * 20 + [65] * 20], kinds=["exited-in-mask"]),
    "exited_lanes absent": Launch([words(40)], [[0xAAAAA] * 20 + [65] * 20], 20, kinds=["exited-in-mask"]),
    "short_copies": Launch([np.ones(121, np.float32), floats(128)], [np.arange(4) < ((31 - T32) % 5)[:, None]]),
    "exchange": Launch([T64.astype(np.int32), zeros(64)], [T64 ^ 3], 64),
    "same_value": Launch([zeros(64)], [[1] * 64], 64),
    "warp_exits": Launch([zeros(64)], [[*T32, *[7] * 32]], 64, kinds=["barrier-after-exit"]),
    "votes_apart": Launch(
        [words(64)],
        [[sum(1 << t for t in range(32) if t % 3 == t // 16)] * 32 + [0] * 16 + [0xAAAA0000] * 16],
    ),
    "block_turns": Launch([zeros(1), zeros(640)], [[20], np.arange(20)[::-1].repeat(32)], grid=(20,)),
    "grid_sums": Launch([zeros(12800), zeros(1), zeros(12800)], [[200], [12801] * 12800], 64, (200,)),
    "grid_barrier": Launch([SQUARES, zeros(5120)], [[np.roll(SQUARES, 4) + 6, np.roll(SQUARES, 5) + 10]], 64, (40,)),
    "locks 1": Launch([1, zeros(1), zeros(1), zeros(1)], [[48], [48]], 24, (2,)),
    "locks 0": Launch([0, zeros(1), zeros(1), zeros(1)], [[0], [24]], 24, (2,)),
    "attempts": Launch([100, words(32)], [[100] * 32], kinds=["no-time"]),
    "shuffles": shuffles(),
    "match": match(),
    "cache_hints": Launch([FLOATS, floats(32)], [FLOATS[:-1] + FLOATS[1:]]),
    "atomics": Launch(
        [zeros(128), floats(1), zeros(1), zeros(1), floats(6)],
        [[1] * 128, [128], [5], [1], [64, 63, 32] * 2],
        64,
        (2,),
        counts={"atomic.requests": 2 * 2 * 6},
    ),
    # The last of 16 odd threads of each block sees those before it.
    "float4_atomics": Launch(
        [floats(8), floats(2)],
        [[32, 64, 480, 16, 32, 64, 512, 16], [30, 62]],
        grid=(2,),
        counts={"atomic.bytes": 2 * 32 * 16},
    ),
    "memories": memories(),
    **{
        f"generic_pointers {which}": Launch([np.full(32, 10, np.float32), which, floats(33)], [[0] + [10] * 32])
        for which in (0, 2)
    },
    # Each thread does its own number of steps, with branches inside.
    "diverged": Launch([150, words(150)], [[*map(collatz, range(1, 151))]], 40, (4,)),
    "three_dimensions": three_dimensions(),
    "batches": batches(),
    "backwards": Launch([FLOATS.repeat(2)[:64]], [FLOATS.repeat(2)[63::-1]], 64),
    "variables": Launch(
        [int.from_bytes((T32.astype(np.int32) ** 2).tobytes(), "little"), 0, floats(36)],
        [[3, 2, 4, 1 + 4, *(T32 ^ 3) ** 2]],
        counts={"global_load.requests": 5},
    ),
    "shared_sizes": Launch([words(6)], [[384, 384 + 1024, 300, 1024, 1024, 8]], 1, options={"shared_bytes": 300}),
}
