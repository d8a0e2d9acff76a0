"""How other harnesses check an SGEMM: which of them would pass a wrong kernel, and which fail a right one.

Each peer here has its harness's distribution of inputs, old contents of C, alpha and beta, kind of size (multiples of a
power of two, where it uses no others) and comparison. Checks of the clock and of the host program are left out. Each
makes one round, where KernelBench makes five and SOL-ExecBench ten: what further rounds find is chance. The reference
is FP64, where most compute it in FP32; that is kinder to a right kernel. Where a harness leaves its inputs open (the
article's) or draws them in a shorter format (kernelbot's matmul), they are those of its nearest FP32 problem. A, B and
C have room behind them, as an allocator's blocks do, so a kernel that reads or writes slightly out of bounds causes no
fault. No harness checks the memory before them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from worklog.errors import LaunchFailed
from worklog.kernel import Device, Subject
from worklog.problem import Float32, Float64, Shape

ROOM, BEHIND = 16384, np.float32(7)  # elements behind each matrix, at least, and their value
EPS32 = 2.0**-23
Inputs = Callable[[np.random.Generator, tuple[int, int]], Float32]


# --------------------------------------------------------------------------------------------------- inputs of a matrix


def _uniform(rng: np.random.Generator, size: tuple[int, int]) -> Float32:
    """U(0, 1), as torch.rand."""
    return rng.random(size, dtype=np.float32)


def _signed(rng: np.random.Generator, size: tuple[int, int]) -> Float32:
    """U(-1, 1)."""
    return rng.random(size, dtype=np.float32) * np.float32(2) - np.float32(1)


def _normal(rng: np.random.Generator, size: tuple[int, int]) -> Float32:
    """N(0, 1), as torch.randn."""
    return rng.standard_normal(size, dtype=np.float32)


def _bits(rng: np.random.Generator, size: tuple[int, int]) -> Float32:
    return rng.integers(0, 2, size, dtype=np.int8).astype(np.float32)


def _hundredths(rng: np.random.Generator, size: tuple[int, int]) -> Float32:
    """±(0 ... 4 + 0.01 (0 ... 4)), SGEMM_CUDA's grid of 50 values."""
    value = rng.integers(0, 5, size) + 0.01 * rng.integers(0, 5, size)
    signed: Float32 = (value * rng.choice([-1, 1], size)).astype(np.float32)
    return signed


# --------------------------------------------------------------------------------------------------------- comparisons


@dataclass(frozen=True)
class Case:
    """One launch that a peer makes, and the right result. a, b, old: A, B and C before the launch. product: alpha A B +
    beta C in FP64. behind: whether the launch left the memory behind C unchanged.
    """

    shape: Shape
    a: Float32
    b: Float32
    old: Float32
    alpha: float
    beta: float
    product: Float64
    behind: bool = True


Rule = Callable[[Float32, Case], bool]  # whether a peer accepts C


def _error(c: Float32, case: Case) -> Float64:
    error: Float64 = np.abs(c - case.product)
    return error


def _close(rtol: float, atol: float, *, equal_nan: bool = False) -> Rule:
    """|C - reference| <= atol + rtol |reference| in every element, as torch.allclose."""
    return lambda c, case: np.allclose(c, case.product, rtol, atol, equal_nan)


def _largest_share(c: Float32, case: Case) -> bool:
    return bool(_error(c, case).max() / np.abs(case.product).max() < 1e-2)


def _most(c: Float32, case: Case) -> bool:
    """NaN, infinity and an all-zero C fail."""
    near = np.isclose(c, case.product, rtol=1e-2, atol=1e-2)
    return bool(np.isfinite(c).all() and c.any() and near.mean() >= 0.99)


def _either(c: Float32, case: Case) -> bool:
    return bool((_error(c, case) <= 1e-2 * np.maximum(1.0, np.abs(case.product))).all())


def _no_difference_above(c: Float32, case: Case) -> bool:
    """The comparison is false for NaN, which passes."""
    return not bool((_error(c, case) > 0.01).any())


