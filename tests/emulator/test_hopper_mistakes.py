"""Mistakes in a kernel for Hopper: one edit each of kernels/hopper.cu, and what must be found at which line."""

import re
from functools import cache

import numpy as np
import pytest

from tests.emulator.helpers import compiled, cuda, edited
from tests.emulator.test_mistakes import described
from worklog.emulator import Result, launch
from worklog.emulator.memory import tensor_map
from worklog.emulator.reports import BudgetExceeded

SOURCE = cuda("hopper")
K = 320  # five tiles in two stages: each stage is used again

INIT_FENCE = '    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");\n'
MEET_FIRST = "meet_cluster();  // after init"
MEET_LAST = "  meet_cluster();  // before exit\n"
ARRIVE_LAST = '  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");\n'
WAIT_EMPTY = "        wait(address(&empty[s]), i / STAGES % 2 ^ 1);\n"
WAIT_FULL = "      wait(address(&full[s]), i / STAGES % 2);\n"
EXPECT = "expect(address(&full[s]), BYTES);"
LOAD_A = "load(stages[s].a, A, i * 64, row, address(&full[s]));"
LOAD_B = "load_both(stages[s].b, B, i * 64, address(&full[s]), 3);"
PRODUCER = "    if (t == 0) {\n      for (int i"
TILES = "for (int i = 0; i < K / 64; ++i) {\n        const"
GROUP_FENCE = '      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");\n'
COMMIT = '      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");\n'
GROUP_WAIT = '      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");\n'
RELEASE = "      if (t % 32 == 0) arrive(mapped(&empty[s], rank));\n"
RELEASE_OTHER = "      if (t % 32 == 0) arrive(mapped(&empty[s], rank ^ 1));\n"
MULTIPLY = "      for (int k = 0; k < 4; ++k)\n        multiply"
PROXY = '    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");\n'
NAMED = '    asm volatile("bar.sync 1, 128;" ::: "memory");\n'
STORE_COMMIT = '      asm volatile("cp.async.bulk.commit_group;" ::: "memory");\n'
STORE_WAIT = '      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");\n'
DECREASE = '    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");\n'
INCREASE = '    asm volatile("setmaxnreg.inc.sync.aligned.u32 40;");\n'
INVALIDATE = (
    'asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(address(&full[1])) : "memory");\n'
)
READ_OTHER = """  meet_cluster();
  if (t == 200) {
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(rank) : "r"(mapped(tile, rank ^ 1)));
  }
"""
# The edit; the kind of the finding; and the text of a line that it must name, in the kernel itself.
MISTAKES: list[tuple[str, str, str, str, str]] = [
    # Initialisation.
    ("no fence after mbarrier.init", INIT_FENCE, "", "unfenced-init", "load(stages[s].a"),
    ("a barrier of the block where the cluster's is needed", MEET_FIRST, "__syncthreads();",
     "mbarrier-misuse", "arrive(mapped(&empty[s], rank ^ 1))"),
    ("no barrier after mbarrier.init", MEET_FIRST, "", "mbarrier-misuse", "load_both("),
    ("initialised by each warp", "  if (t == 0) {\n    for (int s", "  if (t % 32 == 0) {\n    for (int s",
     "mbarrier-misuse", "init(address(&full[s]), 1)"),
    ("initialised again for each tile", EXPECT, "init(address(&full[s]), 1); " + EXPECT,
     "mbarrier-misuse", "init(address(&full[s]), 1); "),
    ("invalidated while in use", f"        if (rank == 0) {LOAD_B}",
     f"        if (i == 2) {INVALIDATE}        if (rank == 0) {LOAD_B}", "mbarrier-misuse", EXPECT),
    ("too few arrivals", "init(address(&empty[s]), 2 * 4)", "init(address(&empty[s]), 4)",
     "wrong-phase", "arrive(mapped(&empty[s], rank"),
    # Bytes and phases.
    ("expects A alone", "BYTES);", "64 * 64 * 2);", "byte-count", "load_both("),
    ("expects everything twice", "BYTES);", "2 * BYTES);", "byte-count", "2 * BYTES"),
    ("arrives without expecting", EXPECT, "arrive(address(&full[s]));", "byte-count", "load_both("),
    ("never waits for an empty stage", WAIT_EMPTY, "", "early-overwrite", LOAD_A),
    ("the parity of the empty stages never changes", "i / STAGES % 2 ^ 1", "1", "mbarrier-misuse", EXPECT),
    ("the parity of the full stages never changes", "i / STAGES % 2)", "0)", "early-overwrite", LOAD_A),
    ("the parity of the full stages is inverted", "wait(address(&full[s]), i / STAGES % 2)",
     "wait(address(&full[s]), i / STAGES % 2 ^ 1)", "missing-wait", "multiply(d,"),
    ("never waits for a full stage", WAIT_FULL, "", "missing-wait", "multiply(d,"),
    ("tries once instead of waiting", "      wait(address(&full[s])", "      done(address(&full[s])",
     "missing-wait", "multiply(d,"),
    ("one warp waits for all", "      wait(address(&full[s])", "      if (t < 160) wait(address(&full[s])",
     "missing-wait", "multiply(d,"),
    ("every thread releases", "if (t % 32 == 0) arrive(mapped(&empty[s], rank));",
     "arrive(mapped(&empty[s], rank));", "wrong-phase", "arrive(mapped(&empty[s], rank));"),
    ("the stage isn't taken modulo their number", "const int s = i % STAGES;\n        wait",
     "const int s = i;\n        wait", "shared-out-of-bounds", EXPECT),
    # Copies and multicasts.
    ("every lane copies", PRODUCER, PRODUCER.replace("t == 0", "t < 32"), "mbarrier-misuse", EXPECT),
    ("both blocks multicast", "if (rank == 0) load_both", "load_both", "byte-count", "load_both("),
    ("the multicast leaves out the other block", "&full[s]), 3)", "&full[s]), 1)", "byte-count", EXPECT),
    ("the multicast names a block too many", "&full[s]), 3)", "&full[s]), 7)",
     "shared-out-of-bounds", "load_both("),
    ("another stage's mbarrier", "row, address(&full[s])", "row, address(&full[0])", "byte-count", LOAD_A[:20]),
    ("copies into another stage", "load(stages[s].a", "load(stages[0].a", "early-overwrite", "load(stages[0].a"),
    ("copies into the next matrix", "load(stages[s].a", "load(stages[s].a[8]", "early-overwrite", "load_both("),
    ("copies to an odd place", "load(stages[s].a", "load(&stages[s].a[0][8]", "misaligned", "load(&stages"),
    ("copies over the mbarriers", "load_both(stages[s].b", "load_both(full", "shared-out-of-bounds", "load_both("),
    ("copies a tile too many", TILES, TILES.replace("K / 64", "K / 64 + 1"), "copy-at-exit", "load_both("),
    # wgmma.
    ("no wgmma.fence", GROUP_FENCE, "", "missing-fence", "multiply(d,"),
    ("releases before it has multiplied", GROUP_WAIT + RELEASE, RELEASE + GROUP_WAIT,
     "early-overwrite", "multiply(d,"),
    ("releases the other block's stage too early", GROUP_WAIT + RELEASE + RELEASE_OTHER,
     RELEASE_OTHER + GROUP_WAIT + RELEASE, "early-overwrite", "multiply(d,"),
    ("leaves a group in flight", "wgmma.wait_group.sync.aligned 0", "wgmma.wait_group.sync.aligned 1",
     "early-overwrite", "multiply(d,"),
    ("no wgmma.commit_group", COMMIT, "", "early-overwrite", "multiply(d,"),
    ("no wgmma.wait_group", GROUP_WAIT, "", "missing-wait", "= d[e]"),
    ("uses sums in flight", COMMIT, COMMIT + "      d[0] *= 2;\n", "missing-wait", "d[0] *= 2"),
    ("three of four warps multiply", MULTIPLY, MULTIPLY.replace("multiply", "if (t < 224) multiply"),
     "divergent-warp", "if (t < 224)"),
    ("a lane doesn't multiply", MULTIPLY, MULTIPLY.replace("multiply", "if (t != 130) multiply"),
     "divergent-warp", "if (t != 130)"),
    ("lanes give other descriptors", "descriptor(stages[s].b) + 2 * k", "descriptor(stages[s].b) + 2 * k + t % 2",
     "descriptor", "+ t % 2"),
    ("the next k is a row away", "stages[s].a) + 2 * k", "stages[s].a) + 512 * k",
     "shared-out-of-bounds", "+ 512 * k"),
    ("the stride is too long", "1024ull >> 4", "4096ull >> 4", "shared-out-of-bounds", "multiply(d,"),
    ("writes to a stage without fence.proxy.async", WAIT_FULL, WAIT_FULL + "      stages[s].b[7][t % 64] = 0;\n",
     "missing-fence", "stages[s].b[7][t % 64] = 0"),
    ("writes to a stage in flight", WAIT_FULL, "      stages[s].b[7][t % 64] = 0;\n" + WAIT_FULL,
     "early-overwrite", "stages[s].b[7][t % 64] = 0"),
    # The epilogue.
    ("no fence.proxy.async before the store", PROXY, "", "missing-fence", "= d[e]"),
    ("no barrier before the store", NAMED, "", "shared-race", "= d[e]"),
    ("a named barrier for too few threads", "bar.sync 1, 128", "bar.sync 1, 96", "barrier-count", "bar.sync 1, 96"),
    ("the store isn't committed", STORE_COMMIT, "", "missing-wait", '"r"(address(tile))'),
    ("the store isn't waited for", STORE_WAIT, "", "missing-wait", '"r"(address(tile))'),
    ("a group of stores may be in flight", "wait_group.read 0", "wait_group.read 1",
     "missing-wait", '"r"(address(tile))'),
    ("another thread waits for the store", STORE_WAIT + "    }", "    }\n    if (t == 129)\n" + STORE_WAIT,
     "missing-wait", '"r"(address(tile))'),
    ("stores before the tensor", '"r"(row), "r"(address(tile))', '"r"(row - 64), "r"(address(tile))',
     "global-out-of-bounds", '"r"(row - 64)'),
    ("stores by a map with larger boxes", "&C),", "&A),", "shared-out-of-bounds", '"r"(address(tile))'),
    # Clusters and registers.
    ("no barrier of the cluster at the end", MEET_LAST, "", "shared-race", "arrive(mapped(&empty[s], rank ^ 1))"),
    ("exits between arriving and waiting", MEET_LAST, ARRIVE_LAST,
     "shared-race", "arrive(mapped(&empty[s], rank ^ 1))"),
    ("reads another block's memory at its end", MEET_LAST, READ_OTHER, "shared-race", "ld.shared::cluster"),
    ("a block that isn't in the cluster", "rank ^ 1)", "rank + 1)", "shared-out-of-bounds", "rank + 1)"),
    ("arrives again before it has waited", MEET_FIRST, ARRIVE_LAST, "barrier-count", "meet_cluster();  // before"),
    ("a warp of four changes its registers", INCREASE, INCREASE.replace("asm", "if (t < 160) asm"),
     "divergent-warp", "setmaxnreg.inc"),
]  # fmt: skip
# The edit, and what the error must say of the launch that doesn't end.
DEADLOCKS: list[tuple[str, str, str, str]] = [
    ("expects without arriving", "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0]",
     "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0]", "at shared byte 20480 lacks 1 of 1 arrivals"),
    ("the parity of the empty stages is inverted", "i / STAGES % 2 ^ 1", "i / STAGES % 2",
     r"called in line {WAIT_EMPTY}: .*\n.*\n.*20480 lacks 1 of 1 arrivals\n.*20496 lacks 8 of 8 arrivals"),
    ("the other block's stage is never released", RELEASE_OTHER, "", "at shared byte 20496 lacks 4 of 8 arrivals"),
    ("an mbarrier for each thread of both groups", "2 * 4)", "2 * 128)", "20496 lacks 248 of 256 arrivals"),
    ("an mbarrier counts one arrival too many", "init(address(&full[s]), 1)", "init(address(&full[s]), 2)",
     "at shared byte 20480 lacks 1 of 2 arrivals"),
    ("the last tile isn't copied", TILES, TILES.replace("K / 64", "K / 64 - 1"),
     "phase 2 of the mbarrier at shared byte 20480 lacks 1 of 1 arrivals"),
    ("a named barrier for the whole block", "bar.sync 1, 128", "bar.sync 1, 256",
     r"128 threads wait at barrier 1 in line {bar\.sync}, which is for 256 threads"),
    ("__syncthreads() in one branch", NAMED, "    __syncthreads();\n",
     r"128 threads wait at barrier 0 in line {__syncthreads}"),
    ("a named barrier by one warp", NAMED, NAMED.replace("asm", "if (t < 160) asm"),
     r"32 threads wait at barrier 1 in line {bar\.sync}, which is for 128 threads"),
]  # fmt: skip


