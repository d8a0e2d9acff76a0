"""The gate launches values that two sizes decide, and names entries that no launch read."""

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.emulator.helpers import HEAD
from tests.gate.two_sizes import LARGEST, RIGHT, WRONG, kernel, table
from worklog.emulator import load
from worklog.emulator.coverage import Coverage
from worklog.emulator.limits import Chip
from worklog.gate import Memory, exact, size_values
from worklog.gate.edges import mistake_in
from worklog.gate.search import FEW_SHAPES, Search
from worklog.gate.size_values import SIZE_VALUES, _random_sizes, check_size_values
from worklog.gate.tables import unread_entries
from worklog.kernel import Kernel, Loaded, rung
from worklog.kernel.emulated import EmulatedDevice
from worklog.kernel.kernel import Dispatcher
from worklog.problem import Shape
from worklog.runner.check import check
from worklog.runs import NeverRan, Stage

# A product that the compiler doesn't know, which changes bits of acc, and the same bits again.
MANY_VALUES = (
    'int product; asm("mul.lo.s32 %0, %1, %2;" : "=r"(product) : "r"(M), "r"(N));'
    "acc = __int_as_float(__float_as_int(acc) ^ product ^ M * N);"
)
AXES = [Shape(LARGEST[0], 5, 2), Shape(5, LARGEST[1], 2), Shape(5, 5, LARGEST[2])]


@pytest.fixture
def small_effort(monkeypatch):
    """Draw and launch as much as a test needs."""
    monkeypatch.setattr(size_values, "EFFORT", 1.5e7)
    monkeypatch.setattr(size_values, "DRAWN", 2**16)


def launched(tested: Kernel, seed: int = 1) -> tuple[Loaded, Memory]:
    """Return a kernel and the memory of its launches with each size alone at its largest."""
    device = EmulatedDevice()
    subject = tested.load(device)
    memory = Memory(device, np.random.default_rng(seed))
    for shape in AXES:
        problem = exact.ExactProblem("E1", *exact.family("E1", shape, memory.rng))
        assert mistake_in(subject, memory, problem) is None
    return subject, memory


def sized(
    tested: Kernel, seed: int = 1, *, quick: bool = False
) -> tuple[Stage | None, tuple[NeverRan, ...], tuple[NeverRan, ...]]:
    """Return the stage, the values that no launch had, and the entries that none read."""
    subject, memory = launched(tested, seed)
    stage, untried = check_size_values(subject, memory, quick=quick)
    return stage, untried, unread_entries(subject, memory.device.coverage)


def coverage_of(tested: Kernel) -> Coverage:
    """Return the coverage of a kernel without launches."""
    ((launch, loaded),) = tested.load(EmulatedDevice()).passes
    return Coverage(loaded.kernel, loaded.program.arguments, launch.threads)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_at_few_pairs_of_sizes_is_refused_at_such_a_pair(small_effort, name):
    wrong = WRONG[name]
    stage, *_ = sized(kernel(wrong.statement, wrong.table))
    assert stage is not None and (stage.name, stage.passed) == (SIZE_VALUES, False), stage
    sizes = map(int, re.match(r"at (\d+) x (\d+) x (\d+)", stage.detail).groups())
    assert wrong.is_wrong(*sizes), stage.detail


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_that_computes_with_two_sizes_passes_without_a_clause(small_effort, name):
    stage, untried, unread = sized(RIGHT[name])
    assert stage is None or stage.passed, stage
    assert (untried, unread) == ((), ())


