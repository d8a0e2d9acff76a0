"""Stage: what runs a subject of host code is still what it was before that code was loaded.

Host code shares the process with the ruler and the gate, and can change either: replace a clock, a comparison or a
limit, turn a setting, move to another GPU. So everything that Python can see of them is noted before the code is
loaded and compared after it has been judged and timed: the functions, classes and constants of this package and of
the device's own; what they call of NumPy, CuPy, the CUDA bindings and the standard library; the fields of every
frozen value (the harness, the calibration, the questions); methods hidden by an attribute of one object; the devices
that are visible, the current one, the current streams and the allocators; the environment that cuBLAS reads.

Threads and the precision flags of PyTorch are told, not judged: compilers start threads, and a flag is the subject's
own business, since the baseline has a handle of its own and the precision is judged by the error.

What this cannot see is native code: a patched machine instruction, a hooked library, a debugger. It says so in every
answer, which is why such a number is labelled host-launched.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from types import FunctionType, ModuleType
from typing import Any

from worklog.gate.verdict import Stage, passed, refused

NAME = "integrity"
CAUTION = "host-launched: native code in its process cannot be seen"
# Everything that is callable in these; of the others, only what the ruler and the gate use.
WATCHED_MODULES = (
    "builtins",
    "math",
    "numpy",
    "numpy.random",
    "time",
    "cupy.cuda.driver",
    "cupy.cuda.runtime",
    "cupy_backends.cuda.libs.cublas",
)
WATCHED_NAMES = (
    "cupy.RawModule",
    "cupy.asarray",
    "cupy.cuda.Event",
    "cupy.cuda.Stream",
    "cupy.cuda.alloc_pinned_memory",
    "cupy.cuda.get_elapsed_time",
    "cupy.ndarray",
    "cupy.zeros",
    "cuda.bindings.driver.cuCtxResetPersistingL2Cache",
    "os.urandom",
    "random.SystemRandom",
    "secrets.randbits",
    "secrets.token_hex",
)
ENVIRONMENT = (
    "CUBLASLT_WORKSPACE_SIZE",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "CUPY_TF32",
    "LD_PRELOAD",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "WORKLOG_HOME",
    "WORKLOG_SOURCE",
)
Parts = tuple[object, ...]
State = Callable[[], Mapping[str, object]]


def tampered(before: Sequence[Stage], refusal: Stage) -> dict[str, Any]:
    """The verdict of a refusal by this stage as a run file has it, with the stages that passed before it.

    What it is made of may be what the subject's code has changed. So it is built from the stages' own numbers, past
    properties and methods of their class: a stage has passed where measured <= limit, whatever it says of itself; no
    map of C is kept, and no precision class.
    """
    stages = [_plain(stage, f"{vars(stage).get('detail')} (from a process that was changed)") for stage in before]
    last = {**_plain(refusal, str(vars(refusal).get("detail"))), "passed": False}
    reason = f"{last['name']}: {last['detail']}"
    return {"accepted": False, "precision": None, "reason": reason, "stages": [*stages, last]}


def _plain(stage: Stage, detail: str) -> dict[str, Any]:
    """A stage's fields as JSON takes them, from what the object itself holds."""
    held = vars(stage)
    measured, limit, seconds = (float(held[name]) for name in ("measured", "limit", "seconds"))
    numbers = {"measured": measured, "limit": limit, "seconds": seconds}
    return {
        "name": str(held["name"]),
        "passed": measured <= limit,
        **numbers,
        "detail": detail,
        "where": None,
        "note": "",
    }


@dataclass(frozen=True)
class Seen:
    """What there was at one moment. code: by dotted name, the objects that make it up, compared by identity. hidden:
    methods that an attribute of one object hides. state: devices, streams, allocators, environment, compared by value.
    frozen: the fields of every frozen value. told: flags; threads: their names by number.
    """

    code: dict[str, Parts]
    hidden: frozenset[str]
    state: dict[str, object]
    frozen: list[tuple[weakref.ref[Any], dict[str, tuple[int, object]]]]
    told: dict[str, object]
    threads: dict[int | None, str]


