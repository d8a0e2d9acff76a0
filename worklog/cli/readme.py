"""The tables in the README, rewritten between markers from a run and from a comparison of harnesses, so that no number
in them is typed by hand.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import geometric_mean

from worklog.errors import WorklogError
from worklog.kernel import FP32, TENSOR, Kernel
from worklog.plots.selection import class_of, error_of, leaders, rate
from worklog.problem import Shape
from worklog.runs import (
    CHAPTERS,
    CUBLAS,
    KNOWN,
    Comparison,
    Measurement,
    Run,
    Table,
    cells,
    open_comparison,
    recordings,
    write_text,
)

COLUMNS = ("", "worklog", "NVBench", "Triton's do_bench", "KernelBench")
TIMED = ("worklog", "NVBench cold", "do_bench", "")  # the columns' names in a recorded comparison
SIZE = 1024
CHART = "figures/peers.png"


def markers(part: str) -> tuple[str, str]:
    """The lines above and below a part of the README that is rewritten."""
    return f"<!-- worklog {part}: rewritten by `worklog article` -->", f"<!-- worklog {part} ends -->"


def rewrite(path: Path, parts: Mapping[str, str]) -> bool:
    """Put the text of each part between its markers. Returns False without such a file or any of the markers.

    Raises WorklogError for a file with only one of two markers.
    """
    if not path.is_file():
        return False
    old = path.read_text(encoding="utf-8")
    new, there = old, False
    for part, text in parts.items():
        begin, end = markers(part)
        if begin not in new and end not in new:
            continue
        before, found, rest = new.partition(begin)
        _, ended, after = rest.partition(end)
        if not (found and ended):
            raise WorklogError(
                f"{path} has only one of the two table markers: put {begin} before the table and {end} after it"
            )
        new, there = f"{before}{begin}\n{text}\n{end}{after}", True
    if there:
        write_text(path, new)
    return there


def parts_of(run: Run, comparison: Comparison, recorded: Run) -> dict[str, str]:
    """The text of each part. run: of the table, at 4096, else at its largest size; a run without measurements has
    none. recorded: the recorded rungs at 4096.
    """
    parts = {"comparison": comparison_table(comparison), "pictures": pictures(recorded), "chapters": chapters(recorded)}
    if shapes := run.shapes():
        parts["table"] = markdown(run, next((s for s in shapes if s.square and s.m == 4096), shapes[-1]))
    return parts


ALT = {
    "ladders": "Bars of TFLOP/s beside cuBLAS: kernels on FP32 cores, and on tensor cores",
    "accuracy": "TFLOP/s against the largest error, and the limit of FP32's class",
}


def pictures(run: Run) -> str:
    """The picture of both ladders with its numbers. run: the recorded rungs at 4096."""
    found = {m.kernel: m for m in run.measurements}
    plain, tensor = leaders(run.measurements)
    assert plain is not None and tensor is not None and CUBLAS in found, "the recordings hold both ladders"
    libraries = {m.kernel: m for m in Run.load(recordings(CHAPTERS)["h200_libraries"]).select(shape=plain.problem)}
    tf32, bf16x6 = libraries["cublas_tf32"], libraries["triton_bf16x6"]
    error, theirs = (error_of(found[name]) for name in (tensor.kernel, CUBLAS))
    assert error is not None and theirs is not None, "the gate measures each rung's error"
    first = (
        f"At 4096, the kernel `{tensor.kernel}` computes FP32 on tensor cores {tensor.ratio:.2f} times as fast as "
        f"cuBLAS, with {error[0] / theirs[0]:.2f} times its largest error. This compares tensor cores, "
        f"{rate(tensor.tflops)} TFLOP/s, with the FP32 cores that cuBLAS uses for FP32. Also on tensor cores, cuBLAS "
        f"in TF32 reaches {rate(tf32.tflops)} TFLOP/s in the less precise class {class_of(tf32)}, and Triton's bf16x6 "
        f"{rate(bf16x6.tflops)} in the class {class_of(bf16x6)}. On FP32 cores, `{plain.kernel}` is {plain.ratio:.2f} "
        f"times as fast as cuBLAS. Source: {_sources([tensor, plain, tf32, bf16x6])}."
    )
    return f"{picture('ladders')}\n\n{_filled(first)}"


def chapters(run: Run) -> str:
    """The words on the timed rungs past the article's, and their picture. run: the recorded rungs at 4096."""
    found = {m.kernel: m for m in run.measurements}
    fp32, tensor = ([rung for rung in rungs if rung.name in found] for rungs in (FP32, TENSOR))

    def shares(rungs: Iterable[Kernel]) -> str:
        """The lowest and the highest share of cuBLAS among the rungs of the class fp32."""
        timed = [found[rung.name] for rung in rungs]
        among = [m for m in timed if (m.verdict or {}).get("precision") == "fp32"]
        ends = (pick(among, key=lambda m: m.ratio or 0.0) for pick in (min, max))
        return " to ".join(f"{cells(run, m)['of cuBLAS'].partition(' ±')[0]} (`{m.kernel}`)" for m in ends)

    at_shapes = Run.load(recordings(CHAPTERS)["h200_shapes"]).select("best")
    drawn = [m.ratio or 0.0 for m in at_shapes]
    words = (
        f"Rungs {fp32[0].number} to {fp32[-1].number} go on with FP32's own units, and reach {shares(fp32)} of cuBLAS "
        f"at 4096 ([notebook 12](notebooks/12_past_cublas.ipynb)). `best` takes any shape, by a table that `worklog "
        f"sweep best` measures on a GPU: over {len(drawn)} drawn ones, {100 * geometric_mean(drawn):.1f} % (geometric "
        f"mean; lowest {100 * min(drawn):.1f} %). Rungs {tensor[0].number} to {tensor[-1].number} use "
        f"tensor cores; those with FP32's error reach {shares(tensor)} ([notebook "
        f"13](notebooks/13_fp32_on_tensor_cores.ipynb)). "
        f"Source: {_sources([*(found[rung.name] for rung in (*fp32, *tensor)), *at_shapes[:1]])}."
    )
    return f"{_filled(words)}\n\n{picture('accuracy')}"


