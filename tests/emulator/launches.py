"""Launches of the kernels in tests/emulator/kernels, and what they write.

On the emulator, and on a GPU.
"""

import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.emulator.helpers import compiled, cuda, edited, integers
from worklog.emulator import Result, launch
from worklog.emulator.program import load_variables


class Crc(NamedTuple):
    """Of right numbers: how many, and the CRC-32 of their bytes."""

    count: int
    crc: int


@dataclass(frozen=True)
class Launch:
    """A launch, and what it leaves.

    wanted: what the last arguments begin with afterwards, or its Crc; None: anything
    kinds: of the findings, all of which are warnings
    counts: the result's, by name
    options: of `launch`
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
        outputs = map(np.ravel, arguments[len(arguments) - len(self.wanted) :])
        for output, right in zip(outputs, self.wanted, strict=True):
            if isinstance(right, Crc):
                written = output[: right.count] + output.dtype.type(0)  # no -0
                assert zlib.crc32(written.tobytes()) == right.crc, written
            elif right is not None:
                np.testing.assert_array_equal(output[: np.size(right)], np.ravel(right))


# Races are found in another way in a kernel with mbarriers.
MBARRIER = """
  __shared__ long long mbarrier;
  asm volatile("{.reg .pred %p; setp.eq.u32 %p, %1, 0; @%p mbarrier.init.shared.b64 [%0], 1;}"
               ::"r"((unsigned)__cvta_generic_to_shared(&mbarrier)), "r"(threadIdx.x));
"""


def launched(
    name: str,
    change: str | tuple[str, str] = "",
    *,
    mbarrier: bool = False,
    arch: str = "sm_90",
    **options: Any,
) -> tuple[list[Any], Result, str]:
    """Return the arguments after a launch, its result, and the source.

    change: a text that occurs once in the source and the text that replaces it, or the name of
        one of the kernel's bugs
    mbarrier: whether to add an mbarrier that nobody uses
    """
    one = KERNELS[name]
    source = cuda(name.split()[0])
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
    """Return the names in a source's enum of bugs."""
    listed = re.search(r"enum Bug \{(.*?)\}", source, re.DOTALL)
    return re.findall(r"\w+", listed[1]) if listed else []


zeros, words, floats = (
    partial(np.zeros, dtype=type_) for type_ in (np.int32, np.uint32, np.float32)
)
RNG = np.random.default_rng(1)
T32, T64, T128, T2560 = (np.arange(n) for n in (32, 64, 128, 64 * 40))
V64 = RNG.integers(0, 9, 64, np.int32)
V128 = RNG.integers(0, 9, 128, np.int32)


# What kernels/converging write, and kernels/barriers with the findings there.
CONVERGING = {
    "any_loop": Crc(64, 0xBEDCDF87),
    "ballot_loop": Crc(64, 0x2886D256),
    "redux_after_switch": Crc(64, 0x6C0A848C),
    "shuffle_in_two_branches": Crc(64, 0x06981E11),
    "loop_trips": Crc(64, 0xDE30F24A),
    "locks_between_warps": np.full(64, V64[::32].sum() + 80),
    "turns_of_warps": V64 + 1,
    "flags_between_warps": np.concatenate([2 * V64[31::-1], V64[:32]]),
    "reserved_memory": 3 * V64[::-1] + 3,
}
BARRIERS = {
    "two_in_branches": (Crc(128, 0xFD3B2693), ["barrier-by-warp"]),
    "producers_and_consumers": (Crc(128, 0x7BEE141C), []),
    "pairs_of_warps": (Crc(128, 0xE7809B16), []),
    "reductions": (Crc(256, 0xFAA2D314), ["barrier-by-warp"]),
    "lanes_apart": (np.where(T128 % 3 == 0, V128[::-1], -V128[::-1]), []),
    "half_warps": (Crc(128, 0x59FC6451), []),
    "guarded": (np.concatenate([V128[63::-1], np.full(64, 5)]), []),
}
# What becomes of c, d and flag, five blocks of 64 threads.
HAND_OVERS = {
    "last_block": (None, 5 * (T64 ^ 1) + 10, [5]),
    "volatile_parts": (None, 5 * (T64 ^ 1) + 10, [5]),
    "one_fence": (None, T64 ^ 1, [1]),
    "by_warp": (None, T32 ^ 1, [1]),
    "by_guard": (None, T32 ^ 1, [1]),
    "passed_on": (np.full(64, 10), None, [5]),
    "two_chains": (np.repeat([6, 4], 64), None, [3, 2]),
    "shared_lock": ([32] * 5, None, None),
}