@dataclass(frozen=True)
class Integrity:
    """What was noted before a subject's host code was loaded. look: how, bound then, so that replacing it later shows.

    Bind `stage` before the code is loaded, too, for the same reason: `judge = Integrity.taken().stage`. And ask the
    answer whether measured <= limit: `passed` is a word that a class can be made to say.
    """

    before: Seen
    packages: tuple[str, ...]
    states: Sequence[State]
    look: Callable[[tuple[str, ...], Sequence[State]], Seen]

    @classmethod
    def taken(cls, *objects: object, states: Sequence[State] = ()) -> Integrity:
        """Note everything now. objects: things such as the device, whose classes' packages are noted too. states: each
        gives values by name, to be compared too: what a device knows of itself.
        """
        homes = (type(thing).__module__.rpartition(".")[0] for thing in objects)
        packages = tuple(dict.fromkeys(("worklog", *(home for home in homes if home))))
        return cls(look(packages, states), packages, states, look)

    def stage(self) -> Stage:
        """Compare."""
        after = self.look(self.packages, self.states)
        changes = list(_changes(self.before, after))
        if changes:
            more = f", and {len(changes) - 3} more" if len(changes) > 3 else ""
            return refused(NAME, f"its host code changed {'; '.join(changes[:3])}{more}", len(changes))
        told = [
            f"it set {name} to {value}" for name, value in after.told.items() if self.before.told.get(name) != value
        ]
        started = sorted(after.threads[number] for number in after.threads.keys() - self.before.threads.keys())
        told += [f"it started the threads {', '.join(started)}"] if started else []
        kept = f"{len(self.before.code)} functions and constants and {len(self.before.state)} states"
        return passed(NAME, "; ".join([f"{kept} are as before its code was loaded", *told, CAUTION]))


def look(packages: tuple[str, ...], states: Sequence[State]) -> Seen:
    """Everything that is compared, as it is now."""
    code: dict[str, Parts] = {}
    for name, module in list(sys.modules.items()):
        if any(name == own or name.startswith(f"{own}.") for own in packages):
            code.update(_own(name, module))
    for name in WATCHED_MODULES:
        for key, value in vars(sys.modules.get(name) or ModuleType(name)).items():
            if callable(value) and not key.startswith("_"):
                code[f"{name}.{key}"] = (value, *_parts(value))
    for name in WATCHED_NAMES:
        home, _, key = name.rpartition(".")
        value = getattr(sys.modules.get(home), key, None)
        if value is not None:
            code[name] = (value, *_parts(value))
            code.update(_members(name, value) if isinstance(value, type) else {})
    instances = _instances(packages)
    return Seen(
        code,
        frozenset(_hidden(instances)),
        _state(states),
        [(weakref.ref(thing), _fields(thing)) for thing in instances if _is_frozen(thing)],
        _flags(),
        {thread.ident: thread.name for thread in threading.enumerate()},
    )


def _instances(packages: tuple[str, ...]) -> list[Any]:
    """All objects alive whose class is one of the packages' own."""
    ours: dict[type, bool] = {}
    for thing in gc.get_objects():
        cls = type(thing)
        if cls not in ours:
            home = str(getattr(cls, "__module__", ""))
            ours[cls] = any(home == own or home.startswith(f"{own}.") for own in packages)
    return [thing for thing in gc.get_objects() if ours.get(type(thing), False) and not isinstance(thing, type)]


def _own(name: str, module: ModuleType) -> Iterator[tuple[str, Parts]]:
    """All that a module of ours holds: constants too, and the contents of constant tables."""
    for key, value in list(vars(module).items()):
        if key.startswith("__") or (isinstance(value, ModuleType) and value.__name__.startswith(name)):
            continue  # a submodule shows in its package once it is imported
        where = f"{name}.{key}"
        yield where, (value, *_parts(value))
        if isinstance(value, type) and value.__module__ == name:
            yield from _members(where, value).items()
        if isinstance(value, dict) and key.isupper():
            yield from ((f"{where}[{entry!r}]", (held,)) for entry, held in value.items())


