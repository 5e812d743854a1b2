//! The cases of a validation: each op and kernel, in each form, at each size. There is one file per op, named
//! after it.

mod activation;
mod add;
mod attention;
mod attention_rope;
mod attention_statistics;
mod grid_mask;
mod grid_positions;
mod layer_norm;
mod linear;
mod patch_conv;
mod patch_extract;
pub(super) mod pillow;
mod pool;
mod resize;
mod rope;
mod softmax;
mod swiglu;
mod tokens;
mod transpose;

use std::fmt;
use std::sync::Arc;

use super::config::{Config, Sizes};
use super::expected::Part;
use hipvit::error::Result;
use hipvit::kernels::KernelCall;
use hipvit::ops::{Activation, Normalize, Op};
use hipvit::tensor::{DType, Tensor};

#[cfg(test)]
pub(super) use attention::Mask;
pub(super) use attention::attention_parts;
pub(super) use linear::LEVELS;
pub(super) use patch_extract::patch_part;
pub(super) use resize::Resize;

/// Functions that add the cases of an op to a list.
const CASES: [fn(&mut List); 18] = [
    patch_conv::cases,
    patch_extract::cases,
    tokens::cases,
    grid_positions::cases,
    grid_mask::cases,
    add::cases,
    activation::cases,
    swiglu::cases,
    layer_norm::cases,
    linear::cases,
    rope::cases,
    attention::cases,
    attention_rope::cases,
    attention_statistics::cases,
    softmax::cases,
    transpose::cases,
    pool::cases,
    resize::cases,
];

/// One computation and its operands.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) config: Config,
    pub(super) work: Work,
    pub(super) operands: Vec<Operand>,
    /// True if activations are in the arena, where the result may overwrite them, and not outside of it.
    pub(super) in_arena: bool,
    /// Index of the result that is checked.
    pub(super) result: usize,
}

/// Kind of computation.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Op(Op),
    /// A kernel in a form that no [`Op`] needs.
    Kernel(Arc<dyn KernelForm>),
    /// Resampling of one u8 image.
    Resize(Resize),
}

/// A form of a kernel, see [`Work::Kernel`]. Reports use its `Display`.
pub(super) trait KernelForm: fmt::Debug + fmt::Display + Send + Sync {
    /// Returns the name for `--op`.
    fn op_name(&self) -> &'static str;

    /// Returns the shape of the result for the operands' shapes.
    fn result(&self, operands: &[&[usize]]) -> Vec<usize> {
        operands[0].to_vec()
    }

    /// Returns the dtype of the result for operands of `dtype`.
    fn result_dtype(&self, dtype: DType) -> DType {
        dtype
    }

    /// Returns the operand that the result overwrites.
    fn in_place(&self) -> Option<usize> {
        None
    }

    /// Returns the number of floating-point operations.
    fn flops(&self, operands: &[&[usize]], result: &[usize]) -> u64;

    /// Returns the reference values of these rows of the result.
    fn expect(&self, operands: &[Tensor], rows: &[usize], dtype: DType) -> Result<Vec<Part>, String>;

    /// Returns the kernel's arguments, using the constructors of lowering.
    fn call(&self, operands: &[&[usize]], memory: &Addresses) -> Result<KernelCall, String>;
}

/// Addresses of a kernel's operands and result on the device.
#[derive(Debug)]
pub(super) struct Addresses {
    pub(super) operands: Vec<u64>,
    pub(super) result: u64,
    /// Size of an element in bytes.
    pub(super) element: usize,
}

impl Addresses {
    /// Returns the address of the operand `index`; 0 if there is none.
    fn operand(&self, index: Option<usize>) -> u64 {
        index
            .and_then(|index| self.operands.get(index).copied())
            .unwrap_or(0)
    }
}

