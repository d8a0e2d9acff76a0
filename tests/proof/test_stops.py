"""Instructions that proofs don't model stop the execution, with their line."""

import pytest

from worklog.emulator import load
from worklog.proof.divergence import Graph
from worklog.proof.launch import SymbolicLaunch
from worklog.proof.polynomial import Atom, Polynomial
from worklog.proof.proof import executed
from worklog.proof.prover import Prover
from worklog.proof.stop import ProofStopped

HEAD = """.version 8.0 .target sm_90 .address_size 64 .file 1 "k.cu"
.visible .entry k(.param .u64 data) {
.reg.b32 %r<9>; .reg.b64 %rd<9>; .reg.f32 %f<9>; .reg.pred %p<9>;
.shared .align 16 .b8 tile[64];
ld.param.u64 %rd1, [data]; mov.u64 %rd2, tile;
.loc 1 7 0
"""
STOPPED = {
    "an atomic": "atom.global.add.f32 %f1, [%rd1], %f2;",
    "a reduction": "red.global.add.f32 [%rd1], %f2;",
    "an asynchronous copy": "cp.async.ca.shared.global [%rd2], [%rd1], 4;",
    "a load of a matrix": "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%rd2];",
    "a named barrier": "bar.sync 1;",
    "a barrier of some warps": "bar.sync 0, 64;",
    "an arrival": "bar.arrive 0, 64;",
    "a barrier with a result": "bar.red.popc.u32 %r1, 0, %p1;",
    "a load of another block": "ld.shared::cluster.f32 %f1, [%rd2];",
    "an instruction that nobody knows": "multimem.ld_reduce.global.add.f32 %f1, [%rd1];",
}
EXECUTED = {
    "a load": "ld.global.nc.f32 %f1, [%rd1];",
    "a volatile store": "st.volatile.shared.f32 [%rd2], %f1;",
    "a fence": "membar.cta; ld.global.f32 %f1, [%rd1];",
    "a barrier of a warp": "bar.warp.sync -1; ld.global.f32 %f1, [%rd1];",
}


def accesses(body: str):
    """Return the accesses of a kernel of one thread."""
    kernel = load(f"{HEAD}{body} ret; }}")
    address = Polynomial.atom(Atom("&data", is_symbol=True))
    tile = Polynomial.atom(Atom("&tile", is_symbol=True))
    launch = SymbolicLaunch({}, {"data": address}, {}, {"tile": tile}, {}, (), Polynomial(()))
    return executed(kernel, Graph.from_kernel(kernel), launch, Prover())


@pytest.mark.parametrize("name", STOPPED)
def test_an_instruction_that_is_not_modelled_stops_the_proof(name):
    with pytest.raises(ProofStopped, match=r"^line 7: .*don't model"):
        accesses(STOPPED[name])


@pytest.mark.parametrize("name", EXECUTED)
def test_a_plain_access_is_kept(name):
    [access] = accesses(EXECUTED[name])
    assert access.width == 4
    assert access.is_store == ("store" in name)
