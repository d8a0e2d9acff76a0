"""The parts of the README that come from the shipped recordings: its pictures with their numbers, and its comparison
with other harnesses. Their words stand in readme.toml. `python -m tests.record.readme` rewrites them.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from worklog.cli.figures import at_4096, markers, rewrite, share
from worklog.kernel import FP32, TENSOR, Kernel
from worklog.plots.selection import class_of, error_of, leaders, rate
from worklog.runs import CHAPTERS, Measurement, Run, Table, recordings
from worklog.runs.comparison import CUBLAS, KNOWN, Comparison, open_comparison

README = Path(__file__).resolve().parents[2] / "README.md"
BY = "python -m tests.record.readme"
WORDS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("readme.toml").read_text(encoding="utf-8"))
COLUMNS = ("", "worklog", "NVBench", "Triton's do_bench", "KernelBench")
TIMED = ("worklog", "NVBench cold", "do_bench", "")  # the columns' names in a recorded comparison
SIZE = 1024
CHART = "figures/peers.png"
PICTURE = """\
<picture><source media="(prefers-color-scheme: dark)" srcset="figures/{name}_dark.png">
<img src="figures/{name}.png" width="700" alt="{alt}"></picture>"""


def parts() -> dict[str, str]:
    """The text of each part."""
    recorded = at_4096()
    return {
        "comparison": comparison_table(open_comparison()),
        "pictures": pictures(recorded),
        "chapters": chapters(recorded),
    }


def pictures(run: Run) -> str:
    """The picture of both ladders with its numbers. run: the recorded rungs at 4096."""
    plain, tensor = leaders(run.measurements)
    assert plain is not None and tensor is not None, "the recordings hold both ladders"
    (cublas,) = (m for m in run.measurements if m.kernel == CUBLAS)
    libraries = _chapter("h200_libraries").select(shape=plain.problem)
    tf32, bf16x6 = (m for name in ("cublas_tf32", "triton_bf16x6") for m in libraries if m.kernel == name)
    named = {"tensor": tensor, "plain": plain, "tf32": tf32, "bf16x6": bf16x6}
    errors = [error_of(m) for m in (tensor, cublas)]
    largest, largest_of_cublas = (error[0] for error in errors if error is not None)
    return _picture(
        "ladders",
        named.values(),
        error=largest / largest_of_cublas,
        rate={name: rate(m.tflops) for name, m in named.items()},
        precision={name: class_of(m) for name, m in named.items()},
        **named,
    )


def chapters(run: Run) -> str:
    """The words on the timed rungs past the article's, and their picture. run: the recorded rungs at 4096."""
    timed = {m.kernel: m for m in run.measurements}
    fp32, tensor = ([rung for rung in rungs if rung.name in timed] for rungs in (FP32, TENSOR))
    at_shapes = _chapter("h200_shapes").select("best")
    drawn = [100 * (m.ratio or 0.0) for m in at_shapes]

    def shares(rungs: Sequence[Kernel]) -> str:
        """The lowest and the highest share of cuBLAS among the rungs of the class fp32."""
        measured = [timed[rung.name] for rung in rungs]
        of_fp32 = sorted((m for m in measured if class_of(m) == "fp32"), key=lambda m: m.ratio or 0.0)
        ends = (of_fp32[0], of_fp32[-1])
        return " to ".join(f"{share(m)} % (`{m.kernel}`)" for m in ends)

    return _picture(
        "accuracy",
        [*(timed[rung.name] for rung in (*fp32, *tensor)), *at_shapes[:1]],
        first={"fp32": fp32[0].number, "tensor": tensor[0].number},
        last={"fp32": fp32[-1].number, "tensor": tensor[-1].number},
        shares={"fp32": shares(fp32), "tensor": shares(tensor)},
        count=len(drawn),
        mean=geometric_mean(drawn),
        lowest=min(drawn),
    )


def _chapter(name: str) -> Run:
    return Run.load(recordings(CHAPTERS)[name])


def _picture(name: str, measurements: Iterable[Measurement], **numbers: object) -> str:
    """A figure, on a light page and on a dark one, and its text, with the label of the measurements."""
    names = dict[str, list[str]]()
    for m in measurements:
        names.setdefault(m.label, []).append(f"`{m.kernel}`")
    sources = [label + (f" ({', '.join(kernels)})" if len(names) > 1 else "") for label, kernels in names.items()]
    text = WORDS["text"][name].strip().format(sources="; ".join(sources), **numbers)
    filled = textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)
    picture = PICTURE.format(name=name, alt=WORDS["alt"][name])
    return f"{picture}\n\n{filled}" if name == "ladders" else f"{filled}\n\n{picture}"


def comparison_table(comparison: Comparison) -> str:
    """The rows of readme.toml, each cell linked to what backs it, and the recorded readings with their label."""
    rows = [
        (row["about"], *(f"[{words}]({link.format(**WORDS['addresses'])})" for words, link in row["cells"]))
        for row in WORDS["row"]
    ]
    shortest = comparison.works(KNOWN)[0]
    rows.append((f"a kernel of {shortest:g} µs reads", *_timed(comparison.us(KNOWN, shortest), "µs")))
    rows.append((f"timing cuBLAS at {SIZE} takes", *_timed(comparison.wall_s(CUBLAS, SIZE), "s")))
    table = Table("", COLUMNS, rows, left=len(COLUMNS)).markdown()
    since = open_comparison(part="intervals")
    coverage = since.document["promises"]["coverage"]
    wall_s = next(row["wall_s"] for row in coverage if (row["work"], row["of"]) == (CUBLAS, SIZE))
    return (
        f"{table}\n\nThe last two rows: {comparison.label}. worklog now moves the buffers during a measurement: "
        f"{wall_s:.2f} s ({since.label})."
    )


def _timed(readings: Mapping[str, float], unit: str) -> list[str]:
    return [f"[{readings[name]:.2f} {unit}]({CHART})" if name in readings else "not timed" for name in TIMED]


if __name__ == "__main__":
    for name, text in parts().items():
        if not rewrite(README, text, *markers(name, BY)):
            raise SystemExit(f"{README} has no markers of {name}")
