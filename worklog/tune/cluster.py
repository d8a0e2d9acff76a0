"""Who does the work of a sweep: a worker that measures on each card, and others that compile and check. On one card
they are threads of this process; on several, of one host or of many, they are workers of a Dask cluster.

A worker that dies loses its current point only: Dask gives that to another one. A kernel that ends the process in which
it is measured fails, and its worker goes on.
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
from worklog.runner.measure import Job, limit_s
from worklog.runs import Measurement, Ran, Verdict, read_line, tool
from worklog.settings import Harness

THREADS = os.cpu_count() or 1
PROCESSES = min(THREADS, 8)  # of a local cluster that compile and check
CONNECT_S = 10.0
RESTART_S = 30.0
ATTEMPTS = 2  # to measure a point, before it fails because its workers die


class Measured(NamedTuple):
    """What a worker found. card: its name. head: the lines of a run's head on this card, if it was asked for that
    alone. about: the kernel.
    """

    card: str
    head: Sequence[str]
    m: Measurement | None = None
    about: Mapping[str, Any] = {}

    @property
    def measurement(self) -> Measurement:
        """Of the job."""
        assert self.m is not None
        return self.m


def card_name() -> str:
    """The host, and the number of the card that is visible here."""
    return f"{platform.node()}:{os.environ.get('CUDA_VISIBLE_DEVICES', '0')}"


class Child(NamedTuple):
    """A process that measures one job after another on the card that is visible here. sweep: for which it does."""

    sweep: str
    stop: threading.Event
    answers: Generator[Any, Any]


_child: Child | None = None  # of this process


def on_card(
    sweep: str,
    harness: Harness,
    command: Sequence[str] | None,
    job: Job | None,
    kernels: Mapping[str, Kernel],
) -> Measured:
    """What a worker does: measure a job in its child; without a job, start that and give its head. kernels: the user
    kernels that the job names. A kernel that ends the child fails. Raises Interrupted once another thread has called
    end_child(), and as worklog.measure.
    """
    global _child
    began = time.time()
    head = []
    try:
        if _child is None or _child.sweep != sweep:
            end_child()
            order = {"do": "measure", "harness": harness, "user_kernels": {}}
            stop = threading.Event()
            timeout_s = limit_s([job] if job else [], harness)
            answers = run_child(order, timeout_s=timeout_s, stop=stop, command=command)
            if isinstance(answer := next(answers), Ended):
                raise answer.error()
            _child = Child(sweep, stop, answers)
            head = answer["head"]
        if job is None:
            return Measured(card_name(), head)
        answers = _child.answers
        answer = next(answers)  # it is waiting, or has ended since
        if not isinstance(answer, Ended):
            answer = answers.send((job, kernels))
    except KeyboardInterrupt:
        raise Interrupted("interrupted: the sweep has ended") from None
    if isinstance(answer, Ended):
        _child = None
        stage = answer.stage(kernels.get(job.kernel))
        m = job.failed(Verdict((stage,), None))
        about = kernels[job.kernel].describe()
    else:
        m = read_line(answer["line"])
        about = answer["description"]
    ran = Ran(card_name(), began, time.time() - began)
    return Measured(ran.card, head, replace(m, ran=ran), about)


def end_child() -> None:
    """End this process's child, which frees the card; also from another thread than the one that measures."""
    global _child
    if _child is not None:
        _child.stop.set()
        with suppress(ValueError):  # that thread is in it, and closes it
            _child.answers.close()
    _child = None


class Workers:
    """Threads of this process, which measures on one card. cpu, gpu: run what compiles and checks, and what measures.
    each_card: those that measure, one by one. lost: raised by what several workers died of. Use it in `with`.
    """

    lost: tuple[type[Exception], ...] = ()

    def __init__(self) -> None:
        self.cpu: Executor = ThreadPoolExecutor(THREADS)
        self.gpu: Executor = ThreadPoolExecutor(1)

    @property
    def each_card(self) -> list[Executor]:
        """One executor per card."""
        return [self.gpu]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end_child()
        for executor in (self.cpu, self.gpu):
            executor.shutdown(cancel_futures=True)


