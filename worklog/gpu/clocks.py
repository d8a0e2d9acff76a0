"""The clocks, and the theoretical peaks at a clock.

The clocks are locked during a measurement if the driver permits it, and unlocked at its end,
however it ends. A peak is the number of SMs times the operations per SM and cycle times the clock.

Power and heat override a lock, so the samples' clocks are still watched. A lock outlives the
process that set it, so a guard process sets it. The guard undoes the lock when the process that
started it says so, is killed, or crashes. The guard is this module as a script, in a session of
its own, so that Ctrl-C and the end of a terminal don't reach it. It writes two lines of JSON,
{part: reason}: first what it could not lock, and at the end what it could not reset.

NVML can't read the lock that another process has set. Such a lock is reported and left alone.
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
from typing import TYPE_CHECKING, Any, Literal, get_args

from worklog.errors import BadSetting, ClocksNotLocked
from worklog.gpu.device import bus_id, environment, gpu, gpu_reason, nvml_handle, require_gpu

if TYPE_CHECKING:
    import numpy as np

    from worklog.runs import Gpu, Work

# Of the highest SM clock: power goes up with its cube, and a heavy kernel must not reach the limit
SUSTAINABLE = 0.9
STEP_MHZ = 15  # between two supported clocks
SETTLES_S = 0.5  # time for a new clock to show
APPLICATION_CLOCKS = 0x2  # nvml.h, nvmlClocksEventReasonApplicationsClocksSetting
WATCHED = "they are watched instead"
LOOK_S = 0.5
# The parts that are changed, and reset
SM = "SM clock"
MEMORY = "memory clock"
PERSISTENCE = "persistence mode"
# Dense multiply-adds per SM and clock of tensor cores, by compute capability. `peaks` names the
# sources.
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
Datapath = Literal["fp32", "fp64", "tf32", "fp16", "bf16", "fp8", "fp64_tensor"]
DATAPATHS: tuple[Datapath, ...] = get_args(Datapath)
STALE_NS = 1_000_000  # a stamp so much older than another SM's is of an earlier sample
ClockState = tuple[str, list[str]]  # the `clocks` setting in force, and remarks


class Clocks(ExitStack):
    """The clocks of a `clocks` setting, until the context ends or gets another setting."""

    requested = ""
    state: ClockState = "", []

    def hold(self, requested: str) -> ClockState:
        """Put a setting in force, and return the setting in force from now on.

        "locked" or "locked:1395" becomes "locked:" and the clock in MHz, or "watched", with the
        reason, if the clocks can't be locked. A lock that another process has set is a remark in
        either case.

        Raises BadSetting for a clock that the GPU doesn't support, and ClocksNotLocked if the lock
        before can't be reset.
        """
        if requested in (self.requested, self.state[0]):
            return self.state
        # What follows may fail.
        self.requested = ""
        self.state = ("", [])
        self.close()
        name, _, mhz = requested.partition(":")
        state: ClockState = requested, []
        if gpu_reason() is None and name == "locked":
            try:
                state = self.enter_context(locked_clocks(int(float(mhz)) if mhz else None))
            except ClocksNotLocked as error:
                state = "watched", [str(error)]
        elif gpu_reason() is None and name == "watched":
            import pynvml

            with suppress(pynvml.NVMLError), nvml_handle() as handle:
                state = requested, _held_by_another(pynvml, handle)
        self.requested = requested
        self.state = state
        return state


@contextmanager
def locked_clocks(sm_mhz: int | None = None) -> Iterator[ClockState]:
    """Lock the clocks of CUDA's current GPU while the context is open.

    The memory clock is locked at its highest.

    sm_mhz: the SM clock (default: nine tenths of its highest)

    Raises ClocksNotLocked without the permission (root), if another process holds the clocks, or at
    the end if they can't be unlocked. Raises BadSetting for a clock that the GPU doesn't support.
    """
    import pynvml as nvml

    with ExitStack() as stack:
        try:
            handle = stack.enter_context(nvml_handle())
            remarks = _held_by_another(nvml, handle)
            if remarks:
                raise ClocksNotLocked(*remarks)
            sm_mhz, memory_mhz = _clocks_to_lock(nvml, handle, sm_mhz)
            remarks = stack.enter_context(_guarded(nvml, handle, sm_mhz, memory_mhz))
        except nvml.NVMLError as error:
            raise ClocksNotLocked(f"clocks: can't lock (NVML: {error}); {WATCHED}") from error
        _require_in_force(nvml, handle, sm_mhz)
        remark = f"clocks locked to {sm_mhz} MHz SM, {memory_mhz} MHz memory"
        yield f"locked:{sm_mhz}", [remark, *remarks]


def _clocks_to_lock(nvml: Any, handle: Any, sm_mhz: int | None) -> tuple[int, int]:
    """Return the SM and memory clocks to lock to, in MHz.

    sm_mhz: the SM clock that is requested, or None

    Raises ClocksNotLocked if the GPU states no clocks, and BadSetting for an unsupported clock.
    """
    memory_clocks = nvml.nvmlDeviceGetSupportedMemoryClocks(handle)
    clocks = []
    if memory_clocks:
        clocks = nvml.nvmlDeviceGetSupportedGraphicsClocks(handle, max(memory_clocks))
    if not clocks:
        raise ClocksNotLocked(f"clocks: this GPU states no supported clocks to lock to; {WATCHED}")
    if sm_mhz is None:
        sustainable = [clock for clock in clocks if clock <= SUSTAINABLE * max(clocks)]
        sm_mhz = max(sustainable) if sustainable else min(clocks)
    if sm_mhz not in clocks:
        distances = {clock: abs(clock - sm_mhz) for clock in clocks}
        nearest = min(distances, key=distances.__getitem__)
        raise BadSetting(
            f"SM clock {sm_mhz} MHz isn't supported by this GPU: the nearest is {nearest} MHz"
        )
    return sm_mhz, max(memory_clocks)


def _require_in_force(nvml: Any, handle: Any, sm_mhz: int) -> None:
    """Wait until the lock shows. Raises ClocksNotLocked if it doesn't.

    An idle GPU may be below the lock. The samples show if the GPU runs at the lock under load.
    """
    deadline_s = time.monotonic() + SETTLES_S
    while True:
        mhz = int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        if mhz <= sm_mhz + STEP_MHZ:
            return
        if time.monotonic() > deadline_s:
            raise ClocksNotLocked(
                f"clocks: locked to {sm_mhz} MHz, but the GPU runs at {mhz} MHz: the lock did not "
                f"take; {WATCHED}"
            )
        time.sleep(SETTLES_S / 20)


def _held_by_another(nvml: Any, handle: Any) -> list[str]:
    """Return the remark if another process's setting holds the SM clock."""
    if not nvml.nvmlDeviceGetCurrentClocksEventReasons(handle) & APPLICATION_CLOCKS:
        return []
    mhz = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
    return [
        (
            f"clocks: held already, at {mhz} MHz, by a lock or by application clocks; left as "
            "found and watched (nvidia-smi -rgc and -rac release them)"
        )
    ]


