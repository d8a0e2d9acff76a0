"""The stage for a vector that a kernel adds to each row or each column of the product.

Elsewhere the gate passes zeros. A kernel that ignores the vector, adds it along the other
dimension, or multiplies it by alpha is right there.
"""

from __future__ import annotations

import numpy as np

from worklog.errors import LaunchFailed
from worklog.gate import exact
from worklog.gate.edges import OLD_C_ROOM, SPECIAL
from worklog.gate.guarded_buffer import Buffers, GuardedBuffers, Memory
from worklog.kernel import BIAS as OF_COLUMNS
from worklog.kernel import Loaded
from worklog.problem import Shape
from worklog.runs import Stage, failed, passed

BIAS = "bias"


def check_bias(subject: Loaded, memory: Memory) -> Stage:
    """Launch with a bias between guards, and compare C = alpha A B + beta C + bias.

    Raises LaunchFailed.
    """
    kernel = subject.kernel
    rng = memory.rng
    shape = subject.domain.padded(Shape(*SPECIAL, SPECIAL[0]))
    a, b = exact.family("E1", shape, rng, subject.claim, headroom=exact.HEADROOM)
    half = 1 << min(6, exact.sum_bits(subject.claim) - OLD_C_ROOM)
    bias = rng.integers(1, half + 1, kernel.bias_length(shape)).astype(np.float32)
    alpha = 2.0 if subject.domain.alpha else 1.0
    beta = -1.0 if subject.domain.beta else 0.0
    old = rng.integers(-half, half, (shape.m, shape.n)).astype(np.float32)
    format_ = kernel.bias_format
    vector = GuardedBuffers(memory, [("bias", bias), ("C", 4)], formats={"bias": format_})
    subject.use_bias(memory.device.view(vector.arrays[0].inner, 0, bias.size))
    try:
        result = Buffers(memory, a, b).run(subject, alpha, beta, old if beta else None)
    except LaunchFailed as error:
        return failed(BIAS, f"at {shape} with a bias: {error}")
    finally:
        subject.use_bias(None)
    if result.trespass:
        return failed(BIAS, f"at {shape} with a bias: {result.trespass}")
    is_of_columns = kernel.bias == OF_COLUMNS
    added = bias if is_of_columns else bias[:, None]
    product = alpha * (a.astype(np.float64) @ b) + beta * old
    wrong_count = int((result.c != product + added).sum())
    where = "to each row" if is_of_columns else "to each column"
    if not wrong_count:
        return passed(BIAS, f"added {where} at {shape}")
    detail = f"{wrong_count} of {result.c.size} elements are wrong"
    if (result.c == product).all():
        detail += ": the bias isn't added"
    elif (result.c == product + alpha * added).all():
        detail += ": alpha multiplies the bias, too"
    return failed(BIAS, f"at {shape} with a bias of {bias.size}, added {where}: {detail}", wrong_count)
