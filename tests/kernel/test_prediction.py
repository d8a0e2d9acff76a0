"""The lower bound of a kernel's time.

Below each recorded time, its counts by hand, or a reason for none.
"""

from dataclasses import replace
from html import escape

import pytest

from tests.helpers import PLAIN, RACY, TEXTURE
from tests.kernel.test_passes import TWO
from worklog.emulator import load
from worklog.kernel import Kernel, prediction
from worklog.kernel.ladder import LADDER, rung
from worklog.kernel.prediction import DRAM, FMA, L1, SHARED, bound, predicted, rung_bounds, spread
from worklog.problem import Shape
from worklog.runs import recorded_run
from worklog.runs.statistics import Estimate

# time over bound; from LARGE on, each SM has several blocks
WORST = 3.1
WORST_OF_LARGE = 1.85
LARGE = 2048


@pytest.fixture(scope="module")
def run():
    return recorded_run()


@pytest.fixture(scope="module")
def h200(run):
    return run.gpu


def plain(source: str = PLAIN) -> Kernel:
    return Kernel.from_source(
        source, file="mine.cu", grid="(N + 31) / 32, (M + 31) / 32", block="32,32"
    )


def tiles(source: str) -> Kernel:
    domain = "M % 8 == 0, N % 8 == 0, K % 8 == 0"
    return Kernel.from_source(
        source, file="mine.cu", grid="N / 8, M / 8", block="8,8", domain=domain
    )


def test_no_recorded_time_is_below_its_bound(run):
    timed = [size for size in run.shapes() if size.square]
    assert {size.n for size in timed} >= {256, 512, 1024, 2048, 4096, 8192}
    for size in timed:
        least, most = spread(rung_bounds(run, size))
        assert least >= 1.0 and most < (WORST if size.n < LARGE else WORST_OF_LARGE), (
            size,
            least,
            most,
        )


def test_the_sm_with_the_most_blocks_by_hand(h200):
    """coalesced: a block of 32 warps looks up a line of A and one of B for each k.

    1024 blocks on 132 SMs are 8 on one of them.
    """
    clocks = h200.sm_clock_mhz * 1e3
    for n, blocks in ((256, 1), (1024, 8)):
        limits = bound(rung("coalesced"), Shape.of(n), h200).limits
        assert limits[L1] == pytest.approx(blocks * 32 * n * 2 / clocks)
        assert limits[FMA] == pytest.approx(blocks * 32 * n / 4 / clocks, rel=1e-3), (
            "4 warps per clock"
        )
        assert limits[DRAM] == pytest.approx(2 * 4 * n * n / 1e6 / h200.memory_peak_gbs)
    larger = bound(rung("coalesced"), Shape.of(1024), replace(h200, multiprocessors=1024))
    assert larger.limits[L1] == pytest.approx(32 * 1024 * 2 / clocks)


def test_blocks_at_an_edge_do_not_count_as_whole_ones(h200):
    """At 33 x 32, block 1 has one row of 32.

    At 2080 x 2048, a mean SM has 65 / 132 of 64 blocks.
    """
    clocks = h200.sm_clock_mhz * 1e3
    assert bound(plain(), Shape(33, 32, 64), h200).limits[L1] == pytest.approx(32 * 64 * 2 / clocks)
    ragged = bound(plain(), Shape(2049, 2048, 64), h200)
    assert ragged.limits[L1] == pytest.approx((2049 * 64 * 64 * 2) / 132 / clocks)
    assert ragged.counts.load_lines == 2049 * 64 * 64 * 2


def test_a_rungs_shipped_counts_give_what_the_emulator_counts(h200):
    """At 1024, the last wave of blocks is not full, which the mean over the SMs leaves out."""
    for size in (256, 1024):
        shipped, counted = (
            bound(replace(rung("shared"), name=name), Shape.of(size), h200)
            for name in ("shared", "a")
        )
        for limit, ms in counted.limits.items():
            assert shipped.limits[limit] == pytest.approx(ms, rel=0.005) and shipped.limits[
                limit
            ] <= ms * (1 + 1e-9)
        assert (shipped.limit, shipped.source) == (counted.limit, counted.source)
        assert shipped.counts.store_sectors == counted.counts.store_sectors


