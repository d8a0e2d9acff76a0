"""How other harnesses check an SGEMM: which of them would pass a wrong kernel, and which fail a right one.

Kept from each harness are the distribution of its inputs, the old contents of C, alpha and beta, the kind of size
(multiples of a power of two, where it uses no others) and the comparison (worklog.peers.rules). Left out is what
inspects the clock or the host program. Each makes one round, where KernelBench makes five and SOL-ExecBench ten: what
further rounds find is chance. The reference is FP64, where most compute it in FP32; that is kinder to a right kernel.
Where a harness leaves its inputs open (the article's) or draws them in a shorter format (kernelbot's matmul), they are
those of its nearest FP32 problem. A, B and C have room behind them, as an allocator's blocks do, so a kernel that reads
or writes slightly out of bounds meets no fault. No harness looks at the memory before them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from worklog.errors import LaunchFailed
from worklog.kernel.device import Device, Subject
from worklog.peers import rules
from worklog.peers.rules import Expected, Rule
from worklog.problem.gemm import Float32, Float64, Shape, random_inputs

ROOM, BEHIND = 16384, np.float32(7)  # elements behind each matrix, at least, and what they hold
Inputs = Callable[[Shape, np.random.Generator], tuple[Float32, Float32]]
DEEP = (Shape(160, 160, 1024),)  # for 4096 x 4096 x 4096 on the emulator: whole tiles, a long sum


def zero_to_one(shape: Shape, rng: np.random.Generator) -> tuple[Float32, Float32]:
    """U(0, 1): torch.rand."""
    return rng.random((shape.m, shape.k), dtype=np.float32), rng.random((shape.k, shape.n), dtype=np.float32)


def normal(shape: Shape, rng: np.random.Generator) -> tuple[Float32, Float32]:
    """N(0, 1): torch.randn."""
    draw = rng.standard_normal
    return draw((shape.m, shape.k), dtype=np.float32), draw((shape.k, shape.n), dtype=np.float32)


def scaled_normal(shape: Shape, rng: np.random.Generator) -> tuple[Float32, Float32]:
    """N(0, 1) over the root of K."""
    a, b = normal(shape, rng)
    return a / np.float32(np.sqrt(shape.k)), b


def bits(shape: Shape, rng: np.random.Generator) -> tuple[Float32, Float32]:
    """0 or 1."""
    sides = (shape.m, shape.k), (shape.k, shape.n)
    a, b = (rng.integers(0, 2, side, dtype=np.int8).astype(np.float32) for side in sides)
    return a, b


def hundredths(shape: Shape, rng: np.random.Generator) -> tuple[Float32, Float32]:
    """±(0 ... 4 + 0.01 (0 ... 4)), SGEMM_CUDA's grid of 50 values."""

    def draw(rows: int, columns: int) -> Float32:
        size = rows, columns
        value = rng.integers(0, 5, size) + 0.01 * rng.integers(0, 5, size)
        signed: Float32 = (value * rng.choice([-1, 1], size)).astype(np.float32)
        return signed

    return draw(shape.m, shape.k), draw(shape.k, shape.n)


@dataclass(frozen=True)
class Question:
    """One launch that a peer makes, with the right result. product: alpha A B + beta C in FP64."""

    shape: Shape
    a: Float32
    b: Float32
    old: Float32
    alpha: float
    beta: float
    product: Float64


@dataclass(frozen=True)
class Peer:
    """A harness. mark: two letters for a narrow column. words: its comparison; source: where that was read. live: its
    sizes on a GPU; small: similar ones for the emulator. old: what C holds before: "zeros", "old values" of the
    allocator's, or "inputs" like A and B. scalars: its alpha and beta. reference_after: the reference is computed from
    A and B as the kernel left them.
    """

    name: str
    mark: str
    words: str
    source: str
    rule: Rule
    inputs: Inputs
    live: tuple[Shape, ...]
    small: tuple[Shape, ...] = DEEP
    old: str = "old values"
    scalars: tuple[tuple[float, float], ...] = ((1.0, 0.0),)
    reference_after: bool = False

    def questions(self, source: str, seed: int) -> list[Question]:
        """Its launches on a "live" or an "emulated" device, made once for all kernels."""
        rng = np.random.default_rng([seed, *self.mark.encode()])
        shapes = self.live if source == "live" else self.small
        return [self._question(shape, *scalars, rng) for shape in shapes for scalars in self.scalars]

    def _question(self, shape: Shape, alpha: float, beta: float, rng: np.random.Generator) -> Question:
        a, b = self.inputs(shape, rng)
        if self.old == "inputs":
            old = self.inputs(Shape(shape.m, 1, shape.n), rng)[0]
        else:
            scale = 0 if self.old == "zeros" else 1000
            old = (scale * rng.standard_normal((shape.m, shape.n))).astype(np.float32)
        return Question(shape, a, b, old, alpha, beta, _gemm(a, b, old, alpha, beta))


