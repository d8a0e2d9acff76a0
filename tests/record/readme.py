"""The parts of the README that come from the shipped recordings.

Its pictures with their numbers, and its comparison with other harnesses. Their words stand in
readme.toml. `python -m tests.record.readme` rewrites them.
"""

import json
import math
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tests.record.tune import SLOW
from worklog.cli import main
from worklog.cli.figures import markers, rewrite
from worklog.kernel import RUNGS, rung
from worklog.kernel.emulated import CHIP
from worklog.kernel.ladder import FP32, TENSOR
from worklog.plots.diagrams.facts import CANCELLING
from worklog.plots.selection import class_of, error_of, leaders
from worklog.problem import Shape
from worklog.runner.sources import at_4096
from worklog.runs import CUBLAS, CUBLASLT, Measurement, Run, recorded_run, recordings
from worklog.runs.changes import ProcessMedian, Revision, compare_revisions
from worklog.runs.comparison import KNOWN, Comparison, open_comparison
from worklog.runs.sources import CHAPTERS
from worklog.runs.text import Table

README = Path(__file__).resolve().parents[2] / "README.md"
BY = "python -m tests.record.readme"
WORDS: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("readme.toml").read_text(encoding="utf-8")
)
COLUMNS = ("", "worklog", "NVBench", "Triton's do_bench", "KernelBench")
TIMED = ("worklog", "NVBench cold", "do_bench", "")  # the columns' names in a recorded comparison
SIZE = 1024
DIAGNOSED = "tests/exploits/wrong/missing_second_barrier.cu --emulate --seed 1"
LINES = 7  # of what a check prints
COLUMNS_OF_CODE = 92  # as wide as a block of code on GitHub
PICTURE = """\
<picture><source media="(prefers-color-scheme: dark)" srcset="figures/{name}_dark.png">
<img src="figures/{name}.png" width="700" alt="{alt}"></picture>"""


def parts() -> dict[str, str]:
    """Return the text of each part."""
    recorded = at_4096()
    return {
        "introduction": introduction(recorded),
        "diagnosis": diagnosis(),
        "comparison": comparison_table(open_comparison()),
        "pictures": pictures(recorded),
        "bubble": bubble(),
        "chapters": f"{chapters(recorded)}\n\n{further()}",
        "changes": changes(),
    }


def introduction(run: Run) -> str:
    """Return the first paragraph, with the numbers of kernels and notebooks.

    run: the recorded rungs at 4096
    """
    words = WORDS["text"]["introduction"].strip()
    notebooks = len([*README.parent.glob("notebooks/source/[0-9]*.py")])
    plain, tensor = fastest(run)
    numbers = {"kernels": len(RUNGS), "notebooks": notebooks, "plain": plain, "tensor": tensor}
    return textwrap.fill(words.format(**numbers), 120)


def chapter(name: str) -> Run:
    return Run.load(recordings(CHAPTERS)[name], "recorded")


def bubble() -> str:
    """Return the launch bubble of the headline's kernel on the article's machine."""
    run = recorded_run()
    kernel, shape = CANCELLING
    [correct] = run.select(kernel, shape, {})
    [biased] = run.select(kernel, shape, {"queue": False})
    cublas_us = [(m.us or 0.0) * (m.ratio or 0.0) for m in (correct, biased)]
    numbers = {
        "kernel": kernel,
        "ours": (biased.us or 0.0) - (correct.us or 0.0),
        "cublas": cublas_us[1] - cublas_us[0],
        "correct": 100 * (correct.ratio or 0.0),
        "share": 100 * (biased.ratio or 0.0),
        "sources": run.label,
    }
    text = WORDS["text"]["headline"].strip().format(**numbers)
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def in_a_row(kernel: str) -> tuple[float, str]:
    """Return how many times as fast as cuBLAS a kernel is, launched back to back, and the label."""
    run = Run.load(recordings("settings")["h200_energy"], "recorded")
    us = {m.kernel: m.energy.us for m in run.measurements if m.energy and m.energy.us}
    return us[CUBLAS] / us[kernel], run.label


