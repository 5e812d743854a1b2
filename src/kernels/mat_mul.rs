//! Matrix products of backward passes, by the library that is [selected](crate::exec::select) on submission.

use hipvit_graph::op::MatMul;

use super::KernelError;
use super::linear::call::LinearCall;
use super::lower::{Call, Lower, Lowering, one, rows};
use crate::dtype::to_hip;
use crate::hip::{DeviceAddress, Gemm, Matrix};

impl Lower for MatMul {
    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let [a, b] = [step.shape_of(0)?, step.shape_of(1)?];
        let columns = |shape: &[usize]| shape.last().copied().ok_or("an operand is a scalar");
        let (width, n, dtype) = (columns(a)?, columns(b)?, to_hip(step.plan.dtype()));
        let gemm = if self.transpose_a {
            Gemm {
                a: Matrix::transposed(width),
                ..Gemm::new(width, n, rows(a)?, dtype)
            }
        } else {
            Gemm::new(rows(a)?, n, width, dtype)
        };
        one(Call::Linear(LinearCall {
            gemm,
            x: step.address(0)?,
            weight: step.address(1)?,
            bias: DeviceAddress::NULL,
            residual: DeviceAddress::NULL,
            out: step.out,
            scratch: DeviceAddress::NULL,
            activation: None,
            float8: None,
            int8: None,
            sparse: None,
        }))
    }
}
