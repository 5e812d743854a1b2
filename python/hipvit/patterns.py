"""Masks and scores of ``hipvit.attention``, as expressions.

>>> from hipvit import patterns
>>> mask = patterns.causal() & patterns.window(64, 0)
>>> score = patterns.soft_cap(50.0)

An expression is also what a Python function returns that ``hipvit.attention`` calls with expressions:

>>> mask = lambda batch, head, query, key: key <= query
>>> score = lambda score, batch, head, query, key: score - 0.5 * abs(query - key)

Operators are those of Python: arithmetic, comparisons, ``&``, ``|`` and ``~``. Integers become floats where floats are expected. A number is a
constant of the compiled code; ``scalar`` is a number that may change from call to call. ``tensor`` wraps an array or a tensor, whose
elements are read by their indices. Floats have gradients.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

from hipvit._errors import ArgumentError

__all__ = [
    "Expression",
    "Tensor",
    "alibi",
    "batch",
    "bias",
    "causal",
    "causal_from_end",
    "dilated",
    "documents",
    "exp",
    "head",
    "heads",
    "key",
    "key_padding",
    "keys",
    "log",
    "maximum",
    "minimum",
    "prefix",
    "queries",
    "query",
    "relative_bias",
    "relative_bias_with_class",
    "scalar",
    "score",
    "shifted_window",
    "soft_cap",
    "sqrt",
    "table",
    "tanh",
    "temperature",
    "tensor",
    "to_float",
    "where",
    "window",
    "window_2d",
]

_INT_BITS = 31


class Expression:
    """A float, an integer or a truth value of each pair of a query and a key. Immutable."""

    __array_ufunc__ = None  # NumPy's numbers leave operators to this class.

    def __init__(self, kind: str, name: str, operands: tuple[Expression, ...] = (), value: Any = None) -> None:
        self._kind = kind
        self._name = name
        self._operands = operands
        self._value = value

    def __add__(self, other: Operand) -> Expression:
        return _arithmetic("add", self, other)

    def __radd__(self, other: Operand) -> Expression:
        return _arithmetic("add", other, self)

    def __sub__(self, other: Operand) -> Expression:
        return _arithmetic("sub", self, other)

    def __rsub__(self, other: Operand) -> Expression:
        return _arithmetic("sub", other, self)

    def __mul__(self, other: Operand) -> Expression:
        return _arithmetic("mul", self, other)

    def __rmul__(self, other: Operand) -> Expression:
        return _arithmetic("mul", other, self)

    def __truediv__(self, other: Operand) -> Expression:
        return _apply("float", "div", to_float(self), to_float(other))

    def __rtruediv__(self, other: Operand) -> Expression:
        return _apply("float", "div", to_float(other), to_float(self))

    def __floordiv__(self, other: Operand) -> Expression:
        return _apply(self._kind, "floor_div", self, _expression(other))

    def __rfloordiv__(self, other: Operand) -> Expression:
        return _apply(self._kind, "floor_div", _expression(other), self)

    def __mod__(self, other: Operand) -> Expression:
        return _apply(self._kind, "mod", self, _expression(other))

    def __rmod__(self, other: Operand) -> Expression:
        return _apply(self._kind, "mod", _expression(other), self)

    def __neg__(self) -> Expression:
        return _apply(self._kind, "neg", self)

    def __abs__(self) -> Expression:
        return _apply(self._kind, "abs", self)

    def abs(self) -> Expression:
        """The absolute value, as ``abs(self)``."""
        return abs(self)

    def __lt__(self, other: Operand) -> Expression:
        return _compare("less", self, other)

    def __le__(self, other: Operand) -> Expression:
        return _compare("less_equal", self, other)

    def __gt__(self, other: Operand) -> Expression:
        return _compare("less", other, self)

    def __ge__(self, other: Operand) -> Expression:
        return _compare("less_equal", other, self)

    def __eq__(self, other: Operand) -> Expression:  # type: ignore[override]
        return _compare("equal", self, other)

    def __ne__(self, other: Operand) -> Expression:  # type: ignore[override]
        return ~_compare("equal", self, other)

    __hash__ = object.__hash__

    def __and__(self, other: Union[Expression, bool]) -> Expression:
        return _apply("bool", "and", self, _expression(other))

    def __rand__(self, other: bool) -> Expression:
        return _apply("bool", "and", _expression(other), self)

    def __or__(self, other: Union[Expression, bool]) -> Expression:
        return _apply("bool", "or", self, _expression(other))

    def __ror__(self, other: bool) -> Expression:
        return _apply("bool", "or", _expression(other), self)

    def __invert__(self) -> Expression:
        return _apply("bool", "not", self)

    def __bool__(self) -> bool:
        raise TypeError(
            "an expression has no truth value before attention is computed. Combine masks with &, | and ~, and use where() for if"
        )

    def __repr__(self) -> str:
        return f"<hipvit.patterns.Expression {_Captured('tensor').json(self)}>"

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """``torch.where``, ``torch.tanh`` and the other functions of this module that PyTorch has too."""
        ours = _FUNCTIONS.get(getattr(function, "__name__", ""))
        return NotImplemented if ours is None or kwargs else ours(*args)


class Tensor:
    """A captured array or tensor. Its elements are ``wrapped[index, ...]``, by integer expressions. Indices outside are clamped.

    Floats are float expressions with gradients, integers are integers, and ``bool`` are truth values.
    """

    def __init__(self, data: Any, name: Optional[str] = None) -> None:
        self.data = data
        self.name = "tensor" if name is None else name
        dtype = str(data.dtype).rpartition(".")[2]
        if dtype == "bool":
            self.kind = "bool"
        elif "float" in dtype:
            self.kind = "float"
        elif "int" in dtype:
            self.kind = "int"
        else:
            raise ArgumentError(f"{self.name}: has elements of {dtype}, expected floats, integers or bool")

    def __getitem__(self, index: Union[Operand, tuple[Operand, ...]]) -> Expression:
        indices = tuple(_expression(i) for i in (index if isinstance(index, tuple) else (index,)))
        if len(indices) != len(self.data.shape):
            raise ArgumentError(
                f"{self.name}: has {len(self.data.shape)} dimensions and is read with {len(indices)} indices. Index each dimension"
            )
        if self.kind == "bool":
            return _apply("int", "load", *indices, value=self) != 0
        return _apply(self.kind, "load", *indices, value=self)


Operand = Union[Expression, float, bool]
Function = Callable[..., Expression]


def _expression(operand: Any) -> Expression:
    if isinstance(operand, Expression):
        return operand
    if isinstance(operand, bool):
        return Expression("bool", "constant", value=operand)
    if isinstance(operand, numbers.Integral):
        number = int(operand)
        if not -(1 << _INT_BITS) <= number < 1 << _INT_BITS:
            raise ArgumentError(f"{number} is an integer of more than 32 bits in an expression. Use a float")
        return Expression("int", "constant", value=number)
    if isinstance(operand, numbers.Real):
        value = float(operand)
        if not abs(value) < math.inf:
            raise ArgumentError(f"{value} is a constant of an expression, which is finite. Hide keys with mask=")
        return Expression("float", "constant", value=value)
    what = type(operand).__name__
    raise TypeError(f"{what} is no part of an expression: expected a number or an expression. Wrap a tensor in patterns.tensor, and index it")


def _apply(kind: str, name: str, *operands: Expression, value: Any = None) -> Expression:
    return Expression(kind, name, operands, value)


def _promote(*operands: Operand) -> tuple[Expression, ...]:
    """Integers as floats if one operand is a float."""
    expressions = tuple(_expression(operand) for operand in operands)
    if any(expression._kind == "float" for expression in expressions):
        return tuple(to_float(e) if e._kind == "int" else e for e in expressions)
    return expressions


def _arithmetic(name: str, *operands: Operand) -> Expression:
    promoted = _promote(*operands)
    return _apply(promoted[0]._kind, name, *promoted)


def _compare(name: str, *operands: Operand) -> Expression:
    return _apply("bool", name, *_promote(*operands))


score = Expression("float", "score")
"""The score before the pattern: ``scale · q·k``."""
batch = Expression("int", "batch")
"""Index of the image in the batch."""
head = Expression("int", "head")
"""Index of the head."""
query = Expression("int", "query")
"""Index of the query."""
key = Expression("int", "key")
"""Index of the key."""
heads = Expression("int", "heads")
"""Number of heads."""
queries = Expression("int", "queries")
"""Number of queries."""
keys = Expression("int", "keys")
"""Number of keys."""


def tensor(data: Any, name: Optional[str] = None) -> Tensor:
    """Wraps an array or a tensor, so that expressions read its elements. ``name`` is its name in errors."""
    return data if isinstance(data, Tensor) else Tensor(data, name)


def scalar(value: float) -> Expression:
    """A number that may change from call to call: other values compile nothing. An integer has 32 bits."""
    constant = _expression(value)
    return _apply(constant._kind, "scalar", value=constant._value)


def table(values: Sequence[float], index: Operand) -> Expression:
    """Element ``index`` of constant numbers. An index outside is clamped."""
    elements = [_expression(value) for value in values]
    kind = "int" if all(element._kind == "int" for element in elements) else "float"
    return _apply(kind, "table", _expression(index), value=[element._value for element in elements])


def to_float(operand: Operand) -> Expression:
    """The float of an integer. A float is returned as it is."""
    expression = _expression(operand)
    if expression._kind == "float":
        return expression
    if expression._name == "constant" and expression._kind == "int":
        return Expression("float", "constant", value=float(expression._value))
    return _apply("float", "to_float", expression)


def where(condition: Operand, x: Operand, y: Operand) -> Expression:
    """``x`` where the condition is true, otherwise ``y``."""
    promoted = _promote(x, y)
    return _apply(promoted[0]._kind, "select", _expression(condition), *promoted)


def minimum(x: Operand, y: Operand) -> Expression:
    """Smaller of two numbers."""
    return _arithmetic("min", x, y)


def maximum(x: Operand, y: Operand) -> Expression:
    """Larger of two numbers."""
    return _arithmetic("max", x, y)


def exp(x: Operand) -> Expression:
    """``e^x``."""
    return _apply("float", "exp", to_float(x))


def log(x: Operand) -> Expression:
    """Natural logarithm."""
    return _apply("float", "log", to_float(x))


def sqrt(x: Operand) -> Expression:
    """Square root."""
    return _apply("float", "sqrt", to_float(x))


def tanh(x: Operand) -> Expression:
    """Hyperbolic tangent."""
    return _apply("float", "tanh", to_float(x))


_FUNCTIONS: dict[str, Callable[..., Expression]] = {
    "abs": lambda x: abs(_expression(x)),
    "exp": exp,
    "log": log,
    "maximum": maximum,
    "minimum": minimum,
    "sqrt": sqrt,
    "tanh": tanh,
    "where": where,
}


def causal() -> Expression:
    """Keys up to the query's own position."""
    return key <= query


