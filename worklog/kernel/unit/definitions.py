"""The functions and names that a CUDA source defines, and those of them that a kernel needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

from worklog.kernel.unit.declarations import names_in
from worklog.problem import Parameter

Spans = Sequence[tuple[int, int, str]]  # starts, ends and what is there instead


@dataclass(frozen=True)
class Definition:
    """A function's definition."""

    name: str  # with its namespaces
    is_kernel: bool
    template: Mapping[str, str]  # names and default values of the template's parameters
    bounds: str  # threads of __launch_bounds__, "" without __launch_bounds__
    parameters: tuple[Parameter, ...]
    body: Any  # the node between braces
    constants: Mapping[str, str]  # expressions of the names that the body declares
    line: Callable[[int], int]  # of the source, from 1, for a byte of the tree; in a header, 0
    header: str  # the text of the header that defines it; "" for the source

    @property
    def is_own(self) -> bool:
        """True for a function of the source, False for a header's."""
        return self.line(self.body.start_byte) > 0


@dataclass(frozen=True, eq=False)
class Piece:
    """What a text defines at the scope of the file or of a namespace."""

    text: int  # number of the text
    start: int  # place in the text
    end: int
    span: tuple[int, int]  # place in the text that macros expand to
    names: frozenset[str]  # that it defines
    is_for_host: bool  # device code can't use it
    mentions: frozenset[str]  # words of its code
    operands: frozenset[str] | None  # words of an operator's parameters; None for another piece
    code: str  # as macros expand it, without left_out
    left_out: tuple[tuple[int, int], ...]  # places of a structure's members that are for the host
    host_members: tuple[tuple[int, int], ...]  # the same in the text that macros expand to

    def is_for(self, names: Set[str], defined: Set[str]) -> bool:
        """Return whether this is an operator of types that are needed.

        names: the needed names
        defined: the names that any piece defines
        """
        return self.operands is not None and (self.operands & defined) <= names


@dataclass(frozen=True, eq=False)
class Unit:
    """What a source and its headers define."""

    functions: tuple[Definition, ...]  # in order
    constants: Mapping[str, str]  # expressions of names that have one value each
    defined: frozenset[str]  # names of macros, types and functions
    pieces: tuple[Piece, ...]  # in order, of the headers and then of the source
    macros: Mapping[str, frozenset[str]]  # words of what each stands for
    instances: tuple[str, ...]  # explicit instantiations
    texts: tuple[bool, ...]  # of each header and of the source, whether it stays as it is
    root: Any  # of the tree of all texts, as macros expand them
    # The name in the source at a byte of the tree; for what a macro expands to, the macro's name.
    word_at: Callable[[int], str]
    arguments: tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]]  # of read()

    def unneeded(self, entry: str) -> list[Spans]:
        """Return what a kernel doesn't need, for each header and the source.

        entry: the kernel, with its template arguments
        """
        needed, _ = self._needed(entry)
        spans = [list[tuple[int, int, str]]() for _ in self.texts]
        # Several pieces with the same start come from one macro.
        for (text, start), group in groupby(self.pieces, lambda piece: (piece.text, piece.start)):
            if self.texts[text]:
                continue
            pieces = [*group]
            needed_pieces = [piece for piece in pieces if piece in needed]
            places = [*chain.from_iterable(piece.left_out for piece in needed_pieces)]
            if len(needed_pieces) < len(pieces) or (start, start) in places:
                code = " ".join(piece.code for piece in needed_pieces)
                spans[text].append((start, max(piece.end for piece in pieces), code))
            else:
                spans[text] += [(first, last, "") for first, last in places]
        return [*spans]

    def lacks(self, entry: str, other: Unit) -> bool:
        """Return whether a kernel may need what only another unit defines.

        entry: the kernel
        """
        _, mentioned_names = self._needed(entry)
        defined_here = self._device_names()
        defined_there = other._device_names()
        # Operators of types that both units know, such as float4.
        has_operators = any(piece.is_for(frozenset(), defined_there) for piece in other.pieces)
        return has_operators or not defined_there.isdisjoint(mentioned_names - defined_here)

    def _device_names(self) -> set[str]:
        """Return the macros, and the names that the pieces for device code define."""
        return {*self.macros}.union(*(piece.names for piece in self._device_pieces()))

    def _device_pieces(self) -> Iterator[Piece]:
        """Yield the pieces that device code can use."""
        return (piece for piece in self.pieces if not piece.is_for_host)

    def _needed(self, entry: str) -> tuple[set[Piece], set[str]]:
        """Return the pieces that a kernel needs, and the names that it mentions.

        Each piece that defines a mentioned name is needed, and mentions further names.
        """
        pieces_by_name = defaultdict[str, list[Piece]](list)
        for piece in self._device_pieces():
            for name in piece.names:
                pieces_by_name[name].append(piece)
        needed = {piece for piece in self.pieces if self.texts[piece.text]}
        waiting = {*names_in(entry)}.union(*(piece.mentions for piece in needed))
        names = set[str]()
        while waiting:
            name = waiting.pop()
            names.add(name)
            pieces = {*pieces_by_name.get(name, ())}
            if not waiting:
                pieces |= {
                    piece for piece in self.pieces if piece.is_for(names, pieces_by_name.keys())
                }
            for piece in pieces - needed:
                waiting |= piece.mentions - names
            waiting |= self.macros.get(name, frozenset()) - names
            needed |= pieces
        return needed, names

    @property
    def kernels(self) -> list[str]:
        """The names of the source's __global__ functions, in order.

        If the source has none, the names of its headers' __global__ functions.
        """
        kernels = [function for function in self.functions if function.is_kernel]
        from_source = [kernel for kernel in kernels if kernel.is_own]
        return list(dict.fromkeys(kernel.name for kernel in from_source or kernels))

    def definition(self, name: str, *, of_host: bool = False) -> Definition | None:
        """Return the definition of a kernel or a host function; None if there is none.

        name: the function's name; namespaces may be left out
        of_host: whether to look for a host function
        """
        for function in self.functions:
            if function.is_kernel == of_host:
                continue
            if f"::{function.name}".endswith(f"::{name}"):
                return function
        return None
