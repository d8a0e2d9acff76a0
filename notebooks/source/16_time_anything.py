# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Time anything
#
# **Goal:** you time a function that is no matrix product with the harness of the ladder, declare a benchmark that is
# measured at many sizes, and put a problem of your own before the gate.

# %%
import worklog
from worklog import lab, plots
from worklog.runs.comparison import open_comparison

compared = open_comparison(part="benchmarks")
softmax = compared.us("softmax · rows=4096 · columns", 1024)
title = f"One softmax of 4096 x 1024: {min(softmax.values()):.1f} to {max(softmax.values()):.1f} µs"
subtitle = "µs by harness. Blue: a cold L2. Grey: a warm one."
cold = [name for name in softmax if name.startswith("worklog") and "hot" not in name] + [
    "NVBench cold",
    "do_bench",
]
plots.bars(
    title,
    {"µs per launch": softmax},
    compared.label,
    subtitle=subtitle,
    accented=cold,
    written="{:.1f}",
)

# %% [markdown]
# The same function on the same GPU. The problem of section 5 is checked here and now, on the emulator. New times need a
# GPU; without one, this page shows recorded ones.
#
# ## 1. One call
#
# `worklog.time` takes any call that enqueues work on the current stream of PyTorch or CuPy. It warms up, flushes L2
# before each launch, queues the launch behind a blocking kernel, removes the event overhead, and stops when the median
# is known to ±0.5 %. It doesn't know what the call computes, so the result says that it was not checked.

# %%
from IPython.display import display

from worklog.runner.sources import live_wanted

if live_wanted():
    import torch

    A, B = (torch.rand(1024, 1024, device="cuda") for _ in range(2))
    display(worklog.time(torch.mm, A, B, flops=2 * 1024**3, reads=2 * A.nbytes, writes=A.nbytes))
else:
    us = compared.us("matmul · dtype=bfloat16 · N", 1024)["worklog"]
    print(
        f"{compared.label}: torch.mm at 1024 in bfloat16 took {us:.2f} µs, {2 * 1024**3 / us / 1e6:.0f} TFLOP/s"
    )

# %% [markdown]
# | the call … | argument |
# |---|---|
# | takes keyword arguments | `kwargs={"out": C}` |
# | waits for the GPU itself | `sync=True` |
# | is only partly of interest | `timer=True`: it gets a stopwatch first |
# | leaves gradients behind | `grad_to_none=[x]` |
# | stands beside another one | `against=other`: both alternate, and the ratio has an interval |
#
# ## 2. A declared benchmark
#
# A decorated function is a benchmark. Its axes say at which points it is measured. It gets a `state`, prepares the
# inputs, states the work of one launch, and returns the launch. Those who know NVBench know all of it.

# %%
from pathlib import Path

from worklog.benchmarks.declare import declared

for benchmark in declared(Path("examples") / "06_benchmarks.py"):
    display(benchmark)

# %% [markdown]
# `worklog bench examples/06_benchmarks.py` measures every point in a process of its own and keeps a run like any
# other; `--axis columns=1000` takes other values, `--filter softmax` some of the benchmarks. `examples/07_triton.py`
# declares the same for a Triton kernel. Each row has the cold time, and the hot time beside it: launches in a row,
# which find in L2 what the one before left there.
#
# A file of NVBench's Python benchmarks is measured the same way: replace its `import cuda.bench as bench` by `import
# worklog.benchmarks.nvbench as bench`.
#
# ## 3. The same work by other harnesses
#
# `worklog peers --bench examples/06_benchmarks.py --bench examples/09_triton_matmul.py` hands each declared point to
# `do_bench`, NVBench, the GPU's tracer and the others of [notebook 15](15_harnesses_compared.ipynb). The table has
# microseconds. NVBench batch, `do_bench_cudagraph` and worklog, hot measure with a warm L2.

# %%
by_harness = compared.frame().pivot_table("us", "ruler", ["work", "of"], sort=False)
by_harness.rename_axis("harness").round(2)

# %% [markdown]
# `python -m tests.record.ported FOLDER`, in a checkout of this project, fetches examples that NVBench, Tensara and
# FlashInfer publish, ports each in at most ten changed lines, and reads each by its own tool (theirs) and by this one
# (ours). Tensara's engine empties PyTorch's cache before each sample and holds no queue back, so the memory that a
# solution allocates and the gap before its launch can be in its time. Its times are above ours, by very different
# amounts; the record doesn't split them up. The lines above the table say why a number is missing.