@contextmanager
def _guarded(nvml: Any, handle: Any, sm_mhz: int, memory_mhz: int) -> Iterator[list[str]]:
    """Run a guard that holds the clocks while the context is open, and yield remarks.

    A memory clock that can't be locked is a remark, since it is constant on many GPUs anyway.

    Raises ClocksNotLocked.
    """
    persistence = nvml.nvmlDeviceGetPersistenceMode(handle)
    arguments = (nvml.__name__, bus_id(), str(sm_mhz), str(memory_mhz), str(os.getpid()))
    guard = subprocess.Popen(
        [sys.executable, "-P", "-m", "worklog.gpu.clocks", *arguments],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=environment(),
    )
    assert guard.stdin is not None and guard.stdout is not None
    refused: dict[str, str] = {}
    try:
        line = guard.stdout.readline()
        if not line:
            raise ClocksNotLocked(
                f"clocks: not locked, the process that holds them ended with {guard.wait()}"
            )
        refused = json.loads(line)
        reason = refused.get(SM) or refused.get(PERSISTENCE)
        if reason is not None:
            raise ClocksNotLocked(
                f"clocks: can't lock (NVML: {reason}); {WATCHED}. To lock: run as root"
            )
        yield [f"clocks: memory clock not locked (NVML: {reason})" for reason in refused.values()]
    finally:
        with suppress(BrokenPipeError):  # it was killed
            # Closing isn't enough if a child of this process also has the pipe.
            guard.stdin.write(b"\n")
        guard.stdin.close()
        failed = json.loads(guard.stdout.read() or "{}")
        guard.stdout.close()
        if guard.wait() < 0:
            failed = give_back(nvml, handle, persistence, refused)
    if failed:
        parts = "; ".join(f"{part}: {reason}" for part, reason in failed.items())
        raise ClocksNotLocked(
            f"clocks: not given back ({parts}): run nvidia-smi -rgc and -rmc as root"
        )


