"""Prove that a kernel stays in bounds and doesn't race, for every shape of its domain."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from worklog.emulator.ptx import PtxError, PtxKernel, UnsupportedInstruction
from worklog.emulator.reader import load
from worklog.kernel import Kernel
from worklog.kernel.emulated import ARCH, build
from worklog.problem import Domain
from worklog.proof.arithmetic import Arithmetic
from worklog.proof.claims import BOUNDS, RACES, Claim, bounds, races
from worklog.proof.divergence import Graph, divergence
from worklog.proof.execution import Executor, SymbolicAccess, SymbolicState
from worklog.proof.launch import SymbolicLaunch, symbolic_launch
from worklog.proof.loops import execute_loop
from worklog.proof.prover import Prover, require_z3
from worklog.proof.stop import ProofStopped

# M, N and K up to here: 32-bit indices of elements of a row don't overflow. A kernel whose 32-bit
# products of two sizes overflow there is tried again below the second limit.
LARGEST_SIZES = (2**30, 2**15)
BARRIERS = "barriers"


@dataclass(frozen=True)
class Proof:
    """What was proved of a kernel's compiled code."""

    kernel: str
    domain: Domain
    largest: int  # M, N and K are at most this
    claims: tuple[Claim, ...] = ()
    stopped: str = ""  # why there are no claims
    queries: int = 0  # of z3
    exhausted: int = 0  # queries that z3 gave up at its limit of work
    seconds: float = 0.0

    @property
    def is_proved(self) -> bool:
        """True if every claim is proved."""
        return not self.stopped and all(claim.is_proved for claim in self.claims)

    @property
    def unproved(self) -> tuple[Claim, ...]:
        """The claims that aren't proved."""
        return tuple(claim for claim in self.claims if not claim.is_proved)

    @property
    def scope(self) -> str:
        """The shapes that the claims are about. A GPU must accept the grid."""
        return f"{self.domain}, each size at most {self.largest:,}"

    @property
    def summary(self) -> str:
        """A clause for a verdict."""
        if self.is_proved:
            return f"proved: bounds and race freedom for {self.scope}"
        unproved = len(self.unproved)
        return f"not proved: {self.stopped or f'{unproved} of {len(self.claims)} claims'}"

    @property
    def lines(self) -> tuple[str, ...]:
        """The report: what is proved, and what isn't, with the reason."""
        if self.stopped:
            return (f"not proved: {self.stopped}",)
        counts = []
        for kind in (BOUNDS, RACES, BARRIERS):
            claims = [claim for claim in self.claims if claim.kind == kind]
            proved = [claim for claim in claims if claim.is_proved]
            if claims:
                counts.append(f"{kind} ({len(proved)} of {len(claims)} claims)")
        state = "proved" if self.is_proved else "not proved"
        summary = f"{state} for {self.scope}: {', '.join(counts)} in {self.seconds:.1f} s"
        return (summary, *(f"not proved: {claim}" for claim in self.unproved))

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def as_dict(self) -> dict[str, Any]:
        """Return the proof for JSON."""
        claims = []
        for claim in self.claims:
            claims.append(
                {
                    "kind": claim.kind,
                    "lines": list(claim.lines),
                    "subject": claim.subject,
                    "proved": claim.is_proved,
                    "reason": claim.reason,
                }
            )
        return {
            "proved": self.is_proved,
            "scope": self.scope,
            "largest": self.largest,
            "stopped": self.stopped,
            "claims": claims,
            "queries": self.queries,
            "exhausted": self.exhausted,
            "seconds": self.seconds,
        }


def prove(kernel: Kernel, largest: int | None = None) -> Proof:
    """Prove bounds and race freedom of a kernel for every shape of its domain.

    The proof is about the PTX that NVRTC compiles, with the kernel's own grid and block. It says
    nothing of the values in C.

    largest: the largest M, N and K (default: 2**30, or 32,768 if 32-bit indices overflow below)
    Raises ProverMissing without z3, CompileFailed, and BadSetting for a host function.
    """
    require_z3()
    kernel.require_source("proofs need a .cu file or a rung")
    kernel.require_launch()
    started = time.perf_counter()
    proof = Proof(kernel.name, kernel.domain, 0)
    for limit in LARGEST_SIZES if largest is None else (largest,):
        proof = _proof(kernel, limit, started)
        has_misplaced = any(claim.kind == BOUNDS for claim in proof.unproved)
        if not has_misplaced:
            break  # smaller sizes don't help
    return proof


def _proof(kernel: Kernel, largest: int, started: float) -> Proof:
    """Return the proof for sizes up to the largest."""
    prover = Prover()
    claims: list[Claim] = []
    stopped = ""
    try:
        if len(kernel.launches) != 1 or kernel.follows_shape:
            raise ProofStopped(0, "proofs are about kernels with one launch for every shape")
        compiled, _ = build(kernel.program, ARCH)
        claims = claims_of(kernel, load(compiled.ptx, compiled.symbol), prover, largest)
    except (ProofStopped, PtxError, UnsupportedInstruction) as error:
        stopped = str(error)
    return Proof(
        kernel.name,
        kernel.domain,
        largest,
        tuple(claims),
        stopped,
        prover.queries,
        prover.exhausted,
        time.perf_counter() - started,
    )


def claims_of(kernel: Kernel, ptx: PtxKernel, prover: Prover, largest: int) -> list[Claim]:
    """Return the claims about a kernel's PTX. Raises ProofStopped."""
    launch = symbolic_launch(kernel, ptx, prover, largest)
    graph = Graph.from_kernel(ptx)
    varying = divergence(ptx, graph)
    claims = []
    for instruction in ptx.instructions:
        if not instruction.opcode.barrier:
            continue
        branch = varying.deciding(graph, instruction)
        if branch is not None:
            reason = f"only some threads get there: line {branch.line} decides by the thread"
            claims.append(Claim(BARRIERS, (instruction.line,), "the block", reason))
        else:
            claims.append(Claim(BARRIERS, (instruction.line,), "the block"))
    if any(not claim.is_proved for claim in claims):
        return claims
    accesses = executed(ptx, graph, launch, prover)
    claims += bounds(prover, launch, accesses)
    claims += races(prover, launch, accesses)
    return list(dict.fromkeys(claims))


def executed(
    ptx: PtxKernel, graph: Graph, launch: SymbolicLaunch, prover: Prover
) -> list[SymbolicAccess]:
    """Return the accesses of any thread of a launch. Raises ProofStopped."""
    executor = Executor(
        ptx,
        graph,
        Arithmetic(prover),
        arguments=launch.arguments,
        specials=launch.specials,
        symbols=launch.symbols,
        execute_loop=execute_loop,
    )
    executor.execute(SymbolicState(0))
    return executor.accesses
