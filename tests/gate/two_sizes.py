"""Kernels that compute with M * N, M / 64 + N / 64 and the like, up to 600 x 500 x 400.

Wrong ones are wrong at few pairs of sizes, and right beside tiny ones. Right ones look alike.
"""

from collections.abc import Callable
from dataclasses import dataclass

from worklog.kernel import Kernel

LARGEST = (600, 500, 400)
GRID = "(N + 15) / 16, (M + 15) / 16"
BLOCK = "16, 16"
TEXT = """{table}extern "C" __global__ void two_sizes(int M, int N, int K, float alpha,
    const float* A, const float* B, float beta, float* C) {{
  const int col = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= M || col >= N) return;
  float acc = 0.0f;
  for (int k = 0; k < K; ++k) acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];
  {statement}
  float* c = &C[(size_t)row * N + col];
  *c = beta == 0.0f ? alpha * acc : alpha * acc + beta * *c;
}}
"""
# The block computes a tile of another order, whose width depends on M * N.
SWIZZLED = """extern "C" __global__ void two_sizes(int M, int N, int K, float alpha,
    const float* A, const float* B, float beta, float* C) {
  const int width = min((int)gridDim.x, 1 + M * N / 5000);
  const int tile = blockIdx.y * gridDim.x + blockIdx.x;
  const int group = tile / (width * gridDim.y);
  const int columns = min(width, (int)gridDim.x - group * width);
  const int in_group = tile - group * width * gridDim.y;
  const int col = (group * width + in_group % columns) * 16 + threadIdx.x;
  const int row = in_group / columns * 16 + threadIdx.y;
  if (row >= M || col >= N) return;
  float acc = 0.0f;
  for (int k = 0; k < K; ++k) acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];
  float* c = &C[(size_t)row * N + col];
  *c = beta == 0.0f ? alpha * acc : alpha * acc + beta * *c;
}
"""
# K is divided into parts, whose number depends on M * N.
SPLIT = """extern "C" __global__ void two_sizes(int M, int N, int K, float alpha,
    const float* A, const float* B, float beta, float* C) {
  const int col = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= M || col >= N) return;
  const int parts = 1 + 4096 / (1 + M * N / 100), length = (K + parts - 1) / parts;
  float acc = 0.0f;
  for (int part = 0; part < parts; ++part) {
    float sum = 0.0f;
    for (int k = part * length; k < min(K, part * length + length); ++k)
      sum += A[(size_t)row * K + k] * B[(size_t)k * N + col];
    acc += sum;
  }
  float* c = &C[(size_t)row * N + col];
  *c = beta == 0.0f ? alpha * acc : alpha * acc + beta * *c;
}
"""


def table(entries: int, wrong: int | None = None, space: str = "__constant__") -> str:
    """Return the declaration of a table T of ones; one entry may be 2."""
    values = ["1"] * entries
    if wrong is not None:
        values[wrong] = "2"
    return f"{space} float T[{entries}] = {{{','.join(values)}}};\n"


@dataclass(frozen=True)
class Wrong:
    """A kernel that is wrong at some sizes."""

    statement: str
    is_wrong: Callable[[int, int, int], bool]  # at M, N and K
    table: str = ""


def kernel(statement: str, declared: str = "") -> Kernel:
    """Return a kernel with a statement that changes acc."""
    text = TEXT.format(table=declared, statement=statement)
    return Kernel.from_source(text, grid=GRID, block=BLOCK)


def tiles(size: int, tile: int, other: int) -> int:
    """Return the tiles along two sizes together."""
    return size // tile + other // tile


