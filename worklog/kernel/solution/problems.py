"""Problems by name: the package's, and classes of a file."""

from __future__ import annotations

import shlex

from worklog.errors import BadSetting, meant
from worklog.kernel.host_function import HostFunction
from worklog.problem import PROBLEMS, Problem


def find_problem(name: str, dtype: str = "") -> Problem:
    """Return a problem.

    name: the problem's name, or a class in a file as file.py:Class or file.py
    dtype: one of the problem's types
    Raises BadSetting.
    """
    if name in PROBLEMS:
        return PROBLEMS[name]().under(dtype)
    if name.endswith(".py"):
        file = name
        class_name = ""
    else:
        file, _, class_name = name.rpartition(":")
    if not file or not (class_name.isidentifier() or name.endswith(".py")):
        advice = f"choose from {', '.join(PROBLEMS)}, or name a class of yours, as file.py:Class"
        raise BadSetting(f"there is no problem {name!r}{meant(name, PROBLEMS)}: {advice}")
    kind = _problem_class(name, file, class_name)
    try:
        return kind().under(dtype)
    except BadSetting:
        raise
    except Exception as error:
        raise BadSetting(
            f"{name}() raised {type(error).__name__}: {error}: correct its __init__"
        ) from error


def _problem_class(reference: str, file: str, class_name: str) -> type[Problem]:
    """Return a class of a file. Raises BadSetting if the file has no such problem.

    reference: the file and the class, as the user named them
    class_name: "" for the only problem that the file defines
    """
    module = HostFunction.of(f"{file}:{class_name or 'Problem'}").module()
    classes = {}
    for key, value in vars(module).items():
        if isinstance(value, type) and issubclass(value, Problem):
            classes[key] = value
    defined = [key for key, value in classes.items() if value.__module__ == module.__name__]
    if not class_name and len(defined) == 1:
        class_name = defined[0]
    if class_name in classes:
        return classes[class_name]
    listing = ", ".join(defined) or "no problem: derive a class from worklog.Problem"
    advice = f"; name one, as {shlex.quote(file)}:Class" if defined else ""
    raise BadSetting(f"{reference} names no problem: {file} has {listing}{advice}")
