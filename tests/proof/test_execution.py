"""The symbolic execution covers what the emulator executes.

Each access of a launch on the emulator must be one of the accesses of the proof: at the same
instruction, behind the same barrier, and at the same byte for some iteration of the loops.
"""

from collections import defaultdict

import numpy as np
import pytest

from tests.proof import kernels
from worklog.emulator import launch
from worklog.emulator.memory import FIRST_ADDRESS, SPACING
from worklog.emulator.reader import load
from worklog.kernel import rung
from worklog.kernel.emulated import ARCH, build
from worklog.problem import Shape
from worklog.proof.claims import buffer_of
from worklog.proof.divergence import Graph
from worklog.proof.execution import ENTRY, SymbolicAccess
from worklog.proof.launch import symbolic_launch
from worklog.proof.polynomial import Polynomial, Scope
from worklog.proof.proof import executed
from worklog.proof.prover import Facts, Prover

LAUNCHES = {
    "naive": (rung("naive"), Shape(33, 40, 7)),
    "shared": (rung("shared"), Shape(32, 64, 64)),
    "vectorized": (rung("vectorized"), Shape(128, 256, 24)),
    "warptiled": (rung("warptiled"), Shape(128, 256, 48)),
    "guarded": (kernels.guarded(), Shape(17, 33, 40)),
    "rolled": (kernels.rolled(), Shape(16, 32, 48)),
}
STEPS = 60  # of a launch, that are compared
BLOCK = 1


def constants(launched, sizes, block, threads, thread):
    """Return the values of the unknowns, and that the block and the thread are these."""
    values = {}
    for name, size in sizes.items():
        [polynomial] = [value for key, value in launched.sizes.items() if key == name]
        [(monomial, step)] = polynomial.terms
        values[monomial[0]] = Polynomial.constant(size // step)
    for index, number in zip(launched.blocks, block, strict=True):
        values[next(iter(index.atoms))] = Polynomial.constant(number)
    x, y = thread % threads[0], thread // threads[0]
    for axis, number in (("x", x), ("y", y)):
        for (atom,), place in launched.specials[f"%tid.{axis}"].terms:
            values[atom] = Polynomial.constant(number // place % 2)
    return values


def at(facts: Facts, values) -> Facts:
    """Return facts with values for some of the unknowns."""
    choices = []
    for alternatives in facts.choices:
        choices.append(
            tuple(tuple(fact.substituted(values) for fact in one) for one in alternatives)
        )
    return Facts(tuple(fact.substituted(values) for fact in facts.conjunction), tuple(choices))


def covers(prover, launched, access: SymbolicAccess, values, byte: int) -> bool:
    """Return whether an access may be at a byte of its array."""
    array = buffer_of(launched, access)
    offset = (access.address - Polynomial.atom(array.symbol)).substituted(values) - byte
    for atom, value in values.items():
        for definition in prover.definitions.get(atom, ()):
            assert definition.substituted(values).range[1] >= 0, (atom, value)
    return not prover.contradicts(at(access.facts, values).and_all((offset, -offset)))


@pytest.mark.parametrize("name", LAUNCHES)
def test_every_access_of_the_emulator_is_an_access_of_the_proof(name):
    kernel, shape = LAUNCHES[name]
    compiled, _ = build(kernel.program, ARCH)
    ptx = load(compiled.ptx, compiled.symbol)
    prover = Prover()
    launched = symbolic_launch(kernel, ptx, prover, 2**20)
    by_pc = defaultdict(list)
    for access in executed(ptx, Graph.from_kernel(ptx), launched, prover):
        by_pc[access.instruction.pc].append(access)
    sizes = {"M": shape.m, "N": shape.n, "K": shape.k}
    arrays = [np.ones(count, np.float32) for count in (shape.m * shape.k, shape.k * shape.n)]
    result = np.ones(shape.m * shape.n, np.float32)
    blocks = kernel.blocks(shape)
    run = launch(
        ptx,
        blocks,
        kernel.threads,
        kernel.bind(shape, 1.0, *arrays, 1.0, result),
        races=False,
        trace=True,
        only_blocks=[BLOCK],
    )
    threads = (kernel.threads, 1) if isinstance(kernel.threads, int) else kernel.threads
    block = (BLOCK % blocks[0], BLOCK // blocks[0], 0)
    barriers = defaultdict(lambda: ENTRY)
    compared = 0
    chosen = np.linspace(0, len(run.trace) - 1, min(STEPS, len(run.trace))).astype(int)
    for number, record in enumerate(run.trace):
        pc, warp = int(record["pc"]), int(record["warp"])
        site = run.sites.get(pc)
        if site is None:
            barriers[warp] = pc
            continue
        if number not in chosen:
            continue
        lanes = np.flatnonzero(record["mask"] >> np.arange(32, dtype=np.uint32) & 1)
        lane = int(lanes[number % len(lanes)])
        is_global = record["space"] == 0
        address = int(record["address"][lane])
        byte = (address - FIRST_ADDRESS) % SPACING if is_global else address - site.start
        values = constants(launched, sizes, block, threads, 32 * warp + lane)
        possible = [one for one in by_pc[pc] if is_global or one.barrier == barriers[warp]]
        assert any(covers(prover, launched, one, values, byte) for one in possible), (
            site.text,
            byte,
            barriers[warp],
        )
        compared += 1
    assert compared > 20
    assert bool(barriers) == (name != "naive")


def test_a_thread_of_another_block_is_not_covered():
    kernel, _ = LAUNCHES["shared"]
    compiled, _ = build(kernel.program, ARCH)
    ptx = load(compiled.ptx, compiled.symbol)
    prover = Prover()
    launched = symbolic_launch(kernel, ptx, prover, 2**20)
    accesses = executed(ptx, Graph.from_kernel(ptx), launched, prover)
    [store] = {
        access.address: access
        for access in accesses
        if access.space == "global" and access.is_store
    }.values()
    values = constants(launched, {"M": 64, "N": 64, "K": 64}, (1, 1, 0), (1024, 1), 5)
    assert covers(prover, launched, store, values, 4 * (32 * 64 + 32 + 5))
    assert not covers(prover, launched, store, values, 4 * (32 * 64 + 5))


def test_iterations_belong_to_the_block_only_if_the_loop_has_barriers():
    scopes = {}
    for name in ("naive", "shared"):
        kernel, _ = LAUNCHES[name]
        compiled, _ = build(kernel.program, ARCH)
        ptx = load(compiled.ptx, compiled.symbol)
        prover = Prover()
        launched = symbolic_launch(kernel, ptx, prover, 2**20)
        atoms = set()
        for access in executed(ptx, Graph.from_kernel(ptx), launched, prover):
            atoms |= access.address.atoms
        scopes[name] = {atom.scope for atom in atoms if atom.name.startswith("i@")}
    assert scopes == {"naive": {Scope.THREAD}, "shared": {Scope.BLOCK}}
