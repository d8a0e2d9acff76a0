"""Solutions of problems: CUDA source that launches kernels, and Python functions."""

from worklog.kernel.solution.problems import find_problem
from worklog.kernel.solution.solution import Passed, Solution, Solver
from worklog.kernel.solution.starter_code import starters

__all__ = ["Passed", "Solution", "Solver", "find_problem", "starters"]
