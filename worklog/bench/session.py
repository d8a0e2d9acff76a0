"""A GPU made ready to gate and to time: what is made once and used for every measurement of a run."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from worklog.bench.tasks import BASELINE
from worklog.errors import OutOfMemory
from worklog.gate import Checker, Verdict
from worklog.gpu.device import require_gpu
from worklog.kernel.host_function import HostCallable
from worklog.kernel.kernel import Program, RungSubject, Subject
from worklog.kernel.ladder import rung
from worklog.problem.gemm import Shape

if TYPE_CHECKING:
    from worklog.gpu.cuda import CudaDevice
    from worklog.harness.calibration import Calibration
    from worklog.harness.cuda_timeline import CudaTimeline
    from worklog.kernel.user_kernel import Brought


class Session:
    """A GPU made ready: the device, the calibrated ruler, compiled kernels, and the exam of the shape at hand.

    brought: what users brought, by name, beside the rungs. calibration: the ruler's, where it was just calibrated in
    another process on this GPU (default: it is, here). Raises NoGpu.
    """

    def __init__(self, brought: Mapping[str, Brought] | None = None, calibration: Calibration | None = None) -> None:
        require_gpu()  # first: without a driver, CuPy's libraries do not even import
        from worklog.gpu.cuda import Cublas, CudaDevice
        from worklog.harness.calibration import calibrate
        from worklog.harness.cuda_timeline import CudaTimeline

        self.device: CudaDevice = CudaDevice()
        self.timeline: CudaTimeline = CudaTimeline(self.device)
        self.calibration: Calibration = calibration or calibrate(self.timeline)
        self.baselines: dict[str, Subject] = {math: Cublas(self.device, math) for math in ("fp32", "tf32")}
        self.brought = brought or {}
        self._subjects: dict[str, Subject] = {BASELINE: self.baselines["fp32"]}
        self._exams: dict[Shape, Checker] = {}
        self._verdicts: dict[tuple[str, Shape, bool | str], Verdict] = {}

    def subject(self, name: str) -> Subject:
        """The kernel of that name, compiled once. Raises UnknownRung or CompileFailed."""
        if name not in self._subjects:
            theirs = self.brought.get(name)
            self._subjects[name] = theirs.subject(self.device) if theirs else RungSubject(rung(name), self.device)
        return self._subjects[name]

    def never_launched(self, name: str) -> Subject:
        """The same kernel in a module of its own, so that its next launch is its first; cuBLAS has no such thing."""
        if name == BASELINE:
            return self.subject(name)
        if name in self.brought:
            return self.brought[name].subject(self.device, fresh=True)
        program = Program.of(rung(name))
        fresh = replace(program, source=f"{program.source}\n// {secrets.token_hex(8)}\n")
        return RungSubject(rung(name), self.device, fresh)

    def exam(self, shape: Shape) -> Checker:
        """The questions for a shape; the last shape's are dropped, since their matrices fill memory. Raises
        OutOfMemory.
        """
        if shape not in self._exams:
            self._exams.clear()
            try:
                self._exams[shape] = Checker(self.device, shape, secrets.randbits(63))
            except MemoryError as error:
                raise OutOfMemory(f"size {shape} does not fit the host's memory: take a smaller one") from error
        return self._exams[shape]

    def require_memory(self, shape: Shape) -> None:
        """Raise OutOfMemory, before anything is measured, for a shape that cannot fit the GPU."""
        needed = shape.compulsory_bytes + 4 * shape.m * shape.n  # A, B and C, and a C of the baseline's own
        free = self.device.free_bytes()
        if needed > free:
            raise OutOfMemory(
                f"size {shape} needs {needed / 1e9:.1f} GB on the GPU, which has {free / 1e9:.1f} GB free: "
                "take a smaller size"
            )

    def claimed(self, name: str) -> str:
        """The precision class that the kernel must have at least."""
        return self.brought[name].claimed if name in self.brought else "fp32"

    def verdict(self, name: str, shape: Shape, gate: bool | str = True) -> Verdict:
        """The gate's word on a kernel at a shape, asked once; with gate "article", the article's rule instead."""
        if (name, shape, gate) not in self._verdicts:
            subject = self.subject(name)
            exam = self.exam(shape)
            by_article = gate == "article"
            found = exam.check_by_article(subject) if by_article else exam.check(subject, self.claimed(name))
            self._verdicts[name, shape, gate] = found
        return self._verdicts[name, shape, gate]

    def is_host_function(self, name: str) -> bool:
        """Whether its own code launches it, maybe on streams of its own."""
        return isinstance(self.brought.get(name), HostCallable)
