"""One face for every kernel: a rung, a kernel of a file or a cell, and a host function.

A kernel is loaded on a device, is described for the run file, and crosses to a child process
pickled. Kernel is CUDA C++ with its launches, Dispatcher chooses among such kernels by shape, and
HostKernel is a function that launches its work itself.
"""

from __future__ import annotations

import inspect
import math
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, TypedDict, Unpack

import numpy as np

from worklog.emulator.limits import Chip
from worklog.errors import BadSetting, LaunchFailed, check_keywords, hinted, listed
from worklog.kernel import launch as launches
from worklog.kernel import near, operands, signature
from worklog.kernel.device import Block, Device, Loaded, Program, Runnable
from worklog.kernel.from_source import (
    SourceRequest,
    near_headers,
    read_kernel,
    require_arguments,
)
from worklog.kernel.host_function import LABEL, LIBRARY, REMARK, HostFunction, HostSubject
from worklog.kernel.launch import LAUNCH_ADVICE, MULTIPROCESSORS, Launch
from worklog.kernel.nvrtc import Missing
from worklog.kernel.source import evaluate, filled, needs_sm_90a, read_source, split_list
from worklog.kernel.tensor_map import MatrixMap, bound_maps, rules_of_maps
from worklog.kernel.unit import Definition, Unit, read
from worklog.problem import CLASSES, Domain, Matrix, PrecisionClass, Shape
from worklog.problem.formats import SINGLE, Types

ANY_CHIP = Chip()
MAX_PADDING = 3  # times the work of the shape itself: beyond that, padding is no advice
Sides = str | int | Sequence[str | int]  # of a grid or a block


class SourceOptions(TypedDict, total=False):
    """The options of Kernel.from_source that other functions pass on, for type checkers."""

    entry: str | None
    domain: str | None
    claimed: PrecisionClass | Literal[""]
    args: str | None
    by_columns: str | None
    epilogue: str | None
    include: Sequence[str | Path] | str | Path
    define: Sequence[str] | str
    shared: int


