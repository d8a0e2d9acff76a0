"""One record for every kernel: a rung of the ladder, a kernel from a .cu file or a notebook cell, and a host function.

A record loads the kernel on a device, describes it for the run file, and crosses to a child process pickled.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from worklog.errors import BadSetting, LaunchFailed, listed, meant
from worklog.kernel import launch as launches
from worklog.kernel import near, signature, stated
from worklog.kernel.device import Block, Device, Loaded, Program, Runnable
from worklog.kernel.host_function import REMARK, HostFunction, HostSubject
from worklog.kernel.launch import LAUNCH_ADVICE, Launch
from worklog.kernel.nvrtc import Missing, missing, prepared, read_unit, with_folders
from worklog.kernel.product import why_no_product
from worklog.kernel.source import evaluate, filled, included, needs_sm_90a, parts, read_source
from worklog.kernel.unit import Definition, Unit, read
from worklog.problem import CLASSES, Domain, Shape
from worklog.runs.limits import MAX_SHARED_UNASKED

TEMPLATE = Path(__file__).with_name("template.cu")  # a user kernel to start from
MOST_PADDING = 3  # times the work of the shape itself: beyond that, padding is no advice


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
    for name in dict.fromkeys(each.name for each in unit.functions if each.is_kernel):
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


def _near_headers(path: Path, source: str, include: Sequence[str | Path]) -> near.Headers:
    """Return what is known of a file's headers. The folders are the given ones, its own and near ones."""
    folders = [Path(folder) for folder in listed("include", include)]
    if any((path.parent / header).is_file() for header in included(source)):
        folders.append(path.parent)
    found = near.folders_of_headers(path, source, folders)
    return replace(found, folders=[*folders, *found.folders])


def _unit_of(
    program: near.Includer, text: str, include: Sequence[str | Path], define: Sequence[str]
) -> Unit:
    """Return what a file that includes a kernel's file defines.

    text: the file's text, or its beginning
    """
    folders = [*program.folders, *map(Path, include)]
    found = near.folders_of_headers(program.path, text, folders)
    return read_unit(text, [*folders, *found.folders], define)


def _units_of(
    programs: Sequence[near.Includer], include: Sequence[str | Path], define: Sequence[str]
) -> Iterator[tuple[str, Unit]]:
    """Yield the name of each file that includes a kernel's file, and what it defines."""
    for program in programs:
        text = read_source(program.path)
        yield program.path.name, _unit_of(program, text, include, define)


