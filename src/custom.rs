//! Ops that are defined outside this crate: [`OpBuilder`] joins a [definition](CustomOp) with the kernels that compute it.
//!
//! A struct of attributes implements [`CustomOp`], and [`CpuKernel`], [`HipKernel`] or both. [`CustomOp::vjp`] is its derivative.
//! The op then is a value, which nodes of a graph hold. Nothing is registered globally. `examples/custom_op.rs` is a whole one, with a
//! graph rewrite that uses it.
//!
//! ```
//! use hipvit::custom::{CpuKernel, CpuOperand, CustomOp, OpBuilder};
//! use hipvit::ops::operands::{exactly, one};
//! use hipvit::ops::{Op, OpError, Shape};
//! use hipvit::reference::Array;
//!
//! /// `(x) → x²`.
//! #[derive(Debug)]
//! struct Square;
//!
//! impl CustomOp for Square {
//!     fn name(&self) -> &'static str {
//!         "square"
//!     }
//!
//!     fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
//!         let [x] = exactly(operands)?;
//!         one(x)
//!     }
//!
//!     fn reference(&self, operands: &[&Array], results: &mut [Array]) {
//!         for (y, x) in results[0].values_mut().iter_mut().zip(operands[0].values()) {
//!             *y = x * x;
//!         }
//!     }
//! }
//!
//! impl CpuKernel for Square {
//!     fn run(&self, operands: &[CpuOperand<'_>], results: &mut [&mut [f32]]) -> Result<(), OpError> {
//!         for (y, x) in results[0].iter_mut().zip(operands[0].values()) {
//!             *y = x * x;
//!         }
//!         Ok(())
//!     }
//! }
//!
//! let op: Op = OpBuilder::new(Square).cpu().build();
//! assert_eq!(op.name(), "square");
//! ```

use std::fmt;
use std::sync::Arc;

pub use hipvit_graph::op::CustomOp;
use hipvit_graph::op::{Custom, Op};

pub use crate::cpu::custom::{CpuKernel, CpuOperand};
pub use crate::kernels::custom::{HipKernel, HipLaunch, HipStep};

/// Builds an [`Op`] from a definition and its kernels.
///
/// Without a kernel for a device, executors on that device refuse graphs that have the op.
#[derive(Clone)]
#[must_use = "an op is built by `build`"]
pub struct OpBuilder<T> {
    definition: Arc<T>,
    op: Custom,
}

impl<T: CustomOp> OpBuilder<T> {
    /// Starts with a definition, which only the [reference interpreter](crate::graph::interpret) computes.
    pub fn new(definition: T) -> Self {
        let definition = Arc::new(definition);
        Self {
            op: Custom::new(definition.clone()),
            definition,
        }
    }

    /// Adds the kernel for the CPU.
    pub fn cpu(mut self) -> Self
    where
        T: CpuKernel,
    {
        self.op = self.op.with::<Arc<dyn CpuKernel>>(self.definition.clone());
        self
    }

    /// Adds the kernel for GPUs.
    pub fn hip(mut self) -> Self
    where
        T: HipKernel,
    {
        self.op = self.op.with::<Arc<dyn HipKernel>>(self.definition.clone());
        self
    }

    /// Returns the op.
    pub fn build(self) -> Op {
        self.op.into()
    }
}

impl<T: CustomOp> From<OpBuilder<T>> for Op {
    fn from(builder: OpBuilder<T>) -> Self {
        builder.build()
    }
}

impl<T: CustomOp> fmt::Debug for OpBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpBuilder")
            .field("definition", &self.definition)
            .field("cpu", &self.op.get::<Arc<dyn CpuKernel>>().is_some())
            .field("hip", &self.op.get::<Arc<dyn HipKernel>>().is_some())
            .finish()
    }
}
