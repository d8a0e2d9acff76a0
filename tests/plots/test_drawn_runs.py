"""Whatever the harness can measure can be shown: each view of runs that are drawn at random."""

from hypothesis import HealthCheck, Phase, example, given, settings

from tests.plots.drawn_runs import Drawn, drawn, faults_of
from worklog.problem import Shape


# Each example is a fault that was found.
@example(Drawn(noise=1e-3, moved=1e-3))
@example(Drawn(benchmark=True))
@example(Drawn(sizes=(Shape.of(1024), Shape(64, 4096, 17)), moved=1e-6, noise=1e-3))
@settings(
    max_examples=10,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[*HealthCheck],
)
@given(drawn())
def test_every_view_of_a_run_can_be_made_whatever_was_measured(of):
    assert not faults_of(of)
