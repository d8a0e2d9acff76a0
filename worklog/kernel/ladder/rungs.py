"""The rungs: the article's ladder, FP32's own units past it, and FP32 through tensor cores.

A rung's tile, launch, domain and precision class stand in the header of its .cu file. Those from 18
on take several launches; `ragged` and `split` follow the shape. What the last rung, `best`, chooses
from is here, and how in worklog.kernel.ladder.best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from worklog.emulator.limits import Chip
from worklog.kernel import signature
from worklog.kernel.device import Program
from worklog.kernel.kernel import ANY_CHIP, Dispatcher, Kernel
from worklog.kernel.launch import MULTIPROCESSORS, Launch, domain, header
from worklog.kernel.nvrtc import own_headers
from worklog.kernel.source import kernels_dir, read_source
from worklog.problem import FLOAT_BYTES, Shape


def numbered(number: int | None, name: str, idea: str) -> Kernel:
    """Return a rung from the header of its file.

    number: None for a kernel that isn't a rung
    idea: what the rung adds
    Raises WorklogError.
    """
    file = f"{name}.cu" if number is None else f"{number:02}_{name}.cu"
    source = read_source(kernels_dir() / file)
    headers = tuple(own_headers(source, [str(kernels_dir())]).items())
    tile, claims, launch = header(source)
    launch = replace(launch, function=f"sgemm_{name}<{', '.join(tile)}>")
    rules, _ = domain(source, tile)
    arguments = signature.SGEMM_ARGUMENTS
    if "void* workspace" in source:
        arguments = (*signature.SGEMM_ARGUMENTS, signature.WORKSPACE)
    program = Program(file, source, "", headers=headers)
    return Kernel(
        name,
        program,
        (launch,),
        0,
        tile,
        rules,
        claims or "fp32",
        arguments=arguments,
        number=number,
        idea=idea,
    )


# autotuned has the fastest of the recorded sweep's 20 tiles on an H200 at 4096. Most others have
# the usual textbook one or that of the rung before. Where the tile changes, too, as in pipelined,
# the step doesn't show the idea alone.
LADDER = (
    numbered(1, "naive", "one thread, one element, neighbours in different rows"),
    numbered(2, "coalesced", "neighbouring threads take neighbouring columns"),
    numbered(3, "shared", "the block shares tiles of A and B"),
    numbered(4, "tiles_1d", "each thread computes a column of 8"),
    numbered(5, "tiles_2d", "each thread computes an 8 x 8 tile"),
    numbered(6, "vectorized", "16-byte loads, A stored transposed"),
    numbered(7, "conflict_free", "shared memory without bank conflicts"),
    numbered(8, "double_buffered", "the next tile is fetched during this one"),
    numbered(9, "autotuned", "the tile that was fastest on an H200"),
    numbered(10, "pipelined", "the next k is read during this one"),
    numbered(11, "register_banks", "multiply-adds in an order that reuses operands"),
    numbered(12, "warptiled", "each warp computes a 64 x 64 tile"),
)

EQUAL_SHARES = numbered(
    18, "equal_shares", "every multiprocessor gets an equal share of all steps along K"
)
RAGGED = numbered(19, "ragged", "any shape: the copying warps handle the edges")
SPLIT = numbered(
    26, "split", "a pass splits each factor once; the product's blocks stay on their multiprocessor"
)
ANY_SHAPE = numbered(30, "best", "any shape: the tile follows it, and few tiles share out K")
SLICED = numbered(None, "sliced", "")  # of best, where C is thin or small
EXACT = numbered(None, "exact", "")  # of worklog.sgemm, with sums in double precision
WINOGRAD = numbered(None, "winograd", "seven products of sums of quadrants replace eight")
DIGITS = numbered(None, "digits", "six products of INT8 replace one of FP32")


def equal_shares(blocks: int | str = MULTIPROCESSORS) -> Kernel:
    """Return rung 18: blocks take equal shares of all steps along K.

    A pass adds the parts.

    blocks: any number is right (default: a block per multiprocessor)
    """
    main = replace(EQUAL_SHARES.launch, grid=str(blocks))
    adding = Launch(f"add_parts<BM, BN, BK, {blocks}, GROUP>", "M / BM * (N / BN)", "256")
    return replace(EQUAL_SHARES, launches=(main, adding), workspace=f"2 * {blocks} * BM * BN * 4")


TILES = "(M + BM - 1) / BM * ((N + BN - 1) / BN)"
SLICES = f"min(BM * BN / 1024, max(4, 512 / ({TILES})))"  # blocks that add the parts of a tile


def ragged(
    a_copied: bool = False,
    b_copied: bool = False,
    blocks: int | str = MULTIPROCESSORS,
    whole: bool = False,
) -> Kernel:
    """Return rung 19: rung 18 for any shape.

    a_copied: a pass before copies A, so that rows begin at multiples of 16 bytes; needed if they
        don't
    b_copied: the same for B
    blocks: any number is right (default: a block per multiprocessor)
    whole: for shapes whose number of tiles is a multiple of `blocks`, so that no tile has parts
    """
    sizes = []
    if a_copied:
        sizes.append(("M", "K"))
    if b_copied:
        sizes.append(("K", "N"))
    launches = [replace(RAGGED.launch, grid=str(blocks))]
    workspace = [f"{rows} * (({columns} + 3) / 4 * 4)" for rows, columns in sizes]
    if sizes:
        copying_blocks = " + ".join(
            f"({rows} + 7) / 8 * (({columns} + 255) / 256)" for rows, columns in sizes
        )
        launches.insert(0, Launch("copy_rows", copying_blocks, "256"))
    if not whole:
        workspace.append(f"2 * {blocks} * BM * BN")
    if not whole and blocks != 1:
        launches.append(
            Launch("add_parts<BM, BN, BK, GROUP>", f"min({TILES}, {blocks} - 1), {SLICES}", "256")
        )
    workspace_bytes = f"4 * (4 + {' + '.join(workspace)})" if workspace else ""
    return replace(
        RAGGED, launches=tuple(launches), main=1 if sizes else 0, workspace=workspace_bytes
    )


@lru_cache(maxsize=4096)
def ragged_at(shape: Shape, chip: Chip = ANY_CHIP, aligned: bool = True) -> Kernel:
    """Return rung 19 for a shape and a number of multiprocessors.

    aligned: A and B are at multiples of 16 bytes
    """
    tiles_down = math.ceil(shape.m / RAGGED.template["BM"])
    tiles_across = math.ceil(shape.n / RAGGED.template["BN"])
    return ragged(
        a_copied=not aligned or shape.k % 4 != 0,
        b_copied=not aligned or shape.n % 4 != 0,
        blocks=chip.multiprocessors,
        whole=tiles_down * tiles_across % chip.multiprocessors == 0,
    )


FP32 = (
    numbered(13, "lane_map", "neighbouring lanes read different quads"),
    numbered(14, "async_copies", "tiles arrive without passing through registers"),
    numbered(15, "barriers", "warps wait for a stage, not for each other"),
    numbered(16, "specialized", "four warps copy, eight multiply"),
    numbered(17, "bulk_copies", "copying warps need fewer instructions"),
    equal_shares(),
    Dispatcher.from_kernel(ragged(), ragged_at),
)

# of a tile; of a stage of a row of A or a column of B
LINES = 128
LINE_BYTES = 128
STAGE_K = 32
# By columns of a tile: stages that fit sm_90's shared memory, and the time per column over that of
# 192, by a trial on an H200 at 4096 and 8192 that isn't recorded.
SPLIT_TILES = {64: (8, 1.25), 128: (6, 1.02), 192: (5, 1.0)}
SPLIT_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 96)
ADDING_BLOCKS = 16  # per multiprocessor, of a pass that adds parts
# threads per block of the splitting pass, and what each takes at a time
SPLITTERS = 512
NUMBERS = 8
# Microseconds of a column's stage, of each tile or part of one beside its stages, and of the launch
# that adds parts; and bytes per microsecond of that. The first two are rounded from sweeps that
# aren't recorded, the others assumed.
STAGE_US = 0.004
TILE_US = 2.0
ADD_US = 3.0
ADDED = 5e6


def split(bn: int = 128, parts: int = 1, k: int = 4096) -> Kernel:
    """Return rung 26 with tiles of 128 x bn.

    A pass splits A and B. The next one computes their product for each part of K. If there are
    several parts, a pass adds them.

    bn: of SPLIT_TILES
    parts: up to 32, or a multiple of 32
    k: about how many the splitting pass is made for; any number is right
    """
    stages = SPLIT_TILES[bn][0]
    lines = f"((M + 127) / 128 * {LINES} + (N + BN - 1) / BN * BN)"
    k_of_part = math.ceil(k / parts)
    threads = 16 if k_of_part <= 128 else 64  # per line; with fewer, most would have nothing to do
    # Eights of numbers in a thread's registers. The other numbers are read twice.
    eights = 2 if k_of_part <= 2 * threads * NUMBERS else 8
    splitting = f"split_lines<BM, BN, PARTS, {eights}, {threads}>"
    launches = [
        Launch(splitting, f"{lines} / {SPLITTERS // threads}, PARTS", str(SPLITTERS)),
        replace(SPLIT.launch, shared=stages * ((LINES + bn) * LINE_BYTES + 16)),
    ]
    workspace = f"{lines} * ((K + {STAGE_K - 1}) / {STAGE_K} * {LINE_BYTES} + 16 * {parts})"
    if parts > 1:
        adding_blocks = f"min((M * N + 127) / 128, {ADDING_BLOCKS} * {MULTIPROCESSORS})"
        launches.append(Launch("add_parts<BM, BN, PARTS>", adding_blocks, "128"))
        workspace = f"({FLOAT_BYTES * parts} * M * N + 15) / 16 * 16 + {workspace}"
    tile = {**SPLIT.template, "BN": bn, "STAGES": stages, "PARTS": parts}
    return replace(SPLIT, launches=tuple(launches), main=1, template=tile, workspace=workspace)


def split_tiles(shape: Shape, bn: int, parts: int, multiprocessors: int) -> tuple[int, float]:
    """Return the tiles and the stages of columns of the busiest multiprocessor.

    The tiles are of 128 x bn, or parts of them. The stages of a column are as in a tile of 192.
    """
    all_tiles = math.ceil(shape.m / LINES) * math.ceil(shape.n / bn)
    tiles = math.ceil(all_tiles * parts / multiprocessors)
    stages_of_part = math.ceil(math.ceil(shape.k / STAGE_K) / parts)
    return tiles, tiles * bn * SPLIT_TILES[bn][1] * stages_of_part


def added(shape: Shape, parts: int) -> int:
    """Return the bytes that adding the parts moves; 0 for one part.

    The parts are written and read once more, and their sums are written.
    """
    return FLOAT_BYTES * (2 * parts + 1) * shape.m * shape.n if parts > 1 else 0


@lru_cache(maxsize=4096)
def split_tile(shape: Shape, multiprocessors: int) -> tuple[int, int]:
    """Return the columns of a tile and the parts of K with the least expected time.

    The time is that of the product and of adding the parts.
    """
    max_parts = max(1, math.ceil(shape.k / STAGE_K) // 2)  # two stages each
    expected_us: dict[tuple[int, int], float] = {}
    for parts in SPLIT_PARTS:
        for bn in SPLIT_TILES:
            # Parts of the widest tile need more registers than there are.
            limit = 1 if bn == 192 else max_parts
            if parts > limit:
                continue
            tiles, stages = split_tiles(shape, bn, parts, multiprocessors)
            adding_us = ADD_US + added(shape, parts) / ADDED if parts > 1 else 0.0
            expected_us[bn, parts] = STAGE_US * stages + TILE_US * tiles + adding_us
    return min(expected_us, key=expected_us.__getitem__)


@lru_cache(maxsize=4096)
def split_at(shape: Shape, chip: Chip = ANY_CHIP) -> Kernel:
    """Return rung 26 with the expected fastest tile and parts on a chip."""
    bn, parts = split_tile(shape, chip.multiprocessors)
    return split(bn, parts, shape.k)


def any_shape(
    template: Mapping[str, int],
    parts: int = 1,
    a_by_columns: bool = False,
    b_by_columns: bool = False,
    batched: bool = False,
) -> Kernel:
    """Return the kernel `best` of a tile, for any shape.

    template: the tile
    parts: of K, unless it is batched
    a_by_columns: A is in column-major order
    b_by_columns: B is in column-major order
    batched: a launch computes the products of a batch, whose matrices follow each other in memory
    """
    orders = {"A_BY_COLUMNS": int(a_by_columns), "B_BY_COLUMNS": int(b_by_columns)}
    if batched:
        template = {**template, **orders, "BATCH": 1}
    elif a_by_columns or b_by_columns:
        template = {**template, **orders}
    grid = ANY_SHAPE.grid.removesuffix("1") + (signature.BATCH if batched else str(parts))
    workspace = ""
    launches = [replace(ANY_SHAPE.launch, function=f"sgemm_best<{', '.join(template)}>", grid=grid)]
    if parts > 1:
        all_blocks = "(M * N + 256 * WIDTH - 1) / (256 * WIDTH)"
        grid = f"min({all_blocks}, {ADDING_BLOCKS} * {MULTIPROCESSORS})"
        workspace = f"{FLOAT_BYTES * parts} * M * N"
        launches.append(Launch(f"sgemm_best_sum<{parts}, WIDTH>", grid, "256"))
    rules = "M % WIDTH == 0, N % WIDTH == 0" if a_by_columns else "N % WIDTH == 0"
    return replace(
        ANY_SHAPE,
        template=template,
        launches=tuple(launches),
        rules=rules,
        workspace=workspace,
    )


def sliced(template: Mapping[str, int]) -> Kernel:
    """Return the kernel of a tile whose blocks share out K among their threads."""
    return replace(SLICED, template=template)


WINOGRAD_LEVELS = (1, 2)


def winograd(levels: int = 1, **sides: int) -> Kernel:
    """Return the kernel of Winograd's form of Strassen's algorithm.

    A pass forms the sums of quadrants. The next one computes their products.

    levels: 1 or 2, how often the matrices are split into quadrants
    sides: values of other parameters of the tile, as BK=16
    """
    tile = {**WINOGRAD.template, **sides, "LEVELS": levels}
    splits = 2**levels  # of M, N and K
    stage_bytes = FLOAT_BYTES * tile["BK"] * (tile["BM"] + tile["BN"])
    quads = "(M * K + K * N) / (4 * 256)"  # blocks of form_sums, if each thread took one quad
    launches = (
        Launch("form_sums<BM, BN, BK, LEVELS>", f"{quads} / {splits**2}", "256"),
        replace(WINOGRAD.launch, shared=tile["STAGES"] * stage_bytes),
    )
    kept_tiles = {1: 2, 2: 10}[levels]  # of each block
    sums = f"(M * K + K * N) / {splits**2} * {7**levels}"
    steps = zip("MNK", ("BM", "BN", "BK"), strict=True)
    sizes = (f"{size} % {splits * tile[side]} == 0" for size, side in steps)
    return replace(
        WINOGRAD,
        launches=launches,
        main=1,
        template=tile,
        rules=", ".join((*sizes, "A, B, C % 16 bytes")),
        workspace=f"{FLOAT_BYTES} * ({sums} + {kept_tiles} * {MULTIPROCESSORS} * BM * BN)",
    )


def digits() -> Kernel:
    """Return the kernel of INT8's products.

    A pass forms the digits. The next one sums six of their products.
    """
    lines = "((M + 127) / 128 * 128 + (N + 127) / 128 * 128)"
    forming = Launch("form_digits<4>", f"{lines} / 8", str(SPLITTERS))
    stage_bytes = 192  # three digits of each of 64 numbers
    return replace(
        DIGITS,
        launches=(forming, DIGITS.launch),
        main=1,
        workspace=f"{lines} * ((K + 63) / 64 * {stage_bytes} + 4)",
    )


@lru_cache(maxsize=4096)
def winograd_at(shape: Shape, chip: Chip = ANY_CHIP) -> Kernel:
    """Return the kernel of Winograd's form with the levels that multiply least.

    The busiest multiprocessor counts. A shape that isn't in a kernel's domain is in that of one
    level or in none.
    """
    work = dict[int, int]()
    for levels in WINOGRAD_LEVELS:
        kernel = winograd(levels)
        if shape not in kernel.domain:
            continue
        places = shape.m * shape.n // (kernel.template["BM"] * kernel.template["BN"]) // 4**levels
        work[levels] = math.ceil(places / chip.multiprocessors) * 7**levels * shape.k // 2**levels
    return winograd(min(work, key=work.__getitem__) if work else 1)


# The second ladder: FP32 through tensor cores. It follows the article's, which charts and defaults
# show.
TENSOR = (
    numbered(21, "tf32", "tensor cores multiply factors of 11 bits"),
    numbered(22, "tf32x3", "three products of two parts of each factor"),
    numbered(23, "fp16x3", "the parts are halves, scaled by powers of two"),
    numbered(24, "promoted", "FP32 registers sum what tensor cores sum over 128 k"),
    numbered(25, "wgmma", "warp groups that split and warp groups that multiply"),
    Dispatcher.from_kernel(split(), split_at),
)
