"""Benchmarks of few rows: cuBLAS, `worklog.sgemm`, and a kernel that only reads the same B.

`worklog bench tests/record/rows.py --against read --out OUT`, where OUT is
worklog/recordings/chapters/h200_rows.jsonl, on a machine with a GPU; a minute. B is read once, so
that reading it is the floor of the time. All three are measured in one loop, with L2 overwritten
before each call.
"""

from pathlib import Path

import worklog

SIZES = (
    "size[str]=1x4096x4096,1x11008x4096,1x4096x14336,1x8192x8192,"
    "2x4096x4096,2x4096x14336,4x11008x4096,4x4096x14336"
)
READ = Path(__file__).with_name("rows.cu")


def matrices(state):
    """Return A, B and C of a size, and state the work."""
    import cupy

    m, n, k = map(int, state["size"].split("x"))
    a, b = (cupy.random.random(shape, dtype=cupy.float32) - 0.5 for shape in ((m, k), (k, n)))
    state.reads(a.nbytes + b.nbytes)
    state.writes(4 * m * n)
    return a, b, cupy.empty((m, n), cupy.float32)


@worklog.bench(SIZES)
def sgemm(state):
    a, b, c = matrices(state)
    return lambda: worklog.sgemm(a, b, c)


@worklog.bench(SIZES)
def cublas(state):
    import cupy

    a, b, c = matrices(state)
    return lambda: cupy.matmul(a, b, out=c)


@worklog.bench(SIZES)
def read(state):
    import cupy

    _, b, c = matrices(state)
    kernel = cupy.RawKernel(READ.read_text(), "read")
    blocks = 2 * state.device.multiprocessors
    return lambda: kernel((blocks,), (512,), (b, b.size // 4, c))
