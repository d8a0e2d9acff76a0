"""The clocks, locked during a measurement where the driver permits it, and always unlocked; and the theoretical peaks
at a clock: SMs x operations per SM and clock x clock.

Power and heat override a lock, so the samples' clocks are still watched. A lock outlives the process that set it, so a
guard process sets it, and undoes it when the process that started it says so, is killed, or crashes. The guard is this
module as a script, in a session of its own, so that Ctrl-C and the end of a terminal don't reach it. It writes two
lines of JSON, {part: reason}: what it could not lock, and at the end what it could not give back.

NVML can't read the lock that another process has set; such a lock is reported and left alone.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from worklog.errors import BadSetting, WorklogError
from worklog.gpu.device import bus_id, environment, gpu, gpu_reason, nvml_handle, require_gpu

if TYPE_CHECKING:
    import numpy as np

    from worklog.runs import Gpu, Work

SUSTAINABLE = 0.9  # of the highest SM clock: power goes up with its cube, and a heavy kernel must not reach the limit
# between two supported clocks; time for a new clock to show
STEP_MHZ = 15
SETTLES_S = 0.5
APPLICATION_CLOCKS = 0x2  # nvml.h, nvmlClocksEventReasonApplicationsClocksSetting
WATCHED = "they are watched instead"
LOOK_S = 0.5
# what is changed, and given back
SM = "SM clock"
MEMORY = "memory clock"
PERSISTENCE = "persistence mode"
# Dense multiply-adds per SM and clock of tensor cores, by compute capability; `peaks` names the sources.
TENSOR = {
    (7, 0): {"fp16": 512},
    (7, 5): {"fp16": 512},
    (8, 0): {"tf32": 512, "fp16": 1024, "bf16": 1024, "fp64_tensor": 64},
    (8, 6): {"tf32": 256, "fp16": 512, "bf16": 512},
    (8, 9): {"tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024},
    (9, 0): {"tf32": 1024, "fp16": 2048, "bf16": 2048, "fp8": 4096, "fp64_tensor": 128},
    (10, 0): {"tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "fp64_tensor": 64},
    (12, 0): {"tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024},
}
FP64_LANES = {
    (7, 0): 32,
    (7, 5): 2,
    (8, 0): 32,
    (8, 6): 2,
    (8, 9): 2,
    (9, 0): 64,
    (10, 0): 64,
    (12, 0): 2,
}
DATAPATHS = ("fp32", "fp64", "tf32", "fp16", "bf16", "fp8", "fp64_tensor")
STALE_NS = 1_000_000  # a stamp so much older than another SM's is of an earlier sample
Held = tuple[str, list[str]]  # the `clocks` setting that holds, and remarks


class ClocksNotLocked(WorklogError):
    """The clocks cannot be locked here; the message says why, and what would help."""


class Clocks(ExitStack):
    """Holds the clocks as a `clocks` setting says, until it ends or gets another setting."""

    asked = ""
    held: Held = "", []

    def hold(self, requested: str) -> Held:
        """The setting that holds from now on: "locked" or "locked:1395" becomes "locked:" and the clock in MHz, or
        "watched", with the reason, where the clocks can't be locked. A lock that another process has set is a remark in
        either case. Raises BadSetting for a clock that the GPU doesn't support, and ClocksNotLocked where the lock
        before can't be given back.
        """
        if requested in (self.asked, self.held[0]):
            return self.held
        # what follows may fail
        self.asked = ""
        self.held = ("", [])
        self.close()
        name, _, mhz = requested.partition(":")
        held: Held = requested, []
        if gpu_reason() is None and name == "locked":
            try:
                held = self.enter_context(locked_clocks(int(float(mhz)) if mhz else None))
            except ClocksNotLocked as error:
                held = "watched", [str(error)]
        elif gpu_reason() is None and name == "watched":
            import pynvml

            with suppress(pynvml.NVMLError), nvml_handle() as handle:
                held = requested, _held_by_another(pynvml, handle)
        self.asked = requested
        self.held = held
        return held


@contextmanager
def locked_clocks(sm_mhz: int | None = None) -> Iterator[Held]:
    """Hold the clocks of CUDA's current GPU while the context is open: the memory clock at its highest, the SM clock at
    `sm_mhz` (default: nine tenths of its highest).

    Raises ClocksNotLocked without the permission (root), where another process holds the clocks, or at the end where
    they can't be unlocked, and BadSetting for a clock that the GPU doesn't support.
    """
    import pynvml as nvml

    with ExitStack() as opened:
        try:
            handle = opened.enter_context(nvml_handle())
            if held := _held_by_another(nvml, handle):
                raise ClocksNotLocked(*held)
            memories = nvml.nvmlDeviceGetSupportedMemoryClocks(handle)
            clocks = (
                nvml.nvmlDeviceGetSupportedGraphicsClocks(handle, max(memories)) if memories else []
            )
            if not clocks:
                raise ClocksNotLocked(
                    f"clocks: this GPU states no supported clocks to lock to; {WATCHED}"
                )
            sustainable = [clock for clock in clocks if clock <= SUSTAINABLE * max(clocks)] or [
                min(clocks)
            ]
            sm = max(sustainable) if sm_mhz is None else sm_mhz
            if sm not in clocks:
                nearest = min(clocks, key=lambda clock: abs(clock - sm))
                raise BadSetting(
                    f"SM clock {sm} MHz is not one that this GPU supports: the nearest is {nearest} MHz"
                )
            remarks = opened.enter_context(_guarded(nvml, handle, sm, max(memories)))
        except nvml.NVMLError as error:
            raise ClocksNotLocked(f"clocks: cannot lock (NVML: {error}); {WATCHED}") from error
        # An idle GPU may be below the lock; whether it runs at the lock under load, the samples show.
        ends = time.monotonic() + SETTLES_S
        while (now := int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))) > sm + STEP_MHZ:
            if time.monotonic() > ends:
                raise ClocksNotLocked(
                    f"clocks: locked to {sm} MHz, but the GPU runs at {now} MHz: the lock did not take; {WATCHED}"
                )
            time.sleep(SETTLES_S / 20)
        yield (
            f"locked:{sm}",
            [f"clocks locked to {sm} MHz SM, {max(memories)} MHz memory", *remarks],
        )


def _held_by_another(nvml: Any, handle: Any) -> list[str]:
    """The remark where another process's setting holds the SM clock."""
    if not nvml.nvmlDeviceGetCurrentClocksEventReasons(handle) & APPLICATION_CLOCKS:
        return []
    now = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
    return [
        f"clocks: held already, at {now} MHz, by a lock or by application clocks; left as found and watched "
        "(nvidia-smi -rgc and -rac release them)"
    ]