class Cluster(Workers):
    """Workers of a Dask cluster. scheduler: the address of one that runs; "" for a new one on this machine, with a
    worker for each of these cards (as CUDA_VISIBLE_DEVICES names them) and some for the cores.

    Raises BadSetting where `distributed` is missing, the scheduler doesn't answer, or it has no worker that is needed.
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
        self.own = not scheduler
        # Dask asks NVML for each card by its number, which fails where a recording's cards stand for this machine's.
        dask.config.set(
            {
                "distributed.scheduler.allowed-failures": ATTEMPTS - 1,
                "distributed.diagnostics.nvml": False,
            }
        )
        if self.own:
            # A process that starts reads it; an IPython in another program has none.
            vars(sys.modules["__main__"]).setdefault("__spec__", None)
            common = {"memory_limit": 0, "silence_logs": 50}
            of_card = [{"CUDA_VISIBLE_DEVICES": card} for card in cards]
            options = [
                {"nthreads": 1, "resources": {"gpu": 1}, "env": env, **common} for env in of_card
            ]
            cores = -(-THREADS // PROCESSES)
            options += [
                {"nthreads": cores, "resources": {"cpu": cores}, **common} for _ in range(PROCESSES)
            ]
            workers = {number: {"cls": Nanny, "options": own} for number, own in enumerate(options)}
            quiet = {"cls": Scheduler, "options": {"dashboard": False, "dashboard_address": ":0"}}
            scheduler = self.stack.enter_context(SpecCluster(workers, quiet, silence_logs=50))  # type: ignore[no-untyped-call]
        try:
            self.client = self.stack.enter_context(Client(scheduler, timeout=CONNECT_S))  # type: ignore[no-untyped-call]
        except OSError as error:
            raise BadSetting(
                f"no scheduler answers at {scheduler}: start one with `dask scheduler`"
            ) from error
        if self.own:
            self.client.wait_for_workers(len(options))
        self.require_workers()
        self.count = len(self.client.scheduler_info(n_workers=-1)["workers"])
        self.cpu = self.client.get_executor(pure=False, resources={"cpu": 1})
        self.gpu = self.client.get_executor(pure=False, resources={"gpu": 1})

    def with_resource(self, name: str) -> list[str]:
        """Addresses of the workers that have it."""
        known = self.client.scheduler_info(n_workers=-1)["workers"]
        return [address for address, about in known.items() if about["resources"].get(name)]

    def require_workers(self) -> None:
        """Raise BadSetting where none compiles, or one has another version of this package."""
        if not self.with_resource("cpu"):
            address = self.client.scheduler_info()["address"]
            self.stack.close()
            raise BadSetting(
                f"no worker of the cluster compiles: dask worker {address} --resources cpu=8"
            )
        others = {address: of for address, of in self.client.run(tool).items() if of != tool()}
        if others:
            self.stack.close()
            address, of = others.popitem()
            has = f"{of['version']} {of.get('commit', '')}".strip()
            raise BadSetting(f"the worker at {address} has worklog {has}: install the same there")

    @property
    def each_card(self) -> list[Executor]:
        """One executor per card; where its worker dies, another one's. Raises BadSetting for none."""
        with suppress(TimeoutError):  # one that died begins again, for a while
            self.client.wait_for_workers(self.count, timeout=RESTART_S)
        if not (cards := self.with_resource("gpu")):
            address = self.client.scheduler_info()["address"]
            command = f"CUDA_VISIBLE_DEVICES=0 dask worker {address} --nthreads 1 --resources gpu=1"
            raise BadSetting(
                f"no worker of the cluster measures: start one for each card: {command}"
            )
        how: dict[str, Any] = {"pure": False, "resources": {"gpu": 1}, "allow_other_workers": True}
        return [self.client.get_executor(workers=[address], **how) for address in cards]

    def __exit__(self, *_: object) -> None:
        if not self.own:
            self.client.run(end_child, workers=self.with_resource("gpu"))
        self.stack.close()
