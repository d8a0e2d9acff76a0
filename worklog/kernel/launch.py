"""How a kernel is launched: grid and block as a user writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from worklog.errors import BadSetting, listed
from worklog.kernel.device import Block
from worklog.kernel.source import evaluate, parts

EXAMPLE_GRID = "'(N + 31) / 32, (M + 31) / 32'"


@dataclass(frozen=True)
class Launch:
    """One launch of a __global__ function. Its texts may name the parameters of the kernel's template.

    function: with its template arguments, as in "sum_parts<BM, 4>". grid: blocks along x, y and z, expressions that may
    also name M, N and K. block: threads along x, or along x and y. shared: bytes of dynamic shared memory per block.
    """

    function: str
    grid: str = ""
    block: str = ""
    shared: int = 0

    def blocks(self, names: Mapping[str, int]) -> tuple[int, ...]:
        """Blocks along x and y, and along z if the grid has that. names: values of names. Raises BadSetting."""
        sizes = tuple(evaluate(part, names) for part in parts(self.grid))
        if not 1 <= len(sizes) <= 3:
            raise BadSetting(
                f"cannot read the grid {self.grid!r}: give blocks along x and y, such as '(N + 31) / 32, M / 8'"
            )
        return sizes if len(sizes) > 1 else (*sizes, 1)

    def threads(self, names: Mapping[str, int]) -> Block:
        """Threads per block: along x, or along x and y. Raises BadSetting."""
        sizes = [evaluate(part, names) for part in parts(self.block)]
        if len(sizes) not in (1, 2) or min(sizes) < 1:
            raise BadSetting(f"cannot read the block {self.block!r}: give threads along x, or x and y: 256 or 32,8")
        return sizes[0] if len(sizes) == 1 else (sizes[0], sizes[1])


def launch_text(argument: str, sizes: Any) -> str:
    """A grid or a block as one text: "N / 8, M", 256, or ("N / 8", "M"). Raises BadSetting."""
    given = listed(argument, sizes)
    if not all(isinstance(size, str | Integral) for size in given):
        raise BadSetting(f"{argument}: give integers or text, such as {EXAMPLE_GRID}, not {sizes!r:.60}")
    return ", ".join(map(str, given))


def require_texts(words: Mapping[str, Any]) -> None:
    """Raise BadSetting for what is no text, or no CUDA C++. words: arguments of Kernel.from_source."""
    for argument, value in words.items():
        if not isinstance(value, str | None):
            raise BadSetting(f"{argument}: give text, not {value!r:.60}")
    source, file = words["source"], words["file"]
    if source.strip().endswith(".cu") and "{" not in source:
        raise BadSetting(f"{source.strip()!r} is the name of a file: give its text, or use Kernel.from_file")
    if "\0" in source:
        line = source[: source.index("\0")].count("\n") + 1
        raise BadSetting(f"{file}:{line}: the source has a NUL character, where the compiler stops: delete it")
