"""Shared-memory accesses as the assembler emits them.

Read from the machine code, and derived from the PTX.
"""

import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from tests.emulator.helpers import HEAD, compile_rung, compiled, cuda, edited, ptx, rung_kernel
from tests.emulator.launches import KERNELS
from worklog.emulator import launch, load
from worklog.emulator.assembled import as_assembled, inner_loops, unrolled
from worklog.emulator.reports import BudgetExceeded, caveats
from worklog.kernel.device import Program
from worklog.kernel.ladder import LADDER, rung
from worklog.kernel.nvrtc import compile_cuda
from worklog.kernel.resources import disassemble, disassembler, shared_widths

# The machine code of sm_86 and sm_89 is that of sm_80. Other architectures' assemblers differ in
# how they join floats and quads and unroll, for which three rungs are enough.
BUILDS = [
    *((r.name, "sm_90") for r in LADDER),
    *(
        (name, arch)
        for name in ("shared", "vectorized", "double_buffered")
        for arch in ("sm_75", "sm_80", "sm_120")
    ),
    *(
        (name, arch)
        for name in KERNELS
        if name.startswith("right/")
        for arch in ("sm_90", "sm_120")
    ),
]


@pytest.mark.parametrize(("name", "arch"), BUILDS)
def test_shared_accesses_are_the_machine_codes(name, arch):
    assert (
        compiled(cuda(name), "k", arch) if "/" in name else rung_kernel(name, arch)[1]
    ).assembled


@pytest.mark.parametrize("arch", ["sm_90", "sm_120"])
def test_the_cubin_is_read_as_the_disassembler_reads_it(arch):
    tool = disassembler()
    assert tool is not None, "it comes with the extra dev"
    all_widths = compile_cuda(Program("accesses.cu", cuda("accesses"), "k"), arch)
    assert shared_widths(all_widths.cubin, "another") == ()
    for out in (all_widths, compile_rung("double_buffered", arch)):
        listing = disassemble(out.cubin, tool)
        read = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d\s+)?(LDS|STS)((?:\.\w+)*) ", listing)
        widths = [
            f"{name}.{re.sub(r'.*[US](8|16)$', 'narrow', parts).lstrip('.U').strip('.') or '32'}"
            for name, parts in read
        ]
        assert out.shared_accesses == tuple(sorted(Counter(widths).items()))
    assert {name for name, _ in all_widths.shared_accesses} == {
        *("LDS.32", "LDS.64", "LDS.128", "LDS.narrow", "STS.32", "STS.64", "STS.128", "STS.narrow")
    }


def test_counts_have_a_caveat_where_the_unrolling_is_unknown():
    """A loop without a known number of turns is unrolled too.

    What is left over is done one by one.
    """
    source, _ = edited(rung("shared").source, "k < BK; ++k", "k < K % 31 + 1; ++k")
    out = compile_cuda(Program("shared.cu", source, rung("shared").entry))
    kernel = load(out.ptx, out.symbol, out.shared_accesses)
    assert (
        kernel.assembled is False and kernel.instructions == load(out.ptx, out.symbol).instructions
    )
    assert [caveat[:36] for caveat in caveats(kernel)] == ["shared-memory wavefronts are those o"]
    (other,) = caveats(replace(kernel, arch="sm_80", assembled=True))
    assert "on sm_90 alone; on sm_80" in other and caveats(replace(kernel, assembled=True)) == ()


LOOP = ptx("loop")


def run(text: str, factor: int = 1) -> tuple[bytes, Counter[str]] | None:
    """Return what a launch writes and executes, with the loop unrolled.

    None if the loop is endless.
    """
    kernel = load(text, "k")
    out = np.zeros(32, np.float32)
    (loop,) = inner_loops(kernel)
    with suppress(BudgetExceeded):
        result = launch(unrolled(kernel, loop, factor), (1,), 32, [out], budget=300)
        if "deadlock" not in {finding.kind for finding in result.findings}:
            return out.tobytes(), Counter(result.counts.instructions)
    return None


def test_an_unrolled_loop_does_and_counts_the_same():
    """With a random start, step, comparison and end."""
    rng = np.random.default_rng(0)
    ended = 0
    for _ in range(40):
        start, bound = rng.integers(-20, 21, 2)
        compare = rng.choice(["ne", "lt", "le", "gt", "ge"])
        sign = rng.choice(["s", "u"])
        early, late = rng.permutation([f"setp.{compare}.{sign}32 %p1, %r3, {bound};", ""])
        step = rng.choice([-3, -2, -1, 1, 2, 3])
        negated = rng.choice(["", "!"])
        text = HEAD + LOOP.format(start=start, step=step, test=early, late=late, negated=negated)
        right = run(text)
        ended += right is not None
        assert all(run(text, factor) == right for factor in (2, 3, 8))
    assert ended > 10


# Offsets of scalar accesses off one base, and what ptxas 13.0 made of them on sm_75, sm_90 and
# sm_120.
@pytest.mark.parametrize(
    ("statements", "found"),
    [
        (["ld 0", "ld 4"], {"LDS.64": 1}),
        (["ld 4", "ld 8"], {"LDS.32": 2}),
        (["ld 0", "ld 8"], {"LDS.32": 2}),
        (["ld 8", "ld 4", "ld 12"], {"LDS.128": 1}),
        (["ld 0", "ld 4", "ld 8", "ld 12"], {"LDS.128": 1}),
        (["ld 4", "ld 8", "ld 12", "ld 16", "ld 20", "ld 24"], {"LDS.128": 2}),
        (["ld.v2 0", "ld 8"], {"LDS.128": 1}),
        (["ld.v2 0", "ld.v2 8"], {"LDS.128": 1}),
        (["ld 0", "st 512", "ld 4"], {"LDS.32": 2, "STS.32": 1}),
        (["ld 0", "bar", "ld 4"], {"LDS.32": 2}),
        (["ld 0", "global", "ld 4"], {"LDS.64": 1}),
        (["st 0", "st 4"], {"STS.64": 1}),
        (["st 4", "st 8"], {"STS.32": 2}),
        (["st 0", "st 4", "st 8"], {"STS.64": 1, "STS.32": 1}),
        (["st 0", "st 12", "st 4", "st 8"], {"STS.128": 1}),
        (["st 0", "ld 512", "st 4"], {"STS.32": 2, "LDS.32": 1}),
        (["st.v2 0", "st.v2 8"], {"STS.128": 1}),
        (["ld 0", "move 4", "ld 0", "ld 4"], {"LDS.128": 1}),
        (["guarded 0", "guarded 4"], {"LDS.32": 2}),
    ],
)
def test_neighbours_become_one_access(statements, found):
    spelled = {
        "ld": "ld.shared.f32 %f1, [%rd2+{}];",
        "ld.v2": "ld.shared.v2.f32 {{%f1, %f2}}, [%rd2+{}];",
        "st": "st.shared.f32 [%rd2+{}], %f3;",
        "st.v2": "st.shared.v2.f32 [%rd2+{}], {{%f3, %f4}};",
        "bar": "bar.sync 0;",
        "global": "st.global.f32 [%rd1], %f3;",
        "move": "add.s64 %rd2, %rd2, {};",
        "guarded": "@%p1 ld.shared.f32 %f1, [%rd2+{}];",
    }
    body = "\n".join(
        spelled[name].format(at) for name, _, at in (s.partition(" ") for s in statements)
    )
    text = HEAD + ptx("neighbours").replace("BODY", body)
    assert as_assembled(load(text, "k"), tuple(sorted(found.items()))).assembled