@cache
def operands() -> tuple[np.ndarray, np.ndarray]:
    """Return a and B, transposed: small whole numbers."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (rows, K)).astype(np.float16) for rows in (128, 8))
    return a, b


def run_kernel(source: str) -> tuple[np.ndarray, Result]:
    """C and the result of a launch of the kernel or an edit of it."""
    a, b = operands()
    c = np.zeros((128, 8), np.float32)
    maps = [tensor_map(a, (64, 64), swizzle=128), tensor_map(b, (64, 8), swizzle=128)]
    arguments = [*maps, tensor_map(c, (8, 64)), K]
    return c, launch(compiled(source, "k"), (2,), 256, arguments, source=source)


def test_the_kernel_is_right():
    a, b = operands()
    c, result = run_kernel(SOURCE)
    np.testing.assert_array_equal(c, a.astype(np.float64) @ b.T.astype(np.float64))
    assert result.findings == ()


@pytest.mark.parametrize(
    ("old", "new", "kind", "line"),
    [mistake[1:] for mistake in MISTAKES],
    ids=[mistake[0] for mistake in MISTAKES],
)
def test_a_mistake_is_found_at_its_line(old, new, kind, line):
    source, _ = edited(SOURCE, old, new)
    _, result = run_kernel(source)
    found = [described(finding, source) for finding in result.findings]
    assert any(text.startswith(f"{kind}: ") and line in text for text in found), found
    assert result.ok == (kind == "copy-at-exit")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [deadlock[1:] for deadlock in DEADLOCKS],
    ids=[deadlock[0] for deadlock in DEADLOCKS],
)
def test_a_deadlock_says_what_is_missing(old, new, says):
    source, line = edited(SOURCE, old, new)
    with pytest.raises(BudgetExceeded, match=r"^deadlock or endless loop: ") as error:
        run_kernel(source)
    assert re.search(re.sub(r"\{.*?\}", str(line), says), str(error.value)), str(error.value)
