"""What a problem inherits: the tolerance of its dtype, and parameters as C++."""

from math import inf, nan

import numpy as np
import pytest

from worklog import Problem
from worklog.errors import BadSetting
from worklog.problem import Case


class Loose(Problem):
    parameters = "const unsigned int* x, T *y,size_t n"
    dtypes = {"float16": (0.5, 0.25), "float64": (0.0, 0.0)}  # noqa: RUF012


@pytest.mark.parametrize(
    ("expected", "actual", "right"),
    [
        *((2, 3.25, True), (2, 3.3, False), (-2, -0.75, True), (0, 0.25, True), (0, 0.3, False)),
        *(
            (nan, nan, True),
            (nan, 0, False),
            (0, nan, False),
            (inf, inf, True),
            (inf, 1, False),
            (inf, -inf, False),
        ),
    ],
)
def test_each_element_may_differ_by_the_tolerance(expected, actual, right):
    outputs = (np.array([1, expected]), np.array([1, actual])), (np.array([1, 1]), np.array([1, 1]))
    assert Loose().verify_result(*outputs[0])[0] is right
    assert Loose().verify_result(*zip(*outputs, strict=True))[0] is right, "of several outputs"
    assert (
        Loose().under("float64").verify_result(np.array([2.0]), np.array([2.0 + 1e-15]))[0] is False
    )


def test_the_bytes_of_a_case_are_those_of_its_arrays_unless_the_problem_states_them():
    case = Case(
        "one",
        0,
        (np.zeros(2, np.float64),),
        (np.zeros(3, np.float16),),
        (np.zeros(5, np.int8), 7),
        {},
    )
    counted = {"flops": None, "elements": 2, "bytes_read": 16 + 5, "bytes_written": 6}
    assert Loose().work(case) == counted
    stated = type(
        "Stated",
        (Loose,),
        {"get_bytes": lambda self, test_case: (1, 2), "get_flops": lambda self, test_case: 9.0},
    )()
    assert stated.work(case) == counted | {"flops": 9, "bytes_read": 1, "bytes_written": 2}


def test_parameters_are_read_from_cpp():
    declared = [parameter.declaration for parameter in Loose().under("").signature]
    assert declared == ["const unsigned int* x", "__half* y", "size_t n"]
    for wrong in ("float** x", "float", "float x[4]"):
        with pytest.raises(BadSetting, match="give T for the dtype, or one of float"):
            _ = type("Wrong", (Problem,), {"parameters": wrong})().signature
