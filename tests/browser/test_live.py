"""The live viewer: kernels that run in the page."""

from base64 import b64encode

import pytest

from tests.browser.test_core import RUNGS, folder, page  # noqa: F401
from worklog.kernel.ladder import LADDER, rung
from worklog.kernel.ladder.rungs import FP32
from worklog.kernel.portable import compressed
from worklog.viewer.accesses import access, default_shape
from worklog.viewer.portable import viewable

VIEW = """async ([file, options]) => emulator.view(await description(file), options)"""


def document_in(page, kernel, shape, block):
    file = b64encode(compressed(viewable(kernel, [shape]))).decode()
    return page.evaluate(VIEW, [file, {"block": block, "limitS": 120}])


@pytest.mark.parametrize("kernel", [*LADDER, *FP32, rung("wgmma")], ids=lambda kernel: kernel.name)
def test_the_page_reads_a_trace_as_python_does(page, kernel):  # noqa: F811
    shape = default_shape(kernel)
    right = access(kernel, shape).document
    found = document_in(page, kernel, shape, 0)
    for name in right:
        assert found[name] == right[name], name
    assert found == right