@dataclass(frozen=True)
class Kernel:
    """A kernel that computes C = alpha A B + beta C, in CUDA C++."""

    follows_shape: ClassVar[bool] = False  # whether the launches depend on the shape

    name: str  # in runs, tables and charts
    code: Program  # to compile
    launches: tuple[Launch, ...] = ()  # in order, on one stream and with the same arguments
    main: int = 0  # the place of the launch that computes the product
    # Values of the template's parameters, which the launches name.
    template: Mapping[str, int] = field(default_factory=dict, hash=False)
    rules: str = "any"  # the domain, as "M % BM == 0"
    claimed: str = "fp32"  # the precision class that the kernel must have at least
    types: Types = SINGLE  # the formats of A, B and C
    # The value that each parameter takes (worklog.kernel.signature).
    arguments: tuple[str, ...] = signature.SGEMM_ARGUMENTS
    maps: tuple[MatrixMap, ...] = ()  # of the arguments that are tensor maps, in order
    # Bytes of memory for intermediate results, an expression as for grid. Its address is the
    # argument "workspace". Before a launch, the memory may hold anything.
    workspace: str = ""
    multiprocessors: int = Chip().multiprocessors  # SMS in the launches and in the workspace
    number: int | None = None  # of a rung
    idea: str = ""  # of a rung
    adapted: tuple[str, ...] = ()  # facts that were read from the source, for the user
    warnings: tuple[str, ...] = ()  # facts that the source leaves open
    # Host code or the user passes the leading dimensions, and the kernel may need these values.
    states_leading: bool = False
    # The arguments of from_source, if a trial may find an order or a launch that the source doesn't
    # state, or verify an order by names (worklog.kernel.trial).
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

        Example: `Kernel.from_file("mine.cu", domain="M % 64 == 0", grid="(N + 63) / 64, M / 64",
            block=256)`

        name: of the kernel (default: the file's name without .cu)
        grid, block, options: as for from_source
        Raises WorklogError for a file that can't be read, and what from_source raises.
        """
        names = (*inspect.signature(cls.from_file).parameters, *SourceOptions.__annotations__)
        check_keywords("Kernel.from_file has no argument", options, names)
        if not isinstance(path, str | Path):
            raise BadSetting(f"path: give the name of a .cu file, not {path!r:.60}")
        source = read_source(path := Path(path))
        headers = near_headers(path, source, options.get("include", ()))
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
    def from_source(  # noqa: PLR0913
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
        by_columns: str | None = None,
        epilogue: str | None = None,
        include: Sequence[str | Path] | str | Path = (),
        define: Sequence[str] | str = (),
        shared: int = 0,
        programs: Sequence[near.Includer] = (),
        ambiguous: Sequence[Missing] = (),
    ) -> Kernel:
        """Return the kernel of a source text, such as a notebook cell.

        Host code in the source is left out. Without alpha or beta, the kernel computes with alpha =
        1 or beta = 0. With one size, it takes square matrices.

        grid, block: default, the source's. If it states none, the kernel can be compiled and not
            launched
        entry: the kernel's name, needed if the source has several kernels (default: the only one).
            A template needs its arguments, unless a comment states them: "Tile: BM=128 BN=64"
        domain: default, a comment's. Otherwise, a grid that rounds down is taken to cover whole
            blocks only, which `warnings` states
        claimed: a precision class (default: fp32, or fp32-emulated for matrices of 16 bits)
        name: default, the entry's
        file: the source's name in messages
        args: the value that each parameter takes, as "M,N,K,alpha,A,B,beta,C" (default: from the
            parameters' names)
        by_columns: the factors that lie in memory by columns, "A", "B" or "A, B" (default: a
            comment's, or none)
        epilogue: the activation of the result, "relu", "gelu" or "gelu tanh" (default: a comment's,
            or none)
        include: folders of headers
        define: macros, as "NAME=VALUE"
        shared: bytes of dynamic shared memory
        programs: files that include the source, nearest first. They count if the source states no
            launch
        ambiguous: headers that several folders near the source have
        Raises BadSetting.
        """
        require_arguments(
            source,
            shared,
            entry=entry,
            domain=domain,
            claimed=claimed,
            name=name,
            args=args,
            by_columns=by_columns,
            epilogue=epilogue,
            file=file,
        )
        request = SourceRequest(
            source=source,
            entry=entry,
            domain=domain,
            claimed=claimed,
            name=name,
            args=args,
            by_columns=by_columns,
            epilogue=epilogue,
            file=file,
            grid=launches.launch_text("grid", grid),
            block=launches.launch_text("block", block),
            include=listed("include", include),
            define=listed("define", define),
            shared=shared,
            programs=programs,
            ambiguous=ambiguous,
        )
        facts = read_kernel(request)
        kernel = cls(
            name=name or facts.function,
            code=facts.code,
            launches=(facts.launch,),
            template=facts.template,
            rules=facts.rules,
            claimed=facts.claimed,
            types=facts.types,
            arguments=facts.arguments,
            maps=facts.maps,
            adapted=facts.adapted,
            warnings=facts.warnings,
            states_leading=facts.states_leading,
            stated=dict(vars(request)) if facts.has_trial else {},
        )
        kernel = _with_domain_of_maps(_readable(kernel))
        return kernel if facts.states_domain else _with_domain_of_grid(kernel, request)

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

        function: "module:function", "file.py:function" or "lib.so:function", or a Python function
            that a child process can load from its module or file
        arrays: "cupy", "torch" or "pointers" (default: ARRAYS of the file, else cupy)
        Raises WorklogError for a file that can't be read, and BadSetting.
        """
        host = HostFunction.of(function, arrays)
        return _readable(HostKernel.of_place(host, name, rules=domain, claimed=claimed))

    def __repr__(self) -> str:
        if self.number is not None:
            return f"<{self.number:02} {self.name}: {self.idea}>"
        launch = f" · grid {self.grid} · block {self.block}" if self.grid else ""
        return f"<{self.name}: {self.file}{launch} · {self.domain}>"

    @property
    def host(self) -> HostFunction | None:
        """The place of a host function; None for CUDA C++."""
        return None

    @property
    def not_emulated(self) -> str:
        """Why the emulator can't run the kernel; "" if it can."""
        return ""

    @property
    def file(self) -> str:
        """The name of the source file, or the module of a host function."""
        return self.code.name

    @property
    def source(self) -> str:
        """The CUDA C++ text; "" for a host function."""
        return self.code.source

    @property
    def unit(self) -> Unit:
        """The functions and constants that the source defines."""
        define = tuple(option[2:] for option in self.code.options if option.startswith("-D"))
        return read(self.source, define, self.code.headers)

    @property
    def definition(self) -> Definition:
        """The main __global__ function, as the source defines it."""
        defined = self.unit.definition(self.function)
        assert defined is not None, f"{self.file} has {self.function}"
        return defined

    @property
    def leading_dimensions(self) -> dict[int, str]:
        """The matrix of each leading dimension, by the place of the parameter.

        Only of those that are the length of the matrix' rows.
        """
        if signature.is_ladders(self.arguments):
            return {}
        lengths = {matrix: self.types.row_length(matrix) for matrix in signature.MATRICES}
        return signature.row_lengths(self.definition.parameters, self.arguments, lengths)

    @property
    def batch_strides(self) -> dict[int, str]:
        """The matrix or operand that lies at each distance of a batch, by place."""
        if signature.is_ladders(self.arguments):
            return {}
        return signature.batch_strides(self.definition.parameters, self.arguments)

    @property
    def operands_of_each_product(self) -> tuple[str, ...]:
        """The operands that each product of a batch has of its own.

        A residual lies as C does, unless it has a distance of its own.
        """
        strided = set(self.batch_strides.values())
        has_distance = any(
            signature.stride_of(parameter) == operands.RESIDUAL
            for parameter in self.definition.parameters
        )
        if not has_distance:
            strided.add(operands.RESIDUAL)
        return tuple(operand.name for operand in self.operands if operand.name in strided)

    @property
    def is_batched(self) -> bool:
        """Whether a launch may compute several products."""
        if signature.is_ladders(self.arguments):
            return False
        in_grid = any(re.search(rf"\b{signature.BATCH}\b", launch.grid) for launch in self.launches)
        return in_grid or any(map(_is_batch, self.arguments)) or bool(self.batch_strides)

    @cached_property
    def operands(self) -> tuple[operands.Operand, ...]:
        """The operands beyond a product's that the kernel takes."""
        if signature.is_ladders(self.arguments) or not {*self.arguments} & {*operands.OPERANDS}:
            return ()
        return signature.operands(self.definition, self.arguments, self.launch.instance)

    def with_text(self, text: str) -> Kernel:
        """Return the same kernel with another source text."""
        return replace(self, code=replace(self.code, source=text))

    def with_layout(self, by_columns: str) -> Kernel:
        """Return the same kernel for factors that lie by columns: "A", "B" or "AB"."""
        arguments = signature.turned(self.definition.parameters, self.arguments, by_columns)
        return replace(self, types=replace(self.types, by_columns=by_columns), arguments=arguments)

    def with_tile(self, **tile: int) -> Kernel:
        """Return the same kernel at another tile, under a name that says it.

        tile: values by parameter, such as BN=128
        Raises BadSetting for a parameter that the template doesn't have.
        """
        for parameter in tile:
            if parameter not in self.template:
                names = ", ".join(self.template) or "none"
                raise BadSetting(
                    f"{self.name} has no template parameter {parameter}: it has {names}"
                )
        name = " ".join([self.name, *(f"{parameter}={value}" for parameter, value in tile.items())])
        return replace(self, name=name, template={**self.template, **tile}, number=None, idea="")

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
        return self.launches[self.main]

    @property
    def grid(self) -> str:
        """The blocks of the main launch, as in Launch, but for SMS."""
        return filled(self.launch.grid, {MULTIPROCESSORS: self.multiprocessors})

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
        return filled(self.launch.function, self.constants)

    @property
    def constants(self) -> dict[str, int]:
        """The values that launches name apart from M, N and K: the template's, and SMS."""
        return {MULTIPROCESSORS: self.multiprocessors, **self.template}

    @cached_property
    def domain(self) -> Domain:
        """The shapes that the kernel accepts, and whether it takes alpha and beta."""
        sizes = {signature.size_of(argument) for argument in self.arguments}
        sizes &= {*signature.SIZE_NAMES}
        domain = Domain.of(self.rules, tuple(self.template.items()))
        return replace(
            domain,
            square=domain.square or len(sizes) == 1,
            alpha="alpha" in self.arguments,
            beta="beta" in self.arguments,
        )

    def on_chip(self, chip: Chip) -> Self:
        """Return the kernel with the launches that it has on a chip."""
        if chip.multiprocessors == self.multiprocessors:
            return self
        return replace(self, multiprocessors=chip.multiprocessors)

    def at(self, shape: Shape, chip: Chip = ANY_CHIP) -> Kernel:
        """Return the kernel that is launched at a shape.

        chip: default: any architecture, and as many multiprocessors as the emulated card has
        """
        return self.on_chip(chip)

    @cached_property
    def passes(self) -> tuple[Kernel, ...]:
        """The launches in order, each as a kernel of one launch."""
        return tuple(replace(self, launches=(launch,), main=0) for launch in self.launches)

    def missing_on(self, arch: str) -> str:
        """Return why the kernel can't run on an architecture; "" if it can.

        Also "" if only the compiler can tell, as for a source with __CUDA_ARCH__.
        """
        if arch == "sm_90":
            return ""
        if "__CUDA_ARCH" in self.source or not needs_sm_90a(self.source):
            return ""
        return f"its instructions need compute capability 9.0, and this GPU runs {arch}"

    @cached_property
    def program(self) -> Program:
        """The program to compile."""
        return replace(
            self.code, entry=self.entry, arguments=self.arguments, shared=self.launch.shared
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
        sizes = self.blocks_at(*shape.sizes, batch=shape.batch)
        if min(sizes) < 1:
            blocks = " x ".join(map(str, sizes))
            raise LaunchFailed(
                f"the grid {self.grid} has {blocks} blocks at {shape}: "
                "round up, as in (N + 31) / 32, or state a domain"
            )
        return sizes

    def blocks_at(self, m: Any, n: Any, k: Any, batch: Any = 1) -> tuple[Any, ...]:
        """Return the blocks as blocks() does, but without its error.

        Arrays of sizes give arrays of blocks.

        batch: products of the launch
        """
        names = {"M": m, "N": n, "K": k, signature.BATCH: batch, **self.constants}
        return self.launch.blocks(names)

    def workspace_bytes(self, shape: Shape) -> int:
        """Return the bytes of the workspace that a launch needs. Raises BadSetting."""
        names = {"M": shape.m, "N": shape.n, "K": shape.k, **self.constants}
        return evaluate(self.workspace, names) if self.workspace else 0

    def check(self, shape: Shape) -> None:
        """Raise BadSetting, with a shape that fits, for a shape outside the domain.

        Also for a batch, unless a launch of the kernel may compute several products.
        """
        if shape.batch > 1 and not self.is_batched:
            raise BadSetting(
                f"{self.name} computes one product in a launch: omit the batch, or give the kernel "
                "a parameter `int batch`"
            )
        if shape in self.domain:
            return
        domain = replace(self.domain, square=self.domain.square or shape.square)
        padded = domain.padded(shape)
        advice = f"it takes {padded}, for example"
        if padded.flops <= MAX_PADDING * shape.flops:
            advice = f"pad to {padded}"
        if self.number is not None:
            advice += ", or use coalesced, which takes any size"
        raise BadSetting(f"size {shape} is outside {self.name}'s domain ({self.domain}): {advice}")

    def load(self, device: Device, *, fresh: bool = False) -> Runnable:
        """Return the kernel on a device.

        fresh: the kernel's next launch is the first launch of its code, if possible
        Raises CompileFailed, BadSetting for a kernel that can't be loaded, and NoGpu for a host
        function without a GPU.
        """
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
        """Return C = alpha A B + beta C by this kernel, as worklog.sgemm does.

        Raises BadSetting for a kernel of other matrices than float32 by rows.
        """
        import worklog

        if self.types != SINGLE or self.operands:
            raise BadSetting(
                f"{self.name} isn't called with arrays: that takes float32 matrices by rows alone"
            )

        return worklog.sgemm(A, B, C, alpha=alpha, beta=beta, mode=self)

    def require_source(self, advice: str = "give a .cu file or a rung") -> None:
        """Raise BadSetting for a host function, which has no source and needs a GPU.

        advice: an alternative, for the message
        """

    def require_loadable(self) -> None:
        """Raise BadSetting for a host function that can't be loaded."""

    def require_instance(self) -> None:
        """Raise BadSetting for a template without arguments, which can't be compiled."""
        defined = self.unit.definition(self.function)
        if "<" not in self.launch.function and defined and not all(defined.template.values()):
            raise BadSetting(f"{self.file}: {self.adapted[0]}")

    def require_launch(self) -> None:
        """Raise BadSetting if the parameters' order, the grid or the block is unknown."""
        if not self.arguments:
            raise BadSetting(f"{self.file}: {self.adapted[0]}")
        if self.grid and self.block:
            return
        lines = [line for line in self.adapted if "launch" in line]
        unread = "; ".join((*lines, LAUNCH_ADVICE))
        raise BadSetting(
            f"{self.function} needs a launch, and {self.file} doesn't state one: {unread}"
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """The lines that must be shown with every measurement of the kernel."""
        fixed = signature.fixed(self.arguments)
        if fixed:
            return (f"computes with {fixed} only", *self.warnings)
        return self.warnings

    def bind(
        self,
        shape: Shape,
        alpha: float,
        a: Any,
        b: Any,
        beta: float,
        c: Any,
        workspace: Any = None,
        operands: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[Any, ...]:
        """Return the arguments of a launch, in the order of the kernel's parameters.

        operands: beyond those of a product, by name
        Raises BadSetting for a tensor map that the driver doesn't make.
        """
        values: dict[str, Any] = {"A": a, "B": b, "C": c}
        scalar = self.types.scalar
        values |= {"alpha": scalar.passed(alpha), "beta": scalar.passed(beta)}
        values["workspace"] = np.uint64(0) if workspace is None else workspace
        values |= operands
        sizes_by_name = (
            ("M", shape.m),
            ("N", shape.n),
            ("K", shape.k),
            (signature.BATCH, shape.batch),
        )
        for name, size in sizes_by_name:
            values[name] = np.int32(size)
            values[f"{signature.WIDE}{name}"] = np.int64(size)
        sizes = {"M": shape.m, "N": shape.n, "K": shape.k}
        for name in filter(signature.is_computed, self.arguments):
            number = evaluate(name.removeprefix(signature.WIDE), sizes)
            values[name] = np.int64(number) if name.startswith(signature.WIDE) else np.int32(number)
        maps = bound_maps(
            self.maps, self.arguments, {"A": a, "B": b, "C": c}, {**sizes, **self.template}
        )
        return tuple(
            next(maps) if signature.is_map(name) else values[name] for name in self.arguments
        )

    def describe(self) -> dict[str, Any]:
        """Return the entry of a run's `kernels`: source hash, launch and domain.

        The kernel isn't loaded.
        """
        about: dict[str, Any] = {
            "file": self.file,
            "sha256": self.program.code_sha256,
            "entry": self.entry,
            "options": list(self.program.options),
        }
        about |= _described_launch(self)
        if self.found:
            about["found"] = dict(self.found)
        about["domain"] = str(self.domain)
        about["claimed"] = self.claimed
        if self.types != SINGLE:
            about["types"] = list(self.types.names)
        if self.number is None:
            about["user"] = "kernel"
        else:
            about["idea"] = self.idea
        return about


@dataclass(frozen=True, repr=False)
class Dispatcher(Kernel):
    """A kernel whose launches depend on the shape: it chooses the kernel that is launched.

    Its own launches are those of one of these kernels.
    """

    follows_shape: ClassVar[bool] = True
    choose: Callable[..., Kernel] = field(kw_only=True)  # of a shape and a chip
    batches: bool = field(kw_only=True, default=False)  # whether it chooses for a batch, too

    @classmethod
    def from_kernel(
        cls, kernel: Kernel, choose: Callable[..., Kernel], *, batches: bool = False
    ) -> Dispatcher:
        """Return a dispatcher with the name, the code and the launches of a kernel."""
        return cls(**_fields_of(kernel), choose=choose, batches=batches)

    @property
    def is_batched(self) -> bool:  # noqa: D102
        return self.batches

    def at(self, shape: Shape, chip: Chip = ANY_CHIP) -> Kernel:  # noqa: D102
        chosen = self.choose(shape, chip=chip).on_chip(chip)
        return replace(chosen, code=self.code) if chosen.file == self.file else chosen

    @cached_property
    def passes(self) -> tuple[Kernel, ...]:
        """The dispatcher's own launches in order, each as a kernel of one launch."""
        return Kernel(**_fields_of(self)).passes


@dataclass(frozen=True, repr=False)
class HostKernel(Kernel):
    """A host function, which launches its work itself, on a GPU. Its `code` has no source."""

    place: HostFunction = field(kw_only=True)

    @classmethod
    def of_place(cls, place: HostFunction, name: str = "", **stated: Any) -> Self:
        """Return the kernel of a host function, under its own name by default.

        stated: further fields, such as rules and claimed
        """
        launches = (Launch(place.function),)
        return cls(name or place.function, place.program, launches, place=place, **stated)

    @property
    def host(self) -> HostFunction:  # noqa: D102
        return self.place

    @property
    def is_batched(self) -> bool:
        """Whether a call may compute several products, as functions in Python may."""
        return not self.place.origin.endswith(LIBRARY)

    @property
    def not_emulated(self) -> str:  # noqa: D102
        return f"a {LABEL}"

    def require_source(self, advice: str = "give a .cu file or a rung") -> None:  # noqa: D102
        raise BadSetting(f"{self.name} is a host function: {advice}")

    def require_loadable(self) -> None:  # noqa: D102
        self.place.loaded()

    def require_launch(self) -> None:
        """Return, because a host function launches itself."""

    def load(self, device: Device, *, fresh: bool = False) -> Runnable:  # noqa: D102
        return HostSubject(self, device, fresh)

    @property
    def remarks(self) -> tuple[str, ...]:  # noqa: D102
        return (REMARK,)

    def describe(self) -> dict[str, Any]:  # noqa: D102
        return self.place.describe()


def _is_batch(argument: str) -> bool:
    """Return whether an argument is the number of products."""
    return argument.removeprefix(signature.WIDE) == signature.BATCH


def _fields_of(kernel: Kernel) -> dict[str, Any]:
    """Return the values of a kernel's fields, without those of a subclass."""
    return {item.name: getattr(kernel, item.name) for item in fields(Kernel)}


def _readable(kernel: Kernel) -> Kernel:
    """Return a kernel itself, without compiling it.

    Raises BadSetting for a mistake in the domain, precision class, grid or block.
    """
    if kernel.claimed not in CLASSES:
        raise BadSetting(
            f"there is no precision class {kernel.claimed!r}: choose from {', '.join(CLASSES)}"
        )
    _ = kernel.domain
    if kernel.block:
        _ = kernel.threads
    if kernel.grid:
        kernel.blocks_at(1, 1, 1)
    return kernel


def _described_launch(kernel: Kernel) -> dict[str, Any]:
    """Return the properties of a kernel's main launch that aren't empty."""
    launch = {
        "tile": dict(kernel.template),
        "grid": split_list(kernel.grid),
        "block": kernel.threads,
        "dynamic_shared_bytes": kernel.launch.shared,
        "workspace": filled(kernel.workspace, {MULTIPROCESSORS: kernel.multiprocessors}),
        "tensor_maps": {tensor_map.parameter: str(tensor_map) for tensor_map in kernel.maps},
    }
    if kernel.arguments != signature.SGEMM_ARGUMENTS:
        launch["arguments"] = list(kernel.arguments)
    return {name: value for name, value in launch.items() if value}


def _with_domain_of_maps(kernel: Kernel) -> Kernel:
    """Return a kernel whose domain has the driver's rules for its tensor maps.

    It has a warning that the domain is inferred.
    """
    rules = rules_of_maps(kernel.maps, kernel.arguments, kernel.template)
    domain = replace(kernel, rules=", ".join([kernel.rules, *rules])).domain
    if domain == kernel.domain:
        return kernel
    reason = f"the domain is inferred from the tensor maps: {', '.join(rules)}"
    return replace(kernel, rules=str(domain), warnings=(*kernel.warnings, reason))


def _with_domain_of_grid(kernel: Kernel, request: SourceRequest) -> Kernel:
    """Return a kernel whose domain is what its grid covers, unless an option states the grid.

    It has a warning that the domain is inferred.
    """
    grid_rules, is_uneven = launches.covered(kernel.grid, kernel.template)
    domain = replace(kernel, rules=", ".join([kernel.rules, *grid_rules])).domain
    if (request.grid and not is_uneven) or domain == kernel.domain:
        return kernel
    advice = f"state it, as by --domain '{domain}', or round up if the kernel has guards"
    if is_uneven:
        reason = f"one rounded axis of two: the grid {kernel.grid} rounds one axis down only"
        return replace(kernel, warnings=(*kernel.warnings, f"{reason}; {advice}"))
    reason = f"the domain is inferred from the grid: {domain}; other shapes are not checked"
    return replace(kernel, rules=str(domain), warnings=(*kernel.warnings, f"{reason}; {advice}"))
