"""The memory that each warp of a block touches, for worklog/lab/access.js.

The addresses are those that the compiled kernel executed. Every number is computed here; the page
places it. Addresses repeat from warp to warp and from tile to tile, so a step is the number of its
kind (which lanes touch which bytes around a base, as text and as counts) and its distance from the
last step of that kind.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from worklog.emulator.limits import WARP
from worklog.emulator.program import Site
from worklog.errors import BadSetting
from worklog.kernel import Kernel, rung
from worklog.kernel.emulated import CHIP
from worklog.problem import Shape, Size
from worklog.viewer.blocks import ReferenceBlock, compared_blocks
from worklog.viewer.elements import code, elements_of
from worklog.viewer.trace import (
    FLOAT,
    GLOBAL,
    Executed,
    Lanes,
    Step,
    buffer_of,
    executed,
    step_of,
)

SECTOR = 32  # bytes
BANKS = 32  # of 4 bytes
FILE_SIZE = 128
LEAST_K = 32


@dataclass(frozen=True)
class AccessTrace:
    """The memory that each warp of a block touches."""

    kernel: Kernel
    label: str  # the source of the addresses
    # The page of access.js, for JSON. `steps` has the steps of each warp: a kind, then the distance
    # in bytes from the last step of that kind, and likewise the distance of the elements of A or B
    # that the step holds. A step without bytes has only its kind.
    document: dict[str, Any]

    def steps(self, warp: int) -> Iterator[tuple[dict[str, Any], int, int]]:
        """Yield the kind, the byte and the element of each of a warp's steps, in order.

        The byte is the place of the step. The element is the first of A or B that the step holds.
        """
        last: dict[int, tuple[int, int]] = {}
        for number, *distances in self.document["steps"][warp]:
            byte_distance, element_distance = [*distances, 0, 0][:2]
            last_byte, last_element = last.get(number, (0, 0))
            byte = last_byte + byte_distance
            element = last_element + element_distance
            last[number] = (byte, element)
            yield self.document["kinds"][number], byte, element


def access(kernel: Kernel | str, shape: Size | None = None, block: int = 0) -> AccessTrace:
    """Return the memory that each warp of a block touches, without a GPU.

    Example: `access("vectorized").document`.

    kernel: with a launch, or a rung's name
    shape: default: 2 x 2 tiles and a K of a few tiles; 128 for a kernel that states no tile
    block: the block's number in the grid

    Raises BadSetting for a block that the grid doesn't have and for a host function, TooLarge for
    over 100,000 accesses, CompileFailed, NvrtcMissing, LaunchFailed and UnsupportedInstruction.
    """
    kernel = _runnable(kernel)
    kernel = kernel.at(Shape.of(shape or FILE_SIZE), CHIP)
    shape = default_shape(kernel) if shape is None else Shape.of(shape)
    kernel.check(shape)
    grid = kernel.blocks(shape)
    if not 0 <= block < math.prod(grid):
        count = math.prod(grid)
        raise BadSetting(
            f"block {block} doesn't exist: {kernel.name} has {count} blocks at {shape}, the first "
            "is block 0"
        )
    reader = _TraceReader(kernel, shape, grid, block)
    return AccessTrace(kernel, reader.run.label, reader.document())


def common_shape(kernels: Sequence[Kernel | str]) -> Shape:
    """Return the smallest shape that has each kernel's default shape of access().

    Raises BadSetting for a kernel without a launch.
    """
    runnable = [_runnable(kernel).at(Shape.of(FILE_SIZE), CHIP) for kernel in kernels]
    shapes = [default_shape(kernel) for kernel in runnable]
    sides = [max(sides) for sides in zip(*((s.m, s.n, s.k) for s in shapes), strict=True)]
    shape = Shape(*sides)
    while not all(kernel.domain.padded(shape) == shape for kernel in runnable):
        for kernel in runnable:
            shape = kernel.domain.padded(shape)
    return shape


def _runnable(kernel: Kernel | str) -> Kernel:
    """Return a kernel with a launch, or a rung by its name. Raises BadSetting."""
    kernel = rung(kernel) if isinstance(kernel, str) else kernel
    kernel.require_source()
    if not kernel.grid:
        raise BadSetting(f"{kernel.name}: give a .cu file with its --grid and --block, or a rung")
    return kernel


def default_shape(kernel: Kernel) -> Shape:
    """Return a shape with 2 x 2 tiles and a K of a few tiles.

    128 for a kernel that states no tile.
    """
    tile = kernel.template
    m, n = (2 * tile[name] if name in tile else FILE_SIZE for name in ("BM", "BN"))
    shape = kernel.domain.padded(Shape(m, n, max(LEAST_K, 2 * tile.get("BK", 0))))
    if not tile:
        return shape
    # A grid that doesn't depend on the shape shares K's steps: its first block must get some steps.
    return replace(shape, k=shape.k * -(-math.prod(kernel.blocks(shape)) // 4))


def listed_lines(kernel: Kernel) -> range:
    """Return the lines of the kernel's function, from its signature on.

    All lines of the file if the function isn't defined there.
    """
    text = kernel.source.splitlines()
    definition = kernel.unit.definition(kernel.entry.partition("<")[0])
    if definition is None or not definition.is_own:
        return range(1, len(text) + 1)
    first = definition.line(definition.body.start_byte)
    while first > 1 and text[first - 2].strip():
        first -= 1
    return range(first, definition.line(definition.body.end_byte - 1) + 1)


VERBS = {"ld": "read", "st": "write", "atom": "update", "cp": "copy"}
WAITS = {
    "bar": "__syncthreads()",
    "barrier": "a barrier",
    "mbarrier": "an mbarrier",
    "cp": "its copies",
}
MATRIX = ("ldmatrix", "stmatrix", "wmma")  # instructions


def _several(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless the count is 1."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@dataclass
class _Pill:
    """The cost of a line's accesses to a memory."""

    costs: list[tuple[int, str]] = field(default_factory=list)  # by kind
    count: int = 0  # of accesses
    excess: int = 0  # sectors or wavefronts that aren't needed
    bad: bool = False  # whether an access wastes
    first: tuple[int, int] = 0, 0  # the warp, and the number of its access
    worst: tuple[int, int] | None = None  # likewise, for the first access that wastes


