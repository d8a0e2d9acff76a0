"""`python -m tests.record.proofs` proves each rung and records what is proved.

It takes some minutes, of which z3 has a part: the seconds depend on the machine, and the claims and
the number of z3's queries don't.
"""

import json
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.record import recording
from worklog.kernel import RUNGS, Kernel
from worklog.kernel.emulated import ARCH
from worklog.kernel.nvrtc import nvrtc_version
from worklog.proof import prove
from worklog.runs.files import write_text

FOLDER = Path(__file__).parents[2] / "worklog" / "recordings" / "proofs"
# Rungs for shapes that other rungs serve, whose launches depend on the shape.
LAST = 17


def row(kernel: Kernel) -> dict[str, Any]:
    """Return what is proved of a rung."""
    proof = prove(kernel)
    proved = [claim for claim in proof.claims if claim.is_proved]
    return {
        "number": kernel.number,
        "rung": kernel.name,
        "proved": proof.is_proved,
        "scope": proof.scope,
        "claims": len(proof.claims),
        "claims_proved": len(proved),
        "reason": proof.stopped or "; ".join(map(str, proof.unproved)),
        "queries": proof.queries,
        "seconds": round(proof.seconds, 1),
    }


def main() -> None:
    """Write the recording, and remove the one before."""
    rows = []
    for kernel in RUNGS:
        if kernel.number is not None and kernel.number <= LAST:
            rows.append(row(kernel))
            print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    made = f"{ARCH} PTX · NVRTC {'.'.join(map(str, nvrtc_version()))} · z3 {version('z3-solver')}"
    document = recording.document("proofs", rows, label=made)
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("2*.json"):
        old.unlink()
    write_text(FOLDER / f"{datetime.now(UTC):%Y-%m-%d}.json", document)


if __name__ == "__main__":
    main()
