//! What is validated: each op, in each form, at each size. Pure.

use std::fmt;

use super::config::{Config, Sizes};
use crate::error::{Error, Result};
use crate::ops;
use crate::ops::{
    Activation, Attention, AttentionOperands, Linear, Normalize, Op, PatchConv, PatchExtract, PixelLayout,
    Pool, Tokens,
};
use crate::tensor::DType;

/// One thing that is computed, and from what.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) config: Config,
    pub(super) work: Work,
    pub(super) operands: Vec<Operand>,
    /// Whether activations lie in the arena, where the result may take their place, rather than beside it.
    pub(super) in_arena: bool,
}

/// What is computed.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Op(Op),
    /// Forms that a kernel of the GPU has and no [`Op`] asks for yet.
    Kernel(KernelForm),
}

/// See [`Work::Kernel`].
#[derive(Clone, Debug)]
pub(super) enum KernelForm {
    /// `(q [B,Nq,C], k [B,N,C], v [B,N,C], key mask [B,N]?) → [B,Nq,C]`.
    MaskedAttention(Attention, Mask),
    /// `(x [R,D], residual [R,D], weight [D], bias [D]) → [2,R,D]`: the norm of x + residual, then that sum.
    LayerNormOfSum { epsilon: f32 },
}

/// Which keys a query sees: those from `left` before its place to `right` after it, and of these the ones that
/// the mask does not hide. The places are counted from the end, as where keys of earlier tokens are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mask {
    pub(super) left: Option<u32>,
    pub(super) right: Option<u32>,
    /// Whether the last operand says which keys are there.
    pub(super) padding: bool,
}

/// An operand's shape and what its elements are.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Operand {
    pub(super) shape: Vec<usize>,
    pub(super) role: Role,
    /// Elements are uniform in `mean` ± `spread`.
    pub(super) mean: f32,
    pub(super) spread: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The graph's input, u8 `[B,H,W,3]` or f32 `[B,3,H,W]`.
    Image(DType),
    Activation,
    Parameter,
    /// u8, 0 for a key that is not there.
    KeyMask,
}

impl Case {
    /// The name that `--op` takes.
    pub(super) fn op_name(&self) -> &'static str {
        match &self.work {
            Work::Op(op) => op.name(),
            Work::Kernel(KernelForm::MaskedAttention(..)) => "attention",
            Work::Kernel(KernelForm::LayerNormOfSum { .. }) => "layer_norm",
        }
    }

    /// The result's extents.
    pub(super) fn result(&self) -> Result<Vec<usize>> {
        let shapes: Vec<&[usize]> = self.operands.iter().map(|o| o.shape.as_slice()).collect();
        let shape = match &self.work {
            Work::Op(op) => ops::output_shape(op, &shapes),
            Work::Kernel(KernelForm::MaskedAttention(spec, _)) => {
                ops::output_shape(&Op::Attention(*spec), shapes.get(..3).unwrap_or_default())
            }
            Work::Kernel(KernelForm::LayerNormOfSum { .. }) => Ok([2]
                .into_iter()
                .chain(shapes.first().into_iter().copied().flatten().copied())
                .collect()),
        };
        shape.map_err(|reason| Error::graph(self.op_name(), reason))
    }

    /// Floating-point operations; those of masked scores are not done and not counted.
    pub(super) fn flops(&self, result: &[usize]) -> u64 {
        let shapes: Vec<&[usize]> = self.operands.iter().map(|o| o.shape.as_slice()).collect();
        match &self.work {
            Work::Op(op) => ops::flops(op, &shapes, result),
            Work::Kernel(KernelForm::MaskedAttention(spec, mask)) => {
                let (queries, keys) = (shapes[0][1], shapes[1][1]);
                let seen: usize = (0..queries)
                    .map(|query| mask.keys(query, queries, keys).len())
                    .sum();
                let all = ops::flops(&Op::Attention(*spec), &shapes[..3], result);
                (all as f64 * seen as f64 / (queries * keys).max(1) as f64) as u64
            }
            Work::Kernel(KernelForm::LayerNormOfSum { epsilon }) => {
                let x = [shapes[0], shapes[2], shapes[3]];
                let norm = ops::flops(&Op::LayerNorm { epsilon: *epsilon }, &x, shapes[0]);
                norm + ops::flops(&Op::Add, &shapes[..2], shapes[0])
            }
        }
    }

    /// Images that go in at once.
    pub(super) fn batch(&self) -> usize {
        self.image().map_or(1, |image| image.shape[0])
    }

    /// The operand that is the graph's input, if one is.
    pub(super) fn image(&self) -> Option<&Operand> {
        self.operands.iter().find(|o| matches!(o.role, Role::Image(_)))
    }
}

