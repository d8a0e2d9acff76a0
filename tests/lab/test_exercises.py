"""A typical wrong answer to each notebook's exercise is not right.

The feedback says why, and not what is right. The notebooks' solutions are graded where the
notebooks are executed.
"""

import math
import re

import pytest

import worklog
from tests.helpers import PLAIN, typed
from tests.record.notebooks import sources
from worklog import lab
from worklog.errors import BadSetting
from worklog.kernel.ladder import memory_counts
from worklog.kernel.prediction import bound
from worklog.lab.exercises import EXERCISES
from worklog.runs.comparison import KNOWN, open_comparison
from worklog.runs.sources import runs_dir

GPU = worklog.open_run().gpu
COUNTS = memory_counts().rungs["vectorized"]
ALL_WAVEFRONTS, CONFLICTS = (
    count / GPU.multiprocessors / GPU.sm_clock_mhz / 1e3
    for count in (COUNTS.wavefronts, COUNTS.conflicts)
)
[WARPTILED] = worklog.open_run().select("warptiled", worklog.Shape.of(4096))
OVER_FLOOR = (WARPTILED.us or 0) / (1e3 * bound(worklog.rung("warptiled")).ms)

RACED = """extern "C" __global__ void k(const float* x, float* out, int n) {
  __shared__ float last;
  last = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) out[0] = last;
}"""

[FOUR] = re.findall(
    r'FOUR = """\\\n(.*?)"""', sources(["02"])[0].read_text(encoding="utf-8"), re.DOTALL
)
EIGHT = FOUR.replace("64", "128").replace("acc[4]", "acc[8]").replace("i < 4;", "i < 8;")
READ = open_comparison().us(KNOWN, 2)["do_bench"] / open_comparison().us(KNOWN, 1)["do_bench"]

OVERFLOWING = """\
__global__ void rows(const float* x, float* y, int columns) {
  float sum = 0.0f;
  for (int i = 0; i < columns; ++i) sum += expf(x[blockIdx.x * columns + i]);
  for (int i = threadIdx.x; i < columns; i += 32) y[blockIdx.x * columns + i] = expf(x[blockIdx.x * columns + i]) / sum;
}
extern "C" void solution(const float* input, float* output, int rows_, int columns) {
  rows<<<rows_, 32>>>(input, output, columns);
}
"""


@pytest.mark.parametrize(
    ("notebook", "answer", "reason", "unsaid"),
    [
        (
            "00",
            "warptiled",
            "4 blocks on 132 SMs, and another rung is faster. Hint: .*more blocks",
            "shared",
        ),
        ("00", "naive", "and another rung is faster", "shared"),
        ("00", "split", "isn't a rung with a time at 256", "shared takes"),
        ("01", {"warmup": "none"}, r"changes the time by [+−]\d+\.\d %. Hint: ", "first"),
        ("01", {"l2": "warm"}, "begin with warmup = none", "first"),
        ("01", {"l2": "hot"}, "'hot' is not a setting.*: choose from", "first"),
        ("01", {"cache": "warm"}, "no (setting|argument) 'cache'", "first takes"),
        ("12", 3, "their whole range is too narrow", "9 samples"),
        ("12", 6, "begins before the second one. Hint: ", "9 samples"),
        ("12", 12, "fewer are, too", "9 samples"),
        ("13", 14.3, "a multiply-add is two operations", "28.6"),
        ("13", 26.04, "tera is 10", "28.6"),
        ("13", 0.02863, "150 µs are not 150 ms", "28.6"),
        ("13", 2.863e13, "a TFLOP/s is 10", "28.6"),
        ("13", 29.5, r"29\.5 TFLOP/s is too large\. Hint: each of", "28.6"),
        ("13", 28.0, "28 TFLOP/s is too small", "28.6"),
        ("13", "28.6", "the answer is a rate in TFLOP/s, not str", "28.63"),
        (
            "14",
            PLAIN.replace(" || col >= N", ""),
            "the article's rule fails it, too: .*out-of-bounds",
            "1.001",
        ),
        ("14", PLAIN, "the gate passes it, so it is right. Hint: ", "1.001"),
        ("14", "void f();", "no __global__ function", "1.001"),
        ("03", 32, "one sector for each lane, .* Hint: which byte is the last", "12"),
        ("03", 4, "hold 32 neighbours", "12"),
        ("03", 3, "the number of lines", "12"),
        ("03", 13, "doesn't touch 13 sectors. Hint", "12"),
        ("03", 12.5, "the answer is a number of sectors, not float", "12 s"),
        ("04", 4.5, "the share that comes from L2", "95.5"),
        ("04", 0.955, "not a percentage", "95.5"),
        ("04", 97.2, "count sectors, not the bytes", "95.5"),
        ("04", 99.2, r"too large\. Hint: .*stores", "95.5"),
        ("04", True, "the answer is a share in percent, not True", "95.5"),
        ("04", math.nan, "the answer is a share in percent, not nan", "95.5"),
        ("05", ALL_WAVEFRONTS, "conflicts included", "too"),
        ("05", CONFLICTS, "conflicts alone", "too"),
        ("05", 2 * 4096**3 / GPU.fp32_peak_tflops / 1e9, "the multiply-adds", "too"),
        ("06", 100 * (WARPTILED.ratio or 0), "reaches now", "127"),
        ("06", 100 * OVER_FLOOR, "above its floor", "127"),
        ("06", OVER_FLOOR * (WARPTILED.ratio or 0), "not a percentage", "127"),
        ("06", 100 * (WARPTILED.ratio or 0) / OVER_FLOOR, "is faster than warptiled", "127"),
        ("06", 150, r"too large\. Hint: how long does cuBLAS", "127"),
        ("07", 16, "4.00 FLOP per byte; .* L2 is the lower roof. Hint: ", "40"),
        ("07", 80, "a smaller tile is right of it, too", "40"),
        ("07", 33, "not a multiple of 8", "40"),
        (
            "08",
            {"BM": 256, "BN": 256, "TM": 16},
            r"\d+ bytes spilled, .* Hint: .*fewer threads",
            "'TN': 8",
        ),
        ("08", {}, "the rung's own tile", "'TN': 8"),
        ("08", {"BM": 96}, "can't be built: 4096 is not a multiple", "'TN': 8"),
        (
            "02",
            PLAIN,
            "failed at exact on edge shapes: .* never written.* Hint: .*128 rows",
            "acc[8]",
        ),
        (
            "02",
            EIGHT.replace("* b;", "* ((volatile float*)Bs)[16 * k + x];"),
            "more than 0.75. Hint: read each",
            "acc[8]",
        ),
        ("16", "__global__ void k() {}", "softmax.cu has no host function solution", "fmaxf"),
        ("16", OVERFLOWING, "failed at case 9 x 64, around 100", "fmaxf"),
        ("17", RACED, r"shared-race: [^$]*Hint: which threads", "barrier"),
        (
            "17",
            RACED.replace("last = x[", "if (threadIdx.x == 0) last = x["),
            "no race; right are",
            "barrier",
        ),
        ("09", 1.0, "no gain", "1.03"),
        ("09", 4, "the number of waves", "1.03"),
        ("09", 0.97, "the share of the time", "1.03"),
        ("10", 27.9, "reading alone", "55.8"),
        ("10", 41.9, "each element gives two halves", "55.8"),
        ("11", 23.4, "some runs have two", "20.9"),
        ("15", 1 / READ, "the longer time over", f"{READ:.2g}"),
        ("15", 2.0, "the true speedup", f"{READ:.2g}"),
        ("18", 48, "a block alone", "24"),
        ("18", 32, "a cluster of two", "24"),
        ("18", 12, "rows of A", "24"),
    ],
)
def test_a_wrong_answer_gets_a_reason_and_not_the_solution(notebook, answer, reason, unsaid):
    graded = lab.check_answer(notebook, answer)
    assert not graded.right and repr(graded).startswith("not yet: ")
    assert re.search(reason, graded.feedback), graded
    assert unsaid not in repr(graded) and graded._repr_html_().startswith('<pre role="status"')


