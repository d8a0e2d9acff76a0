"""`worklog check` on a file of several kernels, on several files and on folders.

It prints a line for each kernel in one table, and has one exit code for all.
"""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import one_line, worklog
from tests.helpers import PLAIN
from worklog.cli import options, several
from worklog.errors import Interrupted
from worklog.gpu import device
from worklog.kernel import folder
from worklog.kernel.by_name import DEFAULTS
from worklog.kernel.listing import Listed, kernels_in
from worklog.kernel.source import kernels_dir
from worklog.runner import check as checks

LAUNCH = "// grid: (N + 15) / 16, (M + 7) / 8   block: 16, 8\n"
FILL = "__global__ void fill(float* x, float value, int n) { if (threadIdx.x < n) x[0] = value; }\n"
WHOLE = PLAIN.replace("mine", "whole")
OTHER = PLAIN.replace("mine", "other")
WRONG = PLAIN.replace("mine", "wrong").replace("k < K", "k < K - 1")
UNCLEAR = "template <int T> " + PLAIN.replace("mine", "unclear")
TOLD = "unclear is a template of T: give a value of each, as in --entry 'unclear<32>'"
LINE = re.compile(
    r"^ (?P<kernel>\S+)  +[✓✗?·] (?P<verdict>[a-z ]+?)  +(?P<reason>.+)$", re.MULTILINE
)


