"""How other harnesses check an SGEMM kernel.

They show which harnesses pass a wrong kernel, and which fail a right one. Each peer here has its
harness's distribution of inputs, old contents of C, alpha and beta, kind of size (multiples of a
power of two, if it uses no others) and comparison. Checks of the clock and of the host program are
left out. Each makes one round, although KernelBench makes five and SOL-ExecBench ten: what further
rounds find is chance. The reference is FP64, although most compute it in FP32: that is kinder to a
right kernel. If a harness leaves its inputs open (the article's) or draws them in a shorter format
(kernelbot's matmul), the inputs are those of its nearest FP32 problem. A, B and C have room behind
them, as an allocator's blocks do, so a kernel that reads or writes slightly out of bounds causes no
fault. No harness checks the memory before them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from worklog.errors import LaunchFailed
from worklog.kernel import Device, Runnable
from worklog.kernel.emulated import EmulatedFault
from worklog.problem import Float32, Float64, Shape

ROOM = 16384  # least number of elements behind each matrix
BEHIND = np.float32(7)  # their value
EPS32 = 2.0**-23


def _fifty_values(rng: np.random.Generator, size: tuple[int, int]) -> Float32:
    """Return ±(0 ... 4 + 0.01 (0 ... 4)), SGEMM_CUDA's grid."""
    magnitudes = rng.integers(0, 5, size) + 0.01 * rng.integers(0, 5, size)
    values: Float32 = (magnitudes * rng.choice([-1, 1], size)).astype(np.float32)
    return values


INPUTS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Float32]] = {
    "U(0, 1)": lambda rng, size: rng.random(size, np.float32),  # torch.rand
    "U(-1, 1)": lambda rng, size: 2 * rng.random(size, np.float32) - 1,
    "N(0, 1)": lambda rng, size: rng.standard_normal(size, np.float32),  # torch.randn
    "0 or 1": lambda rng, size: rng.integers(0, 2, size, np.int8).astype(np.float32),
    "50 values": _fifty_values,
}


@dataclass(frozen=True)
class ReplayedLaunch:
    """A launch that a peer makes, and the right result."""

    shape: Shape
    a: Float32
    b: Float32
    old: Float32  # C before the launch
    alpha: float
    beta: float
    product: Float64  # alpha A B + beta C in FP64
    is_intact: bool = True  # the launch left the memory behind C unchanged

    def error(self, c: Float32) -> Float64:
        """Return |C - reference|."""
        error: Float64 = np.abs(c - self.product)
        return error


Rule = Callable[[Float32, ReplayedLaunch], Any]  # whether a peer accepts C, as a truth value


def _close(rtol: float, atol: float, *, equal_nan: bool = False) -> Rule:
    """Accept |C - reference| <= atol + rtol |reference| in every element, as torch.allclose."""
    return lambda c, case: np.allclose(c, case.product, rtol, atol, equal_nan)


def _ninety_nine_percent(c: Float32, case: ReplayedLaunch) -> Any:
    """Accept 99 % of the elements within 1e-2. NaN, infinity and an all-zero C fail."""
    is_close = np.isclose(c, case.product, rtol=1e-2, atol=1e-2)
    return np.isfinite(c).all() and c.any() and is_close.mean() >= 0.99


def _exact_up_to_2047(c: Float32, case: ReplayedLaunch) -> Any:
    """Accept elements that are equal, or whose reference is above 2047. NaN fails."""
    if not case.is_intact or np.isnan(c).any():
        return False
    return ((c == case.product) | (np.abs(case.product) > 2047)).all()


def _in_eps_of_its_terms(c: Float32, case: ReplayedLaunch) -> Any:
    """Accept an error of at most 16 eps times the sum of the terms' magnitudes."""
    if not case.is_intact:
        return False
    a, b, old = (np.abs(matrix.astype(np.float64)) for matrix in (case.a, case.b, case.old))
    gauge = abs(case.alpha) * (a @ b) + abs(case.beta) * old
    return (case.error(c) <= 16 * EPS32 * gauge).all()


DEEP = "160x160x1024"  # for 4096 x 4096 x 4096 on the emulator: whole tiles, a long sum


