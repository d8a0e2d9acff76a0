"""Proofs about compiled kernels: accesses in bounds and no races, for every shape of the domain."""

from worklog.proof.claims import Claim
from worklog.proof.proof import Proof, prove
from worklog.proof.prover import ProverMissing

__all__ = ["Claim", "Proof", "ProverMissing", "prove"]
