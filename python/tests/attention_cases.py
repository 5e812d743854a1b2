"""Patterns of the tests of ``hipvit.attention``, with what they are in NumPy, and attention in double precision."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Optional

import numpy as np
import numpy.typing as npt

from hipvit import patterns

Floats = npt.NDArray[Any]
BATCH, HEADS, TOKENS, HEAD_DIM = 2, 3, 12, 8
GRID = (3, 4)

_random = np.random.default_rng(0)


def floats(*shape: int) -> npt.NDArray[np.float32]:
    return _random.normal(size=shape).astype(np.float32)


QKV = [floats(BATCH, HEADS, TOKENS, HEAD_DIM) for _ in range(3)]
BIAS = floats(HEADS, TOKENS, TOKENS)
TABLE = floats((2 * GRID[0] - 1) * (2 * GRID[1] - 1), HEADS)
TABLE_WITH_CLASS = floats((2 * 1 - 1) * (2 * 11 - 1) + 3, HEADS)
DOCUMENTS = np.array([[0] * 5 + [1] * 4 + [2] * 3, [7] * 2 + [9] * 10])
PADDING = np.arange(TOKENS) < np.array([[9], [12]])


@dataclass(frozen=True)
class Case:
    """``score(s, batch, head, query, key)`` and ``mask(batch, head, query, key)`` take arrays of indices."""

    score_of: Any = None
    mask_of: Any = None
    score: Callable[..., Any] = lambda s, *_: s
    mask: Callable[..., Any] = lambda b, h, i, j: np.full(np.broadcast(b, h, i, j).shape, True)
    captured: list[Any] = field(default_factory=list)


def place(token: Any) -> tuple[Any, Any]:
    return token // GRID[1], token % GRID[1]


def _near(i: Any, j: Any, radius: tuple[int, int], prefix: int) -> Any:
    (a, b), (c, d) = place(i - prefix), place(j - prefix)
    return ((abs(a - c) <= radius[0]) & (abs(b - d) <= radius[1])) | (i < prefix) | (j < prefix)


def _shifted(token: Any) -> Any:
    row, column = place(token)
    return (row + 1) // 2 * 100 + (column + 1) // 2


def _relative(i: Any, j: Any) -> Any:
    (a, b), (c, d) = place(i), place(j)
    return (a - c + GRID[0] - 1) * (2 * GRID[1] - 1) + b - d + GRID[1] - 1


def _with_class(i: Any, j: Any) -> Any:
    index = i - j + 10
    index = np.where(j == 0, 21 + 1, index)
    return np.where(i == 0, np.where(j == 0, 21 + 2, 21), index)


def _slope(h: Any) -> Any:
    return 2.0 ** (-8.0 * (h + 1) / HEADS)


_bias, _ids = patterns.tensor(BIAS), patterns.tensor(DOCUMENTS[0])

CASES: dict[str, Case] = {
    "plain": Case(),
    "causal": Case(mask_of=patterns.causal(), mask=lambda b, h, i, j: j <= i),
    "causal_from_end": Case(mask_of=patterns.causal_from_end(), mask=lambda b, h, i, j: j <= i),
    "window": Case(mask_of=patterns.window(2, 1), mask=lambda b, h, i, j: (i - 2 <= j) & (j <= i + 1)),
    "scalars": Case(
        mask_of=patterns.window(patterns.scalar(2), patterns.scalar(1)),
        score_of=patterns.score * patterns.scalar(0.5),
        mask=lambda b, h, i, j: (i - 2 <= j) & (j <= i + 1),
        score=lambda s, *_: 0.5 * s,
    ),
    "window_2d": Case(mask_of=patterns.window_2d(4, (1, 1)), mask=lambda b, h, i, j: _near(i, j, (1, 1), 0)),
    "window_2d_prefix": Case(
        mask_of=patterns.window_2d(4, (1, 0), prefix=2), mask=lambda b, h, i, j: _near(i, j, (1, 0), 2)
    ),
    "shifted_window": Case(
        mask_of=patterns.shifted_window(GRID, (2, 2), (1, 1)), mask=lambda b, h, i, j: _shifted(i) == _shifted(j)
    ),
    "prefix": Case(
        mask_of=patterns.prefix(3) | patterns.window(1, 1), mask=lambda b, h, i, j: (j < 3) | (abs(i - j) <= 1)
    ),
    "dilated": Case(mask_of=patterns.dilated(3), mask=lambda b, h, i, j: (j - i) % 3 == 0),
    "documents": Case(
        mask_of=patterns.documents(DOCUMENTS),
        mask=lambda b, h, i, j: DOCUMENTS[b, i] == DOCUMENTS[b, j],
        captured=[DOCUMENTS],
    ),
    "documents_of_all": Case(
        mask_of=lambda b, h, i, j: _ids[i] == _ids[j],
        mask=lambda b, h, i, j: DOCUMENTS[0, i] == DOCUMENTS[0, j],
    ),
    "key_padding": Case(
        mask_of=patterns.key_padding(PADDING) & patterns.causal(), mask=lambda b, h, i, j: PADDING[b, j] & (j <= i)
    ),
    "key_padding_of_integers": Case(
        mask_of=~patterns.key_padding(PADDING.astype(np.uint8)), mask=lambda b, h, i, j: ~PADDING[b, j]
    ),
    "alibi": Case(score_of=patterns.alibi(), score=lambda s, b, h, i, j: s - _slope(h) * abs(i - j)),
    "soft_cap": Case(score_of=patterns.soft_cap(2), score=lambda s, *_: 2 * np.tanh(s / 2)),
    "temperature": Case(
        score_of=patterns.temperature(patterns.tensor(BIAS[:, 0, 0])[patterns.head]),
        score=lambda s, b, h, i, j: s / BIAS[h, 0, 0],
    ),
    "bias": Case(score_of=patterns.bias(BIAS), score=lambda s, b, h, i, j: s + BIAS[h, i, j], captured=[BIAS]),
    "relative_bias": Case(
        score_of=patterns.relative_bias(TABLE, GRID), score=lambda s, b, h, i, j: s + TABLE[_relative(i, j), h]
    ),
    "relative_bias_with_class": Case(
        score_of=patterns.relative_bias_with_class(TABLE_WITH_CLASS, (1, 11)),
        score=lambda s, b, h, i, j: s + TABLE_WITH_CLASS[_with_class(i, j), h],
    ),
    "function": Case(
        score_of=lambda s, b, h, i, j: patterns.where(i < j, s - 0.5 * abs(i - j), s * 2) + _bias[h, j, i],
        score=lambda s, b, h, i, j: np.where(i < j, s - 0.5 * abs(i - j), s * 2) + BIAS[h, j, i],
        mask_of=lambda b, h, i, j: (i >= j) | (j % 4 != 1) & ~(h == 2),
        mask=lambda b, h, i, j: (i >= j) | (j % 4 != 1) & ~(h == 2),
    ),
    "operators": Case(
        score_of=lambda s, b, h, i, j: patterns.maximum(-s, patterns.minimum(s, 1)) / (1 + i // 2)
        + patterns.log(j + 1)
        - patterns.sqrt(patterns.exp(s)) * 2 / (3 - 1.0 * h)
        + patterns.table([0, 0.5, 1], b),
        score=lambda s, b, h, i, j: np.maximum(-s, np.minimum(s, 1)) / (1 + i // 2)
        + np.log(j + 1)
        - np.sqrt(np.exp(s)) * 2 / (3 - h)
        + 0.5 * b,
        mask_of=lambda b, h, i, j: (7 - i > 3 - j) & (10 % (j + 1) < 5) | (20 // (i + 1) == patterns.table([2, 3], h)),
        mask=lambda b, h, i, j: (7 - i > 3 - j) & (10 % (j + 1) < 5) | (20 // (i + 1) == np.array([2, 3, 3])[h]),
    ),
}


def reference(
    case: Case, q: Floats, k: Floats, v: Floats, *, scale: Optional[float] = None
) -> npt.NDArray[np.float64]:
    """Attention in double precision."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.transpose(0, 1, 3, 2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    indices = np.meshgrid(*(np.arange(extent) for extent in scores.shape), indexing="ij")
    scores = np.where(case.mask(*indices), case.score(scores, *indices), -np.inf)
    largest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    sums = weights.sum(-1, keepdims=True)
    return np.asarray(weights / np.where(sums == 0, 1, sums) @ v)
