"""``hipvit.attention`` on NumPy's arrays, against attention in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from attention_cases import BIAS, CASES, DOCUMENTS, HEAD_DIM, QKV, TOKENS, floats, reference

import hipvit
from hipvit import patterns


def assert_close(got: npt.NDArray[Any], expected: npt.NDArray[np.float64], epsilon: float = 2.0**-23) -> None:
    """An error of a score, a sum of ``HEAD_DIM`` products, is one of the result, a sum over ``TOKENS`` keys. The scores and their
    derivatives are of the order of 4."""
    bound = 4 * (HEAD_DIM + TOKENS) * epsilon * max(1.0, float(np.abs(expected).max()))
    assert got.shape == expected.shape
    assert float(np.abs(got - expected).max(initial=0)) <= bound


@pytest.mark.parametrize("name", CASES)
def test_patterns(name: str) -> None:
    case = CASES[name]
    got = hipvit.attention(*QKV, score=case.score_of, mask=case.mask_of)
    assert got.dtype == np.float32 and got.flags.c_contiguous
    assert_close(got, reference(case, *QKV))


def test_queries_and_keys_of_other_numbers() -> None:
    q, k, v = QKV[0][:, :, :5], QKV[1], QKV[2]
    for name in ("plain", "window", "alibi", "documents"):
        case = CASES[name]
        got = hipvit.attention(q, k, v, score=case.score_of, mask=case.mask_of, scale=0.3)
        assert_close(got, reference(case, q, k, v, scale=0.3))
    got = hipvit.attention(q, k, v, mask=patterns.causal_from_end())
    shifted = np.concatenate([np.zeros_like(k[:, :, :7]), q], axis=2)
    assert_close(got, reference(CASES["causal"], shifted, k, v)[:, :, 7:])


def test_strides_and_dtypes() -> None:
    case = CASES["causal"]
    strided = [floats(2, TOKENS, 3, 2 * HEAD_DIM).transpose(0, 2, 1, 3)[..., ::2] for _ in range(3)]
    assert_close(hipvit.attention(*strided, mask=case.mask_of), reference(case, *strided))
    halves = [x.astype(np.float16) for x in QKV]
    got = hipvit.attention(*halves, mask=case.mask_of)
    assert got.dtype == np.float16
    assert_close(got, reference(case, *halves), 2.0**-11)


def test_a_query_that_sees_no_key_gets_zeros() -> None:
    got = hipvit.attention(*QKV, mask=patterns.key > patterns.query)
    assert np.array_equal(got[:, :, -1], np.zeros_like(got[:, :, -1])) and np.isfinite(got).all()
    assert np.array_equal(got[:, :, -2], QKV[2][:, :, -1])


def test_empty_arrays() -> None:
    q, k, v = QKV
    assert hipvit.attention(q[:0], k[:0], v[:0]).shape == (0, *q.shape[1:])
    assert hipvit.attention(q[:, :, :0], k, v).shape == (*q.shape[:2], 0, HEAD_DIM)
    assert np.array_equal(hipvit.attention(q, k[:, :, :0], v[:, :, :0]), np.zeros_like(q))


def test_scalars_differ_from_call_to_call() -> None:
    for size in (0, 1, 5):
        scalar = patterns.scalar(size)
        got = hipvit.attention(*QKV, mask=patterns.window(scalar, scalar))
        expected = hipvit.attention(*QKV, mask=lambda b, h, i, j: abs(i - j) <= size)  # noqa: B023
        assert np.array_equal(got, expected)
    text, _, scalars = patterns._serialize(None, patterns.window(scalar, scalar))
    assert scalars == [5.0] and text.count("scalar_0") == 2 and "5" not in text


def test_captured_tensors_are_told_apart() -> None:
    # Two arrays of one name, an array in two places, one in the index of another, and one in mask and score.
    steps = patterns.tensor(np.arange(TOKENS)[::-1].copy())
    score = patterns.bias(BIAS, patterns.bias(2 * BIAS)) + patterns.tensor(BIAS)[0, steps[patterns.query], patterns.key]
    got = hipvit.attention(*QKV, score=score, mask=steps[patterns.key] <= steps[patterns.query])
    indices = np.arange(TOKENS)
    case = hipvit.attention(
        *QKV,
        score=patterns.bias(3 * BIAS + BIAS[:1, ::-1]),
        mask=patterns.tensor(indices[:, None] <= indices)[patterns.query, patterns.key],
    )
    np.testing.assert_allclose(got, case, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": patterns.score > 0}, "mask: a mask cannot depend on the score"),
        ({"mask": patterns.query + 1}, "mask: is an integer, expected a truth value"),
        ({"score": patterns.causal()}, "score: is a truth value, expected a float"),
        ({"score": patterns.score + patterns.causal()}, r"score: add\[1\]: is a truth value"),
        ({"mask": (patterns.key & patterns.causal()) | True}, r"mask: or\[0\]: and\[0\]: is an integer"),
        ({"mask": patterns.tensor(DOCUMENTS, "ids")[patterns.batch, patterns.score] < 3}, r"mask: less\[0\]: mask.ids\[1\]: is a float"),
        ({"score": patterns.score // 2}, r"score: floor_div\[0\]: is a float, expected an integer"),
        ({"mask": patterns.table([], patterns.key) < 1}, r"table: has no elements"),
        ({"mask": patterns.documents(np.zeros((0, 3), np.int32))}, r"`mask.documents`: has shape \[0, 3\]"),
        ({"score": patterns.bias(np.zeros((3, 12, 12), np.int64) + 2**40)}, "more than 32 bits"),
    ],
)
def test_wrong_patterns_name_the_expression(options: dict[str, Any], message: str) -> None:
    with pytest.raises(hipvit.ArgumentError, match=message):
        hipvit.attention(*QKV, **options)


def test_wrong_expressions() -> None:
    with pytest.raises(TypeError, match="combine|Combine"):
        bool(patterns.causal() and patterns.causal())
    unwrapped: Any = BIAS
    with pytest.raises(TypeError, match=r"patterns\.tensor"):
        patterns.score + unwrapped
    with pytest.raises(TypeError, match=r"patterns\.tensor"):
        unwrapped + patterns.score
    with pytest.raises(hipvit.ArgumentError, match="3 dimensions and is read with 2"):
        patterns.tensor(BIAS)[patterns.head, patterns.key]
    with pytest.raises(hipvit.ArgumentError, match="complex64"):
        patterns.tensor(BIAS.astype(np.complex64))
    with pytest.raises(hipvit.ArgumentError, match="32 bits"):
        patterns.key < 2**31
    with pytest.raises(hipvit.ArgumentError, match="Hide keys with mask="):
        patterns.where(patterns.causal(), patterns.score, float("-inf"))
    assert "less_equal" in repr(patterns.causal())


def test_wrong_operands() -> None:
    q, k, v = QKV
    for operands, message in (
        ((q[0], k, v), r"q has shape \[3, 12, 8\], expected \[batch"),
        ((q, k[..., :4], v), "k has shape"),
        ((q, k, v[:, :, :4]), "differ in the number of tokens"),
        ((q, k.astype(np.float16), v), "k is float16, and q is float32"),
        ((q.astype(np.float64), k.astype(np.float64), v.astype(np.float64)), "expected one of float32"),
    ):
        with pytest.raises(hipvit.ArgumentError, match=message):
            hipvit.attention(*operands)