@dataclass(frozen=True)
class Kernel:
    """A kernel that computes C = alpha A B + beta C.

    name: in runs, tables and charts. code: what is compiled, or where a host function is. launches: in order, on one
    stream and with the same arguments; main: the place of the one that computes the product. template: values of the
    template's parameters, which the launches name. rules: its domain, as "M % BM == 0". claimed: the precision class
    that the kernel must have at least. arguments: the value that each parameter takes (worklog.kernel.signature).
    workspace: bytes of memory for intermediate results, an expression as for grid, whose address is the argument
    "workspace"; before a launch it may hold anything. choose: gives the kernel that is launched at a shape. number,
    idea: of a rung. adapted: what was read from the source, for the user. warnings: what its source leaves open.
    stated: the arguments of from_source, where a trial may find an order or a launch that the source doesn't state, or
    verify an order by names (worklog.kernel.trial). found: what was found so, "order" and "launch".
    """

    name: str
    code: Program | HostFunction
    launches: tuple[Launch, ...] = ()
    main: int = 0
    template: Mapping[str, int] = field(default_factory=dict, hash=False)
    rules: str = "any"
    claimed: str = "fp32"
    arguments: tuple[str, ...] = signature.LADDER
    workspace: str = ""
    choose: Callable[..., Kernel] | None = None
    number: int | None = None
    idea: str = ""
    adapted: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    stated: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    found: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def from_file(cls, path: str | Path, *, name: str = "", **words: Any) -> Kernel:
        """The kernel of a .cu file. name: default, the file's name without .cu. words: as for from_source. Example:
        `Kernel.from_file("mine.cu", domain="M % 64 == 0", grid="(N + 63) / 64, M / 64", block=256)`.

        Raises WorklogError for a file that can't be read, and what from_source raises.
        """
        if not isinstance(path, str | Path):
            raise BadSetting(f"path: give the name of a .cu file, not {path!r:.60}")
        source = read_source(path := Path(path))
        headers = _near_headers(path, source, words.get("include", ()))
        if headers.folders:
            words["include"] = headers.folders
        words["ambiguous"] = headers.ambiguous
        words["programs"] = near.programs(path)
        kernel = cls.from_source(source, file=path.name, name=name or path.stem, **words)
        return replace(kernel, adapted=(*kernel.adapted, *headers.remarks))

    @classmethod
    def from_source(
        cls,
        source: str,
        *,
        block: str | int | Sequence[str | int] = "",
        grid: str | int | Sequence[str | int] = "",
        entry: str | None = None,
        domain: str | None = None,
        claimed: str = "",
        name: str = "",
        file: str = "source",
        args: str | None = None,
        include: Sequence[str | Path] | str | Path = (),
        define: Sequence[str] | str = (),
        shared: int = 0,
        programs: Sequence[near.Includer] = (),
        ambiguous: Sequence[Missing] = (),
    ) -> Kernel:
        """The kernel of a source text, such as a notebook cell. Host code in it is left out.

        entry: the kernel, needed where the source has several (default: the only one); a template with its arguments,
        or without where a comment states them: "Tile: BM=128 BN=64". name: default, the entry's. file: in messages.
        args: the value that each parameter takes, as "M,N,K,alpha,A,B,beta,C" (default: from the parameters' names).
        Without alpha or beta, the kernel computes with alpha = 1 or beta = 0; with one size, square matrices. grid,
        block: default, what the source states; where it states none, the kernel can be compiled and not launched.
        domain: default, what a comment states; a grid that rounds down is then taken to cover whole blocks only, which
        `warnings` states. claimed: a precision class (default: fp32). include: folders of headers. define: macros, as
        "NAME=VALUE". shared: bytes of dynamic shared memory. programs: files that include the source, nearest first:
        they count if the source states no launch. ambiguous: headers that several folders near the source have. Raises
        BadSetting.
        """
        texts: Any = dict(
            source=source,
            entry=entry,
            domain=domain,
            claimed=claimed,
            name=name,
            args=args,
            file=file,
        )
        for argument, value in texts.items():
            if not isinstance(value, str) and (value is not None or argument == "source"):
                raise BadSetting(f"{argument}: give text, not {value!r:.60}")
            if argument in ("domain", "args") and value is not None and not value.strip():
                raise BadSetting(
                    f"{argument} is empty: give {'NAMES' if argument == 'args' else 'SHAPES'}, or omit it"
                )
        if source.strip().endswith(".cu") and "{" not in source:
            raise BadSetting(
                f"{source.strip()!r} is the name of a file: give its text, or use Kernel.from_file"
            )
        grid, block = launches.launch_text("grid", grid), launches.launch_text("block", block)
        include, define = listed("include", include), listed("define", define)
        bytes_: Any = shared
        if not isinstance(bytes_, Integral) or bytes_ < 0:
            raise BadSetting(
                f"cannot take {shared!r} bytes of dynamic shared memory: give 0 or more"
            )
        words: dict[str, Any] = dict(
            texts,
            block=block,
            grid=grid,
            include=include,
            define=define,
            shared=shared,
            programs=programs,
            ambiguous=ambiguous,
        )
        unit = read_unit(source, include, define)
        tile, claims, own_launch = launches.header(source)
        names = [entry] if entry else unit.kernels
        if not names:
            raise BadSetting(
                f"{file} has no __global__ function: write one, or start from: worklog new mine.cu"
            )
        if len(names) > 1:
            together = (
                "one with --entry, or launch several in a function as worklog new sgemm writes one"
            )
            raise BadSetting(
                f"{file} has {len(names)} kernels ({', '.join(names)}): name {together}"
            )
        function, instantiated, instance = names[0].partition("<")
        function, instance = function.strip(), instance.rpartition(">")[0]
        front = ("", "")
        program = next((program for program in programs if program.before), None)
        if program is not None and unit.lacks(
            function, _unit_of(program, program.before, include, define)
        ):
            front = (program.path.name, program.before)
            include = [*include, *program.folders]
            unit = read_unit(source, include, define, front)
        defined = unit.definition(function)
        if defined is None:
            known = ", ".join(unit.kernels) or "none"
            raise BadSetting(
                f"{file} has no kernel {function}{meant(function, unit.kernels)}: its kernels are {known}"
            )
        if (
            len({f.parameters for f in unit.functions if f.is_kernel and f.name == defined.name})
            > 1
        ):
            raise BadSetting(
                f"{file} has {function} with different parameters: give each a name of its own"
            )
        template = tile if not instantiated and {*tile} <= {*defined.template} else {}
        pointed = {parameter.type for parameter in defined.parameters if parameter.pointer}
        if not instance and not template and {*defined.template} <= pointed:
            instance = ", ".join("float" for _ in defined.template)  # which the gate passes
        if not instance and not template:
            launched = stated.instances(function, defined, unit)
            if len(launched) == 1:
                instance = launched[0].removeprefix(f"{function}<").removesuffix(">")
            elif not launched:
                instance = stated.instantiated(defined, unit)
        adapted = list[str]()
        warnings = list[str]()
        unread = list[str]()
        is_unclear = False
        if front[0]:
            adapted.append(f"compiled behind the code of {front[0]}, which includes {file}")
        try:
            arguments = signature.order(args or "", file, function, defined)
            passed = dict[int, str]()
            if not args:
                passed, untold = stated.leading_dimensions(defined, unit, arguments)
                warnings += untold
            arguments = signature.with_sizes(arguments, passed)
            adapted += signature.described(defined, arguments)
            adapted += [
                f"{defined.parameters[place].name}: the host code passes {size}"
                for place, size in passed.items()
            ]
            exchanged = "" if args else stated.exchanged_matrices(defined, unit)
            if exchanged:
                adapted.append(f"{exchanged}; the kernel is checked as its parameters' names say")
        except BadSetting as error:  # it can still be compiled
            if args or ((grid or block) and not isinstance(error, signature.UnclearOrder)):
                raise
            arguments = ()
            adapted = [str(error).removeprefix(f"{file}: ")]
            is_unclear = isinstance(error, signature.UnclearOrder)
        launch = Launch(function)
        origin = ""
        host_rules = tuple[str, ...]()
        if own_launch.grid and (template or not tile):
            launch = replace(own_launch, function=function)
            origin = "a comment"
        elif arguments and not (grid and block):
            numbers = instance or ", ".join(map(str, template.values()))
            of_source = stated.stated_launch(
                launches.own_part(source, unit, defined, "grid"),
                unit,
                function,
                defined,
                arguments,
                numbers,
                programs=_units_of(programs, include, define),
            )
            launch = of_source.launch
            origin = of_source.origin
            unread = of_source.unread
            host_rules = of_source.rules
            adapted += unread
        if instance := instance or ", ".join(template):
            launch = replace(launch, function=f"{function}<{instance}>")
        elif defined.template and launch.function == function:
            if all(defined.template.values()):
                launch = replace(launch, function=f"{function}<>")
            else:
                said = stated.unbound(function, defined, unit)
                unclear = unread if arguments else adapted
                arguments = ()
                adapted = ["; ".join((said, *unclear))]
                is_unclear = False
        bytes_ = shared or launch.shared or own_launch.shared
        of_file = launch
        launch = replace(
            launch, grid=grid or launch.grid, block=block or launch.block, shared=bytes_
        )
        rules, of_domain = (
            (domain, [])
            if domain
            else launches.domain(launches.own_part(source, unit, defined, "domain"), template)
        )
        if rules == "any" and host_rules and not domain:
            rules = ", ".join(host_rules)
            of_domain = [f"domain: {rules}; the host code launches it at no other size"]
        adapted += of_domain
        if origin and not (grid and block):
            dynamic = (
                f"; {bytes_} bytes of dynamic shared memory"
                if bytes_ and not own_launch.shared
                else ""
            )
            own = "--grid and " if grid else "--block and " if block else ""
            if (
                block
                and origin.startswith(("a comment", "the host code"))
                and parts(block) != parts(of_file.block)
            ):
                origin += f", which states this grid with block {of_file.block}: give --grid, too"
            adapted.append(
                f"launch: grid {launch.grid}; block {launch.block}{dynamic}; from {own}{origin}"
            )
        code = prepared(file, source, filled(launch.function, template), include, define, front)
        code = with_folders(code, ambiguous)
        for header in missing(code):
            comma = "," if header.folders else ""
            advice = f"{header.advice}{comma} if the kernel needs it"
            adapted.append(f"{header.where}, and is left out: {advice}")
        kernel = cls(
            name or function, code, (launch,), 0, template, rules, claimed or claims, arguments
        )
        has_no_launch = bool(arguments) and not (launch.grid and launch.block)
        is_by_name = bool(arguments) and not args and not signature.is_ladders(arguments)
        has_trial = has_no_launch or is_by_name
        if is_unclear or (has_trial and signature.WORKSPACE not in arguments):
            kernel = replace(kernel, stated=words)
        if origin == "the host code" and not shared and stated.lacks_permission(unit, bytes_):
            warnings.append(
                f"the host code launches it with {bytes_:,} bytes of dynamic shared memory, and fails: above "
                f"{MAX_SHARED_UNASKED:,} it must call cudaFuncSetAttribute"
            )
        kernel = replace(kernel, adapted=tuple(adapted), warnings=tuple(warnings))._readable()
        covered, uneven = launches.covered(launch.grid, template)
        whole = replace(kernel, rules=", ".join([rules, *covered])).domain
        if domain or (grid and not uneven) or whole == kernel.domain:
            return kernel
        said = f"the domain is inferred from the grid: {whole}; other shapes are not checked"
        if uneven:
            said = f"one rounded axis of two: the grid {launch.grid} rounds one axis down only"
        advice = f"state it, as by --domain '{whole}', or round up if the kernel has guards"
        return replace(
            kernel, rules=rules if uneven else str(whole), warnings=(*warnings, f"{said}; {advice}")
        )

    @classmethod
    def from_function(
        cls,
        function: str | Callable[..., object],
        *,
        domain: str = "any",
        claimed: str = "fp32",
        arrays: str = "",
        name: str = "",
    ) -> Kernel:
        """A host function: "module:function", "file.py:function" or "lib.so:function", or a Python function that a
        child process can load from its module or file. Nothing is loaded here.

        arrays: "cupy", "torch" or "pointers" (default: ARRAYS of the file, else cupy). worklog.kernel.host_function
        states the contract. Raises WorklogError for a file that can't be read, and BadSetting.
        """
        host = HostFunction.of(function, arrays)
        return cls(name or host.function, host, rules=domain, claimed=claimed)._readable()

    def _readable(self) -> Kernel:
        """Itself. Raises BadSetting for a mistake in its domain, precision class, grid or block; compiles nothing."""
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
        """Where a host function is; None for CUDA C++."""
        return self.code if isinstance(self.code, HostFunction) else None

    @property
    def file(self) -> str:
        """The name of its file, or the module of a host function."""
        return self.code.name if isinstance(self.code, Program) else self.code.file

    @property
    def source(self) -> str:
        """CUDA C++."""
        return self._cuda.source

    @property
    def _cuda(self) -> Program:
        assert isinstance(self.code, Program), f"{self.name} is a host function"
        return self.code

    @property
    def unit(self) -> Unit:
        """What its source defines."""
        define = tuple(option[2:] for option in self._cuda.options if option.startswith("-D"))
        return read(self.source, define, self._cuda.headers)

    @property
    def definition(self) -> Definition:
        """Its main __global__ function, as the source has it."""
        defined = self.unit.definition(self.function)
        assert defined is not None, f"{self.file} has {self.function}"
        return defined

    def read_launch(self, labels: Sequence[str]) -> tuple[Launch, list[str]]:
        """The launch that the source states, in terms of labels of sizes, and what of its launches isn't read.

        The launch has no grid and block if none is stated, and if it isn't read. Its grid may have a name like
        "M_or_N": a variable that is passed for both.

        labels: "M", "N", "K" or a text that is no size, of each parameter
        """
        (_, unit), *others = self._units()
        _, _, instance = self.launch.function.partition("<")
        numbers = instance.rpartition(">")[0] or ", ".join(map(str, self.template.values()))
        found = stated.stated_launch(
            launches.own_part(self.stated["source"], unit, self.definition, "grid"),
            unit,
            self.function,
            self.definition,
            labels,
            filled(numbers, self.template),
            programs=others,
            with_joint=True,
        )
        return found.launch, found.unread

    def passed(self, labels: Sequence[str]) -> dict[int, str]:
        """What launches pass to parameters without a label, by their place; in terms of labels."""
        for _, unit in self._units():
            found = stated.passed(self.definition, unit, labels)
            if found:
                return found
        return {}

    def _units(self) -> Iterator[tuple[str, Unit]]:
        """Yield what its whole source defines, and then each program that includes it."""
        words = self.stated
        yield words["file"], read_unit(words["source"], words["include"], words["define"])
        yield from _units_of(words["programs"], words["include"], words["define"])

    def with_text(self, text: str) -> Kernel:
        """The same kernel with another source text."""
        return replace(self, code=replace(self._cuda, source=text))

    def with_launch(self, **changed: Any) -> Kernel:
        """The same kernel with another grid, block or shared memory, as fields of its main Launch."""
        launches = list(self.launches)
        launches[self.main] = replace(self.launch, **changed)
        return replace(self, launches=tuple(launches))

    @property
    def launch(self) -> Launch:
        """The launch that computes the product; of a host function, its name alone."""
        return (
            Launch(self.code.function)
            if isinstance(self.code, HostFunction)
            else self.launches[self.main]
        )

    @property
    def grid(self) -> str:
        """Blocks of its main launch, as in Launch."""
        return self.launch.grid

    @property
    def block(self) -> str:
        """Threads per block of its main launch, as in Launch."""
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
        """The shapes that it takes, and whether it takes alpha and beta."""
        sizes = {
            argument
            for argument in self.arguments
            if argument.removeprefix(signature.WIDE) in signature.SIZES
        }
        read = Domain.of(self.rules, tuple(self.template.items()))
        square = read.square or len(sizes) == 1
        taken = self.arguments
        return replace(read, square=square, alpha="alpha" in taken, beta="beta" in taken)

    def at(self, shape: Shape, arch: str = "") -> Kernel:
        """What is launched at a shape, on this architecture (default: any)."""
        if self.choose is None:
            return self
        chosen = self.choose(shape, arch=arch)
        return replace(chosen, code=self.code) if chosen.file == self.file else chosen

    @cached_property
    def passes(self) -> tuple[Kernel, ...]:
        """Its launches in order, each as a kernel of one launch."""
        return tuple(
            replace(self, launches=(launch,), main=0, choose=None) for launch in self.launches
        )

    def missing_on(self, arch: str) -> str:
        """Why it can't run on an architecture; "" if it can, or if only the compiler can tell (__CUDA_ARCH__)."""
        if (
            arch == "sm_90"
            or self.host
            or "__CUDA_ARCH" in self.source
            or not needs_sm_90a(self.source)
        ):
            return ""
        return f"its instructions need compute capability 9.0, and this GPU runs {arch}"

    @cached_property
    def program(self) -> Program:
        """What to compile."""
        return replace(
            self._cuda, entry=self.entry, arguments=self.arguments, shared=self.launch.shared
        )

    @cached_property
    def threads(self) -> Block:
        """Threads per block: along x, or along x, y and z. Raises BadSetting."""
        return self.launch.threads(self.template)

    @property
    def thread_count(self) -> int:
        """Threads per block."""
        return self.threads if isinstance(self.threads, int) else math.prod(self.threads)

    def blocks(self, shape: Shape) -> tuple[int, ...]:
        """Blocks along x, y and, if the grid has that, z. Raises LaunchFailed for a grid without blocks."""
        sizes = self.blocks_at(shape.m, shape.n, shape.k)
        if min(sizes) < 1:
            has = f"the grid {self.grid} has {' x '.join(map(str, sizes))} blocks at {shape}"
            raise LaunchFailed(f"{has}: round up, as in (N + 31) / 32, or state a domain")
        return sizes

    def blocks_at(self, m: Any, n: Any, k: Any) -> tuple[Any, ...]:
        """As blocks(), without errors; of arrays, arrays."""
        return self.launch.blocks({"M": m, "N": n, "K": k, **self.template})

    def workspace_bytes(self, shape: Shape) -> int:
        """Of the workspace that a launch needs. Raises BadSetting."""
        names = {"M": shape.m, "N": shape.n, "K": shape.k, **self.template}
        return evaluate(self.workspace, names) if self.workspace else 0

    def check(self, shape: Shape) -> None:
        """Raise BadSetting, with a shape that fits, for a shape that the kernel does not take."""
        if shape not in self.domain:
            near = replace(self.domain, square=self.domain.square or shape.square).padded(shape)
            advice = (
                f"pad to {near}"
                if near.flops <= MOST_PADDING * shape.flops
                else f"it takes {near}, for example"
            )
            otherwise = "" if self.number is None else ", or use coalesced, which takes any size"
            raise BadSetting(
                f"size {shape} is outside {self.name}'s domain ({self.domain}): {advice}{otherwise}"
            )

    def load(self, device: Device, *, fresh: bool = False) -> Runnable:
        """The kernel on a device. fresh: its next launch is the first one of its code, where possible. Raises
        CompileFailed, BadSetting for what can't be loaded, and NoGpu for a host function without a GPU.
        """
        if self.host is not None:
            return HostSubject(self, device, fresh)
        self.require_launch()
        return Loaded(
            self.with_text(f"{self.source}\n// {secrets.token_hex(8)}\n") if fresh else self, device
        )

    def __call__(
        self, A: Any, B: Any, C: Any = None, *, alpha: float = 1.0, beta: float = 0.0
    ) -> Any:
        """C = alpha A B + beta C by this kernel: worklog.sgemm, which describes the arrays."""
        import worklog

        return worklog.sgemm(A, B, C, alpha=alpha, beta=beta, mode=self)

    def require_instance(self) -> None:
        """Raise BadSetting for a template without arguments, which can't be compiled."""
        defined = self.unit.definition(self.function)
        if "<" not in self.launch.function and defined and not all(defined.template.values()):
            raise BadSetting(f"{self.file}: {self.adapted[0]}")

    def require_launch(self) -> None:
        """Raise BadSetting if the order of the parameters, the grid or the block isn't known."""
        if not self.arguments:
            raise BadSetting(f"{self.file}: {self.adapted[0]}")
        if self.host is not None or (self.grid and self.block):
            return
        unread = "; ".join((*(said for said in self.adapted if "launch" in said), LAUNCH_ADVICE))
        raise BadSetting(
            f"{self.function} needs a launch, and {self.file} doesn't state one: {unread}"
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """What must be shown with its measurements."""
        if self.host is not None:
            return (REMARK,)
        fixed = signature.fixed(self.arguments)
        return (*((f"computes with {fixed} only",) if fixed else ()), *self.warnings)

    def bind(
        self, shape: Shape, alpha: float, a: Any, b: Any, beta: float, c: Any, workspace: Any = None
    ) -> tuple[Any, ...]:
        """The arguments of a launch, in the order of the kernel's parameters."""
        values = {"alpha": np.float32(alpha), "A": a, "B": b, "beta": np.float32(beta), "C": c}
        values["workspace"] = np.uint64(0) if workspace is None else workspace
        for name, size in (("M", shape.m), ("N", shape.n), ("K", shape.k)):
            values |= {name: np.int32(size), f"{signature.WIDE}{name}": np.int64(size)}
        sizes = {"M": shape.m, "N": shape.n, "K": shape.k}
        for name in filter(signature.is_computed, self.arguments):
            number = evaluate(name.removeprefix(signature.WIDE), sizes)
            values[name] = np.int64(number) if name.startswith(signature.WIDE) else np.int32(number)
        return tuple(values[name] for name in self.arguments)

    def describe(self) -> dict[str, Any]:
        """For a run's `kernels`, where it isn't loaded: source hash, launch and domain."""
        if self.host is not None:
            return self.host.describe()
        about: dict[str, Any] = {
            "file": self.file,
            "sha256": self.program.code_sha256,
            "entry": self.entry,
        }
        about["options"] = list(self.program.options)
        launch: dict[str, Any] = {
            "tile": dict(self.template),
            "grid": parts(self.grid),
            "block": self.threads,
        }
        launch |= {"dynamic_shared_bytes": self.launch.shared, "workspace": self.workspace}
        launch["arguments"] = list(self.arguments) if self.arguments != signature.LADDER else []
        about |= {name: value for name, value in launch.items() if value}
        about |= {"found": dict(self.found)} if self.found else {}
        about |= {"domain": str(self.domain), "claimed": self.claimed}
        return about | ({"user": "kernel"} if self.number is None else {"idea": self.idea})