/// Shape and content of an operand.
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
    /// Input of the graph, u8 `[B,H,W,3]` or f32 `[B,3,H,W]`.
    Image(DType),
    Activation,
    Parameter,
    /// An 8-bit weight: int8 with a scale for each row, or E4M3 with one scale.
    ByteWeight(DType),
    /// A weight with two zeros in each four along the rows. On a GPU it is packed for hipvit's kernel.
    SparseWeight,
    /// A weight with two zeros in each four along the rows. On a GPU hipSPARSELt compresses it.
    CompressedWeight,
    /// u8; 0 for an absent key.
    KeyMask,
}

impl Case {
    /// Returns the name for `--op`.
    pub(super) fn op_name(&self) -> &'static str {
        match &self.work {
            Work::Op(Op::Attention(_)) if self.result == 1 => STATISTICS,
            Work::Op(op) => op.name(),
            Work::Kernel(form) => form.op_name(),
            Work::Resize(_) => "resize",
        }
    }

    /// Returns the dtype of the elements if it is fixed. `None` if it is the device's compute dtype.
    pub(super) fn dtype(&self) -> Option<DType> {
        matches!(self.work, Work::Resize(_)).then_some(DType::U8)
    }

    pub(super) fn shapes(&self) -> Vec<&[usize]> {
        self.operands.iter().map(|o| o.shape.as_slice()).collect()
    }

    /// Returns the shape of the result.
    pub(super) fn result(&self) -> Result<Vec<usize>> {
        match &self.work {
            Work::Op(op) => {
                let results = op.shapes(&self.shapes());
                let mut results = results.map_err(|source| hipvit_graph::Error::op(op.name(), op, source))?;
                Ok(results.swap_remove(self.result))
            }
            Work::Kernel(form) => Ok(form.result(&self.shapes())),
            Work::Resize(resize) => Ok(resize.result()),
        }
    }

    /// Returns the dtype of the result for operands of `dtype`.
    pub(super) fn result_dtype(&self, dtype: DType) -> DType {
        match &self.work {
            Work::Op(op) => op.result_dtype(self.result, dtype),
            Work::Kernel(form) => form.result_dtype(dtype),
            Work::Resize(_) => dtype,
        }
    }

    /// Returns the operand that the result always overwrites, independent of a plan.
    pub(super) fn in_place(&self) -> Option<usize> {
        match &self.work {
            Work::Kernel(form) => form.in_place(),
            Work::Op(_) | Work::Resize(_) => None,
        }
    }

    /// Returns the number of floating-point operations. Operations of masked scores are not executed and not counted.
    pub(super) fn flops(&self, result: &[usize]) -> u64 {
        match &self.work {
            Work::Op(op) => {
                let results = op.shapes(&self.shapes()).unwrap_or_default();
                op.flops(&self.shapes(), &results)
            }
            Work::Kernel(form) => form.flops(&self.shapes(), result),
            // Resampling sums integers.
            Work::Resize(_) => 0,
        }
    }

    /// Returns the number of images in the batch.
    pub(super) fn batch(&self) -> usize {
        self.image().map_or(1, |image| image.shape[0])
    }

    /// Returns the 2:4 sparse weight, if there is one.
    pub(super) fn sparse_weight(&self) -> Option<&Operand> {
        let is_sparse = |o: &&Operand| matches!(o.role, Role::SparseWeight | Role::CompressedWeight);
        self.operands.iter().find(is_sparse)
    }

    /// Returns the operand that is the input of the graph, if there is one.
    pub(super) fn image(&self) -> Option<&Operand> {
        self.operands.iter().find(|o| matches!(o.role, Role::Image(_)))
    }
}

/// The op with what was fused into it, and the layout of its operands.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.work {
            Work::Op(op) => {
                let sparse = match self.sparse_weight().map(|weight| weight.role) {
                    Some(Role::CompressedWeight) => " 2:4 compressed",
                    Some(_) => " 2:4",
                    None => "",
                };
                write!(f, "{op}{sparse}")
            }
            Work::Kernel(form) => write!(f, "{form}"),
            Work::Resize(resize) => write!(f, "{resize}"),
        }
    }
}

