"""The launch of a batch whose matrices lie farther apart than 32 bits count, on the emulator.

The memory between the matrices is reserved and never touched, so two products take no more memory
than two near ones do.
"""

from __future__ import annotations

import numpy as np

from worklog.errors import LaunchFailed, OutOfMemory
from worklog.gate.batch import BatchedProducts, Gaps
from worklog.gate.guarded_buffer import Memory
from worklog.kernel import WIDE, Buffer, Loaded
from worklog.kernel.emulated import EmulatedDevice
from worklog.problem import Float32
from worklog.runs import Stage, failed, passed
from worklog.runs.text import before_lines

FAR_PRODUCTS = "far products"
PRODUCTS = 2
FAR = 2**32  # elements, so that no offset of 32 bits reaches the second product


def check_far_products(subject: Loaded, memory: Memory) -> Stage | None:
    """Launch two products whose matrices lie far apart.

    None for a kernel that takes no distance as 64 bits.
    """
    kernel = subject.kernel
    names = list[str]()
    for place, name in kernel.batch_strides.items():
        if kernel.arguments[place].startswith(WIDE):
            names.append(name)
    if not names:
        return None
    batch = BatchedProducts(subject, memory)
    launch = f"{PRODUCTS} products of {batch.shape} whose matrices lie 2^32 elements apart"
    try:
        mistake = _mistake(batch, dict.fromkeys(names, FAR))
        if not mistake:
            return passed(FAR_PRODUCTS, f"right in {launch}")
        wrong_names = [name for name in names if _mistake(batch, {name: FAR})]
    except OutOfMemory as error:
        detail = f"not launched: {launch}: {error}"
        return passed(FAR_PRODUCTS, detail, note=detail)
    parameters = " and ".join(batch.stride_names(wrong_names or names))
    addition = f": an offset with {parameters} isn't computed in 64 bits"
    return failed(FAR_PRODUCTS, f"{launch}: {before_lines(mistake, addition)}")


def _mistake(batch: BatchedProducts, gaps: Gaps) -> str:
    """Launch the first products with wide gaps, and describe what is wrong; "" for nothing.

    Memory between the matrices holds zeros, and is taken where a kernel accesses it.

    Raises OutOfMemory.
    """
    device = batch.memory.device
    assert isinstance(device, EmulatedDevice)
    views: dict[str, Buffer] = {}
    rows = batch.rows(gaps, PRODUCTS)
    for row in rows:
        views[row.name] = device.reserve(row.size, row.format)
        for number, matrix in enumerate(row.matrices):
            place = device.view(views[row.name], number * row.stride, row.span)
            device.overwrite(place, matrix)
    records_races = device.races
    device.races = False  # a record of each element would take the memory of all
    try:
        batch.launch(gaps, PRODUCTS, views)
        device.synchronize()
    except LaunchFailed as error:
        return str(error)
    finally:
        device.races = records_races
    [of_c] = [row for row in rows if row.name == "C"]
    written = list[Float32]()
    for number in range(PRODUCTS):
        place = device.view(views["C"], number * of_c.stride, of_c.span)
        written.append(device.download(place))
    return batch.wrong_products(np.array(written))
