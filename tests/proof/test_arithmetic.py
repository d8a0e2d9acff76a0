"""Integer instructions give the registers that a GPU computes, as polynomials of thread bits."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worklog.emulator import load
from worklog.proof.arithmetic import Arithmetic, computed
from worklog.proof.polynomial import Atom, Polynomial, Scope
from worklog.proof.prover import Facts, Prover
from worklog.proof.values import Value, runs_of_ones

HEAD = """.version 8.0 .target sm_90 .address_size 64
.visible .entry k(.param .u64 data) {
.reg.b32 %r<4>; .reg.b64 %rd<4>;
"""
BITS = 6  # of the thread's index
MASK = 2**32 - 1


def signed(value: int) -> int:
    return (value & MASK ^ 1 << 31) - (1 << 31)


def inserted(value: int, base: int, first: int, length: int) -> int:
    mask = (1 << length) - 1 << first
    return base & ~mask | value << first & mask


# Of an instruction with the registers x and y, and a number n from 0 to 31: the result.
INSTRUCTIONS = {
    "add.s32 %r3, %r1, %r2;": lambda x, y, n: x + y,
    "sub.s32 %r3, %r1, %r2;": lambda x, y, n: x - y,
    "mul.lo.s32 %r3, %r1, {n};": lambda x, y, n: x * n,
    "mad.lo.s32 %r3, %r1, {n}, %r2;": lambda x, y, n: x * n + y,
    "mul.wide.s32 %rd3, %r1, {n};": lambda x, y, n: signed(x) * n,
    "mul.wide.u32 %rd3, %r1, {n};": lambda x, y, n: (x & MASK) * n,
    "mul.wide.s32 %rd3, %r1, -{n};": lambda x, y, n: signed(x) * -n,
    "mul.wide.u32 %rd3, %r1, -{n};": lambda x, y, n: (x & MASK) * (-n & MASK),
    "mov.u32 %r3, -{n};": lambda x, y, n: -n,
    "cvt.s64.s32 %rd3, %r1;": lambda x, y, n: signed(x),
    "cvt.u64.u32 %rd3, %r1;": lambda x, y, n: x & MASK,
    "shl.b32 %r3, %r1, {n};": lambda x, y, n: x << n,
    "shr.u32 %r3, %r1, {n};": lambda x, y, n: (x & MASK) >> n,
    "shr.s32 %r3, %r1, {n};": lambda x, y, n: signed(x) >> n,
    "and.b32 %r3, %r1, {n};": lambda x, y, n: x & n,
    "and.b32 %r3, %r1, -{n};": lambda x, y, n: x & -n,
    "or.b32 %r3, %r1, %r2;": lambda x, y, n: x | y,
    "xor.b32 %r3, %r1, 1;": lambda x, y, n: x ^ 1,
    "not.b32 %r3, %r1;": lambda x, y, n: ~x,
    "neg.s32 %r3, %r1;": lambda x, y, n: -x,
    "div.u32 %r3, %r1, 5;": lambda x, y, n: (x & MASK) // 5,
    "rem.u32 %r3, %r1, 5;": lambda x, y, n: (x & MASK) % 5,
    "bfi.b32 %r3, %r1, %r2, 3, 29;": lambda x, y, n: inserted(x, y, 3, 29),
    "bfi.b32 %r3, %r1, %r2, 2, 3;": lambda x, y, n: inserted(x, y, 2, 3),
}  # fmt: skip


def register(shift: int, factor: int, constant: int) -> Value:
    """Return factor * (thread >> shift) + constant."""
    total = Polynomial.constant(constant)
    for place in range(shift, BITS):
        bit = Atom(f"bit{place}", 0, 1, scope=Scope.THREAD)
        total = total + Polynomial.atom(bit) * (factor << place - shift)
    return Value(total, 32)


@pytest.mark.parametrize("text", INSTRUCTIONS)
@settings(max_examples=25, deadline=None)
@given(
    st.tuples(st.integers(0, 5), st.sampled_from([-3, 1, 4, 2**27]), st.integers(-9, 40)),
    st.tuples(st.integers(0, 5), st.sampled_from([1, 64, 4096]), st.integers(0, 8)),
    st.integers(0, 31),
    st.integers(0, 2**BITS - 1),
)
def test_a_result_is_what_a_gpu_computes(text, first, second, number, thread):
    kernel = load(f"{HEAD}{text.format(n=number)} ret; }}")
    instruction = kernel.instructions[0]
    prover = Prover()
    operands = [register(*first), register(*second)]
    literal = [getattr(operand, "value", None) for operand in instruction.operands[1:]]
    names = [getattr(operand, "name", "") for operand in instruction.operands[1:]]
    values = []
    for name, constant in zip(names, literal, strict=True):
        is_number = constant is not None
        value = Value(Polynomial.constant(constant), 64) if is_number else operands[name == "%r2"]
        values.append(value)
    result = computed(Arithmetic(prover), Facts(), instruction, values)
    x, y = (factor * (thread >> shift) + constant for shift, factor, constant in (first, second))
    expected = INSTRUCTIONS[text](x, y, number)
    if result is None:  # such as an or of common bits
        assert instruction.parts[0] in ("or", "xor", "div", "rem", "bfi")
        return
    assert result.bits == (64 if "%rd3" in text else 32)
    bits = {f"bit{place}": thread >> place & 1 for place in range(BITS)}
    at_thread = {
        atom: Polynomial.constant(bits[atom.name])
        for atom in result.polynomial.atoms
        if atom.name in bits
    }
    wanted = Polynomial.constant(expected % (1 << result.bits))
    # The result equals the expected value modulo 2**bits for some value of each new unknown.
    multiple = Polynomial.atom(Atom("multiple")) * (1 << result.bits)
    difference = result.polynomial.substituted(at_thread) - wanted - multiple
    definitions = []
    for atom in sorted(result.polynomial.atoms):
        for definition in prover.definitions.get(atom, ()):
            definitions.append(definition)
    facts = Facts().and_all((*definitions, difference, -difference))
    for name, value in bits.items():
        bit = Polynomial.atom(Atom(name, 0, 1, scope=Scope.THREAD)) - value
        facts = facts.and_all((bit, -bit))
    assert not prover.contradicts(facts)
    # No other value is possible.
    off = Polynomial.constant((expected + 1) % (1 << result.bits))
    other = result.polynomial.substituted(at_thread) - off - multiple
    rest = [fact for fact in facts.conjunction if fact not in (difference, -difference)]
    assert prover.contradicts(Facts().and_all((*rest, other, -other)))


@given(st.integers(0, 2**16 - 1))
def test_runs_of_ones_add_up_to_the_mask(mask):
    runs = list(runs_of_ones(mask, 16))
    assert sum((1 << stop) - (1 << first) for first, stop in runs) == mask
    assert all(stop < first for (_, stop), (first, _) in pairwise(runs))
