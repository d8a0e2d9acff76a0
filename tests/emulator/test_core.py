"""The core: threads that wait, schedules, coverage, and what it refuses."""

import ctypes
import signal
from types import SimpleNamespace

import numpy as np
import pytest

from tests.emulator.helpers import HEAD, kernel, run
from tests.emulator.helpers import compiled as compiled_source
from tests.emulator.launches import BARRIERS, launched
from worklog.emulator import launch, load
from worklog.emulator.core import native, record
from worklog.emulator.ptx import UnsupportedInstruction


def test_a_launch_says_which_code_ran():
    source = kernel(
        "  if (threadIdx.x < 5 - out[1]) {\n    __syncwarp(31);\n    out[0] = 1;\n  }", "int* out"
    )
    result = run(source, [np.zeros(2, np.int32)])
    code = compiled_source(source, "k").instructions
    reached = {i.op: threads for i, threads in zip(code, result.executed, strict=True)}
    assert (reached["bar.warp.sync"], reached["st.global.u32"], reached["ret"]) == (5, 5, 32)
    assert [choices for i, choices in zip(code, result.choices, strict=True) if i.guard] == [3]


COUNTED = """  if (threadIdx.x) return;
  c[blockIdx.x] = 1;
  __threadfence();
  if (atomicAdd(flag, 1) == gridDim.x - 1) {
    __threadfence();
    *flag = c[0];
  }"""
SCATTERED = (
    "  __threadfence();\n  atomicAdd(&c[(blockIdx.x * 37 + threadIdx.x) % 4096], 1);\n  "
    "__threadfence();"
)


@pytest.mark.parametrize(("body", "blocks"), [(COUNTED, 100_000), (SCATTERED, 5000)])
def test_what_blocks_hand_over_takes_bounded_memory(body, blocks, monkeypatch):
    """Without forgetting, these keep 1,500 and 250 times as many times."""
    core = native.library()
    ended = list[np.ndarray]()

    def launch_free(launch: ctypes.c_void_p) -> None:
        ended.append(
            np.frombuffer(ctypes.string_at(launch, record("Launch").itemsize), record("Launch"))
        )
        core.launch_free(launch)

    monkeypatch.setattr(
        native,
        "library",
        lambda: SimpleNamespace(launch_run=core.launch_run, launch_free=launch_free),
    )
    c = np.zeros(max(blocks, 4096), np.int32)
    flag = np.zeros(1, np.int32)
    assert (
        run(kernel(body, "int* c, int* flag"), [c, flag], grid=(blocks,), count=False).findings
        == ()
    )
    assert ended[0]["times"] < 2**22 + 2**18 and ended[0]["forgotten"] > 0


def test_an_instruction_that_is_not_supported_is_refused_where_it_runs():
    text = """.visible .entry k(.param .u32 n) {
  .reg .pred %p; .reg .u32 %r<2>;
  ld.param.u32 %r1, [n];
  setp.eq.u32 %p, %r1, 0;
  @%p bra done;
  bar.arrive 1;
done:
  ret;
}"""
    parsed = load(HEAD + text)
    assert launch(parsed, (1,), 32, [0]).ok
    with pytest.raises(UnsupportedInstruction, match=r"bar\.arrive .*barriers other than"):
        launch(parsed, (1,), 32, [1])


@pytest.mark.parametrize("body", ["x[0] += 1;", 'printf("%d", i);'])
def test_an_interrupt_ends_a_launch_that_is_traced_or_prints(body):
    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    source = kernel(f"  for (int i = 0; i < n; ++i) {body}", "volatile int* x, int n")
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(Stop):
            for _ in range(20):
                launch(
                    compiled_source(source, "k"),
                    (1,),
                    32,
                    [np.zeros(1, np.int32), 40_000],
                    trace=True,
                )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", ["block_turns", *(f"barriers/{name}" for name in BARRIERS)])
def test_every_schedule_of_warps_and_blocks_gives_the_same(name):
    first, *others = (launched(name, schedule=schedule) for schedule in range(4))
    for arguments, result, _ in others:
        assert all(map(np.array_equal, arguments, first[0]))
        kinds = [
            {(finding.kind, finding.line) for finding in each.findings}
            for each in (result, first[1])
        ]
        assert kinds[0] == kinds[1]


@pytest.mark.parametrize("block", [(5, 3, 7), (1, 33, 2), (40, 2), (32, 4)])
def test_threads_are_numbered_along_x_then_y_then_z(block):
    read = 'asm("mov.u32 %0, %%{0};" : "=r"({0}));'
    source = kernel(
        "  unsigned laneid, warpid;\n  "
        + read.replace("{0}", "laneid")
        + read.replace("{0}", "warpid")
        + "\n  int *own = out + 3 * (32 * warpid + laneid);\n"
        "  own[0] = threadIdx.x; own[1] = threadIdx.y; own[2] = threadIdx.z;",
        "int* out",
    )
    width, height, depth = (*block, 1)[:3]
    out = np.zeros((width * height * depth, 3), np.int32)
    assert launch(compiled_source(source, "k"), (1,), block, [out]).ok
    expected = [(x, y, z) for z in range(depth) for y in range(height) for x in range(width)]
    assert out.tolist() == [[*indices] for indices in expected]


INHERITS = f"""{HEAD}
.visible .entry k(.param .u64 out) {{
.reg .pred %p1;
.reg .b32 %r<4>;
.reg .b64 %rd<4>;
.shared .align 4 .b8 unwritten[4];
ld.param.u64 %rd1, [out];
mov.u32 %r0, %tid.x;
setp.ge.u32 %p1, %r0, 32;
@%p1 bra $second;
mov.u32 %r1, 7;
ld.shared.u32 %r2, [unwritten];
ret;
$second:
ld.shared.u32 %r3, [unwritten];
mul.wide.u32 %rd2, %r0, 8;
add.s64 %rd3, %rd1, %rd2;
st.global.u32 [%rd3], %r1;
st.global.u32 [%rd3+4], %r2;
ret;
}}
"""


def test_a_warp_inherits_no_register_of_one_that_has_exited():
    """Neither a value, nor that it must not be used."""
    out = np.zeros((64, 2), np.uint32)
    result = launch(load(INHERITS, "k"), (1,), 64, [out])
    assert result.findings == ()
    assert (out[:32] == 0).all()
    assert (out[32:] == 0xFFFFFFFF).all()
