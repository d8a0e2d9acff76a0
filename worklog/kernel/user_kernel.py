"""What a user brings to be gated and timed beside the ladder: a `.cu` file's kernel with its launch, or host code that
launches something of its own (worklog.kernel.host_function).

`Brought` is what the orchestrator needs to know about one; it travels to a child process as a dictionary, and becomes
a Subject only there, on a device.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from worklog.errors import BadSetting, OutsideDomain, WorklogError
from worklog.kernel.host_function import HostCallable
from worklog.kernel.kernel import Block, Buffer, Device, Program, Subject
from worklog.kernel.ladder import Domain, Rung, evaluate, rung
from worklog.kernel.nvrtc import kernel_names
from worklog.problem.gemm import CLASSES, Shape


class Brought(Protocol):
    """Something of a user's own that computes C = alpha A B + beta C. claimed: the precision class that it must have
    at least.
    """

    @property
    def name(self) -> str:
        """As it stands in runs, tables and charts; never a rung's name or the baseline's."""

    @property
    def domain(self) -> Domain:
        """The shapes that it takes."""

    @property
    def claimed(self) -> str:
        """One of worklog.gate.precision.CLASSES."""

    def subject(self, device: Device, *, fresh: bool = False) -> Subject:
        """Make it ready on a device. fresh: so that its next launch is its first, where that is possible. Raises
        CompileFailed, or BadSetting for what cannot be loaded.
        """

    def describe(self, subject: Subject) -> dict[str, Any]:
        """For a run's `kernels`: source hash, launch, resources, and who launches it."""

    def as_dict(self) -> dict[str, Any]:
        """For another process; `kind` says what from_dict makes of it."""


@dataclass(frozen=True)
class UserKernel:
    """A kernel that somebody brought. grid: blocks along x and y, expressions in M, N and K; block: threads along x,
    or along x and y. claimed: the precision class that it must have at least. title: its name in runs (default: the
    entry's, without template arguments).
    """

    program: Program
    grid: tuple[str, str]
    block: Block
    domain: Domain
    claimed: str = "fp32"
    title: str = ""

    @property
    def name(self) -> str:
        """Its title, or its entry's name."""
        return self.title or self.program.entry.partition("<")[0]

    def subject(self, device: Device, *, fresh: bool = False) -> UserSubject:
        """Compile it for a device. Raises CompileFailed."""
        if not fresh:
            return UserSubject(self, device)
        unseen = replace(self.program, source=f"{self.program.source}\n// {secrets.token_hex(8)}\n")
        return UserSubject(replace(self, program=unseen), device)

    def describe(self, subject: Subject) -> dict[str, Any]:
        """Source, launch and resources."""
        assert isinstance(subject, UserSubject)
        resources = subject.kernel.resources
        return {
            "file": self.program.name,
            "sha256": self.program.sha256,
            "entry": self.program.entry,
            "options": list(self.program.options),
            "grid": list(self.grid),
            "block": self.block,
            "domain": str(self.domain),
            "claimed": self.claimed,
            "brought": "kernel",
            "registers": resources.registers,
            "local_bytes": resources.local_bytes,
            "shared_bytes": resources.shared_bytes,
        }

    def as_dict(self) -> dict[str, Any]:
        """Everything, source included."""
        program = self.program
        return {
            "kind": "kernel",
            "name": self.title,
            "file": program.name,
            "source": program.source,
            "entry": program.entry,
            "options": list(program.options),
            "grid": list(self.grid),
            "block": self.block if isinstance(self.block, int) else list(self.block),
            "domain": str(self.domain),
            "claimed": self.claimed,
        }

    @classmethod
    def from_dict(cls, words: Mapping[str, Any]) -> UserKernel:
        """What as_dict() gave."""
        program = Program(words["file"], words["source"], words["entry"], tuple(words["options"]))
        block = words["block"] if isinstance(words["block"], int) else (words["block"][0], words["block"][1])
        grid = words["grid"][0], words["grid"][1]
        return cls(program, grid, block, Domain.of(words["domain"]), words["claimed"], words["name"])

    @classmethod
    def read(
        cls,
        path: Path,
        *,
        grid: str,
        block: str,
        entry: str | None = None,
        domain: str = "any",
        claimed: str = "fp32",
        title: str = "",
    ) -> UserKernel:
        """From a file and words as the command line has them. Raises WorklogError for a file that cannot be read or
        that holds several kernels, and BadSetting.
        """
        try:
            source = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark, no compiler's token
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
            raise WorklogError(f"cannot read {path}: {why}") from error
        words = {"grid": grid, "block": block, "domain": domain, "claimed": claimed}
        return cls.written(source, file=path.name, entry=entry, title=title, **words)

    @classmethod
    def written(
        cls,
        source: str,
        *,
        file: str,
        grid: str,
        block: str,
        entry: str | None = None,
        domain: str = "any",
        claimed: str = "fp32",
        title: str = "",
    ) -> UserKernel:
        """From source text and words as the command line has them. file: what messages call the source. Raises
        BadSetting, also for a source that holds several kernels.
        """
        if claimed not in CLASSES:
            raise BadSetting(f"there is no class {claimed!r}: choose from {', '.join(CLASSES)}")
        if "\0" in source:
            line = source[: source.index("\0")].count("\n") + 1
            raise BadSetting(
                f"{file}:{line}: a NUL character, at which the compiler takes the source to end: delete it"
            )
        program = Program(file, source, entry or _only_kernel(file, source))
        return cls(program, _grid(grid), _block(block), Domain.of(domain), claimed, title)

    @classmethod
    def of(cls, record: Rung) -> UserKernel:
        """A rung, as if somebody had brought it."""
        bn, bm = record.tile["BN"], record.tile["BM"]
        grid = f"(N + {bn - 1}) // {bn}", f"(M + {bm - 1}) // {bm}"
        return cls(Program.of(record), grid, record.block, record.domain)


