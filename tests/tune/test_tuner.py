"""A sweep that searches.

Conditions, orders, early ends, finals, times that are kept, and workers that die.
"""

import math
import os
from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from pytest import approx

from tests.conftest import take_few_shapes
from tests.helpers import measured, small_run, typed
from tests.virtual.gpu import VirtualGpu
from tests.virtual.session import QUICK, timed
from tests.virtual.tiles import COMMAND
from worklog import settings
from worklog.errors import BadSetting
from worklog.kernel import rung
from worklog.problem import Shape
from worklog.problem.axes import Axis, Space
from worklog.runs import Ran, Run
from worklog.runs.statistics import Estimate
from worklog.settings import Harness
from worklog.tune import cluster
from worklog.tune.cluster import Cluster, Workers, end_child, on_card
from worklog.tune.sweep import Variants, recorded, variants
from worklog.tune.tuner import (
    SearchOrder,
    finalists,
    finals,
    in_final_order,
    paired,
    ranking,
    replayed,
    search,
)

AUTOTUNED = rung("autotuned")
SHAPE = Shape.of(128)
AXES = [Axis("BM", (64, 128)), Axis("BN", (64,)), Axis("TN", (8, 16)), Axis("MIN_BLOCKS", (1, 2))]
LOOSE = QUICK.but(gate=False)  # the virtual gate takes seconds; it has tests of its own
BEST = {"BM=64 BN=64 TN=8 MIN_BLOCKS=1", "BM=64 BN=64 TN=16 MIN_BLOCKS=1"}

pytestmark = pytest.mark.usefixtures("laptop")


@pytest.fixture(scope="module")
def eight():
    return variants(AUTOTUNED, AXES, shape=SHAPE, arch="sm_90")


@pytest.fixture(scope="module")
def four(eight):
    return replace(eight, kept=eight.kept[:4])


@pytest.fixture(scope="module", autouse=True)
def dying(tmp_path_factory):
    """Return the file that says what dies, of all processes of these tests."""
    file = tmp_path_factory.mktemp("dying") / "who"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILES_DIE", str(file))
        yield file


@pytest.fixture(scope="module")
def two_cards(dying):
    """Two measuring workers, whose children measure on virtual GPUs, and others."""
    with Cluster(cards=["0", "1"]) as workers:
        yield workers


def searched(chosen: Variants, workers: Workers | None = None, **how: Any) -> Run:
    """On the virtual GPU; by default in threads of this process."""
    if workers is not None:
        return search(chosen, workers, harness=LOOSE, command=COMMAND, **how)
    with Workers() as threads:
        return search(chosen, threads, harness=LOOSE, command=COMMAND, **how)


def test_the_finalists_are_timed_against_each_other_and_the_run_holds_it_all(eight, home):
    token = settings.COMMAND.set(("sweep", "autotuned"))
    run = searched(eight)
    settings.COMMAND.reset(token)
    assert Run.load(run.path).tool["command"] == ["sweep", "autotuned"]
    assert {m.kernel for m in run.measurements} == {variant.name for variant in eight.kept}
    [final] = finals(run)
    assert {final.kernel, *final.against} == {*BEST, "cuBLAS"}, (
        "0.3 % slower ones are told apart by their shares"
    )
    assert in_final_order([final])[0] in BEST and paired(final, *BEST).value == approx(1.0)
    rows = ranking(Run.load(run.path or home)).rows  # from the file
    assert len(rows) == len(eight.kept) and {str(row[0]) for row in rows[:2]} == BEST


def test_a_tiles_loop_ends_where_it_is_slower_than_the_best_one_before_it(four, home, monkeypatch):
    with Workers() as threads:
        monkeypatch.setattr(threads.gpu, "submit", submit := Mock(wraps=threads.gpu.submit))
        run = search(four, threads, harness=LOOSE, command=COMMAND)
    shares = [
        dict(given.args[1].changed).get("least_share")
        for given in submit.call_args_list
        if given.args[1]
    ]
    assert shares == [0.0, *[run.measurements[0].ratio_low] * 3, None], (
        "all of one model, then finalists"
    )