WRONG = {
    "quotient": Wrong(
        "acc *= (float)(1 + 1 / (1 + abs(M * N / 10000 - 23)));",
        lambda m, n, _: m * n // 10000 == 23,
    ),
    "sum_of_tiles": Wrong(
        "acc *= T[(M / 32 + N / 32) % 40];",
        lambda m, n, _: tiles(m, 32, n) == 29,
        table(40, 29),
    ),
    "product_modulo_713": Wrong(
        "acc *= 1.0f + (float)(1u / (1u + (unsigned)(M * N) % 713u));",
        lambda m, n, _: m * n % 713 == 0,
    ),
    "scale_of_k_and_n": Wrong(
        "acc *= 1.0f + 0.5f * (float)(K * N / 1000 % 131 / 130);",
        lambda _, n, k: n * k // 1000 % 131 == 130,
    ),
    "bits_of_a_product": Wrong(
        "acc += (float)(((unsigned)(M * N) >> 9 & 127u) / 127u);",
        lambda m, n, _: m * n >> 9 & 127 == 127,
    ),
    "hash_of_two_sizes": Wrong(
        "acc *= T[(M * 3 + N * 5) % 101];",
        lambda m, n, _: (m * 3 + n * 5) % 101 == 44,
        table(101, 44),
    ),
    "array_of_its_own": Wrong(
        f"{table(23, 17, 'const')[:-1]} acc *= T[(M / 16 * (N / 16)) % 23];",
        lambda m, n, _: m // 16 * (n // 16) % 23 == 17,
    ),
    "blocks_of_the_grid": Wrong(
        "acc += (float)(gridDim.x * gridDim.y / 50 % 22 / 21);",
        lambda m, n, _: -(-m // 16) * -(-n // 16) // 50 % 22 == 21,
    ),
    "saturated_distance": Wrong(
        "acc *= 1.0f + __saturatef(1.0f - fabsf((float)(M * N) - 123456.0f) / 60.0f);",
        lambda m, n, _: abs(m * n - 123456) < 60,
    ),
    "mask_of_a_sum": Wrong(
        "const int lost = 20 / (1 + 30 * abs((M + N) / 40 - 23));"
        "acc = __int_as_float(__float_as_int(acc) & -1 << lost);",
        lambda m, n, _: (m + n) // 40 == 23,
    ),
    "smaller_of_two": Wrong(
        "acc *= fminf(1.0f, fabsf((float)(M * N - 200000)) / 5000.0f);",
        lambda m, n, _: abs(m * n - 200000) < 5000,
    ),
    "sum_of_three_tiles": Wrong(
        "acc *= T[(M / 64 + N / 64 + K / 64) % 25];",
        lambda m, n, k: tiles(m, 64, n) + k // 64 == 14,
        table(25, 14),
    ),
    "product_of_tiles": Wrong(
        "acc *= T[(M / 32) * (N / 32) % 37];",
        lambda m, n, _: m // 32 * (n // 32) % 37 == 30,
        table(37, 30, "__device__"),
    ),
}
RIGHT = {
    "quotient": kernel("acc *= (float)(1 + M * N / 630000);"),
    "sum_of_tiles": kernel("acc *= T[(M / 32 + N / 32) % 34];", table(34)),
    "product_modulo_prime": kernel(
        "acc *= 1.0f + (float)(1u / (999u + (unsigned)(M * N) % 997u));"
    ),
    "scale_that_is_undone": kernel("const float s = exp2f((float)(K * N % 7)); acc = acc * s / s;"),
    "product_by_itself": kernel("acc *= (float)(unsigned)(M * N) / (float)(M * N);"),
    "hash_of_two_sizes": kernel("acc *= T[(M * 3 + N * 5) % 101];", table(101)),
    "array_of_its_own": kernel(
        f"{table(23, None, 'const')[:-1]} acc *= T[(M / 16 * (N / 16)) % 23];"
    ),
    "blocks_of_the_grid": kernel("acc += (float)(gridDim.x * gridDim.y / 250000);"),
    "blocks_that_agree": kernel(
        "acc += (float)((M + 15) / 16 * ((N + 15) / 16)) - (float)(gridDim.x * gridDim.y);"
    ),
    "product_of_tiles": kernel(
        "acc *= T[(M / 32) * (N / 32) % 37];", table(37, None, "__device__")
    ),
    "swizzle": Kernel.from_source(SWIZZLED, grid=GRID, block=BLOCK),
    "split_k": Kernel.from_source(SPLIT, grid=GRID, block=BLOCK),
}
