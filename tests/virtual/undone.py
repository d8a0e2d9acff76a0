"""What a cheat does to the process, undone: modules, classes, functions, frozen values, environment and hooks."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from types import FunctionType, ModuleType
from typing import Any

PACKAGES = ("worklog", "tests.virtual")
ALSO = ("numpy", "time", "builtins")


@contextmanager
def undone() -> Iterator[None]:
    """Put everything back that a callable of tests/exploits/callables may have changed."""
    modules = [
        module for name, module in list(sys.modules.items()) if _watched(name) and isinstance(module, ModuleType)
    ]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    ours = {cls for cls in classes if _watched(cls.__module__) and cls.__module__ not in ALSO}
    kept: list[tuple[Any, dict[str, Any]]] = [(thing, dict(vars(thing))) for thing in (*modules, *ours)]
    functions = {value for _, held in kept for value in held.values() if isinstance(value, FunctionType)}
    codes = [(one, one.__code__, one.__defaults__, one.__kwdefaults__) for one in functions]
    tables = [(value, dict(value)) for _, held in kept for name, value in held.items() if _is_table(name, value)]
    frozen = [
        (thing, dict(vars(thing))) for thing in gc.get_objects() if type(thing) in ours and is_dataclass(type(thing))
    ]
    hidden = {(id(thing), name) for thing, name in _hidden(ours)}
    environment, path, hooks = dict(os.environ), list(sys.path), (sys.gettrace(), sys.getprofile())
    try:
        yield
    finally:
        sys.settrace(hooks[0])
        sys.setprofile(hooks[1])
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path
        for thing, name in [(thing, name) for thing, name in _hidden(ours) if (id(thing), name) not in hidden]:
            del vars(thing)[name]
        for function, code, defaults, keywords in codes:
            function.__code__, function.__defaults__, function.__kwdefaults__ = code, defaults, keywords
        for table, entries in tables:
            table.clear()
            table.update(entries)
        for thing, held in kept:
            _restore(vars(thing), held, lambda name, value, thing=thing: setattr(thing, name, value), thing)
        for thing, held in frozen:
            vars(thing).update(held)


def _is_table(name: str, value: object) -> bool:
    return isinstance(value, dict) and name.isupper() and not name.startswith("_")


def _hidden(ours: set[type]) -> Iterator[tuple[Any, str]]:
    """Objects of our classes, each with the name of a method that an attribute of it hides."""
    for thing in gc.get_objects():
        if type(thing) in ours:
            for name in list(getattr(thing, "__dict__", ())):
                if isinstance(getattr(type(thing), name, None), FunctionType):
                    yield thing, name


def _watched(name: str) -> bool:
    return name in ALSO or any(name == own or name.startswith(f"{own}.") for own in PACKAGES)


def _restore(now: Any, held: dict[str, Any], put: Callable[[str, Any], None], thing: Any) -> None:
    for name, value in held.items():
        if now.get(name) is not value:
            put(name, value)
    if thing.__name__.startswith(PACKAGES) or isinstance(thing, type):
        for name in [name for name in now if name not in held and not isinstance(now[name], ModuleType)]:
            delattr(thing, name)
