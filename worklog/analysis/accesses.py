"""What each warp of a block touches, from the addresses that the compiled kernel executed: for worklog/lab/access.js.

Every number is computed here; the page places it. Addresses repeat from warp to warp and from tile to tile, so a step
is the number of its kind (which lanes touch which bytes around a base, in words and in counts) and its distance from
the last step of that kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.analysis.counts import FLOAT, GLOBAL, Step, executed, step_of, wavefronts
from worklog.analysis.html import document, packed, part
from worklog.emulator import ARCH, FIRST_ADDRESS, SPACING, WARP
from worklog.errors import BadSetting, WorklogError
from worklog.kernel import Kernel, rung
from worklog.problem import Shape

Ints = NDArray[np.int64]
SECTOR = 32  # bytes
MOST = 128  # rows or columns of a matrix that are shown
FILE_SIZE, LEAST_K = 128, 32
# Element i of A, then B, is a float of its own, so that the words in shared memory tell which elements they are.
MIX, UNMIX, FIRST_EXPONENT = 0x1E3779B1, pow(0x1E3779B1, -1, 1 << 23), 112


@dataclass(frozen=True)
class Access:
    """document: what access.js shows, for JSON. Its `steps` are those of each warp: a kind, and where it has bytes, by
    how many they lie behind those of the last step of that kind (and elements of A or B that it holds, likewise).
    """

    document: dict[str, Any]

    def html(self) -> str:
        """The viewer as a page that needs no server, no network and no Python."""
        return page([self])

    def save(self, path: Path | str) -> Path:
        """Write the page."""
        try:
            Path(path).write_text(self.html(), encoding="utf-8")
        except OSError as error:
            raise WorklogError(f"cannot write {path}: {error.strerror}; give another file") from error
        return Path(path)


def page(accesses: Sequence[Access], header: str = "") -> str:
    """The viewer for one or several kernels, of which the address chooses one: #vectorized/0/9/34 is a kernel, a warp,
    a lane and a step. header: HTML above it.
    """
    documents = {each.document["kernel"]: each.document for each in accesses}
    title = next(iter(documents)) if len(documents) == 1 else "the rungs"
    body = part("access.html", header=header, title=escape(title), script=part("access.js"), data=packed(documents))
    about = "What each warp of a CUDA kernel touches, from the addresses that the compiled code executed."
    return document(f"worklog: what a warp touches, {title}", about, body, "panel", "access")


def access(kernel: Kernel | str, shape: Shape | int | None = None, block: int = 0) -> Access:
    """What each warp of a block touches in memory, without a GPU. Example: `access("vectorized").save("page.html")`.

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
        raise BadSetting(f"{kernel.name} has {math.prod(grid)} blocks at {shape}: choose one from 0")
    return Access(_Reader(kernel, shape, grid, block).document())


def _code(index: Ints) -> NDArray[np.uint32]:
    exponent = FIRST_EXPONENT + (index * 40503 >> 4 & 31)
    return (exponent << 23 | index * MIX & (1 << 23) - 1).astype(np.uint32)


VERBS = {"ld": "read", "st": "write", "atom": "update", "cp": "copy"}
WAITS = {"bar": "__syncthreads()", "barrier": "a barrier", "mbarrier": "an mbarrier", "cp": "its copies"}
Read = tuple[int, int, int, int]  # a kind, its base, the first element that it holds, and what it wastes


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


