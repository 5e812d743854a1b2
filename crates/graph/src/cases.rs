//! Cases to check implementations of ops: each op in each form at each size. An op defines its cases in
//! [`Definition::cases`](crate::op::Definition::cases).

use std::fmt;

use crate::dtype::DType;

/// An op and the operands to check it with.
#[derive(Clone, Debug)]
pub struct Case<O> {
    /// The op.
    pub op: O,
    /// Its operands.
    pub operands: Vec<Operand>,
    /// True if activations are in the arena, where the result may overwrite them.
    pub in_arena: bool,
    /// Index of the result that is checked.
    pub result: usize,
}

/// Shape and elements of an operand.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// Kind of the operand.
    pub role: Role,
    /// Elements are uniform in `mean` ± `spread`.
    pub mean: f32,
    /// See [`mean`](Self::mean).
    pub spread: f32,
}

/// Kind of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The graph's input, u8 `[B,H,W,3]` or f32 `[B,3,H,W]`.
    Image(DType),
    /// A result of other ops.
    Activation,
    /// A weight.
    Parameter,
    /// An operand in f32 in any dtype of activations, such as a moment of an optimiser.
    Single,
    /// A weight in 8 bits: int8 with a scale per row, or E4M3 with one scale.
    ByteWeight(DType),
    /// A 2:4 sparse weight, which a GPU packs for the builtin kernel.
    SparseWeight,
    /// A 2:4 sparse weight, which a GPU compresses with hipSPARSELt.
    CompressedWeight,
    /// A key mask in u8, with 0 for a missing key.
    KeyMask,
    /// A captured tensor of integers in i32, ascending from 0 to at most `below` − 1 along the last extent, as the numbers of documents.
    Integers {
        /// Upper bound.
        below: i32,
    },
}

/// Sizes of a model, which determine all shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sizes {
    /// Number of images.
    pub batch: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Tokens per image.
    pub tokens: usize,
    /// Channels per head.
    pub head_dim: usize,
}

impl Sizes {
    /// Returns the channels of a token.
    pub fn channels(self) -> usize {
        self.heads * self.head_dim
    }
}

/// Formats as `8x12x197x64`.
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

/// Sizes around those of tiles and waves. Channels are not multiples of a vector.
#[derive(Clone, Copy, Debug)]
pub struct Awkward {
    /// Number of images.
    pub batch: usize,
    /// Tokens per image.
    pub tokens: usize,
    /// Channels per token.
    pub channels: usize,
    /// Height and width of a patch.
    pub patch: [usize; 2],
    /// K of a GEMM.
    pub k: usize,
    /// N of a GEMM.
    pub n: usize,
    /// Numbers of heads, with the channels of each head.
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
        /// True if every form of every op is checked.
        every_form: bool,
    },
    /// [`AWKWARD`].
    Awkward,
    /// One case for each head size.
    Heads,
}

/// A list of cases of an op, or of all ops.
#[derive(Clone, Debug)]
pub struct Cases<O> {
    scale: Scale,
    is_micro: bool,
    cases: Vec<Case<O>>,
}

impl<O> Cases<O> {
    /// Creates an empty list. `is_micro` selects the smallest set that covers each form of each kernel.
    pub fn new(scale: Scale, is_micro: bool) -> Self {
        Self {
            scale,
            is_micro,
            cases: Vec::new(),
        }
    }

    /// Returns the cases.
    pub fn into_vec(self) -> Vec<Case<O>> {
        self.cases
    }

    /// Appends the cases of another list.
    pub(crate) fn extend<P: Into<O>>(&mut self, other: Cases<P>) {
        self.cases.extend(other.cases.into_iter().map(|case| Case {
            op: case.op.into(),
            operands: case.operands,
            in_arena: case.in_arena,
            result: case.result,
        }));
    }

    /// Returns the sizes.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Returns true for the smallest set that covers each form of each kernel.
    pub fn is_micro(&self) -> bool {
        self.is_micro
    }

    /// Appends a case.
    pub fn push(&mut self, op: O, operands: Vec<Operand>) {
        self.cases.push(Case {
            op,
            operands,
            in_arena: false,
            result: 0,
        });
    }

    /// Appends a case whose activations are in the arena, where the result may overwrite them.
    pub fn push_in_arena(&mut self, op: O, operands: Vec<Operand>) {
        self.push(op, operands);
        if let Some(case) = self.cases.last_mut() {
            case.in_arena = true;
        }
    }

    /// Appends a case that checks result `result`.
    pub fn push_result(&mut self, result: usize, op: O, operands: Vec<Operand>) {
        self.push(op, operands);
        if let Some(case) = self.cases.last_mut() {
            case.result = result;
        }
    }

    /// Calls `add` for each size, with the extents `[batch, tokens, channels]` of activations, and true if every form is checked.
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

/// Returns the extents `outer` followed by `channels`.
pub fn with(outer: &[usize], channels: usize) -> Vec<usize> {
    outer.iter().copied().chain([channels]).collect()
}

/// Returns the graph's input.
pub fn image(shape: &[usize], dtype: DType) -> Operand {
    Operand {
        role: Role::Image(dtype),
        ..activation(shape)
    }
}

/// Returns an activation, uniform in ±1.
pub fn activation(shape: &[usize]) -> Operand {
    Operand {
        shape: shape.to_vec(),
        role: Role::Activation,
        mean: 0.0,
        spread: 1.0,
    }
}

/// Returns a parameter. Weights are small, so that sums stay within the range of f16.
pub fn parameter(shape: &[usize]) -> Operand {
    Operand {
        role: Role::Parameter,
        spread: if shape.len() == 1 { 1.0 } else { 0.2 },
        ..activation(shape)
    }
}

/// Returns integers from 0 to `below` − 1.
pub fn integers(shape: &[usize], below: i32) -> Operand {
    Operand {
        role: Role::Integers { below },
        ..activation(shape)
    }
}

/// Returns an operand in f32, uniform in ±1.
pub fn single(shape: &[usize]) -> Operand {
    Operand {
        role: Role::Single,
        ..activation(shape)
    }
}

/// Returns an operand in f32, uniform from 0.25 to 0.75.
pub fn positive(shape: &[usize]) -> Operand {
    Operand {
        mean: 0.5,
        spread: 0.25,
        ..single(shape)
    }
}

/// Returns an operand in f32, uniform from 0 to 1.
pub fn probabilities(shape: &[usize]) -> Operand {
    Operand {
        mean: 0.5,
        spread: 0.5,
        ..single(shape)
    }
}

/// Returns a 2:4 sparse weight with one of its two roles.
pub fn sparse_weight(shape: &[usize], role: Role) -> Operand {
    Operand {
        role,
        ..parameter(shape)
    }
}

/// Returns a weight in 8 bits with scales. Its values are uniform, of about the size of a [`parameter`]'s.
pub fn byte_weight(shape: &[usize], dtype: DType) -> Operand {
    Operand {
        role: Role::ByteWeight(dtype),
        ..parameter(shape)
    }
}

/// Returns height and width of an image of this many patches, with `rest` more pixels at the right and at the bottom.
pub fn image_size(tokens: usize, patch: [usize; 2], rest: usize) -> [usize; 2] {
    let down = (1..=tokens).rfind(|&d| d * d <= tokens && tokens.is_multiple_of(d));
    let down = down.unwrap_or(1);
    [down * patch[0] + rest, tokens / down * patch[1] + rest]
}
