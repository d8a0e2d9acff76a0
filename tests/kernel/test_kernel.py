"""One record for rungs, files and notebook cells.

What it derives, what it rejects, and that it crosses to a child.
"""

import contextlib
import os
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import worklog
from tests.gate.numpy_device import NumpyDevice
from worklog.errors import BadSetting, LaunchFailed, WorklogError
from worklog.kernel import Dispatcher, Kernel
from worklog.kernel.by_name import DEFAULTS, kernel_of
from worklog.kernel.ladder import rung
from worklog.kernel.source import evaluate
from worklog.problem import Domain, Shape
from worklog.runner.measure import measure

TEMPLATE = """\
template <typename Sum, int TILE>
__global__ void gemm(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  const int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  if (row >= M || col >= N) return;
  Sum acc = 0;
  for (int k = 0; k < K; ++k) acc += (Sum)A[row * K + k] * (Sum)B[k * N + col];
  C[row * N + col] = beta == 0.0f ? alpha * (float)acc : alpha * (float)acc + beta * C[row * N + col];
}
"""
LAUNCH = {
    "grid": "(N + TILE - 1) / TILE, (M + TILE - 1) / TILE",
    "block": "TILE, TILE",
    "domain": "K % TILE == 0",
}
HOST = Kernel.from_function("package.module:gemm", domain="K % 8 == 0", claimed="bf16", name="ours")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.cu"
    path.write_text(TEMPLATE)
    return path


def mine(source: str = TEMPLATE, **changed: Any) -> Kernel:
    return worklog.Kernel.from_source(
        source, **{"entry": "gemm", "grid": "N / 8, M", "block": "8", **changed}
    )


def test_a_host_function_is_a_kernel_without_source_and_needs_no_launch():
    assert (HOST.file, HOST.function, HOST.entry, HOST.source) == (
        "package.module",
        *["gemm"] * 2,
        "",
    )
    assert not HOST.grid and not HOST.missing_on("sm_80") and HOST.at(Shape.of(64)) is HOST
    assert pickle.loads(pickle.dumps(HOST)) == HOST
    assert replace(HOST, name="theirs").describe()["entry"] == "gemm"
    HOST.require_launch()
    with pytest.raises(BadSetting, match=r"ours is a host function: give a .cu file or a rung"):
        HOST.require_source()
    with pytest.raises(BadSetting, match=r"cannot load package.module"):
        HOST.require_loadable()
    mine().require_source()
    mine().require_loadable()


def test_a_dispatcher_launches_what_it_chooses_with_its_own_text():
    tiles = {size: mine(f"// {size}\n{TEMPLATE}", grid=f"N / {size}, M") for size in (8, 16)}
    dispatcher = Dispatcher.from_kernel(
        tiles[8], lambda shape, chip: tiles[16 if shape.n > 64 else 8]
    )
    assert [dispatcher.at(Shape.of(n)).grid for n in (64, 128)] == ["N / 8, M", "N / 16, M"]
    assert {dispatcher.at(Shape.of(n)).source for n in (64, 128)} == {tiles[8].source}
    assert dispatcher.follows_shape and not tiles[8].follows_shape
    [own_launch] = dispatcher.passes
    assert own_launch.at(Shape.of(128)).grid == "N / 8, M"
    split = rung("split")
    assert pickle.loads(pickle.dumps(split)) == split


@pytest.mark.parametrize(
    ("line", "skipped"),
    [
        ('asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");', True),
        ('asm volatile("{\\n\\tsetmaxnreg.inc.sync.aligned.u32 240;\\n}");', True),
        ('asm("bar.sync 0;"); // no "setmaxnreg" here\n/* setmaxnreg */', False),
        ('#if __CUDA_ARCH__ == 900\nasm("setmaxnreg.inc.sync.aligned.u32 240;");\n#endif\n', False),
    ],
)
def test_a_kernel_is_skipped_only_on_a_gpu_that_lacks_its_instructions(line, skipped):
    kernel = mine(TEMPLATE.replace("Sum acc = 0;", f"Sum acc = 0; {line}\n"))
    assert bool(kernel.missing_on("sm_80")) is skipped and not kernel.missing_on("sm_90")