class _TraceReader:
    """Turns the trace of a block into steps, and kinds of steps."""

    def __init__(self, kernel: Kernel, shape: Shape, grid: tuple[int, ...], block: int) -> None:
        self.kernel = kernel
        self.shape = shape
        self.grid = grid
        self.block = block
        self.sizes = {"A": (shape.m, shape.k), "B": (shape.k, shape.n), "C": (shape.m, shape.n)}
        self.of_a = shape.m * shape.k
        count = self.of_a + shape.k * shape.n
        self.codes = code(np.arange(count)).view(np.float32)
        self.run = self._executed(block)
        # The elements of A, then of B, in shared memory; -1: unknown.
        self.elements = elements_of(self.run.trace["words"], count)
        self.kinds: list[dict[str, Any]] = []
        self.kind_numbers: dict[Any, tuple[int, int]] = {}  # the number of a kind, and its excess
        self.pills: dict[tuple[int, int, str, str], _Pill] = defaultdict(_Pill)
        # By matrix, the first and the last row and column that are touched.
        self.touched = dict[str, list[int]]()
        # By warp and pc, the elements that a cp.async reads.
        self.copied: dict[tuple[int, int], Lanes] = {}
        self.steps: list[list[list[int]]] = [[] for _ in range(-(-kernel.thread_count // WARP))]

    def _executed(self, block: int) -> Executed:
        """Run a block on A and B whose elements identify themselves."""
        a = self.codes[: self.of_a].copy()
        b = self.codes[self.of_a :].copy()
        return executed(self.kernel, self.shape, block, a=a, b=b)

    def document(self) -> dict[str, Any]:
        """Return the page for access.js."""
        self._add_steps()
        arrays = self._number_arrays()
        start = self._first_pill()
        return {
            "kernel": self.kernel.name,
            "idea": self.kernel.idea,
            "about": f"M, N, K = {self.shape.m}, {self.shape.n}, {self.shape.k} · "
            f"block {self.block} of {' × '.join(map(str, self.grid))} · "
            f"{self.kernel.thread_count} threads · {self.run.label}",
            "grid": [*self.grid],
            "block": self.block,
            "blocks": self._blocks(arrays),
            "depth": self.kernel.template.get("BK"),  # of a tile along K
            "notes": [finding.at(self.kernel.file) for finding in self.run.result.findings[:3]],
            "arrays": arrays,
            "matrices": {
                name: [*self.sizes[name], *self._part(name)]
                for name in self.sizes
                if name in self.touched
            },
            "of_a": self.of_a,
            "source": self._source(),
            "pills": [self._pill(name, pill) for name, pill in self.pills.items()],
            "kinds": self.kinds,
            "steps": self.steps,
            "start": [*(start.worst or start.first)],
        }

    def _add_steps(self) -> None:
        """Read the trace into steps, kinds of steps and pills."""
        last: list[dict[int, tuple[int, int]]] = [defaultdict(lambda: (0, 0)) for _ in self.steps]
        accesses = [0] * len(self.steps)  # steps but for waits
        for places in self._groups():
            warp = int(self.run.trace["warp"][places[0]])
            step = self._read(places)
            if step is None:
                continue
            (kind, excess), base, element = step
            last_base, last_element = last[warp][kind]
            distances = [base - last_base, element - last_element]
            last[warp][kind] = (base, element)
            while distances and not distances[-1]:
                distances.pop()
            self.steps[warp].append([kind, *distances])
            if "pill" in self.kinds[kind]:
                pill = self.pills[self.kinds[kind]["pill"]]
                if not pill.count:
                    pill.first = (warp, accesses[warp])
                if excess and not pill.worst:
                    pill.worst = (warp, accesses[warp])
                pill.count += 1
                pill.excess += excess
                accesses[warp] += 1

    def _number_arrays(self) -> list[str]:
        """Return the arrays in order, and replace names in the kinds by numbers.

        The names are those of arrays and pills.
        """
        kinds = [kind for kind in self.kinds if "pill" in kind]
        names = {kind["array"] for kind in self.kinds if "array" in kind}
        arrays = sorted(names, key=lambda name: (name not in GLOBAL, name))
        pill_names = [*self.pills]
        for kind in kinds:
            kind["array"] = arrays.index(kind["array"])
            kind["pill"] = pill_names.index(kind["pill"])
        return arrays

    def _blocks(self, arrays: Sequence[str]) -> list[list[Any]]:
        """Return the blocks that do what this block does, with the distance of each array.

        A distance is in bytes, from this block's accesses.
        """
        reference = ReferenceBlock(self.kernel, self.run, self.elements, self.of_a)
        blocks = {self.block: [0] * len(arrays)}
        for block in compared_blocks(math.prod(self.grid)):
            if block == self.block:
                continue
            run = self.run.of_block(block) if self.run.has_all_blocks else self._executed(block)
            distances = reference.distances(run.trace)
            if distances is not None:
                blocks[block] = [distances.get(name, 0) for name in arrays]
        return [[block, moved] for block, moved in sorted(blocks.items())]

    def _first_pill(self) -> _Pill:
        """Return the pill of the line that is shown first.

        It wastes most, or else is accessed most. Stores to C only count if no other line wastes,
        since the loop over K is cut short.
        """
        if not self.pills:
            return _Pill()
        ranks = [
            (name[2] != "C" and pill.excess > 0, pill.excess, pill.count)
            for name, pill in self.pills.items()
        ]
        return [*self.pills.values()][ranks.index(max(ranks))]

    def _groups(self) -> list[list[int]]:
        """Return the places in the trace of each step.

        A step is a record, or the record of a wgmma with the records of its reads.
        """
        groups = list[list[int]]()
        latest = dict[int, list[int]]()
        for place, record in enumerate(self.run.trace):
            warp = int(record["warp"])
            if record["mask"] and self.run.code.instructions[record["pc"]].parts[0] == "wgmma":
                latest[warp].append(place)
            else:
                latest[warp] = [place]
                groups.append(latest[warp])
        return groups

    def _read(self, places: list[int]) -> tuple[tuple[int, int], int, int] | None:
        """Return the kind of a step and its excess, its byte, and the first element that it holds.

        places: of the step's records in the trace
        """
        record = self.run.trace[places[0]]
        instruction = self.run.code.instructions[record["pc"]]
        if step := step_of(self.kernel, self.run.result, record):
            return self._access(places[0], step)
        if instruction.parts[0] == "wgmma":
            return self._multiplication(places)
        if "bulk" in instruction.parts and not record["space"]:
            return self._box(record)
        reason = WAITS.get(instruction.parts[0], "other threads")
        wait = {"wait": reason, "line": instruction.line}
        return self._kind_number(instruction.pc, partial(self._add_kind, wait)), 0, 0

    def _kind_number(self, key: Any, add: Callable[[], tuple[int, int]]) -> tuple[int, int]:
        """Return the number of a kind and its excess, and add the kind if it is new."""
        if key not in self.kind_numbers:
            self.kind_numbers[key] = add()
        return self.kind_numbers[key]

    def _add_kind(self, kind: dict[str, Any], excess: int = 0) -> tuple[int, int]:
        """Add a kind, and return its number and its excess."""
        self.kinds.append(kind)
        return len(self.kinds) - 1, excess

    def _add(
        self,
        kind: dict[str, Any],
        site: Site,
        memory: str,
        verb: str,
        *,
        cost: tuple[int, str],
        excess: int = 0,
    ) -> tuple[int, int]:
        """Add a kind, and its cost to the pill of its line."""
        name = site.line, site.caller, memory, verb
        self.pills[name].costs.append(cost)
        self.pills[name].bad |= excess > 0
        writes = verb not in ("read", "multiply from") and (verb != "copy" or "rows" in kind)
        kind |= {"bad": int(excess > 0), "array": memory, "pill": name}
        if writes:
            kind["writes"] = 1
        return self._add_kind(kind, excess)

    def _access(self, place: int, step: Step) -> tuple[tuple[int, int], int, int] | None:
        """Return an access as _read() does; None if it isn't shown."""
        site = step.site
        lanes = step.lanes
        if site.space == "const" or not len(lanes):
            return None
        if not step.width:
            self.pills.setdefault(
                (site.line, site.caller, step.memory, VERBS.get(site.op, "read")), _Pill()
            )
            return None
        byte = step.byte[lanes]
        base = int(byte.min())
        first, holds = self._relative(self._elements(place, step))
        key = (
            site.line,
            site.caller,
            site.op,
            step.memory,
            step.width,
            step.width > site.width,
            lanes.tobytes(),
            (byte - base).tobytes(),
            holds.tobytes(),
            tuple(step.costs[1:4]),
        )
        number = self._kind_number(key, partial(self._add_access, step, base, holds))
        return number, base, first

    def _add_access(self, step: Step, base: int, holds: Lanes) -> tuple[int, int]:
        """Add the kind of an access.

        base: the first byte of the access
        holds: the elements that it finds in shared memory, counted from the first of them; -1:
            unknown
        """
        lanes = step.lanes
        byte = step.byte[lanes]
        unit = min(step.width, FLOAT)
        unit_count = np.unique(byte[:, None] + np.arange(0, step.width, unit)).size
        cost = _cost(step, unit_count * unit)
        verb = "copy" if step.site.parts[0] == "cp" else VERBS.get(step.site.op, "read")
        offsets = dict(zip(lanes.tolist(), (byte - base).tolist(), strict=True))
        sectors, wavefronts, conflicts = step.costs[1:4]
        kind: dict[str, Any] = {
            "text": _access_text(step, verb, unit, unit_count),
            "width": step.width,
            "counts": [sectors, cost.least_sectors, wavefronts, conflicts],
            "lanes": [offsets.get(lane) for lane in range(WARP)],
            "cost": cost.text,
        }
        if step.in_shared:
            kind["rows"] = _wavefronts(byte, lanes, step.width, base)
        return self._add(
            kind | _hold(holds),
            step.site,
            step.memory,
            verb,
            cost=cost.number,
            excess=cost.excess,
        )

    def _relative(self, elements: Lanes) -> tuple[int, Lanes]:
        """Return the first known element, and all elements counted from it; -1: unknown."""
        known_elements = elements[elements >= 0]
        first = int(known_elements.min()) if known_elements.size else 0
        self._touch_inputs(known_elements)
        return first, np.where(elements >= 0, elements - first, -1)

    def _elements(self, place: int, step: Step) -> Lanes:
        """Return the elements that an access finds in shared memory: (lanes, words); -1: unknown.

        Elements are those of A, then B.
        """
        count = max(1, step.width // FLOAT)
        key = (step.warp, step.site.pc)
        byte = step.byte[step.lanes]
        unknown = np.full((len(byte), count), -1)
        if step.in_shared and step.site.op == "cp":
            return self.copied.get(key, unknown)
        if step.in_shared:
            start = byte % 16 // FLOAT
            columns = [
                self.elements[place, step.lanes, (start + offset) % 4] for offset in range(count)
            ]
            return np.stack(columns, axis=1)
        first = self.of_a if step.memory == "B" else 0
        elements = byte[:, None] // FLOAT + np.arange(count) + first
        self.copied[key] = elements if step.memory in ("A", "B") else unknown
        if step.memory == "C":
            self._touch("C", elements)
        elif step.memory in self.sizes:
            self._touch_inputs(elements)
        return unknown

    def _touch_inputs(self, elements: Lanes) -> None:
        """Extend the touched parts of A and B by elements of A, then B."""
        in_a = elements < self.of_a
        self._touch("A", elements[in_a])
        self._touch("B", elements[~in_a] - self.of_a)

    def _touch(self, name: str, elements: Lanes) -> None:
        """Extend the touched part of a matrix by its elements."""
        if not elements.size:
            return
        rows, columns = divmod(elements, self.sizes[name][1])
        part = [int(rows.min()), int(columns.min()), int(rows.max()), int(columns.max())]
        top, left, bottom, right = self.touched.get(name, part)
        self.touched[name] = [
            min(top, part[0]),
            min(left, part[1]),
            max(bottom, part[2]),
            max(right, part[3]),
        ]

    def _part(self, name: str) -> tuple[int, int, int, int]:
        """Return the touched part of a matrix: first row and column, rows and columns."""
        top, left, bottom, right = self.touched[name]
        return top, left, bottom + 1 - top, right + 1 - left

    def _box(self, record: Any) -> tuple[tuple[int, int], int, int]:
        """Return a bulk copy as _read() does: `strips` rows of so many bytes."""
        site = self.run.result.sites[int(record["pc"])]
        _, _, strips, size, pitch = record["address"][:5].astype(np.int64).tolist()
        memory, addresses = buffer_of(self.kernel, record["address"][1:2].astype(np.int64), 0)
        base = int(addresses[0])
        sectors = int(record["costs"][1])
        if memory in self.sizes:
            first = base // FLOAT + (self.of_a if memory == "B" else 0)
            starts = first + np.arange(strips) * pitch // FLOAT
            elements = np.concatenate([starts, starts + size // FLOAT - 1])
            if memory == "C":
                self._touch("C", elements)
            else:
                self._touch_inputs(elements)
        key = (site.pc, strips, size, pitch, sectors, memory)
        add = partial(self._add_box, site, memory, sectors, (strips, size, pitch))
        return self._kind_number(key, add), base, 0

    def _add_box(
        self, site: Site, memory: str, sectors: int, box: tuple[int, int, int]
    ) -> tuple[int, int]:
        """Add the kind of a bulk copy.

        box: the number of strips, their size and their distance, in bytes
        """
        strips, size, _ = box
        least_sectors = strips * -(-size // SECTOR)
        is_load = site.op == "cp"
        extent = f"{strips} × {size}" if strips > 1 else f"{size}"
        moved = f"{extent} bytes of {memory} {'to' if is_load else 'from'} shared memory"
        cost = _several(sectors, "sector")
        if sectors > least_sectors:
            cost += f" where {least_sectors} would do"
        kind = {
            "text": f"One bulk copy moves {moved}, without lanes",
            "cost": cost,
            "box": list(box),
            "counts": [sectors, least_sectors, 0, 0],
        }
        return self._add(
            kind,
            site,
            memory,
            "copy" if is_load else "copy to",
            cost=(sectors, "sector"),
            excess=max(0, sectors - least_sectors),
        )

    def _multiplication(self, places: list[int]) -> tuple[tuple[int, int], int, int]:
        """Return a warp's wgmma as _read() does.

        places: of its records; the first record only marks it
        """
        records = self.run.trace[places[1:]]
        site = self.run.result.sites[int(self.run.trace["pc"][places[0]])]
        byte = records["address"].astype(np.int64).ravel()
        base = int(byte.min()) if byte.size else 0
        first, holds = self._relative(self.elements[places[1:]].ravel())
        lines = f"{_several(byte.size, 'line')} of 16 bytes of shared memory"
        kind = {
            "text": f"The tensor cores read {lines}, without lanes",
            "cost": "not counted",
            "counts": [0, 0, 0, 0],
            "lines": (byte - base).tolist(),
        }
        kind |= _hold(holds)
        add = partial(self._add, kind, site, "shared", "multiply from", cost=(0, "line"))
        key = (site.pc, (byte - base).tobytes(), holds.tobytes())
        return self._kind_number(key, add), base, first

    def _pill(self, name: tuple[int, int, str, str], pill: _Pill) -> list[Any]:
        """Return a pill for access.js.

        It has the line, the text, whether the line wastes, and the warp and step of its first
        access.

        name: the line, the line of its caller, the memory and the verb
        """
        line, caller, memory, verb = name
        callers = {key[1] for key in self.pills if key[0] == line}
        text = f"{verb} {memory}"
        if len(callers) > 1 and caller:
            text += f" from line {caller}"
        if not pill.costs:
            return [line, f"{text} · part of a neighbour's access", 0]
        numbers = sorted({number for number, _ in pill.costs})
        unit = pill.costs[0][1]
        largest = numbers[-1]
        if largest:
            span = f"{numbers[0]}–{largest}" if len(numbers) > 1 else f"{largest}"
            plural = "s" if largest > 1 else ""
            text += f" · {span} {unit}{plural}"
        return [line, text, int(pill.bad), [*pill.first]]

    def _source(self) -> list[list[Any]]:
        """Return numbers and texts of the kernel's lines, and of other lines that access memory.

        The kernel's lines begin with its signature.
        """
        text = self.kernel.source.splitlines()
        accessing_lines = {line for line, *_ in self.pills if line}
        lines = accessing_lines | {*listed_lines(self.kernel)}
        return [[line, text[line - 1]] for line in sorted(lines)]


@dataclass(frozen=True)
class _Cost:
    """The cost of an access."""

    text: str
    number: tuple[int, str]  # with its unit
    excess: int  # sectors or wavefronts that aren't needed
    least_sectors: int


def _cost(step: Step, size: int) -> _Cost:
    """Return the cost of an access to this many different bytes."""
    sectors, wavefronts, conflicts = step.costs[1:4]
    least_sectors = -(-size // SECTOR)
    if not step.in_shared:
        text = f"{_several(sectors, 'sector')}, the least possible"
        if sectors > least_sectors:
            share = f"{100 * size / (SECTOR * sectors):.3g} % used"
            text = f"{_several(sectors, 'sector')} where {least_sectors} would do, {share}"
        return _Cost(text, (sectors, "sector"), sectors - least_sectors, least_sectors)
    if step.site.parts[0] == "cp":
        return _Cost("not counted: the copy writes it later", (0, "later"), 0, least_sectors)
    conflict = f"{conflicts} of them for bank conflicts" if conflicts else "no conflict"
    text = f"{_several(wavefronts, 'wavefront')}, {conflict}"
    return _Cost(text, (wavefronts, "wavefront"), conflicts, least_sectors)


def _access_text(step: Step, verb: str, unit: int, unit_count: int) -> str:
    """Describe an access.

    unit: bytes of a value
    unit_count: the number of different values
    """
    count = step.width // FLOAT
    noun = "word" if step.site.parts[0] in MATRIX else "float"
    if unit < FLOAT:
        noun = f"values of {unit} byte" if unit_count > 1 else f"value of {unit} byte"
    third_person = "s" if len(step.lanes) == 1 else ""
    text = f"{_several(len(step.lanes), 'lane')} {verb}{third_person} {_several(unit_count, noun)}"
    text += f" of {step.memory}"
    if count > 1 and noun == "float":
        text += f" as float{count}"
    if step.width > step.site.width:
        text += f", {'stores' if step.site.writes else 'loads'} that the assembler joins"
    return text


def _hold(holds: Lanes) -> dict[str, Any]:
    """Return the elements that a kind of step holds, for JSON; nothing if no element is known."""
    if not (holds >= 0).any():
        return {}
    return {"hold": [None if element < 0 else element for element in holds.ravel().tolist()]}


def _wavefronts(byte: Lanes, lanes: Lanes, width: int, base: int) -> list[list[list[int]]]:
    """Return the words of an access to shared memory, by phase and wavefront.

    Words are counted from the base. As count_shared in the core: a phase has 128 bytes, and there
    are half as many phases if lanes n and n ^ 1, or n ^ 2, agree.
    """
    phases = max(1, width // FLOAT)
    starts = dict(zip(lanes.tolist(), byte.tolist(), strict=True))
    if phases > 1 and (_lanes_agree(starts, 1) or _lanes_agree(starts, 2)):
        phases //= 2
    wavefronts: list[list[list[int]]] = [[] for _ in range(phases)]
    for phase, rows in enumerate(wavefronts):
        depth: dict[int, int] = defaultdict(int)
        numbers = set[int]()
        for lane, start in starts.items():
            if lane * phases // WARP == phase:
                numbers.update(range(start // FLOAT, start // FLOAT + max(1, width // FLOAT)))
        for number in sorted(numbers):
            if depth[number % BANKS] == len(rows):
                rows.append([])
            rows[depth[number % BANKS]].append(number - base // FLOAT)
            depth[number % BANKS] += 1
    return wavefronts


def _lanes_agree(starts: dict[int, int], distance: int) -> bool:
    """Return whether lanes n and n ^ distance access the same bytes.

    starts: the first byte of each active lane
    """
    return all(starts.get(lane ^ distance, start) == start for lane, start in starts.items())
