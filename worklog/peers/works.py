"""What the peers time: work that can be enqueued on any stream, since each harness brings its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from worklog.peers.rulers import Work
from worklog.problem.gemm import Shape, random_inputs

if TYPE_CHECKING:
    from worklog.bench.session import Session


def works_on(session: Session, known_us: Sequence[int], sizes: Sequence[int]) -> list[Work]:
    """Kernels of known length in microseconds and FP32 cuBLAS at some sizes, each launched once, so that nothing is
    loaded later. Raises LaunchFailed, OutOfMemory.
    """
    works = [*(_spin(session, us) for us in known_us), *(_cublas(session, size) for size in sizes)]
    for work in works:
        work.enqueue(session.device.stream)
    session.device.synchronize()
    return works


def _spin(session: Session, us: int) -> Work:
    function = session.timeline.module.get_function("ruler_spin")
    arguments = (np.uint64(1000 * us),)

    def enqueue(stream: Any) -> None:
        with stream:
            function((1,), (1,), arguments)

    return Work("spin", us, enqueue)


def _cublas(session: Session, size: int) -> Work:
    from worklog.gpu.cuda import Cublas, CudaDevice

    shape, device = Shape(size, size, size), CudaDevice()
    product = Cublas(device)
    a, b = map(device.upload, random_inputs(shape, np.random.default_rng(0)))
    c = device.upload(np.zeros(size * size, np.float32))
    device.synchronize()

    def enqueue(stream: Any) -> None:
        device.stream = stream
        if stream.is_capturing():
            product.follow(stream)
        product.enqueue(shape, 1.0, a, b, 0.0, c)

    return Work("cuBLAS", size, enqueue)