@contextmanager
def _guarded(nvml: Any, handle: Any, sm: int, memory: int) -> Iterator[list[str]]:
    """A guard that holds the clocks while the context is open, and remarks. A memory clock that can't be locked is one,
    since it is constant on many GPUs anyway. Raises ClocksNotLocked.
    """
    persistence = nvml.nvmlDeviceGetPersistenceMode(handle)
    given = (nvml.__name__, bus_id(), str(sm), str(memory), str(os.getpid()))
    guard = subprocess.Popen(
        [sys.executable, "-P", "-m", "worklog.gpu.clocks", *given],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=environment(),
    )
    assert guard.stdin is not None and guard.stdout is not None
    refused: dict[str, str] = {}
    try:
        if not (said := guard.stdout.readline()):
            raise ClocksNotLocked(
                f"clocks: not locked, the process that holds them ended with {guard.wait()}"
            )
        refused = json.loads(said)
        if (why := refused.get(SM) or refused.get(PERSISTENCE)) is not None:
            raise ClocksNotLocked(
                f"clocks: cannot lock (NVML: {why}); {WATCHED}. To lock: run as root"
            )
        yield [f"clocks: memory clock not locked (NVML: {why})" for why in refused.values()]
    finally:
        with suppress(BrokenPipeError):  # it was killed
            guard.stdin.write(
                b"\n"
            )  # closing isn't enough where a child of this process has the pipe too
        guard.stdin.close()
        failed = json.loads(guard.stdout.read() or "{}")
        guard.stdout.close()
        if guard.wait() < 0:
            failed = give_back(nvml, handle, persistence, refused)
    if failed:
        parts = "; ".join(f"{what}: {why}" for what, why in failed.items())
        raise ClocksNotLocked(
            f"clocks: not given back ({parts}): run nvidia-smi -rgc and -rmc as root"
        )


