"""The README's table of what this harness does beside NVBench, do_bench and KernelBench.

Every cell links to what backs it: of ours the test that would fail, of theirs the source or the documentation in which
it was read, and for what was timed the recorded comparison.
"""

from __future__ import annotations

from collections.abc import Mapping

from worklog.runs.comparison import CUBLAS, KNOWN, Comparison

COLUMNS = ("", "worklog", "NVBench", "Triton's do_bench", "KernelBench")
TIMED = ("worklog", "NVBench cold", "do_bench", "")  # the columns' names in a comparison
SIZE = 1024
CHART = "figures/peers.png"

NVBENCH = "https://github.com/NVIDIA/nvbench/blob/66212f1da71cc9afb2894a46fa8f234cbdd6c0d8/"
TRITON = "https://github.com/triton-lang/triton/blob/v3.6.0/"
KERNELBENCH = "https://github.com/ScalingIntelligence/KernelBench/blob/423217d9fda91e0c2d67e4a43bf62f96f6d104f1/"
DO_BENCH = "https://triton-lang.org/main/python-api/generated/triton.testing.do_bench.html"
DO_BENCH_SOURCE = f"{TRITON}python/triton/testing.py"
KB_EVAL, KB_TIMING = f"{KERNELBENCH}src/kernelbench/eval.py", f"{KERNELBENCH}src/kernelbench/timing.py"

# What a row is about; then for each column what it does, and where that is tested or can be read.
ROWS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "is the result right?",
        (
            ("exact on integers, then a precision class", "tests/gate/test_gate.py"),
            ("not asked", f"{NVBENCH}docs/benchmarks.md"),
            ("not asked", DO_BENCH),
            ("`allclose`, 1e-4 in FP32", KB_EVAL),
        ),
    ),
    (
        "what the timed launches wrote",
        (
            ("each launch is looked at", "tests/gate/test_every_launch.py"),
            ("not asked", f"{NVBENCH}docs/benchmarks.md"),
            ("not asked", DO_BENCH),
            ("not asked", KB_EVAL),
        ),
    ),
    (
        "L2 before a launch",
        (
            ("flushed, and the flush is proved", "tests/harness/test_calibration.py"),
            ("set to 0, once its size", f"{NVBENCH}nvbench/detail/l2flush.cuh"),
            ("256 MB set to 0", DO_BENCH_SOURCE),
            ("256 MB filled", KB_TIMING),
        ),
    ),
    (
        "does the GPU wait for the host?",
        (
            ("no: queued behind a blocking kernel", "tests/harness/test_sampling.py"),
            ("no: queued behind a blocking kernel", f"{NVBENCH}nvbench/blocking_kernel.cuh"),
            ("no, as long as the clearing lasts", DO_BENCH_SOURCE),
            ("no, as long as the filling lasts", KB_TIMING),
        ),
    ),
    (
        "the event pair's own time",
        (
            ("calibrated and taken off", "tests/harness/test_fixes.py"),
            ("in the result", f"{NVBENCH}nvbench/detail/measure_cold_launch_timer_core.cuh"),
            ("in the result", DO_BENCH_SOURCE),
            ("in the result", KB_TIMING),
        ),
    ),
    (
        "clocks",
        (
            ("SM clock of every sample, and why it throttles", "tests/harness/test_fixes.py"),
            ("SM clock of every sample; below 75 % it is discarded", f"{NVBENCH}docs/cli_help.md"),
            ("not watched", DO_BENCH_SOURCE),
            ("not watched", KB_TIMING),
        ),
    ),
    (
        "the baseline",
        (
            ("in the same loop; paired ratio with its 95 % interval", "tests/harness/test_sampling.py"),
            ("another run, compared afterwards", f"{NVBENCH}docs/nvbench_compare_robust.md"),
            ("another call", DO_BENCH),
            ("another loop, a ratio of means", KB_EVAL),
        ),
    ),
    (
        "a time is",
        (
            ("a median with its 95 % interval", "tests/runs/test_statistics.py"),
            ("a mean with its noise", f"{NVBENCH}nvbench/detail/measure_cold.cu"),
            ("a mean, or what one asks for", DO_BENCH),
            ("a mean of 10", KB_EVAL),
        ),
    ),
    (
        "without a GPU",
        (
            ("recorded runs, and every kernel on an emulator", "tests/bench/test_emulated.py"),
            ("CPU code only", f"{NVBENCH}README.md"),
            ("nothing", DO_BENCH_SOURCE),
            ("nothing", KB_EVAL),
        ),
    ),
)


def markdown(comparison: Comparison) -> str:
    """The table, with the recorded readings below it in rows of their own, and their label."""
    lines = [_line(COLUMNS), "|---|---|---|---|---|"]
    lines += [_line((about, *(f"[{words}]({link})" for words, link in cells))) for about, cells in ROWS]
    shortest = comparison.works(KNOWN)[0]
    lines.append(_line((f"a kernel of {shortest:g} µs reads", *_read(comparison.us(KNOWN, shortest), "µs"))))
    lines.append(_line((f"timing cuBLAS at {SIZE} takes", *_read(comparison.wall_s(CUBLAS, SIZE), "s"))))
    return "\n".join([*lines, "", f"The last two rows: {comparison.label}."])


def _read(found: Mapping[str, float], unit: str) -> list[str]:
    return [f"[{found[name]:.2f} {unit}]({CHART})" if name in found else "not timed" for name in TIMED]


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
