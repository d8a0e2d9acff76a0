"""What charts take from a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import astuple
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from worklog.kernel import RUNGS, TENSOR, block_traffic_bytes
from worklog.problem import Shape, tflops
from worklog.runs import CUBLAS, Measurement, NothingToDraw, Run

if TYPE_CHECKING:
    import pandas

ARTICLE_SHAPE = Shape(4096, 4096, 4096)
ON_TENSOR_CORES = {rung.name for rung in TENSOR}

Size = Shape | int | str | Iterable[int]


def measured(m: Measurement) -> bool:
    """Whether the measurement has a time, a rate and a share of cuBLAS."""
    return m.status == "measured" and None not in (m.us, m.tflops, m.ratio)


def as_run(data: Run | pandas.DataFrame) -> Run:
    """A run as it is; of a `run.frame()`, what `ladder` and `sizes` read, from its rows under the run's own harness.
    Raises NothingToDraw where a column is missing that every frame of a run has.
    """
    if isinstance(data, Run):
        return data
    if missing := {"kernel", "m", "n", "k", "us", "tflops", "ratio", "status", "changed"} - {
        *data.columns
    }:
        raise NothingToDraw(
            f"the frame has no column {', '.join(sorted(missing))}: give a run, or run.frame()"
        )
    shown = list[Any]()
    for row in data.astype(object).where(data.notna(), None).to_dict("records"):
        if row["m"] is not None and not row["changed"]:
            shape = Shape(int(row["m"]), int(row["n"]), int(row["k"]))
            fields: dict[str, Any] = {
                "us_low": None,
                "us_high": None,
                "ratio_low": None,
                "ratio_high": None,
            }
            fields |= {"converged": True, "reason": None, "label": "", "verdict": None}
            fields |= {str(name): value for name, value in row.items()}
            fields |= {"problem": shape, "place": str(shape), "shape": astuple(shape)}
            shown.append(SimpleNamespace(**fields))
    label = "; ".join(dict.fromkeys(m.label for m in shown if m.label))
    run = SimpleNamespace(measurements=shown, kernels={}, label=label, full_label=label)
    run.calibration = SimpleNamespace(fp32_tflops=0.0)  # a frame has none
    run.select = lambda shape=None: [m for m in shown if shape in (None, m.problem)]
    run.shapes = lambda: sorted({m.problem for m in shown}, key=lambda shape: (shape.flops, shape))
    return run  # type: ignore[return-value]


def shape_to_draw(run: Run, size: Size | None) -> Shape:
    """The requested size, else 4096, else the largest that was measured. Raises NothingToDraw, BadSetting."""
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


def in_order(names: Iterable[str]) -> list[str]:
    """Rungs in the ladder's order, then other kernels as they come, cuBLAS last."""
    place = {rung.name: index for index, rung in enumerate(RUNGS)} | {CUBLAS: len(RUNGS) + 1}
    return sorted(names, key=lambda name: place.get(name, len(RUNGS)))


def rows(run: Run, shape: Shape) -> list[Measurement]:
    """One measurement per kernel, failed and skipped ones too, in order."""
    by_name = {m.kernel: m for m in run.select(shape=shape)}
    return [by_name[name] for name in in_order(by_name)]


def labels(
    run: Run, shown: Iterable[Measurement], by: Callable[[Measurement], str] = lambda m: m.kernel
) -> list[str]:
    """The run's label, then each other label with what has it: kernels, or what `by` names."""
    others = dict[str, list[str]]()
    for m in shown:
        if m.label not in ("", run.label):
            others.setdefault(m.label, []).append(by(m))
    return [
        run.full_label,
        *(f"{label}: {', '.join(dict.fromkeys(names))}" for label, names in others.items()),
    ]


def sample_times(m: Measurement) -> tuple[list[float], list[bool]]:
    """A measurement's samples, microseconds, without the event overhead where the run removed it; and which count."""
    return [us - m.samples.overhead_us for us in m.samples.sides[0].us], [
        bool(count) for count in m.samples.counts
    ]


def no_time(m: Measurement) -> str:
    """Why a measurement has no time."""
    reason = m.reason or "no reason given"
    return reason if reason.startswith(m.status) else f"{m.status}: {reason}"


def class_of(m: Measurement) -> str:
    """The precision class that the gate found."""
    return (m.verdict and m.verdict.precision) or "fp32"


def error_of(m: Measurement) -> tuple[float, float] | None:
    """A kernel's largest error and what its precision class allows, in u·D; None if its gate didn't measure it."""
    for stage in m.verdict.stages if m.verdict else ():
        if stage.name == "precision" and stage.measured is not None and stage.limit:
            return stage.measured, stage.limit
    return None


def leaders(kernels: Iterable[Measurement]) -> list[Measurement | None]:
    """The fastest measured kernel with FP32's class on FP32 cores, and on tensor cores; None where there isn't one."""
    rungs = [m for m in kernels if m.kernel != CUBLAS and measured(m) and class_of(m) == "fp32"]
    on_fp32_cores = [m for m in rungs if m.kernel not in ON_TENSOR_CORES]
    on_tensor_cores = [m for m in rungs if m.kernel in ON_TENSOR_CORES]
    return [
        max(part, key=lambda m: m.ratio or 0.0, default=None)
        for part in (on_fp32_cores, on_tensor_cores)
    ]


def cublas_tflops(kernels: list[Measurement]) -> float:
    """TFLOP/s of cuBLAS: of its own row, else the median over its timings beside each kernel."""
    own = [m.tflops for m in kernels if m.kernel == CUBLAS and measured(m)]
    beside = [m.tflops / m.ratio for m in kernels if m.tflops and m.ratio]
    return own[0] if own and own[0] else median(beside)


def intensity(run: Run, kernel: str, shape: Shape) -> float | None:
    """FLOP per byte that the kernel's blocks fetch from L2, from the tile in the run; None for a kernel without one."""
    tile = run.kernels.get(kernel, {}).get("tile") or {}
    if not {"BM", "BN"} <= tile.keys():
        return None
    return shape.flops / block_traffic_bytes(tile, shape)


def dimensions(shape: Shape) -> str:
    """M × N × K with proper signs."""
    return f"{shape.m} × {shape.n} × {shape.k}"


def rate(tflops: float | None) -> str:
    """TFLOP/s in three digits, or a dash. No line ends at its space."""
    if tflops is None:
        return "–"
    return (
        f"{tflops:,.0f}".replace(",", "\u00a0") if tflops >= 1000 else f"{tflops:#.3g}".rstrip(".")
    )


def share(m: Measurement, digits: int = 1) -> str:
    """Its rate as a share of cuBLAS's."""
    return f"{100 * (m.ratio or 0.0):.{digits}f} %"


def interval(m: Measurement) -> tuple[float, float]:
    """The 95 % interval in TFLOP/s: the longer time is the lower rate."""
    if not m.us_low or not m.us_high:
        return m.tflops or 0.0, m.tflops or 0.0
    return tflops(m.problem, m.us_high), tflops(m.problem, m.us_low)