def pictures(run: Run) -> str:
    """Return the picture of both ladders with its numbers.

    run: the recorded rungs at 4096
    """
    plain, tensor = fastest(run)
    largest = {m.kernel: error[0] for m in run.measurements if (error := error_of(m)) is not None}
    ratio, label = in_a_row(tensor.kernel)
    numbers = {
        "tensor": tensor,
        "error": largest[tensor.kernel] / largest[CUBLAS],
        "in_a_row": ratio,
        "in_a_row_source": label,
    }
    return "\n\n".join(picture("ladders", [tensor, plain], numbers))


def fastest(run: Run) -> tuple[Measurement, Measurement]:
    """Return the fastest of FP32's class on FP32 cores, and on tensor cores."""
    plain, tensor = leaders(run.measurements)
    assert plain is not None and tensor is not None, "the recordings hold both ladders"
    return plain, tensor


def diagnosis() -> str:
    """Return what `worklog check` prints of a kernel without its second barrier."""
    file, *options = DIAGNOSED.split()
    words = ["check", str(README.parent / file), *options]
    lines = CliRunner().invoke(main, words).stdout.splitlines()[:LINES]
    wrapped = [textwrap.fill(line, COLUMNS_OF_CODE, subsequent_indent="  ") for line in lines]
    return "\n".join(("```text", *wrapped, "```"))


def chapters(run: Run) -> str:
    """Return the words on the rungs past the article's.

    run: the recorded rungs at 4096
    """
    plain, _ = fastest(run)
    chosen = rung(plain.kernel).at(plain.problem, CHIP)
    isolated = {m.kernel: m.us or 0.0 for m in chapter("h200_causes").select(shape=plain.problem)}
    timed = {m.kernel: m for m in run.measurements}
    numbered = {
        kind: [rung.number for rung in rungs if rung.name in timed]
        for kind, rungs in {"fp32": FP32, "tensor": TENSOR}.items()
    }
    on_tensor_cores = (timed[rung.name] for rung in TENSOR if rung.name in timed)
    of_fp32 = sorted(
        (m for m in on_tensor_cores if class_of(m) == "fp32"), key=lambda m: m.ratio or 0.0
    )
    ends = [of_fp32[0], of_fp32[-1]]
    shares = [f"{100 * (m.ratio or 0.0):.3g} % (`{m.kernel}`)" for m in ends]
    known = [Shape.of(size) for size in SLOW.split()]
    at_known = [m for shape in known for m in chapter("h100_drawn").select("best", shape, {})]
    ratios = [m.ratio or 0.0 for m in at_known]
    numbers = {
        "plain": plain,
        "chosen": chosen,
        "chosen_file": Path(chosen.file).name,
        "order": isolated[f"{chosen.name}, order not kept"] / isolated[chosen.name],
        "first": {kind: values[0] for kind, values in numbered.items()},
        "last": {kind: values[-1] for kind, values in numbered.items()},
        "shares": " to ".join(shares),
        "known": len(ratios),
        "slower": sum(ratio < 1 for ratio in ratios),
        "slowest": 100 * min(ratios),
        "known_source": at_known[0].label,
    }
    return in_words("chapters", [plain, *ends], numbers)