def _sources(measurements: Iterable[Measurement]) -> str:
    """The label of measurements; where they have several, each with its kernels."""
    names = dict[str, list[str]]()
    for m in measurements:
        names.setdefault(m.label, []).append(f"`{m.kernel}`")
    return "; ".join(label + (f" ({', '.join(kernels)})" if len(names) > 1 else "") for label, kernels in names.items())


def _filled(words: str) -> str:
    return textwrap.fill(words, 120, break_long_words=False, break_on_hyphens=False)


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
    since = open_comparison(part="intervals")
    at_size = [one for one in since.document["promises"]["coverage"] if (one["work"], one["of"]) == (CUBLAS, SIZE)]
    return (
        f"{table}\n\nThe last two rows: {comparison.label}. worklog now moves the buffers during a measurement: "
        f"{at_size[0]['wall_s']:.2f} s ({since.label})."
    )


def _timed(found: Mapping[str, float], unit: str) -> list[str]:
    return [f"[{found[name]:.2f} {unit}]({CHART})" if name in found else "not timed" for name in TIMED]


SMALL_SIZES = (1024, 512, 256)  # whose shares the README shows beside the large size's


def markdown(run: Run, shape: Shape) -> str:
    """One size as a Markdown table with its label, for the README, and the shares of cuBLAS at the small sizes."""
    beside = [small for size in SMALL_SIZES if (small := Shape.of(size)) in run.shapes() and small != shape]
    columns = ["rung", "idea", "TFLOP/s", "% of cuBLAS", *(f"at {small}" for small in beside)]
    shares = {(m.kernel, m.problem): cells(run, m)["of cuBLAS"].replace(" %", "") for m in run.select()}
    rows = []
    for m in run.select(shape=shape):
        rate = cells(run, m)["TFLOP/s"] if m.status == "measured" else m.reason or m.status
        idea = run.kernels.get(m.kernel, {}).get("idea", "the baseline, against itself")
        others = (shares.get((m.kernel, small), "").partition(" ±")[0] for small in beside)
        rows.append((m.kernel, idea, rate, shares[m.kernel, m.problem], *others))
    lines = [f"C = A·B in FP32 at {shape.m} × {shape.n} × {shape.k}. {run.full_label}.", ""]
    return "\n".join([*lines, Table("", columns, rows, left=2).markdown()])
