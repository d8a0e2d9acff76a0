"""Any problem with a reference: what a kernel must compute, on which inputs, how close, and how much work it is.

A problem is a class. Its methods have the names of Tensara's problems (github.com/tensara/problems), so that one of
those becomes a problem of this package when its import says `from worklog import Problem`. Arrays are NumPy's, CuPy's
or PyTorch's: whatever `create_inputs` makes, the reference gets and returns.
"""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from worklog.errors import BadSetting, WorklogError, meant

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
DECLARATION = r"(?P<const>const\b)?\s*(?P<type>\w[\w ]*?)\s*(?P<pointer>\*)?\s*\b(?P<name>\w+)"
OF_DTYPE = ("T", "[VAR]")  # types that stand for the dtype under which the problem is solved
Words = dict[
    str, Any
]  # a test case as the problem states it: its name, create_inputs, and whatever its methods read


def each(values: Any) -> tuple[Any, ...]:
    """Several values as a tuple, or the only one."""
    return tuple(values) if isinstance(values, tuple | list) else (values,)


def is_array(value: Any) -> bool:
    """Whether it is an array of NumPy or CuPy, or a tensor of PyTorch."""
    return all(hasattr(value, name) for name in ("dtype", "shape", "nbytes"))


def dtype_of(value: Any) -> str:
    """The name of an array's elements, such as "float32"."""
    return str(value.dtype).removeprefix("torch.")


def raw(value: Any) -> bytes:
    """The elements of an array in row-major order, as bytes of the host."""
    if hasattr(value, "detach"):  # PyTorch's, whose bfloat16 NumPy doesn't have
        flat = value.detach().contiguous().cpu().reshape(-1)
        return bytes(flat.view(sys.modules["torch"].uint8).numpy().data) if flat.numel() else b""
    return bytes((value.get() if hasattr(value, "get") else np.asarray(value)).tobytes())


def rebuilt(like: Any, data: bytes) -> Any:
    """An array of the same kind, shape and place from its bytes."""
    if hasattr(like, "detach"):
        torch = sys.modules["torch"]
        flat = (
            torch.frombuffer(bytearray(data), dtype=like.dtype)
            if data
            else torch.empty(0, dtype=like.dtype)
        )
        return flat.reshape(like.shape).to(like.device)
    host = np.frombuffer(data, str(like.dtype)).reshape(like.shape)
    return type(like)(host) if hasattr(like, "get") else host


def values_of(value: Any) -> NDArray[np.float64]:
    """The elements in float64, as a NumPy array of the same shape."""
    if hasattr(value, "detach"):
        value = value.detach().double().cpu().numpy()
    host: NDArray[np.float64] = np.asarray(value.get() if hasattr(value, "get") else value).astype(
        np.float64
    )
    return host


def excess(expected: Any, actual: Any, tolerance: tuple[float, float]) -> NDArray[np.float64]:
    """Each element's error over the tolerance (relative, absolute): at most 1 where right, infinite for NaN."""
    right = values_of(expected)
    values = values_of(actual)
    (relative, absolute) = tolerance
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        excess = np.abs(values - right) / (absolute + relative * np.abs(right))
    excess[~np.isfinite(excess) | ~np.isfinite(right)] = np.inf
    excess[(values == right) | (np.isnan(values) & np.isnan(right))] = 0.0
    return excess


