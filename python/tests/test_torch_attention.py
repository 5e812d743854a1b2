"""``hipvit.attention`` on PyTorch's tensors: values, gradients and compiled programs. Skipped where torch is not installed.

On a machine with a GPU that both PyTorch and hipvit drive, the tests run there too.
"""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest
from attention_cases import BIAS, CASES, DOCUMENTS, GRID, HEAD_DIM, HEADS, QKV, TABLE, TOKENS, Case

import hipvit
from hipvit import patterns

torch: Any = pytest.importorskip("torch")

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
EPSILON = {torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def leaf(array: Any, device: str, dtype: Any = None) -> Any:
    return torch.from_numpy(array).to(device, dtype or torch.float32).requires_grad_()


def expected(q: Any, k: Any, v: Any, *, score: Callable[..., Any], mask: Any) -> Any:
    """Attention in double precision by PyTorch, with its gradients."""
    q, k, v = (x.double() for x in (q, k, v))
    scores = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5
    scores = score(scores).masked_fill(~mask, -torch.inf)
    return scores.softmax(-1).nan_to_num(0.0) @ v


def assert_close(got: Any, reference: Any, dtype: Any) -> None:
    """As the derived tolerances of the library: a sum over keys of errors of sums over channels, and in gradients over queries."""
    bound = 8 * (HEAD_DIM + TOKENS) * EPSILON[torch.float32] + 4 * EPSILON[dtype]
    assert got.shape == reference.shape
    assert (got.double() - reference).abs().max().item() <= bound * max(1.0, reference.abs().max().item())


def mask_of(case: Case, device: str) -> Any:
    indices = np.meshgrid(*(np.arange(n) for n in (2, HEADS, TOKENS, TOKENS)), indexing="ij")
    return torch.from_numpy(case.mask(*indices)).to(device)


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
@pytest.mark.parametrize("name", ["plain", "window", "documents", "key_padding", "dilated"])
def test_masks(name: str, dtype: Any, device: str) -> None:
    case = CASES[name]
    operands = [leaf(x, device, dtype) for x in QKV]
    pattern = patterns.documents(torch.from_numpy(DOCUMENTS).to(device)) if name == "documents" else case.mask_of
    got = hipvit.attention(*operands, mask=pattern)
    assert got.dtype == dtype and got.device.type == device
    reference = expected(*operands, score=lambda s: s, mask=mask_of(case, device))
    assert_close(got, reference, dtype)
    gradient = torch.randn_like(got)
    for ours, theirs in zip(
        torch.autograd.grad(got, operands, gradient), torch.autograd.grad(reference, operands, gradient.double())
    ):
        assert ours.dtype == dtype
        assert_close(ours, theirs.double(), dtype)


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
def test_gradients_of_captured_tensors(dtype: Any, device: str) -> None:
    q, k, v = (leaf(x, device, dtype) for x in QKV)
    table, bias = leaf(TABLE, device), leaf(BIAS, device, torch.bfloat16)
    cap = leaf(np.array([3.0]), device)
    wrapped = patterns.tensor(cap)[0]
    score = patterns.soft_cap(wrapped, patterns.relative_bias(table, GRID, patterns.bias(bias)))
    got = hipvit.attention(q, k, v, score=score, mask=patterns.causal())
    i, j = np.meshgrid(np.arange(TOKENS), np.arange(TOKENS), indexing="ij")
    row, column = i // GRID[1] - j // GRID[1] + GRID[0] - 1, i % GRID[1] - j % GRID[1] + GRID[1] - 1
    index = torch.from_numpy(row * (2 * GRID[1] - 1) + column).to(device)
    c, b, t = (x.to(dtype if device == "cuda" else x.dtype).double() for x in (cap, bias, table))
    reference = expected(
        q,
        k,
        v,
        score=lambda s: c * torch.tanh((s + b + t[index].permute(2, 0, 1)) / c),
        mask=torch.from_numpy(j <= i).to(device),
    )
    assert_close(got, reference, dtype)
    gradient = torch.randn_like(got)
    inputs = (q, k, v, table, bias, cap)
    ours = torch.autograd.grad(got, inputs, gradient)
    theirs = torch.autograd.grad(reference, inputs, gradient.double())
    for x, mine, other in zip(inputs, ours, theirs):
        assert mine.dtype == x.dtype
        # Activations may have fewer bits than the tensor.
        assert_close(mine, other.double(), max(dtype, x.dtype, key=lambda d: EPSILON[d]))


def test_finite_differences(device: str) -> None:
    inputs = [leaf(x, device) for x in (*QKV, TABLE)]
    directions = [torch.randn_like(x) for x in inputs]
    weights = torch.randn(QKV[0].shape, device=device)

    def loss(step: float) -> Any:
        q, k, v, table = (x + step * d for x, d in zip(inputs, directions))
        score = patterns.relative_bias(table, GRID)
        return (hipvit.attention(q, k, v, score=score, mask=patterns.window(3, 2)).double() * weights).sum()

    gradients = torch.autograd.grad(loss(0.0), inputs)
    along = sum((g.double() * d).sum() for g, d in zip(gradients, directions)).item()
    h = 2.0**-7
    difference = (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))).item() / (12 * h)
    # The fourth-order difference has an error of h⁴, and divides rounding errors of the sum by h.
    assert abs(along - difference) <= 1e-3 * max(1.0, abs(difference))


