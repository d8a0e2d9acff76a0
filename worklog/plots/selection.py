"""What the ladder and the roofline take from a run: one size, its rows in rung order, and how fast cuBLAS was."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from worklog.errors import NothingToDraw
from worklog.kernel.ladder import LADDER
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement, Run

CUBLAS = "cuBLAS"
ARTICLE_SHAPE = Shape(4096, 4096, 4096)

Size = Shape | int | str | Iterable[int]


def measured(m: Measurement) -> bool:
    """Whether the measurement has a time, a rate and a share of cuBLAS."""
    return m.status == "measured" and None not in (m.us, m.tflops, m.ratio)


def shape_to_draw(run: Run, size: Size | None) -> Shape:
    """The size asked for, else 4096, else the largest that was measured. Raises NothingToDraw, BadShape."""
    shapes = [shape for shape in run.shapes() if any(measured(m) for m in run.select(shape=shape))]
    if not shapes:
        raise NothingToDraw("the run has no finished measurement: make one with `worklog run`")
    if size is None:
        return ARTICLE_SHAPE if ARTICLE_SHAPE in shapes else shapes[-1]
    wanted = Shape.of(size)
    if wanted not in shapes:
        raise NothingToDraw(
            f"the run has no measurement at size {wanted}, only at {', '.join(map(str, shapes))}: "
            f"choose one of these, or measure it with `worklog run --size {wanted}`"
        )
    return wanted


def rows(run: Run, shape: Shape) -> list[Measurement]:
    """One measurement a kernel, refused and skipped ones too: the ladder's order, then the run's, cuBLAS last."""
    found = {m.kernel: m for m in run.select(shape=shape)}
    order = [rung.name for rung in LADDER if rung.name in found]
    others = [name for name in found if name not in order and name != CUBLAS]
    return [found[name] for name in (*order, *others, CUBLAS) if name in found]


def cublas_tflops(kernels: list[Measurement]) -> float:
    """TFLOP/s of cuBLAS: its own row, or the median of what it did beside each kernel."""
    own = [m.tflops for m in kernels if m.kernel == CUBLAS and measured(m)]
    beside = [(m.tflops or 0.0) / m.ratio for m in kernels if measured(m) and m.ratio]
    return own[0] if own and own[0] else median(beside)


def dimensions(shape: Shape) -> str:
    """M × N × K with proper signs."""
    return f"{shape.m} × {shape.n} × {shape.k}"
