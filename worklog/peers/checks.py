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
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from worklog.errors import LaunchFailed
from worklog.kernel import Device, Runnable
from worklog.kernel.emulated import EmulatedFault
from worklog.problem import Float32, Float64, Shape

# elements behind each matrix, at least, and their value
ROOM = 16384
BEHIND = np.float32(7)
EPS32 = 2.0**-23
INPUTS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Float32]] = {
    "U(0, 1)": lambda rng, size: rng.random(size, np.float32),  # torch.rand
    "U(-1, 1)": lambda rng, size: 2 * rng.random(size, np.float32) - 1,
    "N(0, 1)": lambda rng, size: rng.standard_normal(size, np.float32),  # torch.randn
    "0 or 1": lambda rng, size: rng.integers(0, 2, size, np.int8).astype(np.float32),
    # ±(0 ... 4 + 0.01 (0 ... 4)), SGEMM_CUDA's grid.
    "50 values": lambda rng, size: (
        (rng.integers(0, 5, size) + 0.01 * rng.integers(0, 5, size)) * rng.choice([-1, 1], size)
    ).astype(np.float32),
}


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

    def error(self, c: Float32) -> Float64:
        """|C - reference|."""
        error: Float64 = np.abs(c - self.product)
        return error


Rule = Callable[[Float32, Case], Any]  # whether a peer accepts C, as a truth value


def _close(rtol: float, atol: float, *, equal_nan: bool = False) -> Rule:
    """|C - reference| <= atol + rtol |reference| in every element, as torch.allclose."""
    return lambda c, case: np.allclose(c, case.product, rtol, atol, equal_nan)


def _most(c: Float32, case: Case) -> Any:
    """NaN, infinity and an all-zero C fail."""
    near = np.isclose(c, case.product, rtol=1e-2, atol=1e-2)
    return np.isfinite(c).all() and c.any() and near.mean() >= 0.99


def _exact_up_to_2047(c: Float32, case: Case) -> Any:
    same = (c == case.product) | (np.abs(case.product) > 2047)
    return case.behind and same.all() and not np.isnan(c).any()


def _in_eps_of_its_terms(c: Float32, case: Case) -> Any:
    a, b, old = (np.abs(matrix.astype(np.float64)) for matrix in (case.a, case.b, case.old))
    gauge = abs(case.alpha) * (a @ b) + abs(case.beta) * old
    return case.behind and (case.error(c) <= 16 * EPS32 * gauge).all()


DEEP = "160x160x1024"  # for 4096 x 4096 x 4096 on the emulator: whole tiles, a long sum


@dataclass(frozen=True)
class Peer:
    """A harness. mark: two letters for a narrow column. words: its comparison. inputs: of INPUTS. live: its sizes on a
    GPU; small: similar ones for the emulator. over_root_k: A is divided by the root of K. old: what C holds before the
    launch: "zeros", "old values" of the allocator's, or "inputs" like A and B. scalars: its alpha and beta.
    reference_after: the reference is computed from A and B as the kernel left them.
    """

    name: str
    mark: str
    words: str
    rule: Rule
    inputs: str
    live: str
    small: str = DEEP
    over_root_k: bool = False
    old: str = "old values"
    scalars: tuple[tuple[float, float], ...] = ((1.0, 0.0),)
    reference_after: bool = False

    def cases(self, sizes: str, seed: int) -> list[Case]:
        """Its launches at these sizes, made once for all kernels."""
        rng = np.random.default_rng([seed, *self.mark.encode()])
        draw = INPUTS[self.inputs]
        cases = []
        for shape in map(Shape.of, sizes.split()):
            for alpha, beta in self.scalars:
                a = draw(rng, (shape.m, shape.k))
                b = draw(rng, (shape.k, shape.n))
                size = (shape.m, shape.n)
                if self.over_root_k:
                    a /= np.float32(np.sqrt(shape.k))
                if self.old == "inputs":
                    old = draw(rng, size)
                elif self.old == "zeros":
                    old = np.zeros(size, np.float32)
                else:
                    old = (1000 * rng.standard_normal(size)).astype(np.float32)
                cases.append(Case(shape, a, b, old, alpha, beta, _gemm(a, b, old, alpha, beta)))
        return cases

    def failure(self, cases: Sequence[Case], subject: Runnable, device: Device) -> str | None:
        """Why the peer fails the kernel; None if it passes. Raises LaunchFailed where the device is lost."""
        for case in cases:
            if case.shape not in subject.domain:
                return f"uses {case.shape}, which is outside the kernel's domain ({subject.domain})"
            try:
                c, launched = self._launched(case, subject, device)
            except LaunchFailed as error:
                device.synchronize()  # fails again if a fault has ended the context, which is not the peer's verdict
                return f"the launch failed: {str(error).splitlines()[0]}"
            with np.errstate(invalid="ignore", over="ignore"):  # a wrong C may hold anything
                if not self.rule(c, launched):
                    return f"at {case.shape} its comparison fails: {self.words}"
        return None

    def _launched(self, case: Case, subject: Runnable, device: Device) -> tuple[Float32, Case]:
        """C after one launch, and what it is compared with. Raises LaunchFailed."""
        buffers = []
        for matrix in (case.a, case.b, case.old):
            # More room than a wrong leading dimension reaches: on a GPU, an unmapped address ends the process.
            room = np.full(len(matrix) * max(case.shape.n, case.shape.k) + ROOM, BEHIND, np.float32)
            room[: matrix.size] = matrix.ravel()
            buffers.append(device.upload(room))
        subject.enqueue(case.shape, case.alpha, buffers[0], buffers[1], case.beta, buffers[2])
        with suppress(
            EmulatedFault
        ):  # a GPU reports none of the emulator's findings: peers compare only C
            device.synchronize()
        c = device.download(buffers[2])
        if self.reference_after:
            a = device.download(buffers[0])[: case.a.size].reshape(case.a.shape)
            b = device.download(buffers[1])[: case.b.size].reshape(case.b.shape)
            if not (np.array_equal(a, case.a) and np.array_equal(b, case.b)):
                case = replace(case, product=_gemm(a, b, case.old, case.alpha, case.beta))
        behind = bool((c[case.old.size :] == BEHIND).all())
        return c[: case.old.size].reshape(case.old.shape), replace(case, behind=behind)