SPINS = {"lock": ([0], [32]), "flag": ([1], [1] * 32), "meeting_above": ([1], None)}


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
    """C = A B of whole numbers.

    scaled: by alpha = 1, plus beta = 0 times C, which holds `start` before.
    """
    a = integers(RNG, m, k)
    b = integers(RNG, k, n)
    c = np.full(m * n, start, np.float32)
    return Launch(
        [m, n, k, 1.0, a, b, 0.0, c] if scaled else [m, n, k, a, b, c], [a @ b], block, grid, **more
    )


def right(name: str) -> Launch:
    """One of kernels/right: atomic_halves adds to C."""
    options = {"shared_bytes": 2048} if "dynamic" in name else {}
    return gemm(
        32, 48, 96, (3, 2), (16, 16), start=0 if "atomic" in name else math.nan, options=options
    )


# Of 2 blocks of 4 warps, in 6 steps one copy of A and one of B, of 16 bytes per thread.
COPIED = {"requests": 96, "sectors": 96 * 16, "bytes": 96 * 512}


def uniform() -> Launch:
    """Return a product of 128 x 128 x 128 with full mantissas."""
    a, b = (RNG.uniform(-1, 1, (128, 128)).astype(np.float32) for _ in "ab")
    numbers = [np.int32(128)] * 3
    return Launch(
        [*numbers, np.float32(1), a, b, np.float32(0), np.full(128 * 128, np.nan, np.float32)],
        (),
        128,
        (2, 2),
    )


def tiles_of_warps(size: int, crc: int) -> Launch:
    """Ballots, flags, sums, minima, matches, and sums by shuffles."""
    return Launch([RNG.integers(0, 100, 64, np.int32), size, words(448)], [Crc(448, crc)], 64)


def mma_f16() -> Launch:
    a, b = (integers(RNG, 16, columns).astype(np.float16) for columns in (16, 8))
    return Launch([a, b, np.zeros(256, np.float16)], [[(a @ b).ravel(), (a @ b).T.ravel()]])


def wmma() -> Launch:
    """Return a launch of wmma.cu.

    The counts are those of an ldmatrix, and of the eight generic loads of a matrix in shared
    memory.
    """
    a = integers(RNG, 16, 24).astype(np.float16)
    b = integers(RNG, 16, 16).astype(np.float16)
    old = integers(RNG, 5, 256)
    x = integers(RNG, 128)
    y = integers(RNG, 128)
    counts = {"shared_load.requests": 1 + 8, "shared_load.wavefronts": 4 + 16}
    wanted = [Crc(1280, 0x5B5D7B2C), Crc(768, 0x5FE73BBF), None, None]
    return Launch([a, b, old, np.zeros(3 * 256, np.float16), x, y], wanted, counts=counts)


def wmma_types() -> Launch:
    a = RNG.integers(0, 4, 2048).astype(np.float16).view(np.uint8)
    b = RNG.integers(0, 256, 4096, np.uint8)
    halves = RNG.integers(-4, 4, 3200).astype(np.float16)
    out = [RNG.integers(-99, 99, 5632, np.int32), RNG.uniform(-1, 1, 256), halves]
    return Launch(
        [a, b, *out], [Crc(5632, 0xA8B8C53F), Crc(256, 0x3E63ADB3), Crc(3200, 0x25B86AE1)]
    )


def ignored_copies() -> np.ndarray:
    """Return what each thread has at the end.

    A copy of 16 bytes, then one of 4, or one of 8 that is ignored.
    """
    out = np.zeros((32, 4), np.float32)
    out[:8] = 1 + np.arange(32).reshape(8, 4)
    odd = T32 % 2 == 1
    out[odd, 1] = np.where(T32[odd] < 16, 2, 0)
    out[~odd, 2:] = 0
    return out


