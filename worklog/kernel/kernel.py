"""One record for every kernel: a rung of the ladder, a kernel from a .cu file or a notebook cell, and a host function.

A record loads the kernel on a device, describes it for the run file, and crosses to a child process pickled.
"""

from __future__ import annotations

import inspect
import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from worklog.errors import BadSetting, LaunchFailed, check_keywords, hinted, listed, meant
from worklog.kernel import launch as launches
from worklog.kernel import near, signature, stated
from worklog.kernel.device import Block, Device, Loaded, Program, Runnable
from worklog.kernel.host_function import REMARK, HostFunction, HostSubject
from worklog.kernel.launch import LAUNCH_ADVICE, Launch
from worklog.kernel.nvrtc import Missing, missing, prepared, read_unit, with_folders
from worklog.kernel.product import why_no_product
from worklog.kernel.source import evaluate, filled, included, needs_sm_90a, parts, read_source
from worklog.kernel.unit import Definition, Unit, read
from worklog.problem import CLASSES, Domain, Matrix, PrecisionClass, Shape
from worklog.runs.limits import MAX_SHARED_UNASKED

TEMPLATE = Path(__file__).with_name("template.cu")  # a user kernel to start from
MOST_PADDING = 3  # times the work of the shape itself: beyond that, padding is no advice
Sides = str | int | Sequence[str | int]  # of a grid or a block


class SourceOptions(TypedDict, total=False):
    """The options of Kernel.from_source that other functions pass on, for type checkers."""

    entry: str | None
    domain: str | None
    claimed: PrecisionClass | Literal[""]
    args: str | None
    include: Sequence[str | Path] | str | Path
    define: Sequence[str] | str
    shared: int


@dataclass(frozen=True)
class Listed:
    """A kernel that a file or one of its headers defines."""

    name: str  # of a template, an instance that host code launches, if there are several
    why_no_product: str  # "" if it may compute a product
    header: str  # the text of the header that has it; "" for the file


def kernels_in(
    path: str | Path, include: Sequence[str | Path] = (), define: Sequence[str] = ()
) -> list[Listed]:
    """Return the kernels of a .cu file and of its headers in order.

    A template of which the host code launches several instances is there as these instances. The host code is the
    file's, or that of a program which includes the file.

    include: folders of headers
    define: macros, as "NAME=VALUE"
    Raises WorklogError for a file that can't be read, and BadSetting.
    """
    source = read_source(path := Path(path))
    folders = _near_headers(path, source, include).folders
    unit = read_unit(source, folders, define)
    kernels = dict[str, Listed]()
    for name in dict.fromkeys(function.name for function in unit.functions if function.is_kernel):
        defined = unit.definition(name)
        if defined is None:
            continue
        instances = _instances(path, defined, unit, include, define)
        for entry in instances if len(instances) > 1 else [name]:
            kernels[entry] = Listed(entry, why_no_product(defined, unit), defined.header)
    return [*kernels.values()]


def own_kernels(kernels: Sequence[Listed]) -> list[Listed]:
    """Return the kernels that a file has itself; if it has none, those of its headers."""
    return [kernel for kernel in kernels if not kernel.header] or [*kernels]


def _instances(
    path: Path,
    defined: Definition,
    unit: Unit,
    include: Sequence[str | Path],
    define: Sequence[str],
) -> list[str]:
    """Return the instances of a template that a file launches, else those of a program that includes the file."""
    if not defined.template:
        return []
    instances = stated.instances(defined.name, defined, unit)
    if instances:
        return instances
    for _, launching in _units_of(near.programs(path), include, define):
        instances = stated.instances(defined.name, defined, launching)
        if instances:
            return instances
    return []


def _near_headers(
    path: Path, source: str, include: Sequence[str | Path] | str | Path
) -> near.Headers:
    """Return the folders of a file's headers, and the headers that several folders have.

    The folders are those in `include`, the file's own folder and folders near it.
    """
    folders = [Path(folder) for folder in listed("include", include)]
    if any((path.parent / header).is_file() for header in included(source)):
        folders.append(path.parent)
    headers = near.folders_of_headers(path, source, folders)
    return replace(headers, folders=[*folders, *headers.folders])


def _unit_of(
    program: near.Includer, text: str, include: Sequence[str | Path], define: Sequence[str]
) -> Unit:
    """Return what a file that includes a kernel's file defines.

    text: the file's text, or its beginning
    """
    folders = [*program.folders, *map(Path, include)]
    headers = near.folders_of_headers(program.path, text, folders)
    return read_unit(text, [*folders, *headers.folders], define)


