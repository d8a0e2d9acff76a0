"""What each warp of a block touches, from the addresses that the compiled kernel executed: for worklog/lab/access.js.

Every number is computed here; the page places it. Addresses repeat from warp to warp and from tile to tile, so a step
is the number of its kind (which lanes touch which bytes around a base, in words and in counts) and its distance from
the last step of that kind.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator import Site
from worklog.errors import BadSetting
from worklog.kernel import Kernel, rung
from worklog.kernel.emulated import ARCH
from worklog.problem import Shape
from worklog.runs.limits import WARP
from worklog.viewer.counts import FLOAT, GLOBAL, Lanes, Step, buffer_of, executed, step_of

# bytes; of 4 bytes
SECTOR = 32
BANKS = 32
MOST = 128  # rows or columns of a matrix that are shown
FILE_SIZE = 128
LEAST_K = 32
# Element i of A, then B, is a float of its own, so that the words in shared memory tell which elements they are.
MIX = 0x1E3779B1
UNMIX = pow(0x1E3779B1, -1, 1 << 23)
FIRST_EXPONENT = 112


@dataclass(frozen=True)
class Access:
    """document: what access.js shows, for JSON. Its `steps` are those of each warp: a kind, and where it has bytes, by
    how many they lie behind those of the last step of that kind (and elements of A or B that it holds, likewise).
    label: the source of the addresses.
    """

    kernel: Kernel
    label: str
    document: dict[str, Any]

    def steps(self, warp: int) -> Iterator[tuple[dict[str, Any], int, int]]:
        """A warp's steps in order: the kind, the byte where it is, and the first element of A or B that it holds."""
        last: dict[int, tuple[int, int]] = {}
        for number, *moved in self.document["steps"][warp]:
            byte, held = (
                was + by for was, by in zip(last.get(number, (0, 0)), [*moved, 0, 0], strict=False)
            )
            last[number] = byte, held
            yield self.document["kinds"][number], byte, held


