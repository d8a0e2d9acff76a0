"""What the emulator refuses.

Each error names the instruction, its line and what to do instead. Odd operands, broken PTX and
odd arguments end in such an error or in a result.
"""

import math
import re
import resource
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.emulator.helpers import HEAD, compiled, kernel, run
from tests.record.corpus import forms_missing
from worklog.emulator import Pointer, launch, load
from worklog.emulator.memory import tensor_map
from worklog.emulator.ptx import PtxError, UnsupportedInstruction
from worklog.emulator.reports import BadLaunch, TooLarge
from worklog.errors import WorklogError

REGISTERS = (
    ".reg .b16 %h<3>; .reg .b32 %r<3>; .reg .b64 %rd<3>; .reg .f32 %f<3>; .reg .f64 "
    "%d<3>; .reg .pred %p<3>;"
)


def ptx(statement: str) -> str:
    """Return a kernel k with the statement in line 7."""
    start = "ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mov.u64 %rd2, s;\n.loc 1 7 3\nL:\n"
    body = f"{REGISTERS} .shared .align 4 .b8 s[64];\n{start}{statement}\nret;\n"
    return f"{HEAD}.visible .entry k(.param .u64 p) {{\n{body}}}\n"


def run_statement(statement: str) -> None:
    launch(load(ptx(statement), "k"), (1,), 40, [np.zeros(8, np.float32)], budget=100)


# One instruction per form that ptxas 13.0 takes for sm_90a: an opcode with its types and modifiers,
# where rounding modes, .ftz, .sat and the kinds of comparison count once.
INSTRUCTIONS = Path(__file__).with_name("forms.txt").read_text(encoding="utf-8").splitlines()


def module(form: str) -> str:
    """PTX of a kernel k that consists of one instruction, after one that sets the carry."""
    registers = (
        ".reg .pred p, q, r; .reg .b16 h<6>; .reg .b32 w<20>; .reg .b64 d<8>; .reg .f32 "
        "f<70>; .reg .f64 e<6>;"
    )
    wide = ".reg .b128 x<3>;" if re.search(r"\bx\d", form) else ""
    carry = "add.cc.u32 w0, w1, w2;" if re.match(r"(?:add|sub|mad)c\.", form) else ""
    head = ".version 9.0\n.target sm_90a\n.address_size 64\n"
    return f"{head}.visible .entry k()\n{{ {registers} {wide} {carry}\n{form}\nret; }}\n"


def test_the_emulator_has_most_instruction_forms_of_hopper():
    missing = [form for form in INSTRUCTIONS if forms_missing(module(form), "k")]
    assert len(missing) < 0.1 * len(INSTRUCTIONS) and forms_missing(
        module("frobnicate.b32 w0,w1;"), "k"
    )


PIECES = sorted({piece for form in INSTRUCTIONS for piece in re.findall(r"\w+|\W", form)})
PIECES += ["0f7F800000", "0dFFF0000000000000", "0d7FF8000000000000"]
CHANGES = st.lists(st.tuples(st.integers(0, 60), st.sampled_from(["", *PIECES])), max_size=3)


@settings(max_examples=150, derandomize=True)
@given(st.sampled_from(INSTRUCTIONS), CHANGES)
def test_an_instruction_with_other_words_runs_or_is_refused(form, changes):
    pieces = re.findall(r"\w+|\W", form)
    for place, piece in changes:
        pieces[place % len(pieces)] = piece
    with suppress(WorklogError):
        launch(load(module("".join(pieces))), (1,), 32, [], budget=100)


BUFFER = np.zeros(8, np.float32)
ODD = [
    None,
    "x",
    1.5,
    math.nan,
    10**30,
    -1,
    [1],
    object(),
    1j,
    np.complex64(1),
    True,
    np.float64(1e300),
    np.zeros(3, object),
]
ODD += [BUFFER[::2], Pointer(BUFFER, 32), Pointer(None, 16), tensor_map(BUFFER, (8,)), BUFFER]
SIZES = [1, 2**40, 0, (1, 1, 1, 1), (), "x", 1.5, None, (1.5,), ("a",), (-1,), (2, 2, 2), [3]]


