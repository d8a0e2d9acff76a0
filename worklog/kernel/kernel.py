"""One record for every kernel: a rung of the ladder, a kernel from a .cu file or a notebook cell, and a host function.

A record loads the kernel on a device, describes it for the run file, and crosses to a child process pickled.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from worklog.errors import BadSetting, LaunchFailed, listed, meant
from worklog.kernel import signature
from worklog.kernel.device import COMPILE_OPTIONS, Block, Device, Program, Subject
from worklog.kernel.device_code import device_code, prepared, with_constants
from worklog.kernel.host_function import REMARK, HostFunction
from worklog.kernel.loaded import Loaded, Pass
from worklog.kernel.source import (
    definition,
    evaluate,
    filled,
    kernel_names,
    kernels_dir,
    needs_sm_90a,
    only_kernel,
    parts,
    read_source,
)
from worklog.problem import CLASSES, Domain, Shape

TEMPLATE = Path(__file__).with_name("template.cu")  # a user kernel to start from


@dataclass(frozen=True)
class Kernel:
    """A kernel that computes C = alpha A B + beta C.

    name: in runs, tables and charts. file: in messages and runs; the file in kernels/ where `text`, the source, is
    None. function: the __global__ function, with template arguments unless `template` gives them in order, or the host
    function. grid: blocks along x, y and z, expressions in the template's names and M, N, K. block: threads along x, or
    along x and y, expressions in the template's names. rules: its domain, as "M % BM == 0". claimed: the precision
    class that the kernel must have at least. options: for NVRTC. number, idea: of a rung. host: where a host function
    is. skipped: why it is not measured, such as an instance of a template that does not compile; "" for all others.
    arguments: the value that each parameter takes (worklog.kernel.signature). adapted: what was read from the source,
    for the user. warnings: what its source leaves open. shared: bytes of dynamic shared memory per block. headers: as
    in Program. before, after: launches in front of it and behind it, on the same stream and with the same arguments.
    workspace: bytes of memory for intermediate results, an expression as for grid, whose address is the argument
    "workspace"; before a launch it may hold anything. choose: gives the kernel that is launched at a shape.
    """

    name: str
    file: str
    function: str
    grid: str = ""
    block: str = ""
    template: Mapping[str, int] = field(default_factory=dict, hash=False)
    rules: str = "any"
    claimed: str = "fp32"
    options: tuple[str, ...] = COMPILE_OPTIONS
    number: int | None = None
    idea: str = ""
    text: str | None = None
    host: HostFunction | None = None
    skipped: str = ""
    arguments: tuple[str, ...] = signature.LADDER
    adapted: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    shared: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    before: tuple[Pass, ...] = ()
    after: tuple[Pass, ...] = ()
    workspace: str = ""
    choose: Callable[..., Kernel] | None = None

    @classmethod
    def from_file(cls, path: str | Path, *, name: str = "", **words: Any) -> Kernel:
        """The kernel of a .cu file. name: default, the file's name without .cu. words: as for from_source. Example:
        `Kernel.from_file("mine.cu", domain="M % 64 == 0", grid="(N + 63) / 64, M / 64", block=256)`.

        Raises WorklogError for a file that can't be read, and what from_source raises.
        """
        path = Path(path)
        source = read_source(path)
        if re.search(r'^[ \t]*#[ \t]*include[ \t]*"', device_code(source, [str(path.parent)]), re.MULTILINE):
            words["include"] = (*listed("include", words.get("include", ())), path.parent)
        return cls.from_source(source, file=path.name, name=name or path.stem, **words)

    @classmethod
    def from_source(
        cls,
        source: str,
        *,
        block: str | int | Sequence[str | int] = "",
        grid: str | int | Sequence[str | int] = "",
        entry: str | None = None,
        template: Mapping[str, int] | None = None,
        domain: str = "",
        claimed: str = "fp32",
        name: str = "",
        file: str = "source",
        args: str = "",
        include: Sequence[str | Path] | str | Path = (),
        define: Sequence[str] | str = (),
        shared: int = 0,
        constant: Sequence[str] | str = (),
    ) -> Kernel:
        """The kernel of a source text, such as a notebook cell. Host code in it is left out.

        entry: the kernel, needed where the source has several (default: the only one). name: default, the entry's.
        file: the name of the source in messages. args: the value that each parameter takes, as "M,N,K,alpha,A,B,beta,C"
        (default: from the parameters' names). Without alpha or beta, the kernel computes with alpha = 1 or beta = 0;
        with one size, square matrices. grid, block: default, what the source states; where it states none, the kernel
        can be compiled and not launched. domain: default, what a comment states; a grid that rounds down is then taken
        to cover whole blocks only, which `warnings` states. include: folders of headers. define: macros, as
        "NAME=VALUE". shared: bytes of dynamic shared memory. constant: values of __constant__ variables, as
        "NAME=1,2,3". Raises BadSetting.
        """
        texts: dict[str, Any] = dict(source=source, entry=entry, domain=domain, claimed=claimed, name=name, args=args)
        for argument, value in texts.items():
            if not isinstance(value, str | None):
                raise BadSetting(f"{argument}: give text, not {value!r:.60}")
        if source.strip().endswith(".cu") and "{" not in source:
            raise BadSetting(f"{source.strip()!r} is the name of a file: give its text, or use Kernel.from_file")
        grid, block = launch_text("grid", grid), launch_text("block", block)
        include, define, constant = listed("include", include), listed("define", define), listed("constant", constant)
        if "\0" in source:
            line = source[: source.index("\0")].count("\n") + 1
            raise BadSetting(f"{file}:{line}: the source has a NUL character, where the compiler stops: delete it")
        for macro in define:
            if not re.match(r"[A-Za-z_]\w*(?:=|$)", str(macro)):
                raise BadSetting(f"cannot read -D {macro!r}: write NAME or NAME=VALUE")
        if shared < 0:
            raise BadSetting(f"cannot take {shared} bytes of dynamic shared memory: give 0 or more")
        source = with_constants(source, constant, file)
        function = entry or only_kernel(file, source)
        plain, _, instance = function.partition("<")
        plain, instance = plain.strip(), instance.rpartition(">")[0] or ", ".join(map(str, (template or {}).values()))
        found = definition(source, plain)
        unclear = ""
        try:
            arguments = signature.given(args, file, found) if args else signature.order(file, plain, found)
        except BadSetting as error:  # it can still be compiled
            if args or grid or block:
                raise
            arguments, unclear = (), str(error).removeprefix(f"{file}: ")
        text, options, headers = prepared(source, [str(Path(folder).resolve()) for folder in include], define)
        source += "".join(f"\n#define {macro.replace('=', ' ', 1)}" for macro in define)
        rules = domain or signature.domain(source)
        stated = signature.Launch()
        if not ((grid and block) or unclear):
            stated = signature.launch(source, plain, found, arguments, instance)
        kernel = cls(
            name=name or plain,
            file=file,
            function=function if instance else function + stated.template,
            grid=grid or stated.grid,
            block=block or stated.block,
            template=dict(template or {}),
            rules=rules,
            claimed=claimed,
            text=text,
            options=options,
            shared=shared,
            headers=headers,
            arguments=arguments,
        )
        kernel._require_readable()
        adapted = (unclear,) if unclear else signature.described(found, arguments)
        if not domain and rules != "any":
            adapted += (f"domain: {rules}; from a comment",)
        if stated.origin:
            adapted += (f"launch: grid {kernel.grid}; block {kernel.block}; from {stated.origin}",)
        warnings: tuple[str, ...] = ()
        uneven = signature.is_uneven(kernel.grid)
        narrowed = replace(kernel, rules=", ".join([rules, *signature.covered(kernel.grid)])).domain
        if not domain and (uneven or not grid) and narrowed != kernel.domain:
            warnings = (signature.warning(kernel.grid, narrowed),)
            kernel = kernel if uneven else replace(kernel, rules=str(narrowed))
        return replace(kernel, adapted=adapted, warnings=warnings)

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
        kernel = cls(name or host.function, host.file, host.function, rules=domain, claimed=claimed, host=host)
        kernel._require_readable()
        return kernel

    def _require_readable(self) -> None:
        """Raise BadSetting for a mistake in the domain, precision class, grid or block, before anything is compiled."""
        if self.claimed not in CLASSES:
            raise BadSetting(f"there is no precision class {self.claimed!r}: choose from {', '.join(CLASSES)}")
        _ = self.domain
        if self.block:
            _ = self.threads
        if self.grid:
            self._grid(Shape(1, 1, 1))

    @property
    def domain(self) -> Domain:
        """The shapes that it takes, and whether it takes alpha and beta."""
        sizes = {argument for argument in self.arguments if argument.removeprefix(signature.WIDE) in signature.SIZES}
        of_shapes = Domain.of(self.rules, self.template)
        square = of_shapes.square or len(sizes) == 1
        return replace(of_shapes, square=square, alpha="alpha" in self.arguments, beta="beta" in self.arguments)

    @property
    def entry(self) -> str:
        """The name of the kernel for the compiler, such as `sgemm_shared<32, 32, 32>`."""
        arguments = ", ".join(map(str, self.template.values()))
        return f"{self.function}<{arguments}>" if arguments else self.function

    def at(self, shape: Shape, arch: str = "") -> Kernel:
        """What is launched at a shape, on this architecture (default: any)."""
        chosen = self if self.choose is None else self.choose(shape, arch=arch)
        return chosen if self.text is None or chosen.file != self.file else replace(chosen, text=self.text)

    @property
    def passes(self) -> tuple[Kernel, ...]:
        """Its launches in order, each as a kernel of one launch."""
        alone = replace(self, before=(), after=(), choose=None)
        plain: dict[str, Any] = {"template": {}, "rules": str(self.domain)}
        plain["workspace"] = filled(self.workspace, self.template)

        def of(one: Pass) -> Kernel:
            function, grid, block = (filled(text, self.template) for text in (one.function, one.grid, one.block))
            return replace(alone, function=function, grid=grid, block=block, shared=one.shared, **plain)

        return (*map(of, self.before), alone, *map(of, self.after))

    @property
    def source(self) -> str:
        """CUDA C++."""
        return (kernels_dir() / self.file).read_text(encoding="utf-8") if self.text is None else self.text

    def missing_on(self, arch: str) -> str:
        """Why it can't run on GPUs of an architecture, such as "sm_80"; "" if it can, or if the source uses
        __CUDA_ARCH__: then only the compiler can tell.
        """
        only = arch != "sm_90" and self.host is None and "__CUDA_ARCH" not in self.source and needs_sm_90a(self.source)
        return f"its instructions need compute capability 9.0, and this GPU runs {arch}" if only else ""

    @property
    def program(self) -> Program:
        """What to compile."""
        return Program(self.file, self.source, self.entry, self.options, self.arguments, self.shared, self.headers)

    @property
    def threads(self) -> Block:
        """Threads per block: along x, or along x and y. Raises BadSetting."""
        sizes = [evaluate(part, self.template) for part in parts(self.block)]
        if len(sizes) not in (1, 2) or min(sizes) < 1:
            raise BadSetting(f"cannot read the block {self.block!r}: give threads along x, or x and y: 256 or 32,8")
        return sizes[0] if len(sizes) == 1 else (sizes[0], sizes[1])

    @property
    def thread_count(self) -> int:
        """Threads per block."""
        return self.threads if isinstance(self.threads, int) else math.prod(self.threads)

    def blocks(self, shape: Shape) -> tuple[int, ...]:
        """Blocks along x (columns of C) and y (rows of C), and along z if the grid has that. Raises LaunchFailed for
        a grid without blocks.
        """
        sizes = self._grid(shape)
        if min(sizes) < 1:
            raise LaunchFailed(
                f"the grid {self.grid} has {' x '.join(map(str, sizes))} blocks at {shape}: round up, as in "
                "(N + 31) / 32, or state a domain"
            )
        return sizes

    def _grid(self, shape: Shape) -> tuple[int, ...]:
        sizes = tuple(evaluate(part, self._names(shape)) for part in parts(self.grid))
        if not 1 <= len(sizes) <= 3:
            raise BadSetting(
                f"cannot read the grid {self.grid!r}: give blocks along x and y, such as '(N + 31) / 32, M / 8'"
            )
        return sizes if len(sizes) > 1 else (*sizes, 1)

    def _names(self, shape: Shape) -> dict[str, int]:
        return {"M": shape.m, "N": shape.n, "K": shape.k, **self.template}

    def workspace_bytes(self, shape: Shape) -> int:
        """Of the workspace that a launch needs. Raises BadSetting."""
        return evaluate(self.workspace, self._names(shape)) if self.workspace else 0

    def check(self, shape: Shape) -> None:
        """Raise BadSetting, with a shape that fits, for a shape that the kernel does not take."""
        if shape in self.domain:
            return
        other = "" if self.number is None else ", or use coalesced, which takes any size"
        near = replace(self.domain, square=self.domain.square or shape.square).padded(shape)
        advice = f"pad to {near}" if near.flops <= MOST_PADDING * shape.flops else f"it takes {near}, for example"
        raise BadSetting(f"size {shape} is outside {self.name}'s domain ({self.domain}): {advice}{other}")

    def load(self, device: Device, *, fresh: bool = False) -> Subject:
        """Make the kernel ready to launch on a device. fresh: so that its next launch is the first one of its code,
        where possible.

        Raises CompileFailed, BadSetting for what can't be loaded, and NoGpu for a host function without a GPU.
        """
        if self.host is not None:
            return self.host.load(self, device, fresh=fresh)
        self.require_launch()
        return Loaded(replace(self, text=f"{self.source}\n// {secrets.token_hex(8)}\n") if fresh else self, device)

    def __call__(self, A: Any, B: Any, C: Any = None, *, alpha: float = 1.0, beta: float = 0.0) -> Any:
        """C = alpha A B + beta C by this kernel: worklog.sgemm, which describes the arrays."""
        import worklog

        return worklog.sgemm(A, B, C, alpha=alpha, beta=beta, mode=self)

    def require_launch(self) -> None:
        """Raise BadSetting if the order of the parameters, the grid or the block isn't known."""
        if not self.arguments:
            raise BadSetting(f"{self.file}: {self.adapted[0]}")
        if self.host is None and not (self.grid and self.block):
            names = kernel_names(self.source)
            if self.function.partition("<")[0] not in names:
                has = f"its kernels are {', '.join(names)}{meant(self.function, names)}"
                raise BadSetting(f"{self.file} has no launch of {self.function} that can be read; {has}")
            raise BadSetting(
                f"{self.name} needs a launch, and {self.file} doesn't state one: give --grid {EXAMPLE_GRID} "
                "--block 32,32, or others"
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
        return tuple(values[name] for name in self.arguments)

    def describe(self, subject: Subject | None) -> dict[str, Any]:
        """For a run's `kernels`: source hash, and launch, domain and resources where it is loaded."""
        common = {"domain": str(self.domain), "claimed": self.claimed}
        if self.host is not None:
            return self.host.describe(subject) | (common if subject else {})
        program = self.program
        resources = subject.describe() if isinstance(subject, Loaded) else {}
        entry = {"entry": self.entry, "options": list(self.options)}
        own = {"user": "kernel"} if self.number is None else {"idea": self.idea}
        launch: dict[str, Any] = {"tile": dict(self.template), "grid": parts(self.grid), "block": self.threads}
        launch |= {"dynamic_shared_bytes": self.shared, "workspace": self.workspace}
        launch |= {"arguments": [] if self.arguments == signature.LADDER else list(self.arguments)}
        stated = {name: value for name, value in launch.items() if value}
        return {"file": self.file, "sha256": program.code_sha256, **entry, **stated, **common, **own, **resources}


def launch_text(argument: str, sizes: Any) -> str:
    """A grid or a block as one text: "N / 8, M", 256, or ("N / 8", "M"). Raises BadSetting."""
    parts = listed(argument, sizes)
    if not all(isinstance(part, str | Integral) for part in parts):
        raise BadSetting(f"{argument}: give integers or text, such as {EXAMPLE_GRID}, not {sizes!r:.60}")
    return ", ".join(map(str, parts))


MOST_PADDING = 3  # times the work of the shape itself: beyond that, padding is no advice
EXAMPLE_GRID = "'(N + 31) / 32, (M + 31) / 32'"
