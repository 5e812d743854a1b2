//! Matrix products of backward passes, by the library that is [selected](crate::exec::select) on submission.

use hipvit_graph::op::MatMul;

use super::linear::call::LinearCall;
use super::lower::{Call, Lower, Lowering, one, rows, shape_of};
use super::{KernelError, Unit, column_sum};
use crate::dtype::to_hip;
use crate::graph::plan::{Plan, Step};
use crate::hip::{DeviceAddress, Gemm, Matrix};

impl Lower for MatMul {
    /// The kernel that sums columns where the library does not.
    fn unit(&self) -> Option<Unit> {
        self.column_sums.then(|| Unit::of("column_sum"))
    }

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
            bias: if self.column_sums {
                step.result(1)?
            } else {
                DeviceAddress::NULL
            },
            residual: DeviceAddress::NULL,
            out: step.out,
            scratch: step.addresses.scratch,
            activation: None,
            preactivation: DeviceAddress::NULL,
            float8: None,
            int8: None,
            sparse: None,
        }))
    }

    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        match step.inputs.first() {
            Some(&a) if self.column_sums => {
                let a = shape_of(plan, a);
                let columns = a.last().copied().unwrap_or(1).max(1);
                column_sum::partial_bytes([a.iter().product::<usize>() / columns, columns])
            }
            _ => 0,
        }
    }
}