def access(kernel: Kernel | str, shape: Shape | int | None = None, block: int = 0) -> Access:
    """What each warp of a block touches in memory, without a GPU. Example: `access("vectorized").document`.

    kernel: with a launch, or a rung's name. shape: default, 2 x 2 tiles and K of a few; 128 for a kernel that states no
    tile. block: its number in the grid. Raises BadSetting for a block that the grid doesn't have and for a host
    function, CompileFailed, NvrtcMissing, LaunchFailed, UnsupportedInstruction, and TooLarge for over 100,000 accesses.
    """
    kernel = rung(kernel) if isinstance(kernel, str) else kernel
    if kernel.host is not None or not kernel.grid:
        raise BadSetting(f"{kernel.name}: give a .cu file with its --grid and --block, or a rung")
    if kernel.choose is not None:
        kernel = kernel.at(Shape.of(shape or FILE_SIZE), ARCH)
    if shape is None:
        tile = kernel.template
        m, n = (2 * tile[name] if name in tile else FILE_SIZE for name in ("BM", "BN"))
        shape = kernel.domain.padded(Shape(m, n, max(LEAST_K, 2 * tile.get("BK", 0))))
        if tile:  # a grid that does not follow the shape shares K's steps, and its first block shall have some
            shape = replace(shape, k=shape.k * -(-math.prod(kernel.blocks(shape)) // 4))
    shape = Shape.of(shape)
    kernel.check(shape)
    grid = kernel.blocks(shape)
    if not 0 <= block < math.prod(grid):
        raise BadSetting(
            f"{kernel.name} has {math.prod(grid)} blocks at {shape}: choose one from 0"
        )
    reader = _Reader(kernel, shape, grid, block)
    return Access(kernel, reader.run.label, reader.document())


def _code(index: Lanes) -> NDArray[np.uint32]:
    exponent = FIRST_EXPONENT + (index * 40503 >> 4 & 31)
    return (exponent << 23 | index * MIX & (1 << 23) - 1).astype(np.uint32)


VERBS = {"ld": "read", "st": "write", "atom": "update", "cp": "copy"}
WAITS = {
    "bar": "__syncthreads()",
    "barrier": "a barrier",
    "mbarrier": "an mbarrier",
    "cp": "its copies",
}
MATRIX = ("ldmatrix", "stmatrix", "wmma")  # instructions


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


@dataclass
class _Pill:
    """What accesses of one kind of a line cost: by kind, all in all, and more than needed. first: the warp and its
    access; worst: of the first one that wastes.
    """

    costs: list[tuple[int, str]] = field(default_factory=list)
    count: int = 0
    excess: int = 0
    bad: bool = False
    first: tuple[int, int] = 0, 0
    worst: tuple[int, int] | None = None


class _Reader:
    """Turns the trace of a block into steps, and kinds of steps."""

    def __init__(self, kernel: Kernel, shape: Shape, grid: tuple[int, ...], block: int) -> None:
        self.kernel = kernel
        self.shape = shape
        self.grid = grid
        self.block = block
        self.sizes = {"A": (shape.m, shape.k), "B": (shape.k, shape.n), "C": (shape.m, shape.n)}
        self.of_a = shape.m * shape.k
        index = np.arange(self.of_a + shape.k * shape.n)
        codes = _code(index).view(np.float32)
        self.run = executed(
            kernel, shape, block, a=codes[: self.of_a].copy(), b=codes[self.of_a :].copy()
        )
        words = self.run.trace["words"]
        held = (words & (1 << 23) - 1).astype(np.int64) * UNMIX & (1 << 23) - 1
        self.held = np.where(
            (held < len(index)) & (_code(held) == words), held, -1
        )  # elements of A, then of B
        self.kinds: list[dict[str, Any]] = []
        self.known: dict[Any, tuple[int, int]] = {}  # the number of a kind, and what it wastes
        self.pills: dict[tuple[int, int, str, str], _Pill] = defaultdict(_Pill)
        self.shown = dict[
            str, list[int]
        ]()  # by matrix, the first and the last row and column that are touched
        self.copied: dict[
            tuple[int, int], Lanes
        ] = {}  # by warp and pc, the elements that a cp.async reads
        self.steps: list[list[list[int]]] = [[] for _ in range(-(-kernel.thread_count // WARP))]

    def document(self) -> dict[str, Any]:
        """For access.js."""
        last: list[dict[int, tuple[int, int]]] = [defaultdict(lambda: (0, 0)) for _ in self.steps]
        accesses = [0] * len(self.steps)  # steps but for waits
        for places in self._groups():
            warp = int(self.run.trace["warp"][places[0]])
            read = self._read(places)
            if read is None:
                continue
            (kind, excess), base, held = read
            moved = [base - last[warp][kind][0], held - last[warp][kind][1]]
            last[warp][kind] = base, held
            while moved and not moved[-1]:
                moved.pop()
            self.steps[warp].append([kind, *moved])
            if "pill" in self.kinds[kind]:
                pill = self.pills[self.kinds[kind]["pill"]]
                here = (warp, accesses[warp])
                pill.first = pill.first if pill.count else here
                pill.worst = pill.worst or (here if excess else None)
                pill.count, pill.excess = pill.count + 1, pill.excess + excess
                accesses[warp] += 1
        arrays = sorted(
            {made["array"] for made in self.kinds if "array" in made},
            key=lambda a: (a not in GLOBAL, a),
        )
        names = [*self.pills]
        for made in self.kinds:
            if "pill" in made:
                made["array"], made["pill"] = arrays.index(made["array"]), names.index(made["pill"])
        # At first, the line is shown that wastes most, or else is accessed most; stores to C only where no other
        # wastes, since the loop over K is cut short.
        ranks = [
            (name[2] != "C" and p.excess > 0, p.excess, p.count) for name, p in self.pills.items()
        ]
        shown = [*self.pills.values()][ranks.index(max(ranks))] if ranks else _Pill()
        return {
            "kernel": self.kernel.name,
            "idea": self.kernel.idea,
            "about": f"M, N, K = {self.shape.m}, {self.shape.n}, {self.shape.k} · block {self.block} of "
            f"{' × '.join(map(str, self.grid))} · {self.kernel.thread_count} threads · {self.run.label}",
            "notes": [finding.at(self.kernel.file) for finding in self.run.result.findings[:3]],
            "arrays": arrays,
            "matrices": {
                name: [*self.sizes[name], *self._shown(name)]
                for name in self.sizes
                if name in self.shown
            },
            "of_a": self.of_a,
            "source": self._source(),
            "pills": [self._pill(*name, pill) for name, pill in self.pills.items()],
            "kinds": self.kinds,
            "steps": self.steps,
            "start": [*(shown.worst or shown.first)],
        }

    def _groups(self) -> list[list[int]]:
        """Places in the trace that are one step: a record, or that of a wgmma with what it reads."""
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
        """The kind of a step with what it wastes, where it is, and the first element that it holds."""
        record = self.run.trace[places[0]]
        i = self.run.code.instructions[record["pc"]]
        if step := step_of(self.kernel, self.run.result, record):
            return self._access(places[0], step)
        if i.parts[0] == "wgmma":
            return self._multiplication(places)
        if "bulk" in i.parts and not record["space"]:
            return self._box(record)
        wait = {"wait": WAITS.get(i.parts[0], "other threads"), "line": i.line}
        return self._known(i.pc, partial(self._added, wait)), 0, 0

    def _known(self, key: Any, add: Callable[[], tuple[int, int]]) -> tuple[int, int]:
        if key not in self.known:
            self.known[key] = add()
        return self.known[key]

    def _added(self, kind: dict[str, Any], excess: int = 0) -> tuple[int, int]:
        self.kinds.append(kind)
        return len(self.kinds) - 1, excess

    def _add(
        self,
        kind: dict[str, Any],
        site: Site,
        memory: str,
        verb: str,
        cost: tuple[int, str],
        excess: int = 0,
    ) -> tuple[int, int]:
        """Add a kind, and what it costs to its line."""
        name = site.line, site.caller, memory, verb
        self.pills[name].costs.append(cost)
        self.pills[name].bad |= excess > 0
        writes = verb not in ("read", "multiply from") and (verb != "copy" or "rows" in kind)
        kind |= {"bad": int(excess > 0), "array": memory, "pill": name} | (
            {"writes": 1} if writes else {}
        )
        return self._added(kind, excess)

    def _access(self, place: int, step: Step) -> tuple[tuple[int, int], int, int] | None:
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
        held = self._elements(place, step)
        first, holds = self._relative(held)
        where = site.line, site.caller, site.op, step.memory, step.width, step.width > site.width
        key = (
            *where,
            lanes.tobytes(),
            (byte - base).tobytes(),
            holds.tobytes(),
            tuple(step.costs[1:4]),
        )
        return self._known(key, partial(self._add_access, step, base, holds)), base, first

    def _add_access(self, step: Step, base: int, holds: Lanes) -> tuple[int, int]:
        site = step.site
        lanes = step.lanes
        byte = step.byte[step.lanes]
        unit = min(step.width, FLOAT)
        count = step.width // FLOAT
        joined = step.width > site.width
        used = np.unique(byte[:, None] + np.arange(0, step.width, unit)).size
        least = -(-used * unit // SECTOR)
        (sectors, waves, conflicts) = step.costs[1:4]
        copy = site.parts[0] == "cp"
        floats = "word" if site.parts[0] in MATRIX else "float"
        if unit < FLOAT:
            floats = f"value{'s' * (used > 1)} of {unit} byte"
        verb = "copy" if copy else VERBS.get(site.op, "read")
        text = f"{_several(len(lanes), 'lane')} {verb}{'s' * (len(lanes) == 1)} {_several(used, floats)}"
        text += f" of {step.memory}" + (
            f" as float{count}" if count > 1 and floats == "float" else ""
        )
        text += (
            f", {'stores' if site.writes else 'loads'} that the assembler joins" if joined else ""
        )
        kind: dict[str, Any] = {
            "text": text,
            "width": step.width,
            "counts": [sectors, least, waves, conflicts],
        }
        offsets = dict(zip(lanes.tolist(), (byte - base).tolist(), strict=True))
        kind["lanes"] = [offsets.get(lane) for lane in range(WARP)]
        if not step.in_shared:
            share = f"{100 * used * unit / (SECTOR * sectors):.3g} % used" if sectors else ""
            cost = f"{_several(sectors, 'sector')} where {least} would do, {share}"
            kind["cost"] = (
                cost if sectors > least else f"{_several(sectors, 'sector')}, the least possible"
            )
            excess = sectors - least
            short = (sectors, "sector")
        elif copy:
            kind["cost"] = "not counted: the copy writes it later"
            excess = 0
            short = (0, "later")
        else:
            conflict = f"{conflicts} of them for bank conflicts" if conflicts else "no conflict"
            kind["cost"] = f"{_several(waves, 'wavefront')}, {conflict}"
            excess = conflicts
            short = (waves, "wavefront")
        if step.in_shared:
            kind["rows"] = _wavefronts(byte, lanes, step.width, base)
        return self._add(kind | _hold(holds), site, step.memory, verb, short, excess)

    def _relative(self, held: Lanes) -> tuple[int, Lanes]:
        """The first known element, and all of them counted from it."""
        known = held[held >= 0]
        first = int(known.min()) if known.size else 0
        self._touch(known)
        return first, np.where(held >= 0, held - first, -1)

    def _elements(self, place: int, step: Step) -> Lanes:
        """(lanes, words), the elements of A, then B, that an access finds in shared memory; -1: unknown."""
        count = max(1, step.width // FLOAT)
        own = (step.warp, step.site.pc)
        byte = step.byte[step.lanes]
        unknown = np.full((len(byte), count), -1)
        if step.in_shared and step.site.op == "cp":
            return self.copied.get(own, unknown)
        if step.in_shared:
            at = byte % 16 // FLOAT
            return np.stack(
                [self.held[place, step.lanes, (at + word) % 4] for word in range(count)], axis=1
            )
        elements = byte[:, None] // FLOAT + np.arange(count) + self.of_a * (step.memory == "B")
        self.copied[own] = elements if step.memory in ("A", "B") else unknown
        if step.memory in self.sizes:
            self._touch(elements, "C" if step.memory == "C" else "")
        return unknown

    def _touch(self, elements: Lanes, name: str = "") -> None:
        """Of A, then B, or of the matrix of this name."""
        in_a = elements < self.of_a
        for own, inside in (
            ((name, elements),)
            if name
            else (("A", elements[in_a]), ("B", elements[~in_a] - self.of_a))
        ):
            if inside.size:
                rows, columns = divmod(inside, self.sizes[own][1])
                now = [int(rows.min()), int(columns.min()), int(rows.max()), int(columns.max())]
                seen = self.shown.get(own, now)
                self.shown[own] = [*map(min, seen[:2], now[:2]), *map(max, seen[2:], now[2:])]

    def _shown(self, name: str) -> tuple[int, int, int, int]:
        """The part of a matrix to draw: first row and column, rows and columns."""
        top, left, bottom, right = self.shown[name]
        return top, left, min(bottom + 1 - top, MOST), min(right + 1 - left, MOST)

    def _box(self, record: Any) -> tuple[tuple[int, int], int, int]:
        """A bulk copy: `strips` rows of so many bytes."""
        site = self.run.result.sites[int(record["pc"])]
        _, _, strips, size, pitch = record["address"][:5].astype(np.int64).tolist()
        memory, bytes_ = buffer_of(self.kernel, record["address"][1:2].astype(np.int64), 0)
        base = int(bytes_[0])
        sectors = int(record["costs"][1])
        least = strips * -(-size // SECTOR)
        if memory in self.sizes:
            starts = (
                base // FLOAT + np.arange(strips) * pitch // FLOAT + self.of_a * (memory == "B")
            )
            self._touch(
                np.concatenate([starts, starts + size // FLOAT - 1]), "C" if memory == "C" else ""
            )
        loads = site.op == "cp"
        what = f"{strips} × {size}" if strips > 1 else f"{size}"
        text = f"One bulk copy moves {what} bytes of {memory} {'to' if loads else 'from'} shared memory, without lanes"
        cost = _several(sectors, "sector") + (f" where {least} would do" if sectors > least else "")
        kind = {
            "text": text,
            "cost": cost,
            "box": [strips, size, pitch],
            "counts": [sectors, least, 0, 0],
        }
        verb = "copy" if loads else "copy to"
        excess = max(0, sectors - least)
        add = partial(self._add, kind, site, memory, verb, (sectors, "sector"), excess)
        return self._known((site.pc, strips, size, pitch, sectors, memory), add), base, 0

    def _multiplication(self, places: list[int]) -> tuple[tuple[int, int], int, int]:
        """A wgmma of a warp. places: its records; the first one only marks it."""
        records = self.run.trace[places[1:]]
        site = self.run.result.sites[int(self.run.trace["pc"][places[0]])]
        byte = records["address"].astype(np.int64).ravel()
        base = int(byte.min()) if byte.size else 0
        (first, holds) = self._relative(self.held[places[1:]].ravel())
        text = f"The tensor cores read {_several(byte.size, 'line')} of 16 bytes of shared memory, without lanes"
        kind = {
            "text": text,
            "cost": "not counted",
            "counts": [0, 0, 0, 0],
            "lines": (byte - base).tolist(),
        }
        add = partial(self._add, kind | _hold(holds), site, "shared", "multiply from", (0, "line"))
        return self._known((site.pc, (byte - base).tobytes(), holds.tobytes()), add), base, first

    def _pill(self, line: int, caller: int, memory: str, verb: str, pill: _Pill) -> list[Any]:
        """For access.js: line, words, whether it wastes, and the warp and step where it happens first."""
        callers = {other for at, other, *_ in self.pills if at == line}
        words = f"{verb} {memory}" + (f" from line {caller}" if len(callers) > 1 and caller else "")
        if not pill.costs:
            return [line, f"{words} · part of a neighbour's access", 0]
        numbers = sorted({number for number, _ in pill.costs})
        what = pill.costs[0][1]
        if numbers[-1]:
            several = f"{numbers[0]}–{numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"
            words += f" · {several} {what}{'s' * (numbers[-1] > 1)}"
        return [line, words, int(pill.bad), [*pill.first]]

    def _source(self) -> list[list[Any]]:
        """Numbers and texts of the kernel's lines, from its signature on, and of other lines that access memory."""
        text = self.kernel.source.splitlines()
        defined = self.kernel.unit.definition(self.kernel.entry.partition("<")[0])
        shown = {line for line, *_ in self.pills if line}
        if defined is None or not defined.is_own:
            shown |= {*range(1, len(text) + 1)}
        else:
            first, last = (
                defined.line(at) for at in (defined.body.start_byte, defined.body.end_byte - 1)
            )
            while first > 1 and text[first - 2].strip():
                first -= 1
            shown |= {*range(first, last + 1)}
        return [[line, text[line - 1]] for line in sorted(shown)]


def _hold(holds: Lanes) -> dict[str, Any]:
    """What a kind of step holds, where that is known."""
    return (
        {"hold": [None if e < 0 else e for e in holds.ravel().tolist()]}
        if (holds >= 0).any()
        else {}
    )


def _wavefronts(byte: Lanes, lanes: Lanes, width: int, base: int) -> list[list[list[int]]]:
    """Of an access to shared memory, by phase and wavefront, the words that are delivered, counted from the base. As
    count_shared in the core: a phase has 128 bytes; there are half as many if lanes n and n ^ 1, or n ^ 2, agree.
    """
    phases = max(1, width // FLOAT)
    at = dict(zip(lanes.tolist(), byte.tolist(), strict=True))
    if phases > 1:
        paired = (
            all(at[lane] == at.get(lane ^ distance, at[lane]) for lane in at) for distance in (1, 2)
        )
        phases //= 2 if any(paired) else 1
    out: list[list[list[int]]] = [[] for _ in range(phases)]
    for phase, rows in enumerate(out):
        depth: dict[int, int] = defaultdict(int)
        own = [start // FLOAT for lane, start in at.items() if lane * phases // WARP == phase]
        for word in sorted({start + k for start in own for k in range(max(1, width // FLOAT))}):
            if depth[word % BANKS] == len(rows):
                rows.append([])
            rows[depth[word % BANKS]].append(word - base // FLOAT)
            depth[word % BANKS] += 1
    return out
