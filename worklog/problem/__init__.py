"""Problems with references (SGEMM and softmax among them), their points, and axes."""

from worklog.problem.axes import (
    DRAWN,
    MOST_VALUES,
    Axis,
    Configuration,
    Space,
    Value,
    drawn,
    spoken,
)
from worklog.problem.gemm import (
    CLASSES,
    FLOAT_BYTES,
    PROBLEMS,
    SGEMM,
    Domain,
    Float32,
    Float64,
    Matrix,
    PrecisionClass,
    Shape,
    Size,
    Sizes,
    random_inputs,
    sampled_reference,
    tflops,
)
from worklog.problem.point import CASE, Point
from worklog.problem.problem import (
    TYPES,
    Case,
    Parameter,
    Problem,
    Words,
    called,
    ctype_of,
    dtype_of,
    each,
    excess,
    is_array,
    mistake,
    raw,
    rebuilt,
    values_of,
)

__all__ = [
    "CASE", "CLASSES", "DRAWN", "FLOAT_BYTES", "MOST_VALUES", "PROBLEMS", "SGEMM", "TYPES",
    "Axis", "Case", "Configuration", "Domain", "Float32", "Float64", "Matrix", "Parameter",
    "Point", "PrecisionClass", "Problem", "Shape", "Size", "Sizes", "Space", "Value", "Words",
    "called", "ctype_of", "drawn", "dtype_of", "each", "excess", "is_array", "mistake",
    "random_inputs", "raw", "rebuilt", "sampled_reference", "spoken", "tflops", "values_of",
]  # fmt: skip
