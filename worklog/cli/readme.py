"""The README's table of the ladder, rewritten between two markers from a run."""

from __future__ import annotations

from pathlib import Path

from worklog.errors import WorklogError
from worklog.problem import Shape
from worklog.runs import Measurement, Run, Table, write_text
from worklog.runs.measurement import cells

SMALL_SIZES = (1024, 512, 256)  # whose shares the table shows beside the large size's


def markers(part: str, by: str = "worklog article") -> tuple[str, str]:
    """The lines above and below a part of a page that the command `by` rewrites."""
    return f"<!-- worklog {part}: rewritten by `{by}` -->", f"<!-- worklog {part} ends -->"


def rewrite(path: Path, text: str, begin: str, end: str) -> bool:
    """Put the text between two markers. Returns False without such a file or markers; WorklogError for one alone."""
    old = path.read_text(encoding="utf-8") if path.is_file() else ""
    before, begins, rest = old.partition(begin)
    _, ends, after = rest.partition(end)
    if begins and ends:
        write_text(path, f"{before}{begin}\n{text}\n{end}{after}")
        return True
    if begins or end in old:
        raise WorklogError(f"{path} has only one of two markers: put {begin} before the table and {end} after it")
    return False


def markdown(run: Run, shape: Shape | None = None) -> str:
    """One size (default: 4096, else the largest) as a Markdown table with its label, and the shares of cuBLAS at the
    small sizes.
    """
    if shape is None:
        shape = Shape.of(4096) if Shape.of(4096) in run.shapes() else run.shapes()[-1]
    beside = [small for size in SMALL_SIZES if (small := Shape.of(size)) in run.shapes() and small != shape]
    others = {(m.kernel, m.problem): share(m) for m in run.select()}
    rows = []
    for m in run.select(shape=shape):
        words = {column: str(cell) for column, cell in cells(m).items()}
        rate = words["TFLOP/s"] if m.status == "measured" else m.reason or m.status
        idea = run.kernels.get(m.kernel, {}).get("idea", "the baseline, against itself")
        of_cublas = words["of cuBLAS"].replace(" %", "")
        rows.append((m.kernel, idea, rate, of_cublas, *(others.get((m.kernel, small), "") for small in beside)))
    columns = ["rung", "idea", "TFLOP/s", "% of cuBLAS", *(f"at {small}" for small in beside)]
    table = Table("", columns, rows, left=2).markdown()
    return f"C = A·B in FP32 at {shape.m} × {shape.n} × {shape.k}. {run.full_label}.\n\n{table}"


def share(m: Measurement) -> str:
    """Percent of cuBLAS without its interval."""
    return str(cells(m)["of cuBLAS"]).replace(" %", "").partition(" ±")[0]
