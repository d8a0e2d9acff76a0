"""Problems with references (SGEMM and softmax among them), and their points.

Further faces of the room: arrays, axes, drawn_shapes and workloads.
"""

from worklog.problem.axes import Axis
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
from worklog.problem.parameter import TYPES, Parameter, ctype_of
from worklog.problem.point import BATCH_AXIS, CASE, Point
from worklog.problem.problem import Case, Problem, Words, called, mistake

__all__ = [
    "BATCH_AXIS",
    "CASE",
    "CLASSES",
    "FLOAT_BYTES",
    "PROBLEMS",
    "SGEMM",
    "TYPES",
    "Axis",
    "Case",
    "Domain",
    "Float32",
    "Float64",
    "Matrix",
    "Parameter",
    "Point",
    "PrecisionClass",
    "Problem",
    "Shape",
    "Size",
    "Sizes",
    "Words",
    "called",
    "ctype_of",
    "mistake",
    "random_inputs",
    "sampled_reference",
    "tflops",
]