def further() -> str:
    """Return the words on what isn't a rung. Raises ValueError if they fail."""
    run = chapter("h200_winograd")
    [at_8192] = run.select("winograd, 2 levels", Shape.of(8192), {"gate": False})
    [at_16384] = run.select("winograd, 2 levels", Shape.of(16384), {"gate": False})
    if (at_16384.tflops or 0.0) <= run.gpu.fp32_peak_tflops:
        raise ValueError("winograd is not above the FP32 peak at 16384")
    [halves] = chapter("h200_halves").select("hgemm_cluster", Shape.of(4096), {})
    of_lt = halves.against[CUBLASLT]
    integers = Run.load(recordings("settings")["h200_digits"], "recorded")
    digits = [m for m in integers.measurements if m.kernel == "digits"]
    [*_, split] = integers.select("split", Shape.of(8192), {"gate": False})
    at_4096, of_8192 = digits
    if (of_8192.us or math.inf) >= (split.us or 0.0):
        raise ValueError("digits isn't faster than split at 8192")
    numbers = {
        "at_8192": at_8192.ratio,
        "at_16384": at_16384.ratio,
        "of_cublas": halves.ratio,
        "of_lt": of_lt.value if of_lt else math.nan,
        "digits_at_4096": at_4096.ratio,
        "digits_at_8192": of_8192.ratio,
        "over_split": (split.us or math.nan) / (of_8192.us or math.nan),
    }
    return in_words("further", [at_8192, of_8192, halves], numbers)


def picture(
    name: str, measurements: Iterable[Measurement], numbers: Mapping[str, object]
) -> tuple[str, str]:
    """Return a figure, on a light page and on a dark one, and its text."""
    text = in_words(name, measurements, numbers)
    return PICTURE.format(name=name, alt=WORDS["alt"][name]), text


def in_words(name: str, measurements: Iterable[Measurement], numbers: Mapping[str, object]) -> str:
    """Return a text with its numbers and the label of the measurements."""
    names = dict[str, list[str]]()
    for m in measurements:
        names.setdefault(m.label, []).append(f"`{m.kernel}`")
    sources = [
        label + (f" ({', '.join(kernels)})" if len(names) > 1 else "")
        for label, kernels in names.items()
    ]
    text = WORDS["text"][name].strip().format(sources="; ".join(sources), **numbers)
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def changes() -> str:
    """Return what `worklog compare` writes for a pull request.

    It compares two recorded processes, the new one with the slower kernel.
    """
    document = json.loads(recordings("compare")["h100"].read_text(encoding="utf-8"))
    sides = []
    for process, build in zip(document["processes"], ("warptiled", "slower"), strict=False):
        readings = {
            ("warptiled", str(n)): ProcessMedian(**process["readings"][f"{build} at {n}"])
            for n in (256, SIZE, 2048, 4096)
        }
        sides.append(Revision(document["label"], {}, {}, readings))
    return "\n".join(
        f"> {line}".rstrip()
        for line in compare_revisions(sides[:1], sides[1:]).markdown().splitlines()
    )


def comparison_table(comparison: Comparison) -> str:
    """Return the rows of readme.toml, and the recorded readings with their label.

    Each cell is linked to what backs it.
    """
    rows = [
        [
            row["about"],
            *(f"[{words}]({link.format(**WORDS['addresses'])})" for words, link in row["cells"]),
        ]
        for row in WORDS["row"]
    ]
    shortest = comparison.works(KNOWN)[0]
    at_shortest = comparison.us(KNOWN, shortest)
    shown = {name: f"[{us:.2f} µs](figures/peers.png)" for name, us in at_shortest.items()}
    about = f"a kernel of {shortest:g} µs reads"
    rows.append([about, *(shown.get(name, "not timed") for name in TIMED)])
    table = Table("", COLUMNS, rows, left=len(COLUMNS)).markdown()
    overhead = ""
    if {"worklog, offset kept", "worklog, CUPTI"} <= at_shortest.keys():
        overhead = (
            "worklog calibrates the event overhead on such a kernel and removes it. The others "
            "contain it: with the overhead, worklog reads "
            f"{at_shortest['worklog, offset kept']:.2f} µs, and the GPU's own tracer (CUPTI) reads "
            f"{at_shortest['worklog, CUPTI']:.1f} µs. "
        )
    return f"{table}\n\nThe last row: {comparison.label}. {overhead}".rstrip()


if __name__ == "__main__":
    for name, text in parts().items():
        if not rewrite(README, text, *markers(name, BY)):
            raise SystemExit(f"{README} has no markers of {name}")