/// The op with what was fused into it, and how its operands come.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.work {
            Work::Op(op) => write!(f, "{op}"),
            Work::Kernel(KernelForm::MaskedAttention(spec, mask)) => {
                write!(f, "{}{mask}", Op::Attention(*spec))
            }
            Work::Kernel(KernelForm::LayerNormOfSum { .. }) => f.write_str("layer_norm of a sum, kept"),
        }
    }
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.left, self.right) {
            (None, None) => Ok(()),
            (None, Some(0)) => f.write_str(" causal"),
            (left, right) => {
                let bound = |b: Option<u32>| b.map_or("∞".to_owned(), |b| b.to_string());
                write!(f, " window {}+{}", bound(left), bound(right))
            }
        }?;
        f.write_str(if self.padding { " key-padding" } else { "" })
    }
}

impl Mask {
    /// How far query 0 is from key 0.
    pub(super) fn diagonal(queries: usize, keys: usize) -> i64 {
        keys as i64 - queries as i64
    }

    /// The keys that `query` sees by its place.
    pub(super) fn keys(&self, query: usize, queries: usize, keys: usize) -> std::ops::Range<usize> {
        let place = query as i64 + Self::diagonal(queries, keys);
        let within = |key: i64| key.clamp(0, keys as i64) as usize;
        let first = self.left.map_or(0, |left| within(place - i64::from(left)));
        let end = self
            .right
            .map_or(keys, |right| within(place + i64::from(right) + 1));
        first..end.max(first)
    }
}

/// All cases of these sizes.
pub(super) fn cases(config: Config) -> Vec<Case> {
    let mut list = List {
        config,
        cases: Vec::new(),
    };
    match config.sizes() {
        Some(sizes) => list.model(sizes),
        None => list.awkward(),
    }
    list.cases
}

const ACTIVATIONS: [Activation; 6] = [
    Activation::GeluErf,
    Activation::GeluTanh,
    Activation::QuickGelu,
    Activation::Silu,
    Activation::Relu,
    Activation::Tanh,
];

const NORMALIZE: Normalize = Normalize {
    scale: [1.0 / 58.0, 1.0 / 57.0, 1.0 / 59.0],
    shift: [-2.1, -2.0, -1.8],
};

const EPSILON: f32 = 1e-6;

const CAUSAL: Mask = Mask {
    left: None,
    right: Some(0),
    padding: false,
};
const WINDOW: Mask = Mask {
    left: Some(40),
    right: Some(7),
    padding: false,
};
const PADDING: Mask = Mask {
    left: None,
    right: None,
    padding: true,
};

/// How a linear layer is given and what follows it.
#[derive(Clone, Copy)]
struct Product<'a> {
    /// All but the channels.
    outer: &'a [usize],
    k: usize,
    n: usize,
    spec: Linear,
}

const PLAIN: Linear = Linear {
    bias: false,
    activation: None,
    residual: false,
};

struct List {
    config: Config,
    cases: Vec<Case>,
}

