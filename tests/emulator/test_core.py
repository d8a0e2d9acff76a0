"""The core in C gives the values, findings and counts of NumPy, launch by launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.emulator.helpers import HEAD, edited, gemm, kernel, run, rung_kernel, smallest
from tests.emulator.helpers import compiled as compiled_source
from tests.emulator.launches import BARRIERS, launched
from worklog.emulator import BudgetExceeded, UnsupportedInstruction, launch, load
from worklog.emulator.core.decode import Decoder, decoded, width_of
from worklog.emulator.isa import defined
from worklog.emulator.launch import _program
from worklog.kernel.ladder import LADDER, rung

RUNGS = [*(record.name for record in LADDER), "lane_map"]


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_rung_gives_what_it_gives_on_numpy(name: str, beta: float) -> None:
    record, parsed, source = rung_kernel(name)
    assert decoded(_program(parsed, 0)) is not None
    shape = smallest(record)
    ours, _, result = gemm(record, parsed, shape, beta=beta, alpha=1.5, source=source, core=True)
    theirs, right, expected = gemm(record, parsed, shape, beta=beta, alpha=1.5, source=source, core=False)
    assert ours.tobytes() == theirs.tobytes() and np.array_equal(ours, right)
    assert result.findings == expected.findings == () and result.lines == expected.lines


def test_a_missing_barrier_is_found_at_the_same_lines() -> None:
    record = rung("shared")
    source, _ = edited(record.source, "__syncthreads();  // wait: faster", "// wait: faster")
    parsed = compiled_source(source, record.program.entry)
    found = [
        {(finding.kind, finding.line, finding.other_line) for finding in result.findings}
        for core in (True, False)
        for result in [gemm(record, parsed, smallest(record), source=source, core=core)[2]]
    ]
    assert found[0] == found[1] != set()


def test_an_element_of_a_local_array_that_was_not_written_is_found() -> None:
    body = "  int v[8];\n  v[ix[0]] = 1;\n  v[ix[1]] = 2;\n  out[threadIdx.x] = v[ix[threadIdx.x % LAST]];"
    for last, found in ((8, ["uninitialised-local"]), (2, [])):
        arguments = [np.arange(8, dtype=np.int32), np.zeros(32, np.int32)]
        result = run(kernel(body.replace("LAST", str(last)), "const int* ix, int* out"), arguments)
        assert [finding.kind for finding in result.findings] == found


MEETINGS = (
    "exited_lanes", "exited_lanes absent", "votes_apart", "disjoint_masks", "match", "shuffles", "partial_warp",
    "diverged", "converging/redux_after_switch", "converging/shuffle_in_two_branches",
)  # fmt: skip


@pytest.mark.parametrize("name", MEETINGS)
def test_lanes_meet_as_on_numpy(name: str) -> None:
    ours, theirs = (launched(name, core=core) for core in (True, False))
    assert decoded(_program(compiled_source(ours[2], "k"), 0)) is not None
    assert all(np.array_equal(one, other) for one, other in zip(ours[0], theirs[0], strict=True))
    assert ours[1].findings == theirs[1].findings and ours[1].lines == theirs[1].lines


def test_a_launch_says_which_code_ran() -> None:
    source = kernel("  if (threadIdx.x < 5 - out[1]) {\n    __syncwarp(31);\n    out[0] = 1;\n  }", "int* out")
    result, code = run(source, [np.zeros(2, np.int32)]), compiled_source(source, "k").instructions
    reached = {i.op: threads for i, threads in zip(code, result.executed, strict=True)}
    assert (reached["bar.warp.sync"], reached["st.global.u32"], reached["ret"]) == (5, 5, 32)
    assert [*result.branches.values()] == [(27, 5)]


def test_watched_accesses_are_those_of_numpy() -> None:
    record, parsed, source = rung_kernel("warptiled")
    seen: list[dict[tuple[int, int], set[tuple[int, ...]]]] = [{}, {}]
    for core in (True, False):

        def watch(site: Any, address: Any, active: Any, width: int, core: bool = core) -> None:
            for warp in range(len(active) // 32):
                lanes = slice(32 * warp, 32 * warp + 32)
                if active[lanes].any():
                    seen[core].setdefault((site.pc, width), set()).add((warp, *address[lanes][active[lanes]].tolist()))

        gemm(record, parsed, smallest(record), source=source, only_blocks=[0], watch=watch, core=core)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("name", ["mma_tf32", "mma_f16", "wmma", "wmma_types", "wgmma_tf32"])
def test_tensor_cores_give_what_they_give_on_numpy(name: str) -> None:
    (ours, result, _), (theirs, expected, _) = (launched(name, core=core) for core in (True, False))
    for x, y in zip(ours, theirs, strict=True):
        assert not isinstance(x, np.ndarray) or x.tobytes() == y.tobytes()
    assert result.findings == expected.findings == () and result.lines == expected.lines


SPINS = {
    "a lock": "while (atomicCAS(c, 0, 1) != 0) {}\n  *d += 1;\n  atomicExch(c, 0);",
    "a flag": "if (t == 0) atomicExch(c, 1); else while (*(volatile int*)c == 0) {}\n  d[t] = 1;",
    "a meeting above": """if (t == 5) while (*(volatile int*)c == 0) {}
  else if (t < 16) d[t] = __ballot_sync(~32u, t % 3);
  else d[t] = 2 + __ballot_sync(~32u, t & 1);
  if (t == 0) atomicExch(c, 1);""",
}


@pytest.mark.parametrize("name", SPINS)
def test_lanes_wait_for_lanes_of_their_warp(name: str) -> None:
    source = kernel("  int t = threadIdx.x;\n  " + SPINS[name], "int* c, int* d")
    ours, theirs = ([np.zeros(64, np.int32) for _ in range(2)] for _ in range(2))
    result, expected = (run(source, x, core=core, budget=9000) for x, core in ((ours, True), (theirs, False)))
    found = [{(finding.kind, finding.line) for finding in one.findings} for one in (result, expected)]
    assert np.array_equal(ours, theirs) and found[0] == found[1]


@pytest.mark.parametrize("name", [f"barriers/{name}" for name in BARRIERS])
@pytest.mark.parametrize("schedule", [0, 1, 2])
def test_barriers_of_warps_give_what_they_give_on_numpy(name: str, schedule: int) -> None:
    ours, result, _ = launched(name, core=True, schedule=schedule)
    theirs, expected, _ = launched(name, core=False)
    assert ours[1].tobytes() == theirs[1].tobytes()
    assert result.findings == expected.findings and result.lines == expected.lines


FOR_EVER = {
    "a barrier that others don't reach": ('if (t < 32) asm volatile("bar.sync 1, 64;");', {}),
    "a lock that is never freed": ("while (atomicCAS(c, 0, 1) != 0) {}", {}),
    "a flag that is never set": ("while (*(volatile int*)d == 0) {}\n  c[t] = 1;", {}),
    "a loop with a mistake before it": ("c[1000 + t] = 1;\n  while (*(volatile int*)d == 0) {}", {}),
    "attempts that are counted": ("int n = 0;\n  while (*(volatile int*)d == 0) ++n;\n  c[t] = n;", {"budget": 9000}),
    "a loop of plain code": ("for (int k = 1; k != 0; k += 2) c[t] = k;", {}),
}


@pytest.mark.parametrize("name", FOR_EVER)
def test_what_never_ends_is_said_as_on_numpy(name: str) -> None:
    body, options = FOR_EVER[name]
    said = []
    for core in (True, False):
        given = [np.zeros(64, np.int32) for _ in "cd"]
        source = kernel("  int t = threadIdx.x;\n  " + body, "int* c, int* d")
        try:
            said.append([finding.at("k") for finding in run(source, given, block=64, core=core, **options).findings])
        except BudgetExceeded as error:
            said.append([str(error)])
    assert said[0] == said[1] != []


def test_blocks_take_turns_in_any_order() -> None:
    """Each one waits for those behind it, so all have to be resident."""
    for schedule in range(4):
        arguments, result, _ = launched("block_turns", schedule=schedule)
        assert arguments[1].tolist() == np.arange(20)[::-1].repeat(32).tolist() and result.findings == ()
        assert result.label.endswith(f"schedule {schedule}" if schedule else "PTX")


def test_an_instruction_that_is_not_supported_is_refused_where_it_runs() -> None:
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
    assert launch(parsed, (1,), 32, [0], core=True).ok
    with pytest.raises(UnsupportedInstruction, match=r"bar\.arrive .*barriers other than"):
        launch(parsed, (1,), 32, [1], core=True)


def test_registers_of_other_widths_have_other_places() -> None:
    """Else a lane overwrites registers of another lane, which may wait elsewhere."""
    source = kernel("  unsigned t = threadIdx.x % 32;\n  out[t] = t % 3;", "int* out")
    program = _program(compiled_source(source, "k"), 0)
    types = {reg.name: reg.type for i in program.kernel.instructions for reg in defined(i) if reg.type != "pred"}
    places = Decoder(program)._allocate()
    assert len({(places[name].place, width_of(type_)) for name, type_ in types.items()}) == len(
        {places[name].place for name in types}
    )


HAND_OVERS = [
    *(f"hand_over/{name}" for name in ("last_block", "one_fence", "by_warp", "by_guard", "passed_on", "two_chains")),
    "hand_over/shared_lock", "converging/locks_between_warps", "converging/flags_between_warps", "grid_sums",
    "barriers/producers_and_consumers", "barriers/half_warps", "barriers/lanes_apart",
]  # fmt: skip
UNORDERED = [
    ("hand_over/last_block", ("__threadfence();  // written", ""), "global-race"),
    ("hand_over/last_block", ("__threadfence();  // written", "__threadfence_block();"), "global-race"),
    ("hand_over/passed_on", ("__syncthreads();  // by all", "// by all"), "global-race"),
    ("hand_over/shared_lock", ("__threadfence_block();  // written", ""), "global-race"),
    ("converging/flags_between_warps", ("ld.acquire.cta", "ld.volatile"), "shared-race"),
    ("barriers/half_warps", ("  __syncwarp();\n", "  __syncwarp(half);\n"), "missing-syncwarp"),
]


@pytest.mark.parametrize("name", HAND_OVERS)
def test_threads_hand_over_as_on_numpy(name: str) -> None:
    ours, theirs = (launched(name, core=core) for core in (True, False))
    assert decoded(_program(compiled_source(ours[2], "k"), 0)) is not None
    assert all(np.array_equal(one, other) for one, other in zip(ours[0], theirs[0], strict=True))
    assert ours[1].findings == theirs[1].findings


@pytest.mark.parametrize(("name", "change", "kind"), UNORDERED)
def test_what_is_not_handed_over_is_found_as_on_numpy(name: str, change: tuple[str, str], kind: str) -> None:
    """How often depends on which thread runs first."""
    found = [
        {(f.kind, f.line, f.other_line) for f in launched(name, change, core=core)[1].findings}
        for core in (True, False)
    ]
    assert found[0] == found[1] and {one[0] for one in found[0]} == {kind}
