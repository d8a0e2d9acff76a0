"""worklog.pytorch on a GPU: the operator's check, gradients, torch.compile, and CUDA graphs."""

from typing import Any

import pytest
from pytest import approx

import worklog
from tests.helpers import integers
from worklog.gpu.device import gpu

torch = pytest.importorskip("torch")
# On a GPU for which best's table may not hold, sgemm says once that a choice may be slow. Gradients
# in mode "split" take best, which it also says.
pytestmark = [
    pytest.mark.filterwarnings("ignore:sgemm. best chooses by a table:UserWarning"),
    pytest.mark.filterwarnings("ignore:sgemm. some matrices are row-major:UserWarning"),
    # Of the compiler, and of leaves that were created on another stream.
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node:UserWarning"),
    # Of PyTorch's own modules, as its compiler imports them.
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
]


def matrix(rows: int, columns: int, *, by_columns: bool = False, gradient: bool = False) -> Any:
    """Return a matrix of integers on the GPU."""
    made = torch.from_numpy(integers(*((columns, rows) if by_columns else (rows, columns)))).cuda()
    made = made.T if by_columns else made
    return made.detach().requires_grad_(gradient)


@pytest.mark.parametrize("a_by_columns", [False, True])
@pytest.mark.parametrize("b_by_columns", [False, True])
def test_the_operator_passes_its_check(a_by_columns, b_by_columns):
    a = matrix(33, 65, by_columns=a_by_columns, gradient=True)
    b = matrix(65, 17, by_columns=b_by_columns, gradient=True)
    assert callable(worklog.pytorch.sgemm), "which registers it"
    found = torch.library.opcheck(torch.ops.worklog.sgemm.default, (a, b, 2.0))
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("shape", [(1, 1, 1), (33, 1, 1021), (515, 130, 77)], ids=str)
@pytest.mark.parametrize("by_columns", [False, True])
def test_gradients_are_those_of_mm(shape, by_columns):
    m, n, k = shape
    found = []
    for multiply in (worklog.pytorch.sgemm, torch.mm):
        a = matrix(m, k, gradient=True)
        b = matrix(k, n, by_columns=by_columns, gradient=True)
        multiply(a, b).sum().backward()
        found.append((a.grad, b.grad))
    for ours, theirs in zip(*found, strict=True):
        assert torch.equal(ours, theirs), "of integers"


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_compiled_graph_is_whole(backend, is_dynamic):
    if backend == "inductor":
        pytest.importorskip("triton")

    def model(a: Any, b: Any) -> Any:
        return torch.relu(worklog.pytorch.sgemm(a, b) - 1).sum()

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, dynamic=is_dynamic, backend=backend)
    for rows in (33, 70):
        grads = []
        for function in (compiled, model):
            a = matrix(rows, 65, gradient=True)
            function(a, matrix(65, 17)).backward()
            grads.append(a.grad)
        assert torch.equal(*grads)


def test_it_runs_in_a_graph_after_one_call():
    a = matrix(256, 4096)
    b = matrix(4096, 256)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        worklog.pytorch.sgemm(a, b)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        c = worklog.pytorch.sgemm(a, b)
    a.add_(1)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(c, a @ b)


def test_a_step_of_training_runs_in_a_graph():
    """Forward and backward, with the gradients' products by columns."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        a = matrix(256, 512, gradient=True)
        b = matrix(512, 128, gradient=True)

    def step() -> None:
        worklog.pytorch.sgemm(a, b).square().sum().backward()

    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    expected = a.grad.clone()
    graph = torch.cuda.CUDAGraph()
    a.grad = None
    b.grad = None
    with torch.cuda.graph(graph, stream=stream):
        step()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(a.grad, expected)


def test_mode_and_max_error_choose_the_kernel_also_of_gradients():
    if gpu().compute_capability != (9, 0):
        pytest.skip("the rung split is for compute capability 9.0")
    for options in ({"mode": "split"}, {"max_error": 1e-5}):
        a = matrix(1024, 1024, gradient=True)
        b = matrix(1024, 1024, gradient=True)
        c = worklog.pytorch.sgemm(a, b, **options)
        c.sum().backward()
        exact = a.detach().double() @ b.detach().double()
        assert float((c.detach() - exact).abs().max()) < 0.5
        of_a = torch.ones_like(exact) @ b.detach().T.double()
        assert float((a.grad - of_a).abs().max()) == approx(0.0, abs=0.5)