def passes(peer: Peer, questions: Sequence[Question], subject: Subject, device: Device) -> str | None:
    """None if the peer passes the kernel, else why it fails. device: one that reports no more than a GPU does. Raises
    LaunchFailed where the device is lost.
    """
    for question in questions:
        if question.shape not in subject.domain:
            return f"uses {question.shape}, which is outside the kernel's domain ({subject.domain})"
        try:
            c, expected = _answer(peer, question, subject, device)
        except LaunchFailed as error:
            device.synchronize()  # fails again if a fault has ended the context, which is not the peer's verdict
            return f"the launch failed: {str(error).splitlines()[0]}"
        with np.errstate(invalid="ignore", over="ignore"):  # a wrong C may hold anything
            if not peer.rule(c, expected):
                return f"at {question.shape} its comparison fails: {peer.words}"
    return None


def _answer(peer: Peer, question: Question, subject: Subject, device: Device) -> tuple[Float32, Expected]:
    """One launch. Raises LaunchFailed."""
    widest = max(question.shape.n, question.shape.k)
    on_a, on_b, on_c = (device.upload(_with_room(m, widest)) for m in (question.a, question.b, question.old))
    subject.enqueue(question.shape, question.alpha, on_a, on_b, question.beta, on_c)
    device.synchronize()
    left = device.download(on_c)
    size = question.old.size
    product = question.product
    if peer.reference_after:
        a, b = (device.download(on)[: m.size].reshape(m.shape) for on, m in ((on_a, question.a), (on_b, question.b)))
        if not (np.array_equal(a, question.a) and np.array_equal(b, question.b)):
            product = _gemm(a, b, question.old, question.alpha, question.beta)
    behind = bool((left[size:] == BEHIND).all())
    inputs = question.a, question.b, question.old
    return left[:size].reshape(question.old.shape), Expected(product, inputs, question.alpha, question.beta, behind)


def _with_room(matrix: Float32, widest: int) -> Float32:
    """The elements, and behind them more than a wrong leading dimension reaches: on a GPU, an unmapped address ends the
    process.
    """
    held = np.full(matrix.shape[0] * widest + ROOM, BEHIND, np.float32)
    held[: matrix.size] = matrix.ravel()
    return held


def _gemm(a: Float32, b: Float32, old: Float32, alpha: float, beta: float) -> Float64:
    product: Float64 = alpha * (a.astype(np.float64) @ b.astype(np.float64))
    return product + beta * old if beta else product


def _squares(*sizes: int) -> tuple[Shape, ...]:
    return tuple(Shape(size, size, size) for size in sizes)