@settings(max_examples=150, derandomize=True)
@given(
    st.sampled_from(SIZES),
    st.sampled_from(SIZES),
    st.lists(st.sampled_from(ODD), max_size=3),
    st.integers(-9, 9),
)
def test_odd_arguments_run_or_are_refused(grid, block, arguments, shared):
    parameters = ".param .u64 a, .param .f32 b, .param .u32 c"
    text = f"{HEAD}.visible .entry k({parameters}) {{ {REGISTERS} ld.param.f32 %f1, [b]; ret; }}\n"
    with suppress(WorklogError):
        launch(load(text), grid, block, arguments, shared_bytes=shared, budget=100)


REFUSALS = Path(__file__).with_name("refusals.txt").read_text(encoding="utf-8").splitlines()[1:]


@pytest.mark.parametrize(("statement", "message"), [line.split(" | ") for line in REFUSALS])
def test_what_is_wrong_is_named_with_its_line_and_advice(statement, message):
    with pytest.raises((PtxError, UnsupportedInstruction), match=f"^line 7: {message}"):
        run_statement(statement)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int main() {}", "not PTX"),
        (HEAD + ".visible .entry k() {\nret;\n", "truncated"),
        (HEAD + ".visible .entry j() {\nret;\n}\n", "there is no kernel k"),
        (
            HEAD + ".visible .entry k(.param u32) {\nret;\n}\n",
            "cannot read the kernel parameter '.param u32'",
        ),
        (HEAD + ".visible .entry k() { }\n", "k has no instructions"),
        (ptx(".shared .align 0 .b8 t[2];"), "must be a power of two"),
    ],
)
def test_text_that_is_not_a_kernels_ptx(text, message):
    with pytest.raises(PtxError, match=message):
        launch(load(text, "k"), (1,), 32, [])


def test_a_block_with_more_registers_than_an_sm_is_refused():
    run(SIMPLE, [OUT, 0, 1.0], block=1024, registers=64)
    with pytest.raises(
        BadLaunch, match=r"^too many resources requested for launch: 1024 threads x 72 registers"
    ):
        run(SIMPLE, [OUT, 0, 1.0], block=1024, registers=72)


def test_clusters_that_no_gpu_launches_are_refused():
    source = (
        kernel("", "")
        .replace("__global__", "__global__ void __cluster_dims__(2, 1, 1)", 1)
        .replace("void k", "k")
    )
    with pytest.raises(
        BadLaunch, match=r"the grid \(3, 1, 1\) is no multiple of the cluster, \(2, 1, 1\) blocks"
    ):
        run(source, [], grid=(3,))
    with pytest.raises(BadLaunch, match=r"a cluster of \(16, 1, 1\) blocks: a GPU allows 8"):
        run(source.replace("2, 1, 1", "16, 1, 1"), [], grid=(16,))


SIMPLE = kernel(
    "  if (threadIdx.x < n) out[threadIdx.x] = scale;", "float* out, int n, float scale"
)
BOUNDED = SIMPLE.replace("void k", "void __launch_bounds__(64) k")
OUT = np.zeros(4, np.float32)
INVALID = "^invalid configuration argument: "


@pytest.mark.parametrize(
    ("source", "grid", "block", "arguments", "message"),
    [
        (SIMPLE, (1,), 32, [1, 2], "takes 3 arguments, got 2"),
        (SIMPLE, (1,), 32, [OUT, 2.5, 1.0], "argument 1 must be an integer"),
        (SIMPLE, (1,), 32, [OUT, np.zeros(1, np.int32), 1.0], "must be a number .*, not a buffer"),
        (SIMPLE, (1,), 32, [OUT, 2**40, 1.0], "does not fit in 32 bits"),
        (SIMPLE, (1,), 32, [np.zeros((4, 4), np.float32)[:, 0], 2, 1.0], "contiguous"),
        (SIMPLE, (1,), 32, [OUT, 4, "one"], r"argument 2 must be a number \(\.\w32\), got str"),
        (BOUNDED, (1,), 2048, [OUT, 2, 1.0], "2048 threads per block are more"),
        (BOUNDED, (1,), 96, [OUT, 2, 1.0], "allow 64"),
        (SIMPLE, (1,), (0, 1), [OUT, 2, 1.0], "positive"),
        (
            SIMPLE,
            (2**31,),
            32,
            [OUT, 4, 1.0],
            rf"{INVALID}the grid \(2147483648, 1, 1\) .* \(\d+, 65535, 65535\)",
        ),
        (SIMPLE, (1, 1, 65_536), 32, [OUT, 4, 1.0], f"{INVALID}the grid"),
        (
            SIMPLE,
            (1,),
            (1, 1, 65),
            [OUT, 4, 1.0],
            rf"{INVALID}the block \(1, 1, 65\) exceeds .* \(1024, 1024, 64\)",
        ),
    ],
)
def test_launches_that_no_gpu_accepts_fail_before_anything_runs(
    source, grid, block, arguments, message
):
    with pytest.raises(BadLaunch, match=message):
        run(source, arguments, grid=grid, block=block)
    assert not OUT.any()


