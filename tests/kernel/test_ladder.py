"""The ladder as a reader meets it: records, domains, error texts, and the sources, whose differences are the lesson."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worklog.errors import BadSetting, OutsideDomain, UnknownRung
from worklog.kernel.kernel import Program, kernels_dir
from worklog.kernel.ladder import LADDER, Domain, Rung, evaluate, rung
from worklog.problem.gemm import Shape

NAMES = ["naive", "coalesced", "shared", "tiles_1d", "tiles_2d", "vectorized", "conflict_free"]
NAMES += ["double_buffered", "autotuned", "pipelined", "register_banks", "warptiled"]
SIGNATURE = "(\n    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {"
MOST_CHANGED_LINES = 40

shapes = st.builds(Shape, *[st.integers(1, 10_000)] * 3)
domains = st.builds(Domain, *[st.integers(1, 512)] * 3)
each_rung = pytest.mark.parametrize("record", LADDER, ids=NAMES)


def code(record: Rung) -> list[str]:
    """A rung's source without comments, blank lines and the kernel's own name."""
    bare = re.sub(r"//[^\n]*|/\*.*?\*/", "", Program.of(record).source, flags=re.DOTALL)
    bare = bare.replace(f"sgemm_{record.name}", "sgemm")
    return [line.strip() for line in bare.splitlines() if line.strip()]


def changed_lines(before: Rung, after: Rung) -> int:
    """Lines that a reader of the diff sees as new or, where more went than came, as gone."""
    diff = list(difflib.ndiff(code(before), code(after)))
    return max(sum(line.startswith("+ ") for line in diff), sum(line.startswith("- ") for line in diff))


# ------------------------------------------------------------------------------------------------------------ records


def test_the_rungs_in_order() -> None:
    assert [r.name for r in LADDER] == NAMES
    assert [r.file for r in LADDER] == [f"{i:02}_{name}.cu" for i, name in enumerate(NAMES, 1)]


def test_every_source_is_a_rung() -> None:
    assert sorted(path.name for path in kernels_dir().glob("[0-9]*.cu")) == [r.file for r in LADDER]


@each_rung
def test_a_rung_is_found_by_its_name(record: Rung) -> None:
    assert rung(record.name) is record


@pytest.mark.parametrize("name", ["nonsense", "", "Naive", "01_naive", "cuBLAS"])
def test_an_unknown_rung_is_told_the_names(name: str) -> None:
    with pytest.raises(UnknownRung) as caught:
        rung(name)
    assert str(caught.value) == f"there is no rung {name!r}: choose from {', '.join(NAMES)}"
    assert caught.value.exit_code == 2


def test_entries_are_template_instances_in_the_tiles_order() -> None:
    assert rung("naive").entry == "sgemm_naive<32, 32>"
    assert rung("tiles_1d").entry == "sgemm_tiles_1d<64, 64, 8, 8>"
    record = Rung("x", "x.cu", dict(BM=16, BN=8, BK=4), "BM * BN", "idea")
    assert record.entry == "sgemm_x<16, 8, 4>"


@each_rung
def test_template_parameters_bear_the_tiles_names(record: Rung) -> None:
    template = re.search(r"template <([^>]*)>", Program.of(record).source)
    assert template is not None
    # A last parameter with a default isn't part of the tile: it only puts a word into the symbol.
    parameters = [p.strip() for p in template[1].split(",") if "=" not in p]
    assert parameters == [f"int {name}" for name in record.tile]


# ------------------------------------------------------------------------------------------------- domain and geometry


@each_rung
def test_the_domain_follows_from_the_tile(record: Rung) -> None:
    tile = record.tile
    expected = Domain() if record.name in ("naive", "coalesced") else Domain(tile["BM"], tile["BN"], tile["BK"])
    assert record.domain == expected


def test_outside_the_domain_there_are_two_ways_out() -> None:
    with pytest.raises(OutsideDomain) as caught:
        rung("warptiled").check(Shape.of(4100))
    assert str(caught.value) == (
        "size 4100 is outside warptiled's domain (M % 128 == 0, N % 128 == 0, K % 16 == 0): "
        "pad to 4224x4224x4112, or use coalesced, which takes any size"
    )
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("shape", [(127, 128, 16), (128, 129, 16), (128, 128, 17), (1, 1, 1)])
def test_each_dimension_is_checked(shape: tuple[int, int, int]) -> None:
    with pytest.raises(OutsideDomain, match="pad to"):
        rung("warptiled").check(Shape(*shape))
    rung("coalesced").check(Shape(*shape))


@given(domain=domains, shape=shapes)
def test_padding_leads_into_the_domain_and_no_further(domain: Domain, shape: Shape) -> None:
    padded = domain.padded(shape)
    assert padded in domain
    for have, got, step in zip(
        (shape.m, shape.n, shape.k), (padded.m, padded.n, padded.k), (domain.m, domain.n, domain.k), strict=True
    ):
        assert have <= got < have + step
    assert (padded == shape) == (shape in domain)


@pytest.mark.parametrize(
    ("domain", "words"),
    [(Domain(), "any M, N, K"), (Domain(n=4), "N % 4 == 0"), (Domain(2, 1, 3), "M % 2 == 0, K % 3 == 0")],
)
def test_a_domain_in_words(domain: Domain, words: str) -> None:
    assert str(domain) == words


@each_rung
@given(shape=shapes)
def test_the_grid_covers_c_and_no_more(record: Rung, shape: Shape) -> None:
    padded = record.domain.padded(shape)
    columns, rows = record.grid(padded)
    assert (columns - 1) * record.tile["BN"] < padded.n <= columns * record.tile["BN"]
    assert (rows - 1) * record.tile["BM"] < padded.m <= rows * record.tile["BM"]


@each_rung
def test_a_block_is_whole_warps_that_a_gpu_takes(record: Rung) -> None:
    assert record.block % 32 == 0
    assert 32 <= record.block <= 1024


@each_rung
def test_the_block_size_is_the_one_in_the_launch_bounds(record: Rung) -> None:
    bounds = re.search(r"__launch_bounds__\((.+?)(?:, MIN_BLOCKS)?\) sgemm", Program.of(record).source)
    assert bounds is not None
    assert evaluate(bounds[1].replace("/", "//"), record.tile) == record.block


@each_rung
def test_block_columns_are_x_and_rows_are_y(record: Rung) -> None:
    source = Program.of(record).source
    for axis, along, other in (("x", "BN", "BM"), ("y", "BM", "BN")):
        uses = re.findall(rf"blockIdx\.{axis} \* (\w+)", source)
        assert uses and set(uses) == {along}, f"blockIdx.{axis} must walk in steps of {along}, not {other}"


def test_block_traffic_is_rows_and_columns_of_every_block_and_c() -> None:
    record = Rung("x", "x.cu", dict(BM=16, BN=8, BK=4), "BM * BN", "idea")
    # 2 x 3 blocks, each 16 rows of A and 8 columns of B of length 12, and C once.
    assert record.block_traffic_bytes(Shape(32, 24, 12)) == 4 * (6 * (16 + 8) * 12 + 32 * 24)


# ---------------------------------------------------------------------------------------------------------- expressions


@given(bm=st.integers(1, 512), bn=st.integers(1, 512), tm=st.integers(1, 16))
def test_expressions_mean_what_python_means(bm: int, bn: int, tm: int) -> None:
    names = dict(BM=bm, BN=bn, TM=tm)
    for expression in ("BM * BN // TM", "BM + BN - TM * 2", "(BM + 7) // 8 * 8", "BM % TM + BN"):
        assert evaluate(expression, names) == eval(expression, {"__builtins__": {}}, names)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "BM *",
        "BM / 2",
        "BM ** 2",
        "1.5",
        "'a'",
        "True",
        "-BM",
        "BM // 0",
        "BQ",
        "abs(BM)",
        "__import__('os')",
        "BM.real",
        "[1]",
        "BM < 2",
        "BM\0",
    ],
)
def test_nothing_else_is_an_expression(expression: str) -> None:
    with pytest.raises(BadSetting, match="cannot read"):
        evaluate(expression, dict(BM=4))


@given(st.text(max_size=30))
def test_any_text_is_a_number_or_an_error(text: str) -> None:
    with contextlib.suppress(BadSetting):
        assert isinstance(evaluate(text, dict(BM=4)), int)


# -------------------------------------------------------------------------------------------------------------- sources


@each_rung
def test_one_signature(record: Rung) -> None:
    source = Program.of(record).source
    assert source.count("__global__") == 1
    assert f"sgemm_{record.name}{SIGNATURE}" in source


@each_rung
def test_the_header_says_what_changed_why_what_it_costs_and_for_whom(record: Rung) -> None:
    header = list(itertools.takewhile(lambda line: line.startswith("//"), Program.of(record).source.splitlines()))
    words = [line.removeprefix("//").split(":")[0].strip() for line in header]
    number = record.file[:2]
    assert re.fullmatch(rf"// {number} · \S.*", header[0])
    compiled = f"nvcc -arch=native -DRUNG={int(number)} main.cu && ./a.out 4096"
    assert header[1] == f"// Run:     worklog run {record.name}     or: {compiled}"
    expected = [word for word in ("Before", "Now", "Why", "Costs", "Domain") if (word, number) != ("Before", "01")]
    assert [word for word in words if word in ("Before", "Now", "Why", "Costs", "Domain")] == expected


@each_rung
def test_the_header_states_the_records_domain(record: Rung) -> None:
    stated = re.search(r"^// Domain:\s+(.*)\.$", Program.of(record).source, re.MULTILINE)
    assert stated is not None
    rules = "M % BM == 0, N % BN == 0, K % BK == 0" if record.whole_tiles else "any M, N, K"
    assert stated[1] == rules


@pytest.mark.parametrize(("before", "after"), list(itertools.pairwise(LADDER)), ids=NAMES[1:])
def test_a_rung_is_one_idea_away_from_the_one_before(before: Rung, after: Rung) -> None:
    changed = changed_lines(before, after)
    # For autotuned, the tile changes and not the code: only one template parameter is added.
    assert 2 <= changed <= MOST_CHANGED_LINES


@each_rung
def test_no_rung_needs_a_header_file(record: Rung) -> None:
    assert "#include" not in Program.of(record).source
