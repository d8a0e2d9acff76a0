"""The workers of a sweep: a worker that measures on each card, and workers that compile and check.

On a single card they are threads of this process. On several cards, of one host or of many, they
are workers of a Dask cluster. Each measures in a child process of its own.

A worker that dies loses only its current point, which Dask assigns to another worker. A kernel that
ends its process fails, and its worker continues.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, NamedTuple, Self

from worklog.errors import BadSetting, Interrupted, install_command
from worklog.kernel import Kernel
from worklog.runner.child import Ended, run_child
from worklog.runner.execute import limit_s
from worklog.runner.job import Job
from worklog.runner.messages import MeasureOrder, NextJob
from worklog.runs import Measurement, Ran, Verdict, read_line
from worklog.runs.files import tool
from worklog.settings import Harness

THREADS = os.cpu_count() or 1
PROCESSES = min(THREADS, 8)  # of a local cluster that compile and check
CONNECT_S = 10.0
RESTART_S = 30.0
ATTEMPTS = 2  # to measure a point, before it fails because its workers die


class CardResult(NamedTuple):
    """The result of a worker."""

    card: str  # its name
    head: Sequence[str]  # the lines of a run's head on this card, if there was no job
    m: Measurement | None = None
    about: Mapping[str, Any] = {}  # the kernel's description

    @property
    def measurement(self) -> Measurement:
        """The job's measurement."""
        assert self.m is not None
        return self.m


def card_name() -> str:
    """Return the host, and the number of the card that is visible here."""
    return f"{platform.node()}:{os.environ.get('CUDA_VISIBLE_DEVICES', '0')}"


class Child(NamedTuple):
    """A process that measures job after job on the card that is visible here."""

    sweep: str  # the name of the sweep that the process works for
    stop: threading.Event
    answers: Generator[Any, Any]


_child: Child | None = None  # of this process


def on_card(
    job: Job | None,
    kernels: Mapping[str, Kernel],
    *,
    sweep: str,
    harness: Harness,
    command: Sequence[str] | None,
) -> CardResult:
    """Measure a job in the worker's child.

    Without a job, start the child and return its head. A kernel that ends the child fails.

    kernels: the user kernels that the job names

    Raises what worklog.measure raises, and Interrupted once another thread has called end_child().
    """
    global _child
    began = time.time()
    head = []
    try:
        if _child is None or _child.sweep != sweep:
            end_child()
            order = MeasureOrder(jobs=None, harness=harness, user_kernels={})
            stop = threading.Event()
            timeout_s = limit_s([job] if job else [], harness)
            answers = run_child(order, timeout_s=timeout_s, stop=stop, command=command)
            if isinstance(answer := next(answers), Ended):
                raise answer.error()
            _child = Child(sweep, stop, answers)
            head = answer.head
        if job is None:
            return CardResult(card_name(), head)
        answers = _child.answers
        answer = next(answers)  # it is waiting, or has ended since
        if not isinstance(answer, Ended):
            answer = answers.send(NextJob(job, kernels))
    except KeyboardInterrupt:
        raise Interrupted("interrupted: the sweep has ended") from None
    if isinstance(answer, Ended):
        _child = None
        stage = answer.stage(kernels.get(job.kernel))
        m = job.failed(Verdict((stage,), None))
        about = kernels[job.kernel].describe()
    else:
        m = read_line(answer.line)
        about = answer.description
    ran = Ran(card_name(), began, time.time() - began)
    return CardResult(ran.card, head, replace(m, ran=ran), about)


def end_child() -> None:
    """End this process's child, which frees the card.

    Any thread may call this, also while another one measures.
    """
    global _child
    if _child is not None:
        _child.stop.set()
        with suppress(ValueError):  # the measuring thread runs the generator, and closes it
            _child.answers.close()
    _child = None


class Workers:
    """Threads of this process, which measures on one card. Use it in `with`.

    cpu: compiles and checks
    gpu: measures
    """

    lost: tuple[type[Exception], ...] = ()  # raised by a job that several workers died of

    def __init__(self) -> None:
        self.cpu: Executor = ThreadPoolExecutor(THREADS)
        self.gpu: Executor = ThreadPoolExecutor(1)

    @property
    def each_card(self) -> list[Executor]:
        """The executors that measure, an executor per card."""
        return [self.gpu]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end_child()
        for executor in (self.cpu, self.gpu):
            executor.shutdown(cancel_futures=True)