def test_a_launch_too_large_to_emulate():
    with pytest.raises(
        TooLarge, match=r"^140,735,340,806,145 blocks are too many .* use a smaller size$"
    ):
        run(SIMPLE, [OUT, 4, 1.0], grid=(2**31 - 1, 65_535))


HUGE = 1 << 33
MODULES = {
    "loading the __device__ variables of k needs about 8,192 MiB": f""".visible .global .b8 g[{HUGE}];
.visible .entry k() {{ st.global.u8 [g], 1; ret; }}""",
    "loading .* needs about 4,398,046,511,104 MiB": f""".visible .global .b8 g[{2**62}];
.visible .entry k() {{ st.global.u8 [g], 1; ret; }}""",
    "recording who accesses g in k needs about 5,120 MiB": """.visible .global .b8 g[134217728];
.visible .entry k() { st.global.u8 [g], 1; ret; }""",
    "k needs about .* MiB": f".visible .entry k() {{ .local .b8 s[{HUGE}]; ret; }}",
}


@pytest.mark.parametrize("message", MODULES)
def test_memory_that_this_process_cannot_allocate_is_refused(message):
    """And none of it is."""
    page = resource.getpagesize()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resource.setrlimit(resource.RLIMIT_AS, (page * pages + (1 << 30), limits[1]))
    try:
        with pytest.raises(TooLarge, match=f"^{message}.*: (make them|use a|run fewer)"):
            launch(load(HEAD + MODULES[message]), (1,), 32, [])
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


@pytest.mark.parametrize("size", [32_764, 32_765, HUGE])
def test_parameters_are_limited_as_on_a_gpu(size):
    entry = load(f"{HEAD}.visible .entry k(.param .align 1 .b8 s[{size}]) {{ ret; }}")
    if size <= 32_764:
        assert launch(entry, (1,), 32, [1]).ok
        return
    with pytest.raises(
        BadLaunch, match=f"parameters of k have {size:,} bytes, and .* 32,764: pass"
    ):
        launch(entry, (1,), 32, [1])


@pytest.mark.parametrize("value", [1j, np.complex64(1), None, "1"])
def test_an_argument_that_is_no_real_number_is_refused(value):
    entry = load(f"{HEAD}.visible .entry k(.param .f32 x) {{ ret; }}")
    with pytest.raises(BadLaunch, match=r"^argument 0 must be a number \(\.f32\), got "):
        launch(entry, (1,), 32, [value])


def test_every_place_with_a_mistake_is_listed():
    body = "".join(f"  out[-{k}] = {k};\n" for k in range(1, 41))
    found = run(kernel(body, "volatile int* out"), [np.zeros(1, np.int32)]).findings
    assert [finding.line for finding in found] == [*range(3, 43)]


@pytest.mark.parametrize(("arch", "most"), [("sm_90", 227), ("sm_80", 163), ("sm_120", 99)])
def test_shared_memory_is_limited_by_the_architecture(arch, most):
    source = kernel(
        "  extern __shared__ int tile[];\n  tile[0] = 1;\n  out[0] = tile[0];", "int* out"
    )
    dynamic = compiled(source, "k", arch)
    out = np.zeros(1, np.int32)
    launch(dynamic, (1,), 1, [out], shared_bytes=1024 * most)
    with pytest.raises(
        BadLaunch, match=rf"^invalid configuration .* more than {arch} has \({1024 * most}\)$"
    ):
        launch(dynamic, (1,), 1, [out], shared_bytes=1024 * most + 1)
