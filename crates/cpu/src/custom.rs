//! Ops that other crates define, by their own kernels.

use std::borrow::Cow;
use std::sync::Arc;

use hipvit_graph::op::{Custom, CustomOp, Definition as _, OpError};

use super::rows::Source;
use super::{CpuOp, Operands};

/// A custom op that the CPU computes.
pub trait CpuKernel: CustomOp {
    /// Computes the results, which have the shapes that [`CustomOp::shapes`] gives. Their elements are arbitrary before.
    ///
    /// The thread belongs to the executor's rayon pool, so that rayon's parallel iterators use the session's threads.
    ///
    /// # Errors
    ///
    /// [`OpError`] if the kernel does not take the operands.
    fn run(&self, operands: &[CpuOperand<'_>], results: &mut [&mut [f32]]) -> Result<(), OpError>;
}

/// An operand of a [`CpuKernel`].
#[derive(Clone, Debug)]
pub struct CpuOperand<'a> {
    shape: &'a [usize],
    values: Cow<'a, [f32]>,
}

impl CpuOperand<'_> {
    /// Extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        self.shape
    }

    /// Elements in row-major order. An operand whose memory the result takes over is a copy.
    pub fn values(&self) -> &[f32] {
        &self.values
    }
}

fn kernel(op: &Custom) -> Result<&Arc<dyn CpuKernel>, OpError> {
    op.get().ok_or_else(|| {
        let name = op.op_name();
        format!("{name} has no kernel for the CPU. Add one with `OpBuilder::cpu`, or use a GPU").into()
    })
}

impl CpuOp for Custom {
    fn check(&self) -> Result<(), OpError> {
        kernel(self).map(drop)
    }

    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let kernel = kernel(self)?;
        let operand = |index| {
            let values = match operands.source(index)? {
                Source::InPlace => Cow::Owned(results[0].to_vec()),
                Source::At(values) => Cow::Borrowed(values),
            };
            let shape = operands.batched_shape(index)?;
            Ok(CpuOperand { shape, values })
        };
        let operands: Result<Vec<CpuOperand<'_>>, OpError> = (0..operands.count()).map(operand).collect();
        let computed = operands.and_then(|operands| kernel.run(&operands, results));
        computed.map_err(|source| self.error(source))
    }
}