class _Reader:
    """Turns the trace of a block into steps, and kinds of steps."""

    def __init__(self, kernel: Kernel, shape: Shape, grid: tuple[int, ...], block: int) -> None:
        self.kernel, self.shape, self.grid, self.block = kernel, shape, grid, block
        self.sizes = {"A": (shape.m, shape.k), "B": (shape.k, shape.n), "C": (shape.m, shape.n)}
        self.of_a = shape.m * shape.k
        index = np.arange(self.of_a + shape.k * shape.n)
        codes = _code(index).view(np.float32)
        self.run = executed(kernel, shape, block, a=codes[: self.of_a].copy(), b=codes[self.of_a :].copy())
        words = self.run.trace["words"]
        held = (words & (1 << 23) - 1).astype(np.int64) * UNMIX & (1 << 23) - 1
        self.held = np.where((held < len(index)) & (_code(held) == words), held, -1)  # elements of A, then of B
        self.arrays: list[str] = []
        self.kinds: list[dict[str, Any]] = []
        self.known: dict[Any, tuple[int, int]] = {}
        self.pills: dict[tuple[int, int, str, str], dict[str, Any]] = {}
        self.shown = dict[str, list[int]]()  # by matrix, the first and the last row and column that are touched
        self.copied: dict[tuple[int, int], Ints] = {}  # by warp and pc, the elements that a cp.async reads
        self.steps: list[list[list[int]]] = [[] for _ in range(-(-kernel.thread_count // WARP))]
        self.accesses = [0] * len(self.steps)  # steps but for waits

    def document(self) -> dict[str, Any]:
        """For access.js."""
        last: list[dict[int, tuple[int, int]]] = [{} for _ in self.steps]
        lines = dict[int, list[int]]()
        for place, record in enumerate(self.run.trace):
            warp, pc, read = int(record["warp"]), int(record["pc"]), None
            if warp in lines and (record["mask"] == 0 or pc != int(self.run.trace[lines[warp][0]]["pc"])):
                self._step(warp, self._multiplication(lines.pop(warp)), last)
            step = step_of(self.kernel, self.run.result, record)
            if step is not None:
                read = self._access(place, step)
            elif self.run.code.instructions[pc].parts[0] == "wgmma":
                lines.setdefault(warp, []).extend([place] * bool(record["mask"]) or [])
                if record["mask"] == 0:
                    lines[warp] = [place]
            elif "bulk" in self.run.code.instructions[pc].parts and not record["space"]:
                read = self._box(record)
            else:
                read = self._wait(pc)
            if read is not None:
                self._step(warp, read, last)
        for warp, places in lines.items():
            self._step(warp, self._multiplication(places), last)
        order = sorted(self.arrays, key=lambda name: (name not in GLOBAL, name))
        for kind in self.kinds:
            if "array" in kind:
                kind["array"] = order.index(self.arrays[kind["array"]])
        return {
            "kernel": self.kernel.name,
            "idea": self.kernel.idea,
            "about": f"M, N, K = {self.shape.m}, {self.shape.n}, {self.shape.k} · block {self.block} of "
            f"{' × '.join(map(str, self.grid))} · {self.kernel.thread_count} threads · {self.run.label}",
            "notes": [finding.at(self.kernel.file) for finding in self.run.result.findings[:3]],
            "arrays": order,
            "matrices": {name: [*self.sizes[name], *self._shown(name)] for name in self.sizes if name in self.shown},
            "of_a": self.of_a,
            "source": self._source(),
            "pills": [self._pill(*key, pill) for key, pill in self.pills.items()],
            "kinds": self.kinds,
            "steps": self.steps,
            "start": self._start(),
        }

    def _start(self) -> list[int]:
        """The warp and the access that are shown at first: of the line that wastes most, or else is accessed most.
        Stores to C only where no other wastes, since the loop over K is cut short.
        """
        shown = [
            (memory != "C" and pill["excess"] > 0, pill["excess"], pill["count"], pill)
            for (_, _, memory, _), pill in self.pills.items()
        ]
        first = max(shown, key=lambda pill: pill[:3], default=(False, 0, 0, {}))[3]
        return list(first.get("worst") or first.get("at", [0, 0]))

    def _step(self, warp: int, read: Read, last: list[dict[int, tuple[int, int]]]) -> None:
        kind, base, held, excess = read
        before = last[warp].get(kind, (0, 0))
        last[warp][kind] = base, held
        moved = [base - before[0], held - before[1]]
        while moved and not moved[-1]:
            moved.pop()
        if "pill" in self.kinds[kind]:
            pill = [*self.pills.values()][self.kinds[kind]["pill"]]
            pill.setdefault("at", [warp, self.accesses[warp]])
            pill["excess"] += excess
            pill["count"] += 1
            if excess:
                pill.setdefault("worst", [warp, self.accesses[warp]])
            self.accesses[warp] += 1
        self.steps[warp].append([kind, *moved])

    def _access(self, place: int, step: Step) -> Read | None:
        site, lanes, in_global = step.site, step.lanes, not step.in_shared
        if site.space == "const" or not len(lanes):
            return None
        if not step.width:
            self._place(site.line, site.caller, step.memory, VERBS.get(site.op, "read"))
            return None
        count, unit = max(1, step.width // FLOAT), min(step.width, FLOAT)
        byte = step.byte[lanes]
        base, held = int(byte.min()), self._elements(place, step, count)
        known = held[held >= 0]
        first = int(known.min()) if len(known) else 0
        holds = np.where(held >= 0, held - first, -1)
        copy = site.parts[0] == "cp"
        where = site.line, site.caller, site.op, step.memory, step.width, step.width > site.width
        key = *where, lanes.tobytes(), (byte - base).tobytes(), holds.tobytes(), tuple(step.costs[1:4])
        if known.size:
            self._touch(known)
        if key not in self.known:
            parts = byte[:, None] + np.arange(0, step.width, unit)
            used = np.unique(parts)
            least, (sectors, waves, conflicts) = -(-used.size * unit // SECTOR), step.costs[1:4]
            floats = "float" if unit == FLOAT and site.parts[0] not in ("ldmatrix", "stmatrix", "wmma") else "word"
            if unit < FLOAT:
                floats = f"value{'s' * (used.size > 1)} of {unit} byte"
            verb = "copy" if copy else VERBS.get(site.op, "read")
            named = "1 lane" if len(lanes) == 1 else f"{len(lanes)} lanes"
            text = f"{named} {verb}{'s' * (len(lanes) == 1)} {_several(used.size, floats)} of {step.memory}"
            text += f" as {floats}{count}" if count > 1 and floats == "float" else ""
            text += ", loads that the assembler joins" if step.width > site.width and not site.writes else ""
            text += ", stores that the assembler joins" if step.width > site.width and site.writes else ""
            if in_global:
                share = f"{100 * used.size * unit / (SECTOR * sectors):.3g} % used" if sectors else ""
                cost = f"{_several(sectors, 'sector')} where {least} would do, {share}"
                cost = cost if sectors > least else f"{_several(sectors, 'sector')}, the least possible"
                excess, short = sectors - least, (sectors, "sector")
            elif copy:
                cost, excess, short = "not counted: the copy writes it later", 0, (0, "later")
            else:
                conflict = f"{conflicts} of them bank conflicts" if conflicts else "no conflict"
                cost, excess, short = f"{_several(waves, 'wavefront')}, {conflict}", conflicts, (waves, "wavefront")
            offsets: list[int | None] = [None] * WARP
            for lane, offset in zip(lanes.tolist(), (byte - base).tolist(), strict=True):
                offsets[lane] = offset
            kind: dict[str, Any] = {"text": text, "cost": cost, "width": step.width, "lanes": offsets}
            kind |= {"counts": [sectors, least, waves, conflicts], "bad": int(excess > 0)}
            if not in_global:
                kind["rows"] = wavefronts(byte, lanes, step.width, base)
            if len(known):
                kind["hold"] = [None if element < 0 else element for element in holds.ravel().tolist()]
            self.known[key] = self._kind(kind, site, step.memory, verb, short, excess > 0), excess
        return (self.known[key][0], base, first, self.known[key][1])

    def _elements(self, place: int, step: Step, count: int) -> Ints:
        """(lanes, words), the elements of A, then B, that an access touches or finds in shared memory; -1: unknown."""
        byte, own = step.byte[step.lanes], (step.warp, step.site.pc)
        if not step.in_shared:
            elements = byte[:, None] // FLOAT + np.arange(count)
            if step.memory == "C":
                self._touch(elements, "C")
            elements += self.of_a * (step.memory == "B")
            self.copied[own] = elements if step.memory in ("A", "B") else np.full_like(elements, -1)
            if step.memory in ("A", "B"):
                self._touch(elements)
            return np.full_like(elements, -1)
        if step.site.op == "cp":
            return self.copied.get(own, np.full((len(byte), count), -1))
        at = byte % 16 // FLOAT
        return np.stack([self.held[place, step.lanes, (at + word) % 4] for word in range(count)], axis=1)

    def _touch(self, elements: Ints, name: str = "") -> None:
        for own, first, last in (("A", 0, self.of_a), ("B", self.of_a, 1 << 62)) if not name else ((name, 0, 1 << 62),):
            inside = elements[(elements >= first) & (elements < last)] - first
            if inside.size:
                (rows, columns), seen = divmod(inside, self.sizes[own][1]), self.shown.get(own)
                now = [int(rows.min()), int(columns.min()), int(rows.max()), int(columns.max())]
                if seen:
                    now = [*map(min, seen[:2], now[:2]), *map(max, seen[2:], now[2:])]
                self.shown[own] = now

    def _shown(self, name: str) -> tuple[int, int, int, int]:
        """The part of a matrix to draw: first row and column, rows and columns."""
        top, left, bottom, right = self.shown[name]
        return top, left, min(bottom + 1 - top, MOST), min(right + 1 - left, MOST)

    def _box(self, record: Any) -> Read:
        """A bulk copy: `strips` rows of so many bytes."""
        pc = int(record["pc"])
        site, (_, address, strips, size, pitch) = (
            self.run.result.sites[pc],
            record["address"][:5].astype(np.int64).tolist(),
        )
        number, base = divmod(address - FIRST_ADDRESS, SPACING)
        own = [name for name in self.kernel.arguments if name in GLOBAL]
        memory = own[number] if 0 <= number < len(own) else "memory"
        sectors, least = int(record["costs"][1]), strips * -(-size // SECTOR)
        if memory in self.sizes:
            starts = base // FLOAT + np.arange(strips) * pitch // FLOAT + self.of_a * (memory == "B")
            self._touch(np.concatenate([starts, starts + size // FLOAT - 1]), "C" if memory == "C" else "")
        key = pc, strips, size, pitch, sectors, memory
        if key not in self.known:
            loads = site.op == "cp"
            what = f"{strips} × {size}" if strips > 1 else f"{size}"
            text = (
                f"One bulk copy moves {what} bytes of {memory} {'to' if loads else 'from'} shared memory, without lanes"
            )
            least_words = f" where {least} would do" if sectors > least else ""
            kind: dict[str, Any] = {"text": text, "cost": _several(sectors, "sector") + least_words}
            kind |= {"box": [strips, size, pitch], "counts": [sectors, least, 0, 0], "bad": int(sectors > least)}
            verb = "copy" if loads else "copy to"
            self.known[key] = (
                self._kind(kind, site, memory, verb, (sectors, "sector"), sectors > least),
                sectors - least,
            )
        return self.known[key][0], base, 0, max(0, self.known[key][1])

    def _multiplication(self, places: list[int]) -> Read:
        """A wgmma of a warp. places: its records; the first one only marks it."""
        records = self.run.trace[places[1:]]
        site = self.run.result.sites[int(self.run.trace[places[0]]["pc"])]
        byte, held = records["address"].astype(np.int64).ravel(), self.held[places[1:]].ravel()
        base, known = int(byte.min()) if byte.size else 0, held[held >= 0]
        first = int(known.min()) if known.size else 0
        if known.size:
            self._touch(known)
        holds = np.where(held >= 0, held - first, -1)
        key = site.pc, (byte - base).tobytes(), holds.tobytes()
        if key not in self.known:
            text = f"The tensor cores read {_several(byte.size, 'line')} of 16 bytes of shared memory, without lanes"
            kind: dict[str, Any] = {"text": text, "cost": "not counted", "bad": 0, "counts": [0, 0, 0, 0]}
            kind["lines"] = (byte - base).tolist()
            if known.size:
                kind["hold"] = [None if element < 0 else element for element in holds.tolist()]
            self.known[key] = self._kind(kind, site, "shared", "multiply from", (0, "line"), False), 0
        return self.known[key][0], base, first, 0

    def _wait(self, pc: int) -> Read:
        if pc not in self.known:
            instruction = self.run.code.instructions[pc]
            self.kinds.append({"wait": WAITS.get(instruction.parts[0], "other threads"), "line": instruction.line})
            self.known[pc] = len(self.kinds) - 1, 0
        return self.known[pc][0], 0, 0, 0

    def _kind(self, kind: dict[str, Any], site: Any, memory: str, verb: str, short: tuple[int, str], bad: bool) -> int:
        """Add a kind, and what it costs to its line; its number."""
        if memory not in self.arrays:
            self.arrays.append(memory)
        pill = self._place(site.line, site.caller, memory, verb)
        pill["costs"].append(short)
        pill["bad"] |= bad
        self.kinds.append(kind | {"array": self.arrays.index(memory), "pill": [*self.pills.values()].index(pill)})
        if verb not in ("read", "multiply from") and (verb != "copy" or "rows" in kind):
            self.kinds[-1]["writes"] = 1
        return len(self.kinds) - 1

    def _place(self, line: int, caller: int, memory: str, verb: str) -> dict[str, Any]:
        return self.pills.setdefault((line, caller, memory, verb), {"costs": [], "bad": False, "excess": 0, "count": 0})

    def _pill(self, line: int, caller: int, memory: str, verb: str, pill: dict[str, Any]) -> list[Any]:
        """For access.js: line, words, whether it wastes, and the warp and step where it happens first."""
        callers = {other for at, other, *_ in self.pills if at == line}
        words = f"{verb} {memory}" + (f" from line {caller}" if len(callers) > 1 and caller else "")
        if not pill["costs"]:
            return [line, f"{words} · part of a neighbour's access", 0]
        numbers, what = sorted({number for number, _ in pill["costs"]}), pill["costs"][0][1]
        if numbers[-1]:
            several = f"{numbers[0]}–{numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"
            words += f" · {several} {what}{'s' * (numbers[-1] > 1)}"
        return [line, words, int(pill["bad"]), pill["at"]]

    def _source(self) -> list[list[Any]]:
        """Numbers and texts of the kernel's lines, from its signature on, and of other lines that access memory."""
        source, function = self.kernel.source, self.kernel.entry.partition("<")[0]
        text, defined = source.splitlines(), self.kernel.unit.definition(function)
        shown = {line for line, *_ in self.pills if line}
        if defined is None or not defined.is_own:
            shown |= {*range(1, len(text) + 1)}
        else:
            first = defined.line(defined.body)
            last = first + int(defined.body.end_point[0]) - int(defined.body.start_point[0])
            while first > 1 and text[first - 2].strip():
                first -= 1
            shown |= {*range(first, last + 1)}
        return [[line, text[line - 1]] for line in sorted(shown)]
