//! Cases that check what computes ops: each op in each form at each size. An op's own are its [`Definition::cases`](crate::op::Definition::cases).

use std::fmt;

use crate::dtype::DType;
use crate::op::{Activation, Normalize, Op};

/// An op with operands to check it by.
#[derive(Clone, Debug)]
pub struct Case {
    /// The op.
    pub op: Op,
    /// Its operands.
    pub operands: Vec<Operand>,
    /// Whether activations are in the arena, where the result may overwrite them, rather than beside it.
    pub in_arena: bool,
    /// Index of the result that is checked.
    pub result: usize,
}

/// An operand's shape and what its elements are.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// What the operand is.
    pub role: Role,
    /// Elements are uniform in `mean` ± `spread`.
    pub mean: f32,
    /// See [`mean`](Self::mean).
    pub spread: f32,
}

/// What an operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The graph's input, u8 `[B,H,W,3]` or f32 `[B,3,H,W]`.
    Image(DType),
    /// A result of other ops.
    Activation,
    /// A weight.
    Parameter,
    /// A weight in 8 bits: int8 with a scale per row, or E4M3 with one scale.
    ByteWeight(DType),
    /// A 2:4 sparse weight, which a GPU packs for the builtin kernel.
    SparseWeight,
    /// A 2:4 sparse weight, which a GPU compresses with hipSPARSELt.
    CompressedWeight,
    /// u8, 0 for an absent key.
    KeyMask,
}

/// Sizes of a model, from which all shapes follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sizes {
    /// Images.
    pub batch: usize,
    /// Heads of attention.
    pub heads: usize,
    /// Tokens of an image.
    pub tokens: usize,
    /// Channels of a head.
    pub head_dim: usize,
}

impl Sizes {
    /// Channels of a token.
    pub fn channels(self) -> usize {
        self.heads * self.head_dim
    }
}

/// `8x12x197x64`.
impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            batch,
            heads,
            tokens,
            head_dim,
        } = self;
        f.pad(&format!("{batch}x{heads}x{tokens}x{head_dim}"))
    }
}

/// Every activation function.
pub const ACTIVATIONS: [Activation; 6] = [
    Activation::GeluErf,
    Activation::GeluTanh,
    Activation::QuickGelu,
    Activation::Silu,
    Activation::Relu,
    Activation::Tanh,
];

/// A normalisation whose channels differ.
pub const NORMALIZE: Normalize = Normalize {
    scale: [1.0 / 58.0, 1.0 / 57.0, 1.0 / 59.0],
    shift: [-2.1, -2.0, -1.8],
};

/// Sizes around those of tiles and waves, with channels that are no multiple of a vector.
#[derive(Clone, Copy, Debug)]
pub struct Awkward {
    /// Images.
    pub batch: usize,
    /// Tokens of an image.
    pub tokens: usize,
    /// Channels of a token.
    pub channels: usize,
    /// Height and width of a patch.
    pub patch: [usize; 2],
    /// K and N of a GEMM.
    pub k: usize,
    /// See [`k`](Self::k).
    pub n: usize,
    /// Heads and their channels.
    pub heads: &'static [(usize, usize)],
}

/// The awkward sizes.
pub const AWKWARD: [Awkward; 6] = [
    awkward(1, 1, 1, [8, 8], [1, 33], &[(1, 32), (3, 1)]),
    awkward(2, 63, 33, [4, 3], [300, 1], &[(2, 33), (1, 16)]),
    awkward(3, 64, 65, [16, 4], [16, 10], &[(3, 48)]),
    awkward(1, 65, 130, [7, 14], [257, 32], &[(1, 72), (2, 80)]),
    awkward(2, 197, 48, [4, 4], [64, 100], &[(3, 64)]),
    awkward(3, 257, 197, [2, 5], [512, 65], &[(1, 96), (2, 127), (1, 128)]),
];

const fn awkward(
    batch: usize,
    tokens: usize,
    channels: usize,
    patch: [usize; 2],
    [k, n]: [usize; 2],
    heads: &'static [(usize, usize)],
) -> Awkward {
    Awkward {
        batch,
        tokens,
        channels,
        patch,
        k,
        n,
        heads,
    }
}