def _members(where: str, cls: type) -> dict[str, Parts]:
    """The functions of a class, and what it inherits."""
    found: dict[str, Parts] = {f"{where}.__bases__": cls.__bases__}
    for key, value in list(vars(cls).items()):
        if callable(value) or hasattr(value, "__get__"):
            found[f"{where}.{key}"] = (value, *_parts(value))
    return found


def _parts(value: object) -> Parts:
    """What a function is made of and could be exchanged in it: code and defaults, through wrappers and properties."""
    found: list[object] = []
    if isinstance(value, FunctionType):
        found += [value.__code__, value.__defaults__, *(value.__kwdefaults__ or {}).values()]
    for inner in ("__wrapped__", "__func__", "_implementation", "fget", "fset"):
        within = value.__dict__.get(inner) if isinstance(value, FunctionType) else _quietly(value, inner)
        if within is not None and within is not value:
            found += [within, *_parts(within)]
    if isinstance(value, cached_property):
        found += _parts(value.func)
    return tuple(found)


def _quietly(value: object, name: str) -> object | None:
    """An attribute of a wrapper or a property; of nothing else, since a foreign object may compute it."""
    plain = isinstance(value, (property, staticmethod, classmethod)) or type(value).__module__ in ("functools", "numpy")
    return getattr(value, name, None) if plain else None


def _hidden(instances: list[Any]) -> Iterator[str]:
    """Methods that one object hides behind an attribute of its own."""
    for thing in instances:
        cls = type(thing)
        for key in getattr(thing, "__dict__", ()):
            if isinstance(getattr(cls, key, None), FunctionType):
                yield f"{cls.__module__}.{cls.__qualname__}.{key} of one object"


def _is_frozen(thing: object) -> bool:
    cls: Any = type(thing)
    parameters = getattr(cls, "__dataclass_params__", None)
    return parameters is not None and parameters.frozen and cls.__weakrefoffset__ != 0


def _fields(thing: Any) -> dict[str, tuple[int, object]]:
    """Each field's identity, and its value where that is small enough to keep."""
    held = {field.name: getattr(thing, field.name, None) for field in fields(thing)}
    small = (int, float, str, bool, type(None))
    return {name: (id(value), value if isinstance(value, small) else None) for name, value in held.items()}


def _state(states: Sequence[State]) -> dict[str, object]:
    """Environment, hooks of the interpreter, and what the device says."""
    state: dict[str, object] = {f"the environment's {name}": os.environ.get(name) for name in ENVIRONMENT}
    state["the tracing function"], state["the profiling function"] = sys.gettrace(), sys.getprofile()
    for ask in states:
        state.update(ask())
    return state


def _flags() -> dict[str, object]:
    """What decides on the precision of PyTorch's products."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    try:
        with warnings.catch_warnings(action="ignore"):  # reading the older of two interfaces is deprecated
            return {
                "torch.backends.cuda.matmul.allow_tf32": torch.backends.cuda.matmul.allow_tf32,
                "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision(),
            }
    except RuntimeError as error:  # both interfaces were written to, and PyTorch refuses to read the older
        return {"PyTorch's precision flags": f"something that cannot be read ({str(error).splitlines()[0]})"}


def _changes(before: Seen, after: Seen) -> Iterator[str]:
    """In words, what is not as it was."""
    loaded = {name.rpartition(".")[0] for name in before.code}
    for name, parts in before.code.items():
        now = after.code.get(name, ())
        if len(now) != len(parts) or any(one is not other for one, other in zip(parts, now, strict=True)):
            yield name
    for name in after.code.keys() - before.code.keys():
        if name.rpartition(".")[0] in loaded and not name.startswith(WATCHED_MODULES):
            yield f"{name}, which was not there"
    yield from sorted(after.hidden - before.hidden)
    for name, value in before.state.items():
        if name in after.state and after.state[name] != value:
            yield (
                name
                if callable(value) or callable(after.state[name])
                else f"{name} from {value} to {after.state[name]}"
            )
    for reference, held in before.frozen:
        thing = reference()
        if thing is not None:
            now_held = _fields(thing)
            yield from (
                f"{type(thing).__name__}.{name} of a frozen value" for name in held if now_held.get(name) != held[name]
            )