def _units_of(
    programs: Sequence[near.Includer], include: Sequence[str | Path], define: Sequence[str]
) -> Iterator[tuple[str, Unit]]:
    """Yield the name of each file that includes a kernel's file, and what it defines."""
    for program in programs:
        text = read_source(program.path)
        yield program.path.name, _unit_of(program, text, include, define)


@dataclass(frozen=True)
class Kernel:
    """A kernel that computes C = alpha A B + beta C."""

    name: str  # in runs, tables and charts
    code: Program | HostFunction  # the program to compile, or the place of a host function
    launches: tuple[Launch, ...] = ()  # in order, on one stream and with the same arguments
    main: int = 0  # the place of the launch that computes the product
    # Values of the template's parameters, which the launches name.
    template: Mapping[str, int] = field(default_factory=dict, hash=False)
    rules: str = "any"  # the domain, as "M % BM == 0"
    claimed: str = "fp32"  # the precision class that the kernel must have at least
    # The value that each parameter takes (worklog.kernel.signature).
    arguments: tuple[str, ...] = signature.LADDER
    # Bytes of memory for intermediate results, an expression as for grid. Its address is the argument "workspace".
    # Before a launch, the memory may hold anything.
    workspace: str = ""
    choose: Callable[..., Kernel] | None = None  # returns the kernel that is launched at a shape
    number: int | None = None  # of a rung
    idea: str = ""  # of a rung
    adapted: tuple[str, ...] = ()  # facts that were read from the source, for the user
    warnings: tuple[str, ...] = ()  # facts that the source leaves open
    # The arguments of from_source, if a trial may find an order or a launch that the source doesn't state, or verify
    # an order by names (worklog.kernel.trial).
    stated: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    # The order and the launch that a trial found, by "order" and "launch".
    found: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        name: str = "",
        grid: Sides = "",
        block: Sides = "",
        **options: Unpack[SourceOptions],
    ) -> Kernel:
        """Return the kernel of a .cu file.

        Example: `Kernel.from_file("mine.cu", domain="M % 64 == 0", grid="(N + 63) / 64, M / 64", block=256)`

        name: of the kernel (default: the file's name without .cu)
        grid, block, options: as for from_source
        Raises WorklogError for a file that can't be read, and what from_source raises.
        """
        names = (*inspect.signature(cls.from_file).parameters, *SourceOptions.__annotations__)
        check_keywords("Kernel.from_file has no argument", options, names)
        if not isinstance(path, str | Path):
            raise BadSetting(f"path: give the name of a .cu file, not {path!r:.60}")
        source = read_source(path := Path(path))
        headers = _near_headers(path, source, options.get("include", ()))
        if headers.folders:
            options["include"] = headers.folders
        kernel = cls.from_source(
            source,
            file=path.name,
            name=name or path.stem,
            grid=grid,
            block=block,
            ambiguous=headers.ambiguous,
            programs=near.programs(path),
            **options,
        )
        return replace(kernel, adapted=(*kernel.adapted, *headers.remarks))

    @classmethod
    @hinted
    def from_source(
        cls,
        source: str,
        *,
        block: Sides = "",
        grid: Sides = "",
        entry: str | None = None,
        domain: str | None = None,
        claimed: PrecisionClass | Literal[""] = "",
        name: str = "",
        file: str = "source",
        args: str | None = None,
        include: Sequence[str | Path] | str | Path = (),
        define: Sequence[str] | str = (),
        shared: int = 0,
        programs: Sequence[near.Includer] = (),
        ambiguous: Sequence[Missing] = (),
    ) -> Kernel:
        """Return the kernel of a source text, such as a notebook cell.

        Host code in the source is left out. Without alpha or beta, the kernel computes with alpha = 1 or beta = 0. With
        one size, it takes square matrices.

        grid, block: default, the source's. If it states none, the kernel can be compiled and not launched
        entry: the kernel's name, needed if the source has several kernels (default: the only one). A template needs
            its arguments, unless a comment states them: "Tile: BM=128 BN=64"
        domain: default, a comment's. Otherwise, a grid that rounds down is taken to cover whole blocks only, which
            `warnings` states
        claimed: a precision class (default: fp32)
        name: default, the entry's
        file: the source's name in messages
        args: the value that each parameter takes, as "M,N,K,alpha,A,B,beta,C" (default: from the parameters' names)
        include: folders of headers
        define: macros, as "NAME=VALUE"
        shared: bytes of dynamic shared memory
        programs: files that include the source, nearest first. They count if the source states no launch
        ambiguous: headers that several folders near the source have
        Raises BadSetting.
        """
        texts = {
            "source": source,
            "entry": entry,
            "domain": domain,
            "claimed": claimed,
            "name": name,
            "args": args,
            "file": file,
        }
        for argument, text in texts.items():
            _require_text(argument, text)
        _require_no_path(source)
        request = _Request(
            source=source,
            entry=entry,
            domain=domain,
            claimed=claimed,
            name=name,
            args=args,
            file=file,
            grid=launches.launch_text("grid", grid),
            block=launches.launch_text("block", block),
            include=listed("include", include),
            define=listed("define", define),
            shared=shared,
            programs=programs,
            ambiguous=ambiguous,
        )
        _require_bytes(shared)
        chosen = _chosen(request)
        order = _order(request, chosen)
        of_source = _launch_of_source(request, chosen, order.arguments)
        order.adapted += of_source.unread
        launch = _with_template(of_source.launch, chosen)
        if launch is None:
            launch = of_source.launch
            order = _unbound(chosen, order, of_source)
        launch = _with_options(launch, request, chosen)
        rules, remarks = _domain(request, chosen, of_source.rules)
        origin = _origin(request, of_source)
        code = _code(request, chosen, launch)
        adapted = [
            *order.adapted,
            *remarks,
            *_launch_remarks(request, chosen, launch, origin),
            *_headers_left_out(code),
        ]
        warnings = [*order.warnings, *_shared_warnings(request, chosen, launch, origin)]
        kernel = cls(
            name=name or chosen.function,
            code=code,
            launches=(launch,),
            template=chosen.template,
            rules=rules,
            claimed=claimed or chosen.claims,
            arguments=order.arguments,
            adapted=tuple(adapted),
            warnings=tuple(warnings),
        )
        if _has_trial(request, order, launch):
            kernel = replace(kernel, stated=dict(vars(request)))
        return _with_domain_of_grid(kernel._readable(), request)

    @classmethod
    @hinted
    def from_function(
        cls,
        function: str | Callable[..., object],
        *,
        domain: str = "any",
        claimed: PrecisionClass = "fp32",
        arrays: Literal["cupy", "torch", "pointers", ""] = "",
        name: str = "",
    ) -> Kernel:
        """Return a host function as a kernel. Nothing is loaded here.

        worklog.kernel.host_function states the contract.

        function: "module:function", "file.py:function" or "lib.so:function", or a Python function that a child process
            can load from its module or file
        arrays: "cupy", "torch" or "pointers" (default: ARRAYS of the file, else cupy)
        Raises WorklogError for a file that can't be read, and BadSetting.
        """
        host = HostFunction.of(function, arrays)
        return cls(name or host.function, host, rules=domain, claimed=claimed)._readable()

    def _readable(self) -> Kernel:
        """Return the kernel itself, without compiling it.

        Raises BadSetting for a mistake in the domain, precision class, grid or block.
        """
        if self.claimed not in CLASSES:
            raise BadSetting(
                f"there is no precision class {self.claimed!r}: choose from {', '.join(CLASSES)}"
            )
        _ = self.domain
        if self.block:
            _ = self.threads
        if self.grid:
            self.blocks_at(1, 1, 1)
        return self

    def __repr__(self) -> str:
        if self.number is not None:
            return f"<{self.number:02} {self.name}: {self.idea}>"
        launch = f" · grid {self.grid} · block {self.block}" if self.grid else ""
        return f"<{self.name}: {self.file}{launch} · {self.domain}>"

    @property
    def host(self) -> HostFunction | None:
        """The place of a host function; None for CUDA C++."""
        return self.code if isinstance(self.code, HostFunction) else None

    @property
    def file(self) -> str:
        """The name of the source file, or the module of a host function."""
        return self.code.name if isinstance(self.code, Program) else self.code.file

    @property
    def source(self) -> str:
        """The CUDA C++ text."""
        return self._cuda.source

    @property
    def _cuda(self) -> Program:
        """The program of a kernel that isn't a host function."""
        assert isinstance(self.code, Program), f"{self.name} is a host function"
        return self.code

    @property
    def unit(self) -> Unit:
        """The functions and constants that the source defines."""
        define = tuple(option[2:] for option in self._cuda.options if option.startswith("-D"))
        return read(self.source, define, self._cuda.headers)

    @property
    def definition(self) -> Definition:
        """The main __global__ function, as the source defines it."""
        defined = self.unit.definition(self.function)
        assert defined is not None, f"{self.file} has {self.function}"
        return defined

    def read_launch(self, labels: Sequence[str]) -> tuple[Launch, list[str]]:
        """Return the launch that the source states, and why launches aren't read.

        The launch is in terms of labels of sizes. It has no grid and block if none is stated, and if it isn't read. Its
        grid may have a name like "M_or_N": a variable that is passed for both.

        labels: "M", "N", "K" or a text that is no size, of each parameter
        """
        (_, unit), *programs = self._units()
        _, _, instance = self.launch.function.partition("<")
        numbers = instance.rpartition(">")[0] or ", ".join(map(str, self.template.values()))
        of_source = stated.stated_launch(
            launches.own_part(self.stated["source"], unit, self.definition, "grid"),
            unit,
            self.function,
            self.definition,
            labels,
            filled(numbers, self.template),
            programs=programs,
            with_joint=True,
        )
        return of_source.launch, of_source.unread

    def passed(self, labels: Sequence[str]) -> dict[int, str]:
        """Return the values that launches pass to parameters without a label, by place.

        labels: as for read_launch. The values are in terms of labels
        """
        for _, unit in self._units():
            values = stated.passed(self.definition, unit, labels)
            if values:
                return values
        return {}

    def _units(self) -> Iterator[tuple[str, Unit]]:
        """Yield name and unit of the whole source, and then of each program that includes it."""
        include = self.stated["include"]
        define = self.stated["define"]
        yield self.stated["file"], read_unit(self.stated["source"], include, define)
        yield from _units_of(self.stated["programs"], include, define)

    def with_text(self, text: str) -> Kernel:
        """Return the same kernel with another source text."""
        return replace(self, code=replace(self._cuda, source=text))

    def with_launch(self, **changed: Any) -> Kernel:
        """Return the same kernel with another main launch.

        changed: fields of the Launch, such as grid, block and shared
        """
        launches = list(self.launches)
        launches[self.main] = replace(self.launch, **changed)
        return replace(self, launches=tuple(launches))

    @property
    def launch(self) -> Launch:
        """The launch that computes the product; of a host function, its name alone."""
        if isinstance(self.code, HostFunction):
            return Launch(self.code.function)
        return self.launches[self.main]

    @property
    def grid(self) -> str:
        """The blocks of the main launch, as in Launch."""
        return self.launch.grid

    @property
    def block(self) -> str:
        """The threads per block of the main launch, as in Launch."""
        return self.launch.block

    @property
    def function(self) -> str:
        """The main __global__ function, or the host function."""
        return self.launch.function.partition("<")[0]

    @cached_property
    def entry(self) -> str:
        """The name of the kernel for the compiler, such as `sgemm_shared<32, 32, 32>`."""
        return filled(self.launch.function, self.template)

    @cached_property
    def domain(self) -> Domain:
        """The shapes that the kernel accepts, and whether it takes alpha and beta."""
        sizes = {argument for argument in self.arguments if signature.size_of(argument)}
        domain = Domain.of(self.rules, tuple(self.template.items()))
        return replace(
            domain,
            square=domain.square or len(sizes) == 1,
            alpha="alpha" in self.arguments,
            beta="beta" in self.arguments,
        )

    def at(self, shape: Shape, arch: str = "") -> Kernel:
        """Return the kernel that is launched at a shape.

        arch: the architecture, such as "sm_90" (default: any)
        """
        if self.choose is None:
            return self
        chosen = self.choose(shape, arch=arch)
        return replace(chosen, code=self.code) if chosen.file == self.file else chosen

    @cached_property
    def passes(self) -> tuple[Kernel, ...]:
        """The launches in order, each as a kernel of one launch."""
        return tuple(
            replace(self, launches=(launch,), main=0, choose=None) for launch in self.launches
        )

    def missing_on(self, arch: str) -> str:
        """Return why the kernel can't run on an architecture; "" if it can.

        Also "" if only the compiler can tell, as for a source with __CUDA_ARCH__.
        """
        if arch == "sm_90" or self.host is not None:
            return ""
        if "__CUDA_ARCH" in self.source or not needs_sm_90a(self.source):
            return ""
        return f"its instructions need compute capability 9.0, and this GPU runs {arch}"

    @cached_property
    def program(self) -> Program:
        """The program to compile."""
        return replace(
            self._cuda, entry=self.entry, arguments=self.arguments, shared=self.launch.shared
        )

    @cached_property
    def threads(self) -> Block:
        """The threads per block: along x, or along x, y and z. Raises BadSetting."""
        return self.launch.threads(self.template)

    @property
    def thread_count(self) -> int:
        """The number of threads per block."""
        return self.threads if isinstance(self.threads, int) else math.prod(self.threads)

    def blocks(self, shape: Shape) -> tuple[int, ...]:
        """Return the blocks along x, y and, if the grid has it, z.

        Raises LaunchFailed for a grid without blocks.
        """
        sizes = self.blocks_at(shape.m, shape.n, shape.k)
        if min(sizes) < 1:
            blocks = " x ".join(map(str, sizes))
            raise LaunchFailed(
                f"the grid {self.grid} has {blocks} blocks at {shape}: "
                "round up, as in (N + 31) / 32, or state a domain"
            )
        return sizes

    def blocks_at(self, m: Any, n: Any, k: Any) -> tuple[Any, ...]:
        """Return the blocks as blocks() does, but without its error.

        Arrays of sizes give arrays of blocks.
        """
        return self.launch.blocks({"M": m, "N": n, "K": k, **self.template})

    def workspace_bytes(self, shape: Shape) -> int:
        """Return the bytes of the workspace that a launch needs. Raises BadSetting."""
        names = {"M": shape.m, "N": shape.n, "K": shape.k, **self.template}
        return evaluate(self.workspace, names) if self.workspace else 0

    def check(self, shape: Shape) -> None:
        """Raise BadSetting, with a shape that fits, for a shape outside the domain."""
        if shape in self.domain:
            return
        domain = replace(self.domain, square=self.domain.square or shape.square)
        padded = domain.padded(shape)
        advice = f"it takes {padded}, for example"
        if padded.flops <= MOST_PADDING * shape.flops:
            advice = f"pad to {padded}"
        if self.number is not None:
            advice += ", or use coalesced, which takes any size"
        raise BadSetting(f"size {shape} is outside {self.name}'s domain ({self.domain}): {advice}")

    def load(self, device: Device, *, fresh: bool = False) -> Runnable:
        """Return the kernel on a device.

        fresh: the kernel's next launch is the first launch of its code, if possible
        Raises CompileFailed, BadSetting for a kernel that can't be loaded, and NoGpu for a host function without a GPU.
        """
        if self.host is not None:
            return HostSubject(self, device, fresh)
        self.require_launch()
        if fresh:
            text = f"{self.source}\n// {secrets.token_hex(8)}\n"
            return Loaded(self.with_text(text), device)
        return Loaded(self, device)

    def __call__(
        self,
        A: Matrix,
        B: Matrix,
        C: Matrix | None = None,
        *,
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> Matrix:
        """Return C = alpha A B + beta C by this kernel, as worklog.sgemm, which describes the arrays."""
        import worklog

        return worklog.sgemm(A, B, C, alpha=alpha, beta=beta, mode=self)

    def require_instance(self) -> None:
        """Raise BadSetting for a template without arguments, which can't be compiled."""
        defined = self.unit.definition(self.function)
        if "<" not in self.launch.function and defined and not all(defined.template.values()):
            raise BadSetting(f"{self.file}: {self.adapted[0]}")

    def require_launch(self) -> None:
        """Raise BadSetting if the parameters' order, the grid or the block is unknown."""
        if not self.arguments:
            raise BadSetting(f"{self.file}: {self.adapted[0]}")
        if self.host is not None or (self.grid and self.block):
            return
        lines = [line for line in self.adapted if "launch" in line]
        unread = "; ".join((*lines, LAUNCH_ADVICE))
        raise BadSetting(
            f"{self.function} needs a launch, and {self.file} doesn't state one: {unread}"
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """The lines that must be shown with every measurement of the kernel."""
        if self.host is not None:
            return (REMARK,)
        fixed = signature.fixed(self.arguments)
        if fixed:
            return (f"computes with {fixed} only", *self.warnings)
        return self.warnings

    def bind(
        self, shape: Shape, alpha: float, a: Any, b: Any, beta: float, c: Any, workspace: Any = None
    ) -> tuple[Any, ...]:
        """Return the arguments of a launch, in the order of the kernel's parameters."""
        values = {"alpha": np.float32(alpha), "A": a, "B": b, "beta": np.float32(beta), "C": c}
        values["workspace"] = np.uint64(0) if workspace is None else workspace
        for name, size in (("M", shape.m), ("N", shape.n), ("K", shape.k)):
            values[name] = np.int32(size)
            values[f"{signature.WIDE}{name}"] = np.int64(size)
        sizes = {"M": shape.m, "N": shape.n, "K": shape.k}
        for name in filter(signature.is_computed, self.arguments):
            number = evaluate(name.removeprefix(signature.WIDE), sizes)
            values[name] = np.int64(number) if name.startswith(signature.WIDE) else np.int32(number)
        return tuple(values[name] for name in self.arguments)

    def describe(self) -> dict[str, Any]:
        """Return the entry of a run's `kernels`: source hash, launch and domain.

        The kernel isn't loaded.
        """
        if self.host is not None:
            return self.host.describe()
        about: dict[str, Any] = {
            "file": self.file,
            "sha256": self.program.code_sha256,
            "entry": self.entry,
            "options": list(self.program.options),
        }
        about |= self._described_launch()
        if self.found:
            about["found"] = dict(self.found)
        about["domain"] = str(self.domain)
        about["claimed"] = self.claimed
        if self.number is None:
            about["user"] = "kernel"
        else:
            about["idea"] = self.idea
        return about

    def _described_launch(self) -> dict[str, Any]:
        """Return the properties of the launch that aren't empty."""
        launch = {
            "tile": dict(self.template),
            "grid": parts(self.grid),
            "block": self.threads,
            "dynamic_shared_bytes": self.launch.shared,
            "workspace": self.workspace,
        }
        if self.arguments != signature.LADDER:
            launch["arguments"] = list(self.arguments)
        return {name: value for name, value in launch.items() if value}


@dataclass(frozen=True)
class _Request:
    """The arguments of Kernel.from_source, with the grid and the block as texts."""

    source: str
    entry: str | None
    domain: str | None
    claimed: str
    name: str
    args: str | None
    file: str
    block: str
    grid: str
    include: Sequence[str | Path]
    define: Sequence[str]
    shared: int  # bytes
    programs: Sequence[near.Includer]
    ambiguous: Sequence[Missing]


def _require_text(argument: str, text: Any) -> None:
    """Raise BadSetting for an argument of from_source that isn't text, and for an empty domain or order."""
    if not isinstance(text, str) and (text is not None or argument == "source"):
        raise BadSetting(f"{argument}: give text, not {text!r:.60}")
    if argument in ("domain", "args") and text is not None and not text.strip():
        metavar = "NAMES" if argument == "args" else "SHAPES"
        raise BadSetting(f"{argument} is empty: give {metavar}, or omit it")


def _require_no_path(source: str) -> None:
    """Raise BadSetting for the name of a file in place of a source text."""
    if source.strip().endswith(".cu") and "{" not in source:
        raise BadSetting(
            f"{source.strip()!r} is the name of a file: give its text, or use Kernel.from_file"
        )


def _require_bytes(shared: Any) -> None:
    """Raise BadSetting if the bytes of dynamic shared memory aren't an integer from 0 on."""
    if not isinstance(shared, Integral) or shared < 0:
        raise BadSetting(f"cannot take {shared!r} bytes of dynamic shared memory: give 0 or more")


@dataclass(frozen=True)
class _Chosen:
    """The kernel that a request is for, as its source defines it."""

    function: str  # its name without template arguments
    defined: Definition
    unit: Unit
    tile: Mapping[str, int]  # values of parameters in the source's header comment
    template: Mapping[str, int]  # the tile, if it is of this kernel's template; else empty
    instance: str  # other arguments of the template, as in "32, 8"; "" for none or unknown ones
    claims: str  # the precision class in the header comment
    header_launch: Launch  # the launch in the header comment, without a function
    include: Sequence[str | Path]  # folders of headers
    front: tuple[str, str]  # name and code of a program in front of the source; empty for none


def _chosen(request: _Request) -> _Chosen:
    """Return the kernel that a request is for. Raises BadSetting if that isn't clear."""
    include = request.include
    unit = read_unit(request.source, include, request.define)
    tile, claims, header_launch = launches.header(request.source)
    function, bracket, instance = _entry(request, unit).partition("<")
    function = function.strip()
    instance = instance.rpartition(">")[0]
    front = ("", "")
    program = _program_in_front(request, unit, function)
    if program is not None:
        front = (program.path.name, program.before)
        include = [*include, *program.folders]
        unit = read_unit(request.source, include, request.define, front)
    defined = _definition(request.file, unit, function)
    template: Mapping[str, int] = {}
    if not bracket and {*tile} <= {*defined.template}:
        template = tile
    if not instance and not template:
        instance = _instance(function, defined, unit)
    return _Chosen(
        function=function,
        defined=defined,
        unit=unit,
        tile=tile,
        template=template,
        instance=instance,
        claims=claims,
        header_launch=header_launch,
        include=include,
        front=front,
    )


def _entry(request: _Request, unit: Unit) -> str:
    """Return the name of the kernel, with template arguments if the request has them.

    Raises BadSetting for a source without kernels, and for a source of several kernels if the request names none.
    """
    if request.entry:
        return request.entry
    kernels = unit.kernels
    if not kernels:
        raise BadSetting(
            f"{request.file} has no __global__ function: write one, or start from: worklog new mine.cu"
        )
    if len(kernels) > 1:
        raise BadSetting(
            f"{request.file} has {len(kernels)} kernels ({', '.join(kernels)}): name one with --entry, "
            "or launch several in a function as worklog new sgemm writes one"
        )
    return kernels[0]


def _program_in_front(request: _Request, unit: Unit, function: str) -> near.Includer | None:
    """Return the nearest program with code before the source, if the kernel needs the code; else None."""
    for program in request.programs:
        if program.before:
            in_front = _unit_of(program, program.before, request.include, request.define)
            return program if unit.lacks(function, in_front) else None
    return None


def _definition(file: str, unit: Unit, function: str) -> Definition:
    """Return the definition of a kernel. Raises BadSetting for an unknown and for an overloaded function."""
    defined = unit.definition(function)
    if defined is None:
        kernels = ", ".join(unit.kernels) or "none"
        raise BadSetting(
            f"{file} has no kernel {function}{meant(function, unit.kernels)}: its kernels are {kernels}"
        )
    overloads = set()
    for other in unit.functions:
        if other.is_kernel and other.name == defined.name:
            overloads.add(other.parameters)
    if len(overloads) > 1:
        raise BadSetting(
            f"{file} has {function} with different parameters: give each a name of its own"
        )
    return defined


def _instance(function: str, defined: Definition, unit: Unit) -> str:
    """Return the only possible arguments of a template, as in "32, 8"; "" if there are none or several."""
    pointed = {parameter.type for parameter in defined.parameters if parameter.pointer}
    if defined.template and {*defined.template} <= pointed:
        return ", ".join("float" for _ in defined.template)  # which the gate passes
    launched = stated.instances(function, defined, unit)
    if len(launched) == 1:
        return launched[0].removeprefix(f"{function}<").removesuffix(">")
    if launched:
        return ""
    return stated.instantiated(defined, unit)


@dataclass
class _Order:
    """The order of a kernel's parameters, and what the user is told of it."""

    arguments: tuple[str, ...]  # the value that each parameter takes; empty if unknown
    adapted: list[str]  # facts that were read from the source
    warnings: list[str]
    is_unclear: bool = False  # the names don't say which parameter is which


def _order(request: _Request, chosen: _Chosen) -> _Order:
    """Return the order of a kernel's parameters. If it is unknown, `adapted` has only the reason.

    Raises BadSetting if the request states a wrong order, or a launch of a kernel that the gate can't pass its
    arguments to.
    """
    file = request.file
    defined = chosen.defined
    unit = chosen.unit
    adapted = list[str]()
    warnings = list[str]()
    if chosen.front[0]:
        adapted.append(f"compiled behind the code of {chosen.front[0]}, which includes {file}")
    try:
        arguments = signature.order(request.args or "", file, chosen.function, defined)
        passed = dict[int, str]()
        exchanged = ""
        if not request.args:
            passed, unread = stated.leading_dimensions(defined, unit, arguments)
            warnings += unread
        arguments = signature.with_sizes(arguments, passed)
        adapted += signature.described(defined, arguments)
        for place, size in passed.items():
            adapted.append(f"{defined.parameters[place].name}: the host code passes {size}")
        if not request.args:
            exchanged = stated.exchanged_matrices(defined, unit)
        if exchanged:
            adapted.append(f"{exchanged}; the kernel is checked as its parameters' names say")
    except BadSetting as error:
        is_unclear = isinstance(error, signature.UnclearOrder)
        if request.args or ((request.grid or request.block) and not is_unclear):
            raise
        # The kernel can still be compiled.
        return _Order((), [str(error).removeprefix(f"{file}: ")], warnings, is_unclear)
    return _Order(arguments, adapted, warnings)


def _launch_of_source(
    request: _Request, chosen: _Chosen, arguments: tuple[str, ...]
) -> stated.Stated:
    """Return the launch that the source states; without grid and block if none is stated or needed."""
    if chosen.header_launch.grid and (chosen.template or not chosen.tile):
        return stated.Stated(replace(chosen.header_launch, function=chosen.function), "a comment")
    if not arguments or (request.grid and request.block):
        return stated.Stated(Launch(chosen.function))
    return stated.stated_launch(
        launches.own_part(request.source, chosen.unit, chosen.defined, "grid"),
        chosen.unit,
        chosen.function,
        chosen.defined,
        arguments,
        chosen.instance or ", ".join(map(str, chosen.template.values())),
        programs=_units_of(request.programs, chosen.include, request.define),
    )


def _with_template(launch: Launch, chosen: _Chosen) -> Launch | None:
    """Return a launch with the template's arguments; None if these are unknown."""
    function = chosen.function
    arguments = chosen.instance or ", ".join(chosen.template)
    if arguments:
        return replace(launch, function=f"{function}<{arguments}>")
    if not chosen.defined.template or launch.function != function:
        return launch
    if all(chosen.defined.template.values()):
        return replace(launch, function=f"{function}<>")
    return None


def _unbound(chosen: _Chosen, order: _Order, of_source: stated.Stated) -> _Order:
    """Return no order, with the reason that a template's arguments are unknown."""
    advice = stated.unbound(chosen.function, chosen.defined, chosen.unit)
    reasons = of_source.unread if order.arguments else order.adapted
    return _Order((), ["; ".join((advice, *reasons))], order.warnings)


def _with_options(launch: Launch, request: _Request, chosen: _Chosen) -> Launch:
    """Return a launch with the request's grid, block and shared memory in place of the source's."""
    shared = request.shared or launch.shared
    return replace(
        launch,
        grid=request.grid or launch.grid,
        block=request.block or launch.block,
        shared=shared or chosen.header_launch.shared,
    )


def _domain(
    request: _Request, chosen: _Chosen, host_rules: tuple[str, ...]
) -> tuple[str, list[str]]:
    """Return the rules of the domain, and where the source states them.

    host_rules: rules of the sizes at which the host code launches the kernel
    """
    if request.domain:
        return request.domain, []
    text = launches.own_part(request.source, chosen.unit, chosen.defined, "domain")
    rules, remarks = launches.domain(text, chosen.template)
    if rules == "any" and host_rules:
        rules = ", ".join(host_rules)
        remarks = [f"domain: {rules}; the host code launches it at no other size"]
    return rules, remarks


def _origin(request: _Request, of_source: stated.Stated) -> str:
    """Return where a launch was found, with advice if only its block is replaced; "" for nowhere."""
    origin = of_source.origin
    block = of_source.launch.block
    if request.grid or not request.block or parts(request.block) == parts(block):
        return origin
    if origin.startswith(("a comment", "the host code")):
        return f"{origin}, which states this grid with block {block}: give --grid, too"
    return origin


def _launch_remarks(request: _Request, chosen: _Chosen, launch: Launch, origin: str) -> list[str]:
    """Return the line that describes a launch of the source; no line if the request has grid and block."""
    if not origin or (request.grid and request.block):
        return []
    dynamic = ""
    if launch.shared and not chosen.header_launch.shared:
        dynamic = f"; {launch.shared} bytes of dynamic shared memory"
    options = ""
    if request.grid:
        options = "--grid and "
    elif request.block:
        options = "--block and "
    return [f"launch: grid {launch.grid}; block {launch.block}{dynamic}; from {options}{origin}"]


def _code(request: _Request, chosen: _Chosen, launch: Launch) -> Program:
    """Return the program to compile."""
    code = prepared(
        request.file,
        request.source,
        filled(launch.function, chosen.template),
        chosen.include,
        request.define,
        chosen.front,
    )
    return with_folders(code, request.ambiguous)


def _headers_left_out(code: Program) -> list[str]:
    """Return a line for each header that a program lacks."""
    lines = []
    for header in missing(code):
        comma = "," if header.folders else ""
        advice = f"{header.advice}{comma} if the kernel needs it"
        lines.append(f"{header.where}, and is left out: {advice}")
    return lines


def _shared_warnings(request: _Request, chosen: _Chosen, launch: Launch, origin: str) -> list[str]:
    """Return a warning if the host code's launch fails for its dynamic shared memory."""
    if origin != "the host code" or request.shared:
        return []
    if not stated.lacks_permission(chosen.unit, launch.shared):
        return []
    return [
        f"the host code launches it with {launch.shared:,} bytes of dynamic shared memory, and fails: above "
        f"{MAX_SHARED_UNASKED:,} it must call cudaFuncSetAttribute"
    ]


def _has_trial(request: _Request, order: _Order, launch: Launch) -> bool:
    """Return whether a trial may find an order or a launch, or verify an order by names."""
    if order.is_unclear:
        return True
    if not order.arguments or signature.WORKSPACE in order.arguments:
        return False
    has_launch = bool(launch.grid and launch.block)
    is_by_name = not request.args and not signature.is_ladders(order.arguments)
    return is_by_name or not has_launch


def _with_domain_of_grid(kernel: Kernel, request: _Request) -> Kernel:
    """Return a kernel whose domain is what its grid covers, with a warning, unless a domain is stated."""
    grid_rules, is_uneven = launches.covered(kernel.grid, kernel.template)
    domain = replace(kernel, rules=", ".join([kernel.rules, *grid_rules])).domain
    if request.domain or (request.grid and not is_uneven) or domain == kernel.domain:
        return kernel
    advice = f"state it, as by --domain '{domain}', or round up if the kernel has guards"
    if is_uneven:
        reason = f"one rounded axis of two: the grid {kernel.grid} rounds one axis down only"
        return replace(kernel, warnings=(*kernel.warnings, f"{reason}; {advice}"))
    reason = f"the domain is inferred from the grid: {domain}; other shapes are not checked"
    return replace(kernel, rules=str(domain), warnings=(*kernel.warnings, f"{reason}; {advice}"))