/// Returns all cases of these sizes.
pub(super) fn cases(config: Config) -> Vec<Case> {
    let mut list = List {
        config,
        cases: Vec::new(),
    };
    for add in CASES {
        add(&mut list);
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

/// Sizes near those of tiles and waves, with channels that are no multiple of a vector.
struct Awkward {
    batch: usize,
    tokens: usize,
    channels: usize,
    patch: [usize; 2],
    /// K and N of a GEMM.
    k: usize,
    n: usize,
    /// Numbers of heads and channels per head.
    heads: &'static [(usize, usize)],
}

const AWKWARD: [Awkward; 6] = [
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

/// Sizes that a [`Config`] selects.
enum Scale {
    /// Sizes of one model. `every_form` adds every form of every op.
    Model { sizes: Sizes, every_form: bool },
    /// The sizes of [`AWKWARD`].
    Awkward,
    /// One case for each head size.
    Heads,
}

struct List {
    config: Config,
    cases: Vec<Case>,
}

impl List {
    fn scale(&self) -> Scale {
        match (self.config.sizes(), self.config) {
            (Some(sizes), config) => Scale::Model {
                sizes,
                every_form: matches!(config, Config::Micro | Config::Small),
            },
            (None, Config::Heads) => Scale::Heads,
            (None, _) => Scale::Awkward,
        }
    }

    /// Returns true for the smallest set, which has each form of each kernel.
    fn is_micro(&self) -> bool {
        self.config == Config::Micro
    }

    fn push(&mut self, op: Op, operands: Vec<Operand>) {
        self.push_work(Work::Op(op), operands, false);
    }

    fn push_in_arena(&mut self, op: Op, operands: Vec<Operand>) {
        self.push_work(Work::Op(op), operands, true);
    }

    fn push_kernel(&mut self, form: impl KernelForm + 'static, operands: Vec<Operand>) {
        self.push_work(Work::Kernel(Arc::new(form)), operands, false);
    }

    /// Adds a case that checks the result `result` of an op with several results.
    fn push_result(&mut self, result: usize, op: Op, operands: Vec<Operand>) {
        self.push(op, operands);
        if let Some(case) = self.cases.last_mut() {
            case.result = result;
        }
    }

    fn push_work(&mut self, work: Work, operands: Vec<Operand>, in_arena: bool) {
        self.cases.push(Case {
            config: self.config,
            work,
            operands,
            in_arena,
            result: 0,
        });
    }
}

/// Name for `--op` of the statistics of attention's softmax.
const STATISTICS: &str = "attention_statistics";

/// Returns the floating-point operations of an op with one result.
fn flops(op: &Op, operands: &[&[usize]], result: &[usize]) -> u64 {
    op.flops(operands, &[result.to_vec()])
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

/// Returns a parameter. Its values are small, so that sums stay within half precision.
fn parameter(shape: &[usize]) -> Operand {
    Operand {
        role: Role::Parameter,
        spread: if shape.len() == 1 { 1.0 } else { 0.2 },
        ..activation(shape)
    }
}

/// Returns a 2:4 sparse weight with the given role.
fn sparse_weight(shape: &[usize], role: Role) -> Operand {
    Operand {
        role,
        ..parameter(shape)
    }
}

/// Returns an 8-bit weight with scales. Its values have about the range of a [`parameter`]'s.
fn byte_weight(shape: &[usize], dtype: DType) -> Operand {
    Operand {
        role: Role::ByteWeight(dtype),
        ..parameter(shape)
    }
}

/// Returns height and width of an image with this many patches, and `rest` more pixels at the right and the
/// bottom.
fn image_size(tokens: usize, patch: [usize; 2], rest: usize) -> [usize; 2] {
    let down = (1..=tokens).rfind(|&d| d * d <= tokens && tokens.is_multiple_of(d));
    let down = down.unwrap_or(1);
    [down * patch[0] + rest, tokens / down * patch[1] + rest]
}