class Cluster(Workers):
    """Workers of a Dask cluster.

    scheduler: the address of a running scheduler; "" starts a new scheduler on this machine, with
        a worker for each card and some workers for the cores
    cards: as CUDA_VISIBLE_DEVICES names them

    Raises BadSetting if `distributed` is missing, the scheduler doesn't answer, or a necessary
    worker is missing.
    """

    def __init__(self, scheduler: str = "", cards: Sequence[str] = ()) -> None:
        try:
            import dask
            from distributed import Client, Nanny, Scheduler, SpecCluster
            from distributed.scheduler import KilledWorker
        except ImportError as error:
            raise BadSetting(f"several cards need Dask: {install_command('cluster')}") from error
        self.lost = (KilledWorker,)
        self.stack = ExitStack()
        self.is_local = not scheduler
        # Dask asks NVML for each card by its number. That fails if a recording's cards stand for
        # this machine's.
        dask.config.set(
            {
                "distributed.scheduler.allowed-failures": ATTEMPTS - 1,
                "distributed.diagnostics.nvml": False,
            }
        )
        if self.is_local:
            # A process that starts reads __spec__; an IPython in another program has none.
            vars(sys.modules["__main__"]).setdefault("__spec__", None)
            common = {"memory_limit": 0, "silence_logs": 50}
            environments = [{"CUDA_VISIBLE_DEVICES": card} for card in cards]
            options = [
                {"nthreads": 1, "resources": {"gpu": 1}, "env": environment, **common}
                for environment in environments
            ]
            cores = -(-THREADS // PROCESSES)
            options += [
                {"nthreads": cores, "resources": {"cpu": cores}, **common} for _ in range(PROCESSES)
            ]
            workers = {
                number: {"cls": Nanny, "options": worker_options}
                for number, worker_options in enumerate(options)
            }
            quiet = {"cls": Scheduler, "options": {"dashboard": False, "dashboard_address": ":0"}}
            started = SpecCluster(workers, quiet, silence_logs=50)  # type: ignore[no-untyped-call]
            scheduler = self.stack.enter_context(started)
        try:
            client = Client(scheduler, timeout=CONNECT_S)  # type: ignore[no-untyped-call]
            self.client = self.stack.enter_context(client)
        except OSError as error:
            raise BadSetting(
                f"no scheduler answers at {scheduler}: start one with `dask scheduler`"
            ) from error
        if self.is_local:
            self.client.wait_for_workers(len(options))
        self.require_workers()
        self.count = len(self.client.scheduler_info(n_workers=-1)["workers"])
        self.cpu = self.client.get_executor(pure=False, resources={"cpu": 1})
        self.gpu = self.client.get_executor(pure=False, resources={"gpu": 1})

    def with_resource(self, name: str) -> list[str]:
        """Return the addresses of the workers that have a resource."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        return [address for address, worker in workers.items() if worker["resources"].get(name)]

    def require_workers(self) -> None:
        """Raise BadSetting if no worker compiles, or worklog's versions differ."""
        if not self.with_resource("cpu"):
            address = self.client.scheduler_info()["address"]
            self.stack.close()
            raise BadSetting(
                f"no worker of the cluster compiles: dask worker {address} --resources cpu=8"
            )
        versions = self.client.run(tool)
        different = {address: version for address, version in versions.items() if version != tool()}
        if different:
            self.stack.close()
            address, version = different.popitem()
            release = f"{version['version']} {version.get('commit', '')}".strip()
            raise BadSetting(
                f"the worker at {address} has worklog {release}: install the same there"
            )

    @property
    def each_card(self) -> list[Executor]:
        """The executors that measure, an executor per card.

        If a card's worker has died, its executor uses another worker. Raises BadSetting if no
        worker measures.
        """
        with suppress(TimeoutError):  # a worker that died restarts, for a while
            self.client.wait_for_workers(self.count, timeout=RESTART_S)
        addresses = self.with_resource("gpu")
        if not addresses:
            address = self.client.scheduler_info()["address"]
            command = f"CUDA_VISIBLE_DEVICES=0 dask worker {address} --nthreads 1 --resources gpu=1"
            raise BadSetting(
                f"no worker of the cluster measures: start one for each card: {command}"
            )
        options: dict[str, Any] = {
            "pure": False,
            "resources": {"gpu": 1},
            "allow_other_workers": True,
        }
        return [self.client.get_executor(workers=[address], **options) for address in addresses]

    def __exit__(self, *_: object) -> None:
        if not self.is_local:
            self.client.run(end_child, workers=self.with_resource("gpu"))
        self.stack.close()
