//! The cases of a validation: each op and kernel, in each form, at each size. There is one file per op, named
//! after it.

mod activation;
mod add;
mod attention;
mod attention_rope;
mod attention_statistics;
mod layer_norm;
mod patch_extract;
pub(super) mod pillow;
mod resize;
mod softmax;
mod swiglu;

use std::fmt;
use std::sync::Arc;

use super::config::{Config, Sizes};
use super::expected::Part;
use hipvit::error::Result;
pub use hipvit::graph::cases::Operand;
pub(super) use hipvit::graph::cases::Role;
use hipvit::graph::cases::{ACTIVATIONS, AWKWARD, Cases, Scale, activation, parameter};
use hipvit::hip::DeviceAddress;
use hipvit::kernels::{KernelCall, KernelError};
use hipvit::ops::Op;
use hipvit::tensor::{DType, Tensor};

#[cfg(test)]
pub(super) use attention::Mask;
pub(super) use attention::attention_parts;
pub(super) use patch_extract::patch_part;
pub(super) use resize::Resize;

/// Functions that add the cases of an op to a list.
const CASES: [fn(&mut List); 9] = [
    add::cases,
    activation::cases,
    swiglu::cases,
    layer_norm::cases,
    attention::cases,
    attention_rope::cases,
    attention_statistics::cases,
    softmax::cases,
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
    fn call(&self, operands: &[&[usize]], memory: &Addresses) -> Result<KernelCall, KernelError>;
}

/// Addresses of a kernel's operands and result on the device.
#[derive(Debug)]
pub(super) struct Addresses {
    pub(super) operands: Vec<DeviceAddress>,
    pub(super) result: DeviceAddress,
    /// Size of an element in bytes.
    pub(super) element: usize,
}

impl Addresses {
    /// Returns the address of the operand `index`, or null if there is none.
    fn operand(&self, index: Option<usize>) -> DeviceAddress {
        index
            .and_then(|index| self.operands.get(index).copied())
            .unwrap_or(DeviceAddress::NULL)
    }
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

/// Returns a case for each result of one op, with activations inside and outside of the arena.
pub(super) fn op_cases(op: &Op, operands: &[Operand]) -> Result<Vec<Case>> {
    let shapes: Vec<&[usize]> = operands.iter().map(|o| o.shape.as_slice()).collect();
    let results = op.shapes(&shapes);
    let results = results.map_err(|source| hipvit_graph::Error::op(op.name(), op, source))?;
    let shape = shapes.first().copied().unwrap_or_default();
    let config = Config::Custom(Sizes {
        batch: shape.first().copied().unwrap_or(1),
        heads: 1,
        tokens: shape
            .get(1..shape.len().max(2) - 1)
            .unwrap_or_default()
            .iter()
            .product(),
        head_dim: shape.last().copied().unwrap_or(1),
    });
    let case = |result| {
        [false, true].map(|in_arena| Case {
            config,
            work: Work::Op(op.clone()),
            operands: operands.to_vec(),
            in_arena,
            result,
        })
    };
    Ok((0..results.len()).flat_map(case).collect())
}

/// Returns all cases of these sizes.
pub(super) fn cases(config: Config) -> Vec<Case> {
    let mut list = List {
        config,
        cases: Vec::new(),
    };
    let of_ops = Cases::of_all_ops(list.scale(), list.is_micro());
    list.cases.extend(of_ops.into_iter().map(|case| Case {
        config,
        work: Work::Op(case.op),
        operands: case.operands,
        in_arena: case.in_arena,
        result: case.result,
    }));
    for add in CASES {
        add(&mut list);
    }
    list.cases
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

    fn push_kernel(&mut self, form: impl KernelForm + 'static, operands: Vec<Operand>) {
        self.push_work(Work::Kernel(Arc::new(form)), operands, false);
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
