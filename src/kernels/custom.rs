//! Ops that other crates define: their HIP source, compiled at run time, and its launches.

pub(crate) mod call;
mod lower;
pub(super) mod modules;

use std::borrow::Cow;
use std::sync::Arc;

use hipvit_graph::op::{Custom, CustomOp, Definition as _, OpError};

use crate::hip::Launch;
use crate::tensor::DType;

/// A custom op that a GPU computes.
///
/// # Safety
///
/// For every step whose shapes [`CustomOp::shapes`] accepts, each launch of [`launches`](Self::launches) names a kernel of
/// [`source`](Self::source). The kernel's parameters have the types of the launch's arguments, in their order. The kernel accesses
/// LDS, its own scratch, its module's globals, and the elements of the operands and results among its arguments. It writes only
/// results. If [`CustomOp::may_alias`] names an operand, that operand and the first result may be the same memory.
pub unsafe trait HipKernel: CustomOp {
    /// HIP C++ source, compiled for each dtype on first use.
    ///
    /// The macro `HIPVIT_DTYPE` is `f32`, `f16` or `bf16`: with `#include "device.hpp"` it is the type of the elements in the
    /// namespace `hipvit`, which `to_float` and `from_float` convert. Kernels are `extern "C"`, as `HIPVIT_KERNEL(threads)` declares them.
    fn source(&self) -> Cow<'static, str>;

    /// Launches that compute a step, in order.
    ///
    /// # Errors
    ///
    /// [`OpError`] for what the kernels do not compute.
    fn launches(&self, step: &HipStep<'_>) -> Result<Vec<HipLaunch>, OpError>;
}

/// Shapes and dtype of a step that a [`HipKernel`] computes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HipStep<'a> {
    /// Extents of the operands.
    pub operands: Vec<&'a [usize]>,
    /// Extents of the results.
    pub results: Vec<&'a [usize]>,
    /// Dtype of their elements.
    pub dtype: DType,
}

/// A launch of a kernel: its name, grid, block, and arguments in the order of its parameters.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a step returns its launches"]
pub struct HipLaunch {
    kernel: Cow<'static, str>,
    geometry: Launch,
    arguments: Vec<Argument>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Argument {
    Operand(usize),
    Result(usize),
    Value(Value),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    U32(u32),
    I32(i32),
    F32(f32),
    U64(u64),
}

impl HipLaunch {
    /// Launches `kernel`, which has no arguments yet.
    pub fn new(kernel: impl Into<Cow<'static, str>>, geometry: Launch) -> Self {
        Self {
            kernel: kernel.into(),
            geometry,
            arguments: Vec::new(),
        }
    }

    /// Adds an argument: a pointer to the elements of operand `index`.
    pub fn operand(self, index: usize) -> Self {
        self.with(Argument::Operand(index))
    }

    /// Adds an argument: a pointer to the elements of result `index`.
    pub fn result(self, index: usize) -> Self {
        self.with(Argument::Result(index))
    }

    /// Adds an argument: an `unsigned`.
    pub fn u32(self, value: u32) -> Self {
        self.with(Argument::Value(Value::U32(value)))
    }

    /// Adds an argument: an `int`.
    pub fn i32(self, value: i32) -> Self {
        self.with(Argument::Value(Value::I32(value)))
    }

    /// Adds an argument: a `float`.
    pub fn f32(self, value: f32) -> Self {
        self.with(Argument::Value(Value::F32(value)))
    }

    /// Adds an argument: an `unsigned long long`.
    pub fn u64(self, value: u64) -> Self {
        self.with(Argument::Value(Value::U64(value)))
    }

    fn with(mut self, argument: Argument) -> Self {
        self.arguments.push(argument);
        self
    }
}

fn kernel(op: &Custom) -> Result<&Arc<dyn HipKernel>, OpError> {
    op.get().ok_or_else(|| {
        let name = op.op_name();
        format!("{name} has no kernel for GPUs. Add one with `OpBuilder::hip`, or use the CPU").into()
    })
}