def test_a_sweep_of_no_tile_writes_nothing(four, home):
    with pytest.raises(BadSetting, match="no tile is left"):
        searched(replace(four, kept=()))
    assert not [*home.rglob("*.jsonl")]


def test_a_sweep_that_was_cut_short_goes_on_where_it_was(four, home):
    first = searched(four, trials=2)
    before = {m.kernel: m.ran for m in first.measurements if len(m.against) == 1}
    again = searched(four)
    after = {m.kernel: m.ran for m in again.measurements if len(m.against) == 1}
    assert (
        len(before) == 2
        and len(after) == 4
        and all(0 < ran.seconds < 600 for ran in after.values())
    )
    assert {name: after[name] for name in before} == before, "measured before"
    fresh = searched(four, trials=1, fresh=True)
    assert fresh.measurements[0].ran not in before.values()


def test_a_card_has_one_child_for_a_sweep_and_another_one_for_the_next():
    heads = [
        on_card(None, {}, sweep=sweep, harness=LOOSE, command=COMMAND).head
        for sweep in ("first", "first", "second")
    ]
    end_child()
    assert [bool(head) for head in heads] == [True, False, True]


@pytest.mark.parametrize("change", [{"driver": "another"}, {"name": "another"}])
def test_times_of_another_gpu_or_driver_are_not_kept(eight, home, change):
    run = searched(eight, trials=1)
    for name, card in run.cards.items():
        run.cards[name] = replace(card, gpu=replace(card.gpu, **change))
    text = Run.load(run.path).head_lines()
    run.save()
    assert text != run.head_lines()
    assert searched(eight, trials=1).measurements[0].ran != run.measurements[0].ran


def test_a_kernel_that_ends_its_process_fails_and_the_others_are_measured(four, home, dying):
    victim = four.kept[1].name
    dying.write_text(f"{victim}: child")
    run = searched(four)
    assert [m.kernel for m in run.measurements if m.status == "failed"] == [victim]
    assert len({m.kernel for m in run.measurements if m.us}) == 3


def test_a_worker_that_dies_loses_its_point_only_and_another_card_measures_that(
    four, home, two_cards, dying
):
    dying.write_text(f"{four.kept[3].name}: worker")
    seen = list[str]()
    run = searched(four, two_cards, progress=lambda done, total, doing: seen.append(doing))
    times = [m for m in run.measurements if len(m.against) == 1]
    assert not dying.exists() and [m.status for m in times] == ["measured"] * 4, "each once"
    assert {m.kernel for m in times} == {variant.name for variant in four.kept}
    cards = {m.ran.card for m in times if m.ran}
    assert len(cards) == 2 == len(run.cards) and len(finals(run)) == 2, (
        "the dead one's successor takes part in the finals"
    )
    assert all(str(card) in ranking(run).text(200) for card in cards)
    assert any("finalists" in doing for doing in seen)


def test_a_tile_that_kills_each_of_its_workers_fails_and_the_others_are_measured(
    eight, home, two_cards, dying
):
    dying.write_text(f"{eight.kept[0].name}: every")
    run = searched(replace(eight, kept=eight.kept[:3]), two_cards)
    assert len({*dying.read_text().split(", ")[1:]}) == 2, "tried by as many children"
    dying.unlink()
    [failed] = [m for m in run.measurements if m.status == "failed"]
    assert failed.kernel == eight.kept[0].name and "each of 2 workers that took it died" in str(
        failed.reason
    )
    assert sum(m.us is not None and len(m.against) == 1 for m in run.measurements) == 2


def with_few_shapes(check: Any, *given: Any) -> Any:
    """In a worker."""
    take_few_shapes(setattr)
    return check(*given)


