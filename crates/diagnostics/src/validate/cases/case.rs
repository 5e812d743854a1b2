//! One case: a computation and its operands.

use std::fmt;
use std::sync::Arc;

use super::resampling::Resize;
use crate::validate::config::Config;
use crate::validate::part::Part;
use hipvit::error::Result;
use hipvit::graph::cases::{Operand, Role};
use hipvit::hip::DeviceAddress;
use hipvit::kernels::{KernelCall, KernelError};
use hipvit::ops::{Op, OpError};
use hipvit::tensor::{DType, Tensor};

/// Name for `--op` of the statistics of attention's softmax.
pub(super) const STATISTICS: &str = "attention_statistics";

/// One computation and its operands.
#[derive(Clone, Debug)]
pub(in crate::validate) struct Case {
    pub(in crate::validate) config: Config,
    pub(in crate::validate) work: Work,
    pub(in crate::validate) operands: Vec<Operand>,
    /// True if activations are in the arena, where the result may overwrite them, and not outside of it.
    pub(in crate::validate) in_arena: bool,
    /// Index of the result that is checked.
    pub(in crate::validate) result: usize,
}

/// Kind of computation.
#[derive(Clone, Debug)]
pub(in crate::validate) enum Work {
    Op(Op),
    /// A kernel in a form that no [`Op`] needs.
    Kernel(Arc<dyn KernelForm>),
    /// Resampling of one u8 image.
    Resize(Resize),
}

/// A form of a kernel, see [`Work::Kernel`]. Reports use its `Display`.
pub(in crate::validate) trait KernelForm:
    fmt::Debug + fmt::Display + Send + Sync
{
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
    fn expect(&self, operands: &[Tensor], rows: &[usize], dtype: DType) -> Result<Vec<Part>, OpError>;

    /// Returns the kernel's arguments, using the constructors of lowering.
    fn call(&self, operands: &[&[usize]], memory: &Addresses) -> Result<KernelCall, KernelError>;
}

/// Addresses of a kernel's operands and result on the device.
#[derive(Debug)]
pub(in crate::validate) struct Addresses {
    pub(in crate::validate) operands: Vec<DeviceAddress>,
    pub(in crate::validate) result: DeviceAddress,
    /// Size of an element in bytes.
    pub(in crate::validate) element: usize,
}

impl Addresses {
    /// Returns the address of the operand `index`, or null if there is none.
    pub(super) fn operand(&self, index: Option<usize>) -> DeviceAddress {
        index
            .and_then(|index| self.operands.get(index).copied())
            .unwrap_or(DeviceAddress::NULL)
    }
}

impl Case {
    /// Returns the name for `--op`.
    pub(in crate::validate) fn op_name(&self) -> &'static str {
        match &self.work {
            Work::Op(Op::Attention(_)) if self.result == 1 => STATISTICS,
            Work::Op(op) => op.name(),
            Work::Kernel(form) => form.op_name(),
            Work::Resize(_) => "resize",
        }
    }

    /// Returns the dtype of the elements if it is fixed. `None` if it is the device's compute dtype.
    pub(in crate::validate) fn dtype(&self) -> Option<DType> {
        matches!(self.work, Work::Resize(_)).then_some(DType::U8)
    }

    pub(in crate::validate) fn shapes(&self) -> Vec<&[usize]> {
        self.operands.iter().map(|o| o.shape.as_slice()).collect()
    }

    /// Returns the shape of the result.
    pub(in crate::validate) fn result(&self) -> Result<Vec<usize>> {
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
    pub(in crate::validate) fn result_dtype(&self, dtype: DType) -> DType {
        match &self.work {
            Work::Op(op) => match op.keeps_dtype_of().filter(|_| self.result == 0) {
                Some(index) if matches!(self.operands[index].role, Role::Integers { .. }) => DType::I32,
                Some(_) => dtype,
                None => op.result_dtype(self.result, dtype),
            },
            Work::Kernel(form) => form.result_dtype(dtype),
            Work::Resize(_) => dtype,
        }
    }

    /// Returns the operand that the result always overwrites, independent of a plan.
    pub(in crate::validate) fn in_place(&self) -> Option<usize> {
        match &self.work {
            Work::Kernel(form) => form.in_place(),
            Work::Op(_) | Work::Resize(_) => None,
        }
    }

    /// Returns the number of floating-point operations. Operations of masked scores are not executed and not counted.
    pub(in crate::validate) fn flops(&self, result: &[usize]) -> u64 {
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
    pub(in crate::validate) fn batch(&self) -> usize {
        self.image().map_or(1, |image| image.shape[0])
    }

    /// Returns the 2:4 sparse weight, if there is one.
    pub(in crate::validate) fn sparse_weight(&self) -> Option<&Operand> {
        let is_sparse = |o: &&Operand| matches!(o.role, Role::SparseWeight | Role::CompressedWeight);
        self.operands.iter().find(is_sparse)
    }

    /// Returns the operand that is the input of the graph, if there is one.
    pub(in crate::validate) fn image(&self) -> Option<&Operand> {
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

/// Returns the floating-point operations of an op with one result.
pub(super) fn flops(op: &Op, operands: &[&[usize]], result: &[usize]) -> u64 {
    op.flops(operands, &[result.to_vec()])
}
