"""Problems: a reference for a kernel, with inputs, tolerances and the amount of work.

A problem is a class. Its methods have the names of the methods of Tensara's problems
(github.com/tensara/problems): a problem of Tensara becomes a problem of this package if its import
is changed to `from worklog import Problem`. Arrays are NumPy's, CuPy's or PyTorch's. The reference
gets the arrays that `create_inputs` makes, and returns arrays of the same library.
"""

from __future__ import annotations

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

from worklog.errors import BadSetting, WorklogError, meant
from worklog.problem.arrays import each, excess, is_array
from worklog.problem.parameter import NAMES, TYPES, Parameter

DECLARATION = r"(?P<const>const\b)?\s*(?P<type>\w[\w ]*?)\s*(?P<pointer>\*)?\s*\b(?P<name>\w+)"
OF_DTYPE = ("T", "[VAR]")  # types that stand for the dtype under which the problem is solved
# A test case as the problem states it: its name, create_inputs, and values for its other methods.
Words = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A test case with its data."""

    name: str
    seed: int
    inputs: tuple[Any, ...]  # of the reference
    outputs: tuple[Any, ...]  # of the reference
    extras: tuple[Any, ...]  # parameters of a solution that the reference doesn't get
    words: Words  # the case as the problem states it

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of a solution, in order: inputs, outputs, extras."""
        return (*self.inputs, *self.outputs, *self.extras)

    @property
    def written(self) -> range:
        """The positions of the outputs among the arguments."""
        return range(len(self.inputs), len(self.inputs) + len(self.outputs))