@dataclass(frozen=True)
class Parameter:
    """One parameter of a solution. type: C++. dtype: of its elements or value. const: it is only read."""

    name: str
    type: str
    dtype: str
    pointer: bool
    const: bool = False

    @property
    def declaration(self) -> str:
        """C++, as in "const float* input"."""
        if not self.pointer:
            return f"{self.type} {self.name}"
        element, bracket, lengths = self.type.partition("[")
        name = (
            f" (*{self.name})[{lengths}" if bracket else f"* {self.name}"
        )  # of an array, or what it points to
        return f"{'const ' if self.const else ''}{element}{name}"

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return 2 if self.dtype == "bfloat16" else np.dtype(self.dtype).itemsize


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
            parameters = "const float* x, float* y, int n"

            def reference_solution(self, x):
                return 2 * x

            def generate_test_cases(self):
                return [self.case(str(n), lambda rng, n=n: rng.random(n, np.float32), n=n) for n in (1, 1000)]

            def get_extra_params(self, test_case):
                return [test_case["n"]]

    name: default, the class's. parameters: of a solution, in the order inputs, outputs, extra parameters; the type
    "T" stands for the dtype. As C++, or as Tensara's list of mappings. dtypes: those that it can be solved under, the
    first by default, with the relative and the absolute tolerance of `verify_result`. is_exact: whether repeated
    launches must give the same bits. Mistakes in a problem raise BadSetting where it is used.
    """

    name: str = ""
    parameters: ClassVar[str | Sequence[Mapping[str, Any]]] = ""
    dtypes: ClassVar[Mapping[str, tuple[float, float]]] = {"float32": (1e-4, 1e-6)}
    is_exact: bool = False
    dtype: str = "float32"

    def __init__(self, name: str = "") -> None:
        self.name = name or self.name or type(self).__name__
        self.dtype = next(iter(self.dtypes), "")

    def reference_solution(self, *inputs: Any) -> Any:
        """The right result, an array or a tuple of arrays, from what a case's `create_inputs` made."""
        raise NotImplementedError

    def baseline(self, *inputs: Any) -> Any:
        """What a solution is timed beside, on arrays of the GPU; by default, the reference. It returns the result."""
        return self.reference_solution(*inputs)

    def generate_test_cases(self) -> list[Words]:
        """The cases that are checked and timed, made by `case`: each gives the same inputs each time."""
        raise NotImplementedError

    def generate_sample(self) -> Words | list[Words]:
        """Small cases, which are checked and not timed: on the emulator too, where large ones take too long."""
        return []

    def verify_result(
        self, expected_output: Any, actual_output: Any
    ) -> tuple[bool, dict[str, Any]]:
        """Whether an output, an array or a tuple of them, is right, and details if it is wrong. By default, each may
        differ by the dtype's tolerance: |actual - expected| <= absolute + relative * |expected|.
        """
        worst = 0.0
        for expected, actual in zip(each(expected_output), each(actual_output), strict=True):
            worst = max(worst, float(np.max(excess(expected, actual, self.tolerance), initial=0.0)))
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
        """The parameters as `argtypes` of ctypes, from a problem that states no `parameters`."""
        raise mistake(
            self,
            "there are no parameters",
            'give them in C++, as "const float* x, float* y, int n"',
        )

    @staticmethod
    def get_seed(text: str) -> int:
        """A seed from a case's name: the same one everywhere."""
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])

    def case(self, name: str, inputs: Callable[[np.random.Generator], Any], **words: Any) -> Words:
        """A test case. inputs: makes one array or a tuple from a seeded generator. words: for the other methods."""
        seed = self.get_seed(f"{self.name} {name}")
        return {
            "name": name,
            "seed": seed,
            **words,
            "create_inputs": lambda: inputs(np.random.default_rng(seed)),
        }

    @property
    def device(self) -> str:
        """Where PyTorch's tensors of a case are made: "cuda" where there is a GPU, else "cpu"."""
        torch = sys.modules.get("torch")
        return "cuda" if torch is not None and torch.cuda.is_available() else "cpu"

    def param_dtype(self, which: int | str) -> Any:
        """PyTorch's dtype of a parameter, by its place or name."""
        places = {parameter.name: parameter for parameter in self.signature}
        parameter = self.signature[which] if isinstance(which, int) else places[which]
        return getattr(import_module("torch"), parameter.dtype)

    def under(self, dtype: str) -> Problem:
        """The same problem under one of its dtypes; "" for the first. Raises BadSetting."""
        if not self.dtypes or not set(self.dtypes) <= set(NAMES):
            advice = f"give {{'float32': (1e-4, 1e-6)}}, of {', '.join(NAMES)}"
            raise mistake(self, f"dtypes is {self.dtypes!r:.80}", advice)
        if dtype and dtype not in self.dtypes:
            said = f"there is no dtype {dtype!r}{meant(dtype, self.dtypes)}"
            raise mistake(self, said, f"choose from {', '.join(self.dtypes)}")
        same = copy(self)
        same.dtype = dtype or next(iter(self.dtypes))
        return same

    @property
    def tolerance(self) -> tuple[float, float]:
        """Relative and absolute, of the dtype."""
        return self.dtypes[self.dtype]

    @property
    def signature(self) -> tuple[Parameter, ...]:
        """The parameters of a solution. Raises BadSetting for a type that isn't known."""
        stated: Any = self.parameters
        parameters = []
        if isinstance(stated, str) and stated:
            read = [(text, re.fullmatch(DECLARATION, text.strip())) for text in stated.split(",")]
            stated = [match.groupdict() if match else {"name": text} for text, match in read]
        if not stated:  # ctypes doesn't name parameters
            for number, ctype in enumerate(called(self, "get_function_signature")["argtypes"]):
                pointer = hasattr(ctype, "contents")
                dtype = np.dtype(ctype._type_ if pointer else ctype).name
                parameters.append(Parameter(f"p{number}", NAMES[dtype][0], dtype, pointer))
        for words in stated:
            name = str(words.get("name"))
            given = str(words.get("type", "")).strip()
            kind = NAMES[self.dtype][0] if given in OF_DTYPE else given
            if kind not in TYPES:
                advice = f"give T for the dtype, or one of {', '.join(TYPES)}"
                raise mistake(
                    self, f"parameter {name!r} has type {given!r}{meant(given, TYPES)}", advice
                )
            pointer = bool(words.get("pointer"))
            const = bool(words.get("const"))
            parameters.append(Parameter(name, kind, TYPES[kind], pointer, const))
        return tuple(parameters)

    @cached_property
    def tests(self) -> tuple[list[Words], list[Words]]:
        """Samples and test cases, without their data. Raises BadSetting."""
        names = set[str]()
        made = list[list[Any]]()
        for method in ("generate_sample", "generate_test_cases"):
            listed = called(self, method)
            made.append([*listed] if isinstance(listed, Sequence) else [listed])
            for words in made[-1]:
                if not isinstance(words, Mapping) or not {"name", "create_inputs"} <= words.keys():
                    raise mistake(
                        self,
                        f"{method} gives {listed!r:.60}",
                        'return [{"name": …, "create_inputs": …}]',
                    )
                if words["name"] in names:
                    raise mistake(self, f"two cases have the name {words['name']!r}", "rename one")
                names.add(words["name"])
        if not names:
            raise mistake(self, "there is no test case", "return one from generate_test_cases")
        return made[0], made[1]

    def prepared(self, words: Words) -> Case:
        """A case with its inputs, the reference's result, and the extra parameters. Raises BadSetting."""
        name = words["name"]
        seed = words.get("seed")
        seed = self.get_seed(f"{self.name} {name}") if seed is None else int(seed)
        if (torch := sys.modules.get("torch")) is not None:
            torch.manual_seed(seed)  # for inputs that are drawn without a generator
        inputs = each(called(self, "create_inputs", of=words["create_inputs"], case=name))
        outputs = each(called(self, "reference_solution", *inputs, case=name))
        extras = tuple(called(self, "get_extra_params", words, case=name) or ())
        case = Case(name, seed, inputs, outputs, extras, words)
        declared = self.signature
        if not outputs or not all(map(is_array, outputs)):
            kinds = ", ".join(type(output).__name__ for output in outputs)
            raise mistake(self, f"reference_solution returned {kinds}", "return an array", name)
        if len(declared) != len(case.arguments):
            counts = (
                f"{len(inputs)} inputs, {len(outputs)} outputs and {len(extras)} extra parameters"
            )
            raise mistake(
                self,
                f"{counts} are given, and {len(declared)} parameters declared",
                "declare each",
                name,
            )
        for number, (parameter, value) in enumerate(zip(declared, case.arguments, strict=True)):
            if parameter.pointer != is_array(value):
                want = "an array" if parameter.pointer else "a number"
                raise mistake(
                    self, f"{parameter.name} is {type(value).__name__}", f"give {want}", name
                )
            if number in case.written and value.itemsize != parameter.itemsize:
                has = f"the reference's {parameter.name} has elements of {value.itemsize} bytes"
                said = f"{has}, and {parameter.declaration} has {parameter.itemsize},"
                raise mistake(self, said, "convert the result", name)
        return case

    def verified(self, case: Case, actual: tuple[Any, ...]) -> tuple[bool, dict[str, Any]]:
        """What `verify_result` says of the outputs of a solution. Raises BadSetting for anything but its pair."""
        pair = [outputs if len(outputs) > 1 else outputs[0] for outputs in (case.outputs, actual)]
        verdict = called(self, "verify_result", *pair, case=case.name)
        try:
            right, details = verdict
            return bool(right), dict(details or {})
        except (TypeError, ValueError) as error:
            advice = "return whether it is right, and a dict of details"
            raise mistake(
                self, f"verify_result returned {verdict!r:.60}", advice, case.name
            ) from error

    def work(self, case: Case) -> dict[str, Any]:
        """The work of a case, by the names of a Measurement: operations, elements of the inputs, and bytes."""
        inputs, extras = (list(filter(is_array, values)) for values in (case.inputs, case.extras))
        flops = called(self, "get_flops", case.words, case=case.name)
        moved = called(self, "get_bytes", case.words, case=case.name)
        in_all = (
            sum(array.nbytes for array in arrays) for arrays in (inputs + extras, case.outputs)
        )
        read, written = moved or in_all
        elements = sum(value.nbytes // value.itemsize for value in inputs)
        flops = None if flops is None else int(flops)
        return {
            "flops": flops,
            "elements": elements,
            "bytes_read": int(read),
            "bytes_written": int(written),
        }


def called(
    problem: Problem,
    method: str,
    *arguments: Any,
    case: str = "",
    of: Callable[..., Any] | None = None,
) -> Any:
    """What a method of a problem gives. Raises BadSetting, with the place, for its errors."""
    function = of or getattr(problem, method)
    try:
        if of is None and "dtype" in inspect.signature(function).parameters:
            return function(*arguments, dtype=getattr(import_module("torch"), problem.dtype))
        return function(*arguments)
    except NotImplementedError as error:
        raise mistake(problem, f"there is no {method}", "define it") from error
    except WorklogError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = inspect.getsourcefile(type(problem))
        where = next((frame for frame in reversed(frames) if frame.filename == own), frames[-1])
        first = f"{type(error).__name__}: {error}".partition("\n")[0]
        place = f"{Path(where.filename).name}:{where.lineno}"
        raise mistake(problem, f"{method} raised {first} ({place})", "correct it", case) from error


def mistake(problem: Problem, said: str, advice: str, case: str = "") -> BadSetting:
    """The error of a mistake in a problem, in one line."""
    return BadSetting(f"{problem.name}: {said}{f' in case {case!r}' if case else ''}: {advice}")


def ctype_of(parameter: Parameter) -> Any:
    """How ctypes passes a parameter."""
    if parameter.pointer:
        return ctypes.c_void_p
    if parameter.dtype in ("float16", "bfloat16"):
        raise BadSetting(
            f"{parameter.declaration}: a number of this type can't be passed: pass a float"
        )
    return np.ctypeslib.as_ctypes_type(np.dtype(parameter.dtype))