TINY = tuple(Shape(*sizes) for sizes in ((1, 2, 3), (2, 1, 5), (3, 9, 1), (5, 3, 9), (9, 5, 2), (9, 9, 9)))
OPINFO = Shape(5, 5, 10), Shape(10, 10, 5)  # PyTorch's samples for matmul: S = 5, M = 10
SEVEN, THIRTEEN = float(np.float32(0.7)), float(np.float32(1.3))
# Repositories, commits and files as of November 2026.
PEERS = (
    Peer(
        "Vizuara",
        "VZ",
        "max|error| / max|reference| < 1e-2",
        "the article",
        rules.largest_share,
        random_inputs,
        _squares(4096),
    ),
    Peer(
        "KernelBench v0",
        "K0",
        "allclose 1e-2, 1e-2",
        "KernelBench v0 and v0.1, src/eval.py",
        rules.close(1e-2, 1e-2),
        zero_to_one,
        _squares(4096),
    ),
    Peer(
        "KernelBench",
        "KB",
        "allclose 1e-4, 1e-4",
        "KernelBench 423217d, src/kernelbench/eval.py, for FP32",
        rules.close(1e-4, 1e-4),
        zero_to_one,
        _squares(4096),
    ),
    Peer(
        "kernelbot",
        "PP",
        "allclose 1e-5, 1e-8",
        "gpu-mode/reference-kernels f83cb92, problems/*/utils.py, unless a problem sets its own",
        rules.close(1e-5, 1e-8),
        normal,
        _squares(1024),
    ),
    Peer(
        "Tensara",
        "TE",
        "allclose 2e-4, 5e-3",
        "tensara fae9661, engine, its matrix-multiplication in FP32",
        rules.close(2e-4, 5e-3),
        random_inputs,
        (Shape(4096, 8192, 4096),),
        (Shape(160, 320, 640),),
        old="zeros",
    ),
    Peer(
        "SOL-ExecBench",
        "SO",
        "1e-2, 1e-2 for 99 %",
        "NVIDIA/SOL-ExecBench 8d2237d",
        rules.most_of_them,
        normal,
        _squares(2048),
        old="zeros",
    ),
    Peer(
        "flashinfer-bench",
        "FI",
        "absolute or relative 1e-2",
        "flashinfer-ai/flashinfer-bench 40e6ca7, bench/evaluators/default.py",
        rules.either,
        normal,
        (Shape(1024, 4096, 4096),),
    ),
    Peer(
        "robust-kbench",
        "RK",
        "allclose 1e-5, 1e-5, reference computed afterwards",
        "SakanaAI/robust-kbench 078f5ba",
        rules.close(1e-5, 1e-5),
        normal,
        _squares(1024),
        reference_after=True,
    ),
    Peer(
        "BackendBench",
        "BB",
        "assert_close 1e-2, 1e-2, NaN = NaN",
        "meta-pytorch/BackendBench 66e0dbc",
        rules.equal_nan,
        normal,
        OPINFO,
        OPINFO,
    ),
    Peer(
        "TritonBench",
        "TB",
        "allclose 0.5, 1e-5",
        "meta-pytorch/tritonbench 0efdc53, the gemm operator (later versions: 1e-3 in FP32)",
        rules.close(0.5, 1e-5),
        scaled_normal,
        (Shape(4096, 1024, 1024), Shape(1024, 4096, 1024)),
        (Shape(320, 160, 160), Shape(160, 320, 160)),
    ),
    Peer(
        "SGEMM_CUDA",
        "SB",
        "not |error| > 0.01",
        "siboehm/SGEMM_CUDA 60cba6f, src/runner.cu",
        rules.no_difference_above,
        hundredths,
        _squares(128, 1024, 2048),
        _squares(128, 256),
        old="inputs",
        scalars=((0.5, 3.0),),
    ),
    Peer(
        "sgemm.cu",
        "SK",
        "|error| / |reference| <= 1e-4",
        "salykova/sgemm.cu a94d769, common/helper_matrix.h",
        rules.relative,
        zero_to_one,
        _squares(2, 3, 17, 64, 127, 255, 513, 1000, 1024),
        _squares(2, 3, 17, 64, 127, 160),
        old="inputs",
        scalars=((1.5, 0.5),),
    ),
    Peer(
        "CUDA-L2",
        "DR",
        "equal on zeros and ones",
        "deepreinforce-ai/CUDA-L2 dbe0177, zero_one_correctness_check.py",
        rules.exact_up_to_2047,
        bits,
        (Shape(1024, 1024, 4096), Shape(512, 512, 8192)),
        old="zeros",
    ),
    Peer(
        "netlib",
        "NL",
        "|error| < 16 eps (|A||B| + |C|)",
        "netlib BLAS tester (Dongarra et al. 1990), SMMCH",
        rules.in_eps_of_its_terms,
        random_inputs,
        TINY,
        TINY,
        old="inputs",
        scalars=((1.0, 0.0), (1.0, 1.0), (SEVEN, THIRTEEN)),
    ),
)
