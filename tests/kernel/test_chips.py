"""Kernels on GPUs with another number of multiprocessors than the emulated card, an H200."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.emulator.helpers import integers, product
from tests.virtual.gpu import GPU, VirtualGpu
from worklog.emulator.limits import SMS, Chip, occupancy
from worklog.kernel import Kernel, Loaded, rung
from worklog.kernel.emulated import CHIP, EmulatedDevice
from worklog.kernel.ladder.best import candidates
from worklog.kernel.ladder.rungs import split
from worklog.kernel.trial import completed
from worklog.problem import Shape
from worklog.runner import check

COUNTS = (78, 108, 114, 144)  # of multiprocessors
PERSISTENT = ("equal_shares", "ragged", "split")
LARGE = Shape(4096, 2048, 16384)  # more tiles than any of these has multiprocessors
SMALL = {
    "equal_shares": Shape(256, 512, 88),
    "ragged": Shape(131, 260, 61),
    "split": Shape(33, 70, 150),
}


@cache
def chip(multiprocessors: int) -> Chip:
    """Return the chip of a virtual GPU."""
    return VirtualGpu(gpu=replace(GPU, multiprocessors=multiprocessors)).device.chip


def waves(loaded: Loaded, shape: Shape) -> list[float]:
    """Return the blocks of each launch over those that run together."""
    launches, _ = loaded.launches_at(shape)
    found = []
    for kernel, built, grid, _ in launches:
        shared_bytes = built.compiled.shared_bytes + kernel.program.shared
        resident = occupancy(
            "sm_90", kernel.thread_count, built.compiled.registers, shared_bytes
        ).blocks
        found.append(math.prod(grid) / (resident * loaded.device.chip.multiprocessors))
    return found


@pytest.mark.parametrize("multiprocessors", COUNTS)
@pytest.mark.parametrize("name", PERSISTENT)
def test_blocks_that_stay_on_their_multiprocessor_have_no_second_wave(name, multiprocessors):
    loaded = rung(name).load(EmulatedDevice(chip(multiprocessors)))
    kernel = loaded.kernel.at(LARGE, loaded.device.chip)
    assert kernel.blocks(LARGE) == (multiprocessors, 1)
    assert waves(loaded, LARGE)[kernel.main] == 1, "and none has nothing to do"


@pytest.mark.parametrize("multiprocessors", COUNTS)
def test_the_blocks_that_add_the_parts_of_split_have_no_second_wave(multiprocessors):
    in_parts = split(parts=4, k=LARGE.k).load(EmulatedDevice(chip(multiprocessors)))
    *_, adding = waves(in_parts, LARGE)
    assert adding == 1


@pytest.mark.parametrize("multiprocessors", COUNTS)
@pytest.mark.parametrize("name", PERSISTENT)
def test_any_number_of_multiprocessors_gives_the_product(name, multiprocessors):
    device = EmulatedDevice(chip(multiprocessors))
    shape = SMALL[name]
    rng = np.random.default_rng(multiprocessors)
    a = integers(rng, shape.m, shape.k)
    b = integers(rng, shape.k, shape.n)
    np.testing.assert_array_equal(product(device, rung(name).load(device), a, b), a @ b)
    assert device.findings == []


@pytest.mark.parametrize("name", PERSISTENT)
def test_the_gate_passes_a_rung_on_another_number_of_multiprocessors(name, few_shapes, monkeypatch):
    monkeypatch.setattr(
        check, "device_of", lambda live, budget: EmulatedDevice(chip(78), budget=budget)
    )
    checked = check.check(rung(name), on="emulated", seed=0, quick=True)
    assert checked.verdict.accepted, checked.verdict


def test_without_a_gpu_the_multiprocessors_of_the_emulated_card_count():
    assert CHIP.multiprocessors == SMS == Chip().multiprocessors
    for name in PERSISTENT:
        kernel = rung(name)
        assert kernel.at(LARGE) == kernel.at(LARGE, CHIP)
        assert kernel.at(LARGE).grid == str(SMS)


def test_a_changed_tile_and_launch_stay_on_another_chip():
    kernel = rung("equal_shares").with_tile(GROUP=4)
    there = kernel.on_chip(chip(78))
    assert there.template == kernel.template and there.blocks(LARGE) == (78, 1)
    assert there.passes[1].entry == "add_parts<128, 256, 8, 78, 4>"
    assert kernel.with_launch(grid="2").on_chip(chip(78)).blocks(LARGE) == (2, 1)


def test_a_users_kernel_can_have_as_many_blocks_as_there_are_multiprocessors():
    text = "__global__ void f(const float* A, const float* B, float* C, int N) { C[0] = A[0]; }"
    kernel = Kernel.from_source(text, grid="2 * SMS", block=32)
    assert kernel.on_chip(chip(108)).blocks(LARGE) == (216, 1)


def test_a_trial_finds_the_order_of_a_kernel_with_a_block_per_multiprocessor():
    text = """__global__ void f(int u, int v, int w, const float* p, const float* q, float* r) {
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < u * v; i += gridDim.x * blockDim.x) {
        float sum = 0.0f;
        for (int k = 0; k < w; ++k) sum += p[i / v * w + k] * q[k * v + i % v];
        r[i] = sum;
      }
    }"""
    kernel = completed(Kernel.from_source(text, grid="SMS", block=64))
    assert kernel.arguments == ("M", "N", "K", "A", "B", "C")
    assert kernel.on_chip(chip(78)).blocks(LARGE) == (78, 1)


def test_best_counts_the_multiprocessors_of_the_chip():
    """A tile for each of 132 multiprocessors is a wave there, and two waves on fewer."""
    shape = Shape(12 * 128, 11 * 128, 64)
    slowest = {
        multiprocessors: max(us for us, _ in candidates(shape, chip=chip(multiprocessors)))
        for multiprocessors in (78, 144)
    }
    assert slowest[78] > slowest[144]