impl List {
    /// What a Vision Transformer of this size computes.
    fn model(&mut self, sizes: Sizes) {
        let Sizes {
            batch,
            heads,
            tokens,
            head_dim,
        } = sizes;
        let channels = sizes.channels();
        let every_form = matches!(self.config, Config::Micro | Config::Small);
        self.patches(batch, tokens, [16, 16], 0, channels);
        self.tokens([batch, tokens, channels]);
        self.elementwise([batch, tokens, channels], every_form);
        let activations = if every_form {
            &ACTIVATIONS[..]
        } else {
            &ACTIVATIONS[..1]
        };
        self.activations([batch, tokens, 4 * channels], activations, every_form);
        self.layer_norm(&[batch, tokens], channels);

        let outer = [batch, tokens];
        let product = |k, n, spec| Product {
            outer: &outer,
            k,
            n,
            spec,
        };
        let bias = Linear { bias: true, ..PLAIN };
        let residual = Linear {
            residual: true,
            ..bias
        };
        let gelu = Linear {
            activation: Some(Activation::GeluErf),
            ..bias
        };
        self.linear(product(channels, channels, PLAIN), false);
        self.linear(product(channels, 3 * channels, bias), false);
        self.linear(product(channels, channels, residual), true);
        self.linear(product(channels, 4 * channels, gelu), false);
        self.linear(product(4 * channels, channels, residual), true);
        if every_form {
            self.linear(product(channels, channels, residual), false);
            let both = Linear {
                residual: true,
                ..gelu
            };
            self.linear(product(channels, channels, both), true);
        }
        self.linear(
            Product {
                outer: &[batch],
                k: channels,
                n: 1000,
                spec: bias,
            },
            false,
        );

        self.attention(batch, tokens, (heads, head_dim), false);
        self.masked(batch, (tokens, tokens), (heads, head_dim), CAUSAL);
        let both = Mask {
            padding: true,
            ..WINDOW
        };
        self.masked(batch, (tokens, tokens), (heads, head_dim), both);
        self.pool([batch, tokens, channels], 1);
    }

    fn awkward(&mut self) {
        let heads_of: [&[(usize, usize)]; 6] = [
            &[(1, 32), (3, 1)],
            &[(2, 33), (1, 16)],
            &[(3, 48)],
            &[(1, 72), (2, 80)],
            &[(3, 64)],
            &[(1, 96), (2, 127), (1, 128)],
        ];
        let sizes = [1, 63, 64, 65, 197, 257];
        let channels = [1, 33, 65, 130, 48, 197];
        for (i, (tokens, channels)) in sizes.into_iter().zip(channels).enumerate() {
            let batch = 1 + i % 3;
            let patch = [[8, 8], [4, 3], [16, 4], [7, 14], [4, 4], [2, 5]][i];
            self.patches(batch, tokens, patch, 1, channels);
            self.tokens([batch, tokens, channels]);
            self.elementwise([batch, tokens, channels], true);
            self.activations([batch, tokens, channels], &ACTIVATIONS, true);
            self.layer_norm(&[batch, tokens], channels);
            for (form, activation) in ACTIVATIONS.into_iter().map(Some).chain([None]).enumerate() {
                let spec = Linear {
                    bias: form % 2 == 0,
                    activation,
                    residual: form % 3 != 1,
                };
                let product = Product {
                    outer: &[batch, tokens],
                    k: [1, 300, 16, 257, 64, 512][i],
                    n: [33, 1, 10, 32, 100, 65][i],
                    spec,
                };
                self.linear(product, false);
                if spec.residual {
                    self.linear(product, true);
                }
            }
            for &heads in heads_of[i] {
                self.attention(batch, tokens, heads, true);
                let queries = tokens.div_ceil(3);
                self.masked(batch, (tokens, tokens), heads, CAUSAL);
                self.masked(batch, (queries, tokens), heads, WINDOW);
                self.masked(batch, (queries, tokens), heads, PADDING);
                let both = Mask {
                    padding: true,
                    ..CAUSAL
                };
                self.masked(batch, (tokens + 3, tokens), heads, both);
            }
            self.pool([batch, tokens, channels], tokens / 2);
        }
        // Rows that one wave does not hold.
        self.layer_norm(&[2, 1], 4100);
        self.layer_norm(&[1, 3], 8192);
    }

    fn push(&mut self, op: Op, operands: Vec<Operand>) {
        self.push_work(Work::Op(op), operands, false);
    }

    fn push_in_arena(&mut self, op: Op, operands: Vec<Operand>) {
        self.push_work(Work::Op(op), operands, true);
    }