class Problem:
    """A computation that a kernel must do.

    Derive a class, and state at least a reference, test cases and parameters:

        class Doubled(worklog.Problem):
            parameters = "const float* x, float* y, int n"

            def reference_solution(self, x):
                return 2 * x

            def generate_test_cases(self):
                return [self.case(str(n), lambda rng, n=n: rng.random(n, np.float32), n=n) for n in
                (1, 1000)]

            def get_extra_params(self, test_case):
                return [test_case["n"]]

    name: by default, the class's
    parameters: of a solution, in the order inputs, outputs, extra parameters; as C++, or as
        Tensara's list of mappings. The type "T" stands for the dtype.
    dtypes: the dtypes that the problem can be solved under, the first by default, with the
        relative and the absolute tolerance of `verify_result`
    is_exact: whether repeated launches must give the same bits
    Mistakes in a problem raise BadSetting when the problem is used.
    """

    name: str = ""
    parameters: ClassVar[str | Sequence[Mapping[str, Any]]] = ""
    dtypes: ClassVar[Mapping[str, tuple[float, float]]] = {"float32": (1e-4, 1e-6)}
    is_exact: bool = False
    dtype: str = "float32"

    def __init__(self, name: str = "") -> None:
        if name:
            self.name = name
        elif not self.name:
            self.name = type(self).__name__
        self.dtype = next(iter(self.dtypes), "")

    def reference_solution(self, *inputs: Any) -> Any:
        """Return the right result, an array or a tuple of arrays.

        inputs: the result of a case's `create_inputs`
        """
        raise NotImplementedError

    def baseline(self, *inputs: Any) -> Any:
        """Return the result of the code that solutions are timed against.

        By default, this is the reference.
        inputs: on the GPU
        """
        return self.reference_solution(*inputs)

    def generate_test_cases(self) -> list[Words]:
        """Return the cases that are checked and timed, made by `case`.

        A case must make the same inputs each time.
        """
        raise NotImplementedError

    def generate_sample(self) -> Words | list[Words]:
        """Return small cases, which are checked and not timed.

        They are also checked on the emulator, where large cases take too long.
        """
        return []

    def verify_result(
        self, expected_output: Any, actual_output: Any
    ) -> tuple[bool, dict[str, Any]]:
        """Return whether an output is right, and details if it is wrong.

        By default, each element may differ by the dtype's tolerance:
        |actual - expected| <= absolute + relative * |expected|.
        expected_output, actual_output: an array or a tuple of arrays
        """
        worst = 0.0
        for expected, actual in zip(each(expected_output), each(actual_output), strict=True):
            worst = max(worst, float(np.max(excess(expected, actual, self.tolerance), initial=0.0)))
        return worst <= 1, {"error over tolerance": worst}

    def get_flops(self, test_case: Words) -> int | None:
        """Return the floating-point operations of a case; None if a count isn't useful."""
        return None

    def get_bytes(self, test_case: Words) -> tuple[int, int] | None:
        """Return the bytes that a solution must at least read and write.

        By default, each array is moved once.
        """
        return None

    def get_extra_params(self, test_case: Words) -> list[Any]:
        """Return a solution's parameters that the reference doesn't get.

        For example: sizes.
        """
        return []

    def get_function_signature(self) -> Mapping[str, Any]:
        """Return the parameters as `argtypes` of ctypes.

        They are used for a problem without `parameters`.
        """
        raise mistake(
            self,
            "there are no parameters",
            'give them in C++, as "const float* x, float* y, int n"',
        )

    @staticmethod
    def get_seed(text: str) -> int:
        """Return a seed that depends only on a text, such as a case's name."""
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])

    def case(self, name: str, inputs: Callable[[np.random.Generator], Any], **values: Any) -> Words:
        """Return a test case.

        inputs: makes an array or a tuple of arrays from a seeded generator
        values: for the problem's other methods
        """
        seed = self.get_seed(f"{self.name} {name}")
        return {
            "name": name,
            "seed": seed,
            **values,
            "create_inputs": lambda: inputs(np.random.default_rng(seed)),
        }

    @property
    def device(self) -> str:
        """The device for PyTorch's tensors: "cuda" if there is a GPU, else "cpu"."""
        torch = sys.modules.get("torch")
        return "cuda" if torch is not None and torch.cuda.is_available() else "cpu"

    def param_dtype(self, which: int | str) -> Any:
        """Return PyTorch's dtype of a parameter. which: its position or its name."""
        by_name = {parameter.name: parameter for parameter in self.signature}
        parameter = self.signature[which] if isinstance(which, int) else by_name[which]
        return getattr(import_module("torch"), parameter.dtype)

    def under(self, dtype: str) -> Problem:
        """Return the problem under one of its dtypes; "" for the first.

        Raises BadSetting for a dtype that the problem doesn't list, and for invalid `dtypes`.
        """
        if not self.dtypes or not set(self.dtypes) <= set(NAMES):
            advice = f"give {{'float32': (1e-4, 1e-6)}}, of {', '.join(NAMES)}"
            raise mistake(self, f"dtypes is {self.dtypes!r:.80}", advice)
        if dtype and dtype not in self.dtypes:
            fault = f"there is no dtype {dtype!r}{meant(dtype, self.dtypes)}"
            raise mistake(self, fault, f"choose from {', '.join(self.dtypes)}")
        problem = copy(self)
        problem.dtype = dtype or next(iter(self.dtypes))
        return problem

    @property
    def tolerance(self) -> tuple[float, float]:
        """The relative and the absolute tolerance of the dtype."""
        return self.dtypes[self.dtype]

    @property
    def signature(self) -> tuple[Parameter, ...]:
        """The parameters of a solution. Raises BadSetting for an unknown type."""
        declarations = self._declarations()
        if declarations:
            return tuple(map(self._parameter, declarations))
        parameters = []
        for number, ctype in enumerate(called(self, "get_function_signature")["argtypes"]):
            pointer = hasattr(ctype, "contents")
            dtype = np.dtype(ctype._type_ if pointer else ctype).name
            # ctypes doesn't name parameters.
            parameters.append(Parameter(f"p{number}", NAMES[dtype][0], dtype, pointer))
        return tuple(parameters)

    def _declarations(self) -> Sequence[Mapping[str, Any]]:
        """Return the parameters as Tensara's list of mappings."""
        if not isinstance(self.parameters, str):
            return self.parameters
        if not self.parameters:
            return []
        declarations: list[Mapping[str, Any]] = []
        for text in self.parameters.split(","):
            match = re.fullmatch(DECLARATION, text.strip())
            declarations.append(match.groupdict() if match else {"name": text})
        return declarations

    def _parameter(self, declaration: Mapping[str, Any]) -> Parameter:
        """Return a parameter. Raises BadSetting for an unknown type."""
        name = str(declaration.get("name"))
        declared_type = str(declaration.get("type", "")).strip()
        type_name = NAMES[self.dtype][0] if declared_type in OF_DTYPE else declared_type
        if type_name not in TYPES:
            fault = f"parameter {name!r} has type {declared_type!r}{meant(declared_type, TYPES)}"
            raise mistake(self, fault, f"give T for the dtype, or one of {', '.join(TYPES)}")
        pointer = bool(declaration.get("pointer"))
        const = bool(declaration.get("const"))
        return Parameter(name, type_name, TYPES[type_name], pointer, const)

    @cached_property
    def tests(self) -> tuple[list[Words], list[Words]]:
        """The samples and the test cases, without their data.

        Raises BadSetting if there is no test case, and for invalid cases.
        """
        names = set[str]()
        samples = self._test_cases("generate_sample", names)
        test_cases = self._test_cases("generate_test_cases", names)
        if not names:
            raise mistake(self, "there is no test case", "return one from generate_test_cases")
        return samples, test_cases

    def _test_cases(self, method: str, names: set[str]) -> list[Words]:
        """Return the cases that a method lists, and add their names to the known ones.

        Raises BadSetting for anything but a case, and for a name that is known.
        """
        result = called(self, method)
        cases = [*result] if isinstance(result, Sequence) else [result]
        for case in cases:
            if not isinstance(case, Mapping) or not {"name", "create_inputs"} <= case.keys():
                fault = f"{method} gives {result!r:.60}"
                raise mistake(self, fault, 'return [{"name": …, "create_inputs": …}]')
            if case["name"] in names:
                raise mistake(self, f"two cases have the name {case['name']!r}", "rename one")
            names.add(case["name"])
        return cases

    def prepared(self, test_case: Words) -> Case:
        """Return a case with inputs, the reference's result, and extra parameters.

        test_case: from `tests`
        Raises BadSetting if a method fails, and if the arguments don't match the parameters.
        """
        name = test_case["name"]
        seed = test_case.get("seed")
        seed = self.get_seed(f"{self.name} {name}") if seed is None else int(seed)
        if (torch := sys.modules.get("torch")) is not None:
            torch.manual_seed(seed)  # for inputs that are drawn without a generator
        inputs = each(called(self, "create_inputs", of=test_case["create_inputs"], case=name))
        outputs = each(called(self, "reference_solution", *inputs, case=name))
        extras = tuple(called(self, "get_extra_params", test_case, case=name) or ())
        case = Case(name, seed, inputs, outputs, extras, test_case)
        self._require_declared(case)
        return case

    def _require_declared(self, case: Case) -> None:
        """Raise BadSetting unless a case's arguments match the declared parameters."""
        declared = self.signature
        if not case.outputs or not all(map(is_array, case.outputs)):
            kinds = ", ".join(type(output).__name__ for output in case.outputs)
            fault = f"reference_solution returned {kinds}"
            raise mistake(self, fault, "return an array", case.name)
        if len(declared) != len(case.arguments):
            fault = (
                f"{len(case.inputs)} inputs, {len(case.outputs)} outputs and "
                f"{len(case.extras)} extra parameters are given, "
                f"and {len(declared)} parameters declared"
            )
            raise mistake(self, fault, "declare each", case.name)
        for number, (parameter, value) in enumerate(zip(declared, case.arguments, strict=True)):
            if parameter.pointer != is_array(value):
                expected = "an array" if parameter.pointer else "a number"
                fault = f"{parameter.name} is {type(value).__name__}"
                raise mistake(self, fault, f"give {expected}", case.name)
            if number in case.written and value.itemsize != parameter.itemsize:
                fault = (
                    f"the reference's {parameter.name} has elements of {value.itemsize} bytes, "
                    f"and {parameter.declaration} has {parameter.itemsize},"
                )
                raise mistake(self, fault, "convert the result", case.name)

    def verified(self, case: Case, actual: tuple[Any, ...]) -> tuple[bool, dict[str, Any]]:
        """Return the verdict of `verify_result` on a solution's outputs, with details.

        Raises BadSetting if `verify_result` doesn't return such a pair.
        """
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
        """Return the operations, the elements of the inputs, and the bytes of a case.

        The keys are the names of a Measurement's fields.
        """
        inputs = [*filter(is_array, case.inputs)]
        extras = [*filter(is_array, case.extras)]
        flops = called(self, "get_flops", case.words, case=case.name)
        moved = called(self, "get_bytes", case.words, case=case.name)
        if moved:
            bytes_read, bytes_written = moved
        else:
            bytes_read = sum(array.nbytes for array in inputs + extras)
            bytes_written = sum(array.nbytes for array in case.outputs)
        return {
            "flops": None if flops is None else int(flops),
            "elements": sum(array.nbytes // array.itemsize for array in inputs),
            "bytes_read": int(bytes_read),
            "bytes_written": int(bytes_written),
        }


def called(
    problem: Problem,
    method: str,
    *arguments: Any,
    case: str = "",
    of: Callable[..., Any] | None = None,
) -> Any:
    """Return the result of a method of a problem.

    method: its name
    case: the name of the case, for messages
    of: the function, if it isn't the problem's attribute
    Raises BadSetting for any error of the method, with the line that raised.
    """
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
        source = inspect.getsourcefile(type(problem))
        in_source = [frame for frame in frames if frame.filename == source]
        frame = in_source[-1] if in_source else frames[-1]
        first_line = f"{type(error).__name__}: {error}".partition("\n")[0]
        fault = f"{method} raised {first_line} ({Path(frame.filename).name}:{frame.lineno})"
        raise mistake(problem, fault, "correct it", case) from error


def mistake(problem: Problem, fault: str, advice: str, case: str = "") -> BadSetting:
    """Return the error for a mistake in a problem, in one line."""
    place = f" in case {case!r}" if case else ""
    return BadSetting(f"{problem.name}: {fault}{place}: {advice}")