def written(name: str, *sources: str) -> Path:
    """Write a file in the current folder, whose comment states one launch for all kernels."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(LAUNCH + "\n".join(sources), encoding="utf-8")
    return path


def verdicts(stdout: str) -> list[tuple[str, str]]:
    """Return the rows of the table."""
    return [(row["kernel"], row["verdict"]) for row in LINE.finditer(stdout.partition("\n\n")[0])]


def test_right_kernels_and_a_helper_are_a_line_each_in_the_files_order():
    written("mine.cu", PLAIN, FILL, OTHER)
    result = worklog("check", "mine.cu")
    assert result.exit_code == 0, result.output
    title, head, *lines = result.stdout.splitlines()
    assert title.startswith("mine.cu: 3 kernels, 2 passed, 1 left out · emulated")
    assert head.split() == ["kernel", "verdict", "reason"] and len(lines) == 3
    assert verdicts(result.stdout) == [
        ("mine", "passed"),
        ("fill", "left out"),
        ("other", "passed"),
    ]
    assert "no product of float matrices: takes 1 pointer" in lines[1]
    assert re.search(r"as fp32 for M from 1 to [\d,]+, N from ", lines[2])


def test_a_kernel_that_could_be_a_product_by_its_parameters_may_be_named():
    add = PLAIN.replace("for (int k = 0; k < K; ++k) acc +=", "acc =").replace(
        "[row * K + k]", "[row * K]"
    )
    written("mine.cu", PLAIN, add.replace("mine", "add"))
    result = worklog("check", "mine.cu")
    assert verdicts(result.stdout) == [("mine", "passed"), ("add", "left out")]
    assert "is checked if it is named: worklog check mine.cu --entry add" in result.stdout


def test_a_wrong_kernel_exits_with_1_and_its_findings_and_command_are_below_the_table():
    written("my file.cu", PLAIN, WRONG)
    result = worklog("check", "my file.cu", "--quick", "--size", "64x48x40")
    assert result.exit_code == 1, result.output
    table, below = result.stdout.split("\n\n")
    assert verdicts(table) == [("mine", "passed"), ("wrong", "failed")]
    assert "exact on edge shapes: at" in table
    first, stage, *_, last = below.splitlines()
    seed = re.fullmatch(r"wrong: failed at exact on edge shapes \(seed (\d+)\)", first)
    assert seed and "The terms from k = " in stage
    command = f"'my file.cu' --entry wrong --size 64x48x40 --quick --seed {seed[1]}"
    assert last == f"repeat: worklog check {command}"
    repeated = worklog(*shlex.split(last.removeprefix("repeat: worklog ")))
    assert repeated.exit_code == 1 and stage in repeated.stdout


@pytest.mark.parametrize(("sources", "exit_code"), [((PLAIN, UNCLEAR), 0), ((UNCLEAR, FILL), 2)])
def test_a_kernel_that_is_unclear_says_what_to_give_and_exits_with_2_if_none_was_checked(
    sources, exit_code
):
    written("mine.cu", *sources)
    result = worklog("check", "mine.cu")
    assert result.exit_code == exit_code, result.output
    assert ("unclear", "not checked") in verdicts(result.stdout)
    assert f"{TOLD.removeprefix('unclear ')}\n" in result.stdout and f"\n{TOLD}\n" in result.stdout
    command = "worklog check mine.cu --entry 'unclear<32>'"
    assert result.stdout.endswith(f"next, with your values: {command}\n")


@pytest.mark.parametrize("name", ["sgemv", "mat_vec", "matrixVectorMul", "PMPP::matVecMul"])
def test_a_product_with_a_vector_is_left_out_by_its_name(name):
    space, _, function = name.rpartition("::")
    by_vector = PLAIN.replace("mine", function)
    by_vector = f"namespace {space.strip(':')} {{ {by_vector} }}" if space else by_vector
    written("mine.cu", PLAIN, by_vector)
    result = worklog("check", "mine.cu")
    assert verdicts(result.stdout) == [("mine", "passed"), (name, "left out")]
    assert "by its name, multiplies by a vector" in result.stdout
    assert "if it is named" not in result.stdout


def test_a_kernel_without_a_launch_does_not_stop_the_one_beside_it():
    flat = re.sub(
        "const int row = .*",
        "const int place = blockIdx.x * 32 + threadIdx.x, row = place / N, col = place % N;",
        PLAIN.replace("mine", "flat"),
    )
    Path("mine.cu").write_text(f"{PLAIN}\n{flat}", encoding="utf-8")
    result = worklog("check", "mine.cu")
    assert result.exit_code == 0, result.output
    assert verdicts(result.stdout) == [("mine", "passed"), ("flat", "not checked")]
    assert (
        "\nflat needs a launch, and mine.cu doesn't state one: give the kernel's own, as in --grid "
        in result.stdout
    )
    launch = "--grid '(N + 31) / 32, (M + 31) / 32' --block 32,32"
    command = f"worklog check mine.cu --entry flat {launch}"
    assert result.stdout.endswith(f"next, with your values: {command}\n")


def test_a_file_that_does_not_compile_has_the_compilers_line_and_exits_with_2():
    written("other.cu", OTHER.replace("float acc", "flaot acc"), FILL)
    result = worklog("check", "other.cu")
    assert result.exit_code == 2, result.output
    assert verdicts(result.stdout) == [("other", "not checked"), ("fill", "left out")]
    assert '\nother: other.cu:5: identifier "flaot" is undefined\n' in result.stdout
    assert result.stdout.endswith("\nnext, after a change: worklog check other.cu --entry other\n")


def test_a_header_in_two_folders_is_given_in_the_next_command():
    written("work/a/mine.cu", '#include "side.h"', PLAIN.replace("row >= M", "row >= M * SIDE"))
    for near in ("work/inc", "work/include"):
        Path(near).mkdir()
        Path(near, "side.h").write_text("#define SIDE 1\n", encoding="utf-8")
    result = worklog("check", "work", "--quick")
    assert result.exit_code == 2, result.output
    last = result.stdout.splitlines()[-1]
    assert last == "next: worklog check work/a/mine.cu --entry mine -I work/inc --quick"
    given = worklog(*shlex.split(last.removeprefix("next: worklog ")))
    assert given.exit_code == 0, given.output
    document, *_ = json.loads(worklog("check", "work", "--quick", "--json").stdout)
    assert f"next: {document['next']}" == last and "is in work/inc and in" in document["reason"]


def test_a_kernel_of_whole_tiles_has_a_command_with_the_domain():
    tiles = WHOLE.replace("if (row >= M || col >= N) return;", "")
    written("mine.cu", PLAIN, tiles)
    result = worklog("check", "mine.cu", "--quick")
    assert verdicts(result.stdout) == [("mine", "passed"), ("whole", "failed")]
    last = result.stdout.splitlines()[-1]
    command = last.removeprefix("with this domain: worklog ")
    assert command.startswith("check mine.cu --entry whole --domain 'M % 8 == 0, N % 16 == 0'")
    assert worklog(*shlex.split(command)).exit_code == 0


def test_a_launch_and_a_domain_above_each_kernel_are_of_this_one():
    tiles = WHOLE.replace("if (row >= M || col >= N) return;", "")
    own = "// grid: N / 16, M / 8   block: 16, 8\n// domain: M % 8 == 0, N % 16 == 0\n"
    written("mine.cu", PLAIN, f"{own}{tiles}")
    result = worklog("check", "mine.cu")
    assert result.exit_code == 0, result.output
    mine, whole = result.stdout.splitlines()[2:]
    assert "N from 1 to" in mine and "N from 16 to" in whole and "in steps of 16" in whole


def test_what_a_pass_leaves_open_is_below_the_table_if_it_is_cut(monkeypatch):
    tiles = WHOLE.replace("if (row >= M || col >= N) return;", "")
    written("mine.cu", PLAIN, f"// grid: N / 16, M / 8   block: 16, 8\n{tiles}")
    monkeypatch.setattr(options, "terminal_width", lambda: 80)
    result = worklog("check", "mine.cu")
    assert result.exit_code == 0, result.output
    table, below = result.stdout.split("\n\n")
    assert verdicts(table) == [("mine", "passed"), ("whole", "passed")]
    assert below.startswith("whole: passed as fp32 for M from 8 to ")
    assert "(the domain is inferred from the grid: " in below and below.count("\n") == 1


def test_each_instance_that_the_host_code_launches_is_a_line():
    template = "template <int ROWS> " + PLAIN.replace("blockDim.y", "ROWS")
    host = "void run(dim3 g, dim3 h, int M, int N, int K, float* A, float* B, float* C) {\n"
    for rows in (8, 4):
        grid = f"dim3((N + 15) / 16, (M + {rows - 1}) / {rows})"
        host += f"mine<{rows}><<<{grid}, dim3(16, {rows})>>>(M, N, K, 1, A, B, 0, C);\n"
    Path("mine.cu").write_text(f"{template}\n{host}}}", encoding="utf-8")
    result = worklog("check", "mine.cu")
    assert result.exit_code == 0, result.output
    assert verdicts(result.stdout) == [("mine<8>", "passed"), ("mine<4>", "passed")]


def test_watching_a_file_of_several_kernels_asks_for_one(monkeypatch):
    def stop(seconds: float) -> None:
        raise KeyboardInterrupt

    written("two.cu", PLAIN, OTHER)
    monkeypatch.setattr("worklog.cli.check.time.sleep", stop)
    result = worklog("check", "two.cu", "--watch")
    assert result.stdout.startswith("worklog: two.cu has 2 kernels (mine, other): name one with")


def test_json_is_a_list_for_several_kernels_and_one_document_for_one():
    written("mine.cu", PLAIN, FILL, WRONG)
    result = worklog("check", "mine.cu", "--json", "--seed", "7")
    assert result.exit_code == 1
    right, fill, wrong = json.loads(result.stdout)
    assert [(d["kernel"], d["accepted"]) for d in (right, fill, wrong)] == [
        ("mine", True),
        ("fill", None),
        ("wrong", False),
    ]
    assert {d["file"] for d in (right, fill, wrong)} == {"mine.cu"}
    assert right["prediction"] and wrong["prediction"] is None and wrong["seed"] == 7
    assert wrong["repeat"] == "worklog check mine.cu --entry wrong --seed 7"
    assert "repeat" not in right and "next" not in right
    assert "next" not in fill
    assert (fill["verdict"], fill["reason"]) == (
        "left out",
        "no product of float matrices: takes 1 pointer",
    )
    alone = json.loads(worklog("check", "mine.cu", "--json", "--entry", "mine").stdout)
    assert alone["kernel"] == "mine" and "file" not in alone


def test_a_folder_has_its_files_and_headers_sorted_without_hidden_ones_and_those_without_a_kernel():
    written("work/b.cu", '#include "parts/used.cuh"\n', PLAIN)
    written("work/a/deep.cu", WRONG)
    written("work/parts/used.cuh", WHOLE)
    written("work/parts/free.cuh", OTHER)
    written("work/.old/c.cu", WRONG)
    written("work/main.cu", "int main() { return 0; }")
    result = worklog("check", "work")
    assert result.exit_code == 1, result.output
    table = result.stdout.partition("\n\n")[0]
    assert [line.split()[:2] for line in table.splitlines()[2:6]] == [
        ["a/deep.cu", "wrong"],
        ["b.cu", "mine"],
        ["parts/free.cuh", "other"],
        ["parts/used.cuh", "whole"],
    ]
    assert table.endswith("no kernel: work/main.cu") and "\na/deep.cu: wrong: " in result.stdout
    assert "repeat: worklog check work/a/deep.cu --entry wrong --seed" in result.stdout
    for words, exit_code in ((("work/b.cu", "work/parts"), 0), (("work/main.cu", "work/b.cu"), 0)):
        result = worklog("check", *words)
        assert result.exit_code == exit_code and " work/b.cu  " in result.stdout, result.output


BARE = PLAIN.replace("mine", "bare")
HOST = (
    "void run(dim3 g, int M, int N, int K, float* A, float* B, float* C) {\n"
    "  bare<<<dim3((N + 7) / 8, (M + 7) / 8), dim3(8, 8)>>>(M, N, K, 1, A, B, 0, C);\n"
    "  inner<<<dim3((N + 7) / 8, (M + 7) / 8), dim3(8, 8)>>>(M, N, K, 1, A, B, 0, C);\n}\n"
)


def files_and_kernels(stdout: str) -> list[tuple[str, ...]]:
    """Return the file, the kernel and the verdict of each row."""
    lines = stdout.partition("\n\n")[0].splitlines()[2:]
    return [tuple(line.split()[:2] + line.split()[3:4]) for line in lines if line[:1] == " "]


def test_a_kernel_of_a_header_is_checked_once_with_the_launch_of_a_program_that_includes_it():
    Path("work/kernels").mkdir(parents=True)
    Path("work/kernels/bare.cuh").write_text(BARE, encoding="utf-8")
    Path("work/kernels/inner.h").write_text(WRONG.replace("wrong", "inner"), encoding="utf-8")
    include = '#include "kernels/bare.cuh"\n#include "kernels/inner.h"\n'
    Path("work/run.cu").write_text(f"{include}{FILL}{HOST}", encoding="utf-8")
    Path("work/again.cu").write_text(f"{include}int main() {{}}\n", encoding="utf-8")
    result = worklog("check", "work", "--quick")
    assert files_and_kernels(result.stdout) == [
        ("kernels/bare.cuh", "bare", "passed"),
        ("kernels/inner.h", "inner", "failed"),
        ("run.cu", "fill", "left"),
    ]
    assert "launch: by trial" not in result.stdout.partition("inner.h: ")[0]
    assert (
        "\nkernels in headers only, which have lines of their own: work/again.cu" in result.stdout
    )
    # Without the header's folder, its kernel belongs to the first file that includes it.
    result = worklog("check", "work/again.cu", "work/run.cu", "--quick")
    assert [row[:2] for row in files_and_kernels(result.stdout)] == [
        ("work/again.cu", "bare"),
        ("work/again.cu", "inner"),
        ("work/run.cu", "fill"),
    ]


def test_instances_that_a_program_launches_of_a_header_are_a_line_each():
    template = "template <int ROWS> " + BARE.replace("blockDim.y", "ROWS")
    Path("mine.cuh").write_text(template, encoding="utf-8")
    host = '#include "mine.cuh"\n'
    host += "void run(dim3 g, int M, int N, int K, float* A, float* B, float* C) {\n"
    for rows in (8, 4):
        grid = f"dim3((N + 15) / 16, (M + {rows - 1}) / {rows})"
        host += f"bare<{rows}><<<{grid}, dim3(16, {rows})>>>(M, N, K, 1, A, B, 0, C);\n"
    Path("run.cu").write_text(f"{host}}}", encoding="utf-8")
    result = worklog("check", "mine.cuh", "run.cu", "--quick")
    assert [row[:2] for row in files_and_kernels(result.stdout)] == [
        ("mine.cuh", "bare<8>"),
        ("mine.cuh", "bare<4>"),
    ]


def test_a_file_of_which_nothing_was_checked_exits_with_2_beside_right_ones():
    written("a.cu", PLAIN)
    written("b.cu", UNCLEAR)
    Path("c.cu").write_bytes(b"\0")
    result = worklog("check", "a.cu", "b.cu", "c.cu", "./a.cu")
    assert result.exit_code == 2 and "3 kernels, 1 passed, 2 not checked" in result.stdout
    assert "cannot read c.cu: it isn't text" in result.stdout
    assert worklog("check", "a.cu", "c.cu").exit_code == 2


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("work --args A,B,C,N", "--args is for one kernel: give one file, and --entry NAME"),
        ("a.cu b.cu --entry mine", "--entry is for one kernel"),
        ("work --grid N", "--grid is for one kernel"),
        ("work --block 32", "--block is for one kernel"),
        ("work --domain any", "--domain is for one kernel"),
        ("a.cu b.cu --problem softmax", "--problem is for one file or function"),
        ("work --watch", "--watch needs a file"),
        ("a.cu b.cu --watch", "--watch needs a file"),
        ("a.cu none.cu", "none.cu doesn't exist: name another file or folder"),
        ("a.cu naive", "naive isn't a .cu file or a folder: check it alone"),
        ("empty", "empty has no .cu file: name another folder, or a file"),
        ("hosts", "hosts: no file has a __global__ function"),
        ("work", "work has more than 2 .cu and .cuh files: name a folder in it"),
        (
            "two.cu --grid N --block 32",
            r"two.cu has 2 kernels \(mine, other\): name one with --entry",
        ),
    ],
)
def test_a_mistake_is_one_line_before_any_check(words, complaint, monkeypatch):
    monkeypatch.setattr(folder, "MAX_FILES", 2)
    monkeypatch.setattr(checks, "check", None)
    for name in ("a.cu", "b.cu", "work/a.cu", "work/b.cu", "work/c/c.cu"):
        written(name, PLAIN)
    written("two.cu", PLAIN, OTHER)
    written("hosts/main.cu", "int main() {}")
    Path("empty").mkdir()
    assert re.match(complaint, one_line(worklog("check", *words.split())))


@pytest.mark.parametrize("command", ["profile", "inspect"])
def test_other_commands_still_ask_for_one_kernel(command):
    written("two.cu", PLAIN, OTHER)
    said = one_line(worklog(command, "two.cu"))
    assert said.startswith("two.cu has 2 kernels (mine, other): name one with --entry")


@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_fits_the_terminal_and_long_names_keep_both_ends(columns, monkeypatch):
    monkeypatch.setattr(options, "terminal_width", lambda: columns)
    name = "unclear_kernel_with_a_name_that_is_too_long_for_every_terminal_of_"
    sources = [UNCLEAR.replace("unclear", f"{name}{number}") for number in (1, 2)]
    written("work/of_a_long_name_in_a_folder/and_a_longer_one_in_this.cu", *sources)
    lines = worklog("check", "work").stdout.splitlines()
    rows = lines[1:4]
    assert max(map(len, rows)) <= columns and "…" in rows[1] and rows[1] != rows[2]
    assert rows[1].endswith("…") and "this.cu" in rows[1] and " ? not checked " in rows[1]
    assert "is a template of T: give a value of each, as in --entry" in "".join(lines[5:])


def test_progress_names_the_kernel_and_an_interrupt_shows_what_was_checked(monkeypatch):
    written("mine.cu", PLAIN, OTHER)
    check = checks.check
    heard = list[str]()

    def stopping(subject: Any, *given: Any, progress: Any, **how: Any) -> checks.Checked:
        progress(0, 0, "launch 1")
        if subject.entry == "other":
            raise Interrupted("interrupted: mine was not checked")
        return check(subject, *given, **how)

    class Bar:
        def __enter__(self) -> Any:
            return lambda done, total, doing: heard.append(doing)

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(checks, "check", stopping)
    monkeypatch.setattr(options, "progress_bar", Bar)
    result = worklog("check", "mine.cu")
    assert result.exit_code == 130
    assert heard == ["kernel 1 of 2, mine: launch 1", "kernel 2 of 2, other: launch 1"]
    assert verdicts(result.stdout) == [("mine", "passed")]


def test_on_a_gpu_each_kernel_is_checked_in_a_child(monkeypatch):
    written("mine.cu", PLAIN, OTHER)
    taken = list[tuple[str, bool]]()
    check = checks.check

    def in_child(subject: Any, *given: Any, on: Any, emulate: bool, **how: Any) -> checks.Checked:
        taken.append((subject.entry, emulate))
        return check(subject, *given, on="emulated", **how)

    monkeypatch.setattr(checks, "check_in_child", in_child)
    monkeypatch.setattr(checks, "gpu_reason", lambda: None)
    monkeypatch.setattr(device, "require_gpu", lambda advice: None)
    assert worklog("check", "mine.cu").exit_code == 0
    assert worklog("check", "mine.cu", "--no-emulate").exit_code == 0
    assert taken == [("mine", True), ("other", True), ("mine", False), ("other", False)]


def test_a_rung_of_several_launches_is_checked_as_the_rung_and_its_other_kernels_are_helpers():
    rung = (kernels_dir() / "18_equal_shares.cu").read_text(encoding="utf-8")
    Path("mine.cu").write_text(rung, encoding="utf-8")
    result = worklog("check", "mine.cu", "--quick")
    assert result.exit_code == 0, result.output
    assert verdicts(result.stdout) == [("sgemm_equal_shares", "passed"), ("add_parts", "left out")]
    assert "no product of float matrices: adds parts for another kernel" in result.stdout
    wrong = rung.replace("alpha * sum.x + beta", "alpha * sum.x - beta")
    assert wrong != rung
    Path("mine.cu").write_text(wrong, encoding="utf-8")
    result = worklog("check", "mine.cu", "--quick")
    assert result.exit_code == 1, result.output
    assert verdicts(result.stdout) == [("sgemm_equal_shares", "failed"), ("add_parts", "left out")]


@pytest.mark.parametrize(
    ("old", "new"), [("BM=128 BN=256", "BM=64 BN=256"), ("add_parts(", "add_all(")]
)
def test_a_changed_rung_of_several_launches_says_how_to_check_it(old, new):
    rung = (kernels_dir() / "18_equal_shares.cu").read_text(encoding="utf-8")
    Path("mine.cu").write_text(rung.replace(old, new), encoding="utf-8")
    result = worklog("check", "mine.cu")
    assert result.exit_code == 2, result.output
    assert verdicts(result.stdout)[0] == ("sgemm_equal_shares", "not checked")
    assert "its passes can't be checked one by one. Make the change in" in result.stdout
    assert "type: worklog check equal_shares\n" in result.stdout
    assert result.stdout.endswith("\nnext: worklog check equal_shares\n")


def test_each_kernel_of_the_ladder_is_checked_or_is_a_helper():
    helpers = dict[str, str]()
    for row in several.find([str(kernels_dir())], DEFAULTS):
        if row.verdict:
            assert row.verdict == several.LEFT_OUT
            helpers[f"{row.file.name} {row.kernel}"] = row.reason.removeprefix(
                "no product of float matrices: "
            )
    adds = "adds parts for another kernel"
    assert helpers["18_equal_shares.cu add_parts"] == helpers["26_split.cu add_parts"] == adds
    assert helpers["30_best.cu sgemm_best_sum"] == adds
    assert helpers["19_ragged.cu add_parts"] == "launched with sgemm_ragged, for it"


PRODUCT = "(float* A, float* B, float* C, int n)"
WORK = "(float* A, float* B, float* C, int n, void* workspace)"
LOOP = "for (int k = 0; k < n; k++)"


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (f"__global__ void k{PRODUCT} {{ float s = 0; {LOOP} s += A[k] * B[k]; C[0] = s; }}", ""),
        (f"__global__ void k{PRODUCT} {{ float s = 0; {LOOP} s = s + A[k]; C[0] = s; }}", ""),
        (f"__global__ void k{PRODUCT} {{ float s = 0; {LOOP} s = fmaf(A[k], 2, s); }}", ""),
        (
            f"__device__ void f(float* A, int n) {{ {LOOP} A[k] += 1; }}\n"
            f"__global__ void k{PRODUCT} {{ f(A, n); }}",
            "",
        ),
        (f"__global__ void k{PRODUCT} {{ {LOOP} C[k] = A[k] + B[k]; }}", "no sum in a loop"),
        (f"__global__ void k{PRODUCT} {{ C[n] += A[n] + B[n]; }}", "no sum in a loop"),
        ("__global__ void k(float* A, float* B, int n) {}", "takes 2 pointers"),
        ("__global__ void k(int n) {}", "takes 0 pointers"),
        (f"__global__ void k{WORK} {{ {LOOP} C[n] += A[k] * B[k]; }}", ""),
        (
            f"__global__ void k{WORK} {{ {LOOP} C[n] += ((float*)workspace)[k]; }}",
            "adds parts for another kernel",
        ),
        (
            f"__global__ void k{WORK} {{ {LOOP} *(float*)workspace += A[k] * B[k]; }}",
            "prepares the factors for another kernel",
        ),
        ("__global__ void k(float* A, int* B, float* C, int n) {}", "takes int* B"),
        ("struct V { float* p; };\n__global__ void k(V A, V B, V C, int n) {}", ""),
    ],
)
def test_a_kernel_is_no_product_by_its_parameters_or_without_a_sum(kernel, why):
    Path("mine.cu").write_text(kernel)
    assert kernels_in("mine.cu") == [Listed("k", why, "")]