    fn push_work(&mut self, work: Work, operands: Vec<Operand>, in_arena: bool) {
        self.cases.push(Case {
            config: self.config,
            work,
            operands,
            in_arena,
        });
    }

    /// Images of this many patches, with `rest` more pixels at the right and the bottom.
    fn patches(&mut self, batch: usize, tokens: usize, patch: [usize; 2], rest: usize, channels: usize) {
        let down = (1..=tokens).rfind(|&d| d * d <= tokens && tokens.is_multiple_of(d));
        let down = down.unwrap_or(1);
        let (h, w) = (down * patch[0] + rest, tokens / down * patch[1] + rest);
        let pixels = || image(&[batch, h, w, 3], DType::U8);
        let values = || image(&[batch, 3, h, w], DType::F32);
        self.push(Op::Normalize(NORMALIZE), vec![pixels()]);
        for normalize in [Some(NORMALIZE), None] {
            for (layout, x) in [(PixelLayout::Hwc, pixels()), (PixelLayout::Chw, values())] {
                let spec = PatchExtract {
                    patch,
                    layout,
                    normalize,
                };
                self.push(Op::PatchExtract(spec), vec![x]);
            }
        }
        let weight = parameter(&[channels, 3, patch[0], patch[1]]);
        let conv = PatchConv { patch, bias: true };
        self.push(
            Op::PatchConv(conv),
            vec![values(), weight, parameter(&[channels])],
        );
    }

    fn tokens(&mut self, [batch, tokens, channels]: [usize; 3]) {
        let x = || activation(&[batch, tokens, channels]);
        let prefix = |count| parameter(&[1, count, channels]);
        let position = || parameter(&[1, tokens, channels]);
        self.push(Op::Prepend, vec![prefix(1), prefix(4), x()]);
        for (with_prefix, with_position) in [(true, true), (true, false), (false, true)] {
            let spec = Tokens {
                prefix: with_prefix,
                position: with_position,
            };
            let prefix = with_prefix.then(|| prefix(5));
            let operands = [Some(x()), prefix, with_position.then(position)];
            self.push(Op::Tokens(spec), operands.into_iter().flatten().collect());
        }
    }

    fn elementwise(&mut self, shape: [usize; 3], every_form: bool) {
        let [_, tokens, channels] = shape;
        let x = || activation(&shape);
        self.push_in_arena(Op::Add, vec![x(), x()]);
        self.push(Op::Add, vec![x(), activation(&[1, tokens, channels])]);
        self.push(Op::Scale, vec![x(), parameter(&[channels])]);
        self.push(Op::MulScalar(-0.3), vec![x()]);
        if every_form {
            self.push(Op::Add, vec![x(), x()]);
            self.push_in_arena(Op::Scale, vec![x(), parameter(&[channels])]);
            self.push_in_arena(Op::MulScalar(-0.3), vec![x()]);
        }
    }

    fn activations(&mut self, shape: [usize; 3], activations: &[Activation], every_form: bool) {
        // Beyond where they have bent to a line.
        let x = |shape: &[usize]| Operand {
            spread: 6.0,
            ..activation(shape)
        };
        for &activation in activations {
            self.push(Op::Activation(activation), vec![x(&shape)]);
            if every_form {
                self.push_in_arena(Op::Activation(activation), vec![x(&shape)]);
            }
        }
        let [batch, tokens, channels] = shape;
        let gated = [batch, tokens, channels.next_multiple_of(2)];
        self.push(Op::SwiGlu, vec![x(&gated)]);
    }

    fn layer_norm(&mut self, outer: &[usize], channels: usize) {
        let shape = with(outer, channels);
        // A mean far from zero, as residual streams have.
        let x = Operand {
            mean: 3.0,
            ..activation(&shape)
        };
        let parameters = [parameter(&[channels]), parameter(&[channels])];
        let [weight, bias] = parameters;
        let op = || Op::LayerNorm { epsilon: EPSILON };
        self.push(op(), vec![x.clone(), weight.clone(), bias.clone()]);
        self.push_in_arena(op(), vec![x, weight.clone(), bias.clone()]);
        let rows = [outer.iter().product(), channels];
        let (x, residual) = (activation(&rows), activation(&rows));
        let form = KernelForm::LayerNormOfSum { epsilon: EPSILON };
        self.push_work(Work::Kernel(form), vec![x, residual, weight, bias], false);
    }