def brought(
    what: str,
    *,
    grid: str | None,
    block: str | None,
    entry: str | None,
    domain: str,
    claimed: str,
    arrays: str = "",
) -> UserKernel | HostCallable:
    """A .cu file by its path, a rung by its name, which brings its own launch, or host code as module:function,
    file.py:function or lib.so:function. Raises what UserKernel.read and HostCallable.read do.
    """
    is_file = what.endswith(".cu") or Path(what).exists()
    if ":" in what and not is_file:
        if grid or block or entry:
            raise BadSetting("--grid, --block and --entry are for a .cu file: host code launches itself")
        return HostCallable.read(what, domain=domain, claimed=claimed, arrays=arrays)
    if arrays:
        raise BadSetting("--arrays is for host code, such as file.py:function: a kernel is handed pointers")
    if Path(what).suffix in (".py", ".so"):
        raise BadSetting(f"{what} is host code: name its function too, as {what}:function")
    if is_file:
        if grid is None or block is None:
            raise BadSetting(
                "a file's kernel needs a launch: give --grid '(N + 31) // 32, (M + 31) // 32' --block 32,32"
            )
        return UserKernel.read(Path(what), grid=grid, block=block, entry=entry, domain=domain, claimed=claimed)
    record = rung(what)
    if grid or block or entry or (domain, claimed) != ("any", "fp32"):
        raise BadSetting("--grid, --block, --entry, --domain and --class are for a .cu file: a rung brings its own")
    return UserKernel.of(record)


def _only_kernel(file: str, source: str) -> str:
    names = kernel_names(source)
    if not names:
        raise BadSetting(f"{file} has no __global__ function: write one that takes what the ladder's kernels take")
    if len(names) > 1:
        raise BadSetting(f"{file} has {len(names)} kernels ({', '.join(names)}): name one with --entry")
    return names[0]


def _grid(words: str) -> tuple[str, str]:
    parts = [part.strip() for part in words.split(",")]
    if len(parts) not in (1, 2):
        raise BadSetting(f"cannot read the grid {words!r}: give blocks along x and y, such as '(N + 31) // 32, M // 8'")
    for part in parts:
        evaluate(part, {"M": 1, "N": 1, "K": 1})  # a mistake is found before anything is compiled
    return parts[0], parts[1] if len(parts) == 2 else "1"


def _block(words: str) -> Block:
    sizes = [evaluate(part.strip(), {}) for part in words.split(",")]
    if len(sizes) not in (1, 2) or min(sizes) < 1:
        raise BadSetting(
            f"cannot read the block {words!r}: give threads along x, or along x and y, such as 256 or 32,8"
        )
    return sizes[0] if len(sizes) == 1 else (sizes[0], sizes[1])


class UserSubject:
    """A brought kernel on a device, a worklog.kernel.kernel.Subject. Raises CompileFailed."""

    def __init__(self, kernel: UserKernel, device: Device) -> None:
        self.name = kernel.name
        self.domain = kernel.domain
        self.brought = kernel
        self.device = device
        self.kernel = device.compile(kernel.program)

    def enqueue(self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer) -> None:
        """Enqueue one launch. Raises OutsideDomain, and BadSetting for a grid without blocks."""
        if shape not in self.domain:
            raise OutsideDomain(f"size {shape} is outside the domain that was stated ({self.domain})")
        sizes = {"M": shape.m, "N": shape.n, "K": shape.k}
        x, y = (evaluate(expression, sizes) for expression in self.brought.grid)
        if min(x, y) < 1:
            raise BadSetting(
                f"the grid {', '.join(self.brought.grid)} has {x} x {y} blocks at {shape}: "
                "round up, as in (N + 31) // 32, or state a --domain"
            )
        i32, f32 = np.int32, np.float32
        arguments = (i32(shape.m), i32(shape.n), i32(shape.k), f32(alpha), a, b, f32(beta), c)
        self.device.launch(self.kernel, (x, y), self.brought.block, arguments)


def from_dict(words: Mapping[str, Any]) -> Brought:
    """What somebody brought, from what its as_dict() gave. Raises BadSetting for a kind that is not known."""
    kinds: dict[str, Callable[[Mapping[str, Any]], Brought]] = {
        "kernel": UserKernel.from_dict,
        "callable": HostCallable.from_dict,
    }
    if words["kind"] not in kinds:
        raise BadSetting(f"cannot read a brought {words['kind']!r}: this version knows {', '.join(kinds)}")
    return kinds[words["kind"]](words)
