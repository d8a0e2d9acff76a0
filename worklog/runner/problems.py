"""Problems by their names, and those of their cases that the emulator can run."""

from __future__ import annotations

import shlex

from worklog.errors import BadSetting, meant
from worklog.kernel import HostFunction
from worklog.problem import PROBLEMS, Problem, Words, called, each, is_array, nbytes

# Of a case on the emulator: beyond these it takes more than some seconds.
EMULATED_FLOPS, EMULATED_BYTES = 2**24, 2**21


def find_problem(what: str, dtype: str = "") -> Problem:
    """A problem of the package by its name, or a class of a file as file.py:Class; the file alone where it has only
    one. dtype: one of the problem's, "" for its first. Raises BadSetting.
    """
    if what in PROBLEMS:
        return PROBLEMS[what]().under(dtype)
    where, _, name = (what, "", "") if what.endswith(".py") else what.rpartition(":")
    if not where or not (name.isidentifier() or what.endswith(".py")):
        known = f"choose from {', '.join(PROBLEMS)}, or name a class of yours, as file.py:Class"
        raise BadSetting(f"there is no problem {what!r}{meant(what, PROBLEMS)}: {known}")
    module = HostFunction.of(f"{where}:{name or 'Problem'}").module()
    own = [key for key, value in vars(module).items() if _is_problem(value) and value.__module__ == module.__name__]
    if not name and len(own) == 1:
        (name,) = own
    kind = getattr(module, name, None) if name else None
    if not _is_problem(kind):
        named = shlex.quote(where)
        has = f"{where} has {', '.join(own) or 'no problem: derive a class from worklog.Problem'}"
        raise BadSetting(f"{what} names no problem: {has}" + (f"; name one, as {named}:Class" if own else ""))
    try:
        made: Problem = kind()  # type: ignore[misc]
    except Exception as error:
        raise BadSetting(f"{what}() raised {type(error).__name__}: {error}: correct its __init__") from error
    if not getattr(made, "name", ""):
        raise BadSetting(f"{what}: its __init__ must call super().__init__()")
    return made.under(dtype)


def _is_problem(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Problem)


def small_cases(problem: Problem) -> tuple[list[Words], list[str]]:
    """Samples and test cases that the emulator can run, and the names of the others. Raises BadSetting where none is
    small enough.
    """
    samples, cases = problem.tests
    kept, left = list[Words](), list[str]()
    for words in (*samples, *cases):
        flops = called(problem, "get_flops", words, case=words["name"])
        small = (flops or 0) <= EMULATED_FLOPS
        if small:  # only then are its inputs made
            inputs = each(called(problem, "create_inputs", of=words["create_inputs"], case=words["name"]))
            small = sum(nbytes(value) for value in inputs if is_array(value)) <= EMULATED_BYTES
        if small:
            kept.append(words)
        else:
            left.append(words["name"])
    if not kept:
        raise BadSetting(
            f"{problem.name} has no case that is small enough for the emulator: return one from generate_sample, with "
            f"at most {EMULATED_FLOPS:,} operations and {EMULATED_BYTES / 2**20:.0f} MiB of inputs"
        )
    return kept, left