def refused_by(nvml: Any, calls: dict[str, Callable[[], object]]) -> dict[str, str]:
    """Make all calls, each even if another fails.

    Returns which calls NVML refuses, and why. NVML's errors aren't raised.
    """
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
    """Reset both clocks and the persistence mode, except parts that are untouched.

    Returns which parts failed, and why.
    """
    resets = {
        SM: lambda: nvml.nvmlDeviceResetGpuLockedClocks(handle),
        MEMORY: lambda: nvml.nvmlDeviceResetMemoryLockedClocks(handle),
        PERSISTENCE: lambda: nvml.nvmlDeviceSetPersistenceMode(handle, persistence),
    }
    return refused_by(
        nvml, {name: reset for name, reset in resets.items() if name not in untouched}
    )


def guard(module: str, bus: str, sm: str, memory: str, parent: str) -> int:
    """Hold a GPU's clocks, in MHz, until the parent ends or writes a line.

    Returns the exit code: 1 if the clocks could not be reset.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nvml: Any = importlib.import_module(module)
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByPciBusId(bus.encode())
    persistence = nvml.nvmlDeviceGetPersistenceMode(handle)
    locks = {
        # Without persistence, a lock ends with the last client.
        PERSISTENCE: lambda: nvml.nvmlDeviceSetPersistenceMode(handle, 1),
        SM: lambda: nvml.nvmlDeviceSetGpuLockedClocks(handle, int(sm), int(sm)),
        MEMORY: lambda: nvml.nvmlDeviceSetMemoryLockedClocks(handle, int(memory), int(memory)),
    }
    unlocked = refused_by(nvml, locks)
    with suppress(OSError):  # the parent may have ended
        os.write(1, f"{json.dumps(unlocked)}\n".encode())
    while os.getppid() == int(parent) and not select.select([0], [], [], LOOK_S)[0]:
        pass
    failed = give_back(nvml, handle, persistence, unlocked)
    message = "".join(
        f"worklog: clocks not given back: {part}: {reason}\n" for part, reason in failed.items()
    )
    for output, text in ((2, message), (1, json.dumps(failed))):
        with suppress(OSError):
            os.write(output, text.encode())
    return 1 if failed else 0


def clocks_between(
    starts: np.ndarray[Any, Any], stops: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Return the SM clock in MHz of each pair of stamps, from start to stop.

    starts, stops: (pairs, SMs, 2) of nanoseconds and cycles; all SMs stamp at once

    Returns (pairs,): the median over the SMs that have both stamps, NaN if none has.
    """
    import numpy as np  # here: a guard doesn't need it

    # Exact: as floats, nanoseconds since 1970 would step by 256.
    steps = (stops - starts).astype(np.int64)
    usable = (steps > 0).all(axis=2) & (starts[..., 0] > 0)
    for stamps in (starts[..., 0], stops[..., 0]):
        usable &= stamps + STALE_NS > stamps.max(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = 1e3 * steps[..., 1] / steps[..., 0]
    medians = []
    for pair_rates, is_usable in zip(rates, usable, strict=True):
        medians.append(np.median(pair_rates[is_usable]) if is_usable.any() else np.nan)
    return np.array(medians)


class Peaks(dict[str, float]):
    """TFLOP/s by datapath at a clock, and gbs, the memory's GB/s.

    fp32 and fp64 are CUDA cores. The others are tensor cores without sparsity. As a context manager
    it locks the clocks, and yields the peaks at the clock that is locked.
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
        """Return the TFLOP/s of a datapath.

        Raises BadSetting if the GPU has no datapath of that name, or if its rate isn't known.
        """
        if datapath not in self:
            raise BadSetting(f"datapath = {datapath}: {self.card.name} has {', '.join(self)}")
        return self[datapath]

    def impossible(self, us: float, work: Work) -> list[str]:
        """Return what can't be done in `us` microseconds.

        That is a rate above each peak, if the peaks of tensor cores are known, and bytes beyond
        what L2 may hold, read or not yet written back, above the memory's peak.
        """
        exceeded = list[tuple[str, str]]()
        fastest = max(self, key=self.__getitem__)
        tflops = (work.flops or 0) / us / 1e6
        if self.card.compute_capability in TENSOR and tflops > self[fastest]:
            peak = f"the highest peak, {self[fastest]:.4g} (dense {fastest})"
            exceeded.append((f"{tflops:.4g} TFLOP/s", peak))
        beyond_l2 = 0
        for bytes_moved in (work.bytes_read, work.bytes_written):
            beyond_l2 += max(0, (bytes_moved or 0) - self.card.l2_bytes)
        gbs = beyond_l2 / us / 1e3
        if gbs > self.gbs:
            peak = f"the memory's peak, {self.gbs:.4g}"
            exceeded.append((f"{gbs:.4g} GB/s beyond what L2 holds", peak))
        return [
            f"rate: {rate} is above {peak}: the time or the stated work is wrong"
            for rate, peak in exceeded
        ]

    def __enter__(self) -> Peaks:
        self._lock = locked_clocks()
        setting, _ = self._lock.__enter__()
        return Peaks(self.card, float(setting.partition(":")[2]))

    def __exit__(self, *raised: Any) -> None:
        self._lock.__exit__(*raised)


def peaks(sm_mhz: float | None = None) -> Peaks:
    """Return the peaks of this GPU in TFLOP/s by datapath.

    The datapaths are fp32, fp64; tf32, fp16, bf16, fp8, fp64_tensor.

    sm_mhz: the SM clock (default: the highest clock that the driver states)

    Raises NoGpu. As a context manager, which locks the clocks, raises ClocksNotLocked.

    All rates are dense, without sparsity: SMs x clock x twice the table's number. The numbers are
    those of NVIDIA's published rates at their clock (tests/harness/test_device.py has both). sm_70,
    sm_80: A100 white paper (2020). sm_75: Turing white paper (WP-09183-001, 2018). sm_86: A40 data
    sheet, GA102 white paper (V2.0, 2021). sm_89: Ada white paper (V2.1, 2023), appendix A. sm_90:
    H100 white paper (2022) and data sheet, SXM5. sm_100: HGX B200 data sheet (2025), which prints
    twice tf32, fp16, bf16 and fp8, with sparsity. sm_120: RTX Blackwell white paper (2025). fp64 of
    sm_75, sm_86, sm_89 and sm_120: CUDA C++ Programming Guide, "arithmetic instructions".

    NVIDIA states tensor cores' rates at a lower clock than the highest clock of sm_90 and sm_100;
    these are at `sm_mhz`. GeForce GPUs of sm_75, sm_86, sm_89 and sm_120 reach half of tf32, and of
    fp16, bf16 and fp8 if they accumulate in FP32.

    Example: `worklog.peaks()["bf16"]`, or
    `with worklog.peaks() as held: print(held["fp32"], held.gbs)`.
    """
    require_gpu()
    card = gpu()
    return Peaks(card, card.sm_clock_mhz if sm_mhz is None else sm_mhz)


if __name__ == "__main__":
    sys.exit(guard(*sys.argv[1:]))
