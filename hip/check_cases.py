"""What the kernels are held against: random inputs, launch geometry, float64 references and tolerances.

A case names its entry, fills the argument struct of the header beside its kernel, and knows the exact result. Backends (check_cuda.py)
only copy, launch and copy back. Every output lies between guards, whose bytes must not change.

u is a dtype's unit roundoff (2^-24, 2^-11, 2^-8). Inputs are rounded to the dtype before the reference sees them.
"""
import struct
from dataclasses import dataclass, field

import numpy as np

F32, F16, BF16 = "f32", "f16", "bf16"
DTYPES = (F32, F16, BF16)
SIZE = {F32: 4, F16: 2, BF16: 2}
U = {F32: 2.0**-24, F16: 2.0**-11, BF16: 2.0**-8}
# The smallest step between numbers near 0: what rounding costs where results vanish.
STEP = {F32: 2.0**-126, F16: 2.0**-24, BF16: 2.0**-126}
UNBOUNDED = 2**31 - 1
GUARD, FILL = 256, 0xA5


def encode(x, dtype):
    """float64 → the dtype's bits, to nearest even."""
    f = np.ascontiguousarray(x, np.float32)
    if dtype == F32:
        return f
    if dtype == F16:
        with np.errstate(over="ignore"):
            return f.astype(np.float16)
    bits = f.view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(f), np.uint16(0x7FC0), rounded)


def decode(raw, dtype):
    """The dtype's bytes → float64."""
    if dtype == F32:
        return raw.view(np.float32).astype(np.float64)
    if dtype == F16:
        return raw.view(np.float16).astype(np.float64)
    return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@dataclass
class Output:
    expected: np.ndarray  # float64, or u8 where it must be exact
    dtype: str = F32
    tolerance: object = 0.0
    initial: np.ndarray = None  # contents before, for what runs in place

    def nbytes(self):
        return self.expected.size * (1 if self.dtype == "u8" else SIZE[self.dtype])

    def check(self, raw):
        """(worst error over its tolerance, worst error, its tolerance)"""
        got = raw.astype(np.float64) if self.dtype == "u8" else decode(raw, self.dtype)
        want = self.expected.astype(np.float64).ravel()
        tolerance = np.broadcast_to(self.tolerance, self.expected.shape).ravel()
        if want.size == 0:
            return 0.0, 0.0, 0.0
        with np.errstate(invalid="ignore"):
            same = (got == want) | (np.isnan(got) & np.isnan(want))
            error = np.where(same, 0.0, np.abs(got - want))
        error = np.where(np.isnan(error), np.inf, error)
        ratio = np.where(error == 0, 0.0, error / np.maximum(tolerance, 1e-300))
        worst = int(np.argmax(ratio))
        return float(ratio[worst]), float(error[worst]), float(tolerance[worst])


@dataclass
class Case:
    name: str
    file: str
    entry: str
    grid: int
    block: int
    fields: list  # (struct format, value), or ("P", array | Output | None)
    bytes: int = 0
    flops: int = 0
    outputs: list = field(default_factory=list)

    def pack(self, address_of):
        """The argument struct; address_of maps an array or Output to its device address."""
        data = b""
        for kind, value in self.fields:
            if kind == "P":
                data += struct.pack("<Q", 0 if value is None else address_of(value))
            else:
                data += struct.pack("<" + kind, value)
        return data


