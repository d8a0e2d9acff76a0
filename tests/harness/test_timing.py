"""`worklog.time` on a GPU whose truth is known: any callable, alone or against another."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from pytest import approx

import worklog
from tests.virtual.device import VirtualLoan
from tests.virtual.gpu import VirtualGpu
from tests.virtual.session import CALIBRATION, session_on
from worklog.errors import BadSetting, LaunchFailed
from worklog.harness import Harness
from worklog.runner import timing
from worklog.runs.statistics import Samples, process_half_us

MIB = 2**20


@dataclass
class Array:
    """A GPU array as far as the harness looks: it has bytes and can be copied."""

    nbytes: int
    serial: int = 0
    copies: int = 0
    __cuda_array_interface__: None = None
    grad: Any = None

    def copy(self, order: str) -> Array:
        assert order == "K", "the strides stay"
        self.copies += 1
        return Array(self.nbytes, self.copies)


@pytest.fixture
def gpu():
    return VirtualGpu(warm_speedup=1.4, noise=1e-4)


def timed(
    gpu: VirtualGpu, fn: Any, *args: Any, harness: Harness | None = None, **how: Any
) -> worklog.Measurement:
    """worklog.time on this GPU."""
    calibration = replace(
        CALIBRATION, offset_us=gpu.offset_us, launch_us=gpu.machine.enqueue_us, still_cached=0.5
    )
    return timing.time_on(
        session_on(gpu, calibration), timing.Call(fn, args, **how), harness or Harness()
    )


def waiting(launch: Callable[[], object], gpu: VirtualGpu) -> Callable[[], None]:
    """Return a call that waits for the GPU."""
    return lambda: (launch(), gpu.synchronize())[1]


def reads_its_argument(gpu: VirtualGpu, us: float) -> Callable[[Array], None]:
    def call(array: Array) -> None:
        gpu.kernel(us, data=f"copy {array.serial}", data_bytes=array.nbytes, module=f"{us}")()

    return call


def test_a_callable_is_read_as_it_is_alone_and_the_number_never_travels_without_its_label(gpu):
    my_kernel = gpu.kernel(50.0)
    my_kernel.__name__ = "my_kernel"
    result = timed(gpu, my_kernel, flops=np.int64(10**9), reads=np.float32(1e8))
    assert (result.us, result.tflops, result.gbs) == approx((50.0, 20.0, 2000.0), rel=1e-3)
    assert result.us_low <= result.us <= result.us_high
    assert (
        result.samples.sides[0].kernels == 1
        and result.time
        and result.time.process == approx(process_half_us(1))
    )
    assert result.ratio is None and result.converged
    shown = str(timed(gpu, my_kernel, harness=Harness().but(l2="warm")))
    for words in (
        *("35.7", "my_kernel", "live · a virtual GPU · clocks as found"),
        *("result is not checked", "l2: warm", "50% of the reads"),
    ):
        assert words in shown


def test_quantiles_extremes_and_deviation_are_of_the_times_without_the_overhead(gpu):
    assert (quiet := timed(gpu, gpu.kernel(50.0))).quantiles((0.5,)) == approx([quiet.us], abs=1e-3)
    gpu.noise = 0.1
    result = timed(gpu, gpu.kernel(50.0), harness=Harness().but(least_samples=200))
    assert result.quantiles() == approx(
        [50 * np.exp(0.1 * z) for z in (-0.842, 0.0, 0.842)], rel=0.03
    )
    low, high = result.quantiles((0, 1))
    assert (low, high) == (
        approx(min(result.samples.counted()) - 3.45),
        approx(max(result.samples.counted()) - 3.45),
    )
    assert result.deviation_us == approx(5.0, rel=0.2)
    assert f"{low:.5g} to {high:.5g} µs, standard deviation {result.deviation_us:.2g} µs" in str(
        result
    )
    with pytest.raises(BadSetting, match="between 0 and 1"):
        result.quantiles((50,))
    with pytest.raises(BadSetting, match="has no quantiles"):
        replace(result, samples=Samples()).quantiles()


def test_arguments_are_handed_over_and_copied_for_a_rotation(gpu):
    """The wall clock reads one set of inputs, which stays cached."""
    array = Array(16 * MIB)
    (fn, *others) = (reads_its_argument(gpu, us) for us in (50.0, 80.0, 120.0))
    result = timed(gpu, fn, array, against=others, harness=Harness().but(l2="rotate"))
    ratios = {name: ratio and ratio.value for name, ratio in result.against.items()}
    assert ratios == {"call (2)": approx(1.6, rel=1e-3), "call (3)": approx(2.4, rel=1e-3)}
    assert result.us == approx(50.0, rel=1e-3), "all are cold"
    assert array.copies == 11 and "flush" not in gpu.log
    assert result.witnesses == {"wall clock": approx(50.0 / gpu.warm_speedup, rel=5e-3)}
    assert not any("cross-check" in said for said in result.degradations)
    for no_array in ([], {"x": [1, "y"]}):
        with pytest.raises(BadSetting, match="pass the arrays as arguments"):
            timed(gpu, lambda *_: None, no_array, harness=Harness().but(l2="rotate"))
    loop: list[Any] = [array]
    loop.append(loop)
    with pytest.raises(BadSetting, match="a list among the arguments contains itself"):
        timed(gpu, lambda *_: None, loop, harness=Harness().but(l2="rotate"))


@dataclass(frozen=True)
class Batch:
    x: Any


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.mark.parametrize(
    ("hidden", "found"),
    [
        (lambda x: [x], lambda where: where[0]),
        (lambda x: ({"a": 1, "b": (x, x)},), lambda where: where[0]["b"][1]),
        (lambda x: Batch([x]), lambda where: where.x[0]),
        (lambda x: Pair(None, x), lambda where: where.right),
        (lambda x: defaultdict(list, x=x), lambda where: where["x"]),
    ],
)
def test_arrays_in_containers_rotate_among_arguments_and_keyword_arguments(gpu, hidden, found):
    array = Array(64 * MIB)
    shared = [object()]
    seen = set()

    def call(where: Any, *, other: Any, untouched: Any) -> None:
        assert type(where) is type(hidden(array)) and untouched is shared
        assert found(where) is found(other), "the same array twice is copied once"
        seen.add(found(where).serial)
        reads_its_argument(gpu, 50.0)(found(where))

    kwargs = {"other": hidden(array), "untouched": shared}
    result = timed(gpu, call, hidden(array), kwargs=kwargs, harness=Harness(l2="rotate"))
    assert result.us == approx(50.0, rel=1e-3), "cold"
    assert seen == {0, 1, 2} and array.copies == 2


def test_gradients_are_dropped_before_each_call(gpu):
    """Also those of the copies that rotate."""
    array = Array(64 * MIB, grad="old")
    seen = []

    def step(given: Array) -> None:
        seen.append(given.grad)
        given.grad = "new"
        reads_its_argument(gpu, 50.0)(given)

    for l2 in ("flush", "rotate"):
        timed(gpu, step, array, grad_to_none=[array], harness=Harness().but(l2=l2))
        assert set(seen) == {None}
    assert array.copies == 2


def test_a_cross_check_states_disagreements(gpu):
    launch = gpu.kernel(50.0)

    def slow_to_launch() -> None:
        launch()
        gpu.machine.host_now += 300.0

    (said,) = [said for said in timed(gpu, slow_to_launch).degradations if "cross-check" in said]
    assert (
        "the wall clock reads 304.00 µs" in said and "the host takes 304.0 µs to launch it" in said
    )
    against = timed(gpu, launch, against=slow_to_launch)
    assert any(
        re.match("the baseline .*: cross-check: the wall clock", said)
        for said in against.degradations
    )
    for without in ({"cross_check_limit": 10.0}, {"cross_check": "none"}):
        assert not any(
            "cross-check" in said for said in timed(gpu, slow_to_launch, **without).degradations
        )


def test_work_on_a_stream_that_is_not_joined_has_no_time(gpu):
    launch = gpu.kernel(50.0)
    elsewhere = gpu.machine.stream()

    def forks() -> None:
        launch()
        gpu.machine.enqueue(300.0, stream=elsewhere)

    words = r"leaves work on a stream that it doesn't join.* let the current stream wait"
    with pytest.raises(LaunchFailed, match=words):
        timed(gpu, forks, cross_check="none")


def test_a_call_that_enqueues_nothing_has_no_time_and_hardly_anything_says_so(gpu):
    for more in (
        {},
        {"flops": 1e9},
        {"against": gpu.kernel(50.0)},
        {"harness": Harness().but(timer="host")},
    ):
        with pytest.raises(
            LaunchFailed, match=r"no more than the overhead .* on the current stream"
        ):
            timed(gpu, lambda: None, **more)
    with pytest.raises(LaunchFailed, match=r"the baseline .*: 3\.45 µs were read"):
        timed(gpu, gpu.kernel(50.0), against=lambda: None)
    assert not gpu.held
    for us, offset, says in (
        (0.04, "removed", True),
        (0.04, "kept", True),
        (1.0, "removed", False),
    ):
        result = timed(gpu, gpu.kernel(us), harness=Harness().but(offset=offset))
        assert (
            any("distinguished from an empty call" in said for said in result.degradations) is says
        )


async def waits() -> None:
    """Its call creates a coroutine, and enqueues nothing."""


def yields(value: int) -> Iterator[int]:
    yield value


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"fn": None}, "fn is NoneType, which cannot be called"),
        ({"fn": print, "against": "cuBLAS"}, "against is str, which cannot be called"),
        ({"fn": waits}, "fn is a coroutine"),
        ({"fn": print, "against": partial(yields, 1)}, "against is a coroutine or generator"),
        ({"fn": print, "grad_to_none": Array(8)}, "grad_to_none: give a list, not Array"),
        (
            {"fn": print, "harness": {"l2": "warm"}},
            r"harness is dict: give one such as worklog\.Harness\(\)",
        ),
        (
            {"fn": print, "cross_check": "graph"},
            "cross_check = 'graph': take one of wall clock, none",
        ),
        ({"fn": print, "cross_check_limit": 0}, "cross_check_limit = 0: give a share above 0"),
        (
            {"fn": print, "timer": True, "harness": Harness(l2="rotate")},
            "timer=True needs the harness's timer = events",
        ),
        ({"fn": print, "datapath": "bf8"}, "datapath = 'bf8': take one of fp32"),
        *(
            (
                {"fn": print, "timer": True, "harness": Harness(timer=timer, l2="warm")},
                "timer=True needs",
            )
            for timer in ("host", "graph")
        ),
        *(
            (
                {"fn": print, work: amount},
                f"{work} = .*give the work of one call, a positive number",
            )
            for work in ("flops", "reads", "writes", "elements")
            for amount in (0, float("nan"), float("inf"), "1e9", True)
        ),
    ],
)
def test_what_cannot_be_timed_is_refused_with_the_way_out(arguments, says):
    with pytest.raises(BadSetting, match=says):
        worklog.time(**arguments)


def part_of(gpu: VirtualGpu, us: float, wait: bool = False) -> Callable[[Any], None]:
    """Return a call of which a stopwatch times a part that lasts so long.

    wait: whether it waits for the GPU at its end
    """
    setup = gpu.kernel(400.0)
    part = gpu.kernel(us, data=f"part of {us}")
    gpu.machine.enqueue_us = 0.0  # else an unqueued part would wait for its launch

    def call(watch: Any) -> None:
        setup()
        watch.start()
        part()
        watch.stop()
        if wait:
            gpu.synchronize()

    return call


@pytest.mark.parametrize("waits", [False, True])
def test_only_the_named_part_of_a_call_is_timed_and_compared_also_of_calls_that_wait(gpu, waits):
    result = timed(
        gpu, part_of(gpu, 50.0, waits), against=part_of(gpu, 80.0, waits), timer=True, sync=waits
    )
    assert (result.us, result.ratio) == (approx(50.0, rel=1e-3), approx(1.6, rel=1e-3))
    assert any("which part of it is timed" in said for said in result.degradations)
    assert "of which the stopwatch times a part" in str(result.witnesses["wall clock"])
    alone = timed(gpu, part_of(gpu, 50.0), timer=True, harness=Harness().but(queue=False))
    assert alone.us == approx(50.0, rel=1e-3)


@pytest.mark.parametrize(
    "presses", [(), ("start",), ("stop",), ("start", "start"), ("start", "stop", "stop")]
)
def test_a_stopwatch_pressed_in_any_other_way_is_refused(gpu, presses):
    def call(watch: Any) -> None:
        for press in presses if gpu.held else ("start", "stop"):
            getattr(watch, press)()

    with pytest.raises(BadSetting, match="stopwatch"):
        timed(gpu, call, timer=True)
    assert not gpu.held, "the queue is released"


def test_a_call_that_waits_is_timed_and_says_its_cost(gpu):
    call = waiting(gpu.kernel(50.0), gpu)
    with pytest.raises(LaunchFailed, match="synchronises"):
        timed(gpu, call)
    result = timed(gpu, call, sync=True)
    assert result.us == approx(4.0 + 50.0 + 4.0, rel=1e-3)
    assert any("of 10 µs then read 4.0 µs more" in said for said in result.degradations)
    assert set(result.witnesses) == {"wall clock"}
    assert not any("queue: False" in said for said in result.degradations)
    biased = timed(gpu, call, harness=Harness().but(queue=False, l2="warm"))
    assert "queue: False" in biased.degradations


def test_the_stream_of_a_waiting_call_is_entered_outside_of_its_time_and_again_after_its_first_call(
    gpu, monkeypatch
):
    """The first call may load PyTorch, which has a current stream of its own."""
    kernel = gpu.kernel(50.0)
    current = VirtualLoan.current
    entered = list[str]()
    call = waiting(lambda: (entered.append("called"), kernel()), gpu)

    @contextmanager
    def slowly(loan: VirtualLoan) -> Iterator[None]:
        entered.append("entered")
        gpu.machine.pass_host(20.0)
        with current(loan):
            yield

    at_once = timed(gpu, call, sync=True)
    monkeypatch.setattr(VirtualLoan, "current", slowly)
    entered.clear()
    assert timed(gpu, call, sync=True).us == approx(at_once.us, rel=1e-3)
    assert entered[:4] == ["entered", "called", "entered", "called"]


def test_the_example_in_the_readme_runs(gpu, monkeypatch, capsys):
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (example,) = (
        code
        for code in re.findall(r"```python\n(.+?)```", readme, re.DOTALL)
        if "worklog.time(" in code
    )
    launches = {
        name: lambda a, b, name=name: gpu.kernel(50.0, module=name)() for name in ("matmul", "dot")
    }
    random = SimpleNamespace(rand=lambda *shape, dtype: [Array(MIB) for _ in range(shape[0])])
    monkeypatch.setitem(
        sys.modules, "cupy", SimpleNamespace(random=random, float32="float32", **launches)
    )
    monkeypatch.setattr(worklog, "time", partial(timed, gpu), raising=False)
    exec(example, {})
    assert "TFLOP/s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("datapath", "lanes"), [("fp32", 128), ("tf32", 1024), ("fp64_tensor", 128), (None, 0)]
)
def test_a_share_is_of_the_peak_of_the_datapath(gpu, datapath, lanes):
    launch = gpu.kernel(50.0)
    result = timed(gpu, launch, flops=10**7, datapath=datapath)
    assert (result.roof and result.roof.datapath) == datapath
    share = 10**7 / (result.us or 0.0) / (2 * lanes * 2000) if datapath else None
    assert result.of_roof == (share and approx(share, rel=1e-3))
    assert (f"of {str(datapath).upper()} peak" in str(result)) == bool(datapath)


@pytest.mark.parametrize(
    ("work", "above"),
    [
        ({"flops": 10**9}, "20 TFLOP/s is above the highest peak, 16.38 (dense fp8)"),
        (
            {"reads": 64 * MIB + 10**6},
            "20 GB/s beyond what L2 holds is above the memory's peak, 16:",
        ),
        ({"reads": 64 * MIB, "writes": 64 * MIB + 7 * 10**5}, ""),
        ({"reads": 1, "writes": 64 * MIB + 10**6}, "20 GB/s beyond what L2 holds"),
    ],
)
def test_a_rate_that_no_datapath_reaches_gets_a_remark(gpu, work, above):
    shown = re.sub(r"\s+", " ", str(timed(gpu, gpu.kernel(50.0), cross_check="none", **work)))
    assert above in shown and ("rate: " in shown) == bool(above)
