"""Shapes of matrix products that people have, by class, to judge `best` at.

M is the number of rows of A and C: in decoding the number of sequences, in prefill the number of
tokens. N and K are the widths of a layer.
"""

from __future__ import annotations

from math import exp, log
from random import Random

from worklog.problem.gemm import Shape

__all__ = ["WORKLOADS", "log_uniform"]

# N x K of linear layers, by the config.json of the models on Hugging Face (hidden_size and
# intermediate_size): Llama-2-7B's attention and first projection, and Llama-3-8B's last one.
LAYERS = ((4096, 4096), (11008, 4096), (4096, 14336))
DECODED_ROWS = (1, 2, 4, 8, 16, 32, 64)
PREFILL = ((512, 4096, 4096), (1024, 11008, 4096), (2048, 4096, 11008), (777, 4096, 4096))
# No powers of two.
SQUARES = "96 144 200 300 400 500 640 768 900 1000 1280 1536 2000 2500 3000 5000 6000"
# C has many rows and few columns, or the other way round, or a long K behind a small C.
TALL_OR_THIN = (
    (65536, 128, 128),
    (32768, 64, 1024),
    (16384, 32, 4096),
    (10000, 10, 784),
    (128, 65536, 256),
    (64, 64, 65536),
    (256, 256, 32768),
)
SEED = 63
LEAST_DRAWN = 64
MOST_DRAWN = 8192


def log_uniform(count: int, seed: int) -> list[Shape]:
    """Draw shapes, of which each size is log-uniform from 64 to 8192."""
    rng = Random(seed)
    limits = (log(LEAST_DRAWN), log(MOST_DRAWN))
    return [Shape(*(round(exp(rng.uniform(*limits))) for _ in range(3))) for _ in range(count)]


def _decoding() -> list[Shape]:
    """Return the shapes of each layer, for each number of sequences."""
    shapes = list[Shape]()
    for n, k in LAYERS:
        shapes += [Shape(m, n, k) for m in DECODED_ROWS]
    return shapes


# The table of `best` wasn't tuned at any of them.
WORKLOADS: dict[str, list[Shape]] = {
    "decoding": _decoding(),
    "prefill": [Shape(*sizes) for sizes in PREFILL],
    "log-uniform": log_uniform(24, SEED),
    "tall or thin": [Shape(*sizes) for sizes in TALL_OR_THIN],
    "squares": [Shape.of(size) for size in SQUARES.split()],
}