def refused_by(nvml: Any, calls: dict[str, Callable[[], object]]) -> dict[str, str]:
    """Make all calls, each even if another fails; returns which NVML refuses, and why. Its errors aren't raised."""
    failed = {}
    for name, call in calls.items():
        try:
            call()
        except nvml.NVMLError as error:
            failed[name] = str(error)
    return failed


def give_back(
    nvml: Any, handle: Any, persistence: int, untouched: Collection[str]
) -> dict[str, str]:
    """Reset both clocks and the persistence mode, but for what is untouched; returns what failed, and why."""
    resets = {
        SM: lambda: nvml.nvmlDeviceResetGpuLockedClocks(handle),
        MEMORY: lambda: nvml.nvmlDeviceResetMemoryLockedClocks(handle),
        PERSISTENCE: lambda: nvml.nvmlDeviceSetPersistenceMode(handle, persistence),
    }
    return refused_by(
        nvml, {name: reset for name, reset in resets.items() if name not in untouched}
    )


def guard(module: str, bus: str, sm: str, memory: str, parent: str) -> int:
    """Hold one GPU's clocks, in MHz; 1 if they could not be given back."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nvml: Any = importlib.import_module(module)
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByPciBusId(bus.encode())
    persistence = nvml.nvmlDeviceGetPersistenceMode(handle)
    locks = {
        PERSISTENCE: lambda: nvml.nvmlDeviceSetPersistenceMode(
            handle, 1
        ),  # else a lock ends with the last client
        SM: lambda: nvml.nvmlDeviceSetGpuLockedClocks(handle, int(sm), int(sm)),
        MEMORY: lambda: nvml.nvmlDeviceSetMemoryLockedClocks(handle, int(memory), int(memory)),
    }
    unlocked = refused_by(nvml, locks)
    with suppress(OSError):  # the parent may have ended
        os.write(1, f"{json.dumps(unlocked)}\n".encode())
    while os.getppid() == int(parent) and not select.select([0], [], [], LOOK_S)[0]:
        pass
    failed = give_back(nvml, handle, persistence, unlocked)
    said = "".join(
        f"worklog: clocks not given back: {what}: {why}\n" for what, why in failed.items()
    )
    for output, text in ((2, said), (1, json.dumps(failed))):
        with suppress(OSError):
            os.write(output, text.encode())
    return 1 if failed else 0


def clocks_between(
    starts: np.ndarray[Any, Any], stops: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """From stamps, (pairs, SMs, 2) of nanoseconds and cycles, to (pairs,) of MHz from start to stop: the median over
    the SMs that have both stamps, NaN where none has. All SMs stamp at once.
    """
    import numpy as np  # here: a guard needs none

    steps = (stops - starts).astype(
        np.int64
    )  # exact: as floats, nanoseconds since 1970 would step by 256
    usable = (steps > 0).all(axis=2) & (starts[..., 0] > 0)
    for stamps in (starts[..., 0], stops[..., 0]):
        usable &= stamps + STALE_NS > stamps.max(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = 1e3 * steps[..., 1] / steps[..., 0]
    return np.array(
        [
            np.median(pair[good]) if good.any() else np.nan
            for pair, good in zip(rates, usable, strict=True)
        ]
    )


class Peaks(dict[str, float]):
    """TFLOP/s by datapath at a clock, and gbs, the memory's GB/s. fp32 and fp64 are CUDA cores, the others tensor
    cores without sparsity. As a context manager it locks the clocks and gives the peaks at the clock that is held.
    """

    def __init__(self, card: Gpu, sm_mhz: float) -> None:
        lanes = {"fp32": 1e6 * card.fp32_peak_tflops / 2 / card.multiprocessors / card.sm_clock_mhz}
        if card.compute_capability in FP64_LANES:
            lanes["fp64"] = FP64_LANES[card.compute_capability]
        lanes |= TENSOR.get(card.compute_capability, {})
        rate = 2 * card.multiprocessors * sm_mhz / 1e6
        super().__init__({name: lanes[name] * rate for name in DATAPATHS if name in lanes})
        self.card = card
        self.sm_mhz = sm_mhz
        self.gbs = card.memory_peak_gbs

    def of(self, datapath: str) -> float:
        """TFLOP/s of a datapath. Raises BadSetting where the GPU has none of that name, or its rate isn't known."""
        if datapath not in self:
            raise BadSetting(f"datapath = {datapath}: {self.card.name} has {', '.join(self)}")
        return self[datapath]

    def impossible(self, us: float, work: Work) -> list[str]:
        """What can't be done in `us` microseconds: a rate above each peak, if those of tensor cores are known, and
        bytes beyond what L2 may hold, read or not yet written back, above the memory's peak.
        """
        name = max(self, key=self.__getitem__)
        beyond_peak = list[tuple[str, str]]()
        if (
            self.card.compute_capability in TENSOR
            and (rate := (work.flops or 0) / us / 1e6) > self[name]
        ):
            beyond_peak.append(
                (f"{rate:.4g} TFLOP/s", f"the highest peak, {self[name]:.4g} (dense {name})")
            )
        beyond = [
            max(0, (moved or 0) - self.card.l2_bytes)
            for moved in (work.bytes_read, work.bytes_written)
        ]
        if (gbs := sum(beyond) / us / 1e3) > self.gbs:
            beyond_peak.append(
                (f"{gbs:.4g} GB/s beyond what L2 holds", f"the memory's peak, {self.gbs:.4g}")
            )
        return [
            f"rate: {rate} is above {peak}: the time or the stated work is wrong"
            for rate, peak in beyond_peak
        ]

    def __enter__(self) -> Peaks:
        self._lock = locked_clocks()
        held, _ = self._lock.__enter__()
        return Peaks(self.card, float(held.partition(":")[2]))

    def __exit__(self, *raised: Any) -> None:
        self._lock.__exit__(*raised)


