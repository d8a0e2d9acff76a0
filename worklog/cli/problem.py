"""`--problem` of `worklog check`, `run` and `new`: solutions of problems other than the ladder's."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from worklog.cli import output
from worklog.errors import BadSetting, NoGpu

if TYPE_CHECKING:
    from pathlib import Path

    from worklog.kernel.solution import Solution
    from worklog.runs import Run
    from worklog.settings import Harness

TAKEN = ("entry", "grid", "block", "include", "define", "arrays")  # options of a user kernel that a solution takes
PROBLEM = (
    click.option(
        "--problem",
        metavar="NAME|FILE.py:CLASS",
        help="The problem that it solves: softmax, batched_gemm, sgemm, or your own (default: the ladder's SGEMM).",
    ),
    click.option(
        "--dtype", default="", metavar="TYPE", help="With --problem: float32, float16, … (default: its first)."
    ),
)


CASE = click.option(
    "--case", "cases", multiple=True, metavar="NAME", help='With --problem, only these cases: a name, or "n=*"; repeat.'
)


def problem_options(command: Any, options: Sequence[Any] = PROBLEM) -> Any:
    """--problem and --dtype."""
    for option in reversed(options):
        command = option(command)
    return command


def require_no_dtype(dtype: str, cases: Sequence[str] = ()) -> None:
    """Raise BadSetting for --dtype or --case without --problem."""
    if cases:
        raise BadSetting("--case needs --problem: the cases of the ladder's SGEMM are sizes, as in --size 1024")
    if dtype:
        raise BadSetting("--dtype needs --problem: the ladder computes in float32; --class names a precision class")


def solution_of(what: str, launch: Mapping[str, Any], others: Mapping[str, object]) -> Solution:
    """The solution that a command names. launch: the options of a user kernel. others: options that the command takes
    for the ladder's problem only, and what was given. Raises BadSetting for one that was given.
    """
    from worklog.kernel import DEFAULTS, OPTION
    from worklog.kernel.solution import Solution

    given = {name: value for name, value in launch.items() if value is not None and value != DEFAULTS[name]}
    wrong = [name for name in given if name not in TAKEN] + [name for name, value in others.items() if value]
    if wrong:
        raise BadSetting(f"--{OPTION.get(wrong[0], wrong[0])} is for the ladder's SGEMM: omit it, or omit --problem")
    return Solution.of(what, **{name: value for name, value in given.items() if name in TAKEN})


def starter_code(problem: str, dtype: str, folder: Path) -> dict[Path, str]:
    """The files of `worklog new PROBLEM DIR`, and their text. Raises BadProblem."""
    from worklog.kernel.starter import starters
    from worklog.runner.problems import find_problem

    return starters(find_problem(problem, dtype), f"{shlex.quote(problem)}{f' --dtype {dtype}' * bool(dtype)}", folder)


def check_solution(
    what: str, problem: str, dtype: str, on: str | None, launch: Mapping[str, Any], **others: Any
) -> Any:
    """Check a solution, in a child process on a GPU. Raises what worklog.runner.problems.check() raises."""
    from worklog.runner import problems

    with output.progress_bar() as progress:
        return problems.check_in_child(solution_of(what, launch, others), problem, dtype, on=on, progress=progress)


def run_solutions(
    files: Sequence[str],
    problem: str,
    dtype: str,
    cases: Sequence[str],
    harness: Harness,
    out: Path | None,
    launch: Mapping[str, Any],
    **others: Any,
) -> Run:
    """Measure solutions at the cases of a problem. others: as for solution_of. Raises what
    worklog.runner.solved.measure() raises.
    """
    from worklog.gpu import device
    from worklog.runner import solved

    if not files:
        raise BadSetting("--problem needs a solution: name a .cu file, or a Python function as file.py:function")
    solutions = [solution_of(file, launch, others) for file in files]
    if why := device.gpu_reason():
        advice = f"`worklog check FILE --problem {shlex.quote(problem)}` checks a .cu file on the emulator"
        raise NoGpu(f"no GPU to measure on: {why}; {advice}")
    with output.progress_bar() as progress:
        return solved.measure(solutions, problem, dtype, cases=cases, harness=harness, progress=progress, out=out)
