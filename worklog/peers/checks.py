"""What other harnesses do to an SGEMM before they believe it: which of them would have passed a wrong kernel, and which
refuse a right one.

Kept from each are the distribution of its inputs, what C holds before, alpha and beta, the kind of size (multiples of
a power of two, where that is all it asks) and the comparison (worklog.peers.rules); left out is whatever looks at
the clock or at the host program. Each asks one round, where KernelBench asks five and SOL-ExecBench ten: what a round
more would find is a matter of luck. The reference is FP64, where most of them compute it in FP32, which is kinder to a
right kernel than they are. Where a harness leaves its inputs open (the article's) or draws them in a shorter format
(kernelbot's matmul), they are those of its nearest FP32 problem. A, B and C have room behind them, as an allocator's
blocks do: whoever reads or writes a little too far meets no fault. Memory before them is not looked at by any.
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
    """One launch that a peer makes, with its answer. product: alpha A B + beta C in FP64."""

    shape: Shape
    a: Float32
    b: Float32
    old: Float32
    alpha: float
    beta: float
    product: Float64


@dataclass(frozen=True)
class Peer:
    """A harness. mark: two letters for a narrow column. words: its comparison. live: the sizes that it asks of a GPU;
    small: of the same kind, for the emulator. old: what C holds before: "zeros", "old values" of the allocator's, or
    "inputs" like A and B. scalars: its alpha and beta. reference_after: the reference is computed from A and B as the
    subject left them.
    """

    name: str
    mark: str
    words: str
    rule: Rule
    inputs: Inputs
    live: tuple[Shape, ...]
    small: tuple[Shape, ...]
    old: str = "old values"
    scalars: tuple[tuple[float, float], ...] = ((1.0, 0.0),)
    reference_after: bool = False

    def questions(self, source: str, seed: int) -> list[Question]:
        """What it asks of a "live" or an "emulated" machine, made once for all subjects."""
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
    """None where the peer takes the subject for right, else why it does not. device: one that reports no more than a
    GPU does. Raises LaunchFailed where the device is lost.
    """
    for asked in questions:
        if asked.shape not in subject.domain:
            return f"asks {asked.shape}, which is outside the kernel's domain ({subject.domain})"
        try:
            c, expected = _answer(peer, asked, subject, device)
        except LaunchFailed as error:
            device.synchronize()  # where a fault has ended the context this fails again, and is no peer's word
            return f"the launch failed: {str(error).splitlines()[0]}"
        with np.errstate(invalid="ignore", over="ignore"):  # a wrong C may hold anything
            if not peer.rule(c, expected):
                return f"at {asked.shape} its comparison fails: {peer.words}"
    return None


def _answer(peer: Peer, asked: Question, subject: Subject, device: Device) -> tuple[Float32, Expected]:
    """One launch. Raises LaunchFailed."""
    widest = max(asked.shape.n, asked.shape.k)
    on_a, on_b, on_c = (device.upload(_with_room(m, widest)) for m in (asked.a, asked.b, asked.old))
    subject.enqueue(asked.shape, asked.alpha, on_a, on_b, asked.beta, on_c)
    device.synchronize()
    left = device.download(on_c)
    size = asked.old.size
    product = asked.product
    if peer.reference_after:
        a, b = (device.download(on)[: m.size].reshape(m.shape) for on, m in ((on_a, asked.a), (on_b, asked.b)))
        if not (np.array_equal(a, asked.a) and np.array_equal(b, asked.b)):
            product = _gemm(a, b, asked.old, asked.alpha, asked.beta)
    behind = bool((left[size:] == BEHIND).all())
    inputs = asked.a, asked.b, asked.old
    return left[:size].reshape(asked.old.shape), Expected(product, inputs, asked.alpha, asked.beta, behind)


def _with_room(matrix: Float32, widest: int) -> Float32:
    """The elements, and behind them as many as a wrong leading dimension reaches, and some more: on a GPU, an address
    that belongs to nobody ends the process.
    """
    held = np.full(matrix.shape[0] * widest + ROOM, BEHIND, np.float32)
    held[: matrix.size] = matrix.ravel()
    return held


def _gemm(a: Float32, b: Float32, old: Float32, alpha: float, beta: float) -> Float64:
    product: Float64 = alpha * (a.astype(np.float64) @ b.astype(np.float64))
    return product + beta * old if beta else product


def _squares(*sizes: int) -> tuple[Shape, ...]:
    return tuple(Shape(size, size, size) for size in sizes)


DEEP = (Shape(160, 160, 1024),)  # what is left of 4096 x 4096 x 4096 on the emulator: whole tiles, a long sum
TINY = tuple(Shape(*sizes) for sizes in ((1, 2, 3), (2, 1, 5), (3, 9, 1), (5, 3, 9), (9, 5, 2), (9, 9, 9)))
OPINFO = Shape(5, 5, 10), Shape(10, 10, 5)  # PyTorch's samples for matmul: S = 5, M = 10
SEVEN, THIRTEEN = float(np.float32(0.7)), float(np.float32(1.3))
PEERS = (
    Peer(
        "Vizuara", "VZ", "max|error| / max|reference| < 1e-2", rules.largest_share, random_inputs, _squares(4096), DEEP
    ),
    Peer("KernelBench v0", "K0", "allclose 1e-2, 1e-2", rules.loose, zero_to_one, _squares(4096), DEEP),
    Peer("KernelBench", "KB", "allclose 1e-4, 1e-4", rules.tighter, zero_to_one, _squares(4096), DEEP),
    Peer("kernelbot", "PP", "allclose 1e-5, 1e-8", rules.numpys_default, normal, _squares(1024), DEEP),
    Peer(
        "Tensara",
        "TE",
        "allclose 2e-4, 5e-3",
        rules.absolute_floor,
        random_inputs,
        (Shape(4096, 8192, 4096),),
        (Shape(160, 320, 640),),
        old="zeros",
    ),
    Peer("SOL-ExecBench", "SO", "1e-2, 1e-2 for 99 %", rules.most_of_them, normal, _squares(2048), DEEP, old="zeros"),
    Peer(
        "flashinfer-bench",
        "FI",
        "absolute or relative 1e-2",
        rules.either,
        normal,
        (Shape(1024, 4096, 4096),),
        DEEP,
    ),
    Peer(
        "robust-kbench",
        "RK",
        "allclose 1e-5, 1e-5, reference computed afterwards",
        rules.after_the_subject,
        normal,
        _squares(1024),
        DEEP,
        reference_after=True,
    ),
    Peer("BackendBench", "BB", "assert_close 1e-2, 1e-2, NaN = NaN", rules.equal_nan, normal, OPINFO, OPINFO),
    Peer(
        "TritonBench",
        "TB",
        "allclose 0.5, 1e-5",
        rules.half_of_it,
        scaled_normal,
        (Shape(4096, 1024, 1024), Shape(1024, 4096, 1024)),
        (Shape(320, 160, 160), Shape(160, 320, 160)),
    ),
    Peer(
        "SGEMM_CUDA",
        "SB",
        "not |error| > 0.01",
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
        rules.exact_up_to_2047,
        bits,
        (Shape(1024, 1024, 4096), Shape(512, 512, 8192)),
        DEEP,
        old="zeros",
    ),
    Peer(
        "netlib",
        "NL",
        "|error| < 16 eps (|A||B| + |C|)",
        rules.in_eps_of_its_terms,
        random_inputs,
        TINY,
        TINY,
        old="inputs",
        scalars=((1.0, 0.0), (1.0, 1.0), (SEVEN, THIRTEEN)),
    ),
)