@dataclass(frozen=True)
class Peer:
    """A harness's check of a kernel."""

    name: str
    mark: str  # two letters for a narrow column
    comparison: str  # its rule as a text
    rule: Rule
    inputs: str  # a key of INPUTS
    live: str  # its sizes on a GPU
    small: str = DEEP  # similar sizes for the emulator
    over_root_k: bool = False  # A is divided by the root of K
    # C before the launch: "zeros", "old values" of the allocator's, or "inputs" like A and B.
    old: str = "old values"
    scalars: tuple[tuple[float, float], ...] = ((1.0, 0.0),)  # alpha and beta
    reference_after: bool = False  # the reference is computed from A and B as the kernel left them

    def cases(self, sizes: str, seed: int) -> list[ReplayedLaunch]:
        """Return the peer's launches at these sizes, for all kernels."""
        rng = np.random.default_rng([seed, *self.mark.encode()])
        draw = INPUTS[self.inputs]
        cases = []
        for shape in map(Shape.of, sizes.split()):
            for alpha, beta in self.scalars:
                a = draw(rng, (shape.m, shape.k))
                b = draw(rng, (shape.k, shape.n))
                if self.over_root_k:
                    a /= np.float32(np.sqrt(shape.k))
                old = self._old(rng, (shape.m, shape.n))
                product = _gemm(a, b, old, alpha=alpha, beta=beta)
                cases.append(ReplayedLaunch(shape, a, b, old, alpha, beta, product))
        return cases

    def _old(self, rng: np.random.Generator, size: tuple[int, int]) -> Float32:
        """Return C before the launch."""
        if self.old == "inputs":
            return INPUTS[self.inputs](rng, size)
        if self.old == "zeros":
            return np.zeros(size, np.float32)
        return (1000 * rng.standard_normal(size)).astype(np.float32)

    def failure(
        self, cases: Sequence[ReplayedLaunch], subject: Runnable, device: Device
    ) -> str | None:
        """Return the reason why the peer fails the kernel; None if it passes.

        Raises LaunchFailed if the device is lost.
        """
        for case in cases:
            if case.shape not in subject.domain:
                return f"uses {case.shape}, which is outside the kernel's domain ({subject.domain})"
            try:
                c, launched = self._launch(case, subject, device)
            except LaunchFailed as error:
                # fails again if a fault has ended the context, which isn't the peer's verdict
                device.synchronize()
                return f"the launch failed: {str(error).splitlines()[0]}"
            with np.errstate(invalid="ignore", over="ignore"):  # a wrong C may have any values
                if not self.rule(c, launched):
                    return f"at {case.shape} its comparison fails: {self.comparison}"
        return None

    def _launch(
        self, case: ReplayedLaunch, subject: Runnable, device: Device
    ) -> tuple[Float32, ReplayedLaunch]:
        """Launch once, and return C and the case to compare it with. Raises LaunchFailed."""
        buffers = []
        for matrix in (case.a, case.b, case.old):
            # More room than a wrong leading dimension reaches: on a GPU, an unmapped address ends
            # the process.
            room = np.full(len(matrix) * max(case.shape.n, case.shape.k) + ROOM, BEHIND, np.float32)
            room[: matrix.size] = matrix.ravel()
            buffers.append(device.upload(room))
        subject.enqueue(case.shape, case.alpha, buffers[0], buffers[1], case.beta, buffers[2])
        # A GPU reports none of the emulator's findings: peers compare only C.
        with suppress(EmulatedFault):
            device.synchronize()
        c = device.download(buffers[2])
        if self.reference_after:
            a = device.download(buffers[0])[: case.a.size].reshape(case.a.shape)
            b = device.download(buffers[1])[: case.b.size].reshape(case.b.shape)
            if not (np.array_equal(a, case.a) and np.array_equal(b, case.b)):
                case = replace(
                    case, product=_gemm(a, b, case.old, alpha=case.alpha, beta=case.beta)
                )
        is_intact = bool((c[case.old.size :] == BEHIND).all())
        return c[: case.old.size].reshape(case.old.shape), replace(case, is_intact=is_intact)


def _gemm(a: Float32, b: Float32, old: Float32, *, alpha: float, beta: float) -> Float64:
    """Return alpha A B + beta C in FP64. With beta 0, C isn't read."""
    product: Float64 = alpha * (a.astype(np.float64) @ b.astype(np.float64))
    return product + beta * old if beta else product