def _exact_up_to_2047(c: Float32, case: Case) -> bool:
    same = (c == case.product) | (np.abs(case.product) > 2047)
    return case.behind and bool(same.all()) and not bool(np.isnan(c).any())


def _in_eps_of_its_terms(c: Float32, case: Case) -> bool:
    a, b, old = (np.abs(matrix.astype(np.float64)) for matrix in (case.a, case.b, case.old))
    gauge = abs(case.alpha) * (a @ b) + abs(case.beta) * old
    return case.behind and bool((_error(c, case) <= 16 * EPS32 * gauge).all())


# --------------------------------------------------------------------------------------------------------------- peers


DEEP = "160x160x1024"  # for 4096 x 4096 x 4096 on the emulator: whole tiles, a long sum


@dataclass(frozen=True)
class Peer:
    """A harness. mark: two letters for a narrow column. words: its comparison. live: its sizes on a GPU; small: similar
    ones for the emulator. over_root_k: A is divided by the root of K. old: what C holds before the launch: "zeros",
    "old values" of the allocator's, or "inputs" like A and B. scalars: its alpha and beta. reference_after: the
    reference is computed from A and B as the kernel left them.
    """

    name: str
    mark: str
    words: str
    rule: Rule
    inputs: Inputs
    live: str
    small: str = DEEP
    over_root_k: bool = False
    old: str = "old values"
    scalars: tuple[tuple[float, float], ...] = ((1.0, 0.0),)
    reference_after: bool = False

    def cases(self, sizes: str, seed: int) -> list[Case]:
        """Its launches at these sizes, made once for all kernels."""
        rng = np.random.default_rng([seed, *self.mark.encode()])
        return [self._case(Shape.of(size), *scalars, rng) for size in sizes.split() for scalars in self.scalars]

    def _case(self, shape: Shape, alpha: float, beta: float, rng: np.random.Generator) -> Case:
        a, b = self.inputs(rng, (shape.m, shape.k)), self.inputs(rng, (shape.k, shape.n))
        if self.over_root_k:
            a /= np.float32(np.sqrt(shape.k))
        if self.old == "inputs":
            old = self.inputs(rng, (shape.m, shape.n))
        else:
            scale = 0 if self.old == "zeros" else 1000
            old = (scale * rng.standard_normal((shape.m, shape.n))).astype(np.float32)
        return Case(shape, a, b, old, alpha, beta, _gemm(a, b, old, alpha, beta))

    def failure(self, cases: Sequence[Case], subject: Subject, device: Device) -> str | None:
        """Why the peer fails the kernel; None if it passes. device: one that reports no more than a GPU does. Raises
        LaunchFailed where the device is lost.
        """
        for case in cases:
            if case.shape not in subject.domain:
                return f"uses {case.shape}, which is outside the kernel's domain ({subject.domain})"
            try:
                c, found = self._launched(case, subject, device)
            except LaunchFailed as error:
                device.synchronize()  # fails again if a fault has ended the context, which is not the peer's verdict
                return f"the launch failed: {str(error).splitlines()[0]}"
            with np.errstate(invalid="ignore", over="ignore"):  # a wrong C may hold anything
                if not self.rule(c, found):
                    return f"at {case.shape} its comparison fails: {self.words}"
        return None

    def _launched(self, case: Case, subject: Subject, device: Device) -> tuple[Float32, Case]:
        """C after one launch, and what it is compared with. Raises LaunchFailed."""
        widest = max(case.shape.n, case.shape.k)
        on_a, on_b, on_c = (device.upload(_with_room(matrix, widest)) for matrix in (case.a, case.b, case.old))
        subject.enqueue(case.shape, case.alpha, on_a, on_b, case.beta, on_c)
        device.synchronize()
        left, size = device.download(on_c), case.old.size
        product = case.product
        if self.reference_after:
            a, b = (device.download(on)[: m.size].reshape(m.shape) for on, m in ((on_a, case.a), (on_b, case.b)))
            if not (np.array_equal(a, case.a) and np.array_equal(b, case.b)):
                product = _gemm(a, b, case.old, case.alpha, case.beta)
        behind = bool((left[size:] == BEHIND).all())
        return left[:size].reshape(case.old.shape), replace(case, product=product, behind=behind)


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