def causal_from_end() -> Expression:
    """Causal attention in which the queries are the last tokens."""
    return key <= query + (keys - queries)


def window(left: Operand, right: Operand) -> Expression:
    """Keys from ``left`` positions before the query to ``right`` positions after it."""
    return (query <= key + left) & (key <= query + right)


def prefix(count: Operand) -> Expression:
    """The first ``count`` keys. Register and class tokens are a prefix."""
    return key < count


def dilated(step: Operand) -> Expression:
    """Every ``step``-th key, counted from the query."""
    return (key - query) % step == 0


def documents(ids: Any) -> Expression:
    """Keys of the query's document. ``ids`` are integers ``[batch, tokens]``, or ``[tokens]`` for all images."""
    wrapped = tensor(ids, "documents")
    if len(wrapped.data.shape) == 1:
        return wrapped[query] == wrapped[key]
    return wrapped[batch, query] == wrapped[batch, key]


def key_padding(present: Any) -> Expression:
    """Keys that are present. ``present`` is ``[batch, keys]``, bool or integers, of which 0 is padding."""
    wrapped = tensor(present, "key_padding")
    loaded = wrapped[batch, key]
    return loaded if wrapped.kind == "bool" else loaded != 0


def window_2d(columns: int, radius: tuple[int, int], prefix: int = 0) -> Expression:
    """Keys within ``radius`` rows and columns of the query, in a grid with ``columns`` columns.

    The grid follows ``prefix`` tokens, which see all keys and are seen by all queries.
    """
    near = abs((query - prefix) // columns - (key - prefix) // columns) <= radius[0]
    near = near & (abs((query - prefix) % columns - (key - prefix) % columns) <= radius[1])
    return _or_prefix(near, prefix)


def shifted_window(grid: tuple[int, int], window: tuple[int, int], shift: tuple[int, int], prefix: int = 0) -> Expression:
    """Keys in the query's window of a grid, whose windows are shifted as Swin's are, without rolling the grid.

    The grid follows ``prefix`` tokens, which see all keys and are seen by all queries.
    """

    def window_of(token: Expression) -> tuple[Expression, Expression]:
        row = (token - prefix) // grid[1] + (window[0] - shift[0])
        column = (token - prefix) % grid[1] + (window[1] - shift[1])
        return row // window[0], column // window[1]

    (query_row, query_column), (key_row, key_column) = window_of(query), window_of(key)
    return _or_prefix((query_row == key_row) & (query_column == key_column), prefix)


def _or_prefix(mask: Expression, prefix: int) -> Expression:
    return mask if prefix == 0 else mask | (key < prefix) | (query < prefix)


def alibi(score: Expression = score) -> Expression:
    """ALiBi: subtracts ``2^(−8·(h + 1)/heads) · |query − key|`` in head h."""
    slope = exp(to_float(head + 1) / heads * (-8.0 * math.log(2.0)))
    return score - slope * abs(query - key)


def soft_cap(cap: Operand, score: Expression = score) -> Expression:
    """Soft cap: ``cap · tanh(score / cap)``."""
    return to_float(cap) * tanh(score / cap)


def temperature(value: Operand, score: Expression = score) -> Expression:
    """Divides the score by a temperature."""
    return score / value


def bias(values: Any, score: Expression = score) -> Expression:
    """Adds floats ``[heads, queries, keys]``."""
    return score + tensor(values, "bias")[head, query, key]


def relative_bias(values: Any, window: tuple[int, int], score: Expression = score) -> Expression:
    """Adds Swin's relative position bias for a window of rows and columns: a table ``[(2·rows − 1)·(2·columns − 1), heads]``."""
    return score + tensor(values, "relative_bias")[_relative_position(query, key, window), head]


def relative_bias_with_class(values: Any, grid: tuple[int, int], score: Expression = score) -> Expression:
    """Adds BEiT's relative position bias for a class token, followed by a grid: a table ``[(2·rows − 1)·(2·columns − 1) + 3, heads]``.

    Its last rows belong to the pairs of the class token with a key, of a query with the class token, and of the class token with itself.
    """
    pairs = (2 * grid[0] - 1) * (2 * grid[1] - 1)
    of_grid = _relative_position(query - 1, key - 1, grid)
    of_class = where(key == 0, pairs + 2, pairs)
    index = where(query == 0, of_class, where(key == 0, pairs + 1, of_grid))
    return score + tensor(values, "relative_bias")[index, head]


def _relative_position(query: Expression, key: Expression, grid: tuple[int, int]) -> Expression:
    rows, columns = grid
    row = query // columns - key // columns + (rows - 1)
    column = query % columns - key % columns + (columns - 1)
    return row * (2 * columns - 1) + column


class _Captured:
    """Tensors and scalars of an expression, which has them by name in JSON. Each root has its own ``prefix``."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.tensors: list[Tensor] = []
        self.names: list[str] = []
        self.scalars: list[Expression] = []

    def json(self, expression: Expression) -> str:
        name, kind, value = expression._name, expression._kind, expression._value
        if name == "constant":
            return str(value).lower() if kind == "bool" else repr(value)
        if name == "scalar":
            return f'{{"scalar": {{"name": "{self.prefix}.scalar_{self._number(expression)}", "type": "{kind}"}}}}'
        # A tensor comes before those that its indices read, as the compiled pattern has them.
        loaded = self._name(value) if name == "load" else ""
        operands = ", ".join([self.json(operand) for operand in expression._operands])
        if name == "load":
            return f'{{"load": {{"tensor": "{loaded}", "type": "{kind}", "index": [{operands}]}}}}'
        if name == "table":
            values = ", ".join([repr(v if kind == "int" else float(v)) for v in value])
            return f'{{"table": {{"values": [{values}], "index": {operands}}}}}'
        return f'{{"{name}": [{operands}]}}' if expression._operands else f'"{name}"'

    def _number(self, scalar: Expression) -> int:
        for number, known in enumerate(self.scalars):
            if known is scalar:
                return number
        self.scalars.append(scalar)
        return len(self.scalars) - 1

    def _name(self, wrapped: Tensor) -> str:
        for known, name in zip(self.tensors, self.names):
            if known.data is wrapped.data and (known.kind == "float") == (wrapped.kind == "float"):
                return name
        name, same = f"{self.prefix}.{wrapped.name}", 1
        while name in self.names:
            same += 1
            name = f"{self.prefix}.{wrapped.name}_{same}"
        self.tensors.append(wrapped)
        self.names.append(name)
        return name


def _root(root: Union[Expression, Function, None], arguments: tuple[Expression, ...]) -> Optional[Expression]:
    if root is None or isinstance(root, Expression):
        return root
    return _expression(root(*arguments))


def _serialize(
    score_of: Union[Expression, Function, None], mask_of: Union[Expression, Function, None]
) -> tuple[str, list[Any], list[float]]:
    """A pattern in JSON, with its captured tensors and scalars in the order of their first use."""
    indices = (batch, head, query, key)
    roots = {"score": _root(score_of, (score, *indices)), "mask": _root(mask_of, indices)}
    members: list[str] = []
    tensors: list[Any] = []
    scalars: list[float] = []
    for name, root in roots.items():
        if root is not None:
            captured = _Captured(name)
            members.append(f'"{name}": {captured.json(to_float(root) if name == "score" and root._kind == "int" else root)}')
            tensors += [wrapped.data for wrapped in captured.tensors]
            scalars += [float(scalar._value) for scalar in captured.scalars]
    return f"{{{', '.join(members)}}}", tensors, scalars