    fn linear(&mut self, product: Product<'_>, in_arena: bool) {
        let Product { outer, k, n, spec } = product;
        let mut operands = vec![activation(&with(outer, k)), parameter(&[n, k])];
        operands.extend(spec.bias.then(|| parameter(&[n])));
        operands.extend(spec.residual.then(|| activation(&with(outer, n))));
        self.push_work(Work::Op(Op::Linear(spec)), operands, in_arena);
    }

    fn attention(
        &mut self,
        batch: usize,
        tokens: usize,
        (heads, head_dim): (usize, usize),
        every_form: bool,
    ) {
        let c = heads * head_dim;
        let op = |operands| Op::Attention(spec(heads, head_dim, operands));
        let packed = |parts: usize| activation(&[batch, tokens, parts * c]);
        self.push(op(AttentionOperands::PackedQkv), vec![packed(3)]);
        let separate = vec![packed(1), packed(1), packed(1)];
        self.push(op(AttentionOperands::Separate), separate);
        // One query for all images, as where attention pools.
        let shared = activation(&[1, 1, c]);
        self.push(op(AttentionOperands::PackedKv), vec![shared, packed(2)]);
        if every_form {
            let several = activation(&[batch, 7, c]);
            self.push(op(AttentionOperands::PackedKv), vec![several, packed(2)]);
            let vector = activation(&[batch, c]);
            self.push(op(AttentionOperands::PackedKv), vec![vector, packed(2)]);
            let longer = activation(&[1, tokens + 1, c]);
            let operands = vec![longer, packed(1), packed(1)];
            self.push(op(AttentionOperands::Separate), operands);
        }
    }

    fn masked(
        &mut self,
        batch: usize,
        (queries, keys): (usize, usize),
        (heads, head_dim): (usize, usize),
        mask: Mask,
    ) {
        let c = heads * head_dim;
        let tokens = |n| activation(&[batch, n, c]);
        let mut operands = vec![tokens(queries), tokens(keys), tokens(keys)];
        operands.extend(mask.padding.then(|| Operand {
            role: Role::KeyMask,
            ..activation(&[batch, keys])
        }));
        let spec = spec(heads, head_dim, AttentionOperands::Separate);
        let form = KernelForm::MaskedAttention(spec, mask);
        self.push_work(Work::Kernel(form), operands, false);
    }

    fn pool(&mut self, shape: [usize; 3], skip: usize) {
        let [batch, tokens, channels] = shape;
        let pools = [Pool::Token(tokens - 1), Pool::Mean { skip }, Pool::Max { skip }];
        for pool in pools {
            self.push(Op::Pool(pool), vec![activation(&shape)]);
        }
        let pair = vec![activation(&[batch, channels]), activation(&[batch, 7])];
        self.push(Op::ConcatChannels, pair);
    }
}

fn spec(heads: usize, head_dim: usize, operands: AttentionOperands) -> Attention {
    Attention {
        heads,
        head_dim,
        // Scores that differ, so that weights do.
        scale: 3.0 / (head_dim as f32).sqrt(),
        operands,
    }
}

fn with(outer: &[usize], channels: usize) -> Vec<usize> {
    outer.iter().copied().chain([channels]).collect()
}

fn image(shape: &[usize], dtype: DType) -> Operand {
    Operand {
        role: Role::Image(dtype),
        ..activation(shape)
    }
}

fn activation(shape: &[usize]) -> Operand {
    Operand {
        shape: shape.to_vec(),
        role: Role::Activation,
        mean: 0.0,
        spread: 1.0,
    }
}

/// Weights are small, so that sums stay within half precision.
fn parameter(shape: &[usize]) -> Operand {
    Operand {
        role: Role::Parameter,
        spread: if shape.len() == 1 { 1.0 } else { 0.2 },
        ..activation(shape)
    }
}