# %%
import json

import pandas as pd

from worklog.runs import recordings

published = json.loads(recordings("ported")["h200"].read_text(encoding="utf-8"))
print(published["label"].replace("live", "recorded", 1))
reasons = [f"{row['example']}: {why}" for row in published["rows"] for why in row["why"]]
print(*dict.fromkeys(reasons), sep="\n")
columns = ["project", "example", "point", "lines", "unit", "theirs", "ours", "hot_theirs", "hot"]
pd.DataFrame(published["rows"])[columns].round(2)

# %% [markdown]
# ## 4. Results are data
#
# A run is a data frame, and `samples()` has a row for each launch. The pivot marks the fastest kernel at each size, and
# the kernels that can't be distinguished from it.

# %%
run = worklog.results(["vectorized", "double_buffered", "warptiled", "cuBLAS"], [1024, 2048, 4096])
run.pivot()

# %%
run.frame()[["kernel", "n", "us", "us_low", "us_high", "tflops", "ratio", "source"]].round(2)

# %% [markdown]
# ## 5. A problem
#
# A problem has a reference, named cases, a signature, and a tolerance for each dtype. `worklog new softmax DIR` writes
# source to start from. A solution is a host function that launches kernels, as many as it likes.

# %%
SOFTMAX = """\
__global__ void row_softmax(const float* input, float* output, int columns) {
  __shared__ float parts[128];
  const int t = threadIdx.x;
  const float* x = input + blockIdx.x * columns;
  float sum = 0.0f;
  for (int i = t; i < columns; i += 128) sum += expf(x[i]);
  parts[t] = sum;
  for (int half = 64; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) parts[t] += parts[t + half];
  }
  __syncthreads();
  for (int i = t; i < columns; i += 128) output[blockIdx.x * columns + i] = expf(x[i]) / parts[0];
}

extern "C" void solution(const float* input, float* output, int rows, int columns) {
  row_softmax<<<rows, 128>>>(input, output, columns);
}
"""


# %% tags=["varies"]
from tempfile import mkdtemp

from worklog.kernel.solution import Solution
from worklog.runner.check import check

file = Path(mkdtemp()) / "softmax.cu"
file.write_text(SOFTMAX)
print(check(Solution.of(file, problem="softmax"), on="emulated"))

# %% [markdown]
# The first cases pass. The last one lies around 100, where `expf` overflows: a mistake that uniform inputs never show.
# For the solution without it, subtract the largest element of the row before `expf`.
#
# A problem of your own is a class, with the names of Tensara's: `reference_solution`, `generate_test_cases`,
# `get_extra_params`, and where they are known `get_flops` and `get_bytes`. `worklog check mine.cu --problem
# file.py:MyProblem` checks a solution of it, and `worklog run mine.cu --problem …` times it on a GPU.
#
# ## Exercise
#
# Mend the kernel, and give the whole source.

# %%
answer = None  # the source, a string
lab.check_answer("16", answer)

# %% tags=["solution"]
largest = """float most = -INFINITY;
  for (int i = t; i < columns; i += 128) most = fmaxf(most, x[i]);
  parts[t] = most;
  for (int half = 64; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) parts[t] = fmaxf(parts[t], parts[t + half]);
  }
  __syncthreads();
  most = parts[0];
  __syncthreads();
  float sum = 0.0f;"""
answer = SOFTMAX.replace("float sum = 0.0f;", largest).replace("expf(x[i])", "expf(x[i] - most)")
lab.check_answer("16", answer)

# %% [markdown]
# ## Exercises
#
# 1. Why must the benchmark return the launch instead of the result?
# 2. When is the hot time the right one to quote?
# 3. What would the check of the problem miss if its inputs were all zeros?
#
# <details><summary>Answers</summary>
#
# 1. It runs once for each point, and its preparation is not measured. What it returns is launched again and again.
# 2. If the real program runs the kernel right after its inputs were written, and they fit into L2.
# 3. Nearly everything: each element of the result is then 1 over the number of columns, whichever element is read.
#
# </details>
#
# **Where next:** [a table](seeds.md) lists each feature of the package with its command.
# [17_bugs_in_famous_kernels](17_bugs_in_famous_kernels.ipynb) puts public kernels before the gate.
