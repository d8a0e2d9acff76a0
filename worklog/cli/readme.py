"""The tables in the README, rewritten between markers from a run and from a comparison of harnesses, so that no number
in them is typed by hand.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

from worklog.errors import WorklogError
from worklog.problem import Shape
from worklog.runs import Run, Table, cells, write_text
from worklog.runs.comparison import CUBLAS, KNOWN, Comparison

BEGIN = "<!-- worklog table: rewritten by `worklog article` -->"
END = "<!-- worklog table ends -->"
COMPARISON_BEGIN = "<!-- worklog comparison: rewritten by `worklog article` -->"
COMPARISON_END = "<!-- worklog comparison ends -->"

PICTURES_BEGIN = "<!-- worklog pictures: rewritten by `worklog article` -->"
PICTURES_END = "<!-- worklog pictures end -->"
CHAPTERS_BEGIN = "<!-- worklog chapters: rewritten by `worklog article` -->"
CHAPTERS_END = "<!-- worklog chapters end -->"

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


ALT = {
    "headline": "One kernel on one NVIDIA H200, timed correctly and naively: two bars, the second far above the peak "
    "of the GPU, and the four mistakes that lead from one to the other",
    "ladders": "Bars of TFLOP/s of two ladders beside cuBLAS: kernels on FP32 cores, and kernels that compute FP32 on "
    "tensor cores",
    "accuracy": "TFLOP/s against the rms error: kernels on tensor cores beside cuBLAS, and the limit of FP32's class",
}
UNTIMED = """\
Two more chapters are checked on the emulator and not timed yet, so no chart shows them: rungs 13 to 19 go on with
FP32's own units, and rungs 21 to 26 compute FP32 on tensor cores, the last three of them with FP32's error."""
TIMED_CHAPTERS = """\
Two more chapters follow: rungs 13 to 19 go on with FP32's own units
([notebook 12](notebooks/12_past_cublas.ipynb)), and rungs 21 to 26 compute FP32 on tensor cores
([notebook 13](notebooks/13_fp32_on_tensor_cores.ipynb)), the last three of them with FP32's error:"""


def rewrite_pictures(path: Path, drawn: Collection[str]) -> bool:
    """Put the README's first pictures and its words on the rungs past the ladder between their markers. drawn: charts
    by name; both ladders and their errors are shown once they are there. Returns and raises as rewrite() does.
    """
    timed = {"ladders", "accuracy"} <= {*drawn}
    first = "\n\n".join(picture(name) for name in (("ladders", "headline") if timed else ("headline",)))
    words = f"{TIMED_CHAPTERS}\n\n{picture('accuracy')}" if timed else UNTIMED
    put = _put(path, PICTURES_BEGIN, first, PICTURES_END)
    return _put(path, CHAPTERS_BEGIN, words, CHAPTERS_END) or put


def picture(name: str) -> str:
    """A figure on a light page, and on a dark one."""
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="figures/{name}_dark.png">\n'
        f'<img src="figures/{name}.png" width="700" alt="{ALT[name]}"></picture>'
    )


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
