"""Whatever the harness can measure can be shown: the views of runs that are drawn at random."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.plots.drawn_runs import Drawn, drawn, faults_of
from worklog.problem import Shape

SMALL = Shape.of(256)
FAULTS = {
    "an effect below what is printed": Drawn(noise=1e-3, moved=1e-3, sizes=(SMALL,)),
    "a benchmark beside products": Drawn(benchmark=True, ablated=0, sizes=(SMALL,)),
    "a benchmark off the locked clock": Drawn(benchmark=True, harness=5, card=3, sizes=(SMALL,)),
    "no effect at a size that isn't square": Drawn(
        sizes=(Shape.of(1024), Shape(64, 4096, 17)), moved=1e-6, noise=1e-3
    ),
    "a least sample below the overhead": Drawn(noise=0.3, turns=12, sizes=(Shape.of(1),)),
}


@pytest.mark.parametrize("of", FAULTS.values(), ids=FAULTS.keys())
def test_a_run_that_could_not_be_shown_can_be(of):
    assert not faults_of(of, shown_cuts=0)


@settings(
    max_examples=10,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[*HealthCheck],
)
@given(drawn())
def test_a_third_of_the_views_of_ten_runs_can_be_made_whatever_was_measured(of):
    assert not faults_of(of, shown_cuts=1, share=1 / 3)