/// Sizes that ops are checked at.
#[derive(Clone, Copy, Debug)]
pub enum Scale {
    /// The sizes of one model.
    Model {
        /// The model.
        sizes: Sizes,
        /// Whether every form is checked.
        every_form: bool,
    },
    /// [`AWKWARD`].
    Awkward,
    /// One of each head size.
    Heads,
}

/// A list of cases that ops add theirs to.
#[derive(Clone, Debug)]
pub struct Cases {
    scale: Scale,
    is_micro: bool,
    cases: Vec<Case>,
}

impl Cases {
    /// Returns the cases of all ops. `is_micro` asks for the smallest set that has each form of each kernel.
    pub fn of_all_ops(scale: Scale, is_micro: bool) -> Vec<Case> {
        let mut cases = Self {
            scale,
            is_micro,
            cases: Vec::new(),
        };
        Op::add_cases(&mut cases);
        cases.cases
    }

    /// The sizes.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Whether this is the smallest set, which has each form of each kernel.
    pub fn is_micro(&self) -> bool {
        self.is_micro
    }

    /// Adds a case.
    pub fn push(&mut self, op: impl Into<Op>, operands: Vec<Operand>) {
        self.cases.push(Case {
            op: op.into(),
            operands,
            in_arena: false,
            result: 0,
        });
    }

    /// Adds a case whose activations are in the arena, where the result may overwrite them.
    pub fn push_in_arena(&mut self, op: impl Into<Op>, operands: Vec<Operand>) {
        self.push(op, operands);
        if let Some(case) = self.cases.last_mut() {
            case.in_arena = true;
        }
    }

    /// Adds a case that checks result `result`.
    pub fn push_result(&mut self, result: usize, op: impl Into<Op>, operands: Vec<Operand>) {
        self.push(op, operands);
        if let Some(case) = self.cases.last_mut() {
            case.result = result;
        }
    }

    /// Calls `add` with the extents of activations `[batch, tokens, channels]` at each size, and with whether every form is checked.
    pub fn for_each_shape(&mut self, mut add: impl FnMut(&mut Self, [usize; 3], bool)) {
        match self.scale {
            Scale::Model { sizes, every_form } => {
                add(self, [sizes.batch, sizes.tokens, sizes.channels()], every_form);
            }
            Scale::Awkward => {
                for a in &AWKWARD {
                    add(self, [a.batch, a.tokens, a.channels], true);
                }
            }
            Scale::Heads => {}
        }
    }
}

/// Extents with `channels` behind them.
pub fn with(outer: &[usize], channels: usize) -> Vec<usize> {
    outer.iter().copied().chain([channels]).collect()
}

/// The graph's input.
pub fn image(shape: &[usize], dtype: DType) -> Operand {
    Operand {
        role: Role::Image(dtype),
        ..activation(shape)
    }
}

/// An activation, uniform in ±1.
pub fn activation(shape: &[usize]) -> Operand {
    Operand {
        shape: shape.to_vec(),
        role: Role::Activation,
        mean: 0.0,
        spread: 1.0,
    }
}

/// A parameter. Weights are small, so that sums stay within half precision.
pub fn parameter(shape: &[usize]) -> Operand {
    Operand {
        role: Role::Parameter,
        spread: if shape.len() == 1 { 1.0 } else { 0.2 },
        ..activation(shape)
    }
}

/// A weight that is 2:4 sparse, with one of the roles for such.
pub fn sparse_weight(shape: &[usize], role: Role) -> Operand {
    Operand {
        role,
        ..parameter(shape)
    }
}

/// A weight of bytes and scales; values are uniform in ± about what a [`parameter`]'s are.
pub fn byte_weight(shape: &[usize], dtype: DType) -> Operand {
    Operand {
        role: Role::ByteWeight(dtype),
        ..parameter(shape)
    }
}

/// Whole images of this many patches, with `rest` more pixels at the right and the bottom: height and width.
pub fn image_size(tokens: usize, patch: [usize; 2], rest: usize) -> [usize; 2] {
    let down = (1..=tokens).rfind(|&d| d * d <= tokens && tokens.is_multiple_of(d));
    let down = down.unwrap_or(1);
    [down * patch[0] + rest, tokens / down * patch[1] + rest]
}