def test_some_operands_require_gradients(device: str) -> None:
    q, k, v = (torch.from_numpy(x).to(device) for x in QKV)
    table = torch.from_numpy(TABLE).to(device)
    score = patterns.relative_bias(table, GRID)
    assert not hipvit.attention(q, k, v, score=score).requires_grad
    reference = [x.clone().requires_grad_() for x in (q, k, v, table)]
    all_of_them = hipvit.attention(*reference[:3], score=patterns.relative_bias(reference[3], GRID))
    all_of_them.sum().backward()
    for chosen in range(4):
        inputs = [q.clone(), k.clone(), v.clone(), table.clone()]
        inputs[chosen].requires_grad_()
        result = hipvit.attention(*inputs[:3], score=patterns.relative_bias(inputs[3], GRID))
        assert torch.equal(result, all_of_them)
        result.sum().backward()
        assert torch.equal(inputs[chosen].grad, reference[chosen].grad)
        assert all(x.grad is None for index, x in enumerate(inputs) if index != chosen)
    with torch.no_grad():
        assert not hipvit.attention(*reference[:3]).requires_grad


def test_one_tensor_in_two_calls(device: str) -> None:
    q, k, v = (leaf(x, device) for x in QKV)
    bias = leaf(BIAS, device)

    def twice(attend: Callable[..., Any]) -> list[Any]:
        result = attend(attend(q, k, v), k, v)
        return [result, *torch.autograd.grad(result.square().sum(), (q, k, v, bias))]

    ours = twice(lambda *qkv: hipvit.attention(*qkv, score=patterns.bias(bias)))
    everything = torch.ones(TOKENS, TOKENS, dtype=torch.bool, device=device)
    theirs = twice(lambda *qkv: expected(*qkv, score=lambda s: s + bias.double(), mask=everything))
    for mine, other in zip(ours, theirs):
        # The second call's errors add to the first's, which the square doubles.
        assert_close(mine / 8, other.double() / 8, torch.float32)


def test_derivatives_of_derivatives_are_an_error(device: str) -> None:
    q, k, v = (leaf(x, device) for x in QKV)
    (gradient,) = torch.autograd.grad(hipvit.attention(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="attention_backward"):
        gradient.sum().backward()


def test_strides_and_offsets(device: str) -> None:
    qkv = leaf(np.stack(QKV).transpose(1, 3, 0, 2, 4).copy(), device)
    packed = qkv.permute(2, 0, 3, 1, 4)
    contiguous = [x.contiguous() for x in packed]
    odd = [torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape) for x in contiguous]
    first = hipvit.attention(*packed, mask=patterns.causal())
    for others in (contiguous, odd):
        again = hipvit.attention(*others, mask=patterns.causal())
        assert torch.equal(first, again)
    (gradient,) = torch.autograd.grad(first.sum(), qkv)
    assert gradient.shape == qkv.shape and gradient.abs().max() > 0