def test_what_is_no_text_is_an_error_and_a_pipe_is_not_read(file):
    (file.parent / "binary.cu").write_bytes(b"// \xe9\0")
    with pytest.raises(WorklogError, match="UTF-8"):
        Kernel.from_file(file.parent / "binary.cu")
    (file.parent / "latin.cu").write_bytes(b"// \xe9\n" + TEMPLATE.encode())
    with pytest.warns(UserWarning, match=r"latin\.cu:1 isn't UTF-8: .* as Latin-1"):
        kernel = Kernel.from_file(file.parent / "latin.cu", entry="gemm<float, 8>")
    assert kernel.source == f"// \u00e9\n{TEMPLATE}"
    pipe = file.parent / "pipe.py"
    os.mkfifo(pipe)
    for read, path in (
        (Kernel.from_file, pipe),
        (Kernel.from_file, "/dev/full"),
        (Kernel.from_function, f"{pipe}:f"),
    ):
        with pytest.raises(WorklogError, match=r"cannot read .*a pipe or a device"):
            read(path)
    with pytest.raises(BadSetting, match="name the kernel with --entry"):
        Kernel.from_function("mine.cu:gemm")
    with pytest.raises(BadSetting, match="there is no rung 3"):
        rung(3)  # type: ignore[arg-type]
    file.write_bytes(b"\xef\xbb\xbf" + TEMPLATE.encode())
    assert Kernel.from_file(file, entry="gemm<float, 8>").source == TEMPLATE, (
        "without its byte order mark"
    )


def test_a_file_a_cell_and_a_rung_make_the_same_kind_of_record(file):
    numbers = {option: text.replace("TILE", "16") for option, text in LAUNCH.items()}
    from_file = Kernel.from_file(file, entry="gemm<float, 16>", claimed="tf32", **numbers)
    assert (from_file.name, from_file.file, from_file.entry) == (
        "mine",
        "mine.cu",
        "gemm<float, 16>",
    )
    assert (from_file.threads, from_file.thread_count, from_file.blocks(Shape(17, 40, 16))) == (
        (16, 16),
        256,
        (3, 2),
    )
    assert (str(from_file.domain), from_file.claimed) == ("K % 16 == 0", "tf32")
    cell = Kernel.from_source(
        "// Tile: TILE=16\n" + TEMPLATE.replace("typename Sum, ", ""), **LAUNCH
    )
    assert (cell.name, cell.file, cell.entry) == (
        "gemm",
        "source",
        "gemm<16>",
    ) and cell.domain == from_file.domain
    assert type(rung("naive")) is Kernel
    for kernel in (rung("warptiled"), mine(block="32,8", domain="M % 8 == 0"), HOST):
        assert pickle.loads(pickle.dumps(kernel)) == kernel, "it crosses to a child process"


def test_compiled_code_belongs_to_source_entry_and_options_and_a_measurement_to_uncommented_code():
    kernel = rung("naive")
    tile = {"BM": 16, "BN": 16}
    program = kernel.program
    about = kernel.describe()
    commented = kernel.with_text(
        "// a line more\n\n" + kernel.source.replace("//", "/* changed */ //")
    ).program
    others = [kernel.with_text(kernel.source.replace("acc", "sum")), replace(kernel, template=tile)]
    others.append(replace(kernel, code=replace(kernel.code, options=())))
    assert (
        replace(kernel, name="other", idea="another", number=None).program.sha256 == program.sha256
    )
    assert len({program.sha256, commented.sha256, *(other.program.sha256 for other in others)}) == 5
    assert commented.measured_as(about) and not any(
        other.program.measured_as(about) for other in others
    )
    literals = [
        kernel.with_text(f'{kernel.source}#define TEXT "// {word}"').program
        for word in ("no", "comment")
    ]
    assert literals[0].code_sha256 != literals[1].code_sha256
    headers = [(("a.h", text),) for text in ("int x;  // a", "int x;", "int y;")]
    first, second, third = (replace(program, headers=given).code_sha256 for given in headers)
    assert first == second != third


@pytest.mark.parametrize(
    ("source", "changed", "why"),
    [
        (TEMPLATE, {"claimed": "fp8"}, "no precision class 'fp8'"),
        (TEMPLATE, {"domain": "M % BM == 0"}, "cannot read the domain"),
        (TEMPLATE, {"domain": " "}, "domain is empty: give SHAPES"),
        (TEMPLATE, {"args": ""}, "args is empty: give NAMES"),
        (TEMPLATE, {"block": "0"}, "cannot read the block"),
        (TEMPLATE, {"block": "8,2,2,1"}, "cannot read the block"),
        (TEMPLATE, {"block": "N"}, "cannot read 'N'"),
        (TEMPLATE, {"define": ["1=2"]}, "write NAME or NAME=VALUE"),
        (TEMPLATE, {"define": {"BM": 64}}, r"define: give a list such as \['BM=64'\]"),
        (TEMPLATE, {"grid": lambda M, N, K: (N, M)}, "grid: give integers or text"),
        (TEMPLATE, {"args": ["A", "B", "C", "N"]}, "args: give text, not"),
        ("mine.cu", {}, "is the name of a file: .*Kernel.from_file"),
        (TEMPLATE, {"shared": -1}, "give 0 or more"),
        (TEMPLATE, {"shared": "64"}, "cannot take '64' bytes"),
        (None, {}, "source: give text, not None"),
        ("int x;", {"entry": None}, "has no __global__ function"),
        (
            TEMPLATE + TEMPLATE.replace("gemm", "other"),
            {"entry": None},
            r"has 2 kernels \(gemm, other\)",
        ),
    ],
)
def test_a_mistake_is_found_before_anything_is_compiled(source, changed, why):
    with pytest.raises(BadSetting, match=why):
        mine(source, **changed)


