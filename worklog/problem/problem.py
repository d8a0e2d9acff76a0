"""Any problem with a reference: what a kernel must compute, on which inputs, how close, and how much work it is.

A problem is a class. Its methods have the names of Tensara's problems (github.com/tensara/problems), so that one of
those becomes a problem of this package when its import says `from worklog import Problem`. Arrays are NumPy's, CuPy's
or PyTorch's: whatever `create_inputs` makes, the reference gets and returns.
"""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from worklog.errors import BadSetting, WorklogError, meant
from worklog.problem.arrays import each, excess, is_array, nbytes

# C++ types of parameters by the elements that they stand for. The first of each is what starter code writes.
NAMES = {
    "float32": ("float",),
    "float64": ("double",),
    "float16": ("__half", "half", "float16"),
    "bfloat16": ("__nv_bfloat16", "bfloat16"),
    "int32": ("int", "int32_t"),
    "uint64": ("size_t", "unsigned long long", "unsigned long", "uint64_t"),
    "int64": ("long long", "int64_t", "long"),
    "uint32": ("unsigned int", "unsigned", "uint32_t"),
    "int16": ("short",),
    "uint16": ("unsigned short",),
    "int8": ("int8_t", "char", "signed char"),
    "uint8": ("uint8_t", "unsigned char", "float8"),
    "bool": ("bool",),
}
TYPES = {name: dtype for dtype, names in NAMES.items() for name in names}
OF_DTYPE = ("T", "[VAR]")  # types that stand for the dtype under which the problem is solved
BYTES = {dtype: 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize for dtype in TYPES.values()}
Words = dict[str, Any]  # a test case as the problem states it: its name, create_inputs, and whatever its methods read


@dataclass(frozen=True)
class Parameter:
    """One parameter of a solution. type: C++. dtype: of its elements or its value, such as "float32". const: whether a
    solution may only read it.
    """

    name: str
    type: str
    dtype: str
    pointer: bool
    const: bool = False

    @property
    def declaration(self) -> str:
        """C++, as in "const float* input"."""
        return f"{'const ' * (self.const and self.pointer)}{self.type}{'*' * self.pointer} {self.name}"


