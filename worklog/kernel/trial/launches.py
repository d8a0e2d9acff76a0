"""Launches of a kernel on the emulator, compared with the products that they may give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any

import numpy as np

from worklog.errors import BadSetting, LaunchFailed
from worklog.kernel.kernel import Kernel
from worklog.kernel.signature import SIZE_NAMES, formats_of_pointers
from worklog.kernel.source import evaluate
from worklog.kernel.trial.candidates import FLOAT, MAX_LAUNCHES, Candidate, labelings
from worklog.kernel.trial.orders import SCALARS, Matrix, Order, fitting
from worklog.problem import Shape
from worklog.problem.formats import FLOAT32

# Of the labels M, N and K; each for tiles that don't divide the lengths before.
SHORT = (64, 96, 32)
LONG = (256, 384, 128)
LONGEST = (512, 1024, 256)
LENGTHS = (SHORT, LONG, LONGEST)
LARGEST = 3  # of a matrix's integers: sums of a thousand products are exact
LARGEST_OF_16_BITS = 1
MIN_SHARE = 0.2  # of C that must be right for an order to be named
MAX_INSTRUCTIONS = 5e7  # of warps, in all launches: some seconds
MAX_TO_VERIFY = 1e7  # of these, in a launch that verifies an order


@dataclass(frozen=True)
class Match:
    """A launch whose result is a product, or a part of it."""

    candidate: Candidate
    order: Order  # the product that explains most of C
    lengths: Mapping[str, int]  # of the labels
    compared: int  # orders
    fitting: int  # of these, orders that explain all of C
    is_clean: bool  # whether the emulator found no error in the launch
    has_nan: bool  # whether the launch wrote NaN

    @property
    def is_product(self) -> bool:
        """Whether the launch gives a product and makes no error."""
        return self.is_clean and self.order.share == 1


@dataclass(frozen=True)
class _TrialResult:
    """The result of a launch."""

    initial: list[Matrix]  # of each pointer, before the launch
    final: list[Matrix]  # of each pointer, after the launch
    is_clean: bool  # whether the emulator found no error


def sides(shape: Shape) -> dict[str, int]:
    """Return the lengths of a shape by their names."""
    return {"M": shape.m, "N": shape.n, "K": shape.k}


class TrialLaunch:
    """A compiled kernel, with counts of its trial launches."""

    def __init__(self, kernel: Kernel) -> None:
        from worklog.emulator.reports import TooLarge  # here: few commands need it
        from worklog.kernel.emulated import EmulatedDevice

        self.kernel = kernel
        self.launches = 0
        self.compared = 0  # orders, with one launch
        self._declared = kernel.definition.parameters
        self._too_large = TooLarge
        self._device = EmulatedDevice(races=False)
        self._device.most_instructions = MAX_INSTRUCTIONS
        self._compiled = self._device.compile(kernel.program)  # as a check does: compiled once

    def search(
        self,
        candidates: Iterable[Candidate],
        lengths: Sequence[tuple[int, ...]] = LENGTHS,
        limit: int = MAX_LAUNCHES,
        *,
        is_stated: bool = False,
    ) -> Match | None:
        """Return the first launch whose result is a product, or else the best match.

        None if no launch is near a product.

        lengths: each for the labels M, N and K
        limit: the largest number of launches
        is_stated: whether a user or the file states the launch, which then may make errors
        """
        best: Match | None = None
        keys = set[tuple[Any, ...]]()
        for candidate, numbers in product([*candidates], lengths):
            values = dict(zip(SIZE_NAMES, numbers, strict=True))
            if len(candidate.sizes) == 1:
                values = dict.fromkeys(SIZE_NAMES, numbers[0])
            try:
                grid = candidate.launch.blocks({**values, **self.kernel.constants})
                threads = candidate.launch.threads(self.kernel.template)
            except BadSetting:
                continue
            key = (candidate.labels, grid, threads, numbers, str(candidate.roles))
            if key in keys or min(grid) < 1 or self.launches >= limit:
                continue
            keys.add(key)
            try:
                result = self._launch(candidate, grid, threads, values)
            except self._too_large:
                break
            match = self._best_match(candidate, result, values)
            if match and (best is None or match.order.rank > best.order.rank):
                best = match
            # With a stated launch, an error is a matter of the check.
            if best and best.order.share == 1 and (best.is_clean or is_stated):
                return best
        return best

    def _best_match(
        self, candidate: Candidate, result: _TrialResult, lengths: Mapping[str, int]
    ) -> Match | None:
        """Return the product that a launch most likely gives; None if it gives no product."""
        orders = fitting(result.initial, result.final, candidate, lengths)
        self.compared = max(self.compared, len(orders))
        likely = [order for order in orders if order.share >= MIN_SHARE]
        if not likely:
            return None
        return Match(
            candidate,
            max(likely, key=lambda order: order.rank),
            lengths,
            compared=len(orders),
            fitting=sum(order.share == 1 for order in orders),
            is_clean=result.is_clean,
            has_nan=any(np.isnan(matrix).any() for matrix in result.final),
        )

    def orders(self, shape: Shape) -> list[Order]:
        """Return the products that the kernel's own launch may give at a shape.

        Raises TooLarge, as for a grid of constants that is for large matrices.
        """
        self._device.most_instructions = MAX_TO_VERIFY
        launch = self.kernel.launch
        [labels] = labelings(self.kernel)
        lengths = sides(shape)
        candidate = Candidate(labels, launch, roles={size: size for size in SIZE_NAMES})
        grid = launch.blocks({**lengths, **self.kernel.constants})
        if min(grid) < 1:
            return []
        threads = launch.threads(self.kernel.template)
        result = self._launch(candidate, grid, threads, lengths)
        return fitting(result.initial, result.final, candidate, lengths)

    def _launch(
        self, candidate: Candidate, grid: tuple[int, ...], threads: Any, lengths: Mapping[str, int]
    ) -> _TrialResult:
        """Launch the kernel with matrices of small integers.

        lengths: of the labels
        Raises TooLarge.
        """
        rng = np.random.default_rng(1)
        elements = max(x * y for x, y in permutations(lengths.values(), 2))
        initial = list[Matrix]()
        buffers = list[Any]()
        arguments = list[Any]()
        scalars = iter(SCALARS)
        formats = formats_of_pointers(self.kernel.definition, candidate.launch.instance)
        is_single = {*formats.values()} <= {FLOAT32}
        largest = LARGEST if is_single else LARGEST_OF_16_BITS
        for parameter, label in zip(self._declared, candidate.labels, strict=True):
            if parameter.pointer:
                drawn = rng.integers(-largest, largest + 1, elements).astype(np.float32)
                buffer = self._device.upload(drawn, formats.get(parameter.name, FLOAT32))
                initial.append(drawn)
                buffers.append(buffer)
                arguments.append(buffer)
            elif label == FLOAT:
                arguments.append(np.float32(next(scalars)))
            else:
                value = evaluate(label, lengths)
                arguments.append(np.dtype(parameter.dtype).type(value))
        self.launches += 1
        program = replace(self._compiled.program, arguments=(), shared=candidate.launch.shared)
        is_clean = True
        try:
            self._device.launch(replace(self._compiled, program=program), grid, threads, arguments)
            self._device.synchronize()
        except LaunchFailed as error:
            if isinstance(error, self._too_large):
                raise
            is_clean = False
        return _TrialResult(
            initial, [buffer.data.astype(np.float32) for buffer in buffers], is_clean
        )