def test_a_file_is_a_path():
    with pytest.raises(BadSetting, match=r"path: give the name of a \.cu file, not 5"):
        Kernel.from_file(5)


def test_sizes_and_texts_are_taken_as_they_are_given(file):
    kernel = mine(
        grid=("8", 9), block=(np.int64(16), "16"), define="BM=64", include=str(file.parent)
    )
    assert (kernel.blocks(Shape.of(8)), kernel.threads) == ((8, 9), (16, 16))
    assert (
        mine(grid=8, block=256).blocks(Shape.of(8)) == (8, 1)
        and "-DBM=64" in kernel.program.options
    )
    file.write_text(f'#include "more.h"\n{TEMPLATE}')
    file.with_name("more.h").write_text("")
    where = {
        "entry": "gemm<float, 8>",
        "domain": "M % 64 == 0",
        "include": str(file.parent),
        "block": 8,
        "grid": 1,
    }
    assert str(Kernel.from_file(file, **where).domain) == "M % 64 == 0"


def test_a_kernel_without_a_launch_without_blocks_or_with_the_baselines_name_is_not_launched():
    with pytest.raises(BadSetting, match="needs a launch"):
        mine(
            "__global__ void gemm(const float* A, const float* B, float* C, int n) {}", grid=""
        ).load(NumpyDevice())
    with pytest.raises(LaunchFailed, match="has 0 x 4 blocks at 4: round up"):
        mine().blocks(Shape.of(4))
    with pytest.raises(BadSetting, match="called cuBLAS"):
        measure([mine(name="cuBLAS")])


@pytest.mark.parametrize(
    ("shape", "advice"),
    [
        ((127, 129, 17), "it takes 128x256x32, for example"),
        ((4100, 4100, 4100), "pad to 4224"),
        ((1, 1, 1), "it takes 128, for example"),
    ],
)
def test_each_dimension_is_checked_and_the_advice_is_near(shape, advice):
    with pytest.raises(
        BadSetting, match=f"outside warptiled's domain .*{advice}, or use coalesced"
    ) as caught:
        rung("warptiled").check(Shape(*shape))
    assert caught.value.exit_code == 2
    rung("coalesced").check(Shape(*shape))


@given(
    domain=st.builds(Domain, *[st.integers(1, 512)] * 3),
    shape=st.builds(Shape, *[st.integers(1, 10_000)] * 3),
)
def test_padding_leads_into_the_domain_and_no_further_and_a_domain_is_read_as_written(
    domain, shape
):
    padded = domain.padded(shape)
    assert padded in domain and (padded == shape) == (shape in domain)
    steps = (
        (shape.m, padded.m, domain.m),
        (shape.n, padded.n, domain.n),
        (shape.k, padded.k, domain.k),
    )
    assert all(size <= got < size + step for size, got, step in steps)
    names = ("BM", domain.m), ("BN", domain.n), ("BK", domain.k)
    assert (
        Domain.of(str(domain))
        == domain
        == Domain.of("M % BM == 0 and N % BN == 0, K % BK == 0", names)
    )


@settings(max_examples=30)
@given(st.text(max_size=30))
def test_any_other_text_is_a_number_or_an_error(text):
    with contextlib.suppress(BadSetting):
        assert isinstance(evaluate(text, {"BM": 4}), int)
    values = {"BM * 5 / 2": 92, "(BM + 7) // 8 * 8 % 15 - 1": 9, "min(BM, 9)": 9}
    values |= {"2 if BM > 9 else 3": 2, "2 if BM < 9 else 3": 3, "2 + (not BM % 37)": 3}
    assert {words: evaluate(words, {"BM": 37}) for words in values} == values
    for wrong in (
        "",
        "BM *",
        "BM ** 2",
        "1.5",
        "'a'",
        "True",
        "-BM",
        "BM / 0",
        "BQ",
        "abs(BM)",
        "__import__('os')",
    ):
        with pytest.raises(BadSetting, match="cannot read"):
            evaluate(wrong, {"BM": 4})


@pytest.mark.parametrize(
    ("what", "changed", "why"),
    [
        ("module:mine", {"grid": "N"}, "--grid is for a .cu file"),
        ("module:mine", {"entry": "mine"}, "--entry is for a .cu file"),
        ("theirs.py", {}, "name its function too, as theirs.py:function"),
    ],
)
def test_an_option_that_such_a_kernel_does_not_take_is_an_error(what, changed, why):
    with pytest.raises(BadSetting, match=why):
        kernel_of(what, {**DEFAULTS, **changed})
