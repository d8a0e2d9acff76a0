"""worklog.pytorch: the operator without a GPU.

Registration, shapes, strides and errors are the operator's own. Where a test multiplies, PyTorch's
product stands in for the kernels (tests/gpu/test_gpu_pytorch.py has the real one).
"""

import subprocess
import sys
from typing import Any

import pytest

import worklog
from tests.helpers import integers
from worklog.blas import product
from worklog.errors import BadSetting

torch = pytest.importorskip("torch")


def matrix(rows: int, columns: int, *, by_columns: bool = False, gradient: bool = False) -> Any:
    """Return a matrix of integers."""
    made = torch.from_numpy(integers(*((columns, rows) if by_columns else (rows, columns))))
    made = made.T if by_columns else made
    return made.detach().requires_grad_(gradient)


@pytest.fixture
def by_torch(monkeypatch):
    """Let PyTorch's product write C in place of the kernels, for tensors that kernels take."""

    def multiply(a: Any, b: Any, c: Any, *, alpha: float, mode: str, max_error: Any) -> None:
        for tensor in (a, b, c):
            assert tensor.is_contiguous() or tensor.T.is_contiguous(), "it has gaps"
            assert not (tensor.requires_grad and torch.is_grad_enabled())
        c.copy_(alpha * (a @ b))

    monkeypatch.setattr(product, "sgemm", multiply)


def test_the_package_imports_pytorch_only_for_the_operator():
    program = (
        "import sys, worklog; worklog.sgemm; print('torch' in sys.modules); "
        "worklog.pytorch; print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout.split() == ["False", "True"], result.stderr


def test_the_operator_is_registered_and_writes_no_argument():
    assert worklog.pytorch.sgemm is not None
    schema = torch.ops.worklog.sgemm.default._schema
    assert [argument.name for argument in schema.arguments] == [
        "A",
        "B",
        "alpha",
        "mode",
        "max_error",
    ]
    assert not schema.is_mutable


@pytest.mark.parametrize("a_by_columns", [False, True])
@pytest.mark.parametrize("b_by_columns", [False, True])
@pytest.mark.parametrize("shape", [(5, 4, 3), (1, 4, 3), (5, 1, 3), (5, 4, 1), (5, 4, 0)], ids=str)
def test_without_elements_the_result_has_its_shape_and_strides(shape, a_by_columns, b_by_columns):
    m, n, k = shape
    a = matrix(m, k, by_columns=a_by_columns)
    b = matrix(k, n, by_columns=b_by_columns)
    made = worklog.pytorch.sgemm(a.to("meta"), b.to("meta"))
    assert made.shape == (m, n) and made.dtype == torch.float32
    if shape == (5, 4, 3):
        both = a_by_columns and b_by_columns
        assert made.stride() == ((1, m) if both else (n, 1))


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (matrix(3, 4)[0], matrix(4, 5), "A has 1 dimensions: give a matrix"),
        (matrix(3, 4), matrix(4, 5).double(), "B is float64, and the kernels compute in float32"),
        (matrix(3, 4), matrix(3, 5), "A is 3 x 4 and B 3 x 5: A needs as many columns as B has"),
    ],
)
def test_wrong_matrices_are_errors_also_without_elements(a, b, message, device):
    with pytest.raises(BadSetting, match=message):
        worklog.pytorch.sgemm(a.to(device), b.to(device))


def test_tensors_on_the_host_are_an_error():
    with pytest.raises(BadSetting, match="A is a tensor on the cpu: move it to a GPU"):
        worklog.pytorch.sgemm(matrix(3, 4), matrix(4, 5))


@pytest.mark.parametrize("a_by_columns", [False, True])
@pytest.mark.parametrize("b_by_columns", [False, True])
def test_with_pytorchs_product_the_operator_passes_its_check(by_torch, a_by_columns, b_by_columns):
    a = matrix(3, 4, by_columns=a_by_columns, gradient=True)
    b = matrix(4, 5, by_columns=b_by_columns, gradient=True)
    found = torch.library.opcheck(torch.ops.worklog.sgemm.default, (a, b, 2.0))
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)], ids=str)
def test_with_pytorchs_product_the_gradients_are_those_of_mm(by_torch, needs):
    """Also of a sum, whose gradient is one number for all elements."""
    found = []
    for multiply in (worklog.pytorch.sgemm, torch.mm):
        a = matrix(3, 4, gradient=needs[0])
        b = matrix(4, 5, by_columns=True, gradient=needs[1])
        multiply(a, b).sum().backward()
        found.append((a.grad, b.grad))
    for ours, theirs in zip(*found, strict=True):
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)


def test_with_pytorchs_product_the_gradient_is_scaled_and_differentiable(by_torch):
    a = matrix(3, 4, gradient=True)
    b = matrix(4, 5, gradient=True)
    product = worklog.pytorch.sgemm(a, b, alpha=3.0)
    [of_a] = torch.autograd.grad((product**2).sum(), a, create_graph=True)
    assert torch.equal(of_a, 18 * a @ b @ b.T)
    [again] = torch.autograd.grad(of_a.sum(), b)
    assert again.shape == b.shape and again.any()


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_with_pytorchs_product_a_compiled_graph_is_whole(by_torch, is_dynamic):
    """The backend runs the graphs of the function and of its gradient as they were traced."""

    def model(a: Any, b: Any) -> Any:
        return torch.relu(worklog.pytorch.sgemm(a, b) - 1).sum()

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, dynamic=is_dynamic, backend="aot_eager")
    for rows in (3, 7):
        grads = []
        for function in (compiled, model):
            a = matrix(rows, 4, gradient=True)
            function(a, matrix(4, 5)).backward()
            grads.append(a.grad)
        assert torch.equal(*grads)
