"""Kernels of the table, each with one mistake: a finding says it, and names the lines concerned."""

import re

import pytest

from tests.emulator.helpers import cuda
from tests.emulator.launches import bugs, launched
from worklog.emulator import Finding
from worklog.emulator.reports import BudgetExceeded

# What the lines must have that findings of these kinds name.
CONCERNED = {"copies": r"As\[|Bs\[|cp\.async\.cg"}
REFILL = (
    r"thread 128 of block \(0, 0, 0\) refills shared byte 2048 before thread \d+ has "
    r"released what it reads"
)
EXTRA = (
    r"arrives at the mbarrier at shared byte 16384 although all 33 arrivals of its phase 0 "
    r"have been counted"
)
TAKES = r"of block .* writes shared byte 0 of the mbarrier that line"
COPY = r'.* \| .*"l"\(from\), "r"\(bytes\)'
ARRIVE = r".* \| .*mbarrier\.arrive\.shared"
EXPECT = r".* \| .*expect_tx"
WAIT = r'.* \| .*"r"\(parity\)'
READ = r".* \| .*const float4 b ="
GLOBAL = "global-race: "
SHARED = "shared-race: "
ACC = r"shared-race: .*acc\[i\] \+="
PROXY = '    asm volatile("fence.proxy.async;" ::: "memory");\n'
WGMMA_FENCE = '    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");\n'
UNDEFINED = "undefined-shuffle: "
FENCE = "__threadfence();"
SYNC = "__syncthreads();"
WARP = "__syncwarp();"
OF_CLUSTER = r"with no barrier of the cluster \(cluster.sync\(\)\) between them"
# File, the edit or the bug of its enum, and what a finding with its lines must say.
MISTAKES: list[tuple[str, str | tuple[str, str], str]] = [
    *(("barriers/" + file, edit, says) for file, edit, says in (
        ("two_in_branches", ("      sum *= 3;\n      __syncthreads();\n", "      sum *= 3;\n"), SHARED),
        ("producers_and_consumers", ("if (i >= 2) sync(3 + i % 2);", ""), "deadlock: "),
        ("producers_and_consumers", ("stage[i % 2][127 - t];", "stage[1 - i % 2][127 - t];"), SHARED),
        ("pairs_of_warps", ("tile[t ^ 63]", "tile[t ^ 127]"), SHARED),
        ("pairs_of_warps", ('"r"(pair + 7) : "memory"', '"r"(7) : "memory"'), "barrier-count: "),
        ("lanes_apart", (".cta.sync 0;", ".cta.sync 0, 128;"), "barrier-count: "),
        ("half_warps", ("tile[t ^ i]", "tile[t ^ (i * 2)]"), "missing-syncwarp: "),
        ("half_warps", ("  __syncwarp();\n", "  __syncwarp(half);\n"), "missing-syncwarp: "),
    )),
    *(("converging/" + file, edit, SHARED) for file, edit in (
        ("locks_between_warps", ("    __threadfence_block();  // taken\n", "")),
        ("locks_between_warps", ("    __threadfence_block();  // given back\n", "")),
        ("flags_between_warps", ("st.release.cta", "st.volatile")),
        ("flags_between_warps", ("ld.acquire.cta", "ld.volatile")),
        ("flags_between_warps", ("    __syncwarp();\n  }", "  }")),
        ("reserved_memory", ("atom.or.acq_rel.cta", "atom.or.relaxed.cta")),
        ("reserved_memory", ("ld.acquire.cta", "ld.relaxed.cta")),
    )),
    *(("hand_over/" + file, edit, GLOBAL) for file, edit in (
        ("last_block", (f"{FENCE}  // written", "")),
        ("last_block", (f"{FENCE}  // counted", "")),
        ("last_block", (f"{FENCE}  // written", f"if (t == 0) {FENCE}")),
        ("last_block", (f"{FENCE}  // written", "__threadfence_block();")),
        ("last_block", (f"{SYNC}  // by all", "// by all")),
        ("volatile_parts", (f"{FENCE}  // written", "")),
        ("volatile_parts", (f"{SYNC}  // by all", "// by all")),
        ("one_fence", (f"{SYNC}  // by all", "// by all")),
        ("one_fence", (f"{FENCE}  // written", "")),
        ("one_fence", (f"{FENCE}  // seen", "")),
        ("by_warp", ("release", "relaxed")),
        ("by_warp", ("acquire", "relaxed")),
        ("by_warp", ("release.gpu", "release.cta")),
        ("by_warp", (f"{WARP}  // by all", "// by all")),
        ("passed_on", (f"{FENCE}  // seen", "")),
        ("passed_on", (f"{FENCE}  // written", "")),
        ("passed_on", (f"{SYNC}  // by all", "// by all")),
        ("two_chains", ("flag + b % 2", "flag")),
        ("shared_lock", ("__threadfence_block();  // written", "")),
        ("shared_lock", ("c[b] +=", "c[0] +=")),
    )),
    *(("copies", edit, says) for edit, says in (
        (("wait<1>();", ""), r"missing-wait: .*acc\[i\] \+="),
        (("wait<1>();", "wait<2>();"), r"missing-wait: .*acc\[i\] \+="),
        (("    commit();\n    wait", "\n    wait"), r"missing-wait: .*acc\[i\] \+="),
        (("  commit();\n  for", "\n  for"), r"missing-wait: .*acc\[i\] \+="),
        (("    __syncthreads();\n", "\n"), ACC),
        (("% 3, next = (now + 1) % 3;", "% 2, next = (now + 1) % 2;"), ACC),
        (("wait<1>();\n    __syncthreads();", "__syncthreads();\n    wait<1>();"), ACC),
        (("&A[(row + t / 4) * K + k0 + 16", "&A[(row + t / 4) * K + k0 + 32"), r"global-out-of-bounds: .*k0 \+ 32"),
        (("&B[(k0 + 16 + t / 8) * N", "&B[(k0 + 17 + t / 8) * N"), (r"global-out-of-bounds: .*k0 "
                                                                   r"\+ 17")),
        (("&As[next][t / 4]", "&As[next][t / 4 + 8]"), r"shared-out-of-bounds: .*t / 4 \+ 8"),
        (("&Bs[0][t / 8][t % 8 * 4]", "&Bs[0][t / 8][t % 8 * 4 + 1]"), (r"misaligned: .*t % 8 \* 4 "
                                                                       r"\+ 1\]")),
    )),
    ("batches", ("    __syncthreads();\n  }", "  }"), SHARED),
    ("exchange", (f"{WARP}  // first", ""), r"missing-syncwarp: .*\| int other ="),
    ("exchange", (f"{WARP}  // second", ""), r"missing-syncwarp: .*\| tile\[threadIdx.x\] = other"),
    ("exchange", (f"{WARP}  // third", ""), r"missing-syncwarp: .*\| out\["),
    ("volatile_exchange", (f"{WARP}  // first", ""), "missing-syncwarp: "),
    ("volatile_exchange", (f"{WARP}  // second", ""), "missing-syncwarp: "),
    ("same_value", ("flag = 1", "flag = threadIdx.x"), r"shared-race: .*\| flag ="),
    ("warp_exits", (f"{SYNC}  // of", "// of"), SHARED),
    ("short_copies", ("in + 4", "in + 1 + 4"), r"global-out-of-bounds: .*\| .*cp\.async\.ca"),
    ("ignored_copies", ("t >= 8", "t >= 9"), r"global-out-of-bounds: thread 8 .*copy<16>"),
    ("partial_warp", ("if (t + d < 20) v", "v"), (r"undefined-shuffle: .*line 10 uses the "
                                                 r"value.*\| float x =")),
    ("partial_warp", ("if (t + d < 20) v += x;\n  }\n  if (t == 0)", "v += x;\n  }\n  if (t == 19)"), UNDEFINED),
    *(("warp_specialised", bug, says) for bug, says in (
        ("RELEASES_WITHOUT_SYNCWARP", f"early-overwrite: .*{REFILL}{COPY}"),
        ("RELEASES_BEFORE_READING", (r"shared-race: .*reads .* thread 128 writes.*\| .*a\[k\]\[r\] "
                                    r"= x\.x")),
        ("NO_WAIT_FOR_FULL", ("missing-wait: .*thread 0 .*reads shared byte 2048 that the "
                             f"copy{READ}")),
        ("NO_WAIT_FOR_EMPTY", ("early-overwrite: .*overwrites shared byte 2048 that the copy "
                              f"of{COPY}")),
        ("FULL_PARITY_STAYS", ("wrong-phase: .*completes phase 1 .* shared byte 16416 before "
                              f"any{ARRIVE}")),
        ("EMPTY_PARITY_STAYS", f"mbarrier-misuse: .*{EXTRA}{ARRIVE}"),
        ("WAITS_FOR_ANOTHER_STAGE", f"missing-wait: .*reads shared byte 6144 that the copy{READ}"),
        ("EXPECTS_MORE_BYTES", ("byte-count: .*thread 128 .* expects 16 bytes more than the "
                               f"copies{EXPECT}")),
        ("EXPECTS_FEWER_BYTES", ("byte-count: .*thread 135 .* copies 256 bytes that the "
                                f"mbarrier{COPY}")),
        ("COUNTS_FEWER_ARRIVALS", ("mbarrier-misuse: .*all 32 arrivals .* 2048 bytes are "
                                  f"still{ARRIVE}")),
        ("NO_FENCE", f"unfenced-init: .*no fence.mbarrier_init or fence.proxy.async follows{COPY}"),
        ("NO_BARRIER_AFTER_INIT", (r"mbarrier-misuse: .*with no __syncthreads\(\) after its "
                                  rf".*init{WAIT}")),
        ("ONE_MBARRIER_NOT_INITIALISED", ("mbarrier-misuse: .*which no thread has "
                                         f"initialised{WAIT}")),
    )),
    ("warp_specialised", ("stages[s].b[lane], &B", "stages[s + 9].b[lane], &B"),
     rf"shared-out-of-bounds: .*copies 256 bytes between shared byte 38912 of 16448{COPY}"),
    ("mbarriers", ("if (t == 9) bar = 7", "if (t == 8) bar = 7"), (r"mbarrier-misuse: .*thread 8 "
                                                                  rf"{TAKES}")),
    ("mbarriers", ("  // The memory is free", "  if (t == 5) bar = 7;  // The memory is free"), f"misuse: .*5 {TAKES}"),
    *(("bulk_copies", bug, says) for bug, says in (
        ("NO_WAIT_FOR_CP_ASYNC", "missing-wait: .*reads bytes that the cp.async of line"),
        ("NO_WAIT_FOR_READ", ("early-overwrite: .*may still be reading: use "
                             "cp.async.bulk.wait_group.read")),
        ("WAITS_FOR_ONE_GROUP", "early-overwrite: .*overwrites shared byte 256 that the copy of line"),
        ("NO_PROXY_FENCE", "missing-fence: .*with no fence.proxy.async in between"),
        ("ANOTHER_BLOCK", ("shared-out-of-bounds: .*uses an mbarrier .*, in block 1 of its "
                          "cluster, which has 1")),
        ("TOO_FEW_BYTES", ("byte-count: .*copies 16 bytes that the mbarrier at shared byte 1280 "
                          "has not expected")),
    )),
    *(("clusters", bug, says) for bug, says in (
        ("NO_BARRIER_BEFORE", f"shared-race: .*writes .* and .* reads .*{OF_CLUSTER}"),
        ("NO_BARRIER_BEFORE", ("shared-race: .*reads shared memory of another block, which may not "
                              "run yet")),
        ("NO_BARRIER_AFTER_WRITING", f"shared-race: .*the same bytes of tile, {OF_CLUSTER}"),
        ("ARRIVES_EARLY", f"shared-race: .*writes .* and .* reads .*{OF_CLUSTER}"),
        ("ARRIVES_RELAXED", f"shared-race: .*writes .* and .* reads .*{OF_CLUSTER}"),
        ("NO_BARRIER_BEFORE_EXIT", (r"shared-race: .*whose threads have exited: .*\(const "
                                   r"unsigned\*\)far")),
        ("NO_BARRIER_BEFORE_EXIT", (r"shared-race: .*which may have exited before: .*\(const "
                                   r"unsigned\*\)far")),
        ("NO_SUCH_BLOCK", "shared-out-of-bounds: .*in block [4-7] of its cluster, which has 4"),
        ("BEYOND_ITS_MEMORY", (r"shared-out-of-bounds: .*reads at byte 16\d+ .* 672 bytes.*, in "
                              r"block [0-3] of")),
        ("BEYOND_ITS_ARRAY", ("shared-out-of-bounds: .*reads at byte 256 of tile, which has 256 "
                             "bytes")),
        ("WAITS_TWICE", ("barrier-count: .*waits at the cluster's barrier, where it has not "
                        "arrived")),
        ("ARRIVES_TWICE", ("barrier-count: .*arrives at the cluster's barrier again before it has "
                          "waited there")),
        ("NO_WAIT_FOR_COPY", "missing-wait: .*reads shared byte 640 that the copy of line"),
        ("MULTICAST_BEYOND", "shared-out-of-bounds: .*copies 16 bytes between shared byte"),
    )),
    *(("wgmma_tf32", edit, says) for edit, says in (
        ((PROXY, ""), ("missing-fence: .*was written in line 42, with no fence.proxy.async in "
                      "between")),
        ((WGMMA_FENCE, ""), "missing-fence: .*executes wgmma.mma_async before any wgmma.fence"),
        (("group.sync.aligned 0", "group.sync.aligned 1"), "early-overwrite: .*wgmma.wait_group"),
        (("group.sync.aligned 0", "group.sync.aligned 1"), "missing-wait: .*wgmma.wait_group"),
        ((f"    {SYNC}\n  }}", "  }"), (r"shared-race: .*with neither an mbarrier nor "
                                       r"__syncthreads\(\)")),
        ((f"{PROXY}    {SYNC}\n", PROXY), (r"shared-race: .*with neither an mbarrier nor "
                                          r"__syncthreads\(\)")),
        (("[64][32], b[64][32]", "[64][32], b[32][32]"), ("shared-out-of-bounds: .*block's 12288 "
                                                         "bytes")),
        (("descriptor(stage.a) + k", "descriptor(stage.a) + t % 2 + k"), ("descriptor: .*differs "
                                                                         "from its warp's")),
    )),
    ("mma_f16", ("#define A_LINE 24", "#define A_LINE 20"), "misaligned: .*not a multiple of 16"),
    ("wmma", ("(A, B, C + 512", "(A + 4, B, C + 512"), ("misaligned: .*multiples of 32 and 16 are "
                                                       "needed")),
]  # fmt: skip
DEADLOCKS = [
    (
        "warp_specialised",
        "EMPTY_PARITY_INVERTED",
        "phase 0 of the mbarrier at shared byte 16416 lacks 4 of 4 arrivals",
    ),
    (
        "warp_specialised",
        "COUNTS_MORE_ARRIVALS",
        "phase 0 of the mbarrier at shared byte 16384 lacks 1 of 34 arrivals",
    ),
    ("attempts", ("attempts < most", "true"), r"\n.*\n.* lacks 1 of 33 arrivals"),
]