OPINFO = "5x5x10 10x10x5"  # PyTorch's samples for matmul: S = 5, M = 10
TINY = "1x2x3 2x1x5 3x9x1 5x3x9 9x5x2 9x9x9"
SEVEN = float(np.float32(0.7))
THIRTEEN = float(np.float32(1.3))
# Above each peer: the source of its comparison. Repositories, commits and files as of November
# 2026.
PEERS = (
    # The article.
    Peer(
        "Vizuara",
        "VZ",
        "max|error| / max|reference| < 1e-2",
        lambda c, case: case.error(c).max() / np.abs(case.product).max() < 1e-2,
        "U(-1, 1)",
        "4096",
    ),
    # KernelBench v0 and v0.1, src/eval.py.
    Peer("KernelBench v0", "K0", "allclose 1e-2, 1e-2", _close(1e-2, 1e-2), "U(0, 1)", "4096"),
    # KernelBench 423217d, src/kernelbench/eval.py, for FP32.
    Peer("KernelBench", "KB", "allclose 1e-4, 1e-4", _close(1e-4, 1e-4), "U(0, 1)", "4096"),
    # gpu-mode/reference-kernels f83cb92, problems/*/utils.py, unless a problem sets its own.
    Peer("kernelbot", "PP", "allclose 1e-5, 1e-8", _close(1e-5, 1e-8), "N(0, 1)", "1024"),
    # tensara fae9661, engine, its matrix-multiplication in FP32.
    Peer(
        "Tensara",
        "TE",
        "allclose 2e-4, 5e-3",
        _close(2e-4, 5e-3),
        "U(-1, 1)",
        "4096x8192x4096",
        "160x320x640",
        old="zeros",
    ),
    # NVIDIA/SOL-ExecBench 8d2237d.
    Peer(
        "SOL-ExecBench",
        "SO",
        "1e-2, 1e-2 for 99 %",
        _ninety_nine_percent,
        "N(0, 1)",
        "2048",
        old="zeros",
    ),
    # flashinfer-ai/flashinfer-bench 40e6ca7, bench/evaluators/default.py.
    Peer(
        "flashinfer-bench",
        "FI",
        "absolute or relative 1e-2",
        lambda c, case: (case.error(c) <= 1e-2 * np.maximum(1.0, np.abs(case.product))).all(),
        "N(0, 1)",
        "1024x4096x4096",
    ),
    # SakanaAI/robust-kbench 078f5ba.
    Peer(
        "robust-kbench",
        "RK",
        "allclose 1e-5, 1e-5, reference computed afterwards",
        _close(1e-5, 1e-5),
        "N(0, 1)",
        "1024",
        reference_after=True,
    ),
    # meta-pytorch/BackendBench 66e0dbc.
    Peer(
        "BackendBench",
        "BB",
        "assert_close 1e-2, 1e-2, NaN = NaN",
        _close(1e-2, 1e-2, equal_nan=True),
        "N(0, 1)",
        OPINFO,
        OPINFO,
    ),
    # meta-pytorch/tritonbench 0efdc53, the gemm operator (later versions: 1e-3 in FP32).
    Peer(
        "TritonBench",
        "TB",
        "allclose 0.5, 1e-5",
        _close(0.5, 1e-5),
        "N(0, 1)",
        "4096x1024x1024 1024x4096x1024",
        "320x160x160 160x320x160",
        over_root_k=True,
    ),
    # siboehm/SGEMM_CUDA 60cba6f, src/runner.cu.
    Peer(
        "SGEMM_CUDA",
        "SB",
        "not |error| > 0.01",
        lambda c, case: not (case.error(c) > 0.01).any(),  # which passes NaN
        "50 values",
        "128 1024 2048",
        "128 256",
        old="inputs",
        scalars=((0.5, 3.0),),
    ),
    # salykova/sgemm.cu a94d769, common/helper_matrix.h.
    Peer(
        "sgemm.cu",
        "SK",
        "|error| / |reference| <= 1e-4",
        _close(1e-4, 0.0),
        "U(0, 1)",
        "2 3 17 64 127 255 513 1000 1024",
        "2 3 17 64 127 160",
        old="inputs",
        scalars=((1.5, 0.5),),
    ),
    # deepreinforce-ai/CUDA-L2 dbe0177, zero_one_correctness_check.py.
    Peer(
        "CUDA-L2",
        "DR",
        "equal on zeros and ones",
        _exact_up_to_2047,
        "0 or 1",
        "1024x1024x4096 512x512x8192",
        old="zeros",
    ),
    # netlib BLAS tester (Dongarra et al. 1990), SMMCH.
    Peer(
        "netlib",
        "NL",
        "|error| < 16 eps (|A||B| + |C|)",
        _in_eps_of_its_terms,
        "U(-1, 1)",
        TINY,
        TINY,
        old="inputs",
        scalars=((1.0, 0.0), (1.0, 1.0), (SEVEN, THIRTEEN)),
    ),
)
