"""What charts and tables show of a run, and how it is written: sizes, kernels, rates, labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median

from worklog.errors import NothingToDraw
from worklog.kernel import RUNGS
from worklog.kernel.ladder import TENSOR, block_traffic_bytes
from worklog.problem import Shape, Size, tflops
from worklog.runs import CUBLAS, Measurement, Run

ARTICLE_SHAPE = Shape(4096, 4096, 4096)
ON_TENSOR_CORES = {rung.name for rung in TENSOR}


def measured(m: Measurement) -> bool:
    """Return True if the measurement has a time, a rate and a share of cuBLAS."""
    return m.status == "measured" and None not in (m.us, m.tflops, m.ratio)


def shape_to_draw(run: Run, size: Size | None) -> Shape:
    """Return the requested size, else 4096, else the largest measured size.

    Raises NothingToDraw if the size wasn't measured, and BadSetting for a size that can't be.
    """
    shapes = [shape for shape in run.shapes() if any(measured(m) for m in run.select(shape=shape))]
    if not shapes:
        raise NothingToDraw("the run has no finished measurement: make one with `worklog run`")
    if size is None:
        return ARTICLE_SHAPE if ARTICLE_SHAPE in shapes else shapes[-1]
    requested = Shape.of(size)
    if requested not in shapes:
        raise NothingToDraw(
            f"the run has no measurement at size {requested}, "
            f"only at {', '.join(map(str, shapes))}: choose one of these, "
            f"or measure it with `worklog run --size {requested}`"
        )
    return requested


def in_order(names: Iterable[str]) -> list[str]:
    """Return rungs in the ladder's order, then other kernels as they come, then cuBLAS."""
    place = {rung.name: index for index, rung in enumerate(RUNGS)} | {CUBLAS: len(RUNGS) + 1}
    return sorted(names, key=lambda name: place.get(name, len(RUNGS)))


def rows(run: Run, shape: Shape) -> list[Measurement]:
    """Return one measurement per kernel in order, including failed and skipped ones."""
    by_name = {m.kernel: m for m in run.select(shape=shape)}
    return [by_name[name] for name in in_order(by_name)]


def labels(
    run: Run,
    measurements: Iterable[Measurement],
    name_of: Callable[[Measurement], str] = lambda m: m.kernel,
) -> list[str]:
    """Return the run's label, then each other label with the names that have it.

    name_of: the name of a measurement in these lists (default: its kernel)
    """
    names_by_label = dict[str, list[str]]()
    for m in measurements:
        if m.label not in ("", run.label):
            names_by_label.setdefault(m.label, []).append(name_of(m))
    other_labels = [
        f"{label}: {', '.join(dict.fromkeys(names))}" for label, names in names_by_label.items()
    ]
    return [run.full_label, *other_labels]


def sample_times(m: Measurement) -> tuple[list[float], list[bool]]:
    """Return a measurement's samples in µs, and which of them count.

    The event overhead is subtracted if the run removed it.
    """
    times_us = [us - m.samples.overhead_us for us in m.samples.sides[0].us]
    counts = [bool(count) for count in m.samples.counts]
    return times_us, counts


def no_time(m: Measurement) -> str:
    """Return the reason why a measurement has no time."""
    reason = m.reason or "no reason given"
    return reason if reason.startswith(m.status) else f"{m.status}: {reason}"


def class_of(m: Measurement) -> str:
    """Return the precision class that the gate found (default: fp32)."""
    if m.verdict is None or not m.verdict.precision:
        return "fp32"
    return m.verdict.precision


def error_of(m: Measurement) -> tuple[float, float] | None:
    """Return a kernel's largest error and the limit of its precision class, in u·D.

    None if the kernel's gate didn't measure the error.
    """
    for stage in m.verdict.stages if m.verdict else ():
        if stage.name == "precision" and stage.measured is not None and stage.limit:
            return stage.measured, stage.limit
    return None


def leaders(kernels: Iterable[Measurement]) -> list[Measurement | None]:
    """Return the fastest kernel of class fp32 on FP32 cores, and on tensor cores.

    None for cores without such a kernel.
    """
    rungs = [m for m in kernels if m.kernel != CUBLAS and measured(m) and class_of(m) == "fp32"]
    on_fp32_cores = [m for m in rungs if m.kernel not in ON_TENSOR_CORES]
    on_tensor_cores = [m for m in rungs if m.kernel in ON_TENSOR_CORES]
    return [
        max(part, key=lambda m: m.ratio or 0.0, default=None)
        for part in (on_fp32_cores, on_tensor_cores)
    ]


def cublas_tflops(kernels: list[Measurement]) -> float:
    """Return cuBLAS's TFLOP/s: of its row, else the median of its alternating timings."""
    own_row = next((m for m in kernels if m.kernel == CUBLAS and measured(m)), None)
    if own_row is not None and own_row.tflops:
        return own_row.tflops
    return median(m.tflops / m.ratio for m in kernels if m.tflops and m.ratio)


def intensity(run: Run, kernel: str, shape: Shape) -> float | None:
    """Return the FLOP per byte that the kernel's blocks fetch from L2.

    It is computed from the kernel's tile in the run. None for a kernel without a tile.
    """
    tile = run.kernels.get(kernel, {}).get("tile") or {}
    if not {"BM", "BN"} <= tile.keys():
        return None
    return shape.flops / block_traffic_bytes(tile, shape)


def dimensions(shape: Shape) -> str:
    """Return "M × N × K", with multiplication signs, and the products of a batch."""
    text = f"{shape.m} × {shape.n} × {shape.k}"
    return text if shape.batch == 1 else f"{text}, batch {shape.batch}"


def rate(tflops: float | None) -> str:
    """Return TFLOP/s in three digits, or a dash. No line ends at its space."""
    if tflops is None:
        return "–"
    if tflops >= 1000:
        return f"{tflops:,.0f}".replace(",", "\u00a0")
    return f"{tflops:#.3g}".rstrip(".")


def share(m: Measurement, digits: int = 1) -> str:
    """Return the measured rate as a share of cuBLAS's rate, in percent."""
    return f"{100 * (m.ratio or 0.0):.{digits}f} %"


def interval(m: Measurement) -> tuple[float, float]:
    """Return the 95 % interval in TFLOP/s: the longer time is the lower rate."""
    if not m.us_low or not m.us_high:
        return m.tflops or 0.0, m.tflops or 0.0
    return tflops(m.problem, m.us_high), tflops(m.problem, m.us_low)