SQUARES = T2560.astype(np.int32) ** 2
FLOATS = np.arange(33, dtype=np.float32)
# By file, and a word more where a file is launched in several ways.
KERNELS: dict[str, Launch] = {
    **{
        f"converging/{name}": Launch([V64, zeros(192)], [out], 64)
        for name, out in CONVERGING.items()
    },
    **{
        f"barriers/{name}": Launch([V128, zeros(256)], [out], 128, kinds=kinds)
        for name, (out, kinds) in BARRIERS.items()
    },
    **{
        f"hand_over/{n}": Launch([zeros(1280) for _ in "cdf"], out, 64, (5,))
        for n, out in HAND_OVERS.items()
    },
    **{
        f"spins/{n}": Launch([zeros(64) for _ in "cd"], out, options={"budget": 9000})
        for n, out in SPINS.items()
    },
    **{
        f"right/{path.stem}": right(path.stem)
        for path in sorted(Path(__file__).parent.glob("kernels/right/*.cu"))
    },
    "calls/recursion": Launch([zeros(32)], [Crc(32, 0x1D74A57B)]),
    "calls/structs": Launch([floats(32)], [18.5 + 2.5 * T32]),
    "calls/small_integers": Launch([zeros(32)], [Crc(32, 0xFB3BCF2F)]),
    "calls/pointers": Launch([floats(32)], [np.where(T32 % 2, T32**2, 2 * T32)]),
    "tiles_of_warps 2": tiles_of_warps(2, 0xBC99DC58),
    "tiles_of_warps 4": tiles_of_warps(4, 0x5817F45F),
    "tiles_of_warps 8": tiles_of_warps(8, 0x9D8B9CCE),
    "tiles_of_warps 16": tiles_of_warps(16, 0x6EDBD504),
    "tiles_of_warps 32": tiles_of_warps(32, 0x2A1C57F9),
    **{  # more blocks than usually run together
        f"blocks_in_order {way}": Launch(
            [way, zeros(1), words(256)],
            [[34], Crc(256, 0x3F3153B4)],
            256,
            (34,),
            options={"count": False},
        )
        for way in range(5)
    },
    "copies": gemm(
        *(64, 32, 96, (1, 2), 128),
        counts={
            "shared_store.requests": 0,
            **{f"global_load.{what}": count for what, count in COPIED.items()},
        },
    ),
    "warp_specialised": gemm(
        64, 64, 96, (1, 1), 160, scaled=True, counts={"global_load.bytes": 2 * 64 * 96 * 4}
    ),
    "wgmma_tf32": gemm(64, 128, 64, (2, 1), 128, scaled=True),
    "wgmma_tf32 uniform": uniform(),
    "mma_tf32": uniform(),
    "mma_f16": mma_f16(),
    "wmma": wmma(),
    "wmma_types": wmma_types(),
    "mbarriers": Launch([words(288)], [np.repeat([2, 1, 1, 0, 1, 0, 1, 0, 1], 32)]),
    # 4 x 2 blocks in clusters of 2 x 2: what each writes, 64 numbers a step.
    "clusters": Launch(
        [np.arange(7, 11, dtype=np.uint32), words(3072)], [Crc(3072, 0x8FAA6438)], 64, (4, 2)
    ),
    "bulk_copies": Launch(
        [np.arange(100, 356, dtype=np.uint32), words(640)], [Crc(640, 0x9D481337)], 64
    ),
    # 2000 stages: more turns than a wait that nothing ends is granted.
    "long_ring": Launch([2000, np.arange(1, 5, dtype=np.uint32), words(1)], [[20_000]], 64),
    "disjoint_masks": Launch([words(96)], [Crc(96, 0x5472A554)]),
    "partial_warp": Launch([FLOATS[1:], floats(32)], [[sum(range(1, 21))]]),
    "exited_lanes": Launch([words(40)], [[0xAAAAA] * 20 + [65] * 20], kinds=["exited-in-mask"]),
    "exited_lanes absent": Launch(
        [words(40)], [[0xAAAAA] * 20 + [65] * 20], 20, kinds=["exited-in-mask"]
    ),
    "short_copies": Launch(
        [np.ones(121, np.float32), floats(128)], [np.arange(4) < ((31 - T32) % 5)[:, None]]
    ),
    # 8 threads read 16 bytes, 8 more read 4. The other addresses are outside of the buffer.
    "ignored_copies": Launch(
        [1 + np.arange(32, dtype=np.float32), floats(128)],
        [ignored_copies()],
        counts={"global_load.bytes": 8 * 16 + 8 * 4},
    ),
    "exchange": Launch([T64.astype(np.int32), zeros(64)], [T64 ^ 3], 64),
    "volatile_exchange": Launch([T64.astype(np.int32), zeros(64)], [T64 ^ 3], 64),
    "same_value": Launch([zeros(64)], [[1] * 64], 64),
    "warp_exits": Launch([zeros(64)], [[*T32, *[7] * 32]], 64, kinds=["barrier-after-exit"]),
    "votes_apart": Launch(
        [words(64)],
        [[sum(1 << t for t in range(32) if t % 3 == t // 16)] * 32 + [0] * 16 + [0xAAAA0000] * 16],
    ),
    "block_turns": Launch(
        [zeros(1), zeros(640)], [[20], np.arange(20)[::-1].repeat(32)], grid=(20,)
    ),
    "grid_sums": Launch(
        [zeros(12800), zeros(1), zeros(12800)], [[200], [12801] * 12800], 64, (200,)
    ),
    "grid_barrier": Launch(
        [SQUARES, zeros(5120)], [[np.roll(SQUARES, 4) + 6, np.roll(SQUARES, 5) + 10]], 64, (40,)
    ),
    "locks 1": Launch([1, zeros(1), zeros(1), zeros(1)], [[48], [48]], 24, (2,)),
    "locks 0": Launch([0, zeros(1), zeros(1), zeros(1)], [[0], [24]], 24, (2,)),
    "attempts": Launch([100, words(32)], [[100] * 32], kinds=["no-time"]),
    "shuffles": Launch([T64.astype(np.int32) ** 2, zeros(256)], [Crc(256, 0xDC7DAD9F)], 64),
    "match": Launch([T32.astype(np.int32) ** 2, words(128)], [Crc(128, 0x62EF6B60)]),
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
    "half_atomics": Launch(  # of bfloat16, the upper half of a float32
        [np.zeros(4, np.float16), np.zeros(4, np.uint16), np.zeros(2, np.uint16)],
        [[48, 0, 48, 8], (np.array([48, 0, 48, 8], np.float32).view(np.uint32) >> 16), [32]],
        counts={"atomic.requests": 4 + 32},
    ),
    "memories": Launch(
        [T32.astype(np.int32) * 3, zeros(32)], [Crc(32, 0x11E7F168)], options={"shared_bytes": 128}
    ),
    **{
        f"generic_pointers {which}": Launch(
            [np.full(32, 10, np.float32), which, floats(33)], [[0] + [10] * 32]
        )
        for which in (0, 2)
    },
    **{
        f"generic_loads {which}": Launch(
            [np.ones(256, np.float32), which, floats(32)],
            [[which > 0] * 32],
            counts={
                f"{load}.requests": 1,
                f"{load}.bytes": 128,
                f"{load}.sectors": which,
                "local.requests": 0,
            },
        )
        for which, load in ((32, "global_load"), (0, "shared_load"))
    },
    # Each thread does its own number of steps, with branches inside.
    "diverged": Launch([150, words(150)], [Crc(150, 0x598FC35B)], 40, (4,)),
    "three_dimensions": Launch([zeros(24 * 30)], [Crc(720, 0xDF2E4C4F)], (5, 3, 2), (2, 3, 4)),
    "batches": Launch([zeros(5 * 64)], [Crc(320, 0x5E34150A)], 64, (5,)),
    "backwards": Launch([FLOATS.repeat(2)[:64]], [FLOATS.repeat(2)[63::-1]], 64),
    "variables": Launch(
        [int.from_bytes((T32.astype(np.int32) ** 2).tobytes(), "little"), 0, floats(36)],
        [[3, 2, 4, 1 + 4, *(T32 ^ 3) ** 2]],
        counts={"global_load.requests": 5},
    ),
    "shared_sizes": Launch(
        [words(6)], [[384, 384 + 1024, 300, 1024, 1024, 8]], 1, options={"shared_bytes": 300}
    ),
}