@pytest.mark.parametrize(
    ("notebook", "right"),
    [
        ("13", 29.0),
        ("13", 28.6),
        ("04", 96),
        ("05", float(f"{ALL_WAVEFRONTS - CONFLICTS:.2g}")),
        ("06", 130),
        ("10", 56),
        ("11", 21),
        ("15", float(f"{READ:.2g}")),
    ],
)
def test_two_digits_are_enough(notebook, right):
    graded = lab.check_answer(notebook, right)
    assert graded.right, graded


def test_a_stride_of_three_floats_touches_each_sector_up_to_its_last_float():
    right = [count for count in range(40) if lab.check_answer("03", count).right]
    assert right == [len({3 * lane * 4 // 32 for lane in range(32)})]


@pytest.mark.parametrize("wrong", [28.0, 30.0, 29.3])
def test_more_digits_must_be_right_too(wrong):
    assert not lab.check_answer("13", wrong).right


def test_one_tile_is_the_smallest_right_of_the_ridge():
    assert sum(lab.check_answer("07", side).right for side in range(8, 257, 8)) == 1


def test_without_an_answer_it_says_what_is_wanted():
    assert sorted(EXERCISES) == [source.name[:2] for source in sources()]
    assert (
        repr(lab.check_answer("07"))
        == "not yet: there is no answer. Set `answer` to the side of a square tile"
    )
    with pytest.raises(BadSetting, match="no notebook '99'"):
        lab.check_answer("99", 1)


def test_a_race_passes_the_articles_rule_where_the_results_are_right():
    [source] = sources(["14"])
    right = source.read_text(encoding="utf-8").partition('RIGHT = """\\\n')[2].partition('"""')[0]
    raced = "__shared__ float last[2];\n  last[y % 2] = y;\n  float acc = 0.0f * last[x % 2];"
    graded = lab.check_answer("14", right.replace("float acc = 0.0f;", raced))
    assert graded.right, graded
    assert re.search(r"= \d\.\de-07 .*shared-race.* addresses", graded.feedback, re.DOTALL), graded
    graded = lab.check_answer("14", right.replace("__syncthreads();  // read", ""))
    assert re.match(r"the article's rule fails it, too: max\|error\| ", graded.feedback), graded


def test_the_first_answer_is_kept_beside_what_was_measured():
    assert "no predictions yet" in typed("journal").stdout
    for answer in (14.3150001, 28.63, "28.6"):
        lab.check_answer("13", answer)
    assert lab.check_answer("00", "warptiled").right is False
    first, last = typed("journal").stdout.splitlines()[-2:]
    assert re.search(r"^\| 00 \|.*\| warptiled \| not found yet \| – \| 1 \|", first)
    assert re.search(r"^\| 13 \|.*\| 14.32 \| 28.63 \| −50 % \| 2 \| 1024x4096x512", last)
    path = runs_dir().parent / "journal.jsonl"
    path.write_text(path.read_text() + '{"exercise')
    assert "line 4 was cut short: remove it" in typed("journal").stderr
    path.unlink()
    path.mkdir()
    assert "not kept in" in repr(lab.check_answer("13", 28.63))
    path.rmdir()