@dataclass(frozen=True)
class Case:
    """One test case with its data. inputs: what the reference gets. outputs: what it returned. extras: parameters of a
    solution that the reference doesn't get. words: as the problem states the case.
    """

    name: str
    seed: int
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    extras: tuple[Any, ...]
    words: Words

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What a solution gets, in the order of its parameters: inputs, outputs, extras."""
        return (*self.inputs, *self.outputs, *self.extras)

    @property
    def written(self) -> range:
        """The places of the outputs among the arguments."""
        return range(len(self.inputs), len(self.inputs) + len(self.outputs))


class Problem:
    """What a kernel must compute. Derive from it, and state at least a reference, test cases and parameters:

        class Doubled(worklog.Problem):
            parameters = [
                {"name": "x", "type": "float", "pointer": True, "const": True},
                {"name": "y", "type": "float", "pointer": True, "const": False},
                {"name": "n", "type": "int", "pointer": False, "const": False},
            ]

            def reference_solution(self, x):
                return 2 * x

            def generate_test_cases(self):
                return [self.case(str(n), lambda rng, n=n: rng.random(n, np.float32), n=n) for n in (1, 1000)]

            def get_extra_params(self, test_case):
                return [test_case["n"]]

    name: default, the class's. parameters: of a solution, in the order inputs, outputs, extra parameters; the type
    "T" stands for the dtype. dtypes: those that it can be solved under, the first by default, with the relative and the
    absolute tolerance of `verify_result`. is_exact: whether repeated launches must give the same bits. Mistakes in a
    problem raise BadSetting where it is used.
    """

    name: str = ""
    parameters: ClassVar[Sequence[Mapping[str, Any]]] = ()
    dtypes: ClassVar[Mapping[str, tuple[float, float]]] = {"float32": (1e-4, 1e-6)}
    is_exact: bool = False
    dtype: str = ""

    def __init__(self, name: str = "") -> None:
        self.name = name or self.name or type(self).__name__

    def reference_solution(self, *inputs: Any) -> Any:
        """The right result, an array or a tuple of arrays, from what a case's `create_inputs` made."""
        raise NotImplementedError

    def baseline(self, *inputs: Any) -> Any:
        """What a solution is timed beside, on arrays of the GPU; by default, the reference. It returns the result."""
        return self.reference_solution(*inputs)

    def generate_test_cases(self) -> list[Words]:
        """The cases that are checked and timed; `case` makes one. "create_inputs" of each makes its inputs, the same
        ones each time.
        """
        raise NotImplementedError

    def generate_sample(self) -> Words | list[Words]:
        """Small cases, which are checked and not timed: on the emulator too, where large ones take too long."""
        return []

    def verify_result(self, expected_output: Any, actual_output: Any) -> tuple[bool, dict[str, Any]]:
        """Whether an output is right, and details if it is wrong. Both are of the reference's kind: an
        array, or a tuple of them. By default, each element may differ by the dtype's tolerance: |actual - expected| <=
        absolute + relative * |expected|.
        """
        errors = [
            excess(e, a, self.tolerance) for e, a in zip(*map(each, (expected_output, actual_output)), strict=True)
        ]
        worst = max((float(np.max(error, initial=0.0)) for error in errors), default=0.0)
        return worst <= 1, {"error over tolerance": worst}

    def get_flops(self, test_case: Words) -> int | None:
        """Floating-point operations of a case; None where a count isn't useful."""
        return None

    def get_bytes(self, test_case: Words) -> tuple[int, int] | None:
        """Bytes that a solution must read and write at least; by default, each array once."""
        return None

    def get_extra_params(self, test_case: Words) -> list[Any]:
        """Parameters of a solution that the reference doesn't get, such as sizes."""
        return []

    def get_function_signature(self) -> Mapping[str, Any]:
        """The parameters as `argtypes` of ctypes; overridden by a problem that states no `parameters`."""
        return {"argtypes": [ctype_of(parameter) for parameter in self.signature], "restype": None}

    # ----------------------------------------------------------------------------------------- what it inherits

    @staticmethod
    def get_seed(text: str) -> int:
        """A seed from a case's name: the same one everywhere."""
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])

    def case(self, name: str, inputs: Callable[[np.random.Generator], Any], **words: Any) -> Words:
        """A test case of that name. inputs: makes the inputs from a seeded generator, one array or a tuple. words: for
        the problem's other methods.
        """
        seed = self.get_seed(f"{self.name} {name}")
        return {"name": name, "seed": seed, **words, "create_inputs": lambda: inputs(np.random.default_rng(seed))}

    @property
    def device(self) -> str:
        """Where PyTorch's tensors of a case are made: "cuda" where there is a GPU, else "cpu"."""
        torch = sys.modules.get("torch")
        return "cuda" if torch is not None and torch.cuda.is_available() else "cpu"

    def param_dtype(self, which: int | str) -> Any:
        """PyTorch's dtype of a parameter, by its place or name."""
        found = next(one for place, one in enumerate(self.signature) if which in (place, one.name))
        return getattr(import_module("torch"), found.dtype)

    def under(self, dtype: str) -> Problem:
        """The same problem under one of its dtypes; "" for the first. Raises BadSetting."""
        if not self.dtypes or not set(self.dtypes) <= set(BYTES):
            example = "give {'float32': (1e-4, 1e-6)}, of " + ", ".join(BYTES)
            raise BadSetting(f"{self.name}: dtypes is {self.dtypes!r:.80}: {example}")
        if dtype and dtype not in self.dtypes:
            advice = f"choose from {', '.join(self.dtypes)}"
            raise BadSetting(f"{self.name} has no dtype {dtype!r}{meant(dtype, self.dtypes)}: {advice}")
        same = copy(self)
        same.dtype = dtype or self.first
        return same

    @property
    def first(self) -> str:
        """The dtype that it has by default."""
        return next(iter(self.dtypes))

    @property
    def tolerance(self) -> tuple[float, float]:
        """Relative and absolute, of the dtype."""
        return self.dtypes[self.dtype or self.first]

    @property
    def signature(self) -> tuple[Parameter, ...]:
        """The parameters of a solution. Raises BadSetting for a type that isn't known."""
        dtype = self.dtype or self.first
        if not self.parameters:
            return _of_ctypes(self)
        found = []
        for words in self.parameters:
            given = str(words.get("type", "")).strip()
            kind = NAMES[dtype][0] if given in OF_DTYPE else given
            if kind not in TYPES:
                raise BadSetting(
                    f"{self.name}: parameter {words.get('name')!r} has type {given!r}{meant(given, TYPES)}: give T for "
                    f"the dtype, or one of {', '.join(TYPES)}"
                )
            pointer = bool(words.get("pointer"))
            found.append(Parameter(str(words.get("name")), kind, TYPES[kind], pointer, bool(words.get("const"))))
        return tuple(found)

    @cached_property
    def tests(self) -> tuple[list[Words], list[Words]]:
        """Samples and test cases, without their data. Raises BadSetting."""
        samples, cases = called(self, "generate_sample"), called(self, "generate_test_cases")
        both = [samples] if isinstance(samples, Mapping) else samples, cases
        for what, listed in zip(("generate_sample", "generate_test_cases"), both, strict=True):
            if not isinstance(listed, Sequence) or not all(_is_case(one) for one in listed):
                raise BadSetting(
                    f'{self.name}: {what} gives {listed!r:.60}: return a list of {{"name": …, "create_inputs": …}}'
                )
        names = Counter(one["name"] for listed in both for one in listed)
        if not names:
            raise BadSetting(f"{self.name} has no test case: return one from generate_test_cases")
        if twice := next((name for name, count in names.items() if count > 1), None):
            raise BadSetting(f"{self.name}: two cases have the name {twice!r}: rename one")
        return list(both[0]), list(both[1])

    def prepared(self, words: Words) -> Case:
        """A case with its inputs, the reference's result, and the extra parameters. Raises BadSetting."""
        name, seed = words["name"], words.get("seed")
        seed = self.get_seed(f"{self.name} {name}") if seed is None else int(seed)
        if (torch := sys.modules.get("torch")) is not None:
            torch.manual_seed(seed)  # for inputs that are drawn without a generator
        inputs = each(called(self, "create_inputs", of=words["create_inputs"], case=name))
        outputs = each(called(self, "reference_solution", *inputs, case=name))
        extras = tuple(called(self, "get_extra_params", words, case=name) or ())
        found = Case(name, seed, inputs, outputs, extras, words)
        if not outputs or not all(map(is_array, outputs)):
            kinds = ", ".join(type(one).__name__ for one in outputs)
            raise BadSetting(f"{self.name}: reference_solution returned {kinds} in case {name!r}: return an array")
        declared = self.signature
        if len(declared) != len(found.arguments):
            counts = f"{len(inputs)} inputs, {len(outputs)} outputs and {len(extras)} extra parameters"
            raise BadSetting(f"{self.name}: case {name!r} gives {counts}, and {len(declared)} parameters are declared")
        for number, (parameter, value) in enumerate(zip(declared, found.arguments, strict=True)):
            if parameter.pointer != is_array(value):
                want = "an array" if parameter.pointer else "a number"
                raise BadSetting(
                    f"{self.name}: {parameter.name} is {type(value).__name__} in case {name!r}: give {want}"
                )
            if parameter.pointer and value.itemsize != BYTES[parameter.dtype] and number in found.written:
                raise BadSetting(
                    f"{self.name}: the reference's {parameter.name} has elements of {value.itemsize} bytes in case "
                    f"{name!r}, and {parameter.declaration} has {BYTES[parameter.dtype]}: convert the result"
                )
        return found

    def verified(self, case: Case, actual: tuple[Any, ...]) -> tuple[bool, dict[str, Any]]:
        """What `verify_result` says of the outputs of a solution. Raises BadSetting for anything but its pair."""
        expected = case.outputs if len(case.outputs) > 1 else case.outputs[0]
        given = actual if len(actual) > 1 else actual[0]
        found = called(self, "verify_result", expected, given, case=case.name)
        try:
            right, details = found
            return bool(right), dict(details or {})
        except (TypeError, ValueError) as error:
            raise BadSetting(
                f"{self.name}: verify_result returned {found!r:.60} in case {case.name!r}: return whether it is "
                "right, and a dict of details"
            ) from error

    def work(self, case: Case) -> dict[str, Any]:
        """The work of a case, by the names of a Measurement: operations, elements of the inputs, and bytes."""
        arrays = [(n in case.written, value) for n, value in enumerate(case.arguments) if is_array(value)]
        sizes = [sum(nbytes(value) for written, value in arrays if written == which) for which in (False, True)]
        stated = called(self, "get_bytes", case.words, case=case.name)
        flops = called(self, "get_flops", case.words, case=case.name)
        read, written = sizes if stated is None else stated
        elements = sum(nbytes(value) // value.itemsize for value in case.inputs if is_array(value))
        return {
            "flops": None if flops is None else int(flops),
            "elements": elements,
            "bytes_read": int(read),
            "bytes_written": int(written),
        }


def _is_case(words: Any) -> bool:
    return isinstance(words, Mapping) and isinstance(words.get("name"), str) and callable(words.get("create_inputs"))


def called(problem: Problem, method: str, *arguments: Any, case: str = "", of: Callable[..., Any] | None = None) -> Any:
    """What a method of a problem gives. One that takes a dtype, as Tensara's first ones did, gets PyTorch's. Raises
    BadSetting, with the place, for its errors.
    """
    function = of or getattr(problem, method)
    try:
        if of is None and "dtype" in inspect.signature(function).parameters:
            return function(*arguments, dtype=getattr(import_module("torch"), problem.dtype or problem.first))
        return function(*arguments)
    except NotImplementedError as error:
        raise BadSetting(f"{problem.name} has no {method}: define it") from error
    except WorklogError:
        raise
    except Exception as error:
        frames, own = traceback.extract_tb(error.__traceback__), inspect.getsourcefile(type(problem))
        where = next((frame for frame in reversed(frames) if frame.filename == own), frames[-1])
        at = f" in case {case!r}" if case else ""
        first = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise BadSetting(
            f"{problem.name}: {method} raised {first}{at} ({Path(where.filename).name}:{where.lineno}): correct it"
        ) from error


def ctype_of(parameter: Parameter) -> Any:
    """How ctypes passes a parameter."""
    if parameter.pointer:
        return ctypes.c_void_p
    if parameter.dtype in ("float16", "bfloat16"):
        raise BadSetting(f"{parameter.declaration}: a number of this type can't be passed: pass a float")
    return np.ctypeslib.as_ctypes_type(np.dtype(parameter.dtype))


def _of_ctypes(problem: Problem) -> tuple[Parameter, ...]:
    """The parameters from a problem's own get_function_signature. ctypes doesn't name them."""
    if type(problem).get_function_signature is Problem.get_function_signature:
        raise BadSetting(f"{problem.name} states no parameters: give a list such as {PARAMETER}")
    found = []
    for number, kind in enumerate(called(problem, "get_function_signature")["argtypes"]):
        pointer = hasattr(kind, "contents")
        element = kind._type_ if pointer else kind
        dtype = np.dtype(element).name
        name = NAMES[dtype][0]
        found.append(Parameter(f"p{number}", name, dtype, pointer))
    return tuple(found)


PARAMETER = '{"name": "x", "type": "float", "pointer": True, "const": True}'