def ceil(a, b):
    return -(-a // b)


def attention_launch(wave, dtype, shape, buffers, mask, strides, tokens, scale):
    """Entry, grid, block and fields for q, k, v and out: `strides` and `tokens` are the elements between images and tokens of q, k, v."""
    b, h, nq, nk, d = shape
    c = h * d
    head = next(x for x in (32, 64, 80, 96, 128) if d <= x)
    fields = [("P", x) for x in buffers] + mask
    fields += [("Q", s) for s in (*strides, nq * c)] + [("I", s) for s in (*tokens, c)]
    fields += [("I", x) for x in shape] + [("f", float(scale))]
    return f"attention_{head}_{dtype}", b * h * ceil(nq, 64), 4 * wave, fields


def mask_fields(keys=None, diagonal=0, left=UNBOUNDED, right=UNBOUNDED):
    return [("P", keys), ("i", diagonal), ("i", left), ("i", right), ("I", 0)]


class Maker:
    """Makes the cases of one wave size."""

    def __init__(self, wave, seed=1):
        self.wave, self.random = wave, np.random.default_rng(seed)

    def values(self, shape, dtype, scale=1.0):
        """Random numbers: the dtype's bits, and the same as float64."""
        raw = encode(self.random.standard_normal(shape, np.float32) * np.float32(scale), dtype)
        return raw, decode(raw.ravel(), dtype).reshape(shape)

    def case(self, name, file, entry, grid, block, fields, flops=0):
        outputs = [v for k, v in fields if isinstance(v, Output)]
        inputs = [v for k, v in fields if k == "P" and isinstance(v, np.ndarray)]
        moved = sum(o.nbytes() for o in outputs) + sum(a.nbytes for a in inputs)
        return Case(name, file, entry, max(grid, 1), block, fields, moved, flops, outputs)

    def packs(self, rows, columns, dtype):
        return ceil(rows * ceil(columns, 16 // SIZE[dtype]), 256)

    def patch_extract(self, dtype, b, h, w, ph, pw, chw=False):
        n, k = (h // ph) * (w // pw), 3 * ph * pw
        scale, shift = np.float32([0.017, 0.018, 0.0175]), np.float32([-2.1, -2.0, -1.8])
        if chw:
            x, pixels = self.values((b, 3, h, w), F32)
            crop = pixels[:, :, : h // ph * ph, : w // pw * pw]
            y = crop * scale.astype(float)[:, None, None] + shift.astype(float)[:, None, None]
            y = y.reshape(b, 3, h // ph, ph, w // pw, pw).transpose(0, 2, 4, 1, 3, 5)
            run = pw
        else:
            x = self.random.integers(0, 256, (b, h, w, 3), np.uint8)
            y = x[:, : h // ph * ph, : w // pw * pw] * scale.astype(float) + shift.astype(float)
            y = y.reshape(b, h // ph, ph, w // pw, pw, 3).transpose(0, 1, 3, 2, 4, 5)
            run = 3 * pw
        y = y.reshape(b * n, k)
        # One multiply-add in f32, of terms up to 4.4, and the rounding of the result.
        out = Output(y, dtype, U[dtype] * np.abs(y) + 8 * U[F32] + STEP[dtype])
        fields = [("P", x), ("P", out), ("3f", None), ("3f", None)] + [("I", v) for v in (b, h, w, ph, pw, 0)]
        fields[2:4] = [("f", float(v)) for v in (*scale, *shift)]
        name = f"patch_extract{'_chw' if chw else ''} {b}×{h}×{w} /{ph}×{pw}"
        grid = self.packs(b * n * k // run, run, dtype)
        return self.case(name, "patch_extract", f"patch_extract{'_chw' if chw else ''}_{dtype}", grid, 256, fields)

    def tokens(self, dtype, b, n, p, d, position=True):
        x, xs = self.values((b, n, d), dtype)
        prefix, ps = self.values((p, d), dtype)
        table, ts = self.values((n, d), dtype)
        y = xs + ts if position else xs
        y = np.concatenate([np.broadcast_to(ps, (b, p, d)), y], 1)
        out = Output(y, dtype, (U[dtype] + U[F32]) * np.abs(y) + STEP[dtype])
        fields = [("P", x), ("P", prefix if p else None), ("P", table if position else None), ("P", out)]
        fields += [("I", v) for v in (b, n, p, d)]
        return self.case(f"tokens {b}×({p}+{n})×{d}", "tokens", f"tokens_{dtype}", self.packs(b * (n + p), d, dtype), 256, fields)

    def row_grid(self, rows, length):
        whole = length > 32 * self.wave
        return (rows, 1) if whole else (ceil(rows, 256 // self.wave), 0)

    def layer_norm(self, dtype, rows, d, residual=False, offset=0.0):
        x, xs = self.values((rows, d), dtype)
        if offset:
            x = encode(xs + offset, dtype)
            xs = decode(x.ravel(), dtype).reshape(rows, d)
        r, rs = self.values((rows, d), dtype)
        w, ws = self.values(d, dtype)
        c, cs = self.values(d, dtype)
        s = xs + rs if residual else xs
        mean, variance = s.mean(1, keepdims=True), s.var(1, keepdims=True)
        y = (s - mean) / np.sqrt(variance + 1e-6) * ws + cs
        # Sums of d terms, in parts of at most 32 and a tree: some 16 roundings relative to the largest |s|; what is
        # left of long rows reads the sum as it was rounded to the dtype.
        reach = np.abs(s).max(1, keepdims=True) / np.sqrt(variance + 1e-6) * np.abs(ws)
        long_row = residual and d > 8192
        tolerance = U[dtype] * np.abs(y) + (24 * U[F32] + (U[dtype] if long_row else 0)) * reach + 4 * U[F32] * np.abs(cs)
        out = Output(y, dtype, tolerance + STEP[dtype])
        total = Output(s, dtype, (U[dtype] + U[F32]) * np.abs(s) + STEP[dtype]) if residual else None
        grid, whole = self.row_grid(rows, d)
        fields = [("P", x), ("P", r if residual else None), ("P", w), ("P", c), ("P", total), ("P", out)]
        fields += [("I", rows), ("I", d), ("f", 1e-6), ("I", whole)]
        return self.case(f"layer_norm {rows}×{d}{' +residual' if residual else ''}", "layer_norm", f"layer_norm_{dtype}", grid, 256, fields)

    def mask(self, b, nq, nk, left, right, padding):
        i, j = np.arange(nq)[:, None], np.arange(nk)[None, :]
        diagonal = nk - nq if right != UNBOUNDED else 0
        seen = (j - (i + diagonal) >= -left) & (j - (i + diagonal) <= right)
        seen = np.broadcast_to(seen, (b, 1, nq, nk))
        keys = None
        if padding:
            keys = (self.random.random((b, nk)) < 0.7).astype(np.uint8)
            keys[0, : nk // 2] = 0
            seen = seen & (keys[:, None, None, :] != 0)
        return seen, mask_fields(keys, diagonal, left, right)

    @staticmethod
    def weights(scores, seen):
        scores = np.where(seen, scores, -np.inf)
        top = scores.max(-1, keepdims=True)
        e = np.exp(scores - np.where(np.isfinite(top), top, 0))
        total = e.sum(-1, keepdims=True)
        return np.where(total > 0, e / np.where(total > 0, total, 1), 0)

    def softmax(self, dtype, b, h, nq, nk, left=UNBOUNDED, right=UNBOUNDED, padding=False):
        x, xs = self.values((b, h, nq, nk), dtype, 4.0)
        seen, mask = self.mask(b, nq, nk, left, right, padding)
        scale = np.float32(0.5)
        y = self.weights(xs * float(scale), seen)
        # e's argument is rounded at |x| ≤ 12·log2(e); the sum, in parts and a tree.
        tolerance = (U[dtype] + 96 * U[F32]) * y + STEP[dtype]
        out = Output(y, dtype, tolerance, initial=x)
        grid, whole = self.row_grid(b * h * nq, nk)
        fields = [("P", out), ("P", out), *mask] + [("I", v) for v in (b, h, nq, nk)] + [("f", float(scale)), ("I", whole)]
        return self.case(f"softmax {b}×{h}×{nq}×{nk}{mask_name(left, right, padding)}", "softmax", f"softmax_{dtype}", grid, 256, fields)

    def attention(self, dtype, b, h, nq, nk, d, left=UNBOUNDED, right=UNBOUNDED, padding=False, packed=False, scale=None):
        c = h * d
        if packed:
            raw, all3 = self.values((b, nk, 3 * c), dtype)
            q, k, v = (all3[:, :, i * c : (i + 1) * c] for i in range(3))
            q = q[:, :nq]
            base = [Offset(raw, i * c * SIZE[dtype]) for i in range(3)]
            strides, tokens = [nk * 3 * c] * 3, [3 * c] * 3
        else:
            made = [self.values((b, n, c), dtype) for n in (nq, nk, nk)]
            base, (q, k, v) = [m[0] for m in made], [m[1] for m in made]
            strides, tokens = [nq * c, nk * c, nk * c], [c] * 3
        heads = lambda x: x.reshape(b, -1, h, d).transpose(0, 2, 1, 3)
        named = "" if scale is None else f" scale {scale}"
        scale = np.float32(d**-0.5 if scale is None else scale)
        scores = heads(q) @ heads(k).transpose(0, 1, 3, 2) * float(scale)
        seen, mask = self.mask(b, nq, nk, left, right, padding)
        y = (self.weights(scores, seen) @ heads(v)).transpose(0, 2, 1, 3).reshape(b, nq, c)
        # Each weight is rounded to the dtype, so that the mean of v is off by u·max|v| at most; the scores are sums of
        # d products in f32, rescaled once a tile of keys.
        reach = np.abs(v).max(initial=0)
        weight = U[dtype] if dtype != F32 else 0
        tolerance = U[dtype] * np.abs(y) + (weight + (64 + 2 * nk / 32) * U[F32]) * reach + STEP[dtype]
        out = Output(y, dtype, tolerance)
        name = f"attention {b}×{h}×{nq}×{nk}×{d}{mask_name(left, right, padding)}{' packed' if packed else ''}{named}"
        launch = attention_launch(self.wave, dtype, (b, h, nq, nk, d), [*base, out], mask, strides, tokens, scale)
        case = self.case(name, "attention", *launch)
        case.flops = int(4 * d * h * np.broadcast_to(seen, (b, 1, nq, nk)).sum())
        case.bytes = SIZE[dtype] * (2 * b * nq * c + 2 * b * nk * c)
        return case

    def bias_activation(self, dtype, rows, d, activation, bias=True, residual=False):
        x, xs = self.values((rows, d), dtype, 2.0)
        c, cs = self.values(d, dtype)
        r, rs = self.values((rows, d), dtype)
        z = xs + cs if bias else xs
        z = z.astype(np.float32).astype(float)  # the sum is in f32, before functions that magnify its rounding
        y = ACTIVATIONS[activation](z)
        tolerance = 64 * U[F32] * np.abs(y) + U[F32] * np.abs(y)
        if residual:
            y = y + rs
        out = Output(y, dtype, tolerance + (U[dtype] + U[F32]) * np.abs(y) + STEP[dtype])
        fields = [("P", x), ("P", c if bias else None), ("P", r if residual else None), ("P", out)]
        fields += [("I", v) for v in (rows, d, activation, 0)]
        return self.case(f"bias_activation {rows}×{d} {ACTIVATION_NAMES[activation]}", "bias_activation", f"bias_activation_{dtype}", self.packs(rows, d, dtype), 256, fields)

    def swiglu(self, dtype, rows, d, bias=False):
        x, xs = self.values((rows, 2 * d), dtype, 2.0)
        c, cs = self.values(2 * d, dtype)
        z = (xs + cs if bias else xs).astype(np.float32).astype(float)
        y = ACTIVATIONS[4](z[:, :d]) * z[:, d:]
        out = Output(y, dtype, (U[dtype] + 65 * U[F32]) * np.abs(y) + STEP[dtype])
        fields = [("P", x), ("P", c if bias else None), ("P", out), ("I", rows), ("I", d)]
        return self.case(f"swiglu {rows}×{d}", "swiglu", f"swiglu_{dtype}", self.packs(rows, d, dtype), 256, fields)

    def add(self, dtype, rows, d, y_rows=None, gamma=False):
        y_rows = y_rows or rows
        x, xs = self.values((rows, d), dtype)
        g, gs = self.values(d, dtype)
        y, ys = self.values((y_rows, d), dtype)
        left = xs * 0.5 * (gs if gamma else 1.0)
        z = left + ys[np.arange(rows) % y_rows]
        out = Output(z, dtype, U[dtype] * np.abs(z) + 3 * U[F32] * (np.abs(left) + np.abs(z)) + STEP[dtype])
        fields = [("P", x), ("P", g if gamma else None), ("P", y), ("P", out)]
        fields += [("I", v) for v in (rows, d, y_rows)] + [("f", 0.5)]
        return self.case(f"add {rows}×{d}{' ·gamma' if gamma else ''}", "add", f"add_{dtype}", self.packs(rows, d, dtype), 256, fields)

    def pool(self, dtype, b, n, d, mode, first):
        x, xs = self.values((b, n, d), dtype)
        y = xs[:, first] if mode == 0 else xs[:, first:].mean(1) if mode == 1 else xs[:, first:].max(1)
        # The mean's sum goes over n/8 tokens a slice, then 8 slices.
        sums = (n / 8 + 9) * U[F32] * np.abs(xs[:, first:]).mean(1) if mode == 1 else 0.0
        out = Output(y, dtype, (U[dtype] if mode == 1 else 0) * np.abs(y) + sums)
        fields = [("P", x), ("P", out)] + [("I", v) for v in (b, n, d, mode, first, 0)]
        grid = b * ceil(ceil(d, 16 // SIZE[dtype]), 32)
        return self.case(f"pool {b}×{n}×{d} {('token', 'mean', 'max')[mode]}", "pool", f"pool_{dtype}", grid, 256, fields)

    def resize(self, h, w, oh, ow, horizontal):
        image = self.random.integers(0, 256, (h, w, 3), np.uint8)
        if horizontal:
            starts, counts, weights = bicubic(w, ow)
            y = weighted(image.transpose(1, 0, 2), starts, counts, weights).transpose(1, 0, 2)
            rows, columns, outputs = h, w, ow
            grid = ceil(h * ow, 256)
        else:
            starts, counts, weights = bicubic(h, oh)
            y = weighted(image, starts, counts, weights)
            rows, columns, outputs = h, 3 * w, oh
            grid = ceil(oh * ceil(columns, 4), 256)
        out = Output(np.ascontiguousarray(y), "u8")
        fields = [("P", image), ("P", out), ("P", weights), ("P", starts), ("P", counts), ("Q", 3 * w)]
        fields += [("I", v) for v in (weights.shape[1], outputs, rows, columns)]
        way = "horizontal" if horizontal else "vertical"
        return self.case(f"resize_{way} {h}×{w} → {y.shape[0]}×{y.shape[1]}", "resize", f"resize_{way}_u8", grid, 256, fields)

    def resize_nearest(self, h, w, oh, ow):
        image = self.random.integers(0, 256, (h, w, 3), np.uint8)
        rows, columns = (self.random.integers(0, n, m, np.uint32) for n, m in ((h, oh), (w, ow)))
        out = Output(np.ascontiguousarray(image[rows][:, columns]), "u8")
        fields = [("P", image), ("P", out), ("P", columns), ("P", rows), ("Q", 3 * w)] + [("I", v) for v in (ow, oh, h, 0)]
        return self.case(f"resize_nearest {h}×{w} → {oh}×{ow}", "resize", "resize_nearest_u8", ceil(oh * ow, 256), 256, fields)


class Offset:
    """An address inside an array."""

    def __init__(self, array, bytes):
        self.array, self.bytes = array, bytes


def mask_name(left, right, padding):
    name = "" if right == UNBOUNDED else " causal" if left == UNBOUNDED else " window"
    return name + (" padding" if padding else "")


def bicubic(inputs, outputs):
    """Pillow's coefficients: (first input, count, 22-bit weights)."""
    scale = inputs / outputs
    stretch = max(scale, 1.0)
    support = 2.0 * stretch
    taps = int(np.ceil(support)) * 2 + 1
    starts, counts = np.zeros(outputs, np.uint32), np.zeros(outputs, np.uint32)
    weights = np.zeros((outputs, taps), np.int32)
    for o in range(outputs):
        center = (o + 0.5) * scale
        first, end = max(int(center - support + 0.5), 0), min(int(center + support + 0.5), inputs)
        x = np.abs((np.arange(first, end) - center + 0.5) / stretch)
        w = np.where(x < 1, (1.5 * x - 2.5) * x * x + 1, np.where(x < 2, (((x - 5) * x + 8) * x - 4) * -0.5, 0.0))
        w = w / w.sum() * (1 << 22)
        starts[o], counts[o] = first, end - first
        weights[o, : end - first] = np.where(w < 0, w - 0.5, w + 0.5).astype(np.int32)
    return starts, counts, weights


def weighted(rows, starts, counts, weights):
    y = np.empty((len(starts), *rows.shape[1:]), np.uint8)
    for o, (start, count) in enumerate(zip(starts, counts)):
        total = np.tensordot(weights[o, :count].astype(np.int64), rows[start : start + count].astype(np.int64), 1)
        y[o] = np.clip((total + (1 << 21)) >> 22, 0, 255)
    return y


def erfc(x):
    import math

    return np.vectorize(math.erfc, otypes=[float])(x)


def sigmoid(x):
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


ACTIVATION_NAMES = ("none", "gelu_erf", "gelu_tanh", "quick_gelu", "silu", "relu", "tanh")
ACTIVATIONS = (
    lambda x: x,
    lambda x: 0.5 * x * erfc(-x / np.sqrt(2)),
    lambda x: x * sigmoid(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)),
    lambda x: x * sigmoid(1.702 * x),
    lambda x: x * sigmoid(x),
    lambda x: np.maximum(x, 0),
    np.tanh,
)


def small(wave):
    """Every entry at micro and awkward sizes: seconds on a GPU, minutes on an emulated one."""
    m = Maker(wave)
    for t in DTYPES:
        yield m.patch_extract(t, 2, 32, 48, 16, 16)
        yield m.patch_extract(t, 1, 31, 45, 14, 7)
        yield m.patch_extract(t, 2, 9, 13, 4, 3, chw=True)
        yield m.tokens(t, 2, 5, 1, 64)
        yield m.tokens(t, 3, 7, 5, 33)
        yield m.tokens(t, 1, 3, 0, 8, position=False)
        for rows, d in ((1, 1), (3, 63), (5, 64), (4, 65), (3, 197), (9, 768), (2, 2049), (2, 8192), (1, 8209)):
            yield m.layer_norm(t, rows, d, residual=d % 2 == 0)
        yield m.layer_norm(t, 1, 9001, residual=True)
        yield m.layer_norm(t, 3, 256, offset=50.0)
        for n in (1, 63, 64, 65, 197, 257):
            yield m.softmax(t, 1, 2, 3, n)
        yield m.softmax(t, 2, 2, 65, 65, right=0, padding=True)
        yield m.softmax(t, 1, 2, 20, 70, left=5, right=3)
        yield m.softmax(t, 1, 1, 2, 8192)
        yield m.softmax(t, 1, 1, 1, 8501)
        for n in (1, 63, 64, 65, 197, 257):
            yield m.attention(t, 1, 1, n, n, 64, packed=True)
        for d in (16, 32, 33, 48, 72, 80, 96, 127, 128):
            yield m.attention(t, 1, 2, 17, 65, d)
        yield m.attention(t, 2, 2, 65, 65, 32, right=0)
        yield m.attention(t, 1, 2, 20, 150, 64, right=0, padding=True)
        yield m.attention(t, 2, 1, 130, 130, 32, left=40, right=7)
        yield m.attention(t, 2, 2, 1, 197, 64, padding=True)
        yield m.attention(t, 1, 1, 70, 20, 32, right=0)
        yield m.attention(t, 1, 2, 65, 33, 32, right=0, scale=0.0)
        yield m.attention(t, 2, 1, 40, 70, 64, padding=True, scale=-0.3)
        for activation in range(7):
            yield m.bias_activation(t, 5, 197, activation, residual=activation % 2 == 1)
        yield m.bias_activation(t, 3, 64, 1, bias=False)
        yield m.swiglu(t, 3, 64, bias=True)
        yield m.swiglu(t, 5, 63)
        yield m.add(t, 6, 65, y_rows=3)
        yield m.add(t, 4, 64, gamma=True)
        for mode in range(3):
            yield m.pool(t, 2, 197, 65, mode, 1)
            yield m.pool(t, 3, 1, 256, mode, 0)
    yield m.resize(37, 61, 37, 24, True)
    yield m.resize(61, 37, 24, 37, False)
    yield m.resize(20, 16, 20, 41, True)
    yield m.resize(15, 20, 33, 20, False)
    yield m.resize_nearest(13, 17, 8, 30)


def large(wave):
    """Realistic sizes, where time and bandwidth mean something."""
    m = Maker(wave, 2)
    for t in DTYPES:
        yield m.patch_extract(t, 64, 224, 224, 16, 16)
        yield m.tokens(t, 64, 196, 1, 768)
        yield m.layer_norm(t, 64 * 197, 768, residual=True)
        yield m.softmax(t, 2, 12, 1024, 1024)
        yield m.attention(t, 1, 2, 32, 32, 16)
        yield m.attention(t, 1, 4, 64, 64, 32)
        yield m.attention(t, 2, 8, 512, 512, 64)
        yield m.attention(t, 32, 12, 197, 197, 64, packed=True)
        yield m.attention(t, 4, 16, 1024, 1024, 64)
        yield m.attention(t, 1, 8, 2048, 2048, 128, right=0)
        yield m.bias_activation(t, 16 * 197, 3072, 1)
        yield m.swiglu(t, 16 * 197, 2048)
        yield m.add(t, 64 * 197, 768)
        yield m.pool(t, 64, 197, 768, 1, 1)
    yield m.resize(1080, 1920, 1080, 398, True)
    yield m.resize(1080, 398, 224, 398, False)