def described(finding: Finding, source: str) -> str:
    """Return the message and the lines that it names.

    The lines are that of the access, that of the other access, and those that called their
    functions.
    """
    return f"{finding.kind}: {finding.message} | {' | '.join(lines_of(finding, source))}"


def lines_of(finding: Finding, source: str) -> list[str]:
    numbers = finding.line, finding.other_line or finding.line, *finding.callers
    return [source.splitlines()[number - 1].strip() for number in numbers]


@pytest.mark.parametrize(("name", "change", "says"), MISTAKES)
def test_a_mistake_is_found_at_its_lines(name, change, says):
    for mbarrier in (False, True) if name.startswith("barriers/") else (False,):
        _, result, source = launched(name, change, mbarrier=mbarrier)
        ours = [finding for finding in result.findings if finding.kind == says.partition(":")[0]]
        every = [described(finding, source) for finding in result.findings]
        assert any(re.search(says, text) for text in every), every
        assert not result.ok
        for line in (line for finding in ours for line in lines_of(finding, source)):
            assert re.search(CONCERNED.get(name, ""), line), every


@pytest.mark.parametrize(("name", "change", "says"), DEADLOCKS)
def test_a_deadlock_names_the_mbarriers_that_are_waited_for(name, change, says):
    message = r"^deadlock or endless loop: thread \d+ of block \(0, 0, 0\)"
    with pytest.raises(BudgetExceeded, match=message) as error:
        launched(name, change)
    assert re.search(says, str(error.value))


def test_a_copy_too_many_is_counted_once_per_phase():
    """K = 96 is 12 tiles of 8 rows.

    Of each, the copy of one row comes after the bytes that were expected.
    """
    _, result, _ = launched("warp_specialised", "EXPECTS_FEWER_BYTES")
    assert [finding.count for finding in result.findings] == [12]


def test_each_bug_of_the_kernels_is_tested():
    for name in ("warp_specialised", "bulk_copies", "clusters"):
        tested = (
            bug for file, bug, _ in (*MISTAKES, *DEADLOCKS) if file == name and isinstance(bug, str)
        )
        assert {"NONE", *tested} == {*bugs(cuda(name))}
