"""Proofs about compiled kernels: accesses in bounds and no races, for every shape of the domain.

A kernel's PTX is executed once with unknown sizes, block, thread and iterations, and z3 decides
what its addresses can be. The README beside this file states what is claimed, and what isn't.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worklog.proof.claims import Claim
    from worklog.proof.proof import Proof, prove
    from worklog.proof.prover import require_z3

__all__ = ["Claim", "Proof", "prove", "require_z3"]
_HOMES = {
    "Claim": "claims",
    "Proof": "proof",
    "prove": "proof",
    "require_z3": "prover",
}

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        # At the first use: a check without a proof doesn't need the room.
        if name in _HOMES:
            return getattr(import_module(f"worklog.proof.{_HOMES[name]}"), name)
        raise AttributeError(f"module 'worklog.proof' has no attribute {name!r}")