def test_without_a_gpu_a_cluster_checks_on_the_emulator_and_survives_a_worker(two_cards):
    axes = [Axis(name, (32,)) for name in ("BM", "BN")] + [
        Axis(name, (4,)) for name in ("TM", "TN")
    ]
    axes.append(Axis("MIN_BLOCKS", (1, 2)))
    where = ["conflicts <= 60", "MIN_BLOCKS < 2"]
    pid = next(
        iter(two_cards.client.run(os.getpid, workers=two_cards.with_resource("cpu")[:1]).values())
    )
    futures = iter([0])

    class Killing:
        """The cluster's executor; a worker dies once it has work."""

        def submit(self, *given: Any) -> Any:
            future = two_cards.cpu.submit(with_few_shapes, *given)
            if next(futures, None) is not None:
                os.kill(pid, 9)
            return future

    found = variants(
        AUTOTUNED, axes, shape=SHAPE, arch="sm_90", conditions=where, checked=True, cpu=Killing()
    )
    assert [variant.values["MIN_BLOCKS"] for variant in found.kept] == [1]
    assert [point.skipped for point in found.skipped] == ["not MIN_BLOCKS < 2"]


def test_recorded_times_go_the_same_way(two_cards, tmp_path):
    axes = [Axis("BM", (64, 128)), Axis("BN", (128,)), Axis("TN", (8,)), Axis("MIN_BLOCKS", (1,))]
    chosen = variants(AUTOTUNED, axes, arch="sm_90")

    def how(job: Any, kernels: Any) -> Any:
        return replayed(job, kernels, chosen)

    run = search(chosen, two_cards, how=how, out=tmp_path / "sweep.jsonl")
    assert run.origin == "recorded" and not finals(run), "no loop of the finalists was recorded"
    assert len(run.measurements) == len(chosen.kept) == 2 and all(
        m.us and m.ran for m in run.measurements
    )
    assert {m.kernel for m in run.measurements} == {variant.name for variant in chosen.kept}
    before = {m.kernel: m for m in recorded(chosen).measurements}
    for m in run.measurements:
        assert m.us == before[m.kernel].us
        assert m.label == before[m.kernel].label, "of the day of the recording, not of the replay"


def test_a_loop_ends_once_the_interval_lies_below_the_least_share():
    def count(least: float) -> int:  # the baseline takes 80 µs, the kernel 100
        harness = Harness().but(least_share=least, precision=1e-6, most_samples=400)
        result = timed(VirtualGpu(noise=0.01, seed=1), harness, us=100.0)
        stopped = any("stopped" in said for said in result.reading.degradations)
        assert stopped == (least > 0.82)
        return result.reading.samples.n

    assert count(0.9) < count(0.0) / 2 and count(0.8) == count(0.0)


@pytest.mark.parametrize("strategy", ["exhaustive", "random", "optuna"])
def test_every_order_names_each_tile_once(eight, strategy):
    order = SearchOrder(eight, strategy, seed=1)
    names = list[str]()
    for _ in eight.kept:
        names.append(order.ask().name)
        order.tell(names[-1], 0.5)
    assert sorted(names) == sorted(variant.name for variant in eight.kept)
    assert (names == [variant.name for variant in eight.kept]) == (strategy == "exhaustive")
    assert SearchOrder(eight, strategy, seed=1).ask().name == names[0]


def test_optuna_finds_the_best_tile_sooner_than_chance(eight):
    axes = [Axis(name, (16, 32, 64, 128, 256)) for name in ("BM", "BN", "BK")]
    points = [*Space("large", tuple(axes)).configurations()]
    made = [
        replace(eight.kept[0], values=p.values, kernel=replace(AUTOTUNED, name=str(p)))
        for p in points
    ]
    chosen = replace(eight, space=Space("large", tuple(axes)), kept=tuple(made))
    share = {
        str(p): 1 / (1 + sum(abs(math.log2(int(value)) - 6) for value in p.values.values()))
        for p in points
    }
    best = max(share.values())

    def asked(strategy: str, seed: int) -> int:
        order = SearchOrder(chosen, strategy, seed)
        for number, _ in enumerate(chosen.kept, 1):
            name = order.ask().name
            order.tell(name, share[name])
            if share[name] == best:
                return number
        raise AssertionError("no tile is the best")

    assert sum(asked("optuna", seed) for seed in range(12)) < sum(
        asked("random", seed) for seed in range(12)
    )


