//! The kernels of `hip/` as plain loops. Two crates compile this file: the provider, which runs them on its
//! memory, and the executor's unit tests, which execute a model's calls on the host.

use super::DeviceAddress;
use super::bindings::{
    AddArgs, AttentionArgs, AttentionBiasArgs, AttentionPatternArgs, AttentionRopeArgs,
    AttentionStatisticsArgs, BiasActivationArgs, ChecksumArgs, ConvPatchesArgs, GridOrder, LayerNormArgs,
    PatchExtractArgs, PermuteTokensArgs, PoolArgs, RopeArgs, SoftmaxArgs, SwiGluArgs, SwiGluNormArgs,
    TokensArgs, TransposeArgs, WindowGeometry, WindowPoolArgs,
};

/// Arguments of a kernel that can run on the host.
pub(super) trait OnHost {
    fn run(&self, memory: &mut impl Memory);
}

/// Memory of a device, with elements of one type.
pub(super) trait Memory {
    /// Returns the element `index` after an address.
    fn get(&self, address: DeviceAddress, index: usize) -> f32;
    fn set(&mut self, address: DeviceAddress, index: usize, value: f32);
    /// Returns the byte `index` after an address.
    fn pixel(&self, address: DeviceAddress, index: usize) -> u8;
    /// Sets the f32 `index` after an address, whatever type the elements have.
    fn set_value(&mut self, address: DeviceAddress, index: usize, value: f32);
    /// Returns the f32 `index` after an address, whatever type the elements have.
    fn value(&self, address: DeviceAddress, index: usize) -> f32;
    fn erf(&self, x: f32) -> f32;

    /// Returns an element of an optional operand, or `without` if there is none.
    fn optional(&self, address: DeviceAddress, index: usize, without: f32) -> f32 {
        if address.is_null() {
            without
        } else {
            self.get(address, index)
        }
    }
}

pub(super) fn patch_extract(memory: &mut impl Memory, a: &PatchExtractArgs, chw: bool) {
    let [height, width, ph, pw] = [a.height, a.width, a.patch_height, a.patch_width].map(|n| n as usize);
    let (down, across) = (height / ph, width / pw);
    let mut to = 0;
    for image in 0..a.images as usize {
        for patch in 0..down * across {
            for element in 0..3 * ph * pw {
                let (c, dy, dx) = if chw {
                    (element / (ph * pw), element / pw % ph, element % pw)
                } else {
                    (element % 3, element / 3 / pw, element / 3 % pw)
                };
                let (y, x) = (patch / across * ph + dy, patch % across * pw + dx);
                let value = if chw {
                    memory.value(a.pixels, ((image * 3 + c) * height + y) * width + x)
                } else {
                    memory
                        .pixel(a.pixels, ((image * height + y) * width + x) * 3 + c)
                        .into()
                };
                memory.set(a.out, to, value * a.scale[c] + a.shift[c]);
                to += 1;
            }
        }
    }
}

impl OnHost for TokensArgs {
    fn run(&self, memory: &mut impl Memory) {
        let a = self;
        let [tokens, prefixes, d] = [a.tokens, a.prefixes, a.channels].map(|n| n as usize);
        for index in 0..a.images as usize * (prefixes + tokens) * d {
            let (image, token, c) = (
                index / d / (prefixes + tokens),
                index / d % (prefixes + tokens),
                index % d,
            );
            let value = if token < prefixes {
                memory.get(a.prefix, token * d + c)
            } else {
                let at = (token - prefixes) * d + c;
                memory.get(a.x, image * tokens * d + at) + memory.optional(a.position, at, 0.0)
            };
            memory.set(a.out, index, value);
        }
    }
}