def test_what_is_shown(run):
    racy = predicted(tiles(RACY))
    own = racy.bound
    assert own is not None and own.limit == SHARED and own.shape == Shape.of(4096)
    least, most = spread(rung_bounds(run, Shape.of(4096)))
    assert racy.sentences == (
        f"at least {own.ms:.2f} ms at 4096 on an NVIDIA H200, bound by shared-memory wavefronts "
        "(emulated · sm_90 "
        "PTX, counted for an NVIDIA H200; a lower bound, not a time)",
        f"the 12 rungs take {least:.2f} to {most:.2f} times their bounds at 4096 ({run.label})",
    )
    lines = str(racy).splitlines()
    assert lines[:2] == list(racy.sentences) and run.label in lines[3]
    assert [line.split()[0] for line in lines[5:]] == [*(record.name for record in LADDER), "mine"]
    assert f" {own.ms:#.4g} ms " in lines[-1], "at least"
    per_fma = [
        f" {32 * count / 4096**3:.3f} " for count in (own.counts.load_lines, own.counts.wavefronts)
    ]
    assert all(count in lines[-1] for count in per_fma)
    assert all(sentence in racy._repr_html_() for sentence in (*racy.sentences, "warptiled"))
    assert racy.as_dict()["bound"]["ms"] == own.ms


def test_the_error_is_the_recordings_and_at_the_nearest_size(monkeypatch, run):
    least, most = spread(rung_bounds(run, Shape.of(1024)))
    timed = [(m, m.us) for m in run.select(shape=Shape.of(1024)) if m.us]
    slow = [replace(m, time=Estimate(3 * us, 3 * us, 3 * us)) for m, us in timed]
    slower = replace(run, measurements=slow)
    monkeypatch.setattr(prediction, "recorded_run", lambda: slower)
    shown = predicted(rung("shared"), Shape(1024, 512, 1024), measured_us=1e4)
    assert (
        f"take {3 * least:.2f} to {3 * most:.2f} times their bounds at 1024" in shown.sentences[1]
    )
    assert shown.bound is not None and shown.sentences[0].startswith("at least ")
    assert f"; measured 10 ms, {10 / shown.bound.ms:.2f} times that (" in shown.sentences[0]


def test_a_count_that_the_assembler_may_lower_is_no_limit(monkeypatch):
    monkeypatch.setattr(prediction, "load", lambda *words: replace(load(*words), assembled=False))
    shown = predicted(tiles(RACY))
    assert shown.bound is not None and shown.bound.limit == L1 and SHARED not in shown.bound.limits
    assert "a GPU's count differs and is usually lower" in shown.sentences[-1]


def test_a_limit_that_one_pass_lacks_is_none_of_the_launch(monkeypatch, h200):
    known = iter([True, False])
    monkeypatch.setattr(
        prediction, "load", lambda *words: replace(load(*words), assembled=next(known))
    )
    assert {*bound(TWO, Shape(200, 200, 192), h200).limits} == {FMA, L1, DRAM}


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (
            lambda: plain(PLAIN.replace("k < K; ++k)", "k < K; ++k) if (A[k] != 0.0f)")),
            "mine.cu:5: an address or a",
        ),
        (
            lambda: tiles(RACY.replace("K; k0", "K - blockIdx.x % 4 * 8; k0")),
            "differ between its blocks",
        ),
        (lambda: tiles(RACY.replace("__syncthreads();", TEXTURE, 1)), "mine.cu:9: txq.width.b32"),
        (lambda: Kernel.from_function("json:dumps"), "dumps is a host function"),
        (lambda: plain().with_launch(grid=""), "mine needs a launch"),
    ],
)
def test_without_a_bound_one_line_says_why(kernel, why):
    shown = predicted(kernel())
    assert (
        shown.bound is None
        and shown.table is None
        and f"<p>{escape(str(shown))}</p>" == shown._repr_html_()
    )
    assert (
        str(shown).startswith("no lower bound of the time: ")
        and why in str(shown)
        and "\n" not in str(shown)
    )


def test_one_timed_rung_is_enough_to_say_how_far_rungs_are_above_their_bounds():
    whole = predicted(plain())
    name, timed = next((name, of) for name, of in whole.rungs.items() if of.factor is not None)
    alone = replace(whole, rungs={name: timed})
    assert alone.sentences[1].startswith(
        f"the 1 rungs take {timed.factor:.2f} to {timed.factor:.2f} times their bounds at "
        f"{timed.shape} "
    )