def peaks(sm_mhz: float | None = None) -> Peaks:
    """The peaks of this GPU in TFLOP/s by datapath (fp32, fp64; tf32, fp16, bf16, fp8, fp64_tensor), at `sm_mhz`
    (default: the highest SM clock that the driver states). Raises NoGpu; as a context manager, which locks the clocks,
    ClocksNotLocked.

    All rates are dense, without sparsity: SMs x clock x twice the table's number, which is that of NVIDIA's published
    rates at their clock (tests/harness/test_device.py has both). sm_70, sm_80: A100 white paper (2020). sm_75: Turing
    white paper (WP-09183-001, 2018). sm_86: A40 data sheet, GA102 white paper (V2.0, 2021). sm_89: Ada white paper
    (V2.1, 2023), appendix A. sm_90: H100 white paper (2022) and data sheet, SXM5. sm_100: HGX B200 data sheet (2025),
    which prints twice tf32, fp16, bf16 and fp8, with sparsity. sm_120: RTX Blackwell white paper (2025). fp64 of sm_75,
    sm_86, sm_89 and sm_120: CUDA C++ Programming Guide, "arithmetic instructions".
    NVIDIA takes tensor cores' rates at a lower clock than the highest one of sm_90 and sm_100; these are at `sm_mhz`.
    GeForce GPUs of sm_75, sm_86, sm_89 and sm_120 reach half of tf32, and of fp16, bf16 and fp8 where they accumulate
    in FP32.

    Example: `worklog.peaks()["bf16"]`, or `with worklog.peaks() as held: print(held["fp32"], held.gbs)`.
    """
    require_gpu()
    card = gpu()
    return Peaks(card, card.sm_clock_mhz if sm_mhz is None else sm_mhz)


if __name__ == "__main__":
    sys.exit(guard(*sys.argv[1:]))
