"""The unknowns of a launch: sizes, block and thread indices, and the ranges that they have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from worklog.emulator.launching import MAX_GRID
from worklog.emulator.ptx import PtxKernel
from worklog.errors import BadSetting
from worklog.kernel import WIDE, Kernel, evaluate, is_computed
from worklog.problem import Domain
from worklog.proof.polynomial import ONE, Atom, Polynomial, Scope
from worklog.proof.prover import Prover
from worklog.proof.stop import ProofStopped

AXES = "xyz"


@dataclass(frozen=True)
class BoundedArray:
    """Memory that a kernel may access, from its own address on."""

    name: str
    symbol: Atom
    size: Polynomial  # bytes
    align: int  # bytes
    space: str


@dataclass(frozen=True)
class SymbolicLaunch:
    """A launch with unknown sizes, in an unknown block, by an unknown thread."""

    sizes: Mapping[str, Polynomial]  # M, N and K
    arguments: Mapping[str, Polynomial]  # by parameter
    specials: Mapping[str, Polynomial]  # by special register
    symbols: Mapping[str, Polynomial]  # by variable
    buffers: Mapping[Atom, BoundedArray]  # by address
    blocks: tuple[Polynomial, ...]  # the indices of the block
    thread: Polynomial  # its number in the block


@dataclass(frozen=True)
class GridSize:
    """A number of blocks while it is computed from the sizes, as by (N + 31) / 32."""

    polynomial: Polynomial
    prover: Prover = field(repr=False)

    def _changed(self, polynomial: Polynomial) -> GridSize:
        return GridSize(polynomial, self.prover)

    def __add__(self, other: GridSize | int) -> GridSize:
        return self._changed(self.polynomial + _plain(other))

    def __sub__(self, other: GridSize | int) -> GridSize:
        return self._changed(self.polynomial - _plain(other))

    def __mul__(self, other: GridSize | int) -> GridSize:
        return self._changed(self.polynomial * _plain(other))

    def __floordiv__(self, divisor: int) -> GridSize:
        if divisor < 1:
            raise ProofStopped(0, "the grid isn't affine in M, N and K")
        quotient, remainder = self.polynomial.split(divisor)
        low, high = remainder.range
        if low >= 0 and high < divisor:
            return self._changed(quotient)
        name = f"({remainder})/{divisor}"
        atom = Atom(name, int(low) // divisor, int(high) // divisor)
        missing = remainder - Polynomial.atom(atom) * divisor
        self.prover.definitions[atom] = (missing, -missing + (divisor - 1))
        return self._changed(quotient + Polynomial.atom(atom))

    __radd__ = __add__
    __rmul__ = __mul__


def _plain(value: GridSize | int) -> Polynomial | int:
    return value.polynomial if isinstance(value, GridSize) else value


def sizes_of(domain: Domain, largest: int) -> dict[str, Polynomial]:
    """Return M, N and K of a domain, up to the largest size.

    A size is its step times an unknown, so that what the domain promises is in the polynomial.
    """
    steps = {"M": domain.m, "N": domain.n, "K": domain.k}
    sizes = {}
    if domain.square:
        step = math.lcm(*steps.values())
        atom = Atom(f"M/{step}", 1, largest // step, is_size=True)
        return dict.fromkeys(steps, Polynomial.atom(atom) * step)
    for name, step in steps.items():
        atom = Atom(f"{name}/{step}", 1, largest // step, is_size=True)
        sizes[name] = Polynomial.atom(atom) * step
    return sizes


def symbolic_launch(kernel: Kernel, ptx: PtxKernel, prover: Prover, largest: int) -> SymbolicLaunch:
    """Return a launch of a kernel at any shape of its domain up to the largest size.

    Raises ProofStopped if its grid isn't affine in M, N and K.
    """
    sizes = sizes_of(kernel.domain, largest)
    specials = dict[str, Polynomial]()
    for axis, blocks in zip(AXES, _blocks(kernel, sizes, prover), strict=True):
        max_blocks = MAX_GRID[AXES.index(axis)]
        block = Atom(f"blockIdx.{axis}", 0, max_blocks - 1, scope=Scope.BLOCK)
        # A launch with more blocks than a GPU allows doesn't start.
        prover.define(block, blocks - 1 - Polynomial.atom(block), -blocks + max_blocks)
        specials[f"%ctaid.{axis}"] = Polynomial.atom(block)
        specials[f"%nctaid.{axis}"] = blocks
    thread = Polynomial(())
    threads_before = 1
    threads = (kernel.threads,) if isinstance(kernel.threads, int) else kernel.threads
    for axis, count in zip(AXES, (*threads, 1, 1), strict=False):
        index = _thread_index(axis, count, prover)
        specials[f"%tid.{axis}"] = index
        specials[f"%ntid.{axis}"] = Polynomial.constant(count)
        thread = thread + index * threads_before
        threads_before *= count
    arguments, buffers = _arguments(kernel, ptx, sizes)
    symbols = {}
    for variable in ptx.variables:
        if variable.space != "shared":
            continue
        size = kernel.launch.shared if variable.extern else variable.size
        symbol = Atom(f"&{variable.name}", is_symbol=True)
        symbols[variable.name] = Polynomial.atom(symbol)
        buffers[symbol] = BoundedArray(
            variable.name, symbol, Polynomial.constant(size), variable.align, "shared"
        )
    indices = tuple(specials[f"%ctaid.{axis}"] for axis in AXES)
    return SymbolicLaunch(sizes, arguments, specials, symbols, buffers, indices, thread)


def _blocks(kernel: Kernel, sizes: Mapping[str, Polynomial], prover: Prover) -> list[Polynomial]:
    """Return the blocks along x, y and z."""
    symbolic = [GridSize(size, prover) for size in sizes.values()]
    try:
        counts = kernel.blocks_at(*symbolic)
    except TypeError as error:  # an operation that GridSize lacks
        reason = f"the grid {kernel.grid} isn't affine in M, N and K"
        raise ProofStopped(0, reason) from error
    blocks = []
    for count in (*counts, 1, 1)[:3]:
        size = _plain(count)
        blocks.append(size if isinstance(size, Polynomial) else Polynomial.constant(size))
    return blocks


def _thread_index(axis: str, count: int, prover: Prover) -> Polynomial:
    """Return a thread index as a sum of its bits, so that shifts and masks of it are linear."""
    index = Polynomial(())
    bits = [
        Atom(f"threadIdx.{axis}[{place}]", 0, 1, scope=Scope.THREAD)
        for place in range((count - 1).bit_length())
    ]
    for place, bit in enumerate(bits):
        index = index + Polynomial.atom(bit) * (1 << place)
    if count & count - 1:
        for bit in bits:
            prover.define(bit, -index + (count - 1))
    return index


def _arguments(
    kernel: Kernel, ptx: PtxKernel, sizes: Mapping[str, Polynomial]
) -> tuple[dict[str, Polynomial], dict[Atom, BoundedArray]]:
    """Return the integers and addresses that the parameters have, and the buffers."""
    shapes = {"A": ("M", "K"), "B": ("K", "N"), "C": ("M", "N")}
    align = dict(zip("ABC", kernel.domain.bytes_of, strict=True))
    formats = zip("ABC", kernel.types.formats, strict=True)
    itemsizes = {name: format_.itemsize for name, format_ in formats}
    arguments = dict[str, Polynomial]()
    buffers = dict[Atom, BoundedArray]()
    for parameter, name in zip(ptx.params, kernel.arguments, strict=True):
        if name in shapes:
            rows, columns = shapes[name]
            symbol = Atom(f"&{name}", is_symbol=True)
            size = sizes[rows] * sizes[columns] * itemsizes[name]
            arguments[parameter.name] = Polynomial.atom(symbol)
            buffers[symbol] = BoundedArray(name, symbol, size, align[name], "global")
        elif name.removeprefix(WIDE) in sizes:
            arguments[parameter.name] = sizes[name.removeprefix(WIDE)]
        elif is_computed(name):
            value = _evaluated(name.removeprefix(WIDE), sizes)
            if value is not None:
                arguments[parameter.name] = value
    return arguments, buffers


def _evaluated(expression: str, sizes: Mapping[str, Polynomial]) -> Polynomial | None:
    """Return an argument that is computed from the sizes; None if it isn't a polynomial."""
    try:
        value = evaluate(expression, sizes)
    except (BadSetting, TypeError):
        return None
    return value if isinstance(value, Polynomial) else ONE * value
