"""The shapes to judge `best` at."""

from worklog.kernel.ladder.best import table
from worklog.problem.workloads import LEAST_DRAWN, MOST_DRAWN, WORKLOADS, log_uniform


def test_the_table_of_best_was_not_tuned_at_any_of_them():
    judged = {shape for shapes in WORKLOADS.values() for shape in shapes}
    assert judged.isdisjoint(table().shapes)
    assert len(judged) == sum(map(len, WORKLOADS.values())), "each is judged once"


def test_drawn_sizes_are_log_uniform_in_their_limits():
    sizes = [size for shape in log_uniform(1000, 1) for size in (shape.m, shape.n, shape.k)]
    assert min(sizes) >= LEAST_DRAWN and max(sizes) <= MOST_DRAWN
    below_the_middle = sum(size < (LEAST_DRAWN * MOST_DRAWN) ** 0.5 for size in sizes)
    assert 0.45 < below_the_middle / len(sizes) < 0.55
    assert log_uniform(5, 1) == log_uniform(5, 1) != log_uniform(5, 2)
