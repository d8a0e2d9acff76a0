"""What is found in short kernels over int *c, *d and *flag, which hold zeros.

The body's first line is line 4.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.emulator.helpers import kernel, run
from tests.emulator.launches import launched
from worklog.emulator import Result
from worklog.emulator.reports import BadLaunch, BudgetExceeded
from worklog.kernel.device import Program
from worklog.kernel.emulated import EmulatedDevice

HEAD = "  const int t = threadIdx.x, b = blockIdx.x, n = blockDim.x;\n"


def result_of(body: str, blocks: int = 1, block: int = 64, **options: Any) -> Result:
    buffers = [np.zeros(4 * blocks * block, np.int32) for _ in range(3)]
    source = kernel(HEAD + body, "int* c, int* d, int* flag")
    return run(source, buffers, grid=(blocks,), block=block, **options)


CASES = [
    case.splitlines()
    for case in Path(__file__).with_name("findings.txt").read_text(encoding="utf-8").split("\n\n")
]


@pytest.mark.parametrize("case", CASES[1:], ids=" ".join)
def test_what_is_found(case):
    """Below the heading: threads and blocks, body, and behind a mark the findings or the error."""
    sizes, *lines = case
    threads, blocks = [*map(int, sizes.split()), 1][:2]
    found = [line for line in lines if line[:2] in ("> ", "? ", "! ")]
    body = "\n".join(line for line in lines if line not in found)
    if found and found[0][0] == "!":
        with pytest.raises(BudgetExceeded, match=re.compile(f"^{found[0][2:]}", re.DOTALL)):
            result_of(body, blocks, threads, budget=9000)
        return
    result = result_of(body, blocks, threads)
    ours = [finding.at("k") for finding in result.findings]
    assert len(ours) == len(found) and all(
        re.match(line[2:], at) for line, at in zip(found, ours, strict=True)
    ), ours
    assert result.ok == all(line.startswith("?") for line in found)


MASKS = {
    "0xffffu": "k:4: member-mask: thread 16 .*is not in its own member mask .16 times.",
    "t < 16 ? 0xffffffffu : 0xffff0000u": (
        "k:4: member-mask: thread 16 .* with another one .16 times."
    ),
    "0u": "k:4: member-mask: thread 0 .*is not in its own member mask .32 times.",
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    "call",
    [
        "__any_sync(M, t == 3)",
        "__reduce_add_sync(M, t)",
        "__match_any_sync(M, t)",
        "__shfl_xor_sync(M, t, 1)",
    ],
)
def test_a_mask_that_does_not_fit_the_lanes_is_found(call, mask):
    result = result_of(f"  c[t] = {call.replace('M', mask)};", block=32)
    assert re.match(MASKS[mask], result.findings[0].at("k"))
    assert {finding.kind for finding in result.findings[1:]} <= {
        "undefined-shuffle"
    } and not result.ok


def test_blocks_that_wait_for_blocks_that_never_start_are_a_deadlock():
    """An H200 runs 132 such blocks: the first ones wait for the last ones."""
    body = """  extern __shared__ int s[];
  if (t == 0) while (*(volatile int*)c != gridDim.x - 1 - b) {}
  if (t == 0) atomicAdd(c, 1);"""
    with pytest.raises(BudgetExceeded, match=r"^deadlock"):
        result_of(body, 133, shared_bytes=120_000, races=False)


def test_a_mistake_before_an_endless_loop_is_found():
    result = result_of("  c[100000 + t] = 1;\n  while (*(volatile int*)d == 0) {}")
    assert {finding.kind for finding in result.findings} == {"global-out-of-bounds", "deadlock"}


def test_a_cooperative_launch_of_too_many_blocks():
    with pytest.raises(
        BadLaunch,
        match=r"^too many blocks in cooperative launch: 5,000, of which 4,224 run together$",
    ):
        launched("grid_barrier", grid=(5000,))
    with pytest.raises(BadLaunch, match="133, of which 132 run together"):
        launched("grid_barrier", grid=(133,), registers=255, block=256)


@pytest.mark.parametrize(("index", "found"), [(1000, False), (2000, True)])
def test_the_low_32_bits_of_an_address_are_not_enough_after_a_page(index, found):
    body = f"""  const size_t low = (unsigned)(size_t)c + {index} * sizeof(int);
  *(int*)((size_t)c & ~0xffffffffull | (unsigned)low) = 1;"""
    result = result_of(body, blocks=32, block=32)
    kinds = {finding.kind for finding in result.findings}
    assert ("global-out-of-bounds" in kinds) == found


def test_launches_in_order_are_no_race():
    """The second one reads and overwrites what other blocks of the first one wrote."""
    body = "  float* c = C + (blockIdx.x ^ last) * 32 + threadIdx.x;\n  *c = 2 * *c + last;"
    c = np.ones(64, np.float32)
    for last in (0, 1):
        assert run(kernel(body, "float* C, int last"), [c, last], grid=(2,)).findings == ()
    assert set(c.tolist()) == {5.0}


def test_repeated_launches_take_the_blocks_in_other_orders():
    """No access of this kernel races, but what it computes depends on which block comes last."""
    body = "  atomicExch(c, (float)blockIdx.x);"
    found = {}
    for _ in range(2):
        device = EmulatedDevice()
        kernel_ = device.compile(Program("k.cu", kernel(body, "float* c"), "k"))
        c = device.upload(np.zeros(1))
        for number in range(5):
            device.launch(kernel_, (8, 1), (32, 1, 1), [c])
            assert device.last is not None and device.last.ok
            order = f" · schedule {number}" if number else ""
            assert device.last.label == f"emulated · sm_90 PTX{order}"
            assert found.setdefault(number, device.download(c)[0]) == device.download(c)[0]
    assert found[0] == 7 and len(set(found.values())) > 1
