"""The gate of any problem, on arrays of the host.

What a solution may write, and what a lax verify_result misses.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.gate.numpy_device import NumpyDevice
from worklog.errors import BadSetting
from worklog.gate import Checker, check_cases
from worklog.kernel.device import Runnable
from worklog.kernel.solution import Passed
from worklog.problem import Problem, Words
from worklog.runs import Verdict

Write = Callable[[Any, Any, int], None]  # gets the memory around x and y, and where they start


class Doubled(Problem):
    parameters: ClassVar = [
        {"name": "x", "type": "T", "pointer": True, "const": True},
        {"name": "y", "type": "T", "pointer": True, "const": False},
        {"name": "n", "type": "int", "pointer": False},
    ]
    dtypes: ClassVar = {"float32": (0, 0), "float16": (0, 0)}

    def reference_solution(self, x: Any) -> Any:
        return 2 * x

    def generate_test_cases(self) -> list[Words]:
        return [self.case("odd", lambda rng: rng.integers(1, 9, 5).astype(self.dtype), n=5)]

    def get_extra_params(self, test_case: Words) -> list[Any]:
        return [test_case["n"]]


class Lax(Doubled):
    def verify_result(
        self, expected_output: Any, actual_output: Any
    ) -> tuple[bool, dict[str, Any]]:
        return bool(expected_output[0] == actual_output[0]), {}


class RaisesOnGarbage(Doubled):
    def verify_result(
        self, expected_output: Any, actual_output: Any
    ) -> tuple[bool, dict[str, Any]]:
        if actual_output.max() > 100:
            raise ValueError("that is no result")
        return super().verify_result(expected_output, actual_output)


class Halves(Doubled):
    parameters: ClassVar = [
        *Doubled.parameters[:2],
        {**Doubled.parameters[1], "name": "z"},
        Doubled.parameters[2],
    ]

    def reference_solution(self, x: Any) -> Any:
        return 2 * x, x / 2


class Subject(Runnable):
    def __init__(self, device: NumpyDevice, dtype: str, write: Write) -> None:
        self.device = device
        self.dtype = dtype
        self.write = write

    def enqueue(self, *arguments: Passed) -> None:
        self.device.synchronize()  # what was enqueued before
        x, y, *_, n = arguments
        words = [one.buffer.memory[one.buffer.start - 1 :].view(self.dtype) for one in (x, y)]
        self.write(*words, 4 // np.dtype(self.dtype).itemsize)
        assert n.value == 5


def right(x: Any, y: Any, at: int) -> None:
    y[at : at + 5] = 2 * x[at : at + 5]


def verdict(write: Write, problem: Problem) -> Verdict:
    def both(x: Any, y: Any, at: int) -> None:
        right(x, y, at)
        write(x, y, at)

    device = NumpyDevice()
    return check_cases(
        Subject(device, problem.dtype, both), problem, problem.tests[1], device, seed=1
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("array", "offset", "said"),
    [
        (None, 0, None),
        ("y", -1, "it wrote outside y"),
        ("y", 5, "it wrote outside y"),
        ("x", -1, "it wrote outside x"),
        ("x", 0, "it changed its input x"),
    ],
)
def test_a_solution_writes_its_outputs_and_nothing_else(array, offset, said, dtype):
    def zero(x: Any, y: Any, at: int) -> None:
        if array is not None:
            {"x": x, "y": y}[array][at + offset] = 0

    found = verdict(zero, Doubled().under(dtype))
    assert found.accepted is (said is None) and (found.precision == dtype) is found.accepted
    assert said is None or said in str(found.reason)


def test_what_was_never_written_fails_although_verify_result_passes():
    def only_the_first(x: Any, y: Any, at: int) -> None:
        y[at + 1 : at + 5] = y[at - 1]  # what the guard holds: the sentinel

    assert verdict(lambda x, y, at: None, Lax().under("")).accepted
    assert "These elements were never written" in str(
        verdict(only_the_first, Lax().under("")).reason
    )


def test_the_map_is_of_the_first_output_that_is_wrong():
    found = verdict(lambda x, y, at: None, Halves().under("float32"))
    assert found.where is not None and found.where.shape == (1, 5)
    assert "the output was never written" in str(found.reason)


def test_three_numbers_of_verify_results_details_are_shown():
    details = {"first": 1, "why": "text", "second": np.float32(2.5), "third": 3.0, "fourth": 4}
    compare = {
        "verify_result": lambda self, expected, actual: (bool((expected == actual).all()), details)
    }
    posed = type("Detailed", (Doubled,), compare)().under("float32")
    assert str(verdict(lambda x, y, at: y.__setitem__(at, 7), posed).reason).endswith(
        "; first 1, second 2.5, third 3"
    )


def test_a_verify_result_that_raises_on_garbage_is_sound_and_one_that_passes_it_is_not():
    posed = RaisesOnGarbage().under("float32")
    assert verdict(lambda x, y, at: None, posed).accepted
    said = str(verdict(lambda x, y, at: y.__setitem__(at, 1e6), posed).reason)
    assert "verify_result raised ValueError: that is no result" in said
    blind = type(
        "Blind", (Doubled,), {"verify_result": lambda self, expected, actual: (True, {})}
    )().under("float32")
    with pytest.raises(BadSetting, match="it checks nothing"):
        Checker(NumpyDevice(), blind, blind.prepared(blind.tests[1][0]), 0)