def test_each_value_is_launched_once_and_the_stated_sizes_stay(small_effort):
    subject, memory = launched(RIGHT["sum_of_tiles"])
    stated_shapes = set(memory.shapes)
    shapes = list[Shape]()
    launch = subject.enqueue
    subject.enqueue = lambda shape, *rest: (shapes.append(shape), launch(shape, *rest))[1]
    assert check_size_values(subject, memory, quick=False)[0].passed
    indices = [(shape.m // 32 + shape.n // 32) % 34 for shape in shapes]
    assert len(indices) == len(set(indices))
    assert not set(indices) & {LARGEST[0] // 32, LARGEST[1] // 32, 0}
    assert memory.shapes == stated_shapes
    for shape in shapes:
        assert shape.m <= LARGEST[0] and shape.n <= LARGEST[1] and shape.k == 2


def test_a_check_that_ends_early_states_how_many_values_were_left(monkeypatch):
    monkeypatch.setattr(size_values, "QUICK_EFFORT", 3e5)
    monkeypatch.setattr(size_values, "QUICK_DRAWN", 2**12)
    tested = kernel(MANY_VALUES)
    stage, untried, unread = sized(tested, quick=True)
    assert stage is not None and stage.passed
    (part,) = untried
    line = tested.source[: tested.source.index("asm")].count("\n") + 1
    assert (part.first, part.last, unread) == (line, line, ())
    left, drawn = map(int, re.findall(r"\d+", part.untried.replace(",", "")))
    assert 0 < left < drawn
    assert "M and N" in part.untried and str(part).endswith(f"in line {line}")


def test_half_of_the_launches_that_fit_are_spread(monkeypatch):
    """The cheapest values alone would be those of tiny shapes."""
    monkeypatch.setattr(size_values, "QUICK_EFFORT", 6e6)
    subject, memory = launched(kernel(MANY_VALUES))
    products = list[int]()
    launch = subject.enqueue

    def enqueue(shape: Shape, *rest: object) -> None:
        products.append(shape.m * shape.n)
        launch(shape, *rest)

    subject.enqueue = enqueue
    check_size_values(subject, memory, quick=True)
    large = [product for product in products if product > 10_000]
    assert len(products) > 20 and len(products) / 4 < len(large) < len(products) * 3 / 4


def test_squares_are_drawn_along_their_diagonal(small_effort):
    """A value of N alone, which is M, makes acc twice as large at 84 to 87 alone."""
    tested = kernel("acc *= (float)(1 + 1 / (1 + abs(N / 4 - 21)));")
    device = EmulatedDevice()
    subject = replace(tested, rules="M = N = K").load(device)
    memory = Memory(device, np.random.default_rng(1))
    problem = exact.ExactProblem("E1", *exact.family("E1", Shape.of(120), memory.rng))
    assert mistake_in(subject, memory, problem) is None
    stage, _ = check_size_values(subject, memory, quick=False)
    assert stage is not None and not stage.passed
    assert re.match(r"at (8[4-7]) x \1 x \1 ", stage.detail)


def test_of_a_kernel_that_the_shape_chooses_the_drawn_shapes_are_launched(small_effort):
    wrong = WRONG["sum_of_tiles"]
    tested = kernel(wrong.statement, wrong.table)
    chosen = list[Shape]()

    def choose(shape: Shape, chip: Chip) -> Kernel:
        chosen.append(shape)
        return tested

    stage, _, unread = sized(Dispatcher.from_kernel(tested, choose))
    assert stage is not None and (unread or not stage.passed)
    assert len(set(chosen)) < 2 * FEW_SHAPES


@pytest.mark.parametrize("name", ["naive", "vectorized", "specialized", "wgmma"])
def test_bounds_addresses_and_predicates_are_no_values(name):
    device = EmulatedDevice()
    subject = rung(name).load(device)
    for launch, loaded in subject.passes:
        coverage = Coverage(loaded.kernel, loaded.program.arguments, launch.threads)
        assert coverage.size_values == []


def test_the_values_are_those_of_the_launch_whose_block_has_other_threads():
    coverage = coverage_of(
        kernel("acc += (float)(M * N / 100 - (int)blockDim.x) + A[0] * (float)(K + gridDim.y);")
    )
    rows = {
        "M": np.array([30, 41, 7]),
        "N": np.array([10, 100, 70]),
        "K": np.array([1, 2, 3]),
        "%nctaid.x": np.array([1, 7, 5]),
        "%nctaid.y": np.array([2, 3, 1]),
    }
    values, is_computed = coverage.sized(rows)
    assert is_computed.all()
    of_m_and_n = rows["M"] * rows["N"] // 100 - 16
    of_k_and_grid = rows["K"] + rows["%nctaid.y"]
    numbers = values.astype(np.uint32).view(np.float32)
    assert sorted(numbers.tolist()) == sorted([of_m_and_n.tolist(), of_k_and_grid.tolist()])


def test_a_choice_by_the_size_of_the_block_is_that_of_the_launch():
    coverage = coverage_of(RIGHT["quotient"])
    is_outside = next(pc for pc in coverage.deciding if coverage.kernel.instructions[pc].line == 5)
    rows = {"M": np.array([9, 9]), "N": np.array([17, 16]), "%ctaid.x": np.array([1, 1])}
    notes, _ = coverage.judged(rows)
    assert notes[coverage.judge.places[is_outside, True]].tolist() == [False, True]


def test_a_value_in_a_branch_is_only_computed_there():
    coverage = coverage_of(kernel("if (K > 7) C[0] = (float)(M * N);"))
    rows = {name: np.array([3, 4, 5]) for name in ("M", "N")} | {"K": np.array([7, 8, 9])}
    values, is_computed = coverage.sized(rows)
    products = values[is_computed].astype(np.uint32).view(np.float32)
    assert products.tolist() == [16.0, 25.0]


def test_the_entries_that_loads_read_are_recorded_by_byte():
    _, memory = launched(kernel("acc *= T[(M + N) % 700];", table(700)))
    (coverage,) = memory.device.coverage.values()
    read = np.flatnonzero(coverage.read["T"].reshape(-1, 4).all(axis=1))
    assert read.tolist() == [10, (5 + LARGEST[1]) % 700, (5 + LARGEST[0]) % 700]
    assert coverage.read["T"].sum() == 12


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ("(row & 7) * 2 < 16 ? row & 7 : 0", ""),
        ("row & 3", "entries 4 to 7"),
        ("(row & 7) == 5 ? 4 : row & 7", "entry 5"),
        ("(row & 3) * 2", "entries 1, 3, 5 and 7"),
        ("K == 777 ? row & 7 : 3", "entries 0 to 2 and 4 to 7"),
    ],
)
def test_entries_that_no_launch_read_are_named_with_the_line_of_their_table(indices, text):
    subject, memory = launched(kernel(f"acc *= T[{indices}];", "// a table\n" + table(8)))
    parts = unread_entries(subject, memory.device.coverage)
    sentence = f"no launch read {text} of table T in line 2"
    assert [str(part) for part in parts] == ([sentence] if text else [])


PAIR = "float2 t = %s[row & 1]; acc *= t.x * t.y;"


@pytest.mark.parametrize(
    ("declared", "statement", "text"),
    [
        ("float T[8] = ", "if (K == 777) acc *= T[row & 7];", "any of 8 entries"),
        ("float T[] = ", "acc *= T[row & 3];", "entries 4 to 7"),
        ("float T[2][4] = ", "acc *= T[row & 1][K & 1];", "entries 1 to 3 and 5 to 7"),
        ("float2 T[4] = ", PAIR % "T", "entries 2 to 3"),
        ("__align__(8) float T[8] = ", PAIR % "((const float2*)T)", "entries 4 to 7"),
        ("__align__(8) float T[] = ", PAIR % "((const float2*)T)", "entries 4 to 7"),
        ("float T[9 - 1] = ", "acc *= T[row & 3];", "entries 4 to 7"),
        ("float2 T[] = ", PAIR % "T", "entries 2 to 3"),
        ("uint2 T[] = ", "acc *= T[row & 1].x;", "bytes 4 to 7 and 12 to 31"),
    ],
)
def test_the_declaration_states_how_many_entries_there_are(declared, statement, text):
    values = "{{1, 1, 1, 1}, {1, 1, 1, 1}}" if "[2]" in declared else "{1, 1, 1, 1, 1, 1, 1, 1}"
    declaration = f"__constant__ {declared}{values};\n"
    subject, memory = launched(kernel(statement, declaration))
    (part,) = unread_entries(subject, memory.device.coverage)
    assert part.untried == f"no launch read {text} of table T"


def test_of_many_ranges_the_number_is_named():
    subject, memory = launched(kernel("acc *= T[row * 4 % 400];", table(400)))
    (part,) = unread_entries(subject, memory.device.coverage)
    assert "300 of 400 entries" in str(part)


@pytest.mark.parametrize(
    ("declared", "statement"),
    [
        ("__device__ float T[4] = {1, 1, 1, 1};\n", "acc *= T[K % 2]; T[2] = 1.0f;"),
        ("__device__ float T[4];\n", "acc += T[K % 2];"),
        ("", "const float T[4] = {1, 1, 1, 1}; acc *= T[K % 2];"),
        (
            "__constant__ float T[4] = {1, 1, 1, 1}; __device__ const float* kept;\n",
            "acc *= T[K % 2]; kept = T;",
        ),
        (
            "__device__ float T[4] = {1, 1, 1, 1}; __device__ float* kept;\n",
            "acc *= T[K % 2]; if (kept) *kept = 1.0f;",
        ),
    ],
)
def test_an_array_that_is_written_or_read_in_unknown_places_is_no_table(declared, statement):
    subject, memory = launched(kernel(statement, declared))
    assert unread_entries(subject, memory.device.coverage) == ()


def test_tables_of_the_compiler_are_not_named():
    """A large argument of sinf takes a table of the digits of 2 / pi."""
    subject, memory = launched(kernel("acc += sinf((float)K * 0.0f);"))
    (coverage,) = memory.device.coverage.values()
    assert coverage.tables
    assert unread_entries(subject, memory.device.coverage) == ()


def test_a_verdict_names_entries_beyond_what_sizes_choose(few_shapes):
    tested = kernel("acc *= T[(M / 256 + N / 256) % 16];", table(256))
    checked = check(tested, on="emulated", seed=1, quick=True)
    assert checked.verdict.accepted, checked.verdict.reason
    (part,) = checked.verdict.never_ran
    assert str(part) in str(checked).splitlines()[0]
    assert (part.first, part.partly) == (1, False)
    assert part.untried.endswith("to 255 of table T")


def test_a_number_of_the_code_is_the_product_of_many_drawn_sizes():
    subject, memory = launched(RIGHT["quotient"])
    ((key, _), coverage), *_ = memory.device.coverage.items()
    number = 5_000_011_776
    coverage.constants = [float(number)]
    search = Search(subject, key, coverage, memory.rng)
    m, n, _ = _random_sizes(search, (10**6, 10**6, 2), [0, 1], 2**12)
    assert (abs(m * n - number) <= np.maximum(m, n)).sum() > 20


@pytest.mark.parametrize("name", ["sum_of_tiles", "array_of_its_own"])
def test_entries_of_a_table_that_were_not_tried_are_named_once(monkeypatch, name):
    monkeypatch.setattr(size_values, "QUICK_EFFORT", 0.0)
    _, untried, unread = sized(RIGHT[name], quick=True)
    assert (len(untried), len(unread)) == ((0, 1) if name == "sum_of_tiles" else (1, 0))


def of_body(body: str) -> Coverage:
    """Return the coverage of a kernel of M and C in PTX."""
    head = ".reg .b32 %m, %x; .reg .b64 %o; ld.param.u32 %m, [M]; ld.param.u64 %o, [C];"
    entry = f".visible .entry k(.param .u32 M, .param .u64 C)\n{{\n{head}\n{body} ret;\n}}"
    return Coverage(load(HEAD + entry), ("M", "C"), (32,))


def test_a_value_that_a_guarded_instruction_stores_is_computed_where_the_guard_holds():
    coverage = of_body(
        ".reg .pred %p; setp.gt.u32 %p, %m, 7; mul.lo.u32 %x, %m, %m; @%p st.global.u32 [%o], %x;"
    )
    values, is_computed = coverage.sized({"M": np.array([7, 8])})
    assert is_computed.tolist() == [[False, True]]
    assert values[0, 1] == 64


def test_what_a_predicate_compares_data_with_is_no_value():
    coverage = of_body(
        ".reg .pred %p; .reg .b32 %y; ld.global.u32 %x, [%o]; setp.gt.u32 %p, %x, %m;"
        "selp.b32 %y, %x, 0, %p; st.global.u32 [%o], %y;"
    )
    assert coverage.size_values == []


def test_an_address_of_two_arrays_counts_for_both():
    body = """.reg .b64 %a, %b, %c; .reg .pred %p; .reg .b32 %m, %x; .reg .b64 %o;
ld.param.u32 %m, [M]; setp.gt.u32 %p, %m, 7; mov.u64 %a, T; mov.u64 %b, U;
selp.b64 %c, %a, %b, %p; ld.const.u32 %x, [%c+4]; ld.param.u64 %o, [C]; st.global.u32 [%o], %x;
ret;"""
    arrays = ".const .align 4 .b8 T[8] = {1, 0, 0, 0, 2};\n.const .align 4 .b8 U[8] = {1};\n"
    entry = f"{arrays}.visible .entry k(.param .u32 M, .param .u64 C)\n{{\n{body}\n}}"
    coverage = Coverage(load(HEAD + entry), ("M", "C"), (32,))
    assert [table.variable.name for table in coverage.tables] == ["T", "U"]
