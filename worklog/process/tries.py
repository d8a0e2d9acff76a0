"""What a child process does for the table of exploits: `python -m worklog.process.tries` puts one callable to the gate
and the ruler on several seeds, or calls it as other harnesses do.

Several such processes share the GPU. One that is to be alone waits for the others, once everything is imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from worklog import bench, session
from worklog.brought import from_dict
from worklog.callables import ReturnsSomething
from worklog.device import require_gpu
from worklog.errors import BadSetting, LaunchFailed
from worklog.gate.alone import IDLE_S
from worklog.gate.peer_rules import Expected
from worklog.gate.peers import PEERS, Peer, Question, passes
from worklog.gemm import Float32, Shape
from worklog.harness import Harness
from worklog.harness.calibration import Calibration
from worklog.kernels import Buffer, Device, Subject
from worklog.plans import BASELINE, Task
from worklog.process import job
from worklog.runs import Measurement, Run

LOAD = "load"
RETURNED, FAILED = "returned", "failed"


def try_order(
    kernel: Mapping[str, Any],
    shape: Shape,
    seeds: list[int],
    harness: Harness,
    calibration: Mapping[str, Any],
    *,
    alone: bool,
) -> dict[str, Any]:
    """The order to gate and time a callable on each seed. calibration: the ruler's. alone: with the GPU to itself."""
    size = [shape.m, shape.n, shape.k]
    how = {"harness": harness.as_dict(), "calibration": dict(calibration), "alone": alone}
    return {"do": "try", "kernel": dict(kernel), "shape": size, "seeds": seeds, **how}


def calibrate_order() -> dict[str, Any]:
    """The order to calibrate the ruler, with the GPU to itself, for all trials that follow."""
    return {"do": "calibrate"}


def ask_order(kernel: Mapping[str, Any], rounds: Mapping[str, int], folder: Path) -> dict[str, Any]:
    """The order to call it as other harnesses do, each in so many rounds, by name. folder: for what it leaves in C."""
    return {"do": "ask", "kernel": dict(kernel), "rounds": dict(rounds), "folder": str(folder)}


def _try(order: Mapping[str, Any], say: job.Answers) -> None:
    """Each seed in turn, on code that is loaded anew, as long as the process is as it was before."""
    brought, shape = from_dict(order["kernel"]), Shape(*order["shape"])
    _import_what_takes_long()
    with job.among_trials(alone=order["alone"], waits=lambda: say("waits")):
        ready = session.Session({brought.name: brought}, Calibration(**order["calibration"]))
        ready.verdict(BASELINE, shape)
        say("ready")
        for seed in order["seeds"]:
            found = _tried(ready, brought.name, shape, seed, Harness(**order["harness"]))
            say("tried", seed=seed, **_told(found))
            if not _is_fit(ready, found):
                break
    say("done")


def _calibrate(order: Mapping[str, Any], say: job.Answers) -> None:
    _import_what_takes_long()
    with job.among_trials(alone=True, waits=lambda: say("waits")):
        ready = session.Session()
        say("ready")
        say("calibrated", calibration=ready.calibration.as_dict())
    say("done")


def _import_what_takes_long() -> None:
    with suppress(ImportError):  # where there is no GPU
        for name in ("cupy", "worklog.cuda", "worklog.harness.cuda_timeline"):
            importlib.import_module(name)


def _tried(ready: session.Session, name: str, shape: Shape, seed: int, harness: Harness) -> Measurement:
    """What a run would hold."""
    try:
        ready.ask_anew(name, shape, seed)
    except BadSetting as error:
        return Measurement(name, (shape.m, shape.n, shape.k), "refused", f"{LOAD}: {error}")
    return bench.attempt(ready, Task(name, shape), harness, Run({}, harness.as_dict(), {}))


def _is_fit(ready: session.Session, found: Measurement) -> bool:
    """Whether the process and the GPU are as they were, for another seed."""
    if str(found.reason).startswith((LOAD, "launch")):
        return False
    kept = ready.integrity(found.kernel)
    return kept is not None and kept.measured <= kept.limit and ready.device.idle(IDLE_S)


def _told(found: Measurement) -> dict[str, Any]:
    """As JSON takes it. The parent takes it for words and numbers, and no more."""
    words: tuple[str, ...] = ("status", "reason", "verdict", "ratio")
    return {word: getattr(found, word) for word in words}


# --------------------------------------------------------------------------------------------------- as others call it


def _ask(order: Mapping[str, Any], say: job.Answers) -> None:
    """Each peer's calls, on code that is loaded anew for it. What they leave is kept in files and judged elsewhere:
    here the callable may have changed any comparison.
    """
    brought = from_dict(order["kernel"])
    _import_what_takes_long()
    with job.among_trials(alone=False, waits=lambda: say("waits")):
        device = gpu_device()
        say("ready")
        for peer in [peer for peer in PEERS if peer.name in order["rounds"]]:
            try:
                subject = brought.subject(device, fresh=True)
            except BadSetting as error:
                say("loaded", error=str(error))
                break
            for number, asked in enumerate(questions(peer, order["rounds"][peer.name])):
                noted = Noted(subject, device)
                passes(replace(peer, rule=_anything), [asked], noted, noted)
                np.savez(Path(order["folder"]) / f"{peer.mark}{number}.npz", *noted.left)
                say("asked", peer=peer.name, number=number, how=noted.how, what=noted.what)
                if noted.how:
                    break
    say("done")


def gpu_device() -> Device:
    """The GPU. Raises NoGpu."""
    require_gpu()
    from worklog.cuda import CudaDevice

    return CudaDevice()


def questions(peer: Peer, rounds: int) -> list[Question]:
    """What it asks in so many rounds, at small sizes; the same here and there."""
    return [asked for number in range(rounds) for asked in peer.questions("small", number)]


def _anything(c: Float32, expected: Expected) -> bool:
    return True


class Noted:
    """A callable and its device as worklog.gate.peers.passes takes them, which keeps what is downloaded. how: RETURNED
    or FAILED where the call did not just leave something in C, and `what` it did then.

    It waits for the whole device, as others do, and not only for the stream.
    """

    def __init__(self, subject: Subject, device: Device) -> None:
        self.name, self.domain = subject.name, subject.domain
        self.left: list[Float32] = []
        self.how = self.what = ""
        self._subject, self._device = subject, device

    def enqueue(self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer) -> None:
        """Call it, with matrices that end where they end: here there is room behind them."""
        view, sizes = self._device.view, (shape.m * shape.k, shape.k * shape.n, shape.m * shape.n)
        a, b, c = (view(buffer, 0, size) for buffer, size in zip((a, b, c), sizes, strict=True))
        try:
            self._subject.enqueue(shape, alpha, a, b, beta, c)
        except LaunchFailed as error:
            self.how = RETURNED if isinstance(error, ReturnsSomething) else FAILED
            self.what = str(error).partition("\n")[0]
            raise

    def synchronize(self) -> None:
        """Wait for everything."""
        job.require_context()
        self._device.synchronize()

    def download(self, buffer: Buffer) -> Float32:
        """Keep it, too."""
        self.left.append(self._device.download(buffer))
        return self.left[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


ACTS: dict[str, job.Act] = {"calibrate": _calibrate, "try": _try, "ask": _ask}

if __name__ == "__main__":
    job.main(ACTS)