impl OnHost for ChecksumArgs {
    fn run(&self, memory: &mut impl Memory) {
        let word = |index| u64::from(memory.value(self.from, index).to_bits());
        let factor = |index: usize| (2 * index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let old = [0, 1].map(|half| u64::from(memory.value(self.out, half).to_bits()) << (32 * half));
        let sum = (0..self.bytes as usize / 4).fold(old[0] | old[1], |sum, index| {
            sum.wrapping_add(word(index).wrapping_mul(factor(index)))
        });
        for half in [0, 1] {
            let bits = (sum >> (32 * half)) as u32;
            memory.set_value(self.out, half, f32::from_bits(bits));
        }
    }
}

impl OnHost for AddArgs {
    fn run(&self, memory: &mut impl Memory) {
        let a = self;
        let d = a.channels as usize;
        for index in 0..a.rows as usize * d {
            let (row, c) = (index / d, index % d);
            let gamma = memory.optional(a.gamma, c, 1.0);
            let y = if a.y.is_null() {
                0.0
            } else {
                memory.get(a.y, row % a.y_rows as usize * d + c)
            };
            memory.set(a.out, index, a.factor * gamma * memory.get(a.x, index) + y);
        }
    }
}

impl OnHost for LayerNormArgs {
    fn run(&self, memory: &mut impl Memory) {
        let a = self;
        assert!(a.residual.is_null() && a.sum.is_null());
        let d = a.channels as usize;
        for row in 0..a.rows as usize {
            let x: Vec<f32> = (0..d).map(|c| memory.get(a.x, row * d + c)).collect();
            normalize(memory, &x, [a.weight, a.bias, a.out], row, a.epsilon);
        }
    }
}

/// Computes the norm of one row. Without a bias it is an RMS norm.
fn normalize(
    memory: &mut impl Memory,
    x: &[f32],
    [weight, bias, out]: [DeviceAddress; 3],
    row: usize,
    epsilon: f32,
) {
    let d = x.len();
    let mean = if bias.is_null() {
        0.0
    } else {
        x.iter().sum::<f32>() / d as f32
    };
    let variance = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f32>() / d as f32;
    for (c, v) in x.iter().enumerate() {
        let value = (v - mean) / (variance + epsilon).sqrt();
        let value = value * memory.get(weight, c) + memory.optional(bias, c, 0.0);
        memory.set(out, row * d + c, value);
    }
}

impl OnHost for BiasActivationArgs {
    fn run(&self, memory: &mut impl Memory) {
        let a = self;
        let d = a.channels as usize;
        for index in 0..a.rows as usize * d {
            let x = memory.get(a.x, index) + memory.optional(a.bias, index % d, 0.0);
            let cubic = 0.797_884_6 * (x + 0.044_715 * x * x * x);
            let value = match a.activation {
                0 => x,
                1 => x * 0.5 * (1.0 + memory.erf(x * std::f32::consts::FRAC_1_SQRT_2)),
                2 => x * 0.5 * (1.0 + cubic.tanh()),
                3 => x / (1.0 + (-1.702 * x).exp()),
                4 => x / (1.0 + (-x).exp()),
                5 => x.max(0.0),
                6 => x.tanh(),
                other => panic!("there is no activation {other}"),
            };
            let value = value + memory.optional(a.residual, index, 0.0);
            memory.set(a.out, index, value);
        }
    }
}

impl OnHost for SwiGluArgs {
    fn run(&self, memory: &mut impl Memory) {
        let a = self;
        let d = a.channels as usize;
        for index in 0..a.rows as usize * d {
            let value = gated(memory, a.x, [index / d, index % d], d);
            memory.set(a.out, index, value);
        }
    }
}

fn gated(memory: &impl Memory, x: DeviceAddress, [row, c]: [usize; 2], d: usize) -> f32 {
    let (gate, value) = (memory.get(x, row * 2 * d + c), memory.get(x, row * 2 * d + d + c));
    gate / (1.0 + (-gate).exp()) * value
}

impl OnHost for SwiGluNormArgs {
    fn run(&self, memory: &mut impl Memory) {
        let a = self;
        let d = a.channels as usize;
        for row in 0..a.rows as usize {
            let x: Vec<f32> = (0..d).map(|c| gated(memory, a.x, [row, c], d)).collect();
            normalize(memory, &x, [a.weight, a.bias, a.out], row, a.epsilon);
        }
    }
}

impl OnHost for AttentionArgs {
    fn run(&self, memory: &mut impl Memory) {
        attention(self, memory, |_, _| 0.0, DeviceAddress::NULL);
    }
}

impl OnHost for AttentionBiasArgs {
    fn run(&self, memory: &mut impl Memory) {
        attention(
            &self.attention,
            memory,
            |memory, [_, head, query, key]| score_bias(self, memory, [head, query, key]),
            DeviceAddress::NULL,
        );
    }
}

/// The only pattern in a model: the bias of shifted windows, by the kind of the window.
impl OnHost for AttentionPatternArgs {
    fn run(&self, memory: &mut impl Memory) {
        assert!(self.tiles.is_null() && self.addends.is_null() && self.log_sum_exp.is_null());
        let pattern = &self.pattern;
        let [rows, columns] = [0, 1].map(|index| pattern.scalars[index] as usize);
        let extents = pattern.extents[0].map(|n| n as usize);
        attention(
            &self.attention,
            memory,
            |memory, [image, head, query, key]| {
                let window = image % (rows * columns);
                let is_last = [window / columns + 1 == rows, window % columns + 1 == columns];
                let kind = 2 * usize::from(is_last[0]) + usize::from(is_last[1]);
                let row = (kind * extents[1] + head) * extents[2] + query;
                memory.get(pattern.tensors[0], row * extents[3] + key)
            },
            DeviceAddress::NULL,
        );
    }
}

/// Returns the rows and columns of the grid by token. `None` for padding.
fn cells(order: &GridOrder, grid: [u32; 2]) -> Vec<Option<[u32; 2]>> {
    let [rows, columns] = order.window;
    let cell = |token: u32| {
        let (window, inner) = (token / (rows * columns), token % (rows * columns));
        let inner = match order.transposed {
            0 => [inner / columns, inner % columns],
            _ => [inner % rows, inner / rows],
        };
        let first = [window / order.across * rows, window % order.across * columns];
        let cell = [0, 1].map(|axis| {
            let place = first[axis] + inner[axis];
            let cell = (place + order.shift[axis]) % order.rolled[axis];
            (place < order.rolled[axis] && cell < grid[axis]).then_some(cell)
        });
        Some([cell[0]?, cell[1]?])
    };
    (0..order.tokens).map(cell).collect()
}

impl OnHost for PermuteTokensArgs {
    fn run(&self, memory: &mut impl Memory) {
        let a = self;
        let (from, to) = (cells(&a.from, a.grid), cells(&a.to, a.grid));
        let d = a.channels as usize;
        for row in 0..a.images as usize * to.len() {
            let (image, token) = (row / to.len(), row % to.len());
            let source = to[token].and_then(|cell| from.iter().position(|other| *other == Some(cell)));
            for c in 0..d {
                let value = source.map_or(0.0, |token| memory.get(a.x, (image * from.len() + token) * d + c));
                memory.set(a.out, row * d + c, value);
            }
        }
    }
}

/// Runs as two kernels; the effect of the first is undone.
impl OnHost for AttentionRopeArgs {
    fn run(&self, memory: &mut impl Memory) {
        let rope = &self.rope;
        let elements = (rope.images * rope.tokens * rope.channels) as usize;
        let before: Vec<f32> = (0..elements).map(|index| memory.get(rope.x, index)).collect();
        rope.run(memory);
        self.attention.run(memory);
        for (index, &value) in before.iter().enumerate() {
            memory.set(rope.x, index, value);
        }
    }
}

impl OnHost for AttentionStatisticsArgs {
    fn run(&self, memory: &mut impl Memory) {
        let a = &self.scores;
        attention(
            &a.attention,
            memory,
            |memory, [_, head, query, key]| score_bias(a, memory, [head, query, key]),
            self.statistics,
        );
    }
}

fn score_bias(a: &AttentionBiasArgs, memory: &impl Memory, [head, query, key]: [usize; 3]) -> f32 {
    memory.optional(
        a.bias,
        head * a.head as usize + query * a.query as usize + key,
        0.0,
    )
}

/// Adds `bias(memory, [image, head, query, key])` to the scores. Writes the softmax statistics to `statistics`, unless
/// it is null.
fn attention<M: Memory>(
    a: &AttentionArgs,
    memory: &mut M,
    bias: impl Fn(&M, [usize; 4]) -> f32,
    statistics: DeviceAddress,
) {
    assert_eq!(
        (a.visible.key_mask, a.visible.left, a.visible.right),
        (DeviceAddress::NULL, i32::MAX, i32::MAX)
    );
    let (keys, d) = (a.keys as usize, a.head_dim as usize);
    for image in 0..a.images as usize {
        for head in 0..a.heads as usize {
            let at = |image_stride: u64, token_stride: u32, token: usize, c: usize| {
                image * image_stride as usize + token * token_stride as usize + head * d + c
            };
            for query in 0..a.queries as usize {
                let score = |key| {
                    let products = (0..d).map(|c| {
                        memory.get(a.q, at(a.q_image, a.q_token, query, c))
                            * memory.get(a.k, at(a.k_image, a.k_token, key, c))
                    });
                    a.scale * products.sum::<f32>() + bias(memory, [image, head, query, key])
                };
                let scores: Vec<f32> = (0..keys).map(score).collect();
                let row_max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let weights: Vec<f32> = scores.iter().map(|s| (s - row_max).exp()).collect();
                let row_sum: f32 = weights.iter().sum();
                if !statistics.is_null() {
                    let row = (image * a.heads as usize + head) * a.queries as usize + query;
                    let entropy = weights
                        .iter()
                        .map(|w| w / row_sum)
                        .map(|p| -p * p.max(f32::MIN_POSITIVE).ln());
                    let row_of = [row_max + row_sum.ln(), 1.0 / row_sum, entropy.sum()];
                    for (i, statistic) in row_of.into_iter().enumerate() {
                        memory.set_value(statistics, 3 * row + i, statistic);
                    }
                }
                for c in 0..if a.out.is_null() { 0 } else { d } {
                    let values = weights
                        .iter()
                        .enumerate()
                        .map(|(key, w)| w * memory.get(a.v, at(a.v_image, a.v_token, key, c)));
                    let value = values.sum::<f32>() / row_sum;
                    memory.set(a.out, at(a.out_image, a.out_token, query, c), value);
                }
            }
        }
    }
}

impl OnHost for SoftmaxArgs {
    fn run(&self, memory: &mut impl Memory) {
        let a = self;
        assert_eq!(
            (a.visible.key_mask, a.visible.left, a.visible.right),
            (DeviceAddress::NULL, i32::MAX, i32::MAX)
        );
        let keys = a.keys as usize;
        for row in 0..(a.images * a.heads * a.queries) as usize {
            let scores: Vec<f32> = (0..keys)
                .map(|key| a.scale * memory.get(a.x, row * keys + key))
                .collect();
            let row_max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let row_sum: f32 = scores.iter().map(|s| (s - row_max).exp()).sum();
            for (key, score) in scores.iter().enumerate() {
                memory.set(a.out, row * keys + key, (score - row_max).exp() / row_sum);
            }
        }
    }
}

impl OnHost for RopeArgs {
    fn run(&self, memory: &mut impl Memory) {
        let a = self;
        let [tokens, first, channels, heads, d, table_heads] =
            [a.tokens, a.first, a.channels, a.heads, a.head_dim, a.table_heads].map(|n| n as usize);
        for row in 0..a.images as usize * tokens {
            let Some(place) = (row % tokens).checked_sub(first) else {
                continue;
            };
            for head in 0..heads {
                let table = (place * table_heads + head % table_heads) * d;
                for pair in 0..d / 2 {
                    let (i, j) = match a.halves {
                        0 => (2 * pair, 2 * pair + 1),
                        _ => (pair, pair + d / 2),
                    };
                    let at = row * channels + head * d;
                    let (x, y) = (memory.get(a.x, at + i), memory.get(a.x, at + j));
                    let (cosine, sine) = (
                        memory.get(a.table, table + pair),
                        memory.get(a.table, table + d / 2 + pair),
                    );
                    memory.set(a.x, at + i, x * cosine - y * sine);
                    memory.set(a.x, at + j, y * cosine + x * sine);
                }
            }
        }
    }
}

impl OnHost for TransposeArgs {
    fn run(&self, memory: &mut impl Memory) {
        let a = self;
        let [rows, columns, kept, width] = [a.rows, a.columns, a.kept, a.width].map(|n| n as usize);
        for index in 0..a.images as usize * kept * width {
            let (image, column, row) = (index / width / kept, index / width % kept, index % width);
            let mut scaled = 0.0;
            if row < rows {
                let x = memory.get(a.x, (image * rows + row) * columns + column);
                scaled = memory.optional(a.gamma, row, 1.0) * x;
            }
            let value = match a.multiply {
                0 => scaled + memory.optional(a.y, index, 0.0),
                _ => scaled * memory.optional(a.y, index, 1.0),
            };
            memory.set(a.out, index, value);
        }
    }
}

impl OnHost for PoolArgs {
    fn run(&self, memory: &mut impl Memory) {
        let a = self;
        let [tokens, d, first] = [a.tokens, a.channels, a.first].map(|n| n as usize);
        for index in 0..a.images as usize * d {
            let (image, c) = (index / d, index % d);
            let x = |token: usize| memory.get(a.x, (image * tokens + token) * d + c);
            let rest = (first..tokens).map(x);
            let value = match a.mode {
                0 => x(first),
                1 => rest.sum::<f32>() / (tokens - first) as f32,
                _ => rest.fold(f32::NEG_INFINITY, f32::max),
            };
            memory.set(a.out, index, value);
        }
    }
}

/// Returns the pixels of x that make a pixel of the result, each `None` in the padding.
fn taps(g: &WindowGeometry, pixel: usize) -> Vec<Option<usize>> {
    let [rows, columns, height, width] = [g.rows, g.columns, g.height, g.width].map(|n| n as usize);
    let place = [pixel / columns % rows, pixel % columns];
    let at = |axis: usize, tap: u32| {
        let at = place[axis] * g.stride[axis] as usize + (tap * g.dilation[axis]) as usize;
        at.checked_sub(g.before[axis] as usize)
            .filter(|at| *at < [height, width][axis])
    };
    let image = pixel / columns / rows * height;
    let rows = (0..g.kernel[0]).map(|tap| at(0, tap));
    let all = rows.flat_map(|y| (0..g.kernel[1]).map(move |tap| Some((image + y?) * width + at(1, tap)?)));
    all.collect()
}

impl OnHost for ConvPatchesArgs {
    fn run(&self, memory: &mut impl Memory) {
        let g = &self.windows;
        assert_eq!(self.groups, 1);
        let mut to = 0;
        for pixel in 0..(g.images * g.rows * g.columns) as usize {
            for tap in taps(g, pixel) {
                for c in 0..g.channels as usize {
                    let value = tap.map_or(0.0, |at| memory.get(self.x, at * g.channels as usize + c));
                    memory.set(self.out, to, value);
                    to += 1;
                }
            }
        }
    }
}

impl OnHost for WindowPoolArgs {
    fn run(&self, memory: &mut impl Memory) {
        let (g, d) = (&self.windows, self.windows.channels as usize);
        for pixel in 0..(g.images * g.rows * g.columns) as usize {
            let inside: Vec<usize> = taps(g, pixel).into_iter().flatten().collect();
            for c in 0..d {
                let values = inside.iter().map(|at| memory.get(self.x, at * d + c));
                let value = match self.mode {
                    0 => values.fold(f32::NEG_INFINITY, f32::max),
                    1 => values.sum::<f32>() / inside.len() as f32,
                    _ => panic!("padding counts"),
                };
                memory.set(self.out, pixel * d + c, value);
            }
        }
    }
}