def _gemm(a: Float32, b: Float32, old: Float32, alpha: float, beta: float) -> Float64:
    product: Float64 = alpha * (a.astype(np.float64) @ b.astype(np.float64))
    return product + beta * old if beta else product


OPINFO = "5x5x10 10x10x5"  # PyTorch's samples for matmul: S = 5, M = 10
TINY = "1x2x3 2x1x5 3x9x1 5x3x9 9x5x2 9x9x9"
SEVEN = float(np.float32(0.7))
THIRTEEN = float(np.float32(1.3))
# Above each: where its comparison was read. Repositories, commits and files as of November 2026.
PEERS = (
    # The article.
    Peer("Vizuara", "VZ", "max|error| / max|reference| < 1e-2",
         lambda c, case: case.error(c).max() / np.abs(case.product).max() < 1e-2, "U(-1, 1)", "4096"),
    # KernelBench v0 and v0.1, src/eval.py.
    Peer("KernelBench v0", "K0", "allclose 1e-2, 1e-2", _close(1e-2, 1e-2), "U(0, 1)", "4096"),
    # KernelBench 423217d, src/kernelbench/eval.py, for FP32.
    Peer("KernelBench", "KB", "allclose 1e-4, 1e-4", _close(1e-4, 1e-4), "U(0, 1)", "4096"),
    # gpu-mode/reference-kernels f83cb92, problems/*/utils.py, unless a problem sets its own.
    Peer("kernelbot", "PP", "allclose 1e-5, 1e-8", _close(1e-5, 1e-8), "N(0, 1)", "1024"),
    # tensara fae9661, engine, its matrix-multiplication in FP32.
    Peer("Tensara", "TE", "allclose 2e-4, 5e-3", _close(2e-4, 5e-3), "U(-1, 1)", "4096x8192x4096", "160x320x640",
         old="zeros"),
    # NVIDIA/SOL-ExecBench 8d2237d.
    Peer("SOL-ExecBench", "SO", "1e-2, 1e-2 for 99 %", _most, "N(0, 1)", "2048", old="zeros"),
    # flashinfer-ai/flashinfer-bench 40e6ca7, bench/evaluators/default.py.
    Peer("flashinfer-bench", "FI", "absolute or relative 1e-2",
         lambda c, case: (case.error(c) <= 1e-2 * np.maximum(1.0, np.abs(case.product))).all(),
         "N(0, 1)", "1024x4096x4096"),
    # SakanaAI/robust-kbench 078f5ba.
    Peer("robust-kbench", "RK", "allclose 1e-5, 1e-5, reference computed afterwards", _close(1e-5, 1e-5), "N(0, 1)",
         "1024", reference_after=True),
    # meta-pytorch/BackendBench 66e0dbc.
    Peer("BackendBench", "BB", "assert_close 1e-2, 1e-2, NaN = NaN", _close(1e-2, 1e-2, equal_nan=True), "N(0, 1)",
         OPINFO, OPINFO),
    # meta-pytorch/tritonbench 0efdc53, the gemm operator (later versions: 1e-3 in FP32).
    Peer("TritonBench", "TB", "allclose 0.5, 1e-5", _close(0.5, 1e-5), "N(0, 1)", "4096x1024x1024 1024x4096x1024",
         "320x160x160 160x320x160", over_root_k=True),
    # siboehm/SGEMM_CUDA 60cba6f, src/runner.cu.
    Peer("SGEMM_CUDA", "SB", "not |error| > 0.01", lambda c, case: not (case.error(c) > 0.01).any(),  # which passes NaN
         "50 values", "128 1024 2048", "128 256",
         old="inputs", scalars=((0.5, 3.0),)),
    # salykova/sgemm.cu a94d769, common/helper_matrix.h.
    Peer("sgemm.cu", "SK", "|error| / |reference| <= 1e-4", _close(1e-4, 0.0), "U(0, 1)",
         "2 3 17 64 127 255 513 1000 1024", "2 3 17 64 127 160", old="inputs", scalars=((1.5, 0.5),)),
    # deepreinforce-ai/CUDA-L2 dbe0177, zero_one_correctness_check.py.
    Peer("CUDA-L2", "DR", "equal on zeros and ones", _exact_up_to_2047, "0 or 1", "1024x1024x4096 512x512x8192",
         old="zeros"),
    # netlib BLAS tester (Dongarra et al. 1990), SMMCH.
    Peer("netlib", "NL", "|error| < 16 eps (|A||B| + |C|)", _in_eps_of_its_terms, "U(-1, 1)", TINY, TINY, old="inputs",
         scalars=((1.0, 0.0), (1.0, 1.0), (SEVEN, THIRTEEN))),
)  # fmt: skip