def test_empty_batch(device: str) -> None:
    q, k, v = (leaf(x[:0], device) for x in QKV)
    table = leaf(TABLE, device)
    result = hipvit.attention(q, k, v, score=patterns.relative_bias(table, GRID))
    assert result.shape == (0, HEADS, TOKENS, HEAD_DIM)
    result.sum().backward()
    assert q.grad.shape == q.shape and torch.equal(table.grad, torch.zeros_like(table))
    none = hipvit.attention(*(leaf(x, device) for x in QKV[:1]), *(leaf(x[:, :, :0], device) for x in QKV[1:]))
    assert torch.equal(none, torch.zeros_like(none))


def test_the_operator_passes_torchs_own_checks(device: str) -> None:
    operands = [leaf(x.transpose(0, 2, 1, 3).copy(), device) for x in QKV]
    pattern, _, _ = patterns._serialize(patterns.bias(BIAS) * patterns.scalar(2.0), patterns.documents(DOCUMENTS))
    captured = [leaf(BIAS, device), torch.from_numpy(DOCUMENTS).to(device)]
    import hipvit._torch_attention  # noqa: F401

    arguments = (*operands, captured, [2.0], pattern, 0.3, True)
    torch.library.opcheck(torch.ops.hipvit.attention.default, arguments)


def test_a_compiled_program_keeps_it(device: str) -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = torch.nn.Linear(16, 48)
            self.table = torch.nn.Parameter(torch.from_numpy(TABLE[:, :2].copy()))
            self.register_buffer("documents", torch.from_numpy(DOCUMENTS))

        def forward(self, x: Any, cap: float) -> Any:
            q, k, v = self.qkv(x).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)
            score = patterns.soft_cap(patterns.scalar(cap), patterns.relative_bias(self.table, GRID))
            mask = patterns.documents(self.documents) | patterns.prefix(1)
            return hipvit.attention(q, k, v, score=score, mask=mask) * 2

    torch.manual_seed(0)
    block = Block().to(device)
    seen: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    compiled = torch.compile(block, backend=backend, fullgraph=True)
    x = torch.randn(2, TOKENS, 16, device=device)
    for cap in (2.0, 3.0):
        results = []
        for program in (block, compiled):
            block.zero_grad()
            result = program(x, cap)
            result.square().sum().backward()
            results.append([result, *(p.grad for p in block.parameters())])
        for eager, other in zip(*results):
            assert torch.equal(eager, other)
    names = [str(node.target) for graph in seen for node in graph.graph.nodes]
    assert any(name.startswith("hipvit.attention") for name in names), names


def test_flex_attentions_functions(device: str) -> None:
    q, k, v = (leaf(x, device) for x in QKV)
    wrapped = patterns.tensor(torch.from_numpy(DOCUMENTS[0]).to(device))

    def score(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return torch.where(q_idx >= kv_idx, torch.tanh(score / 2) * 2, score - (q_idx - kv_idx).abs())

    def mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (q_idx >= kv_idx) & (wrapped[q_idx] == wrapped[kv_idx]) | (kv_idx == 0)

    i, j = (torch.arange(TOKENS, device=device).view(shape) for shape in ((-1, 1), (1, -1)))
    ids = torch.from_numpy(DOCUMENTS[0]).to(device)
    visible = (i >= j) & (ids[:, None] == ids) | (j == 0)
    reference = expected(q, k, v, score=lambda s: score(s, 0, 0, i, j), mask=visible)
    assert_close(hipvit.attention(q, k, v, score=score, mask=mask), reference, torch.float32)


def test_wrong_tensors() -> None:
    q, k, v = (leaf(x, "cpu") for x in QKV)
    with pytest.raises(hipvit.ArgumentError, match="float64, expected one of"):
        hipvit.attention(q.double(), k.double(), v.double())
    with pytest.raises(hipvit.ArgumentError, match=r"k is torch\.float16"):
        hipvit.attention(q, k.half(), v)
    with pytest.raises(hipvit.ArgumentError, match="is on meta"):
        hipvit.attention(q, k.to("meta"), v)
    with pytest.raises(hipvit.ArgumentError, match="more than 32 bits"):
        hipvit.attention(q, k, v, mask=patterns.documents(torch.full((2, TOKENS), 2**40)))
    with pytest.raises(TypeError, match=r"patterns\.tensor"):
        hipvit.attention(q, k, v, score=lambda score, *_: score + q)