OPINFO = "5x5x10 10x10x5"  # PyTorch's samples for matmul: S = 5, M = 10
TINY = "1x2x3 2x1x5 3x9x1 5x3x9 9x5x2 9x9x9"
SEVEN, THIRTEEN = float(np.float32(0.7)), float(np.float32(1.3))
# Above each: where its comparison was read. Repositories, commits and files as of November 2026.
PEERS = (
    # The article.
    Peer("Vizuara", "VZ", "max|error| / max|reference| < 1e-2", _largest_share, _signed, "4096"),
    # KernelBench v0 and v0.1, src/eval.py.
    Peer("KernelBench v0", "K0", "allclose 1e-2, 1e-2", _close(1e-2, 1e-2), _uniform, "4096"),
    # KernelBench 423217d, src/kernelbench/eval.py, for FP32.
    Peer("KernelBench", "KB", "allclose 1e-4, 1e-4", _close(1e-4, 1e-4), _uniform, "4096"),
    # gpu-mode/reference-kernels f83cb92, problems/*/utils.py, unless a problem sets its own.
    Peer("kernelbot", "PP", "allclose 1e-5, 1e-8", _close(1e-5, 1e-8), _normal, "1024"),
    # tensara fae9661, engine, its matrix-multiplication in FP32.
    Peer("Tensara", "TE", "allclose 2e-4, 5e-3", _close(2e-4, 5e-3), _signed, "4096x8192x4096", "160x320x640",
         old="zeros"),
    # NVIDIA/SOL-ExecBench 8d2237d.
    Peer("SOL-ExecBench", "SO", "1e-2, 1e-2 for 99 %", _most, _normal, "2048", old="zeros"),
    # flashinfer-ai/flashinfer-bench 40e6ca7, bench/evaluators/default.py.
    Peer("flashinfer-bench", "FI", "absolute or relative 1e-2", _either, _normal, "1024x4096x4096"),
    # SakanaAI/robust-kbench 078f5ba.
    Peer("robust-kbench", "RK", "allclose 1e-5, 1e-5, reference computed afterwards", _close(1e-5, 1e-5), _normal,
         "1024", reference_after=True),
    # meta-pytorch/BackendBench 66e0dbc.
    Peer("BackendBench", "BB", "assert_close 1e-2, 1e-2, NaN = NaN", _close(1e-2, 1e-2, equal_nan=True), _normal,
         OPINFO, OPINFO),
    # meta-pytorch/tritonbench 0efdc53, the gemm operator (later versions: 1e-3 in FP32).
    Peer("TritonBench", "TB", "allclose 0.5, 1e-5", _close(0.5, 1e-5), _normal, "4096x1024x1024 1024x4096x1024",
         "320x160x160 160x320x160", over_root_k=True),
    # siboehm/SGEMM_CUDA 60cba6f, src/runner.cu.
    Peer("SGEMM_CUDA", "SB", "not |error| > 0.01", _no_difference_above, _hundredths, "128 1024 2048", "128 256",
         old="inputs", scalars=((0.5, 3.0),)),
    # salykova/sgemm.cu a94d769, common/helper_matrix.h.
    Peer("sgemm.cu", "SK", "|error| / |reference| <= 1e-4", _close(1e-4, 0.0), _uniform,
         "2 3 17 64 127 255 513 1000 1024", "2 3 17 64 127 160", old="inputs", scalars=((1.5, 0.5),)),
    # deepreinforce-ai/CUDA-L2 dbe0177, zero_one_correctness_check.py.
    Peer("CUDA-L2", "DR", "equal on zeros and ones", _exact_up_to_2047, _bits, "1024x1024x4096 512x512x8192",
         old="zeros"),
    # netlib BLAS tester (Dongarra et al. 1990), SMMCH.
    Peer("netlib", "NL", "|error| < 16 eps (|A||B| + |C|)", _in_eps_of_its_terms, _signed, TINY, TINY, old="inputs",
         scalars=((1.0, 0.0), (1.0, 1.0), (SEVEN, THIRTEEN))),
)  # fmt: skip