def test_conditions_prune_by_what_is_known_without_a_launch():
    axes = [Axis("MIN_BLOCKS", (1, 2))]

    def kept(*where: str) -> list[object]:
        return [
            v.values["MIN_BLOCKS"]
            for v in variants(AUTOTUNED, axes, arch="sm_90", conditions=where).kept
        ]

    assert (
        kept("spilled == 0") == [1]
        and kept("blocks >= 2") == [2]
        and kept("registers > 0", "warps < 16") == [1]
    )
    assert kept("BM * BN / 2 <= 8000") == [] and kept("wave_fill == 96") == [1, 2], (
        "512 blocks on 132 SMs: 3.9 waves"
    )
    assert (
        kept(f"{' + '.join(AUTOTUNED.template)} + MIN_BLOCKS < 0") == [] == kept("MIN_BLOCKS > 2")
    )
    assert (
        kept("conflicts == 100") == []
        and kept("occupancy <= 12") == [1]
        and kept("shared < 1") == []
    )


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("BM", "compare two sides, as in 'BM * BN <= 16384'"),
        ("BM <= speed", "cannot read 'speed'"),
        ("1 < 2", "names nothing: choose from BM"),
        ("BM <=", "compare two sides"),
    ],
)
def test_a_condition_that_cannot_be_read_is_one_line(where, why):
    shown = typed("sweep", "autotuned", "--axis", "BM=64", "--where", where, "--preview")
    assert shown.exit_code == 2 and why in shown.stderr and len(shown.stderr.splitlines()) == 1


def test_mistakes_with_workers_say_what_to_do(monkeypatch, two_cards):
    monkeypatch.setattr(cluster, "CONNECT_S", 0.3)
    with pytest.raises(
        BadSetting, match=r"no scheduler answers at tcp://127\.0\.0\.1:9: start one"
    ):
        Cluster("tcp://127.0.0.1:9")
    monkeypatch.setattr(cluster, "tool", lambda: {"version": str(os.getpid())})
    with pytest.raises(BadSetting, match="install the same there"):
        Cluster(two_cards.client.scheduler_info()["address"])
    shown = typed("sweep", "autotuned", "--axis", "BM=64", "--check")
    assert shown.exit_code == 2 and "--check is for --preview" in shown.stderr


def test_another_process_s_cluster_is_used_and_left_running(two_cards, eight, home):
    with Cluster(two_cards.client.scheduler_info()["address"]) as remote:
        run = searched(eight, remote, trials=2)
    assert len([m for m in run.measurements if len(m.against) == 1]) == 2
    assert two_cards.with_resource("gpu"), "its workers stay"


def test_finalists_reach_the_best_interval_and_cards_of_different_gpus_are_ranked_apart():
    run = small_run(measurements=[], kernels={})
    other = replace(run.gpu, name="another GPU")
    run.cards = {}
    run.add_card("a:0", run.gpu, run.calibration)
    run.add_card("b:0", other, run.calibration)
    shares = {
        "fast": ("a:0", 0.90),
        "near": ("a:0", 0.899),
        "slow": ("a:0", 0.5),
        "elsewhere": ("b:0", 0.6),
    }
    for name, (card, share) in shares.items():
        ratio = Estimate(share, share - 0.002, share + 0.002)
        run.add(
            replace(
                measured(name, n=512),
                against={"cuBLAS": ratio},
                ran=Ran(card, 0.0, 1.0),
                context=None,
            )
        )
    assert finalists(run.measurements) == ["fast", "near", "elsewhere"]
    assert "the cards differ" in ranking(run).text()
    with suppress(KeyError):
        assert run.measurements[3].label.split(" · ")[1] == "another GPU"
