"""May this kernel of yours be timed? A .cu file with a kernel of the ladder's signature, before the whole gate.

On a GPU where there is one, else on the emulator at a small size, and the result says which. The kernel is compiled
with NVRTC in either case, so that what it spends and a wrong signature are known before anything is launched.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from worklog.device import gpu, gpu_reason, require_gpu
from worklog.errors import BadSetting, OutsideDomain, WorklogError
from worklog.gate import Exam, Verdict
from worklog.gate.exact import ragged_shapes
from worklog.gate.precision import CLASSES
from worklog.gemm import Shape
from worklog.kernels import Block, Buffer, Device, Program
from worklog.ladder import Domain, Rung, evaluate, rung
from worklog.nvrtc import Compiled, compile_cuda, kernel_names

if TYPE_CHECKING:
    from worklog.emulator import Finding

SIGNATURE = "(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C)"
PARAMETERS = ("32", "32", "32", "32", "64", "64", "32", "64")  # bits of each, as PTX declares them
EMULATED_ARCH = "sm_90"
GPU_SIZE = 1024


@dataclass(frozen=True)
class UserKernel:
    """A kernel that somebody brought. grid: blocks along x and y, expressions in M, N and K; block: threads along x,
    or along x and y. claimed: the precision class that it must have at least.
    """

    program: Program
    grid: tuple[str, str]
    block: Block
    domain: Domain
    claimed: str = "fp32"

    @classmethod
    def read(
        cls, path: Path, *, grid: str, block: str, entry: str | None = None, domain: str = "any", claimed: str = "fp32"
    ) -> UserKernel:
        """From a file and words as the command line has them. Raises WorklogError for a file that cannot be read or
        that holds several kernels, and BadSetting.
        """
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
            raise WorklogError(f"cannot read {path}: {why}") from error
        if claimed not in CLASSES:
            raise BadSetting(f"there is no class {claimed!r}: choose from {', '.join(CLASSES)}")
        program = Program(path.name, source, entry or _only_kernel(path, source))
        return cls(program, _grid(grid), _block(block), Domain.of(domain), claimed)

    @classmethod
    def of(cls, record: Rung) -> UserKernel:
        """A rung, as if somebody had brought it."""
        bn, bm = record.tile["BN"], record.tile["BM"]
        grid = f"(N + {bn - 1}) // {bn}", f"(M + {bm - 1}) // {bm}"
        return cls(Program.of(record), grid, record.block, record.domain)


def brought(
    what: str, *, grid: str | None, block: str | None, entry: str | None, domain: str, claimed: str
) -> UserKernel:
    """A .cu file by its path, or a rung by its name, which brings its own launch. Raises what UserKernel.read does."""
    if what.endswith(".cu") or Path(what).exists():
        if grid is None or block is None:
            raise BadSetting(
                "a file's kernel needs a launch: give --grid '(N + 31) // 32, (M + 31) // 32' --block 32,32"
            )
        return UserKernel.read(Path(what), grid=grid, block=block, entry=entry, domain=domain, claimed=claimed)
    record = rung(what)
    if grid or block or entry or (domain, claimed) != ("any", "fp32"):
        raise BadSetting("--grid, --block, --entry, --domain and --class are for a .cu file: a rung brings its own")
    return UserKernel.of(record)


def _only_kernel(path: Path, source: str) -> str:
    names = kernel_names(source)
    if len(names) != 1:
        found = f"has {len(names)} kernels ({', '.join(names)})" if names else "has no __global__ function"
        raise BadSetting(f"{path} {found}: name one with --entry")
    return names[0]


def _grid(words: str) -> tuple[str, str]:
    parts = [part.strip() for part in words.split(",")]
    if len(parts) not in (1, 2):
        raise BadSetting(f"cannot read the grid {words!r}: give blocks along x and y, such as '(N + 31) // 32, M // 8'")
    for part in parts:
        evaluate(part, {"M": 1, "N": 1, "K": 1})  # a mistake is found before anything is compiled
    return parts[0], parts[1] if len(parts) == 2 else "1"


def _block(words: str) -> Block:
    sizes = [evaluate(part, {}) for part in words.split(",")]
    if len(sizes) not in (1, 2) or min(sizes) < 1:
        raise BadSetting(
            f"cannot read the block {words!r}: give threads along x, or along x and y, such as 256 or 32,8"
        )
    return sizes[0] if len(sizes) == 1 else (sizes[0], sizes[1])


class UserSubject:
    """A brought kernel on a device, as worklog.kernels.Subject. Raises CompileFailed."""

    def __init__(self, kernel: UserKernel, device: Device) -> None:
        self.name = kernel.program.entry
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


@dataclass(frozen=True)
class Checked:
    """The gate's word. label: where it ran. compiled: what the compiler made of it. findings: the emulator's, of all
    launches; each kind and place once.
    """

    verdict: Verdict
    shape: Shape
    label: str
    compiled: Compiled
    findings: tuple[Finding, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        spent = {name: getattr(self.compiled, name) for name in ("registers", "stack_bytes", "shared_bytes", "arch")}
        shape = [self.shape.m, self.shape.n, self.shape.k]
        found = {"findings": [asdict(finding) for finding in self.findings]}
        named = {"kernel": self.compiled.entry, "label": self.label, "shape": shape}
        return {**named, **spent, **found, **self.verdict.as_dict()}


def report(checked: Checked) -> str:
    """For a terminal: every stage that was asked, the map of C where something is wrong, and what was spent."""
    compiled, verdict = checked.compiled, checked.verdict
    lines = [f"{compiled.name}: {compiled.entry} at {checked.shape} · {checked.label}"]
    for stage in verdict.stages:
        lines.append(f"{'✓' if stage.passed else '✗'} {stage.name}: {stage.detail}")
        if stage.where is not None:
            height, width = stage.where.tile
            lines.append(f"    C in tiles of {height} x {width}: . right, o some elements wrong, # all")
            lines += [f"    {row}" for row in stage.where.picture().splitlines()]
    for finding in checked.findings:
        if finding.message not in str(verdict.reason):  # the first one is the refusal's own
            lines.append(f"{'✗' if finding.is_error else '·'} {compiled.name}: {finding}")
    lines.append(
        f"{compiled.registers} registers, {compiled.stack_bytes} bytes of local memory a thread, "
        f"{compiled.shared_bytes} bytes of shared memory a block ({compiled.arch})"
    )
    word = f"accepted as {verdict.precision}" if verdict.accepted else "refused"
    lines.append(f"{word} in {verdict.seconds:.1f} s")
    return "\n".join(lines)


def check(kernel: UserKernel, shape: Shape | None = None, *, on: str | None = None, seed: int | None = None) -> Checked:
    """Put a kernel to every stage of the gate.

    shape: the benchmark shape (default: 1024 padded to the domain on a GPU, a small one on the emulator). on: "gpu" or
    "emulated"; None takes the GPU where there is one. seed: for the questions (default: drawn now). Raises NoGpu,
    CompileFailed, OutsideDomain, BadSetting.
    """
    live = on == "gpu" if on is not None else gpu_reason() is None
    if live:
        require_gpu()
    compiled, label = _compiled(kernel.program, live)
    _require_signature(compiled)
    shape = shape or (kernel.domain.padded(Shape.of(GPU_SIZE)) if live else ragged_shapes(kernel.domain)[-1])
    if shape not in kernel.domain:
        padded = kernel.domain.padded(shape)
        raise OutsideDomain(f"size {shape} is outside the domain that was stated ({kernel.domain}): pad to {padded}")
    device = _device(live)
    subject = UserSubject(kernel, device)
    verdict = Exam(device, shape, secrets.randbits(63) if seed is None else seed).examine(subject, kernel.claimed)
    found: dict[tuple[str, int, int | None], Finding] = {}
    for finding in getattr(device, "findings", ()):
        found.setdefault((finding.kind, finding.line, finding.other_line), finding)
    return Checked(verdict, shape, label, replace(compiled, cubin=b""), tuple(found.values()))


def _compiled(program: Program, live: bool) -> tuple[Compiled, str]:
    """What the compiler makes of it for the machine it will run on, and that machine's label."""
    if live:
        arch = "sm_" + "".join(map(str, gpu().compute_capability))
        out = compile_cuda(program.source, program.entry, name=program.name, arch=arch, options=program.options)
        return out, f"live · {gpu().name}"
    from worklog.emulator.shipped import build

    built = build(program, EMULATED_ARCH)
    return built.compiled, built.label


def _device(live: bool) -> Device:
    if live:
        from worklog.cuda import CudaDevice

        return CudaDevice()
    from worklog.emulator.device import EmulatedDevice

    return EmulatedDevice(EMULATED_ARCH)


def _require_signature(compiled: Compiled) -> None:
    """Raise BadSetting for a kernel that takes something else than the gate passes."""
    entry = re.search(rf"\.entry\s+{re.escape(compiled.symbol)}\s*\((.*?)\)", compiled.ptx, re.DOTALL)
    found = tuple(re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.[a-z](\d+)", entry[1])) if entry else ()
    if found != PARAMETERS:
        raise BadSetting(
            f"{compiled.name}: {compiled.entry} takes {len(found)} parameters of {', '.join(found) or 'no'} bits; "
            f"the gate launches {SIGNATURE}, row-major"
        )
