"""How long a check takes on the emulator is said before it starts, and its share while it runs."""

import re
import time

import numpy as np
import pytest

from worklog.emulator.core import native
from worklog.emulator.launching import BUDGET
from worklog.kernel.by_name import kernel_of
from worklog.kernel.emulated import EmulatedDevice
from worklog.problem import Shape
from worklog.runner import check as checks
from worklog.runner import estimate

FORWARD = """extern "C" __global__ void k(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                             float* C) { while (*(volatile float*)C == 0); }"""


@pytest.mark.parametrize("name", ["naive", "shared"])
def test_the_time_of_a_launch_is_predicted_from_some_of_its_blocks(name):
    kernel = kernel_of(name, {})
    device = EmulatedDevice()
    shape = kernel.domain.padded(Shape.of(192))
    predicted_s = estimate.launch_seconds(kernel, shape, BUDGET)
    subject = kernel.load(device)
    sizes = shape.m * shape.k, shape.k * shape.n, shape.m * shape.n
    a, b, c = (device.upload(np.zeros(size, "f4")) for size in sizes)
    started = time.thread_time()
    subject.enqueue(shape, 1.0, a, b, 0.0, c)
    assert predicted_s is not None and 1 / 3 < predicted_s / (time.thread_time() - started) < 3


def test_a_long_check_says_how_long_it_takes_and_what_takes_seconds():
    said = estimate.warning(kernel_of("naive", {}), Shape.of(4096), BUDGET)
    pattern = (
        r"^the check at 4096 on the emulator takes about [\d,]+ (h|min) on this machine: without "
        r"--size it is checked "
        r"at \d+x\d+x\d+, in seconds; --size (\d+) takes about 10 s\n$"
    )
    found = re.search(pattern, said)
    assert found and 200 < int(found[2]) < 1000


@pytest.mark.parametrize("size", [128, 256])
def test_a_short_check_says_nothing(size, monkeypatch):
    monkeypatch.setattr(estimate, "launch_seconds", None)
    assert estimate.warning(kernel_of("naive", {}), Shape.of(size), BUDGET) == ""


def test_a_kernel_that_waits_for_ever_has_no_estimate(tmp_path):
    path = tmp_path / "k.cu"
    path.write_text(FORWARD)
    kernel = kernel_of(str(path), {"grid": "N/32,M/32", "block": "32"})
    assert estimate.launch_seconds(kernel, Shape.of(512), BUDGET) is None
    assert estimate.warning(kernel, Shape.of(512), BUDGET) == ""


def test_a_check_shows_its_share_and_that_of_the_launch(monkeypatch):
    monkeypatch.setattr(native, "SLICE", 5_000)
    shown = list[str]()
    device = EmulatedDevice()
    shape = Shape.of(64)
    subject = kernel_of("naive", {}).load(device)
    checks._report_launches(
        subject, device, lambda *said: shown.append(said[2]), is_beside_gpu=False, largest=shape
    )
    for _ in range(10):
        a, b, c = (device.upload(np.zeros(64 * 64, np.float32)) for _ in range(3))
        subject.enqueue(shape, 1.0, a, b, 0.0, c)
    pattern = r"launch \d+ at 64: (\d+) of 4 blocks, about (\d+\.\d) % of the check"
    parts = [found.groups() for line in shown if (found := re.fullmatch(pattern, line))]
    assert {int(blocks) for blocks, _ in parts} >= {*range(4)}
    shares = [float(share) for _, share in parts]
    assert shares == sorted(shares) and shares[0] < 5 and 45 < shares[-1] < 50
    device.progress(1, 2)
    assert shown[-1] == "launch 10 at 64: checking its result, about 50.0 % of the check"
