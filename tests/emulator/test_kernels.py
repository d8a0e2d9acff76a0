"""Right kernels compute what they should, and nothing is found.

In other launches and with harmless edits too.
"""

from operator import attrgetter
from typing import Any

import pytest

from tests.emulator.launches import KERNELS, launched

# The launches of a kernel, by its folder or its file, besides that on sm_90 as the table has it.
MORE: dict[str, list[dict[str, Any]]] = {
    "barriers": [{"grid": (3,)}, {"mbarrier": True}, {"mbarrier": True, "grid": (3,)}],
    "right": [{"arch": "sm_120"}],
    "backwards": [{"arch": "sm_120"}],
    "warp_exits": [{"grid": (3,)}],
}
LAUNCHES = [(name, how) for name in KERNELS for how in [{}, *MORE.get(name.split("/")[0], [])]]


@pytest.mark.parametrize(("name", "how"), LAUNCHES, ids=str)
def test_a_kernel_writes_what_it_should(name, how):
    one = KERNELS[name]
    (arguments, result, _) = launched(name, **how)
    one.check(arguments)
    assert result.ok and {finding.kind for finding in result.findings} == {*one.kinds}
    assert {what: attrgetter(what)(result.counts) for what in one.counts} == one.counts


WAIT = "if (bug != NO_WAIT_FOR_CP_ASYNC) wait("
WAIT_ALL = 'asm volatile("cp.async.wait_all;" ::: "memory");'
LAST = "  for (int i = 0; last && i < gridDim.x; ++i) d[t] +="


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("partial_warp", "if (t == 0) out", "out"),
        ("partial_warp", "if (t + d < 20) v += x;", "v = t + d < 20 ? v + x : v;"),
        ("partial_warp", "if (t + d < 20) v += x;", "v += t + d < 20 && x > 0 ? x : 0;"),
        ("partial_warp", "if (t + d < 20) v += x;", "if (x > 0 && t + d < 20) v += x;"),
        ("copies", "cp.async.cg.shared.global [", "cp.async.cg.shared.global.L2::128B ["),
        # Each thread also waits for its own copy: the arrival at the mbarrier still says that it
        # has landed.
        ("bulk_copies", WAIT, f"{WAIT_ALL}\n  {WAIT}"),
        ("bulk_copies", WAIT, f"{WAIT_ALL}\n  out[256 + t] = other[t];\n  {WAIT}"),
        ("bulk_copies", WAIT, f"{WAIT_ALL}\n  __syncthreads();\n  if (false) wait("),
        # A volatile read needs no fence: CUDA C++ Programming Guide, "Memory Fence Functions".
        (
            "hand_over/last_block",
            f"__threadfence();  // counted\n  __syncthreads();\n{LAST} c[",
            f"__syncthreads();\n{LAST} ((volatile int*)c)[",
        ),
    ],
)
def test_a_harmless_edit_is_no_mistake(name, old, new):
    arguments, result, _ = launched(name, (old, new))
    KERNELS[name].check(arguments)
    assert result.findings == ()


@pytest.mark.parametrize("before", ["", "__syncthreads();"])
def test_a_wait_for_ones_own_copies_is_not_one_for_those_of_others(before):
    _, result, _ = launched("bulk_copies", (WAIT, f"{before}\n  {WAIT_ALL}\n  if (false) wait("))
    assert [finding.kind for finding in result.findings] == ["missing-wait"]
    assert "other" in str(result.findings[0])
