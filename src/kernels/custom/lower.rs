//! Lowering of custom ops to the launches that their kernels name.

use hipvit_graph::op::Custom;

use super::call::{CustomCall, Passed};
use super::{Argument, HipKernel, HipLaunch, HipStep, kernel};
use crate::graph::plan::Operand;
use crate::kernels::KernelError;
use crate::kernels::call::Call;
use crate::kernels::lower::{Lower, Lowering};

impl Lower for Custom {
    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let kernel = kernel(self)?;
        calls(self, kernel.as_ref(), step).map_err(|error| match error {
            KernelError::Op(source) => self.error(source).into(),
            error => error,
        })
    }
}

/// Returns the calls of a step.
fn calls(op: &Custom, kernel: &dyn HipKernel, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
    let (plan, dtype) = (step.plan, step.plan.dtype());
    let count = step.step.inputs.len();
    let shapes = (0..count)
        .map(|index| step.shape_of(index))
        .collect::<Result<_, _>>()?;
    let results = step.step.outputs.iter();
    let launches = kernel.launches(&HipStep {
        operands: shapes,
        results: results.map(|&id| plan.buffer(id).shape.as_slice()).collect(),
        dtype,
    })?;
    let operand = |index: usize| {
        let elements: usize = step.shape_of(index)?.iter().product();
        match step.operand(index)? {
            Operand::Buffer(id) if plan.buffer(id).dtype != dtype => {
                let found = plan.buffer(id).dtype;
                Err(format!("its operand {index} is {found}, and its kernels take {dtype}").into())
            }
            _ => Ok(Passed::Memory {
                address: step.address(index)?,
                bytes: elements * dtype.size(),
            }),
        }
    };
    let result = |index: usize| {
        let id = step.step.outputs.get(index);
        let id = id.ok_or_else(|| KernelError::from(format!("has no result {index}")))?;
        Ok(Passed::Memory {
            address: step.result(index)?,
            bytes: plan.buffer(*id).bytes,
        })
    };
    let call = |launch: HipLaunch| {
        let arguments = launch.arguments.iter().map(|&argument| match argument {
            Argument::Operand(index) => operand(index),
            Argument::Result(index) => result(index),
            Argument::Value(value) => Ok(Passed::Value(value)),
        });
        Ok(Call::Custom(Box::new(CustomCall {
            op: op.clone(),
            arguments: arguments.collect::<Result<_, KernelError>>()?,
            kernel: launch.kernel,
            geometry: launch.geometry,
        })))
    };
    launches.into_iter().map(call).collect()
}
