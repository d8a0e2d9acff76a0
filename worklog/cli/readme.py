"""The tables in the README, rewritten between markers from a run and from a comparison of harnesses, so that no number
in them is typed by hand.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from worklog.errors import WorklogError
from worklog.problem import Shape
from worklog.runs import Run, Table, cells, write_text
from worklog.runs.comparison import CUBLAS, KNOWN, Comparison

BEGIN = "<!-- worklog table: rewritten by `worklog article` -->"
END = "<!-- worklog table ends -->"
COMPARISON_BEGIN = "<!-- worklog comparison: rewritten by `worklog article` -->"
COMPARISON_END = "<!-- worklog comparison ends -->"

COLUMNS = ("", "worklog", "NVBench", "Triton's do_bench", "KernelBench")
TIMED = ("worklog", "NVBench cold", "do_bench", "")  # the columns' names in a recorded comparison
SIZE = 1024
CHART = "figures/peers.png"


def rewrite(path: Path, run: Run) -> bool:
    """Put the run's table (at 4096, else at its largest size) between its markers. Returns False without such a file,
    markers or measurement.

    Raises WorklogError for a file with only one of the two markers.
    """
    if not run.shapes():
        return False
    shape = next((s for s in run.shapes() if s.square and s.m == 4096), run.shapes()[-1])
    return _put(path, BEGIN, markdown(run, shape), END)


def rewrite_comparison(path: Path, comparison: Comparison) -> bool:
    """Put the table of what each harness does between its markers. Returns and raises as rewrite() does."""
    return _put(path, COMPARISON_BEGIN, comparison_table(comparison), COMPARISON_END)


def comparison_table(comparison: Comparison) -> str:
    """The rows of comparison.toml, each cell linked to what backs it, and the recorded readings with their label."""
    document = tomllib.loads(Path(__file__).with_name("comparison.toml").read_text(encoding="utf-8"))
    rows = [
        (row["about"], *(f"[{words}]({link.format(**document['addresses'])})" for words, link in row["cells"]))
        for row in document["row"]
    ]
    shortest = comparison.works(KNOWN)[0]
    rows.append((f"a kernel of {shortest:g} µs reads", *_timed(comparison.us(KNOWN, shortest), "µs")))
    rows.append((f"timing cuBLAS at {SIZE} takes", *_timed(comparison.wall_s(CUBLAS, SIZE), "s")))
    table = Table("", COLUMNS, rows, left=len(COLUMNS)).markdown()
    return f"{table}\n\nThe last two rows: {comparison.label}."


def _timed(found: Mapping[str, float], unit: str) -> list[str]:
    return [f"[{found[name]:.2f} {unit}]({CHART})" if name in found else "not timed" for name in TIMED]


def _put(path: Path, begin: str, table: str, end: str) -> bool:
    if not path.is_file():
        return False
    text = path.read_text(encoding="utf-8")
    if begin not in text and end not in text:
        return False
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise WorklogError(
            f"{path} has only one of the two table markers: put {begin} before the table and {end} after it"
        )
    write_text(path, f"{before}{begin}\n{table}\n{end}{after}")
    return True


SMALL_SIZES = (1024, 512, 256)  # whose shares the README shows beside the large size's


def markdown(run: Run, shape: Shape) -> str:
    """One size as a Markdown table with its label, for the README, and the shares of cuBLAS at the small sizes."""
    beside = [small for size in SMALL_SIZES if (small := Shape.of(size)) in run.shapes() and small != shape]
    columns = ["rung", "idea", "time", "TFLOP/s", "of cuBLAS", *(f"at {small}" for small in beside)]
    shares = {(m.kernel, m.problem): cells(run, m)["of cuBLAS"].partition(" ±")[0] for m in run.select()}
    rows = []
    for m in run.select(shape=shape):
        row = cells(run, m)
        idea = run.kernels.get(m.kernel, {}).get("idea", "the baseline, against itself")
        time = row["time"] if m.status == "measured" else m.reason or row["time"]
        others = (shares.get((m.kernel, small), "") for small in beside)
        rows.append((m.kernel, idea, time, row["TFLOP/s"], row["of cuBLAS"], *others))
    smaller = ", and its share of cuBLAS at smaller sizes" if beside else ""
    lines = [f"C = A·B in FP32 at {shape.m} × {shape.n} × {shape.k}{smaller}. {run.full_label}.", ""]
    return "\n".join([*lines, Table("", columns, rows, left=2).markdown()])
