"""Put rungs with a fault on a rare path through the gate on the emulator.

`python -m tests.record.rare_paths [N]`.

A mutant has one condition on the shape, the scalars, an address or the block in front of a fault.
It should be refused, or pass with a clause that names its line; the table counts both, and prints
those that pass in silence.
"""

import random
import re
import sys
import time
from collections import Counter

from worklog.errors import WorklogError
from worklog.kernel import Kernel, rung
from worklog.runner.check import check

RUNGS = (
    "naive", "coalesced", "shared", "tiles_1d", "tiles_2d", "vectorized", "conflict_free",
    "double_buffered",
    "autotuned", "warptiled", "async_copies", "specialized", "tf32",
)  # fmt: skip
BEHIND = "float* C) {\n"
EPILOGUE = "// With beta == 0, C is not read: it may hold NaN.\n"
FAULTS = (
    "alpha *= 2.0f;",
    "beta = 0.0f;",
    "return;",
    "{ alpha = -alpha; beta = -beta; }",
    "C += 1;",
)
SMALLEST = 2  # steps of the domain


def condition(kernel: Kernel, rng: random.Random) -> str:
    """Return a condition that some launch in the kernel's domain meets."""
    domain = kernel.domain
    steps = {"M": domain.m, "N": domain.n, "K": domain.k}
    (x, sx), (y, sy) = rng.sample(sorted(steps.items()), 2)
    few = rng.randint(2, 12)
    times = rng.randint(2, 40)
    most = 4 if max(steps.values()) > 64 else 30  # blocks
    tile = {"M": "y", "N": "x"}
    kinds = {
        "size": f"{x} == {sx * times}",
        "multiple": f"{x} % {sx * few} == {sx * rng.randrange(few)}",
        "two multiples": f"{x} % {sx * few} == 0 && {y} % {sy * rng.randint(2, 6)} == 0",
        "not a multiple": f"{x} % {sx * few} != 0 && {y} == {sy * few}",
        "large": f"{x} > {sx * few * (20 if sx == 1 else 1)}",
        "large and small": f"{x} >= {sx * few} && {y} <= {sy * SMALLEST}",
        "steps": f"{x} / {sx * 4} == {rng.randint(1, 6)} && {y} / {sy} % 4 == 3",
        "tiles": f"({x} + {sx * 4 - 1}) / {sx * 4} == {few}",
        "equal": f"{x} == {y} && {x} > {max(sx, sy)}",
        "longer": f"{x} > {rng.randint(5, 20)} * {y}",
        "product": f"{x} / {sx} * ({y} / {sy}) == {few * rng.randint(2, 5)}",
        "mask": f"(({x} | {y}) & {4 * max(sx, sy) - 1}) == 0",
        "blocks": f"gridDim.x * gridDim.y == {few}",
        "block": f"blockIdx.{rng.choice('xy')} == {rng.randint(1, most)}",
        "block and size": (f"blockIdx.{tile.get(x, 'x')} % {few} == "
                          f"{few - 1 if few <= most else 1} && {y} > {sy * few}"),
        "alpha": f"alpha == {rng.choice((-3.5, 0.1, 1e-3, 7.0, -0.75, 100.0))}f",
        "small beta": f"beta > {rng.choice((3, 10, 100))}.0f",
        "scalars": (f"alpha == {rng.choice((-1.0, 2.0, 0.5))}f && beta == "
                   f"{rng.choice((1.0, -2.0, 3.0))}f"),
        "equal scalars": f"alpha == beta && alpha > {rng.choice((1.0, 2.5))}f",
        "tiny": f"fabsf(alpha) < {rng.choice((1e-3, 1e-6))}f && alpha != 0.0f",
        "address": (f"((size_t){rng.choice('ABC')} & {rng.choice((63, 127, 255))}) == "
                   f"{16 * rng.randint(1, 3)}"),
        "two addresses": "(((size_t)A ^ (size_t)B) & 32) != 0",
        "address and size": f"((size_t){rng.choice('ABC')} & 31) == 16 && {x} % {sx * few} == 0",
        "scalar and size": f"alpha == {rng.choice((-1.0, 3.0))}f && {x} == {sx * few}",
    }  # fmt: skip
    return kinds[rng.choice(sorted(kinds))]


def mutant(rng: random.Random) -> tuple[Kernel, str, int]:
    """Return a rung with a fault, what was added, and the line."""
    kernel = rung(rng.choice(RUNGS))
    fault = rng.choice(FAULTS)
    where = condition(kernel, rng)
    text = kernel.source
    start = text.index(BEHIND, re.search(rf"\b{kernel.function}\(", text).start()) + len(BEHIND)
    place = text.find(EPILOGUE, start)
    late = place >= 0 and rng.random() < 0.5
    if late:
        edit = f"if (rare) {fault}\n"
        text = f"{text[:start]}const bool rare = {where};{text[start:place]}{edit}{text[place:]}"
        place = text.index(edit)
    else:
        edit = f"if ({where}) {fault}\n"
        place = start
        text = f"{text[:start]}{edit}{text[start:]}"
    return kernel.with_text(text), f"{where}: {fault}", text[:place].count("\n") + 1


def main(count: int) -> None:
    """Print a line per mutant that passes, and the counts."""
    rng = random.Random(0)
    counts = Counter[str]()
    for number in range(count):
        kernel, added, line = mutant(rng)
        started = time.process_time()
        try:
            verdict = check(kernel, on="emulated", seed=number).verdict
            result = (
                "refused" if not verdict.accepted else "named" if verdict.never_ran else "silent"
            )
        except WorklogError as error:
            result = "not checked"
            verdict = error
        counts[result] += 1
        counts["cpu s"] += round(time.process_time() - started)
        if result != "refused":
            print(
                f"{number}: {result}: {kernel.name}:{line}: {added}: "
                f"{getattr(verdict, 'result', verdict)}",
                flush=True,
            )
    print(dict(counts))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
